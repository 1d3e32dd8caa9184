"""A broker that is killed, and started again on the same data directory."""

from __future__ import annotations

import random
import time

from broker import Broker
from brokers import AnyBroker, Member

# The limits are so high that no owed message is dropped.
CONFIG = """
[limits]
max_queued_messages = 10000000
max_queued_bytes = 4000000000
"""


class Victim(Broker):
    """`barid serve` with limits that are never reached."""

    def __init__(self, config: str = CONFIG):
        self._moments_to_live: float | None = None
        super().__init__(config)

    @property
    def data(self):
        return self.directory / "data"

    def die(self) -> None:
        self.kill9()

    def revive(self) -> float:
        """Starts it again; returns the seconds until it is healthy."""
        begin = time.monotonic()
        self.start()
        return time.monotonic() - begin

    def die_reviving(self, chance: random.Random) -> None:
        """Arranges that the first attempt of the next start is killed in the middle of its recovery."""
        self._moments_to_live = chance.uniform(0, 0.1)

    def _becomes_healthy(self, seconds: float = 30.0) -> bool:
        if self._moments_to_live is not None:
            time.sleep(self._moments_to_live)
            self._moments_to_live = None
            return False
        return super()._becomes_healthy(seconds)


class Unharmed(Victim):
    """A broker that is never killed: only the network fails. A problem that also occurs here is not caused by a crash."""

    def die(self) -> None:
        pass

    def revive(self) -> float:
        return 0.0

    def die_reviving(self, chance: random.Random) -> None:
        pass


class Brokers(AnyBroker, Unharmed):
    """Three brokers of a cluster, none of which is killed. Each connection is to one of them, chosen at random."""

    def __init__(self, config: str = CONFIG, member: type[Member] = Member):
        AnyBroker.__init__(self, 3, config, member=member)

    def running(self) -> bool:
        return all(member.running() for member in self.cluster)

    def close(self) -> None:
        self.end()


class MortalMember(Member, Victim):
    """A broker of a cluster that is killed."""

    def die_reviving(self, chance: random.Random) -> None:
        self._moments_to_live = chance.uniform(0, 0.7)  # also while it joins


class MortalBrokers(AnyBroker, Victim):
    """Three brokers of a cluster, one of which is killed at a time."""

    def __init__(self, config: str = CONFIG):
        AnyBroker.__init__(self, 3, config)

    def running(self) -> bool:
        return any(member.running() for member in self.cluster)

    def die(self) -> None:
        self._dead = random.choice(self.cluster.members)
        self._dead.kill9()

    def revive(self) -> float:
        begin = time.monotonic()
        self._dead.start()
        self.cluster.settles()
        return time.monotonic() - begin

    def die_reviving(self, chance: random.Random) -> None:
        pass

    def close(self) -> None:
        self.end()
