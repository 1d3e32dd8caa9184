"""Sends one QoS 2 message to many sessions with a crash in the middle: each has it once, after the publisher has repeated it."""

import random
import time

import wire

SESSIONS = 200
ROUNDS = 12


def test_a_message_to_many_sessions_reaches_each_once(connect, victim, seed):
    chance = random.Random(seed)
    for number in range(SESSIONS):
        client = connect(f"s{number}")
        client.subscribe("all", qos=2)
        client.disconnect()
    publisher = connect("p")
    assert publisher.publish("all", b"0", qos=2).reason == 0
    for number in range(1, ROUNDS):
        publisher.send(wire.publish("all", b"%d" % number, 2, number))
        time.sleep(chance.uniform(0, 0.004))
        victim.die()
        victim.revive()
        publisher = connect("p")
        assert publisher.connack.session_present
        publisher.send(wire.publish("all", b"%d" % number, 2, number, dup=True))
        assert publisher.expect(wire.PUBREC, packet_id=number).reason == 0
        publisher.send(wire.acknowledge(wire.PUBREL, number))
        publisher.expect(wire.PUBCOMP, packet_id=number)
    for number in range(SESSIONS):
        client = connect(f"s{number}")
        found = [client.receive().payload for _ in range(ROUNDS)]
        client.disconnect()
        assert found == [b"%d" % one for one in range(ROUNDS)], f"session {number} of {SESSIONS}"
