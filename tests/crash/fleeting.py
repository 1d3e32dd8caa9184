"""Clients whose sessions end: some leave a will, others end their session, which must not come back."""

from __future__ import annotations

import asyncio

import wire
from client import Client
from ledger import Message


class Mortal(Client):
    """Leaves wills: connects each time under a new name, with a Will Delay of up to a second, and breaks the connection.

    The will is owed from CONNACK on, because the broker must store it with the session (MQTT-3.1.2-7). If the client sends
    DISCONNECT instead, no packet tells when that is durable: the will may come.
    """

    def __init__(self, world, tenant):
        super().__init__(world, tenant, "mortal")
        self._number = 0

    async def live(self) -> None:
        while True:
            self._number += 1
            self.name = f"mortal{self._number}"
            message = Message((self.tenant, "wills", self._number), f"wills/{self._number}", qos=1)
            will = wire.Will(message.topic, message.payload, 1, properties={"will_delay_interval": self.random.randint(0, 1)})
            self.ledger.sent(message, self.world.subscribers(self.tenant))
            await self.connect(will=will, properties={"session_expiry_interval": self.random.randint(5, 60)})
            if self.random.random() < 0.3:
                await self.disconnect()
            else:
                self.ledger.acknowledged(message)
                await asyncio.sleep(self.random.uniform(0, 1))
                self.abort()
            await asyncio.sleep(self.random.uniform(0.1, 0.5))


class Ender(Client):
    """Begins a session and ends it with Clean Start 1, again and again: an ended session must not come back."""

    def __init__(self, world, tenant, version=wire.V5):
        super().__init__(world, tenant, f"ender{version}", version)
        self._present: bool | None = False
        """Whether its session exists; None if a crash has left this open."""

    async def live(self) -> None:
        if self.online:
            await self.leave()
        while True:
            expected, self._present = self._present, None
            connack = await self.connect(clean=False)
            if expected not in (None, connack.session_present):
                kind = "sessions lost" if expected else "sessions risen"
                self.ledger.problem(kind, f"{self} expected Session Present {expected}")
            self._present = connack.session_present or None
            await self.subscribe({"nothing/comes/here": 1})
            self._present = True
            await self.leave()
            await asyncio.sleep(self.random.uniform(0, 0.5))
            self._present = None
            await self.connect(clean=True, properties={})
            self._present = False
            await self.leave()
            await asyncio.sleep(self.random.uniform(0, 0.3))
