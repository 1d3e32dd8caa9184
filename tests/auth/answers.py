"""What CONNACK says, and password hashes that are cheap to verify."""

from __future__ import annotations

import subprocess

import wire
from broker import BINARY

# What CONNACK says, by version: let in, wrong password or unknown, cannot tell.
ACCEPTED = 0
DENIED = {wire.V311: 4, wire.V5: 0x86}
UNAVAILABLE = {wire.V311: 3, wire.V5: 0x88}


def hashed(password: str, name: str | None = None) -> str:
    """Returns what `barid passwd` prints, with a hash that is cheap to verify."""
    words = [BINARY, "passwd", "--stdin", "--cost", "device", *([name] if name else [])]
    return subprocess.run(words, input=password, capture_output=True, text=True, check=True).stdout.strip()
