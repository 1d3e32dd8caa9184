"""Maximum Packet Size in both directions (5: §3.1.2.11.4, §3.2.2.3.6)."""

import pytest

import wire
from wire import V5, V311

normative = pytest.mark.normative


def exact(topic: str, size: int, qos: int = 0) -> bytes:
    """A payload that makes the PUBLISH the broker sends to a version 5 client exactly `size` bytes long."""
    for length in range(size, 0, -1):
        if len(wire.publish(topic, bytes(length), qos, 1 if qos else None)) == size:
            return bytes(length)
    raise AssertionError("no payload makes this size")


@normative("5:MQTT-3.1.2-24", "5:MQTT-3.1.2-25")
def test_what_is_too_large_for_a_subscriber_is_dropped(connect, topic, qos):
    """The next message comes, other subscribers get both, and nothing stays in flight."""
    small = connect(V5, properties={"maximum_packet_size": 200, "receive_maximum": 1})
    large, old, publisher = connect(V5), connect(V311), connect(V5)
    for client in (small, large, old):
        client.subscribe(topic, qos=qos)
    payloads = [exact(topic, 200, qos), exact(topic, 201, qos), bytes(5000), b"fits"]
    for payload in payloads:
        publisher.publish(topic, payload, qos=qos)
    for payload in payloads:
        large.receive(payload)
        old.receive(payload)
    assert small.receive(payloads[0]).size == 200
    small.receive(b"fits")
    small.expect_nothing(0.1)


@normative("5:MQTT-3.1.2-25")
def test_a_dropped_message_does_not_come_back(connect, topic, unique):
    """It counts as sent, also for the session."""
    name = unique("c")
    first = connect(V5, name, properties={"maximum_packet_size": 100, "session_expiry_interval": 60})
    first.subscribe(topic, qos=2)
    connect(V5).publish(topic, bytes(1000), qos=2)
    first.expect_nothing()
    first.drop()
    connect(V5, name, clean=False).expect_nothing()


@normative("5:MQTT-3.1.2-24")
def test_properties_count(connect, topic):
    client = connect(V5, properties={"maximum_packet_size": 100})
    client.subscribe(topic)
    publisher = connect(V5)
    publisher.publish(topic, b"x", properties={"user_property": ("key", "v" * 200)})
    publisher.publish(topic, b"fits")
    client.receive(b"fits")


@normative("5:MQTT-3.1.2-24")
def test_a_retained_message_too_large_is_not_sent(connect, topic):
    connect(V5).publish(topic, bytes(1000), qos=1, retain=True)
    client = connect(V5, properties={"maximum_packet_size": 100})
    client.subscribe(topic, qos=1)
    client.expect_nothing()


@normative("5:MQTT-3.2.2-19", "5:MQTT-3.2.2-20", "5:MQTT-3.4.2-2", "5:MQTT-3.4.2-3", "5:MQTT-3.5.2-2", "5:MQTT-3.5.2-3",
           "5:MQTT-3.6.2-2", "5:MQTT-3.6.2-3", "5:MQTT-3.7.2-2", "5:MQTT-3.7.2-3", "5:MQTT-3.9.2-1", "5:MQTT-3.9.2-2",
           "5:MQTT-3.11.2-1", "5:MQTT-3.11.2-2", "5:MQTT-3.1.2-24")
def test_no_acknowledgement_exceeds_it(connect, topic):
    """Room for what CONNACK and SUBACK must say and little else: no reason string or user property comes on top.

    Each acknowledgement tells of a problem where there is one to tell of.
    """
    limit = 40
    client = connect(V5, properties={"maximum_packet_size": limit})
    assert client.connack.size <= limit
    answers = [client.subscribe(topic)]
    answers.append(client.publish(topic + "/nobody", b"x", qos=1))
    client.send(wire.publish(topic + "/nobody", b"x", 2, 70))
    answers.append(client.wait_for(wire.PUBREC, 70))
    client.send(wire.acknowledge(wire.PUBREL, 70))
    answers.append(client.wait_for(wire.PUBCOMP, 70))
    client.send(wire.acknowledge(wire.PUBREL, 71))
    answers.append(client.wait_for(wire.PUBCOMP, 71))
    client.send(wire.acknowledge(wire.PUBREC, 72))
    answers.append(client.expect(wire.PUBREL, packet_id=72))
    answers.append(client.unsubscribe("never/subscribed"))
    for answer in answers:
        assert answer.size <= limit, answer


@normative("5:MQTT-3.14.2-3", "5:MQTT-3.14.2-4", "5:MQTT-3.1.2-24")
def test_no_disconnect_exceeds_it(connect):
    """A limit that CONNACK just fits into leaves no room for a long explanation."""
    limit = connect(V5).connack.size + 2
    client = connect(V5, properties={"maximum_packet_size": limit})
    client.send(b"\x00\x00")
    found = client.expect(wire.DISCONNECT)
    assert found.size <= limit
    client.expect_closed()


@normative("5:MQTT-3.1.2-24", "5:MQTT-3.2.2-20")
@pytest.mark.parametrize("limit", [1, 4, 6])
def test_a_limit_below_connack_is_never_exceeded(dial, limit):
    """Not even the answer fits: the broker may refuse in few bytes or just close."""
    client = dial().send(wire.connect("c", properties={"maximum_packet_size": limit}))
    try:
        connack = client.expect(wire.CONNACK)
        assert connack.size <= limit
    except wire.Closed:
        pass


# ----------------------------------------------------------------------------------------- to the broker


def test_a_packet_beyond_the_brokers_limit_ends_the_connection(broker_with, connect, topic, oasis):
    """A packet of the limit passes; one byte more is DISCONNECT 0x95, before it arrived whole."""
    small = broker_with("[limits]\nmax_packet_size = 1000\n")
    client = connect(oasis, to=small)
    client.subscribe(topic)
    overhead = len(wire.publish(topic, bytes(500), version=oasis)) - 500
    client.publish(topic, bytes(1000 - overhead))
    client.receive(bytes(1000 - overhead))
    packet = wire.publish(topic, bytes(1001 - overhead), version=oasis)
    assert len(packet) == 1001
    client.send(packet[:20]).expect_refused(0x95)


def test_a_connect_beyond_the_limit_is_refused(broker_with, dial):
    """It may be answered with CONNACK 0x95 or not at all; the header is enough to know."""
    small = broker_with("[limits]\nmax_packet_size = 1000\n")
    client = dial(V5, small).send(wire.connect("c" * 2000)[:30])
    try:
        assert client.expect(wire.CONNACK).reason == 0x95
    except wire.Closed:
        return
    client.expect_closed()
