"""DISCONNECT in both directions (5: §3.14; 3.1.1: §3.14)."""

import pytest

import wire
from wire import V5

normative = pytest.mark.normative


@normative("5:MQTT-3.14.4-2")
def test_the_broker_closes_after_disconnect(connect, version):
    """And says nothing any more."""
    connect(version).send(wire.disconnect()).expect_closed()


@pytest.mark.parametrize("reason", [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99])
def test_every_reason_of_a_client_is_understood(connect, reason):
    packet = wire.disconnect(reason, {"reason_string": "because", "user_property": [("a", "b"), ("a", "b")]})
    connect(V5).send(packet).expect_closed()


def test_what_follows_disconnect_is_not_processed(connect, topic, version):
    watcher = connect(version)
    watcher.subscribe(topic)
    client = connect(version)
    client.send(wire.disconnect(), wire.publish(topic, b"too late", version=version))
    client.expect_closed()
    watcher.expect_nothing()


def test_what_precedes_disconnect_is_processed(connect, topic, version):
    watcher = connect(version)
    watcher.subscribe(topic)
    client = connect(version)
    client.send(*(wire.publish(topic, b"%d" % number, version=version) for number in range(100)), wire.disconnect())
    client.expect_closed()
    assert [watcher.receive().payload for _ in range(100)] == [b"%d" % number for number in range(100)]


@normative("5:MQTT-3.14.4-1", "5:MQTT-3.14.4-2", "5:MQTT-4.13.2-1")
def test_nothing_comes_after_a_disconnect_of_the_broker(connect, topic):
    """Even when deliveries are on their way."""
    client, publisher = connect(V5), connect(V5)
    client.subscribe(topic)
    publisher.send(*[wire.publish(topic, b"x" * 100)] * 200)
    client.send(b"\x00\x00")
    publisher.send(*[wire.publish(topic, b"x" * 100)] * 200)
    while (found := client.recv()).kind == wire.PUBLISH:
        pass
    assert found.kind == wire.DISCONNECT and found.reason in (0x81, 0x82)
    client.expect_closed()


@normative("5:MQTT-3.14.2-1", "5:MQTT-3.14.2-2")
def test_sigterm_says_goodbye(broker_with, connect, version):
    """DISCONNECT 0x8B for MQTT 5; the process ends by itself."""
    going = broker_with("")
    client = connect(version, to=going)
    assert going.stop() == 0
    client.expect_refused(0x8B)


def test_sigterm_waits_for_what_was_accepted(broker_with, connect, topic):
    """Messages that were acknowledged reach the subscriber before its DISCONNECT."""
    going = broker_with("")
    client, publisher = connect(V5, to=going), connect(V5, to=going)
    client.subscribe(topic, qos=0)
    for number in range(100):
        publisher.publish(topic, b"%d" % number, qos=1)
    assert going.stop() == 0
    for number in range(100):
        client.expect(wire.PUBLISH, payload=b"%d" % number)
    client.expect_refused(0x8B)
