"""Sessions that outlive their connections: each is at one broker, and is found over all of them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid

import pytest
import websocket

import wire
from broker import ROOT, free_port, until
from certificates import Certificates
from brokers import Member, issued, link_tls

HOUR = {"session_expiry_interval": 3_600}
UNAVAILABLE = {wire.V311: 3, wire.V5: 0x88}
TAKEN_OVER = 0x8E


def name() -> str:
    return uuid.uuid4().hex[:20]


def stored(client, to: Member, client_id: str, version: int = wire.V5, **options) -> wire.Client:
    """Connects a client with a session that outlives the connection, and that it has had before if there is one."""
    properties = {**HOUR, **options.pop("properties", {})} if version == wire.V5 else None
    return client(to, client_id, version, clean=False, properties=properties, **options)


def home_of(client_id: str, members) -> Member:
    """Returns the broker that has the session of a client."""
    found = [member for member in members if member.has_session(client_id)]
    assert len(found) == 1, [member.name for member in found]
    return found[0]


def clients_at(member: Member, members) -> itertools.count:
    """Returns identifiers of clients whose sessions belong to a broker, after asking for each."""
    while True:
        client_id = name()
        probe = wire.Client(member.address)
        probe.connect(client_id, clean=False, properties=HOUR)
        home = home_of(client_id, members)
        probe.disconnect()
        if home is member:
            yield client_id


@pytest.mark.parametrize("version", [wire.V31, wire.V311, wire.V5])
def test_a_session_is_found_over_every_broker(homes, client, version):
    """Its subscription, what has arrived meanwhile, and what was not acknowledged."""
    found = set()
    for _ in range(12):
        client_id = name()
        for qos, broker in enumerate(homes):
            one = stored(client, broker, client_id, version)
            assert one.connack.session_present == (qos > 0 and version != wire.V31)
            if qos == 0:
                one.subscribe(f"{client_id}/#", qos=2)
            else:
                assert one.receive().payload == str(qos - 1).encode()
            found.add(home_of(client_id, homes).name)
            one.disconnect()
            sender = client(homes[(qos + 1) % 3])
            sender.publish(f"{client_id}/a", str(qos).encode(), qos=max(1, qos))
    assert len(found) > 1, "twelve clients have several homes"


def test_the_bytes_pass_in_both_directions(homes, client):
    """Whole megabytes, while the other side is slow."""
    pairs = [(stored(client, broker, name()), client(broker)) for broker in homes for _ in range(2)]
    payload = bytes(range(256)) * 400
    for one, sender in pairs:
        one.subscribe(one.client_id, qos=1)
        for _ in range(20):
            sender.send(wire.publish(one.client_id, payload))
    time.sleep(0.2)
    for one, sender in pairs:
        for _ in range(20):
            assert one.receive().payload == payload
        sender.subscribe(f"{one.client_id}/back")
        for _ in range(20):
            one.send(wire.publish(f"{one.client_id}/back", payload))
        for _ in range(20):
            assert sender.receive().payload == payload
        assert one.publish(f"{one.client_id}/nobody", b"", qos=2).reason in (0, 0x10)


def test_the_older_connection_is_told(homes, client):
    for older, newer in itertools.permutations(homes, 2):
        client_id = name()
        one = stored(client, older, client_id)
        begin = time.monotonic()
        stored(client, newer, client_id)
        one.expect_refused(TAKEN_OVER)
        assert time.monotonic() - begin < 1


def test_exactly_once_over_changing_brokers(homes, client):
    """A publisher of QoS 2 that loses its connection after each packet, and goes on at the next broker."""
    client_id, topic = name(), name()
    receiver = stored(client, homes[2], name())
    receiver.subscribe(topic, qos=2)
    brokers = itertools.cycle(homes)
    for number in range(6):
        one = stored(client, next(brokers), client_id)
        one.send(wire.publish(topic, str(number).encode(), 2, 7))
        one.expect(wire.PUBREC)
        one.drop()
        one = stored(client, next(brokers), client_id)
        one.send(wire.publish(topic, str(number).encode(), 2, 7, dup=True))
        one.expect(wire.PUBREC)
        one.send(wire.acknowledge(wire.PUBREL, 7, flags=2))
        one.expect(wire.PUBCOMP)
        one.drop()
    assert [message.payload for message in receiver.receive_all(count=6)] == [str(number).encode() for number in range(6)]


def test_a_clean_start_ends_the_session_wherever_it_is(homes, client):
    for broker in homes:
        client_id = name()
        one = stored(client, homes[0], client_id)
        one.subscribe(client_id, qos=1)
        one.disconnect()
        client(broker, client_id).disconnect()
        until(lambda client_id=client_id: not any(member.has_session(client_id) for member in homes))
        assert not stored(client, homes[1], client_id).connack.session_present


class TestCleanStartOverAnotherBroker:
    """CONNACK says that the old session is gone for good."""

    def test_the_session_is_gone_when_connack_arrives(self, homes, client):
        for home, reached in itertools.permutations(homes, 2):
            for client_id in itertools.islice(clients_at(home, homes), 10):
                assert not client(reached, client_id).connack.session_present
                assert not stored(client, home, client_id).connack.session_present

    def test_it_stays_gone_if_its_broker_is_killed(self, homes, client):
        home, reached = homes[0], homes[1]
        gone = list(itertools.islice(clients_at(home, homes), 10))
        for client_id in gone:
            client(reached, client_id)
        home.kill9()
        home.start()
        homes.settles()
        assert [client_id for client_id in gone if stored(client, home, client_id).connack.session_present] == []

    def test_connack_waits_for_its_broker(self, homes, client):
        home, reached = homes[1], homes[2]
        client_id = next(clients_at(home, homes))
        one = wire.Client(reached.address)
        home.pause()
        try:
            one.send(wire.connect(client_id))
            with pytest.raises(TimeoutError):
                one.recv(0.4)
        finally:
            home.go_on()
        assert one.expect(wire.CONNACK).reason == 0
        one.drop()
        homes.settles()

    def test_it_does_not_wait_for_one_that_is_down(self, homes, client):
        home, reached = homes[1], homes[2]
        client_id = next(clients_at(home, homes))
        home.kill9()
        until(lambda: reached.states()[home.name] == "down")
        begin = time.monotonic()
        client(reached, client_id)
        assert time.monotonic() - begin < 1
        home.start()
        homes.settles()


def test_the_will_of_a_client_is_published_once(homes, client):
    watcher = client(homes[0])
    for broker in homes:
        client_id = name()
        watcher.subscribe(f"{client_id}/#", qos=1)
        one = stored(client, broker, client_id, will=wire.Will(f"{client_id}/will", b"gone", 1))
        one.drop()
        assert [message.payload for message in watcher.receive_all(count=1)] == [b"gone"]


def test_an_assigned_identifier_belongs_to_a_session_that_is_found(homes, client):
    for broker, other in itertools.permutations(homes, 2):
        one = stored(client, broker, "")
        client_id = one.connack.properties["assigned_client_identifier"]
        one.disconnect()
        assert home_of(client_id, homes) is broker
        assert stored(client, other, client_id).connack.session_present


def test_many_clients_at_once(homes):
    """They all come over one broker, and leave nothing behind."""
    begin = homes[0].metric("^process_open_fds")
    clients: list[wire.Client] = []

    def come(count: int) -> None:
        for _ in range(count):
            one = wire.Client(homes[0].address)
            one.connect(name(), clean=False, properties={"session_expiry_interval": 1})
            one.ping()
            clients.append(one)

    threads = [threading.Thread(target=come, args=(40,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clients) == 320
    away = homes[0].metric("^barid_cluster_relayed_clients")
    assert 120 < away < 320
    assert homes[1].metric("^barid_cluster_hosted_clients") + homes[2].metric("^barid_cluster_hosted_clients") == away
    for one in clients:
        one.drop()
    until(lambda: homes[0].metric("^barid_cluster_relayed_clients") == 0)
    until(lambda: homes[1].metric("^barid_cluster_hosted_clients") == 0)
    until(lambda: homes[0].metric("^process_open_fds") <= begin + 5)


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "tls"])
def test_strangers_who_are_passed_on_keep_nobody_out(cluster_of, client, is_encrypted):
    """Connections without a login that ask for sessions of other brokers, and go away or stay silent."""
    homes = cluster_of(3, homes=True, tls=link_tls(issued()) if is_encrypted else "")
    begin, ended = homes[0].metric("^process_open_fds"), threading.Event()

    def flood(stays: bool) -> None:
        kept = []
        while not ended.is_set():
            one = socket.create_connection(homes[0].address, wire.SECONDS)
            one.sendall(wire.connect(name(), wire.V311, clean=False)[:None if stays else -1] + b"\x30" * stays)
            kept.append(one)
            if len(kept) == 50:
                kept.pop(0).close()
        for one in kept:
            one.close()

    floods = [threading.Thread(target=flood, args=(stays,)) for stays in (False, True)]
    for thread in floods:
        thread.start()
    try:
        waited, open_files = [], []
        bystander = client(homes[0])
        for _ in range(30):
            start = time.monotonic()
            stored(client, homes[0], name()).ping()
            bystander.ping()
            waited.append(time.monotonic() - start)
            open_files.append(homes[0].metric("^process_open_fds"))
    finally:
        ended.set()
        for thread in floods:
            thread.join()
    assert sorted(waited)[-3] < 4, waited
    # A burst that has just been accepted may have more.
    assert sorted(open_files)[15] < begin + 2_000, "who has gone waits for no link"
    # The bystander and thirty clients are still there, some of them with a link.
    until(lambda: homes[0].metric("^process_open_fds") <= begin + 70)


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_while_its_home_is_down_a_client_is_told(cluster_of, client, version):
    cluster = cluster_of(3, homes=True)
    client_id = next(clients_at(cluster[2], cluster))
    cluster[2].kill9()
    until(lambda: cluster[0].states()["b3"] == "down")
    refused = wire.Client(cluster[0].address, version)
    refused.send(wire.connect(client_id, version, clean=False, properties=HOUR if version == wire.V5 else None))
    connack = refused.expect(wire.CONNACK)
    assert connack.reason == UNAVAILABLE[version]
    if version == wire.V5:
        assert connack.properties["reason_string"] == "the broker with the session cannot be reached"
    refused.expect_closed()
    assert cluster[0].metric("^barid_cluster_refused_relays_total") == 1
    denials = json.loads(cluster[0].http("/v1/tenants/default/denials")[1])
    assert "broker b3" in json.dumps(denials)
    others = client(cluster[0], client_id)
    others.ping()
    others.disconnect()
    cluster[2].start()
    cluster.settles()
    assert stored(client, cluster[0], client_id, version).connack.session_present


def test_a_home_that_dies_ends_the_connections(cluster_of, client):
    cluster = cluster_of(3, homes=True)
    client_id = next(clients_at(cluster[1], cluster))
    one = stored(client, cluster[0], client_id)
    one.subscribe(client_id, qos=1)
    cluster[1].kill9()
    one.expect_closed(2)
    cluster[1].start()
    cluster.settles()
    again = stored(client, cluster[2], client_id)
    assert again.connack.session_present
    client(cluster[0]).publish(client_id, b"back", qos=1)
    assert again.receive().payload == b"back"


def test_an_edge_that_dies_leaves_the_session(cluster_of, client):
    cluster = cluster_of(3, homes=True)
    client_id = next(clients_at(cluster[1], cluster))
    one = stored(client, cluster[0], client_id, will=wire.Will("left", b"gone", 1))
    one.subscribe(client_id, qos=1)
    watcher = client(cluster[2])
    watcher.subscribe("left", qos=1)
    cluster[0].kill9()
    assert watcher.receive(b"gone")
    client(cluster[2]).publish(client_id, b"kept", qos=1)
    again = stored(client, cluster[2], client_id)
    assert again.connack.session_present
    assert again.receive().payload == b"kept"


def test_brokers_with_other_slots_are_refused(member):
    first = member("b1", [], homes=["b1", "b2"])
    other = member("b2", [first.link_port], homes=["b2", "b1"])
    until(lambda: other.cluster["problems"])
    assert "its `slots` and `homes` are not those of this broker" in other.cluster["problems"][0]["reason"]
    assert other.states() == {}


def test_the_slots_are_shown(homes, three):
    lines = homes[0].command("slots").stdout.splitlines()
    assert lines[0].split() == ["SLOT", "BROKER", "STATE", "MOVES"] and len(lines) == 33
    assert lines[4].split() == ["3", "b1", "up", "0"] and lines[5].split() == ["4", "b2", "up", "0"]
    for one in homes:
        assert one.command("slots", "--haproxy").stdout.splitlines()[:3] == ["0 b1", "1 b2", "2 b3"]
    without = three[0].command("slots")
    assert without.returncode != 0 and "homes" in without.stderr


class OverWebSocket:
    """A byte stream over a WebSocket."""

    def __init__(self, address: str):
        self.socket = websocket.create_connection(address, subprotocols=["mqtt"], timeout=wire.SECONDS)
        self.settimeout, self.close, self.unread = self.socket.settimeout, self.socket.close, b""

    def sendall(self, data: bytes) -> None:
        self.socket.send_binary(data)

    def recv(self, count: int) -> bytes:
        self.unread = self.unread or self.socket.recv()
        data, self.unread = self.unread[:count], self.unread[count:]
        return data


def test_websockets_end_at_the_broker_that_a_client_reaches(homes, client):
    payload = bytes(range(256)) * 2_000
    sender = client(homes[0])
    for broker in homes:
        for _ in range(3):
            one = wire.Client(OverWebSocket(f"ws://127.0.0.1:{broker.ws_port}/mqtt"))
            one.connect(name(), clean=False, properties=HOUR)
            one.subscribe(one.client_id, qos=1)
            sender.publish(one.client_id, payload, qos=1)
            assert one.receive().payload == payload
            assert one.publish(f"{one.client_id}/up", payload, qos=1).reason in (0, 0x10)
            one.stream.close()


def test_the_certificate_of_a_client_counts_at_its_home(cluster_of, tmp_path):
    certificates = Certificates(tmp_path)
    ports = [free_port() for _ in range(3)]
    tls = certificates.toml(f'client_ca = "{certificates.certificate("ca")}"')
    config = '[auth]\nchain = ["main"]\n[auth.certificate.main]\n' + tls
    cluster = cluster_of(3, homes=True, more=lambda index: f'{config}[listeners.mqtts]\naddress = "127.0.0.1:{ports[index]}"\n')
    context = ssl.create_default_context(cafile=certificates.certificate("ca"))

    def connect(port: int, client_id: str) -> wire.Client:
        stream = socket.create_connection(("127.0.0.1", port), wire.SECONDS)
        one = wire.Client(context.wrap_socket(stream, server_hostname="localhost"))
        one.send(wire.connect(client_id, clean=False, properties=HOUR))
        one.connack = one.expect(wire.CONNACK)
        return one

    names = [name() for _ in range(6)]
    assert {connect(port, one).connack.reason for port in ports for one in names} == {0x86}, "no certificate"
    context.load_cert_chain(certificates.certificate("client"), certificates.key("client"))
    for one in names:
        answers = [connect(port, one).connack for port in ports]
        assert [(answer.reason, answer.session_present) for answer in answers] == [(0, False), (0, True), (0, True)]


def test_a_balancer_finds_the_homes(homes, tmp_path):
    """HAProxy, with the configuration of the operating page."""
    port, slots = free_port(), tmp_path / "slots.map"
    slots.write_text(homes[0].command("slots", "--haproxy").stdout)
    page = (ROOT / "docs/operating/cluster.md").read_text()
    config = re.search(r"```haproxy\n(.*?)```", page, re.DOTALL)[1].replace("bind :1883", f"bind 127.0.0.1:{port}")
    config = config.replace("/etc/haproxy/slots.map", str(slots))
    for number, broker in enumerate(homes, 1):
        config = config.replace(f"10.0.0.{number}:1883", f"127.0.0.1:{broker.port}")
    (tmp_path / "haproxy.cfg").write_text(config)
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    balancer = subprocess.Popen([program, "-db", "-f", tmp_path / "haproxy.cfg"], stderr=subprocess.PIPE)
    clients = []
    try:
        until(lambda: is_open(port))
        for number in range(150):
            version = (wire.V311, wire.V5)[number % 2]
            for user in (None, "sensor", "acme/sensor"):
                one = wire.Client(("127.0.0.1", port), version)
                one.connect(name(), clean=False, properties=HOUR if version == wire.V5 else None, username=user)
                clients.append(one)
        assert sum(broker.metric("^barid_cluster_relayed_clients") for broker in homes) == 0
        assert all(broker.metric("^barid_connections") > 100 for broker in homes)
    finally:
        for one in clients:
            one.drop()
        balancer.kill()
        balancer.wait()


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_an_operator_is_told_which_broker_has_a_session(homes, client):
    """`barid cluster slots --client`, and `barid why` at another broker."""
    home, other = homes[0], homes[1]
    client_id = next(clients_at(home, homes))
    listed = json.loads(other.command("slots", "--client", client_id, "--json").stdout)["slots"]
    assert [slot["broker"] for slot in listed] == [home.name]
    told = other.run("why", "--client", client_id).stdout
    assert f"The broker {home.name} has the sessions" in told and "no subscriptions" in told, told
    assert "has the sessions" not in home.run("why", "--client", client_id).stdout
    client(other, client_id, clean=False, properties=HOUR).subscribe("plant/+", qos=1)
    for asked in (home, other):
        told = asked.run("why", "--client", client_id).stdout
        assert "subscribed to plant/+" in told, told
        status, session = asked.http(f"/v1/tenants/default/sessions/{client_id}")
        assert status == 200 and json.loads(session)["client"] == client_id
    # A session that is not stored is where its client is.
    client(other, "there")
    assert "no session" not in other.run("why", "--client", "there").stdout


def test_a_broker_without_quorum_is_not_healthy(cluster_of):
    cluster = cluster_of(3, homes=True)
    assert [member.http("/health")[0] for member in cluster] == [200] * 3
    for member in cluster.members[:2]:
        member.kill9()
    until(lambda: cluster[2].http("/health")[0] == 503, 15)
    assert cluster[2].http("/healthz")[0] == 200
    for member in cluster.members[:2]:
        member.start()
    cluster.settles()
    assert cluster[2].http("/health")[0] == 200
