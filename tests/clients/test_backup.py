"""`barid backup`, `barid restore` and `barid doctor`, against a broker that runs and the files that it leaves."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import shutil
import socket
import threading

import pytest

from broker import until
from running import barid


@pytest.fixture
def running(broker_with):
    """A broker that nobody else uses."""
    return broker_with("")


@pytest.fixture
def backups(tmp_path):
    return tmp_path / "backups"


def back_up(broker, directory) -> dict:
    done = barid("backup", directory, "--admin", f"127.0.0.1:{broker.admin_port}", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def restart_with(broker, backup) -> None:
    """Stops the broker, and starts it with nothing but what the backup has."""
    broker.stop()
    data = broker.directory / "data"
    shutil.rmtree(data)
    done = barid("restore", backup, "--data-dir", data)
    assert done.returncode == 0, done.stderr
    assert str(data) in done.stdout
    broker.start()


def leave_messages(broker, paho, client: str, topic: str, count: int, size: int = 100) -> None:
    """A session whose client is away, with so many messages in its queue, and a retained one."""
    away = paho(client, to=broker, clean=False, SessionExpiryInterval=3600)
    away.subscribe(topic, 2)
    away.leave()
    publisher = paho(to=broker)
    for number in range(count):
        publisher.publish(topic, number.to_bytes(4) + bytes(size), 1 + number % 2)
    publisher.publish(f"{topic}/retained", b"kept", 1, retain=True)


# ------------------------------------------------------------------------------------------------------ backup and restore

def test_what_is_restored_is_what_was_backed_up(running, paho, topic, backups):
    """Sessions, what waits for them and retained messages, as of the backup; what came after it is not there."""
    leave_messages(running, paho, "sleeper", topic, 10)
    made = back_up(running, backups)
    assert made["bytes"] > 1000
    paho(to=running).publish(topic, b"after", 1)
    restart_with(running, made["file"])
    woken = paho("sleeper", to=running, clean=False, SessionExpiryInterval=3600)
    assert woken.session_present
    # This client hands on messages of QoS 2 later than those of QoS 1 that came after them.
    assert sorted(int.from_bytes(payload[:4]) for payload in woken.payloads(10)) == list(range(10))
    assert woken.silent()
    paho(to=running).publish(topic, b"new", 1)
    assert woken.receive().payload == b"new"
    newcomer = paho(to=running)
    newcomer.subscribe(f"{topic}/#", 1)
    assert newcomer.receive().payload == b"kept"


def test_a_backup_while_messages_come(running, paho, topic, backups):
    """All that was acknowledged before it is in it; of the rest the first so many, without a gap."""
    leave_messages(running, paho, "sleeper", topic, 0)
    publisher, stop, acknowledged = paho(to=running), threading.Event(), []

    def publish():
        while not stop.is_set():
            publisher.publish(topic, len(acknowledged).to_bytes(4), 1)
            acknowledged.append(True)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        until(lambda: len(acknowledged) > 50)
        before = len(acknowledged)
        made = back_up(running, backups)
    finally:
        stop.set()
        thread.join()
    restart_with(running, made["file"])
    woken = paho("sleeper", to=running, clean=False, SessionExpiryInterval=3600)
    got = [int.from_bytes(payload) for payload in woken.payloads(before)]
    with contextlib.suppress(queue.Empty):
        while True:
            got.append(int.from_bytes(woken.receive(0.5).payload))
    assert got == list(range(len(got)))


def test_the_newest_backup_of_a_directory(running, paho, topic, backups, tmp_path):
    paho(to=running).publish(topic, b"old", 1, retain=True)
    first = back_up(running, backups)["file"]
    paho(to=running).publish(topic, b"new", 1, retain=True)
    shutil.move(first, backups / "barid-20200101T000000Z.backup")
    back_up(running, backups)
    (backups / "barid-20990101T000000Z.partial").touch()
    restart_with(running, backups)
    client = paho(to=running)
    client.subscribe(topic, 1)
    assert client.receive().payload == b"new"
    empty = tmp_path / "empty"
    empty.mkdir()
    done = barid("restore", empty, "--data-dir", tmp_path / "never")
    assert done.returncode == 1 and str(empty) in done.stderr


def test_nothing_is_overwritten(running, backups, tmp_path):
    file = back_up(running, backups)["file"]
    done = barid("restore", file, "--data-dir", running.directory / "data")
    assert done.returncode == 1, "a broker uses it"
    running.stop()
    assert barid("restore", file, "--data-dir", running.directory / "data").returncode == 1
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter").write_text("dear")
    assert barid("restore", file, "--data-dir", other).returncode == 1
    assert [path.name for path in other.iterdir()] == ["letter"]


@pytest.mark.parametrize("damage", ["cut", "flip", "longer", "empty", "other"])
def test_a_damaged_backup_is_not_taken(running, paho, topic, backups, tmp_path, damage):
    """And what it had become when that was found is not taken for a data directory."""
    leave_messages(running, paho, "sleeper", topic, 5)
    file = tmp_path / "damaged"
    whole = open(back_up(running, backups)["file"], "rb").read()
    middle = len(whole) // 2
    file.write_bytes({
        "cut": whole[:-1], "longer": whole + b"x", "empty": b"", "other": b"#!/bin/sh\n" * 100,
        "flip": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:],
    }[damage])
    data = tmp_path / "data"
    done = barid("restore", file, "--data-dir", data)
    assert done.returncode == 1 and "backup" in done.stderr and "panicked" not in done.stderr, done.stderr
    if data.exists():
        assert "remove it" in done.stderr
        assert barid("doctor", "--data-dir", data).returncode != 0


def test_a_backup_that_breaks_off_leaves_nothing(backups):
    """The broker dies in the middle of its answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer():
            stream, _ = server.accept()
            stream.recv(4096)
            stream.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nBARID\r\n")
            stream.close()

        threading.Thread(target=answer, daemon=True).start()
        done = barid("backup", backups, "--admin", f"127.0.0.1:{server.getsockname()[1]}")
    assert done.returncode == 1 and "broke off" in done.stderr, done.stderr
    assert list(backups.iterdir()) == []


def test_something_else_is_no_backup(backups):
    """An answer that is whole, but not what a broker would say."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer():
            stream, _ = server.accept()
            stream.recv(4096)
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            stream.close()

        threading.Thread(target=answer, daemon=True).start()
        done = barid("backup", backups, "--admin", f"127.0.0.1:{server.getsockname()[1]}")
    assert done.returncode == 1 and "backup" in done.stderr, done.stderr
    assert list(backups.iterdir()) == []


def test_without_a_broker_there_is_no_backup(backups):
    done = barid("backup", backups, "--admin", "127.0.0.1:1")
    assert done.returncode == 1 and "--admin" in done.stderr
    assert not backups.exists()


def test_one_backup_at_a_time(running, paho, topic, backups):
    """Its client does not read, and does not disturb the broker; the next one is told to wait."""
    publisher = paho(to=running)
    for number in range(40):
        publisher.publish(f"{topic}/{number}", bytes(1_000_000), 1, retain=True)
    slow = socket.create_connection(("127.0.0.1", running.admin_port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(b"GET /v1/backup HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert slow.recv(12) == b"HTTP/1.1 200"
    connection = http.client.HTTPConnection("127.0.0.1", running.admin_port, timeout=5)
    connection.request("GET", "/v1/backup")
    answer = connection.getresponse()
    assert answer.status == 503 and "another backup" in json.loads(answer.read())["error"]
    publisher.publish(topic, b"goes on", 1)
    slow.close()
    connection.close()
    assert running.http("/healthz")[0] == 200


# ------------------------------------------------------------------------------------------------------ doctor

def test_the_doctor_finds_nothing_where_nothing_is_wrong(running, paho, topic):
    leave_messages(running, paho, "sleeper", topic, 10)
    data = running.directory / "data"
    running.kill9()
    said = barid("doctor", "--data-dir", data)
    assert said.returncode == 0 and "All is well" in said.stdout, said.stdout + said.stderr
    report = json.loads(barid("doctor", "--data-dir", data, "--json").stdout)
    records = {keyspace["name"]: keyspace["records"] for keyspace in report["keyspaces"]}
    assert report["ok"] and report["findings"] == []
    assert (records["sessions"], records["subscriptions"], records["entries"]) == (1, 1, 10)
    assert records["retained"] >= 1 and 1 <= records["messages"] <= 10
    running.start()


def test_the_doctor_does_not_look_while_the_broker_runs(running, tmp_path):
    done = barid("doctor", "--data-dir", running.directory / "data")
    assert done.returncode == 2 and str(running.directory) in done.stderr, done.stderr
    done = barid("doctor", "--data-dir", tmp_path / "nothing")
    assert done.returncode == 2 and "not a data directory" in done.stderr


def test_the_doctor_finds_what_is_damaged(running, paho, topic, tmp_path):
    """In the file with most of the data: found, told in a sentence, and not healed by looking at it."""
    leave_messages(running, paho, "sleeper", topic, 200, size=2000)
    running.stop()
    data = running.directory / "data"
    largest = max((path for path in data.rglob("*") if path.is_file()), key=written)
    damaged = bytearray(largest.read_bytes())
    middle = next(at for at in range(written(largest) // 2, len(damaged)) if damaged[at])
    damaged[middle] ^= 0x10
    largest.write_bytes(damaged)
    for _ in range(2):
        done = barid("doctor", "--data-dir", data, "--json")
        report = json.loads(done.stdout)
        assert done.returncode == 1 and not report["ok"] and report["findings"], done.stderr
    said = barid("doctor", "--data-dir", data)
    assert said.returncode == 1 and "- " in said.stdout and "restore" in said.stdout
    assert largest.read_bytes() == damaged
    largest.unlink()
    assert barid("doctor", "--data-dir", data).returncode == 1
    shutil.rmtree(data)
    running.start()


def written(path) -> int:
    """How many bytes of a file were written: it may have been made longer beforehand."""
    return len(path.read_bytes().rstrip(b"\0"))
