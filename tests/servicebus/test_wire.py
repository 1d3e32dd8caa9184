"""What no SDK shows: types, echoes, refusals, drain, waiting, and how connections end."""

import time
import uuid

import pytest

from amqp_codec import Array, Described, Int, Symbol, Timestamp, Ubyte, Uint, Ulong, encode
from amqp_wire import (ACCEPTED, AMQP, BATCH, KEY, KEY_NAME, RECEIVER, RELEASED, SASL, SECONDS, SENDER, SESSION_FILTER, Closed, Connection,
                       Message, Node, Refused, modified, performative, put_token, rejected, source, target)
from sas import token

FILTER_CODE, FILTER_NAME = Ulong(0x0000_0137_0000_000C), Symbol("com.microsoft:session-filter")
LOCKED_UNTIL = Symbol("com.microsoft:locked-until-utc")
TIMEOUT = Symbol("com.microsoft:timeout")


def dialled(broker) -> Connection:
    return Connection(("127.0.0.1", broker.amqp_port))


def ticks(seconds: float) -> int:
    """.NET's clock: 100 ns since the year 1."""
    return int(seconds * 10_000_000) + 621_355_968_000_000_000


# ------------------------------------------------------------------------------------------------- connections

def test_the_mechanisms_are_offered_as_an_array(broker):
    connection = dialled(broker)
    assert connection.sasl().code == 0
    assert connection.mechanisms == Array((Symbol("MSSBCBS"), Symbol("ANONYMOUS"), Symbol("PLAIN"), Symbol("EXTERNAL")))
    assert all(isinstance(name, Symbol) for name in connection.mechanisms.items)


@pytest.mark.parametrize("mechanism, initial, code", [
    ("ANONYMOUS", b"", 0), ("ANONYMOUS", None, 0), ("ANONYMOUS", b"RootManageSharedAccessKey", 0), ("MSSBCBS", b"anything", 0),
    ("MSSBCBS", None, 0), ("EXTERNAL", b"", 0), ("PLAIN", f"\0{KEY_NAME}\0{KEY}".encode(), 0), ("PLAIN", f"\0{KEY_NAME}\0wrong".encode(), 1),
    ("PLAIN", b"\0nobody\0nothing", 1), ("PLAIN", b"no zeros", 1), ("PLAIN", None, 1), ("SCRAM-SHA-256", b"", 1),
])
def test_sasl(broker, mechanism, initial, code):
    assert dialled(broker).sasl(mechanism, initial).code == code


@pytest.mark.queue()
def test_answers_say_everything_that_clients_index(broker, path):
    """Some clients take fields by position, so the last ones must be there."""
    connection = dialled(broker)
    connection.sasl("PLAIN", f"\0{KEY_NAME}\0{KEY}".encode())
    opened = connection.open()
    assert opened.container_id and opened.max_frame_size >= 512 and opened.channel_max > 0
    assert opened.idle_time_out is None or opened.idle_time_out >= 120_000
    session = connection.session()
    assert session.begun.handle_max > 0 and session.begun.incoming_window > 0 and session.begun.outgoing_window > 0
    receiver = session.receiver(path())
    assert receiver.answer.initial_delivery_count == 0 and receiver.answer.max_message_size > 0
    assert isinstance(receiver.answer.properties, dict)
    sender = session.sender(path())
    assert sender.answer.max_message_size > 0 and sender.credit > 0


@pytest.mark.queue()
def test_everything_may_be_sent_before_anything_is_answered(broker, path):
    connection = dialled(broker)
    plain = f"\0{KEY_NAME}\0{KEY}".encode()
    connection.write(
        SASL + performative("init", mechanism=Symbol("PLAIN"), initial_response=plain) + AMQP
        + performative("open", container_id="pipelined") + performative(
            "begin", 3, next_outgoing_id=Uint(0), incoming_window=Uint(100), outgoing_window=Uint(100))
        + performative("attach", 3, name="s", handle=Uint(7), role=SENDER, target=target(path()), source=source("here"),
                       initial_delivery_count=Uint(0)))
    assert connection.read_exactly(8, time.monotonic() + SECONDS) == SASL
    assert connection.expect("outcome").code == 0
    assert connection.read_exactly(8, time.monotonic() + SECONDS) == AMQP
    connection.expect("open")
    begun = connection.expect("begin", remote_channel=3)
    assert connection.expect("attach", name="s", channel=begun.channel).target is not None


def test_an_idle_client_hears_from_the_broker(dial, broker):
    """Within the time after which it would give up."""
    connection = dial(broker, idle_time_out=1000)
    started, empty = time.monotonic(), bytes([0, 0, 0, 8, 2, 0, 0, 0])
    for _ in range(3):
        assert connection.read_exactly(8, started + SECONDS) == empty
    assert time.monotonic() - started < 3.5


def test_sessions_and_connections_end_as_asked(dial, broker):
    connection = dial(broker)
    session = connection.session()
    session.end()
    session.expect("end")
    connection.say("close")
    assert connection.expect("close").error is None
    with pytest.raises(Closed):
        connection.next_frame()


# ------------------------------------------------------------------------------------------------------- tokens

@pytest.mark.queue()
def test_a_token_opens_what_it_is_for(broker, path):
    connection = dialled(broker)
    connection.sasl("MSSBCBS")
    connection.open()
    session = connection.session()
    with pytest.raises(Refused) as refused:
        session.sender(path())
    assert refused.value.condition in ("amqp:unauthorized-access", "com.microsoft:auth-failed")
    answer = put_token(session, f"sb://localhost/{path()}")
    assert answer.application["status-code"] == 202 and type(answer.application["status-code"]) is Int
    session.sender(path()).send(Message.of("a"))


@pytest.mark.parametrize("kind", ["jwt", "servicebus.windows.net:sastoken", "anything"])
def test_the_type_of_a_token_does_not_count(session, kind):
    assert put_token(session, "sb://localhost/", kind=kind).application["status-code"] == 202


@pytest.mark.parametrize("signed", [
    "", "x", "SharedAccessSignature ", "SharedAccessSignature sr=a&sig=b&se=c&skn=d", "eyJhbGciOiJub25lIn0.e30.",
    token("sb://localhost/q", KEY_NAME, "wrong", time.time() + 600), token("sb://localhost/q", KEY_NAME, KEY, time.time() - 1),
], ids=["nothing", "a letter", "no fields", "no signature", "a JWT", "the wrong key", "expired"])
def test_a_token_that_is_none_is_refused(session, signed):
    answer = put_token(session, "sb://localhost/q", signed=signed)
    assert answer.application["status-code"] == 401 and answer.application["status-description"]


@pytest.mark.parametrize("identifier", [uuid.uuid4(), "text", Ulong(7), b"bytes"], ids=type)
def test_correlation_ids_keep_their_type(session, identifier):
    """`ask` compares it with its type."""
    node = Node(session, "$cbs")
    signed = token("sb://localhost/", KEY_NAME, KEY, time.time() + 600)
    for _ in range(2):
        answer = node.ask(signed, {"operation": "put-token", "type": "jwt", "name": "sb://localhost/"}, message_id=identifier)
        assert answer.application["status-code"] == 202


def test_answers_find_their_way_without_a_reply_to(session):
    answer = Node(session, "$cbs").ask(token("sb://localhost/", KEY_NAME, KEY, time.time() + 600),
                                       {"operation": "put-token", "type": "jwt", "name": "sb://localhost/"}, reply_to=False)
    assert answer.application["status-code"] == 202


@pytest.mark.queue()
def test_a_token_counts_until_it_expires_and_can_be_renewed(broker, path):
    connection = dialled(broker)
    connection.sasl()
    connection.open()
    session, audience = connection.session(), f"sb://localhost/{path()}"
    node = Node(session, "$cbs")

    def put(seconds: int) -> None:
        signed = token(audience, KEY_NAME, KEY, time.time() + seconds)
        assert node.ask(signed, {"operation": "put-token", "type": "jwt", "name": audience}).application["status-code"] == 202

    put(5)
    session.sender(path()).send(Message.of("in time"))
    put(60)
    time.sleep(5.2)
    session.sender(path()).send(Message.of("renewed"))
    put(2)
    time.sleep(2.5)
    with pytest.raises(Refused, match="unauthorized|auth-failed"):
        session.sender(path())
    put(60)
    assert [one.message.data for one in session.receiver(path()).receive(2)] == [b"in time", b"renewed"]


@pytest.mark.queue()
def test_the_links_of_a_token_that_has_expired_are_detached(broker, path):
    connection = dialled(broker)
    connection.sasl()
    connection.open()
    session = connection.session()
    signed = token(f"sb://localhost/{path()}", KEY_NAME, KEY, time.time() + 4)
    assert put_token(session, "any", signed=signed).application["status-code"] == 202
    receiver = session.receiver(path())
    receiver.flow(10)
    detached = session.expect("detach", handle=receiver.remote)
    assert detached.condition in ("amqp:unauthorized-access", "com.microsoft:auth-failed")


def test_tokens_that_have_expired_make_room_for_others(session):
    """A connection has 4096 that count."""
    node = Node(session, "$cbs")
    for number in range(4_100):
        if number == 4_000:
            time.sleep(2)
        signed = token(f"sb://localhost/{number}", KEY_NAME, KEY, time.time() + 2)
        assert node.ask(signed, {"operation": "put-token", "type": "jwt", "name": "sb://localhost/"}).application["status-code"] == 202


# -------------------------------------------------------------------------------------------------- addresses

@pytest.mark.queue()
@pytest.mark.parametrize("form", ["{}", "/{}", "sb://localhost/{}", "amqp://localhost:5672/{}", "amqps://any.host/{}", "amqps://127.0.0.1:5673/{}"])
def test_addresses_are_understood_in_all_forms_and_echoed_as_they_were(session, path, form):
    for address in (form.format(path()), form.format(path().upper())):
        receiver = session.receiver(address)
        assert receiver.answer.source.value[0] == address
        assert receiver.answer.target.value[0] == "here"
        assert session.sender(address).answer.target.value[0] == address


def test_a_refused_link_is_attached_with_nothing_and_detached_with_a_reason(session):
    for role, fields in ((RECEIVER, {"source": source("nowhere"), "target": target("here")}),
                         (SENDER, {"source": source("here"), "target": target("nowhere")})):
        link = session.attach(role, **fields)
        assert (link.answer.source, link.answer.target) == (None, None)
        assert link.answer.role is (not role)
        detached = session.expect("detach", handle=link.remote)
        assert detached.closed is True
        condition, description = detached.error.value[:2]
        assert condition == "amqp:not-found" and isinstance(condition, Symbol)
        assert "The messaging entity 'nowhere' could not be found." in description


def test_there_are_no_transactions(session):
    link = session.attach(SENDER, source=source("here"), target=Described(Ulong(0x30), []))
    assert link.answer.target is None
    with pytest.raises(Refused, match="amqp:not-implemented"):
        link.raise_if_refused()


@pytest.mark.topic({"s": {}})
def test_a_topic_has_no_receivers_and_a_subscription_no_senders(session, path):
    with pytest.raises(Refused):
        session.receiver(path())
    with pytest.raises(Refused):
        session.sender(f"{path()}/Subscriptions/s")
    session.receiver(f"{path()}/subscriptions/S")


# ---------------------------------------------------------------------------------------------------- sessions

@pytest.mark.queue(RequiresSession=True)
def test_the_session_filter_is_echoed_as_it_was_written(session, path):
    """Clients compare it with what they asked for, each in its own encoding."""
    sender = session.sender(path())
    for index, (written, answered) in enumerate([
        ("s0", "s0"), (Described(FILTER_CODE, "s1"), Described(FILTER_CODE, "s1")), (Described(FILTER_NAME, "s2"), Described(FILTER_NAME, "s2")),
    ]):
        link = session.accept(path(), written)
        assert link.answer.source.value[7] == {SESSION_FILTER: answered}
        sender.send(Message.of("x", f"next{index}"))
    for index, (written, answered) in enumerate([
        (None, "next0"), (Described(FILTER_CODE, None), Described(FILTER_CODE, "next1")), (Described(FILTER_NAME, None), Described(FILTER_NAME, "next2")),
    ]):
        link = session.accept(path(), written)
        assert link.answer.source.value[7] == {SESSION_FILTER: answered}


@pytest.mark.queue(RequiresSession=True, LockDuration="PT30S")
def test_the_time_of_the_lock_is_a_long_of_dotnets_ticks(session, path):
    until = session.accept(path(), "s").answer.properties[LOCKED_UNTIL]
    assert type(until) is int, "an AMQP long"
    assert abs(until - ticks(time.time() + 30)) < 20_000_000


@pytest.mark.queue(RequiresSession=True)
def test_who_waits_for_a_session_hears_nothing_until_there_is_one(session, path):
    link = session.attach(RECEIVER, wait=None, source=source(path(), {SESSION_FILTER: None}), target=target("here"))
    assert session.connection.silent(0.5)
    session.sender(path()).send(Message.of("a", "s"))
    assert link.attached().source.value[7] == {SESSION_FILTER: "s"}


@pytest.mark.queue(RequiresSession=True)
@pytest.mark.parametrize("number", [Uint, Ulong, Int, int, Ubyte], ids=["uint", "ulong", "int", "long", "ubyte"])
def test_the_time_to_wait_may_be_any_integer(session, path, number):
    milliseconds, started = 200 if number is Ubyte else 900, time.monotonic()
    with pytest.raises(Refused) as refused:
        session.accept(path(), None, properties={TIMEOUT: number(milliseconds)})
    assert refused.value.condition == "com.microsoft:timeout"
    assert milliseconds / 1000 - 0.1 <= time.monotonic() - started < milliseconds / 1000 + 5


@pytest.mark.queue(RequiresSession=True)
@pytest.mark.parametrize("leave", ["detach", "end", "close", "shutdown", "reset"])
def test_who_leaves_while_waiting_gets_no_session(dial, broker, path, leave):
    """A session must not be locked for somebody who has gone."""
    leaving = dial(broker)
    session = leaving.session()
    link = session.attach(RECEIVER, wait=None, source=source(path(), {SESSION_FILTER: None}), target=target("here"))
    assert leaving.silent(0.2)
    if leave == "detach":
        link.detach()
        session.expect("detach")
    elif leave == "end":
        session.end()
        session.expect("end")
    elif leave == "close":
        leaving.say("close")
        leaving.expect("close")
    elif leave == "shutdown":
        leaving.socket.shutdown(1)
    else:
        leaving.close()
    time.sleep(0.3)
    staying = dial(broker).session()
    staying.sender(path()).send(Message.of("a", "s"))
    assert staying.accept(path(), None, properties={TIMEOUT: Uint(10_000)}).receive()[0].message.data == b"a"
    if leave in ("detach", "end"):
        leaving.silent(0.3)
        assert not [one for one in leaving.said if one.kind == "attach" and one.source is not None], "never answered afterwards"


@pytest.mark.queue(RequiresSession=True)
@pytest.mark.parametrize("leave", ["detach", "detach and vanish", "end", "close", "close and vanish", "shutdown", "reset"])
def test_whoever_leaves_frees_the_session_and_nothing_is_counted(dial, broker, path, leave):
    staying = dial(broker).session()
    sender = staying.sender(path())
    for body in "ab":
        sender.send(Message.of(body, "s"))
    leaving = dial(broker)
    session = leaving.session()
    holder = session.accept(path(), "s")
    assert [one.message.data for one in holder.receive(2)] == [b"a", b"b"]
    with pytest.raises(Refused, match="session-cannot-be-locked"):
        staying.accept(path(), "s")
    if leave.startswith("detach"):
        holder.detach()
    elif leave == "end":
        session.end()
    elif leave.startswith("close"):
        leaving.write(performative("detach", session.channel, handle=Uint(holder.handle), closed=True)
                      + performative("end", session.channel) + performative("close"))
    if leave in ("reset", "detach and vanish", "close and vanish"):
        leaving.close()
    elif leave == "shutdown":
        leaving.socket.shutdown(1)
    deliveries = staying.accept(path(), None, properties={TIMEOUT: Uint(10_000)}).receive(2)
    assert [(one.message.data, one.message.count) for one in deliveries] == [(b"a", 0), (b"b", 0)]


@pytest.mark.queue(RequiresSession=True, LockDuration="PT1S")
def test_an_expired_session_is_detached_with_the_reason(session, path):
    link = session.accept(path(), "s")
    link.flow(10)
    detached = session.expect("detach", handle=link.remote)
    assert detached.closed is True and detached.condition == "com.microsoft:session-lock-lost"
    assert "The session lock has expired on the MessageSession. Accept a new MessageSession." in detached.error.value[1]


# --------------------------------------------------------------------------------------------------- delivering

@pytest.mark.queue(RequiresSession=True)
def test_deliveries_are_what_clients_expect(session, path):
    session.sender(path()).send(Message.of("a", "s"))
    [delivery] = session.accept(path(), "s").receive()
    assert len(delivery.tag) == 16 and delivery.settled is False
    message, now = delivery.message, time.time() * 1000
    assert message.header[4] == 0, "the count is there from the first delivery on"
    assert uuid.UUID(message.property_at(0)), "a message without an id gets one, as text"
    kinds = {str(name): type(value) for name, value in message.annotations.items()}
    assert kinds["x-opt-sequence-number"] is int and kinds["x-opt-enqueue-sequence-number"] is int
    assert kinds["x-opt-enqueued-time"] is Timestamp and kinds["x-opt-locked-until"] is Timestamp
    assert kinds.get("x-opt-message-state", Int) is Int
    assert abs(message.annotations[Symbol("x-opt-enqueued-time")] - now) < 5000
    assert 50_000 < message.annotations[Symbol("x-opt-locked-until")] - now <= 61_000
    assert all(isinstance(name, Symbol) for name in message.annotations)


@pytest.mark.queue()
def test_bodies_pass_byte_for_byte(session, path):
    """However they are encoded: here not as anybody would."""
    bodies = [
        b"\x00\x53\x75\xb0\x00\x00\x00\x02hi", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x02hi",
        b"\x00\x53\x77\xd1\x00\x00\x00\x0c\x00\x00\x00\x02\xa1\x01a\x70\x00\x00\x00\x01", b"\x00\x53\x76\x45\x00\x53\x76\xc0\x03\x01\x50\x07",
        b"\x00\x53\x77\x00\xa3\x03x:y\xa1\x01z", b"\x00\x53\x77\x40",
        b"\x00\x53\x77\xf0\x00\x00\x00\x0e\x00\x00\x00\x02\xb1\x00\x00\x00\x01a\x00\x00\x00\x00",
        b"\x00\x53\x75\xa0\x00\x00\x53\x78\xc1\x05\x02\xa3\x01f\x41",
    ]
    sender = session.sender(path())
    for body in bodies:
        sender.send(encode(Described(Ulong(0x74), {"kept": 1})) + body)
    receiver = session.receiver(path())
    for body in bodies:
        [delivery] = receiver.receive()
        assert delivery.raw.endswith(body), body


@pytest.mark.queue()
def test_never_more_than_the_credit(session, path):
    sender, receiver = session.sender(path()), session.receiver(path())
    for number in range(10):
        sender.send(Message.of(str(number)))
    receiver.flow(3)
    assert [receiver.delivery().message.data for _ in range(3)] == [b"0", b"1", b"2"]
    assert session.connection.silent(0.3, "transfer")
    receiver.flow(2)
    assert [receiver.delivery().message.data for _ in range(2)] == [b"3", b"4"]
    assert session.connection.silent(0.3, "transfer")


@pytest.mark.queue()
def test_credit_can_be_taken_back(session, path):
    receiver = session.receiver(path())
    receiver.flow(5)
    receiver.flow(0, echo=True)
    session.expect("flow", handle=receiver.remote)
    session.sender(path()).send(Message.of("a"))
    assert session.connection.silent(0.3, "transfer")
    assert receiver.receive()[0].message.data == b"a"


@pytest.mark.queue(RequiresSession=True)
@pytest.mark.parametrize("waiting", [0, 1, 2, 3, 5])
def test_a_drain_gives_what_there_is_and_takes_the_rest_of_the_credit(session, path, waiting):
    sender = session.sender(path())
    for number in range(waiting):
        sender.send(Message.of(str(number), "s"))
    receiver = session.accept(path(), "s")
    receiver.flow(3, drain=True)
    expected = min(waiting, 3)
    assert [receiver.delivery().message.data for _ in range(expected)] == [str(number).encode() for number in range(expected)]
    answer = session.expect("flow", handle=receiver.remote)
    assert (answer.link_credit, answer.drain, answer.delivery_count) == (0, True, 3)
    receiver.delivery_count = 3
    sender.send(Message.of("later", "s"))
    assert session.connection.silent(0.3, "transfer")
    receiver.flow(10)
    bodies = [receiver.delivery().message.data for _ in range(waiting - expected + 1)]
    assert bodies[-1] == b"later"


@pytest.mark.queue()
@pytest.mark.parametrize("credit, drain", [(900, False), (1000, False), (1000, True)])
@pytest.mark.parametrize("mode", [0, 1])
def test_a_slow_reader_gets_everything(dial, broker, path, mode, credit, drain):
    """More than fits into any buffer, to somebody who asks once and reads late."""
    session = dial(broker).session()
    sender = session.sender(path())
    numbers = [sender.transfer(Message.of(b"%04d" % number + b"x" * 15_000).encode()) for number in range(900)]
    for number in numbers:
        assert sender.outcome(number).descriptor == 0x24
    receiver = dial(broker).session().receiver(path(), mode=mode)
    receiver.flow(credit, drain=drain)
    time.sleep(0.7)
    assert [int(receiver.delivery().message.data[:4]) for _ in range(900)] == list(range(900))
    if drain:
        answer = receiver.session.expect("flow", handle=receiver.remote)
        assert (answer.link_credit, answer.delivery_count) == (0, credit)


@pytest.mark.queue()
def test_a_large_message_comes_in_frames_as_the_client_wants_them(dial, broker, path):
    session = dial(broker, frame_size=512).session()
    body = bytes(range(256)) * 400
    session.sender(path()).send(Message.of(body), frame_size=400)
    [delivery] = session.receiver(path()).receive()
    assert delivery.message.data == body and delivery.frames > 200


@pytest.mark.queue()
def test_receive_and_delete_is_settled_when_it_is_sent(session, path):
    session.sender(path()).send(Message.of("a"))
    receiver = session.receiver(path(), mode=0)
    [delivery] = receiver.receive()
    assert delivery.settled is True
    receiver.detach()
    assert session.receiver(path()).flow(1) is None and session.connection.silent(0.3, "transfer")


# ------------------------------------------------------------------------------------------------------ settling

@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=100)
@pytest.mark.parametrize("kind", ["accepted", "modified", "modified without delivery-failed", "deferred", "rejected", "released"])
def test_each_outcome_is_echoed(session, path, kind):
    state = {
        "accepted": ACCEPTED, "modified": modified(True, False), "modified without delivery-failed": modified(None, False),
        "deferred": modified(None, True), "released": RELEASED,
        "rejected": rejected("com.microsoft:dead-letter", "why", {Symbol("DeadLetterReason"): "r", Symbol("DeadLetterErrorDescription"): None}),
    }[kind]
    session.sender(path()).send(Message.of("a", "s"))
    receiver = session.accept(path(), "s")
    [delivery] = receiver.receive()
    receiver.settle(delivery.id, state)
    echo = receiver.echo(delivery.id)
    assert echo.descriptor == state.descriptor
    if kind == "rejected":
        assert not [value for value in echo.value if value is not None], "an error would be a failure"
    if kind.startswith("modified") or kind == "released":
        [again] = receiver.receive()
        assert again.message.count == (0 if kind == "released" else 1)


@pytest.mark.queue(RequiresSession=True)
def test_many_are_settled_at_once(session, path):
    sender = session.sender(path())
    for number in range(20):
        sender.send(Message.of(str(number), "s"))
    receiver = session.accept(path(), "s")
    deliveries = receiver.receive(20)
    receiver.settle(deliveries[0].id, ACCEPTED, last=deliveries[17].id)
    settled = set()
    while len(settled) < 18:
        answer = session.expect("disposition", role=SENDER)
        assert answer.settled is True and answer.state.descriptor == 0x24
        settled |= set(range(answer.first, (answer.first if answer.last is None else answer.last) + 1))
    assert settled == {one.id for one in deliveries[:18]}
    receiver.detach()
    assert [one.message.data for one in session.accept(path(), "s").receive(2)] == [b"18", b"19"]


@pytest.mark.queue()
def test_what_is_settled_without_waiting_for_an_echo_is_settled(session, path):
    session.sender(path()).send(Message.of("a"))
    receiver = session.receiver(path())
    [delivery] = receiver.receive()
    receiver.settle(delivery.id, ACCEPTED, settled=True)
    status, *_ = Node(session, f"{path()}/$management").request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})
    assert status == 204


@pytest.mark.queue(RequiresSession=True)
def test_a_detach_is_answered_after_what_was_settled_before_it(session, path):
    sender = session.sender(path())
    for number in range(10):
        sender.send(Message.of(str(number), "s"))
    receiver = session.accept(path(), "s")
    deliveries = receiver.receive(10)
    session.connection.write(
        performative("disposition", session.channel, role=RECEIVER, first=Uint(deliveries[0].id), last=Uint(deliveries[-1].id), state=ACCEPTED)
        + performative("detach", session.channel, handle=Uint(receiver.handle), closed=True))
    session.expect("detach", handle=receiver.remote)
    echoes = [one for one in session.connection.said if one.kind == "disposition" and one.role is SENDER]
    assert sum((one.first if one.last is None else one.last) - one.first + 1 for one in echoes) == 10


@pytest.mark.queue(LockDuration="PT1S", MaxDeliveryCount=10)
def test_who_has_lost_the_lock_is_told(session, path):
    """Silence, or `accepted`, would hide work that is done twice."""
    session.sender(path()).send(Message.of("a"))
    receiver = session.receiver(path())
    [delivery] = receiver.receive()
    time.sleep(1.3)
    receiver.settle(delivery.id, ACCEPTED)
    echo = receiver.echo(delivery.id)
    assert echo.descriptor == 0x25 and echo.value[0].value[0] == "com.microsoft:message-lock-lost"
    [again] = receiver.receive()
    assert (again.message.data, again.message.count) == (b"a", 1) and again.tag != delivery.tag


@pytest.mark.queue()
def test_what_was_never_delivered_cannot_be_settled(session, path):
    """The connection lives on."""
    receiver = session.receiver(path())
    for first, last in ((4711, None), (5, 4), (0, 0xFFFFFFFF)):
        receiver.settle(first, ACCEPTED, last=last)
    session.sender(path()).send(Message.of("a"))
    receiver.complete(receiver.receive()[0])


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=100)
def test_released_messages_are_served_again_as_often_as_there_is_credit(session, path):
    """As the SDK for Python does between its receive calls."""
    sender = session.sender(path())
    for body in "ab":
        sender.send(Message.of(body, "s"))
    receiver = session.accept(path(), "s")
    for _ in range(20):
        [delivery] = receiver.receive()
        assert (delivery.message.data, delivery.message.count) == (b"a", 0)
        receiver.settle(delivery.id, RELEASED, settled=True)
    assert session.connection.silent(0.2, "transfer"), "without credit nothing is delivered"


@pytest.mark.queue(RequiresSession=True)
def test_properties_change_with_the_outcome(session, path):
    session.sender(path()).send(Message.of("a", "s", application={"kept": 1, "changed": "old"}))
    receiver = session.accept(path(), "s")
    [delivery] = receiver.receive()
    receiver.settle(delivery.id, modified(None, None, {Symbol("changed"): "new", Symbol("added"): True}))
    assert receiver.echo(delivery.id).descriptor == 0x27
    [delivery] = receiver.receive()
    assert delivery.message.application == {"kept": 1, "changed": "new", "added": True}
    receiver.settle(delivery.id, rejected("com.microsoft:dead-letter", "d", {
        Symbol("DeadLetterReason"): "reason", Symbol("DeadLetterErrorDescription"): "description", Symbol("kept"): 2}))
    assert receiver.echo(delivery.id).descriptor == 0x25
    [dead] = session.receiver(f"{path()}/$deadletterqueue").receive()
    assert dead.message.application == {"kept": 2, "changed": "new", "added": True, "DeadLetterReason": "reason",
                                        "DeadLetterErrorDescription": "description"}


# ------------------------------------------------------------------------------------------------------- sending

def batch(*messages: Message) -> bytes:
    return b"".join(encode(Described(Ulong(0x75), message.encode())) for message in messages)


@pytest.mark.queue(RequiresSession=True)
def test_a_batch_is_taken_whole_or_not_at_all(session, path):
    sender, good = session.sender(path()), Message.of("good", "s")
    sender.send(batch(good, Message.of("other", "t"), good), message_format=BATCH)
    for bad in (batch(good, Message.of("no session")), batch(good) + encode(Described(Ulong(0x75), b"\x00\xff no message")),
                encode(Described(Ulong(0x77), "no batch"))):
        with pytest.raises(Refused):
            sender.send(bad, message_format=BATCH)
    receiver = session.accept(path(), "s")
    assert [one.message.data for one in receiver.receive(2)] == [b"good", b"good"]
    receiver.flow(1)
    assert session.connection.silent(0.3, "transfer")


@pytest.mark.queue(RequiresSession=True)
def test_a_refusal_of_a_message_says_condition_description_and_info(session, path):
    """Some clients take the third by its position."""
    sender = session.sender(path())
    state = sender.outcome(sender.transfer(Message.of("no session").encode()))
    assert state.descriptor == 0x25
    condition, description, _ = state.value[0].value
    assert condition == "amqp:not-allowed" and description.startswith("The SessionId was not set on a message, and it cannot be sent")


@pytest.mark.queue()
def test_many_are_in_flight_and_credit_is_given_anew(session, path):
    sender = session.sender(path())
    numbers = [sender.transfer(Message.of(str(number)).encode()) for number in range(500)]
    for number in numbers:
        assert sender.outcome(number).descriptor == 0x24
    assert [one.message.data for one in session.receiver(path()).receive(500)] == [str(number).encode() for number in range(500)]


@pytest.mark.queue()
def test_what_is_sent_settled_is_taken_without_an_answer(session, path):
    sender = session.sender(path())
    session.say("transfer", Message.of("a").encode(), handle=Uint(sender.handle), delivery_id=Uint(0), delivery_tag=b"t", settled=True)
    assert session.receiver(path()).receive()[0].message.data == b"a"
    assert not [one for one in session.connection.said if one.kind == "disposition"]


@pytest.mark.queue()
def test_a_transfer_that_is_aborted_never_was(session, path):
    sender, data = session.sender(path()), Message.of("x" * 100).encode()
    session.say("transfer", data[:50], handle=Uint(sender.handle), delivery_id=Uint(0), delivery_tag=b"t", more=True)
    session.say("transfer", handle=Uint(sender.handle), delivery_id=Uint(0), aborted=True)
    next(session._deliveries)
    sender.send(Message.of("after"))
    assert session.receiver(path()).receive()[0].message.data == b"after"


@pytest.mark.queue()
def test_transfers_of_two_links_may_alternate(session, path):
    first, second = session.sender(path()), session.sender(path())
    one, two = Message.of("1" * 100).encode(), Message.of("2" * 100).encode()
    session.say("transfer", one[:50], handle=Uint(first.handle), delivery_id=Uint(0), delivery_tag=b"1", more=True)
    session.say("transfer", two, handle=Uint(second.handle), delivery_id=Uint(1), delivery_tag=b"2")
    session.say("transfer", one[50:], handle=Uint(first.handle))
    assert {bytes(one.message.data[:1]) for one in session.receiver(path()).receive(2)} == {b"1", b"2"}


@pytest.mark.queue()
def test_too_large_a_message_is_refused_and_the_link_goes_on(session, path):
    sender = session.sender(path())
    with pytest.raises(Refused, match="amqp:link:message-size-exceeded"):
        sender.send(Message.of(b"x" * (sender.answer.max_message_size + 1)))
    sender.send(Message.of("after"))
    assert session.receiver(path()).receive()[0].message.data == b"after"


@pytest.mark.queue()
def test_what_is_no_message_is_refused_and_the_link_goes_on(session, path):
    sender = session.sender(path())
    for junk in (b"\x00", b"\xff" * 20, b"\x00\x53\x75\xb0\xff\xff\xff\xff", encode("text"), encode(Described(Ulong(0x99), []))):
        with pytest.raises(Refused):
            sender.send(junk)
    deep = b"\x00\x53\x77" + b"\xd0\x00\x00\x10\x00\x00\x00\x00\x01" * 3000
    with pytest.raises(Refused):
        sender.send(deep)
    sender.send(Message.of("after"))
    assert session.receiver(path()).receive()[0].message.data == b"after"


@pytest.mark.queue()
def test_channels_and_handles_may_be_any(dial, broker, path):
    connection = dial(broker)
    connection.say("begin", 200, next_outgoing_id=Uint(0xFFFFFFF0), incoming_window=Uint(1000), outgoing_window=Uint(1000))
    begun = connection.expect("begin", remote_channel=200)
    connection.say("attach", 200, name="s", handle=Uint(200), role=SENDER, source=source("here"), target=target(path()),
                   initial_delivery_count=Uint(0xFFFFFFFE))
    handle = connection.expect("attach", channel=begun.channel, name="s").handle
    assert connection.expect("flow", handle=handle).delivery_count in (0xFFFFFFFE, None)
    for number in range(5):
        connection.say("transfer", 200, Message.of(str(number)).encode(), handle=Uint(200), delivery_id=Uint((0xFFFFFFFE + number) & 0xFFFFFFFF),
                       delivery_tag=bytes([number]), settled=False)
    session = dial(broker).session()
    assert [one.message.data for one in session.receiver(path()).receive(5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.queue(RequiresSession=True)
def test_one_connection_has_many_sessions_and_links(dial, broker, path):
    connection = dial(broker)
    sender = connection.session().sender(path())
    for number in range(50):
        sender.send(Message.of(str(number), f"s{number}"))
    links = [connection.session().accept(path(), f"s{number}") for number in range(50)]
    for number, link in enumerate(links):
        delivery = link.receive()[0]
        assert delivery.message.data == str(number).encode()
        link.complete(delivery)
