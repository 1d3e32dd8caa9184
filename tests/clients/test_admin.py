"""What an operator can ask a running broker: /healthz, /metrics, $SYS topics."""

import http.client
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker import until
from conftest import TENANTS
from paho_client import Refused

pytestmark = pytest.mark.one_broker


def samples(broker) -> dict[tuple, float]:
    """Every sample of /metrics, by name and labels."""
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(broker.http("/metrics")[1]) for sample in family.samples}


def value(broker, name: str, **labels) -> float:
    return samples(broker).get((name, tuple(sorted(labels.items()))), 0.0)


def test_health(broker):
    assert broker.http("/healthz")[0] == 200
    assert broker.http("/nothing")[0] == 404


def test_the_exposition_is_what_prometheus_expects(broker, paho):
    """Every family has a type and a help text, counters end in _total, no sample comes twice."""
    paho(tenant="acme")
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin_port}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        families = list(text_string_to_metric_families(answer.read().decode()))
    seen = set()
    for family in families:
        assert family.name.startswith(("barid_", "process_")) and family.documentation, family.name
        assert family.type in ("counter", "gauge", "summary"), family.name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen
            seen.add(key)
    assert len(seen) > 20


def test_the_longest_turn_is_told(broker, paho):
    """For each IO thread; a turn of an idle broker is short."""
    paho().publish("t", b"x", 1)
    turns = {labels: seconds for (name, labels), seconds in samples(broker).items() if name == "barid_io_longest_turn_seconds"}
    slow = {labels for name, labels in samples(broker) if name == "barid_io_slow_turns_total"}
    assert set(turns) == slow and (("thread", "0"),) in slow
    assert 0 < max(turns.values()) < 5


def test_counters_are_per_tenant(broker, paho, topic, unique):
    """Ten messages in one tenant, each to two subscribers; nothing of it is counted for the other."""
    acme, globex = (unique(name) for name in TENANTS)
    publisher, *subscribers = [paho(tenant=acme) for _ in range(3)]
    paho(tenant=globex).subscribe(topic)
    for subscriber in subscribers:
        subscriber.subscribe(topic, 1)
    for _ in range(10):
        publisher.publish(topic, b"12345", 1)
    for subscriber in subscribers:
        subscriber.payloads(10)
    until(lambda: value(broker, "barid_packets_total", tenant=acme, direction="in", type="puback") == 20)
    expected = {
        (acme, "in", "publish"): 10, (acme, "out", "publish"): 20, (acme, "out", "puback"): 10, (acme, "in", "connect"): 3,
        (acme, "out", "connack"): 3, (acme, "in", "subscribe"): 2, (globex, "in", "publish"): 0, (globex, "out", "publish"): 0,
        (globex, "in", "connect"): 1,
    }
    for (tenant, direction, kind), packets in expected.items():
        assert value(broker, "barid_packets_total", tenant=tenant, direction=direction, type=kind) == packets, (tenant, kind)
    size = 2 + 2 + len(topic) + 2 + 1 + 5
    assert value(broker, "barid_bytes_total", tenant=acme, direction="in", type="publish") == 10 * size
    for name, ours, theirs in [("connections", 3, 1), ("sessions", 3, 1), ("subscriptions", 2, 1)]:
        assert (value(broker, f"barid_{name}", tenant=acme), value(broker, f"barid_{name}", tenant=globex)) == (ours, theirs), name


def test_every_drop_has_a_reason(broker, paho, topic, unique):
    tenant = unique("d")
    reasons = {dict(labels)["reason"] for name, labels in samples(broker) if name == "barid_dropped_messages_total"}
    assert {"queue_messages", "queue_bytes", "expired", "packet_too_large"} <= reasons
    small, publisher = paho(tenant=tenant, MaximumPacketSize=100), paho(tenant=tenant)
    small.subscribe(topic, 1)
    publisher.publish(topic, bytes(200), 1)
    until(lambda: value(broker, "barid_dropped_messages_total", tenant=tenant, reason="packet_too_large") == 1)
    assert sum(number for (name, labels), number in samples(broker).items()
               if name == "barid_dropped_messages_total" and ("tenant", tenant) in labels) == 1


def test_outboxes_are_seen(broker, paho, topic, unique):
    """Messages that wait for a client that is away."""
    tenant, name = unique("o"), unique("c")
    away = paho(name, tenant=tenant, clean=False, SessionExpiryInterval=60)
    away.subscribe(topic, 1)
    away.leave()
    publisher = paho(tenant=tenant)
    for _ in range(7):
        publisher.publish(topic, bytes(1000), 1)
    # The first may still be on its way to a connection that is gone.
    until(lambda: value(broker, "barid_outbox_messages", tenant=tenant) == 7)
    assert value(broker, "barid_outbox_messages_max", tenant=tenant) == 7
    assert value(broker, "barid_outbox_bytes", tenant=tenant) >= 7000
    assert value(broker, "barid_sessions", tenant=tenant) == 2
    paho(name, tenant=tenant, clean=True).leave()
    until(lambda: value(broker, "barid_outbox_messages", tenant=tenant) == 0)


def test_a_tenants_name_cannot_forge_a_metric(broker, paho):
    """Quotes, backslashes and line ends in it are escaped."""
    for name in ('quo"te', "back\\slash", 'x"} 1\nforged{a="'):
        try:
            paho(tenant=name)
        except Refused:
            continue
    tenants = {dict(labels).get("tenant") for _, labels in samples(broker)}
    assert 'quo"te' in tenants and "back\\slash" in tenants
    assert not any(name.startswith("forged") for name, _ in samples(broker))


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_the_admin_address_only_answers_questions(broker, method):
    connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=5)
    connection.request(method, "/metrics")
    assert connection.getresponse().status == 405
    connection.close()


def test_sys_topics_are_the_tenants_own(broker, paho, topic, unique):
    tenant = unique("s")
    client = paho(tenant=tenant)
    client.publish(topic, b"x", 1)
    client.subscribe("$SYS/broker/#")
    seen = {}

    def told(**expected: str) -> bool:
        while not client.messages.empty():
            message = client.receive()
            seen[message.topic.removeprefix("$SYS/broker/")] = message.payload.decode()
        return {"uptime", "version"} <= seen.keys() and expected.items() <= seen.items()

    # The other tenants' clients are none of its business. Values may be an interval old.
    until(lambda: told(**{"clients/connected": "1", "publish/messages/received": "1", "subscriptions/count": "1"}))
    assert seen["version"].startswith("barid ")
    assert int(seen["uptime"].split()[0]) >= 0
