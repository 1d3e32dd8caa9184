"""`barid serve` as an operator starts it: to see what it prints, how it refuses to start, how it ends."""

from __future__ import annotations

import os
import subprocess
import time

from broker import BINARY

# The tests of one machine must not depend on what its user has set for Barid.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("BARID_")}


def barid(*arguments, environment: dict | None = None, **run) -> subprocess.CompletedProcess:
    """Runs `barid` until it ends, which it must within ten seconds."""
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=10,
                          env=ENVIRONMENT | (environment or {}), **run)


def hashed(password: str, name: str | None = None) -> str:
    """What `barid passwd` prints."""
    done = barid("passwd", "--stdin", *([name] if name else []), input=password)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def until(condition, seconds: float = 5.0) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
