"""Rounds over three brokers of a cluster: one of them is killed and comes back, while clients go on with the others."""

from __future__ import annotations

import asyncio
import json
import random
import time

from broker import until
from client import Refused
from fleeting import Mortal
from outages import Outages
from subscriber import Passing, Subscriber
from victim import Brokers, MortalMember
from world import TENANTS, Summary, World

SERVER_UNAVAILABLE = (3, 0x88)
"""MQTT 3, MQTT 5."""


class Members(World):
    """Each connection is to one of the brokers, chosen at random, also if that is down."""

    longest_pause = 0.2

    def __init__(self, brokers: Brokers, seed: int, settle_every: int = 8):
        self.brokers = brokers.cluster
        self._choice = random.Random(f"{seed}/brokers")
        slots = json.loads(self.brokers[0].http("/v1/cluster/slots")[1])["slots"]
        self.outages = Outages([slot["broker"] for slot in slots])
        self._refusal: RuntimeError | None = None
        super().__init__(brokers, seed, settle_every, self.outages)

    def _populate_fleeting(self, tenant: str) -> list:
        return [*super()._populate_fleeting(tenant), Mortal(self, tenant, "guest", persistent=False)]

    def _populate_subscribers(self, tenant: str) -> list[Subscriber]:
        return [*super()._populate_subscribers(tenant), Passing(self, tenant, "passing", {"traffic/+/2": 1})]

    @property
    def address(self) -> tuple[str, int]:
        broker = self._choice.choice(self.brokers.members)
        self.outages.names[broker.address] = broker.name
        return broker.address

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [broker.address for broker in self.brokers]

    # -- the events of a round

    async def crash(self, seconds: float) -> None:
        """Kills a broker after a while, and starts it again; when it is back, perhaps another one. The round ends after a while of
        traffic with all of them.
        """
        more = True
        try:
            while more:
                await asyncio.sleep(self.random.uniform(0, seconds))
                await self._kill_one()
                more = self.random.random() < 0.3
            await asyncio.sleep(self.random.uniform(0, 1))
        except RuntimeError as error:
            self._refusal = error
        self.down = True

    async def _kill_one(self) -> None:
        victim = self.random.choice(self.brokers.members)
        life, twice = victim.cluster["incarnation"], self.random.random() < 0.1
        self.outages.begin(victim.name, twice)
        victim.die()
        self.summary.kills += 1 + twice
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, 1))
        events = [asyncio.to_thread(self._revive, victim)]
        if twice:
            victim.die_reviving(self.random)
        else:
            events.append(asyncio.to_thread(self._see, victim, life))
        await asyncio.gather(*events)

    def _see(self, victim: MortalMember, life: int) -> None:
        """Waits until the others see it up, in its next life."""
        def is_up(member: dict) -> bool:
            return member["name"] != victim.name or member["state"] == "up" and member["incarnation"] > life
        for broker in self.brokers.others(victim):
            self._until(victim, lambda broker=broker: all(map(is_up, broker.cluster["members"])))
        self.outages.up(victim.name)

    def _revive(self, victim: MortalMember) -> None:
        """Starts it again, and waits until each broker hears each other one."""
        begin = time.monotonic()
        victim.revive()
        self._until(victim, lambda: victim.cluster["takes_clients"])
        self.outages.end(victim.name)
        self.summary.worst_start_seconds = round(max(self.summary.worst_start_seconds, time.monotonic() - begin), 3)
        self._until(victim, lambda: all(
            broker.sees(*(other.name for other in self.brokers.others(broker))) for broker in self.brokers))

    def _until(self, victim: MortalMember, condition) -> None:
        try:
            until(condition)
        except AssertionError as error:
            raise RuntimeError(f"{victim.name} has not joined the others: {error}") from error

    def recover(self) -> bool:
        if self._refusal:
            self.refused_to_start(self._refusal)
            return False
        self.down = False
        return True

    def forgives(self, client, error: OSError) -> bool:
        is_usual = not isinstance(error, Refused) or error.reason in SERVER_UNAVAILABLE
        return is_usual and self.outages.explain(client)

    def wrong_retained(self, tenant: str, address: tuple[str, int]) -> list[str]:
        """A broker that comes back hears from the others what it has missed, and they from it."""
        begin = time.monotonic()
        while sentences := super().wrong_retained(tenant, address):
            if time.monotonic() - begin > self.patience:
                break
            self.ledger.counts["retained late"] += 1
            time.sleep(0.1)
        return sentences


def run(rounds: int, seed: int, settle_every: int = 8) -> Summary:
    brokers = Brokers(member=MortalMember)
    try:
        return asyncio.run(Members(brokers, seed, settle_every).run(rounds))
    finally:
        brokers.close()
