"""Brokers that cannot reach each other: who goes on, who stops, and what no acknowledged message may miss.

FAULT_SECONDS is how long the random faults last, FAULT_SEED repeats them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import threading
import time

import pytest
import xxhash

import wire
from acknowledgements import LATE, Ledger
from broker import until
from brokers import links_tls
from networks import CutCluster, is_possible

pytestmark = pytest.mark.skipif(not is_possible(), reason="needs the right to make network namespaces")

FAULT_SECONDS = float(os.environ.get("FAULT_SECONDS", 40))
FAULTS_LAST = (0.5, 1.2, 3, 8) if FAULT_SECONDS < 100 else (0.5, 1.2, 3, 8, 30)
"""Seconds for which a random fault lasts."""


@pytest.fixture
def cluster():
    """Three brokers that can be cut off from each other."""
    started = CutCluster(3)
    yield started
    for member in started:
        assert "panicked at" not in member.stderr, member.stderr
    started.close()


@pytest.fixture
def client():
    clients = []

    def connect(to, name: str = "", **options) -> wire.Client:
        clients.append(to.connect())
        clients[-1].connect(name, **options)
        return clients[-1]

    yield connect
    for one in clients:
        one.drop()


def is_acknowledged(publisher: wire.Client, packet_id: int, seconds: float) -> bool:
    try:
        found = publisher.recv(seconds)
    except TimeoutError:
        return False
    assert (found.kind, found.packet_id) == (wire.PUBACK, packet_id), found
    return True


def disconnects(one: wire.Client, seconds: float = 10) -> bool:
    """Waits for DISCONNECT with 0x89."""
    found = one.recv(seconds)
    return (found.kind, found.reason) == (wire.DISCONNECT, 0x89)


def is_refused(member) -> bool:
    """Returns whether a client is refused because the broker has no quorum."""
    one = member.connect()
    one.send(wire.connect(""))
    connack = one.recv()
    one.drop()
    return connack.reason == 0x88


class TestABrokerWithoutTheOthers:
    def test_acknowledges_nothing_and_gives_up_its_clients(self, cluster, client):
        b1, _, b3 = cluster
        publisher, idle, elsewhere = client(b3), client(b3), client(b1)
        cluster.network.cut_off(2)
        time.sleep(1)
        publisher.send(wire.publish("t", b"x", 1, 1))
        assert not is_acknowledged(publisher, 1, 1)
        assert disconnects(publisher) and disconnects(idle), "they find another broker"
        assert is_refused(b3)
        assert not b3.cluster["takes_clients"] and not b3.cluster["has_quorum"]
        assert elsewhere.publish("t", b"x", qos=1).reason in (0, 0x10), "two of three are the quorum"
        cluster.network.mend()
        cluster.settles()
        again = client(b3)
        again.subscribe("t", qos=1)
        elsewhere.publish("t", b"all are there again", qos=1)
        again.receive(b"all are there again")

    def test_goes_on_if_the_others_come_back_soon(self, cluster, client):
        publisher, subscriber = client(cluster[2]), client(cluster[0])
        subscriber.subscribe("t", qos=1)
        for member in cluster.members[:2]:
            member.pause()
        time.sleep(1)
        publisher.send(wire.publish("t", b"x", 1, 1))
        assert not is_acknowledged(publisher, 1, 0.5)
        for member in cluster.members[:2]:
            member.go_on()
        assert is_acknowledged(publisher, 1, 5)
        subscriber.receive(b"x")

    def test_that_hears_nobody_stops_too(self, cluster, client):
        """Only packets to it are lost: the others hear it, and it does not hear them."""
        publisher = client(cluster[2])
        for other in (0, 1):
            cluster.network.cut(other, 2)
        time.sleep(1.2)
        publisher.send(wire.publish("t", b"x", 1, 1))
        assert not is_acknowledged(publisher, 1, 1)
        assert disconnects(publisher)
        cluster.network.mend()
        cluster.settles()


def test_with_serve_it_goes_on(client):
    """`without_quorum = "serve"`."""
    cluster = CutCluster(3, tls=f'{links_tls()}\nwithout_quorum = "serve"')
    try:
        publisher = client(cluster[2])
        cluster.network.cut_off(2)
        time.sleep(2)
        publisher.send(wire.publish("t", b"x", 1, 1))
        assert is_acknowledged(publisher, 1, 1)
        assert not is_refused(cluster[2])
    finally:
        cluster.close()


class TestTwoThatCannotReachEachOther:
    """The third broker reaches both."""

    def test_a_subscription_waits_and_one_of_the_two_gives_up_its_place(self, cluster, client):
        b1, b2, b3 = cluster
        subscriber, publisher, idle = client(b1), client(b3), client(b3)
        cluster.network.cut_both(0, 2)
        time.sleep(1.5)
        subscriber.send(wire.subscribe(1, ("t", 1)))
        with pytest.raises(TimeoutError):
            subscriber.recv(1)
        # Until SUBACK, both may acknowledge messages.
        assert publisher.publish("t", b"before", qos=1).reason in (0, 0x10)
        found = subscriber.recv(10)
        assert found.kind == wire.SUBACK, found
        assert disconnects(idle), "the one with the greater name stops"
        until(lambda: "b1 cannot reach each other" in b3.stderr)
        assert is_refused(b3)
        client(b2).publish("t", b"after", qos=1)
        subscriber.receive(b"after")
        cluster.network.mend()
        cluster.settles()
        client(b3).publish("t", b"mended", qos=1)
        subscriber.receive(b"mended")


def test_a_broker_that_starts_alone_waits_for_the_quorum(client):
    """With `homes` it knows how many brokers there are."""
    cluster = CutCluster(3, homes=True)
    try:
        b1, b2, b3 = cluster
        for member in cluster:
            member.kill9()
        b1.start()
        assert is_refused(b1)
        b2.start()
        until(lambda: not is_refused(b1) and not is_refused(b2))
        b3.start()
        cluster.settles()
    finally:
        cluster.close()


def test_what_is_acknowledged_arrives(cluster):
    """Random cuts, slow links, stops and kills, with publishers and subscribers at all brokers: a subscriber that stays connected gets
    every message that was published after its SUBACK and was acknowledged, in the order of each publisher, and with QoS 2 once.
    """
    seed = int(os.environ.get("FAULT_SEED", random.randrange(1 << 32)))
    print(f"FAULT_SEED={seed}")
    chance = random.Random(seed)
    ledger = Ledger(cluster, seed)
    with ledger:
        until_then = time.monotonic() + FAULT_SECONDS
        while time.monotonic() < until_then:
            with ledger.fault():
                for _ in range(chance.choice((1, 1, 2, 3))):
                    cluster.suffers(chance, FAULTS_LAST)
                    time.sleep(0.3)
                cluster.settles()
            time.sleep(chance.choice((0, 4)))
        time.sleep(LATE)
    ledger.check()
    print(ledger)
    assert ledger.acknowledged > 100 and ledger.compared > 0


def test_slots_move_meanwhile():
    """Random cuts, slow links, stops and kills while slots move: whatever becomes of a move, each slot is at one broker afterwards,
    with its sessions, and all brokers know which.
    """
    seed = int(os.environ.get("FAULT_SEED", random.randrange(1 << 32)))
    print(f"FAULT_SEED={seed}")
    chance = random.Random(seed)
    cluster = CutCluster(3, homes=True)
    sessions = [f"s{number}" for number in range(40)]
    for session in sessions:
        one = cluster[0].connect()
        one.connect(session, clean=False, properties={"session_expiry_interval": 3_600})
        one.subscribe(f"to/{session}", qos=1)
        one.disconnect()

    def places(member) -> list[str]:
        return [one["broker"] for one in json.loads(member.http("/v1/cluster/slots")[1])["slots"]]

    def are_whole() -> bool:
        """Whether all brokers know the same places, and each session is where its slot is."""
        known = places(cluster[0])
        return all(places(member) == known for member in cluster) and all(
            [member.name for member in cluster if member.has_session(session)] == [known[slot_of(session)]] for session in sessions)

    moved = failed = 0
    until_then = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < until_then:
        slot = slot_of(chance.choice(sessions))
        home = next(member for member in cluster if member.name == places(cluster[0])[slot])
        to = chance.choice(cluster.others(home))
        outcome = []

        def move(slot: int = slot, home=home, to=to, outcome: list = outcome) -> None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                outcome.append(home.command("move", str(slot), to.name).returncode)

        mover = threading.Thread(target=move)
        mover.start()
        time.sleep(chance.random() * 0.06)
        cluster.suffers(chance, FAULTS_LAST)
        mover.join()
        cluster.settles()
        until(are_whole, 30)
        moved, failed = moved + (outcome == [0]), failed + (outcome != [0])
    print(f"{moved} moves, and {failed} that failed")
    for session in sessions:
        one = chance.choice(cluster.members).connect()
        assert one.connect(session, clean=False, properties={"session_expiry_interval": 3_600}).session_present
        one.disconnect()
    for member in cluster:
        assert "panicked at" not in member.stderr, member.stderr
    cluster.close()


def slot_of(client_id: str) -> int:
    return xxhash.xxh3_64_intdigest(f"default/{client_id}".encode()) % 32
