"""Clients that ask to be referred to the broker with their session (MQTT 5 §4.11)."""

from __future__ import annotations

import uuid

import pytest

import wire
from brokers import Cluster, links_tls

HOUR = {"session_expiry_interval": 3_600}
FOLLOWS = {"user_property": [("barid-redirect", "1")]}

# The MQTT port of each broker, which is known when it starts.
LISTENER = '[listeners]\nmqtt = { address = "127.0.0.1:{port}" }\n'
REFERENCE = 'server_reference = "127.0.0.1:{port}"'

USE_ANOTHER_SERVER = 0x9C


@pytest.fixture(scope="module")
def referring():
    cluster = Cluster(3, homes=True, more=LISTENER, tls=f"{links_tls()}\n{REFERENCE}")
    yield cluster
    cluster.close()


def answer(member, client_id: str, **properties) -> tuple[wire.Client, wire.Packet]:
    one = wire.Client(member.address)
    one.send(wire.connect(client_id, clean=False, properties={**HOUR, **properties}))
    return one, one.expect(wire.CONNACK)


def test_a_client_that_asks_is_told_where_its_session_is(referring):
    told = set()
    for _ in range(20):
        client_id = uuid.uuid4().hex[:20]
        one, connack = answer(referring[0], client_id, **FOLLOWS)
        if connack.reason == 0:
            one.drop()
            continue
        assert connack.reason == USE_ANOTHER_SERVER, connack
        one.expect_closed()
        host, port = connack.properties["server_reference"].split(":")
        home = next(member for member in referring if member.port == int(port))
        told.add(home.name)
        one, connack = answer(home, client_id, **FOLLOWS)
        assert connack.reason == 0
        assert home.has_session(client_id)
        one.drop()
    assert told == {"b2", "b3"}
    assert referring[0].metric("^barid_cluster_relayed_clients") == 0


def test_others_are_passed_on(referring):
    """Who does not ask, and who speaks MQTT 3.1.1."""
    for _ in range(10):
        one, connack = answer(referring[0], uuid.uuid4().hex[:20])
        assert connack.reason == 0
        one.drop()


def test_a_client_with_a_small_maximum_packet_size_is_passed_on(referring):
    for _ in range(10):
        one, connack = answer(referring[0], uuid.uuid4().hex[:20], maximum_packet_size=20, **FOLLOWS)
        assert connack.reason in (0, 0x95), connack
        one.drop()


def test_without_addresses_all_are_passed_on(homes):
    for _ in range(10):
        one, connack = answer(homes[0], uuid.uuid4().hex[:20], **FOLLOWS)
        assert connack.reason == 0
        one.drop()
