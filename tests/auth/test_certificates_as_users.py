"""Client certificates as users, and certificates that are revoked."""

from __future__ import annotations

import ssl
import time

import pytest

import wire
from answers import ACCEPTED, DENIED, hashed
from broker import until
from wire import V5

BACK_END = """
    [auth]
    chain = ["devices"]
    [auth.certificate.devices]
"""


@pytest.mark.parametrize("version", [wire.V311, V5])
def test_the_name_in_a_certificate_is_the_user(secure, authority, version):
    running = secure(BACK_END + "[tenants.acme]\nrules = [{ allow = 'publish', topics = ['%u/#'] }]\n")
    ada = authority.client("ada", "/CN=acme\\/ada")
    assert running.log_in(ada, version=version).connack.reason == ACCEPTED
    assert running.log_in(ada, "acme/ada", version=version).connack.reason == ACCEPTED
    assert running.log_in(ada, "acme/bob", version=version).connack.reason == DENIED[version]
    assert running.log_in(ada, "zeta/ada", version=version).connack.reason == DENIED[version]
    assert running.log_in(None, "acme/ada", version=version).connack.reason == DENIED[version]
    client = running.log_in(ada)
    assert client.publish("acme/ada/x", b"1", 1).reason in (0, 0x10)
    assert client.publish("acme/bob/x", b"1", 1).reason == 0x87


def test_other_names_and_forms(secure, authority):
    running = secure(BACK_END + "from = 'dns'\nuser = 'acme/{name}'\n")
    one = running.log_in(authority.client("one", "/CN=x", "DNS:pump-1"))
    assert one.connack.reason == ACCEPTED
    assert running.broker.metric(r'^barid_connections\{tenant="acme"') == 1
    several = authority.client("two", "/CN=x", "DNS:pump-2,DNS:pump-3")
    assert running.log_in(several).connack.reason == 0x86
    assert running.log_in(several, "acme/pump-3", client_id="d").connack.reason == ACCEPTED
    assert running.log_in(authority.client("wild", "/CN=x", "DNS:*.pumps")).connack.reason == 0x86


@pytest.mark.parametrize("name", ["*", "a b\\/c", "\\+\\/x", "#"])
def test_names_that_are_nobodys_are_refused(secure, authority, name):
    running = secure(BACK_END)
    assert running.log_in(authority.client("odd", f"/CN={name}")).connack.reason == 0x86


def test_the_next_back_end_is_asked_without_a_certificate(secure, authority):
    users = f'[[users]]\nname = "acme/eve"\npassword = "{hashed("secret")}"\n'
    running = secure(BACK_END.replace('["devices"]', '["devices", "file"]') + users)
    assert running.log_in(None, "acme/eve", b"secret").connack.reason == ACCEPTED
    assert running.log_in(None, "acme/eve", b"wrong").connack.reason == 0x86
    ada = authority.client("ada", "/CN=acme\\/ada")
    assert running.log_in(ada, "acme/eve", b"secret").connack.reason == 0x86, "the certificate says who it is"


def said(running, *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in running.broker.stderr.splitlines())


def test_a_revoked_certificate(secure, authority):
    ada, bob = authority.client("ada", "/CN=acme\\/ada"), authority.client("bob", "/CN=acme\\/bob")
    running = secure(BACK_END, f'crl = ["{authority.directory}/crl.pem"]')
    first, second = running.log_in(ada, client_id="a"), running.log_in(bob, client_id="b")
    assert (first.connack.reason, second.connack.reason) == (ACCEPTED, ACCEPTED)
    authority.revoke(ada)
    running.broker.reload(running.config)
    first.expect_refused(0x98, timeout=2)
    second.ping()
    until(lambda: said(running, "login denied: the certificate of the client is revoked: disconnected", 'user="acme/ada"', 'client="a"'))
    with pytest.raises((ssl.SSLError, wire.Closed, ConnectionError)):
        running.log_in(ada)
    until(lambda: said(running, "login denied: the certificate of the client is not accepted: Revoked", "peer=127.0.0.1:"))
    assert running.log_in(bob).connack.reason == ACCEPTED


def test_a_certificate_that_is_revoked_between_handshake_and_login(secure, authority):
    ada = authority.client("ada", "/CN=acme\\/ada")
    running = secure(BACK_END, f'crl = ["{authority.directory}/crl.pem"]')
    early = [running.open(ada) for _ in range(2)]
    early[0].connect("a")
    assert early[0].connack.reason == ACCEPTED
    authority.revoke(ada)
    running.broker.reload(running.config)
    early[1].connect("b")
    assert early[1].connack.reason == 0x87


def test_a_revocation_list_that_has_expired_lets_nobody_in(secure, authority):
    ada = authority.client("ada", "/CN=acme\\/ada")
    authority.list("-crlsec", "1")
    running = secure(BACK_END, f'crl = ["{authority.directory}/crl.pem"]')
    time.sleep(2)
    with pytest.raises((ssl.SSLError, wire.Closed, ConnectionError)):
        running.log_in(ada)
    until(lambda: said(running, "login denied: the certificate of the client is not accepted", "expired"))
    expires = r"^barid_revocation_list_expires_timestamp_seconds"
    assert running.broker.metric(expires) <= time.time()
    assert "a certificate revocation list has expired" in running.broker.reload(running.config)
    authority.list()
    running.broker.reload(running.config)
    assert running.broker.metric(expires) > time.time()
    assert running.log_in(ada).connack.reason == ACCEPTED
