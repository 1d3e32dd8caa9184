"""The versions of a tenant: one clock for all its keys, which never goes back, not over a crash either."""

from __future__ import annotations

import heapq

from history import OK, Operation, Version

MOST_DRIFT = 60_000
"""Milliseconds that a version may be ahead of the time."""


def check_clock(operations: list[Operation], floor: Version, wall_offset: float) -> tuple[list[str], Version]:
    """What is wrong with the versions that `operations` were given, all of one tenant, and the greatest of them.

    `floor` was given before. `wall_offset` leads from the monotonic clock to seconds since 1970.
    """
    problems: list[str] = []
    givers: dict[Version, Operation] = {}
    values = {one.answer.version for one in operations if one.answer and one.answer.says == OK}
    # A deletion has a version of its own, or that of what it deleted.
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
