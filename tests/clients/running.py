"""`barid serve` as an operator starts it: to see what it prints, how it refuses to start, how it ends."""

from __future__ import annotations

import os
import subprocess

from broker import BINARY

# The tests of one machine must not depend on what its user has set for Barid.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("BARID_")}


def barid(*arguments, environment: dict | None = None, **run) -> subprocess.CompletedProcess:
    """Runs `barid` until it ends, which it must within half a minute."""
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=30,
                          env=ENVIRONMENT | (environment or {}), **run)


def hashed(password: str, name: str | None = None) -> str:
    """What `barid passwd` prints."""
    done = barid("passwd", "--stdin", *([name] if name else []), input=password)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
