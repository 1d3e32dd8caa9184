"""CONNECT and CONNACK: who gets in, and what the answer says (5: §3.1, §3.2; 3.1.1: §3.1, §3.2)."""

import pytest

import wire
from wire import V5, V31, V311

normative = pytest.mark.normative

LETTERS_AND_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@normative("5:MQTT-3.1.4-5", "5:MQTT-3.2.2-1", "5:MQTT-4.2.0-1", "311:MQTT-3.1.4-4", "311:MQTT-7.1.1-1", "311:MQTT-7.0.0-2")
def test_a_plain_connect_is_accepted(connect, topic, version):
    """Over TCP, with nothing but what the standard asks for."""
    client = connect(version)
    client.subscribe(topic)
    client.publish(topic, b"hello")
    client.receive(b"hello")


@normative("5:MQTT-3.1.0-1", "5:MQTT-3.14.0-1", "311:MQTT-3.1.0-1")
@pytest.mark.parametrize("first", [
    wire.publish("a", b"x"),
    wire.publish("a", b"x", version=V311),
    wire.subscribe(1, ("a", 0)),
    wire.subscribe(1, ("a", 0), version=V311),
    wire.unsubscribe(1, "a"),
    wire.pingreq(),
    wire.acknowledge(wire.PUBACK, 1),
    wire.acknowledge(wire.PUBREL, 1),
    wire.disconnect(),
    wire.auth(0x18, {"authentication_method": "x"}),
    wire.packet(wire.CONNACK, 0, b"\0\0"),
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
], ids=["publish", "publish-v3", "subscribe", "subscribe-v3", "unsubscribe", "pingreq", "puback", "pubrel", "disconnect",
        "auth", "connack", "http"])
def test_the_first_packet_is_connect(dial, first):
    """Anything else ends the connection, and no DISCONNECT is sent before a CONNACK."""
    dial().send(first).expect_closed()


@normative("5:MQTT-3.1.0-2", "5:MQTT-3.2.0-2", "311:MQTT-3.1.0-2", "311:MQTT-4.8.0-1")
def test_a_second_connect_ends_the_connection(connect, version):
    client = connect(version)
    client.send(wire.connect(client.client_id, version=version)).expect_refused(0x82)


@normative("5:MQTT-3.1.2-1", "311:MQTT-3.1.2-1")
@pytest.mark.parametrize("name", ["MQTTX", "mqtt", "MQIsd", "AMQP", ""])
@pytest.mark.parametrize("level", [V311, V5])
def test_a_wrong_protocol_name_is_not_mqtt(dial, name, level):
    client = dial(level)
    client.send(wire.connect("c", version=level, name=name))
    try:
        connack = client.expect(wire.CONNACK)
    except wire.Closed:
        return
    assert connack.reason == (0x84 if level == V5 else 0x01)
    client.expect_closed()


@normative("5:MQTT-3.1.2-2", "311:MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [0, 1, 2, 6, 255])
def test_an_unsupported_level_is_refused(dial, level):
    """3.1.1 demands return code 0x01, 5 allows reason code 0x84: either form answers a level that is neither."""
    stream = dial(V311).send(wire.connect("c", version=V311, level=level)).stream
    answer = b""
    while data := stream.recv(64):
        answer += data
    assert answer in (b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00")


@normative("5:MQTT-3.1.2-3", "311:MQTT-3.1.2-3")
def test_the_reserved_connect_flag_is_zero(dial, oasis):
    dial_and_break(dial, oasis, wire.connect("c", version=oasis, flags=0x03))


def dial_and_break(dial, version: int, connect: bytes) -> None:
    """A CONNECT that breaks the format: CONNACK 0x81 or 0x82 in MQTT 5, before that the end without a CONNACK."""
    dial(version).send(connect).expect_not_accepted(*((0x81, 0x82) if version == V5 else ()))


def broken_connects():
    """Name, statements and a function from version to a CONNECT that version calls malformed."""
    will = wire.Will("w")
    surrogate, overlong, nul = b"\xed\xa0\x80", b"\xc0\xaf", b"a\0b"

    def flags(value, **fields):
        return lambda version: wire.connect("c", version=version, flags=value, **fields)

    def payload(flags_, *fields):
        """A CONNECT whose payload is exactly `fields`."""
        def build(version):
            header = wire.text("MQTT") + bytes([version, flags_]) + wire.u16(0) + (b"\0" if version == V5 else b"")
            return wire.packet(wire.CONNECT, 0, header + b"".join(fields))
        return build

    return [
        ("will-qos-without-will", normative("5:MQTT-3.1.2-11", "311:MQTT-3.1.2-11", "311:MQTT-3.1.2-13"), flags(0x0A)),
        ("will-qos-2-without-will", normative("5:MQTT-3.1.2-11", "311:MQTT-3.1.2-13"), flags(0x12)),
        ("will-retain-without-will", normative("5:MQTT-3.1.2-13", "311:MQTT-3.1.2-15", "311:MQTT-3.1.2-11"), flags(0x22)),
        ("will-qos-3", normative("5:MQTT-3.1.2-12", "311:MQTT-3.1.2-14"), flags(0x1E, will=will)),
        ("will-flag-without-will", normative("5:MQTT-3.1.2-9", "311:MQTT-3.1.2-9"), flags(0x06)),
        ("will-without-payload", normative("5:MQTT-3.1.2-9", "311:MQTT-3.1.2-9"),
         lambda version: payload(0x06, wire.text("c"), b"\0" if version == V5 else b"", wire.text("w"))(version)),
        ("will-without-flag", normative("311:MQTT-3.1.2-11"), flags(0x02, will=will)),
        ("user-name-without-flag", normative("5:MQTT-3.1.2-16", "311:MQTT-3.1.2-18"), flags(0x02, username="u")),
        ("user-name-flag-without-user-name", normative("5:MQTT-3.1.2-17", "311:MQTT-3.1.2-19"), flags(0x82)),
        ("password-without-flag", normative("5:MQTT-3.1.2-18", "311:MQTT-3.1.2-20"),
         flags(0x82, username="u", password=b"p")),
        ("password-flag-without-password", normative("5:MQTT-3.1.2-19", "311:MQTT-3.1.2-21"), flags(0xC2, username="u")),
        ("no-client-identifier", normative("5:MQTT-3.1.3-3", "311:MQTT-3.1.3-3"), payload(0x02)),
        ("client-identifier-cut-off", normative("5:MQTT-3.1.3-3", "311:MQTT-3.1.3-3"), payload(0x02, b"\0\x05abc")),
        ("client-identifier-surrogate", normative("5:MQTT-3.1.3-4", "5:MQTT-1.5.4-1", "311:MQTT-3.1.3-4", "311:MQTT-1.5.3-1"),
         lambda version: wire.connect(surrogate, version=version)),
        ("client-identifier-nul", normative("5:MQTT-1.5.4-2", "311:MQTT-1.5.3-2"),
         lambda version: wire.connect(nul, version=version)),
        ("will-topic-overlong", normative("5:MQTT-3.1.3-11", "311:MQTT-3.1.3-10"),
         lambda version: wire.connect("c", version=version, will=wire.Will(overlong))),
        ("will-topic-nul", normative("5:MQTT-1.5.4-2", "5:MQTT-4.7.3-2", "311:MQTT-1.5.3-2", "311:MQTT-4.7.3-2"),
         lambda version: wire.connect("c", version=version, will=wire.Will(nul))),
        ("user-name-ill-formed", normative("5:MQTT-3.1.3-12", "311:MQTT-3.1.3-11"),
         lambda version: wire.connect("c", version=version, username=b"\xff")),
        ("trailing-bytes", normative("5:MQTT-3.1.4-1", "311:MQTT-3.1.4-1"), payload(0x02, wire.text("c"), b"more")),
        ("ends-after-flags", normative("5:MQTT-3.1.4-1", "311:MQTT-3.1.4-1"),
         lambda version: wire.packet(wire.CONNECT, 0, wire.text("MQTT") + bytes([version, 2]))),
    ]


@normative("5:MQTT-3.1.4-1", "5:MQTT-4.13.1-1", "5:MQTT-3.2.2-7", "5:MQTT-3.2.2-8", "311:MQTT-3.1.4-1", "311:MQTT-3.2.2-6")
@pytest.mark.parametrize("build", [pytest.param(build, id=name, marks=marks) for name, marks, build in broken_connects()])
def test_a_malformed_connect_ends_the_connection(dial, connect, oasis, build):
    dial_and_break(dial, oasis, build(oasis))
    connect(oasis).ping()


@normative("5:MQTT-2.1.3-1", "311:MQTT-2.2.2-1", "311:MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
def test_a_connect_with_header_flags_ends_the_connection(dial, oasis, flags):
    """Without an answer, or with that of MQTT 5. MQTT 3.1 says nothing of these flags."""
    client = dial(oasis).send(bytes([0x10 | flags]) + wire.connect("c", version=oasis)[1:])
    try:
        assert client.expect(wire.CONNACK).reason == 0x81
    except wire.Closed:
        return
    client.expect_closed()


@normative("311:MQTT-3.1.2-22")
def test_before_mqtt_5_there_is_no_password_without_a_user_name(dial):
    dial(V311).send(wire.connect("c", version=V311, flags=0x42, password=b"p")).expect_closed()


def test_mqtt_5_allows_a_password_without_a_user_name(connect):
    connect(V5, password=b"token").ping()


@pytest.mark.parametrize("properties", [
    pytest.param({"receive_maximum": 0}, id="receive-maximum-0"),
    pytest.param({"maximum_packet_size": 0}, id="maximum-packet-size-0"),
    pytest.param({"request_problem_information": 2}, id="request-problem-information-2"),
    pytest.param({"request_response_information": 2}, id="request-response-information-2"),
    pytest.param({"receive_maximum": [1, 2]}, id="receive-maximum-twice"),
    pytest.param({"session_expiry_interval": [1, 1]}, id="session-expiry-twice"),
    pytest.param({"authentication_data": b"x"}, id="authentication-data-without-method"),
    pytest.param({"server_keep_alive": 1}, id="property-of-connack"),
    pytest.param({"topic_alias": 1}, id="property-of-publish"),
    pytest.param(b"\x7f\x00", id="unknown-property"),
    pytest.param(b"\x21\x00", id="property-cut-off"),
    pytest.param({"user_property": ("a", b"\xff")}, id="user-property-ill-formed", marks=normative("5:MQTT-1.5.7-1")),
    pytest.param({"user_property": (b"a\0", "b")}, id="user-property-nul", marks=normative("5:MQTT-1.5.7-1")),
])
def test_a_property_out_of_place_refuses_the_connect(dial, properties):
    dial_and_break(dial, V5, wire.connect("c", properties=properties))


@pytest.mark.parametrize("properties", [
    pytest.param({"will_delay_interval": [1, 1]}, id="will-delay-twice"),
    pytest.param({"payload_format_indicator": 2}, id="payload-format-2"),
    pytest.param({"topic_alias": 1}, id="topic-alias"),
    pytest.param({"response_topic": "a/#"}, id="response-topic-wildcard", marks=normative("5:MQTT-3.3.2-14")),
])
def test_a_will_property_out_of_place_refuses_the_connect(dial, properties):
    client = dial().send(wire.connect("c", will=wire.Will("w", properties=properties)))
    client.expect_not_accepted(0x81, 0x82, 0x90)


@pytest.mark.parametrize("name", ["w/#", "w/+", "", "+"])
@normative("5:MQTT-4.7.0-1", "311:MQTT-4.7.1-1", "5:MQTT-4.7.3-1", "311:MQTT-4.7.3-1")
def test_a_will_topic_is_a_topic_name(dial, version, name):
    client = dial(version).send(wire.connect("c", version=version, will=wire.Will(name)))
    if version == V5:
        client.expect_not_accepted(0x81, 0x82, 0x90)
    else:
        client.expect_closed()


# ------------------------------------------------------------------------------------- client identifiers


@normative("5:MQTT-3.1.3-5", "311:MQTT-3.1.3-5")
@pytest.mark.parametrize("client_id", [LETTERS_AND_DIGITS[at:at + 23] for at in range(0, 62, 23)] + list("aZ9"))
def test_letters_and_digits_make_a_client_identifier(connect, version, client_id):
    connect(version, client_id).ping()


@normative("5:MQTT-3.1.3-6", "5:MQTT-3.1.3-7", "5:MQTT-3.2.2-16", "311:MQTT-3.1.3-6")
def test_an_empty_client_identifier_gets_a_unique_one(connect, topic, oasis):
    """As if the client had given it: two such clients do not take over each other's session."""
    first, second = connect(oasis, ""), connect(oasis, "")
    for client in (first, second):
        client.subscribe(topic)
    first.publish(topic, b"to both")
    first.receive(b"to both")
    second.receive(b"to both")
    if oasis == V5:
        names = [client.connack.properties["assigned_client_identifier"] for client in (first, second)]
        assert names[0] and names[1] and names[0] != names[1]


@normative("5:MQTT-3.1.3-7")
def test_an_assigned_client_identifier_resumes_its_session(connect):
    first = connect(V5, "", clean=False, properties={"session_expiry_interval": 60})
    assigned = first.connack.properties["assigned_client_identifier"]
    first.disconnect()
    second = connect(V5, assigned, clean=False)
    assert second.connack.session_present
    assert "assigned_client_identifier" not in second.connack.properties


@normative("311:MQTT-3.1.3-8", "311:MQTT-3.1.3-9", "311:MQTT-3.2.2-4", "311:MQTT-3.2.2-5")
def test_an_empty_client_identifier_needs_a_clean_session(dial):
    dial(V311).send(wire.connect("", version=V311, clean=False)).expect_not_accepted(0x02)


def test_mqtt_31_has_no_empty_client_identifier(dial):
    dial(V31).send(wire.connect("", version=V31)).expect_not_accepted(0x02)


@normative("5:MQTT-3.1.3-8", "311:MQTT-3.1.3-9")
def test_a_very_long_client_identifier_is_accepted_or_refused(dial, oasis):
    client = dial(oasis)
    connack = client.connect("x" * 65535)
    if connack.reason:
        assert connack.reason == (0x85 if oasis == V5 else 0x02)
        client.expect_closed()
    else:
        client.ping()


@normative("5:MQTT-3.1.3-2", "311:MQTT-3.1.3-2")
def test_client_identifiers_are_compared_byte_by_byte(connect, unique, oasis):
    """Case and blanks matter: none of these is another's session."""
    name = unique("C")
    clients = [connect(oasis, one) for one in (name, name.lower(), name + " ", " " + name)]
    for client in clients:
        client.ping()


# ------------------------------------------------------------------------------------------- the payload


@normative("5:MQTT-3.1.3-1", "311:MQTT-3.1.3-1")
def test_all_fields_of_the_payload_are_understood(connect, topic, version):
    watcher = connect(version)
    watcher.subscribe(topic)
    client = connect(version, will=wire.Will(topic, b"last words"), username="device", password=b"secret")
    client.drop()
    watcher.receive(b"last words")


def test_a_connect_may_arrive_byte_by_byte(dial, version):
    client = dial(version)
    for byte in wire.connect("bytewise", version=version):
        client.send(bytes([byte]))
    client.expect(wire.CONNACK, reason=0)


# --------------------------------------------------------------------------------------------- the answer


@normative("5:MQTT-3.2.0-1", "311:MQTT-3.2.0-1")
def test_connack_comes_before_stored_messages(connect, dial, topic, unique, oasis):
    name = unique("c")
    options = {"properties": {"session_expiry_interval": 60}} if oasis == V5 else {}
    first = connect(oasis, name, clean=False, **options)
    first.subscribe(topic, qos=1)
    first.disconnect()
    publisher = connect(oasis)
    for number in range(5):
        publisher.publish(topic, b"%d" % number, qos=1)
    second = dial(oasis).send(wire.connect(name, version=oasis, clean=False))
    second.expect(wire.CONNACK, reason=0, session_present=True)
    for number in range(5):
        second.receive(b"%d" % number)


@normative("5:MQTT-3.2.0-1", "5:MQTT-3.2.0-2", "311:MQTT-3.2.0-1")
def test_packets_that_follow_connect_at_once_are_answered_after_connack(dial, topic, version):
    client = dial(version)
    client.send(wire.connect("", version=version) if version != V31 else wire.connect("pipelined", version=version),
                wire.subscribe(1, (topic, 0), version=version), wire.pingreq())
    client.expect(wire.CONNACK, reason=0)
    assert {client.recv().kind, client.recv().kind} == {wire.SUBACK, wire.PINGRESP}
    client.expect_nothing()


@normative("5:MQTT-3.1.4-6", "311:MQTT-3.1.4-5")
def test_nothing_is_processed_after_a_refusal(connect, dial, topic, oasis):
    watcher = connect(oasis)
    watcher.subscribe(topic)
    if oasis == V5:
        refused = wire.connect("c", properties={"authentication_method": "no such method"})
    else:
        refused = wire.connect("", version=V311, clean=False)
    client = dial(oasis).send(refused, wire.publish(topic, b"smuggled", retain=True, version=oasis))
    client.expect_not_accepted(0x8C, 0x02)
    watcher.expect_nothing()


@normative("5:MQTT-3.2.2-6", "5:MQTT-3.2.2-7", "5:MQTT-4.13.2-1")
def test_a_refusal_says_no_session_present(connect, dial, unique):
    """Even when there is a session for the client identifier."""
    name = unique("c")
    connect(V5, name, clean=False, properties={"session_expiry_interval": 60}).disconnect()
    client = dial().send(wire.connect(name, clean=False, properties={"authentication_method": "no such method"}))
    client.expect_not_accepted(0x8C)
    assert connect(V5, name, clean=False).connack.session_present


@normative("5:MQTT-3.2.2-19", "5:MQTT-3.2.2-20")
def test_a_refusal_fits_into_the_maximum_packet_size(dial):
    """Six bytes leave no room for a reason string or a user property."""
    client = dial().send(wire.connect("c", properties={"maximum_packet_size": 6, "authentication_method": "unknown"}))
    connack = client.expect(wire.CONNACK)
    assert connack.reason == 0x8C and connack.size <= 6
    client.expect_closed()


@normative("5:MQTT-3.1.2-28")
@pytest.mark.parametrize("properties", [{}, {"request_response_information": 0}])
def test_response_information_only_on_request(connect, properties):
    assert "response_information" not in connect(V5, properties=properties).connack.properties


def test_response_information_may_be_requested(connect):
    """A server may answer with it or not; if it does, it is the start of topics the client may use."""
    client = connect(V5, properties={"request_response_information": 1})
    assert client.connack.properties.get("response_information", "x") != ""


def test_connack_tells_the_limits(connect):
    """The defaults of the settings, where they differ from the defaults of MQTT 5."""
    properties = connect(V5).connack.properties
    assert properties.get("maximum_packet_size", 1 << 20) > 0
    assert properties.get("topic_alias_maximum", 0) > 0
    for feature in ("retain_available", "wildcard_subscription_available", "subscription_identifier_available",
                    "shared_subscription_available"):
        assert properties.get(feature, 1) == 1
    assert "maximum_qos" not in properties


def test_settings_show_in_connack(broker_with, connect):
    limited = broker_with("""
        [limits]
        max_packet_size = 4096
        receive_maximum = 7
        topic_alias_maximum = 3
        max_session_expiry = 100
        max_keep_alive = 50
    """)
    connack = connect(V5, to=limited, keep_alive=600, properties={"session_expiry_interval": 1000}).connack
    assert connack.properties["maximum_packet_size"] == 4096
    assert connack.properties["receive_maximum"] == 7
    assert connack.properties["topic_alias_maximum"] == 3
    assert connack.properties["session_expiry_interval"] == 100
    assert connack.properties["server_keep_alive"] == 50


@normative("5:MQTT-3.2.2-9", "5:MQTT-3.2.2-10", "5:MQTT-3.2.2-12", "5:MQTT-3.2.2-13")
def test_what_the_server_does_not_support(broker_with, connect, dial, topic):
    """Maximum QoS 0 and no retained messages: told in CONNACK, and a breach is refused; subscribing stays possible."""
    limited = broker_with("[limits]\nmax_qos = 0\nretain_available = false\n")
    client = connect(V5, to=limited)
    assert client.connack.properties["maximum_qos"] == 0
    assert client.connack.properties["retain_available"] == 0
    for requested in (0, 1, 2):
        assert client.subscribe(topic, qos=requested).reasons[0] <= 2
    client.publish(topic, b"still works")
    client.receive(b"still works")

    will = wire.Will(topic, qos=1)
    dial(V5, limited).send(wire.connect("c", will=will)).expect_not_accepted(0x9B)
    will = wire.Will(topic, retain=True)
    dial(V5, limited).send(wire.connect("c", will=will)).expect_not_accepted(0x9A)

    connect(V5, to=limited).send(wire.publish(topic, b"", 1, 1)).expect_refused(0x9B)
    connect(V5, to=limited).send(wire.publish(topic, b"", retain=True)).expect_refused(0x9A)


@normative("5:MQTT-3.2.2-9", "5:MQTT-3.2.2-12")
def test_maximum_qos_1(broker_with, connect, dial, topic):
    limited = broker_with("[limits]\nmax_qos = 1\n")
    client = connect(V5, to=limited)
    assert client.connack.properties["maximum_qos"] == 1
    client.subscribe(topic, qos=2)
    client.publish(topic, b"once", qos=1)
    assert client.receive(b"once").qos == 1
    dial(V5, limited).send(wire.connect("c", will=wire.Will(topic, qos=2))).expect_not_accepted(0x9B)
    connect(V5, to=limited).send(wire.publish(topic, b"", 2, 1)).expect_refused(0x9B)


# ------------------------------------------------------------------------------------------------ limits


def test_a_connection_that_never_sends_connect_is_closed(broker_with, dial):
    hasty = broker_with("[limits]\nconnect_timeout = 1\n")
    silent, halfway = dial(V5, hasty), dial(V5, hasty)
    halfway.send(wire.connect("c")[:7])
    silent.expect_closed()
    halfway.expect_closed()


def test_a_slow_connect_does_not_extend_its_time(broker_with, dial):
    """A byte now and then is no CONNECT: the limit holds for the whole packet."""
    hasty = broker_with("[limits]\nconnect_timeout = 1\n")
    client = dial(V5, hasty)
    for byte in wire.connect("c" * 100)[:20]:
        try:
            client.send(bytes([byte]))
            client.expect_nothing(0.2)
        except (AssertionError, ConnectionError):
            return
    raise AssertionError("still connected after four times the limit")


def test_connections_are_limited(broker_with, connect, dial):
    small = broker_with("[limits]\nmax_connections = 2\n")
    connect(V5, to=small)
    second = connect(V5, to=small)
    refused = dial(V5, small)
    try:
        assert refused.connect("third").reason in (0x88, 0x89, 0x97, 0x9F)
    except (wire.Closed, ConnectionError):
        pass
    second.ping()


def test_mqtt_3_1_disregards_what_it_says_nothing_of(dial, ours, unique):
    """Reserved flags, those of a will that is not there, and those of the fixed header: other brokers do, too."""
    for flags in (0x01, 0x02 | 0x08, 0x02 | 0x20, 0x02 | 0x18):
        packet = wire.connect(unique("c"), version=wire.V31, flags=flags)
        assert dial(wire.V31, ours).send(packet).expect(wire.CONNACK).reason == 0
    packet = bytearray(wire.connect(unique("c"), version=wire.V31))
    packet[0] |= 0x04
    assert dial(wire.V31, ours).send(bytes(packet)).expect(wire.CONNACK).reason == 0


@pytest.mark.parametrize("version, level", [(wire.V31, 0x83), (wire.V311, 0x84)])
def test_the_bit_of_bridges_is_no_other_version(dial, connect, ours, unique, topic, version, level):
    """What a bridge publishes does not come back to it, and RETAIN stays as it was."""
    bridge = dial(version, ours)
    bridge.send(wire.connect(unique("bridge"), version=version, level=level)).expect(wire.CONNACK, reason=0)
    bridge.subscribe(topic, qos=1)
    bridge.publish(topic, b"own", 1)
    connect(V5, to=ours).publish(topic, b"other", 1, retain=True)
    assert bridge.receive(b"other").retain


def test_a_bridge_of_a_version_that_is_unknown_is_told_in_its_shape(dial, ours, unique):
    """3.1.1 for the names and levels before 5."""
    refused = dial(wire.V311, ours).send(wire.connect(unique("b"), version=wire.V311, name="MQTT", level=0x83))
    assert refused.expect(wire.CONNACK).reason == 1
