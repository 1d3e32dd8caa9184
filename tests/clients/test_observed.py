"""Messages as they pass: server-sent events of the admin API."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
import urllib.request
import uuid

import pytest

import wire
from broker import until
from events import following

pytestmark = pytest.mark.one_broker


def observing(broker, tenant: str, query: str, token: str | None = None, waits: bool = True):
    return following(broker, f"/v1/tenants/{tenant}/messages?{query}", token, waits)


@contextlib.contextmanager
def connected(broker, tenant: str):
    """A client of a tenant, which exists as long as it has one."""
    client = wire.Client(broker.address)
    try:
        client.connect("publisher", username=f"{tenant}/u")
        client.tenant = tenant
        yield client
    finally:
        client.drop()


@pytest.fixture
def tenant(ours):
    """A tenant of its own, with a client that is connected."""
    with connected(ours, uuid.uuid4().hex[:12]) as client:
        yield client


def post(broker, tenant: str, **message) -> None:
    asked = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}/v1/tenants/{tenant}/publish",
                                   json.dumps(message).encode(), method="POST")
    urllib.request.urlopen(asked, timeout=10).close()


def get(broker, path: str) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin_port}{path}", timeout=10) as answer:
        return json.loads(answer.read())


def test_messages_that_match_come_in_order_with_their_properties(ours, tenant):
    of = tenant.tenant
    with observing(ours, of, "filter=a/%23") as stream:
        post(ours, of, topic="b", payload="not observed")
        post(ours, of, topic="a/1", payload="één", qos=1, retain=True, content_type="text/plain", expiry_seconds=60,
             response_topic="r", correlation_data_base64="AQI=", user_properties=[["by", "ada"], ["by", "bob"]])
        tenant.publish("a/2", b"\xff\x00")
        tenant.publish("a/3", b"x" * 16_383 + "é".encode() + b"y")
        first = stream.message()
        assert first.pop("expires_in") in (59, 60)
        assert first == {"topic": "a/1", "retain": True, "payload_bytes": 5, "payload_is_cut": False, "payload": "één",
                         "content_type": "text/plain", "response_topic": "r", "correlation_data_base64": "AQI=",
                         "user_properties": [["by", "ada"], ["by", "bob"]]}
        second, third = stream.message(), stream.message()
        assert (second["topic"], second["payload_base64"]) == ("a/2", "/wA=") and "payload" not in second
        assert (third["payload_bytes"], third["payload_is_cut"], third["payload"]) == (16_386, True, "x" * 16_383)


def test_names_and_payloads_cannot_forge_events(ours, tenant):
    forged = "\n\nevent: message\ndata: {}\r\n\r\u2028<script>"
    with observing(ours, tenant.tenant, "filter=%23") as stream:
        post(ours, tenant.tenant, topic="a<b>", payload=forged)
        post(ours, tenant.tenant, topic="end", payload="")
        one, end = stream.message(), stream.message()
        assert (one["topic"], one["payload"], end["topic"]) == ("a<b>", forged, "end")


def test_other_tenants_are_not_observed(ours, tenant):
    with connected(ours, f"{tenant.tenant}-2") as other, observing(ours, tenant.tenant, "filter=%23") as stream:
        other.publish("a", b"theirs")
        post(ours, other.tenant, topic="a", payload="theirs")
        post(ours, tenant.tenant, topic="a", payload="ours")
        assert stream.message()["payload"] == "ours"


def test_a_flood_is_counted_and_not_sent(ours, tenant):
    with observing(ours, tenant.tenant, "filter=%23&rate=10") as stream:
        for n in range(2_000):
            tenant.publish("a", f"{n}".encode())
        messages, skipped, last = 0, 0, time.monotonic() + 20
        while messages + skipped < 2_000 and time.monotonic() < last:
            kind, data = stream.event()
            if kind == "message":
                messages += 1
            else:
                skipped += data["messages"]
        assert messages + skipped == 2_000 and 10 <= messages < 100, (messages, skipped)


def test_a_stream_leaves_nothing_behind(ours, tenant):
    of = tenant.tenant
    receivers = f"/v1/tenants/{of}/receivers?topic=a"
    with observing(ours, of, "filter=%2B"):
        [session] = get(ours, receivers)["sessions"]
        assert session["client"].startswith("$observer-")
        assert [one["client"] for one in get(ours, f"/v1/tenants/{of}/clients")["clients"]] == ["publisher"]
    until(lambda: not get(ours, receivers)["sessions"], 10)
    # One who goes without a word, while messages come.
    raw = socket.create_connection(("127.0.0.1", ours.admin_port), timeout=5)
    raw.sendall(f"GET /v1/tenants/{of}/messages?filter=%23 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    until(lambda: get(ours, receivers)["sessions"], 10)
    raw.close()
    until(lambda: tenant.publish("a", b"x" * 1_000) or not get(ours, receivers)["sessions"], 10)


def test_one_who_does_not_read_costs_no_memory(ours, tenant):
    before = ours.memory()
    with observing(ours, tenant.tenant, "filter=%23&rate=10000"):
        for _ in range(3_000):
            tenant.publish("a", b"x" * 15_000)
        post(ours, tenant.tenant, topic="end", payload="")
        # 45 MB have passed.
        assert ours.memory() - before < 24 * 1024 * 1024


def test_there_are_bounds(ours, tenant):
    of = tenant.tenant
    for query, expected in [("", "missing field `filter`"), ("filter=", "cannot observe"), ("filter=a%23", "cannot observe"),
                            ("filter=$share/g/a", "shared subscription"), ("filter=a&rate=0", "rate must be"),
                            ("filter=a&rate=10001", "rate must be"), ("filter=a&x=1", "unknown field")]:
        with observing(ours, of, query) as refused:
            assert refused.answer.status == 400 and expected in json.loads(refused.answer.read())["error"], query
    with contextlib.ExitStack() as all_:
        def one_more() -> int:
            return all_.enter_context(observing(ours, of, "filter=a", waits=False)).answer.status
        opened = [one_more() for _ in range(17)]
        assert opened.count(503) >= 1 and opened[-1] == 503 and opened.count(200) >= 10, opened
        assert get(ours, f"/v1/tenants/{of}/sessions")["sessions"], "other requests are answered"


def test_a_revoked_token_ends_the_stream(broker_with):
    broker = broker_with("")
    from running import barid

    def make(*arguments: str) -> str:
        made = barid("token", "create", *arguments, "--admin", f"127.0.0.1:{broker.admin_port}")
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    with connected(broker, "default") as client:
        admin = make("--role", "admin")
        made = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}/v1/tokens", json.dumps({"role": "operator"}).encode(),
                                      {"Authorization": f"Bearer {admin}"}, method="POST")
        with urllib.request.urlopen(made, timeout=10) as answer:
            operator = json.loads(answer.read())
        with observing(broker, "default", "filter=a", operator["token"]) as stream:
            client.publish("a", b"1")
            assert stream.message()["payload"] == "1"
            revoke = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}/v1/tokens/{operator['id']}",
                                            headers={"Authorization": f"Bearer {admin}"}, method="DELETE")
            urllib.request.urlopen(revoke, timeout=10).close()
            with pytest.raises((EOFError, http.client.HTTPException, ConnectionError)):
                for _ in range(100):
                    stream.line()
