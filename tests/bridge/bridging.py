"""What tests of bindings share: queues and bindings in TOML, and the broker told to read it anew."""

from __future__ import annotations

import signal

from broker import Broker
from running import until


def queue(name: str, **properties) -> str:
    """A queue in TOML; with sessions, unless it says otherwise."""
    properties = {"RequiresSession": True} | properties
    lines = [f"properties.{key} = {written(value)}" for key, value in properties.items()]
    return "\n".join(["[[queues]]", f'name = "{name}"', *lines, ""])


def binding(name: str, **members) -> str:
    """A binding in TOML."""
    lines = [f"{key} = {written(value)}" for key, value in members.items()]
    return "\n".join(["[[bindings]]", f'name = "{name}"', *lines, ""])


def written(value) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def reload(running: Broker, toml: str) -> str:
    """Writes the file anew, sends SIGHUP and answers with what the log says then."""
    before = len(running.stderr)
    (running.directory / "barid.toml").write_text(toml)
    running.signal(signal.SIGHUP)
    until(lambda: "reloaded" in running.stderr[before:])
    return running.stderr[before:]
