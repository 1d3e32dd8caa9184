"""Publishers, which send unacknowledged messages again after every reconnection (MQTT 5 §4.4, 3.1.1 §4.4)."""

from __future__ import annotations

import asyncio

import wire
from client import Client
from ledger import Message


class Publisher(Client):
    """Publishes in bursts. It has a window of unacknowledged messages, and few packet identifiers, so that each is soon reused."""

    window = 16
    packet_ids = 40

    def __init__(self, world, tenant, name, version=wire.V5, levels=(1, 2), persistent=True, eager=False):
        super().__init__(world, tenant, name, version)
        self.levels, self.persistent, self.eager = levels, persistent, eager
        self.in_flight: dict[int, Message] = {}
        """Messages without PUBACK or PUBREC, by packet identifier, in the order of the first PUBLISH."""
        self.released: dict[int, Message] = {}
        """Messages with PUBREC and without PUBCOMP, in the order of PUBREC."""
        self._number = 0
        self._last_id = 0
        self._room = asyncio.Event()

    async def live(self) -> None:
        if not self.online:
            await self.connect()
        while True:
            for _ in range(self.random.randint(1, 20)):
                await self.room()
                self.publish()
            await asyncio.sleep(0 if self.eager else self.random.uniform(0.01, 0.1))

    async def room(self) -> None:
        """Waits until one more message may be in flight; raises `ConnectionError` without a connection."""
        while len(self.in_flight) + len(self.released) >= self.window and self.online:
            self._room.clear()
            await self._room.wait()
        if not self.online:
            raise ConnectionError(f"{self} lost its connection")

    def publish(self) -> None:
        self._number += 1
        chance = self.random.random()
        qos = self.random.choice(self.levels)
        message = Message((self.tenant, self.name, self._number), self._topic(chance, qos), qos, retain=chance < 0.1,
                          stored=self.persistent)
        message.clear = chance < 0.02
        message.size = self.random.randint(20_000, 60_000) if self.random.random() < 0.01 else self.random.randint(0, 1500)
        self.ledger.sent(message, self.world.subscribers(self.tenant))
        packet_id = self._next_packet_id()
        self.in_flight[packet_id] = message
        self._send(packet_id, message, dup=False)

    def _topic(self, chance: float, qos: int) -> str:
        """Returns a topic. Retained topics have one QoS each: messages of two QoS have no order, hence no latest value."""
        if chance < 0.1:
            return f"retained/{self.name}/{qos}"
        if chance < 0.2:
            return "crowd/all"
        return f"traffic/{self.name}/{self.random.randrange(3)}"

    def _next_packet_id(self) -> int:
        while True:
            self._last_id = self._last_id % self.packet_ids + 1
            if self._last_id not in self.in_flight and self._last_id not in self.released:
                return self._last_id

    def _send(self, packet_id: int, message: Message, dup: bool) -> None:
        self.send(wire.publish(message.topic, message.payload, message.qos, packet_id, message.retain, dup, version=self.version))

    @property
    def finished(self) -> bool:
        return not self.in_flight and not self.released

    # -- what happens to it

    def resumed(self, connack) -> None:
        if self.persistent and not connack.session_present:
            # Without the session the broker does not know these packet identifiers; repeated messages could arrive twice.
            self.released.clear()
            self.in_flight = {one: message for one, message in self.in_flight.items() if message.qos == 1}
        for packet_id in self.released:
            self.send(wire.acknowledge(wire.PUBREL, packet_id))
        for packet_id, message in self.in_flight.items():
            self._send(packet_id, message, dup=self.persistent)
        self._room.set()

    def offline(self) -> None:
        self._room.set()

    def on_packet(self, packet) -> None:
        if packet.kind in (wire.PUBACK, wire.PUBREC):
            self._acknowledged(packet)
        elif packet.kind == wire.PUBCOMP:
            if self.released.pop(packet.packet_id, None) is None:
                self.ledger.problem("violations", f"{self} did not release {packet}")
        else:
            return super().on_packet(packet)
        self.ledger.progress += 1
        self._room.set()

    def _acknowledged(self, packet) -> None:
        qos = 1 if packet.kind == wire.PUBACK else 2
        message = self.in_flight.get(packet.packet_id)
        if message is None or message.qos != qos:
            return self.ledger.problem("violations", f"{self} has nothing to be acknowledged by {packet}")
        first = next(one for one, other in self.in_flight.items() if other.qos == qos)
        if first != packet.packet_id:  # MQTT-4.6.0-2 and -3
            self.ledger.problem("disorder", f"{self} got {packet} before the acknowledgement of {first}")
        del self.in_flight[packet.packet_id]
        if packet.reason >= 0x80:
            return self.ledger.refused(message)
        self.ledger.acknowledged(message)
        if qos == 2:
            self.established = True
            self.released[packet.packet_id] = message
            self.send(wire.acknowledge(wire.PUBREL, packet.packet_id))
