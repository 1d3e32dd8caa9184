"""What a client was not allowed to do is seen: in the log at `info`, in counters, over the admin API and by `barid why`."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time

import pytest

import wire
from broker import BINARY, free_port, until
from paho_client import Refused
from running import ENVIRONMENT, barid, hashed


@pytest.fixture(scope="module")
def guard() -> str:
    """A user who may publish and subscribe below a/, and read the key `mine` of the state store."""
    return f"""
        [[users]]
        name = "acme/ada"
        password = "{hashed("secret")}"
        publish = ["a/#", "statestore/#"]
        subscribe = ["a/#", "clients/#"]
        state = [{{ access = "read", type = "string", keys = ["mine"] }}]
    """


@pytest.fixture
def guarded(broker_with, guard):
    return broker_with(guard)


@pytest.fixture
def ada(guarded, paho):
    """Connects the user with a client identifier."""
    return lambda client, **options: paho(client, to=guarded, username="acme/ada", password="secret", **options)


def lines(broker, *parts: str) -> list[str]:
    """Lines of the log that have all of these parts."""
    return [line for line in broker.stderr.splitlines() if all(part in line for part in parts)]


def denied(broker, tenant: str, action: str) -> float:
    return broker.metric(rf'^barid_denied_total{{tenant="{tenant}",action="{action}"}}')


def denials(broker, tenant: str, **question) -> list[dict]:
    query = "&".join(f"{name}={value}" for name, value in question.items())
    status, body = broker.http(f"/v1/tenants/{tenant}/denials?{query}")
    assert status == 200, body
    return json.loads(body)["denials"]


def why(broker, *arguments) -> str:
    done = barid("why", *arguments, "--admin", f"127.0.0.1:{broker.admin_port}")
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------------------------------ each action

def test_a_publish(guarded, ada):
    ada("pump").publish("b/1", b"x", 1)
    until(lambda: lines(guarded, "INFO", "publish denied", 'user="acme/ada"', 'client="pump"', 'topic="b/1"', "peer=127.0.0.1:"))
    assert denied(guarded, "acme", "publish") == 1
    [denial] = denials(guarded, "acme", client="pump")
    assert denial["action"] == "publish" and denial["object"] == "b/1" and denial["user"] == "acme/ada"
    assert denial["address"].startswith("127.0.0.1:") and denial["count"] == 1
    said = why(guarded, "--client", "pump", "--tenant", "acme")
    assert "NOT ALLOWED AT" in said and "b/1" in said and "[[users]]" in said


def test_a_subscription(guarded, ada, version):
    assert ada("pump", version=version).subscribe("b/#", 1) >= 0x80
    until(lambda: lines(guarded, "INFO", "subscribe denied", 'client="pump"', 'filter="b/#"'))
    assert denied(guarded, "acme", "subscribe") == 1
    assert "b/#" in why(guarded, "--client", "pump", "--tenant", "acme", "--topic", "b/1"), "the filter matches the topic"


def test_a_subscription_of_mqtt_3_1(guarded, dial):
    """It cannot be told in the SUBACK, and its connection ends; it is seen all the same."""
    client = dial(wire.V31, to=guarded)
    client.connect("old", username="acme/ada", password=b"secret")
    client.send(wire.subscribe(1, ("b/#", 0), version=wire.V31))
    until(lambda: denied(guarded, "acme", "subscribe") == 1)


@pytest.mark.parametrize("name, password, tenant", [
    ("acme/ada", "hunter2", "acme"), ("acme/bob", "hunter2", "acme"), ("stranger/x", "hunter2", "default"), (None, None, "default"),
])
def test_a_login(guarded, paho, name, password, tenant):
    """Of a tenant that nobody has configured it is counted for the default one, and found all the same."""
    with pytest.raises(Refused):
        paho("thief", to=guarded, username=name, password=password)
    until(lambda: lines(guarded, "INFO", "login denied", 'client="thief"', f'tenant="{tenant}"'))
    assert not lines(guarded, "hunter2"), "no password is written"
    assert denied(guarded, tenant, "login") == 1
    asked = name.split("/")[0] if name else "default"
    assert "login" in why(guarded, "--client", "thief", "--tenant", asked)


def test_a_will(guarded, ada):
    with pytest.raises(Refused):
        ada("pump", will={"topic": "b/gone", "payload": b"x"})
    until(lambda: lines(guarded, "INFO", "will denied", 'topic="b/gone"'))
    assert denied(guarded, "acme", "will") == 1 and denied(guarded, "acme", "login") == 0


def test_a_key_of_the_state_store(guarded):
    where = ("-h", "localhost", "-p", guarded.port, "-u", "acme/ada", "-i", "pump")
    password = {"BARID_PASSWORD": "secret"}
    assert barid("state", "set", "theirs", "1", *where, environment=password).returncode == 3
    assert barid("state", "get", "mine", *where, environment=password).returncode == 1, "there is none, and it may be read"
    until(lambda: lines(guarded, "INFO", "state denied", 'key="theirs"', 'client="pump"'))
    assert denied(guarded, "acme", "state") == 1


def test_a_topic_of_the_broker(broker_with, paho):
    """Without users, too."""
    running = broker_with("")
    paho("pump", to=running).publish("$SYS/broker/version", b"mine", 1)
    until(lambda: lines(running, "publish denied: only the broker publishes there", 'topic="$SYS/broker/version"'))
    assert denied(running, "default", "publish") == 1


def test_a_subscription_that_new_rules_take_away(guarded, guard, ada):
    """Otherwise nobody would know why the client hears nothing any more."""
    away = ada("pump", clean=False, SessionExpiryInterval=3600)
    assert away.subscribe("a/#", 1) == 1
    away.leave()
    guarded.reload(guard.replace('subscribe = ["a/#", "clients/#"]', 'subscribe = ["c/#"]'))
    ada("pump", clean=False, SessionExpiryInterval=3600)
    until(lambda: lines(guarded, "subscribe denied: the rules of the user have changed", 'filter="a/#"'))


def test_another_users_client_identifier(broker_with, paho):
    running = broker_with("\n".join(f'[[users]]\nname = "acme/{name}"\npassword = "{hashed("secret")}"' for name in ("ada", "bob")))
    login = {"to": running, "password": "secret", "clean": False, "SessionExpiryInterval": 3600}
    paho("shared", username="acme/ada", **login).leave()
    with pytest.raises(Refused):
        paho("shared", username="acme/bob", **login)
    until(lambda: lines(running, "login denied", "belongs to another user", 'user="acme/bob"'))


# ------------------------------------------------------------------------------------------------- logins, and why

def test_a_wrong_password_and_the_back_end_that_says_so(guarded, paho):
    """The client is told the same for a user that does not exist."""
    for user, reason in (("acme/ada", "file: the password is wrong"), ("acme/bob", "no back end has this user")):
        with pytest.raises(Refused) as refused:
            paho("thief", to=guarded, username=user, password="guess")
        assert refused.value.code == 0x86
        until(lambda: lines(guarded, "INFO", f"login denied: {reason}", f'user="{user}"', 'client="thief"', "peer=127.0.0.1:"))
    said = why(guarded, "--client", "thief", "--tenant", "acme")
    assert "login: file: the password is wrong. Check" in said and "login: no back end has this user" in said


def test_a_ban_when_the_client_connects_and_while_it_is_connected(guarded, ada):
    pump = ada("pump")
    admin = ("--admin", f"127.0.0.1:{guarded.admin_port}")
    assert barid("ban", "add", "--user", "acme/ada", "--reason", "stolen", *admin).returncode == 0
    assert pump.disconnected.get(timeout=2)
    reason = 'login denied: the user "acme/ada" is banned: stolen'
    until(lambda: lines(guarded, "INFO", f"{reason}: disconnected", 'client="pump"', 'user="acme/ada"'))
    with pytest.raises(Refused) as refused:
        ada("valve")
    assert refused.value.code == 0x8A
    until(lambda: lines(guarded, "INFO", reason, 'client="valve"'))
    assert denied(guarded, "acme", "login") == 2
    said = why(guarded, "--client", "valve", "--tenant", "acme")
    assert "is banned: stolen. `barid ban list`" in said


def test_a_limit_of_the_tenant(broker_with, paho, guard):
    running = broker_with(guard + "[tenants.acme.limits]\nmax_connections = 1\n")
    login = {"to": running, "username": "acme/ada", "password": "secret"}
    paho("one", **login)
    with pytest.raises(Refused):
        paho("two", **login)
    until(lambda: lines(running, "INFO", "login denied", "max_connections", 'client="two"'))
    assert "`barid tenant show`" in why(running, "--client", "two", "--tenant", "acme")


def test_a_back_end_that_does_not_answer(broker_with, paho):
    port = free_port()
    running = broker_with(f"""
        [auth]
        chain = ["web"]
        [auth.http.web]
        shape = "emqx"
        url = "http://127.0.0.1:{port}/auth"
    """)
    with pytest.raises(Refused) as refused:
        paho("pump", to=running, username="acme/ada", password="secret")
    assert refused.value.code == 0x88
    until(lambda: lines(running, "INFO", "login denied", "web", 'user="acme/ada"', 'client="pump"'))
    assert "web" in why(running, "--client", "pump", "--tenant", "acme")


def test_a_user_who_is_removed_while_connected(broker_with, paho, guard):
    running = broker_with(guard)
    admin = ("--admin", f"127.0.0.1:{running.admin_port}")
    add = barid("user", "add", "acme/eve", "--password-file", "-", "--cost", "device", *admin, input="secret")
    assert add.returncode == 0, add.stderr
    eve = paho("eve", to=running, username="acme/eve", password="secret")
    assert barid("user", "remove", "acme/eve", "--yes", *admin).returncode == 0
    assert eve.disconnected.get(timeout=2)
    until(lambda: lines(running, "INFO", "login denied", ": disconnected", 'client="eve"', 'user="acme/eve"'))


def test_which_rule_denies(broker_with, paho):
    running = broker_with(f"""
        [[users]]
        name = "acme/ada"
        password = "{hashed("secret")}"
        rules = [{{ allow = "publish", topics = ["a"] }}, {{ deny = "publish", topics = ["b/#"] }}]
        [[tenants.acme.rules]]
        deny = "publish"
        topics = ["c"]
    """)
    ada = paho("pump", to=running, username="acme/ada", password="secret")
    for topic, reason in (("b/1", "rule 2 of the user denies it"), ("c", "rule 1 of the tenant denies it"), ("d", "no rule of the user or of the tenant allows it")):
        ada.publish(topic, b"x", 1)
        until(lambda: lines(running, f"publish denied: {reason}", f'topic="{topic}"'))


def test_denials_stay_while_nobody_is_connected(guarded, paho):
    """A fleet with a wrong password has no connections. Tenants that are unused are removed every few seconds."""
    with pytest.raises(Refused):
        paho("thief", to=guarded, username="acme/ada", password="guess")
    time.sleep(14)
    said = why(guarded, "--client", "thief", "--tenant", "acme")
    assert "the password is wrong" in said and "no tenant" not in said


def test_what_was_denied_to_a_user(guarded, paho):
    for client in ("one", "two"):
        with pytest.raises(Refused):
            paho(client, to=guarded, username="acme/ada", password="guess")
    until(lambda: denied(guarded, "acme", "login") == 2)
    said = why(guarded, "--user", "acme/ada")
    assert "one" in said and "two" in said and "the password is wrong" in said
    assert "Nothing that the broker remembers was denied to acme/bob" in why(guarded, "--user", "acme/bob")
    assert len(json.loads(why(guarded, "--user", "acme/ada", "--json"))["denials"]["denials"]) == 2


# ------------------------------------------------------------------------------------------------------ for whom

def test_why_tells_who_else_was_not_allowed_to_publish_there(guarded, ada):
    """The subscriber asks, and the cause is its publisher."""
    ada("sensor").publish("b/1", b"x", 1)
    said = why(guarded, "--client", "panel", "--tenant", "acme", "--topic", "b/1")
    assert "Others were not allowed to publish to b/1" in said and "sensor" in said
    answer = json.loads(why(guarded, "--client", "panel", "--tenant", "acme", "--topic", "b/1", "--json"))
    assert answer["denials"]["denials"] == [] and len(answer["denials_of_topic"]["denials"]) == 1


def test_tenants_do_not_see_each_others(broker_with, paho):
    running = broker_with(f"""
        [[users]]
        name = "acme/ada"
        password = "{hashed("secret")}"
        publish = []
        [[users]]
        name = "globex/ada"
        password = "{hashed("secret")}"
    """)
    paho("pump", to=running, username="globex/ada", password="secret")
    paho("pump", to=running, username="acme/ada", password="secret").publish("a", b"x", 1)
    until(lambda: denied(running, "acme", "publish") == 1)
    assert denied(running, "globex", "publish") == 0 and denials(running, "globex") == []


def test_what_is_denied_again_and_again_takes_one_place(guarded, ada):
    """So a client that tries for ever does not hide the others."""
    pump = ada("pump")
    for number in range(200):
        pump.publish("b/1", b"x", number % 2)
    pump.publish("b/2", b"x", 1)
    first, second = denials(guarded, "acme", client="pump")
    assert (first["object"], first["count"], second["object"], second["count"]) == ("b/2", 1, "b/1", 200)


def test_names_cannot_forge_lines_of_the_log(broker_with, dial, guard):
    running = broker_with(guard)
    dial(to=running).connect("x\n2026-01-01T00:00:00Z  INFO login accepted", username="acme/ada", password=b"no")
    until(lambda: lines(running, "login denied"))
    assert not [line for line in running.stderr.splitlines() if line.startswith("2026-01-01T00:00:00Z")]


# ------------------------------------------------------------------------------------------------------ counters

def test_counters_of_a_tenant_stay_when_nobody_uses_it(broker_with, paho, unique):
    """It is removed, and its counters go on where they were when it comes back."""
    running = broker_with("")
    tenant = unique("shy")

    def connects() -> float:
        return running.metric(rf'^barid_connects_total{{tenant="{tenant}"}}')

    def exists() -> bool:
        return tenant in running.http("/v1/tenants")[1]

    client = paho(to=running, tenant=tenant)
    client.publish("x", b"", 1)
    client.leave()
    until(lambda: not exists(), 25)
    assert connects() == 1
    assert running.metric(rf'^barid_packets_total{{tenant="{tenant}",direction="in",type="publish"}}') == 1
    paho(to=running, tenant=tenant)
    assert exists() and connects() == 2


def test_counters_of_a_binding_stay_when_it_is_changed(broker_with, paho):
    running = broker_with("")
    admin = ("--admin", f"127.0.0.1:{running.admin_port}")

    def passed() -> float:
        return running.metric(r'^barid_binding_messages_total{tenant="default",binding="b",way="in",outcome="passed"}')

    assert barid("queue", "create", "q", *admin).returncode == 0
    assert barid("binding", "set", "b", "--filter", "a/#", "--queue", "q", *admin).returncode == 0
    publisher = paho(to=running)
    publisher.publish("a/1", b"x", 1)
    assert passed() == 1
    assert barid("binding", "set", "b", "--filter", "a/+", "--queue", "q", *admin).returncode == 0
    assert passed() == 1
    publisher.publish("a/1", b"x", 1)
    assert passed() == 2
    assert barid("binding", "delete", "b", "--yes", *admin).returncode == 0
    assert passed() == 2


# ------------------------------------------------------------------------------------------------------ the log

def test_a_log_that_nobody_reads_holds_up_nobody(tmp_path, guard):
    """A pipe that is full takes no line, and the broker goes on."""
    (tmp_path / "barid.toml").write_text(f'[log]\nlevel = "debug"\n{guard}')
    mqtt, admin = free_port(), free_port()
    command = [BINARY, "serve", "--config", tmp_path / "barid.toml", "--data-dir", tmp_path / "data", "--mqtt", f"127.0.0.1:{mqtt}",
               "--ws", "off", "--amqp", "off", "--admin", f"127.0.0.1:{admin}", "--workers", "1"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
    try:
        while not process.stdout.readline().startswith("ready"):
            assert process.poll() is None
        # Two lines for each connection, of 100 bytes and more: far beyond the 64 KiB of the pipe.
        for _ in range(1_500):
            client = wire.Client(("127.0.0.1", mqtt))
            client.send(b"\xff\xff\xff\xff\xff")
            client.stream.close()
        client = wire.Client(("127.0.0.1", mqtt))
        assert client.connect("late", username="acme/ada", password=b"secret").reason == 0
        client.send(wire.pingreq())
        client.expect(wire.PINGRESP)
    finally:
        reader = threading.Thread(target=process.stderr.read)
        process.terminate()
        reader.start()
        process.wait(20)
        reader.join()
    assert process.returncode == 0


def test_a_refused_reload_is_one_line(guarded):
    # The log is written by a thread of its own, perhaps a moment later.
    until(lambda: " INFO recovered the data directory " in guarded.stderr)
    said = guarded.reload("[limits]\nmax_qos = 'x'\nmax_qso = 1\n")
    events = [line for line in said.splitlines() if re.match(r"\d{4}-\d\d-\d\dT", line)]
    assert len(said.splitlines()) == len(events) == 1, said
    assert "barid.toml:2:" in said and "barid.toml:3:" in said and "max_qos" in said


def test_each_reason_has_a_row_and_its_advice(guarded, ada, paho):
    """A client that is refused for several reasons at once: none hides another."""
    for password in ("wrong", "secret"):
        with pytest.raises(Refused):
            paho("pump", to=guarded, username="acme/ada" if password == "wrong" else "acme/nobody", password=password)
    ada("pump").publish("b/1", b"x", 1)
    said = why(guarded, "--client", "pump", "--tenant", "acme")
    rows = [line for line in said.splitlines() if line.endswith(("[1]", "[2]", "[3]"))]
    assert len(rows) >= 2 and "[1] login: " in said and "publish: " in said, said


def test_a_subscription_beyond_a_limit(broker_with, paho):
    running = broker_with("[limits]\nmax_subscriptions = 1\n")
    client = paho("pump", to=running)
    assert client.subscribe("a", 1) < 0x80
    assert client.subscribe("b", 1) == 0x97
    [denial] = denials(running, "default", client="pump")
    assert (denial["action"], denial["object"]) == ("subscribe", "b") and "max_subscriptions" in denial["reason"]
    assert "barid tenant show" in why(running, "--client", "pump")
