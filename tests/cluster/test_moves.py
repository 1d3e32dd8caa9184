"""Slots move from broker to broker while clients use what is in them."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

import wire
from broker import BINARY, free_port, until
from brokers import Cluster, Member
from moving import SLOTS, another, home_of, move, move_and_kill, slot_of

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "statestore"))

from statestore_client import NOT_APPLIED, OK, Store, array, order  # noqa: E402

HOUR = {"session_expiry_interval": 3_600}
TENANT = "acme"
KEYS = f"""
[[keys]]
name = "{TENANT}/all"
key = "the key of acme"
rights = ["Manage"]
"""


@pytest.fixture(scope="module")
def brokers():
    cluster = Cluster(3, KEYS, homes=True)
    yield cluster
    for member in cluster:
        assert "panicked at" not in member.stderr, member.stderr
    cluster.close()


def connects(to: Member, client_id: str, **options) -> wire.Client:
    """Connects a client with a session that outlives its connection; tries again while that is being moved."""
    deadline = time.monotonic() + 20
    while True:
        one = wire.Client(to.address)
        try:
            one.send(wire.connect(client_id, clean=False, properties=HOUR, **options))
            answer = one.recv(10)
            if answer.kind == wire.CONNACK and answer.reason == 0:
                one.connack, one.client_id = answer, client_id
                return one
        except (wire.Closed, OSError):
            pass
        one.drop()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def publisher(to: Member) -> wire.Client:
    """Connects a client whose session ends with its connection: it belongs to no slot, so no move disconnects it."""
    one = wire.Client(to.address)
    one.connect(f"publisher-{uuid.uuid4().hex}")
    return one


def stored_at(client_id: str, brokers) -> list[str]:
    return [one.name for one in brokers if one.has_session(client_id)]


def test_a_session_moves_with_all_that_it_has(brokers):
    """Subscriptions, messages that wait, messages in flight in both directions, and its place in a shared subscription."""
    client_id = uuid.uuid4().hex
    slot = slot_of(client_id)
    home = home_of(slot, brokers)
    to = another(home, brokers)
    one = connects(brokers[0], client_id)
    one.subscribe((f"{client_id}/#", 2), (f"$share/g/{client_id}/shared", 1))
    sender = publisher(brokers[1])
    sender.publish(f"{client_id}/a", b"1", qos=2)
    released = one.expect(wire.PUBLISH)
    one.send(wire.acknowledge(wire.PUBREC, released.packet_id))
    one.expect(wire.PUBREL)
    sender.publish(f"{client_id}/a", b"2", qos=1)
    sent = one.expect(wire.PUBLISH)
    one.send(wire.publish(f"{client_id}/own", b"half", 2, 9))
    received = {}
    while wire.PUBREC not in received:
        found = one.recv()
        received[found.kind] = found
    one.drop()
    for number in range(3, 40):
        sender.publish(f"{client_id}/a", b"%d" % number, qos=1 + number % 2)
    answer = move(slot, to, by=brokers[2])
    assert answer["sessions"] >= 1 and answer["generation"] >= 1 and answer["bytes"] > 0
    assert stored_at(client_id, brokers) == [to.name]
    for number in range(40, 60):
        sender.publish(f"{client_id}/a", b"%d" % number, qos=1)

    again = connects(brokers[2], client_id)
    assert again.connack.session_present
    # The message that it had half sent is known, and is not published once more.
    again.send(wire.publish(f"{client_id}/own", b"half", 2, 9, dup=True))
    # Of its two subscriptions, one is that of a group, of which it is the only member.
    sender.publish(f"{client_id}/shared", b"to both", qos=1)
    payloads, again_released, acknowledged = [], False, False
    while len(payloads) < 61 or not acknowledged:
        found = again.recv()
        if found.kind == wire.PUBLISH:
            if found.payload == b"2":
                assert found.dup and found.packet_id == sent.packet_id
            payloads.append(found.payload)
            again.send(wire.acknowledge(wire.PUBACK if found.qos == 1 else wire.PUBREC, found.packet_id))
        elif found.kind == wire.PUBREL:
            again_released |= found.packet_id == released.packet_id
            again.send(wire.acknowledge(wire.PUBCOMP, found.packet_id))
        elif found.kind == wire.PUBREC and found.packet_id == 9:
            again.send(wire.acknowledge(wire.PUBREL, 9))
        elif found.kind == wire.PUBCOMP:
            acknowledged = True
    assert again_released
    for once in (b"half", b"to both", b"to both"):
        payloads.remove(once)
    numbers = [int(payload) for payload in payloads]
    assert sorted(numbers) == list(range(2, 60))
    # The order holds for each QoS (MQTT 5 §4.6).
    in_two = [number for number in numbers if number % 2 and number < 40]
    in_one = [number for number in numbers if number not in in_two]
    assert in_one == sorted(in_one) and in_two == sorted(in_two)
    again.drop()
    sender.disconnect()


def test_clients_without_an_identifier_are_let_in_wherever_slots_are(brokers):
    for slot in range(4):
        move(slot, another(home_of(slot, brokers), brokers))
    for member in brokers:
        for number in range(60):
            one = wire.Client(member.address, version=(wire.V5, wire.V311)[number % 2])
            assert one.connect("").reason == 0
            one.drop()


def test_a_slot_comes_back(brokers):
    client_id = uuid.uuid4().hex
    slot = slot_of(client_id)
    first = connects(brokers[0], client_id)
    first.subscribe(client_id, qos=1)
    first.disconnect()
    home = home_of(slot, brokers)
    for number, to in enumerate([another(home, brokers), home, another(home, brokers), home]):
        if home_of(slot, brokers) is not to:
            move(slot, to)
        sender = publisher(brokers[number % 3])
        sender.publish(client_id, b"%d" % number, qos=1)
    assert stored_at(client_id, brokers) == [home.name]
    count = "^barid_cluster_slots_moved_total"
    assert sum(one.metric(f'{count}.*"in"') for one in brokers) == sum(one.metric(f'{count}.*"out"') for one in brokers) >= 4
    assert sum(one.metric("^barid_cluster_slots$") for one in brokers) == SLOTS
    assert [one.metric("^barid_cluster_held$") for one in brokers] == [0, 0, 0]
    again = connects(brokers[1], client_id)
    assert [again.receive().payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    again.disconnect()


def test_keys_queues_and_bindings_move_with_their_tenant(brokers):
    slot = slot_of("", TENANT)
    home = home_of(slot, brokers)
    to = another(home, brokers)
    by = another(to, brokers)
    for words in (["queue", "create", "jobs"], ["queue", "create", "ordered", "--requires-session"],
                  ["topic", "create", "news"], ["topic", "subscription", "create", "news", "all"]):
        made = by.run(*words, "--tenant", TENANT)
        assert made.returncode == 0, made.stderr
    made = by.run("binding", "set", "in", "--filter", "jobs/#", "--queue", "jobs", "--tenant", TENANT)
    assert made.returncode == 0, made.stderr
    at_home, watching, elsewhere = (wire.Client(one.address) for one in (home, home, to))
    for name, client in {"at-home": at_home, "watching": watching, "elsewhere": elsewhere}.items():
        client.connect(name, username=f"{TENANT}/{name}")
    store, watcher, asker = Store(at_home), Store(watching), Store(elsewhere)
    watcher.watch(b"key/1")
    assert asker.get(b"key/1") is None
    versions = {b"key/%d" % number: store.set(b"key/%d" % number, b"%d" % number) for number in range(50)}
    text = (f"Endpoint=sb://127.0.0.1:{brokers[1].amqp_port};SharedAccessKeyName={TENANT}/all;SharedAccessKey=the key of acme;"
            "UseDevelopmentEmulator=true;")
    with ServiceBusClient.from_connection_string(text) as bus:
        with bus.get_queue_sender("jobs") as sender:
            sender.send_messages([ServiceBusMessage(f"{number}" * 500) for number in range(5)])
        with bus.get_queue_sender("ordered") as sender:
            sender.send_messages([ServiceBusMessage(str(number), session_id="s") for number in range(3)])
        with bus.get_queue_receiver("ordered", session_id="s") as receiver:
            receiver.session.set_state(b"half")
            receiver.complete_message(receiver.receive_messages(1, max_wait_time=5)[0])
        with bus.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("to all"))

    answer = move(slot, to, by=by)
    assert answer["bytes"] > 2_500
    # Clients of the state store go on, wherever they are, and their watches.
    for client in (store, watcher, asker):
        assert client.get(b"key/1") == (b"1", versions[b"key/1"])
    assert watcher.told().version == versions[b"key/1"]
    versions[b"key/1"] = asker.set(b"key/1", b"1")
    assert watcher.told().version == versions[b"key/1"]
    watcher.expect_quiet()
    for index, member in enumerate(brokers):
        client = wire.Client(member.address)
        client.connect(f"keeper{index}", username=f"{TENANT}/keeper{index}")
        store = Store(client)
        assert {name: store.get(name) for name in versions} == {
            name: (name.removeprefix(b"key/"), version) for name, version in versions.items()}
        assert order(store.set(b"more/%d" % index, b"x")) > max(order(version) for version in versions.values())
        assert sorted(key for page in store.scan("key/*") for key in page) == sorted(versions)
        client.publish(f"jobs/{index}", b"from a device", qos=1)
        client.disconnect()
    text = text.replace(str(brokers[1].amqp_port), str(home.amqp_port))
    with ServiceBusClient.from_connection_string(text) as bus:
        with bus.get_queue_receiver("jobs", max_wait_time=5) as receiver:
            taken = []
            while len(taken) < 8:
                more = receiver.receive_messages(8, max_wait_time=5)
                assert more, taken
                for message in more:
                    receiver.complete_message(message)
                    taken.append((message.sequence_number, str(message)))
        assert [body for _, body in taken] == [f"{number}" * 500 for number in range(5)] + ["from a device"] * 3
        numbers = [number for number, _ in taken]
        assert numbers == sorted(set(numbers))
        with bus.get_queue_receiver("ordered", session_id="s") as receiver:
            assert bytes(receiver.session.get_state()) == b"half"
            messages = []
            while len(messages) < 2:
                messages += receiver.receive_messages(2, max_wait_time=5)
            assert [str(message) for message in messages] == ["1", "2"]
        with bus.get_subscription_receiver("news", "all", max_wait_time=5) as receiver:
            assert [str(message) for message in receiver.receive_messages(1, max_wait_time=5)] == ["to all"]
    # Ages in the lists change once a second.
    until(lambda: to.run("queue", "list", "--tenant", TENANT).stdout == home.run("queue", "list", "--tenant", TENANT).stdout)


def test_a_request_that_is_repeated_after_a_move_is_carried_out_once(brokers):
    """The session of the client that asks moves, the state store moves, and both move to the same broker."""
    tenant = "repeats"
    of_tenant = slot_of("", tenant)
    client_id = next(name for name in (uuid.uuid4().hex for _ in range(1_000)) if slot_of(name, tenant) != of_tenant)
    of_session = slot_of(client_id, tenant)
    first = connects(brokers[0], client_id, username=f"{tenant}/{client_id}")
    store = Store(first)
    request = array("SET", "once", "first", "NX")
    sent = store.send(request, packet_id=9)
    assert store.answer(sent).payload == OK
    first.drop()

    def repeat() -> bytes:
        client = connects(random.choice(brokers.members), client_id, username=f"{tenant}/{client_id}")
        assert client.connack.session_present
        store = Store(client)
        payload = store.answer(store.send(request, packet_id=9, correlation=sent[1], dup=True)).payload
        client.drop()
        return payload

    assert repeat() == OK
    for slot in (of_session, of_tenant, of_session, of_tenant):
        move(slot, another(home_of(slot, brokers), brokers))
        assert repeat() == OK
    home = home_of(of_tenant, brokers)
    if home_of(of_session, brokers) is not home:
        move(of_session, home)
    assert repeat() == OK
    for slot in (of_tenant, of_session):
        move(slot, another(home, brokers))
        assert repeat() == OK
    other = connects(brokers[0], "other", username=f"{tenant}/other")
    assert Store(other).ask("SET", "once", "second", "NX").payload == NOT_APPLIED
    other.drop()


def test_what_cannot_be_moved_is_refused_with_a_sentence(brokers):
    slot = 5
    home = home_of(slot, brokers)
    for words, sentence in [((str(slot), home.name), f"the broker {home.name} has the slot 5 already"),
                            ((str(slot), "b9"), "the broker b9 is not up"),
                            (("32", "b1"), "there is no slot 32; the cluster has 32")]:
        refused = another(home, brokers).command("move", *words)
        assert refused.returncode == 1 and sentence in refused.stderr, refused.stderr
    listed = brokers[0].command("slots").stdout.splitlines()
    assert listed[0].split() == ["SLOT", "BROKER", "STATE", "MOVES"]


@contextlib.contextmanager
def closing_quietly():
    """Ends a connection that its broker has closed, perhaps with DISCONNECT."""
    try:
        yield
    except (wire.Closed, OSError):
        pass
    except wire.Violation as violation:
        if "DISCONNECT" not in str(violation):
            raise


class Traffic:
    """Publishers at all brokers, and stored sessions that come and go, over any broker."""

    def __init__(self, brokers, qos: int, topics: int = 4):
        self.brokers, self.qos = brokers, qos
        self.ends = threading.Event()
        self.sent: dict[str, list[int]] = {f"{uuid.uuid4().hex}/{number}": [] for number in range(topics)}
        self.received: dict[str, list[int]] = {topic: [] for topic in self.sent}
        self.sessions = {topic: f"s-{topic}" for topic in self.sent}
        self.failures: list[str] = []
        for topic, session in self.sessions.items():
            one = connects(brokers[0], session)
            one.subscribe(topic, qos=qos)
            one.disconnect()
        self.threads = [threading.Thread(target=self.publishes, args=(index, topic)) for index, topic in enumerate(self.sent)]
        self.threads += [threading.Thread(target=self.receives, args=(index, topic)) for index, topic in enumerate(self.sent)]

    def publishes(self, index: int, topic: str) -> None:
        """A publisher whose session is stored and may be moved as well: it goes on with what it has begun."""
        number, client_id, is_released = 0, f"p-{topic}", False
        try:
            while not self.ends.is_set():
                with closing_quietly():
                    one = connects(self.brokers[(index + number) % 3], client_id)
                    while not self.ends.is_set():
                        packet_id = number % 60_000 + 1
                        if not is_released:
                            is_repeated = number < len(self.sent[topic])
                            if not is_repeated:
                                self.sent[topic].append(number)
                            one.send(wire.publish(topic, b"%d" % number, self.qos, packet_id, dup=is_repeated))
                            one.wait_for(wire.PUBACK if self.qos == 1 else wire.PUBREC, packet_id)
                            is_released = self.qos == 2
                        if is_released:
                            one.send(wire.acknowledge(wire.PUBREL, packet_id))
                            one.wait_for(wire.PUBCOMP, packet_id)
                            is_released = False
                        number += 1
                        time.sleep(0.002)
                    one.drop()
        except Exception as error:
            self.failures.append(f"publisher {topic}: {error!r}")

    def receives(self, index: int, topic: str) -> None:
        chance = random.Random(topic)
        unreleased: set[int] = set()  # packet identifiers of messages of QoS 2; the same again is the same message
        try:
            idle = 0
            while not self.ends.is_set() or idle < 20:
                with closing_quietly():
                    one = connects(self.brokers[chance.randrange(3)], self.sessions[topic])
                    assert one.connack.session_present
                    until_then = time.monotonic() + chance.random() * 2
                    while time.monotonic() < until_then or self.ends.is_set():
                        try:
                            found = one.recv(0.1)
                            idle = 0
                        except TimeoutError:
                            idle += self.ends.is_set()
                            if idle >= 20:
                                break
                            continue
                        if found.kind == wire.PUBLISH:
                            if found.packet_id not in unreleased:
                                self.received[topic].append(int(found.payload))
                            if self.qos == 1:
                                one.send(wire.acknowledge(wire.PUBACK, found.packet_id))
                            else:
                                unreleased.add(found.packet_id)
                                one.send(wire.acknowledge(wire.PUBREC, found.packet_id))
                        elif found.kind == wire.PUBREL:
                            unreleased.discard(found.packet_id)
                            one.send(wire.acknowledge(wire.PUBCOMP, found.packet_id))
                        elif found.kind == wire.DISCONNECT:
                            break
                    one.drop()
        except Exception as error:
            self.failures.append(f"subscriber {topic}: {error!r}")

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ends.set()
        for thread in self.threads:
            thread.join(60)

    def check(self) -> None:
        assert not self.failures, self.failures
        for topic, sent in self.sent.items():
            received = self.received[topic]
            first = list(dict.fromkeys(received))
            missing = sorted(set(sent) - set(first))
            # The last one may not have been acknowledged.
            assert not [number for number in missing if number != sent[-1]], (topic, missing[:10], len(sent))
            assert first == sorted(first), f"{topic}: out of order"
            assert self.qos == 1 or first == received, f"{topic}: twice"


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_while_slots_move_under_traffic(brokers, qos):
    with Traffic(brokers, qos) as traffic:
        time.sleep(0.5)
        names = [*traffic.sessions.values(), *(f"p-{topic}" for topic in traffic.sent)]
        for _ in range(12):
            slot = slot_of(random.choice(names))
            answer = move(slot, another(home_of(slot, brokers), brokers), by=random.choice(brokers.members))
            assert answer["held_ms"] < 2_000
        time.sleep(0.5)
    traffic.check()
    assert all(len(sent) > 100 for sent in traffic.sent.values()), {topic: len(sent) for topic, sent in traffic.sent.items()}


@pytest.mark.parametrize("seed", range(3))
def test_brokers_are_killed_while_slots_move(cluster_of, seed):
    """Whoever is killed, and when: each slot is at one broker afterwards, with all that was acknowledged."""
    chance = random.Random(seed)
    brokers = cluster_of(3, homes=True)
    sessions = [f"s{number}" for number in range(60)]
    for session in sessions:
        one = connects(brokers[0], session)
        one.subscribe(f"to/{session}", qos=1)
        one.disconnect()
    expected = {session: [] for session in sessions}
    for round_ in range(4):
        sender = publisher(brokers[round_ % 3])
        for session in sessions:
            sender.publish(f"to/{session}", b"%d" % round_, qos=1)
            expected[session].append(b"%d" % round_)
        sender.disconnect()
        move_and_kill(slot_of(chance.choice(sessions)), brokers, chance, 0.15)
        for session in sessions:
            until(lambda session=session: len(stored_at(session, brokers)) == 1, 20)
    for session in sessions:
        one = connects(brokers[2], session)
        assert one.connack.session_present
        found = [one.receive().payload for _ in expected[session]]
        assert found == expected[session], session
        one.drop()


def test_a_new_broker_gets_slots_and_an_old_one_is_emptied(cluster_of, member):
    """The names in `homes` are those of the first three, for good."""
    brokers = cluster_of(3, homes=True)
    sessions = [f"grown{number}" for number in range(64)]
    for session in sessions:
        one = connects(brokers[0], session)
        one.subscribe(f"to/{session}", qos=1)
        one.disconnect()
    new = member("b4", [one.link_port for one in brokers], homes=["b1", "b2", "b3"])
    all_four = [*brokers, new]
    for one in all_four:
        until(lambda one=one: one.sees(*(other.name for other in all_four if other is not one)))

    def owners() -> Counter:
        return Counter(line.split()[1] for line in new.command("slots", "--haproxy").stdout.splitlines())

    planned = new.command("balance", "--dry-run").stdout.splitlines()
    assert len(planned) == SLOTS // 4 and set(owners()) == {"b1", "b2", "b3"}
    balanced = random.choice(all_four).command("balance")
    assert balanced.returncode == 0 and len(balanced.stdout.splitlines()) == len(planned), balanced.stderr
    assert set(owners().values()) == {SLOTS // 4} and set(owners()) == {"b1", "b2", "b3", "b4"}
    drained = random.choice(all_four).command("drain", "b1", "--json")
    assert len(json.loads(drained.stdout)["moves"]) == SLOTS // 4, drained.stderr
    assert set(owners()) == {"b2", "b3", "b4"}
    assert new.command("drain", "b1").stdout == "b1 has no slots\n"
    assert 'no broker "nobody"' in new.command("drain", "nobody").stderr
    brokers[0].stop()
    until(lambda: all(one.states()["b1"] == "left" for one in all_four[1:]))
    sender = publisher(new)
    for session in sessions:
        sender.publish(f"to/{session}", b"x", qos=1)
        one = connects(random.choice(all_four[1:]), session)
        assert one.connack.session_present and one.receive().payload == b"x"
        one.disconnect()
    # The map of moves is on the disk of each broker.
    new.restart()
    until(lambda: new.sees("b2", "b3"))
    assert {line.split()[1] for line in new.command("slots", "--haproxy").stdout.splitlines()} == {"b2", "b3", "b4"}
    one = connects(brokers[1], sessions[0])
    assert one.connack.session_present
    one.disconnect()


def test_the_files_of_a_new_cluster(tmp_path):
    """`barid cluster init`, and brokers that start with the files."""
    ports = [free_port() for _ in range(3)]
    words = [f"b{number + 1}=127.0.0.1:{port}" for number, port in enumerate(ports)]
    init = [BINARY, "cluster", "init", "plant", *words, "--dir", tmp_path / "plant", "--slots", "16"]
    made = subprocess.run(init, capture_output=True, text=True, timeout=30)
    assert made.returncode == 0 and made.stdout.count("barid serve --config") == 3, made.stderr
    again = subprocess.run(init, capture_output=True, text=True, timeout=30)
    assert again.returncode == 1 and "exists already" in again.stderr
    running, admins = [], []
    try:
        for name in ("b1", "b2", "b3"):
            file = tmp_path / "plant" / f"{name}.toml"
            assert file.stat().st_mode & 0o777 == 0o600
            admins.append(free_port())
            command = [BINARY, "serve", "--config", file, "--data-dir", tmp_path / name, "--admin", f"127.0.0.1:{admins[-1]}"]
            command += [word for flag in ("--mqtt", "--ws", "--amqp") for word in (flag, f"127.0.0.1:{free_port()}")]
            running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        def status(port: int) -> subprocess.CompletedProcess:
            return subprocess.run([BINARY, "cluster", "status", "--admin", f"127.0.0.1:{port}"], capture_output=True, text=True)

        until(lambda: all(status(port).returncode == 0 for port in admins), 30)
        assert "of the cluster plant" in status(admins[0]).stdout
        slots = subprocess.run([BINARY, "cluster", "slots", "--haproxy", "--admin", f"127.0.0.1:{admins[1]}"], capture_output=True, text=True)
        assert len(slots.stdout.splitlines()) == 16
    finally:
        for one in running:
            one.terminate()
            one.wait(15)


@pytest.mark.parametrize("words, sentence", [
    (["plant", "b1=10.0.0.1", "b1=10.0.0.2"], "two brokers have the name b1"),
    (["plant", "b1=10.0.0.1", "b 2=10.0.0.2"], "is no name of a broker"),
    (["plant", "b1=10.0.0.1", "b2"], "a broker is NAME=HOST"),
    (["plant", "b1=10.0.0.1", "b2=10.0.0.2", "--slots", "31"], "a power of two"),
])
def test_a_new_cluster_that_cannot_be(tmp_path, words, sentence):
    made = subprocess.run([BINARY, "cluster", "init", *words, "--dir", tmp_path / "none"], capture_output=True, text=True, timeout=30)
    assert made.returncode == 1 and sentence in made.stderr, made.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("begun", [False, True])
def test_a_slot_stays_if_a_broker_does_not_answer(cluster_of, begun):
    """The third broker is stopped before the move begins, or while it holds."""
    brokers = cluster_of(3, homes=True)
    session = "stays"
    slot = slot_of(session)
    home = home_of(slot, brokers)
    to = another(home, brokers)
    third = next(one for one in brokers if one not in (home, to))
    one = connects(home, session)
    one.subscribe(f"to/{session}", qos=2)
    one.disconnect()
    sender = publisher(home)
    payload = bytes(100_000)
    # So that the move takes longer than it takes to stop a broker.
    for _ in range(200 if begun else 1):
        sender.publish(f"to/{session}", payload, qos=1)
    sender.disconnect()
    if begun:
        stopper = threading.Thread(target=lambda: (until(lambda: third.metric("^barid_cluster_held$") == 1), third.pause()))
        stopper.start()
    else:
        third.pause()
    moved = home.command("move", str(slot), to.name)
    if begun:
        stopper.join()
    third.go_on()
    for member in brokers:
        until(lambda member=member: member.sees(*(other.name for other in brokers.others(member))), 30)
    if moved.returncode:
        assert "the slot stays where it is" in moved.stderr, moved.stderr
        assert stored_at(session, brokers) == [home.name]
    else:
        # It had been decided before the broker was stopped.
        assert begun and stored_at(session, brokers) == [to.name]
    again = connects(to, session)
    assert again.connack.session_present
    for _ in range(200 if begun else 1):
        assert again.receive(timeout=20).payload == payload
    again.disconnect()
    if moved.returncode:
        move(slot, to)
        assert stored_at(session, brokers) == [to.name]


def test_an_older_backup_brings_nothing_back(cluster_of, tmp_path):
    """A broker is restored from the time before a slot was moved away: it hears of the move, and forgets what it has of the slot."""
    brokers = cluster_of(3, homes=True)
    session = "restored"
    slot = slot_of(session)
    home = home_of(slot, brokers)
    to = another(home, brokers)
    one = connects(brokers[0], session)
    one.subscribe(f"to/{session}", qos=1)
    one.disconnect()
    file = tmp_path / "backup"
    assert home.run("backup", str(file)).returncode == 0
    move(slot, to)
    home.stop()
    shutil.rmtree(home.directory / "data")
    restored = subprocess.run([BINARY, "restore", file, "--data-dir", home.directory / "data"], capture_output=True, text=True, timeout=30)
    assert restored.returncode == 0, restored.stderr
    home.start()
    brokers.settles()
    assert home_of(slot, brokers) is to
    until(lambda: stored_at(session, brokers) == [to.name])
    sender = publisher(home)
    sender.publish(f"to/{session}", b"x", qos=1)
    again = connects(home, session)
    assert again.connack.session_present and again.receive().payload == b"x"
    again.disconnect()
