"""What was answered is true, also after the broker was killed."""

import time

import pytest

from statestore_client import (
    DELETE_TOLD, DELETED, NOT_APPLIED, NOTHING, OK, TOKEN_REQUIRED, TOKEN_TOO_OLD, array, error, now_ms, order, set_told, stamp,
)


@pytest.fixture
def running(broker_with):
    return broker_with("")


@pytest.fixture(params=["stopped", "killed"])
def restart(request, running):
    """Ends the broker and starts it again with its data."""
    def again() -> None:
        running.stop() if request.param == "stopped" else running.kill9()
        running.start()

    return again


def test_values_versions_and_deletions(running, restart, store):
    client = store(to=running)
    kept, keys = {}, [b"key %d" % number for number in range(500)]
    sent = [client.send(array("SET", key, b"value of " + key)) for key in keys]
    for key, one in zip(keys, sent):
        kept[key] = (b"value of " + key, client.answer(one).version)
    for key in keys[::3]:
        assert client.ask("DEL", key).payload == DELETED
        del kept[key]
    for key in keys[1::3]:
        kept[key] = (b"other", client.set(key, b"other"))
    highest = max(order(version) for _, version in kept.values())

    restart()
    client = store(to=running)
    for key in keys:
        assert client.get(key) == kept.get(key)
    assert sorted(key for page in client.scan("*") for key in page) == sorted(kept)
    assert order(client.set(b"key 0", b"new")) > highest


def test_each_answer_alone(running, restart, store):
    """The last thing that was answered, whatever it was."""
    for parts, expected, found in [
        (("SET", "key", "a", "NX"), OK, b"a"), (("SET", "key", "a", "NEX"), OK, b"a"), (("SET", "key", "b"), OK, b"b"),
        (("VDEL", "key", "b"), DELETED, None), (("SET", "key", ""), OK, b""), (("DEL", "key"), DELETED, None),
    ]:
        answer = store(to=running).ask(*parts)
        assert answer.payload == expected
        restart()
        read = store(to=running).get(b"key")
        assert read == (None if found is None else (found, answer.version)), parts


def test_versions_never_go_back(running, restart, store):
    """Not even if the highest was given by a fast clock to a key that has been deleted."""
    client = store(to=running)
    highest = order(client.set(b"key", b"x", timestamp=stamp(now_ms() + 50_000, 7)))
    client.ask("DEL", "key")
    for _ in range(3):
        restart()
        client = store(to=running)
        version = order(client.set(b"other", b"x", timestamp=stamp(0)))
        assert version > highest
        highest = version
        client.ask("DEL", "other")


def test_a_version_that_only_a_reader_was_told(running, restart, store):
    """A client sees what another has set: it must still be so afterwards."""
    writer, reader = store(to=running), store(to=running)
    for number in range(20):
        sent = writer.send(array("SET", "key", number))
        seen = reader.get(b"key")
        if number % 5 == 4:
            restart()
            found = store(to=running).get(b"key")
            assert found is not None and order(found[1]) >= order(seen[1] if seen else "0" * 15 + ":00000:StateStore")
            writer, reader = store(to=running), store(to=running)
        else:
            writer.answer(sent)


def test_fencing_tokens_are_not_forgotten(running, restart, store):
    client = store(to=running)
    client.set(b"key", b"x", token="1696374425000:00007:a")
    client.set(b"freed", b"x", token="1696374425000:00007:a")
    client.ask("DEL", "freed", token="1696374425000:00007:a")
    restart()
    client = store(to=running)
    assert client.ask("SET", "key", "y").payload == error(TOKEN_REQUIRED)
    assert client.ask("SET", "key", "y", token="1696374425000:00006:z").payload == error(TOKEN_TOO_OLD)
    assert client.ask("DEL", "key", token="1696374425000:00007:A").payload == error(TOKEN_TOO_OLD)
    client.set(b"freed", b"y")
    client.set(b"key", b"y", token="1696374425000:7:a")


def test_the_remaining_time_to_live(running, restart, store):
    client = store(to=running)
    begin = time.monotonic()
    version = client.set(b"key", b"x", "PX", "6000")
    client.set(b"due meanwhile", b"x", "PX", "20")
    client.set(b"for ever", b"x", "PX", "20")
    client.set(b"for ever", b"x")
    restart()
    client = store(to=running)
    client.watch(b"key")
    time.sleep(max(0.0, begin + 0.1 - time.monotonic()))
    assert client.get(b"due meanwhile") is None
    assert client.get(b"for ever")[0] == b"x"
    assert time.monotonic() < begin + 5.5, "this machine is too slow for this test"
    assert client.get(b"key") == (b"x", version)
    client.expect_told(b"key", DELETE_TOLD)
    assert 5.99 < time.monotonic() - begin < 8
    assert client.scan("*") == [[b"for ever"]]


def test_what_has_expired_stays_away(running, restart, store):
    client = store(to=running)
    client.watch(b"key")
    version = client.set(b"key", b"x", "PX", "50")
    client.told(), client.told()
    restart()
    client = store(to=running)
    assert client.get(b"key") is None
    assert order(client.set(b"key", b"y", "NX")) > order(version)


def test_watchers_do_not_outlive_the_broker(running, restart, store):
    """They ended with their connections."""
    options = {"to": running, "clean": False, "properties": {"session_expiry_interval": 60}}
    store("watcher", **options).watch(b"key")
    restart()
    client = store("watcher", **options)
    assert client.client.connack.session_present
    version = client.set(b"key", b"x")
    client.expect_quiet()
    assert client.ask("KEYNOTIFY", "key", "STOP").payload == NOTHING
    client.watch(b"key")
    client.expect_quiet(0.05)
    again = client.set(b"key", b"y")
    assert order(again) > order(version)
    client.expect_told(b"key", set_told(b"y"), again)


def test_a_lock_outlives_the_broker(running, restart, store):
    """Held by who had it, with its token; what it protects stays protected."""
    holder, other = store(to=running), store(to=running)
    token = holder.set(b"lock", b"holder", "NEX", "PX", "60000")
    holder.set(b"key", b"1", token=token)
    restart()
    holder, other = store(to=running), store(to=running)
    refused = other.ask("SET", "lock", "other", "NEX", "PX", "60000")
    assert (refused.payload, refused.version) == (NOT_APPLIED, token)
    holder.set(b"key", b"2", token=token)
    assert holder.ask("VDEL", "lock", "holder").payload == DELETED
    after = other.set(b"lock", b"other", "NEX", "PX", "60000")
    other.set(b"key", b"3", token=after)
    assert holder.ask("SET", "key", "4", token=token).payload == error(TOKEN_TOO_OLD)


def test_tenants_stay_apart(running, restart, store):
    one, two = store(to=running, tenant="acme"), store(to=running, tenant="globex")
    first = one.set(b"key", b"one", timestamp=stamp(now_ms() + 50_000))
    two.set(b"only two", b"x")
    restart()
    one, two = store(to=running, tenant="acme"), store(to=running, tenant="globex")
    assert one.get(b"key") == (b"one", first)
    assert two.get(b"key") is None
    assert (one.scan("*"), two.scan("*")) == ([[b"key"]], [[b"only two"]])
    assert order(two.set(b"key", b"x"))[0] <= now_ms(), "the fast clock is the other tenant's"
    assert order(one.set(b"key", b"x")) > order(first)


def test_asking_for_persistence_changes_nothing_where_all_is_stored(running, restart, store):
    client = store(to=running)
    versions = {key: client.set(key, b"x", more=more) for key, more in [
        (b"asked", [("aio-persistence", "true")]), (b"not asked", []), (b"declined", [("aio-persistence", "false")])]}
    restart()
    client = store(to=running)
    for key, version in versions.items():
        assert client.get(key) == (b"x", version)


MEMORY = '[[durability]]\nkeys = "cache:*"\nclass = "memory"\n[[durability]]\nkeys = "acme only"\nclass = "memory"\ntenant = "acme"\n'
ASKED = [("aio-persistence", "true")]


def test_keys_in_memory(broker_with, store):
    """Are gone with the broker, unless a client asked for one to be stored; that one is then, as it is at last."""
    running = broker_with(MEMORY)
    client = store(to=running, tenant="acme")
    for key in (b"cache:1", b"acme only", b"stored"):
        client.set(key, b"x")
    client.set(b"cache:asked", b"old", more=ASKED)
    last = client.set(b"cache:asked", b"new", token="5:0:n")
    client.set(b"cache:gone", b"x", more=ASKED)
    assert client.ask("DEL", "cache:gone").payload == DELETED
    client.set(b"cache:gone", b"in memory again")
    store(to=running, tenant="globex").set(b"acme only", b"x")
    running.kill9()
    running.start()
    client = store(to=running, tenant="acme")
    assert client.get(b"cache:asked") == (b"new", last)
    assert client.ask("SET", "cache:asked", "x").payload == error(TOKEN_REQUIRED)
    assert sorted(key for page in client.scan("*") for key in page) == [b"cache:asked", b"stored"]
    assert store(to=running, tenant="globex").get(b"acme only")[0] == b"x"


def test_a_tenant_in_memory(broker_with, store):
    running = broker_with('[tenants.acme.limits]\ndurability = "memory"\n')
    ours, theirs = store(to=running, tenant="acme"), store(to=running, tenant="globex")
    for client in (ours, theirs):
        client.set(b"key", b"x")
        client.set(b"asked", b"x", more=ASKED)
    running.kill9()
    running.start()
    assert store(to=running, tenant="acme").scan("*") == [[b"asked"]]
    assert store(to=running, tenant="globex").scan("*") == [[b"asked", b"key"]]


def test_answers_about_memory_are_the_same(broker_with, store):
    """Conditions, versions, fences, expiry and notifications do not depend on the class."""
    client = store(to=broker_with('[limits]\ndurability = "memory"\n'))
    client.watch(b"key")
    first = client.set(b"key", b"x", "NX", token="5:0:n")
    refused = client.ask("SET", "key", "y", "NEX", token="5:0:n")
    assert (refused.payload, refused.version) == (NOT_APPLIED, first)
    assert client.ask("DEL", "key", token="4:0:n").payload == error(TOKEN_TOO_OLD)
    second = client.set(b"key", b"x", "NEX", "PX", "100", token="6:0:n")
    assert order(second) > order(first)
    client.expect_told(b"key", set_told(b"x"), first)
    client.expect_told(b"key", set_told(b"x"), second)
    client.expect_told(b"key", DELETE_TOLD)
    assert client.get(b"key") is None
    client.expect_quiet()


def test_changes_in_full_flight(running, store):
    """Killed in the middle of a burst: what was answered is there, and what was not is there as a whole or not at all."""
    client = store(to=running)
    sent = [client.send(array("SET", f"key {number % 500}", f"{number} " * 50)) for number in range(3_000)]
    answered = {}
    for number in range(700):
        answered[number % 500] = (number, client.answer(sent[number]).version)
    running.kill9()
    running.start()
    client = store(to=running)
    for at, (number, version) in answered.items():
        found, found_version = client.get(b"key %d" % at)
        later = int(found.split()[0])
        assert later >= number and later % 500 == at and found == b"%d " % later * 50
        assert order(found_version) >= order(version)
        assert (later == number) == (found_version == version)
