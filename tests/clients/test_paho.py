"""paho-mqtt (Python): what 3.1.1 and 5 have in common, over every transport, in two tenants at once."""

import pytest

from conftest import TENANTS


def test_a_conversation_in_two_tenants(paho, topic, unique, version, transport):
    """Same client identifiers, same topics: every message arrives once, in order, in its own tenant."""
    name = unique("c")
    clients = [paho(name, tenant=tenant, version=version, transport=transport) for tenant in TENANTS]
    for client in clients:
        assert client.subscribe(topic, 2) == 2
    for tenant, client in zip(TENANTS, clients):
        for qos in (0, 1, 2):
            client.publish(topic, f"{tenant} {qos}".encode(), qos)
    for tenant, client in zip(TENANTS, clients):
        received = [client.receive() for _ in range(3)]
        assert sorted((message.qos, message.payload.decode()) for message in received) \
            == [(qos, f"{tenant} {qos}") for qos in (0, 1, 2)]
        assert client.silent()


@pytest.mark.parametrize("size", [0, 127, 128, 16_384, 600_000])
def test_payloads_of_all_sizes(paho, topic, version, transport, size):
    client, payload = paho(version=version, transport=transport), bytes(range(256)) * (size // 256 + 1)
    client.subscribe(topic, 1)
    client.publish(topic, payload[:size], 1)
    assert client.receive().payload == payload[:size]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_messages_stay_in_order_and_single(paho, topic, version, qos):
    """As many in flight as paho allows, acknowledged in both directions at once."""
    publisher, subscriber = paho(version=version), paho(version=version)
    subscriber.subscribe(topic, qos)
    expected = [b"%d" % number for number in range(300)]
    for payload in expected[:-1]:
        publisher.publish(topic, payload, qos, wait=False)
    publisher.publish(topic, expected[-1], qos)
    assert subscriber.payloads(300) == expected
    assert subscriber.silent()


def test_transports_and_versions_meet(paho, topic):
    """A message goes from any transport and version to all others."""
    kinds = [(version, transport) for version in (3, 4, 5) for transport in ("tcp", "tls", "ws", "wss")]
    clients = [paho(version=version, transport=transport) for version, transport in kinds]
    for client in clients:
        client.subscribe(topic, 1)
    for kind, client in zip(kinds, clients):
        client.publish(topic, repr(kind).encode(), 1)
    for client in clients:
        assert sorted(client.payloads(len(kinds))) == sorted(repr(kind).encode() for kind in kinds)


def test_wildcards(paho, topic, version):
    client = paho(version=version)
    client.subscribe(topic + "/+/state")
    client.subscribe(topic + "/deep/#")
    for name in ("/a/state", "/a/b/state", "/deep", "/deep/er/still"):
        client.publish(topic + name, name.encode(), 1)
    assert sorted(client.payloads(3)) == [b"/a/state", b"/deep", b"/deep/er/still"]
    client.unsubscribe(topic + "/deep/#")
    client.publish(topic + "/deep", b"", 1)
    assert client.silent()


def test_retained_messages_in_two_tenants(paho, topic, version):
    for tenant in TENANTS:
        paho(tenant=tenant, version=version).publish(topic, tenant.encode(), 1, retain=True)
    late = [paho(tenant=tenant, version=version) for tenant in TENANTS]
    for tenant, client in zip(TENANTS, late):
        client.subscribe(topic)
        message = client.receive()
        assert (message.payload, message.retain) == (tenant.encode(), True)
    late[0].publish(topic, b"", 1, retain=True)
    assert late[0].receive().payload == b"", "the subscribers hear that it is gone"
    newest = [paho(tenant=tenant, version=version) for tenant in TENANTS]
    for client in newest:
        client.subscribe(topic)
    assert newest[0].silent()
    assert newest[1].receive().payload == b"globex", "the other tenant still has its own"


@pytest.mark.parametrize("ends, expected", [("vanish", [b"gone"]), ("leave", [])])
def test_a_will_in_two_tenants(paho, topic, version, ends, expected):
    watchers = [paho(tenant=tenant, version=version) for tenant in TENANTS]
    for watcher in watchers:
        watcher.subscribe(topic, 1)
    will = {"topic": topic, "payload": b"gone", "qos": 1}
    getattr(paho(tenant="acme", version=version, will=will), ends)()
    assert watchers[0].payloads(len(expected)) == expected
    assert all(watcher.silent() for watcher in watchers)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_is_resumed(paho, topic, unique, version, qos):
    """What arrived meanwhile comes after the return, in order, and once; in the other tenant there is no such session."""
    name, kept = unique("c"), {"SessionExpiryInterval": 60} if version == 5 else {}
    options = {"tenant": "acme", "version": version, "clean": False, **kept}
    first = paho(name, **options)
    assert not first.session_present
    first.subscribe(topic, qos)
    first.leave()
    publisher = paho(tenant="acme", version=version)
    for number in range(20):
        publisher.publish(topic, b"%d" % number, qos)
    stranger = paho(name, **{**options, "tenant": "globex"})
    assert not stranger.session_present
    second = paho(name, **options)
    assert second.session_present
    assert second.payloads(20) == [b"%d" % number for number in range(20)]
    assert stranger.silent() and second.silent()
    second.leave()
    assert not paho(name, tenant="acme", version=version, clean=True).session_present


def test_a_session_is_taken_over(paho, unique, version, transport):
    """The newer connection wins; an MQTT 5 client is told why (0x8E)."""
    name = unique("c")
    older = paho(name, version=version, transport=transport)
    newer = paho(name, version=version, transport=transport)
    code = older.disconnected.get(timeout=15)
    assert code == (0x8E if version == 5 else code)
    newer.publish("t", b"", 1)


def test_a_shared_subscription_divides_the_work(paho, broker, topic, unique, version):
    """Every message goes to one member, whatever its transport; the same group in another tenant is another group. In a cluster,
    all members are at the broker of the publisher: otherwise those that are there come first."""
    place, group = broker.one, f"$share/{unique('g')}/{topic}"
    members = [paho(to=place, tenant="acme", version=version, transport=transport) for transport in ("tcp", "ws", "tls")]
    other = paho(tenant="globex", version=version)
    for client in (*members, other):
        client.subscribe(group, 1)
    publisher, expected = paho(to=place, tenant="acme", version=version), [b"%02d" % number for number in range(30)]
    for payload in expected:
        publisher.publish(topic, payload, 1)
    received = [member.payloads(10) for member in members]
    assert sorted(sum(received, [])) == expected
    assert all(member.silent() for member in members) and other.silent()


def test_the_broker_keeps_silent_connections_that_ping(paho, topic, version):
    """Keep Alive of one second, two seconds of silence: paho pings, and the connection lives."""
    client = paho(version=version, keep_alive=1)
    client.subscribe(topic)
    assert client.silent(2.0)
    client.publish(topic, b"still here", 1)
    assert client.receive().payload == b"still here"
