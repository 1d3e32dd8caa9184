"""Quotas of a tenant: what is beyond is refused, what goes makes room."""

import pytest

from broker import until
from statestore_client import DELETED, NOT_APPLIED, OK, QUOTA, TOKEN_REQUIRED, error, set_told


@pytest.fixture
def limited(broker_with, store):
    """Starts a broker in which the tenant `acme` has some limits; a function that connects clients to it."""
    def start(limits: str):
        running = broker_with(f"[tenants.acme.limits]\n{limits}\n")
        return lambda client_id=None, tenant="acme", **options: store(client_id, to=running, tenant=tenant, **options)

    return start


def test_keys(limited):
    connect = limited("max_state_keys = 3")
    client, other = connect(), connect()
    for key in (b"a", b"b", b"c"):
        client.set(key, b"x")
    for options in ((), ("NX",), ("NEX",), ("PX", "60000")):
        assert other.ask("SET", "d", "x", *options).payload == error(QUOTA)
    assert other.get(b"d") is None
    client.set(b"a", b"overwriting is no new key")
    assert client.ask("SET", "a", "x", "NX").payload == NOT_APPLIED
    assert client.ask("DEL", "b").payload == DELETED
    client.set(b"d", b"x")
    assert client.ask("SET", "b", "x").payload == error(QUOTA)
    assert client.ask("VDEL", "c", "x").payload == DELETED
    client.watch(b"b")
    client.set(b"b", b"x", "PX", "50")
    client.told(), client.told()
    client.set(b"c", b"room again after the expiry")
    assert client.ask("SET", "b", "x").payload == error(QUOTA)
    assert sorted(key for page in client.scan("*") for key in page) == [b"a", b"c", b"d"]


def test_a_refused_set_leaves_no_trace(limited):
    client = limited("max_state_keys = 1")()
    version = client.set(b"a", b"x", token="2:0:n")
    client.watch(b"b")
    assert client.ask("SET", "b", "x", token="5:0:n").payload == error(QUOTA)
    assert client.get(b"a") == (b"x", version)
    assert client.ask("SET", "a", "x").payload == error(TOKEN_REQUIRED), "fences come before quotas"
    assert client.ask("DEL", "a", token="2:0:n").payload == DELETED
    version = client.set(b"b", b"y")
    client.expect_told(b"b", set_told(b"y"), version)
    client.expect_quiet()


def test_bytes(limited):
    """Of keys, values and fencing tokens together, with 128 for each key."""
    client = limited("max_state_bytes = 10000")()
    for key in (b"a", b"b", b"c"):
        client.set(key, b"x" * 1_871)
    free = 10_000 - 3 * 2_000
    assert client.ask("SET", "d", "x" * (free - 128)).payload == error(QUOTA)
    assert client.ask("SET", "d" * 100, "x" * (free - 128 - 99)).payload == error(QUOTA)
    assert client.ask("SET", "a", "x" * (1_871 + free + 1)).payload == error(QUOTA), "also by growing"
    assert client.get(b"a")[0] == b"x" * 1_871
    client.set(b"a", b"x" * (1_871 + free))
    assert client.ask("SET", "d", "").payload == error(QUOTA)
    client.set(b"a", b"x" * 1_871)
    client.set(b"d", b"x" * (free - 129))
    assert client.ask("SET", "b", "x" * 1_871, token="1:0:node").payload == error(QUOTA)
    client.ask("DEL", "c")
    client.set(b"b", b"x" * 1_871, token="1:0:node")
    client.set(b"e", b"x" * 1_800)
    client.set(b"a", b"smaller is always allowed")


def test_one_value(limited):
    client = limited("max_state_value = 1000")()
    client.set(b"key", b"x" * 1_000)
    assert client.ask("SET", "key", "x" * 1_001).payload == error(QUOTA)
    assert client.ask("SET", "new", "x" * 1_001).payload == error(QUOTA)
    assert client.get(b"key")[0] == b"x" * 1_000
    assert client.get(b"new") is None
    client.set(b"key", b"")


def test_watchers(limited):
    """A registration of one client for one key is one watcher."""
    connect = limited("max_state_watchers = 3")
    one, two = connect("one"), connect("two")
    one.watch(b"a")
    one.watch(b"b")
    two.watch(b"a")
    assert two.ask("KEYNOTIFY", "b").payload == error(QUOTA)
    one.watch(b"a")
    assert one.ask("KEYNOTIFY", "c").payload == error(QUOTA)
    assert one.ask("KEYNOTIFY", "b", "STOP").payload == OK
    two.watch(b"b")
    assert one.ask("KEYNOTIFY", "c").payload == error(QUOTA)
    version = one.set(b"c", b"x")
    assert version
    one.expect_quiet()

    two.client.disconnect()
    until(lambda: one.ask("KEYNOTIFY", "c").payload == OK)
    one.watch(b"d")
    assert one.ask("KEYNOTIFY", "e").payload == error(QUOTA)


def test_each_tenant_has_its_own(limited):
    connect = limited("max_state_keys = 1\nmax_state_watchers = 1\nmax_state_value = 10\nmax_state_bytes = 10000")
    ours, theirs = connect(), connect(tenant="globex")
    for client in (ours, theirs):
        client.set(b"a", b"x")
        client.watch(b"a")
    for parts in (("SET", "b", "x"), ("KEYNOTIFY", "b"), ("SET", "a", "x" * 11)):
        assert ours.ask(*parts).payload == error(QUOTA)
        assert theirs.ask(*parts).payload == OK


def test_what_is_used_is_known_after_a_restart(broker_with, store):
    running = broker_with("[limits]\nmax_state_keys = 2\n")
    client = store(to=running)
    client.set(b"a", b"x")
    client.set(b"b", b"x")
    running.kill9()
    running.start()
    client = store(to=running)
    assert client.ask("SET", "c", "x").payload == error(QUOTA)
    client.ask("DEL", "a")
    client.set(b"c", b"x")
    assert client.ask("SET", "d", "x").payload == error(QUOTA)


@pytest.mark.parametrize("end", ["disconnected", "lost", "taken over"])
def test_watchers_go_with_their_connection(limited, end):
    connect = limited("max_state_watchers = 2")
    kept = {"clean": False, "properties": {"session_expiry_interval": 60}}
    for _ in range(5):
        client = connect("watcher", **kept)
        client.watch(b"a")
        client.watch(b"b")
        assert client.ask("KEYNOTIFY", "c").payload == error(QUOTA)
        if end == "disconnected":
            client.client.disconnect()
        elif end == "lost":
            client.client.drop()


def test_limits_change_for_connected_clients(broker_with, store):
    """In both directions, without a new connection."""
    running = broker_with("[limits]\nmax_state_keys = 1\nmax_state_value = 10\n")
    client = store(to=running)
    client.set(b"a", b"x")
    for request in (("SET", "b", "x"), ("SET", "a", "x" * 20)):
        assert client.ask(*request).payload == error(QUOTA)
    running.reload("[limits]\nmax_state_keys = 100\nmax_state_value = 100\n")
    client.set(b"b", b"x" * 20)
    client.watch(b"b")
    running.reload("[limits]\nmax_state_keys = 2\nmax_state_watchers = 1\n")
    for request in (("SET", "c", "x"), ("KEYNOTIFY", "a")):
        assert client.ask(*request).payload == error(QUOTA)
    assert client.get(b"b")[0] == b"x" * 20, "what is there stays"
