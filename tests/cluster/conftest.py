"""A cluster of three brokers for all tests of a module, and clients that are closed after their test."""

from __future__ import annotations

import socket

import pytest

import wire
from brokers import Cluster, Member


def closed_properly(members: list[Member]) -> None:
    for member in members:
        assert "panicked at" not in member.stderr, member.stderr


@pytest.fixture(scope="module")
def three():
    cluster = Cluster(3)
    yield cluster
    closed_properly(cluster.members)
    cluster.close()


@pytest.fixture(scope="module")
def homes():
    """Three brokers, each of which has a third of the sessions that outlive their connections."""
    cluster = Cluster(3, homes=True)
    yield cluster
    closed_properly(cluster.members)
    cluster.close()


@pytest.fixture
def cluster_of():
    """Starts a cluster of so many brokers."""
    started = []

    def start(count: int, **options) -> Cluster:
        started.append(Cluster(count, **options))
        return started[-1]

    yield start
    for cluster in started:
        closed_properly(cluster.members)
        cluster.close()


@pytest.fixture
def member():
    """Starts a single broker of a cluster."""
    started = []

    def start(*arguments, **options) -> Member:
        started.append(Member(*arguments, **options))
        return started[-1]

    yield start
    closed_properly(started)
    for one in started:
        one.close()


@pytest.fixture
def client():
    """Connects a client to a broker."""
    clients = []

    def connect(to: Member, name: str = "", version: int = wire.V5, **options) -> wire.Client:
        stream = socket.create_connection(to.address, timeout=wire.SECONDS)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        clients.append(wire.Client(stream, version))
        clients[-1].connect(name, **options)
        return clients[-1]

    yield connect
    for one in clients:
        one.drop()
