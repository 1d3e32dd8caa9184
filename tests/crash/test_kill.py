"""Runs a few rounds of traffic and `kill -9`. `run.py` runs hundreds of them."""

import pytest

import members
from victim import Brokers, Unharmed, Victim
from world import run


@pytest.mark.parametrize("victim", [Unharmed, Brokers], ids=["one", "three"])
def test_nothing_is_lost_when_the_network_fails(seed, victim):
    """The control: without a crash the same traffic must show no problems, over one broker and over three."""
    check(run(victim(), 4, seed))


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(seed):
    check(run(Victim(), 8, seed))


def test_nothing_acknowledged_is_lost_when_one_of_three_brokers_is_killed(seed):
    """Clients go on with the others meanwhile. What need not arrive is the smaller part."""
    summary = members.run(8, seed)
    check(summary)
    assert summary.counts["missed"] <= summary.counts["excusable"] < summary.counts["deliveries"] / 4


def check(summary) -> None:
    print(summary.line())
    assert summary.counts["deliveries"] > 1000
    assert not summary.problems, "\n".join(summary.problems[:20])
