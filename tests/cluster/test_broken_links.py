"""Links between brokers that break, and links that stall."""

from __future__ import annotations

import json
import threading
import time

import pytest

import wire
from broker import until


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_or_reordered_when_links_break(cluster_of, client, qos):
    """QoS 1 and 2 over links that are cut many times: everything arrives, in order, and once."""
    cluster = cluster_of(2, proxied=True)
    receiver, sender = client(cluster[1]), client(cluster[0])
    receiver.subscribe("t", qos=qos)
    cutting = threading.Event()

    def cut() -> None:
        while not cutting.wait(0.15):
            for proxy in cluster.proxies:
                proxy.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < 4:
        sender.publish("t", b"%d" % count, qos=qos)
        count += 1
    cutting.set()
    thread.join()
    found = [int(receiver.receive().payload) for _ in range(count)]
    assert found == list(range(count)) and count > 20
    receiver.expect_nothing()


def test_publishers_wait_for_a_link_that_stalls(cluster_of, client):
    """QoS 0 is dropped and counted when the link is full; QoS 1 waits, and nothing of it is lost."""
    cluster = cluster_of(2, proxied=True)
    receiver, sender, flooder = client(cluster[1]), client(cluster[0]), client(cluster[0])
    receiver.subscribe("t", qos=1)
    cluster.proxies[1].stall()
    sender.send(wire.publish("t", b"kept", 1, 1))
    payload = bytes(60_000)
    for _ in range(400):
        flooder.send(wire.publish("t", payload))
    until(lambda: cluster[0].metric('^barid_dropped_messages_total{.*reason="link_full"') > 0)
    assert cluster[0].memory() < 200
    sender.expect_nothing(1)
    cluster.proxies[1].flow()
    assert sender.expect(wire.PUBACK).reason == 0
    assert receiver.receive().payload == b"kept"


def test_a_broker_that_hears_one_way_only_is_not_waited_for(cluster_of, client):
    """What the first broker sends does not arrive at the second one, but the other way works."""
    cluster = cluster_of(2, proxied=True)
    client(cluster[1]).subscribe("t", qos=1)
    cluster.proxies[1].stall()
    until(lambda: not cluster[0].sees("b2"))
    begin = time.monotonic()
    assert client(cluster[0]).subscribe("new", qos=1).reasons == [1]
    assert time.monotonic() - begin < 3
    cluster.proxies[1].flow()
    cluster.settles()


def test_what_is_given_up_is_counted(cluster_of, client):
    """The publisher is told nothing: its message may be at all others. Operators see what the broker that went down has missed."""
    cluster = cluster_of(3)
    receiver, sender = client(cluster[2]), client(cluster[0])
    receiver.subscribe("missed/+", qos=1)
    cluster[2].pause()
    for number in range(40):
        sender.send(wire.publish(f"missed/{number}", b"x", 1, number + 1))
    for _ in range(40):
        assert sender.expect(wire.PUBACK, 20).reason in (0, 0x10)
    until(lambda: cluster[0].metric('^barid_dropped_messages_total{tenant="default",reason="broker_down"') == 40)
    drops = json.loads(cluster[0].http("/v1/tenants/default/drops?limit=1000")[1])["drops"]
    seen = [drop for drop in drops if drop["reason"] == "broker_down"]
    assert {drop["topic"] for drop in seen} <= {f"missed/{number}" for number in range(40)} and len(seen) == 32
    cluster[2].go_on()
