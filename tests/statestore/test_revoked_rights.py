"""Rights that are taken from a client: what it had because of them ends, also what waits for it."""

from __future__ import annotations

import subprocess

import pytest

import wire
from broker import BINARY, Broker, until
from statestore_client import Store, set_told
from wire import V5, V311

SURVIVES = {V5: {"properties": {"session_expiry_interval": 600}}, V311: {}}


class Operator:
    def __init__(self, running: Broker):
        self.running = running

    def does(self, *arguments, text: str = "") -> None:
        command = [BINARY, *arguments, "--admin", f"127.0.0.1:{self.running.admin_port}"]
        subprocess.run(list(map(str, command)), input=text, text=True, check=True, capture_output=True, timeout=30)

    def add(self, user: str) -> None:
        self.does("user", "add", user, "--password-file", "-", "--cost", "device", text="secret")

    def denies(self, *rules: str) -> None:
        """Gives acme/ada these rules that deny, and everything else."""
        denials = [part for rule in rules for part in ("--deny", rule)]
        self.does("user", "set", "acme/ada", *denials, "--allow", "all")


@pytest.fixture
def operator(broker_with) -> Operator:
    one = Operator(broker_with(""))
    for user in ("acme/ada", "acme/bob"):
        one.add(user)
    return one


@pytest.fixture
def connect_as(operator, dial):
    def connect(user: str, client_id: str, version: int = V5, **options) -> wire.Client:
        client = dial(version, operator.running)
        assert client.connect(client_id, username=user, password=b"secret", **options).reason == 0
        return client

    return connect


def denied(operator, action: str) -> float:
    return operator.running.metric(rf'^barid_denied_total\{{tenant="acme",action="{action}"\}}')


def test_watches_of_keys_end(operator, connect_as):
    ada, bob = Store(connect_as("acme/ada", "a")), Store(connect_as("acme/bob", "b"))
    for key in (b"secret/1", b"open/1"):
        ada.watch(key)
        bob.ask("SET", key.decode(), "before")
        assert ada.client.receive().payload == set_told(b"before")
    operator.denies("read:secret/*")
    until(lambda: denied(operator, "state") == 1)
    bob.ask("SET", "secret/1", "after")
    bob.ask("SET", "open/1", "after")
    assert ada.client.receive().payload == set_told(b"after")
    ada.client.expect_nothing()
    assert operator.running.metric(r'^barid_state_watchers\{tenant="acme"') == 1


@pytest.mark.parametrize("version", [V311, V5], ids=["v3.1.1", "v5"])
def test_a_will_is_not_published(operator, connect_as, version):
    bob = connect_as("acme/bob", "b")
    bob.subscribe("wills/#")
    wills = {name: connect_as("acme/ada", name, version, will=wire.Will(f"wills/{name}", b"gone")) for name in ("secret", "open")}
    operator.denies("publish:wills/secret")
    until(lambda: denied(operator, "will") == 1)
    for client in wills.values():
        client.drop()
    assert bob.receive().topic == "wills/open"
    bob.expect_nothing()


@pytest.mark.parametrize("durability", ["local", "memory"])
@pytest.mark.parametrize("version", [V311, V5], ids=["v3.1.1", "v5"])
def test_messages_that_wait_are_not_delivered(broker_with, dial, version, durability):
    operator = Operator(broker_with(f'[[durability]]\nfilter = "#"\nclass = "{durability}"\n'))
    for user in ("acme/ada", "acme/bob"):
        operator.add(user)

    def connect(user: str, client_id: str, version: int, **options) -> wire.Client:
        client = dial(version, operator.running)
        assert client.connect(client_id, username=user, password=b"secret", **options).reason == 0
        return client

    away = connect("acme/ada", "a", version, clean=False, **SURVIVES[version])
    away.subscribe("secret/#", qos=1)
    away.subscribe("open/#", qos=1)
    away.disconnect()
    bob = connect("acme/bob", "b", V5)
    for number in range(50):
        bob.publish("secret/1", b"%d" % number, 1)
        bob.publish("open/1", b"%d" % number, 1)
    operator.denies("subscribe:secret/#")
    back = connect("acme/ada", "a", version, clean=False, **SURVIVES[version])
    got = back.receive_all(1.0, 50)
    assert [(one.topic, one.payload) for one in got] == [("open/1", b"%d" % number) for number in range(50)]
    back.expect_nothing()
    assert operator.running.metric(r'^barid_dropped_messages_total\{tenant="acme",reason="not_allowed"\}') == 50
    bob.publish("open/1", b"last", 1)
    assert back.receive().payload == b"last"
