"""Sessions: how long they live, what they keep, what a reconnection gets (5: §3.1.2.4, §4.1, §4.4; 3.1.1: §3.1.2.4)."""

import time

import pytest

import wire
from wire import V5, V311

normative = pytest.mark.normative

FOREVER = 0xFFFFFFFF


@pytest.fixture
def persistent(connect, unique):
    """Connects a client whose session outlives the connection; the same name again resumes it."""
    name = unique("s")

    def connect_(version: int, expiry: int = 60, client_id: str = name, **options):
        if version == V5:
            options.setdefault("properties", {})["session_expiry_interval"] = expiry
        return connect(version, client_id, clean=options.pop("clean", False), **options)

    return connect_


@normative("5:MQTT-3.1.2-6", "5:MQTT-3.2.2-3", "311:MQTT-3.1.2-4", "311:MQTT-3.2.2-3")
def test_without_a_session_a_new_one_is_made(persistent, topic, oasis):
    client = persistent(oasis)
    assert not client.connack.session_present
    client.subscribe(topic)
    client.publish(topic, b"new")
    client.receive(b"new")


@normative("5:MQTT-3.1.2-5", "5:MQTT-3.1.2-23", "5:MQTT-3.2.2-3", "5:MQTT-4.5.0-1", "311:MQTT-3.1.2-4", "311:MQTT-3.1.2-5",
           "311:MQTT-3.2.2-2", "311:MQTT-4.1.0-1", "311:MQTT-4.5.0-1")
@pytest.mark.parametrize("graceful", [True, False], ids=["disconnect", "drop"])
def test_a_session_keeps_subscriptions_and_messages(persistent, connect, topic, oasis, graceful):
    first = persistent(oasis)
    first.subscribe(topic + "/1", qos=1)
    first.subscribe(topic + "/2", qos=2)
    first.disconnect() if graceful else first.drop()
    publisher = connect(oasis)
    publisher.publish(topic + "/1", b"one", qos=1)
    publisher.publish(topic + "/2", b"two", qos=2)

    second = persistent(oasis)
    assert second.connack.session_present
    found = {second.receive().payload, second.receive().payload}
    assert found == {b"one", b"two"}
    publisher.publish(topic + "/1", b"live", qos=1)
    second.receive(b"live")


def test_mqtt_31_keeps_sessions_too(persistent, connect, topic):
    first = persistent(wire.V31)
    first.subscribe(topic, qos=1)
    first.disconnect()
    connect(wire.V31).publish(topic, b"stored", qos=1)
    persistent(wire.V31).receive(b"stored")


@normative("5:MQTT-3.1.2-4", "5:MQTT-3.1.4-4", "5:MQTT-3.2.2-2", "311:MQTT-3.1.2-6", "311:MQTT-3.1.4-3", "311:MQTT-3.2.2-1")
def test_a_clean_start_discards_the_session(persistent, connect, topic, oasis):
    first = persistent(oasis)
    first.subscribe(topic, qos=1)
    first.disconnect()
    publisher = connect(oasis)
    publisher.publish(topic, b"stored", qos=1)

    second = persistent(oasis, clean=True)
    assert not second.connack.session_present
    publisher.publish(topic, b"live", qos=1)
    second.expect_nothing()


@normative("311:MQTT-3.1.2-6", "5:MQTT-4.1.0-2")
def test_a_session_without_expiry_ends_with_its_connection(connect, unique, oasis):
    """MQTT 3.1.1: Clean Session 1. MQTT 5: Session Expiry Interval absent, whatever Clean Start was."""
    name = unique("c")
    connect(oasis, name, clean=oasis == V311).disconnect()
    assert not connect(oasis, name, clean=False).connack.session_present


@normative("5:MQTT-4.1.0-1", "311:MQTT-4.1.0-2")
def test_a_session_lasts_as_long_as_its_connection(connect, topic, oasis):
    """Also one that ends with the connection: subscriptions and the QoS 2 flow go on."""
    client = connect(oasis)
    client.subscribe(topic, qos=2)
    client.send(wire.publish(topic, b"x", 2, 7, version=oasis))
    client.wait_for(wire.PUBREC, 7)
    time.sleep(1.1)
    client.send(wire.publish(topic, b"x", 2, 7, dup=True, version=oasis))
    client.wait_for(wire.PUBREC, 7)
    client.send(wire.acknowledge(wire.PUBREL, 7))
    client.wait_for(wire.PUBCOMP, 7)
    client.receive(b"x")
    client.expect_nothing()


@normative("5:MQTT-4.1.0-2")
def test_a_session_expires(persistent, connect, topic):
    """Its will, whose delay is longer, tells that it has."""
    watcher, started = connect(), time.monotonic()
    watcher.subscribe(topic + "/ended")
    first = persistent(V5, expiry=1, will=wire.Will(topic + "/ended", properties={"will_delay_interval": 60}))
    first.subscribe(topic, qos=1)
    first.drop()
    watcher.receive()
    assert time.monotonic() - started > 0.9
    connect().publish(topic, b"too late", qos=1)
    second = persistent(V5)
    assert not second.connack.session_present
    second.expect_nothing()


def test_a_reconnection_stops_the_expiry(persistent):
    persistent(V5, expiry=2).drop()
    second = persistent(V5, expiry=60)
    assert second.connack.session_present
    time.sleep(2.6)
    second.disconnect()
    assert persistent(V5).connack.session_present


@pytest.mark.parametrize("interval, present", [(0, False), (60, True), (FOREVER, True)])
def test_disconnect_changes_the_expiry(persistent, interval, present):
    client = persistent(V5, expiry=1)
    client.disconnect(0, {"session_expiry_interval": interval})
    time.sleep(1.6 if present else 0)
    assert persistent(V5).connack.session_present == present


@normative("5:MQTT-4.13.1-1")
def test_disconnect_does_not_make_an_expiring_session_of_another(connect):
    """From 0 to anything else is a Protocol Error (§3.14.2.2.2)."""
    connect().send(wire.disconnect(0, {"session_expiry_interval": 10})).expect_refused(0x82)


def test_a_session_can_be_kept_without_end(persistent):
    persistent(V5, expiry=FOREVER).disconnect()
    assert persistent(V5, expiry=0).connack.session_present


def test_the_expiry_of_the_last_connection_counts(persistent):
    persistent(V5, expiry=FOREVER).disconnect()
    persistent(V5, expiry=0).disconnect()
    assert not persistent(V5).connack.session_present


def test_the_server_limits_the_expiry(broker_with, persistent, connect):
    limited = broker_with("[limits]\nmax_session_expiry = 1\n")
    watcher = connect(to=limited)
    watcher.subscribe("ended")
    first = persistent(V5, to=limited, expiry=FOREVER, will=wire.Will("ended", properties={"will_delay_interval": 60}))
    assert first.connack.properties["session_expiry_interval"] == 1
    first.drop()
    watcher.receive()
    assert not persistent(V5, to=limited).connack.session_present


def test_versions_share_a_session(persistent, connect, topic):
    """The client identifier names it, not the version that speaks."""
    first = persistent(V311)
    first.subscribe(topic, qos=1)
    first.disconnect()
    connect().publish(topic, b"stored", qos=1, properties={"content_type": "text"})
    second = persistent(V5)
    assert second.connack.session_present
    assert second.receive(b"stored").properties.get("content_type") == "text"
    second.disconnect()
    assert persistent(V311).connack.session_present


@normative("5:MQTT-3.1.2-23")
def test_subscription_options_and_identifiers_are_kept(persistent, connect, topic):
    first = persistent(V5)
    first.subscribe((topic, 1 | 8), properties={"subscription_identifier": 77})
    first.disconnect()
    connect().publish(topic, b"kept", qos=1, retain=True)
    found = persistent(V5).receive(b"kept")
    assert found.retain and found.properties["subscription_identifier"] == [77]


@normative("311:MQTT-3.1.2-7")
def test_retained_messages_outlive_sessions(connect, topic, version):
    publisher = connect(version, clean=True)
    publisher.publish(topic, b"stays", qos=1, retain=True)
    publisher.disconnect()
    reader = connect(version)
    reader.subscribe(topic)
    reader.receive(b"stays")


# --------------------------------------------------------------------------------------------- take-over


@normative("5:MQTT-3.1.4-3", "311:MQTT-3.1.4-2")
def test_the_newer_connection_takes_over(connect, topic, unique, version):
    name = unique("c")
    first = connect(version, name)
    second = connect(version, name)
    first.expect_refused(0x8E)
    second.subscribe(topic)
    second.publish(topic, b"mine")
    second.receive(b"mine")


@normative("5:MQTT-3.1.4-3", "5:MQTT-3.2.2-3")
def test_take_over_of_a_session_loses_nothing(persistent, connect, topic, oasis):
    """What the first connection did not acknowledge is sent again, and what comes in between is not lost."""
    first = persistent(oasis)
    first.subscribe(topic, qos=1)
    publisher = connect(oasis)
    publisher.publish(topic, b"1", qos=1)
    unacknowledged = first.expect(wire.PUBLISH)
    second = persistent(oasis)
    assert second.connack.session_present
    first.expect_refused(0x8E)
    publisher.publish(topic, b"2", qos=1)
    again = second.receive(b"1")
    assert again.dup and again.packet_id == unacknowledged.packet_id
    second.receive(b"2")


def test_clients_that_fight_for_an_identifier_end_with_one(connect, dial, unique):
    """Take-over at once and often: each is accepted and then told of the next, or ends before it was; the last one stays."""
    name = unique("c")
    clients = [dial() for _ in range(20)]
    for client in clients:
        client.send(wire.connect(name))
    accepted = []
    for client in clients:
        try:
            client.expect(wire.CONNACK, reason=0)
            accepted.append(client)
        except wire.Closed:
            pass
    last = connect(V5, name)
    assert accepted
    for client in accepted:
        client.expect_refused(0x8E)
    last.ping()


@normative("5:MQTT-4.3.3-10", "311:MQTT-4.3.3-2")
def test_after_a_take_over_the_older_connection_has_no_say(connect, dial, topic, unique, oasis):
    """What it sent last races with the newer one, which sends it again: still exactly once."""
    watcher, name = connect(oasis), unique("c")
    watcher.subscribe(topic, qos=0)
    options = {"properties": {"session_expiry_interval": 60}} if oasis == V5 else {}
    older = connect(oasis, name, clean=False, **options)
    payloads = [b"%d" % number for number in range(200)]
    for payload in payloads:
        newer = dial(oasis)
        older.send(wire.publish(topic, payload, 2, 1, version=oasis))
        newer.send(wire.connect(name, version=oasis, clean=False, **options),
                   wire.publish(topic, payload, 2, 1, dup=True, version=oasis), wire.acknowledge(wire.PUBREL, 1))
        newer.expect(wire.CONNACK, reason=0, session_present=True)
        newer.expect(wire.PUBREC, packet_id=1)
        newer.expect(wire.PUBCOMP, packet_id=1)
        older.stream.close()
        older = newer
    assert [watcher.receive().payload for _ in payloads] == payloads
    watcher.expect_nothing()


# --------------------------------------------------------------------------------------- redelivery


@normative("5:MQTT-3.3.1-1", "5:MQTT-4.4.0-1", "5:MQTT-4.3.2-3", "5:MQTT-4.3.3-3", "311:MQTT-3.3.1-1", "311:MQTT-4.4.0-1",
           "311:MQTT-4.3.2-1", "311:MQTT-4.3.3-1", "311:MQTT-4.6.0-1")
@pytest.mark.parametrize("level", [1, 2])
def test_unacknowledged_messages_come_again_in_order(persistent, connect, topic, oasis, level):
    first = persistent(oasis)
    first.subscribe(topic, qos=level)
    publisher = connect(oasis)
    for number in range(10):
        publisher.publish(topic, b"%d" % number, qos=level)
    sent = [first.expect(wire.PUBLISH) for _ in range(10)]
    assert not any(one.dup for one in sent)
    first.drop()

    second = persistent(oasis)
    again = [second.expect(wire.PUBLISH) for _ in range(10)]
    assert [(one.packet_id, one.payload) for one in again] == [(one.packet_id, one.payload) for one in sent]
    assert all(one.dup for one in again)
    for one in again:
        second.complete(one)
    second.expect_nothing()


@normative("5:MQTT-4.4.0-1", "5:MQTT-4.6.0-5")
def test_new_messages_come_after_those_sent_again(persistent, connect, topic, oasis):
    first = persistent(oasis)
    first.subscribe(topic, qos=1)
    publisher = connect(oasis)
    publisher.publish(topic, b"0", qos=1)
    first.expect(wire.PUBLISH)
    first.drop()
    for number in range(1, 5):
        publisher.publish(topic, b"%d" % number, qos=1)
    second = persistent(oasis)
    found = [second.receive() for _ in range(5)]
    assert [one.payload for one in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert found[0].dup


@normative("5:MQTT-4.3.3-5", "5:MQTT-4.3.3-6", "5:MQTT-4.4.0-1", "311:MQTT-4.3.3-1", "311:MQTT-4.4.0-1", "311:MQTT-4.6.0-4")
def test_a_pubrel_without_pubcomp_comes_again(persistent, connect, topic, oasis):
    """And the PUBLISH, once its PUBREL was sent, does not."""
    first = persistent(oasis)
    first.subscribe(topic, qos=2)
    publisher = connect(oasis)
    identifiers = []
    for payload in (b"1", b"2"):
        publisher.publish(topic, payload, qos=2)
        identifiers.append(first.expect(wire.PUBLISH).packet_id)
        first.send(wire.acknowledge(wire.PUBREC, identifiers[-1])).expect(wire.PUBREL, packet_id=identifiers[-1])
    first.drop()
    second = persistent(oasis)
    for packet_id in identifiers:
        second.expect(wire.PUBREL, packet_id=packet_id)
    for packet_id in identifiers:
        second.send(wire.acknowledge(wire.PUBCOMP, packet_id))
    second.expect_nothing()
    second.disconnect()
    persistent(oasis).expect_nothing()


@normative("5:MQTT-4.4.0-1")
def test_nothing_is_sent_again_within_a_connection(connect, topic, oasis):
    client = connect(oasis)
    client.subscribe(topic, qos=1)
    connect(oasis).publish(topic, b"once", qos=1)
    client.expect(wire.PUBLISH)
    client.expect_nothing(1.0)


@normative("5:MQTT-4.4.0-2", "5:MQTT-4.3.3-4")
@pytest.mark.parametrize("level, kind", [(1, wire.PUBACK), (2, wire.PUBREC)])
def test_an_acknowledgement_of_failure_ends_the_delivery(persistent, connect, topic, level, kind):
    first = persistent(V5)
    first.subscribe(topic, qos=level)
    connect().publish(topic, b"unwanted", qos=level)
    found = first.expect(wire.PUBLISH)
    first.send(wire.acknowledge(kind, found.packet_id, 0x80))
    first.expect_nothing()
    first.drop()
    persistent(V5).expect_nothing()


@normative("5:MQTT-4.3.3-10", "311:MQTT-4.3.3-2")
def test_qos_2_from_a_client_is_exactly_once_across_connections(persistent, connect, topic, oasis):
    watcher = connect(oasis)
    watcher.subscribe(topic, qos=2)
    first = persistent(oasis)
    first.send(wire.publish(topic, b"once", 2, 9, version=oasis)).expect(wire.PUBREC, packet_id=9)
    first.drop()
    second = persistent(oasis)
    second.send(wire.publish(topic, b"once", 2, 9, dup=True, version=oasis)).expect(wire.PUBREC, packet_id=9, reason=0)
    second.send(wire.acknowledge(wire.PUBREL, 9)).expect(wire.PUBCOMP, packet_id=9, reason=0)
    watcher.receive(b"once")
    watcher.expect_nothing()


@normative("5:MQTT-3.3.2-5")
def test_a_queued_message_expires(persistent, connect, topic):
    first = persistent(V5)
    first.subscribe(topic, qos=1)
    first.disconnect()
    publisher = connect()
    publisher.publish(topic, b"fleeting", qos=1, properties={"message_expiry_interval": 1})
    publisher.publish(topic, b"lasting", qos=1, properties={"message_expiry_interval": 100})
    time.sleep(1.6)
    second = persistent(V5)
    found = second.receive(b"lasting")
    assert 90 <= found.properties["message_expiry_interval"] <= 99
    second.expect_nothing()


@normative("5:MQTT-4.3.3-7")
def test_a_message_under_way_does_not_expire(persistent, connect, topic):
    first = persistent(V5)
    first.subscribe(topic, qos=2)
    connect().publish(topic, b"sent", qos=2, properties={"message_expiry_interval": 1})
    sent = first.expect(wire.PUBLISH)
    first.drop()
    time.sleep(1.6)
    again = persistent(V5).receive(b"sent")
    assert again.dup and again.packet_id == sent.packet_id


def test_qos_0_messages_need_not_be_kept_but_may(persistent, connect, topic, oasis):
    """A marker at QoS 1 comes last, whichever the broker chooses."""
    first = persistent(oasis)
    first.subscribe(topic, qos=1)
    first.disconnect()
    publisher = connect(oasis)
    publisher.publish(topic, b"maybe", qos=0)
    publisher.publish(topic, b"marker", qos=1)
    second = persistent(oasis)
    payloads = [second.receive().payload]
    if payloads == [b"maybe"]:
        payloads.append(second.receive().payload)
    assert payloads[-1] == b"marker"
