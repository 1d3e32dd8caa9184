"""PUBLISH and its acknowledgements in both directions, at every QoS (5: §3.3 to §3.7, §4.3, §4.6; 3.1.1: the same)."""

import pytest

import wire
from wire import V5

normative = pytest.mark.normative


# ------------------------------------------------------------------------------------------------- QoS 0


@normative("5:MQTT-2.2.1-2", "5:MQTT-3.3.1-2", "5:MQTT-3.3.4-1", "5:MQTT-4.3.1-1", "5:MQTT-2.2.2-1", "311:MQTT-2.3.1-5",
           "311:MQTT-3.3.1-2", "311:MQTT-3.3.4-1", "311:MQTT-4.3.1-1")
def test_qos_0_is_delivered_without_any_acknowledgement(connect, topic, version):
    client = connect(version)
    client.subscribe(topic, qos=2)
    client.publish(topic, b"fire and forget")
    found = client.expect(wire.PUBLISH, qos=0, dup=False, packet_id=None, payload=b"fire and forget")
    assert found.topic == topic
    client.expect_nothing()


@normative("5:MQTT-3.3.1-2", "311:MQTT-3.3.1-2")
def test_qos_0_with_dup_is_malformed(connect, topic, oasis):
    connect(oasis).send(wire.publish(topic, b"x", dup=True, version=oasis)).expect_refused(0x81, 0x82)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 200_000])
def test_payloads_of_every_length_arrive_whole(connect, topic, version, qos, size):
    """Around each length of the Remaining Length field."""
    client = connect(version)
    client.subscribe(topic, qos=qos)
    payload = bytes(number % 251 for number in range(size))
    client.publish(topic, payload, qos)
    client.receive(payload)


def test_payload_is_not_touched(connect, topic, version):
    """A payload that looks like packets is still a payload."""
    payload = wire.disconnect() + wire.pingreq() + b"\0\xff\xfe" + wire.connect("x")
    client = connect(version)
    client.subscribe(topic)
    client.publish(topic, payload)
    client.receive(payload)


# ------------------------------------------------------------------------------------- QoS 1, to the broker


@normative("5:MQTT-3.3.4-1", "5:MQTT-4.3.2-4", "5:MQTT-2.2.1-5", "5:MQTT-3.4.2-1", "311:MQTT-3.3.4-1", "311:MQTT-4.3.2-2",
           "311:MQTT-2.3.1-6")
@pytest.mark.parametrize("packet_id", [1, 255, 256, 65535])
def test_qos_1_is_answered_with_puback(connect, topic, version, packet_id):
    client = connect(version)
    client.send(wire.publish(topic, b"x", 1, packet_id, version=version))
    assert client.expect(wire.PUBACK, packet_id=packet_id).reason in (0x00, 0x10)


@normative("5:MQTT-4.3.2-5", "311:MQTT-4.3.2-2", "5:MQTT-3.3.1-3", "311:MQTT-3.3.1-3")
@pytest.mark.parametrize("dup", [False, True])
def test_after_puback_the_identifier_means_a_new_message(connect, topic, version, dup):
    """Even with DUP; which then is not passed on."""
    client = connect(version)
    client.subscribe(topic, qos=1)
    for payload in (b"first", b"second"):
        client.send(wire.publish(topic, payload, 1, 5, dup=dup and payload == b"second", version=version))
        client.wait_for(wire.PUBACK, 5)
        assert not client.receive(payload).dup


@normative("5:MQTT-3.3.4-1", "311:MQTT-3.3.4-1")
def test_acknowledgements_come_for_every_publish_of_a_burst(connect, topic, version):
    client = connect(version)
    client.send(*(wire.publish(topic, b"x", 1, number, version=version) for number in range(1, 501)))
    assert sorted(client.expect(wire.PUBACK).packet_id for _ in range(500)) == list(range(1, 501))


def test_no_matching_subscribers_may_be_told(connect, topic):
    assert connect(V5).publish(topic, b"x", qos=1).reason in (0x00, 0x10)


# ------------------------------------------------------------------------------------- QoS 2, to the broker


@normative("5:MQTT-3.3.4-1", "5:MQTT-4.3.3-8", "5:MQTT-4.3.3-11", "5:MQTT-2.2.1-5", "5:MQTT-3.5.2-1", "5:MQTT-3.7.2-1",
           "311:MQTT-3.3.4-1", "311:MQTT-4.3.3-2", "311:MQTT-2.3.1-6")
def test_qos_2_is_answered_with_pubrec_and_pubcomp(connect, topic, version):
    watcher = connect(version)
    watcher.subscribe(topic, qos=2)
    client = connect(version)
    client.send(wire.publish(topic, b"x", 2, 17, version=version))
    assert client.expect(wire.PUBREC, packet_id=17).reason in (0x00, 0x10)
    client.send(wire.acknowledge(wire.PUBREL, 17)).expect(wire.PUBCOMP, packet_id=17, reason=0)
    watcher.receive(b"x")
    watcher.expect_nothing()


@normative("5:MQTT-4.3.3-10", "311:MQTT-4.3.3-2")
def test_a_repeated_qos_2_publish_is_delivered_once(connect, topic, version):
    watcher = connect(version)
    watcher.subscribe(topic, qos=0)
    client = connect(version)
    for attempt in range(3):
        client.send(wire.publish(topic, b"once", 2, 17, dup=attempt > 0, version=version))
        assert client.expect(wire.PUBREC, packet_id=17).reason in (0x00, 0x10)
    client.send(wire.acknowledge(wire.PUBREL, 17)).expect(wire.PUBCOMP, packet_id=17)
    watcher.receive(b"once")
    watcher.expect_nothing()


@normative("5:MQTT-4.3.3-12", "311:MQTT-4.3.3-2")
def test_after_pubcomp_the_identifier_means_a_new_message(connect, topic, version):
    client = connect(version)
    client.subscribe(topic, qos=0)
    for payload in (b"first", b"second"):
        client.send(wire.publish(topic, payload, 2, 5, version=version))
        client.wait_for(wire.PUBREC, 5)
        client.send(wire.acknowledge(wire.PUBREL, 5))
        client.wait_for(wire.PUBCOMP, 5)
        client.receive(payload)
    client.expect_nothing()


@normative("5:MQTT-4.3.3-11", "5:MQTT-3.7.2-1")
def test_a_pubrel_of_nothing_is_answered_too(connect, version):
    """As after a lost PUBCOMP; MQTT 5 can say that the identifier is unknown."""
    client = connect(version)
    client.send(wire.acknowledge(wire.PUBREL, 99))
    assert client.expect(wire.PUBCOMP, packet_id=99).reason in ((0x00, 0x92) if version == V5 else (0,))
    client.ping()


@normative("5:MQTT-4.3.3-13")
def test_the_qos_2_flow_goes_on_although_the_message_expired(connect, topic):
    client = connect(V5)
    client.send(wire.publish(topic, b"x", 2, 3, properties={"message_expiry_interval": 1})).expect(wire.PUBREC, packet_id=3)
    client.expect_nothing(1.5)
    client.send(wire.acknowledge(wire.PUBREL, 3)).expect(wire.PUBCOMP, packet_id=3, reason=0)


def test_qos_2_flows_interleave(connect, topic, version):
    client = connect(version)
    client.subscribe(topic, qos=0)
    client.send(*(wire.publish(topic, b"%d" % number, 2, number, version=version) for number in (1, 2, 3)))
    for number in (1, 2, 3):
        client.wait_for(wire.PUBREC, number)
    client.send(*(wire.acknowledge(wire.PUBREL, number) for number in (3, 1, 2)))
    for number in (3, 1, 2):
        client.wait_for(wire.PUBCOMP, number)
    assert sorted(client.receive().payload for _ in range(3)) == [b"1", b"2", b"3"]


# ------------------------------------------------------------------------------------- from the broker


@normative("5:MQTT-4.3.2-1", "5:MQTT-4.3.2-2", "5:MQTT-4.3.3-1", "5:MQTT-4.3.3-2", "5:MQTT-2.2.1-4", "311:MQTT-4.3.2-1",
           "311:MQTT-4.3.3-1", "311:MQTT-2.3.1-1", "311:MQTT-2.3.1-4")
@pytest.mark.parametrize("level", [1, 2])
def test_deliveries_have_identifiers_of_their_own(connect, topic, version, level):
    """Non-zero (every parsed packet is checked for it), none twice while in flight, DUP 0."""
    client, publisher = connect(version), connect(version)
    client.subscribe(topic, qos=level)
    for number in range(20):
        publisher.publish(topic, b"%d" % number, level)
    found = [client.expect(wire.PUBLISH, qos=level, dup=False) for _ in range(20)]
    assert len({one.packet_id for one in found}) == 20
    client.complete(found.pop(7))
    publisher.publish(topic, b"more", level)
    assert client.expect(wire.PUBLISH, payload=b"more").packet_id not in {one.packet_id for one in found}


@normative("5:MQTT-4.3.3-4", "5:MQTT-2.2.1-5", "5:MQTT-3.6.2-1", "5:MQTT-4.3.3-6", "311:MQTT-4.3.3-1", "311:MQTT-2.3.1-6")
def test_pubrec_is_answered_with_pubrel(connect, topic, version):
    client = connect(version)
    client.subscribe(topic, qos=2)
    connect(version).publish(topic, b"x", qos=2)
    found = client.expect(wire.PUBLISH, qos=2)
    client.send(wire.acknowledge(wire.PUBREC, found.packet_id))
    client.expect(wire.PUBREL, packet_id=found.packet_id, reason=0)
    client.expect_nothing()
    client.send(wire.acknowledge(wire.PUBCOMP, found.packet_id))
    client.expect_nothing()
    client.ping()


@normative("311:MQTT-4.6.0-4")
def test_pubrel_comes_in_the_order_of_pubrec(connect, topic, version):
    client, publisher = connect(version), connect(version)
    client.subscribe(topic, qos=2)
    for number in range(5):
        publisher.publish(topic, b"%d" % number, 2)
    identifiers = [client.expect(wire.PUBLISH).packet_id for _ in range(5)]
    client.send(*(wire.acknowledge(wire.PUBREC, one) for one in identifiers))
    assert [client.expect(wire.PUBREL).packet_id for _ in range(5)] == identifiers


@normative("5:MQTT-4.3.3-4", "5:MQTT-3.6.2-1")
def test_a_pubrec_of_failure_gets_no_pubrel(connect, topic):
    """And its identifier is free again."""
    client, publisher = connect(V5), connect(V5)
    client.subscribe(topic, qos=2)
    publisher.publish(topic, b"unwanted", qos=2)
    found = client.expect(wire.PUBLISH)
    client.send(wire.acknowledge(wire.PUBREC, found.packet_id, 0x83))
    client.expect_nothing()
    publisher.publish(topic, b"next", qos=2)
    client.receive(b"next")


def test_a_pubrec_of_nothing_does_no_harm(connect, version):
    """MQTT 5: PUBREL, which can say that the identifier is unknown. Before that: PUBREL, or the end of the connection."""
    client = connect(version)
    client.send(wire.acknowledge(wire.PUBREC, 1234))
    try:
        found = client.expect(wire.PUBREL, packet_id=1234)
        assert found.reason in ((0x00, 0x92) if version == V5 else (0,))
    except (wire.Closed, TimeoutError):
        assert version != V5
    connect(version).ping()


@pytest.mark.parametrize("kind", [wire.PUBACK, wire.PUBCOMP])
def test_an_acknowledgement_of_nothing_does_no_harm(connect, topic, version, kind):
    """Whether the broker ignores it or ends that connection, it frees no identifier and stops no other client."""
    client = connect(version)
    client.send(wire.acknowledge(kind, 1234))
    other = connect(version)
    other.subscribe(topic, qos=1)
    other.publish(topic, b"x", qos=1)
    other.receive(b"x")


@normative("5:MQTT-3.3.1-3", "311:MQTT-3.3.1-3")
def test_dup_is_not_passed_on(connect, topic, version):
    client = connect(version)
    client.subscribe(topic, qos=2)
    publisher = connect(version)
    publisher.send(wire.publish(topic, b"again", 1, 3, dup=True, version=version)).expect(wire.PUBACK)
    assert not client.receive(b"again").dup


@normative("5:MQTT-3.8.4-8", "311:MQTT-3.8.4-6")
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_lower_of_published_and_granted_qos_counts(connect, topic, version, qos, granted):
    client = connect(version)
    client.subscribe(topic, qos=granted)
    connect(version).publish(topic, b"x", qos)
    assert client.receive(b"x").qos == min(qos, granted)
    client.expect_nothing(0.1)


@normative("5:MQTT-4.6.0-5", "5:MQTT-4.6.0-6", "311:MQTT-4.6.0-5", "311:MQTT-4.6.0-6")
def test_each_publishers_order_is_kept(connect, topic, version, qos):
    """Two publishers at once, three hundred messages each, in bursts, to a subscriber with a wildcard."""
    client = connect(version)
    client.subscribe(topic + "/+", qos=qos)
    publishers = {name: connect(version) for name in (b"a", b"b")}
    for start in range(0, 300, 20):
        for name, publisher in publishers.items():
            numbers = range(start, start + 20)
            publisher.send(*(wire.publish(topic + "/x", b"%s%d" % (name, number), qos, number + 1 if qos else None,
                                          version=version) for number in numbers))
        for publisher in publishers.values():
            if qos:
                identifiers = [publisher.expect(wire.PUBACK if qos == 1 else wire.PUBREC).packet_id for _ in range(20)]
                if qos == 2:
                    publisher.send(*(wire.acknowledge(wire.PUBREL, one) for one in identifiers))
                    for _ in range(20):
                        publisher.expect(wire.PUBCOMP)
    found = [client.receive().payload for _ in range(600)]
    for name in publishers:
        assert [one for one in found if one.startswith(name)] == [b"%s%d" % (name, number) for number in range(300)]


@normative("5:MQTT-3.3.2-3", "311:MQTT-3.3.2-3")
def test_deliveries_name_the_topic_not_the_filter(connect, topic, version):
    client = connect(version)
    client.subscribe(topic + "/#")
    client.publish(topic + "/a/b", b"x")
    assert client.receive(b"x").topic == topic + "/a/b"


# ---------------------------------------------------------------------------------------- properties


@normative("5:MQTT-3.3.2-4", "5:MQTT-3.3.2-15", "5:MQTT-3.3.2-16", "5:MQTT-3.3.2-17", "5:MQTT-3.3.2-18", "5:MQTT-3.3.2-20")
def test_properties_are_forwarded_unaltered(connect, topic, qos):
    properties = {
        "payload_format_indicator": 1,
        "content_type": "text/plain; charset=utf-8",
        "response_topic": "answers/to/ü",
        "correlation_data": bytes(range(256)),
        "user_property": [("key", "1"), ("", ""), ("another", "2"), ("key", "1"), ("key", "0"), ("ключ", "значение")],
    }
    client = connect(V5)
    client.subscribe(topic, qos=qos)
    connect(V5).publish(topic, "wört".encode(), qos, properties=properties)
    assert client.receive("wört".encode()).properties == properties


@normative("5:MQTT-3.3.2-18")
def test_many_user_properties_keep_their_order(connect, topic):
    given = [(f"k{number % 7}", str(number)) for number in range(500)]
    client = connect(V5)
    client.subscribe(topic)
    client.publish(topic, b"x", properties={"user_property": given})
    assert client.receive(b"x").properties["user_property"] == given


@normative("5:MQTT-3.3.2-16")
def test_empty_properties_are_not_absent_ones(connect, topic):
    properties = {"correlation_data": b"", "content_type": "", "payload_format_indicator": 0}
    client = connect(V5)
    client.subscribe(topic)
    client.publish(topic, b"x", properties=properties)
    found = client.receive(b"x").properties
    assert found.get("payload_format_indicator", 0) == 0
    assert found["correlation_data"] == b"" and found["content_type"] == ""


def test_properties_do_not_reach_older_versions(connect, topic):
    """A version 3.1.1 subscriber gets the payload alone, and what it publishes has no properties for others."""
    old, new = connect(wire.V311), connect(V5)
    for client in (old, new):
        client.subscribe(topic)
    new.publish(topic, b"from 5", properties={"content_type": "x", "user_property": ("a", "b")})
    old.publish(topic, b"from 3")
    assert {old.receive().payload, old.receive().payload} == {b"from 5", b"from 3"}
    found = {one.payload: one.properties for one in (new.receive(), new.receive())}
    assert found[b"from 3"] == {}


@normative("5:MQTT-3.3.2-6")
def test_message_expiry_is_forwarded(connect, topic):
    client = connect(V5)
    client.subscribe(topic)
    client.publish(topic, b"x", properties={"message_expiry_interval": 100})
    assert client.receive(b"x").properties["message_expiry_interval"] in range(90, 101)


@normative("5:MQTT-3.3.4-1")
def test_request_and_response(connect, topic, unique):
    """§4.10: the answer goes to the response topic, with the correlation data of the request."""
    requester, responder = connect(V5), connect(V5)
    answers = "answers/" + unique("r")
    requester.subscribe(answers, qos=1)
    responder.subscribe(topic, qos=1)
    requester.publish(topic, b"2+2", qos=1, properties={"response_topic": answers, "correlation_data": b"q1"})
    request = responder.receive(b"2+2")
    responder.publish(request.properties["response_topic"], b"4", qos=1,
                      properties={"correlation_data": request.properties["correlation_data"]})
    assert requester.receive(b"4").properties["correlation_data"] == b"q1"


@normative("5:MQTT-3.1.2-29")
def test_problem_information_can_be_declined(connect, topic):
    """No reason string or user property on an acknowledgement, also where there is a problem to tell of."""
    client = connect(V5, properties={"request_problem_information": 0})
    answers = [
        client.subscribe(topic, topic + "/+"),
        client.publish(topic + "/none", b"x", qos=1),
        client.publish(topic + "/none", b"x", qos=2),
        client.unsubscribe(topic, "never/subscribed"),
    ]
    client.send(wire.acknowledge(wire.PUBREL, 4711))
    answers.append(client.wait_for(wire.PUBCOMP, 4711))
    client.send(wire.acknowledge(wire.PUBREC, 4712))
    while (found := client.recv()).kind != wire.PUBREL:
        client.complete(found)
    answers.append(found)
    for answer in answers:
        assert not answer.properties.keys() & {"reason_string", "user_property"}, answer
