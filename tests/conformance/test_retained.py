"""Retained messages (5: §3.3.1.3; 3.1.1: §3.3.1.3)."""

import time
import uuid

import pytest

import wire
from wire import V5

normative = pytest.mark.normative


def settle(publisher: wire.Client) -> None:
    """Waits until what a client has published is retained, also at other brokers: an acknowledged message is behind it."""
    publisher.publish(f"settle/{uuid.uuid4()}", b"", qos=1, retain=True)


def retained(connect, version, pattern, qos=2) -> list[wire.Packet]:
    """What a new subscription brings, until nothing comes any more."""
    client = connect(version)
    client.subscribe(pattern, qos=qos)
    found = client.receive_all(0.2)
    client.drop()
    return found


@normative("5:MQTT-3.3.1-5", "5:MQTT-3.3.1-9", "311:MQTT-3.3.1-5", "311:MQTT-3.3.1-6", "311:MQTT-3.3.1-8")
def test_the_last_retained_message_comes_with_a_subscription(connect, topic, version, qos):
    """With RETAIN 1 and its QoS."""
    publisher = connect(version)
    publisher.publish(topic, b"old", qos=2, retain=True)
    publisher.publish(topic, b"new", qos=qos, retain=True)
    settle(publisher)
    (found,) = retained(connect, version, topic)
    assert (found.payload, found.retain, found.qos, found.dup) == (b"new", True, qos, False)


@normative("311:MQTT-3.3.1-7")
def test_a_qos_0_message_discards_the_older_one(connect, topic, version):
    """The new one should be kept, but may be dropped at any time."""
    publisher = connect(version)
    publisher.publish(topic, b"old", qos=1, retain=True)
    publisher.publish(topic, b"new", qos=0, retain=True)
    settle(publisher)
    assert [one.payload for one in retained(connect, version, topic)] in ([b"new"], [])


@normative("5:MQTT-3.3.1-6", "5:MQTT-3.3.1-7", "311:MQTT-3.3.1-10", "311:MQTT-3.3.1-11")
def test_an_empty_message_removes_the_retained_one(connect, topic, version, qos):
    watcher, publisher = connect(version), connect(version)
    publisher.publish(topic, b"kept", qos=1, retain=True)
    watcher.subscribe(topic, qos=1)
    watcher.receive(b"kept")
    publisher.publish(topic, b"", qos=qos, retain=True)
    assert not watcher.receive(b"").retain
    assert retained(connect, version, topic) == []


@normative("5:MQTT-3.3.1-7", "311:MQTT-3.3.1-11")
def test_an_empty_message_is_never_retained(connect, topic, version):
    connect(version).publish(topic, b"", qos=1, retain=True)
    assert retained(connect, version, topic) == []


@normative("5:MQTT-3.3.1-8", "311:MQTT-3.3.1-12")
def test_a_message_without_retain_leaves_the_retained_one(connect, topic, version):
    publisher = connect(version)
    publisher.publish(topic, b"kept", qos=1, retain=True)
    publisher.publish(topic, b"passing", qos=1)
    publisher.publish(topic, b"", qos=1)
    assert [one.payload for one in retained(connect, version, topic)] == [b"kept"]


@normative("311:MQTT-3.3.1-9", "5:MQTT-3.3.1-12")
def test_an_established_subscription_sees_no_retain_flag(connect, topic, version):
    client = connect(version)
    client.subscribe(topic)
    connect(version).publish(topic, b"x", qos=1, retain=True)
    assert not client.receive(b"x").retain


@normative("5:MQTT-3.3.1-9", "311:MQTT-3.3.1-6", "5:MQTT-4.7.2-1", "311:MQTT-4.7.2-1")
@pytest.mark.parametrize("pattern, expected", [
    ("%/#", ["", "/a", "/a/b", "/b/c", "/b"]),
    ("%/+", ["/a", "/b"]),
    ("%/+/+", ["/a/b", "/b/c"]),
    ("%/b/#", ["/b", "/b/c"]),
    ("%", [""]),
    ("%/+/c", ["/b/c"]),
    ("+/x", []),
])
def test_wildcards_bring_all_that_match(connect, unique, version, pattern, expected):
    prefix = unique("p")
    publisher = connect(version)
    for suffix in ("", "/a", "/a/b", "/b/c", "/b"):
        publisher.publish(prefix + suffix, suffix.encode() or b"root", qos=1, retain=True)
    publisher.publish(f"${prefix}/x", b"dollar", qos=1, retain=True)
    found = retained(connect, version, pattern.replace("%", prefix))
    mine = [one.topic for one in found if prefix in one.topic]
    assert sorted(mine) == sorted(prefix + suffix for suffix in expected)


def test_overlapping_subscriptions_bring_it_for_each(connect, topic, version):
    """Each subscription is made on its own; one packet with two filters is as two packets."""
    connect(version).publish(topic + "/x", b"kept", qos=1, retain=True)
    client = connect(version)
    client.subscribe(topic + "/x", topic + "/+", qos=1)
    client.receive(b"kept")
    client.receive(b"kept")
    client.expect_nothing(0.1)


def test_retained_properties_are_kept(connect, topic):
    properties = {"content_type": "a", "response_topic": "b", "correlation_data": b"c", "payload_format_indicator": 1,
                  "user_property": [("x", "1"), ("x", "2")]}
    connect(V5).publish(topic, b"kept", qos=1, retain=True, properties=properties)
    client = connect(V5)
    client.subscribe(topic, properties={"subscription_identifier": 3})
    assert client.receive(b"kept").properties == properties | {"subscription_identifier": [3]}


@normative("5:MQTT-3.3.2-5", "5:MQTT-3.3.2-6")
def test_retained_messages_expire(connect, topic):
    publisher = connect(V5)
    publisher.publish(topic + "/short", b"x", qos=1, retain=True, properties={"message_expiry_interval": 1})
    publisher.publish(topic + "/long", b"x", qos=1, retain=True, properties={"message_expiry_interval": 100})
    time.sleep(1.6)
    (found,) = retained(connect, V5, topic + "/+")
    assert found.topic == topic + "/long"
    assert 90 <= found.properties["message_expiry_interval"] <= 99


def test_a_thousand_retained_messages_come_through_a_small_window(connect, topic):
    """More than the client takes at once: none is lost, none comes before an earlier one was acknowledged."""
    publisher = connect(V5)
    for start in range(0, 1000, 100):
        publisher.send(*(wire.publish(f"{topic}/{number}", b"x", 1, number + 1, retain=True)
                         for number in range(start, start + 100)))
        for _ in range(100):
            publisher.expect(wire.PUBACK)
    client = connect(V5, properties={"receive_maximum": 10})
    client.subscribe(topic + "/+", qos=1)
    assert {client.receive().topic for _ in range(1000)} == {f"{topic}/{number}" for number in range(1000)}
