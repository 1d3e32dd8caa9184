"""TLS on the links between brokers."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import time

import pytest

import wire
from broker import BINARY, free_port, until
from brokers import SECRET, Cluster, Member, link_tls
from certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def others(tmp_path_factory) -> Certificates:
    """Certificates of another authority."""
    return Certificates(tmp_path_factory.mktemp("others"))


@pytest.fixture
def two(member):
    """Starts two brokers that know each other, each with its entry for TLS."""
    def start(first: str, second: str, **options) -> tuple[Member, Member]:
        ports = [free_port(), free_port()]
        return (member("b1", ports, listen=ports[0], tls=first),
                member("b2", ports, listen=ports[1], tls=second, **options))

    return start


def problems(member: Member) -> str:
    return "\n".join(problem["reason"] for problem in member.cluster["problems"])


def exchange(cluster: Cluster, client) -> None:
    """Every kind of link carries something: a message to each other broker, a retained message, a session at its home."""
    for sender in cluster:
        for receiver in cluster:
            to, by = client(receiver), client(sender)
            to.subscribe("confidential", qos=1)
            by.publish("confidential", b"a confidential payload", qos=1)
            assert to.receive(b"a confidential payload").topic == "confidential"
    client(cluster[0]).publish("confidential/kept", b"a confidential payload", qos=1, retain=True)
    to = client(cluster[1])
    to.subscribe("confidential/kept", qos=1)
    # Perhaps it is just coming from the other broker.
    assert to.receive(b"a confidential payload").topic == "confidential/kept"
    for index in range(9):
        session = client(cluster[index % 3], f"session-{index}", properties={"session_expiry_interval": 60})
        session.subscribe("confidential/session", qos=1)
        session.publish("confidential/session", b"a confidential payload", qos=2)
        session.receive(b"a confidential payload")


@pytest.mark.parametrize("is_encrypted", [True, False], ids=["tls", "plain"])
def test_nothing_can_be_read_on_the_way(cluster_of, client, certificates, is_encrypted):
    """Without TLS, the same test finds the payload."""
    cluster = cluster_of(3, proxied=True, homes=True, tls=link_tls(certificates) if is_encrypted else "")
    exchange(cluster, client)
    passed = b"".join(bytes(proxy.passed) for proxy in cluster.proxies)
    assert len(passed) > 10_000
    assert any(word in passed for word in (b"confidential", b"session-")) != is_encrypted
    assert all(one.cluster["encrypted"] == is_encrypted for one in cluster)


def test_large_messages_and_many(cluster_of, client, certificates):
    """Each is in many records, and all wait for the reader at times."""
    cluster = cluster_of(2, tls=link_tls(certificates))
    receiver, sender = client(cluster[1]), client(cluster[0])
    receiver.subscribe("large", qos=1)
    for number in range(24):
        payload = bytes([number]) * 900_000
        sender.publish("large", payload, qos=1)
        assert receiver.receive(payload).topic == "large"


def test_nothing_is_lost_when_links_break(cluster_of, client, certificates):
    cluster = cluster_of(2, proxied=True, tls=link_tls(certificates))
    receiver, sender = client(cluster[1]), client(cluster[0])
    receiver.subscribe("t", qos=1)
    sent = [b"%d" % number for number in range(300)]
    for number, payload in enumerate(sent):
        if number % 60 == 30:
            cluster.proxies[1].cut()
        sender.publish("t", payload, qos=1)
    received = [receiver.receive(payload).payload for payload in sent]
    assert received == sent


def test_a_certificate_of_another_authority_is_refused(two, certificates, others):
    first, second = two(link_tls(certificates), link_tls(others))
    until(lambda: "invalid peer certificate" in problems(first) and "invalid peer certificate" in problems(second))
    assert first.states() == second.states() == {}
    status = first.command("status")
    assert status.returncode == 1 and "TLS: invalid peer certificate" in status.stdout


def test_a_certificate_must_be_for_the_host(two, certificates):
    (certificates.directory / "names").write_text("subjectAltName=DNS:elsewhere.test\nbasicConstraints=CA:FALSE\n")
    certificates.issue("elsewhere")
    first, second = two(link_tls(certificates), link_tls(certificates, "elsewhere"))
    until(lambda: "not valid for name" in problems(first) and "elsewhere.test" in problems(first))
    until(lambda: "the certificate is not for the host" in first.stderr and "the certificate is not for the host" in problems(second))
    assert first.states() == second.states() == {}


def test_the_secret_counts_nevertheless(two, certificates):
    first, second = two(link_tls(certificates), link_tls(certificates), secret="another secret of a cluster")
    until(lambda: "secret" in problems(first) and "secret" in problems(second))
    assert first.states() == second.states() == {}


def test_tls_and_plain_text_do_not_fit(two, certificates):
    encrypted, plain = two(link_tls(certificates), "")
    until(lambda: "does not answer in TLS: it may have no [cluster.tls]" in problems(encrypted))
    until(lambda: "the other broker uses TLS, and this one has no [cluster.tls]" in problems(plain))
    assert encrypted.states() == plain.states() == {}


def test_certificates_are_read_again(two, certificates, client, tmp_path):
    """For links that are opened from then on. Existing ones go on."""
    mine = Certificates(tmp_path)
    first, second = two(link_tls(certificates), link_tls(mine))
    until(lambda: "invalid peer certificate" in problems(first))
    for name in ("server.pem", "server.key", "ca.pem"):
        (tmp_path / name).write_bytes((certificates.directory / name).read_bytes())
    second.signal(signal.SIGHUP)
    until(lambda: first.sees("b2") and second.sees("b1"), 15)
    assert "cluster.tls" in second.stderr
    receiver = client(second)
    receiver.subscribe("t", qos=1)
    # What cannot be used changes nothing.
    (tmp_path / "server.pem").write_text("not a certificate")
    second.signal(signal.SIGHUP)
    until(lambda: "not a certificate" in second.stderr or "no certificate in" in second.stderr)
    client(first).publish("t", b"still there", qos=1)
    receiver.receive(b"still there")


def test_the_end_of_a_certificate_is_announced(member, certificates, tmp_path):
    mine = Certificates(tmp_path)
    one = member("b1", [], tls=link_tls(mine))
    name = "^barid_cluster_certificate_expires_timestamp_seconds"
    assert time.time() + 29 * 86_400 < one.metric(name) < time.time() + 31 * 86_400
    assert "expires" not in one.command("status").stdout
    mine.issue("server", days=13)
    one.signal(signal.SIGHUP)
    until(lambda: one.metric(name) < time.time() + 14 * 86_400)
    assert one.cluster["certificate_expires_at"] in one.command("status").stdout


@pytest.mark.parametrize(("entry", "expected"), [
    ('tls = { certificate = "{d}/none.pem", key = "{d}/server.key", ca = "{d}/ca.pem" }', "none.pem"),
    ('tls = { certificate = "{d}/server.pem", key = "{d}/client.key", ca = "{d}/ca.pem" }', "not the private key of the certificate"),
    ('tls = { certificate = "{d}/server.pem", key = "{d}/server.key", ca = "{d}/server.key" }', "no certificate in"),
    ('tls = { certificate = "{d}/server.pem", key = "{d}/server.key" }', "the key `ca` is missing"),
])
def test_what_cannot_be_used_is_named(certificates, tmp_path, entry, expected):
    config = tmp_path / "barid.toml"
    entry = entry.replace("{d}", str(certificates.directory))
    config.write_text(f'[cluster]\nname = "a"\nbroker = "b"\nlisten = "127.0.0.1:7946"\nsecret = "{SECRET}"\n{entry}\n')
    done = subprocess.run([BINARY, "check-config", config], capture_output=True, text=True)
    assert done.returncode != 0 and expected in done.stdout + done.stderr


def test_bytes_of_strangers_do_no_harm(member, certificates):
    """Neither frames in plain text, nor a handshake that stops, nor one without a certificate."""
    one = member("b1", [], tls=link_tls(certificates))
    for sent in (b"\0\0\0\x20\x01" + os.urandom(64), b"\x16\x03\x01\x02\x00\x01\xff" + os.urandom(600), os.urandom(4096), b"\x16"):
        with socket.create_connection(("127.0.0.1", one.link_port), timeout=wire.SECONDS) as stream:
            stream.sendall(sent)
            if sent != b"\x16":
                try:
                    while stream.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
    context = ssl.create_default_context(cafile=certificates.certificate("ca"))
    with socket.create_connection(("127.0.0.1", one.link_port), timeout=wire.SECONDS) as stream:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            with context.wrap_socket(stream, server_hostname="localhost") as encrypted:
                assert encrypted.recv(1) != b"", "ended"
                pytest.fail("served without a certificate")
    until(lambda: "refused a link: TLS" in one.stderr)
    assert one.running()
