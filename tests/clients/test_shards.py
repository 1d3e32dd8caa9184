"""Shards that an operator closes and opens: what `barid shard` says, and what MQTT clients notice."""

import json

import pytest

import wire
from broker import until
from running import barid
from wire import V5, V311, Will

SERVER_BUSY = 0x89
FOREVER = {"session_expiry_interval": 0xFFFFFFFF}


@pytest.fixture
def running(broker_with):
    """All is in one shard."""
    return broker_with("[storage]\nshards = 1\n")


@pytest.fixture
def shard(running):
    """Runs `barid shard COMMAND…`; what it prints."""
    def run(*arguments) -> str:
        done = barid("shard", *arguments, "--admin", f"127.0.0.1:{running.admin_port}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def come(running, connect):
    """A client with a session that stays."""
    def come_(client_id: str, version: int = V5, clean: bool = False, **options) -> wire.Client:
        if version == V5:
            options = {"properties": FOREVER} | options
        return connect(version, client_id, running, clean=clean, **options)

    return come_


# -- the operator


def test_a_shard_is_closed_and_opened(shard, running):
    assert shard("list").splitlines()[0].split() == ["SHARD", "STATE", "PENDING", "COMMITS"]
    assert shard("list").splitlines()[1].split()[:4] == ["0", "open", "0", "B"]
    assert shard("close", "0") == "shard 0 is closed\n"
    assert shard("close", "0") == "shard 0 is closed\n", "it is already"
    assert json.loads(shard("list", "--json"))["shards"][0]["state"] == "closed"
    assert running.http("/healthz")[0] == 200
    status, health = running.http("/health")
    assert status == 503 and "closed" in health
    opened = json.loads(shard("open", "0", "--json"))
    assert (opened["shard"], opened["state"], opened["pending_bytes"]) == (0, "open", 0)
    assert shard("open", "0") == "shard 0 is open\n", "it is already"
    assert running.http("/health")[0] == 200


def test_a_shard_that_does_not_exist(running):
    done = barid("shard", "close", 1, "--admin", f"127.0.0.1:{running.admin_port}")
    assert done.returncode == 1
    assert "no shard 1" in done.stderr and "barid shard list" in done.stderr
    assert running.http("/v1/shards/1")[0] == 404
    assert running.http("/v1/shards/one")[0] in (400, 404)
    assert running.http("/v1/shards/65536")[0] in (400, 404)


def test_a_start_opens_all(shard, running, come):
    come("s").subscribe("a", qos=1)
    shard("close", "0")
    running.restart()
    assert running.http("/health")[0] == 200
    assert come("s").connack.session_present


# -- sessions


@pytest.mark.parametrize("version", [V311, V5], ids=["v3.1.1", "v5"])
def test_a_session_goes_on_where_it_was(shard, running, come, dial, version):
    client = come("s", version)
    client.subscribe("a", qos=2)
    publisher = come("p", clean=True, properties={})
    for number in range(20):
        publisher.publish("a", b"%d" % number, qos=1 + number % 2)
    first = client.expect(wire.PUBLISH)
    shard("close", "0")
    client = dial(version, running)
    client.send(wire.connect("s", version, False, properties=FOREVER if version == V5 else None))
    client.expect(wire.CONNACK, reason=SERVER_BUSY if version == V5 else 3, session_present=False)
    shard("open", "0")
    client = come("s", version)
    assert client.connack.session_present
    found = [client.receive() for _ in range(20)]
    assert sorted(int(one.payload) for one in found) == list(range(20))
    again = next(one for one in found if one.payload == first.payload)
    assert again.dup and again.packet_id == first.packet_id
    client.expect_nothing()


def test_a_client_is_told(shard, come):
    client = come("s")
    shard("close", "0")
    client.expect_refused(SERVER_BUSY)


def test_a_client_without_a_stored_session_stays(shard, come):
    client, publisher = come("c", clean=True, properties={}), come("p", clean=True, properties={})
    client.subscribe("a", qos=2)
    shard("close", "0")
    publisher.publish("a", b"one", qos=1)
    publisher.publish("a", b"two", qos=2)
    assert [client.receive().payload for _ in range(2)] == [b"one", b"two"]
    shard("open", "0")
    publisher.publish("a", b"three", qos=2)
    client.receive(b"three")


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_for_a_closed_session_is_acknowledged(shard, running, come, connect, qos):
    come("s").subscribe("a", qos=2)
    shard("close", "0")
    publisher, old = come("p", clean=True, properties={}), connect(V311, "o", running)
    publisher.publish("a", b"dropped", qos=0)
    assert publisher.publish("b", b"to nobody", qos=qos).reason in (0, 0x10)
    publisher.send(wire.publish("a", b"refused", qos, 1))
    publisher.expect_refused(SERVER_BUSY)
    old.send(wire.publish("a", b"refused, too", qos, 1, version=V311))
    old.expect_closed()
    shard("open", "0")
    publisher = come("p", clean=True, properties={})
    assert publisher.publish("a", b"taken", qos=qos).reason == 0
    client = come("s")
    assert client.connack.session_present
    client.receive(b"taken")
    client.expect_nothing()


def test_an_ended_session_does_not_come_back(shard, come):
    come("s").subscribe("a", qos=1)
    come("s", clean=True, properties={}).disconnect()
    shard("close", "0")
    shard("open", "0")
    assert not come("s").connack.session_present


def test_what_expires_goes_on(shard, come):
    """Of a session: the clock runs while its shard is closed."""
    come("s", properties={"session_expiry_interval": 1}).subscribe("a", qos=1)
    shard("close", "0")
    shard("open", "0")
    assert come("s", properties={"session_expiry_interval": 1}).connack.session_present

    def is_gone() -> bool:
        try:
            client = come("probe", clean=True, properties={})
            return client.publish("a", b"x", qos=1).reason == 0x10
        finally:
            client.disconnect()

    come("s", properties={"session_expiry_interval": 1}).disconnect()
    shard("close", "0")
    shard("open", "0")
    until(is_gone)


def test_a_will_waits(shard, running, connect, come):
    """Nobody would send it again, so it comes when the shard of its subscriber is open."""
    come("s").subscribe("will", qos=1)
    shard("close", "0")
    connect(V5, "m", running, will=Will("will", b"gone", 1)).drop()
    connect(V5, "x", running).ping()
    shard("open", "0")
    client = come("s")
    client.receive(b"gone")
    client.expect_nothing()


def test_it_is_closed_with_whom_it_knows_and_opened_again_and_again(shard, come):
    for number in range(10):
        client = come("s")
        assert client.connack.session_present == (number > 0)
        client.subscribe(f"a/{number}", qos=1)
        client.publish("a/0", b"%d" % number, qos=1)
        client.receive(b"%d" % number)
        shard("close", "0")
        shard("open", "0")
    client = come("s")
    for number in range(10):
        client.publish(f"a/{number}", b"x", qos=1)
        client.receive(b"x")


# -- retained messages


def test_retained_messages_are_read_and_not_changed(shard, running, come):
    publisher = come("p", clean=True, properties={})
    publisher.publish("r/1", b"one", qos=1, retain=True)
    publisher.publish("r/2", b"two", qos=1, retain=True)
    shard("close", "0")
    for payload in (b"newer", b""):
        publisher.publish("r/1", payload, qos=0, retain=True)
        publisher.send(wire.publish("r/1", payload, 1, 1, True))
        publisher.expect_refused(SERVER_BUSY)
        publisher = come("p", clean=True, properties={})
    for _ in range(2):
        reader = come("reader", clean=True, properties={})
        reader.subscribe("r/#", qos=1)
        assert sorted(reader.receive().payload for _ in range(2)) == [b"one", b"two"]
        reader.expect_nothing()
        shard("open", "0")
    assert publisher.publish("r/1", b"", qos=1, retain=True).reason in (0, 0x10)
    reader = come("reader", clean=True, properties={})
    reader.subscribe("r/#", qos=1)
    reader.receive(b"two")
    reader.expect_nothing()


def test_a_client_that_wants_to_stay_waits_until_its_shard_is_open(shard, running, dial):
    """Although it is connected already, without a session that stays: it must not get one that nobody could end."""
    def come(clean: bool, **properties) -> wire.Client:
        client = dial(V5, running)
        client.connect("c", clean=clean, properties=properties)
        return client

    shard("close", "0")
    assert come(True).connack.reason == 0
    assert come(False, **FOREVER).connack.reason == SERVER_BUSY
    assert come(True, **FOREVER).connack.reason == SERVER_BUSY
    shard("open", "0")
    for clean in (False, True, False):
        client = come(clean, **FOREVER)
        assert client.connack.reason == 0
    client.subscribe("a", qos=1)
    client.disconnect()
    shard("close", "0")
    shard("open", "0")
    assert come(False, **FOREVER).connack.session_present
