"""Promises under unrest: connections that break anywhere, while others go on (5: §4.3, §4.4, §4.8.2)."""

import random
import threading
import time

import pytest

import wire
from wire import V5, V311

normative = pytest.mark.normative

COUNT = 300


class Unsteady:
    """A session over connections that break after a few packets; it keeps the state a client has to keep."""

    def __init__(self, connect, version: int, name: str, seed: int):
        self.connect, self.version, self.name = connect, version, name
        self.chance = random.Random(seed)
        self.client = None

    def online(self) -> wire.Client:
        """The connection, or the next one; with the session, once there is one."""
        if self.client is None:
            self.client = self.join(clean=False)
            assert self.client.connack.session_present
            self.resume()
        elif self.chance.random() < 0.04:
            self.client.drop()
            self.client = None
            return self.online()
        return self.client

    def join(self, clean: bool) -> wire.Client:
        options = {"properties": {"session_expiry_interval": 600}} if self.version == V5 else {}
        return self.connect(self.version, self.name, clean=clean, **options)

    def begin(self) -> wire.Client:
        """The first connection. MQTT 3.1.1 makes a lasting session only with Clean Session 0."""
        self.client = self.join(clean=False)
        return self.client

    def resume(self) -> None:
        """What a client sends again on a new connection."""


class Subscriber(Unsteady):
    """Takes messages exactly once at QoS 2 and at least once at QoS 1, however often it has to reconnect."""

    def __init__(self, *args):
        super().__init__(*args)
        self.taken: list[bytes] = []
        self.unreleased: set[int] = set()

    def take(self, timeout: float) -> bool:
        try:
            found = self.online().recv(timeout)
        except (TimeoutError, wire.Closed, ConnectionError):
            return False
        if found.kind == wire.PUBLISH:
            if found.qos < 2 or found.packet_id not in self.unreleased:
                self.taken.append(found.payload)
            if found.qos == 2:
                self.unreleased.add(found.packet_id)
            answer = {1: wire.PUBACK, 2: wire.PUBREC}[found.qos]
        else:
            assert found.kind == wire.PUBREL
            self.unreleased.discard(found.packet_id)
            answer = wire.PUBCOMP
        self.client.send(wire.acknowledge(answer, found.packet_id))
        return True


class Publisher(Unsteady):
    """Publishes one message after the other, each to the end of its flow, sending again what was not answered."""

    def resume(self) -> None:
        self.step()

    def step(self) -> None:
        if self.released:
            self.client.send(wire.acknowledge(wire.PUBREL, self.packet_id))
        else:
            self.client.send(wire.publish(self.topic, self.payload, self.level, self.packet_id, dup=self.dup,
                                          version=self.version))

    def publish(self, topic: str, payload: bytes, level: int) -> None:
        self.topic, self.payload, self.level, self.released, self.dup = topic, payload, level, False, False
        self.packet_id = self.chance.randrange(1, 65536)
        fresh = self.client
        if self.online() is fresh:
            self.step()
        while True:
            self.dup = True
            self.online()
            found = self.client.recv()
            if found.packet_id != self.packet_id or found.kind not in (wire.PUBACK, wire.PUBREC, wire.PUBCOMP):
                continue
            # A PUBREL sent again may be of a flow that the broker knows to be complete.
            assert found.reason < 0x80 or found.kind == wire.PUBCOMP and found.reason == 0x92
            if found.kind == wire.PUBREC:
                if not self.released:
                    self.released = True
                    self.step()
            else:
                return


def publish_all(publisher: Publisher, topic: str, level: int) -> None:
    publisher.begin()
    for number in range(COUNT):
        publisher.publish(topic, b"%s %d" % (publisher.name.encode(), number), level)


def run(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive()


@normative("5:MQTT-4.4.0-1", "5:MQTT-4.3.2-3", "5:MQTT-4.3.3-10", "5:MQTT-4.3.3-5", "5:MQTT-4.5.0-1", "5:MQTT-4.6.0-5",
           "311:MQTT-4.4.0-1", "311:MQTT-4.3.2-1", "311:MQTT-4.3.3-1", "311:MQTT-4.3.3-2", "311:MQTT-4.6.0-6")
@pytest.mark.parametrize("level", [1, 2])
def test_nothing_is_lost_when_connections_break(connect, topic, unique, oasis, level):
    """Two publishers and two subscribers, all unsteady: at QoS 2 exactly once, at QoS 1 at least once, in order."""
    subscribers = [Subscriber(connect, oasis, unique("s"), seed) for seed in (1, 2)]
    publishers = [Publisher(connect, oasis, unique("p"), seed) for seed in (3, 4)]
    for subscriber in subscribers:
        assert subscriber.begin().subscribe(topic, qos=level).reasons == [level]
    everything = {b"%s %d" % (one.name.encode(), number) for one in publishers for number in range(COUNT)}

    def take_all(subscriber: Subscriber) -> None:
        last = time.monotonic()
        while not (everything <= set(subscriber.taken)) and time.monotonic() - last < wire.SECONDS:
            if subscriber.take(0.5):
                last = time.monotonic()
        for _ in range(10):
            subscriber.take(0.05)

    run(*(threading.Thread(target=publish_all, args=(one, topic, level)) for one in publishers),
        *(threading.Thread(target=take_all, args=(one,)) for one in subscribers))
    for subscriber in subscribers:
        assert set(subscriber.taken) == everything
        for publisher in publishers:
            mine = [one for one in subscriber.taken if one.startswith(publisher.name.encode() + b" ")]
            first = list(dict.fromkeys(mine))
            assert first == [b"%s %d" % (publisher.name.encode(), number) for number in range(COUNT)]
            if level == 2:
                assert mine == first, "delivered more than once"


def test_a_group_loses_nothing_while_members_come_and_go(connect, topic, unique):
    """Steady publishers; members whose sessions end with their connections: QoS 1 reaches the group at least once."""
    shared, taken, done = f"$share/{unique('g')}/{topic}", [], threading.Event()
    everything = {b"%d %d" % (publisher, number) for publisher in range(2) for number in range(COUNT)}
    anchor = connect(V5)
    anchor.subscribe(shared, qos=1)

    def publish(publisher: int) -> None:
        client = connect(V5)
        for number in range(COUNT):
            client.publish(topic, b"%d %d" % (publisher, number), qos=1)

    def come_and_go(seed: int) -> None:
        chance = random.Random(seed)
        while not done.is_set():
            client = connect(V5)
            client.subscribe(shared, qos=1)
            try:
                for _ in range(chance.randrange(1, 15)):
                    found = client.expect(wire.PUBLISH, timeout=0.1)
                    taken.append(found.payload)
                    client.send(wire.acknowledge(wire.PUBACK, found.packet_id))
            except TimeoutError:
                pass
            # What else was on its way to this member goes to another.
            client.drop() if chance.random() < 0.5 else client.disconnect()

    def stay() -> None:
        seen, last = 0, time.monotonic()
        while not everything <= set(taken) and time.monotonic() - last < wire.SECONDS:
            if len(taken) > seen:
                seen, last = len(taken), time.monotonic()
            try:
                taken.append(anchor.receive(timeout=0.3).payload)
            except TimeoutError:
                pass
        done.set()

    run(*(threading.Thread(target=publish, args=(number,)) for number in range(2)),
        *(threading.Thread(target=come_and_go, args=(seed,)) for seed in range(3)), threading.Thread(target=stay))
    assert sorted(everything - set(taken)) == []


def test_subscriptions_change_under_traffic(connect, topic, unique):
    """Subscribing, unsubscribing, connecting and dropping all around do not touch a steady subscription."""
    steady, publisher, done = connect(V5), connect(V311), threading.Event()
    steady.subscribe(topic + "/#", qos=1)

    def stir(seed: int) -> None:
        chance = random.Random(seed)
        while not done.is_set():
            client = connect(chance.choice([V5, V311]))
            for _ in range(5):
                pattern = topic + chance.choice(["/#", "/+", "/x", "/x/#", "/y", ""])
                client.subscribe(pattern, qos=chance.randrange(3))
                if chance.random() < 0.5:
                    client.unsubscribe(pattern)
            client.drop()

    threads = [threading.Thread(target=stir, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(500):
            publisher.publish(topic + "/x", b"%d" % number, qos=1)
    finally:
        done.set()
        for thread in threads:
            thread.join(30)
    assert [steady.receive().payload for _ in range(500)] == [b"%d" % number for number in range(500)]
    steady.expect_nothing(0.1)


def test_a_new_subscriber_ends_with_the_last_retained_value(connect, topic):
    """Whenever it subscribes while the value changes: it sees the last one, and none after that."""
    publisher, found = connect(V5), []

    def watch(delay: float) -> None:
        time.sleep(delay)
        client = connect(V5)
        client.subscribe(topic, qos=1)
        last = None
        try:
            while last != b"299":
                last = client.receive().payload
        except TimeoutError:
            pass
        found.append(last)

    watchers = [threading.Thread(target=watch, args=(number * 0.005,)) for number in range(20)]
    for watcher in watchers:
        watcher.start()
    for number in range(300):
        publisher.publish(topic, b"%d" % number, qos=1, retain=True)
    for watcher in watchers:
        watcher.join(30)
    assert found == [b"299"] * 20
