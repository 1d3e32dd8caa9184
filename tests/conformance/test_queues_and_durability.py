"""What happens when queues are full, and what an acknowledgement promises: both as the configuration says."""

import time

import pytest

import wire
from broker import until
from wire import V5, V311

QUOTA_EXCEEDED = 0x97
AN_HOUR = {"session_expiry_interval": 3600}


@pytest.fixture
def offline(connect, topic):
    """Makes a session on a broker that has subscribed to the topic and whose client is away."""
    def away(broker, name="away", qos=2):
        client = connect(V5, name, clean=True, properties=AN_HOUR, to=broker)
        client.subscribe(topic, qos=qos)
        client.disconnect()
    return away


def back(connect, broker, name="away"):
    return connect(V5, name, clean=False, properties=AN_HOUR, to=broker)


def drain(client, count: int = 0) -> list[bytes]:
    """The payloads of the next `count` messages, and of all that come then."""
    return [one.payload for one in client.receive_all(0.5, count)]


def dropped(broker, reason) -> float:
    return broker.metric(rf'^barid_dropped_messages_total\{{tenant="default",reason="{reason}"')


@pytest.mark.parametrize("policy, kept", [("drop-newest", [b"0", b"1", b"2"]), ("drop-oldest", [b"3", b"4", b"5"])])
def test_one_end_of_a_full_queue_is_dropped(broker_with, connect, offline, topic, policy, kept):
    broker = broker_with(f'[limits]\nmax_queued_messages = 3\nqueue_overflow = "{policy}"\n')
    offline(broker)
    publisher = connect(V5, to=broker)
    for number in range(6):
        assert publisher.publish(topic, b"%d" % number, qos=1).reason == 0
    assert dropped(broker, "queue_messages") == 3
    broker.kill9()
    broker.start()
    assert drain(back(connect, broker), 3) == kept


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_queue_refuses_its_publisher(broker_with, connect, offline, topic, qos):
    broker = broker_with('[limits]\nmax_queued_messages = 3\nqueue_overflow = "reject"\n')
    offline(broker)
    publisher = connect(V5, to=broker)
    answers = []
    for number in range(5):
        identifier = number + 1
        publisher.send(wire.publish(topic, b"%d" % number, qos=qos, packet_id=identifier))
        answer = publisher.expect(wire.PUBACK if qos == 1 else wire.PUBREC)
        answers.append(answer.reason)
        if qos == 2 and answer.reason < 0x80:
            publisher.send(wire.acknowledge(wire.PUBREL, identifier, flags=2))
            publisher.expect(wire.PUBCOMP)
    assert answers == [0, 0, 0, QUOTA_EXCEEDED, QUOTA_EXCEEDED]
    assert dropped(broker, "queue_refuses") == 2
    old = connect(V311, to=broker)
    old.send(wire.publish(topic, b"x", qos=1, packet_id=1, version=V311))
    old.expect_closed()
    assert drain(back(connect, broker), 3) == [b"0", b"1", b"2"]
    assert publisher.publish(topic, b"again", qos=1).reason == 0


def test_a_full_queue_holds_its_publisher_back(broker_with, connect, offline, topic):
    """Its acknowledgement waits; its connection does not, and nothing is lost."""
    broker = broker_with('[limits]\nmax_queued_messages = 3\nqueue_overflow = "block"\n')
    offline(broker)
    publisher = connect(V5, to=broker)
    for number in range(2):
        assert publisher.publish(topic, b"%d" % number, qos=1).reason == 0
    publisher.send(*(wire.publish(topic, b"%d" % number, qos=1, packet_id=100 + number) for number in range(2, 5)))
    publisher.expect_nothing(0.3)
    publisher.ping()
    assert drain(back(connect, broker), 5) == [b"0", b"1", b"2", b"3", b"4"]
    for number in range(2, 5):
        publisher.expect(wire.PUBACK, packet_id=100 + number)


def test_the_queues_of_a_tenant_have_a_limit_together(broker_with, connect, offline, topic):
    broker = broker_with("[limits]\nmax_tenant_queued_messages = 4\n")
    offline(broker, "one")
    offline(broker, "two")
    publisher = connect(V5, to=broker)
    for number in range(4):
        publisher.publish(topic, b"%d" % number, qos=1)
    assert dropped(broker, "tenant_queue") == 4
    assert len(drain(back(connect, broker, "one"))) + len(drain(back(connect, broker, "two"))) == 4
    assert publisher.publish(topic, b"more", qos=1).reason == 0
    assert dropped(broker, "tenant_queue") == 4


def test_expired_messages_make_room(broker_with, connect, offline, topic):
    broker = broker_with("[limits]\nmax_queued_messages = 2\n")
    offline(broker)
    publisher = connect(V5, to=broker)
    for number in range(2):
        publisher.publish(topic, b"old", qos=1, properties={"message_expiry_interval": 1})
    time.sleep(1.2)
    publisher.publish(topic, b"new", qos=1)
    assert drain(back(connect, broker), 1) == [b"new"]
    assert dropped(broker, "expired") == 2


def test_a_client_is_told_what_an_acknowledgement_promises(broker_with, dial):
    broker = broker_with('[[durability]]\nfilter = "fleeting/#"\nclass = "memory"\n')
    client = dial(V5, to=broker)
    connack = client.connect("asks", properties={"user_property": [("barid-durability", "")]})
    assert connack.properties["user_property"] == [("barid-durability", "local"), ("barid-durability", "memory fleeting/#")]
    silent = dial(V5, to=broker).connect("does not ask")
    assert "user_property" not in silent.properties


def test_the_class_memory_does_not_survive_the_broker(broker_with, connect):
    """What is of the class `local` does, in the same session."""
    broker = broker_with('[[durability]]\nfilter = "fleeting/#"\nclass = "memory"\n')
    client = connect(V5, "mixed", clean=True, properties=AN_HOUR, to=broker)
    client.subscribe("fleeting/a", "lasting/a", qos=1)
    client.disconnect()
    publisher = connect(V5, to=broker)
    for number in range(3):
        publisher.publish("fleeting/a", b"f%d" % number, qos=1)
        publisher.publish("lasting/a", b"l%d" % number, qos=1)
    publisher.publish("fleeting/r", b"r", qos=1, retain=True)
    publisher.publish("lasting/r", b"r", qos=1, retain=True)
    broker.kill9()
    broker.start()
    client = back(connect, broker, "mixed")
    assert drain(client, 3) == [b"l0", b"l1", b"l2"]
    client.subscribe("fleeting/r", "lasting/r", qos=1)
    assert client.expect(wire.PUBLISH).topic == "lasting/r"
    client.expect_nothing()


def test_a_tenant_of_the_class_memory_leaves_nothing_on_the_disk(broker_with, connect, offline, topic):
    broker = broker_with('[limits]\ndurability = "memory"\n')
    offline(broker)
    publisher = connect(V5, to=broker)
    assert publisher.publish(topic, b"x", qos=1).reason == 0
    broker.kill9()
    broker.start()
    client = connect(V5, "away", clean=False, properties=AN_HOUR, to=broker)
    client.expect_nothing()


PERSIST = {"user_property": [("aio-persistence", "true")]}


def test_a_client_may_ask_for_more_than_its_class(broker_with, connect, dial, topic):
    """A session and its queue, and a retained message, are stored for who asks, also in the class `memory`."""
    broker = broker_with('[limits]\ndurability = "memory"\n[tenants.stored.limits]\ndurability = "local"\n')
    for name, asks in ("asks", PERSIST), ("does not", {}):
        client = connect(V5, name, clean=True, properties=AN_HOUR | asks, to=broker)
        client.subscribe(topic, qos=1)
        client.disconnect()
    publisher = connect(V5, to=broker)
    publisher.publish(f"{topic}/lasting", b"r", qos=1, retain=True, properties=PERSIST)
    publisher.publish(f"{topic}/fleeting", b"r", qos=1, retain=True)
    publisher.publish(f"{topic}/replaced", b"old", qos=1, retain=True, properties=PERSIST)
    publisher.publish(f"{topic}/replaced", b"new", qos=1, retain=True)
    publisher.publish(f"{topic}/cleared", b"r", qos=1, retain=True, properties=PERSIST)
    publisher.publish(f"{topic}/cleared", b"", qos=1, retain=True)
    for number in range(3):
        publisher.publish(topic, b"%d" % number, qos=1)
    # Nobody is told when that is on the disk: the class promises nothing. But a shard commits in order, and a client of the
    # class `local` is told of its session.
    until(broker.is_at_rest)
    for _ in range(32):
        connect(V5, to=broker, tenant="stored", properties=AN_HOUR)
    broker.kill9()
    broker.start()
    assert drain(back(connect, broker, "asks"), 3) == [b"0", b"1", b"2"]
    assert not dial(V5, to=broker).connect("does not", clean=False, properties=AN_HOUR).session_present
    client = connect(V5, to=broker)
    client.subscribe(f"{topic}/+", qos=1)
    assert client.expect(wire.PUBLISH).topic == f"{topic}/lasting"
    client.expect_nothing()
