"""Checks the versions of a tenant: one clock serves all its keys, and never goes back, not even over a crash."""

from __future__ import annotations

import heapq

from history import OK, Operation, Version

MOST_DRIFT = 60_000
"""Maximum time by which a version may be ahead of the wall clock, in milliseconds."""


def check_clock(operations: list[Operation], floor: Version, wall_offset: float) -> tuple[list[str], Version]:
    """Returns the problems of the versions that were assigned to `operations`, all of one tenant, and the greatest version.

    `floor` is a version that was assigned before. `wall_offset` is the difference between seconds since 1970 and the
    monotonic clock.
    """
    problems: list[str] = []
    givers: dict[Version, Operation] = {}
    values = {one.answer.version for one in operations if one.answer and one.answer.says == OK}
    # A deletion has a version of its own, or that of the value that it deleted.
    given = [one for one in operations
             if one.answer and one.answer.version and (one.change and (one.answer.says == OK or one.answer.version not in values))]
    waiting: list[tuple[float, Version]] = []
    for one in sorted(given, key=lambda one: one.invoked):
        version = one.answer.version
        while waiting and waiting[0][0] < one.invoked:
            floor = max(floor, heapq.heappop(waiting)[1])
        if version <= floor:
            problems.append(f"{floor} had been given before: {one}")
        if one.answer.says == OK and one.stamp and version <= one.stamp:
            problems.append(f"not above the timestamp of the request, {one.stamp}: {one}")
        if version.wall > (one.answered + wall_offset) * 1000 + MOST_DRIFT:
            problems.append(f"too far in the future: {one}")
        if other := givers.get(version):
            problems.append(f"one version for {one} and {other}")
        givers[version] = one
        heapq.heappush(waiting, (one.answered, version))
    return problems, max([floor, *givers])
