"""Clients that mean harm: whatever they send, the broker lives, stays small, and serves the others meanwhile."""

import contextlib
import os
import random
import socket
import struct
import threading
import time

import pytest

from amqp_codec import Array, Described, Int, Raw, Symbol, Ubyte, Uint, Ulong, encode
from amqp_wire import (ACCEPTED, AMQP, FIELDS, RECEIVER, SASL, SECONDS, SENDER, SESSION_FILTER, Closed, Connection, Message, Node, Refused, frame,
                       modified, performative, source, target)
from broker import until
from namespace import KEY, KEY_NAME

PLAIN = performative("init", mechanism=Symbol("PLAIN"), initial_response=f"\0{KEY_NAME}\0{KEY}".encode())
OPEN = performative("open", container_id="hostile", max_frame_size=Uint(65_536))
BEGIN = performative("begin", next_outgoing_id=Uint(0), incoming_window=Uint(1000), outgoing_window=Uint(1000))
ENTRY = SASL + PLAIN + AMQP + OPEN + BEGIN
# The most that a test sends at once is 50 MB: in memory, in the buffers of a commit, and on its way to receivers.
MOST_MEGABYTES = 256

pytestmark = [pytest.mark.queue("good", RequiresSession=True, LockDuration="PT5M"), pytest.mark.queue("target"), pytest.mark.queue("sessions", RequiresSession=True)]


def memory(broker) -> int:
    """What the broker has in memory, in MiB."""
    with open(f"/proc/{broker._process.pid}/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))


@pytest.fixture(autouse=True)
def good_client(dial, broker, path):
    """Works throughout the test, and must never wait long; afterwards there is room for new ones."""
    stop, worst, failures, rounds = threading.Event(), [0.0], [], [0]
    session = dial(broker).session()
    sender, holder = session.sender(path("good")), session.accept(path("good"), "s")

    def work():
        try:
            while not stop.is_set():
                started = time.monotonic()
                sender.send(Message.of("x", "s"))
                holder.complete(holder.receive()[0])
                worst[0] = max(worst[0], time.monotonic() - started)
                rounds[0] += 1
                stop.wait(0.01)
        except Exception as error:
            failures.append(error)

    before = memory(broker)
    thread = threading.Thread(target=work)
    thread.start()
    yield
    so_far = rounds[0]
    until(lambda: rounds[0] > so_far + 2 or failures)
    stop.set()
    thread.join()
    assert not failures, failures
    assert worst[0] < 3, "the good client had to wait"
    assert broker.running()
    assert memory(broker) - before < MOST_MEGABYTES, "the broker has grown"
    dial(broker).session().sender(path("target")).send(Message.of("afterwards"))


def enter(broker, data: bytes = ENTRY, timeout: float = SECONDS) -> socket.socket:
    """A bare socket on which this has been said."""
    bare = socket.create_connection(("127.0.0.1", broker.amqp_port), timeout)
    bare.sendall(data)
    return bare


def flood(bare: socket.socket, data: bytes, times: int = 1, seconds: float = 6) -> int:
    """Sends again and again, never reads, and ends when the broker does not take it any more; how much it took."""
    deadline, taken = time.monotonic() + seconds, 0
    bare.settimeout(0.5)
    with contextlib.suppress(OSError):
        for _ in range(times):
            if time.monotonic() > deadline:
                break
            bare.sendall(data)
            taken += len(data)
    return taken


def ends(bare: socket.socket, seconds: float = SECONDS) -> bytes:
    """What the broker says until it closes the connection, which it must."""
    said, deadline = b"", time.monotonic() + seconds
    while True:
        bare.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            data = bare.recv(1 << 16)
        except TimeoutError:
            pytest.fail(f"the connection lives on; it said {said[-200:]!r}")
        except ConnectionError:
            return said
        if not data:
            return said
        said += data


# -------------------------------------------------------------------------------------------------------- frames

@pytest.mark.parametrize("junk", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02me", b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x02\x00\x00",
    b"AMQP\x07\x01\x00\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 4096, b"\xff" * 4096, b"SSH-2.0-x\r\n",
], ids=lambda junk: junk[:8].hex())
def test_what_is_no_amqp_is_turned_away(broker, junk):
    ends(enter(broker, junk))


@pytest.mark.parametrize("before", [b"", SASL, SASL + PLAIN + AMQP, ENTRY], ids=["at once", "in SASL", "before open", "after begin"])
@pytest.mark.parametrize("header", [
    struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0), struct.pack(">IBBH", 0x7FFFFFFF, 2, 0, 0), struct.pack(">IBBH", 1 << 24, 2, 0, 0),
    struct.pack(">IBBH", 7, 2, 0, 0), struct.pack(">IBBH", 0, 0, 0, 0), struct.pack(">IBBH", 8, 1, 0, 0), struct.pack(">IBBH", 8, 255, 0, 0),
    struct.pack(">IBBH", 12, 2, 77, 0) + b"\x00\x53\x10\x45",
], ids=["4 GiB", "2 GiB", "16 MiB", "too small", "zero", "offset 1", "offset behind the end", "unknown type"])
def test_impossible_frame_headers(broker, before, header):
    bare = enter(broker, before + header)
    flood(bare, b"\0" * 65_536, 16, 1)
    ends(bare)


def test_every_prefix_of_a_conversation(broker, path):
    conversation = ENTRY + performative("attach", name="x", handle=Uint(0), role=RECEIVER, source=source(path("target")), target=target("t"))
    for length in range(1, len(conversation), 3):
        enter(broker, conversation[:length]).close()


def test_one_byte_at_a_time(broker, path):
    conversation = ENTRY + performative("attach", name="x", handle=Uint(0), role=SENDER, target=target(path("target")), source=source("s"),
                                        initial_delivery_count=Uint(0))
    bare = enter(broker, b"")
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in conversation:
        bare.sendall(bytes([byte]))
    said = b""
    while b"\x00\x53\x13" not in said:
        said += bare.recv(4096)
    assert b"\x00\x53\x12" in said, "attached, and given credit"


def test_conversations_with_bytes_changed(broker, path):
    """Whatever comes of them, it is not a panic."""
    chance = random.Random(int(os.environ.get("HOSTILE_SEED", 5)))
    conversation = ENTRY + b"".join([
        performative("attach", name="r", handle=Uint(0), role=RECEIVER, source=source(path("target"), {Symbol("f"): Described(Ulong(5), "x")}),
                     target=target("t"), rcv_settle_mode=Ubyte(1), properties={Symbol("p"): 1}),
        performative("flow", handle=Uint(0), delivery_count=Uint(0), link_credit=Uint(10), next_incoming_id=Uint(0), incoming_window=Uint(10),
                     next_outgoing_id=Uint(0), outgoing_window=Uint(10)),
        performative("attach", name="s", handle=Uint(1), role=SENDER, target=target(path("target")), source=source("s"), initial_delivery_count=Uint(0)),
        performative("transfer", 0, Message.of("x" * 50, "s", "id", {"a": 1}).encode(), handle=Uint(1), delivery_id=Uint(0), delivery_tag=b"t"),
        performative("disposition", role=RECEIVER, first=Uint(0), last=Uint(3), state=modified(True, False, {Symbol("x"): 1})),
        performative("detach", handle=Uint(1), closed=True), performative("end"), performative("close"),
    ])
    bounds = len(SASL + PLAIN + AMQP), len(conversation)
    for _ in range(400):
        data = bytearray(conversation)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(*bounds)
            data[at:at + chance.choice((0, 1, 1, 1, 2, 4))] = chance.randbytes(chance.choice((0, 1, 1, 1, 4)))
        bare = enter(broker, bytes(data))
        bare.settimeout(0.02)
        with contextlib.suppress(OSError):
            bare.recv(65_536)
        bare.close()


WRONG = [None, True, "text", b"bytes", 1.5, Symbol("s"), Uint(0xFFFFFFFF), Ulong(0xFFFFFFFFFFFFFFFF), -1, [], ["x"] * 50, {}, {1: {2: {3: 4}}},
         Array(()), Array(("a", "b")), Described(Ulong(0x28), []), Described(Ulong(0x30), []), Described(Ulong(0xFFFF), [1, 2]),
         Described(Described(1, 2), 3), Raw(b"\x3f"), Raw(b"\x00"), Raw(b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff"), Raw(b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40")]


@pytest.mark.parametrize("kind", ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close", "init"])
def test_wrong_types_in_every_field(broker, path, kind):
    good = {
        "open": {"container_id": "c"}, "begin": {"next_outgoing_id": Uint(0), "incoming_window": Uint(9), "outgoing_window": Uint(9)},
        "attach": {"name": "n", "handle": Uint(0), "role": RECEIVER, "source": source(path("target")), "target": target("t")},
        "flow": {"incoming_window": Uint(9), "next_outgoing_id": Uint(0), "outgoing_window": Uint(9), "handle": Uint(0)},
        "transfer": {"handle": Uint(0), "delivery_id": Uint(0), "delivery_tag": b"t"}, "disposition": {"role": RECEIVER, "first": Uint(0)},
        "detach": {"handle": Uint(0)}, "end": {}, "close": {}, "init": {"mechanism": Symbol("PLAIN")},
    }[kind]
    attach = performative("attach", name="s", handle=Uint(0), role=SENDER, target=target(path("target")), source=source("s"),
                          initial_delivery_count=Uint(0))
    before = {"open": SASL + PLAIN + AMQP, "init": SASL, "begin": SASL + PLAIN + AMQP + OPEN, "attach": ENTRY}.get(kind, ENTRY + attach)
    for field in FIELDS[kind]:
        for value in WRONG:
            bare = enter(broker, before + performative(kind, 0, b"junk", **good | {field: value}))
            bare.settimeout(0.005)
            with contextlib.suppress(OSError):
                bare.recv(65_536)
            bare.close()


@pytest.mark.parametrize("depth", [50, 1000, 5000])
@pytest.mark.parametrize("shape", ["lists", "maps", "described", "arrays"])
def test_deep_nesting(broker, path, shape, depth):
    value = b"\x40"
    for _ in range(depth):
        if len(value) > 60_000:
            break
        if shape == "lists":
            value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
        elif shape == "maps":
            value = b"\xd1" + struct.pack(">II", len(value) + 5, 2) + b"\x40" + value
        elif shape == "arrays":
            value = b"\xf0" + struct.pack(">II", len(value) + 4, 1) + value
        else:
            value = b"\x00" + value + b"\x40"
    for data in (SASL + PLAIN + AMQP + performative("open", container_id="x", properties=Raw(value)),
                 ENTRY + performative("attach", name="x", handle=Uint(0), role=RECEIVER, source=source(path("target"), {Symbol("x"): Raw(value)})),
                 ENTRY + performative("attach", name="x", handle=Uint(0), role=SENDER, target=target(path("target")), source=source("s"),
                                      initial_delivery_count=Uint(0))
                 + performative("transfer", 0, encode(Described(Ulong(0x74), Raw(value))), handle=Uint(0), delivery_id=Uint(0), delivery_tag=b"t")):
        bare = enter(broker, data)
        bare.settimeout(0.1)
        with contextlib.suppress(OSError):
            bare.recv(65_536)
        bare.close()


def test_arrays_that_claim_to_be_huge(broker, path):
    """Two thousand million elements without a byte."""
    for value in (b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40", b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x43", b"\xe0\x02\xff\x45",
                  b"\xd0\x00\x00\x00\x04\x7f\xff\xff\xff", b"\xd1\x00\x00\x00\x04\xff\xff\xff\xfe", b"\xb0\x7f\xff\xff\xff", b"\xb1\xff\xff\xff\xff"):
        for data in (performative("open", container_id="x", properties=Raw(value)), performative("open", container_id="x", offered=Raw(value))):
            bare = enter(broker, SASL + PLAIN + AMQP + data)
            bare.settimeout(0.2)
            with contextlib.suppress(OSError):
                bare.recv(65_536)
            bare.close()


# ---------------------------------------------------------------------------------------------------------- SASL

def init(mechanism: bytes, response: bytes) -> bytes:
    return performative("init", mechanism=Raw(b"\xb3" + struct.pack(">I", len(mechanism)) + mechanism), initial_response=response)


def test_sasl_garbage(broker):
    for data in (PLAIN[:-3], frame(b"", 0, 1), frame(b"junk", 0, 1), frame(b"\x00\x53\x41\x45", 0, 1), frame(encode(Described(Ulong(0x44), [Ubyte(0)])), 0, 1),
                 OPEN, init(b"ANONYMOUS", b"x" * 100_000), init(b"x" * 10_000, b""), init(b"PLAIN", b"\0" * 60_000), init(b"\xff\xfe", b"")):
        bare = enter(broker, SASL + data)
        bare.settimeout(0.2)
        with contextlib.suppress(OSError):
            bare.recv(4096)
        bare.close()


def test_sasl_without_end(broker):
    bare = enter(broker, SASL)
    flood(bare, performative("init", mechanism=Symbol("SCRAM-SHA-1"), initial_response=b"x" * 400) * 100, 1000)
    ends(bare)


def test_without_sasl_nothing_is_allowed(broker, path):
    """The layer may be left out, but then nobody has proved anything."""
    connection = Connection(("127.0.0.1", broker.amqp_port))
    try:
        connection.open()
        with pytest.raises(Refused, match="unauthorized|auth-failed"):
            connection.session().sender(path("target"))
    except Closed:
        pass


# ------------------------------------------------------------------------------------- handles, channels, sequence

def test_frames_out_of_place(broker, path):
    attach = performative("attach", name="x", handle=Uint(0), role=SENDER, target=target(path("target")), source=source("s"),
                          initial_delivery_count=Uint(0))
    flow = {"incoming_window": Uint(9), "next_outgoing_id": Uint(0), "outgoing_window": Uint(9)}
    transfer = {"delivery_id": Uint(0), "delivery_tag": b"t"}
    wrong = {
        "transfer on no handle": performative("transfer", 0, b"x", handle=Uint(9), **transfer),
        "transfer on no channel": performative("transfer", 9, b"x", handle=Uint(0), **transfer),
        "flow on no channel": performative("flow", 500, **flow), "detach of no handle": performative("detach", handle=Uint(9)),
        "attach on no channel": performative("attach", 77, name="x", handle=Uint(0), role=True, source=source("x")),
        "begin again": BEGIN, "open again": OPEN, "end of nothing": performative("end", 50), "handle in use": attach + attach,
        "a handle beyond": performative("attach", name="y", handle=Uint(0xFFFFFFFF), role=True, source=source("x")),
        "a channel beyond": performative("begin", 0xFFFF, next_outgoing_id=Uint(0), incoming_window=Uint(9), outgoing_window=Uint(9)),
        "sasl again": SASL + PLAIN, "answer to nothing": performative("begin", remote_channel=3, next_outgoing_id=Uint(0), incoming_window=Uint(1),
                                                                     outgoing_window=Uint(1)),
    }
    for name, data in wrong.items():
        bare = enter(broker, ENTRY + data)
        said = b""
        with contextlib.suppress(OSError):
            while b"amqp:" not in said and (data := bare.recv(65_536)):
                said += data
        assert b"amqp:" in said, f"{name}: the client is told what was wrong"
        bare.close()


def test_after_close_nothing_counts(broker, path):
    bare = enter(broker, ENTRY + performative("close"))
    flood(bare, BEGIN * 1000, 50, 2)
    ends(bare)


# -------------------------------------------------------------------------------------------------------- floods

def test_a_flood_of_sessions(broker):
    bare = enter(broker, SASL + PLAIN + AMQP + OPEN)
    begins = b"".join(performative("begin", channel, next_outgoing_id=Uint(0), incoming_window=Uint(1), outgoing_window=Uint(1))
                      for channel in range(65_536))
    flood(bare, begins)


@pytest.mark.parametrize("what", ["receivers", "senders", "nowhere", "waiting sessions", "held sessions"])
def test_a_flood_of_links(broker, path, what):
    def attach(number: int) -> bytes:
        role, addresses = RECEIVER, {"source": source(path("target")), "target": target("t")}
        if what == "senders":
            role, addresses = SENDER, {"source": source("s"), "target": target(path("target")), "initial_delivery_count": Uint(0)}
        elif what == "nowhere":
            addresses["source"] = source(f"nowhere/{number}")
        elif what != "receivers":
            addresses["source"] = source(path("sessions"), {SESSION_FILTER: None if what == "waiting sessions" else f"{number}"})
        return performative("attach", name=f"link {number}", handle=Uint(number), role=role, **addresses)

    bare = enter(broker)
    flood(bare, b"".join(map(attach, range(20_000))))
    bare.close()


def test_a_flood_of_flows_that_ask_for_answers(broker, path):
    bare = enter(broker, ENTRY + performative("attach", name="x", handle=Uint(0), role=RECEIVER, source=source(path("target")), target=target("t")))
    flow = performative("flow", handle=Uint(0), delivery_count=Uint(0), link_credit=Uint(0xFFFFFFFF), next_incoming_id=Uint(0),
                        incoming_window=Uint(0xFFFFFFFF), next_outgoing_id=Uint(0), outgoing_window=Uint(0xFFFFFFFF), echo=True)
    drain = performative("flow", handle=Uint(0), delivery_count=Uint(0xFFFFFFFF), link_credit=Uint(0xFFFFFFFF), next_incoming_id=Uint(0),
                         incoming_window=Uint(0), next_outgoing_id=Uint(0), outgoing_window=Uint(0), drain=True, echo=True)
    flood(bare, (flow + drain) * 500, 2000)


def test_a_flood_of_dispositions_of_everything(broker):
    bare = enter(broker)
    wide = performative("disposition", role=RECEIVER, first=Uint(0), last=Uint(0xFFFFFFFF), settled=False, state=ACCEPTED)
    wrapped = performative("disposition", role=RECEIVER, first=Uint(0x80000000), last=Uint(0x7FFFFFFF), settled=True, state=ACCEPTED)
    flood(bare, (wide + wrapped) * 500, 200, 4)


def test_a_flood_of_empty_frames(broker):
    flood(enter(broker), bytes([0, 0, 0, 8, 2, 0, 0, 0]) * 8000, 1000, 3)


def test_a_flood_of_requests_whose_answers_nobody_reads(dial, broker, path):
    session = dial(broker).session()
    sender = session.sender(path("target"))
    for _ in range(20):
        sender.send(Message.of(b"x" * 100_000))
    greedy = dial(broker)
    node = Node(greedy.session(), f"{path('target')}/$management")
    request = Message.of_value({"from-sequence-number": 1, "message-count": Int(250)}, ["id", None, None, None, node.reply_to],
                               {"operation": "com.microsoft:peek-message"}).encode()
    requests = b"".join(
        performative("transfer", 0, request, handle=Uint(node.requests.handle), delivery_id=Uint(number), delivery_tag=struct.pack(">I", number))
        for number in range(3000))
    flood(greedy.socket, requests)


def test_a_receiver_that_wants_everything_and_reads_nothing(dial, broker, path):
    """What waits for it does not pile up in memory, and is not lost."""
    session = dial(broker).session()
    sender = session.sender(path("target"))
    numbers = [sender.transfer(Message.of(b"x" * 250_000).encode()) for _ in range(200)]
    for number in numbers:
        assert sender.outcome(number, 20).descriptor == 0x24
    before = memory(broker)
    greedy = [dial(broker).session().receiver(path("target")) for _ in range(4)]
    for receiver in greedy:
        receiver.flow(1_000_000)
    time.sleep(2)
    assert memory(broker) - before < MOST_MEGABYTES
    for receiver in greedy:
        receiver.session.connection.close()


def test_messages_that_never_end(dial, broker, path):
    """Many links, each with a message that is always only nearly complete."""
    session = dial(broker).session()
    links = [session.sender(path("target")) for _ in range(300)]
    for round_ in range(14):
        for index, link in enumerate(links):
            first = {"delivery_id": Uint(index), "delivery_tag": struct.pack(">I", index)} if round_ == 0 else {}
            data = performative("transfer", session.channel, b"x" * 60_000, handle=Uint(link.handle), more=True, **first)
            try:
                session.connection.socket.sendall(data)
            except OSError:
                return
    time.sleep(0.5)


def test_more_messages_than_there_is_credit_for(broker, path):
    bare = enter(broker, ENTRY + performative("attach", name="x", handle=Uint(0), role=SENDER, target=target(path("target")), source=source("s"),
                                              initial_delivery_count=Uint(0)))
    data = b"".join(performative("transfer", 0, Message.of(b"x" * 1000).encode(), handle=Uint(0), delivery_id=Uint(number),
                                 delivery_tag=struct.pack(">I", number)) for number in range(30_000))
    flood(bare, data)


def test_names_of_absurd_length(dial, broker, path):
    long = "x" * 50_000
    for fields in ({"name": long}, {"source": source(long)}, {"source": source(path("sessions"), {SESSION_FILTER: long})},
                   {"target": target(long)}, {"properties": {Symbol("com.microsoft:timeout"): long}}):
        session = dial(broker).session()
        with contextlib.suppress(Refused, Closed, TimeoutError):
            session.receiver(path("target"), **fields)
    sender = dial(broker).session().sender(path("sessions"))
    with pytest.raises(Refused):
        sender.send(Message.of("x", session=long))
    with pytest.raises(Refused):
        sender.send(Message.of("x", session="s", message_id=long))
    sender.send(Message.of("x", session="x" * 128, message_id="y" * 128))


# ---------------------------------------------------------------------------------------------------- connections

def test_many_half_open_connections(broker):
    held = [enter(broker, data) for data in (b"", b"A", SASL, SASL + PLAIN[:20], SASL + PLAIN + AMQP, ENTRY, ENTRY + b"\0\0") for _ in range(60)]
    time.sleep(1)
    for bare in held:
        bare.close()


def test_connections_that_come_and_go(broker):
    for _ in range(600):
        enter(broker).close()
    for _ in range(200):
        bare = enter(broker)
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        bare.close()


def test_a_client_that_never_says_anything_is_closed(own_broker):
    """After the time for handshakes, which is a setting."""
    running = own_broker("[limits]\nconnect_timeout = 1\n")
    for data in (b"", b"AMQP", SASL, SASL + PLAIN, SASL + PLAIN + AMQP):
        ends(enter(running, data))
