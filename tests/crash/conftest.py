"""Fixtures: a broker to be killed, clients with sessions, and a seed for each run. CRASH_SEED=N repeats a run; the seed is
printed when a test fails.
"""

import os
import random

import pytest
import wire
from broker import ending, until
from steps import FOREVER
from victim import Victim
from wire import V5


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    print(f"CRASH_SEED={chosen}")
    return chosen


@pytest.fixture
def make_victim():
    """Starts brokers, and checks at the end that none of them has panicked."""
    with ending() as started:
        def make(kind: type[Victim] = Victim) -> Victim:
            started.append(kind())
            return started[-1]

        yield make


@pytest.fixture
def victim(make_victim):
    return make_victim()


@pytest.fixture
def crash(victim):
    """Kills the broker and starts it again on the same data."""

    def crash_() -> None:
        victim.die()
        victim.revive()

    return crash_


@pytest.fixture
def rest(victim, connect):
    """Waits until everything that the broker has noted is on disk, which no packet reports. A shard commits in order: when
    a new session in it is answered, everything that it noted before is written.
    """

    def rest_() -> None:
        until(victim.is_at_rest)
        for number in range(32):  # enough sessions for each shard to have some
            connect(f"rest{number}")

    return rest_


@pytest.fixture
def connect(victim):
    """Connects with Clean Start 0 and, unless specified otherwise, a session that never expires."""
    clients = []

    def connect_(name: str = "", version: int = V5, expiry: int | None = FOREVER, present: bool | None = None,
                 clean: bool = False, tenant: str = "acme", **options) -> wire.Client:
        if version == V5:
            properties = {} if expiry is None else {"session_expiry_interval": expiry}
            options["properties"] = properties | options.get("properties", {})
        client = wire.Client(victim.address, version)
        clients.append(client)
        connack = client.connect(name, clean=clean, username=f"{tenant}/device", **options)
        assert connack.reason == 0, connack
        assert present in (None, connack.session_present), f"expected Session Present {present}"
        return client

    yield connect_
    for client in clients:
        client.stream.close()
