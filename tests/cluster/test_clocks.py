"""Brokers whose wall clocks disagree form a cluster all the same, and tell operators."""

from __future__ import annotations

import re

from broker import until
from brokers import Member

AHEAD = 5_000
"""How far the wall clock of b2 is ahead of those of the others, in milliseconds."""
TOLERANCE = 400
"""In milliseconds: while a heartbeat is under way, its sender's clock seems to be behind."""


class Clocked(Member):
    """A broker whose wall clock is ahead if it is b2. Its monotonic clock is the system's."""

    def prefix(self) -> list:
        # The library and not the program `faketime`, which passes no signals on.
        library = "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1"
        return ["env", library, "FAKETIME_DONT_FAKE_MONOTONIC=1", f"FAKETIME=+{AHEAD / 1000}"] if self.name == "b2" else []

    def finds(self, ahead: dict[str, int]) -> bool:
        """Whether it finds that the clocks of the other brokers are so far ahead: in each place where it tells of them."""
        status = self.command("status")
        warned = re.findall(r"the clock of (\w+) is (\d+) ms (ahead|behind)$", status.stdout, re.MULTILINE)
        logged = re.findall(r'the clock of a broker of the cluster is not that of this one: .* broker="(\w+)" ahead_ms=(-?\d+)', self.stderr)
        places = [
            {member["name"]: member["clock_ahead"] for member in self.cluster["members"]},
            {name: self.metric(f'^barid_cluster_clock_ahead_milliseconds{{member="{name}"}}') for name in ahead},
            dict.fromkeys(ahead, 0) | {name: int(millis) * (1 if where == "ahead" else -1) for name, millis, where in warned},
            dict.fromkeys(ahead, 0) | {name: int(millis) for name, millis in logged},
        ]
        return status.returncode == 1 and all(
            place.keys() == ahead.keys() and all(abs(place[name] - ahead[name]) < TOLERANCE for name in ahead) for place in places)


def test_a_clock_that_is_ahead_is_seen(cluster_of):
    cluster = cluster_of(3, member=Clocked)
    until(lambda: cluster[0].finds({"b2": AHEAD, "b3": 0}))
    until(lambda: cluster[1].finds({"b1": -AHEAD, "b3": -AHEAD}))
    until(lambda: cluster[2].finds({"b1": 0, "b2": AHEAD}))
    cluster.settles()
