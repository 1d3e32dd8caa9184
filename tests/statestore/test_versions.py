"""Versions: a hybrid logical clock for each tenant, which never goes back and never runs far ahead."""

import re
import time

import pytest

from statestore_client import (
    DELETED, DRIFT, MALFORMED_TIMESTAMP, NOT_APPLIED, OK, TIMESTAMP_IN_FUTURE, array, error, now_ms, order, stamp, value,
)

MALFORMED = [
    "", ":", "::", "1", "1:2", "1:2:3:4", "a:0:n", "1:b:n", ":0:n", "1::n", "-1:0:n", "+1:0:n", "1:-1:n", "1:+1:n",
    " 1:0:n", "1:0 :n", "1.5:0:n", "0x1:0:n", "1e3:0:n", "1_000:0:n", "١:0:n", "1;0;n", "1:0:", f"{2**63}:0:n", f"{2**64}:0:n",
    "9" * 60 + ":0:n", f"1:{2**32}:n", f"1:{2**64}:n", "1:" + "9" * 60 + ":n",
]


@pytest.mark.parametrize("timestamp", MALFORMED, ids=repr)
def test_malformed_timestamps(store, timestamp):
    client = store()
    assert client.ask("SET", "key", "x", timestamp=timestamp).payload == error(MALFORMED_TIMESTAMP)
    assert client.get(b"key") is None


@pytest.mark.parametrize("form", [
    "{0}:0:CLIENT", "{0:015}:00000:CLIENT", "{0:020}:0000000000:n", "{0}:7:ä β", "{0}:4294967295:n", "{0}:0:StateStore",
    "0:0:n", "000000000000000:00000:n", "1:0:" + "n" * 1_000,
])
def test_forms_of_timestamps(store, form):
    """Padded or not; the answer is padded, greater, and the store's."""
    client = store()
    timestamp = form.format(now_ms())
    version = client.set(b"key", b"x", timestamp=timestamp)
    assert re.fullmatch(r"\d{15}:\d{5}:StateStore", version)
    wall, counter, _ = timestamp.split(":", 2)
    assert order(version) > (int(wall), int(counter))


def test_a_version_is_that_of_its_value(store):
    client, other = store(), store()
    version = client.set(b"key", b"x")
    for _ in range(3):
        assert client.get(b"key") == other.get(b"key") == (b"x", version)
    for options in (("NX",), ("NEX",)):
        refused = other.ask("SET", "key", "y", *options)
        assert (refused.payload, refused.version) == (NOT_APPLIED, version)
    assert other.ask("VDEL", "key", "y").payload == NOT_APPLIED
    other.set(b"other", b"y")
    assert client.get(b"key") == (b"x", version)
    again = client.set(b"key", b"x", "NEX")
    assert order(again) > order(version)
    assert other.get(b"key") == (b"x", again)


def test_a_deletion_is_not_older_than_what_it_deletes(store):
    client = store()
    for parts in (("DEL", "key"), ("VDEL", "key", "x")):
        version = client.set(b"key", b"x")
        deleted = client.ask(*parts)
        assert deleted.payload == DELETED
        if deleted.version is not None:
            assert order(deleted.version) >= order(version)
        assert order(client.set(b"key", b"x")) > max(order(version), order(deleted.version or version))


def test_versions_rise_over_all_keys_and_clients(store):
    clients, sent = [store() for _ in range(3)], []
    for number in range(200):
        for client in clients:
            sent.append((client, client.send(array("SET", f"key{number % 7}", number))))
    versions = [order(client.answer(one).version) for client, one in sent]
    assert len(set(versions)) == len(versions), "no version is given twice"
    for at in range(3):
        own = versions[at::3]
        assert own == sorted(own), "in the order of each client's requests"


def test_the_receive_rule(store):
    """With request clocks ahead of the store's, so that its own does not interfere."""
    client, ahead = store(), now_ms() + 30_000

    def version(wall: int, counter: int, node: str = "n") -> tuple[int, int]:
        return order(client.set(b"key", b"x", timestamp=f"{wall}:{counter}:{node}"))

    assert version(ahead, 7) == (ahead, 8), "the request's clock is the latest"
    assert version(ahead, 3) == (ahead, 9), "both are: the greater counter"
    assert version(ahead, 100) == (ahead, 101)
    assert version(ahead - 1, 5_000) == (ahead, 102), "the store's is"
    assert version(0, 0) == (ahead, 103)
    assert version(ahead, 103, "StateStore") == (ahead, 104)
    assert version(ahead + 1, 0) == (ahead + 1, 1)
    assert version(ahead, 0) == (ahead + 1, 2)
    assert version(ahead + 1, 99_999) == (ahead + 1, 100_000), "counters may have more digits than their padding"


def test_a_slow_clock_gets_the_local_one(store):
    client = store()
    begin = now_ms()
    wall, counter = order(client.set(b"key", b"x", timestamp="1696374425000:0:CLIENT"))
    assert begin <= wall <= now_ms() and counter == 0


def test_requests_without_effect_on_the_clock(store):
    """What is refused, and what does not set, leaves it alone; the local clock goes on."""
    client = store()
    far = stamp(now_ms() + DRIFT + 3_600_000)
    assert client.ask("SET", "key", "x", timestamp=far).payload == error(TIMESTAMP_IN_FUTURE)
    client.ask("GET", "key", timestamp=far)
    client.ask("KEYNOTIFY", "key", timestamp=far)
    wall, _ = order(client.set(b"key", b"x"))
    assert wall <= now_ms()


@pytest.mark.parametrize("ahead", [DRIFT + 5_000, 3_600_000, 10 * 365 * 24 * 3_600_000])
def test_a_clock_too_far_ahead(store, ahead):
    client = store()
    version = client.set(b"key", b"kept")
    for options in ((), ("NX",), ("NEX",), ("PX", "1000")):
        refused = client.ask("SET", "key", "x", *options, timestamp=stamp(now_ms() + ahead))
        assert refused.payload == error(TIMESTAMP_IN_FUTURE)
    assert client.ask("SET", "key", "x", timestamp=f"{2**63 - 1}:0:n").payload == error(TIMESTAMP_IN_FUTURE)
    assert client.get(b"key") == (b"kept", version)


def test_the_minute_is_exact(store):
    """60,000 ms ahead is allowed, more is not."""
    client = store()
    ahead = now_ms() + DRIFT
    wall, _ = order(client.set(b"key", b"x", timestamp=stamp(ahead)))
    assert wall >= ahead
    margin = 20
    for _ in range(200):
        begin = now_ms()
        answer = client.ask("SET", "key", "y", timestamp=stamp(begin + DRIFT + margin)).payload
        if now_ms() < begin + margin:
            assert answer == error(TIMESTAMP_IN_FUTURE)
            return
        # The answer took so long that the request may have been in time.
        margin = min(margin * 2, 500)
    pytest.fail("no request was answered within half a second")


def test_the_store_is_never_far_ahead(store):
    """SDKs refuse a version that is more than a minute ahead of their clock, so also counters must not push the clock on."""
    client = store()
    limit = now_ms() + DRIFT
    for number in range(500):
        wall, counter = order(client.set(b"key", b"x", timestamp=f"{limit}:{4_294_967_295 - number % 2}:n"))
        assert wall <= limit + number + 2 and counter < 2**31 - 1


def test_counters_have_a_carry(store):
    client, ahead = store(), now_ms() + 30_000
    before = (0, 0)
    for counter in (2**31 - 3, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1, 0):
        version = order(client.set(b"key", b"x", timestamp=f"{ahead}:{counter}:n"))
        assert version > before and version > (ahead, counter) and version[0] <= ahead + 5
        before = version


def test_each_tenant_has_its_own_clock(store, tenant):
    fast, slow = store(), store(tenant="other-of-" + tenant)
    fast.set(b"key", b"x", timestamp=stamp(now_ms() + 50_000))
    wall, _ = order(slow.set(b"key", b"x"))
    assert wall <= now_ms(), "another tenant's fast clock does not count"
    other_key, _ = order(fast.set(b"other", b"x"))
    assert other_key > now_ms() + 40_000, "one clock for all keys of a tenant"


def test_a_lock_taken_with_a_slow_clock(store):
    """Its token is greater than that of the holder before, who was fast: else the new holder would be fenced off."""
    fast, slow = store(), store()
    first = fast.set(b"lock", b"fast", "NEX", timestamp=stamp(now_ms() + 50_000))
    assert fast.ask("SET", "key", "1", token=first).payload == OK
    assert fast.ask("VDEL", "lock", "fast").payload == DELETED
    second = slow.set(b"lock", b"slow", "NEX", timestamp=stamp(now_ms() - 50_000))
    assert order(second) > order(first)
    assert slow.ask("SET", "key", "2", token=second).payload == OK
    assert slow.ask("GET", "key").payload == value(b"2")


def test_the_clock_outlives_the_last_client(store):
    """Of a tenant without clients and keys nothing may be left but its clock."""
    client = store()
    highest = client.set(b"key", b"x", timestamp=stamp(now_ms() + 50_000))
    assert client.ask("DEL", "key").payload == DELETED
    client.client.disconnect()
    time.sleep(1.5)
    assert order(store().set(b"key", b"x")) > order(highest)
