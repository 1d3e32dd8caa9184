"""Closes and opens shards under traffic, and kills the broker meanwhile. `run.py --fault shards` runs the same for any number
of rounds.
"""

from reopened import run


def test_nothing_is_lost_when_shards_are_closed_and_opened(seed):
    summary = run(8, seed)
    print(summary.line())
    assert summary.counts["deliveries"] > 1000
    assert summary.counts["reopened least"] > 10
    assert not summary.problems, "\n".join(summary.problems[:20])
