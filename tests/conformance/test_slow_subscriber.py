"""Subscribers that do not read: bounded by count and bytes, counted, and nobody else's problem."""

import pytest

import wire
from wire import V5

BIG = bytes(50_000)


@pytest.fixture
def tight(broker_with):
    return broker_with("[limits]\nmax_queued_messages = 100\nmax_queued_bytes = 1000000\n")


def dropped(broker, reason: str, tenant: str = "default") -> float:
    return broker.metric(rf'^barid_dropped_messages_total\{{tenant="{tenant}",reason="{reason}"')


def resident(broker) -> int:
    """Returns the most memory that the process has had so far, in KiB."""
    with open(f"/proc/{broker._process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def fill(publisher, topic, count, qos=0) -> None:
    """Publishes far more than socket buffers and limits hold; every QoS 1 message must be acknowledged in time."""
    for number in range(count):
        publisher.publish(topic, BIG, qos=qos)
    publisher.ping()


@pytest.mark.parametrize("level", [0, 1])
def test_a_slow_subscriber_stops_nobody(tight, connect, topic, level):
    """50 MB for one that does not read: publisher and the other subscriber go on, memory stays bounded, drops are counted."""
    slow, fast, publisher = (connect(V5, to=tight, timeout=15) for _ in range(3))
    before = resident(tight)
    slow.subscribe(topic, qos=level)
    fast.subscribe(topic + "/fast", qos=1)
    fill(publisher, topic, 1000, level)
    publisher.publish(topic + "/fast", b"x", qos=1)
    fast.receive(b"x")
    assert dropped(tight, "queue_.*") > 0
    assert resident(tight) < before + 10_000


def test_a_slow_subscriber_gets_whole_packets_and_then_new_ones(tight, connect, topic):
    """It loses messages, not bytes; when it reads again it is served again, unless the broker had enough of it."""
    slow, publisher = connect(V5, to=tight, timeout=10), connect(V5, to=tight, timeout=10)
    slow.subscribe(topic)
    fill(publisher, topic, 600)
    publisher.publish(topic, b"not yet the last")
    found = 0
    try:
        while True:
            slow.recv(timeout=1.5)
            found += 1
    except TimeoutError:
        publisher.publish(topic, b"the last")
        while slow.expect(wire.PUBLISH).payload != b"the last":
            pass
    except wire.Closed:
        pass
    assert 0 < found < 601


@pytest.mark.parametrize("limit, size, kept", [("max_queued_messages = 10", 1, 10), ("max_queued_bytes = 100000", 10_000, 10)])
def test_the_queue_of_an_offline_session_is_bounded(broker_with, connect, topic, unique, limit, size, kept):
    """By count and by bytes. What is kept is in order, and what is lost is counted."""
    bounded = broker_with(f"[limits]\n{limit}\n")
    name, options = unique("c"), {"properties": {"session_expiry_interval": 60}}
    first = connect(V5, name, to=bounded, **options)
    first.subscribe(topic, qos=1)
    first.disconnect()
    publisher = connect(V5, to=bounded)
    for number in range(50):
        publisher.publish(topic, (b"%03d" % number).ljust(size, b"."), qos=1)
    second = connect(V5, name, to=bounded, clean=False, **options)
    found = [int(one.payload[:3]) for one in second.receive_all()]
    assert found == sorted(found)
    assert 1 <= len(found) <= kept
    assert dropped(bounded, "queue_.*") == 50 - len(found)


def test_every_drop_is_counted_by_tenant_and_reason(broker_with, connect, topic, unique):
    bounded = broker_with("[limits]\nmax_queued_messages = 10\n")
    name, publisher = unique("c"), connect(V5, to=bounded, tenant="acme")
    small = connect(V5, to=bounded, tenant="acme", properties={"maximum_packet_size": 200})
    small.subscribe(topic + "/large", qos=1)
    for _ in range(3):
        publisher.publish(topic + "/large", bytes(500), qos=1)
    away = connect(V5, name, to=bounded, tenant="acme", properties={"session_expiry_interval": 60})
    away.subscribe(topic + "/queued", qos=1)
    away.disconnect()
    for _ in range(14):
        publisher.publish(topic + "/queued", b"x", qos=1)
    small.ping()
    assert dropped(bounded, "packet_too_large", "acme") == 3
    assert dropped(bounded, "queue_messages", "acme") == 4
    assert dropped(bounded, ".*") == 0


def test_many_subscribers_that_never_read(tight, connect, topic):
    """And one that does: it gets every message."""
    for _ in range(20):
        connect(V5, to=tight).subscribe(topic + "/big")
    reader, publisher = connect(V5, to=tight, timeout=10), connect(V5, to=tight, timeout=10)
    reader.subscribe(topic + "/small", qos=1)
    for number in range(100):
        publisher.publish(topic + "/big", BIG)
        publisher.publish(topic + "/small", b"%d" % number, qos=1)
    assert [reader.receive().payload for _ in range(100)] == [b"%d" % number for number in range(100)]


def test_a_client_that_sends_and_never_reads(ours, connect, dial):
    """Its acknowledgements pile up: the broker bounds them, and serves others."""
    client = dial()
    client.connect()
    client.stream.settimeout(2)
    pings = wire.pingreq() * 10_000
    try:
        for _ in range(400):
            client.stream.sendall(pings)
    except (TimeoutError, ConnectionError):
        pass
    connect(V5).ping()


def test_room_that_an_acknowledgement_makes_is_noticed(broker_with, connect, unique):
    """What is in flight counts for the tenant: when it is acknowledged, publishers that are held back for others go on."""
    running = broker_with('[limits]\nqueue_overflow = "block"\nmax_tenant_queued_bytes = 100_000\n')
    kept = {"session_expiry_interval": 3_600}
    reader, away = connect(V5, to=running, properties=kept), connect(V5, unique("away"), to=running, properties=kept)
    reader.subscribe("reader", qos=1)
    away.subscribe("away", qos=1)
    away.send(wire.disconnect())
    filler, held_back = connect(V5, to=running), connect(V5, to=running)
    filler.send(*(wire.publish("reader", bytes(60_000), 1, number) for number in (1, 2)))
    taken = [reader.expect(wire.PUBLISH) for _ in range(2)]
    held_back.send(wire.publish("away", b"x", 1, 7))
    held_back.expect_nothing()
    for message in taken:
        reader.send(wire.acknowledge(wire.PUBACK, message.packet_id))
    held_back.expect(wire.PUBACK, packet_id=7)
