"""What the SDKs' own tests expect of Service Bus, and requests as their versions for other languages write them."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import AutoLockRenewer

from amqp_codec import Array, Described, Int, Symbol, Timestamp, Uint, Ulong, encode
from amqp_wire import ACCEPTED, BATCH, KEY, KEY_NAME, RECEIVER, Connection, Message, Node, Refused, modified, put_token, rejected
from azure_client import nothing_comes, take, take_one, text, texts


def dialled(broker) -> Connection:
    return Connection(("127.0.0.1", broker.amqp_port))


# ------------------------------------------------------------------------------------------------------- entry

@pytest.mark.parametrize("initial", [
    f"\0{KEY_NAME}\0{KEY}\0", f"\0{KEY_NAME}\0{KEY}\0more", f"somebody\0{KEY_NAME}\0{KEY}", f"{KEY_NAME}x\0{KEY_NAME}\0{KEY}",
], ids=["a third NUL", "a fourth field", "another's authority", "almost its own"])
def test_plain_has_three_fields_and_nobody_acts_for_another(broker, initial):
    assert dialled(broker).sasl("PLAIN", initial.encode()).code == 1


def test_plain_may_name_itself_twice(broker):
    assert dialled(broker).sasl("PLAIN", f"{KEY_NAME}\0{KEY_NAME}\0{KEY}".encode()).code == 0


@pytest.mark.topic({"s": {}})
def test_an_unknown_entity_is_told_with_the_token(session, path, broker):
    for missing in ("nowhere", "nowhere/$management", f"{path()}/Subscriptions/other", f"{path()}x", "nowhere/$DeadLetterQueue"):
        answer = put_token(session, f"sb://localhost/{missing}")
        assert answer.application["status-code"] == 404, missing
        assert f"The messaging entity 'sb://localhost/{missing}' could not be found" in answer.application["status-description"]
    for there in ("", path(), path().upper(), f"{path()}/$management", f"{path()}/Subscriptions/s/$DeadLetterQueue"):
        assert put_token(session, f"sb://localhost/{there}").application["status-code"] == 202, there
    stranger = dialled(broker)
    stranger.sasl()
    stranger.open()
    for audience in ("nowhere", path()):
        answer = put_token(stranger.session(), f"sb://localhost/{audience}", key="wrong")
        assert answer.application["status-code"] == 401, "who has no key learns nothing"


# ---------------------------------------------------------------------------------------------- delivery counts

@pytest.mark.parametrize("sessions", [False, True], ids=["without sessions", "with sessions"])
@pytest.mark.queue("plain", MaxDeliveryCount=10)
@pytest.mark.queue("sessions", MaxDeliveryCount=10, RequiresSession=True)
def test_receive_defer_defer_abandon(entity, sessions):
    one = entity("sessions" if sessions else "plain")
    one.send("a", session="s" if sessions else None)
    receiver = one.accept("s") if sessions else one.plain()
    message = take_one(receiver)
    assert message.delivery_count == 0
    receiver.defer_message(message)
    for count in (1, 2):
        [message] = receiver.receive_deferred_messages(message.sequence_number)
        assert message.delivery_count == count
        if count < 2:
            receiver.defer_message(message)
    receiver.abandon_message(message)
    [message] = receiver.receive_deferred_messages(message.sequence_number)
    assert message.delivery_count == 3
    receiver.complete_message(message)


@pytest.mark.queue(MaxDeliveryCount=3)
def test_nothing_counts_for_a_dead_letter(queue):
    queue.send("a")
    receiver = queue.plain()
    receiver.abandon_message(take_one(receiver))
    receiver.dead_letter_message(take_one(receiver), reason="why")
    dead = queue.dead_letters()
    for _ in range(5):
        message = take_one(dead)
        assert message.delivery_count == 1
        dead.abandon_message(message)
    dead.defer_message(take_one(dead))
    [message] = dead.receive_deferred_messages(message.sequence_number)
    assert message.delivery_count == 1
    dead.abandon_message(message)
    [message] = dead.receive_deferred_messages(message.sequence_number)
    assert (message.delivery_count, message.dead_letter_reason) == (1, "why")
    dead.complete_message(message)


# ------------------------------------------------------------------------------------------------------ sessions

@pytest.mark.queue(RequiresSession=True)
def test_the_empty_session_id_is_a_session(queue):
    queue.send("a", "b", session="")
    receiver = queue.accept("")
    assert receiver.session.session_id == ""
    receiver.session.set_state("state")
    message = take_one(receiver)
    assert (text(message), message.session_id) == ("a", "")
    receiver.defer_message(message)
    assert texts(receiver.receive_deferred_messages(message.sequence_number)) == ["a"]
    assert bytes(receiver.session.get_state()) == b"state"
    receiver.session.renew_lock()
    assert text(take_one(receiver)) == "b"


@pytest.mark.queue(RequiresSession=True)
def test_the_next_session_may_be_the_empty_one(queue):
    queue.send("a", session="")
    receiver = queue.accept_next()
    assert (receiver.session.session_id, text(take_one(receiver))) == ("", "a")


@pytest.mark.queue(RequiresSession=True)
def test_the_link_says_which_session_a_request_is_for(session, path):
    sender = session.sender(path())
    for name in ("s", "t"):
        sender.send(Message.of(f"of {name}", name))
    node = Node(session, f"{path()}/$management")
    holder = session.accept(path(), "s")
    [delivery] = holder.receive()
    holder.settle(delivery.id, modified(None, True))
    holder.echo(delivery.id)
    peek = {"from-sequence-number": 1, "message-count": Int(10)}
    status, body, _ = node.request("peek-message", peek, link=holder.name)
    assert status == 200 and [Message.decode(one["message"]).data for one in body["messages"]] == [b"of s"]
    assert len(node.request("peek-message", peek)[1]["messages"]) == 2, "without a link: of all sessions"
    wanted = {"sequence-numbers": Array((delivery.message.number,)), "receiver-settle-mode": Uint(1)}
    status, body, _ = node.request("receive-by-sequence-number", wanted, link=holder.name)
    assert status == 200 and Message.decode(body["messages"][0]["message"]).data == b"of s"
    token = body["messages"][0]["lock-token"]
    assert node.request("set-session-state", {"session-state": b"x"}, link=holder.name)[0] == 200
    assert node.request("get-session-state", {}, link=holder.name)[:2] == (200, {"session-state": b"x"})
    assert node.request("renew-session-lock", {}, link=holder.name)[0] == 200
    assert node.request("update-disposition", {"disposition-status": "completed", "lock-tokens": Array((token,))}, link=holder.name)[0] == 200


# ------------------------------------------------------------------------------------------- requests in parallel

@pytest.mark.queue(LockDuration="PT20S")
def test_ten_renewals_at_once_on_one_receiver(queue):
    """Threads of this SDK that race send transfers with one delivery-id."""
    queue.send(*map(str, range(10)))
    receiver = queue.plain()
    messages = take(receiver, 10)
    with ThreadPoolExecutor(10) as pool:
        for _ in range(5):
            before = [message.locked_until_utc for message in messages]
            time.sleep(0.01)
            list(pool.map(receiver.renew_message_lock, messages))
            assert all(message.locked_until_utc > old for message, old in zip(messages, before))
    for message in messages:
        receiver.complete_message(message)
    assert nothing_comes(receiver)


@pytest.mark.queue(LockDuration="PT10S")
def test_the_auto_lock_renewer_keeps_many_messages(queue):
    queue.send(*"abcde")
    receiver = queue.plain()
    messages = take(receiver, 5)
    with AutoLockRenewer(max_workers=5) as renewer:
        for message in messages:
            renewer.register(receiver, message, max_lock_renewal_duration=30)
        time.sleep(12)
        for message in messages:
            receiver.complete_message(message)
    assert nothing_comes(receiver)


@pytest.mark.queue()
def test_requests_and_messages_may_repeat_a_delivery_id(session, path):
    """Each of them that is not settled yet is one of its own, and is answered."""
    sender, node = session.sender(path()), Node(session, f"{path()}/$management")
    request = Message.of_value({"from-sequence-number": 1, "message-count": Int(1)}, ["id", None, None, None, node.reply_to],
                               {"operation": "com.microsoft:peek-message"}).encode()
    for link, payload in ((sender, Message.of("a").encode()), (sender, Message.of("b").encode()), (node.requests, request),
                          (node.requests, request)):
        session.say("transfer", payload, handle=Uint(link.handle), delivery_id=Uint(70), delivery_tag=b"same", settled=False)
    assert [node.answers.delivery().message.application["statusCode"] for _ in range(2)] == [200, 200]
    answers = [session.expect("disposition", role=RECEIVER, first=70) for _ in range(4)]
    assert all(one.settled and one.state == ACCEPTED for one in answers)
    assert [one.message.data for one in session.receiver(path()).receive(2)] == [b"a", b"b"]


# ------------------------------------------------------------------------------------------------------ sections

HINT = Described(Ulong(0x71), {Symbol("x-opt-hint"): "behind"})
HEADER, TITLE = Described(Ulong(0x70), [True]), Described(Ulong(0x73), ["id"])
BODY = Described(Ulong(0x75), b"body")
ORDERS = {"behind the body": [TITLE, BODY, HINT], "behind the properties": [HEADER, TITLE, HINT, BODY], "backwards": [BODY, TITLE, HINT, HEADER]}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("way", ["sent", "in a batch", "scheduled"])
@pytest.mark.queue()
def test_sections_may_stand_in_any_order(session, path, order, way):
    message = b"".join(map(encode, ORDERS[order]))
    sender = session.sender(path())
    if way == "sent":
        sender.send(message)
    elif way == "in a batch":
        sender.send(encode(Described(Ulong(0x75), message)), message_format=BATCH)
    else:
        due = encode(Described(Ulong(0x72), {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(int(time.time() * 1000) + 500)}))
        wanted = {"messages": [{"message-id": "id", "message": message + due}]}
        assert Node(session, f"{path()}/$management").request("schedule-message", wanted)[0] == 200
    [delivery] = session.receiver(path()).receive()  # `decode` sees to the order.
    assert (delivery.message.data, delivery.message.property_at(0)) == (b"body", "id")
    assert delivery.message.delivery_annotations[Symbol("x-opt-hint")] == "behind"
    assert delivery.message.header[0] is (HEADER in ORDERS[order])


# --------------------------------------------------------------------------------------------------------- rules

def rule(name: str, sql: str, action: str | None = None) -> dict:
    sql_action = {"sql-rule-action": {"expression": action}} if action else {}
    return {"rule-name": name, "rule-description": {"sql-filter": {"expression": sql}} | sql_action}


@pytest.mark.topic({"s": {}})
def test_rules_are_told_as_clients_look_for_them(session, path):
    subscription = f"{path()}/Subscriptions/s"
    node = Node(session, f"{subscription}/$management")
    for name in ("b", "a", "C"):
        assert node.request("add-rule", rule(name, "1 = 1"))[0] == 200
    status, _, answer = node.request("add-rule", rule("a", "1 = 1"))
    assert (status, answer.application["statusDescription"].split(" TrackingId")[0]) == (
        409, f"The messaging entity '{subscription}/Rules/a' already exists.")
    status, _, answer = node.request("remove-rule", {"rule-name": "none"})
    assert status == 404 and f"The messaging entity '{subscription}/Rules/none' could not be found" in answer.application["statusDescription"]
    status, body, _ = node.request("enumerate-rules", {"top": Int(10), "skip": Int(0)})
    names = [one["rule-description"].value[2] for one in body["rules"]]
    assert status == 200 and names == sorted(names) and set(names) == {"$Default", "a", "b", "C"}


@pytest.mark.topic({"s": {}})
def test_an_action_may_name_the_body(session, path):
    """Service Bus takes such a rule; the body stays what it is."""
    node = Node(session, f"{path()}/Subscriptions/s/$management")
    assert node.request("add-rule", rule("r", "1 = 1", "SET sys.body = 'changed'; SET seen = 'yes'"))[0] == 200
    assert node.request("remove-rule", {"rule-name": "$Default"})[0] == 200
    session.sender(path()).send(Message.of("a"))
    [delivery] = session.receiver(f"{path()}/Subscriptions/s").receive()
    assert delivery.message.data == b"a" and delivery.message.application["seen"] == "yes"


@pytest.mark.topic({"s": {}})
def test_changing_rules_needs_the_right_to_manage(own_broker, path, dial):
    running = own_broker("""
        [[keys]]
        name = "listener"
        key = "key of listener"
        rights = ["Listen"]
        [[keys]]
        name = "all"
        key = "key of all"
        rights = ["Manage"]
    """)
    address = f"{path()}/Subscriptions/s/$management"
    listener = Node(dial(running, "listener", "key of listener").session(), address)
    for operation, body in (("add-rule", rule("r", "1 = 1")), ("remove-rule", {"rule-name": "$Default"})):
        status, _, answer = listener.request(operation, body)
        assert (status, answer.application["errorCondition"]) == (401, "amqp:unauthorized-access")
        assert "Manage" in answer.application["statusDescription"]
    assert len(listener.request("enumerate-rules", {"top": Int(10), "skip": Int(0)})[1]["rules"]) == 1
    manager = Node(dial(running, "all", "key of all").session(), address)
    assert manager.request("add-rule", rule("r", "1 = 1"))[0] == 200
    assert manager.request("remove-rule", {"rule-name": "$Default"})[0] == 200


# ----------------------------------------------------------------------------------------------------- addresses

@pytest.mark.topic({"s": {}})
def test_dead_letters_of_a_subscription_have_an_older_address(session, path):
    session.sender(path()).send(Message.of("a"))
    receiver = session.receiver(f"{path()}/Subscriptions/s")
    [delivery] = receiver.receive()
    receiver.settle(delivery.id, rejected("com.microsoft:dead-letter"))
    receiver.echo(delivery.id)
    address = f"{path()}/Subscriptions/s/$DeadLetterQueue/Subscriptions/s"
    status, body, _ = Node(session, f"{address}/$management").request("peek-message", {"from-sequence-number": 1, "message-count": Int(5)})
    assert status == 200 and len(body["messages"]) == 1
    assert put_token(session, f"sb://localhost/{address}").application["status-code"] == 202
    assert session.receiver(address).receive()[0].message.data == b"a"
    with pytest.raises(Refused):
        session.receiver(f"{path()}/Subscriptions/s/$DeadLetterQueue/Subscriptions/another")
