"""The admin API does what `/v1/openapi.json` says. Answers that other tests get are compared with it as well: `contract.py`."""

from __future__ import annotations

import http.client
import json
import re

import pytest
from azure.servicebus import ServiceBusClient
from openapi_spec_validator import validate

import contract
import wire
from broker import Broker, free_port
from brokers import Cluster
from running import barid

CONFIGURATION = f"""
[cluster]
name = "c"
broker = "b"
listen = "127.0.0.1:{{port}}"
secret = "{'s' * 16}"
homes = ["b"]
"""


@pytest.fixture(scope="module")
def running():
    broker = Broker(CONFIGURATION.format(port=free_port()))
    yield broker
    broker.end()


def ask(broker, method: str, path: str, body: dict | None = None, head_only: bool = False):
    connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=15)
    connection.request(method, path, body=json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    text = b"" if head_only else answer.read()
    connection.close()
    if head_only:
        # A stream has no end.
        contract.contract().check(method, path, answer.status, answer.headers["Content-Type"], b"")
    assert answer.status < 300, (method, path, answer.status, text)
    return json.loads(text) if text.startswith(b"{") else text


def test_the_document_is_valid(running):
    document = ask(running, "GET", "/v1/openapi.json")
    validate(document)
    operations = [(path, method, operation) for path, item in document["paths"].items() for method, operation in item.items()]
    names = [operation["operationId"] for _, _, operation in operations]
    assert len(names) == len(set(names)) > 80
    for path, method, operation in operations:
        assert operation["summary"].endswith(".") and "`None`" not in operation["summary"], path
        assert set(re.findall(r"\{(\w+)\}", path)) == {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        unexplained = [parameter["name"] for parameter in operation["parameters"] if not parameter.get("description")]
        assert not unexplained, (method, path)
    roles = {(path, method): re.findall(r"role `(\w+)`", operation["description"]) for path, method, operation in operations}
    assert roles["/v1/tokens", "post"] == ["admin"] and roles["/v1/tenants/{tenant}/clients", "get"] == ["viewer"]
    assert roles["/healthz", "get"] == [] and roles["/v1/tenants/{tenant}/state/{key}", "get"] == ["operator"]


def test_every_operation_answers_as_described(running):
    contract.seen.clear()
    does = lambda *arguments, **named: ask(running, *arguments, **named)
    for path in ("/healthz", "/health", "/metrics", "/v1/requester", "/v1/broker", "/v1/history", "/v1/shards", "/v1/shards/0", "/v1/cluster",
                 "/v1/cluster/slots", "/v1/backup"):
        does("GET", path)
    does("PATCH", "/v1/shards/0", {"state": "open"})
    does("GET", "/v1/events", head_only=True)
    two = Cluster(2, homes=True)
    ask(two[1], "PATCH", "/v1/cluster/slots/0", {"broker": "b2"})
    ask(two[1], "GET", "/v1/tenants/default/routes")
    two.close()

    client = wire.Client(running.address)
    client.connect("sensor", username="globex/u", properties={"session_expiry_interval": 60}, will=wire.Will("gone", b"", qos=1))
    client.subscribe("a/#", "$share/g/a/+", qos=1)
    client.publish("a/b", b"\xff", qos=1, retain=True)
    globex = "/v1/tenants/globex"
    for path in ("/v1/tenants", f"{globex}/sessions", f"{globex}/sessions/sensor", f"{globex}/clients", f"{globex}/clients/sensor",
                 f"{globex}/receivers?topic=a/b", f"{globex}/retained", f"{globex}/retained/a%2Fb", f"{globex}/drops", f"{globex}/denials"):
        does("GET", path)
    does("GET", f"{globex}/clients/sensor/trace", head_only=True)
    does("GET", f"{globex}/messages?filter=%23", head_only=True)
    does("POST", f"{globex}/publish", {"topic": "a/c", "payload": "text", "user_properties": [["a", "b"]]})
    does("DELETE", f"{globex}/retained/a%2Fb")
    does("DELETE", f"{globex}/clients/sensor")
    client.drop()
    does("DELETE", f"{globex}/sessions/sensor")

    set_key = barid("state", "set", "k", "v", "--port", str(running.port))
    assert set_key.returncode == 0, set_key.stderr
    for path in ("/v1/tenants/default/state", "/v1/tenants/default/state/k"):
        does("GET", path)

    tenant = "/v1/tenants/default"
    does("PUT", f"{tenant}/queues/orders", {"MaxDeliveryCount": 3})
    does("PATCH", f"{tenant}/queues/orders", {"LockDuration": "PT5S"})
    does("PUT", f"{tenant}/queues/sessions", {"RequiresSession": True})
    does("PUT", f"{tenant}/topics/news", {})
    does("PATCH", f"{tenant}/topics/news", {"UserMetadata": "x"})
    subscription = f"{tenant}/topics/news/subscriptions/all"
    does("PUT", subscription, {})
    does("PATCH", subscription, {"MaxDeliveryCount": 4})
    does("PUT", f"{subscription}/rules/own", {"CorrelationFilter": {"Label": "x", "Properties": {"n": 1, "t": {"Timestamp": 5}}}})
    does("PUT", f"{tenant}/bindings/in", {"filter": "b/#", "queue": "orders"})
    does("PUT", f"{tenant}/bindings/out", {"from_queue": "orders", "publish": "out/{session}"})
    does("DELETE", f"{tenant}/bindings/out")
    for one in (f"{tenant}/queues/orders", subscription):
        send = one if "queues" in one else f"{tenant}/topics/news"
        does("POST", f"{send}/messages", {"body": "text", "subject": "s", "application_properties": {"n": 1, "t": True}})
        does("POST", f"{send}/messages", {"body_base64": "/w=="})
        for path in ("", "/messages", "/sessions"):
            does("GET", one + path)
        does("POST", f"{one}/messages/receive", {"limit": 1})
        does("POST", f"{one}/messages/resubmit", {"sequence_numbers": [1]})
        does("DELETE", f"{one}/messages")
    does("POST", f"{tenant}/queues/sessions/messages", {"body": "text", "session": "s1"})
    for path in ("/queues", "/topics", "/topics/news", "/topics/news/subscriptions", "/bindings", "/bindings/in", "/queues/sessions/sessions"):
        does("GET", tenant + path)
    for path in ("/rules", "/rules/own"):
        does("GET", subscription + path)

    bus = (f"Endpoint=sb://127.0.0.1:{running.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
           "UseDevelopmentEmulator=true;")
    with ServiceBusClient.from_connection_string(bus) as bus, bus.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(1, max_wait_time=0.5)
        one, = does("GET", f"{tenant}/amqp-connections")["connections"]
        does("DELETE", f"{tenant}/amqp-connections/{one['id']}")

    does("PUT", "/v1/tenants/acme", {"limits": {"max_sessions": 100}, "rules": [{"allow": ["publish", "subscribe"], "topics": ["#"]}]})
    does("PATCH", "/v1/tenants/acme", {"limits": {"queue_overflow": "drop-oldest"}})
    does("GET", "/v1/tenants/acme")
    does("DELETE", "/v1/tenants/acme")
    user = {"password": "secret", "publish": ["a/#"], "limits": {"max_connections": 3}, "note": "ours"}
    does("PUT", "/v1/users/acme/ada", user)
    for path in ("/v1/users", "/v1/users/acme/ada", "/v1/tenants/acme/users/ada", "/v1/tenants/acme/logins"):
        does("GET", path)
    does("PATCH", "/v1/users/acme/ada", {"disabled": True})
    does("POST", "/v1/logins/changed", {"user": "acme/ada"})
    does("DELETE", "/v1/users/acme/ada")
    ban = does("POST", "/v1/bans", {"address": "192.0.2.0/24", "for_seconds": 60})["id"]
    for path in ("/v1/bans", f"/v1/bans/{ban}"):
        does("GET", path)
    does("DELETE", f"/v1/bans/{ban}")
    for path in ("/bindings/in", "/topics/news/subscriptions/all/rules/own", "/topics/news/subscriptions/all", "/topics/news", "/queues/orders"):
        does("DELETE", tenant + path)
    # From the first token on, every request needs one.
    token = does("POST", "/v1/tokens", {"role": "admin", "note": "the last"})
    for method, path in (("GET", "/v1/tokens"), ("DELETE", f"/v1/tokens/{token['id']}")):
        connection = http.client.HTTPConnection("127.0.0.1", running.admin_port)
        connection.request(method, path, headers={"Authorization": f"Bearer {token['token']}"})
        assert connection.getresponse().read() is not None

    document = ask(running, "GET", "/v1/openapi.json")
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    answered = {(method, path) for method, path, status in contract.seen if status < 300}
    assert not described - answered
