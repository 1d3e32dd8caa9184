"""Client certificates as users, and certificates that are revoked."""

from __future__ import annotations

import socket
import ssl
import time

import pytest

import wire
from answers import ACCEPTED, DENIED, hashed
from broker import free_port
from certificates import Certificates
from wire import V5

BACK_END = """
    [auth]
    chain = ["devices"]
    [auth.certificate.devices]
"""


class Authority(Certificates):
    """An authority that issues certificates with any names, and revokes them."""

    def __init__(self, directory):
        super().__init__(directory)
        (directory / "index.txt").write_text("")
        (directory / "crlnumber").write_text("01\n")
        (directory / "ca.cnf").write_text(
            f"[ca]\ndefault_ca = own\n[own]\ndatabase = {directory}/index.txt\ncrlnumber = {directory}/crlnumber\n"
            f"default_md = sha256\ncertificate = {directory}/ca.pem\nprivate_key = {directory}/ca.key\n")
        self.list()

    def client(self, file: str, subject: str, names: str = "DNS:x") -> str:
        """Issues a certificate, and returns the name of its file."""
        (self.directory / "own").write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{file}.key",
                      "-out", f"{file}.csr", "-subj", subject, "-utf8")
        self._openssl("x509", "-req", "-in", f"{file}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
                      "-extfile", "own", "-out", f"{file}.pem")
        return file

    def revoke(self, file: str) -> None:
        self._openssl("ca", "-config", "ca.cnf", "-revoke", f"{file}.pem")
        self.list()

    def list(self, *options: str) -> None:
        self._openssl("ca", "-config", "ca.cnf", "-gencrl", *(options or ("-crldays", "30")), "-out", "crl.pem")


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path)


class Secure:
    """A broker that asks for certificates."""

    def __init__(self, broker_with, authority: Authority, config: str, tls: str = ""):
        self.authority, self.port = authority, free_port()
        self.config = f"""
            {config}
            {authority.toml(f'client_ca = "{authority.certificate("ca")}"' + chr(10) + tls)}
            [listeners.mqtts]
            address = "127.0.0.1:{self.port}"
        """
        self.broker = broker_with(self.config)

    def open(self, file: str | None, version: int = V5) -> wire.Client:
        context = ssl.create_default_context(cafile=self.authority.certificate("ca"))
        if file:
            context.load_cert_chain(self.authority.certificate(file), self.authority.key(file))
        stream = socket.create_connection(("127.0.0.1", self.port), 5)
        return wire.Client(context.wrap_socket(stream, server_hostname="localhost"), version)

    def log_in(self, file: str | None, user: str | None = None, password: bytes | None = None, version: int = V5,
               client_id: str = "c") -> wire.Client:
        client = self.open(file, version)
        client.connect(client_id, username=user, password=password)
        return client


@pytest.fixture
def secure(broker_with, authority):
    return lambda config, tls="": Secure(broker_with, authority, config, tls)


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


def test_a_revoked_certificate(secure, authority):
    ada, bob = authority.client("ada", "/CN=acme\\/ada"), authority.client("bob", "/CN=acme\\/bob")
    running = secure(BACK_END, f'crl = ["{authority.directory}/crl.pem"]')
    first, second = running.log_in(ada, client_id="a"), running.log_in(bob, client_id="b")
    assert (first.connack.reason, second.connack.reason) == (ACCEPTED, ACCEPTED)
    authority.revoke(ada)
    running.broker.reload(running.config)
    first.expect_refused(0x98, timeout=2)
    second.ping()
    with pytest.raises((ssl.SSLError, wire.Closed, ConnectionError)):
        running.log_in(ada)
    assert running.log_in(bob).connack.reason == ACCEPTED


def test_a_revocation_list_that_has_expired_lets_nobody_in(secure, authority):
    ada = authority.client("ada", "/CN=acme\\/ada")
    authority.list("-crlsec", "1")
    running = secure(BACK_END, f'crl = ["{authority.directory}/crl.pem"]')
    time.sleep(2)
    with pytest.raises((ssl.SSLError, wire.Closed, ConnectionError)):
        running.log_in(ada)
    authority.list()
    running.broker.reload(running.config)
    assert running.log_in(ada).connack.reason == ACCEPTED
