"""Queues, topics and bindings of a tenant are at one broker of a cluster, and can be used over any of them."""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

import wire
from broker import free_port, until
from brokers import Cluster, Member

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "servicebus"))

import amqp_wire  # noqa: E402

TENANTS = [f"t{number}" for number in range(8)]

# The same at all brokers.
CONFIG = "".join(f"""
[[keys]]
name = "{tenant}/all"
key = "secret of {tenant}"
rights = ["Manage"]

[[queues]]
tenant = "{tenant}"
name = "jobs"

[[queues]]
tenant = "{tenant}"
name = "ordered"
properties.RequiresSession = true

[[queues]]
tenant = "{tenant}"
name = "out"

[[bindings]]
tenant = "{tenant}"
name = "in"
filter = "jobs/#"
queue = "jobs"

[[bindings]]
tenant = "{tenant}"
name = "out"
from_queue = "out"
publish = "done/{{property:id}}"
qos = 1
""" for tenant in TENANTS)


class Managed(Member):
    """A broker that also listens for administration clients of Service Bus."""

    def arguments(self) -> list:
        self.management_port = free_port()
        return ["--management", f"127.0.0.1:{self.management_port}"]


@pytest.fixture(scope="module")
def brokers():
    cluster = Cluster(3, CONFIG, homes=True, member=Managed)
    yield cluster
    for member in cluster:
        assert "panicked at" not in member.stderr, member.stderr
    cluster.close()


def text(tenant: str, port: int) -> str:
    return (f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={tenant}/all;SharedAccessKey=secret of {tenant};"
            "UseDevelopmentEmulator=true;")


@pytest.fixture
def worker():
    """Connects a client of Service Bus."""
    opened = []

    def connect(tenant: str, to: Member) -> ServiceBusClient:
        opened.append(ServiceBusClient.from_connection_string(text(tenant, to.amqp_port), retry_total=0))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
def device():
    """Connects an MQTT client of a tenant."""
    connected = []

    def connect(tenant: str, to: Member, name: str) -> wire.Client:
        client = wire.Client(to.address)
        client.connect(name, username=f"{tenant}/{name}")
        connected.append(client)
        return client

    yield connect
    for client in connected:
        client.stream.close()


def home_of(tenant: str, brokers) -> str:
    """Returns the broker that has the entities of a tenant: the only one whose metrics have any."""
    having = [one.name for one in brokers if any(
        "jobs" in line and f'"{tenant}"' in line for line in one.http("/metrics")[1].splitlines())]
    assert len(having) == 1, having
    return having[0]


def send(client: ServiceBusClient, queue: str, *bodies: str, **properties) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, **properties) for body in bodies])


def receive(client: ServiceBusClient, queue: str, count: int, **options) -> list[str]:
    received = []
    with client.get_queue_receiver(queue, max_wait_time=5, **options) as receiver:
        while len(received) < count:
            taken = receiver.receive_messages(max_message_count=count - len(received), max_wait_time=5)
            assert taken, received
            for message in taken:
                receiver.complete_message(message)
                received.append(str(message))
    return received


def ask(member: Member, path: str, method: str = "GET", body: dict | None = None) -> tuple[int, dict]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{member.admin_port}{path}", data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_each_broker_has_the_entities_of_some_tenants(brokers):
    homes = {tenant: home_of(tenant, brokers) for tenant in TENANTS}
    assert set(homes.values()) == {"b1", "b2", "b3"}, homes
    for tenant, home in homes.items():
        listed = brokers[0].command("slots", "--tenant", tenant)
        assert listed.returncode == 0 and listed.stdout.splitlines()[1].split()[1] == home, listed.stdout + listed.stderr


@pytest.mark.parametrize("tenant", TENANTS[:3])
def test_what_is_sent_to_any_broker_is_received_from_any(brokers, worker, tenant):
    for sends in brokers:
        for receives in brokers:
            send(worker(tenant, sends), "jobs", "a", "b")
            assert receive(worker(tenant, receives), "jobs", 2) == ["a", "b"]


@pytest.mark.parametrize("tenant", TENANTS[:3])
def test_a_message_session_is_locked_for_all_brokers(brokers, worker, tenant):
    send(worker(tenant, brokers[0]), "ordered", "1", "2", session_id="s")
    with worker(tenant, brokers[1]).get_queue_receiver("ordered", session_id="s") as holder:
        holder.session.set_state(b"half")
        for other in brokers:
            with pytest.raises(ServiceBusError):
                worker(tenant, other).get_queue_receiver("ordered", session_id="s", max_wait_time=1).__enter__()
        assert [str(message) for message in holder.receive_messages(2, max_wait_time=5)] == ["1", "2"]
    with worker(tenant, brokers[2]).get_queue_receiver("ordered", session_id="s") as next_one:
        assert bytes(next_one.session.get_state()) == b"half"
        for message in next_one.receive_messages(2, max_wait_time=5):
            next_one.complete_message(message)


@pytest.mark.parametrize("tenant", TENANTS[:3])
def test_a_key_with_sasl_plain_reaches_the_entities_over_any_broker(brokers, tenant):
    for member in brokers:
        connection = amqp_wire.connect(("127.0.0.1", member.amqp_port), f"{tenant}/all", f"secret of {tenant}")
        sender = connection.session().sender("jobs")
        sender.send(amqp_wire.Message.of("plain"))
        connection.close()
    with ServiceBusClient.from_connection_string(text(tenant, brokers[0].amqp_port)) as client:
        assert receive(client, "jobs", 3) == ["plain"] * 3


def test_a_user_reaches_the_entities_over_any_broker(cluster_of):
    """The broker that is reached verifies the password, and so does the home."""
    brokers = cluster_of(3, more=CONFIG, homes=True)
    for tenant in TENANTS[:3]:
        user = f"{tenant}/worker"
        added = brokers[0].run("user", "add", user, "--password-file", "-", "--cost", "device", input="secret")
        assert added.returncode == 0, added.stderr
        for member in brokers:
            until(lambda: member.run("user", "show", user).returncode == 0)
            amqp_wire.connect(("127.0.0.1", member.amqp_port), user, "secret").session().sender("jobs").send(
                amqp_wire.Message.of("of a user"))
            with pytest.raises(AssertionError):
                amqp_wire.connect(("127.0.0.1", member.amqp_port), user, "wrong")
        with ServiceBusClient.from_connection_string(text(tenant, brokers[1].amqp_port)) as client:
            assert receive(client, "jobs", 3) == ["of a user"] * 3


@pytest.mark.parametrize("tenant", TENANTS[:3])
def test_a_wrong_key_is_refused_by_the_broker_that_is_reached(brokers, tenant):
    for member in brokers:
        wrong = text(tenant, member.amqp_port).replace("secret of", "guess of")
        with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client, pytest.raises(ServiceBusError):
            send(client, "jobs", "never")
        status, told = ask(member, f"/v1/tenants/{tenant}/denials")
        assert status == 200 and f"{tenant}/all" in json.dumps(told), told


@pytest.mark.parametrize("tenant", TENANTS[:3])
def test_what_devices_publish_at_any_broker_enters_the_queue_once(brokers, device, worker, tenant):
    for qos in (0, 1, 2):
        for index, member in enumerate(brokers):
            client = device(tenant, member, f"d{qos}{index}")
            client.publish(f"jobs/{qos}/{index}", f"{qos}{index}".encode(), qos=qos)
    expected = sorted(f"{qos}{index}" for qos in (0, 1, 2) for index in range(3))
    reader = worker(tenant, brokers[0])
    assert sorted(receive(reader, "jobs", len(expected))) == expected
    with reader.get_queue_receiver("jobs", max_wait_time=1) as receiver:
        assert receiver.receive_messages(1, max_wait_time=1) == []


@pytest.mark.parametrize("tenant", TENANTS[:3])
def test_what_workers_send_reaches_devices_at_all_brokers(brokers, device, worker, tenant):
    devices = [device(tenant, member, f"r{index}") for index, member in enumerate(brokers)]
    for client in devices:
        client.subscribe("done/#", qos=1)
    send(worker(tenant, brokers[1]), "out", "ready", application_properties={"id": "7"})
    for client in devices:
        message = client.receive(b"ready")
        assert message.topic == "done/7"


def test_the_admin_api_of_any_broker_changes_and_shows_them(brokers):
    for tenant in TENANTS[:3]:
        for index, member in enumerate(brokers):
            path = f"/v1/tenants/{tenant}/queues/made{index}"
            status, told = ask(member, path, "PUT", {"LockDuration": "PT7S"})
            assert status in (200, 201), told
            for other in brokers:
                status, shown = ask(other, path)
                assert status == 200 and shown["properties"]["LockDuration"] == "PT7S", shown
            assert ask(brokers[index - 1], path, "DELETE")[0] in (200, 204)
            assert [ask(other, path)[0] for other in brokers] == [404] * 3
    status, told = ask(brokers[0], f"/v1/tenants/{TENANTS[0]}/queues/jobs", "PUT", {"LockDuration": "never"})
    assert status == 400 and "never" in told["error"], told


def test_a_binding_that_is_made_at_one_broker_works_at_all(brokers, device, worker):
    for tenant in TENANTS[:3]:
        path = f"/v1/tenants/{tenant}/bindings/late"
        status, told = ask(brokers[2], path, "PUT", {"filter": "late/+", "queue": "jobs"})
        assert status in (200, 201), told
        for index, member in enumerate(brokers):
            device(tenant, member, f"l{index}").publish(f"late/{index}", str(index).encode(), qos=1)
        assert sorted(receive(worker(tenant, brokers[1]), "jobs", 3)) == ["0", "1", "2"]
        assert ask(brokers[0], path, "DELETE")[0] in (200, 204)
        for index, member in enumerate(brokers):
            device(tenant, member, f"m{index}").publish(f"late/{index}", b"too late", qos=1)
        client = worker(tenant, brokers[0])
        with client.get_queue_receiver("jobs", max_wait_time=1) as receiver:
            assert receiver.receive_messages(1, max_wait_time=1) == []


def test_the_tools_reach_the_queues_over_any_broker(brokers):
    for tenant in TENANTS[:3]:
        for member in brokers:
            sent = member.run("queue", "send", "jobs", "--message", "hello", "--tenant", tenant)
            assert sent.returncode == 0, sent.stderr
        listed = brokers[0].run("queue", "list", "--tenant", tenant)
        assert "jobs" in listed.stdout, listed.stdout + listed.stderr
        got = [brokers[index].run("queue", "receive", "jobs", "--tenant", tenant) for index in range(3)]
        assert all("hello" in one.stdout for one in got), [one.stdout + one.stderr for one in got]


@pytest.mark.parametrize("tenant", TENANTS[:3])
def test_an_administration_client_of_service_bus_may_use_any_broker(brokers, tenant):
    def administrator(member: Managed) -> ServiceBusAdministrationClient:
        host = f"127.0.0.1:{member.management_port}"
        client = ServiceBusAdministrationClient.from_connection_string(text(tenant, member.management_port), retry_total=0)
        client._impl._client._base_url = f"http://{host}"
        return client

    for index, member in enumerate(brokers):
        administrator(member).create_queue(f"by-sdk-{index}")
    names = {queue.name for queue in administrator(brokers[0]).list_queues()}
    assert {f"by-sdk-{index}" for index in range(3)} <= names
    for index in range(3):
        administrator(brokers[index - 1]).delete_queue(f"by-sdk-{index}")


def test_a_home_that_is_down_is_named_and_comes_back(cluster_of):
    brokers = cluster_of(2, more=CONFIG, homes=True)
    homes = {home_of(tenant, brokers): tenant for tenant in TENANTS}
    tenant, here = homes["b2"], brokers[0]
    send_once = lambda body: send_to(here, tenant, body)  # noqa: E731
    send_once("before")
    brokers[1].kill9()
    until(lambda: here.states()["b2"] != "up")
    with pytest.raises(ServiceBusError, match="b2"):
        send_once("lost")
    status, told = ask(here, f"/v1/tenants/{tenant}/queues")
    assert status == 503 and "b2" in told["error"], told
    # The tenants of the other broker go on.
    send_to(here, homes["b1"], "goes on")
    brokers[1].start()
    brokers.settles()
    send_once("after")
    with ServiceBusClient.from_connection_string(text(tenant, here.amqp_port)) as client:
        assert receive(client, "jobs", 2) == ["before", "after"]


def send_to(member: Member, tenant: str, body: str) -> None:
    with ServiceBusClient.from_connection_string(text(tenant, member.amqp_port), retry_total=0) as client:
        send(client, "jobs", body)


def test_a_broker_says_what_it_has_that_belongs_to_others(cluster_of):
    brokers = cluster_of(1, more=CONFIG)
    for tenant in TENANTS:
        send_to(brokers[0], tenant, "from before")
    client = wire.Client(brokers[0].address)
    client.connect("kept", username=f"{TENANTS[0]}/kept", clean=False, properties={"session_expiry_interval": 600})
    client.drop()
    brokers[0].stop()
    # A hash decides which tenants and clients are at the other broker; some of eight tenants are.
    brokers[0]._config = brokers[0]._config.replace("homes = []", 'homes = ["b1", "b2"]')
    brokers[0].start()
    warned = [line for line in brokers[0].stderr.splitlines() if "cannot be used here" in line]
    assert 0 < len(warned) < len(TENANTS) and all('home="b2"' in line for line in warned), brokers[0].stderr
    # With another list the session has another home, too.
    brokers[0].stop()
    brokers[0]._config = brokers[0]._config.replace('homes = ["b1", "b2"]', 'homes = ["b2", "b3"]')
    brokers[0].start()
    assert "stored sessions in the data directory belong to other brokers" in brokers[0].stderr
    assert sum("cannot be used here" in line for line in brokers[0].stderr.splitlines()) == len(warned) + len(TENANTS)
