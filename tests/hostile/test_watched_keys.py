"""Keys of the state store that many watch, each with very many subscriptions."""

import sys
import time
from pathlib import Path

import wire
from bystander import Bystander

sys.path.append(str(Path(__file__).resolve().parent.parent / "statestore"))
from statestore_client import INVOKE, array, notify_filter, response_topic, stamp

WATCHERS = 40
SUBSCRIPTIONS = 9_000


def request(client_id: str, number: int, payload: bytes) -> bytes:
    properties = {"response_topic": response_topic(client_id), "correlation_data": b"c%d" % number,
                  "user_property": [("__ts", stamp()), ("__srcId", client_id)]}
    return wire.publish(INVOKE, payload, 1, number, properties=properties)


def test_changes_of_a_key_with_many_watchers(one_thread):
    """A notification has the Subscription Identifiers of what it matches, so somebody has to look for these."""
    running = one_thread('[limits]\ndurability = "memory"\n')
    watchers = []
    for number in range(WATCHERS):
        name = f"watcher{number}"
        watchers.append(watcher := wire.Client(running.address, timeout=60))
        watcher.connect(name)
        filters = [f"f/{number}/{index}" for index in range(SUBSCRIPTIONS)]
        watcher.subscribe(*filters, response_topic(name), notify_filter(name))
        watcher.send(request(name, 5, array("KEYNOTIFY", "k")))
        while watcher.recv().kind != wire.PUBLISH:
            pass
    writer = wire.Client(running.address, timeout=60)
    writer.connect("writer")
    writer.subscribe(response_topic("writer"))
    with Bystander(running) as bystander:
        time.sleep(0.1)
        writer.send(b"".join(request("writer", 1 + number, array("SET", "k", f"v{number}")) for number in range(300)))
        for _ in range(300):
            while writer.recv().kind != wire.PUBACK:
                pass
    bystander.assert_served()
