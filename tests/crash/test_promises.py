"""Tests one promise each, step by step: what a client is told before a crash holds after it (5: §4.1, §3.1.2.5, §3.1.2.11)."""

import contextlib
import time

import pytest
import wire
from broker import until
from steps import received
from wire import V5, V311, Will

both = pytest.mark.parametrize("version", [V311, V5], ids=["v3.1.1", "v5"])


@both
def test_subscriptions_keep_their_options(connect, crash, version):
    options = 2 | 0x08 if version == V5 else 2  # Retain As Published
    client = connect("s", version)
    client.subscribe(("a/+", options), properties={"subscription_identifier": 7} if version == V5 else None)
    client.subscribe("b", qos=1)
    crash()
    client = connect("s", version, present=True)
    publisher = connect("p")
    publisher.publish("a/1", b"one", qos=2, retain=True)
    publisher.publish("b", b"two", qos=2)
    found = {one.payload: one for one in (client.receive(), client.receive())}
    assert (found[b"one"].qos, found[b"two"].qos) == (2, 1)
    if version == V5:
        assert found[b"one"].properties["subscription_identifier"] == [7]
        assert found[b"one"].retain and not found[b"two"].retain


@both
def test_what_waits_keeps_order_and_properties(connect, crash, version):
    connect("s", version).subscribe("a", qos=2)
    connect("s", version).disconnect()
    publisher = connect("p")
    for number in range(50):
        publisher.publish("a", b"%d" % number, qos=1 + number % 2, properties={
            "user_property": [("k", "1"), ("k", "2")], "content_type": "text/plain", "response_topic": "r", "correlation_data": b"c"})
    crash()
    client = connect("s", version, present=True)
    found = [client.receive() for _ in range(50)]
    assert [one.payload for one in found if one.qos == 1] == [b"%d" % one for one in range(0, 50, 2)]
    assert [one.payload for one in found if one.qos == 2] == [b"%d" % one for one in range(1, 50, 2)]
    if version == V5:
        for one in found:
            assert one.properties["user_property"] == [("k", "1"), ("k", "2")]
            assert (one.properties["content_type"], one.properties["response_topic"]) == ("text/plain", "r")
            assert one.properties["correlation_data"] == b"c"
    assert received(client) == []


@both
def test_a_message_in_flight_comes_again_under_its_identifier(connect, crash, version):
    """§4.4: PUBLISH is sent again with DUP and the original packet identifier; after PUBREC, PUBREL is sent instead."""
    client = connect("s", version)
    client.subscribe("a", qos=2)
    publisher = connect("p")
    for payload, qos in ((b"one", 1), (b"two", 2), (b"three", 2)):
        publisher.publish("a", payload, qos=qos)
    sent = {one.payload: one for one in (client.expect(wire.PUBLISH) for _ in range(3))}
    client.send(wire.acknowledge(wire.PUBREC, sent[b"three"].packet_id))
    client.expect(wire.PUBREL, packet_id=sent[b"three"].packet_id)
    crash()
    client = connect("s", version, present=True)
    again = [client.recv() for _ in range(3)]
    published = {one.payload: one for one in again if one.kind == wire.PUBLISH}
    assert {payload: one.packet_id for payload, one in published.items()} == {one: sent[one].packet_id for one in (b"one", b"two")}
    assert all(one.dup for one in published.values())
    (release,) = [one for one in again if one.kind == wire.PUBREL]
    assert release.packet_id == sent[b"three"].packet_id


@both
def test_a_received_identifier_is_remembered(connect, crash, version):
    """§4.3.3: before PUBCOMP a PUBLISH with the same identifier is no new message; after PUBCOMP it is."""
    connect("s").subscribe("a", qos=2)
    publisher = connect("p", version)
    publisher.send(wire.publish("a", b"one", 2, 9, version=version))
    publisher.expect(wire.PUBREC, packet_id=9)
    crash()
    publisher = connect("p", version, present=True)
    publisher.send(wire.publish("a", b"one", 2, 9, dup=True, version=version))
    publisher.expect(wire.PUBREC, packet_id=9)
    publisher.send(wire.acknowledge(wire.PUBREL, 9))
    publisher.expect(wire.PUBCOMP, packet_id=9)
    crash()
    publisher = connect("p", version, present=True)
    publisher.send(wire.publish("a", b"two", 2, 9, version=version))
    publisher.expect(wire.PUBREC, packet_id=9)
    assert received(connect("s", present=True), 2) == [b"one", b"two"]


def test_receive_maximum_counts_what_was_received_before(connect, crash):
    """The send quota belongs to a connection, but messages that are in flight again count against it (§4.9)."""
    connect("s").subscribe("a", qos=1)
    publisher = connect("p")
    for number in range(10):
        publisher.publish("a", b"%d" % number, qos=1)
    crash()
    client = connect("s", present=True, properties={"receive_maximum": 3})
    found = [client.expect(wire.PUBLISH) for _ in range(3)]
    client.expect_nothing()
    client.send(wire.acknowledge(wire.PUBACK, found[0].packet_id))
    client.expect(wire.PUBLISH)
    client.expect_nothing()


def test_an_acknowledged_message_does_not_come_again(connect, crash):
    """PUBREL confirms that the broker has stored the PUBREC: the message is not sent again. No packet confirms that the
    broker has stored the PUBCOMP, so PUBREL may come again after a crash, and is answered again (§4.3.3).
    """
    connect("s").subscribe("a", qos=2)
    connect("p").publish("a", b"one", qos=2)
    client = connect("s")
    packet_id = client.receive(b"one").packet_id
    client.ping()
    client.disconnect()
    crash()
    client = connect("s", present=True)
    with contextlib.suppress(TimeoutError):
        while client.expect(wire.PUBREL, timeout=0.5, packet_id=packet_id):
            client.send(wire.acknowledge(wire.PUBCOMP, packet_id))


@both
def test_an_unsubscribed_filter_stays_gone(connect, crash, version):
    client = connect("s", version)
    client.subscribe("a", "b", qos=1)
    client.unsubscribe("a")
    crash()
    publisher = connect("p")
    publisher.publish("a", b"no", qos=1)
    publisher.publish("b", b"yes", qos=1)
    assert received(connect("s", version, present=True), 1) == [b"yes"]


@both
def test_an_ended_session_stays_gone(connect, crash, version):
    connect("s", version).subscribe("a", qos=1)
    connect("s", version, clean=True, expiry=None).disconnect()
    crash()
    connect("p").publish("a", b"no", qos=1)
    assert received(connect("s", version, present=False)) == []


def test_a_clean_start_keeps_only_what_came_after_it(connect, crash):
    connect("s").subscribe("a", qos=1)
    connect("p").publish("a", b"before", qos=1)
    connect("s", clean=True).subscribe("b", qos=1)
    crash()
    publisher = connect("p")
    publisher.publish("a", b"no", qos=1)
    publisher.publish("b", b"yes", qos=1)
    assert received(connect("s", present=True), 1) == [b"yes"]


@pytest.mark.parametrize("goes", ["drop", "disconnect"])
def test_session_expiry_runs_on(connect, crash, rest, goes):
    client = connect("short", expiry=2)
    client.subscribe("a", qos=1)
    other = connect("long", expiry=60)
    other.subscribe("a", qos=1)
    getattr(client, goes)()
    getattr(other, goes)()
    gone = time.monotonic()
    rest()
    crash()
    time.sleep(max(0.0, gone + 4 - time.monotonic()))
    connect("short", present=False)
    connect("long", present=True)


def test_expiry_while_the_broker_is_down(connect, victim, rest):
    connect("short", expiry=1).subscribe("a", qos=1)
    connect("short", expiry=1).disconnect()
    rest()
    victim.die()
    time.sleep(2)
    victim.revive()
    connect("short", present=False)


def test_disconnect_changes_the_expiry_for_good(connect, crash, rest):
    """§3.14.2.2.2: the Session Expiry Interval of DISCONNECT replaces that of CONNECT."""
    client = connect("s", expiry=1)
    client.subscribe("a", qos=1)
    client.disconnect(0, {"session_expiry_interval": 60})
    rest()
    crash()
    time.sleep(1.5)
    connect("s", present=True)


def test_message_expiry_runs_on(connect, crash):
    connect("s").subscribe("a", qos=1)
    connect("s").disconnect()
    publisher = connect("p")
    publisher.publish("a", b"short", qos=1, properties={"message_expiry_interval": 1})
    publisher.publish("a", b"long", qos=1, properties={"message_expiry_interval": 60})
    crash()
    time.sleep(2)
    client = connect("s", present=True)
    found = client.receive(b"long")
    assert found.properties["message_expiry_interval"] <= 58
    assert received(client) == []


def test_a_will_delay_runs_on(connect, crash, rest):
    watcher = connect("w")
    watcher.subscribe("will/#", qos=2)
    connect("m", will=Will("will/m", b"gone", 2, properties={"will_delay_interval": 2})).drop()
    gone = time.monotonic()
    rest()
    crash()
    watcher = connect("w", present=True)
    assert watcher.receive().payload == b"gone"
    assert 1.5 < time.monotonic() - gone < 8
    assert received(watcher) == []


def test_a_connected_client_dies_with_the_broker(connect, crash):
    """Its connection ends without DISCONNECT: the will is due when the delay is over (§3.1.2.5, §3.1.3.2.2)."""
    connect("w").subscribe("will/#", qos=1)
    connect("m", will=Will("will/m", b"gone", 1, properties={"will_delay_interval": 1}))
    crash()
    watcher = connect("w", present=True)
    assert watcher.receive().payload == b"gone"
    assert received(watcher) == []


def test_a_client_that_comes_back_in_time_does_not_die(connect, crash):
    connect("w").subscribe("will/#", qos=1)
    connect("m", will=Will("will/m", b"gone", 1, properties={"will_delay_interval": 3}))
    crash()
    connect("m", present=True)
    assert received(connect("w", present=True), quiet=4) == []


def test_a_discarded_will_stays_discarded(connect, crash, rest):
    connect("w").subscribe("will/#", qos=1)
    connect("m", will=Will("will/m", b"gone", 1, properties={"will_delay_interval": 1})).disconnect()
    rest()
    crash()
    assert received(connect("w", present=True), quiet=2) == []


def test_a_will_is_published_once(connect, crash, rest):
    """If the broker ended before it had noted the publication, it could publish the will again."""
    connect("w").subscribe("will/#", qos=1)
    connect("m", will=Will("will/m", b"gone", 1)).drop()
    watcher = connect("w")
    watcher.receive(b"gone")
    watcher.ping()
    rest()
    crash()
    assert received(connect("w", present=True), quiet=1) == []


@both
def test_retained_messages_survive_and_stay_cleared(connect, crash, version):
    publisher = connect("p", version)
    for topic, payload, qos in (("r/1", b"one", 1), ("r/2", b"two", 2), ("r/3", b"three", 1), ("r/1", b"newer", 1), ("r/3", b"", 1)):
        publisher.publish(topic, payload, qos=qos, retain=True)
    crash()
    for tenant, expected in (("acme", {"r/1": b"newer", "r/2": b"two"}), ("globex", {})):
        client = connect("fresh", clean=True, tenant=tenant)
        client.subscribe("r/#", qos=2)
        found = {}
        while len(found) < len(expected):
            one = client.receive()
            assert one.retain
            found[one.topic] = one.payload
        assert found == expected
        assert received(client) == []


def test_a_retained_message_expires_while_the_broker_is_down(connect, victim):
    publisher = connect("p")
    publisher.publish("r/short", b"x", qos=1, retain=True, properties={"message_expiry_interval": 1})
    publisher.publish("r/long", b"y", qos=1, retain=True, properties={"message_expiry_interval": 60})
    victim.die()
    time.sleep(2)
    victim.revive()
    client = connect("fresh", clean=True)
    client.subscribe("r/#", qos=1)
    found = client.receive(b"y")
    assert found.properties["message_expiry_interval"] <= 58
    assert received(client) == []


def test_tenants_stay_apart(connect, crash):
    """Uses the same client identifiers and topics in two tenants."""
    for tenant in ("acme", "globex"):
        connect("s", tenant=tenant).subscribe("a", qos=1)
        connect("s", tenant=tenant).disconnect()
    connect("p", tenant="acme").publish("a", b"acme", qos=1)
    connect("p", tenant="globex").publish("a", b"globex", qos=1)
    crash()
    for tenant in ("acme", "globex"):
        assert received(connect("s", tenant=tenant, present=True), 1) == [tenant.encode()]


def test_a_restart_in_order_keeps_everything_too(connect, victim):
    connect("s").subscribe("a", qos=2)
    connect("s").disconnect()
    connect("p").publish("a", b"one", qos=2)
    victim.restart()
    assert received(connect("s", present=True), 1) == [b"one"]


def test_shared_subscriptions_survive(connect, crash):
    """Each message goes to one of the members, also when both are away."""
    for name in ("s1", "s2"):
        connect(name).subscribe("$share/g/a", qos=1)
        connect(name).disconnect()
    crash()
    publisher = connect("p")
    for number in range(20):
        publisher.publish("a", b"%d" % number, qos=1)
    crash()
    members, found = [connect(name, present=True) for name in ("s1", "s2")], []

    def have_all() -> bool:
        for member in members:
            found.extend(received(member, quiet=0.1))
        return len(found) >= 20

    until(have_all)
    assert sorted(found, key=int) == [b"%d" % one for one in range(20)]
