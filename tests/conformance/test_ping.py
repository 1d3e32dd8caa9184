"""PINGREQ and Keep Alive (5: §3.1.2.10, §3.12; 3.1.1: the same)."""

import time

import pytest

import wire
from wire import V5

normative = pytest.mark.normative


@normative("5:MQTT-3.12.4-1", "311:MQTT-3.12.4-1")
def test_pingreq_is_answered(connect, version):
    client = connect(version)
    for _ in range(3):
        client.send(wire.pingreq()).expect(wire.PINGRESP)
    client.send(*[wire.pingreq()] * 50)
    for _ in range(50):
        client.expect(wire.PINGRESP)


@normative("5:MQTT-3.1.2-22", "5:MQTT-3.2.2-22", "311:MQTT-3.1.2-24")
def test_silence_closes_the_connection(connect, version):
    """After one and a half times the Keep Alive, and not much later; MQTT 5 says why."""
    started = time.monotonic()
    client = connect(version, keep_alive=1)
    client.expect_refused(0x8D)
    assert 1.4 <= time.monotonic() - started <= 6


@pytest.mark.parametrize("packet", ["ping", "publish", "partial"])
@normative("5:MQTT-3.1.2-22", "311:MQTT-3.1.2-24")
def test_packets_keep_the_connection_alive(connect, topic, oasis, packet):
    """Any packet does. Bytes that are not a whole packet yet do not."""
    client = connect(oasis, keep_alive=2)
    stream = {"ping": [wire.pingreq()] * 3,
              "publish": [wire.publish(topic, b"x", version=oasis)] * 3,
              "partial": [bytes([byte]) for byte in wire.publish(topic, b"x" * 50, version=oasis)[:4]]}[packet]
    try:
        for part in stream:
            time.sleep(1.2)
            client.send(part)
        if packet != "partial":
            client.ping()
            return
        client.expect_refused(0x8D)
    except ConnectionError:
        assert packet == "partial"


@normative("5:MQTT-3.2.2-22", "311:MQTT-3.1.2-24")
def test_deliveries_are_no_sign_of_life(connect, topic, oasis):
    """What the broker sends does not count, what the client sends does."""
    publisher = connect(oasis)
    client = connect(oasis, keep_alive=1)
    client.subscribe(topic)
    deadline = time.monotonic() + wire.SECONDS
    try:
        while time.monotonic() < deadline:
            publisher.publish(topic, b"x")
            found = client.recv()
            if found.kind == wire.DISCONNECT:
                assert found.reason == 0x8D
                return
            time.sleep(0.1)
    except wire.Closed:
        return
    raise AssertionError("still connected")


def test_keep_alive_0_turns_it_off(connect, version):
    client = connect(version, keep_alive=0)
    client.expect_nothing(2.0)
    client.ping()


def test_the_server_may_ask_for_another_keep_alive(broker_with, connect):
    """A longer one, or none at all, becomes the maximum; a shorter one stays."""
    strict = broker_with("[limits]\nmax_keep_alive = 1\n")
    for keep_alive in (0, 600):
        client = connect(V5, to=strict, keep_alive=keep_alive)
        assert client.connack.properties["server_keep_alive"] == 1
        client.expect_refused(0x8D)
    strict = broker_with("[limits]\nmax_keep_alive = 100\n")
    assert "server_keep_alive" not in connect(V5, to=strict, keep_alive=50).connack.properties
