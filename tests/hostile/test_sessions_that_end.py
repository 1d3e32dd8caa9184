"""Sessions with as much as one may have, that end."""

import time

import wire
from bystander import Bystander

GROUPS = 10_000
SESSIONS = 100
SUBSCRIPTIONS = 9_000


def test_a_member_of_very_many_shared_subscriptions_leaves(one_thread):
    """What waits for it is for the other members of each, who have to be found."""
    running = one_thread("")
    leaving = wire.Client(running.address, timeout=60)
    leaving.connect("leaving", properties={"session_expiry_interval": 3_600, "receive_maximum": 5})
    leaving.subscribe(*(f"$share/g{number}/a" for number in range(GROUPS)), qos=1)
    publisher = wire.Client(running.address)
    publisher.connect("publisher")
    publisher.publish("a", b"x", qos=1)
    with Bystander(running) as bystander:
        time.sleep(0.2)
        leaving.send(wire.disconnect())
        time.sleep(0.5)
    bystander.assert_served()
    assert max(bystander.pings) < 0.5, max(bystander.pings)


def test_very_many_sessions_end_together(one_thread):
    """Each has as many subscriptions as it may have, which have to leave the index."""
    running = one_thread('[limits]\ndurability = "memory"\n')
    leaving = []
    for number in range(SESSIONS):
        leaving.append(client := wire.Client(running.address, timeout=60))
        client.connect(f"leaving{number}")
        client.subscribe(*(f"{number}/{index}" for index in range(SUBSCRIPTIONS)))
    with Bystander(running) as bystander:
        time.sleep(0.2)
        for client in leaving:
            client.drop()
        time.sleep(4)
    bystander.assert_served()
    assert max(bystander.pings) < 0.1 + max(bystander.echoes), max(bystander.pings)
    watcher = wire.Client(running.address)
    watcher.connect("leaving0")
    watcher.subscribe("0/0")
    watcher.publish("0/0", b"x", qos=1)
    assert watcher.expect(wire.PUBLISH)
