"""Wills: published when a client goes without saying goodbye (5: §3.1.2.5, §3.1.3.2, §3.14.4; 3.1.1: §3.1.2.5)."""

import socket
import time

import pytest

import wire
from wire import V5, Will

normative = pytest.mark.normative


@pytest.fixture
def watcher(connect, topic, version):
    client = connect(version)
    client.subscribe(topic, qos=2)
    return client


@pytest.fixture
def watcher5(connect, topic):
    client = connect(V5)
    client.subscribe(topic, qos=2)
    return client


@normative("5:MQTT-3.1.2-7", "5:MQTT-3.1.2-8", "5:MQTT-3.1.2-12", "311:MQTT-3.1.2-8", "311:MQTT-3.1.2-14")
def test_a_dropped_connection_publishes_the_will(connect, watcher, topic, version, qos):
    client = connect(version, will=Will(topic, b"gone", qos))
    watcher.expect_nothing(0.1)
    client.drop()
    assert watcher.receive(b"gone").qos == qos
    watcher.expect_nothing(0.1)


@normative("5:MQTT-3.1.2-10", "5:MQTT-3.14.4-3", "311:MQTT-3.1.2-10", "311:MQTT-3.14.4-3")
def test_disconnect_discards_the_will(connect, watcher, topic, version):
    connect(version, will=Will(topic)).disconnect()
    watcher.expect_nothing()


@normative("5:MQTT-3.1.2-10", "311:MQTT-3.1.2-10")
def test_a_will_is_published_once(connect, watcher5, topic, unique):
    name = unique("c")
    connect(V5, name, will=Will(topic, b"first"), clean=False, properties={"session_expiry_interval": 60}).drop()
    watcher5.receive(b"first")
    connect(V5, name, clean=False).drop()
    watcher5.expect_nothing()


@normative("311:MQTT-3.1.2-12")
def test_without_a_will_none_is_published(connect, watcher, unique, topic, version):
    """Also not the one of an earlier connection with the same client identifier."""
    name = unique("c")
    connect(version, name, will=Will(topic)).disconnect()
    connect(version, name).drop()
    watcher.expect_nothing()


@pytest.mark.parametrize("reason", [0x04, 0x80, 0x81, 0x99])
def test_a_disconnect_with_any_other_reason_publishes_the_will(connect, watcher5, topic, reason):
    connect(V5, will=Will(topic, b"gone")).disconnect(reason)
    watcher5.receive(b"gone")


@normative("311:MQTT-3.1.2-8")
def test_a_protocol_violation_publishes_the_will(connect, watcher, topic, version):
    client = connect(version, will=Will(topic, b"gone"))
    client.send(wire.connect("again", version=version))
    watcher.receive(b"gone")


@normative("5:MQTT-3.1.2-14", "5:MQTT-3.1.2-15", "311:MQTT-3.1.2-16", "311:MQTT-3.1.2-17")
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_may_be_retained(connect, watcher, topic, version, retain):
    connect(version, will=Will(topic, b"gone", retain=retain)).drop()
    assert not watcher.receive(b"gone").retain
    late = connect(version)
    late.subscribe(topic)
    if retain:
        assert late.receive(b"gone").retain
    else:
        late.expect_nothing()


def test_an_empty_will_is_delivered_empty(connect, watcher, topic, version):
    connect(version, will=Will(topic, b"")).drop()
    watcher.receive(b"")


@normative("5:MQTT-3.1.3-10", "5:MQTT-3.3.2-18")
def test_will_properties_are_published(connect, watcher5, topic):
    properties = {
        "payload_format_indicator": 1,
        "message_expiry_interval": 100,
        "content_type": "text/plain",
        "response_topic": "answers/here",
        "correlation_data": b"\0\1\2",
        "user_property": [("b", "1"), ("a", "2"), ("b", "3"), ("b", "1")],
    }
    connect(V5, will=Will(topic, b"gone", properties=properties)).drop()
    found = watcher5.receive(b"gone").properties
    assert found.pop("message_expiry_interval") in range(90, 101)
    del properties["message_expiry_interval"]
    assert found == properties


def test_a_close_right_behind_a_packet_is_noticed(connect, topic, version):
    """Packet and end of the connection reach the broker in one segment, so that there is one event for both."""
    watcher = connect(version)
    watcher.subscribe(topic, qos=1)
    clients = [connect(version, will=Will(topic, b"%d" % number, qos=1)) for number in range(100)]
    for client in clients:
        client.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        client.send(wire.publish(topic + "/unheard", b"x", version=version)).drop()
    assert {watcher.receive().payload for _ in clients} == {b"%d" % number for number in range(100)}


# -------------------------------------------------------------------------------------------- will delay


def session_with_will(connect, topic, name, delay, expiry=60, **options):
    will = Will(topic, b"gone", properties={"will_delay_interval": delay})
    return connect(V5, name, will=will, properties={"session_expiry_interval": expiry}, **options)


@normative("5:MQTT-3.1.2-8")
def test_the_will_waits_for_its_delay(connect, watcher5, topic, unique):
    session_with_will(connect, topic, unique("c"), delay=2).drop()
    watcher5.expect_nothing(0.8)
    watcher5.receive(b"gone")


@normative("5:MQTT-3.1.2-8", "5:MQTT-3.1.3-9")
def test_a_reconnection_cancels_the_will(connect, watcher5, topic, unique):
    name = unique("c")
    session_with_will(connect, topic, name, delay=2).drop()
    assert connect(V5, name, clean=False, properties={"session_expiry_interval": 60}).connack.session_present
    watcher5.expect_nothing(2.6)


@normative("5:MQTT-3.1.3-9")
def test_a_take_over_of_the_session_cancels_the_will(connect, watcher5, topic, unique):
    name = unique("c")
    first = session_with_will(connect, topic, name, delay=2)
    connect(V5, name, clean=False, properties={"session_expiry_interval": 60})
    first.expect_refused(0x8E)
    watcher5.expect_nothing(2.6)


@normative("5:MQTT-3.1.2-8")
def test_a_take_over_publishes_a_will_without_delay(connect, watcher5, topic, unique):
    """The connection closed, and there was nothing to wait for."""
    name = unique("c")
    session_with_will(connect, topic, name, delay=0)
    connect(V5, name, clean=False)
    watcher5.receive(b"gone")


@normative("5:MQTT-3.1.2-8")
def test_the_end_of_the_session_publishes_a_delayed_will(connect, watcher5, topic, unique):
    """By expiry, by having none, and by a clean start."""
    session_with_will(connect, topic, unique("c"), delay=100, expiry=1).drop()
    watcher5.receive(b"gone")

    session_with_will(connect, topic, unique("c"), delay=100, expiry=0).drop()
    watcher5.receive(b"gone")

    name = unique("c")
    session_with_will(connect, topic, name, delay=100, expiry=100).drop()
    watcher5.expect_nothing(0.2)
    connect(V5, name, clean=True)
    watcher5.receive(b"gone")


def test_a_disconnect_that_ends_the_session_publishes_a_delayed_will(connect, watcher5, topic, unique):
    client = session_with_will(connect, topic, unique("c"), delay=100)
    client.disconnect(0x04, {"session_expiry_interval": 0})
    watcher5.receive(b"gone")


@normative("5:MQTT-3.1.2-22", "311:MQTT-3.1.2-24")
def test_silence_publishes_the_will(connect, watcher, topic, version):
    """Keep alive missed: as if the network had failed."""
    started = time.monotonic()
    connect(version, keep_alive=1, will=Will(topic, b"silent"))
    watcher.receive(b"silent")
    assert time.monotonic() - started >= 1.4
