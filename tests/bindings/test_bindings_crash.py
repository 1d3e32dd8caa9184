"""`kill -9` under load: acknowledged messages are in the queue, QoS 2 once; messages that a queue accepted reach the
subscribers."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from azure.servicebus import ServiceBusMessage

import wire
from azure_client import DELETE, texts
from configuring import binding, queue
from broker import until
from brokers import BROKERS

ROUNDS = int(os.environ.get("CRASH_ROUNDS", 5))

# Subscriptions of one topic lie in several shards, and so do sessions that have subscribed.
TOPIC = "[[topics]]\nname = \"topic\"\n" + "".join(f'[[topics.subscriptions]]\nname = "s{number}"\n' for number in range(4))
CONFIG = (
    "[storage]\nshards = 4\n"
    + queue("queue", RequiresSession=False) + binding("queue", filter="in/queue", queue="queue")
    + TOPIC + binding("topic", filter="in/topic", topic="topic"))


class Publisher(threading.Thread):
    """Publishes to one topic with QoS 1 and 2, and repeats unacknowledged messages as the standard requires."""

    def __init__(self, running, name: str, topic: str, seed: int):
        super().__init__(daemon=True)
        self.running, self.name_, self.topic = running, name, topic
        self.random = random.Random(seed)
        self.acknowledged: list[tuple[int, str]] = []
        self.unacknowledged: dict[int, tuple[int, str]] = {}
        self.released: set[int] = set()
        self.number, self.stops = 0, threading.Event()

    def run(self) -> None:
        # It may be told to stop while it has no connection.
        while not self.stops.is_set() or self.unacknowledged:
            try:
                self._connected()
            except (wire.Closed, OSError, TimeoutError):
                time.sleep(0.02)

    def _connected(self) -> None:
        client = wire.Client(self.running.address)
        connack = client.connect(self.name_, clean=False, properties={"session_expiry_interval": 600})
        if connack.reason:
            # The broker that has the session is not back, or has not joined its cluster.
            raise wire.Closed("refused")
        assert connack.session_present or not self.number
        for packet_id, (qos, body) in list(self.unacknowledged.items()):
            if packet_id in self.released:
                client.send(wire.acknowledge(wire.PUBREL, packet_id))
            else:
                client.send(wire.publish(self.topic, body.encode(), qos, packet_id, dup=True))
        while not self.stops.is_set() or self.unacknowledged:
            while len(self.unacknowledged) < 20 and not self.stops.is_set():
                self._publish(client)
            self._answered(client, client.recv())
        client.disconnect()

    def _publish(self, client: wire.Client) -> None:
        packet_id = next(one for one in range(1, 100) if one not in self.unacknowledged)
        qos, body = self.random.choice([1, 2]), f"{self.name_}-{self.number}"
        self.number += 1
        self.unacknowledged[packet_id] = (qos, f"{qos}-{body}")
        client.send(wire.publish(self.topic, f"{qos}-{body}".encode(), qos, packet_id))

    def _answered(self, client: wire.Client, packet: wire.Packet) -> None:
        if packet.kind in (wire.PUBACK, wire.PUBREC) and packet.reason >= 0x80:
            raise AssertionError(f"refused: {packet}")
        if packet.kind == wire.PUBREC:
            self.released.add(packet.packet_id)
            client.send(wire.acknowledge(wire.PUBREL, packet.packet_id))
        elif packet.kind in (wire.PUBACK, wire.PUBCOMP):
            self.acknowledged.append(self.unacknowledged.pop(packet.packet_id))
            self.released.discard(packet.packet_id)


# Of what brokers promise each other's clients, these are the exceptions in docs/limits-of-this-release.md.
of_one_broker = pytest.mark.skipif(BROKERS > 1, reason="a broker that is killed: docs/limits-of-this-release.md#clusters")


@of_one_broker
@pytest.mark.parametrize("target", ["queue", "topic"])
def test_what_was_acknowledged_is_in_the_queue(brokers_with, entity, target):
    seed = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    print(f"CRASH_SEED={seed}")
    running = brokers_with(CONFIG)
    publishers = [Publisher(running, f"p{number}", f"in/{target}", seed + number) for number in range(3)]
    chance = random.Random(seed)
    for publisher in publishers:
        publisher.start()
    for _ in range(ROUNDS):
        time.sleep(chance.uniform(0.1, 0.5))
        running.kill9()
        running.start()
    until(lambda: sum(len(publisher.acknowledged) for publisher in publishers) > 200, 60)
    for publisher in publishers:
        publisher.stops.set()
    for publisher in publishers:
        publisher.join(60)
        assert not publisher.is_alive() and not publisher.unacknowledged
    acknowledged = [one for publisher in publishers for one in publisher.acknowledged]
    for subscription in ([None] if target == "queue" else [f"s{number}" for number in range(4)]):
        found = drain(entity(running, target, subscription), {body for _, body in acknowledged})
        missing = {body for _, body in acknowledged} - set(found)
        assert not missing, f"{subscription}: {len(missing)} of {len(acknowledged)} lost: {sorted(missing)[:5]}"
        again = len(found) - len(set(found))
        print(f"{subscription}: {len(found)} messages, {again} of QoS 1 more than once")
        exactly = [body for body in found if body.startswith("2-")]
        assert len(exactly) == len(set(exactly)), f"{subscription}: QoS 2 came {len(exactly) - len(set(exactly))} times too often"


def drain(path, owed: set[str]) -> list[str]:
    """Returns all messages of an entity; waits longer while owed messages are missing."""
    found = []
    with path.plain(receive_mode=DELETE) as worker:
        while messages := worker.receive_messages(max_message_count=1000, max_wait_time=3 if owed <= set(found) else 15):
            found += texts(messages)
    return found


@of_one_broker
def test_what_was_accepted_reaches_a_subscriber(brokers_with, connect, entity):
    """Each message arrives at least once, and each session in order, except for repeated messages."""
    running = brokers_with(queue("out") + binding("out", from_queue="out", publish="out/{session}"))
    options = {"client_id": "subscriber", "properties": {"session_expiry_interval": 600}}
    connect(to=running, **options).subscribe("out/#", qos=1)
    accepted, number = set(), 0
    for _ in range(ROUNDS):
        out = entity(running, "out")
        for _ in range(5):
            bodies = [f"{number + one}" for one in range(40)]
            number += 40
            out.sender.send_messages([ServiceBusMessage(body, session_id=f"s{int(body) % 4}") for body in bodies])
            accepted.update(bodies)
        running.kill9()
        running.start()
    found: dict[str, list[int]] = {}
    subscriber = connect(to=running, clean=False, **options)
    while len(set().union(*found.values())) < len(accepted):
        packet = subscriber.receive()
        found.setdefault(packet.topic, []).append(int(packet.payload))
    assert set().union(*found.values()) == {int(body) for body in accepted}
    for numbers in found.values():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)
