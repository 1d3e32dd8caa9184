"""Fixtures for tests with the clients of the ecosystem: a broker with every listener, and clients that end with their test."""

from __future__ import annotations

from functools import partial

import pytest

from broker import Broker, free_port
from brokers import BROKERS, AnyBroker, Member
from certificates import Certificates
from paho_client import Paho

TENANTS = ("acme", "globex")


def pytest_configure(config):
    config.addinivalue_line("markers", "one_broker: its subject is a broker, not a cluster; so it has one also with BARID_BROKERS")


class Everywhere(Broker):
    """A broker that listens with all four transports."""

    def __init__(self, certificates: Certificates):
        super().__init__("[sys]\ninterval = 1\n" + self.listeners(certificates))

    def listeners(self, certificates: Certificates) -> str:
        self.certificates = certificates
        self.mqtts_port, self.wss_port = free_port(), free_port()
        return f"""
            {certificates.toml(f'client_ca = "{certificates.certificate("ca")}"')}
            [listeners.mqtts]
            address = "127.0.0.1:{self.mqtts_port}"
            [listeners.wss]
            address = "127.0.0.1:{self.wss_port}"
        """

    def port_of(self, transport: str) -> int:
        return {"tcp": self.port, "tls": self.mqtts_port, "ws": self.ws_port, "wss": self.wss_port}[transport]


class EverywhereMember(Everywhere, Member):
    """Such a broker of a cluster."""

    def __init__(self, certificates: Certificates, *arguments, more: str = "", **options):
        Member.__init__(self, *arguments, more=more + self.listeners(certificates), **options)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def single(certificates):
    """A broker that belongs to no cluster."""
    running = Everywhere(certificates)
    yield running
    running.end()


@pytest.fixture(scope="session")
def several(certificates):
    running = AnyBroker(BROKERS, member=partial(EverywhereMember, certificates))
    yield running
    running.end()


@pytest.fixture
def broker(request):
    is_single = BROKERS == 1 or request.node.get_closest_marker("one_broker")
    return request.getfixturevalue("single" if is_single else "several")


@pytest.fixture
def paho(broker, unique):
    """Connects a paho client; see `Paho` for the options. `to` is another broker than the common one."""
    clients = []

    def connect(client_id: str | None = None, to=None, tenant: str | None = None, **options) -> Paho:
        if tenant:
            options["username"] = f"{tenant}/device"
        clients.append(Paho(to or broker, unique("p") if client_id is None else client_id, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.leave()
    failures = [failure for client in clients for failure in client.failures]
    assert not failures, failures


@pytest.fixture(params=[4, 5], ids=["v3.1.1", "v5"])
def version(request) -> int:
    """The versions that all the clients speak."""
    return request.param


@pytest.fixture(params=["tcp", "tls", "ws", "wss"])
def transport(request) -> str:
    return request.param
