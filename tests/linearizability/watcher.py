"""A client that watches keys: it asks for notifications, and records them."""

from __future__ import annotations

import asyncio
import time

import wire
from commands import notify_prefix, sighting
from history import NEVER, OK, QUOTA_EXCEEDED, Operation
from requester import Requester
from watching import Watch
from workload import MIXES


class Watcher(Requester):
    """Asks for the notifications of all keys on each of its connections.

    `habit` is `stays` or `restless` (its connections break). Notifications arrive whether it has subscribed to them or not.
    """

    def __init__(self, world, tenant: str, name: str, habit: str = "stays", subscribes: bool = True):
        super().__init__(world, tenant, name)
        self.habit, self.subscribes = habit, subscribes
        self.active: dict[bytes, Watch] = {}
        self.ended: list[Watch] = []

    async def come(self) -> None:
        known = self.established
        if not self.online:
            await self.connect()
            await super().come()
            if self.subscribes and not known:
                await self.subscribe({notify_prefix(self.name) + "+": 1})
            await self.ping()  # all notifications left over from the previous connection have arrived
        for key in MIXES:
            if key not in self.active or self.active[key].registered == NEVER:
                await self._watch(key)

    async def _watch(self, key: bytes) -> None:
        watch = Watch(str(self), key, NEVER)
        self.active[key] = watch
        said = await self.ask(Operation(self.name, "KEYNOTIFY", key, 0.0))
        while self.world.refuses and said.says == QUOTA_EXCEEDED:
            await asyncio.sleep(0.01)
            said = await self.ask(Operation(self.name, "KEYNOTIFY", key, 0.0))
        if said.says != OK:
            self.ledger.problem("violations", f"{self}: KEYNOTIFY was answered with {said}")
        watch.registered = time.monotonic()

    async def live(self) -> None:
        await self.come()
        while not self.world.resting:
            await asyncio.sleep(self.random.uniform(0.1, 0.6))
            if self.habit == "restless":
                self.is_cut = True
                await self.leave()
                await self.come()

    def offline(self) -> None:
        super().offline()
        now = time.monotonic()
        for watch in self.active.values():
            watch.ended = now
            self.ended.append(watch)
        self.active.clear()

    def received(self, packet: wire.Packet, now: float) -> None:
        if not packet.topic.startswith(notify_prefix(self.name)):
            return super().received(packet, now)
        coded = packet.topic.removeprefix(notify_prefix(self.name))
        key, told = bytes.fromhex(coded), sighting(packet, now)
        wire.require(key.hex().upper() == coded and key in MIXES, f"not a key: {packet}")
        wire.require(told.value is None or told.value.startswith(self.tenant.encode()), f"of another tenant: {packet}")
        self.ledger.counts["notifications"] += 1
        self.world.history.saw(self.tenant, key, told)
        # A notification that is delivered again belongs to an earlier registration.
        if key in self.active and not packet.dup:
            self.active[key].told.append(told)
