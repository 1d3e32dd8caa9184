"""Rounds in which shards of the broker are closed and opened under traffic, before it is killed."""

from __future__ import annotations

import asyncio

from reopening import Reopening
from victim import CONFIG, Victim
from world import Summary, World

SHARDS = 4
SERVER_BUSY, QUOTA_EXCEEDED = 0x89, 0x97


class Reopened(World):
    """A client that is disconnected or refused tries again: only a broker that is down ends a round."""

    farewells = (SERVER_BUSY, QUOTA_EXCEEDED)

    def __init__(self, victim: Victim, seed: int, settle_every: int = 8):
        super().__init__(victim, seed, settle_every)
        self.reopening = Reopening(victim, seed)

    async def run(self, rounds: int) -> Summary:
        try:
            summary = await super().run(rounds)
        finally:
            await asyncio.to_thread(self.reopening.end)
        for problem in self.reopening.problems:
            self.ledger.problem("refusals", problem)
        summary.counts["reopened"] = sum(self.reopening.times.values())
        summary.counts["reopened least"] = min(self.reopening.times[shard] for shard in range(SHARDS))
        return summary

    async def traffic(self, seconds: float) -> None:
        self.reopening.begin()
        await super().traffic(seconds)
        await asyncio.to_thread(self.reopening.rest)

    def forgives(self, client, error: OSError) -> bool:
        return True


def run(rounds: int, seed: int) -> Summary:
    victim = Victim(CONFIG + f"[storage]\nshards = {SHARDS}\n")
    try:
        return asyncio.run(Reopened(victim, seed).run(rounds))
    finally:
        victim.close()
