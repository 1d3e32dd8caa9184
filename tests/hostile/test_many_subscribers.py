"""Topics with very many subscribers."""

import time

import wire
from bystander import Bystander

SUBSCRIBERS = 1_000


def test_very_many_small_messages_to_very_many(one_thread):
    """What lies in one read of the publisher's connection is handed on together, to each subscriber."""
    running = one_thread('[limits]\ndurability = "memory"\n')
    subscribers = [wire.Client(running.address, timeout=60) for _ in range(SUBSCRIBERS)]
    for number, client in enumerate(subscribers):
        client.connect(f"subscriber{number}")
        client.subscribe("t")
    publisher = wire.Client(running.address, timeout=60)
    publisher.connect("publisher")
    with Bystander(running) as bystander:
        time.sleep(0.2)
        publisher.send(wire.publish("t", b"x") * 60_000)
        publisher.ping()
    bystander.assert_served()
    assert max(bystander.pings) < 0.1 + max(bystander.echoes), max(bystander.pings)
