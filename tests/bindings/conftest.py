"""Fixtures for brokers with bindings: devices are MQTT clients, workers are clients of Service Bus."""

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
    """Opens a queue, or a topic with a subscription, for workers."""
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
