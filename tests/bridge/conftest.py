"""Brokers with bindings; devices are MQTT clients, workers those of Service Bus."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

TESTS = Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(TESTS / "servicebus"), str(TESTS / "clients")]

from azure_client import Entity, close_quietly  # noqa: E402
from namespace import KEY, KEY_NAME  # noqa: E402
from paho_client import Paho  # noqa: E402


def queue(name: str, **properties) -> str:
    """A queue in TOML; with sessions, unless it says otherwise."""
    properties = {"RequiresSession": True} | properties
    lines = [f"properties.{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in properties.items()]
    return "\n".join(["[[queues]]", f'name = "{name}"', *lines, ""])


def binding(name: str, **members) -> str:
    """A binding in TOML."""
    written = {True: "true", False: "false"}
    lines = [f"{key} = {written[value] if isinstance(value, bool) else repr(value)}" for key, value in members.items()]
    return "\n".join(["[[bindings]]", f'name = "{name}"', *lines, ""])


@pytest.fixture
def device(unique):
    """Connects a device with paho."""
    connected = []

    def connect(to, name: str | None = None, **options) -> Paho:
        connected.append(Paho(to, name or unique("d"), **options))
        return connected[-1]

    yield connect
    for one in connected:
        one.leave()
    for one in connected:
        assert one.failures == []


@pytest.fixture
def entity():
    """A queue, or a topic with a subscription, as workers see it."""
    made = []

    def find(to, path: str, subscription: str | None = None, keys: tuple[str, str] = (KEY_NAME, KEY)) -> Entity:
        secret = f"SharedAccessKeyName={keys[0]};SharedAccessKey={keys[1]};"
        text = f"Endpoint=sb://127.0.0.1:{to.amqp_port};{secret}UseDevelopmentEmulator=true;"
        made.append(Entity(ServiceBusClient.from_connection_string(text, retry_total=0), path, subscription))
        return made[-1]

    yield find
    for one in made:
        one.close()
        close_quietly(one.client)
