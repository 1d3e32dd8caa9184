"""MQTT over TLS and secure WebSocket: ALPN, client certificates (5 and 3.1.1: §5.4)."""

import random
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import wire
from broker import free_port
from certificates import Certificates
from test_websocket import WebSocket
from wire import V5


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


class Secure:
    """A broker with TLS listeners, and what it takes to reach them."""

    def __init__(self, broker_with, certificates, tls: str = ""):
        self.certificates = certificates
        self.mqtts, self.wss = free_port(), free_port()
        self.broker = broker_with(f"""
            {certificates.toml(tls)}
            [listeners.mqtts]
            address = "127.0.0.1:{self.mqtts}"
            [listeners.wss]
            address = "127.0.0.1:{self.wss}"
        """)

    def wrap(self, port: int, identity: str | None = None, alpn: list[str] | None = None, receive_buffer: int | None = None) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.certificates.certificate("ca"))
        if identity:
            context.load_cert_chain(self.certificates.certificate(identity), self.certificates.key(identity))
        if alpn:
            context.set_alpn_protocols(alpn)
        stream = socket.socket()
        if receive_buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        stream.settimeout(5)
        stream.connect(("127.0.0.1", port))
        return context.wrap_socket(stream, server_hostname="localhost")

    def converse(self, version: int = V5, **options) -> None:
        client = wire.Client(self.wrap(self.mqtts, **options), version)
        assert client.connect("secure").reason == 0
        client.subscribe("t", qos=2)
        client.publish("t", bytes(100_000), qos=2)
        client.receive(bytes(100_000))
        client.stream.close()


@pytest.fixture
def secure(broker_with, certificates):
    return lambda tls="": Secure(broker_with, certificates, tls)


def test_mqtt_over_tls(secure):
    broker = secure()
    for version in (3, 4, 5):
        broker.converse(version)


def test_alpn(secure):
    """mqtt is selected where it is offered; offering nothing is fine."""
    broker = secure()
    assert broker.wrap(broker.mqtts, alpn=["mqtt"]).selected_alpn_protocol() == "mqtt"
    assert broker.wrap(broker.mqtts, alpn=["h2", "mqtt"]).selected_alpn_protocol() == "mqtt"
    assert broker.wrap(broker.mqtts).selected_alpn_protocol() is None
    broker.converse(alpn=["mqtt"])


def test_client_certificates_may_be_optional(secure, certificates):
    """With an authority a certificate is checked, without one there is none to check."""
    broker = secure(f'client_ca = "{certificates.certificate("ca")}"')
    broker.converse()
    broker.converse(identity="client")
    with pytest.raises((ssl.SSLError, ConnectionError, wire.Closed)):
        broker.converse(identity="stranger")


def test_client_certificates_may_be_required(secure, certificates):
    broker = secure(f'client_ca = "{certificates.certificate("ca")}"\nrequire_client_certificate = true')
    broker.converse(identity="client")
    for identity in (None, "stranger"):
        with pytest.raises((ssl.SSLError, ConnectionError, wire.Closed)):
            broker.converse(identity=identity)


def test_plain_mqtt_on_a_tls_port_ends(secure):
    broker = secure()
    plain = wire.Client(("127.0.0.1", broker.mqtts)).send(wire.connect("c"))
    with pytest.raises((wire.Closed, wire.Violation)):
        plain.recv()
    plain.stream.close()
    broker.converse()


def test_a_handshake_that_never_ends_is_ended(broker_with, certificates):
    """The time until CONNECT includes the handshake."""
    broker = Secure(lambda config: broker_with("[limits]\nconnect_timeout = 1\n" + config), certificates)
    silent = socket.create_connection(("127.0.0.1", broker.mqtts), timeout=wire.SECONDS)
    assert silent.recv(1) == b""
    shaken = broker.wrap(broker.mqtts)
    shaken.settimeout(wire.SECONDS)
    try:
        assert shaken.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        pass


def test_mqtt_over_secure_websocket(secure):
    broker = secure()
    client = wire.Client(WebSocket(("127.0.0.1", broker.wss), wrap=lambda stream: ssl.create_default_context(
        cafile=broker.certificates.certificate("ca")).wrap_socket(stream, server_hostname="localhost")))
    assert client.connect("secure").reason == 0
    client.subscribe("t", qos=1)
    client.publish("t", bytes(50_000), qos=1)
    client.receive(bytes(50_000))
    client.stream.close()


def test_who_reads_slowly_is_heard(secure, connect):
    """Whatever it says while the broker has no room to write: nothing but reading may take it off the socket."""
    broker = secure()
    over = threading.Event()

    def flood() -> None:
        publisher, chunk = connect(to=broker.broker), b"".join(wire.publish("flood", bytes(1500)) for _ in range(100))
        while not over.wait(0.003):
            publisher.send(chunk)

    def talk(name: str) -> None:
        chance, watcher = random.Random(name), connect(to=broker.broker)
        watcher.subscribe(name)
        slow = wire.Client(broker.wrap(broker.mqtts, receive_buffer=8192))
        slow.connect(name)
        slow.subscribe("flood")
        for number in range(60):
            time.sleep(chance.choice((0, 0.01, 0.03)))
            wanted = chance.choice((2000, 60_000, 300_000))
            while wanted > 0:
                wanted -= len(slow.stream.recv(16_384))
            slow.send(wire.publish(name, b"%d" % number))
            watcher.receive(b"%d" % number)

    with ThreadPoolExecutor(5) as pool:
        flooding = pool.submit(flood)
        try:
            for talking in [pool.submit(talk, f"slow {number}") for number in range(4)]:
                talking.result()
        finally:
            over.set()
        flooding.result()
