"""Packets that break the format: that connection ends, with the right reason code, and nothing else does (5: §4.13)."""

import os
import random

import pytest

import wire
from wire import V5, V31, V311

normative = pytest.mark.normative

MALFORMED, PROTOCOL_ERROR, TOO_LARGE = 0x81, 0x82, 0x95
SURROGATE, OVERLONG, NUL = b"\xed\xa0\x80", b"\xc0\xaf", b"a\0b"


def subscribe_payload(version: int, payload: bytes) -> bytes:
    """SUBSCRIBE with packet identifier 1 and the payload as it is."""
    return wire.packet(wire.SUBSCRIBE, 2, wire.u16(1) + (b"\0" if version == V5 else b"") + payload)


def unsubscribe_payload(version: int, payload: bytes) -> bytes:
    return wire.packet(wire.UNSUBSCRIBE, 2, wire.u16(1) + (b"\0" if version == V5 else b"") + payload)


# Name, statements, what is sent (a function of the version), and the reason codes MQTT 5 has for it.
IN_BOTH = [
    # fixed header
    ("type-0", normative("5:MQTT-4.13.1-1", "311:MQTT-4.8.0-1"), lambda v: b"\x00\x00", (MALFORMED, PROTOCOL_ERROR)),
    ("connack", normative("5:MQTT-4.13.1-1"), lambda v: b"\x20\x02\x00\x00", (MALFORMED, PROTOCOL_ERROR)),
    ("suback", normative("5:MQTT-4.13.1-1"), lambda v: b"\x90\x03\x00\x01\x00", (MALFORMED, PROTOCOL_ERROR)),
    ("unsuback", normative("5:MQTT-4.13.1-1"), lambda v: b"\xb0\x02\x00\x01", (MALFORMED, PROTOCOL_ERROR)),
    ("pingresp", normative("5:MQTT-4.13.1-1"), lambda v: b"\xd0\x00", (MALFORMED, PROTOCOL_ERROR)),
    ("length-of-five-bytes", normative("5:MQTT-1.5.5-1"), lambda v: b"\x30\xff\xff\xff\xff\x01", (MALFORMED,)),
    ("length-beyond-the-limit", normative("5:MQTT-4.13.1-1"), lambda v: b"\x30\xff\xff\xff\x7f", (TOO_LARGE,)),
    ("puback-flags", normative("5:MQTT-2.1.3-1", "311:MQTT-2.2.2-1", "311:MQTT-2.2.2-2"),
     lambda v: wire.acknowledge(wire.PUBACK, 1, flags=1), (MALFORMED,)),
    ("pubrec-flags", normative("5:MQTT-2.1.3-1", "311:MQTT-2.2.2-1", "311:MQTT-2.2.2-2"),
     lambda v: wire.acknowledge(wire.PUBREC, 1, flags=2), (MALFORMED,)),
    ("pubrel-flags", normative("5:MQTT-3.6.1-1", "311:MQTT-3.6.1-1"),
     lambda v: wire.acknowledge(wire.PUBREL, 1, flags=0), (MALFORMED,)),
    ("pubcomp-flags", normative("5:MQTT-2.1.3-1", "311:MQTT-2.2.2-1", "311:MQTT-2.2.2-2"),
     lambda v: wire.acknowledge(wire.PUBCOMP, 1, flags=8), (MALFORMED,)),
    ("subscribe-flags", normative("5:MQTT-3.8.1-1", "311:MQTT-3.8.1-1"),
     lambda v: wire.subscribe(1, ("a", 0), version=v, flags=0), (MALFORMED,)),
    ("unsubscribe-flags", normative("5:MQTT-3.10.1-1", "311:MQTT-3.10.1-1"),
     lambda v: wire.unsubscribe(1, "a", version=v, flags=3), (MALFORMED,)),
    ("pingreq-flags", normative("5:MQTT-2.1.3-1", "311:MQTT-2.2.2-1", "311:MQTT-2.2.2-2"),
     lambda v: wire.pingreq(flags=4), (MALFORMED,)),
    ("disconnect-flags", normative("5:MQTT-3.14.1-1", "311:MQTT-3.14.1-1"), lambda v: wire.disconnect(flags=1), (MALFORMED,)),
    # lengths
    ("pingreq-with-body", normative("5:MQTT-4.13.1-1"), lambda v: b"\xc0\x01\x00", (MALFORMED,)),
    ("puback-without-identifier", normative("5:MQTT-4.13.1-1"), lambda v: b"\x40\x00", (MALFORMED,)),
    ("puback-cut-off", normative("5:MQTT-4.13.1-1"), lambda v: b"\x40\x01\x00", (MALFORMED,)),
    ("publish-empty", normative("5:MQTT-3.3.2-1", "311:MQTT-3.3.2-1"), lambda v: b"\x30\x00", (MALFORMED,)),
    ("publish-topic-cut-off", normative("5:MQTT-3.3.2-1", "311:MQTT-3.3.2-1"), lambda v: b"\x30\x04\x00\x05ab", (MALFORMED,)),
    ("publish-without-identifier", normative("5:MQTT-4.13.1-1"), lambda v: b"\x32\x03\x00\x01a", (MALFORMED,)),
    ("subscribe-without-identifier", normative("5:MQTT-4.13.1-1"), lambda v: b"\x82\x00", (MALFORMED,)),
    ("subscribe-without-options", normative("5:MQTT-4.13.1-1"),
     lambda v: subscribe_payload(v, wire.text("a")), (MALFORMED,)),
    ("subscribe-filter-cut-off", normative("5:MQTT-4.13.1-1"), lambda v: subscribe_payload(v, b"\x00\x09a"), (MALFORMED,)),
    ("unsubscribe-filter-cut-off", normative("5:MQTT-4.13.1-1"),
     lambda v: unsubscribe_payload(v, b"\x00\x09a"), (MALFORMED,)),
    # content
    ("publish-qos-3", normative("5:MQTT-3.3.1-4", "311:MQTT-3.3.1-4"),
     lambda v: wire.publish("a", b"", 3, 1, version=v), (MALFORMED,)),
    ("publish-identifier-0", normative("311:MQTT-2.3.1-1"),
     lambda v: wire.publish("a", b"", 1, 0, version=v), (MALFORMED, PROTOCOL_ERROR)),
    ("subscribe-identifier-0", normative("311:MQTT-2.3.1-1"),
     lambda v: wire.subscribe(0, ("a", 0), version=v), (MALFORMED, PROTOCOL_ERROR)),
    ("unsubscribe-identifier-0", normative("311:MQTT-2.3.1-1"),
     lambda v: wire.unsubscribe(0, "a", version=v), (MALFORMED, PROTOCOL_ERROR)),
    ("publish-empty-topic", normative("5:MQTT-4.7.3-1", "311:MQTT-4.7.3-1"),
     lambda v: wire.publish("", b"x", version=v), (MALFORMED, PROTOCOL_ERROR, 0x90)),
    ("publish-topic-surrogate", normative("5:MQTT-1.5.4-1", "5:MQTT-3.3.2-1", "311:MQTT-1.5.3-1", "311:MQTT-3.3.2-1"),
     lambda v: wire.publish(SURROGATE, b"x", version=v), (MALFORMED, 0x90)),
    ("publish-topic-overlong", normative("5:MQTT-1.5.4-1", "311:MQTT-1.5.3-1"),
     lambda v: wire.publish(OVERLONG, b"x", version=v), (MALFORMED, 0x90)),
    ("publish-topic-beyond-unicode", normative("5:MQTT-1.5.4-1", "311:MQTT-1.5.3-1"),
     lambda v: wire.publish(b"\xf4\x90\x80\x80", b"x", version=v), (MALFORMED, 0x90)),
    ("publish-topic-nul", normative("5:MQTT-1.5.4-2", "5:MQTT-4.7.3-2", "311:MQTT-1.5.3-2", "311:MQTT-4.7.3-2"),
     lambda v: wire.publish(NUL, b"x", version=v), (MALFORMED, 0x90)),
    ("subscribe-nothing", normative("5:MQTT-3.8.3-2", "311:MQTT-3.8.3-3"),
     lambda v: wire.subscribe(1, version=v), (MALFORMED, PROTOCOL_ERROR)),
    ("subscribe-qos-3", normative("311:MQTT-3.8.3-4"),
     lambda v: wire.subscribe(1, ("a", 3), version=v), (MALFORMED, PROTOCOL_ERROR)),
    ("subscribe-reserved-bits", normative("5:MQTT-3.8.3-5", "311:MQTT-3.8.3-4"),
     lambda v: wire.subscribe(1, ("a", 0xC0), version=v), (MALFORMED,)),
    ("subscribe-surrogate", normative("5:MQTT-3.8.3-1", "311:MQTT-3.8.3-1", "311:MQTT-1.5.3-1"),
     lambda v: wire.subscribe(1, (SURROGATE, 0), version=v), (MALFORMED, 0x8F)),
    ("subscribe-nul", normative("5:MQTT-3.8.3-1", "5:MQTT-4.7.3-2", "311:MQTT-3.8.3-1", "311:MQTT-1.5.3-2", "311:MQTT-4.7.3-2"),
     lambda v: wire.subscribe(1, (NUL, 0), version=v), (MALFORMED, 0x8F)),
    ("unsubscribe-nothing", normative("5:MQTT-3.10.3-2", "311:MQTT-3.10.3-2"),
     lambda v: wire.unsubscribe(1, version=v), (MALFORMED, PROTOCOL_ERROR)),
    ("unsubscribe-ill-formed", normative("5:MQTT-3.10.3-1", "311:MQTT-3.10.3-1"),
     lambda v: wire.unsubscribe(1, b"\xff", version=v), (MALFORMED, 0x8F)),
]


def property_rows():
    """Properties in the wrong packet, of the wrong value, twice, cut off."""
    def publish(properties, **fields):
        return wire.publish("a", b"x", properties=properties, **fields)

    def subscribe(properties):
        return wire.subscribe(1, ("a", 0), properties=properties)

    both = (MALFORMED, PROTOCOL_ERROR)
    return [
        ("publish-unknown-property", (), publish(b"\x7f\x01"), both),
        ("publish-property-not-minimal", normative("5:MQTT-1.5.5-1"), publish(b"\x81\x00\x01"), both),
        ("publish-property-of-connect", (), publish({"receive_maximum": 1}), both),
        ("publish-payload-format-2", (), publish({"payload_format_indicator": 2}), both),
        ("publish-payload-format-twice", (), publish({"payload_format_indicator": [0, 0]}), both),
        ("publish-expiry-twice", (), publish({"message_expiry_interval": [1, 1]}), both),
        ("publish-content-type-twice", (), publish({"content_type": ["a", "b"]}), both),
        ("publish-content-type-ill-formed", normative("5:MQTT-3.3.2-19"), publish({"content_type": b"\xff"}), both),
        ("publish-response-topic-twice", (), publish({"response_topic": ["a", "b"]}), both),
        ("publish-response-topic-ill-formed", normative("5:MQTT-3.3.2-13"), publish({"response_topic": SURROGATE}), both),
        ("publish-response-topic-wildcard", normative("5:MQTT-3.3.2-14"), publish({"response_topic": "a/+"}), (*both, 0x90)),
        ("publish-response-topic-empty", (), publish({"response_topic": ""}), (*both, 0x90)),
        ("publish-user-property-key-ill-formed", normative("5:MQTT-1.5.7-1"), publish({"user_property": (b"\xff", "v")}), both),
        ("publish-user-property-value-nul", normative("5:MQTT-1.5.7-1"), publish({"user_property": ("k", NUL)}), both),
        ("publish-user-property-cut-off", (), publish(b"\x26\x00\x01k\x00\x05v"), both),
        ("publish-subscription-identifier", (), publish({"subscription_identifier": 1}), both),
        ("publish-alias-cut-off", (), publish(b"\x23\x00"), both),
        ("publish-properties-beyond-packet", (), b"\x30\x05\x00\x01a\x09\x01", both),
        ("publish-length-of-properties-missing", (), b"\x30\x03\x00\x01a", both),
        ("publish-length-of-properties-not-minimal", normative("5:MQTT-1.5.5-1"), b"\x30\x05\x00\x01a\x80\x00", both),
        ("length-not-minimal", normative("5:MQTT-1.5.5-1"), b"\xc0\x80\x00", both),
        ("subscribe-retain-handling-3", (), wire.subscribe(1, ("a", 0x30)), both),
        ("subscribe-identifier-not-minimal", normative("5:MQTT-1.5.5-1"), subscribe(b"\x0b\x81\x00"), both),
        ("subscribe-property-of-publish", (), subscribe({"content_type": "x"}), both),
        ("puback-undefined-reason", normative("5:MQTT-3.4.2-1"), wire.acknowledge(wire.PUBACK, 1, 0x01), both),
        ("pubrec-undefined-reason", normative("5:MQTT-3.5.2-1"), wire.acknowledge(wire.PUBREC, 1, 0x92), both),
        ("pubrel-undefined-reason", normative("5:MQTT-3.6.2-1"), wire.acknowledge(wire.PUBREL, 1, 0x10), both),
        ("pubcomp-undefined-reason", normative("5:MQTT-3.7.2-1"), wire.acknowledge(wire.PUBCOMP, 1, 0x80), both),
        ("puback-reason-string-ill-formed", (), wire.acknowledge(wire.PUBACK, 1, 0, {"reason_string": b"\xff"}), both),
        ("puback-property-of-publish", (), wire.acknowledge(wire.PUBACK, 1, 0, {"topic_alias": 1}), both),
        ("disconnect-undefined-reason", normative("5:MQTT-3.14.2-1"), wire.disconnect(0x03), both),
        ("disconnect-trailing-bytes", (), b"\xe0\x03\x00\x00\x00", both),
        ("disconnect-property-of-publish", (), wire.disconnect(0, {"topic_alias": 1}), both),
        ("auth-flags", normative("5:MQTT-3.15.1-1"), wire.auth(0x19, {"authentication_method": "x"}, flags=1), both),
    ]


def rows():
    for name, marks, build, reasons in IN_BOTH:
        for version, label in ((V311, "v3.1.1"), (V5, "v5")):
            yield pytest.param(version, build(version), reasons, id=f"{label}-{name}", marks=marks)
    for name, marks, packet, reasons in property_rows():
        yield pytest.param(V5, packet, reasons, id=f"v5-{name}", marks=marks)


@normative("5:MQTT-4.13.1-1", "5:MQTT-4.13.2-1", "5:MQTT-3.14.2-1", "5:MQTT-3.14.2-2", "5:MQTT-3.14.4-1", "5:MQTT-3.14.4-2",
           "311:MQTT-4.8.0-1")
@pytest.mark.parametrize("version, packet, reasons", list(rows()))
def test_a_malformed_packet_ends_its_connection_and_no_other(connect, topic, version, packet, reasons):
    """DISCONNECT with the reason, then nothing but the end; what stands behind the packet is not processed."""
    other = connect(version)
    other.subscribe(topic)
    connect(version).send(packet, wire.publish(topic, b"smuggled", version=version)).expect_refused(*reasons)
    other.publish(topic, b"alive")
    other.receive(b"alive")


@pytest.mark.parametrize("packet", [
    pytest.param(b"\xf0\x00", id="type-15"),
    pytest.param(wire.acknowledge(wire.PUBACK, 1, 0), id="puback-with-reason"),
    pytest.param(b"\xe0\x01\x00", id="disconnect-with-reason"),
    pytest.param(wire.subscribe(1, ("a", 4), version=V311), id="no-local"),
])
@normative("311:MQTT-4.8.0-1", "311:MQTT-3.8.3-4")
def test_what_only_mqtt_5_knows_is_malformed_before_it(connect, packet):
    connect(V311).send(packet).expect_refused()


def test_mqtt_31_may_repeat_with_dup(connect, topic):
    """In MQTT 3.1 PUBREL, SUBSCRIBE and UNSUBSCRIBE have a DUP flag."""
    client = connect(V31)
    client.send(wire.subscribe(1, (topic, 2), version=V31, flags=0x0A)).expect(wire.SUBACK, packet_id=1)
    client.send(wire.publish(topic, b"x", 2, 2, version=V31))
    client.wait_for(wire.PUBREC, 2)
    client.send(wire.acknowledge(wire.PUBREL, 2, flags=0x0A))
    client.wait_for(wire.PUBCOMP, 2)
    client.receive(b"x")
    client.send(wire.unsubscribe(3, topic, version=V31, flags=0x0A)).expect(wire.UNSUBACK, packet_id=3)


# ------------------------------------------------------------------------------------------------- floods


def test_a_declared_length_allocates_nothing(broker, connect, dial):
    """Two hundred connections announce 256 MiB each and send none of it."""
    if not hasattr(broker, "_process"):
        pytest.skip("needs the process of our broker")

    pid = broker._process.pid

    def resident() -> int:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    clients = [dial().send(b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05\x02") for _ in range(100)]
    clients += [connect(V5).send(b"\x30\x80\x80\x40\x00\x05") for _ in range(100)]
    connect(V5).ping()
    assert resident() - before < 64 << 20
    for client in clients:
        client.drop()


def test_random_bytes_do_no_harm(connect, dial, topic):
    """As a first packet and after CONNECT; the seed is fixed so that a failure comes again."""
    chance = random.Random(1883)
    for _ in range(150):
        noise = chance.randbytes(chance.randrange(1, 200))
        dial().send(noise).drop()
        connect(V5).send(noise).drop()
    client = connect(V5)
    client.subscribe(topic)
    client.publish(topic, b"alive")
    client.receive(b"alive")


def test_damaged_packets_do_no_harm(connect, dial, topic):
    """Sound packets, each with one byte changed or cut off somewhere."""
    chance = random.Random(5)
    sound = [
        wire.connect("c", will=wire.Will(topic), username="u", password=b"p", properties={"receive_maximum": 5}),
        wire.connect("c", version=V311, will=wire.Will(topic), username="u", password=b"p"),
        wire.publish(topic, b"payload", 1, 1, properties={"user_property": ("a", "b"), "content_type": "x"}),
        wire.subscribe(1, (topic, 1), ("$share/g/" + topic, 0), properties={"subscription_identifier": 5}),
        wire.unsubscribe(1, topic),
        wire.acknowledge(wire.PUBREC, 1, 0, {"reason_string": "because"}),
        wire.disconnect(4, {"session_expiry_interval": 0}),
    ]
    for _ in range(300):
        packet = bytearray(chance.choice(sound))
        if chance.random() < 0.3:
            del packet[chance.randrange(1, len(packet)):]
        else:
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        client = dial()
        if packet[0] != 0x10:
            client.connect()
        client.send(bytes(packet)).drop()
    connect(V5).ping()


def test_packets_may_arrive_in_pieces(connect, topic, version):
    client = connect(version)
    client.subscribe(topic)
    stream = b"".join(wire.publish(topic, b"%d" % number, version=version) for number in range(20))
    for at in range(0, len(stream), 7):
        client.send(stream[at:at + 7])
    assert [client.receive().payload for _ in range(20)] == [b"%d" % number for number in range(20)]
