"""Retained messages and publishing over the admin API, and `barid retained`."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
import uuid

import pytest

import wire
from broker import BINARY, until


def name() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def tenant(ours):
    """A tenant of its own, with a client that is connected."""
    of = name()
    one = wire.Client(ours.address)
    one.connect("publisher", username=f"{of}/u")
    one.tenant = of
    # Brokers tell each other four times a second which tenants they have.
    for broker in getattr(ours, "cluster", [ours]):
        until(lambda broker=broker: call(broker, f"/v1/tenants/{of}/retained")[0] == 200)
    yield one
    one.drop()


def call(broker, path: str, method: str = "GET", body: object = None) -> tuple[int, dict | None]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}{path}", data, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def barid(broker, *words: str) -> subprocess.CompletedProcess:
    command = [BINARY, "retained", *words, "--admin", f"127.0.0.1:{broker.admin_port}"]
    return subprocess.run(command, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)


def test_retained_messages_are_listed_by_filter_and_page(ours, tenant):
    path = f"/v1/tenants/{tenant.tenant}/retained"
    assert call(ours, path) == (200, {"messages": [], "next": None})
    topics = [f"plant/{number}/{what}" for number in range(10) for what in ("state", "time")]
    for topic in topics:
        tenant.publish(topic, topic.encode(), qos=1, retain=True)
    listed = lambda parameters: [one["topic"] for one in call(ours, f"{path}?{parameters}")[1]["messages"]]
    assert listed("") == topics and listed("filter=plant/%2B/time") == topics[1::2] and listed("filter=other/%23") == []
    found, after = [], ""
    while after is not None:
        _, page = call(ours, f"{path}?limit=3{after and '&after=' + after}")
        assert len(page["messages"]) <= 3
        found += page["messages"]
        after = page["next"]
    assert [one["topic"] for one in found] == topics
    assert found[0] == {"topic": "plant/0/state", "qos": 1, "payload_bytes": 13, "expires_at": None}
    for wrong in ("filter=a%23", "limit=0", "nothing=1"):
        assert call(ours, f"{path}?{wrong}")[0] == 400
    lines = barid(ours, "list", "plant/3/#", "--tenant", tenant.tenant).stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["TOPIC", "plant/3/state", "plant/3/time"]


def test_a_retained_message_is_shown_with_its_properties(ours, tenant):
    properties = {"content_type": "image/x", "response_topic": "r", "correlation_data": b"\1\2", "user_property": [("a", "1"), ("a", "2")],
                  "message_expiry_interval": 600}
    payload = bytes(range(256))
    tenant.publish("a/b c/ü", payload, qos=2, retain=True, properties=properties)
    status, found = call(ours, f"/v1/tenants/{tenant.tenant}/retained/a/b%20c/%C3%BC")
    assert status == 200 and found.pop("expires_at").startswith("20")
    assert found == {"topic": "a/b c/ü", "qos": 2, "payload_bytes": 256, "payload_base64": base64.b64encode(payload).decode(),
                     "content_type": "image/x", "response_topic": "r", "correlation_data_base64": "AQI=",
                     "user_properties": [["a", "1"], ["a", "2"]]}
    assert barid(ours, "get", "a/b c/ü", "--tenant", tenant.tenant).stdout == payload
    missing = barid(ours, "get", "a/b", "--tenant", tenant.tenant)
    assert missing.returncode != 0 and b"no retained message" in missing.stderr


def test_a_removed_message_does_not_come_back(broker_with):
    running = broker_with("")
    one = wire.Client(running.address)
    one.connect("publisher")
    watcher = wire.Client(running.address)
    watcher.connect("watcher")
    for topic in ("old/1", "old/2", "old/3", "new"):
        one.publish(topic, b"x", qos=1, retain=True)
    watcher.subscribe("#")
    assert len(watcher.receive_all(count=4)) == 4
    assert call(running, "/v1/tenants/default/retained/new", "DELETE") == (204, None)
    assert call(running, "/v1/tenants/default/retained/new", "DELETE")[0] == 404
    refused = barid(running, "delete", "old/#")
    assert refused.returncode != 0 and b"--yes" in refused.stderr
    assert barid(running, "delete", "old/1").stdout == b"removed 1 retained message\n"
    assert barid(running, "delete", "old/#", "--yes").stdout == b"removed 2 retained messages\n"
    watcher.expect_nothing()
    running.kill9()
    running.start()
    assert call(running, "/v1/tenants/default/retained") == (200, {"messages": [], "next": None})
    for client in (one, watcher):
        client.drop()


def test_a_message_is_published(ours, tenant):
    tenant.subscribe("plant/+/commands", qos=2)
    path = f"/v1/tenants/{tenant.tenant}/publish"
    sent = {"topic": "plant/4/commands", "payload": "ö", "qos": 2, "content_type": "text/plain", "response_topic": "answers",
            "correlation_data_base64": "AQI=", "expiry_seconds": 60, "user_properties": [["by", "ada"]]}
    status, told = call(ours, path, "POST", sent)
    assert status == 200 and told["sessions"] + len(told["brokers"]) == 1 and told["shared"] == 0
    found = tenant.receive()
    assert (found.topic, found.payload, found.qos, found.retain) == ("plant/4/commands", "ö".encode(), 2, False)
    assert found.properties.pop("message_expiry_interval") in (59, 60)
    assert found.properties == {"payload_format_indicator": 1, "content_type": "text/plain", "response_topic": "answers",
                                "correlation_data": b"\1\2", "user_property": [("by", "ada")]}
    assert call(ours, path, "POST", {"topic": "nobody", "payload_base64": "//8=", "retain": True}) == (200, {"sessions": 0, "shared": 0, "brokers": []})
    retained = f"/v1/tenants/{tenant.tenant}/retained/nobody"
    until(lambda: call(ours, retained)[1].get("payload_base64") == "//8=")
    assert call(ours, path, "POST", {"topic": "nobody", "retain": True})[0] == 200
    until(lambda: call(ours, retained)[0] == 404)


@pytest.mark.parametrize("wrong", [
    {"payload": "x"}, {"topic": "a/#"}, {"topic": ""}, {"topic": "$SYS/broker/x"}, {"topic": "a", "qos": 3}, {"topic": "a", "payload_base64": "?"},
    {"topic": "a", "payload": "x", "payload_base64": "eA=="}, {"topic": "a", "response_topic": "+"}, {"topic": "a", "more": 1},
    {"topic": "a", "content_type": "x" * 70_000}, {"topic": "a\0b"}])
def test_a_message_that_cannot_be_is_refused(ours, tenant, wrong):
    status, answer = call(ours, f"/v1/tenants/{tenant.tenant}/publish", "POST", wrong)
    assert status == 400 and answer["error"], answer


def test_what_is_published_is_stored_for_who_is_away(broker_with):
    running = broker_with("")
    one = wire.Client(running.address)
    one.connect("away", properties={"session_expiry_interval": 600})
    one.subscribe("jobs", qos=1)
    one.disconnect()
    assert call(running, "/v1/tenants/default/publish", "POST", {"topic": "jobs", "payload": "first"}) == (200, {"sessions": 1, "shared": 0, "brokers": []})
    running.kill9()
    running.start()
    one = wire.Client(running.address)
    assert one.connect("away", clean=False).session_present
    assert one.receive().payload == b"first"
    one.drop()

