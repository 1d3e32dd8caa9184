"""What tests of bindings share: queues and bindings in TOML."""

from __future__ import annotations


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
