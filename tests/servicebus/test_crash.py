"""`kill -9` under load: what was accepted is there, what was settled stays settled, order and states hold, numbers are never used again."""

import os
import random

import pytest

from crash_load import World, line


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    print(f"CRASH_SEED={chosen}")
    return chosen


def check(ledger) -> None:
    print(line(ledger))
    assert not ledger.problems, "\n".join(ledger.problems[:20])
    assert ledger.counts["accepted"] > 500 and ledger.counts["completed"] > 300
    assert ledger.counts["deferred"] > 5 and ledger.counts["dead"] > 5


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=1_000_000)
def test_the_ledger_is_right_without_a_crash(own_broker, path, seed):
    """The control."""
    check(World(own_broker(), path(), seed, kills=False).run(4))


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=1_000_000)
def test_nothing_is_lost_when_the_broker_is_killed(own_broker, path, seed):
    check(World(own_broker(), path(), seed).run(int(os.environ.get("CRASH_ROUNDS", 6))))
