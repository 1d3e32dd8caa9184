"""fe2o3-amqp, a client of AMQP 1.0 in Rust: the scenarios of fe2o3/."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "fe2o3"
# Where also the programs of azure/ are built, so that dependencies are built once.
TARGET = HERE.parent.parent / "azure" / "target"
ENVIRONMENT = os.environ | {"CARGO_TARGET_DIR": str(TARGET), "CARGO_PROFILE_DEV_DEBUG": "line-tables-only", "CARGO_INCREMENTAL": "0"}
PLAIN = ["plain_messages", "plain_large", "plain_in_flight", "plain_drain", "plain_refusals"]
SESSIONS = ["session_filter_by_code", "session_filter_by_name", "session_order_and_outcomes", "session_held_and_next"]


@pytest.fixture(scope="session")
def program() -> Path:
    """Built, which takes a minute where its dependencies have not been built before."""
    line = ["cargo", "build", "--locked", "--quiet", "--manifest-path", HERE / "Cargo.toml"]
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return TARGET / "debug" / "fe2o3-scenarios"


def play(program: Path, broker, path: str, scenario: str) -> None:
    done = subprocess.run([program, f"127.0.0.1:{broker.amqp_port}", path, scenario], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == f"ok {scenario}\n", done.stdout + done.stderr


def test_every_scenario_is_played(program):
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout.split() == PLAIN + SESSIONS


@pytest.mark.queue()
@pytest.mark.parametrize("scenario", PLAIN)
def test_without_sessions(program, broker, path, scenario):
    play(program, broker, path(), scenario)


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=10)
@pytest.mark.parametrize("scenario", SESSIONS)
def test_with_sessions(program, broker, path, scenario):
    play(program, broker, path(), scenario)
