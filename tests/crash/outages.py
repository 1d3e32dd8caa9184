"""When brokers of a cluster were down, and what the cluster does not promise for these times.

All times are of the monotonic clock of this process. An outage begins right before the broker is killed. When the others have
seen the broker up again, they must pass messages on to its sessions. The outage ends when the broker is seen to take clients.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass

import xxhash

from ledger import Ending, Message, Promises, Will

Address = tuple[str, int]

LATE = 0.5
"""Seconds in which this process, on a busy machine, hears that a connection has ended, and in which a will that is due is
passed on."""


@dataclass
class Outage:
    begin: float
    killed: float
    """When it was killed last, or later."""
    up: float = math.inf
    end: float = math.inf


class Outages(Promises):
    """What a cluster promises of whose brokers one is killed at a time: everything, except for what
    docs/limits-of-this-release.md says. `slots` has the name of the broker with each slot.
    """

    def __init__(self, slots: list[str]):
        self.names: dict[Address, str] = {}
        """The broker that was reached at each address, which changes with each start."""
        self._slots = slots
        self._outages: dict[str, list[Outage]] = defaultdict(list)

    # -- reports

    def begin(self, broker: str, twice: bool) -> None:
        """A broker is about to be killed; and `twice` if it will be killed again at some moment of its next start."""
        now = time.monotonic()
        self._outages[broker].append(Outage(now, killed=math.inf if twice else now))

    def up(self, broker: str) -> None:
        self._outages[broker][-1].up = time.monotonic()

    def end(self, broker: str) -> None:
        last = self._outages[broker][-1]
        last.end = time.monotonic()
        last.up, last.killed = min(last.up, last.end), min(last.killed, last.end)

    # -- who was down

    def home(self, tenant: str, client_id: str) -> str:
        """Returns the broker that has the stored session of a client."""
        return self._slots[xxhash.xxh3_64_intdigest(f"{tenant}/{client_id}".encode()) % len(self._slots)]

    def _broker(self, client) -> str:
        """Returns the broker that has the present session of a client."""
        return self.home(client.tenant, client.name) if client.persistent else self.names[client.address]

    def was_down(self, broker: str, begin: float, end: float) -> bool:
        """Whether a broker was down at some moment of a time."""
        return any(one.begin <= end and begin <= one.end for one in self._outages[broker])

    def was_missed(self, broker: str, begin: float, end: float) -> bool:
        """Whether a broker was down at some moment of a time, or others had not seen that it was up."""
        return any(one.begin <= end and begin <= one.up for one in self._outages[broker])

    def was_killed(self, broker: str, begin: float, end: float) -> bool:
        """Whether a broker was killed at some moment of a time."""
        return any(one.begin <= end and begin <= one.killed for one in self._outages[broker])

    # -- what follows

    def may_miss(self, subscriber, message: Message) -> bool:
        """Messages for a broker that is down are given up, although their publisher is told that they have arrived. What its
        own sessions publish is not: it acknowledges that when it is up.
        """
        broker = self._broker(subscriber)
        if message.stored and self.home(*message.sender) == broker:
            return False
        if isinstance(message, Will):
            return self._may_die(message) or self.was_missed(broker, *self._publication(message))
        return self.was_missed(broker, message.sent_at, message.acknowledged_at)

    def may_repeat(self, subscriber, message: Message) -> bool:
        """If the broker of a publisher is killed before PUBREC, it does not remember the message when that is sent again, and
        other brokers do not know that it is the same one.
        """
        home, broker = self.home(*message.sender), self._broker(subscriber)
        if home == broker:
            return False
        return self.was_killed(home, message.sent_at, message.acknowledged_at)

    def may_rise(self, ending: Ending) -> bool:
        """A session is not ended by a Clean Start over another broker while its own is down."""
        home = self.home(ending.client.tenant, ending.client.name)
        return self.was_down(home, ending.begin, ending.end)

    def explain(self, client) -> bool:
        """Whether a client loses its connection, or is refused, because the broker that it has reached, or that with its session,
        is down, or was a moment ago.
        """
        now = time.monotonic()
        return any(self.was_down(broker, now - LATE, now) for broker in (self.names[client.address], self._broker(client)))

    # -- wills

    def _publication(self, will: Will) -> tuple[float, float]:
        """Returns the time in which a will is passed on: after its delay, and if its broker is down then, when that is back."""
        begin = will.ended_at + will.delay - LATE
        end = will.ended_at + will.delay + LATE
        broker = self.home(*will.sender) if will.stored else self.names[will.address]
        for outage in self._outages[broker]:
            if outage.begin <= end and will.ended_at - LATE <= outage.end:
                end = max(end, outage.end + will.delay + LATE)
        return begin, end

    def _may_die(self, will: Will) -> bool:
        """Other brokers keep the will of a session that ends with its connection from a moment after CONNACK on."""
        return not will.stored and self.was_killed(self.names[will.address], will.sent_at, will.acknowledged_at + LATE)
