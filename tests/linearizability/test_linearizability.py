"""Clients contend for a few keys of the real broker. `run.py` runs the same for any number of rounds."""

import pytest

import divided
from contest import MEMORY, run
from networks import is_possible
from victim import CONFIG, Brokers, MortalBrokers, Unharmed, Victim


def test_without_faults(seed):
    check(run(Unharmed(), 4, seed, cuts=False))


def test_connections_break(seed):
    """Requests without PUBACK are sent again, with DUP: none may be carried out twice."""
    summary = check(run(Unharmed(), 6, seed))
    assert summary.counts["resent"] > 10
    assert summary.counts["answers again"] > 0


def test_the_broker_is_killed(seed):
    summary = check(run(Victim(), 6, seed, settle_every=3))
    assert summary.kills >= 6
    assert summary.counts["resent"] > 10


def test_shards_are_closed_and_opened(seed):
    """The broker is also killed meanwhile."""
    summary = check(run(Victim(CONFIG + "[storage]\nshards = 4\n"), 6, seed, settle_every=2, reopens=True))
    assert summary.counts["reopened"] > 50
    assert summary.counts["refused"] > 10


def test_over_three_brokers(seed):
    """Each connection is to one of them, and breaks. One has the keys of a tenant."""
    summary = check(run(Brokers(), 6, seed))
    assert summary.counts["resent"] > 10
    assert summary.counts["answers again"] > 0


def test_brokers_are_killed(seed):
    """One of three at a time: that with the keys, that with the session of a client, or another one."""
    summary = check(run(MortalBrokers(), 6, seed, settle_every=3))
    assert summary.kills >= 6


@pytest.mark.skipif(not is_possible(), reason="needs the right to make network namespaces")
def test_brokers_lose_each_other(seed):
    """They are cut off from each other, slow, stopped or killed."""
    check(divided.run(6, seed, lasts=(0.5, 1.2)))


@pytest.mark.skipif(not is_possible(), reason="needs the right to make network namespaces")
def test_the_state_stores_move(seed):
    """From broker to broker, while clients go on."""
    check(divided.run(6, seed, divided.Moved))


def test_class_memory(seed):
    check(run(Unharmed(CONFIG + MEMORY), 4, seed))


def test_versions_of_class_memory_outlive_the_broker(seed):
    """The keys do not outlive it. But a version may be the fencing token of another resource, so it must not be assigned again."""
    summary = run(Victim(CONFIG + MEMORY), 4, seed, keeps=False)
    assert not summary.problems, "\n".join(summary.problems[:20])
    assert summary.kills >= 4


def check(summary):
    print(summary.line())
    assert not summary.problems, "\n".join(summary.problems[:20])
    assert summary.counts["operations"] > 500
    assert summary.counts["changes"] > 100
    assert summary.counts["notifications"] > 100
    assert summary.counts["expiries"] > 5
    return summary
