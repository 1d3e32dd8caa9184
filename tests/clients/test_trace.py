"""The packets of one client as they pass: the admin API and `barid trace`."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import uuid

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

import wire
from broker import BINARY, until
from events import following

pytestmark = pytest.mark.one_broker


@pytest.fixture
def client(ours):
    """Connects a client, with the tenant of this test."""
    clients = []
    tenant = uuid.uuid4().hex[:12]

    def connect(client_id: str = "dev", version: int = wire.V5, address=None, **options) -> wire.Client:
        clients.append(wire.Client(address or ours.address, version))
        clients[-1].connect(client_id, username=f"{tenant}/u", **options)
        return clients[-1]

    connect.tenant = tenant
    connect("keeps-the-tenant")
    yield connect
    for one in clients:
        one.drop()


def tracing(broker, tenant: str, client: str = "dev", query: str = ""):
    return following(broker, f"/v1/tenants/{tenant}/clients/{client}/trace?{query}")


def packet(stream, name: str, direction: str) -> dict:
    """The fields of the next packet, which has this name."""
    data = stream.next("packet")
    assert (data["packet"], data["direction"]) == (name, direction), data
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", data["at"]) and data["bytes"] >= 2 and data["connection"] > 0
    return data["fields"]


def test_a_client_is_followed_from_its_connack_to_its_end_and_further(ours, client):
    with tracing(ours, client.tenant) as stream:
        assert stream.greeting == "tracing"
        one = client(properties={"session_expiry_interval": 60})
        connected = stream.next("connected")
        host, port = one.stream.getsockname()
        assert (connected["protocol"], connected["address"]) == ("MQTT 5.0", f"{host}:{port}")
        assert packet(stream, "CONNACK", "sent")["session_present"] is False
        one.subscribe("a/#", ("b", 2), qos=1)
        assert packet(stream, "SUBSCRIBE", "received") == {
            "packet_id": 1, "filters": [{"filter": "a/#", "qos": 1}, {"filter": "b", "qos": 2}]}
        assert packet(stream, "SUBACK", "sent") == {"packet_id": 1, "codes": [1, 2]}
        one.publish("a/1", b"secret", qos=1, properties={"content_type": "x", "user_property": [("k", "v")]})
        published = packet(stream, "PUBLISH", "received")
        assert published == {"topic": "a/1", "qos": 1, "packet_id": 2, "payload_bytes": 6, "content_type": "x", "user_properties": [["k", "v"]]}
        rest = [stream.next("packet") for _ in range(2)]
        assert sorted((one["packet"], one["direction"]) for one in rest) == [("PUBACK", "sent"), ("PUBLISH", "sent")]
        one.ping()
        seen = [stream.next("packet")["packet"] for _ in range(2)]
        assert seen == ["PINGREQ", "PINGRESP"] or seen == ["PUBACK", "PINGREQ"]
        one.drop()
        while (event := stream.event())[0] == "packet":
            pass
        assert event[0] == "disconnected" and event[1]["connection"] == connected["connection"]
        client(version=wire.V311)
        again = stream.next("connected")
        assert again["protocol"] == "MQTT 3.1.1" and again["connection"] > connected["connection"]
        assert packet(stream, "CONNACK", "sent") == {"session_present": False, "reason": "Success"}


def test_one_that_is_connected_is_traced_from_now_on(ours, client):
    one, other = client(), client("other")
    one.subscribe("a", qos=2)
    with tracing(ours, client.tenant, query="payload=true") as stream:
        assert stream.next("present")["protocol"] == "MQTT 5.0"
        other.publish("a", b"one", qos=2)
        assert packet(stream, "PUBLISH", "sent")["payload"] == "one"
        one.receive(b"one")
        for name, direction in [("PUBREC", "received"), ("PUBREL", "sent"), ("PUBCOMP", "received")]:
            assert packet(stream, name, direction)["packet_id"] == 1
        other.publish("a", b"\xff\x00", qos=0)
        assert packet(stream, "PUBLISH", "sent")["payload_base64"] == "/wA="
        one.publish("a", "é".encode() + b"x" * 100_000)
        long = packet(stream, "PUBLISH", "received")
        assert long["payload_bytes"] == 100_002 and long["payload_is_cut"] and len(long["payload"].encode()) == 4_096


def test_a_trace_that_begins_in_the_middle_of_a_packet(ours, client):
    one, other = client(), client("other")
    one.subscribe("a")
    # More than the socket takes, so that the last packet written is cut.
    for _ in range(40):
        other.publish("a", b"x" * 200_000)
    other.ping()
    with tracing(ours, client.tenant) as stream:
        stream.next("present")
        other.publish("a", b"last")
        other.ping()
        while one.recv().payload != b"last":
            pass
        topics = []
        while not topics or topics[-1]["payload_bytes"] != 4:
            topics.append(packet(stream, "PUBLISH", "sent"))
        assert {(one["topic"], one["payload_bytes"]) for one in topics} == {("a", 200_000), ("a", 4)}


def test_secrets_are_not_traced(ours, client):
    with tracing(ours, client.tenant, query="payload=true") as stream:
        client(password=b"correct horse", will=wire.Will("w", b"will"))
        assert "connected" == stream.event()[0] and packet(stream, "CONNACK", "sent")


def test_a_flood_is_counted(ours, client):
    one = client()
    with tracing(ours, client.tenant, query="rate=5") as stream:
        stream.next("present")
        for n in range(2_000):
            one.publish("a", f"{n}".encode())
        seen = skipped = 0
        while seen + skipped < 2_000:
            kind, data = stream.event()
            seen += kind == "packet"
            skipped += data.get("packets", 0)
        assert seen + skipped == 2_000 and 5 <= seen < 100, (seen, skipped)


def test_one_who_does_not_read_costs_no_memory(ours, client):
    one = client()
    before = ours.memory()
    with tracing(ours, client.tenant, query="rate=10000&payload=true"):
        for _ in range(3_000):
            one.publish("a", b"x" * 15_000)
        one.ping()
        assert ours.memory() - before < 24 * 1024 * 1024


def test_a_trace_has_bounds(ours, client):
    for query, expected in [("rate=0", "rate must be"), ("rate=10001", "rate must be"), ("x=1", "unknown field"), ("payload=maybe", "payload")]:
        with tracing(ours, client.tenant, query=query) as refused:
            assert expected in refused.refusal(400)
    with tracing(ours, "nobody") as refused:
        refused.refusal(404)


def test_two_operators_follow_the_same_client(ours, client):
    one = client()
    with tracing(ours, client.tenant) as first:
        first.next("present")
        with tracing(ours, client.tenant, query="payload=true") as second:
            second.next("present")
            one.publish("a", b"both")
            assert "payload" not in packet(first, "PUBLISH", "received")
            assert packet(second, "PUBLISH", "received")["payload"] == "both"
        one.publish("b")
        assert packet(first, "PUBLISH", "received")["topic"] == "b"
    with tracing(ours, client.tenant) as third:
        third.next("present")
        one.publish("c")
        assert packet(third, "PUBLISH", "received")["topic"] == "c"


def test_other_tenants_are_not_traced(ours, client):
    other = wire.Client(ours.address)
    other.connect("dev", username=f"{client.tenant}-2/u")
    with tracing(ours, client.tenant) as stream:
        other.publish("a", b"theirs")
        other.ping()
        other.drop()
        client()
        stream.next("connected")


def bus(broker) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        f"Endpoint=sb://127.0.0.1:{broker.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
        "UseDevelopmentEmulator=true;")


def test_frames_of_amqp(ours, admin_names):
    queue = admin_names("q")
    with bus(ours) as service, service.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("first"))
        # Python's SDK has a container id for each connection.
        listed = json.loads(ours.http("/v1/tenants/default/clients?protocol=amqp&limit=1000")[1])["clients"]
        name = max(listed, key=lambda one: one["connection"])["client"]
        with tracing(ours, "default", name, "payload=true") as stream:
            assert stream.next("present")["protocol"] == "AMQP 1.0"
            sender.send_messages(ServiceBusMessage("the body is not shown"))
            seen = {}
            while "disposition" not in seen:
                data = stream.next("packet")
                seen.setdefault(data["packet"], data)
            transfer, disposition = seen["transfer"], seen["disposition"]
            assert transfer["direction"] == "received" and transfer["fields"]["payload_bytes"] > 20
            assert (disposition["direction"], disposition["fields"]["state"]) == ("sent", "accepted")
            assert "the body" not in json.dumps(seen)
            with service.get_queue_receiver(queue) as receiver:
                assert len(receiver.receive_messages(2, max_wait_time=5)) == 2


def test_a_client_of_amqp_is_traced_when_it_has_shown_its_token(ours, admin_names):
    queue, container = admin_names("q"), f"service-{uuid.uuid4().hex}"
    with tracing(ours, "default", container) as stream:
        with bus(ours) as service, service.get_queue_receiver(queue, client_identifier=container) as receiver:
            receiver.peek_messages()
            assert stream.next("connected")["protocol"] == "AMQP 1.0"
            seen = []
            while not seen or (seen[-1]["packet"], seen[-1]["direction"]) != ("attach", "sent"):
                seen.append(stream.next("packet"))
            named = {(one["packet"], one["direction"]): one["fields"] for one in seen}
            assert named["attach", "received"]["source"].endswith(queue) and named["attach", "sent"]["role"] == "sender"
            assert not any(one["packet"] == "SASL" or "$cbs" in json.dumps(one) for one in seen)
        while stream.event()[0] != "disconnected":
            pass


@pytest.fixture
def admin_names(ours):
    """Makes queues."""
    def make(prefix: str) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        made = subprocess.run([BINARY, "queue", "create", name, "--admin", f"127.0.0.1:{ours.admin_port}"], capture_output=True, text=True, timeout=30)
        assert made.returncode == 0, made.stderr
        return name
    return make


def test_the_command(ours, client):
    one = client()

    def trace(*words: str) -> tuple[subprocess.Popen, list[str]]:
        command = [BINARY, *words, "--tenant", client.tenant, "--admin", f"127.0.0.1:{ours.admin_port}"]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = [running.stdout.readline()]
        return running, lines

    def rest(running: subprocess.Popen, lines: list[str]) -> list[str]:
        timer = threading.Timer(20, running.kill)
        timer.start()
        lines += running.stdout.readlines()
        assert running.wait() == 0
        timer.cancel()
        return lines

    running = trace("trace", "--client", "dev", "-n", "2")
    one.publish("a\x1b]0;b", b"x", qos=1)
    first, publish, puback = rest(*running)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} = is connected with MQTT 5\.0 from 127.0.0.1:\d+, connection \d+\n", first)
    assert re.fullmatch(r'\d\d:\d\d:\d\d\.\d{3} > PUBLISH +\d+ B  topic="a\\u001b\]0;b"  qos=1  packet_id=1  payload_bytes=1\n', publish), publish
    assert re.search(r' < PUBACK +\d+ B  packet_id=1  reason="', puback), puback
    running = trace("client", "trace", "dev", "--for", "3s", "--json", "--payload")
    one.publish("b", b"shown")
    events = [json.loads(line) for line in rest(*running)]
    assert [one["event"] for one in events] == ["present", "packet"] and events[1]["fields"]["payload"] == "shown"
