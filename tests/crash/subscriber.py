"""Subscribers: the receiving side of QoS 1 and 2, with a state that outlives connections and the broker."""

from __future__ import annotations

import asyncio
from functools import lru_cache

import wire
from client import Client
from ledger import Identity, Message


@lru_cache(maxsize=100_000)
def matches(name: str, topic: str) -> bool:
    """Returns whether a topic filter matches a topic (§4.7)."""
    wanted, given = name.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(given) or level not in ("+", given[at]):
            return False
    return len(wanted) == len(given)


class Subscriber(Client):
    """One persistent session with filters that do not overlap.

    `habit` is its behaviour while there is traffic: `stays`, `absent` (rarely connected) or `restless` (disconnects and
    reconnects). Acknowledgements leave after `delay` seconds, so that a crash finds messages in every state.
    """

    def __init__(self, world, tenant, name, filters: dict[str, int], version=wire.V5, habit="stays", delay=0.0, receive_maximum=None):
        super().__init__(world, tenant, name, version)
        if receive_maximum:
            self.properties = {"receive_maximum": receive_maximum}
        self.filters, self.habit, self.delay = filters, habit, delay
        self.subscriptions: dict[str, str] = dict.fromkeys(filters, "open")
        """`owed`: acknowledged by SUBACK. `gone`: acknowledged by UNSUBACK. `open`: requested, and not acknowledged."""
        self.generation = 0
        """Grows when it unsubscribes: from then on no message that was sent before is owed."""
        self.delivered: set[Identity] = set()
        self.owed: dict[Identity, Message] = {}
        self.latest: dict[tuple[str, str, int], int] = {}
        self._unreleased: dict[int, bytes] = {}
        """QoS 2 packet identifiers received and not yet released (§4.3.3), each with the beginning of its payload."""

    def stance(self, topic: str) -> str:
        """Returns `owed`, `open` or `gone`: whether a message sent now must, may or must not arrive."""
        for name, state in self.subscriptions.items():
            if matches(name, topic):
                return state
        return "gone"

    # -- what it does

    async def live(self) -> None:
        if self.habit == "absent":
            if self.online:
                await self.leave()
            if self.random.random() < 0.7:
                return
            await asyncio.sleep(self.random.uniform(0, 0.5))
        await self.come()
        while self.habit != "stays":
            await asyncio.sleep(self.random.uniform(0.02, 0.4))
            await self.leave()
            await asyncio.sleep(self.random.uniform(0, 0.1))
            await self.come()
        await self.lose_connection()

    async def come(self) -> None:
        """Connects, if it is offline, and completes its subscriptions."""
        if not self.online:
            await self.connect()
        missing = {name: qos for name, qos in self.filters.items() if self.subscriptions[name] == "open"}
        if missing:
            await self.subscribe(missing)
            self.subscriptions.update(dict.fromkeys(missing, "owed"))
            self.established = True

    # -- what happens to it

    def resumed(self, connack) -> None:
        if not connack.session_present:
            self._unreleased.clear()
            self.subscriptions = dict.fromkeys(self.subscriptions, "open")

    def on_packet(self, packet) -> None:
        if packet.kind == wire.PUBLISH:
            if packet.qos == 2:
                if (before := self._unreleased.get(packet.packet_id)) is not None:
                    if before != packet.payload[:40]:
                        self.ledger.problem("violations", f"{self} has not released the identifier of {packet}")
                    return self._answer(wire.PUBREC, packet.packet_id)
                self._unreleased[packet.packet_id] = packet.payload[:40]
            self.ledger.delivered(self, packet)
            if packet.qos:
                self._answer(wire.PUBACK if packet.qos == 1 else wire.PUBREC, packet.packet_id)
        elif packet.kind == wire.PUBREL:
            self._unreleased.pop(packet.packet_id, None)
            self._answer(wire.PUBCOMP, packet.packet_id)
        else:
            super().on_packet(packet)

    def _answer(self, kind: int, packet_id: int) -> None:
        answer = wire.acknowledge(kind, packet_id)
        if self.delay:
            connection = self.connection
            asyncio.get_running_loop().call_later(
                self.delay, lambda: self.connection is connection and self.send(answer))
        else:
            self.send(answer)


class Passing(Subscriber):
    """Its session ends with each connection, so it has QoS 1: messages that are repeated come to the next session again."""

    persistent = False
    late = 2.0
    """Seconds within which a message arrives, on a busy machine, when it has been acknowledged."""

    def offline(self) -> None:
        self.ledger.ended(self, self.late)
        self.subscriptions = dict.fromkeys(self.subscriptions, "open")
        self.generation += 1


class Wavering(Subscriber):
    """Subscribes and unsubscribes repeatedly, at QoS 1: messages from before the last change are not counted."""

    async def live(self) -> None:
        await self.come()
        (name,) = self.filters
        while True:
            await asyncio.sleep(self.random.uniform(0.05, 0.6))
            if self.subscriptions[name] == "owed":
                self.subscriptions[name] = "open"
                self.generation += 1
                self.owed.clear()
                await self.unsubscribe(name)
                self.subscriptions[name] = "gone"
            else:
                self.subscriptions[name] = "open"
                self.ledger.subscribing(self)
                await self.subscribe(self.filters)
                self.subscriptions[name] = "owed"
