"""Receive Maximum in both directions (5: §3.3.4, §4.9)."""

import pytest

import wire
from wire import V5

normative = pytest.mark.normative


@pytest.fixture
def flooded(connect, topic):
    """A client that takes three messages at once, and ten that wait for it."""
    def flood(level: int) -> wire.Client:
        client = connect(V5, properties={"receive_maximum": 3})
        client.subscribe(topic, qos=level)
        publisher = connect(V5)
        for number in range(10):
            publisher.publish(topic, b"%d" % number, qos=level)
        return client
    return flood


@normative("5:MQTT-3.3.4-9", "5:MQTT-4.9.0-1", "5:MQTT-4.9.0-2")
def test_the_broker_keeps_to_the_receive_maximum_at_qos_1(flooded):
    client = flooded(1)
    waiting = [client.expect(wire.PUBLISH) for _ in range(3)]
    client.expect_nothing()
    for number in range(3, 10):
        client.send(wire.acknowledge(wire.PUBACK, waiting.pop(0).packet_id))
        waiting.append(client.expect(wire.PUBLISH, payload=b"%d" % number))
    client.expect_nothing(0.1)


@normative("5:MQTT-3.3.4-9", "5:MQTT-4.9.0-2")
def test_the_broker_keeps_to_the_receive_maximum_at_qos_2(flooded):
    """PUBREC does not end the flow, PUBCOMP does."""
    client = flooded(2)
    waiting = [client.expect(wire.PUBLISH) for _ in range(3)]
    for one in waiting:
        client.send(wire.acknowledge(wire.PUBREC, one.packet_id)).expect(wire.PUBREL, packet_id=one.packet_id)
    client.expect_nothing()
    client.send(wire.acknowledge(wire.PUBCOMP, waiting[0].packet_id))
    client.expect(wire.PUBLISH, payload=b"3")
    client.expect_nothing(0.1)


@normative("5:MQTT-3.3.4-9")
def test_a_pubrec_of_failure_makes_room(flooded):
    client = flooded(2)
    first = client.expect(wire.PUBLISH)
    client.expect(wire.PUBLISH), client.expect(wire.PUBLISH)
    client.send(wire.acknowledge(wire.PUBREC, first.packet_id, 0x80))
    client.expect(wire.PUBLISH, payload=b"3")
    client.expect_nothing(0.1)


@normative("5:MQTT-3.3.4-10", "5:MQTT-4.9.0-3")
def test_a_full_window_delays_nothing_else(flooded, topic):
    """PINGRESP and acknowledgements go on; QoS 0 may wait, but comes when there is room again."""
    client = flooded(1)
    waiting = [client.expect(wire.PUBLISH) for _ in range(3)]
    client.send(wire.pingreq()).expect(wire.PINGRESP)
    assert client.subscribe(topic + "/0").reasons == [0]
    assert client.unsubscribe("nothing").reasons == [0x11]
    client.publish(topic + "/none", b"x", qos=1)
    client.publish(topic + "/none", b"x", qos=2)
    client.publish(topic + "/0", b"passes")
    for one in waiting:
        client.complete(one)
    assert b"passes" in {client.receive().payload for _ in range(8)}


@normative("5:MQTT-4.9.0-1")
def test_each_connection_starts_with_a_full_quota(connect, topic, unique):
    """What was in flight is sent again within the Receive Maximum of the new connection."""
    name = unique("c")
    first = connect(V5, name, properties={"session_expiry_interval": 60, "receive_maximum": 5})
    first.subscribe(topic, qos=1)
    publisher = connect(V5)
    for number in range(8):
        publisher.publish(topic, b"%d" % number, qos=1)
    for _ in range(5):
        first.expect(wire.PUBLISH)
    first.drop()
    second = connect(V5, name, clean=False, properties={"receive_maximum": 2})
    waiting = [second.expect(wire.PUBLISH, dup=True, payload=b"%d" % number) for number in range(2)]
    second.expect_nothing()
    for number in range(2, 8):
        second.send(wire.acknowledge(wire.PUBACK, waiting.pop(0).packet_id))
        waiting.append(second.expect(wire.PUBLISH, payload=b"%d" % number, dup=number < 5))


def test_older_versions_have_a_window_of_65535(connect, topic):
    """Or the smaller one of the broker; without acknowledgement it is not exceeded."""
    client, publisher = connect(wire.V311), connect(wire.V311)
    client.subscribe(topic, qos=1)
    for number in range(300):
        publisher.publish(topic, b"%d" % number, qos=1)
    assert [client.receive().payload for _ in range(300)] == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("asked, expected", [({}, 3), ({"receive_maximum": 2}, 2), ({"receive_maximum": 5}, 5)])
def test_max_inflight_is_for_clients_that_ask_for_nothing(broker_with, connect, topic, oasis, asked, expected):
    """It may also bound those that ask for more."""
    bounded = broker_with("[limits]\nmax_inflight = 3\n")
    if oasis == wire.V311:
        asked, expected = {}, 3
    client = connect(oasis, to=bounded, **({"properties": asked} if oasis == V5 else {}))
    client.subscribe(topic, qos=1)
    publisher = connect(oasis, to=bounded)
    for number in range(8):
        publisher.publish(topic, b"%d" % number, qos=1)
    came = min(expected, 3)
    for _ in range(came):
        client.expect(wire.PUBLISH)
    client.ping()
    try:
        while True:
            client.expect(wire.PUBLISH, timeout=0.7)
            came += 1
    except TimeoutError:
        assert came in {expected, min(expected, 3)}


# ----------------------------------------------------------------------------------------- to the broker


@pytest.fixture
def narrow(broker_with):
    return broker_with("[limits]\nreceive_maximum = 3\n")


def test_a_client_beyond_the_receive_maximum_is_disconnected(narrow, connect, topic):
    """QoS 2 flows stay open until PUBREL: the fourth is one too many."""
    client = connect(V5, to=narrow)
    assert client.connack.properties["receive_maximum"] == 3
    for packet_id in (1, 2, 3):
        client.send(wire.publish(topic, b"x", 2, packet_id)).expect(wire.PUBREC, packet_id=packet_id)
    client.send(wire.publish(topic, b"x", 2, 4)).expect_refused(0x93)


def test_a_completed_flow_makes_room(narrow, connect, topic):
    client = connect(V5, to=narrow)
    for packet_id in range(1, 20):
        client.send(wire.publish(topic, b"x", 2, packet_id)).expect(wire.PUBREC, packet_id=packet_id)
        if packet_id > 2:
            client.send(wire.acknowledge(wire.PUBREL, packet_id - 2)).expect(wire.PUBCOMP, packet_id=packet_id - 2)


def test_a_repeated_publish_counts_once(narrow, connect, topic):
    client = connect(V5, to=narrow)
    for _ in range(5):
        client.send(wire.publish(topic, b"x", 2, 1)).expect(wire.PUBREC, packet_id=1)


def test_qos_1_is_acknowledged_and_so_never_exceeds(narrow, connect, topic):
    """One at a time, as a client with a quota sends them."""
    client = connect(V5, to=narrow)
    for _ in range(50):
        assert client.publish(topic, b"x", qos=1).reason in (0x00, 0x10)


def test_qos_0_does_not_count(narrow, connect, topic):
    client = connect(V5, to=narrow)
    for packet_id in (1, 2, 3):
        client.send(wire.publish(topic, b"x", 2, packet_id)).expect(wire.PUBREC)
    for _ in range(10):
        client.publish(topic, b"x")
    client.send(wire.pingreq()).expect(wire.PINGRESP)
