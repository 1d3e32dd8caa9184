"""Tests the checks of notifications and of the clock: they accept correct histories, and find each kind of error."""

from __future__ import annotations

import pytest

from clock import check_clock
from history import DELETE, DELETED, NEVER, OK, SET, Answer, Operation, Sighting, Version, changes_of
from watching import Watch, check_watch, lateness

KEY = b"k"


def version(number: int) -> Version:
    return Version(1000, number)


def written(number: int, begin: float, ttl: float | None = None, client: str = "a") -> Operation:
    """Returns a SET with this version, answered half a second later."""
    return Operation(client, "SET", KEY, begin, b"v%d" % number, ttl, stamp=Version(999), answered=begin + 0.5,
                     answer=Answer(OK, None, version(number)))


def deleted(number: int, begin: float) -> Operation:
    return Operation("a", "DEL", KEY, begin, answered=begin + 0.5, answer=Answer(DELETED, None, version(number)))


WRITES = [written(1, 1), written(2, 2), deleted(3, 3), written(4, 4)]


def told(*numbers: int, at: float | None = None) -> list[Sighting]:
    return [Sighting(version(one), DELETE, None, at or one + 0.5) if one == 3 else
            Sighting(version(one), SET, b"v%d" % one, at or one + 0.5) for one in numbers]


def problems(numbers, operations=WRITES, registered=0.5, ended=NEVER, now=100.0) -> list[str]:
    watch = Watch("w", KEY, registered, ended, told(*numbers))
    return check_watch(watch, changes_of(operations, watch.told)[0], now, grace=0.1)


def test_a_watcher_is_told_of_everything():
    assert not problems([1, 2, 3, 4])
    assert not problems([], operations=[])


@pytest.mark.parametrize("numbers, word", [
    ([2, 3, 4], "never told of SET"), ([1, 2, 4], "never told of DELETE"), ([1, 2, 3], "never told of SET"), ([], "never told of SET"),
    ([1, 2, 2, 3, 4], "told twice"), ([1, 3, 2, 4], "after"),
])
def test_a_watcher_is_told_otherwise(numbers, word):
    assert word in problems(numbers)[0]


def test_what_was_done_at_the_time_of_keynotify_may_be_told():
    assert not problems([2, 3, 4], registered=1.2)
    assert not problems([1, 2, 3, 4], registered=1.2)
    assert not problems([4], registered=3.8)
    assert problems([4], registered=2.8)


def test_what_was_on_its_way_to_a_lost_connection_may_be_missing():
    assert not problems([1, 2], ended=3.1)
    assert not problems([], ended=3.1)
    assert "never told" in problems([1, 3], ended=3.1)[0]
    assert "never told" in problems([2, 3], ended=3.1)[0]


def test_an_expiry_that_is_never_told():
    last = [written(1, 1, ttl=2.0)]
    assert "expired" in problems([1], last)[0]
    assert not problems([1], last, now=3.0)
    assert not problems([1], last, registered=3.1), "it may have been over before"


def test_how_late_an_expiry_is_told():
    operations, sightings = [written(2, 1, ttl=2.0)], told(2, 3, at=3.8)
    watch = Watch("w", KEY, 0.5, told=sightings)
    (late, change), = lateness(watch, changes_of(operations, sightings)[0])
    assert late == pytest.approx(0.3)
    assert change.kind == DELETE


# -- the clock


def clock(*operations: Operation, floor: Version = version(0)) -> list[str]:
    return check_clock(list(operations), floor, 0.0)[0]


def test_versions_ascend():
    assert not clock(*WRITES)
    assert not clock(written(2, 1), written(1, 1.2, client="b"))
    assert check_clock(WRITES, version(0), 0.0)[1] == version(4)
    assert check_clock([], version(7), 0.0)[1] == version(7)


@pytest.mark.parametrize("operations, word", [
    ([written(2, 1), written(1, 2)], "given before"),
    ([written(2, 1), deleted(1, 2)], "given before"),
    ([written(1, 1), written(1, 1.2)], "one version for"),
    ([written(0, 1)], "given before"),
])
def test_versions_that_do_not(operations, word):
    assert word in clock(*operations)[0]


def test_a_version_is_above_the_timestamp_of_its_request():
    one = written(1, 1)
    one.stamp = version(1)
    assert "not above the timestamp" in clock(one)[0]


def test_a_version_is_not_far_ahead_of_the_time():
    one = written(1, 1)
    one.answer = Answer(OK, None, Version(61_500))
    assert not check_clock([one], version(0), 0.0)[0]
    one.answer = Answer(OK, None, Version(61_501))
    assert "future" in check_clock([one], version(0), 0.0)[0][0]


def test_a_deletion_may_have_the_version_of_what_it_deletes():
    assert not clock(written(1, 1), deleted(1, 2), written(2, 3))
