"""SIGHUP: what can change while running changes, what cannot is named, and what is broken changes nothing."""

import pytest

import wire
from broker import until
from paho_client import Refused
from running import hashed


def test_limits(broker_with, paho, topic):
    """Also those of one tenant. Who is connected stays connected."""
    running = broker_with("")
    early = paho(to=running, tenant="acme")
    said = running.reload("[limits]\nmax_packet_size = 5000\n[tenants.acme.limits]\nmax_connections = 1\nmax_qos = 0\n")
    assert "limits" in said and "tenants" in said
    assert paho(to=running).connack.MaximumPacketSize == 5000
    with pytest.raises(Refused) as refused:
        paho(to=running, tenant="acme")
    assert refused.value.code == 0x97
    assert early.client.is_connected()
    assert early.subscribe(topic, 0) == 0


def test_users(broker_with, paho):
    running = broker_with("")
    early = paho(to=running)
    running.reload(hashed("secret", "acme/ada"))
    with pytest.raises(Refused):
        paho(to=running)
    paho(to=running, username="acme/ada", password="secret")
    until(lambda: not early.client.is_connected())
    running.reload("")
    paho(to=running)


def test_the_log_level(broker_with, paho, unique):
    running, name = broker_with(""), unique("seen")
    assert "DEBUG" not in running.stderr
    running.reload('[log]\nlevel = "debug"\n')
    paho(name, to=running).leave()
    until(lambda: "DEBUG" in running.stderr)


def test_what_needs_a_restart_is_named(broker_with, paho):
    running = broker_with("")
    said = running.reload("workers = 3\n")
    assert "workers" in said and "restart" in said
    paho(to=running)


def test_the_strategy_of_shared_subscriptions(broker_with, paho, topic):
    """From one after the other to always the same member for a topic."""
    running = broker_with("")
    members = [paho(to=running) for _ in range(2)]
    for member in members:
        member.subscribe(f"$share/g/{topic}", 1)
    publisher = paho(to=running)

    def counts() -> list[int]:
        for number in range(10):
            publisher.publish(topic, b"%d" % number, 1)
        until(lambda: sum(member.messages.qsize() for member in members) == 10)
        received = [member.messages.qsize() for member in members]
        for member in members:
            member.payloads(member.messages.qsize())
        return sorted(received)

    assert counts() == [5, 5]
    assert "shared_subscriptions" in running.reload('[shared_subscriptions]\nstrategy = "hash-topic"\n')
    assert counts() == [0, 10]


@pytest.mark.parametrize("toml", ["[limits\n", "max_conections = 1\n", 'listeners.mqtts = { address = "127.0.0.1:1" }\n'],
                         ids=["syntax", "key", "sense"])
def test_a_broken_file_changes_nothing(broker_with, paho, toml):
    running = broker_with("[limits]\nmax_packet_size = 5000\n")
    said = running.reload(toml)
    assert "stay as they are" in said and "barid.toml:1:" in said, said
    assert paho(to=running).connack.MaximumPacketSize == 5000


@pytest.mark.parametrize("limits", ['max_queued_messages = 100\nqueue_overflow = "block"', 'max_queued_messages = 3\nqueue_overflow = "drop-newest"'])
def test_who_is_held_back_by_a_full_queue(broker_with, connect, limits):
    """Goes on when the new limits do not hold it back."""
    running = broker_with('[limits]\nmax_queued_messages = 3\nqueue_overflow = "block"\n')
    away = connect(to=running, clean=False, properties={"session_expiry_interval": 600})
    away.subscribe("t", qos=1)
    away.disconnect()
    publisher = connect(to=running)
    for packet_id in range(1, 7):
        publisher.publish("t", b"x", qos=1) if packet_id < 3 else publisher.send(wire.publish("t", b"x", 1, packet_id))
    publisher.expect_nothing(0.5)
    running.reload(f"[limits]\n{limits}\n")
    assert [publisher.expect(wire.PUBACK).packet_id for _ in range(4)] == [3, 4, 5, 6]
