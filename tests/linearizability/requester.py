"""A client of the state store: sends requests, repeats those without PUBACK, and compares repeated answers with the first."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import wire
from commands import INVOKE, answer, encode, request, response_topic
from history import OK, QUOTA_EXCEEDED, Answer, Operation, Version
from ledger import Message
from publisher import Publisher
from workload import choose


@dataclass
class Request(Message):
    """A PUBLISH to the store. A PUBLISH with the same packet identifier and correlation data is the same request."""

    operation: Operation | None = None
    response: asyncio.Future | None = None

    @property
    def correlation(self) -> bytes:
        return "/".join(map(str, self.identity)).encode()

    @property
    def payload(self) -> bytes:
        one = self.operation
        return encode(one.verb.encode(), one.key) if one.verb == "KEYNOTIFY" else request(one)


class Requester(Publisher):
    """Sends random requests, several of them in flight.

    `skew` is the error of its clock in seconds. A requester that is not `persistent` begins a new session on each
    connection, and never gets the answers to earlier requests.
    """

    def __init__(self, world, tenant: str, name: str, window: int = 3, persistent: bool = True, skew: float = 0.0):
        super().__init__(world, tenant, name, levels=(1,), persistent=persistent)
        self.window, self.skew = window, skew
        self.waiting: dict[bytes, Request] = {}
        """Requests that are not answered yet, by correlation data."""
        self.leased: Version | None = None
        """The version of its last lease: its fencing token."""
        self.is_cut = False
        """Whether its connection is being broken on purpose."""
        self.greeted = False
        """Whether CONNACK has arrived on this connection."""
        self._answered: dict[bytes, Request] = {}
        self._refused: dict[bytes, Request] = {}
        """Requests that were refused because a shard was closed, or a broker was not reached; they may be carried out when they are sent again."""

    async def come(self) -> None:
        if not self.online:
            await self.connect()
        if not self.established:
            await self.subscribe({response_topic(self.name): 1})
            self.established = True

    async def live(self) -> None:
        await self.come()
        while not self.world.resting:
            for _ in range(self.random.randint(1, 8)):
                await self.room()
                self.request(choose(self))
            await asyncio.sleep(self.random.uniform(0, 0.03))

    async def room(self) -> None:
        while max(len(self.in_flight), len(self.waiting)) >= self.window and self.online:
            self._room.clear()
            async with asyncio.timeout(self.world.patience):
                await self._room.wait()
        if not self.online:
            raise ConnectionError(f"{self} lost its connection")

    def request(self, operation: Operation) -> Request:
        """Sends a request, with the time of this client as its timestamp."""
        self._number += 1
        operation.stamp = Version(int((time.time() + self.skew) * 1000), self._number % 3, self.name)
        operation.invoked = time.monotonic()
        if operation.verb != "KEYNOTIFY":
            self.world.history.invoked(self.tenant, operation)
        one = Request((self.tenant, self.name, self._number), INVOKE, 1, operation=operation)
        one.response = asyncio.get_running_loop().create_future()
        self.ledger.counts["requests"] += 1
        self.waiting[one.correlation] = one
        packet_id = self._next_packet_id()
        self.in_flight[packet_id] = one
        self._send(packet_id, one, dup=False)
        return one

    async def ask(self, operation: Operation) -> Answer:
        one = self.request(operation)
        async with asyncio.timeout(self.world.patience):
            return await one.response

    async def ping(self) -> None:
        answer = self._answers[wire.PINGRESP, None] = asyncio.get_running_loop().create_future()
        self.send(wire.pingreq())
        async with asyncio.timeout(self.world.patience):
            await answer

    def _send(self, packet_id: int, one: Request, dup: bool) -> None:
        one.operation.resent |= dup
        if self._refused.pop(one.correlation, None):
            self.waiting[one.correlation] = one
            self.world.history.invoked(self.tenant, one.operation)
        user = [("__ts", str(one.operation.stamp)), ("__srcId", self.name)]
        if one.operation.fence:
            user.append(("__ft", str(one.operation.fence)))
        properties = {"response_topic": response_topic(self.name), "correlation_data": one.correlation, "user_property": user}
        self.send(wire.publish(INVOKE, one.payload, 1, packet_id, dup=dup, properties=properties))

    @property
    def finished(self) -> bool:
        return not self.in_flight and not self.waiting

    def forget(self) -> list[Request]:
        """Gives up the requests that have no answer, and returns them: each may have been carried out or not."""
        lost = list(self.waiting.values())
        self.waiting.clear()
        self._answered.clear()
        self._refused.clear()
        self._room.set()
        return lost

    # -- what happens to it

    def resumed(self, connack) -> None:
        self.is_cut, self.greeted = False, True
        if not self.persistent:
            self.in_flight.clear()
            self.forget()
            self.established = False
        self.ledger.counts["resent"] += len(self.in_flight)
        super().resumed(connack)

    def offline(self) -> None:
        super().offline()
        self.greeted = False
        if not self.is_cut and not self.world.breaks:
            self.ledger.problem("violations", f"{self} lost its connection, and nobody broke it")

    def on_packet(self, packet) -> None:
        if packet.kind != wire.PUBLISH:
            return super().on_packet(packet)
        self.send(wire.acknowledge(wire.PUBACK, packet.packet_id))
        self.ledger.progress += 1
        self.received(packet, time.monotonic())
        self._room.set()

    def received(self, packet: wire.Packet, now: float) -> None:
        correlation = packet.properties.get("correlation_data")
        one = self.waiting.pop(correlation, None) or self._refused.get(correlation)
        again = one is None
        one = one or self._answered.get(correlation)
        if packet.topic != response_topic(self.name) or one is None:
            if self.persistent:  # requests of a session that was ended may still be answered in the next one
                self.ledger.problem("strangers", f"{self} asked for nothing of this kind: {packet}")
            return
        operation, said = one.operation, answer(packet, one.operation.verb)
        if self.world.refuses and said.says == QUOTA_EXCEEDED:
            return self._was_refused(one, said)
        if self._refused.pop(correlation, None) and operation.verb != "KEYNOTIFY":
            # It was sent twice: one was refused, and the other was carried out.
            self.world.history.invoked(self.tenant, operation)
        if again:
            return self._answered_again(one, packet.dup, said, now)
        self.ledger.counts["answers"] += 1
        operation.answer, operation.answered = said, now
        self._answered[correlation] = one
        if operation.key == b"lease" and said.says == OK:
            self.leased = said.version
        if not one.response.done():
            one.response.set_result(said)

    def _was_refused(self, one: Request, said: Answer) -> None:
        if one.correlation in self._refused or one.correlation in self._answered:
            return  # the refusal has come once more, or behind the answer of the same request
        self.ledger.counts["refused"] += 1
        if one.operation.verb != "KEYNOTIFY":
            self.world.history.revoked(self.tenant, one.operation)
        self._refused[one.correlation] = one
        if not one.response.done():
            one.response.set_result(said)

    def _answered_again(self, one: Request, delivered_again: bool, said: Answer, now: float) -> None:
        self.ledger.counts["answers again"] += 1
        if not one.operation.resent and not delivered_again:
            self.ledger.problem("answers", f"{self}: answered twice, asked once: {one.operation}")
        elif said != one.operation.answer:
            if one.operation.verb == "GET":
                self.world.history.answered_again(self.tenant, one.operation, said, now)
            elif self.world.keeps:
                self.ledger.problem("answers", f"{self}: at {now:.4f} answered otherwise, with {said}: {one.operation}")

    def _acknowledged(self, packet) -> None:
        if packet.reason not in (0x00, 0x10):
            self.ledger.problem("violations", f"{self}: a request was not accepted: {packet}")
        super()._acknowledged(packet)
