"""Queues, topics, subscriptions and rules: declared in files, made by hand, looked into, changed, deleted."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from broker import BINARY, Broker, until
from brokers import BROKERS, AnyBroker, Member
from running import barid

CONFIG = """
[tenants.acme]
[[queues]]
name = "declared"
properties = { RequiresSession = true, MaxDeliveryCount = 3 }
[[topics]]
name = "Events"
[[topics.subscriptions]]
name = "large"
rules = [{ name = "large", properties = { FilterType = "Sql", SqlFilter = { SqlExpression = "amount > 1000" } } }]
[[topics.subscriptions]]
name = "all"
[[bindings]]
name = "configured"
filter = "a/+"
queue = "declared"
session = "{2}"
"""

CONFIG_JSON = """
{ // as people have it
  "UserConfig": { "Namespaces": [
    { "Name": "sbemulatorns", "Queues": [ { "Name": "from-file", "Properties": { "LockDuration": "PT30S" } }, ] },
    { "Name": "acme", "Queues": [ { "Name": "from-file" } ] },
  ], "Logging": { "Type": "File" } /* not ours */ }
}
"""


class WithFile(Broker):
    """A broker that is given a Config.json as well."""

    def arguments(self) -> list:
        self.file = self.directory / "Config.json"
        if not self.file.exists():
            self.file.write_text(CONFIG_JSON)
        return ["--entities", self.file]


class MemberWithFile(WithFile, Member):
    """Such a broker of a cluster."""


@pytest.fixture(scope="module")
def broker():
    running = AnyBroker(BROKERS, CONFIG, member=MemberWithFile) if BROKERS > 1 else WithFile(CONFIG)
    yield running
    running.end()


class Api:
    """`/v1/tenants/{tenant}` of a broker's admin address."""

    def __init__(self, broker, tenant: str = "default"):
        self.broker, self.base = broker, f"/v1/tenants/{quote(tenant, safe='')}"

    def ask(self, method: str, path: str, body=None, **headers) -> tuple[int, dict | None]:
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.admin_port, timeout=10)
        text = body if isinstance(body, str | None) else json.dumps(body)
        connection.request(method, self.base + path, text, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    def get(self, path: str) -> dict:
        status, body = self.ask("GET", path)
        assert status == 200, body
        return body


@pytest.fixture
def api(broker) -> Api:
    return Api(broker)


@pytest.fixture
def tool(broker):
    """Runs `barid` against the broker."""
    return lambda *arguments, **run: barid(*arguments, "--admin", f"127.0.0.1:{broker.admin_port}", **run)


def amqp(broker) -> ServiceBusClient:
    text = (f"Endpoint=sb://127.0.0.1:{broker.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;")
    return ServiceBusClient.from_connection_string(text, retry_total=0)


@pytest.fixture
def service_bus(broker):
    with amqp(broker) as client:
        yield client


def names(listed: list[dict]) -> list[str]:
    return [one["name"] for one in listed]


# --------------------------------------------------------------------------------------------------- declared

def test_what_is_declared_is_there(broker, api):
    declared, of_file = api.get("/queues/declared"), api.get("/queues/from-file")
    assert declared["properties"]["RequiresSession"] is True and declared["properties"]["MaxDeliveryCount"] == 3
    assert declared["declared_by"] == of_file["declared_by"] == "configuration"
    assert of_file["properties"]["LockDuration"] == "PT30S"
    assert api.get("/topics/events")["subscriptions"] == ["all", "large"]
    rules = api.get("/topics/events/subscriptions/large/rules")["rules"]
    assert rules[0].pop("created_at").startswith("20")
    assert rules == [{"name": "large", "properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "amount > 1000"}}}]
    assert names(api.get("/topics/Events/subscriptions/all/rules")["rules"]) == ["$Default"]


def test_a_namespace_that_is_called_like_a_tenant_is_that_tenants(broker):
    assert names(Api(broker, "acme").get("/queues")["queues"]) == ["from-file"]


def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path):
    file = tmp_path / "Config.json"
    file.write_text('{ "UserConfig": { "Namespaces": [ { "Name": "n",\n  "Queues": [ { "Name": "q", "Properties": {\n'
                    '      "LockDurration": "PT1M" } } ] } ] } }')
    done = barid("serve", "--entities", file, "--data-dir", tmp_path / "data")
    assert done.returncode == 1 and f"{file}:3:7: unknown key `LockDurration`" in done.stderr, done.stderr
    assert "did you mean `LockDuration`?" in done.stderr and not (tmp_path / "data").exists()
    config = tmp_path / "barid.toml"
    config.write_text('[[queues]]\nname = "q"\nproperties = { MaxDeliveryCount = 0 }\n')
    done = barid("check-config", config)
    assert done.returncode == 1 and f"{config}:3:" in done.stdout and "from 1 to 2147483647" in done.stdout, done.stdout


def test_a_reload_declares_more_and_takes_nothing_away(tmp_path):
    running = WithFile('[tenants.acme]\n[[queues]]\nname = "first"\n')
    try:
        api, config = Api(running), running.directory / "barid.toml"
        config.write_text('[tenants.acme]\n[[queues]]\nname = "second"\nproperties = { LockDuration = "PT5S" }\n')
        running.file.write_text(CONFIG_JSON.replace("PT30S", "PT31S"))
        running.signal(signal.SIGHUP)
        until(lambda: "second" in names(api.get("/queues")["queues"]))
        assert names(api.get("/queues")["queues"]) == ["first", "from-file", "second"]
        assert api.get("/queues/from-file")["properties"]["LockDuration"] == "PT31S"
        running.file.write_text("{")
        running.signal(signal.SIGHUP)
        until(lambda: "Config.json:1:1" in running.stderr)
        assert running.running()
    finally:
        running.close()


def test_a_reload_raises_a_limit_and_declares_up_to_it():
    queues = '[[queues]]\nname = "a"\n[[queues]]\nname = "b"\ntenant = "new"\n[[queues]]\nname = "c"\ntenant = "new"\n[[queues]]\nname = "d"\n'
    running = Broker('[limits]\nmax_entities = 1\n[[queues]]\nname = "a"\n')
    try:
        said = running.reload(f"[limits]\nmax_entities = 2\n{queues}")
        assert "could be applied as configured" not in said, said
        api = Api(running)
        assert names(api.get("/queues")["queues"]) == ["a", "d"]
        assert names(Api(running, "new").get("/queues")["queues"]) == ["b", "c"]
    finally:
        running.end()


# --------------------------------------------------------------------------------------------------- the admin API

def test_a_queue_is_made_changed_and_deleted(api, unique):
    path, name = f"/queues/{quote(f'a/{unique()}', safe='')}", None
    status, made = api.ask("PUT", path, {"LockDuration": "PT90S", "RequiresSession": True})
    name = made["name"]
    assert status == 201 and made["declared_by"] == "admin" and made["properties"]["LockDuration"] == "PT1M30S"
    assert set(made["counts"].values()) == {0, None}
    assert made["created_at"] == made["changed_at"] and made["used_at"] is None
    assert api.ask("PUT", path, {}, If_None_Match="*")[0] == 412
    status, changed = api.ask("PATCH", path, {"MaxDeliveryCount": 7})
    assert status == 200 and changed["properties"]["LockDuration"] == "PT1M30S" and changed["properties"]["MaxDeliveryCount"] == 7
    assert changed["created_at"] == made["created_at"] < changed["changed_at"]
    status, anew = api.ask("PUT", path, {"RequiresSession": True})
    assert status == 200 and anew["properties"]["LockDuration"] == "PT1M" and anew["properties"]["MaxDeliveryCount"] == 10
    assert api.get(path.upper().replace("/QUEUES", "/queues").replace("%2F", "%2f"))["name"] == name, "case does not count"
    status, refused = api.ask("PATCH", path, {"RequiresSession": False})
    assert status == 409 and "RequiresSession" in refused["error"]
    assert api.ask("DELETE", path) == (204, None)
    assert api.ask("DELETE", path)[0] == api.ask("PATCH", path, {})[0] == 404


def test_a_tenant_comes_into_being_with_its_first_queue(broker, unique):
    tenant = unique("ten")
    assert Api(broker, tenant).ask("PUT", "/queues/q")[0] == 201
    assert names(Api(broker, tenant).get("/queues")["queues"]) == ["q"]
    assert Api(broker, "a+b").ask("PUT", "/queues/q")[0] == 400


def test_a_topic_with_subscriptions_and_rules(api, unique):
    topic = f"/topics/{unique()}"
    assert api.ask("PUT", f"{topic}/subscriptions/s", {})[0] == 404
    assert api.ask("PUT", topic, {"MaxSizeInMegabytes": 5})[0] == 201
    assert api.ask("PUT", f"{topic}/subscriptions/s", {"RequiresSession": True})[0] == 201
    rule = {"FilterType": "Correlation", "CorrelationFilter": {"Label": "red", "Properties": {"n": 1}}}
    assert api.ask("PUT", f"{topic}/subscriptions/s/rules/red", rule)[0] == 201
    assert api.ask("PUT", f"{topic}/subscriptions/s/rules/red", rule, If_None_Match="*")[0] == 412
    other = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "n = 2"}, "Action": {"SqlExpression": "SET m = 3"}}
    status, changed = api.ask("PUT", f"{topic}/subscriptions/s/rules/RED", other)
    assert status == 200 and changed.pop("created_at") and changed == {"name": "red", "properties": other}
    assert api.ask("DELETE", f"{topic}/subscriptions/s/rules/$Default") == (204, None)
    assert names(api.get(f"{topic}/subscriptions/s")["rules"]) == ["red"]
    status, changed = api.ask("PATCH", f"{topic}/subscriptions/s", {"LockDuration": "PT7S"})
    assert status == 200 and names(changed["rules"]) == ["red"], "rules stay"
    status, refused = api.ask("PUT", f"{topic}/subscriptions/s/rules/bad", {"SqlFilter": {"SqlExpression": "n ="}})
    assert status == 400 and "bad" in refused["error"]
    assert api.get(topic)["subscriptions"] == ["s"]
    assert api.ask("DELETE", topic)[0] == 204 and api.ask("GET", f"{topic}/subscriptions/s")[0] == 404


def test_lists_have_pages(broker, unique):
    api, all_ = Api(broker, unique("ten")), [f"q{number:02}" for number in range(25)]
    for name in reversed(all_):
        assert api.ask("PUT", f"/queues/{name}")[0] == 201
    seen, after, pages = [], "", 0
    while after is not None:
        page = api.get(f"/queues?limit=10&after={after}")
        seen += names(page["queues"])
        after, pages = page["next"], pages + 1
    assert (seen, pages) == (all_, 3)


@pytest.mark.parametrize(("method", "path", "body", "status", "says"), [
    ("PUT", "/queues/a%20b", None, 400, "a b"),
    ("PUT", "/queues/q", "[", 400, "EOF"),
    ("PUT", "/queues/q", {"LockDurration": "PT1M"}, 400, "LockDuration"),
    ("PUT", "/queues/q", {"LockDuration": "P2D"}, 400, "PT1S"),
    ("PUT", "/queues/q", {"ForwardTo": "nowhere"}, 400, "nowhere"),
    ("PUT", "/queues/events", None, 409, "topic"),
    ("PUT", "/topics/declared", None, 409, "queue"),
    ("GET", "/queues/events", None, 404, "events"),
    ("GET", "/queues/events%2FSubscriptions%2Fall", None, 404, "all"),
    ("GET", "/topics/declared", None, 404, "declared"),
    ("GET", "/topics/events/subscriptions/all%2Fx", None, 404, "all/x"),
    ("GET", "/topics/events/subscriptions/all/rules/none", None, 404, "none"),
    ("DELETE", "/topics/events/subscriptions/all/rules/none", None, 404, "none"),
    ("GET", "/queues?limit=0", None, 400, "limit"),
    ("GET", "/queues?limt=1", None, 400, "limt"),
    ("GET", "/queues/declared/messages?part=dead", None, 400, "dead-letter"),
    ("GET", "/queues/declared/messages?limit=1001", None, 400, "1000"),
    ("DELETE", "/queues/declared/messages?part=x", None, 400, "transfer-dead-letter"),
    ("POST", "/queues/declared", None, 405, "POST"),
])
def test_a_refusal_is_a_status_and_a_sentence(api, method, path, body, status, says):
    answered, refused = api.ask(method, path, body)
    assert answered == status and list(refused) == ["error"] and says in refused["error"], refused


def test_what_is_made_survives_a_restart(unique):
    running = Broker()
    try:
        api = Api(running)
        assert api.ask("PUT", "/queues/kept", {"LockDuration": "PT9S"})[0] == 201
        assert api.ask("PUT", "/queues/gone")[0] == 201 and api.ask("DELETE", "/queues/gone")[0] == 204
        assert api.ask("PUT", "/topics/t")[0] == api.ask("PUT", "/topics/t/subscriptions/s")[0] == 201
        running.kill9()
        running.start()
        assert names(api.get("/queues")["queues"]) == ["kept"]
        assert api.get("/queues/kept")["properties"]["LockDuration"] == "PT9S"
        assert api.get("/topics/t")["subscriptions"] == ["s"]
    finally:
        running.close()


def test_there_are_only_so_many(unique):
    running = Broker("[limits]\nmax_entities = 2\n")
    try:
        api = Api(running)
        assert api.ask("PUT", "/queues/a")[0] == api.ask("PUT", "/topics/b")[0] == 201
        for path in ("/queues/c", "/topics/b/subscriptions/s"):
            status, refused = api.ask("PUT", path)
            assert status == 409 and "max_entities" in refused["error"]
    finally:
        running.close()


def test_health_as_the_emulator_answers_it(broker):
    assert broker.http("/health") == (200, '{"message":"Service is healthy.","status":"healthy"}')


# --------------------------------------------------------------------------------------------------- what lies in them

def test_messages_are_looked_at_and_stay(api, service_bus, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}", {"RequiresSession": True})
    with service_bus.get_queue_sender(name) as sender:
        for number in range(5):
            sender.send_messages(ServiceBusMessage(
                f"body {number}", session_id=f"s{number % 2}", message_id=f"m{number}", subject="order",
                content_type="text/plain", application_properties={"n": number, "half": 0.5, "yes": True}))
        sender.send_messages(ServiceBusMessage(b"\xff\xfe", session_id="s0"))
    page = api.get(f"/queues/{name}/messages?limit=4")
    first = page["messages"][0]
    assert [message["sequence_number"] for message in page["messages"]] == [1, 2, 3, 4] and page["next"] == 5
    assert (first["session"], first["message_id"], first["subject"], first["state"]) == ("s0", "m0", "order", "active")
    assert (first["body"], first["body_is_cut"], first["content_type"]) == ("body 0", False, "text/plain")
    assert first["application_properties"] == {"n": 0, "half": 0.5, "yes": True} and first["delivery_count"] == 0
    assert first["size"] > len("body 0") and first["enqueued_at"].endswith("Z")
    rest = api.get(f"/queues/{name}/messages?from=5")
    assert rest["messages"][1]["body_base64"] == "//4=" and rest["next"] is None
    of_session = api.get(f"/queues/{name}/messages?session=s1")["messages"]
    assert [message["message_id"] for message in of_session] == ["m1", "m3"]
    assert api.get(f"/queues/{name}")["counts"]["active"] == 6


def test_dead_letters_have_their_reasons_and_purging_removes_them(api, service_bus, tool, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}")
    with service_bus.get_queue_sender(name) as sender, service_bus.get_queue_receiver(name) as receiver:
        sender.send_messages([ServiceBusMessage("bad"), ServiceBusMessage("good")])
        receiver.dead_letter_message(receiver.receive_messages(1)[0], reason="Unreadable", error_description="no JSON")
    [dead] = api.get(f"/queues/{name}/messages?part=dead-letter")["messages"]
    assert dead["application_properties"] == {"DeadLetterReason": "Unreadable", "DeadLetterErrorDescription": "no JSON"}
    assert dead["body"] == "bad"
    assert "Unreadable: no JSON" in tool("queue", "peek", name, "--dead-letter").stdout
    assert api.get(f"/queues/{name}")["counts"]["dead_lettered"] == 1
    refused = tool("queue", "purge", name, "--dead-letter", stdin=-3)
    assert refused.returncode == 1 and "--yes" in refused.stderr
    assert "removed 1 message in the dead-letter queue" in tool("queue", "purge", name, "--dead-letter", "--yes").stdout
    counts = api.get(f"/queues/{name}")["counts"]
    assert (counts["dead_lettered"], counts["active"]) == (0, 1)
    assert api.ask("DELETE", f"/queues/{name}/messages") == (200, {"removed": 1})
    assert api.get(f"/queues/{name}/messages") == {"messages": [], "next": None}


def bury(service_bus, name: str, bodies, session: str | None = None, **subscription) -> None:
    """Sends messages to a queue or topic, and makes dead letters of them."""
    with service_bus.get_topic_sender(name) if subscription else service_bus.get_queue_sender(name) as sender:
        sender.send_messages([ServiceBusMessage(body, session_id=session) for body in bodies])
    receiver = (service_bus.get_subscription_receiver(name, **subscription) if subscription
                else service_bus.get_queue_receiver(name, session_id=session))
    with receiver:
        for _ in bodies:
            [message] = receiver.receive_messages(1, max_wait_time=5)
            receiver.dead_letter_message(message, reason="Unreadable", error_description="no JSON")


def received(receiver, count: int) -> list[str]:
    messages = []
    while len(messages) < count:
        got = receiver.receive_messages(count, max_wait_time=5)
        assert got, f"only {len(messages)} of {count} came"
        for message in got:
            assert not message.application_properties and message.dead_letter_reason is None and message.delivery_count == 0
            receiver.complete_message(message)
        messages += [str(message) for message in got]
    return messages


def test_dead_letters_are_resubmitted(api, service_bus, tool, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}", {"RequiresDuplicateDetection": True})
    bury(service_bus, name, ["1", "2", "3", "x" * 50_000])
    resubmit = f"/queues/{name}/messages/resubmit"
    assert api.ask("POST", resubmit, {"sequence_numbers": [3, 9]}) == (200, {
        "resubmitted": 1, "skipped": 1, "problem": "message 9: The message with the given sequence number was not found."})
    assert tool("queue", "resubmit", name, "--number", "1").stdout == f"resubmitted 1 dead letter of the queue {name}\n"
    again = tool("queue", "resubmit", name, "--number", "1")
    assert again.returncode == 1 and "1 was not resubmitted: message 1: " in again.stderr
    refused = tool("queue", "resubmit", name, stdin=-3)
    assert refused.returncode == 1 and "--yes" in refused.stderr
    assert json.loads(tool("queue", "resubmit", name, "--yes", "--json").stdout) == {"resubmitted": 2, "skipped": 0, "problem": None}
    counts = api.get(f"/queues/{name}")["counts"]
    assert (counts["active"], counts["dead_lettered"]) == (4, 0)
    with service_bus.get_queue_receiver(name) as receiver:
        assert received(receiver, 4) == ["3", "1", "2", "x" * 50_000]


def test_what_a_receiver_has_is_not_resubmitted_and_a_session_keeps_its_messages(api, service_bus, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}", {"RequiresSession": True})
    bury(service_bus, name, ["1", "2"], session="a")
    with service_bus.get_queue_receiver(name, sub_queue="deadletter") as held:
        assert len(held.receive_messages(1, max_wait_time=5)) == 1
        _, answer = api.ask("POST", f"/queues/{name}/messages/resubmit")
        assert (answer["resubmitted"], answer["skipped"]) == (1, 1)
    with service_bus.get_queue_receiver(name, session_id="a") as receiver:
        assert received(receiver, 1) == ["2"]


def test_dead_letters_of_a_subscription_are_resubmitted_to_it_alone(api, service_bus, tool, unique):
    topic = unique()
    api.ask("PUT", f"/topics/{topic}")
    for subscription in ("one", "other"):
        api.ask("PUT", f"/topics/{topic}/subscriptions/{subscription}")
    bury(service_bus, topic, ["1"], subscription_name="one")
    assert "resubmitted 1 dead letter" in tool("topic", "subscription", "resubmit", topic, "one", "--yes").stdout
    with service_bus.get_subscription_receiver(topic, "one") as receiver:
        assert received(receiver, 1) == ["1"]
    assert api.get(f"/topics/{topic}/subscriptions/other")["counts"]["active"] == 1, "its own copy, and no other"


def test_a_crash_neither_loses_nor_doubles_what_was_resubmitted():
    broker = Broker()
    try:
        api = Api(broker)
        api.ask("PUT", "/queues/q")
        with amqp(broker) as service_bus:
            bury(service_bus, "q", [str(n) for n in range(600)])
        assert api.ask("POST", "/queues/q/messages/resubmit", {"sequence_numbers": list(range(1, 301))})[1]["resubmitted"] == 300
        broker.kill9()
        broker.start()
        counts = api.get("/queues/q")["counts"]
        assert (counts["active"], counts["dead_lettered"]) == (300, 300)
        assert api.ask("POST", "/queues/q/messages/resubmit")[1]["resubmitted"] == 300
        with amqp(broker) as service_bus, service_bus.get_queue_receiver("q") as receiver:
            assert received(receiver, 600) == [str(n) for n in range(600)]
    finally:
        broker.end()


def test_only_dead_letters_can_be_resubmitted(api, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}")
    resubmit = f"/queues/{name}/messages/resubmit"
    for path, body, expected in [(f"{resubmit}?part=main", None, "only dead letters"), (f"{resubmit}?part=x", None, "unknown variant"),
                                 (resubmit, {"numbers": [1]}, "unknown field"), (resubmit, {"sequence_numbers": [-1]}, "invalid value"),
                                 (resubmit, "[", "EOF")]:
        status, answer = api.ask("POST", path, body)
        assert status == 400 and expected in answer["error"], (path, body, answer)
    assert api.ask("POST", "/queues/no-such/messages/resubmit")[0] == 404 and api.ask("GET", resubmit)[0] == 405


def test_sessions_with_their_locks_and_states(api, service_bus, tool, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}", {"RequiresSession": True})
    with service_bus.get_queue_sender(name) as sender:
        sender.send_messages([ServiceBusMessage("x", session_id=session) for session in ("b", "a", "b", "c")])
    with service_bus.get_queue_receiver(name, session_id="b") as receiver, service_bus.get_queue_receiver(name, session_id="idle"):
        assert len(receiver.receive_messages(1, max_wait_time=5)) == 1
        receiver.session.set_state(b"four")
        a, b, _, idle = api.get(f"/queues/{name}/sessions")["sessions"]
        assert (a["id"], a["active"], a["locked"], a["locked_until"], a["state_bytes"]) == ("a", 1, 0, None, None)
        assert (b["id"], b["active"], b["locked"], b["state_bytes"]) == ("b", 1, 1, 4) and b["locked_until"]
        assert (idle["id"], idle["active"], idle["locked"], idle["state_bytes"]) == ("idle", 0, 0, None) and idle["locked_until"]
        page = api.get(f"/queues/{name}/sessions?limit=1&after=a")
        assert (page["sessions"][0]["id"], page["next"]) == ("b", "b")
        counts = api.get(f"/queues/{name}")
        assert (counts["counts"]["sessions"], counts["counts"]["locked"], counts["receivers"]) == (4, 1, 2)
        title, *rows = tool("queue", "sessions", name).stdout.splitlines()
        assert title.split()[:3] == ["SESSION", "ACTIVE", "LOCKED"] and [row.split()[0] for row in rows] == ["a", "b", "c", "idle"]


def test_metrics_have_the_counts(broker, api, service_bus, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}")
    with service_bus.get_queue_sender(name) as sender:
        sender.send_messages([ServiceBusMessage("x")] * 3)
    labels = f'tenant="default",entity="{name}"'
    assert broker.metric(rf'^barid_entity_messages{{{labels},state="active"}}') == 3
    assert broker.metric(rf'^barid_entity_messages{{{labels},state="dead_lettered"}}') == 0
    assert broker.metric(rf'^barid_entity_bytes{{{labels}}}') > 3
    assert broker.metric(r'^barid_entities{tenant="default"}') >= 5


# --------------------------------------------------------------------------------------------------- bindings

def test_bindings_are_made_changed_and_removed(broker, api, unique):
    name = unique()
    path, body = f"/bindings/{name}", {"filter": "devices/+/t", "queue": "declared", "session": "{2}"}
    status, made = api.ask("PUT", path, body)
    assert status == 201 and made == {"name": name, "tenant": "default", "declared_by": "admin", "passed": 0, "refused": 0, **body}
    assert api.ask("PUT", path, body, If_None_Match="*")[0] == 412
    status, anew = api.ask("PUT", path, {"from_queue": "declared", "publish": "d/{session}", "qos": 2, "name": name})
    assert status == 200 and anew["publish"] == "d/{session}" and "filter" not in anew
    assert api.get(path) == anew and names(api.get("/bindings")["bindings"]) == sorted(["configured", name])
    assert api.ask("DELETE", path) == (204, None) and api.ask("DELETE", path)[0] == 404


@pytest.mark.parametrize(("name", "body", "status", "says"), [
    ("x", {}, 400, "neither `filter` nor `publish`"),
    ("x", {"filter": "a/+", "queue": "q", "session": "{3}"}, 400, "2 levels"),
    ("x", {"filter": "a", "queue": "q", "session": "{clinet}"}, 400, "{clinet}"),
    ("x", {"fliter": "a"}, 400, "fliter"),
    ("x", {"filter": "a", "queue": "q", "tenant": "other"}, 400, "`tenant`"),
    ("configured", {"filter": "a", "queue": "q"}, 409, "configured"),
])
def test_a_binding_that_cannot_be(api, name, body, status, says):
    answered, refused = api.ask("PUT", f"/bindings/{name}", body)
    assert answered == status and says in refused["error"], refused


def test_bindings_survive_a_restart_and_those_of_the_configuration_follow_it():
    first = '[[bindings]]\nname = "first"\nfilter = "a"\nqueue = "q"\n'
    running = Broker(first)
    try:
        api = Api(running)
        for name in ("kept", "gone"):
            assert api.ask("PUT", f"/bindings/{name}", {"filter": "a", "queue": "q"})[0] == 201
        assert api.ask("DELETE", "/bindings/gone")[0] == 204
        assert api.ask("DELETE", "/bindings/first")[0] == 409
        (running.directory / "barid.toml").write_text(first.replace("first", "second"))
        running.signal(signal.SIGHUP)
        until(lambda: names(api.get("/bindings")["bindings"]) == ["kept", "second"])
        running.kill9()
        running.start()
        assert names(api.get("/bindings")["bindings"]) == ["first", "kept"], "the file is written anew by the start"
    finally:
        running.close()


def test_bindings_by_hand(tool, unique):
    name = unique()
    made = tool("binding", "set", name, "--filter", "devices/+/t", "--queue", "declared", "--session", "{2}")
    assert made.stdout == f"set {name}: MQTT devices/+/t → queue declared, session {{2}}\n", made.stderr
    again = tool("binding", "set", name, "--new", "--filter", "a", "--queue", "q")
    assert again.returncode == 1 and "--new" in again.stderr
    assert tool("binding", "set", name, "--from-queue", "declared", "--publish", "d/{session}", "--retain").returncode == 0
    assert f"queue declared → MQTT d/{{session}}, QoS 1, retained" in tool("binding", "show", name).stdout
    assert any(line.split()[0] == name for line in tool("binding", "list").stdout.splitlines())
    refused = tool("binding", "delete", name, stdin=-3)
    assert refused.returncode == 1 and "--yes" in refused.stderr
    assert tool("binding", "delete", name, "--yes").returncode == 0
    assert tool("binding", "delete", name, "--yes").returncode == 1


# --------------------------------------------------------------------------------------------------- the series

def test_many_entities_do_not_make_many_series(unique):
    running = Broker()
    try:
        api = Api(running)
        for number in range(1003):
            assert api.ask("PUT", f"/queues/q{number:04}")[0] == 201
        samples = [line for line in running.http("/metrics")[1].splitlines() if line.startswith("barid_entity_bytes{")]
        assert len(samples) == 1001 and samples[-1].startswith('barid_entity_bytes{tenant="default",entity="*"}')
    finally:
        running.close()


# --------------------------------------------------------------------------------------------------- the tools

def test_queues_by_hand(tool, unique):
    name = f"hand/{unique()}"
    made = tool("queue", "create", name, "--requires-session", "--lock-duration", "90s", "--max-delivery-count", "3")
    assert made.returncode == 0 and f"created the queue {name}" in made.stdout and "PT1M30S" in made.stdout, made.stderr
    again = tool("queue", "create", name)
    assert again.returncode == 1 and "exists already" in again.stderr and f"barid queue update {name}" in again.stderr
    shown = tool("queue", "show", name).stdout
    assert "RequiresSession" in shown and "no limit" in shown and "0 active" in shown
    changed = json.loads(tool("queue", "update", name, "--max-delivery-count", "4", "--json").stdout)
    assert (changed["properties"]["MaxDeliveryCount"], changed["properties"]["LockDuration"]) == (4, "PT1M30S")
    nothing = tool("queue", "update", name)
    assert nothing.returncode == 1 and "--help" in nothing.stderr
    fixed = tool("queue", "update", name, "--requires-session=false")
    assert fixed.returncode == 1 and "cannot be changed" in fixed.stderr
    title, *rows = tool("queue", "list").stdout.splitlines()
    assert title.split()[:3] == ["QUEUE", "ACTIVE", "LOCKED"] and any(row.split()[0] == name for row in rows)
    assert "more" in tool("queue", "list", "--limit", "1").stdout
    assert names(json.loads(tool("queue", "list", "--json").stdout)["queues"]).count(name) == 1
    refused = tool("queue", "delete", name, stdin=-3)
    assert refused.returncode == 1 and "--yes" in refused.stderr and tool("queue", "show", name).returncode == 0
    assert f"deleted the queue {name}" in tool("queue", "delete", name, "--yes").stdout
    for command in (["show"], ["delete", "--yes"], ["peek"], ["sessions"], ["purge", "--yes"], ["resubmit", "--yes"], ["update", "--forward-to", ""]):
        missing = tool("queue", command[0], name, *command[1:])
        assert missing.returncode == 1 and name in missing.stderr, command


def test_topics_by_hand(tool, service_bus, unique):
    topic = unique()
    assert "barid topic subscription create" in tool("topic", "create", topic).stdout
    assert tool("topic", "subscription", "create", topic, "s", "--requires-session").returncode == 0
    rule = ["topic", "subscription", "rule"]
    assert "amount > 1000" in tool(*rule, "create", topic, "s", "large", "--sql", "amount > 1000", "--action", "SET x = 1").stdout
    assert tool(*rule, "create", topic, "s", "red", "--match", "sys.Label=red", "--match", "colour=red").returncode == 0
    again = tool(*rule, "create", topic, "s", "red")
    assert again.returncode == 1 and "rule delete" in again.stderr
    listed = tool(*rule, "list", topic, "s").stdout
    assert "$Default" in listed and "SET x = 1" in listed and 'sys.Label = "red" and colour = "red"' in listed
    assert tool(*rule, "delete", topic, "s", "$Default").returncode == 0
    with service_bus.get_topic_sender(topic) as sender:
        for amount in (1, 2000):
            sender.send_messages(ServiceBusMessage("x", session_id="a", application_properties={"amount": amount}))
    peeked = json.loads(tool("topic", "subscription", "peek", topic, "s", "--json").stdout)["messages"]
    assert [message["application_properties"] for message in peeked] == [{"amount": 2000, "x": 1, "RuleName": "large"}]
    assert tool("topic", "subscription", "list", topic).stdout.splitlines()[1].split()[:2] == ["s", "1"]
    assert "large" in tool("topic", "subscription", "show", topic, "s").stdout
    assert tool("topic", "subscription", "update", topic, "s", "--max-delivery-count", "2").returncode == 0
    assert tool("topic", "subscription", "sessions", topic, "s").stdout.splitlines()[1].split()[0] == "a"
    assert any(line.split() == [topic, "s"] for line in tool("topic", "list").stdout.splitlines())
    assert "subscriptions: s" in tool("topic", "show", topic).stdout
    assert tool("topic", "update", topic, "--max-size", "7").returncode == 0
    assert "with its 1 message\n" in tool("topic", "subscription", "delete", topic, "s", "--yes").stdout
    assert "with its 0 subscriptions" in tool("topic", "delete", topic, "--yes").stdout


def test_check_config_says_what_is_declared(tmp_path):
    config = tmp_path / "barid.toml"
    config.write_text(CONFIG + '[[keys]]\nname = "k"\nkey = "hunter2"\nrights = ["Send"]\n')
    done = barid("check-config", config)
    assert done.returncode == 0 and "declared" in done.stdout and "Events" in done.stdout, done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_a_start_says_how_clients_connect(broker):
    assert f"Endpoint=sb://127.0.0.1:{broker.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;" in broker.stderr
    with_keys = Broker('[[keys]]\nname = "k"\nkey = "hunter2"\nrights = ["Send"]\n')
    said = with_keys.stderr
    with_keys.close()
    assert "SharedAccessKeyName" not in said and "hunter2" not in said


# --------------------------------------------------------------------------------- sent and received over HTTP

def test_a_message_is_sent_and_received_with_everything_in_it(broker, api, service_bus, tool, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}")
    whole = {"body": "hello", "message_id": "4711", "subject": "greeting", "content_type": "text/plain", "correlation_id": "c", "to": "you",
             "reply_to": "me", "reply_to_session": "s", "application_properties": {"text": "é", "number": 3, "share": 0.5, "yes": True, "none": None}}
    assert api.ask("POST", f"/queues/{name}/messages", whole) == (201, {"sequence_number": 1})
    with service_bus.get_queue_receiver(name) as receiver:
        [message] = receiver.receive_messages(1, max_wait_time=5)
        assert (str(message), message.message_id, message.subject, message.content_type) == ("hello", "4711", "greeting", "text/plain")
        assert (message.correlation_id, message.to, message.reply_to, message.reply_to_session_id) == ("c", "you", "me", "s")
        assert message.application_properties == {b"text": "é".encode(), b"number": 3, b"share": 0.5, b"yes": True, b"none": None}
        receiver.complete_message(message)
    sent = tool("queue", "send", name, "-m", "from a shell", "--property", "amount=3", "--property", "by=ada", "--subject", "greeting")
    assert sent.stdout == f"sent message 2 to the queue {name}\n"
    assert tool("queue", "send", name, input="from a pipe\n").returncode == 0
    with service_bus.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage(b"\xff" * 20_000))
    received = json.loads(tool("queue", "receive", name, "--json").stdout)
    assert (received["body"], received["application_properties"], received["subject"]) == ("from a shell", {"amount": 3, "by": "ada"}, "greeting")
    command = [BINARY, "queue", "receive", name, "--count", "2", "--admin", f"127.0.0.1:{broker.admin_port}"]
    both = subprocess.run(command, capture_output=True, timeout=30)
    assert both.returncode == 0 and both.stdout == b"from a pipe\n\n" + b"\xff" * 20_000 + b"\n", "whole, whatever their size"
    nothing = tool("queue", "receive", name, "--wait", "1")
    assert nothing.returncode == 27 and "1 is missing" in nothing.stderr
    counts = api.get(f"/queues/{name}")["counts"]
    assert (counts["active"], counts["locked"]) == (0, 0)


def test_a_session_is_received_and_others_keep_theirs(api, service_bus, tool, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}", {"RequiresSession": True})
    assert api.ask("POST", f"/queues/{name}/messages", {"body": "1"})[0] == 409, "it has no session"
    for session, body in (("a", "1"), ("b", "2"), ("a", "3")):
        assert api.ask("POST", f"/queues/{name}/messages", {"body": body, "session": session})[0] == 201
    receive = f"/queues/{name}/messages/receive"
    with service_bus.get_queue_receiver(name, session_id="a"):
        status, answer = api.ask("POST", receive, {"session": "a"})
        assert status == 409 and "lock" in answer["error"]
        assert [one["body"] for one in api.ask("POST", receive, {"limit": 10})[1]["messages"]] == ["2"], "that of the free session"
        assert api.ask("POST", receive, {"limit": 10})[1]["messages"] == []
    until(lambda: tool("queue", "receive", name, "--session", "a", "--count", "2").stdout == "1\n3\n")
    with service_bus.get_queue_receiver(name, session_id="a"):
        pass  # It is free again.


def test_sent_to_a_topic_and_received_from_a_subscription(api, tool, unique):
    topic = unique()
    api.ask("PUT", f"/topics/{topic}")
    api.ask("PUT", f"/topics/{topic}/subscriptions/all")
    assert tool("topic", "send", topic, "-m", "news").stdout == f"sent a message to the topic {topic}\n"
    assert tool("topic", "subscription", "receive", topic, "all").stdout == "news\n"
    # A dead letter, too.
    api.ask("PATCH", f"/topics/{topic}/subscriptions/all", {"DeadLetteringOnMessageExpiration": True})
    assert api.ask("POST", f"/topics/{topic}/messages", {"body": "old", "ttl_seconds": 1})[0] == 201
    until(lambda: api.get(f"/topics/{topic}/subscriptions/all")["counts"]["dead_lettered"] == 1)
    assert tool("topic", "subscription", "receive", topic, "all", "--dead-letter").stdout == "old\n"
    assert api.ask("POST", f"/topics/{topic}/messages", {"body": "later", "delay_seconds": 1}) == (201, {"sequence_number": 1}), "that of the scheduled one"
    assert tool("topic", "subscription", "receive", topic, "all", "-W", "10").stdout == "later\n"


def test_what_is_sent_is_there_after_a_crash_and_what_is_received_is_not():
    broker = Broker()
    try:
        api = Api(broker)
        api.ask("PUT", "/queues/q")
        for number in range(20):
            assert api.ask("POST", "/queues/q/messages", {"body": str(number)})[0] == 201
        assert len(api.ask("POST", "/queues/q/messages/receive", {"limit": 5})[1]["messages"]) == 5
        broker.kill9()
        broker.start()
        left = api.ask("POST", "/queues/q/messages/receive", {"limit": 100})[1]["messages"]
        assert [one["body"] for one in left] == [str(number) for number in range(5, 20)]
    finally:
        broker.end()


def test_what_cannot_be_sent_or_received(api, unique):
    name = unique()
    api.ask("PUT", f"/queues/{name}", {"MaxMessageSizeInKilobytes": 1})
    messages = f"/queues/{name}/messages"
    for path, body, status, expected in [
            (messages, {"body": "a", "body_base64": "YQ=="}, 400, "either"), (messages, {"body_base64": "%"}, 400, "body_base64"),
            (messages, {"bodi": "a"}, 400, "unknown field"), (messages, {"application_properties": {"a": [1]}}, 400, "a list or an object"),
            (messages, {"body": "x" * 2000}, 413, "more than 1024 bytes"),
            (f"{messages}/receive", {"limit": 0}, 400, "limit"), (f"{messages}/receive", {"limit": 101}, 400, "limit"),
            (f"{messages}/receive", {"session": "s"}, 409, "session"), (f"{messages}/receive", {"part": "x"}, 400, "unknown variant"),
            ("/queues/no-such/messages", {"body": "a"}, 404, "no queue"), ("/topics/no-such/messages", {"body": "a"}, 404, "no topic")]:
        found, answer = api.ask("POST", path, body)
        assert found == status and expected in answer["error"], (path, body, found, answer)
    assert api.get(f"/queues/{name}")["counts"]["active"] == 0
