"""SUBSCRIBE packets whose filters make the broker look at many retained messages."""

import time

import pytest

import wire
from broker import Broker, until
from bystander import Bystander

RETAINED = 100_000

LIMITS = "[limits]\nmax_subscriptions = 100_000\n"


@pytest.fixture(scope="module")
def crowded():
    """A broker with one IO thread and many retained messages, of class memory to be quick."""
    running = Broker(f'workers = 1\n{LIMITS}durability = "memory"\n')
    publisher = wire.Client(running.address)
    publisher.connect("publisher")
    for first in range(0, RETAINED, 10_000):
        publisher.send(b"".join(wire.publish(f"{number}/{number}", bytes(100), retain=True) for number in range(first, first + 10_000)))
    publisher.ping()
    until(lambda: running.metric("^barid_retained_messages") == RETAINED)
    yield running
    running.end()


@pytest.mark.parametrize(("name", "filters"), [
    # Each walks over all topics and finds one.
    ("one", ["+/77777"] * 1_000),
    # There is no such level, so nothing has to be walked over.
    ("none", [f"+/x{number}" for number in range(5_000)]),
    # All topics match.
    ("all", ["#"] * 1_000),
    # The packet alone is long.
    ("equal", ["a"] * 300_000),
])
def test_a_subscribe_holds_no_thread(crowded, name, filters):
    attacker = wire.Client(crowded.address, timeout=60)
    attacker.connect(name)
    with Bystander(crowded) as bystander:
        attacker.send(wire.subscribe(1, *((one, 0) for one in filters)))
        until_answered(attacker, len(filters))
        time.sleep(0.5)
        attacker.send(wire.unsubscribe(2, *filters))
        until_answered(attacker, len(filters))
    bystander.assert_served()
    attacker.stream.close()


def test_messages_that_are_too_large_for_their_client(crowded):
    """They are fetched one after the other, and none of them leaves."""
    attacker = wire.Client(crowded.address, timeout=60)
    attacker.connect("small", properties={"maximum_packet_size": 100})
    with Bystander(crowded) as bystander:
        attacker.send(b"".join(wire.subscribe(1 + number, ("#", 0)) for number in range(300)))
        for _ in range(300):
            while attacker.recv().kind != wire.SUBACK:
                pass
        time.sleep(1)
    bystander.assert_served()
    attacker.stream.close()


def until_answered(client, count) -> None:
    """Reads to the next SUBACK or UNSUBACK, past all messages."""
    while (found := client.recv()).kind == wire.PUBLISH:
        pass
    assert found.kind in (wire.SUBACK, wire.UNSUBACK) and len(found.reasons) == count


def test_a_broker_ends_while_walks_are_under_way(crowded):
    attacker = wire.Client(crowded.address)
    attacker.connect("last")
    attacker.send(wire.subscribe(1, *(("+/77777", 0) for _ in range(1_000))))
    attacker.expect(wire.SUBACK)
    started = time.monotonic()
    crowded.stop()
    assert time.monotonic() - started < 10
    crowded.start()
