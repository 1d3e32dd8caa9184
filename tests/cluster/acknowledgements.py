"""Publishers and subscribers at all brokers of a cluster, and a book of what was acknowledged and what has arrived."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

import wire

TOPICS = ("t/0", "t/1", "t/2")

LATE = 3.0
"""Seconds within which a message must arrive while the brokers reach each other."""


@dataclass
class Stay:
    """A subscriber's connection, from SUBACK on."""

    broker: int
    topic: str
    since: float
    until: float = float("inf")
    received: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Sent:
    """A message, from before it was sent until it was acknowledged. A publisher is one connection."""

    publisher: str
    number: int
    topic: str
    sent: float
    acknowledged: float | None = None


class Ledger:
    """Runs the clients within `with`. Each publisher sends one message after the other, half of them with QoS 1 and half with
    QoS 2, and one that was not acknowledged never again. Each subscriber stays for some seconds at a time.

    A message must have arrived `LATE` seconds after it was acknowledged, or after the end of a `fault` that falls into this time. A
    broker that is cut off or stopped disconnects its clients some seconds after the others have given them up.
    """

    def __init__(self, cluster, seed: int):
        self._cluster = cluster
        self._faults: list[tuple[float, float]] = []
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._stays: list[Stay] = []
        self._sent: list[Sent] = []
        self.compared = 0
        self._connections = itertools.count()
        runs = [(self._publish, number) for number in range(4)] + [(self._subscribe, number) for number in range(6)]
        self._threads = [threading.Thread(target=self._go_on, args=(run, number, random.Random(f"{seed} {run.__name__} {number}")))
                         for run, number in runs]

    @property
    def acknowledged(self) -> int:
        return sum(1 for one in self._sent if one.acknowledged)

    def __enter__(self) -> Ledger:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(30)

    def __str__(self) -> str:
        return (f"{len(self._sent)} messages were sent, {self.acknowledged} acknowledged; {len(self._stays)} subscriptions; "
                f"{self.compared} messages had to arrive")

    @contextlib.contextmanager
    def fault(self):
        """A fault lasts, until the brokers have found each other again."""
        begin = time.monotonic()
        yield
        self._faults.append((begin, time.monotonic()))

    def _due(self, acknowledged: float) -> float:
        """Returns the time at which a message that was acknowledged then must have arrived."""
        due = acknowledged + LATE
        for begin, end in self._faults:
            if begin < due and end > acknowledged:
                due = max(due, end + LATE)
        return due

    def check(self) -> None:
        """Compares what had to arrive with what has."""
        for stay in self._stays:
            received = set(stay.received)
            for one in self._sent:
                had_to = (one.acknowledged is not None and one.topic == stay.topic and one.sent > stay.since
                          and self._due(one.acknowledged) < stay.until)
                if had_to:
                    self.compared += 1
                    assert (one.publisher, one.number) in received, f"{one} did not reach {stay.broker} in {stay.since}..{stay.until}"
            for publisher in {publisher for publisher, _ in stay.received}:
                numbers = [number for one, number in stay.received if one == publisher]
                early = [(one, next_one) for one, next_one in pairwise(numbers) if one > next_one]
                assert not early, f"{publisher} at {stay.broker}: the second one of {early} is late"
                twice = [one for one, next_one in pairwise(numbers) if one == next_one]
                assert not twice or qos_of(publisher) < 2, f"{publisher} at {stay.broker}: {twice} have arrived twice"

    def _go_on(self, run, number: int, chance: random.Random) -> None:
        """Repeats a client that fails now and then, as it should."""
        while not self._ends.is_set():
            try:
                run(number, chance)
            except (OSError, wire.Closed, wire.Violation, TimeoutError):
                time.sleep(0.05)

    def _connect(self, chance: random.Random) -> tuple[int, wire.Client]:
        broker = chance.randrange(len(self._cluster.members))
        one = self._cluster[broker].connect()
        one.timeout = 12
        one.connect("")
        return broker, one

    def _publish(self, number: int, chance: random.Random) -> None:
        _, one = self._connect(chance)
        # What a connection leaves unacknowledged may be overtaken by what the next one sends to another broker.
        name = f"p{number}.{next(self._connections)}"
        qos = qos_of(name)
        try:
            for _ in range(chance.randrange(20, 400)):
                if self._ends.is_set():
                    return
                topic = chance.choice(TOPICS)
                with self._lock:
                    message = Sent(name, len(self._sent), topic, time.monotonic())
                    self._sent.append(message)
                answer = one.publish(topic, f"{name} {message.number}".encode(), qos=qos)
                if answer.reason < 0x80:
                    message.acknowledged = time.monotonic()
                time.sleep(0.005)
        finally:
            one.drop()

    def _subscribe(self, number: int, chance: random.Random) -> None:
        broker, one = self._connect(chance)
        topic = TOPICS[number % len(TOPICS)]
        try:
            one.subscribe(topic, qos=2)
            stay = Stay(broker, topic, time.monotonic())
            self._stays.append(stay)
            leaves = time.monotonic() + chance.choice((6, 20, 60))
            try:
                while time.monotonic() < leaves and not self._ends.is_set():
                    try:
                        found = one.recv(0.2)
                    except TimeoutError:
                        continue
                    if found.kind != wire.PUBLISH:
                        return
                    publisher, order = found.payload.decode().split()
                    stay.received.append((publisher, int(order)))
                    one.complete(found)
            finally:
                stay.until = time.monotonic()
        finally:
            one.drop()


def qos_of(publisher: str) -> int:
    """Returns the QoS with which a publisher publishes: messages of two QoS have no order."""
    return 1 + int(publisher.removeprefix("p").split(".")[0]) % 2
