"""What becomes of messages that no SDK would send, and of links that no SDK would attach."""

import time
import uuid

import pytest

from amqp_codec import Array, Described, Int, Symbol, Timestamp, Ubyte, Uint, Ulong, encode
from amqp_wire import ACCEPTED, RECEIVER, SENDER, Message, Node, Refused, modified, source, target

NUMBER, ENQUEUED, LATER = Symbol("x-opt-sequence-number"), Symbol("x-opt-enqueued-time"), Symbol("x-opt-scheduled-enqueue-time")


@pytest.mark.queue()
def test_a_sender_does_not_decide_what_the_broker_says(session, path):
    """Numbers, times, counts and reasons of dead letters are the broker's own."""
    message = Message.of("a", message_id="id")
    message.header = [True, Ubyte(4), None, True, Uint(100)]
    message.annotations = {
        NUMBER: 4711, ENQUEUED: Timestamp(1), Symbol("x-opt-locked-until"): Timestamp(1), Symbol("x-opt-message-state"): Int(1),
        Symbol("x-opt-enqueue-sequence-number"): 4712, Symbol("x-opt-lock-token"): uuid.uuid4(), Symbol("x-opt-forwarded"): 3,
        Symbol("x-opt-deadletter-source"): "nowhere", Symbol("x-own"): "kept",
    }
    message.delivery_annotations = {Symbol("x-opt-lock-token"): uuid.uuid4()}
    session.sender(path()).send(message)
    [delivery] = session.receiver(path()).receive()
    annotations = delivery.message.annotations
    assert annotations[NUMBER] == 1 and delivery.message.count == 0
    assert abs(annotations[ENQUEUED] - time.time() * 1000) < 5000
    assert annotations[Symbol("x-opt-locked-until")] > time.time() * 1000
    assert annotations.get(Symbol("x-opt-message-state"), 0) == 0
    assert annotations[Symbol("x-opt-enqueue-sequence-number")] == 1
    assert annotations[Symbol("x-own")] == "kept"
    assert delivery.message.delivery_annotations == {Symbol("x-opt-lock-token"): delivery.token}
    assert delivery.message.header[0] is True and delivery.message.header[1] == 4


@pytest.mark.queue()
@pytest.mark.parametrize("identifier", ["text", uuid.uuid4(), Ulong(7), Ulong(1 << 63), b"\x00binary"], ids=["text", "uuid", "small", "large", "binary"])
def test_message_and_correlation_ids_keep_their_types(session, path, identifier):
    session.sender(path()).send(Message(properties=[identifier, None, None, None, None, identifier], body=[Described(Ulong(0x75), b"x")]))
    [delivery] = session.receiver(path()).receive()
    for index in (0, 5):
        got = delivery.message.property_at(index)
        assert got == identifier and type(got) is type(identifier)


@pytest.mark.queue(DeadLetteringOnMessageExpiration=True)
@pytest.mark.parametrize("ttl, alive", [(0, False), (1, False), (0xFFFFFFFF, True), (None, True)])
def test_times_to_live_from_nothing_to_weeks(session, path, ttl, alive):
    message = Message.of("a")
    message.header = [None, None, None if ttl is None else Uint(ttl)]
    session.sender(path()).send(message)
    time.sleep(0.1)
    receiver = session.receiver(path())
    receiver.flow(1)
    if alive:
        assert receiver.delivery().message.data == b"a"
    else:
        assert session.connection.silent(0.4, "transfer")
        [dead] = session.receiver(f"{path()}/$DeadLetterQueue").receive()
        assert dead.message.application["DeadLetterReason"] == "TTLExpiredException"


@pytest.mark.queue()
@pytest.mark.parametrize("at", [-(1 << 62), -1, 0, 1], ids=str)
def test_what_is_scheduled_for_the_past_comes_now(session, path, at):
    message = Message.of("a")
    message.annotations = {LATER: Timestamp(at)}
    session.sender(path()).send(message)
    assert session.receiver(path()).receive()[0].message.data == b"a"


@pytest.mark.queue()
@pytest.mark.parametrize("at", [253_402_300_799_999, (1 << 62), (1 << 63) - 1], ids=str)
def test_what_is_scheduled_for_the_end_of_time_waits(session, path, at):
    message = Message.of("a")
    message.annotations = {LATER: Timestamp(at)}
    sender, receiver = session.sender(path()), session.receiver(path())
    sender.send(message)
    sender.send(Message.of("b"))
    receiver.flow(5)
    assert receiver.delivery().message.data == b"b"
    assert session.connection.silent(0.3, "transfer")
    status, body, _ = Node(session, f"{path()}/$management").request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})
    assert status == 200
    assert Message.decode(body["messages"][0]["message"]).annotations[Symbol("x-opt-message-state")] == 2


@pytest.mark.queue(MaxMessageSizeInKilobytes=30_720)
def test_a_message_of_twenty_megabytes(dial, broker, path):
    session, body = dial(broker).session(), bytes(range(256)) * (80 << 10)
    sender = session.sender(path())
    assert sender.answer.max_message_size == 30_720 << 10
    assert sender.outcome(sender.transfer(Message.of(body).encode()), 30) == ACCEPTED
    receiver = session.receiver(path())
    receiver.flow(1)
    delivery = receiver.delivery(30)
    assert delivery.message.data == body
    receiver.complete(delivery)


@pytest.mark.queue(MaxDeliveryCount=1_000_000)
def test_properties_do_not_grow_without_end(session, path):
    """What is changed again and again is bounded: sooner or later the change is refused, or the message a dead letter."""
    session.sender(path()).send(Message.of("a"))
    receiver, size = session.receiver(path()), 0
    for number in range(100):
        try:
            [delivery] = receiver.receive(1, 1)
        except TimeoutError:
            break
        size = len(delivery.raw)
        receiver.settle(delivery.id, modified(True, False, {Symbol(f"key {number}"): "x" * 50_000}))
        if receiver.echo(delivery.id).descriptor != 0x27:
            break
    assert size < 2 << 20, f"it has grown to {size} bytes"


@pytest.mark.queue()
@pytest.mark.parametrize("sending, receiving, settled", [
    (Ubyte(0), Ubyte(1), False), (None, Ubyte(1), False), (Ubyte(2), Ubyte(1), False), (None, None, False), (Ubyte(1), Ubyte(0), True),
    (Ubyte(1), None, True),
], ids=str)
def test_modes_of_settling(session, path, sending, receiving, settled):
    """Peek-lock, unless the client wants to have everything settled."""
    session.sender(path()).send(Message.of("a"))
    receiver = session.receiver(path(), snd_settle_mode=sending, rcv_settle_mode=receiving)
    [delivery] = receiver.receive()
    assert delivery.settled is settled
    receiver.detach()
    status, *_ = Node(session, f"{path()}/$management").request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})
    assert status == (204 if settled else 200)


@pytest.mark.queue()
def test_delivery_ids_belong_to_their_session(dial, broker, path):
    """The same number on another channel is another message."""
    connection = dial(broker)
    first, second = connection.session(), connection.session()
    sender = first.sender(path())
    for body in "ab":
        sender.send(Message.of(body))
    one, two = first.receiver(path()), second.receiver(path())
    [a], [b] = one.receive(), two.receive()
    assert a.id == b.id
    one.complete(a)
    two.settle(b.id, modified(True, False))
    assert two.echo(b.id).descriptor == 0x27
    assert two.receive()[0].message.data == b"b"


@pytest.mark.queue()
def test_what_is_settled_twice_is_settled_once(session, path):
    sender = session.sender(path())
    for body in "ab":
        sender.send(Message.of(body))
    receiver = session.receiver(path())
    a, b = receiver.receive(2)
    receiver.complete(a)
    receiver.settle(a.id, modified(True, False))
    receiver.complete(b)
    receiver.flow(1)
    assert session.connection.silent(0.3, "transfer")


@pytest.mark.queue()
def test_links_may_have_the_names_and_handles_of_those_before_them(session, path):
    sender = session.sender(path())
    for number in range(20):
        sender.send(Message.of(str(number)))
        session.say("attach", name="again", handle=Uint(7), role=RECEIVER, source=source(path()), target=target("here"), rcv_settle_mode=Ubyte(1))
        attached = session.expect("attach", name="again")
        session.say("flow", incoming_window=Uint(1000), next_outgoing_id=Uint(0), outgoing_window=Uint(1000), handle=Uint(7),
                    delivery_count=Uint(0), link_credit=Uint(1), next_incoming_id=Uint(0))
        transfer = session.expect("transfer", handle=attached.handle)
        session.say("disposition", role=RECEIVER, first=transfer.delivery_id, settled=False, state=ACCEPTED)
        assert session.expect("disposition", role=SENDER, first=transfer.delivery_id).state == ACCEPTED
        session.say("detach", handle=Uint(7), closed=True)
        session.expect("detach", handle=attached.handle)


def test_a_thousand_sessions_on_one_connection(dial, broker):
    """A client may have one for each of its receivers."""
    connection = dial(broker)
    sessions = [connection.session() for _ in range(1000)]
    sessions[999].end()
    sessions[999].expect("end")


@pytest.mark.queue()
def test_bodies_that_are_not_data(session, path):
    """Also in a batch, and with sections that are empty."""
    bodies = [[Described(Ulong(0x77), {"a": Array((1, 2))})], [Described(Ulong(0x76), [1]), Described(Ulong(0x76), ["x"])], [], [Described(Ulong(0x75), b"")]]
    data = b"".join(encode(Described(Ulong(0x75), Message(properties=["id"], body=body).encode())) for body in bodies)
    session.sender(path()).send(data, message_format=Uint(0x80013700))
    assert [one.message.body for one in session.receiver(path()).receive(4)] == bodies


@pytest.mark.queue(RequiresSession=True)
def test_a_session_id_that_is_no_text_is_refused(session, path):
    sender = session.sender(path())
    for wrong in (7, b"bytes", ["s"]):
        message = Message(properties=["id", *[None] * 9, wrong], body=[Described(Ulong(0x75), b"x")])
        with pytest.raises(Refused):
            sender.send(message)
    sender.send(Message.of("x", "s"))
