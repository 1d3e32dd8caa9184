"""Acknowledgements that their message does not call for (5: §4.3, §4.13.1)."""

import pytest

import wire
from wire import V5

# What a message waits for, and each acknowledgement that is for another one.
WRONG = [
    (1, (), wire.PUBREC), (1, (), wire.PUBCOMP),
    (2, (), wire.PUBACK), (2, (), wire.PUBCOMP),
    (2, (wire.PUBREC,), wire.PUBACK),
]


@pytest.mark.parametrize("qos, before, wrong", WRONG, ids=[
    "PUBREC-for-QoS-1", "PUBCOMP-for-QoS-1", "PUBACK-for-QoS-2", "PUBCOMP-before-PUBREC", "PUBACK-behind-PUBREC"])
def test_an_acknowledgement_of_the_wrong_type_is_a_protocol_error(connect, ours, topic, version, qos, before, wrong):
    """It is not ignored: the message would stay in flight for ever, and its packet identifier with it."""
    reader = connect(version, to=ours)
    reader.subscribe(topic, qos=qos)
    connect(version, to=ours).publish(topic, b"x", qos)
    packet_id = reader.expect(wire.PUBLISH).packet_id
    for kind in before:
        reader.send(wire.acknowledge(kind, packet_id)).expect(wire.PUBREL, packet_id=packet_id)
    reader.send(wire.acknowledge(wrong, packet_id)).expect_refused(0x82)


def test_the_message_is_delivered_again(connect, ours, topic, unique):
    """Whoever was wrong about it has not got it."""
    name, kept = unique("c"), {"session_expiry_interval": 60}
    reader = connect(V5, name, to=ours, properties=kept)
    reader.subscribe(topic, qos=1)
    connect(V5, to=ours).publish(topic, b"x", 1)
    reader.send(wire.acknowledge(wire.PUBREC, reader.expect(wire.PUBLISH).packet_id)).expect_refused(0x82)
    again = connect(V5, name, to=ours, clean=False, properties=kept)
    again.expect(wire.PUBLISH, dup=True, payload=b"x")


def test_an_acknowledgement_of_nothing_ends_no_connection(connect, ours, version):
    """The broker may have forgotten the message; PUBREC is answered, as its sender waits for PUBREL."""
    client = connect(version, to=ours)
    for kind in wire.PUBACK, wire.PUBCOMP:
        client.send(wire.acknowledge(kind, 7))
    client.send(wire.acknowledge(wire.PUBREC, 7)).expect(wire.PUBREL, packet_id=7)
    client.ping()
