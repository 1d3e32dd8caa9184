"""Times to live: a key is there until it is due, and then gone without anybody asking."""

import statistics
import time

import pytest

from statestore_client import DELETE_TOLD, NOT_APPLIED, NOTHING, OK, array, now_ms, order, set_told

# How late an expiry may be, and what a busy machine may add to that before we see it.
LATE, BUSY = 0.100, 1.0


def test_expiry_is_told_in_time(store):
    """Not before it is due, and within 100 ms after; each is told once."""
    client, watcher = store(), store()
    due = {}
    for number in range(9):
        key = b"key%d" % number
        watcher.watch(key)
        time_to_live = 1000 + 90 * number
        begin = time.monotonic()
        version = client.set(key, b"x", "PX", time_to_live)
        due[key] = (begin + time_to_live / 1000, time.monotonic() + time_to_live / 1000, version)
        watcher.expect_told(key, set_told(b"x"), version)
    late = []
    for number in range(9):
        told = watcher.told()
        now = time.monotonic()
        earliest, latest, version = due.pop(told.key)
        assert told.payload == DELETE_TOLD
        assert order(told.version) >= order(version)
        assert now >= earliest - 0.002, f"{earliest - now:.3f} s early"
        late.append(now - latest)
    assert statistics.median(late) < LATE, late
    assert max(late) < LATE + BUSY, late
    assert client.scan("*") == [[]]
    watcher.expect_quiet()


def test_a_key_is_there_until_it_is_due(store):
    client = store()
    begin = time.monotonic()
    version = client.set(b"key", b"x", "PX", "400")
    answered = time.monotonic()
    while True:
        asked = time.monotonic()
        found = client.get(b"key")
        now = time.monotonic()
        if found is None:
            break
        assert found == (b"x", version)
        assert asked < answered + 0.400 + LATE + BUSY, "still there"
    assert now >= begin + 0.398, "gone too early"


def test_what_has_expired_is_absent(store):
    client = store()
    client.watch(b"key")
    for parts, expected in [(("SET", "key", "y", "NX"), OK), (("SET", "key", "y", "NEX"), OK), (("DEL", "key"), NOTHING),
                            (("VDEL", "key", "x"), NOTHING), (("SCAN", "*"), b"*1\r\n*0\r\n")]:
        version = client.set(b"key", b"x", "PX", "30")
        client.expect_told(b"key", set_told(b"x"), version)
        client.expect_told(b"key", DELETE_TOLD)
        assert client.ask(*parts).payload == expected
        if expected == OK:
            client.expect_told(b"key", set_told(b"y"))
            client.ask("DEL", "key")
            client.expect_told(b"key", DELETE_TOLD)
    client.expect_quiet()


@pytest.mark.parametrize("again", [
    ("SET", "key", "y"), ("SET", "key", "x", "NEX"), ("SET", "key", "y", "PX", "60000"), ("SET", "key", "x", "NEX", "PX", "60000"),
], ids=" ".join)
def test_a_set_replaces_the_time_to_live(store, again):
    """Without PX there is none any more."""
    client = store()
    client.set(b"key", b"x", "PX", "1000")
    assert client.ask(*again).payload == OK
    client.watch(b"key")
    client.expect_quiet(1.3)
    assert client.get(b"key")[0] == again[2].encode()


def test_a_renewal_restarts_the_time_to_live(store):
    """As a lease is kept: each time well before it is due, together much longer than it is."""
    client = store()
    client.watch(b"lock")
    versions = []
    begin = time.monotonic()
    while time.monotonic() < begin + 2.5:
        asked = time.monotonic()
        versions.append(client.set(b"lock", b"me", "NEX", "PX", "1500"))
        client.expect_told(b"lock", set_told(b"me"), versions[-1])
        time.sleep(0.2)
    assert [order(version) for version in versions] == sorted({order(version) for version in versions})
    client.expect_told(b"lock", DELETE_TOLD)
    assert time.monotonic() - asked >= 1.498


@pytest.mark.parametrize("other", [
    ("SET", "key", "y", "NX", "PX", "60000"), ("SET", "key", "y", "NEX"), ("SET", "key", "y", "NEX", "PX", "60000"),
    ("VDEL", "key", "y"), ("GET", "key"), ("KEYNOTIFY", "key"),
], ids=" ".join)
def test_what_is_not_applied_leaves_the_time_to_live(store, other):
    client = store()
    client.watch(b"key")
    asked = time.monotonic()
    version = client.set(b"key", b"x", "PX", "1000")
    client.expect_told(b"key", set_told(b"x"), version)
    assert client.ask(*other).payload in (NOT_APPLIED, OK, b"$1\r\nx\r\n")
    client.expect_told(b"key", DELETE_TOLD)
    assert time.monotonic() - asked < 1.000 + LATE + BUSY * 2


def test_a_deleted_key_does_not_expire(store):
    client = store()
    client.watch(b"key")
    client.set(b"key", b"x", "PX", "1000")
    client.told()
    client.ask("DEL", "key")
    client.expect_told(b"key", DELETE_TOLD)
    version = client.set(b"key", b"y")
    client.expect_told(b"key", set_told(b"y"), version)
    client.expect_quiet(1.3)
    assert client.get(b"key") == (b"y", version)


def test_many_keys_expire_at_once(store):
    client, watcher = store(), store()
    keys = [b"key %d" % number for number in range(1_000)]
    begin = now_ms()
    watched = [watcher.send(array("KEYNOTIFY", key)) for key in keys]
    assert {watcher.answer(one).payload for one in watched} == {OK}
    due = now_ms() + 4_000 + 4 * (now_ms() - begin)  # later where a thousand requests take longer
    sent = [client.send(array("SET", key, "x", "PX", max(1, due - now_ms()))) for key in keys]
    versions = dict(zip(keys, (client.answer(one).version for one in sent)))
    assert now_ms() < due, "this machine is too slow for this test"
    for _ in keys:
        assert watcher.told().payload == set_told(b"x")
    gone = []
    while len(gone) < len(keys):
        told = watcher.told()
        assert told.payload == DELETE_TOLD and order(told.version) >= order(versions[told.key])
        gone.append(told.key)
    assert due - 50 <= now_ms() < due + 5_000, "all of them soon: this client reads for some time"
    assert sorted(gone) == sorted(keys)
    watcher.expect_quiet()
    assert client.scan("*") == [[]]


def test_the_shortest_and_the_longest(store):
    client = store()
    client.watch(b"short")
    client.set(b"short", b"x", "PX", "1")
    client.told()
    client.expect_told(b"short", DELETE_TOLD)
    for longest in (2**31, 2**32, 2**53):
        client.set(b"long", b"x", "PX", longest)
        assert client.get(b"long")[0] == b"x"
    client.expect_quiet()
    assert client.get(b"long")[0] == b"x"
