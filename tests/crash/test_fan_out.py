"""One QoS 2 message to many sessions, and a crash in the middle: all of them have it once, after the publisher has repeated it."""

import random
import time

import pytest
import wire
from victim import Victim

SESSIONS = 200
ROUNDS = 12
FOREVER = {"session_expiry_interval": 0xFFFFFFFF}


@pytest.fixture
def victim():
    running = Victim()
    yield running
    running.close()


def connect(victim: Victim, name: str) -> wire.Client:
    client = wire.Client(victim.address)
    assert client.connect(name, clean=False, properties=FOREVER).reason == 0
    return client


def test_a_message_to_many_sessions_reaches_each_once(victim, seed):
    chance = random.Random(seed)
    for number in range(SESSIONS):
        client = connect(victim, f"s{number}")
        client.subscribe("all", qos=2)
        client.disconnect()
    publisher = connect(victim, "p")
    assert publisher.publish("all", b"0", qos=2).reason == 0
    for number in range(1, ROUNDS):
        publisher.send(wire.publish("all", b"%d" % number, 2, number))
        time.sleep(chance.uniform(0, 0.004))
        victim.die()
        victim.revive()
        publisher = connect(victim, "p")
        assert publisher.connack.session_present
        publisher.send(wire.publish("all", b"%d" % number, 2, number, dup=True))
        assert publisher.expect(wire.PUBREC, packet_id=number).reason == 0
        publisher.send(wire.acknowledge(wire.PUBREL, number))
        publisher.expect(wire.PUBCOMP, packet_id=number)
    for number in range(SESSIONS):
        client = connect(victim, f"s{number}")
        found = []
        while not found or found[-1] != b"%d" % (ROUNDS - 1):
            try:
                found.append(client.receive(timeout=1).payload)
            except TimeoutError:
                break
        client.disconnect()
        assert found == [b"%d" % one for one in range(ROUNDS)], f"session {number} of {SESSIONS}"
