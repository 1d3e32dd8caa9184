"""AUTH, user names and passwords, and who may do what (5: §3.15, §4.12; 3.1.1: §5.4)."""

import pytest

import wire
from wire import V5, V31, V311

normative = pytest.mark.normative


@normative("5:MQTT-4.12.0-1", "5:MQTT-4.12.0-4", "5:MQTT-3.2.2-7")
@pytest.mark.parametrize("method", ["SCRAM-SHA-256", "", "plain"])
def test_an_unknown_method_is_refused(dial, method):
    packet = wire.connect("c", properties={"authentication_method": method, "authentication_data": b"x"})
    dial().send(packet).expect_not_accepted(0x8C)


@normative("5:MQTT-4.12.0-6")
def test_without_a_method_there_is_no_auth(connect):
    client = connect(V5, username="u", password=b"p")
    assert not client.connack.properties.keys() & {"authentication_method", "authentication_data"}
    client.expect_nothing()


@normative("5:MQTT-4.12.1-2", "5:MQTT-4.13.1-1")
@pytest.mark.parametrize("packet", [
    wire.auth(0x19, {"authentication_method": "SCRAM-SHA-256"}),
    wire.auth(0x18, {"authentication_method": "SCRAM-SHA-256"}),
    wire.auth(),
    wire.auth(0x19),
], ids=["again", "continue", "empty", "without-method"])
def test_auth_without_a_method_in_connect_is_a_protocol_error(connect, packet):
    """There is nothing to authenticate again with, so it fails, and the connection ends."""
    connect(V5).send(packet).expect_refused(0x81, 0x82)


# The password is "secret"; made with argon2id, m=64 KiB, t=1, p=1, which is enough for a test.
HASH = "$argon2id$v=19$m=64,t=1,p=1$RJhTaCJtBliYm1EQYJNcoA$SKWEkreuT4cF2M+aWtMtr0kCvX9L5e7v7eAai0P03Po"
USERS = f"""
    [[users]]
    name = "reader"
    password = "{HASH}"
    subscribe = ["news/#", "own/%c/+", "user/%u"]
    publish = []

    [[users]]
    name = "writer"
    password = "{HASH}"
    publish = ["news/+", "own/%c/x"]
    subscribe = []

    [[users]]
    name = "acme/writer"
    password = "{HASH}"
    publish = ["#"]
    subscribe = ["#"]
"""


@pytest.fixture
def guarded(broker_with):
    return broker_with(USERS)


@normative("5:MQTT-3.1.4-2", "5:MQTT-3.2.2-7", "311:MQTT-3.2.2-4", "311:MQTT-3.2.2-5")
@pytest.mark.parametrize("credentials", [
    {"username": "reader", "password": b"wrong"},
    {"username": "reader"},
    {"username": "default/nobody", "password": b"secret"},
    {"username": "acme/reader", "password": b"secret"},
    {"username": "reader/", "password": b"secret"},
    {},
], ids=["wrong-password", "no-password", "unknown-user", "other-tenant", "empty-client", "anonymous"])
def test_wrong_credentials_are_refused(guarded, dial, version, credentials):
    client = dial(version, guarded).send(wire.connect("c", version=version, **credentials))
    client.expect_not_accepted(*((0x86, 0x87) if version == V5 else (0x04, 0x05)))


@pytest.mark.parametrize("name", ["reader", "default/reader", "acme/writer"])
def test_right_credentials_are_accepted(guarded, connect, version, name):
    """A user name without a slash is of the tenant `default`, so the two spellings are one user."""
    connect(version, to=guarded, username=name, password=b"secret").ping()


@normative("5:MQTT-3.8.4-7", "5:MQTT-3.9.3-2", "311:MQTT-3.8.4-5", "311:MQTT-3.9.3-2")
def test_a_subscription_that_is_not_allowed_is_refused(guarded, connect, unique):
    name = unique("c")
    asked = ["news/#", "news/a/+", "#", "+/a", f"own/{name}/+", "own/other/+", f"own/{name}/#", "user/reader",
             "$share/g/news/#", "$share/g/#"]
    granted = [True, True, False, False, True, False, False, True, True, False]
    for version, refused in ((V5, 0x87), (V311, 0x80)):
        client = connect(version, name, to=guarded, username="reader", password=b"secret")
        assert client.subscribe(*asked).reasons == [0 if one else refused for one in granted]


@normative("5:MQTT-3.4.2-1", "5:MQTT-3.5.2-1", "5:MQTT-4.3.3-9", "311:MQTT-3.3.5-2")
def test_a_publish_that_is_not_allowed_reaches_nobody(guarded, connect, version, qos):
    """MQTT 5 says so in the acknowledgement; before that it is acknowledged as usual or the connection ends."""
    reader = connect(version, to=guarded, username="reader", password=b"secret")
    reader.subscribe("news/#", qos=2)
    writer = connect(version, to=guarded, username="writer", password=b"secret")
    try:
        for attempt in range(2):
            answer = writer.publish("news/a/b", b"forbidden", qos=qos)
            if version == V5 and qos:
                assert answer.kind in (wire.PUBACK, wire.PUBREC) and answer.reason == 0x87
        # After a refused QoS 2 flow its packet identifier means a new message.
        writer.send(wire.publish("news/a/b", b"forbidden", qos, 1 if qos else None, version=version))
        if qos:
            writer.wait_for(wire.PUBACK if qos == 1 else wire.PUBREC, 1)
        if version == V5 or qos != 2:
            writer.send(wire.publish("news/a", b"allowed", qos, 1 if qos else None, version=version))
            if qos:
                assert writer.wait_for(wire.PUBACK if qos == 1 else wire.PUBREC, 1).reason == 0
    except (wire.Closed, ConnectionError):
        assert version != V5
        return
    if version == V5 or qos != 2:
        reader.receive(b"allowed")
    reader.expect_nothing(0.1)


def test_a_will_that_is_not_allowed_is_not_published(guarded, dial, connect):
    """Refused with the CONNECT, or kept from being published."""
    reader = connect(V5, to=guarded, username="reader", password=b"secret")
    reader.subscribe("news/#")
    client = dial(V5, guarded)
    connack = client.connect("w", username="writer", password=b"secret", will=wire.Will("news/a/b"))
    assert connack.reason in (0x00, 0x87)
    client.drop()
    reader.expect_nothing()


def test_rules_name_the_client(guarded, connect, unique):
    """%c is the client identifier of the connection, not a wildcard."""
    name = unique("c")
    writer = connect(V5, name, to=guarded, username="writer", password=b"secret")
    assert writer.publish(f"own/{name}/x", b"x", qos=1).reason in (0x00, 0x10)
    assert writer.publish("own/other/x", b"x", qos=1).reason == 0x87


@pytest.mark.parametrize("name", ["+", "#", "a/b"])
def test_a_client_identifier_cannot_widen_a_rule(guarded, dial, name):
    """A client identifier that is itself a filter matches nothing beyond its own name, if it is accepted at all."""
    client = dial(V5, guarded)
    if client.connect(name, username="reader", password=b"secret").reason:
        return
    assert client.subscribe("own/somebody/x", "own/#", "own/+/+").reasons == [0x87, 0x87, 0x87]


def test_users_of_tenants_do_not_meet(guarded, connect):
    theirs = connect(V5, to=guarded, username="acme/writer", password=b"secret")
    ours = connect(V5, to=guarded, username="reader", password=b"secret")
    ours.subscribe("news/#")
    assert theirs.subscribe("#").reasons == [0]
    theirs.publish("news/a", b"theirs", qos=1)
    theirs.receive(b"theirs")
    ours.expect_nothing()


def test_mqtt_31_has_no_code_for_a_refused_filter(guarded, connect):
    """It is granted in form or the connection ends; nothing is delivered either way."""
    reader = connect(V31, to=guarded, username="reader", password=b"secret")
    try:
        reader.subscribe("#")
    except wire.Closed:
        return
    connect(V5, to=guarded, username="writer", password=b"secret").publish("news/a", b"x", qos=1)
    reader.expect_nothing()
