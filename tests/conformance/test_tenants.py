"""Tenants: the same names in two of them never meet. The user name is `{tenant}/{client}`, else the tenant is `default`."""

import pytest

from broker import until
from wire import V5, V311, Will

TENANTS = ("acme", "globex")


@pytest.fixture(autouse=True)
def _ours(ours):
    """Tenants are not part of MQTT."""


@pytest.fixture
def pair(connect):
    """Connects one client in each of two tenants with the same options."""
    def connect_(version=V5, client_id=None, **options):
        return [connect(version, client_id, tenant=tenant, **options) for tenant in TENANTS]
    return connect_


def test_the_same_client_identifier_in_two_tenants(pair, unique, version):
    """No take-over: both stay, and both work."""
    for client in pair(version, unique("c")):
        client.expect_nothing(0.1)
        client.ping()


def test_take_over_happens_within_a_tenant(connect, pair, unique):
    name = unique("c")
    first, second = pair(V5, name)
    connect(V5, name, tenant=TENANTS[0])
    first.expect_refused(0x8E)
    second.ping()


@pytest.mark.parametrize("pattern", ["%", "#", "+/+", "$share/g/%"])
def test_messages_stay_within_a_tenant(pair, connect, topic, version, qos, pattern):
    subscribers = pair(version)
    for client in subscribers:
        client.subscribe(pattern.replace("%", topic), qos=qos)
    publishers = pair(version)
    connect(version).publish(topic, b"default", qos=1)
    for tenant, publisher in zip(TENANTS, publishers):
        publisher.publish(topic, tenant.encode(), qos=2)
    for tenant, client in zip(TENANTS, subscribers):
        while (found := client.receive()).topic != topic:
            pass
        assert found.payload == tenant.encode()
        with pytest.raises(TimeoutError):
            while client.receive(timeout=0.15).topic != topic:
                pass


def test_without_a_slash_the_tenant_is_default(connect, topic):
    clients = [connect(V5), connect(V5, username="somebody"), connect(V5, username="default/somebody")]
    for client in clients:
        client.subscribe(topic)
    clients[0].publish(topic, b"x")
    for client in clients:
        client.receive(b"x")


def test_retained_messages_stay_within_a_tenant(pair, connect, topic, version):
    for tenant, client in zip(TENANTS, pair(version)):
        client.publish(topic, tenant.encode(), qos=1, retain=True)
    first, second = pair(version)
    first.publish(topic, b"", qos=1, retain=True)
    for client in (first, second):
        client.subscribe(topic)
    second.receive(TENANTS[1].encode())
    first.expect_nothing(0.1)
    outside = connect(version)
    outside.subscribe(topic)
    outside.expect_nothing(0.1)


def test_sessions_stay_within_a_tenant(connect, pair, topic, unique):
    name = unique("c")
    options = {"properties": {"session_expiry_interval": 60}}
    for client in pair(V5, name, clean=False, **options):
        assert not client.connack.session_present
        client.subscribe(topic, qos=1)
        client.disconnect()
    connect(V5, tenant=TENANTS[0]).publish(topic, b"first", qos=1)
    assert not connect(V5, name, clean=False, tenant="third").connack.session_present
    connect(V5, name, clean=True, tenant=TENANTS[1]).disconnect()
    first = connect(V5, name, clean=False, tenant=TENANTS[0])
    assert first.connack.session_present
    first.receive(b"first")


def test_wills_stay_within_a_tenant(pair, topic, version):
    watchers = pair(version)
    for client in watchers:
        client.subscribe(topic)
    first, second = pair(version, will=Will(topic, b"gone"))
    first.drop()
    watchers[0].receive(b"gone")
    watchers[1].expect_nothing(0.15)
    second.drop()
    watchers[1].receive(b"gone")
    watchers[0].expect_nothing(0.1)


def test_shared_groups_stay_within_a_tenant(pair, topic):
    members = pair(V5)
    for client in members:
        client.subscribe("$share/g/" + topic, qos=1)
    for publisher in pair(V5):
        for number in range(10):
            publisher.publish(topic, b"%d" % number, qos=1)
    for client in members:
        assert [client.receive().payload for _ in range(10)] == [b"%d" % number for number in range(10)]
        client.expect_nothing(0.05)


def test_a_tenant_cannot_be_escaped(connect, topic):
    """No spelling of a topic reaches into another tenant."""
    watcher = connect(V5, tenant=TENANTS[1])
    watcher.subscribe("#", topic)
    sneaky = connect(V5, tenant=TENANTS[0])
    sneaky.subscribe("#", f"{TENANTS[1]}/#", f"../{TENANTS[1]}/#", f"/{TENANTS[1]}/#")
    for name in (f"{TENANTS[1]}/{topic}", f"../{TENANTS[1]}/{topic}", f"/{TENANTS[1]}/{topic}"):
        sneaky.publish(name, b"sneaky", qos=1)
    with pytest.raises(TimeoutError):
        while watcher.receive(timeout=0.25).payload != b"sneaky":
            pass
    watcher.publish(topic, b"private", qos=1)
    with pytest.raises(TimeoutError):
        while sneaky.receive(timeout=0.25).payload != b"private":
            pass


def test_everything_at_once(pair, topic, unique):
    """The same conversation in two tenants, step by step side by side."""
    name, options = unique("c"), {"properties": {"session_expiry_interval": 60}}
    subscribers = pair(V5, name, clean=False, **options)
    publishers = pair(V311)
    for client in subscribers:
        client.subscribe(topic + "/#", qos=2)
    for number in range(50):
        for tenant, publisher in zip(TENANTS, publishers):
            publisher.publish(f"{topic}/{number % 5}", b"%s %d" % (tenant.encode(), number), qos=number % 3)
    for tenant, client in zip(TENANTS, subscribers):
        found = {client.receive().payload for _ in range(50)}
        assert found == {b"%s %d" % (tenant.encode(), number) for number in range(50)}
        client.drop()
    for tenant, publisher in zip(TENANTS, publishers):
        publisher.publish(topic + "/offline", tenant.encode(), qos=1)
    for tenant, client in zip(TENANTS, pair(V5, name, clean=False, **options)):
        assert client.connack.session_present
        client.receive(tenant.encode())
        client.expect_nothing(0.05)


def test_limits_are_per_tenant(broker_with, connect):
    limited = broker_with("""
        [limits]
        receive_maximum = 50
        max_session_expiry = 500

        [tenants.acme.limits]
        receive_maximum = 5
        max_packet_size = 2048
    """)
    for tenant, receive, size in (("acme", 5, 2048), ("globex", 50, 2 << 20)):
        options = {"properties": {"session_expiry_interval": 1000}}
        properties = connect(V5, to=limited, tenant=tenant, **options).connack.properties
        assert properties["receive_maximum"] == receive
        assert properties.get("maximum_packet_size", 1 << 20) == size
        assert properties["session_expiry_interval"] == 500


def test_a_limit_of_connections_is_per_tenant(broker_with, connect, dial):
    limited = broker_with("[tenants.acme.limits]\nmax_connections = 1\n")
    connect(V5, to=limited, tenant="acme")
    refused = dial(V5, limited)
    assert refused.connect("another", username="acme/x").reason in (0x88, 0x89, 0x97, 0x9F)
    for _ in range(3):
        connect(V5, to=limited, tenant="globex").ping()


def test_metrics_are_per_tenant(broker_with, connect, topic):
    counted = broker_with("")
    clients = [connect(V5, to=counted, tenant=tenant) for tenant in (*TENANTS, TENANTS[0])]
    expected = {TENANTS[0]: 2, TENANTS[1]: 1}
    until(lambda: {tenant: counted.metric(rf'^barid_connections\{{tenant="{tenant}"') for tenant in TENANTS} == expected)
    for client in clients:
        client.ping()
