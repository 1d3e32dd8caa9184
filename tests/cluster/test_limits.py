"""Limits of a tenant, which hold for all brokers together, and what all brokers together have."""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest
import xxhash

import wire
from broker import until

LIMITS = """
[tenants.few.limits]
max_connections = 6
max_sessions = 8
max_tenant_subscriptions = 5
max_tenant_queued_messages = 30

[tenants.slow.limits]
publish_rate = 200

[tenants.seldom.limits]
connect_rate = 4
"""
QUOTA_EXCEEDED, TAKEN_OVER = 0x97, 0x8E
TOLD = 0.5
"""Seconds in which brokers have told each other what their clients use."""


@pytest.fixture
def cluster(cluster_of):
    return cluster_of(3, more=LIMITS, homes=True)


def refusal(member, tenant: str, **options) -> int:
    """Returns the reason code of CONNACK for a new client."""
    one = wire.Client(member.address)
    one.send(wire.connect("", username=f"{tenant}/anyone", **options))
    reason = one.recv(5).reason
    one.drop()
    return reason


def of_tenant(client, member, tenant: str, name: str = "", **options) -> wire.Client:
    return client(member, name, username=f"{tenant}/anyone", **options)


def test_connections_count_at_all_brokers(cluster, client):
    clients = [of_tenant(client, member, "few") for member in cluster for _ in range(2)]
    time.sleep(TOLD)
    assert [refusal(member, "few") for member in cluster] == [QUOTA_EXCEEDED] * 3
    assert refusal(cluster[0], "another") == 0
    clients[0].disconnect()
    until(lambda: refusal(cluster[2], "few") == 0, 5)


def test_a_broker_that_is_down_has_no_connections(cluster, client):
    for member in cluster:
        for _ in range(2):
            of_tenant(client, member, "few")
    time.sleep(TOLD)
    assert refusal(cluster[1], "few") == QUOTA_EXCEEDED
    cluster[0].kill9()
    until(lambda: refusal(cluster[1], "few") == 0, 10)
    cluster[0].start()
    cluster.settles()


def test_sessions_count_at_all_brokers(cluster, client):
    """Each is counted once, whichever broker its client has reached."""
    reached = itertools.cycle(cluster)
    for number in range(8):
        one = of_tenant(client, next(reached), "few", f"s{number}", clean=False, properties={"session_expiry_interval": 60})
        one.disconnect()
    time.sleep(TOLD)
    for number, member in enumerate(cluster):
        one = wire.Client(member.address)
        one.send(wire.connect(f"new{number}", username="few/anyone", clean=False, properties={"session_expiry_interval": 60}))
        assert one.recv(5).reason == QUOTA_EXCEEDED
        one.drop()
    of_tenant(client, cluster[0], "few", "s3", clean=False, properties={"session_expiry_interval": 60}).disconnect()


def test_subscriptions_count_at_all_brokers(cluster, client):
    clients = [of_tenant(client, member, "few") for member in cluster]
    for number, one in zip(range(5), itertools.cycle(clients)):
        assert one.subscribe(f"a/{number}").reasons == [0]
    time.sleep(TOLD)
    assert [one.subscribe("one/more").reasons for one in clients] == [[QUOTA_EXCEEDED]] * 3


def test_a_client_takes_over_its_connection_to_another_broker_at_the_limit(cluster, client):
    """It is refused once, since the broker that it has reached does not know the old connection, which ends for that."""
    old = [of_tenant(client, cluster[0], "few", f"c{number}") for number in range(6)]
    time.sleep(TOLD)
    one = wire.Client(cluster[1].address)
    one.send(wire.connect("c3", username="few/anyone"))
    assert one.recv(5).reason == QUOTA_EXCEEDED
    old[3].expect_refused(TAKEN_OVER)
    time.sleep(TOLD)
    of_tenant(client, cluster[1], "few", "c3")
    time.sleep(TOLD)
    assert refusal(cluster[2], "few") == QUOTA_EXCEEDED


def test_a_clean_start_replaces_a_session_at_the_limit(cluster, client):
    stored = {"clean": False, "properties": {"session_expiry_interval": 60}}
    for number in range(8):
        of_tenant(client, cluster[0], "few", f"s{number}", **stored).disconnect()
    time.sleep(TOLD)
    for member in cluster:
        of_tenant(client, member, "few", "s3").disconnect()


def queues(client, brokers, home: int, count: int) -> list[str]:
    """Returns topics to which stored sessions at one of the brokers have subscribed, and whose clients are away."""
    names = (f"q{number}" for number in itertools.count())
    found = list(itertools.islice((name for name in names if slot_of(name) % 3 == home), count))
    for name in found:
        one = of_tenant(client, brokers[home], "few", name, clean=False, properties={"session_expiry_interval": 60})
        one.subscribe(name, qos=1)
        one.disconnect()
    return found


def slot_of(name: str) -> int:
    return xxhash.xxh3_64_intdigest(f"few/{name}".encode()) % 32


def test_messages_that_wait_count_at_all_brokers(cluster, client):
    sender = of_tenant(client, cluster[0], "few")
    topics = [topic for home in range(3) for topic in queues(client, cluster, home, 1)]
    for _ in range(20):
        for topic in topics:
            sender.publish(topic, b"x", qos=1)
            time.sleep(0.02)
    time.sleep(TOLD)
    got = 0
    for topic in topics:
        one = of_tenant(client, cluster[1], "few", topic, clean=False, properties={"session_expiry_interval": 60})
        got += len(one.receive_all())
        one.disconnect()
    assert 30 <= got <= 45, "some more come within a quarter of a second; without the others it would be 60"


def test_publishers_that_wait_for_room_go_on_when_another_broker_is_down(cluster_of, client):
    """With `queue_overflow = "block"`, the messages at that broker do not count any more."""
    cluster = cluster_of(3, more=LIMITS.replace("max_tenant_queued_messages = 30", 'max_tenant_queued_messages = 30\nqueue_overflow = "block"'),
                         homes=True)
    here, there = queues(client, cluster, 0, 1)[0], queues(client, cluster, 2, 1)[0]
    sender = of_tenant(client, cluster[2], "few")
    for _ in range(29):
        sender.publish(there, b"x", qos=1)
    time.sleep(TOLD)
    blocked = of_tenant(client, cluster[0], "few")
    blocked.send(*(wire.publish(here, b"x", 1, number) for number in range(1, 6)))
    acknowledged = 0
    with contextlib.suppress(TimeoutError):
        while blocked.recv(1).kind == wire.PUBACK:
            acknowledged += 1
    assert acknowledged < 5
    cluster[2].kill9()
    for _ in range(5 - acknowledged):
        blocked.expect(wire.PUBACK, 10)
    cluster[2].start()
    cluster.settles()


def test_rates_count_at_all_brokers(cluster, client):
    """Floods over three brokers together get what the tenant may have, and not three times as much."""
    watcher = of_tenant(client, cluster[0], "slow")
    watcher.subscribe("flood/#")
    floods = [of_tenant(client, member, "slow") for member in cluster]
    packets = b"".join(wire.publish("flood/a", b"x") for _ in range(100))
    unsent = {one: packets for one in floods}
    begin, sent_until = time.monotonic(), 6
    heard: list[float] = []
    for one in floods:
        one.stream.setblocking(False)
    while (now := time.monotonic() - begin) < sent_until:
        for one in floods:
            try:
                unsent[one] = unsent[one][one.stream.send(unsent[one]):] or packets
            except BlockingIOError:
                pass
        with contextlib.suppress(TimeoutError):
            for _ in range(50):
                watcher.receive(timeout=0.005)
                heard.append(now)
    late = [at for at in heard if at > 3]
    assert len(late) <= 200 * (sent_until - 3) * 1.3, len(late)
    assert len(late) >= 200 * (sent_until - 3) * 0.6, len(late)


def test_connect_rate_counts_at_all_brokers(cluster):
    accepted, begin = 0, time.monotonic()
    while time.monotonic() - begin < 6:
        for member in cluster:
            one = wire.Client(member.address)
            one.send(wire.connect("", username="seldom/anyone"))
            try:
                accepted += one.recv(0.03).reason == 0
            except TimeoutError:
                pass
            one.drop()
    assert accepted <= 3 * 4 + 4 * 6 * 1.3, accepted
    assert accepted >= 4 * 6 * 0.5, accepted


def test_what_all_brokers_have_is_published(cluster, client):
    for member in cluster:
        of_tenant(client, member, "few").subscribe("a")
    watcher = of_tenant(client, cluster[1], "few")
    watcher.subscribe("$SYS/cluster/#")
    expected = {"connections/count": "4", "clients/total": "4", "subscriptions/count": "4", "store/messages/count": "0"}
    heard: dict[str, str] = {}

    def is_right() -> bool:
        for message in watcher.receive_all(0.1):
            heard[message.topic.removeprefix("$SYS/cluster/")] = message.payload.decode()
        return all(heard.get(topic) == value for topic, value in expected.items())
    until(is_right, 10)
