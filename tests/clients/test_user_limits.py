"""Limits of one user: they replace those for every user of the tenant, and change while clients are connected. With
`barid user` and with a reload."""

from __future__ import annotations

import re
import time

import pytest

import wire
from broker import until
from running import barid, hashed

# How long a change may take until it applies to a connected client, with the time of the command and of a slow machine.
SOON = 1.5


class Users:
    """The users `acme/ada` and `acme/bob` of a broker. ada may have limits of her own."""

    def __init__(self, broker, password: str, where: str, limits: str):
        self.broker, self._password, self._where, self._tenant, self._own = broker, password, where, limits, {}
        if where == "file":
            self._reload()
        else:
            for name in ("ada", "bob"):
                self.does("user", "add", f"acme/{name}", "--password-hash", password)

    def does(self, *arguments) -> str:
        done = barid(*arguments, "--admin", f"127.0.0.1:{self.broker.admin_port}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def limit(self, **limits: int | None) -> None:
        """Changes limits of ada; None: she has it no more."""
        if self._where == "store":
            options = [f"--limit={key}={'default' if value is None else value}" for key, value in limits.items()]
            self.does("user", "set", "acme/ada", *options)
            return
        self._own = {key: value for key, value in (self._own | limits).items() if value is not None}
        self._reload()

    def _reload(self) -> None:
        own = ", ".join(f"{key} = {value}" for key, value in self._own.items())
        users = "".join(f'[[users]]\nname = "acme/{name}"\npassword = "{self._password}"\n{limits}'
                        for name, limits in (("ada", f"limits = {{ {own} }}\n"), ("bob", "")))
        self.broker.reload(f"{self._tenant}\n{users}")


@pytest.fixture(scope="module")
def password() -> str:
    return hashed("secret")


@pytest.fixture(params=["store", "file"])
def users(request, broker_with, password):
    """Starts a broker with limits of its tenants, and adds the users."""
    return lambda limits="": Users(broker_with(limits), password, request.param, limits)


@pytest.fixture
def log_in(connect):
    """Connects a user."""
    return lambda users, name="ada", version=wire.V5, **options: connect(
        version, to=users.broker, username=f"acme/{name}", password=b"secret", **options)


def takes(count: int, client: wire.Client) -> float:
    """How long it takes until as many messages are acknowledged, which are sent at once."""
    started = time.monotonic()
    ids = [client.next_packet_id() for _ in range(count)]
    client.send(*(wire.publish("t", b"x", 1, packet_id, version=client.version) for packet_id in ids))
    for _ in ids:
        client.expect(wire.PUBACK, timeout=20)
    return time.monotonic() - started


def refused(dial, users, name: str, reason: int, names: str) -> None:
    client = dial(wire.V5, users.broker)
    connack = client.connect(f"refused-{name}", username=f"acme/{name}", password=b"secret")
    assert connack.reason == reason and names in connack.properties["reason_string"], connack


@pytest.mark.parametrize("version", [wire.V311, wire.V5], ids=["v3.1.1", "v5"])
def test_a_user_is_slowed_down_and_another_is_not(users, log_in, version):
    """Also with several connections, which share the limit."""
    users = users('[limits]\ndurability = "memory"\n')
    users.limit(publish_rate=20)
    ada, again, bob = (log_in(users, name, version) for name in ("ada", "ada", "bob"))
    assert takes(20, ada) < 1, "a second's worth at once"
    assert 1.3 < takes(30, again) < 3
    assert takes(500, bob) < 1
    assert users.broker.metric(r'^barid_quota_throttled_seconds_total\{tenant="acme",quota="user_publish_rate"\}') > 1
    assert re.search(r'quota="user_publish_rate" limit=20 ', users.broker.stderr), "the limit of this user"
    shown = users.does("tenant", "show", "acme")
    assert re.search(r"^user_publish_rate +0 +- +0 +\d+\.\ds$", shown, re.MULTILINE), shown


def test_a_limit_of_a_user_replaces_that_for_every_user(users, log_in):
    """A higher one, and none."""
    users = users('[limits]\nuser_publish_rate = 20\ndurability = "memory"\n')
    users.limit(publish_rate=1_000)
    ada, bob = log_in(users), log_in(users, "bob")
    assert takes(500, ada) < 1
    assert takes(50, bob) > 1.3
    users.limit(publish_rate=0)
    assert takes(2_000, ada) < 1.5, "not two seconds"
    users.limit(publish_rate=None)
    until(lambda: takes(10, ada) > 0.4)


def test_a_tenant_limits_its_users_all_the_same(users, log_in):
    users = users('[limits]\npublish_rate = 20\ndurability = "memory"\n')
    users.limit(publish_rate=1_000)
    assert takes(50, log_in(users)) > 1.3


def test_a_rate_of_messages_changes_for_connected_clients(users, log_in):
    """Clients that wait go on, though they send nothing more. The last of them would wait for 15 seconds."""
    users = users('[limits]\ndurability = "memory"\n')
    ada = log_in(users)
    assert takes(200, ada) < 1
    users.limit(publish_rate=1)
    time.sleep(SOON)
    assert takes(3, ada) > 0.8
    others = [log_in(users) for _ in range(15)]
    for other in others:
        other.send(*(wire.publish("t", b"x", 1, packet_id) for packet_id in range(1, 5)))
    time.sleep(0.5)
    started = time.monotonic()
    users.limit(publish_rate=10_000)
    for other in others:
        for _ in range(4):
            other.expect(wire.PUBACK)
    assert time.monotonic() - started < SOON
    users.limit(publish_rate=None)
    assert takes(200, ada) < 1


def test_a_rate_of_bytes_from_a_client_changes(users, log_in):
    users = users('[limits]\ndurability = "memory"\n')
    users.limit(inbound_bytes_rate=1_000)
    ada = log_in(users)
    time.sleep(1)
    ada.send(*(wire.publish("t", bytes(1_000), 1, packet_id) for packet_id in range(1, 61)))
    time.sleep(0.5)
    started = time.monotonic()
    users.limit(inbound_bytes_rate=0)
    for _ in range(60):
        ada.expect(wire.PUBACK)
    assert time.monotonic() - started < SOON


def test_a_rate_of_bytes_to_a_client_changes(users, log_in, topic):
    """Messages that wait are sent, though the client sends nothing."""
    users = users('[limits]\ndurability = "memory"\n')
    ada, bob, publisher = log_in(users), log_in(users, "bob"), log_in(users, "bob")
    for client in (ada, bob):
        client.subscribe(topic)

    def comes(client: wire.Client, count: int) -> float:
        started = time.monotonic()
        for _ in range(count):
            client.receive(timeout=20)
        return time.monotonic() - started

    def publish(*sizes: int) -> None:
        publisher.send(*(wire.publish(topic, bytes(size)) for size in sizes))

    publish(*[1_000] * 20)
    assert comes(bob, 20) + comes(ada, 20) < 1
    users.limit(outbound_bytes_rate=1_000)
    time.sleep(SOON)
    publish(60_000, *[10] * 20)
    assert comes(bob, 21) < 1
    comes(ada, 1)
    ada.expect_nothing(1)
    started = time.monotonic()
    users.limit(outbound_bytes_rate=1_000_000)
    comes(ada, 20)
    assert time.monotonic() - started < SOON, "not a minute, in which the large message would be paid"


def test_connections_of_a_user(users, log_in, dial):
    """Those count that were there before the limit."""
    users = users("[limits]\nmax_user_connections = 3\n")
    first = log_in(users)
    users.limit(max_connections=1)
    time.sleep(SOON)
    refused(dial, users, "ada", 0x97, "max_user_connections")
    for _ in range(3):
        log_in(users, "bob")
    refused(dial, users, "bob", 0x97, "max_user_connections")
    assert users.broker.metric(r'^barid_quota_refused_total\{tenant="acme",quota="max_user_connections"\}') == 2
    users.limit(max_connections=5)
    for _ in range(4):
        log_in(users)
    refused(dial, users, "ada", 0x97, "max_user_connections")
    first.ping()


def test_the_connection_rate_of_a_user(users, log_in, dial):
    users = users()
    users.limit(connect_rate=1)
    log_in(users)
    refused(dial, users, "ada", 0x9F, "user_connect_rate")
    for _ in range(3):
        log_in(users, "bob")
    users.limit(connect_rate=100)
    time.sleep(1)
    for _ in range(3):
        log_in(users)
