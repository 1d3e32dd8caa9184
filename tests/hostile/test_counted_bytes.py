"""What limits count is what the process takes: each structure that a client can grow is grown, and both are compared.

`durability = "memory"` leaves out the disk; `local` counts as well what the storage engine keeps in memory.
"""

import itertools

import pytest

import wire
from broker import until

LIMITS = """
[limits]
max_queued_messages = 10_000_000
max_queued_bytes = 4_000_000_000
max_subscriptions = 1_000_000
max_subscription_bytes = 4_000_000_000
max_retained_messages = 10_000_000
max_retained_bytes = 4_000_000_000
max_inflight = 65_535
max_state_value = 1_000_000
"""

# How much memory is grown at least; below, what the allocator keeps would blur the comparison.
GROWN_MIB = 30

# What may be there besides: what the allocator keeps, and buffers of the storage engine for what is being written.
SLACK_MIB = {"memory": 8, "local": 48}

KEPT = {"session_expiry_interval": 3_600}


class Grower:
    """A client, and how to make the broker grow."""

    def __init__(self, running, client_id: str, **options):
        self.client = wire.Client(running.address, timeout=60)
        self.client.connect(client_id, **options)
        self.ids = itertools.cycle(range(1, 60_000))

    def publish(self, topic: str, payload: bytes, numbers: range, qos: int = 1, retain: bool = False) -> None:
        """The same message over and over; a `{}` in the topic is its number. At a time as much as takes no large buffer."""
        for some in chunks(numbers, max(50, min(5_000, 2_000_000 // len(payload)))):
            self.client.send(*(wire.publish(topic.format(number), payload, qos, next(self.ids) if qos else None, retain) for number in some))
            for _ in some if qos else ():
                self.client.expect(wire.PUBACK)
            self.client.ping()

    def subscribe(self, filters) -> None:
        for some in chunks(list(filters), 200):
            answer = self.client.send(wire.subscribe(1, *((one, 1) for one in some))).expect(wire.SUBACK)
            assert set(answer.reasons) == {1}


def chunks(items, size: int):
    return [items[at:at + size] for at in range(0, len(items), size)]


class Queue:
    """What waits for a client that has gone."""

    metric = "^barid_outbox_bytes"

    def __init__(self, payload: int, filters=("q",), identifiers: bool = False):
        self.payload, self.filters, self.identifiers = payload, filters, identifiers

    def begin(self, running) -> None:
        absent = Grower(running, "absent", properties=KEPT)
        for number, filter_ in enumerate(self.filters, 1):
            properties = {"subscription_identifier": number} if self.identifiers else None
            absent.client.subscribe(filter_, qos=1, properties=properties)
        absent.client.send(wire.disconnect())
        self.publisher = Grower(running, "publisher")

    def grow(self, numbers: range) -> None:
        self.publisher.publish("q", bytes(self.payload), numbers)


class InFlight:
    """What a client has got and does not acknowledge."""

    metric = "^barid_in_flight_bytes"

    def begin(self, running) -> None:
        self.reader = Grower(running, "reader", properties=KEPT)
        self.reader.client.subscribe("f/#", qos=1)
        self.publisher = Grower(running, "publisher")

    def grow(self, numbers: range) -> None:
        self.publisher.publish("f/{}", bytes(20_000), numbers)
        for _ in numbers:
            self.reader.client.expect(wire.PUBLISH)


class Retained:
    metric = "^barid_retained_bytes"

    def __init__(self, topic: str, payload: int):
        self.topic, self.payload = topic, payload

    def begin(self, running) -> None:
        self.publisher = Grower(running, "publisher")

    def grow(self, numbers: range) -> None:
        self.publisher.publish(self.topic, bytes(self.payload), numbers, retain=True)


class Subscriptions:
    metric = "^barid_subscription_bytes"

    def __init__(self, filter_: str):
        self.filter = filter_

    def begin(self, running) -> None:
        self.subscriber = Grower(running, "subscriber", properties=KEPT)

    def grow(self, numbers: range) -> None:
        self.subscriber.subscribe(self.filter.format(number) for number in numbers)


DEEP = "/".join(f"{level}{{0}}" for level in "abcdefghijklmnopqr")

# How to grow, and how often at a time.
GROWTHS = {
    "queue of small messages": (Queue(1), 200_000),
    "queue of large messages": (Queue(20_000), 5_000),
    "queue with identifiers": (Queue(1, ["q", "+", "#", "q/#", "+/#"], True), 160_000),
    "in flight": (InFlight(), 4_000),
    "small retained": (Retained("r/{}", 1), 300_000),
    "large retained": (Retained("r/{}", 20_000), 5_000),
    "retained with long topics": (Retained("r/{}/" + "x" * 2_000, 1), 24_000),
    "short filters": (Subscriptions("device/{}/state"), 160_000),
    "wildcard filters": (Subscriptions("device/{}/+"), 160_000),
    "deep filters": (Subscriptions(f"{DEEP}/+"), 30_000),
    "long filters": (Subscriptions("{}/" + "x" * 5_000), 6_000),
}


@pytest.mark.parametrize("durability", ["memory", "local"])
@pytest.mark.parametrize("name", GROWTHS)
def test_counted_and_taken_are_alike(broker_with, name, durability):
    what, count = GROWTHS[name]
    running = broker_with(f'{LIMITS}durability = "{durability}"\n[storage]\ncache = 1_000_000\nqueue_memory = 4_000_000_000\n')
    what.begin(running)
    seen = []
    for numbers in range(0), range(count):
        what.grow(numbers)
        until(lambda: running.metric("^barid_store_pending_bytes") == 0)
        seen.append((running.metric(what.metric) / 2**20, running.memory()))
    counted, taken = (after - before for before, after in zip(*seen))
    print(f"{name}, {durability}: {counted:.1f} MiB counted, {taken} MiB taken: {taken / counted:.2f}")
    assert counted > GROWN_MIB, "too little to compare"
    assert taken < 2 * counted + SLACK_MIB[durability], f"{counted:.1f} MiB are counted, {taken} MiB taken"
    # Some of what it takes it may have had from the system before.
    assert taken > counted / 3 - SLACK_MIB[durability], f"{counted:.1f} MiB are counted, {taken} MiB taken"
