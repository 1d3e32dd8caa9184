"""The properties of requests and responses: what must be there, what must not, and what follows."""

import pytest

import wire
from statestore_client import (
    ABSENT, GUID, INVOKE, NOT_APPLIED, NOTHING, OK, RESERVED, SYNTAX, array, error, notify_topic, response_topic, stamp, value,
)
from wire import PUBACK, PUBLISH, PUBREC, V31, V311

SET = array("SET", "key", "x")


@pytest.fixture
def untouched(store):
    """A client of the test's tenant that says whether anything has changed."""
    reader = store("reader")

    def check():
        assert reader.get(b"key") is None
        assert reader.scan("*") == [[]]

    yield check
    check()


def envelope(client_id: str, **more) -> dict:
    sound = {"response_topic": response_topic(client_id), "correlation_data": b"1", "user_property": [("__ts", stamp())]}
    return {name: given for name, given in (sound | more).items() if given is not None}


def test_every_response_has_the_same_envelope(store):
    """`Store.answer` checks it: __stat 200, QoS 1, not retained, no version of nothing, the request's correlation data."""
    client = store()
    for parts, expected in [
        (("GET", "key"), ABSENT), (("DEL", "key"), NOTHING), (("VDEL", "key", "x"), NOTHING), (("SET", "key", "x"), OK),
        (("GET", "key"), value(b"x")), (("SET", "key", "x", "NX"), NOT_APPLIED), (("KEYNOTIFY", "key"), OK),
        (("KEYNOTIFY", "other", "STOP"), NOTHING), (("FOO",), error("unknown command")), (("SET", "", "x"), error("the key length is zero")),
    ]:
        assert client.ask(*parts).payload == expected


@pytest.mark.parametrize("correlation", [b"\0", b"x" * 16, bytes(range(256)), b"long" * 1_000, b"x" * 65_535], ids=len)
def test_correlation_data_comes_back(store, correlation):
    client = store()
    assert client.answer(client.send(SET, correlation=correlation)).payload == OK


def test_correlation_data_may_repeat(store):
    """Only a resent packet is the same request."""
    client = store()
    for number in range(3):
        version = client.answer(client.send(array("SET", "key", number), correlation=b"same")).version
        assert client.get(b"key") == (b"%d" % number, version)


@pytest.mark.parametrize("topic", [
    "clients/{id}/services/{invoke}/response", "clients/{hex}/{invoke}/response", "clients/{id}/{invoke}",
    "clients/{id}/services/statestore/_any_/command/invoke/response", "answers", "/", "{invoke}/response", "x{invoke}",
    "clients/statestore/services/{invoke}/response", "clients/statestore/v1/" + GUID.lower() + "/x", "ä/β",
    "clients/statestore/v1/" + GUID[:-1],
])
def test_response_topics(store, topic):
    client = store(subscribes=False)
    topic = topic.format(id=client.client.client_id, hex=client.client.client_id.encode().hex().upper(), invoke=INVOKE)
    client.client.subscribe(topic, qos=1)
    client.responses = topic
    version = client.set(b"key", b"value")
    assert client.get(b"key") == (b"value", version)


@pytest.mark.parametrize("topic", [
    INVOKE, RESERVED, RESERVED + "x", RESERVED + "/", RESERVED + "/x", notify_topic("victim", b"key"), notify_topic("requester", b"key"),
])
def test_forbidden_response_topics_disconnect(store, untouched, topic):
    client = store("requester")
    client.send(SET, response_topic=topic)
    client.client.expect_refused(0x90)


@pytest.mark.parametrize("topic", ["", "#", "a/+", "clients/#"])
def test_a_response_topic_is_a_topic_name(store, untouched, topic):
    client = store()
    client.send(SET, response_topic=topic)
    client.client.expect_refused(0x82, 0x90)


@pytest.mark.parametrize("missing", [("response_topic",), ("correlation_data",), ("response_topic", "correlation_data")])
def test_requests_without_what_an_answer_needs(store, untouched, missing):
    """Acknowledged with Implementation specific error, without effect and without an answer."""
    client = store()
    packet_id, _ = client.send(SET, **dict.fromkeys(missing))
    client.client.expect(PUBACK, packet_id=packet_id, reason=0x83)
    client.expect_quiet()


def test_missing_properties_are_worse_than_a_malformed_payload(store):
    client = store()
    packet_id, _ = client.send(b"nonsense", correlation_data=None)
    client.client.expect(PUBACK, packet_id=packet_id, reason=0x83)
    assert client.ask_bytes(b"nonsense").payload == error(SYNTAX)


def test_qos_0(store, untouched):
    """Dropped, and nobody is told."""
    client = store()
    client.client.publish(INVOKE, SET, 0, properties=envelope(client.client.client_id))
    client.expect_quiet()


def test_qos_2(store, untouched):
    client = store()
    packet_id = client.client.next_packet_id()
    client.client.send(wire.publish(INVOKE, SET, 2, packet_id, properties=envelope(client.client.client_id)))
    client.client.expect(PUBREC, packet_id=packet_id, reason=0x83)
    client.expect_quiet()


def test_older_clients_cannot_ask(connect, tenant, untouched):
    """They have no response topic: whatever they send has no effect, and goes to nobody."""
    listener = connect(tenant=tenant)
    listener.subscribe("#", qos=2)
    for version in (V31, V311):
        client = connect(version, tenant=tenant)
        client.publish(INVOKE, SET, 0)
        client.send(wire.publish(INVOKE, SET, 1, 7, version=version))
        try:
            client.expect(PUBACK, packet_id=7)
        except wire.Closed:
            continue
        client.ping()
    listener.ping()
    listener.expect_nothing()


def test_a_retained_request_is_a_request(store, connect, tenant):
    """Nothing of it is retained, and neither is the answer."""
    client = store()
    packet_id, correlation = client.client.next_packet_id(), b"1"
    client.client.send(wire.publish(INVOKE, SET, 1, packet_id, retain=True, properties=envelope(client.client.client_id)))
    assert client.answer((packet_id, correlation)).payload == OK
    assert client.get(b"key")[0] == b"x"
    late = connect(tenant=tenant)
    late.subscribe("#", client.responses, qos=1)
    late.expect_nothing()


def test_topic_alias(store):
    client = store()
    assert client.client.connack.properties.get("topic_alias_maximum", 0) >= 1
    assert client.ask("SET", "key", "x", topic_alias=1).payload == OK
    for number in range(3):
        packet_id, correlation = client.client.next_packet_id(), b"%d" % number
        properties = envelope(client.client.client_id, correlation_data=correlation, topic_alias=1)
        client.client.send(wire.publish("", array("GET", "key"), 1, packet_id, properties=properties))
        assert client.answer((packet_id, correlation)).payload == value(b"x")


def test_what_sdks_send_besides(store):
    """Names unknown to the store are no concern of it, and a value may be empty."""
    client = store()
    more = [("__srcId", "me"), ("__protVer", "1.0"), ("$partition", "me"), ("$high_priority", ""), ("x", "1"), ("x", "2"), ("", "")]
    answer = client.ask("SET", "key", "x", more=more, content_type="application/octet-stream", message_expiry_interval=10)
    assert answer.payload == OK
    assert client.ask("GET", "key", more=more, payload_format_indicator=0).payload == value(b"x")


def test_persistence_may_be_asked_for(store):
    """Answered the same; see test_durability.py for the effect."""
    client = store(properties={"session_expiry_interval": 60, "user_property": [("aio-persistence", "true"), ("metriccategory", "x")]})
    for asked in ("true", "false", "nonsense"):
        assert client.ask("SET", "key", asked, more=[("aio-persistence", asked)]).payload == OK


def test_message_expiry(store):
    """A request that has expired may go unanswered, but then it is not applied either."""
    client = store()
    assert client.ask("SET", "key", "in time", message_expiry_interval=1).payload == OK
    client.send(array("SET", "key", "expired"), message_expiry_interval=0)
    client.client.expect(PUBACK)
    try:
        answer = client.client.receive(timeout=0.5).payload
    except TimeoutError:
        answer = b""
    assert client.get(b"key")[0] == (b"expired" if answer == OK else b"in time")


def test_responses_do_not_expire(store):
    """The request's expiry is not the answer's."""
    assert "message_expiry_interval" not in store().ask("GET", "key", message_expiry_interval=1).properties


@pytest.mark.parametrize("topic", [INVOKE, notify_topic("victim", b"key"), RESERVED])
def test_no_request_and_no_notification_as_a_will(store, dial, tenant, untouched, topic):
    """It would come when nobody can be answered, or tell what has not happened."""
    victim = store("victim")
    victim.watch(b"key")
    client = dial()
    will = wire.Will(topic, SET, 1, properties={"response_topic": victim.responses, "correlation_data": b"1",
                                                "user_property": [("__ts", stamp())]})
    connack = client.connect("dying", username=f"{tenant}/device", will=will)
    assert connack.reason in (0x87, 0x90), connack
    client.expect_closed()
    victim.expect_quiet()


def test_many_requests_at_once(store):
    """Without waiting for one PUBACK: the SDKs do not look at the broker's Receive Maximum."""
    client = store()
    sent = [client.send(array("SET", f"key {number}", number)) for number in range(3_000)]
    assert {client.answer(one).payload for one in sent} == {OK}
    sent = [client.send(array("GET", f"key {number}")) for number in range(3_000)]
    assert [client.answer(one).payload for one in sent] == [value(b"%d" % number) for number in range(3_000)]


def test_a_client_that_takes_one_answer_at_a_time(store):
    client = store(properties={"receive_maximum": 1})
    sent = [client.send(array("SET", "key", number)) for number in range(20)]
    acknowledged = 0
    for number in range(20):
        while (packet := client.client.recv()).kind != PUBLISH:
            acknowledged += packet.kind == PUBACK
        assert packet.properties["correlation_data"] == sent[number][1]
        if number in (0, 7, 19):
            client.client.ping()
            assert not [kept for kept in client.client._kept if kept.kind == PUBLISH], "no more than one is unacknowledged"
        client.client.complete(packet)


def test_responses_are_ordinary_messages(store, connect, tenant):
    """Of a requester that may publish everywhere: whoever subscribed to the response topic gets them."""
    client, other = store(), connect(tenant=tenant)
    stranger = connect(tenant="other-of-" + tenant)
    other.subscribe("clients/#", qos=1)
    stranger.subscribe("#", qos=1)
    client.set(b"key", b"value")
    assert other.receive(OK).topic == client.responses
    stranger.ping()
    stranger.expect_nothing()


def test_nobody_listens(store):
    """A request whose response topic has no subscriber is executed nevertheless."""
    client = store()
    packet_id, _ = client.send(SET, response_topic="nobody/listens")
    client.client.expect(PUBACK, packet_id=packet_id, reason=0)
    assert client.get(b"key")[0] == b"x"
