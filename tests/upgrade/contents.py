"""What lies in a data directory that the tests open: something of each kind that Barid stores.

`fill` puts it there through a running broker, and `check` looks for it, and uses it up. Both say only what any version
promises.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "servicebus"), str(TESTS / "statestore")]

import wire
from azure.servicebus import ServiceBusClient, ServiceBusSubQueue
from azure_client import Entity, complete_all, nothing_comes, take_one, text
from broker import BINARY, Broker
from namespace import KEY, KEY_NAME
from statestore_client import INVOKE, OK, array, response_topic, stamp, value

# The clients have no users, except those that are about users.
CONFIG = '[tenants.default]\nauth = []\n'
FOREVER = {"session_expiry_interval": 0xFFFFFFFF}
LARGE = bytes(range(256)) * 100
PROPERTIES = {"content_type": "text/plain", "user_property": [("k", "v"), ("k", "w")]}


def client(broker: Broker, client_id: str, clean: bool = False, **properties) -> wire.Client:
    connected = wire.Client(broker.address)
    connected.connect(client_id, clean=clean, properties=FOREVER | properties)
    return connected


def tool(broker: Broker, *arguments: str) -> None:
    command = [BINARY, *arguments, "--admin", f"127.0.0.1:{broker.admin_port}"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def service_bus(broker: Broker) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        f"Endpoint=sb://127.0.0.1:{broker.amqp_port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};UseDevelopmentEmulator=true;")


# -------------------------------------------------------------------------------------------------- MQTT


def fill_mqtt(broker: Broker) -> None:
    """Sessions whose clients are away, with what waits and what is in flight, and retained messages."""
    away = client(broker, "away")
    away.subscribe(("up/1", 1), ("up/2", 2))
    away.subscribe(("up/#", 0x01), properties={"subscription_identifier": 7})
    away.disconnect()
    member = client(broker, "member")
    member.subscribe(("$share/g/jobs", 2))
    member.disconnect()
    willing = wire.Client(broker.address)
    willing.connect("willing", properties=FOREVER, will=wire.Will("wills", b"gone", 1, properties={"will_delay_interval": 0xFFFFFFF}))
    willing.drop()

    publisher = client(broker, "publisher")
    publisher.publish("up/1", b"one", 1, properties=PROPERTIES)
    publisher.publish("up/2", LARGE, 2)
    publisher.publish("jobs", b"job", 1)
    publisher.publish("kept/1", b"first", 1, retain=True)
    publisher.publish("kept/1", b"second", 1, retain=True, properties=PROPERTIES)
    publisher.publish("kept/2", b"removed", 1, retain=True)
    publisher.publish("kept/2", b"", 1, retain=True)
    publisher.publish("kept/3", LARGE, 1, retain=True)

    busy = client(broker, "busy")
    busy.subscribe(("flight/#", 2))
    publisher.publish("flight/1", b"sent", 1)
    publisher.publish("flight/2", b"released", 2)
    assert busy.expect(wire.PUBLISH).payload == b"sent"
    released = busy.expect(wire.PUBLISH)
    busy.send(wire.acknowledge(wire.PUBREC, released.packet_id))
    busy.expect(wire.PUBREL)
    busy.drop()

    publisher.send(wire.publish("up/2", b"once", 2, 500))
    publisher.expect(wire.PUBREC)
    publisher.drop()


def check_mqtt(broker: Broker) -> None:
    publisher = client(broker, "publisher")
    assert publisher.connack.session_present
    publisher.send(wire.publish("up/2", b"once", 2, 500, dup=True))
    publisher.expect(wire.PUBREC)
    publisher.send(wire.acknowledge(wire.PUBREL, 500))
    publisher.expect(wire.PUBCOMP)

    away = client(broker, "away")
    assert away.connack.session_present
    found = away.receive_all(count=3)
    assert [one.payload for one in found] == [b"one", LARGE, b"once"]
    assert [one.qos for one in found] == [1, 2, 2]
    assert found[0].properties["subscription_identifier"] == [7]
    assert found[0].properties["user_property"] == PROPERTIES["user_property"]
    publisher.publish("up/new", b"live", 1)
    assert away.receive().payload == b"live"

    member = client(broker, "member")
    assert member.receive().payload == b"job"

    busy = client(broker, "busy")
    again = [busy.recv(), busy.recv()]
    sent, released = sorted(again, key=lambda packet: packet.kind)
    assert (sent.kind, sent.payload, sent.dup) == (wire.PUBLISH, b"sent", True)
    assert released.kind == wire.PUBREL
    busy.send(wire.acknowledge(wire.PUBACK, sent.packet_id), wire.acknowledge(wire.PUBCOMP, released.packet_id))

    reader = client(broker, "reader", clean=True)
    reader.subscribe("wills", "kept/#")
    kept = {one.topic: one for one in reader.receive_all(count=2)}
    assert {topic: one.payload for topic, one in kept.items()} == {"kept/1": b"second", "kept/3": LARGE}
    assert kept["kept/1"].properties["user_property"] == PROPERTIES["user_property"]
    # The session ends with this, and its will is due.
    client(broker, "willing", clean=True)
    assert reader.receive().payload == b"gone"


# ------------------------------------------------------------------------------------------- state store


def ask(asker: wire.Client, command: bytes, token: str | None = None) -> bytes:
    given = [("__ts", stamp()), ("__srcId", asker.client_id)] + ([("__ft", token)] if token else [])
    properties = {"response_topic": response_topic(asker.client_id), "correlation_data": b"c", "user_property": given}
    asker.publish(INVOKE, command, 1, properties=properties)
    return asker.receive().payload


def fill_keys(broker: Broker) -> None:
    asker = client(broker, "asker", clean=True)
    asker.subscribe(response_topic("asker"), qos=1)
    assert ask(asker, array("SET", "key", "old")) == OK
    assert ask(asker, array("SET", "key", "value")) == OK
    assert ask(asker, array("SET", "large", LARGE)) == OK
    assert ask(asker, array("SET", "locked", "holder", "NEX", "PX", 10**12), stamp()) == OK
    assert ask(asker, array("SET", "gone", "x")) == OK
    assert ask(asker, array("DEL", "gone")) == b":1\r\n"


def check_keys(broker: Broker) -> None:
    asker = client(broker, "asker", clean=True)
    asker.subscribe(response_topic("asker"), qos=1)
    assert ask(asker, array("GET", "key")) == value(b"value")
    assert ask(asker, array("GET", "large")) == value(LARGE)
    assert ask(asker, array("GET", "gone")) == b"$-1\r\n"
    assert b"fencing token is required" in ask(asker, array("SET", "locked", "thief"))


# --------------------------------------------------------------------------------- queues and bindings


def fill_queues(broker: Broker) -> None:
    tool(broker, "queue", "create", "plain", "--requires-duplicate-detection")
    tool(broker, "queue", "create", "steps", "--requires-session")
    tool(broker, "topic", "create", "news")
    tool(broker, "topic", "subscription", "create", "news", "all")
    tool(broker, "binding", "set", "in", "--filter", "to-queue/+", "--queue", "steps", "--session", "{2}")
    with service_bus(broker) as bus:
        plain, steps, news = Entity(bus, "plain"), Entity(bus, "steps"), Entity(bus, "news", "all")
        plain.send("dead", "deferred", "waits", message_id=None)
        plain.send("same", message_id="m1")
        steps.send("a1", "a2", session="a")
        news.send("told", application_properties={"n": 1})
        with plain.receiver() as receiver:
            receiver.dead_letter_message(take_one(receiver), reason="because")
            deferred = take_one(receiver)
            receiver.defer_message(deferred)
            assert deferred.sequence_number == 2
        with steps.accept("a") as receiver:
            receiver.session.set_state(b"state of a")
            receiver.complete_message(take_one(receiver))
        for entity in (plain, steps, news):
            entity.close()
    device = client(broker, "device", clean=True)
    device.publish("to-queue/b", b"from a device", 1)


def check_queues(broker: Broker) -> None:
    device = client(broker, "device", clean=True)
    device.publish("to-queue/b", b"and another", 1)
    with service_bus(broker) as bus:
        plain, steps, news = Entity(bus, "plain"), Entity(bus, "steps"), Entity(bus, "news", "all")
        plain.send("same again", message_id="m2")
        with plain.receiver() as receiver:
            assert [text(one) for one in receiver.receive_deferred_messages([2])] == ["deferred"]
            assert complete_all(receiver, 3) == ["waits", "same", "same again"]
            assert nothing_comes(receiver)
        with plain.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            dead = take_one(receiver)
            assert (text(dead), dead.dead_letter_reason) == ("dead", "because")
        with steps.accept("a") as receiver:
            assert receiver.session.get_state() == b"state of a"
            assert complete_all(receiver, 1) == ["a2"]
        with steps.accept("b") as receiver:
            assert complete_all(receiver, 2) == ["from a device", "and another"]
        with news.receiver() as receiver:
            assert text(take_one(receiver)) == "told"
        for entity in (plain, steps, news):
            entity.close()


# ------------------------------------------------------------------------------- users, tenants and bans


def fill_managed(broker: Broker) -> None:
    user = {"password": "secret", "cost": "device", "note": "an ö", "rules": [{"allow": "publish", "topics": ["own/%u/#"]}]}
    ask_admin(broker, "PUT", "/v1/users/acme/ada", user)
    ask_admin(broker, "PUT", "/v1/users/acme/gone", user)
    ask_admin(broker, "DELETE", "/v1/users/acme/gone")
    tool(broker, "tenant", "set", "acme", "--limit", "max_connections=7", "--allow", "subscribe:news")
    tool(broker, "ban", "add", "--user", "acme/eve", "--reason", "stolen")


def check_managed(broker: Broker) -> None:
    def log_in(name: str, password: bytes) -> wire.Client:
        connected = wire.Client(broker.address)
        connected.connect("c", username=name, password=password)
        return connected

    ada = log_in("acme/ada", b"secret")
    assert ada.connack.reason == 0
    assert (ada.publish("own/acme/ada/x", b"1", 1).reason in (0, 0x10), ada.publish("other", b"1", 1).reason) == (True, 0x87)
    assert ada.subscribe("news", "other").reasons == [0, 0x87]
    assert log_in("acme/ada", b"wrong").connack.reason == log_in("acme/gone", b"secret").connack.reason == 0x86
    assert log_in("acme/eve", b"secret").connack.reason == 0x8A
    assert ask_admin(broker, "GET", "/v1/users/acme/ada")["note"] == "an ö"
    assert ask_admin(broker, "GET", "/v1/tenants/acme")["settings"]["limits"] == {"max_connections": 7}


# --------------------------------------------------------------------------------- what belongs to a user


def of_bob(broker: Broker) -> wire.Client:
    bob = wire.Client(broker.address)
    bob.connect("bob", clean=False, username="acme/bob", password=b"secret", properties=FOREVER)
    return bob


def fill_of_user(broker: Broker) -> None:
    ask_admin(broker, "PUT", "/v1/users/acme/bob", {"password": "secret", "cost": "device", "rules": [{"allow": "all"}], "limits": {"max_sessions": 3}})
    bob = of_bob(broker)
    bob.subscribe(response_topic("bob"), qos=1)
    bob.publish("of bob", b"kept", 1, retain=True)
    assert ask(bob, array("SET", "of bob", "value")) == OK
    bob.disconnect()


def check_of_user(broker: Broker) -> None:
    bob = of_bob(broker)
    assert bob.connack.session_present
    assert ask(bob, array("GET", "of bob")) == value(b"value")
    bob.subscribe("of bob")
    assert bob.receive().payload == b"kept"
    quotas = ask_admin(broker, "GET", "/v1/tenants/acme/users/bob")["quotas"]
    for quota in ("sessions", "retained_messages", "state_keys"):
        assert quotas[f"max_user_{quota}"]["used"] == 1, quota


def ask_admin(broker: Broker, method: str, path: str, body: dict | None = None) -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}{path}", method=method,
                                     data=json.dumps(body).encode() if body is not None else None)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"{}")


def fill(broker: Broker) -> None:
    fill_mqtt(broker)
    fill_keys(broker)
    fill_queues(broker)
    fill_managed(broker)
    fill_of_user(broker)


def check(broker: Broker, has_managed: bool = True, has_of_user: bool = True) -> None:
    check_mqtt(broker)
    check_keys(broker)
    check_queues(broker)
    if has_managed:
        check_managed(broker)
    if has_of_user:
        check_of_user(broker)
