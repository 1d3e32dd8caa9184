"""SUBSCRIBE and UNSUBSCRIBE (5: §3.8 to §3.11; 3.1.1: the same sections)."""

import threading

import pytest

import wire
from wire import V5, V311

normative = pytest.mark.normative

NO_LOCAL, RETAIN_AS_PUBLISHED = 4, 8


@normative("5:MQTT-3.8.4-1", "5:MQTT-3.8.4-2", "5:MQTT-3.8.4-6", "5:MQTT-3.8.4-7", "5:MQTT-2.2.1-6", "5:MQTT-3.9.3-2",
           "311:MQTT-3.8.4-1", "311:MQTT-3.8.4-2", "311:MQTT-3.8.4-5", "311:MQTT-2.3.1-7", "311:MQTT-3.9.3-2")
@pytest.mark.parametrize("packet_id", [1, 256, 65535])
def test_subscribe_is_answered_with_suback(connect, topic, version, qos, packet_id):
    client = connect(version)
    client.send(wire.subscribe(packet_id, (topic, qos), version=version))
    assert client.expect(wire.SUBACK, packet_id=packet_id).reasons == [qos]


@normative("5:MQTT-3.8.4-5", "5:MQTT-3.8.4-6", "5:MQTT-3.9.3-1", "311:MQTT-3.8.4-4", "311:MQTT-3.8.4-5", "311:MQTT-3.9.3-1")
def test_one_suback_answers_many_filters_in_order(connect, topic, version):
    client = connect(version)
    levels = [number * 7 % 3 for number in range(50)]
    suback = client.subscribe(*((f"{topic}/{number}", level) for number, level in enumerate(levels)))
    assert suback.reasons == levels
    for number, level in enumerate(levels):
        client.publish(f"{topic}/{number}", b"x", qos=2)
        assert client.receive(b"x").qos == level
    client.expect_nothing(0.1)


@normative("5:MQTT-3.8.4-5", "311:MQTT-3.8.4-4")
def test_a_filter_twice_in_one_packet_is_as_in_two(connect, topic, version):
    """The later replaces the earlier."""
    client = connect(version)
    assert client.subscribe((topic, 2), (topic, 0)).reasons == [2, 0]
    client.publish(topic, b"x", qos=1)
    assert client.receive(b"x").qos == 0
    client.expect_nothing(0.1)


@normative("5:MQTT-3.8.4-3", "311:MQTT-3.8.4-3")
def test_the_same_filter_replaces_the_subscription(connect, topic, version):
    client, publisher = connect(version), connect(version)
    for level in (2, 0, 1):
        client.subscribe(topic, qos=level)
        publisher.publish(topic, b"%d" % level, qos=2)
        assert client.receive(b"%d" % level).qos == level
    client.expect_nothing(0.1)


@normative("5:MQTT-3.8.4-3")
def test_replacing_replaces_options_and_identifier(connect, topic):
    client = connect(V5)
    client.subscribe((topic, NO_LOCAL | RETAIN_AS_PUBLISHED), properties={"subscription_identifier": 5})
    client.publish(topic, b"own")
    client.subscribe((topic, 0))
    client.publish(topic, b"own again", retain=True)
    found = client.receive(b"own again")
    assert not found.retain and "subscription_identifier" not in found.properties


@normative("5:MQTT-3.8.4-4", "311:MQTT-3.8.4-3")
def test_replacing_loses_nothing(connect, topic, oasis):
    """Subscribing over and over while a publisher goes on: every message arrives, in order."""
    client, publisher = connect(oasis), connect(oasis)
    client.subscribe(topic, qos=1)
    thread = threading.Thread(target=lambda: [publisher.publish(topic, b"%d" % number, qos=1) for number in range(200)])
    thread.start()
    for _ in range(20):
        client.subscribe(topic, qos=1)
    thread.join()
    assert [client.receive().payload for _ in range(200)] == [b"%d" % number for number in range(200)]


@normative("5:MQTT-3.8.4-4", "311:MQTT-3.8.4-3", "5:MQTT-3.3.1-9", "311:MQTT-3.3.1-6")
def test_replacing_sends_retained_messages_again(connect, topic, version):
    connect(version).publish(topic, b"kept", qos=1, retain=True)
    client = connect(version)
    for _ in range(3):
        client.subscribe(topic)
        assert client.receive(b"kept").retain


@normative("311:MQTT-3.8.3-2")
def test_wildcards_are_supported_or_refused(connect, topic):
    client = connect(V311)
    if client.subscribe(topic + "/#").reasons == [0x80]:
        return
    client.publish(topic + "/x", b"matched")
    client.receive(b"matched")


# --------------------------------------------------------------------------- overlapping subscriptions


@normative("5:MQTT-3.3.4-2", "311:MQTT-3.3.5-1")
def test_overlapping_subscriptions_deliver_at_the_highest_qos(connect, topic, version):
    """In one copy."""
    client = connect(version)
    client.subscribe((topic + "/#", 1), (topic + "/+", 2), (topic + "/x", 0))
    connect(version).publish(topic + "/x", b"once", qos=2)
    assert client.receive(b"once").qos == 2
    client.expect_nothing()


@normative("5:MQTT-3.3.4-3", "5:MQTT-3.3.4-4", "5:MQTT-3.3.4-5")
def test_overlapping_subscriptions_deliver_all_identifiers(connect, topic):
    """One copy has all of them; a server that sends a copy for each subscription would send each with its own."""
    client = connect(V5)
    client.subscribe((topic + "/#", 0), properties={"subscription_identifier": 1})
    client.subscribe((topic + "/+", 2), properties={"subscription_identifier": 268_435_455})
    client.subscribe((topic + "/x", 1))
    client.subscribe(("other/" + topic, 1), properties={"subscription_identifier": 3})
    connect(V5).publish(topic + "/x", b"once", qos=1)
    found = client.receive(b"once")
    assert sorted(found.properties["subscription_identifier"]) == [1, 268_435_455]
    assert found.qos == 1
    client.expect_nothing()


def test_a_subscription_identifier_is_the_subscribers_own(connect, topic):
    first, second = connect(V5), connect(V5)
    first.subscribe(topic, properties={"subscription_identifier": 10})
    second.subscribe(topic)
    first.publish(topic, b"x")
    assert first.receive(b"x").properties == {"subscription_identifier": [10]}
    assert second.receive(b"x").properties == {}


def test_several_subscriptions_may_share_an_identifier(connect, topic):
    client = connect(V5)
    client.subscribe(topic + "/a", topic + "/b", properties={"subscription_identifier": 9})
    for name in ("/a", "/b"):
        client.publish(topic + name, b"x")
        assert client.receive(b"x").properties["subscription_identifier"] == [9]


@pytest.mark.parametrize("identifiers", [0, [1, 2]], ids=["zero", "twice"])
def test_a_wrong_subscription_identifier_is_a_protocol_error(connect, topic, identifiers):
    packet = wire.subscribe(1, (topic, 0), properties={"subscription_identifier": identifiers})
    connect(V5).send(packet).expect_refused(0x81, 0x82)


# ----------------------------------------------------------------------------------------------- options


@normative("5:MQTT-3.8.3-3")
def test_no_local_keeps_a_clients_own_messages_from_it(connect, topic):
    client, other = connect(V5), connect(V5)
    client.subscribe((topic, NO_LOCAL))
    client.publish(topic, b"own")
    other.publish(topic, b"foreign")
    client.receive(b"foreign")
    client.expect_nothing(0.1)


@normative("5:MQTT-3.8.3-3")
def test_no_local_counts_for_its_subscription_only(connect, topic):
    """Another subscription of the same client that matches still delivers."""
    client = connect(V5)
    client.subscribe((topic + "/#", NO_LOCAL), properties={"subscription_identifier": 1})
    client.subscribe((topic + "/x", 0), properties={"subscription_identifier": 2})
    client.publish(topic + "/x", b"own")
    assert client.receive(b"own").properties["subscription_identifier"] == [2]


@normative("5:MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(connect, topic):
    connect(V5).send(wire.subscribe(1, ("$share/g/" + topic, NO_LOCAL))).expect_refused(0x82)


@normative("5:MQTT-3.3.1-12", "5:MQTT-3.3.1-13", "311:MQTT-3.3.1-9")
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published(connect, topic, retain):
    plain, published, old = connect(V5), connect(V5), connect(V311)
    plain.subscribe((topic, 0))
    published.subscribe((topic, RETAIN_AS_PUBLISHED))
    old.subscribe(topic)
    connect(V5).publish(topic, b"x", qos=1, retain=retain)
    assert not plain.receive(b"x").retain
    assert published.receive(b"x").retain == retain
    assert not old.receive(b"x").retain


@normative("5:MQTT-3.3.1-9", "5:MQTT-3.3.1-10", "5:MQTT-3.3.1-11")
@pytest.mark.parametrize("handling, first, again", [(0, True, True), (1, True, False), (2, False, False)])
def test_retain_handling(connect, topic, handling, first, again):
    connect(V5).publish(topic, b"kept", qos=1, retain=True)
    client = connect(V5)
    for expected in (first, again):
        client.subscribe((topic, handling << 4))
        if expected:
            assert client.receive(b"kept").retain
        client.expect_nothing(0.15)


@normative("5:MQTT-3.3.1-10")
def test_retain_handling_1_counts_the_session(connect, topic, unique):
    """A subscription that the resumed session has is not new."""
    connect(V5).publish(topic, b"kept", qos=1, retain=True)
    name, properties = unique("c"), {"session_expiry_interval": 60}
    first = connect(V5, name, properties=properties)
    first.subscribe((topic, 1 << 4))
    first.receive(b"kept")
    first.disconnect()
    second = connect(V5, name, clean=False)
    second.subscribe((topic, 1 << 4))
    second.expect_nothing()
    second.unsubscribe(topic)
    second.subscribe((topic, 1 << 4))
    second.receive(b"kept")


# ------------------------------------------------------------------------------------------- unsubscribe


@normative("5:MQTT-3.10.4-1", "5:MQTT-3.10.4-2", "5:MQTT-3.10.4-4", "5:MQTT-3.10.4-5", "5:MQTT-2.2.1-6", "5:MQTT-3.11.3-2",
           "311:MQTT-3.10.4-1", "311:MQTT-3.10.4-2", "311:MQTT-3.10.4-4", "311:MQTT-2.3.1-7")
@pytest.mark.parametrize("suffix", ["", "/+", "/#"])
def test_unsubscribe_ends_the_subscription(connect, topic, version, suffix):
    client, publisher = connect(version), connect(version)
    client.subscribe(topic + suffix)
    published = topic if suffix == "" else topic + "/x"
    publisher.publish(published, b"before", qos=1)
    client.receive(b"before")
    client.send(wire.unsubscribe(65535, topic + suffix, version=version))
    unsuback = client.expect(wire.UNSUBACK, packet_id=65535)
    assert version != V5 or unsuback.reasons == [0x00]
    publisher.publish(published, b"after", qos=1)
    client.expect_nothing()


@normative("5:MQTT-3.10.4-5", "5:MQTT-3.10.4-6", "5:MQTT-3.11.3-1", "5:MQTT-3.11.3-2", "311:MQTT-3.10.4-5",
           "311:MQTT-3.10.4-6")
def test_one_unsuback_answers_many_filters_in_order(connect, topic, version):
    client = connect(version)
    client.subscribe(topic + "/1", topic + "/2", topic + "/3")
    unsuback = client.unsubscribe(topic + "/0", topic + "/1", topic + "/1", topic + "/+", topic + "/3")
    assert version != V5 or unsuback.reasons == [0x11, 0x00, 0x11, 0x11, 0x00]
    for number in (1, 2, 3):
        client.publish(f"{topic}/{number}", b"%d" % number)
    client.receive(b"2")
    client.expect_nothing(0.1)


@normative("5:MQTT-3.10.4-1", "311:MQTT-3.10.4-1")
@pytest.mark.parametrize("other", ["/#", "/X", "/x/", "x", "//x"])
def test_only_the_very_same_filter_is_removed(connect, topic, version, other):
    client = connect(version)
    client.subscribe(topic + "/x")
    client.unsubscribe(topic + other)
    client.publish(topic + "/x", b"still here")
    client.receive(b"still here")


@normative("5:MQTT-3.10.4-3", "311:MQTT-3.10.4-3")
@pytest.mark.parametrize("level", [1, 2])
def test_deliveries_under_way_are_completed(connect, topic, unique, oasis, level):
    """A message sent before the UNSUBSCRIBE can be acknowledged after it, and is sent again if it was not."""
    name = unique("c")
    options = {"clean": False} | ({"properties": {"session_expiry_interval": 60}} if oasis == V5 else {})
    client = connect(oasis, name, **options)
    client.subscribe(topic, qos=level)
    connect(oasis).publish(topic, b"sent", qos=level)
    sent = client.expect(wire.PUBLISH)
    client.unsubscribe(topic)
    client.drop()
    again = connect(oasis, name, **options)
    found = again.receive(b"sent")
    assert found.dup and found.packet_id == sent.packet_id
    again.expect_nothing(0.1)


# ------------------------------------------------------------------------------------------------- limits


def test_subscriptions_are_limited(broker_with, connect, topic):
    """The refused one gets Quota exceeded; the others, and replacing them, keep working."""
    small = broker_with("[limits]\nmax_subscriptions = 2\n")
    client = connect(V5, to=small)
    assert client.subscribe(topic + "/1", topic + "/2", topic + "/3").reasons == [0, 0, 0x97]
    assert client.subscribe(topic + "/1", qos=1).reasons == [1]
    client.unsubscribe(topic + "/1")
    assert client.subscribe(topic + "/3").reasons == [0]
    old = connect(V311, to=small)
    assert old.subscribe(topic + "/1", topic + "/2", topic + "/3").reasons == [0, 0, 0x80]
