"""Topics with very many subscribers."""

import contextlib
import time

import wire
from bystander import Bystander

SUBSCRIBERS = 1_000

# An attack is so short that the slowest answer of all decides. What a machine does once by itself it does not do in each.
ATTACKS = 3


def test_very_many_small_messages_to_very_many(one_thread):
    """What lies in one read of the publisher's connection is handed on together, to each subscriber."""
    running = one_thread('[limits]\ndurability = "memory"\n')
    subscribers = [wire.Client(running.address, timeout=60) for _ in range(SUBSCRIBERS)]
    for number, client in enumerate(subscribers):
        client.connect(f"subscriber{number}")
        client.subscribe("t")
    publisher = wire.Client(running.address, timeout=60)
    publisher.connect("publisher")
    attacks = []
    for _ in range(ATTACKS):
        with Bystander(running) as bystander:
            time.sleep(0.2)
            publisher.send(wire.publish("t", b"x") * 60_000)
            publisher.ping()
        attacks.append(bystander)
        for client in subscribers:
            discard(client)
    min(attacks, key=lambda attack: max(attack.pings)).assert_served()


def discard(client: wire.Client) -> None:
    """Takes what has come for a client from its socket."""
    client.stream.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while client.stream.recv(1 << 20):
            pass
