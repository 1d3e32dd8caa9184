"""What was promised and what came of it.

A message is known by tenant, publisher and a number that only grows, which are the first words of its payload. When a
publisher first sends it, the ledger notes who is owed it (sessions with an acknowledged subscription) and who may get it
(subscriptions whose fate a crash has left open). Nobody else may. The debt is due as soon as PUBACK or PUBREC has come.
"""

from __future__ import annotations

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
    """An empty payload: clears what is retained. Nobody can tell it from others, so nobody is owed it."""
    owed: list[tuple[object, int]] = field(default_factory=list)
    """Subscribers, each with the generation of its subscriptions at the time of sending."""
    allowed: list[object] = field(default_factory=list)

    @property
    def payload(self) -> bytes:
        words = " ".join(map(str, self.identity)).encode()
        return b"" if self.clear else words + b" " + _PADDING[: self.size]


def identity_of(payload: bytes) -> Identity:
    tenant, publisher, number, _ = payload.split(b" ", 3)
    return tenant.decode(), publisher.decode(), int(number)


class Ledger:
    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.progress = 0
        """Grows with every delivery and acknowledgement, so that a drain can see that nothing moves any more."""
        self._messages: dict[Identity, Message] = {}
        self._pending: dict[Identity, Message] = {}
        self._settled: dict[tuple[str, str], int] = {}
        self._sent: dict[tuple[str, str], int] = {}
        self._retained: dict[tuple[str, str], list] = defaultdict(lambda: [(0, ABSENT)])

    def problem(self, kind: str, sentence: str) -> None:
        self.counts[kind] += 1
        if len(self.problems) < 200:
            self.problems.append(f"{kind}: {sentence}")

    # -- what publishers say

    def sent(self, message: Message, subscribers) -> None:
        """The first PUBLISH of `message` is about to leave (or a will is about to be left with the broker)."""
        tenant, publisher, number = message.identity
        self.counts["published"] += 1
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
        """PUBACK or PUBREC has come: from now on the message is owed."""
        self.progress += 1
        self.counts["acknowledged"] += 1
        self._pending.pop(message.identity, None)
        for subscriber, generation in message.owed:
            if subscriber.generation == generation:
                self.counts["deliveries"] += 1
                if message.identity not in subscriber.delivered:
                    subscriber.owed[message.identity] = message
        if message.retain:
            tenant, _, number = message.identity
            history = self._retained[tenant, message.topic]
            history[:] = [one for one in history if one[0] >= number]

    def refused(self, message: Message) -> None:
        self.progress += 1
        self.counts["refused"] += 1

    # -- what subscribers say

    def subscribing(self, subscriber) -> None:
        """SUBSCRIBE is about to leave: what is on its way to the broker now may be routed before or after it."""
        for message in self._pending.values():
            if message.identity[0] == subscriber.tenant:
                message.allowed.append(subscriber)

    def delivered(self, subscriber, packet) -> None:
        """A PUBLISH that the protocol does not tell the client to discard."""
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
        if identity in subscriber.delivered:
            if packet.qos == 2:
                self.problem("duplicates", f"{who} twice")
            return
        message = self._messages.get(identity)
        if message is None or tenant != subscriber.tenant or message.payload != packet.payload or message.topic != packet.topic:
            self.problem("strangers", f"{who}, which nobody has sent so")
            return
        subscriber.delivered.add(identity)
        is_owed = any(one is subscriber for one, _ in message.owed)
        if not is_owed and subscriber not in message.allowed:
            self.problem("strangers", f"{who} without a subscription")
        subscriber.owed.pop(identity, None)
        if not is_owed:
            # Routed in vain before there was a subscription, and again when its publisher repeats it after a crash.
            return
        stream = (publisher, message.topic, message.qos)
        if number < subscriber.latest.get(stream, -1):
            self.problem("disorder", f"{who} after {subscriber.latest[stream]}")
        else:
            subscriber.latest[stream] = number

    def settle(self, subscribers) -> None:
        """Everything has come to rest: what is still owed is lost, and what comes again came twice."""
        for subscriber in subscribers:
            for message in subscriber.owed.values():
                words = " ".join(map(str, message.identity))
                self.problem("losses", f"{subscriber} never got {words} ({message.topic}, QoS {message.qos}), acknowledged")
            subscriber.owed.clear()
            subscriber.delivered.clear()
        self._settled = dict(self._sent)
        self._pending.clear()
        self._messages.clear()

    # -- what is retained

    def retained(self, tenant: str) -> dict[str, set]:
        """For each topic the payloads it may have, or `ABSENT`: the last one acknowledged, and whatever was sent after it."""
        return {topic: {value for _, value in history} for (owner, topic), history in self._retained.items() if owner == tenant}
