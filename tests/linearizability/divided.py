"""Rounds over three brokers that lose each other, or are slow, stopped or killed, or between which the state stores move, while clients
go on with all of them."""

from __future__ import annotations

import asyncio
import random
import socket

import world
from brokers import AnyBroker
from contest import SERVER_BUSY, Contest
from moving import another, home_of, move, slot_of
from networks import CutCluster
from victim import CONFIG, Victim

LASTS = (0.5, 1.2, 3)
"""Seconds for which a fault lasts."""


class DividedBrokers(AnyBroker, Victim):
    """Each connection is to one of the brokers, chosen at random."""

    def __init__(self, config: str = CONFIG):
        AnyBroker.__init__(self, 3, config, CutCluster)

    def socket(self, address: tuple[str, int]) -> socket.socket:
        return next(member for member in self.cluster if member.address == address).socket()

    def close(self) -> None:
        self.end()


class Divided(Contest):
    """In each round there is one fault. Brokers may disconnect clients meanwhile, refuse them, or not answer."""

    farewells = (SERVER_BUSY,)
    longest_pause = 0.2
    patience = 5.0
    refuses = strays = True

    def __init__(self, victim: DividedBrokers, seed: int, settle_every: int = 3, lasts: tuple[float, ...] = LASTS, **options):
        super().__init__(victim, seed, settle_every, **options)
        self.lasts = lasts
        # What waits in a link arrives when the link works again.
        self.told_late += max(lasts) + 1
        self._faulty = False

    @property
    def breaks(self) -> bool:
        return self._faulty or self.down

    def socket(self, address: tuple[str, int]) -> socket.socket:
        return self.victim.socket(address)

    async def crash(self, seconds: float) -> None:
        self._faulty = True
        await asyncio.sleep(seconds)
        kind = await asyncio.to_thread(self.victim.cluster.suffers, random.Random(self.random.random()), self.lasts)
        await asyncio.to_thread(self.victim.cluster.settles)
        self.ledger.counts[kind] += 1
        await asyncio.sleep(seconds)
        self.down = True

    def recover(self) -> bool:
        self.down = self._faulty = False
        return True


class Moved(Divided):
    """In each round the state stores of both tenants move three times. Connections break as in any round."""

    async def crash(self, seconds: float) -> None:
        self._faulty = True
        for _ in range(3):
            await asyncio.sleep(seconds / 3)
            for tenant in world.TENANTS:
                await asyncio.to_thread(self._move, slot_of("", tenant))
        self.down = True

    def _move(self, slot: int) -> None:
        brokers = self.victim.cluster
        move(slot, another(home_of(slot, brokers), brokers))
        self.ledger.counts["moves"] += 1


def run(rounds: int, seed: int, what: type[Divided] = Divided, **options) -> world.Summary:
    victim = DividedBrokers()
    try:
        return asyncio.run(what(victim, seed, **options).run(rounds))
    finally:
        victim.close()
