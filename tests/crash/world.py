"""Rounds of traffic, crash and recovery: the clients, the events of a round, and the checks when all traffic has ended."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from dataclasses import asdict, dataclass, field

import wire
from fleeting import Ender, Mortal
from ledger import ABSENT, Ledger, Promises
from publisher import Publisher
from subscriber import Subscriber, Wavering
from victim import Victim

TENANTS = ("acme", "globex")
# The counts of a run, and the counts of problems, which must be zero.
COUNTS = ("published", "acknowledged", "refused", "deliveries")
FAULTS = ("losses", "duplicates", "disorder", "strangers", "sessions lost", "sessions risen", "retained", "refusals", "violations")


@dataclass
class Summary:
    seed: int
    rounds: int = 0
    kills: int = 0
    seconds: float = 0.0
    worst_start_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        return json.dumps({**asdict(self), "problems": self.problems[:10]})


class World:
    """Runs rounds of traffic against `victim`; all randomness follows from `seed`."""

    patience = 10.0
    """Seconds within which the broker has to answer. Without progress for so long, missing messages count as lost."""
    farewells: tuple[int, ...] = ()
    """Reason codes with which the broker may disconnect a client."""
    longest_pause = 0.02
    """Seconds after which a client that was disconnected or refused has tried again."""

    def __init__(self, victim: Victim, seed: int, settle_every: int = 8, promises: Promises | None = None):
        self.victim, self.seed, self.settle_every = victim, seed, settle_every
        self.random = random.Random(seed)
        self.ledger = Ledger(promises)
        self.connections: set = set()
        self.down = False
        self.summary = Summary(seed)
        self._subscribers = {tenant: self._populate_subscribers(tenant) for tenant in TENANTS}
        self.publishers = [one for tenant in TENANTS for one in self._populate_publishers(tenant)]
        self._fleeting = [one for tenant in TENANTS for one in self._populate_fleeting(tenant)]

    def _populate_publishers(self, tenant: str) -> list[Publisher]:
        return [
            Publisher(self, tenant, "five"),
            Publisher(self, tenant, "three", wire.V311),
            Publisher(self, tenant, "eager", levels=(2,), eager=tenant == TENANTS[0]),
            Publisher(self, tenant, "transient", levels=(1,), persistent=False),
        ]

    def _populate_subscribers(self, tenant: str) -> list[Subscriber]:
        crowd = [Subscriber(self, tenant, f"crowd{one}", {"crowd/+": 1 + one % 2}, habit="absent") for one in range(8)]
        return crowd + [
            Subscriber(self, tenant, "all", {"traffic/#": 2}),
            Subscriber(self, tenant, "exact", {"traffic/five/0": 2, "traffic/three/1": 2}, wire.V311, "absent"),
            Subscriber(self, tenant, "restless", {"traffic/+/1": 1, "traffic/+/2": 2}, habit="restless"),
            Subscriber(self, tenant, "slow", {"traffic/five/+": 2, "traffic/three/1": 1}, delay=0.01, receive_maximum=8),
            Subscriber(self, tenant, "old", {"traffic/three/#": 2}, wire.V311, "restless", delay=0.01),
            Subscriber(self, tenant, "retained", {"retained/#": 1}),
            Subscriber(self, tenant, "undertaker", {"wills/+": 2}),
            Wavering(self, tenant, "wavering", {"traffic/+/0": 1}),
        ]

    def _populate_fleeting(self, tenant: str) -> list[Mortal | Ender]:
        return [Mortal(self, tenant), Ender(self, tenant), Ender(self, tenant, wire.V311)]

    @property
    def address(self) -> tuple[str, int]:
        """Where the next client connects to."""
        return self.victim.address

    def socket(self, address: tuple[str, int]) -> socket.socket:
        """Returns a new TCP socket for a connection to a broker."""
        return socket.socket()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All brokers."""
        return [self.victim.address]

    def subscribers(self, tenant: str) -> list[Subscriber]:
        return self._subscribers[tenant]

    @property
    def all_subscribers(self) -> list[Subscriber]:
        return [one for tenant in TENANTS for one in self._subscribers[tenant]]

    # -- the run

    async def run(self, rounds: int) -> Summary:
        begin = time.monotonic()
        await asyncio.gather(*(one.come() for one in self.all_subscribers))
        for number in range(1, rounds + 1):
            await self.traffic(self.random.uniform(0.3, 2.0))
            self.summary.rounds = number
            if not self.recover():
                break
            self.check_retained()
            if number % self.settle_every == 0 or number == rounds:
                await self.settle()
        self.summary.seconds = round(time.monotonic() - begin, 1)
        counts = self.ledger.counts
        self.summary.counts = {name: counts[name] for name in COUNTS + FAULTS} | dict(counts)
        self.summary.problems = self.ledger.problems
        return self.summary

    async def traffic(self, seconds: float) -> None:
        """Lets all clients run until the broker dies."""
        everybody = [*self.all_subscribers, *self.publishers, *self._fleeting]
        tasks = [asyncio.create_task(self._live(one)) for one in everybody]
        tasks.append(asyncio.create_task(self.trouble(seconds)))
        await self.crash(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.victim.running():
            for connection in list(self.connections):
                connection.abort()
        # Packets that the broker sent before it died count: clients read to the end of their connections.
        if self.connections:
            await asyncio.wait([one.lost for one in self.connections], timeout=self.patience)

    async def crash(self, seconds: float) -> None:
        """Kills the broker after so many seconds of traffic."""
        await asyncio.sleep(seconds)
        self.down = True
        self.victim.die()
        self.summary.kills += 1

    async def trouble(self, seconds: float) -> None:
        """Further faults during a round; none by default."""

    def forgives(self, client, error: OSError) -> bool:
        """Whether the broker may disconnect or refuse a client now, which then tries again."""
        return False

    async def _live(self, client) -> None:
        while True:
            try:
                return await client.live()
            except OSError as error:
                if self.down:
                    return
                if isinstance(error, TimeoutError) or not self.forgives(client, error):
                    return self.ledger.problem("violations", f"{client}: {error!r}")
            await asyncio.sleep(client.random.uniform(0, self.longest_pause))

    def recover(self) -> bool:
        """Starts the broker again, and returns whether it has started."""
        if self.random.random() < 0.1:
            self.victim.die_reviving(self.random)
            self.summary.kills += 1
        try:
            seconds = self.victim.revive()
        except RuntimeError as error:
            self.refused_to_start(error)
            return False
        self.summary.worst_start_seconds = round(max(self.summary.worst_start_seconds, seconds), 3)
        self.down = False
        return True

    def refused_to_start(self, error: RuntimeError) -> None:
        self.ledger.problem("refusals", str(error).strip().splitlines()[-1])

    def check_retained(self) -> None:
        """Checks that a new subscriber gets the retained messages that were acknowledged last, or newer ones."""
        for tenant in TENANTS:
            for address in self.addresses:
                for sentence in self.wrong_retained(tenant, address):
                    self.ledger.problem("retained", sentence)

    def wrong_retained(self, tenant: str, address: tuple[str, int]) -> list[str]:
        """Returns a sentence for each retained message that a new subscriber at a broker should not have got."""
        allowed = self.ledger.retained(tenant)
        client = wire.Client(address, timeout=self.patience)
        client.connect("", username=f"{tenant}/checker")
        client.subscribe("retained/#", qos=0)
        found: dict[str, bytes | str] = dict.fromkeys(allowed, ABSENT)
        missing = {topic for topic, values in allowed.items() if ABSENT not in values}
        try:
            while missing:
                packet = client.expect(wire.PUBLISH, timeout=self.patience)
                found[packet.topic] = packet.payload or ABSENT
                missing.discard(packet.topic)
            client.ping()
            while packet := client.expect(wire.PUBLISH, timeout=0.02):
                found[packet.topic] = packet.payload or ABSENT
        except TimeoutError:
            pass
        client.disconnect()
        sentences = []
        for topic, value in found.items():
            if value not in allowed.get(topic, ()):
                newest = sorted(str(one[:40]) for one in allowed.get(topic, ()))
                sentences.append(f"{tenant} {topic} is {value[:40]}, not one of {newest}")
        return sentences

    # -- coming to rest

    async def settle(self) -> None:
        """Lets all clients reconnect and send again; then all owed messages must arrive, and no others."""
        await asyncio.gather(*(one.come() for one in self.all_subscribers),
                             *(one.connect() for one in self.publishers if not one.online))
        seen, since = -1, time.monotonic()
        quiet = 0.0
        while not (self._at_rest() and quiet > 0.2) and quiet < self.patience:
            await asyncio.sleep(0.05)
            if self.ledger.progress != seen:
                seen, since = self.ledger.progress, time.monotonic()
            quiet = time.monotonic() - since
        for one in self.publishers:
            if not one.finished:
                self.ledger.problem("violations", f"{one} was not answered: {one.in_flight} {one.released}")
        self.ledger.settle(self.all_subscribers)

    def _at_rest(self) -> bool:
        return all(one.finished for one in self.publishers) and not any(self.ledger.owes(one) for one in self.all_subscribers)


def run(victim: Victim, rounds: int, seed: int) -> Summary:
    try:
        return asyncio.run(World(victim, seed).run(rounds))
    finally:
        victim.close()
