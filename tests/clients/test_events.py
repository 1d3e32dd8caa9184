"""What happens in the broker: server-sent events of the admin API, and `barid events`."""

from __future__ import annotations

import json
import subprocess
import urllib.request
import uuid

import pytest

import wire
from broker import BINARY
from events import following

pytestmark = pytest.mark.one_broker


def change(broker, method: str, path: str, body: dict | None = None, token: str | None = None) -> dict:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    asked = urllib.request.Request(f"http://127.0.0.1:{broker.admin_port}{path}", json.dumps(body).encode() if body else None, headers,
                                   method=method)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.loads(answer.read() or b"{}")


@pytest.fixture
def tenant() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def client(ours, tenant):
    clients = []

    def connect(client_id: str, of: str = tenant, version: int = wire.V5) -> wire.Client:
        clients.append(wire.Client(ours.address, version))
        clients[-1].connect(client_id, username=f"{of}/u")
        return clients[-1]

    yield connect
    for one in clients:
        one.drop()


def test_clients_come_and_go(ours, tenant, client):
    with following(ours, f"/v1/events?tenant={tenant}") as stream:
        assert stream.greeting == "listening"
        client("elsewhere", f"{tenant}-2")
        one = client("a<b>", version=wire.V311)
        host, port = one.stream.getsockname()
        connected = stream.next("connected")
        assert connected.pop("at").startswith("20") and connected.pop("connection") > 0
        assert connected == {"tenant": tenant, "client": "a<b>", "user": None, "protocol": "MQTT 3.1.1", "address": f"{host}:{port}"}
        one.disconnect()
        assert stream.next("disconnected")["reason"] == "the client disconnected"
        two = client("two")
        stream.next("connected")
        client("two")
        # The old connection learns of its end a moment after the new one has begun.
        again = [stream.event() for _ in range(2)]
        assert sorted(kind for kind, _ in again) == ["connected", "disconnected"]
        (ended,) = (data for kind, data in again if kind == "disconnected")
        assert ended["reason"] == "Session taken over"
        two.drop()


def test_kinds(ours, tenant, client):
    with following(ours, f"/v1/events?tenant={tenant}&kinds=disconnected,changed") as stream:
        client("one").disconnect()
        assert stream.next("disconnected")["client"] == "one"
        change(ours, "PUT", f"/v1/tenants/{tenant}", {"limits": {"max_sessions": 9}})
        changed = stream.next("changed")
        assert (changed["kind"], changed["name"], changed["tenant"]) == ("tenant", tenant, tenant)
        change(ours, "POST", "/v1/bans", {"client": "x", "tenant": tenant})
        assert stream.next("changed")["kind"] == "ban"


def test_denials_and_shards(broker_with):
    from running import hashed
    running = broker_with(hashed("secret", "acme/ada"))
    with following(running, "/v1/events?kinds=denied,shard") as stream:
        thief = wire.Client(running.address)
        thief.send(wire.connect("thief", username="acme/ada", password=b"hunter2"))
        denied = stream.next("denied")
        assert (denied["tenant"], denied["action"], denied["user"], denied["client"]) == ("acme", "login", "acme/ada", "thief")
        assert "hunter2" not in json.dumps(denied)
        thief.drop()
        change(running, "PATCH", "/v1/shards/0", {"state": "closed"})
        assert stream.next("shard") | {"at": ""} == {"at": "", "shard": 0, "open": False}
        change(running, "PATCH", "/v1/shards/0", {"state": "open"})
        assert stream.next("shard")["open"] is True


def test_questions_that_make_no_sense_are_refused(ours):
    for query, expected in [("kinds=nothing", "there are connected, disconnected"), ("rate=0", "rate must be"), ("x=1", "unknown field")]:
        with following(ours, f"/v1/events?{query}") as refused:
            assert expected in refused.refusal(400)


def test_a_flood_is_counted(ours, tenant, client):
    with following(ours, f"/v1/events?tenant={tenant}&rate=5&kinds=disconnected") as stream:
        for n in range(200):
            client(f"c{n}").disconnect()
        seen = skipped = 0
        while seen + skipped < 200:
            kind, data = stream.event()
            seen += kind == "disconnected"
            skipped += data.get("events", 0)
        assert seen + skipped == 200 and 5 <= seen < 190, (seen, skipped)


def test_a_token_of_a_tenant_hears_of_this_tenant_only(broker_with):
    running = broker_with("")
    admin = change(running, "POST", "/v1/tokens", {"role": "admin"})["token"]
    theirs = change(running, "POST", "/v1/tokens", {"role": "viewer", "tenant": "acme"}, admin)["token"]
    with following(running, "/v1/events?tenant=globex", theirs) as refused:
        refused.refusal(403)
    with following(running, "/v1/events", theirs) as stream:
        change(running, "PATCH", "/v1/shards/0", {"state": "closed"}, admin)
        change(running, "PATCH", "/v1/shards/0", {"state": "open"}, admin)
        clients = []
        for tenant in ("globex", "acme"):
            clients.append(wire.Client(running.address))
            clients[-1].connect("one", username=f"{tenant}/u")
        assert stream.next("connected")["tenant"] == "acme"
        for one in clients:
            one.drop()


def test_the_command(ours, tenant, client):
    client("first")

    def events(*words: str) -> subprocess.Popen:
        command = [BINARY, "events", "--tenant", tenant, "--admin", f"127.0.0.1:{ours.admin_port}", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    running = events("-n", "1", "--kind", "disconnected")
    while running.poll() is None:
        client("one").disconnect()
    (line,) = running.stdout.read().splitlines()
    assert "disconnected" in line and "  client=one" in line and 'reason="the client disconnected"' in line
    running = events("--json", "-n", "1")
    while running.poll() is None:
        client("one").disconnect()
    event = json.loads(running.stdout.read())
    assert event["event"] in ("connected", "disconnected") and event["client"] == "one"
