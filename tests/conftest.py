"""Fixtures: a broker for the whole session, brokers with special settings, and clients that are closed after their test."""

from __future__ import annotations

import itertools
import os
import uuid

import pytest

import contract
import wire
from broker import Broker, ForeignBroker
from brokers import BROKERS, AnyBroker, started

contract.watch()

TARGET = os.environ.get("MQTT_TARGET")

# $SYS is published often enough for a test to see it; everything else is the default.
CONFIG = "[sys]\ninterval = 1\n"


@pytest.fixture(scope="session")
def broker():
    if TARGET:
        running = ForeignBroker(TARGET)
    else:
        # CONFIG is in that of a cluster, too.
        running = AnyBroker(BROKERS) if BROKERS > 1 else Broker(CONFIG)
    yield running
    running.end()


@pytest.fixture
def ours(broker):
    """The default broker, for tests that need more than MQTT over TCP. Skips the test for a foreign broker."""
    if TARGET:
        pytest.skip("needs more of our broker than MQTT")
    return broker


@pytest.fixture
def broker_with():
    """Starts a broker with the given TOML."""
    if TARGET:
        pytest.skip("needs settings of our broker")
    started = []

    def start(config: str) -> Broker:
        started.append(Broker(config))
        return started[-1]

    yield start
    messages = [(one.running() or one._process.returncode == 0, one.stderr) for one in started]
    for one in started:
        one.close()
    for alive, stderr in messages:
        assert alive, f"the broker ended during the test:\n{stderr}"
        assert "panicked at" not in stderr, stderr


@pytest.fixture
def brokers_with():
    """Starts a broker with the given TOML, or with BARID_BROKERS a cluster of so many, to one of which each connection goes."""
    all_of_them = []

    def start(config: str) -> Broker | AnyBroker:
        all_of_them.append(started(config))
        return all_of_them[-1]

    yield start
    for one in all_of_them:
        one.end()


@pytest.fixture
def dial(broker):
    """Opens a Network Connection without sending anything."""
    clients = []

    def open_(version: int = wire.V5, to=None, timeout: float = wire.SECONDS) -> wire.Client:
        clients.append(wire.Client((to or broker).address, version, timeout, explains=not TARGET))
        return clients[-1]

    yield open_
    for client in clients:
        client.stream.close()


@pytest.fixture
def connect(dial, unique):
    """Opens a Network Connection and connects; the client identifier is new, unless one is given."""

    def connect_(version: int = wire.V5, client_id: str | None = None, to=None, tenant: str | None = None,
                 timeout: float = wire.SECONDS, **options) -> wire.Client:
        client = dial(version, to, timeout)
        if tenant:
            options["username"] = f"{tenant}/device"
        connack = client.connect(unique("c") if client_id is None else client_id, **options)
        assert connack.reason == 0, f"refused: {connack}"
        return client

    return connect_


@pytest.fixture
def unique():
    """Creates names that no other test uses: letters and digits only, 23 bytes at most."""
    serial, run = itertools.count(), uuid.uuid4().hex[:12]
    return lambda prefix="t": f"{prefix[:4]}{run}{next(serial)}"


@pytest.fixture
def topic(unique) -> str:
    """A topic that only this test uses."""
    return "test/" + unique("t")


@pytest.fixture(params=[wire.V31, wire.V311, wire.V5], ids=["v3.1", "v3.1.1", "v5"])
def version(request) -> int:
    return request.param


@pytest.fixture(params=[wire.V311, wire.V5], ids=["v3.1.1", "v5"])
def oasis(request) -> int:
    """An MQTT version with normative statements of its own."""
    return request.param


@pytest.fixture(params=[0, 1, 2], ids=["qos0", "qos1", "qos2"])
def qos(request) -> int:
    return request.param
