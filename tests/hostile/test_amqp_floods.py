"""Clients of AMQP that repeat what is cheap for them, with a key and without."""

import itertools
import struct

import pytest
from amqp import CLIENT, STRANGER, Flood, Raw, begin, encode, repeated, tag

from amqp_codec import Described, Symbol, Ubyte, Uint, Ulong
from amqp_wire import ACCEPTED, RECEIVER, SENDER, SESSION_FILTER, Message, Node, connect, performative, source, target
from bystander import Bystander

SECONDS = 2.5

# What one connection may cost, in MiB, beside what is in the broker anyway.
MEGABYTES = 48

QUEUES = """
[[queues]]
name = "q"
[[queues]]
name = "sessions"
properties = { RequiresSession = true }
"""


@pytest.fixture
def broker(one_thread):
    return one_thread(QUEUES)


def attach(handle: int, channel: int = 0, name: str | None = None, address: str = "nowhere", **fields) -> bytes:
    return performative("attach", channel, name=name or f"link {channel}/{handle}", handle=Uint(handle), role=RECEIVER,
                        **{"source": source(address), "target": target("t")} | fields)


def flow(channel: int = 0, **fields) -> bytes:
    return performative("flow", channel, **{"next_incoming_id": Uint(0), "incoming_window": Uint(1 << 20), "next_outgoing_id": Uint(0),
                                            "outgoing_window": Uint(1 << 20)} | fields)


def assert_bounded(broker, entry: bytes, chunks, seconds: float = SECONDS, megabytes: int = MEGABYTES) -> Flood:
    before = broker.memory()
    flood = Flood(broker)
    with Bystander(broker) as bystander:
        flood.run(entry, chunks, seconds)
        grown = broker.memory() - before
    bystander.assert_served()
    assert grown < megabytes, f"{grown} MiB more, after {flood.sent >> 20} MiB on {flood.connections} connections"
    return flood


@pytest.mark.parametrize("entry", [STRANGER, CLIENT], ids=["a stranger", "a client"])
def test_refused_links_that_are_never_detached(broker, entry):
    def chunks():
        for channel in range(5_000):
            yield begin(channel) + b"".join(attach(handle, channel) for handle in range(4_096))

    assert_bounded(broker, entry, chunks)


def test_links_that_come_and_go(broker):
    data = b"".join(attach(handle) + performative("detach", handle=Uint(handle), closed=True) for handle in range(100))
    assert_bounded(broker, CLIENT + begin(), repeated(data))


@pytest.mark.parametrize("entry", [STRANGER, CLIENT], ids=["a stranger", "a client"])
def test_sessions_that_come_and_go(broker, entry):
    data = b"".join(begin(channel) + performative("end", channel) for channel in range(50))
    assert_bounded(broker, entry, repeated(data))


def test_sessions_that_stay(broker):
    def chunks():
        yield b"".join(map(begin, reversed(range(5_000))))

    assert_bounded(broker, STRANGER, chunks)


def test_empty_frames(broker):
    assert_bounded(broker, STRANGER, repeated(struct.pack(">IBBH", 8, 2, 0, 0)))


def test_flows_that_ask_for_answers(broker):
    assert_bounded(broker, STRANGER + begin(), repeated(flow(echo=True)))


def test_drains_of_a_link_whose_window_is_shut(broker):
    """A response waits for the window, and that the credit is used up waits behind it: once."""
    pair = (attach(0, address="$cbs", name="answers", target=target("me"))
            + performative("attach", name="requests", handle=Uint(1), role=SENDER, source=source("me"), target=target("$cbs"),
                           initial_delivery_count=Uint(0)))
    request = Message.of_value("no token", ["id", None, None, None, "me"], {"operation": "put-token", "type": "jwt", "name": "q"}).encode()
    entry = (STRANGER + begin(window=0) + pair + flow(handle=Uint(0), link_credit=Uint(5), incoming_window=Uint(0))
             + performative("transfer", 0, request, handle=Uint(1), delivery_id=Uint(0), delivery_tag=b"t"))
    drains = itertools.cycle([1, 2])
    drain = b"".join(flow(handle=Uint(0), delivery_count=Uint(next(drains)), link_credit=Uint(5), incoming_window=Uint(0), drain=True)
                     for _ in range(100))
    assert_bounded(broker, entry, repeated(drain))


def test_tokens_that_count_for_nothing(broker):
    pair = (attach(0, address="$cbs", name="answers", target=target("me"))
            + performative("attach", name="requests", handle=Uint(1), role=SENDER, source=source("me"), target=target("$cbs"),
                           initial_delivery_count=Uint(0)) + flow(handle=Uint(0), link_credit=Uint(1 << 30)))
    token = f"SharedAccessSignature sr=sb%3A%2F%2Fh%2Fq&sig={'A' * 43}%3D&se=1999999999&skn=RootManageSharedAccessKey"
    request = Message.of_value(token, ["id", None, None, None, "me"], {"operation": "put-token", "type": "jwt", "name": "sb://h/q"}).encode()

    def chunks():
        for first in itertools.count(0, 100):
            yield b"".join(performative("transfer", 0, request, handle=Uint(1), delivery_id=Uint(number), delivery_tag=tag(number), settled=True)
                           for number in range(first, first + 100))

    assert_bounded(broker, STRANGER + begin() + pair, chunks)


def test_dispositions_of_everything(broker):
    """Thousands of messages are unsettled, and each frame of thirty bytes names all of them."""
    connection = connect(("127.0.0.1", broker.amqp_port))
    sender = connection.session().sender("q")
    one = encode(Described(Ulong(0x75), Message.of("x").encode()))
    for _ in range(3):
        sender.send(one * 4_000, message_format=Uint(0x80013700))
    entry = CLIENT + begin() + attach(0, address="q", snd_settle_mode=Ubyte(0), rcv_settle_mode=Ubyte(1)) + flow(
        handle=Uint(0), delivery_count=Uint(0), link_credit=Uint(1 << 30))
    received = performative("disposition", role=RECEIVER, first=Uint(0), last=Uint(0xFFFFFFFF), settled=False,
                            state=Described(Ulong(0x23), [Uint(0), Ulong(0)]))
    assert_bounded(broker, entry, repeated(received))
    accepted = performative("disposition", role=RECEIVER, first=Uint(0x80000000), last=Uint(0x7FFFFFFF), settled=False, state=ACCEPTED)
    assert_bounded(broker, entry, repeated(accepted))
    connection.close()


def test_requests_of_a_client_with_many_links(broker):
    links = b"".join(attach(handle, address="q/$management", target=target(f"reply-{handle}")) for handle in range(2, 4_000))
    requests = performative("attach", name="requests", handle=Uint(0), role=SENDER, source=source("me"), target=target("q/$management"),
                            initial_delivery_count=Uint(0))
    request = Message.of_value({"lock-tokens": []}, ["id", None, None, None, "nobody"],
                               {"operation": "com.microsoft:renew-lock", "associated-link-name": "nobody"}).encode()

    def chunks():
        for first in itertools.count(0, 100):
            yield b"".join(performative("transfer", 0, request, handle=Uint(0), delivery_id=Uint(number), delivery_tag=tag(number), settled=True)
                           for number in range(first, first + 100))

    assert_bounded(broker, CLIENT + begin() + requests + links, chunks)


def test_receivers_with_long_names_that_wait_for_sessions(broker):
    def chunks():
        yield b"".join(attach(handle, name=f"{handle}" + "x" * 60_000, address="sessions",
                              source=source("sessions", {SESSION_FILTER: None})) for handle in range(2_000))

    assert_bounded(broker, CLIENT + begin(), chunks)


def test_requests_that_name_a_million_messages(broker):
    """16 bytes each, in one message."""
    session = connect(("127.0.0.1", broker.amqp_port)).session()
    node = Node(session, "q/$management")
    size = 16 * 900_000
    tokens = Raw(b"\xf0" + struct.pack(">II", size + 5, 900_000) + b"\x98" + bytes(size))
    numbers = Raw(b"\xf0" + struct.pack(">II", 8 * 900_000 + 5, 900_000) + b"\x81" + bytes(8 * 900_000))
    requests = {"renew-lock": {"lock-tokens": tokens}, "update-disposition": {"lock-tokens": tokens, "disposition-status": "completed"},
                "receive-by-sequence-number": {"sequence-numbers": numbers, "receiver-settle-mode": Uint(1)},
                "cancel-scheduled-message": {"sequence-numbers": numbers}}
    with Bystander(broker) as bystander:
        for operation, body in requests.items():
            status, _, answer = node.request(operation, body, seconds=30)
            assert status == 400 and "split the request" in answer.application["statusDescription"], answer.application
    bystander.assert_served()
    session.connection.close()
