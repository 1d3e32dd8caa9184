"""Certificates as operators use them: who is let in, what ALPN agrees on, and replacing them while running."""

import signal
import socket
import ssl

import pytest

from broker import until
from certificates import Certificates
from conftest import Everywhere
from paho_client import Paho
from running import barid

REFUSED = (ssl.SSLError, ConnectionError)


def shown(broker, port: int, alpn: list[str] | None = None) -> tuple[bytes, str | None]:
    """The certificate that the broker shows, and the protocol it agrees on."""
    context = ssl.create_default_context(cafile=broker.certificates.certificate("ca"))
    context.set_alpn_protocols(alpn or [])
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=5), server_hostname="localhost") as stream:
        return stream.getpeercert(binary_form=True), stream.selected_alpn_protocol()


def der(certificates, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificates.certificate(name).read_text())


@pytest.fixture
def everywhere(tmp_path):
    """A broker of one test, with certificates that the test may replace."""
    started = []

    def start() -> Everywhere:
        certificates = Certificates(tmp_path)
        started.append(Everywhere(certificates))
        return started[-1]

    yield start
    for running in started:
        running.close()


def test_alpn(broker, certificates, paho):
    assert shown(broker, broker.mqtts_port, ["mqtt"]) == (der(certificates, "server"), "mqtt")
    assert shown(broker, broker.mqtts_port, ["h2", "mqtt"])[1] == "mqtt"
    assert shown(broker, broker.wss_port, ["http/1.1"])[1] == "http/1.1"
    assert shown(broker, broker.mqtts_port)[1] is None
    paho(transport="tls", alpn=["mqtt"])


def test_a_client_that_speaks_another_protocol_is_refused(broker):
    with pytest.raises(REFUSED):
        shown(broker, broker.mqtts_port, ["h2"])


@pytest.mark.parametrize("oldest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3(broker, certificates, oldest):
    context = ssl.create_default_context(cafile=certificates.certificate("ca"))
    context.minimum_version = context.maximum_version = oldest
    with context.wrap_socket(socket.create_connection(("127.0.0.1", broker.mqtts_port), timeout=5),
                             server_hostname="localhost") as stream:
        assert stream.version() == oldest.name.replace("_", ".")


@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_client_certificates_that_are_required(everywhere, transport):
    """With one of the authority a client is let in, with none or somebody else's it is not."""
    broker = everywhere()
    config = broker.directory / "barid.toml"
    config.write_text(config.read_text().replace("client_ca", "require_client_certificate = true\nclient_ca"))
    broker.signal(signal.SIGHUP)
    until(lambda: "tls" in broker.stderr)
    client = Paho(broker, "certified", transport=transport, certificate="client")
    client.publish("t", b"x", 1)
    client.leave()
    for name in (None, "stranger"):
        with pytest.raises(REFUSED):
            knock(broker, transport, name)
    assert not client.failures


def knock(broker, transport: str, name: str | None) -> None:
    """CONNECT over TLS with a certificate, read CONNACK; in TLS 1.3 a refusal comes with the first read."""
    context = ssl.create_default_context(cafile=broker.certificates.certificate("ca"))
    if name:
        context.load_cert_chain(broker.certificates.certificate(name), broker.certificates.key(name))
    stream = socket.create_connection(("127.0.0.1", broker.port_of(transport)), timeout=5)
    with context.wrap_socket(stream, server_hostname="localhost") as secure:
        secure.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c" if transport == "tls" else b"GET /mqtt HTTP/1.1\r\n\r\n")
        if not secure.recv(1):
            raise ConnectionError("closed")


def test_sighup_replaces_the_certificate(everywhere):
    """Under the same names: new connections see the new one, old connections live on."""
    broker = everywhere()
    old = der(broker.certificates, "server")
    client = Paho(broker, "before", transport="tls")
    assert shown(broker, broker.mqtts_port)[0] == old
    broker.certificates.issue("server")
    new = der(broker.certificates, "server")
    assert new != old and shown(broker, broker.mqtts_port)[0] == old, "nobody has told the broker yet"
    broker.signal(signal.SIGHUP)
    until(lambda: shown(broker, broker.mqtts_port)[0] == new)
    assert shown(broker, broker.wss_port)[0] == new
    client.subscribe("t", 1)
    client.publish("t", b"still connected", 1)
    assert client.receive().payload == b"still connected"
    client.leave()


def test_a_broken_certificate_changes_nothing(everywhere):
    """Said in the log; the old one stays."""
    broker = everywhere()
    old = der(broker.certificates, "server")
    broker.certificates.certificate("server").write_text("no certificate")
    broker.signal(signal.SIGHUP)
    until(lambda: "server.pem" in broker.stderr)
    assert shown(broker, broker.mqtts_port)[0] == old


def test_what_is_wrong_with_certificates_is_said_before_the_start(certificates, tmp_path):
    """A key that is not the certificate's, a file that is missing, TLS without certificates."""
    pem, key = certificates.certificate, certificates.key
    for toml, words in {
        f'[tls]\ncertificate = "{pem("server")}"\nkey = "{key("client")}"\n': ["key"],
        f'[tls]\ncertificate = "{tmp_path}/none.pem"\nkey = "{key("server")}"\n': ["none.pem"],
        f'[tls]\ncertificate = "{pem("server")}"\nkey = "{key("server")}"\nrequire_client_certificate = true\n': ["client_ca"],
        '[listeners.mqtts]\naddress = "127.0.0.1:0"\n': ["[tls]", "certificate"],
    }.items():
        file = tmp_path / "barid.toml"
        file.write_text(toml)
        done = barid("check-config", file)
        assert done.returncode == 1, toml
        for word in words:
            assert word in done.stdout, (toml, done.stdout)
