"""Topic aliases in both directions (5: §3.1.2.11.5, §3.2.2.3.8, §3.3.2.3.4)."""

import pytest

import wire
from wire import V5

normative = pytest.mark.normative


def alias(number: int) -> dict:
    return {"topic_alias": number}


class Resolver:
    """Undoes the aliases of one Network Connection, as a client must, and holds the broker to its maximum."""

    def __init__(self, client: wire.Client, maximum: int):
        self.client, self.maximum, self.topics, self.used = client, maximum, {}, 0

    def receive(self, **options) -> wire.Packet:
        found = self.client.receive(**options)
        number = found.properties.get("topic_alias")
        if number is not None:
            assert 1 <= number <= self.maximum, f"alias {number} of at most {self.maximum}"
            if found.topic:
                self.topics[number] = found.topic
            else:
                assert number in self.topics, f"alias {number} was never set"
                found.topic = self.topics[number]
                self.used += 1
        return found


# ---------------------------------------------------------------------------------------- to the broker


@normative("5:MQTT-3.3.2-12")
def test_every_alias_up_to_the_maximum_is_accepted(connect, topic):
    client = connect(V5)
    client.subscribe(topic + "/+")
    maximum = client.connack.properties["topic_alias_maximum"]
    for number in range(1, maximum + 1):
        client.publish(f"{topic}/{number}", b"set", properties=alias(number))
    for number in range(maximum, 0, -1):
        client.publish("", b"use", properties=alias(number))
    found = [client.receive() for _ in range(2 * maximum)]
    numbers = [*range(1, maximum + 1), *range(maximum, 0, -1)]
    assert [one.topic for one in found] == [f"{topic}/{number}" for number in numbers]


def test_an_alias_is_the_publishers_own(connect, topic, qos):
    """It is not forwarded; the same number means another topic on another connection."""
    watcher = connect(V5)
    watcher.subscribe(topic + "/+", qos=qos)
    publishers = [connect(V5), connect(V5)]
    for number, publisher in enumerate(publishers):
        publisher.publish(f"{topic}/{number}", b"set", qos=qos, properties=alias(1))
    for publisher in publishers:
        publisher.publish("", b"use", qos=qos, properties=alias(1))
    found = [watcher.receive() for _ in range(4)]
    assert sorted((one.topic, one.payload) for one in found) == sorted(
        (f"{topic}/{number}", payload) for number in (0, 1) for payload in (b"set", b"use"))
    assert not any("topic_alias" in one.properties for one in found)


def test_an_alias_can_be_set_anew(connect, topic):
    client = connect(V5)
    client.subscribe(topic + "/+")
    for name in ("/a", "/b"):
        client.publish(topic + name, b"set", properties=alias(2))
        client.publish("", b"use", properties=alias(2))
    assert [client.receive().topic for _ in range(4)] == [topic + "/a", topic + "/a", topic + "/b", topic + "/b"]


@normative("5:MQTT-3.3.2-7")
def test_aliases_end_with_the_connection(connect, topic, unique):
    """Also when the session goes on."""
    name, properties = unique("c"), {"session_expiry_interval": 60}
    first = connect(V5, name, properties=properties)
    first.publish(topic, b"set", qos=1, properties=alias(1))
    first.drop()
    second = connect(V5, name, clean=False)
    assert second.connack.session_present
    second.send(wire.publish("", b"use", properties=alias(1))).expect_refused(0x82)


@normative("5:MQTT-3.3.2-8")
def test_alias_0_is_invalid(connect, topic):
    connect(V5).send(wire.publish(topic, b"x", properties=alias(0))).expect_refused(0x81, 0x82, 0x94)


def test_an_alias_beyond_the_maximum_is_invalid(connect, topic):
    client = connect(V5)
    number = client.connack.properties["topic_alias_maximum"] + 1
    client.send(wire.publish(topic, b"x", properties=alias(number))).expect_refused(0x94)


def test_an_alias_never_set_is_a_protocol_error(connect):
    connect(V5).send(wire.publish("", b"x", properties=alias(1))).expect_refused(0x82)


def test_an_alias_twice_is_a_protocol_error(connect, topic):
    connect(V5).send(wire.publish(topic, b"x", properties=alias([1, 2]))).expect_refused(0x81, 0x82)


def test_without_a_maximum_there_are_no_aliases(broker_with, connect, topic):
    none = broker_with("[limits]\ntopic_alias_maximum = 0\n")
    client = connect(V5, to=none)
    assert client.connack.properties.get("topic_alias_maximum", 0) == 0
    client.send(wire.publish(topic, b"x", properties=alias(1))).expect_refused(0x82, 0x94)


# -------------------------------------------------------------------------------------- from the broker


@normative("5:MQTT-3.1.2-27")
@pytest.mark.parametrize("properties", [{}, {"topic_alias_maximum": 0}])
def test_no_alias_for_a_client_that_takes_none(connect, topic, properties):
    client, publisher = connect(V5, properties=properties), connect(V5)
    client.subscribe(topic)
    for _ in range(200):
        publisher.publish(topic, b"x")
    for _ in range(200):
        found = client.receive()
        assert found.topic == topic and "topic_alias" not in found.properties


def test_the_broker_assigns_aliases_to_hot_topics(ours, connect, topic, qos):
    client, publisher = connect(V5, properties={"topic_alias_maximum": 5}), connect(V5)
    client.subscribe(topic, qos=qos)
    resolver = Resolver(client, 5)
    for _ in range(200):
        publisher.publish(topic, b"x", qos=qos)
        assert resolver.receive().topic == topic
    assert resolver.used > 100


@normative("5:MQTT-3.1.2-26", "5:MQTT-3.3.2-11", "5:MQTT-3.3.2-8")
@pytest.mark.parametrize("maximum", [1, 3, 65535])
def test_aliases_of_the_broker_keep_to_the_maximum(connect, topic, maximum):
    """More hot topics than aliases; each delivery resolves to the topic it was published to."""
    client, publisher = connect(V5, properties={"topic_alias_maximum": maximum}), connect(V5)
    client.subscribe(topic + "/+")
    resolver = Resolver(client, maximum)
    for turn in range(60):
        for number in range(8):
            publisher.publish(f"{topic}/{number}", b"%d" % number)
    for turn in range(60 * 8):
        found = resolver.receive()
        assert found.topic == f"{topic}/{found.payload.decode()}"


@normative("5:MQTT-3.3.2-7")
def test_the_broker_sets_its_aliases_anew_on_each_connection(connect, topic, unique):
    """A message sent again after a reconnection has its topic."""
    name, properties = unique("c"), {"session_expiry_interval": 60, "topic_alias_maximum": 5}
    first, publisher = connect(V5, name, properties=properties), connect(V5)
    first.subscribe(topic, qos=1)
    for _ in range(50):
        publisher.publish(topic, b"hot", qos=1)
        first.receive(b"hot")
    publisher.publish(topic, b"unacknowledged", qos=1)
    first.expect(wire.PUBLISH)
    first.drop()
    publisher.publish(topic, b"queued", qos=1)
    second = connect(V5, name, clean=False, properties=properties)
    resolver = Resolver(second, 5)
    for payload in (b"unacknowledged", b"queued"):
        assert resolver.receive(payload=payload).topic == topic


@normative("5:MQTT-3.1.2-27")
def test_a_reconnection_may_take_no_aliases_any_more(connect, topic, unique):
    name = unique("c")
    first = connect(V5, name, properties={"session_expiry_interval": 60, "topic_alias_maximum": 5})
    first.subscribe(topic, qos=1)
    publisher = connect(V5)
    for _ in range(50):
        publisher.publish(topic, b"hot", qos=1)
        first.receive(b"hot")
    first.drop()
    publisher.publish(topic, b"queued", qos=1)
    found = connect(V5, name, clean=False).receive(b"queued")
    assert found.topic == topic and "topic_alias" not in found.properties
