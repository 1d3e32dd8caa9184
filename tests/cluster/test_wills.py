"""Wills of clients whose broker ends: two other brokers keep them."""

from __future__ import annotations

import itertools

import pytest

import wire
from broker import until

numbers = itertools.count()


def name() -> str:
    return f"will-{next(numbers)}"


def kept(member, of) -> int:
    """Number of wills of the clients of `of` that a broker keeps."""
    return next(one["wills"] for one in member.cluster["members"] if one["name"] == of.name)


def await_kept(cluster, of, count: int) -> None:
    until(lambda: all(kept(other, of) == count for other in cluster.others(of)))


def connect_with_will(client, broker, client_id: str, payload: bytes = b"gone", version: int = wire.V5, **options) -> wire.Client:
    return client(broker, client_id, version, will=wire.Will(f"{client_id}/will", payload, 1, **options))


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_the_will_of_a_client_of_a_killed_broker_is_published_once(cluster_of, client, version):
    cluster = cluster_of(3)
    names = [name() for _ in range(150)]
    watchers = [client(broker) for broker in cluster.members[:2]]
    for watcher in watchers:
        watcher.subscribe("+/will", qos=1)
    for client_id in names:
        connect_with_will(client, cluster[2], client_id, client_id.encode(), version)
    await_kept(cluster, cluster[2], len(names))
    cluster[2].kill9()
    for watcher in watchers:
        messages = watcher.receive_all(count=len(names))
        assert sorted(message.payload.decode() for message in messages) == sorted(names)
    until(lambda: kept(cluster[0], cluster[2]) == 0)
    cluster[2].start()
    cluster.settles()
    for watcher in watchers:
        watcher.expect_nothing()


def test_properties_and_the_retained_message_of_a_will(cluster_of, client):
    cluster = cluster_of(3)
    client_id = name()
    will = wire.Will(f"{client_id}/will", b"gone", 1, retain=True, properties={"content_type": "text/plain", "message_expiry_interval": 60})
    client(cluster[1], client_id, will=will)
    await_kept(cluster, cluster[1], 1)
    cluster[1].kill9()
    for broker in (cluster[0], cluster[2]):
        def is_retained(broker=broker) -> bool:
            watcher = client(broker)
            watcher.subscribe(f"{client_id}/will", qos=1)
            return bool(watcher.receive_all())
        until(is_retained)
        watcher = client(broker)
        watcher.subscribe(f"{client_id}/will", qos=1)
        message = watcher.receive(b"gone")
        assert message.retain and message.properties["content_type"] == "text/plain"
        assert 50 <= message.properties["message_expiry_interval"] <= 60


def test_a_broker_that_stops_leaves_its_wills_to_others(cluster_of, client):
    cluster = cluster_of(3)
    client_id = name()
    watcher = client(cluster[0])
    watcher.subscribe(f"{client_id}/will", qos=1)
    connect_with_will(client, cluster[1], client_id)
    await_kept(cluster, cluster[1], 1)
    cluster[1].stop()
    assert [message.payload for message in watcher.receive_all(1.0, count=1)] == [b"gone"]


def test_who_is_connected_again_is_not_gone(cluster_of, client):
    """The client has found another broker before anybody knows that its own is down."""
    cluster = cluster_of(3)
    watcher = client(cluster[0])
    watcher.subscribe("+/will", qos=1)
    back, gone = name(), name()
    for client_id in (back, gone):
        connect_with_will(client, cluster[2], client_id)
    await_kept(cluster, cluster[2], 2)
    cluster[2].kill9()
    again = connect_with_will(client, cluster[1], back)
    assert watcher.receive(b"gone").topic == f"{gone}/will"
    watcher.expect_nothing(2.0)
    again.drop()
    assert watcher.receive(b"gone").topic == f"{back}/will"


def test_what_is_not_to_be_published_is_not_kept(cluster_of, client):
    cluster = cluster_of(3)
    watcher = client(cluster[0])
    watcher.subscribe("+/will", qos=1)
    leaving, dying, large = name(), name(), name()
    one, other = (connect_with_will(client, cluster[1], client_id) for client_id in (leaving, dying))
    refused = cluster[1].metric("^barid_cluster_wills_not_kept_total")
    connect_with_will(client, cluster[1], large, bytes(5_000))
    assert cluster[1].metric("^barid_cluster_wills_not_kept_total") == refused + 1
    await_kept(cluster, cluster[1], 2)
    one.disconnect()
    await_kept(cluster, cluster[1], 1)
    other.drop()
    watcher.receive(b"gone")
    await_kept(cluster, cluster[1], 0)
    cluster[1].kill9()
    until(lambda: all(broker.states()["b2"] == "down" for broker in (cluster[0], cluster[2])))
    watcher.expect_nothing(1.0)


def test_the_last_will_of_a_client_counts(cluster_of, client):
    """Also if it takes over its own connection, whose will is published then."""
    cluster = cluster_of(3)
    client_id = name()
    watcher = client(cluster[0])
    watcher.subscribe(f"{client_id}/will", qos=1)
    connect_with_will(client, cluster[1], client_id, b"first")
    connect_with_will(client, cluster[1], client_id, b"second")
    watcher.receive(b"first")
    connect_with_will(client, cluster[1], client_id, b"third")
    watcher.receive(b"second")
    await_kept(cluster, cluster[1], 1)
    cluster[1].kill9()
    watcher.receive(b"third")
    watcher.expect_nothing(1.0)


@pytest.mark.parametrize("is_back", [False, True])
def test_the_second_keeper_publishes_what_the_first_one_cannot(cluster_of, client, is_back):
    """Of five brokers, two end at the same time. Perhaps the keeper is started again at once, and has forgotten the will."""
    cluster = cluster_of(5)
    client_id = name()
    watcher = client(cluster[4])
    watcher.subscribe(f"{client_id}/will", qos=1)
    connect_with_will(client, cluster[0], client_id)
    until(lambda: [kept(other, cluster[0]) for other in cluster.members[1:]] == [1, 1, 0, 0])
    for broker in cluster.members[:2]:
        broker.kill9()
    if is_back:
        cluster[1].start()
    assert [message.payload for message in watcher.receive_all(1.0, count=1)] == [b"gone"]


def test_other_brokers_keep_wills_when_their_keeper_is_down(cluster_of, client):
    cluster = cluster_of(5)
    client_id = name()
    connect_with_will(client, cluster[0], client_id)
    until(lambda: [kept(other, cluster[0]) for other in cluster.members[1:]] == [1, 1, 0, 0])
    cluster[1].kill9()
    until(lambda: [kept(other, cluster[0]) for other in cluster.members[2:]] == [1, 1, 0])
    cluster[1].start()
    cluster.settles()
    until(lambda: [kept(other, cluster[0]) for other in cluster.members[1:]] == [1, 1, 0, 0])
