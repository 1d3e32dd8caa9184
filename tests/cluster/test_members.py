"""Which brokers belong to a cluster: joining, leaving, ends, and those that do not fit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import uuid

import pytest

import wire
from broker import BINARY, free_port, until
from brokers import LINK_TLS, SECRET, Member
from events import following


in_plain_text = pytest.mark.skipif(LINK_TLS, reason="speaks the protocol in plain text")


VERSION = 11
"""Of the protocol between brokers: docs/formats/link.md, as what follows."""
HELLO, WELCOME, PROOF, REFUSED = range(1, 5)
OTHER_VERSION, OTHER_SECRET = 1, 3

HASHES = [f"$argon2id$v=19$m=256,t=1,p=1$c2FsdHNhbHQ${hash}" for hash in ("AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBA")]
"""Of two passwords."""


def logged(member: Member, text: str) -> bool:
    return text in member.stderr


def is_closed(stream: socket.socket) -> bool:
    """Waits for the end of a connection on which nothing is said."""
    try:
        return stream.recv(1) == b""
    except ConnectionResetError:
        return True


def frame(kind: int, fields: bytes) -> bytes:
    return (len(fields) + 1).to_bytes(4) + bytes([kind]) + fields


def as_text(value: str) -> bytes:
    return len(value).to_bytes(2) + value.encode()


def hello(first: int, last: int) -> bytes:
    """What a broker says first that speaks these versions of the protocol."""
    identity = as_text("test") + as_text("thief") + (1).to_bytes(8) + as_text("127.0.0.1:1") + as_text("0") + bytes(8) + as_text("")
    return frame(HELLO, first.to_bytes(2) + last.to_bytes(2) + b"\0" + identity + b"\7" * 32)


def next_frame(stream: socket.socket) -> tuple[int, bytes]:
    """Returns kind and fields."""
    with stream.makefile("rb") as file:
        length = int.from_bytes(file.read(4))
        got = file.read(length)
    assert len(got) == length > 0
    return got[0], got[1:]


def test_one_address_is_enough_to_find_all(member):
    first = member("b1", [])
    second = member("b2", [first.link_port])
    third = member("b3", [first.link_port])
    until(lambda: all(one.sees(*others) for one, others in
                      ((first, ["b2", "b3"]), (second, ["b1", "b3"]), (third, ["b1", "b2"]))))


def test_a_broker_that_ends_leaves(cluster_of):
    cluster = cluster_of(3)
    cluster[2].stop()
    until(lambda: all(one.states()["b3"] == "left" for one in cluster.members[:2]))
    cluster[2].start()
    cluster.settles()


def test_a_broker_that_is_killed_is_down_and_joins_again(cluster_of, client):
    cluster = cluster_of(3)
    receiver, sender = client(cluster[1]), client(cluster[0])
    receiver.subscribe("t", qos=1)
    client(cluster[2]).subscribe("t", qos=1)
    cluster[2].kill9()
    sender.publish("t", b"while one is dead", qos=1)
    receiver.receive(b"while one is dead")
    until(lambda: all(one.states()["b3"] == "down" for one in cluster.members[:2]), 5)
    status = cluster[0].command("status")
    assert status.returncode == 1 and "b3 is down" in status.stdout
    cluster[2].start()
    cluster.settles()
    status = cluster[0].command("status")
    assert (status.returncode, status.stderr) == (0, ""), status.stdout
    again = client(cluster[2])
    again.subscribe("t", qos=1)
    sender.publish("t", b"again", qos=1)
    again.receive(b"again")


def test_who_has_left_does_not_count_for_the_quorum(cluster_of, client):
    """Of three brokers, one is stopped in order, and one crashes later: the last one goes on."""
    cluster = cluster_of(3)
    cluster[2].stop()
    until(lambda: all(one.states()["b3"] == "left" for one in cluster.members[:2]))
    time.sleep(2)
    cluster[1].kill9()
    time.sleep(2)
    one = client(cluster[0])
    one.subscribe("t", qos=1)
    one.publish("t", b"alone", qos=1)
    one.receive(b"alone")
    assert cluster[0].cluster["has_quorum"]


def test_clients_can_follow_the_members(cluster_of, client):
    cluster = cluster_of(2)
    watcher = client(cluster[0])
    watcher.subscribe("$SYS/broker/cluster/members/+")
    up = [watcher.receive(b"up") for _ in cluster]
    assert {one.topic for one in up} == {f"$SYS/broker/cluster/members/{one.name}" for one in cluster}
    assert all(one.retain for one in up)
    cluster[1].stop()
    assert watcher.receive(b"left").topic == "$SYS/broker/cluster/members/b2"


def test_operators_can_follow_the_members(cluster_of):
    """`GET /v1/events`, server-sent events."""
    cluster = cluster_of(3)
    with following(cluster[0], "/v1/events?kinds=member") as stream:
        def states(broker: str, last: str) -> list[str]:
            found = []
            while last not in found:
                event = stream.next("member")
                assert event["at"].startswith("20") and event["broker"] == broker
                found.append(event["state"])
            return found

        cluster[2].kill9()
        assert states("b3", "down") == ["unreachable", "down"]
        cluster[2].start()
        assert states("b3", "up") == ["joining", "up"]
        cluster[1].stop()
        assert states("b2", "left") == ["left"]


def test_down_is_for_good(cluster_of, client):
    """A broker that was stopped for longer than the others wait disconnects its clients, ends the sessions that are not stored,
    and joins as a new one."""
    cluster = cluster_of(3)
    transient = client(cluster[2], "transient")
    transient.subscribe("t", qos=1)
    stored = client(cluster[2], "stored", clean=False, properties={"session_expiry_interval": 600})
    stored.subscribe("t", qos=1)
    before = cluster[2].cluster["incarnation"]
    cluster[2].pause()
    until(lambda: cluster[0].states()["b3"] == cluster[1].states()["b3"] == "down", 6)
    cluster[2].go_on()
    for one in (transient, stored):
        one.expect_refused(0x89)
    until(lambda: logged(cluster[2], "holds this broker to be down"))
    cluster.settles()
    assert cluster[2].cluster["incarnation"] > before
    client(cluster[0]).publish("t", b"after", qos=1)
    again = client(cluster[2], "stored", clean=False, properties={"session_expiry_interval": 600})
    again.receive(b"after")


def test_of_two_brokers_none_gives_the_other_up(cluster_of, client):
    """Messages wait for a broker that is silent, and none is lost."""
    cluster = cluster_of(2)
    receiver, sender = client(cluster[1]), client(cluster[0])
    receiver.subscribe("t", qos=1)
    cluster[1].pause()
    sender.send(wire.publish("t", b"waits", 1, 1))
    sender.expect_nothing(3)
    assert cluster[0].states() == {"b2": "unreachable"}
    # New subscriptions do not wait for it.
    assert client(cluster[0]).subscribe("other", qos=1).reasons == [1]
    cluster[1].go_on()
    receiver.receive(b"waits")
    assert sender.expect(wire.PUBACK).reason == 0
    cluster.settles()


class TestWhoDoesNotFit:
    """Is refused, and both logs say why."""

    @pytest.mark.parametrize(("differs", "here", "there"), [
        ({"secret": SECRET + "!"}, "its secret is another one", "its secret is another one"),
        ({"cluster": "other"}, 'it belongs to the cluster "test"', 'it belongs to the cluster "other"'),
    ])
    def test_another_secret_or_cluster(self, member, differs, here, there):
        first = member("b1", [])
        second = member("b2", [first.link_port], **differs)
        until(lambda: logged(second, here) and (logged(first, there) or logged(first, here)))
        assert first.states() == second.states() == {}
        status = second.command("status")
        assert status.returncode == 1 and f"no link to 127.0.0.1:{first.link_port}" in status.stdout
        status = second.command("status", "--json")
        assert status.returncode == 1
        assert any(f"no link to 127.0.0.1:{first.link_port}" in one for one in json.loads(status.stdout)["wrong"])

    @in_plain_text
    def test_a_later_version_of_the_protocol_that_opens_a_link(self, member):
        one = member("b1", [])
        with socket.create_connection(("127.0.0.1", one.link_port), timeout=10) as stream:
            stream.sendall(hello(VERSION + 1, VERSION + 2))
            assert next_frame(stream) == (REFUSED, bytes([OTHER_VERSION]) + as_text(str(VERSION)))
            assert is_closed(stream)
        until(lambda: logged(one, "refused a link: this broker refuses the other one: the versions of the protocol between brokers differ, and "
                                 f"the one that refuses speaks {VERSION}"))

    @in_plain_text
    def test_a_later_version_of_the_protocol_that_answers(self, member):
        with socket.create_server(("127.0.0.1", 0)) as later:
            later.settimeout(10)
            address = f"127.0.0.1:{later.getsockname()[1]}"
            one = member("b1", [later.getsockname()[1]])
            with later.accept()[0] as stream:
                kind, fields = next_frame(stream)
                assert (kind, fields[:4]) == (HELLO, VERSION.to_bytes(2) * 2)
                versions = f"{VERSION + 1} to {VERSION + 2}"
                stream.sendall(frame(REFUSED, bytes([OTHER_VERSION]) + as_text(versions)))
            sentence = f"the other broker refuses: the versions of the protocol between brokers differ, and the one that refuses speaks {versions}"
            until(lambda: logged(one, f"no link to another broker: {sentence}"))
            status = one.command("status")
            assert status.returncode == 1 and f"no link to {address}: {sentence}" in status.stdout

    def test_a_name_that_is_taken(self, cluster_of, member):
        cluster = cluster_of(2)
        third = member("b2", [cluster[0].link_port])
        until(lambda: logged(third, "another broker of the cluster has this name already"))
        assert cluster[0].states() == {"b2": "up"}

    def test_other_settings_are_named(self, member):
        """What is secret counts, too. A reload makes them the same."""
        def users(password: str) -> str:
            return f'[[users]]\nname = "acme/u"\npassword = "{password}"\n'

        first = member("b1", [], more=users(HASHES[0]))
        second = member("b2", [first.link_port], more="[limits]\nmax_qos = 1\n" + users(HASHES[1]))
        until(lambda: first.sees("b2") and second.sees("b1"))
        status = first.command("status")
        assert status.returncode == 1 and "b2 has other settings than this broker: limits, users" in status.stdout
        until(lambda: logged(first, "has other settings than this one"))
        second.reload(users(HASHES[0]) + second.of_cluster)
        until(lambda: first.command("status").returncode == 0)
        until(lambda: logged(first, "has the same settings as this one now"))


class TestStrangers:
    """Whoever reaches the address for other brokers and does not know the secret."""

    @in_plain_text
    def test_bytes_that_are_no_frames_end_the_connection(self, three, client):
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\0\0\0\0\0", b"\0\0\0\x01\x10", os.urandom(3_000)):
            with socket.create_connection(("127.0.0.1", three[0].link_port), timeout=10) as stream:
                stream.sendall(sent)
                assert is_closed(stream)
        three.settles()

    def test_silence_is_not_waited_for(self, three):
        with socket.create_connection(("127.0.0.1", three[0].link_port), timeout=10) as stream:
            begin = time.monotonic()
            assert stream.recv(1) == b""
            assert time.monotonic() - begin < 8

    def test_many_of_them_do_not_keep_brokers_out(self, member):
        first = member("b1", [])
        idle = [socket.create_connection(("127.0.0.1", first.link_port)) for _ in range(200)]
        second = member("b2", [first.link_port])
        until(lambda: first.sees("b2") and second.sees("b1"), 20)
        for stream in idle:
            stream.close()

    @in_plain_text
    def test_a_recorded_proof_is_worth_nothing(self, three):
        """The nonces differ, so what one link has proved does not open another."""
        nonces = set()
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", three[0].link_port), timeout=10) as stream:
                stream.sendall(hello(VERSION, VERSION))
                kind, fields = next_frame(stream)
                assert kind == WELCOME
                nonces.add(fields[-64:-32])
                # Its own proof, sent back to it, is none.
                stream.sendall(frame(PROOF, fields[-32:]))
                kind, fields = next_frame(stream)
                assert (kind, fields[0]) == (REFUSED, OTHER_SECRET)
                assert stream.recv(1) == b""
        assert len(nonces) == 2


def test_operators_see_the_cluster(three):
    for one in three:
        status = one.command("status")
        assert (status.returncode, status.stderr) == (0, "")
        assert status.stdout.startswith(f"broker {one.name} of the cluster test")
        listed = one.command("members").stdout
        assert all(f"{other.name} " in listed and " up " in listed for other in three.others(one))
        told = json.loads(one.command("members", "--json").stdout)
        assert {member["name"] for member in told["members"]} == {other.name for other in three.others(one)}
        assert one.metric('^barid_cluster_members{state="up"}') == 2
        assert one.metric("^barid_cluster_member_up") == 2


def test_a_broker_without_a_cluster_says_so(ours):
    status, body = ours.http("/v1/cluster")
    assert status == 404 and "no [cluster]" in body


@pytest.mark.parametrize(("text", "expected"), [
    ('name = "a b"\nbroker = "b"\nsecret = "0123456789abcdef"', "not a valid name"),
    ('name = "a"\nbroker = "b"', "the cluster has no secret"),
    ('name = "a"\nbroker = "b"\nsecret = "short"', "can be guessed"),
    ('name = "a"\nbroker = "b"\nsecret_file = "/nowhere"', "cannot read /nowhere"),
    ('name = "a"\nbroker = "b"\nsecret = "0123456789abcdef"\npeers = ["nowhere"]', "not an address"),
    ('name = "a"\nbroker = "b"\nsecret = "0123456789abcdef"\nlisten = "0.0.0.0:7946"', "cannot reach this address"),
    ('name = "a"\nbroker = "b"\nsecret = "0123456789abcdef"\nhomes = ["b", "b"]', "b is there already"),
    ('name = "a"\nbroker = "b"\nsecret = "0123456789abcdef"\nhomes = ["b c"]', "not a valid name"),
    ('name = "a"\nbroker = "b"\nsecret = "0123456789abcdef"\nslots = 31', "31 slots"),
    ('name = "a"\nbroker = "b"\nsecret = "0123456789abcdef"\nslots = 8192', "8192 slots"),
    ('name = "a"\nbroker = "b"\nsecret = "0123456789abcdef"\nhomes = ["b", "c"]\nslots = 1', "1 slots for 2 homes"),
])
def test_settings_that_make_no_sense_are_named(tmp_path, text, expected):
    if "listen" not in text:
        text += f'\nlisten = "127.0.0.1:{free_port()}"'
    config = tmp_path / "barid.toml"
    config.write_text(f"[cluster]\n{text}\n")
    checked = subprocess.run([BINARY, "check-config", config], capture_output=True, text=True)
    assert checked.returncode != 0 and expected in checked.stdout + checked.stderr


def test_other_members_get_what_was_on_its_way_to_a_member_of_a_killed_broker(cluster_of, client):
    """A pool of workers at two brokers, and a publisher at a third: no job is lost when a broker dies."""
    cluster = cluster_of(3)
    dying, staying, publisher = client(cluster[1]), client(cluster[2]), client(cluster[0])
    for worker in (dying, staying):
        worker.subscribe("$share/pool/jobs", qos=1)
    cluster[1].pause()
    jobs = {str(number).encode() for number in range(40)}
    for job in sorted(jobs):
        publisher.send(wire.publish("jobs", job, 1, publisher.next_packet_id()))
    done = {staying.receive().payload for _ in range(len(jobs) // 2)}
    assert len(done) == len(jobs) // 2, "they take turns"
    cluster[1].kill9()
    until(lambda: cluster[0].states()["b2"] == "down", 6)
    done |= {staying.receive().payload for _ in range(len(jobs) // 2)}
    assert done == jobs
    for _ in jobs:
        assert publisher.expect(wire.PUBACK).reason == 0


def test_what_only_one_member_may_get_is_counted_when_its_broker_is_killed(cluster_of, client):
    """A client may have a message of QoS 2 already, so no other one gets it (MQTT 5 §4.8.2)."""
    cluster = cluster_of(3)
    worker, publisher = client(cluster[1]), client(cluster[0])
    worker.subscribe("$share/pool/once", qos=2)
    cluster[1].pause()
    for _ in range(5):
        publisher.send(wire.publish("once", b"", 2, publisher.next_packet_id()))
    publisher.ping()
    cluster[1].kill9()
    until(lambda: cluster[0].metric('^barid_dropped_messages_total{tenant="default",reason="broker_down"') == 5)
    for _ in range(5):
        assert publisher.expect(wire.PUBREC).reason == 0


def test_homes_count_for_the_quorum_of_a_broker_that_is_none_of_them(member):
    """It is one of three, and has met none of the others."""
    alone = member("b3", [free_port()], homes=["b1", "b2"])
    time.sleep(1)
    view = alone.cluster
    assert not view["takes_clients"] and not view["has_quorum"], view


def test_two_of_three_crash_together_and_one_comes_back(cluster_of):
    """The two that are there are more than half, so they go on, although one of them has never met the third."""
    brokers = cluster_of(3, homes=True)
    stays, lost, back = brokers
    for one in (lost, back):
        one.kill9()
    back.start()

    def is_let_in(to: Member) -> bool:
        one = wire.Client(to.address)
        try:
            return one.connect(uuid.uuid4().hex).reason == 0
        except (wire.Closed, wire.Violation, AssertionError, TimeoutError):
            return False
        finally:
            one.drop()

    until(lambda: is_let_in(stays) and is_let_in(back), 30)
    assert stays.states()[lost.name] == back.states()[lost.name] == "down"
    lost.start()
    until(lambda: is_let_in(lost) and stays.states()[lost.name] == "up", 30)
