"""Shared by the tests of bindings: queues and bindings in TOML."""

from __future__ import annotations


def queue(name: str, **properties) -> str:
    """Returns a queue in TOML; it has sessions, unless `properties` say otherwise."""
    properties = {"RequiresSession": True} | properties
    lines = [f"properties.{key} = {written(value)}" for key, value in properties.items()]
    return "\n".join(["[[queues]]", f'name = "{name}"', *lines, ""])


def binding(name: str, **members) -> str:
    """Returns a binding in TOML."""
    lines = [f"{key} = {written(value)}" for key, value in members.items()]
    return "\n".join(["[[bindings]]", f'name = "{name}"', *lines, ""])


def written(value) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
