"""Compares what was promised with what arrived.

A message is identified by tenant, publisher and an ascending number, which are the first words of its payload. When a
publisher first sends it, the ledger notes which sessions must get it (those with an acknowledged subscription) and which
may get it (those whose subscription a crash has left open). No other session may get it. The message is owed as soon as
PUBACK or PUBREC has arrived. What the broker may do nevertheless is excused by its `Promises`, and counted.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

Identity = tuple[str, str, int]  # tenant, publisher, number

ABSENT = "absent"
_PADDING = bytes(range(256)) * 300


@dataclass
class Message:
    identity: Identity
    topic: str
    qos: int
    retain: bool = False
    size: int = 0
    clear: bool = False
    """Whether the payload is empty, which clears the retained message. Such messages cannot be told apart, so none is owed."""
    owed: list[tuple[object, int]] = field(default_factory=list)
    """Subscribers, each with the generation of its subscriptions at the time of sending."""
    allowed: list[object] = field(default_factory=list)
    stored: bool = True
    """Whether the session of its sender outlives its connections."""
    sent_at: float = math.inf
    acknowledged_at: float = math.inf

    @property
    def sender(self) -> tuple[str, str]:
        """Tenant and client identifier."""
        tenant, publisher, _ = self.identity
        return tenant, publisher

    @property
    def payload(self) -> bytes:
        words = " ".join(map(str, self.identity)).encode()
        return b"" if self.clear else words + b" " + _PADDING[: self.size]


def identity_of(payload: bytes) -> Identity:
    tenant, publisher, number, _ = payload.split(b" ", 3)
    return tenant.decode(), publisher.decode(), int(number)


@dataclass
class Will(Message):
    """The will of a client that connects only once. Its identifier is the publisher of the message, with the number."""

    delay: float = 0.0
    """Seconds from the end of the connection until it is published."""
    address: tuple[str, int] | None = None
    """The broker that the client has reached."""
    ended_at: float = math.inf
    """When its connection has ended."""

    @property
    def sender(self) -> tuple[str, str]:
        tenant, publisher, number = self.identity
        return tenant, f"{publisher}{number}"


@dataclass
class Ending:
    """The end of a stored session by a Clean Start."""

    client: object
    address: tuple[str, int]
    """The broker that the client has reached."""
    begin: float
    end: float
    """When it was acknowledged."""


class Promises:
    """What the broker promises: everything. A subclass excuses something."""

    def may_miss(self, subscriber, message: Message) -> bool:
        """Whether a message that was acknowledged may never arrive."""
        return False

    def may_repeat(self, subscriber, message: Message) -> bool:
        """Whether a message of QoS 2 may arrive twice."""
        return False

    def may_rise(self, ending: Ending) -> bool:
        """Whether a session may be there again that its client has ended."""
        return False


class Ledger:
    def __init__(self, promises: Promises | None = None):
        self.promises = promises or Promises()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.progress = 0
        """Grows with every delivery and acknowledgement, so that a drain can see when traffic has ended."""
        self._messages: dict[Identity, Message] = {}
        self._pending: dict[Identity, Message] = {}
        self._settled: dict[tuple[str, str], int] = {}
        self._sent: dict[tuple[str, str], int] = {}
        self._retained: dict[tuple[str, str], list] = defaultdict(lambda: [(0, ABSENT)])

    def problem(self, kind: str, sentence: str) -> None:
        self.counts[kind] += 1
        if len(self.problems) < 200:
            self.problems.append(f"{kind}: {sentence}")

    # -- reports of publishers

    def sent(self, message: Message, subscribers) -> None:
        """Called when the first PUBLISH of `message` is about to leave (or the CONNECT with a will)."""
        tenant, publisher, number = message.identity
        self.counts["published"] += 1
        message.sent_at = time.monotonic()
        self._sent[tenant, publisher] = number
        if message.retain:
            self._retained[tenant, message.topic].append((number, message.payload or ABSENT))
        if message.clear:
            return
        for subscriber in subscribers:
            stance = subscriber.stance(message.topic)
            if stance == "owed":
                message.owed.append((subscriber, subscriber.generation))
            elif stance == "open":
                message.allowed.append(subscriber)
        self._messages[message.identity] = self._pending[message.identity] = message

    def acknowledged(self, message: Message) -> None:
        """Called when PUBACK or PUBREC has arrived: from now on the message is owed."""
        self.progress += 1
        self.counts["acknowledged"] += 1
        message.acknowledged_at = time.monotonic()
        self.counts["wills"] += isinstance(message, Will)
        self._pending.pop(message.identity, None)
        for subscriber, generation in message.owed:
            if subscriber.generation == generation:
                self.counts["deliveries"] += 1
                self.counts["excusable"] += self.promises.may_miss(subscriber, message)
                if message.identity not in subscriber.delivered:
                    subscriber.owed[message.identity] = message
        if message.retain:
            tenant, _, number = message.identity
            history = self._retained[tenant, message.topic]
            history[:] = [one for one in history if one[0] >= number]

    def refused(self, message: Message) -> None:
        self.progress += 1
        self.counts["refused"] += 1

    # -- reports of subscribers

    def subscribing(self, subscriber) -> None:
        """Called when SUBSCRIBE is about to leave: messages in flight to the broker may be routed before or after it."""
        for message in self._pending.values():
            if message.identity[0] == subscriber.tenant:
                message.allowed.append(subscriber)

    def delivered(self, subscriber, packet) -> None:
        """Called for each PUBLISH, except for those that the protocol tells the client to discard."""
        if not packet.payload:
            return
        self.progress += 1
        identity = identity_of(packet.payload)
        tenant, publisher, number = identity
        who = f"{subscriber} got {' '.join(map(str, identity))} ({packet.topic}, QoS {packet.qos})"
        if number <= self._settled.get((tenant, publisher), -1):
            if packet.qos == 2:
                self.problem("duplicates", f"{who} again, long after the first time")
            return
        message = self._messages.get(identity)
        if identity in subscriber.delivered:
            if packet.qos == 2 and self.promises.may_repeat(subscriber, message):
                self.counts["repeated"] += 1
            elif packet.qos == 2:
                self.problem("duplicates", f"{who} twice")
            return
        if message is None or tenant != subscriber.tenant or message.payload != packet.payload or message.topic != packet.topic:
            self.problem("strangers", f"{who}, which nobody has sent so")
            return
        subscriber.delivered.add(identity)
        generation = next((generation for one, generation in message.owed if one is subscriber), None)
        if generation is None and subscriber not in message.allowed:
            self.problem("strangers", f"{who} without a subscription")
        subscriber.owed.pop(identity, None)
        if generation != subscriber.generation:
            # First routed before this subscription existed, and again when its publisher repeated it after a crash.
            return
        stream = (publisher, message.topic, message.qos)
        if number < subscriber.latest.get(stream, -1):
            self.problem("disorder", f"{who} after {subscriber.latest[stream]}")
        else:
            subscriber.latest[stream] = number

    def owes(self, subscriber) -> bool:
        """Whether a message must still arrive."""
        return any(not self.promises.may_miss(subscriber, message) for message in subscriber.owed.values())

    def settle(self, subscribers) -> None:
        """Called when all traffic has ended: messages that are still owed are lost, and one that arrives later is a duplicate."""
        for subscriber in subscribers:
            for message in subscriber.owed.values():
                self.missed(subscriber, message)
            subscriber.owed.clear()
            subscriber.delivered.clear()
        self._settled = dict(self._sent)
        self._pending.clear()
        self._messages.clear()

    def ended(self, subscriber, late: float) -> None:
        """Called when the session of a subscriber has ended: what was acknowledged `late` seconds before must have arrived."""
        for message in subscriber.owed.values():
            if message.acknowledged_at < time.monotonic() - late:
                self.missed(subscriber, message)
        subscriber.owed.clear()

    def missed(self, subscriber, message: Message) -> None:
        """Notes that an acknowledged message has not arrived."""
        if self.promises.may_miss(subscriber, message):
            self.counts["missed wills" if isinstance(message, Will) else "missed"] += 1
        else:
            words = " ".join(map(str, message.identity))
            self.problem("losses", f"{subscriber} never got {words} ({message.topic}, QoS {message.qos}), acknowledged")

    # -- retained messages

    def retained(self, tenant: str) -> dict[str, set]:
        """Returns for each topic the payloads that it may have, or `ABSENT`: the last acknowledged one, and all sent after it."""
        return {topic: {value for _, value in history} for (owner, topic), history in self._retained.items() if owner == tenant}
