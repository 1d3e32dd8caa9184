"""Fixtures of the attacks."""

import pytest


@pytest.fixture
def one_thread(broker_with):
    """Starts a broker whose clients share one IO thread; `toml` may begin with settings of the top level."""
    return lambda toml="": broker_with(f"workers = 1\n{toml}")
