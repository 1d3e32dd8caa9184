"""The `$management` node, operation by operation: types, status codes, and who may do what."""

import time
import uuid

import pytest

from amqp_codec import Array, Described, Int, Symbol, Timestamp, Ubyte, Uint, Ulong
from amqp_wire import Message, Node, Refused, modified, rejected

ALL = Timestamp(253_402_300_800_000)  # DateTime.MaxValue
LOST = ("com.microsoft:session-lock-lost", "com.microsoft:message-lock-lost")


@pytest.fixture
def manage(session, path):
    """The management node of the queue."""
    nodes = {}

    def node(suffix: str = "") -> Node:
        if suffix not in nodes:
            nodes[suffix] = Node(session, f"{path()}{suffix}/$management")
        return nodes[suffix]

    return node


def condition(answer: Message) -> str | None:
    return answer.application.get("errorCondition")


def refused(result: tuple, status: int, *conditions: str) -> None:
    """A failure says its status, a description and a condition; the body is a map if it is anything."""
    got, body, answer = result
    assert got == status and type(got) is Int, answer.application
    assert isinstance(condition(answer), Symbol) and condition(answer) in conditions, answer.application
    assert answer.application["statusDescription"]
    assert body is None or isinstance(body, dict)


# --------------------------------------------------------------------------------------------------- the node

@pytest.mark.queue()
def test_what_there_is_not(manage):
    refused(manage().request("make-coffee", {}), 501, "amqp:not-implemented")


@pytest.mark.queue()
@pytest.mark.parametrize("identifier", [uuid.uuid4(), "text", Ulong(7), b"bytes"], ids=lambda value: type(value).__name__)
def test_correlation_ids_keep_their_type(manage, identifier):
    assert manage().request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)}, message_id=identifier)[0] == 204


@pytest.mark.queue()
def test_two_nodes_on_one_connection_do_not_mix_their_answers(session, path):
    """Their reply-to may be the same: the SDK for Python uses the name of the node."""
    address = f"{path()}/$management"
    nodes = [Node(session, address, reply_to=address), Node(session.connection.session(), address, reply_to=address)]
    for _ in range(3):
        for node in nodes:
            assert node.request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})[0] == 204


@pytest.mark.queue()
def test_a_request_is_settled_before_it_is_answered(manage, session):
    """A client takes every disposition for one of its own deliveries with that number."""
    node = manage()
    number = node.requests.transfer(Message.of_value(
        {"from-sequence-number": 1, "message-count": Int(1)}, ["id", None, None, None, node.reply_to],
        {"operation": "com.microsoft:peek-message"}).encode())
    node.answers.delivery()
    assert node.requests.outcome(number).descriptor == 0x24


@pytest.mark.queue()
@pytest.mark.parametrize("body", [
    {}, None, "text", [], {"from-sequence-number": "one", "message-count": Int(1)}, {"from-sequence-number": 1, "message-count": Int(-1)},
    {"from-sequence-number": None, "message-count": None}, {1: 2}, {"from-sequence-number": 1.5, "message-count": Int(1)},
], ids=repr)
def test_nonsense_is_a_bad_request(manage, body):
    result = manage().request("peek-message", body)
    refused(result, 400, "com.microsoft:argument-error", "com.microsoft:argument-out-of-range", "amqp:invalid-field", "amqp:decode-error")
    assert manage().request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})[0] == 204, "the next one is answered"


@pytest.mark.queue()
@pytest.mark.parametrize("operation", [
    "renew-lock", "renew-session-lock", "get-session-state", "set-session-state", "receive-by-sequence-number", "update-disposition",
    "schedule-message", "cancel-scheduled-message", "get-message-sessions", "add-rule", "remove-rule", "enumerate-rules",
])
@pytest.mark.parametrize("body", [
    {}, {"lock-tokens": "x", "session-id": 1, "sequence-numbers": [None], "messages": {}, "rule-name": 7, "top": "x", "skip": b"",
         "last-updated-time": "now", "disposition-status": Symbol("x"), "receiver-settle-mode": "x", "session-state": 5},
    {"lock-tokens": Array((uuid.uuid4(),) * 3), "session-id": "s", "sequence-numbers": Array((-1, 0, 1 << 62)), "messages": [{}, {"message": b""}],
     "rule-name": "", "rule-description": {"sql-filter": {}}, "top": Int(-1), "skip": Int(-1), "last-updated-time": Timestamp(-1),
     "disposition-status": "completed", "receiver-settle-mode": Ubyte(9), "session-state": b"x"},
], ids=["empty", "wrong types", "wrong values"])
def test_no_operation_does_harm_with_nonsense(manage, operation, body):
    status, _, answer = manage().request(operation, body)
    assert 200 <= status < 600 and (status < 400 or condition(answer))
    assert status != 500, answer.application
    assert manage().request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})[0] == 204


# ---------------------------------------------------------------------------------------------------------- locks

@pytest.mark.queue(LockDuration="PT5S")
def test_renew_lock(session, path, manage):
    sender = session.sender(path())
    for body in "ab":
        sender.send(Message.of(body))
    receiver = session.receiver(path())
    tokens = [one.token for one in receiver.receive(2)]
    status, body, _ = manage().request("renew-lock", {"lock-tokens": Array(tuple(tokens))})
    assert status == 200 and len(body["expirations"].items) == 2
    for until in body["expirations"].items:
        assert type(until) is Timestamp and 4000 < until - time.time() * 1000 <= 5100
    refused(manage().request("renew-lock", {"lock-tokens": Array((uuid.uuid4(),))}), 410, "com.microsoft:message-lock-lost")


@pytest.mark.queue(RequiresSession=True, LockDuration="PT5S")
def test_renew_session_lock_is_for_the_holder(dial, broker, session, path, manage):
    holder = session.accept(path(), "s")
    status, body, _ = manage().request("renew-session-lock", {"session-id": "s"}, link=holder.name)
    assert status == 200 and type(body["expiration"]) is Timestamp
    assert 4000 < body["expiration"] - time.time() * 1000 <= 5100
    refused(manage().request("renew-session-lock", {"session-id": "t"}, link=holder.name), 410, *LOST)
    other = Node(dial(broker).session(), f"{path()}/$management")
    refused(other.request("renew-session-lock", {"session-id": "s"}), 410, *LOST)
    refused(other.request("renew-session-lock", {"session-id": "s"}, link="another link"), 410, *LOST)
    refused(other.request("renew-session-lock", {"session-id": "s"}, link=holder.name), 410, *LOST)


@pytest.mark.queue(RequiresSession=True, LockDuration="PT1S")
def test_an_expired_session_cannot_be_renewed_written_or_settled(session, path, manage):
    session.sender(path()).send(Message.of("a", "s"))
    holder = session.accept(path(), "s")
    [delivery] = holder.receive()
    session.expect("detach", 3, handle=holder.remote)
    link = {"link": holder.name}
    refused(manage().request("renew-session-lock", {"session-id": "s"}, **link), 410, *LOST)
    refused(manage().request("set-session-state", {"session-id": "s", "session-state": b"late"}, **link), 410, *LOST)
    refused(manage().request("update-disposition", {
        "disposition-status": "completed", "lock-tokens": Array((delivery.token,)), "session-id": "s"}, **link), 410, *LOST)
    again = session.accept(path(), "s")
    assert again.receive()[0].message.data == b"a"
    assert manage().request("get-session-state", {"session-id": "s"}, link=again.name)[1] == {"session-state": None}
    refused(manage().request("update-disposition", {
        "disposition-status": "completed", "lock-tokens": Array((delivery.token,)), "session-id": "s"}, **link), 410, *LOST)


# ---------------------------------------------------------------------------------------------------------- state

@pytest.mark.queue(RequiresSession=True)
def test_session_state(session, path, manage):
    holder = session.accept(path(), "s")
    link = {"link": holder.name}
    assert manage().request("get-session-state", {"session-id": "s"}, **link)[:2] == (200, {"session-state": None})
    for state in (b"x", bytes(range(256)) * 2000, b"null"):
        status, body, _ = manage().request("set-session-state", {"session-id": "s", "session-state": state}, **link)
        assert status == 200 and isinstance(body, dict)
        assert manage().request("get-session-state", {"session-id": "s"}, **link)[1] == {"session-state": state}
        for nothing in (None, b""):
            assert manage().request("set-session-state", {"session-id": "s", "session-state": nothing}, **link)[0] == 200
            assert manage().request("get-session-state", {"session-id": "s"}, **link)[1] == {"session-state": None}
            assert manage().request("set-session-state", {"session-id": "s", "session-state": b"again"}, **link)[0] == 200


@pytest.mark.queue(RequiresSession=True)
def test_the_state_is_for_the_holder(dial, broker, session, path, manage):
    holder = session.accept(path(), "s")
    assert manage().request("set-session-state", {"session-id": "s", "session-state": b"mine"}, link=holder.name)[0] == 200
    other = Node(dial(broker).session(), f"{path()}/$management")
    for link in (None, "another link", holder.name):
        refused(other.request("set-session-state", {"session-id": "s", "session-state": b"theirs"}, link=link), 410, *LOST)
        refused(other.request("get-session-state", {"session-id": "s"}, link=link), 410, *LOST)
    assert manage().request("get-session-state", {"session-id": "s"}, link=holder.name)[1] == {"session-state": b"mine"}


# ----------------------------------------------------------------------------------------------------------- peek

def peeked(node: Node, first: int = 1, count: int = 100, **more) -> list[Message]:
    status, body, _ = node.request("peek-message", {"from-sequence-number": first, "message-count": Int(count)} | more)
    assert status in (200, 204)
    return [Message.decode(one["message"]) for one in body["messages"]] if status == 200 else []


@pytest.mark.queue(RequiresSession=True)
def test_peek_sees_all_sessions_and_all_states(session, path, manage):
    sender = session.sender(path())
    for body, name in (("deferred", "s"), ("locked", "s"), ("active", "t")):
        sender.send(Message.of(body, name))
    due = Timestamp(int(time.time() * 1000) + 60_000)
    later = Message.of("later", "s")
    later.annotations[Symbol("x-opt-scheduled-enqueue-time")] = due
    sender.send(later)
    holder = session.accept(path(), "s")
    deferred, _ = holder.receive(2)
    holder.settle(deferred.id, modified(True, True))
    holder.echo(deferred.id)
    messages = peeked(manage())
    state = Symbol("x-opt-message-state")
    assert [(one.data, one.annotations.get(state, 0), one.session) for one in messages] == [
        (b"deferred", 1, "s"), (b"locked", 0, "s"), (b"active", 0, "t"), (b"later", 2, "s")]
    assert all(type(one.annotations.get(state, Int(0))) is Int for one in messages)
    assert [one.number for one in messages] == [1, 2, 3, 4]
    assert messages[3].annotations[Symbol("x-opt-scheduled-enqueue-time")] == due
    assert [one.data for one in peeked(manage(), **{"session-id": "t"})] == [b"active"]
    assert [one.data for one in peeked(manage(), 2, 2)] == [b"locked", b"active"]
    assert peeked(manage(), 5) == []


@pytest.mark.queue()
@pytest.mark.parametrize("number", [int, Int, Uint, Ulong], ids=["long", "int", "uint", "ulong"])
def test_numbers_may_be_of_any_width_and_keys_symbols(session, path, manage, number):
    session.sender(path()).send(Message.of("a"))
    for key in (str, Symbol):
        status, body, _ = manage().request("peek-message", {key("from-sequence-number"): number(1), key("message-count"): number(1)})
        assert status == 200 and len(body["messages"]) == 1


# -------------------------------------------------------------------------------------- deferred and disposition

@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=10)
@pytest.mark.parametrize("mode", [Ubyte(1), Uint(1)], ids=["ubyte", "uint"])
def test_deferred_messages_are_locked_and_settled(session, path, manage, mode):
    sender = session.sender(path())
    for body in "abcd":
        sender.send(Message.of(body, "s"))
    holder = session.accept(path(), "s")
    deliveries = holder.receive(4)
    for one in deliveries:
        holder.settle(one.id, modified(None, True))
        holder.echo(one.id)
    numbers = [one.message.number for one in deliveries]
    link = {"link": holder.name}

    def receive(*wanted: int) -> list[dict]:
        status, body, _ = manage().request("receive-by-sequence-number", {
            "sequence-numbers": Array(wanted), "receiver-settle-mode": mode, "session-id": "s"}, **link)
        assert status == 200
        return body["messages"]

    def settle(status: str, token: uuid.UUID, **more) -> int:
        return manage().request("update-disposition", {
            "disposition-status": status, "lock-tokens": Array((token,)), "session-id": "s"} | more, **link)[0]

    got = receive(*numbers)
    assert [Message.decode(one["message"]).data for one in got] == [b"a", b"b", b"c", b"d"]
    assert all(type(one["lock-token"]) is uuid.UUID for one in got)
    assert settle("completed", got[0]["lock-token"]) == 200
    assert settle("abandoned", got[1]["lock-token"], **{"properties-to-modify": {"x": 1}}) == 200
    assert settle("defered", got[2]["lock-token"]) == 200
    assert settle("suspended", got[3]["lock-token"], **{
        "deadletter-reason": "reason", "deadletter-description": "description"}) == 200
    refused(manage().request("receive-by-sequence-number", {
        "sequence-numbers": Array((numbers[0],)), "receiver-settle-mode": mode, "session-id": "s"}, **link), 404, "com.microsoft:message-not-found")
    b, c = receive(numbers[1], numbers[2])
    b = Message.decode(b["message"])
    assert (b.data, b.count, b.application) == (b"b", 2, {"x": 1})
    assert Message.decode(c["message"]).count == 2
    [dead] = peeked(manage("/$DeadLetterQueue"))
    assert dead.data == b"d" and dead.application == {"DeadLetterReason": "reason", "DeadLetterErrorDescription": "description"}


@pytest.mark.queue(RequiresSession=True)
def test_deferred_messages_of_a_session_are_for_its_holder(dial, broker, session, path):
    session.sender(path()).send(Message.of("a", "s"))
    holder = session.accept(path(), "s")
    [delivery] = holder.receive()
    holder.settle(delivery.id, modified(None, True))
    holder.echo(delivery.id)
    other = Node(dial(broker).session(), f"{path()}/$management")
    body = {"sequence-numbers": Array((1,)), "receiver-settle-mode": Uint(1), "session-id": "s"}
    for link in (None, holder.name, "another"):
        status, _, answer = other.request("receive-by-sequence-number", body, link=link)
        assert status in (404, 410) and condition(answer) in (*LOST, "com.microsoft:message-not-found")
    status, *_ = other.request("receive-by-sequence-number", {"sequence-numbers": Array((1,)), "receiver-settle-mode": Uint(0)})
    assert status >= 400


@pytest.mark.queue()
@pytest.mark.parametrize("status, outcome", [("completed", None), ("abandoned", "again"), ("suspended", "dead"), ("defered", "deferred")])
def test_messages_of_a_link_are_settled_by_their_tokens(session, path, manage, status, outcome):
    """What the SDK for Python falls back on."""
    session.sender(path()).send(Message.of("a"))
    receiver = session.receiver(path())
    [delivery] = receiver.receive()
    request = {"disposition-status": status, "lock-tokens": Array((delivery.token,))}
    assert manage().request("update-disposition", request)[0] == 200
    refused(manage().request("update-disposition", request), 410, "com.microsoft:message-lock-lost")
    left = [(one.data, one.annotations.get(Symbol("x-opt-message-state"), 0), one.count) for one in peeked(manage())]
    assert left == {None: [], "again": [(b"a", 0, 1)], "dead": [], "deferred": [(b"a", 1, 1)]}[outcome]
    assert len(peeked(manage("/$DeadLetterQueue"))) == (1 if outcome == "dead" else 0)


@pytest.mark.queue()
def test_deferred_dead_letters(session, path, manage):
    session.sender(path()).send(Message.of("a"))
    receiver = session.receiver(path())
    [delivery] = receiver.receive()
    receiver.settle(delivery.id, rejected("com.microsoft:dead-letter"))
    receiver.echo(delivery.id)
    dead = session.receiver(f"{path()}/$DeadLetterQueue")
    [letter] = dead.receive()
    dead.settle(letter.id, modified(None, True))
    dead.echo(letter.id)
    status, body, _ = manage("/$DeadLetterQueue").request("receive-by-sequence-number", {
        "sequence-numbers": Array((letter.message.number,)), "receiver-settle-mode": Uint(0)})
    assert status == 200 and Message.decode(body["messages"][0]["message"]).data == b"a"
    assert peeked(manage("/$DeadLetterQueue")) == []


# ----------------------------------------------------------------------------------------------------- scheduling

def later(body: str, session: str | None = None, seconds: float = 60) -> dict:
    message = Message.of(body, session)
    message.annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(int((time.time() + seconds) * 1000))
    return {"message-id": None, "message": message.encode()} | ({"session-id": session} if session else {})


@pytest.mark.queue()
def test_schedule_and_cancel(manage):
    status, body, _ = manage().request("schedule-message", {"messages": [later("a"), later("b")]})
    assert status == 200 and body["sequence-numbers"] == Array((1, 2))
    assert all(type(number) is int for number in body["sequence-numbers"].items), "longs"
    assert manage().request("cancel-scheduled-message", {"sequence-numbers": Array((1,))})[0] == 200
    refused(manage().request("cancel-scheduled-message", {"sequence-numbers": Array((1,))}), 404, "com.microsoft:message-not-found")
    refused(manage().request("cancel-scheduled-message", {"sequence-numbers": Array((2, 99))}), 404, "com.microsoft:message-not-found")
    assert [one.data for one in peeked(manage())] == [b"b"]


@pytest.mark.queue(RequiresSession=True)
def test_schedule_on_a_session_queue_needs_sessions(manage):
    refused(manage().request("schedule-message", {"messages": [later("a", "s"), later("b")]}), 400, "amqp:not-allowed")
    assert peeked(manage()) == [], "all or none"
    assert manage().request("schedule-message", {"messages": [later("a", "s")]})[0] == 200


# ------------------------------------------------------------------------------------------------------- sessions

@pytest.mark.queue(RequiresSession=True)
def test_get_message_sessions(session, path, manage):
    def listed(since: Timestamp = ALL, skip: int = 0, top: int = 100) -> tuple[int, list[str]]:
        status, body, _ = manage().request("get-message-sessions", {"last-updated-time": since, "skip": Int(skip), "top": Int(top)})
        return status, list(body["sessions-ids"].items) if status == 200 else []

    assert listed() == (204, [])
    sender = session.sender(path())
    for number in range(5):
        sender.send(Message.of("x", f"s{number}"))
    status, sessions = listed()
    assert status == 200 and sorted(sessions) == [f"s{number}" for number in range(5)]
    assert listed(top=2)[1] + listed(skip=2, top=2)[1] + listed(skip=4, top=2)[1] == sessions
    assert listed(skip=5) == (204, [])
    before = Timestamp(int(time.time() * 1000) - 1)
    holder = session.accept(path(), "state")
    assert manage().request("set-session-state", {"session-id": "state", "session-state": b"x"}, link=holder.name)[0] == 200
    assert listed(before) == (200, ["state"])
    assert listed(Timestamp(int(time.time() * 1000) + 5000)) == (204, [])
    assert sorted(listed()[1])[-1] == "state"


# ---------------------------------------------------------------------------------------------------------- rules

def sql(expression: str, action: str | None = None) -> dict:
    return {"sql-filter": {"expression": expression}} | ({"sql-rule-action": {"expression": action}} if action else {})


@pytest.mark.topic({"s": {}})
def test_rules(session, path):
    """Their descriptors are compared by number: they are not what they seem to be."""
    node = Node(session, f"{path()}/Subscriptions/s/$management")

    def rules() -> list:
        status, body, _ = node.request("enumerate-rules", {"top": Int(100), "skip": Int(0)})
        return [one["rule-description"] for one in body["rules"]] if status == 200 else []

    [standard] = rules()
    assert standard.descriptor == 0x0000_0137_0000_0004 and type(standard.descriptor) is Ulong
    matches, action, name = standard.value[:3]
    assert (matches.descriptor, name) == (0x13_7000_0007, "$Default")
    assert action is None or action.descriptor == 0x0000_0137_0000_0005
    assert node.request("remove-rule", {"rule-name": "$Default"})[0] == 200
    assert rules() == []
    assert node.request("add-rule", {"rule-name": "red", "rule-description": sql("colour = 'red'", "SET seen = 1")})[0] == 200
    refused(node.request("add-rule", {"rule-name": "red", "rule-description": sql("1 = 1")}), 409, "com.microsoft:entity-already-exists")
    refused(node.request("add-rule", {"rule-name": "bad", "rule-description": sql("colour = = 1")}), 400, "com.microsoft:argument-error")
    correlation = {"correlation-filter": {"correlation-id": "c", "label": "l", "properties": {"kind": "x", "number": 7}}}
    assert node.request("add-rule", {"rule-name": "correlated", "rule-description": correlation})[0] == 200
    by_name = {one.value[2]: one.value for one in rules()}
    assert by_name["red"][0] == Described(Ulong(0x13_7000_0006), ["colour = 'red'", *by_name["red"][0].value[1:]])
    assert by_name["red"][1].descriptor == 0x0000_0137_0000_0006 and by_name["red"][1].value[0] == "SET seen = 1"
    found = by_name["correlated"][0]
    assert found.descriptor == 0x13_7000_0009
    assert found.value[0] == "c" and found.value[4] == "l" and found.value[8] == {"kind": "x", "number": 7}
    sender = session.sender(path())
    sender.send(Message.of("red", application={"colour": "red"}))
    sender.send(Message.of("blue", application={"colour": "blue"}))
    [delivery] = session.receiver(f"{path()}/Subscriptions/s").receive()
    assert delivery.message.data == b"red" and delivery.message.application == {"colour": "red", "seen": 1, "RuleName": "red"}
    assert node.request("remove-rule", {"rule-name": "red"})[0] == 200
    status, _, answer = node.request("remove-rule", {"rule-name": "red"})
    assert status == 404, answer.application


@pytest.mark.queue()
def test_a_queue_has_no_rules(manage):
    for operation, body in (("enumerate-rules", {"top": Int(10), "skip": Int(0)}),
                            ("add-rule", {"rule-name": "r", "rule-description": sql("1 = 1")}), ("remove-rule", {"rule-name": "$Default"})):
        status, *_ = manage().request(operation, body)
        assert status >= 400


@pytest.mark.queue()
def test_messages_can_be_deleted_by_the_batch(session, path, manage):
    sender = session.sender(path())
    for body in "abc":
        sender.send(Message.of(body))
    receiver = session.receiver(path())
    receiver.receive()
    now = Timestamp(int(time.time() * 1000) + 1000)
    status, body, _ = manage().request("batch-delete-messages", {"message-count": Int(10), "enqueued-time-utc": now})
    assert status == 200 and body["message-count"] == 2, "what is locked stays"
    assert [one.data for one in peeked(manage())] == [b"a"]
    assert manage().request("batch-delete-messages", {"message-count": Int(10), "enqueued-time-utc": now})[0] == 204


def test_the_management_node_of_what_is_not_there(session):
    with pytest.raises(Refused, match="amqp:not-found"):
        Node(session, "nowhere/$management")
