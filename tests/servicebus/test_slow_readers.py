"""Clients that do not read, or have closed their windows: they cost nothing meanwhile, and lose nothing."""

import struct
import time

import pytest

from amqp_codec import Int, Uint
from amqp_wire import Connection, Message, Node, Session, performative


def fill(connection: Connection, path: str, count: int, size: int) -> None:
    sender = connection.session().sender(path)
    numbers = [sender.transfer(Message.of(b"x" * size).encode()) for _ in range(count)]
    for number in numbers:
        assert sender.outcome(number, 20).descriptor == 0x24


def window(session: Session, came: int, size: int) -> dict:
    """The fields of a flow: after so many transfers, so many more may come."""
    return {"next_incoming_id": Uint(session.begun.next_outgoing_id + came), "incoming_window": Uint(size), "next_outgoing_id": Uint(0),
            "outgoing_window": Uint(1 << 20)}


@pytest.mark.queue()
def test_half_a_frame_of_a_client_with_a_closed_window_costs_nothing(dial, broker, path):
    """What it said is kept until the rest comes, and what is for it until there is a window."""
    fill(dial(broker), path(), 20, 60_000)
    connection = dial(broker)
    session = connection.session(window=1)
    receiver = session.receiver(path())
    session.say("flow", handle=Uint(receiver.handle), delivery_count=Uint(0), link_credit=Uint(20), **window(session, 0, 1))
    assert len(connection.expect("transfer").payload) > 60_000
    opening = performative("flow", session.channel, **window(session, 1, 1000))
    connection.write(opening[:7])
    time.sleep(0.3)
    before = broker.cpu()
    time.sleep(1)
    assert broker.cpu() - before < 0.2
    connection.write(opening[7:])
    assert [len(receiver.delivery().message.data) for _ in range(19)] == [60_000] * 19


@pytest.mark.queue("first")
@pytest.mark.queue("second")
def test_a_closed_window_is_a_matter_of_its_session(dial, broker, path):
    """Other sessions of the connection get what is due to them."""
    fill(dial(broker), path("first"), 20, 60_000)
    fill(dial(broker), path("second"), 1, 60_000)
    connection = dial(broker)
    closed, other = connection.session(window=0), connection.session()
    waits, served = closed.receiver(path("first")), other.receiver(path("second"))
    closed.say("flow", handle=Uint(waits.handle), delivery_count=Uint(0), link_credit=Uint(20), **window(closed, 0, 0))
    time.sleep(0.3)
    served.flow(1)
    assert len(served.delivery().message.data) == 60_000
    closed.say("flow", **window(closed, 0, 1000))
    assert [len(waits.delivery().message.data) for _ in range(20)] == [60_000] * 20


@pytest.mark.parametrize("milliseconds", [1, 2, 3])
def test_an_impatient_client_holds_up_nobody(dial, broker, milliseconds):
    """It is to hear something every millisecond, and hears it as often as is good for all."""
    impatient = Connection(("127.0.0.1", broker.amqp_port))
    impatient.sasl("PLAIN", b"\0RootManageSharedAccessKey\0SAS_KEY_VALUE")
    impatient.open(idle_time_out=milliseconds)
    time.sleep(0.3)
    before = broker.cpu()
    time.sleep(0.5)
    assert broker.cpu() - before < 0.2
    for _ in range(4):  # on each thread
        dial(broker).session()


@pytest.mark.queue("first")
@pytest.mark.queue("second")
def test_links_of_a_client_that_reads_slowly_take_turns(dial, broker, path):
    """However much there is for one of them."""
    for name in ("first", "second"):
        fill(dial(broker), path(name), 200, 50_000)
    connection = dial(broker)
    session = connection.session(window=1)
    receivers = [session.receiver(path(name)) for name in ("first", "second")]
    for receiver in receivers:
        session.say("flow", handle=Uint(receiver.handle), delivery_count=Uint(0), link_credit=Uint(200), **window(session, 0, 1))
    came = []
    for number in range(100):
        came.append(connection.expect("transfer").handle)
        session.say("flow", **window(session, number + 1, 1))
    counts = [came.count(receiver.remote) for receiver in receivers]
    assert min(counts) > 30, came


@pytest.mark.queue()
def test_responses_wait_for_a_window_and_come(dial, broker, path):
    """More of them than the broker keeps for a client: it reads what opens the window."""
    fill(dial(broker), path(), 40, 60_000)
    connection = dial(broker)
    session = connection.session(window=30)
    node = Node(session, f"{path()}/$management")
    request = Message.of_value({"from-sequence-number": 1, "message-count": Int(40)}, ["id", None, None, None, node.reply_to],
                               {"operation": "com.microsoft:peek-message"}).encode()
    session.say("flow", **window(session, 0, 30))
    for number in range(8):
        session.say("transfer", request, handle=Uint(node.requests.handle), delivery_id=Uint(100 + number),
                    delivery_tag=struct.pack(">I", 100 + number))
    transfers, responses = 0, 0
    while responses < 8:
        transfers += 1
        responses += not connection.expect("transfer").more
        if transfers % 20 == 0:
            session.say("flow", **window(session, transfers, 30))


@pytest.mark.queue()
@pytest.mark.parametrize("mode", [0, 1])
def test_what_lies_in_the_store_is_read_as_the_client_reads(dial, own_broker, path, mode):
    """And not all at once into memory, for whoever says that it can take everything."""
    running = own_broker()
    fill(dial(running), path(), 250, 800_000)
    running.kill9()
    running.start()
    receiver = dial(running).session().receiver(path(), mode=mode)
    before = running.memory()
    receiver.flow(1_000_000)
    time.sleep(2)
    assert running.memory() - before < 80
    assert [len(receiver.delivery().message.data) for _ in range(250)] == [800_000] * 250
