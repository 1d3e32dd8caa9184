"""Runs rounds of requests, faults and recovery, and checks the collected history."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import world
from checker import GRACE, check
from clock import check_clock
from history import History, Operation, Version
from reopening import Reopening
from requester import Requester
from victim import Unharmed, Victim
from watcher import Watcher
from watching import check_watch, lateness
from workload import MIXES

MEMORY = '[[durability]]\nkeys = "*"\nclass = "memory"\n'
"""Addition to a configuration: keys are not stored."""
SERVER_BUSY, QUOTA_EXCEEDED = 0x89, 0x97
TOLD_LATE = GRACE + 0.9
"""Seconds after its due time within which watchers must be told of an expiry; includes time for a busy machine."""
EXPIRES_AT_REST = 0.3
"""Seconds in which most values that expire do so, if nobody replaces them."""


class Contest(world.World):
    """Sends requests for a few keys in two tenants to `victim`, in rounds.

    At the end of a round the victim dies in its own way and starts again; an `Unharmed` one keeps running. With `cuts`,
    connections break at any moment. Without `keeps` (the victim loses keys and answers when it dies), only the clock is
    checked.
    """

    def __init__(self, victim: Victim, seed: int, settle_every: int = 4, cuts: bool = True, keeps: bool = True,
                 dump: Path | None = None):
        self.history = History()
        self.resting = False
        """Whether clients must finish what they are doing and send no more requests."""
        self.cuts, self.keeps, self.dump = cuts, keeps, dump
        self.reopening: Reopening | None = None
        """Closes and opens shards during the rounds, if set."""
        self.told_late = TOLD_LATE
        """What counts as late in this run: longer if links between brokers fail."""
        self._floor = dict.fromkeys(world.TENANTS, Version(0))
        self._worst_expiry = 0.0
        super().__init__(victim, seed, settle_every)
        self._fleeting = []
        self.auditors = [Requester(self, tenant, "auditor") for tenant in world.TENANTS]

    def _populate_publishers(self, tenant: str) -> list[Requester]:
        clients = [
            Requester(self, tenant, "plain", window=1),
            Requester(self, tenant, "eager", window=8),
            Requester(self, tenant, "slow", skew=-3600),
            Requester(self, tenant, "fleeting", persistent=False),
        ]
        if tenant == world.TENANTS[0]:  # no client affects the clock of the other tenant
            clients.append(Requester(self, tenant, "fast", skew=20))
            clients += [Requester(self, tenant, f"client{number}") for number in range(5)]
        return clients

    def _populate_subscribers(self, tenant: str) -> list[Watcher]:
        return [
            Watcher(self, tenant, "steady"),
            Watcher(self, tenant, "restless", "restless" if self.cuts else "stays", subscribes=False),
        ]

    # -- the run

    async def run(self, rounds: int) -> world.Summary:
        begin = time.monotonic()
        await asyncio.gather(*(one.come() for one in self._everybody))
        for number in range(1, rounds + 1):
            await self.traffic(self.random.uniform(0.3, 1.2))
            self.summary.rounds = number
            if not self.recover():
                break
            if number % self.settle_every == 0 or number == rounds:
                await self.settle()
        self.summary.seconds = round(time.monotonic() - begin, 1)
        self.summary.counts = dict(self.ledger.counts) | {"worst expiry ms": round(self._worst_expiry * 1000)}
        self.summary.problems = self.ledger.problems
        return self.summary

    @property
    def breaks(self) -> bool:
        """Whether brokers may end connections, or not answer."""
        return self.down or self.reopening is not None

    strays = False
    """Whether a request without an answer may be carried out after later ones of its client."""

    @property
    def refuses(self) -> bool:
        """Whether brokers may refuse requests that they have not carried out."""
        return self.reopening is not None

    @property
    def _everybody(self) -> list[Requester]:
        return [*self.all_subscribers, *self.publishers, *self.auditors]

    async def traffic(self, seconds: float) -> None:
        if self.reopening:
            self.reopening.begin()
        try:
            await self._traffic(seconds)
        finally:
            if self.reopening:
                await asyncio.to_thread(self.reopening.rest)

    async def _traffic(self, seconds: float) -> None:
        if not isinstance(self.victim, Unharmed):
            return await super().traffic(seconds)
        tasks = [asyncio.create_task(self._live(one)) for one in [*self.all_subscribers, *self.publishers]]
        tasks.append(asyncio.create_task(self.trouble(seconds)))
        await asyncio.sleep(seconds)
        self.resting = True
        await asyncio.gather(*tasks)
        self.resting = False

    async def _live(self, client: Requester) -> None:
        while not self.down and not self.resting:
            try:
                await client.live()
            except TimeoutError as error:
                if not self.breaks:
                    self.ledger.problem("violations", f"{client} was not answered in time: {error!r}")
                    return
                client.abort()
            except OSError:
                await asyncio.sleep(client.random.uniform(0, 0.03))

    async def trouble(self, seconds: float) -> None:
        """Breaks connections. Some clients stop reading for a while before, so that requests are executed but their
        answers are lost."""
        while self.cuts and not self.resting:
            await asyncio.sleep(self.random.uniform(0, 0.1))
            client = self.random.choice(self.publishers)
            if client.greeted:  # a connection that breaks before CONNACK may take over the session from the next one
                connection = client.connection
                client.is_cut = True
                try:
                    if self.random.random() < 0.7:
                        connection.transport.pause_reading()
                        await asyncio.sleep(self.random.uniform(0, 0.03))
                finally:
                    connection.abort()
                self.ledger.counts["cuts"] += 1

    # -- coming to rest

    async def settle(self) -> None:
        """Waits for all answers, reads back and deletes all keys, and checks the history."""
        await asyncio.gather(*(one.come() for one in self._everybody))
        await self._rest()
        for one in self.publishers:
            for lost in one.forget():
                self._unanswered(one, lost.operation)
        # Nobody replaces a value that expires now, so in every run some do, and watchers are told.
        await asyncio.sleep(EXPIRES_AT_REST)
        for auditor in self.auditors:
            for verb in ("GET", "DEL", "GET"):
                await asyncio.gather(*(auditor.ask(self._audit(verb, key)) for key in MIXES))
        await asyncio.sleep(0.2)
        await asyncio.gather(*(one.ping() for one in self.all_subscribers))
        self._check(time.monotonic())
        self.history = History()
        for watcher in self.all_subscribers:
            watcher.ended.clear()
            for watch in watcher.active.values():
                watch.told.clear()

    def _unanswered(self, client: Requester, operation: Operation) -> None:
        if isinstance(self.victim, Unharmed):
            self.ledger.problem("unanswered", f"{client} has PUBACK but no answer: {operation}")
        else:  # answers are not stored: those in flight when the broker died are lost
            self.ledger.counts["answers lost"] += 1

    @staticmethod
    def _audit(verb: str, key: bytes) -> Operation:
        """Returns a request of the auditor. A DEL has a token that is greater than all others and that the broker accepts."""
        fence = Version(int(time.time() * 1000) + 50_000, 0, "auditor") if verb == "DEL" else None
        return Operation("auditor", verb, key, 0.0, fence=fence)

    async def _rest(self) -> None:
        seen, since = -1, time.monotonic()
        while not all(one.finished for one in self._everybody) and time.monotonic() - since < self.patience:
            await asyncio.sleep(0.05)
            if self.ledger.progress != seen:
                seen, since = self.ledger.progress, time.monotonic()

    def _check(self, now: float) -> None:
        for tenant in world.TENANTS:
            mine = [one for (owner, _), operations in self.history.operations.items() if owner == tenant for one in operations]
            problems, floor = check_clock(mine, self._floor[tenant], time.time() - time.monotonic())
            for sentence in problems:
                self.ledger.problem("versions", f"{tenant}: {sentence}")
            for key in MIXES if self.keeps else ():
                self._check_key(tenant, key, now)
            self._floor[tenant] = floor

    def _check_key(self, tenant: str, key: bytes, now: float) -> None:
        operations, sightings = self.history.operations[tenant, key], self.history.sightings[tenant, key]
        verdict = check(operations, sightings, self._floor[tenant], strays=self.strays)
        counts, before = self.ledger.counts, len(self.ledger.problems)
        counts["operations"] += len(operations)
        counts["changes"] += len(verdict.changes)
        counts["never answered"] += sum(one.answer is None for one in operations)
        counts["steps"] += verdict.steps
        for sentence in verdict.problems:
            self.ledger.problem("linearizability", f"{tenant} {key.decode()}: {sentence}")
        for watcher in self.subscribers(tenant):
            for watch in [*watcher.ended, *watcher.active.values()]:
                if watch.key == key:
                    for sentence in check_watch(watch, verdict.changes, now, self.told_late):
                        self.ledger.problem("notifications", sentence)
                    for late, change in lateness(watch, verdict.changes):
                        counts["expiries"] += 1
                        self._worst_expiry = max(self._worst_expiry, late)
                        if late > self.told_late:
                            self.ledger.problem("late", f"{watch}: told {late * 1000:.0f} ms late of {change}")
        if self.dump and len(self.ledger.problems) > before:
            lines = sorted([(one.invoked, str(one)) for one in operations] + [(one.seen, f"  {one}") for one in sightings])
            path = self.dump / f"{self.seed}-{self.summary.rounds}-{tenant}-{key.decode()}.txt"
            path.write_text("".join(f"{line}\n" for _, line in lines))


def run(victim: Victim, rounds: int, seed: int, reopens: bool = False, **options) -> world.Summary:
    contest = Contest(victim, seed, **options)
    if not reopens:
        try:
            return asyncio.run(contest.run(rounds))
        finally:
            victim.close()
    contest.farewells = (SERVER_BUSY, QUOTA_EXCEEDED)
    contest.reopening = reopening = Reopening(victim, seed)
    try:
        summary = asyncio.run(contest.run(rounds))
    finally:
        reopening.end()
        victim.close()
    summary.problems += reopening.problems
    summary.counts["reopened"] = sum(reopening.times.values())
    return summary
