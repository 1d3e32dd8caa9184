"""Fixtures for tests of the state store: clients in a tenant of their test alone, so that keys and clocks are its own."""

from __future__ import annotations

import subprocess

import pytest

from broker import BINARY, Broker
from statestore_client import Store


@pytest.fixture
def tenant(unique) -> str:
    """A tenant of this test alone."""
    return unique("n")


@pytest.fixture
def store(connect, tenant):
    """Connects a client of the state store; `tenant` and `to` are another tenant and another broker."""
    own = tenant

    def connect_(client_id: str | None = None, to: Broker | None = None, tenant: str | None = None, subscribes: bool = True,
                 **options) -> Store:
        if "username" not in options:
            options["tenant"] = tenant or own
        return Store(connect(client_id=client_id, to=to, **options), subscribes)

    return connect_


@pytest.fixture(scope="session")
def hashed_password() -> str:
    """The hash of `secret`, for settings with users."""
    command = [BINARY, "passwd", "--stdin"]
    return subprocess.run(command, input="secret", capture_output=True, text=True, check=True).stdout.strip()
