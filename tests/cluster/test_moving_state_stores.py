"""The state store of a tenant moves from broker to broker while clients use it."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

import pytest

import wire
from broker import until
from brokers import Cluster, Member
from moving import another, home_of, move, move_and_kill, slot_of

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "statestore"))

from statestore_client import DELETE_TOLD, DELETED, OK, Store, set_told  # noqa: E402


@pytest.fixture(scope="module")
def brokers():
    cluster = Cluster(3, homes=True)
    yield cluster
    for member in cluster:
        assert "panicked at" not in member.stderr, member.stderr
    cluster.close()


def connected(name: str, to: Member, tenant: str, **options) -> Store:
    client = wire.Client(to.address)
    client.connect(name, username=f"{tenant}/{name}", **options)
    return Store(client)


def test_watchers_are_told_of_each_change_while_the_state_store_moves(brokers):
    """Watchers at each broker, one that has asked nothing else, and clients that set keys and come and go meanwhile."""
    tenant = "watched"
    slot = slot_of("", tenant)
    keys = [b"key/%d" % number for number in range(4)]

    watchers = [connected(f"watcher{index}", member, tenant) for index, member in enumerate(brokers)]
    for watcher in watchers:
        for key in keys:
            watcher.watch(key)
    # The watches of these end during the moves, and that of another one with STOP.
    leaving = [connected(f"leaving{number}", brokers[number % 3], tenant) for number in range(60)]
    stopping = connected("stopping", brokers[1], tenant)
    for store in (*leaving, stopping):
        store.watch(keys[0])
    done, changes = threading.Event(), {key: [] for key in keys}
    problems = []

    def change(index: int) -> None:
        try:
            store = connected(f"setter{index}", brokers[index % 3], tenant)
            for number in range(100_000):
                if done.is_set():
                    break
                key = keys[index]
                if number % 5 == 4:
                    answer = store.ask("DEL", key)
                    assert answer.payload == DELETED
                    changes[key].append((DELETE_TOLD, answer.version))
                else:
                    content = b"%d" % number
                    changes[key].append((set_told(content), store.set(key, content)))
                time.sleep(0.01)
            store.client.disconnect()
        except BaseException as problem:
            problems.append((index, repr(problem)))

    def leave() -> None:
        for store in leaving:
            store.client.drop()
            time.sleep(0.02)

    setters = [threading.Thread(target=change, args=(index,)) for index in range(len(keys))]
    setters.append(threading.Thread(target=leave))
    for setter in setters:
        setter.start()
    try:
        for number in range(6):
            if number == 3:
                assert stopping.ask("KEYNOTIFY", keys[0], "STOP").payload == OK
            move(slot, another(home_of(slot, brokers), brokers))
            time.sleep(0.3)
    finally:
        done.set()
        for setter in setters:
            setter.join()
    assert not problems, problems
    assert all(len(made) > 20 for made in changes.values())
    for watcher in watchers:
        told = {key: [] for key in keys}
        for _ in range(sum(map(len, changes.values()))):
            one = watcher.told(10)
            told[one.key].append((one.payload, one.version))
        assert told == changes
        watcher.expect_quiet()
        assert watcher.ask("KEYNOTIFY", keys[0], "STOP").payload == OK
    # Nothing is left of the watches of those that have gone, though nobody has changed some of the keys since.
    until(lambda: sum(one.metric(r'^barid_state_watchers\{.*"watched"') for one in brokers) == 3 * (len(keys) - 1))
    last = connected("last", brokers[0], tenant)
    last.set(keys[0], b"for nobody")
    for store in (*watchers, last):
        store.expect_quiet()
        store.client.disconnect()


@pytest.mark.parametrize("seed", range(2))
def test_watchers_are_told_or_disconnected_whoever_is_killed(cluster_of, seed):
    """No client stays connected whose watch is gone."""
    chance, tenant = random.Random(seed), "killed"
    brokers = cluster_of(3, homes=True)
    slot = slot_of("", tenant)
    for round_ in range(5):
        watchers = {one: connected(f"watcher-{one.name}-{round_}", one, tenant) for one in brokers}
        for watcher in watchers.values():
            watcher.watch(b"key")
        victim = move_and_kill(slot, brokers, chance, 0.12)
        setter = connected(f"setter-{round_}", home_of(slot, brokers), tenant)
        version = setter.set(b"key", b"%d" % round_)
        for one, watcher in watchers.items():
            try:
                assert watcher.told(5).version == version, (round_, one.name, victim.name)
            except wire.Closed:
                pass
            except wire.Violation as other:
                assert "DISCONNECT" in str(other)
            watcher.client.drop()
        setter.client.drop()


def test_who_has_lost_the_right_to_a_key_is_not_told_of_it_when_the_store_arrives(cluster_of):
    """The broker of the watcher had not known its watch: it was at the home."""
    brokers, tenant = cluster_of(3, homes=True), "rights"
    slot, name = slot_of("", tenant), "rights/eve"

    def barid(*words: str, **options) -> None:
        done = brokers[0].run("user", *words, **options)
        assert done.returncode == 0, done.stderr

    for user in (name, "rights/root"):
        barid("add", user, "--password-file", "-", "--cost", "device", input="secret")
    home = home_of(slot, brokers)
    to = another(home, brokers)
    time.sleep(0.5)
    eve, root = (connected(who, at, tenant, password=b"secret") for who, at in (("eve", to), ("root", home)))
    for key in (b"open", b"secret"):
        eve.watch(key)
    barid("set", name, "--deny", "read:secret", "--allow", "all")
    time.sleep(1)
    for _ in range(2):
        root.set(b"secret", b"x")
        version = root.set(b"open", b"x")
        eve.expect_told(b"open", set_told(b"x"), version)
        eve.expect_quiet()
        move(slot, to if home_of(slot, brokers) is home else home)
