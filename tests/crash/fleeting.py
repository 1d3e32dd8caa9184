"""Clients whose sessions end: some leave a will, others end their session, which must not come back."""

from __future__ import annotations

import asyncio
import time

import wire
from client import Client
from ledger import Ending, Will


class Mortal(Client):
    """Leaves wills: connects each time under a new name, with a Will Delay of up to a second, and breaks the connection.

    The will is owed from CONNACK on, because the broker must store it with the session (MQTT-3.1.2-7). If the client sends
    DISCONNECT instead, no packet tells when that is durable: the will may come.

    If it is not `persistent`, its session ends with the connection, and its will does not wait for the delay.
    """

    def __init__(self, world, tenant, name="mortal", persistent=True):
        super().__init__(world, tenant, name)
        self.kind, self.persistent = name, persistent
        self._number = 0
        self._will: Will | None = None

    async def live(self) -> None:
        while True:
            self._number += 1
            delay = self.random.randint(0, 1)
            will = self._will = Will((self.tenant, self.kind, self._number), f"wills/{self.kind}{self._number}", 1,
                                     stored=self.persistent, delay=delay if self.persistent else 0)
            self.name = will.sender[1]
            self.ledger.sent(will, self.world.subscribers(self.tenant))
            await self.connect(
                will=wire.Will(will.topic, will.payload, 1, properties={"will_delay_interval": delay}),
                properties={"session_expiry_interval": self.random.randint(5, 60)} if self.persistent else {})
            will.address = self.address
            if self.random.random() < 0.3:
                await self.disconnect()
            else:
                self.ledger.acknowledged(will)
                await asyncio.sleep(self.random.uniform(0, 1))
                self.abort()
            await asyncio.sleep(self.random.uniform(0.1, 0.5))

    def offline(self) -> None:
        self._will.ended_at = time.monotonic()


class Ender(Client):
    """Begins a session and ends it with Clean Start 1, again and again: an ended session must not come back."""

    def __init__(self, world, tenant, version=wire.V5):
        super().__init__(world, tenant, f"ender{version}", version)
        self._present: bool | None = False
        """Whether its session exists; None if a crash has left this open."""
        self._ending: Ending | None = None

    async def live(self) -> None:
        if self.online:
            await self.leave()
        while True:
            expected, self._present = self._present, None
            connack = await self.connect(clean=False)
            if expected not in (None, connack.session_present) and self._is_excused(expected):
                await self.leave()
                continue
            self._present = connack.session_present or None
            await self.subscribe({"nothing/comes/here": 1})
            self._present = True
            await self.leave()
            await asyncio.sleep(self.random.uniform(0, 0.5))
            self._present, begin = None, time.monotonic()
            await self.connect(clean=True, properties={})
            self._present, self._ending = False, Ending(self, self.address, begin, time.monotonic())
            await self.leave()
            await asyncio.sleep(self.random.uniform(0, 0.3))

    def _is_excused(self, expected: bool) -> bool:
        """Counts a session that should exist and does not, or the other way round."""
        if self._ending and not expected and self.ledger.promises.may_rise(self._ending):
            self.ledger.counts["risen"] += 1
            return True
        kind = "sessions lost" if expected else "sessions risen"
        self.ledger.problem(kind, f"{self} expected Session Present {expected}")
        return False
