"""Who is connected, and who receives the messages of a topic: the admin API and `barid client`, `barid receivers`."""

from __future__ import annotations

import json
import re
import subprocess
import time
import uuid

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

import wire
from broker import BINARY, until

pytestmark = pytest.mark.one_broker

ADMINISTRATIVE_ACTION = 0x98


def name() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def client(ours):
    """Connects a client of MQTT, with a tenant of its own unless another one is named."""
    clients = []

    def connect(tenant: str, client_id: str, version: int = wire.V5, **options) -> wire.Client:
        clients.append(wire.Client(ours.address, version))
        clients[-1].connect(client_id, username=f"{tenant}/u", **options)
        return clients[-1]

    yield connect
    for one in clients:
        one.drop()


def ask(broker, path: str) -> dict:
    status, body = broker.http(path)
    assert status == 200, body
    return json.loads(body)


def barid(broker, *words: str) -> subprocess.CompletedProcess:
    command = [BINARY, *words, "--admin", f"127.0.0.1:{broker.admin_port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_a_client_is_described(ours, client):
    tenant = name()
    one = client(tenant, "sensor-7", keep_alive=60, properties={"session_expiry_interval": 3_600})
    one.subscribe("a/#", "b", qos=1)
    found, = ask(ours, f"/v1/tenants/{tenant}/clients")["clients"]
    host, port = one.stream.getsockname()
    assert found.pop("connected_at").startswith("20") and found.pop("connection") > 0
    assert found == {"client": "sensor-7", "protocol": "MQTT", "version": "5.0", "user": None, "key": None, "address": f"{host}:{port}",
                     "listener": "mqtt", "keep_alive": 60, "expiry_seconds": 3_600, "subscriptions": 2, "in_flight": 0,
                     "queued_messages": 0, "queued_bytes": 0, "received_messages": 0, "received_bytes": 0, "sent_messages": 0, "sent_bytes": 0}
    alone = ask(ours, f"/v1/tenants/{tenant}/clients/sensor-7")
    assert [one["filter"] for one in alone["subscriptions"]] == ["a/#", "b"] and alone["will"] is None
    shown = barid(ours, "client", "show", "sensor-7", "--tenant", tenant).stdout
    assert re.search(rf"^address +{host}:{port}$", shown, re.MULTILINE) and re.search(r"^b +1$", shown, re.MULTILINE)
    assert re.search(r"^keep alive +60 s$", shown, re.MULTILINE)


def test_what_a_client_sends_and_receives_is_counted(ours, client):
    tenant = name()
    one, other = client(tenant, "busy"), client(tenant, "other")
    one.subscribe("a", qos=1)
    other.subscribe("a", qos=0)
    for _ in range(10):
        one.publish("a", b"12345", qos=1)
    one.receive_all(count=10)
    one.ping()
    busy, quiet = ask(ours, f"/v1/tenants/{tenant}/clients")["clients"]
    assert (busy["received_messages"], busy["sent_messages"], quiet["received_messages"], quiet["sent_messages"]) == (10, 10, 0, 10)
    # Fixed header, topic, packet identifier, properties, payload.
    assert (busy["received_bytes"], busy["sent_bytes"], quiet["sent_bytes"]) == (10 * 13, 10 * 13, 10 * 11)
    shown = barid(ours, "client", "show", "busy", "--tenant", tenant).stdout
    assert re.search(r"^received +10 messages, 130 B$", shown, re.MULTILINE), shown
    rates = subprocess.Popen([BINARY, "client", "list", "--rates", "--tenant", tenant, "--admin", f"127.0.0.1:{ours.admin_port}"],
                             stdout=subprocess.PIPE, text=True)
    while rates.poll() is None:
        other.publish("b", b"x")
        time.sleep(0.01)
    lines = rates.stdout.read().splitlines()
    assert [line.split()[0] for line in lines] == ["CLIENT", "other", "busy"] and int(lines[1].split()[3]) > 0, lines
    again = client(tenant, "busy")
    again.ping()
    assert ask(ours, f"/v1/tenants/{tenant}/clients/busy")["received_messages"] == 0, "counted since the client has connected"


def test_pages_are_stable_under_change(ours, client):
    """Clients that come and go between two pages hide none of the others, and no client is listed twice."""
    tenant = name()
    names = [f"c{number:03}" for number in range(60)]
    clients = {one: client(tenant, one) for one in reversed(names)}
    found, after = [], ""
    while after is not None:
        page = ask(ours, f"/v1/tenants/{tenant}/clients?limit=7{after and f'&after={after}'}")
        assert len(page["clients"]) <= 7
        found += [one["client"] for one in page["clients"]]
        after = page["next"]
        gone = clients.pop(found[-1], None)
        if gone:
            gone.disconnect()
            client(tenant, f"a{len(found)}")
    assert found == names


def test_clients_are_searched(ours, client):
    tenant = name()
    for one, version in (("pump-1", wire.V311), ("pump-2", wire.V5), ("valve-1", wire.V31)):
        client(tenant, one, version)
    listed = lambda parameters: [one["client"] for one in ask(ours, f"/v1/tenants/{tenant}/clients?{parameters}")["clients"]]
    assert listed("search=pump") == ["pump-1", "pump-2"] and listed("search=e-1") == ["valve-1"]
    assert listed("address=127.0.") == ["pump-1", "pump-2", "valve-1"] and listed("address=10.") == []
    assert listed("protocol=mqtt&limit=1") == ["pump-1"] and listed("protocol=amqp") == []
    assert listed(f"user={tenant}/u") == [], "the broker has no users"
    versions = {one["client"]: one["version"] for one in ask(ours, f"/v1/tenants/{tenant}/clients")["clients"]}
    assert versions == {"pump-1": "3.1.1", "pump-2": "5.0", "valve-1": "3.1"}
    lines = barid(ours, "client", "list", "--tenant", tenant, "--search", "pump").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["CLIENT", "pump-1", "pump-2"] and "MQTT 3.1.1" in lines[1]
    cut = barid(ours, "client", "list", "--tenant", tenant, "--limit", "2").stdout
    assert cut.endswith("raise --limit\n") and "valve" not in cut


def test_a_client_is_kicked_and_keeps_its_session(ours, client):
    tenant = name()
    one = client(tenant, "sensor", properties={"session_expiry_interval": 3_600})
    one.subscribe("a", qos=1)
    assert barid(ours, "client", "kick", "sensor", "--tenant", tenant).stdout == "disconnected sensor\n"
    one.expect_refused(ADMINISTRATIVE_ACTION)
    until(lambda: ask(ours, f"/v1/tenants/{tenant}/clients")["clients"] == [])
    again = barid(ours, "client", "kick", "sensor", "--tenant", tenant)
    assert again.returncode != 0 and "is connected" in again.stderr
    back = client(tenant, "sensor", clean=False, properties={"session_expiry_interval": 3_600})
    assert back.connack.session_present


def test_tenants_do_not_see_each_other(ours, client):
    mine, other = name(), name()
    client(mine, "sensor").subscribe("a")
    client(other, "sensor")
    assert [one["subscriptions"] for one in ask(ours, f"/v1/tenants/{other}/clients")["clients"]] == [0]
    assert ask(ours, f"/v1/tenants/{other}/receivers?topic=a")["sessions"] == []
    assert ours.http(f"/v1/tenants/{name()}/clients")[0] == 404


@pytest.mark.parametrize("parameters", ["limit=0", "limit=10001", "after=x", "after=amqp/x", "protocol=http", "nothing=1"])
def test_questions_that_make_no_sense_are_refused(ours, client, parameters):
    tenant = name()
    client(tenant, "one")
    assert ours.http(f"/v1/tenants/{tenant}/clients?{parameters}")[0] == 400


def test_the_session_of_a_kicked_client_goes_on_as_after_a_lost_connection(ours, connect, unique):
    """Its will is published, and its expiry begins (MQTT 5 §3.1.2.5, §3.1.2.11.2)."""
    client_id, topic = unique("kick"), unique("will")
    heir = connect()
    heir.subscribe(topic, qos=1)
    for options in ({"session_expiry_interval": 2}, {}):
        one = connect(client_id=client_id, clean=False, properties=options, will=wire.Will(topic, b"gone", 1, False, {}))
        assert barid(ours, "client", "kick", client_id).returncode == 0
        one.expect_refused(0x98)
        assert heir.receive().payload == b"gone"
        path = f"/v1/tenants/default/sessions/{client_id}"
        assert ours.http(path)[0] == (200 if options else 404)
        until(lambda path=path: ours.http(path)[0] == 404, 10)


def test_clients_of_amqp_are_listed_and_kicked(broker_with):
    running = broker_with('[[queues]]\nname = "orders"\n')
    one = wire.Client(running.address)
    one.connect("sensor")
    connection = (f"Endpoint=sb://127.0.0.1:{running.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
                  "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;")
    with ServiceBusClient.from_connection_string(connection) as bus:
        with bus.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("a batch"), ServiceBusMessage("of two")])
            sent, = ask(running, "/v1/tenants/default/clients?protocol=amqp")["clients"]
            assert (sent["received_messages"], sent["sent_messages"]) == (2, 0) and sent["received_bytes"] > 13
        with bus.get_queue_receiver("orders") as receiver:
            assert len(receiver.receive_messages(2, max_wait_time=5)) == 2
            metric = lambda direction: running.metric(rf'^barid_amqp_messages_total{{tenant="default",direction="{direction}"}}')
            assert (metric("in"), metric("out")) == (2, 2)
            mqtt, amqp = ask(running, "/v1/tenants/default/clients")["clients"]
            assert (mqtt["client"], amqp["protocol"], amqp["version"], amqp["key"]) == ("sensor", "AMQP", "1.0", "RootManageSharedAccessKey")
            assert "subscriptions" not in amqp
            first = ask(running, "/v1/tenants/default/clients?limit=1")
            assert first["next"] == "mqtt/sensor"
            second = ask(running, "/v1/tenants/default/clients?limit=1&after=mqtt/sensor")
            assert ([one["connection"] for one in second["clients"]], second["next"]) == ([amqp["connection"]], None)
            kicked = barid(running, "client", "kick", "--amqp", str(amqp["connection"]))
            assert kicked.stdout == f"disconnected the AMQP connection {amqp['connection']}\n"
            until(lambda: amqp["connection"] not in [one["connection"] for one in
                                                     ask(running, "/v1/tenants/default/clients?protocol=amqp")["clients"]])
    one.drop()


def test_who_receives_a_topic(ours, client):
    tenant = name()
    both, exact, away = (client(tenant, one, properties={"session_expiry_interval": 60}) for one in ("both", "exact", "away"))
    both.subscribe(("plant/+/t", 1), ("plant/#", 0), ("other", 2))
    exact.subscribe("plant/4/t", qos=2)
    away.subscribe("plant/4/#", qos=1)
    away.disconnect()
    for worker in ("w1", "w2"):
        client(tenant, worker).subscribe("$share/workers/plant/#", qos=1)
    found = ask(ours, f"/v1/tenants/{tenant}/receivers?topic=plant/4/t")
    assert [(one["client"], one["connected"], one["qos"], [each["filter"] for each in one["subscriptions"]])
            for one in found["sessions"]] == [("away", False, 1, ["plant/4/#"]), ("both", True, 1, ["plant/#", "plant/+/t"]),
                                              ("exact", True, 2, ["plant/4/t"])]
    group, = found["shared"]
    assert (group["name"], group["filter"], group["count"]) == ("workers", "plant/#", 2)
    assert [member["client"] for member in group["members"]] == ["w1", "w2"]
    assert (found["bindings"], found["brokers"], found["next"]) == ([], [], None)
    page = ask(ours, f"/v1/tenants/{tenant}/receivers?topic=plant/4/t&limit=1&after=away")
    assert ([one["client"] for one in page["sessions"]], page["next"]) == (["both"], "both")
    shown = barid(ours, "receivers", "plant/4/t", "--tenant", tenant).stdout
    assert "plant/#, plant/+/t" in shown and "one of the 2 members of $share/workers/plant/# gets a copy\n" in shown
    assert barid(ours, "receivers", "elsewhere", "--tenant", tenant).stdout.startswith("nobody")
    assert ours.http(f"/v1/tenants/{tenant}/receivers?topic=a/%23")[0] == 400
