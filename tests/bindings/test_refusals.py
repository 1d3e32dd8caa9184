"""Tests messages that an entity refuses. If the MQTT version allows it, the publisher is told why, and no subscriber or queue
gets the message."""

import pytest

import wire
from azure_client import complete_all
from configuring import binding, queue
from brokers import BROKERS, started
from running import barid

REFUSED = {
    "no entity": ("nowhere/x", b"x", 0x83, "binding_no_entity"),
    "a subscription": ("subscription/x", b"x", 0x83, "binding_no_entity"),
    "no session id": ("sessions/x", b"x", 0x83, "binding_session"),
    "too long a session id": ("long/" + "s" * 513, b"x", 0x83, "binding_session"),
    "too large": ("small/x", b"x" * 2000, 0x97, "binding_too_large"),
}


told_here = pytest.mark.skipif(BROKERS > 1, reason="only the broker with a queue tells what that refuses: docs/limits-of-this-release.md")


@pytest.fixture(scope="module")
def strict():
    running = started(
        queue("sessions") + binding("sessions", filter="sessions/#", queue="sessions", session="{property:id}")
        + queue("long") + binding("long", filter="long/#", queue="long", session="{2}")
        + queue("small", RequiresSession=False, MaxMessageSizeInKilobytes=1) + binding("small", filter="small/#", queue="small")
        + queue("open", RequiresSession=False) + binding("open", filter="+/x", queue="open")
        + '[[topics]]\nname = "t"\n[[topics.subscriptions]]\nname = "s"\n'
        + binding("subscription", filter="subscription/#", queue="t/Subscriptions/s")
        + binding("nowhere", filter="nowhere/#", queue="nowhere"))
    yield running
    running.end()


def dropped(running, reason: str) -> float:
    return running.metric(f'^barid_dropped_messages_total.*"{reason}"')


@told_here
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("why", REFUSED)
def test_a_publisher_of_mqtt_5_is_told(strict, connect, entity, why, qos):
    """Neither a subscriber nor another binding gets the message. The next one with the same identifier is a new message."""
    topic, payload, reason, counted = REFUSED[why]
    subscriber, publisher = connect(to=strict), connect(to=strict)
    subscriber.subscribe("#", qos=1)
    before = dropped(strict, counted)
    kind = wire.PUBACK if qos == 1 else wire.PUBREC
    publisher.send(wire.publish(topic, payload, qos, 7))
    assert publisher.expect(kind, packet_id=7).reason == reason
    assert dropped(strict, counted) == before + 1
    subscriber.expect_nothing()
    publisher.send(wire.publish("open/y/z", b"fine", qos, 7))
    assert publisher.expect(kind, packet_id=7).reason == 0
    assert subscriber.receive(b"fine")
    assert entity(strict, "open").peek() == []


@pytest.mark.parametrize("why", REFUSED)
def test_a_publisher_of_mqtt_3_cannot_be(strict, connect, why):
    """Subscribers get the message, and `barid why` tells the operator that the entity refused it."""
    topic, payload, _, counted = REFUSED[why]
    subscriber, publisher = connect(to=strict), connect(wire.V311, to=strict)
    subscriber.subscribe(topic, qos=1)
    before = dropped(strict, counted)
    assert publisher.publish(topic, payload, 1).kind == wire.PUBACK
    assert subscriber.receive(payload)
    assert dropped(strict, counted) == before + 1
    whom = f"$bindings/{'subscription' if why == 'a subscription' else topic.split('/')[0]}"
    told = barid("why", "--client", whom, "--json", "--admin", f"127.0.0.1:{strict.admin_port}")
    assert counted in told.stdout, told


def test_qos_0_goes_in_without_a_promise(strict, connect):
    subscriber, publisher = connect(to=strict), connect(to=strict)
    subscriber.subscribe("nowhere/#")
    publisher.publish("nowhere/x", b"x", 0)
    assert subscriber.receive(b"x")


@told_here
def test_of_a_run_only_those_that_are_refused(strict, connect, entity):
    """All messages are sent in one write; answers arrive in the order of the messages."""
    subscriber, publisher = connect(to=strict), connect(to=strict)
    subscriber.subscribe("sessions/run", qos=1)
    has_session = [True, False, True, True, False]
    packets = [
        wire.publish("sessions/run", b"%d" % number, 1, number + 1, properties={"user_property": [("id", "run")]} if has else {})
        for number, has in enumerate(has_session)
    ]
    publisher.send(*packets)
    assert [publisher.recv().reason for _ in packets] == [0 if has else 0x83 for has in has_session]
    assert [subscriber.receive().payload for _ in range(3)] == [b"0", b"2", b"3"]
    subscriber.expect_nothing()
    with entity(strict, "sessions").accept("run") as worker:
        assert complete_all(worker, 3) == ["0", "2", "3"]


@told_here
def test_a_full_queue(brokers_with, connect, entity):
    """The queue takes messages up to 1 MiB and refuses the rest with 0x97, until a worker has made room."""
    running = brokers_with(queue("full", RequiresSession=False, MaxSizeInMegabytes=1) + binding("full", filter="full", queue="full"))
    publisher, payload = connect(to=running), b"x" * 100_000
    reasons = [publisher.publish("full", payload, 1).reason for _ in range(14)]
    taken = reasons.count(0)
    assert 5 < taken < 14 and reasons == [0] * taken + [0x97] * (14 - taken)
    with entity(running, "full").plain() as worker:
        complete_all(worker, taken)
    assert publisher.publish("full", payload, 1).reason == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_what_may_not_be_retained_enters_no_queue(connect, entity, brokers_with, qos):
    """The publisher is told 0x97 and may send the message again: then the queue would have it twice."""
    running = brokers_with(queue("q", RequiresSession=False) + binding("q", filter="t/#", queue="q")
                          + "[limits]\nmax_retained_messages = 1\n")
    publisher = connect(to=running)
    assert publisher.publish("t/first", b"kept", qos, retain=True).reason in (0, 0x10)
    kind = wire.PUBACK if qos == 1 else wire.PUBREC
    publisher.send(wire.publish("t/second", b"too many", qos, 7, retain=True))
    assert publisher.expect(kind, packet_id=7).reason == 0x97
    assert [str(message) for message in entity(running, "q").peek()] == ["kept"]
