"""Clients whose certificate or token says who they are: without a user name, or with one that does not count."""

from __future__ import annotations

import subprocess

import pytest

import wire
from answers import ACCEPTED, hashed
from broker import BINARY, until
from tokens import KEY, token
from wire import V5

WITHOUT_TENANT = "the user name must be {tenant}/{client}"

DEVICES = """
    [auth]
    chain = ["devices"]
    [auth.certificate.devices]
"""


def changed(running, *who: str) -> None:
    command = [BINARY, "auth", "changed", *who, "--admin", f"127.0.0.1:{running.admin_port}"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=30)


@pytest.fixture
def ada(authority) -> str:
    return authority.client("ada", "/CN=acme\\/ada", "DNS:acme/ada")


def test_changes_before_and_after_the_login(secure, ada):
    running = secure(DEVICES)
    first = running.log_in(ada, client_id="a")
    for who in (("--tenant", "acme"), ("--all",), ("--tenant", "default")):
        changed(running.broker, *who)
        for number in range(3):
            client = running.log_in(ada, client_id=f"b{number}")
            assert client.connack.reason == ACCEPTED
            client.expect_nothing()
            client.ping()
        first.ping()
    changed(running.broker, "acme/ada")
    first.expect_refused(0x87, timeout=2)
    running.log_in(ada, client_id="c").ping()


def test_a_back_end_of_one_tenant_lets_nobody_into_others(secure, ada):
    running = secure(f"""
        [[users]]
        name = "acme/eve"
        password = "{hashed("secret")}"
        [auth.certificate.devices]
        [tenants.default]
        auth = ["devices"]
    """)
    assert running.log_in(ada).connack.reason == 0x86
    assert running.log_in(ada, "ada").connack.reason == 0x86
    assert running.log_in(None, "acme/eve", b"secret").connack.reason == ACCEPTED


def test_a_tenant_that_has_back_ends_of_its_own(secure, ada):
    own = "[tenants.acme]\nauth = ['{}']\n[auth.certificate.other]\nfrom = 'dns'\n"
    assert secure(DEVICES + own.format("other")).log_in(ada).connack.reason == 0x86
    assert secure(DEVICES + own.format("devices")).log_in(ada).connack.reason == ACCEPTED


@pytest.mark.parametrize("given", ["zeta/x", "x", None])
def test_a_user_name_that_is_ignored(secure, ada, given):
    running = secure(DEVICES + "ignore_user_name = true")
    client = running.log_in(ada, given)
    assert client.connack.reason == ACCEPTED
    assert running.broker.metric(r'^barid_connections\{tenant="acme"') == 1


@pytest.fixture
def token_broker(broker_with, tmp_path):
    def start(more: str = ""):
        (tmp_path / "key").write_text(KEY)
        start.config = f"""
            {more}
            [auth]
            chain = ["devices"]
            [auth.jwt.devices]
            secret_file = "{tmp_path}/key"
            algorithms = ["HS256"]
            tenant_claim = "tenant"
            token = "username"
        """
        return broker_with(start.config)

    return start


@pytest.mark.parametrize("version", [wire.V311, V5])
@pytest.mark.parametrize("strict", ["", "strict_user_names = true"])
def test_a_token_in_the_user_name(token_broker, login, version, strict):
    running = token_broker(strict)
    client = login(running, token("ada", 60).decode(), version=version)
    assert client.connack.reason == ACCEPTED
    until(lambda: running.metric(r'^barid_connections\{tenant="acme"') == 1)
    changed(running, "--tenant", "acme")
    client.expect_nothing()
    assert login(running, token("ada", 60)[:-2].decode() + "xx", version=version).connack.reason in (4, 0x86)


def test_a_secret_that_changes_in_its_file(token_broker, login, tmp_path):
    running = token_broker()
    other = "f" * 32
    connected = login(running, token("ada", 60).decode(), client_id="a")
    assert login(running, token("ada", 60, other).decode(), client_id="b").connack.reason == 0x86
    (tmp_path / "key").write_text(other)
    assert "reloaded: auth" in running.reload(token_broker.config)
    assert login(running, token("ada", 60, other).decode(), client_id="b").connack.reason == ACCEPTED
    assert login(running, token("ada", 60).decode(), client_id="c").connack.reason == 0x86
    connected.ping()
    assert "reloaded: no change" in running.reload(token_broker.config)


def test_strict_user_names(secure, ada, login):
    running = secure(f"""
        strict_user_names = true
        [[users]]
        name = "bob"
        password = "{hashed("secret")}"
    """ + DEVICES.replace('["devices"]', '["devices", "file"]'))
    assert running.log_in(ada).connack.reason == ACCEPTED
    for user, password in [("bob", b"secret"), ("bob", b"wrong"), ("eve", b"secret")]:
        refused = running.log_in(None, user, password).connack
        assert (refused.reason, refused.properties.get("reason_string")) == (0x86, WITHOUT_TENANT), user
    assert running.log_in(None, "default/bob", b"secret").connack.reason == ACCEPTED
    assert running.log_in(None).connack.reason == 0x86


def test_strict_user_names_where_anybody_may_connect(broker_with, login):
    running = broker_with("strict_user_names = true")
    assert login(running, "acme/ada").connack.reason == ACCEPTED
    assert login(running, "ada").connack.reason == 0x86
    assert login(running, None).connack.reason == 0x86
