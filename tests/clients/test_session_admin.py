"""What an operator can see and do of sessions and drops: the admin API, and `barid session` and `barid why` on top of it."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

import wire
from broker import until
from running import barid


class Api:
    """The admin API of a broker, for one tenant."""

    def __init__(self, broker, tenant: str):
        self.port, self.tenant = broker.admin_port, tenant

    def ask(self, method: str, path: str) -> tuple[int, dict | None]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert not body or answer.headers["Content-Type"] == "application/json", body
        return answer.status, json.loads(body) if body else None

    def get(self, path: str) -> dict:
        status, body = self.ask("GET", f"/v1/tenants/{quote(self.tenant, safe='')}/{path}")
        assert status == 200, body
        return body

    def session(self, client: str) -> dict:
        return self.get(f"sessions/{quote(client, safe='')}")

    def drops(self, **question) -> dict:
        return self.get("drops?" + "&".join(f"{name}={quote(str(value), safe='')}" for name, value in question.items()))


@pytest.fixture
def tenant(unique) -> str:
    return unique("ten")


@pytest.fixture
def api(broker, tenant) -> Api:
    return Api(broker, tenant)


@pytest.fixture
def tool(broker, tenant):
    """Runs `barid COMMAND… --admin … --tenant …`."""
    return lambda *arguments: barid(*arguments, "--admin", f"127.0.0.1:{broker.admin_port}", "--tenant", tenant)


@pytest.fixture
def away(paho, tenant):
    """Makes a session with a subscription, whose client has gone; the client identifier."""
    def leave(client: str, topic: str, qos: int = 1, expiry: int = 600) -> str:
        one = paho(client, tenant=tenant, clean=False, SessionExpiryInterval=expiry)
        one.subscribe(topic, qos)
        one.leave()
        return client

    return leave


def moment(text: str) -> float:
    """Seconds since 1970 of a time as the API writes it: UTC, with milliseconds."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()


# ------------------------------------------------------------------------------------------------------ tenants

@pytest.mark.one_broker
def test_tenants(api, paho, tenant, topic):
    paho(tenant=tenant).publish(topic, b"x", 1, retain=True)
    ours = [one for one in api.ask("GET", "/v1/tenants")[1]["tenants"] if one["name"] == tenant]
    assert all("rates" in one and not one.update(rates=None) for one in ours), "they come with the history"
    assert ours == [{"name": tenant, "sessions": 1, "connections": 1, "retained_messages": 1, "rates": None,
                     "has_settings": False, "quotas": {}}]


# ------------------------------------------------------------------------------------------------------ sessions

def test_a_session_whose_client_is_connected(api, paho, tenant, unique):
    client, left = unique("on"), unique("w")
    one = paho(client, tenant=tenant, SessionExpiryInterval=600, will={"topic": left, "payload": b"gone", "qos": 1})
    one.subscribe("b/+", 2, identifier=7, noLocal=True)
    one.subscribe("a/#", 0, retainAsPublished=True)
    session = api.session(client)
    assert session | {"durability": None} == {
        "client": client, "connected": True, "protocol": "5.0", "user": None, "durability": None,
        "expiry_seconds": 600, "expires_at": None,
        "subscriptions": [
            {"filter": "a/#", "qos": 0, "no_local": False, "retain_as_published": True, "identifier": None},
            {"filter": "b/+", "qos": 2, "no_local": True, "retain_as_published": False, "identifier": 7},
        ],
        "queued_messages": 0, "queued_bytes": 0, "oldest_queued_at": None, "in_flight": 0, "unreleased": 0,
        "will": {"topic": left, "delay_seconds": 0},
    }


def test_a_session_whose_client_is_away(api, paho, away, tenant, topic, unique):
    client = away(unique("off"), topic)
    before = time.time()
    publisher = paho(tenant=tenant)
    for _ in range(3):
        publisher.publish(topic, bytes(1000), 1)
    session = api.session(client)
    assert (session["connected"], session["protocol"], session["will"]) == (False, None, None)
    assert session["durability"] in ("local", "memory")
    assert session["queued_messages"] == 3 and 3000 <= session["queued_bytes"] < 4000
    assert abs(moment(session["oldest_queued_at"]) - before) < 5
    assert abs(moment(session["expires_at"]) - before - 600) < 5


def test_a_session_that_never_expires(api, away, topic, unique):
    session = api.session(away(unique("ever"), topic, expiry=0xFFFFFFFF))
    assert (session["expiry_seconds"], session["expires_at"]) == (None, None)


@pytest.mark.one_broker
def test_qos_2_on_the_way(api, connect, tenant, topic, unique):
    """In flight to a client that does not answer; received from a client that has not released."""
    receiver, sender = unique("r"), unique("s")
    deaf, slow = connect(client_id=receiver, tenant=tenant), connect(client_id=sender, tenant=tenant)
    deaf.subscribe((topic, 2))
    slow.send(b"\x34" + bytes([5 + len(topic)]) + len(topic).to_bytes(2) + topic.encode() + b"\x00\x01" + b"\x00")
    until(lambda: api.session(receiver)["in_flight"] == 1)
    assert api.session(sender)["unreleased"] == 1


@pytest.mark.one_broker
def test_sessions_are_listed_in_order_a_page_at_a_time(api, paho, away, tenant, topic):
    names = [f"n{number:02}" for number in range(25)]
    for name in reversed(names):
        away(name, topic)
    paho("n07", tenant=tenant, clean=False)
    seen, after, pages = [], "", 0
    while after is not None:
        page = api.get(f"sessions?limit=10&after={after}")
        assert len(page["sessions"]) <= 10
        seen += [session["client"] for session in page["sessions"]]
        after, pages = page["next"], pages + 1
    assert (seen, pages) == (names, 3)
    assert page["sessions"][0]["subscriptions"] == 1
    assert [session["client"] for session in api.get("sessions?connected=true")["sessions"]] == ["n07"]
    assert len(api.get("sessions?connected=false")["sessions"]) == 24
    assert api.get("sessions?limit=25")["next"] is None


@pytest.mark.one_broker
@pytest.mark.parametrize("client", ["a/b", "ä ö", "50%", "..", "a?b=c&d#e", "'\"\\", "+"])
def test_any_client_identifier_can_be_asked_for(api, tool, away, topic, client):
    away(client, topic)
    assert api.session(client)["client"] == client
    assert api.get(f"sessions?after={quote(client[:-1], safe='')}")["sessions"][0]["client"] == client
    assert json.loads(tool("session", "show", client, "--json").stdout)["client"] == client
    assert tool("session", "drop", client).returncode == 0
    assert api.get("sessions")["sessions"] == []


@pytest.mark.one_broker
def test_ending_a_session(api, paho, away, tenant, topic, unique):
    """The connection is closed with 0x98 Administrative action; what waited is dropped and counted; nothing is left."""
    online, offline, watcher = unique("on"), unique("off"), paho(tenant=tenant)
    gone = unique("will")
    watcher.subscribe(gone, 1)
    client = paho(online, tenant=tenant, SessionExpiryInterval=600, will={"topic": gone, "payload": b"bye", "qos": 1})
    client.subscribe(topic, 1)
    away(offline, topic)
    watcher.publish(topic, b"x", 1)
    client.receive()
    path = f"/v1/tenants/{tenant}/sessions/"
    for one in (online, offline):
        assert api.ask("DELETE", path + one) == (204, None)
        assert api.ask("GET", path + one)[0] == 404
        assert api.ask("DELETE", path + one)[0] == 404
    assert client.disconnected.get(timeout=15) == 0x98
    assert watcher.receive().payload == b"bye"
    assert api.drops()["totals"]["session_ended"] == 1
    assert not paho(offline, tenant=tenant, clean=False, SessionExpiryInterval=600).session_present


@pytest.mark.one_broker
def test_who_talks_while_the_session_is_ended(api, connect, tenant, unique, topic):
    """Hears the true reason, whatever it was about to say. Now and then it hears none: if the broker was writing to it at that
    moment, a packet may have been cut off, and nothing may follow."""
    silent = 0
    for _ in range(20):
        client_id = unique("busy")
        client = connect(client_id=client_id, tenant=tenant)
        talking = threading.Event()

        def talk(client=client, talking=talking):
            try:
                while True:
                    client.send(wire.publish(topic, b"x") * 100)
                    talking.set()
            except OSError:
                pass  # closed

        talker = threading.Thread(target=talk)
        talker.start()
        talking.wait()
        # It listens before the request is sent: the broker reads what a closed connection sends for 2 s only.
        with ThreadPoolExecutor(1) as listener:
            heard = listener.submit(client.expect, wire.DISCONNECT)
            assert api.ask("DELETE", f"/v1/tenants/{tenant}/sessions/{client_id}") == (204, None)
            try:
                assert heard.result().reason == 0x98
            except wire.Closed:
                silent += 1
        client.drop()
        talker.join()
    assert silent < 4


@pytest.mark.parametrize(("method", "path", "status", "says"), [
    ("GET", "/v1/nothing", 404, "GET /"),
    ("POST", "/v1/tenants", 405, "POST"),
    ("DELETE", "/v1/tenants/default/sessions", 405, "DELETE"),
    ("GET", "/v1/tenants/none-such/sessions", 404, "none-such"),
    ("GET", "/v1/tenants/default/sessions/none-such", 404, "none-such"),
    ("DELETE", "/v1/tenants/default/sessions/none-such", 404, "none-such"),
    ("GET", "/v1/tenants/default/sessions?limit=x", 400, "limit"),
    ("GET", "/v1/tenants/default/sessions?limit=0", 400, "limit"),
    ("GET", "/v1/tenants/default/sessions?limit=99999999999", 400, "limit"),
    ("GET", "/v1/tenants/default/sessions?conected=true", 400, "conected"),
    ("GET", "/v1/tenants/default/sessions/%FF", 400, "UTF-8"),
    ("GET", "/v1/tenants/none-such/drops", 404, "none-such"),
    ("GET", "/v1/tenants/default/drops?reason=magic", 400, "queue_messages"),
    ("GET", "/v1/tenants/default/drops?topic=a%23", 400, "#"),
])
def test_a_refusal_is_a_status_and_a_sentence(broker, method, path, status, says):
    answered, body = Api(broker, "default").ask(method, path)
    assert answered == status and list(body) == ["error"] and says in body["error"], body


# ------------------------------------------------------------------------------------------------------ drops

@pytest.mark.one_broker
def test_a_drop_is_remembered_with_time_topic_client_and_reason(api, paho, away, tenant, topic, unique):
    client, small, other = away(unique("off"), topic, qos=0), unique("small"), unique("t")
    before = time.time()
    paho(small, tenant=tenant, MaximumPacketSize=100).subscribe(other, 1)
    publisher = paho(tenant=tenant)
    publisher.publish(topic, b"x", 1)
    publisher.publish(other, bytes(200), 1)
    until(lambda: len(api.drops()["drops"]) == 2)
    newest, oldest = api.drops()["drops"]
    assert (oldest["topic"], oldest["client"], oldest["reason"]) == (topic, client, "offline")
    assert (newest["topic"], newest["client"], newest["reason"]) == (other, small, "packet_too_large")
    assert before - 1 < moment(oldest["at"]) <= moment(newest["at"]) < time.time() + 1
    assert "QoS 1" in oldest["explanation"] and "Maximum Packet Size" in newest["explanation"]
    everything = api.drops()
    assert everything["remembered"] == 2
    assert (everything["totals"]["offline"], everything["totals"]["packet_too_large"], everything["totals"]["expired"]) == (1, 1, 0)

    def found(**question) -> list[str]:
        return [drop["reason"] for drop in api.drops(**question)["drops"]]

    assert found(client=client) == found(topic=topic) == found(reason="offline") == ["offline"]
    assert found(limit=1) == ["packet_too_large"]
    assert found(topic="#") == ["packet_too_large", "offline"]
    assert found(client=client, topic=other) == []


@pytest.mark.one_broker
def test_the_last_thousand_drops_are_remembered(api, paho, away, tenant, topic, unique):
    away(unique("off"), topic, qos=0)
    publisher = paho(tenant=tenant)
    for number in range(1100):
        publisher.publish(topic, b"x", 1, wait=number == 1099)
    until(lambda: api.drops()["totals"]["offline"] == 1100)
    recent = api.drops(limit=5000)
    assert len(recent["drops"]) == recent["remembered"] == 1024
    assert len(api.drops()["drops"]) == 100


# ------------------------------------------------------------------------------------------------------ the tools

@pytest.mark.one_broker
def test_session_list_is_a_table(tool, paho, away, tenant, topic, unique):
    online, offline = unique("a"), unique("b")
    paho(online, tenant=tenant).subscribe("other", 1)
    away(offline, topic)
    paho(unique("z"), tenant=tenant).publish(topic, bytes(2000), 1)
    title, first, second, *_ = tool("session", "list").stdout.splitlines()
    assert title.split()[:4] == ["CLIENT", "CONNECTED", "QUEUED", "BYTES"]
    assert first.split()[:4] == [online, "MQTT", "5.0", "0"]
    assert second.split()[:5] == [offline, "no", "1", "2.2", "KiB"]
    assert "with its connection" in first and ("in 9m" in second or "in 10m" in second)
    assert offline not in tool("session", "list", "--connected").stdout
    assert online not in tool("session", "list", "--away").stdout
    assert "more" in tool("session", "list", "--limit", "1").stdout
    listed = json.loads(tool("session", "list", "--json", "--limit", "2").stdout)
    assert [session["client"] for session in listed["sessions"]] == [online, offline] and listed["next"] == offline


def test_what_clients_have_written_does_not_steer_the_terminal(tool, away, unique):
    client = away(unique("c"), "\x1b[31m/\x9b1m/\x7f")
    shown = tool("session", "show", client).stdout + tool("why", "--client", client).stdout
    assert "[31m" in shown
    assert not [character for character in shown if ord(character) < 32 and character != "\n" or 0x7F <= ord(character) < 0xA0]


def test_session_show_and_drop(tool, paho, away, tenant, topic, unique):
    client = away(unique("off"), topic)
    paho(tenant=tenant).publish(topic, bytes(2000), 1)
    shown = tool("session", "show", client).stdout
    assert client in shown and topic in shown and "1 message, 2.2 KiB" in shown
    dropped = tool("session", "drop", client)
    assert dropped.returncode == 0 and "1 subscription and 1 waiting message are gone" in dropped.stdout
    for command in ("show", "drop"):
        missing = tool("session", command, client)
        assert missing.returncode == 1 and client in missing.stderr


def test_without_a_broker_it_says_what_to_do(tmp_path):
    done = barid("session", "list", "--admin", "127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr and "--admin" in done.stderr and "panicked" not in done.stderr


@pytest.mark.parametrize(("status", "body"), [(404, b"<html>"), (200, b"<html>"), (200, b'{"sessions": [7], "next": null}'), (500, b"")])
def test_another_server_is_not_taken_for_barid(status, body):
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = barid("session", "list", "--admin", f"127.0.0.1:{server.server_port}")
        server.shutdown()
    assert done.returncode == 1
    assert "like the admin address of this version" in done.stderr, done.stderr


@pytest.mark.one_broker
class TestWhy:
    """Each way in which a message can go is answered."""

    def test_it_was_dropped(self, tool, paho, away, tenant, topic, unique):
        client = away(unique("off"), topic, qos=0)
        paho(tenant=tenant).publish(topic, b"x", 1)
        said = tool("why", "--client", client).stdout
        assert "offline" in said and topic in said and "publish and subscribe with QoS 1 or 2" in said
        answer = json.loads(tool("why", "--client", client, "--topic", topic, "--json").stdout)
        assert answer["drops"]["drops"][0]["topic"] == topic and answer["session"]["client"] == client
        assert any("with QoS 0 nothing is kept" in sentence for sentence in answer["answer"])

    def test_there_is_no_session(self, tool, paho, tenant, unique):
        paho(tenant=tenant)
        said = tool("why", "--client", unique("no")).stdout
        assert "no session" in said and "Session Expiry Interval" in said

    def test_it_is_another_tenants(self, tool, paho, tenant, unique):
        client, other = unique("c"), unique("oth")
        paho(client, tenant=other)
        assert f"--tenant {other}" in tool("why", "--client", client).stdout

    def test_its_name_is_misspelt(self, tool, paho, tenant, unique):
        client = unique("c")
        paho(client, tenant=tenant)
        assert f"Of these there is one: {client}." in tool("why", "--client", client[:-1]).stdout

    def test_it_has_not_subscribed(self, tool, paho, tenant, unique):
        client = unique("c")
        paho(client, tenant=tenant)
        assert "no subscriptions" in tool("why", "--client", client).stdout

    def test_no_filter_matches(self, tool, paho, tenant, unique):
        client = unique("c")
        paho(client, tenant=tenant).subscribe("Plant/+/temperature", 1)
        said = tool("why", "--client", client, "--topic", "plant/4/temperature").stdout
        assert "None of its subscriptions matches plant/4/temperature: Plant/+/temperature" in said and "lower case" in said

    def test_it_waits(self, tool, paho, away, tenant, topic, unique):
        client = away(unique("off"), topic)
        paho(tenant=tenant).publish(topic, b"x", 1)
        said = tool("why", "--client", client, "--topic", topic).stdout
        assert "remembers no message" in said and "not connected. 1 message " in said

    def test_it_was_not_acknowledged(self, tool, api, connect, tenant, topic, unique):
        client = unique("c")
        connect(client_id=client, tenant=tenant).subscribe((topic, 1))
        connect(tenant=tenant).publish(topic, b"x", 1)
        until(lambda: api.session(client)["in_flight"] == 1)
        assert "1 message has been sent to it, and it has not acknowledged it" in tool("why", "--client", client).stdout

    def test_it_was_delivered(self, tool, paho, tenant, topic, unique):
        client = unique("c")
        paho(client, tenant=tenant).subscribe(topic, 1)
        said = tool("why", "--client", client, "--topic", topic).stdout
        assert "nothing waits for it" in said and f"barid sub -v -t {topic}" in said
