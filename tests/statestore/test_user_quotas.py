"""Keys of one user: a key belongs to the user who has set it last, and each user has so many."""

from __future__ import annotations

import json
import subprocess

import pytest

from broker import BINARY, Broker, until
from statestore_client import DELETED, OK, QUOTA, Store, error


class Tenant:
    """A broker in whose tenant `acme` each user may have so much."""

    def __init__(self, running: Broker, password: str, limits: str):
        self.running, self._password, self._limits = running, password, limits
        self.limit("")

    def limit(self, own: str) -> None:
        """Gives ada limits of her own."""
        users = "".join(f'[[users]]\nname = "acme/{name}"\npassword = "{self._password}"\n{limits}'
                        for name, limits in (("ada", f"limits = {{ {own} }}\n"), ("bob", "")))
        self.running.configure(f"[limits]\n{self._limits}\n{users}")

    def used(self, quota: str, user: str = "ada") -> int:
        command = [BINARY, "user", "usage", f"acme/{user}", "--json", "--admin", f"127.0.0.1:{self.running.admin_port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        return json.loads(done.stdout)["quotas"][quota]["used"]

    def refused(self, quota: str) -> float:
        return self.running.metric(rf'^barid_quota_refused_total\{{tenant="acme",quota="{quota}"\}}')


@pytest.fixture
def tenant_with(broker_with, hashed_password):
    return lambda limits: Tenant(broker_with(""), hashed_password, limits)


@pytest.fixture
def log_in(store):
    def connect(tenant: Tenant, name: str, **options) -> Store:
        return store(to=tenant.running, username=f"acme/{name}", password=b"secret", **options)

    return connect


@pytest.mark.parametrize("again", ["kill9", "stop"])
def test_keys_of_a_user(tenant_with, log_in, again):
    tenant = tenant_with("max_user_state_keys = 2")
    ada, other, bob = log_in(tenant, "ada"), log_in(tenant, "ada"), log_in(tenant, "bob")
    ada.set(b"a", b"x"), other.set(b"b", b"x")
    for options in ((), ("NX",), ("PX", "60000")):
        assert ada.ask("SET", "c", "x", *options).payload == error(QUOTA)
    ada.set(b"a", b"overwriting is no new key")
    bob.set(b"c", b"x"), bob.set(b"b", b"it is his now")
    assert (tenant.used("max_user_state_keys"), tenant.used("max_user_state_keys", "bob")) == (1, 2)
    ada.set(b"d", b"x")
    assert ada.ask("SET", "c", "x").payload == error(QUOTA), "it is his, and she has no room"
    assert tenant.refused("max_user_state_keys") == 4
    getattr(tenant.running, again)()
    tenant.running.start()
    ada, bob = log_in(tenant, "ada"), log_in(tenant, "bob")
    assert (tenant.used("max_user_state_keys"), tenant.used("max_user_state_keys", "bob")) == (2, 2)
    assert ada.ask("SET", "e", "x").payload == error(QUOTA)
    assert bob.ask("DEL", "a").payload == DELETED, "who removes it does not matter"
    ada.set(b"e", b"x", "PX", "50")
    until(lambda: tenant.used("max_user_state_keys") == 1)
    ada.set(b"f", b"room again after the expiry")
    tenant.limit("max_state_keys = 3")
    until(lambda: ada.ask("SET", "g", "x").payload == OK or None)
    assert ada.ask("SET", "h", "x").payload == error(QUOTA)
    tenant.limit("max_state_keys = 0")
    until(lambda: ada.ask("SET", "h", "x").payload == OK or None)
    ada.set(b"i", b"x")


def test_bytes_of_a_user(tenant_with, log_in):
    tenant = tenant_with("max_user_state_bytes = 3000")
    ada, bob = log_in(tenant, "ada"), log_in(tenant, "bob")
    ada.set(b"a", bytes(1_500))
    assert ada.ask("SET", "b", bytes(1_500)).payload == error(QUOTA)
    assert ada.ask("SET", "a", bytes(3_000)).payload == error(QUOTA)
    ada.set(b"a", bytes(1_000)), ada.set(b"b", bytes(1_500))
    bob.set(b"c", bytes(2_500))
    assert 2_500 < tenant.used("max_user_state_bytes") <= 3_000
    assert tenant.refused("max_user_state_bytes") == 2
    bob.set(b"a", b"x")
    ada.set(b"d", bytes(1_000))


def test_a_refusal_counts_for_the_limit_that_refuses(tenant_with, log_in):
    """Although another limit is nearly reached, or reached for new keys."""
    tenant = tenant_with("max_user_state_keys = 2\nmax_user_state_bytes = 2000\nmax_state_bytes = 2500\nmax_state_value = 5000")
    ada = log_in(tenant, "ada")
    ada.set(b"a", bytes(500)), ada.set(b"b", bytes(500))
    expected = dict.fromkeys(("max_user_state_keys", "max_user_state_bytes", "max_state_bytes", "max_state_value"), 0)
    for key, size, quota in ((b"a", 1_300, "max_user_state_bytes"), (b"c", 1, "max_user_state_keys"),
                             (b"a", 2_400, "max_state_bytes"), (b"a", 5_001, "max_state_value")):
        assert ada.ask("SET", key.decode(), bytes(size)).payload == error(QUOTA)
        expected[quota] += 1
        assert {quota: tenant.refused(quota) for quota in expected} == expected
    tenant.limit("max_state_keys = 5")
    until(lambda: ada.ask("SET", "c", "x").payload == OK or None)


def test_the_name_of_the_user_counts(tenant_with, log_in):
    tenant = tenant_with("")
    log_in(tenant, "ada").set(b"key", b"value")
    assert tenant.used("max_user_state_bytes") == 128 + len("key" + "value" + "acme/ada")
