"""Tests that a start finds what is wrong with a data directory, and reports it in a message that names the directory."""

import os
import random
import subprocess
from pathlib import Path

import pytest
import wire
from broker import BINARY, free_port
from disk import copy_tree
from powercut import available, recording
from victim import Victim

FOREVER = {"session_expiry_interval": 0xFFFFFFFF}
WAITING = [b"%d " % number + bytes([number]) * 3000 for number in range(150)]
RETAINED = {f"retained/{number}": b"%d" % number * 200 for number in range(20)}


def refused(data: Path) -> str:
    """Checks that the broker refuses to start on `data`, and returns its output."""
    ports = [part for flag in ("--mqtt", "--ws", "--amqp", "--admin") for part in (flag, f"127.0.0.1:{free_port()}")]
    ended = subprocess.run([BINARY, "serve", "--data-dir", data, *ports], capture_output=True, text=True, timeout=30)
    said = ended.stdout + ended.stderr
    assert ended.returncode not in (0, -6), said
    assert str(data) in said and "panicked" not in said, said
    return said


@pytest.fixture
def broker():
    running = Victim()
    yield running
    running.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Returns a data directory with waiting messages and retained messages, after a crash."""
    running = Victim()
    try:
        client = wire.Client(running.address)
        client.connect("s", clean=False, properties=FOREVER)
        client.subscribe("a", qos=1)
        client.disconnect()
        client = wire.Client(running.address)
        client.connect("p")
        for payload in WAITING:
            client.publish("a", payload, qos=1)
        for topic, payload in RETAINED.items():
            client.publish(topic, payload, qos=1, retain=True)
        running.kill9()
        copy = tmp_path_factory.mktemp("filled") / "data"
        copy_tree(running.data, copy)
        return copy
    finally:
        running.close()


def is_complete(broker: Victim) -> bool:
    """Returns whether a broker has all messages of `filled`, and no others."""
    client = wire.Client(broker.address)
    if not client.connect("s", clean=False, properties=FOREVER).session_present:
        return False
    try:
        found = [client.receive().payload for _ in WAITING]
        client.subscribe("retained/#", qos=1)
        retained = {(one := client.receive()).topic: one.payload for _ in RETAINED}
    except TimeoutError:
        return False
    client.expect_nothing(0.1)
    client.disconnect()
    return found == WAITING and retained == RETAINED


def test_two_brokers_do_not_share_a_directory(broker):
    refused(broker.data)
    client = wire.Client(broker.address)
    assert client.connect("").reason == 0
    broker.die()
    broker.revive()


def test_a_directory_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "data")


@pytest.fixture
def read_only(tmp_path):
    """Yields a directory to which not even root can write."""
    directory = tmp_path / "read-only"
    directory.mkdir()
    if os.geteuid():
        directory.chmod(0o555)
        yield directory
        directory.chmod(0o755)
        return
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", directory], capture_output=True).returncode:
        pytest.skip("root, and may not mount")
    yield directory
    subprocess.run(["umount", directory], check=True)


@pytest.mark.parametrize("name", [".", "data"])
def test_an_unwritable_directory(read_only, name):
    refused(read_only / name)


def test_a_directory_of_something_else(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"of my cat")
    refused(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["photo.jpg"]


@pytest.mark.skipif(not available(), reason="needs Linux on x86-64 and a C compiler")
def test_a_disk_that_cannot_be_read(filled, tmp_path):
    copy_tree(filled, tmp_path / "data")
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "read-eio").touch()
    with recording(tmp_path / "data", tmp_path / "log", tmp_path / "control"):
        refused(tmp_path / "data")


def test_what_was_filled_is_complete(filled, broker):
    """The control for the tests below."""
    replace(broker, filled)
    broker.revive()
    assert is_complete(broker)


def replace(broker: Victim, data: Path) -> None:
    if broker.running():
        broker.kill9()
    subprocess.run(["rm", "-rf", broker.data], check=True)
    copy_tree(data, broker.data)


def written_bytes(path: Path) -> list[tuple[int, int]]:
    """Returns the parts of a file that are not holes."""
    parts, at = [], 0
    with open(path, "rb") as file:
        while at < path.stat().st_size:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            parts.append((begin, at))
    return parts


def flip_a_bit(data: Path, chance: random.Random) -> str:
    """Flips a bit somewhere in one of the files, with a probability proportional to its content, and returns where."""
    files = [one for one in sorted(data.rglob("*")) if one.is_file() and written_bytes(one)]
    weights = [sum(end - begin for begin, end in written_bytes(one)) for one in files]
    path = chance.choices(files, weights)[0]
    begin, end = chance.choice(written_bytes(path))
    at, bit = chance.randrange(begin, end), chance.randrange(8)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return f"bit {bit} of byte {at} of {path.relative_to(data)}"


def test_a_flipped_bit_is_noticed_or_does_no_harm(filled, broker, seed):
    chance, noticed = random.Random(seed), 0
    for _ in range(12):
        replace(broker, filled)
        where = flip_a_bit(broker.data, chance)
        if starts(broker):
            assert is_complete(broker), f"silently wrong: {where}"
        else:
            noticed += 1
            refused(broker.data)
    assert noticed, "no bit of the data has mattered"


def starts(broker: Victim) -> bool:
    try:
        broker.revive()
    except RuntimeError:
        return False
    return True


def test_a_missing_file_is_noticed_or_does_no_harm(filled, broker):
    """Removes each file `current` of one shard, and one file of each other kind."""
    paths = [one.relative_to(filled) for one in sorted(filled.rglob("*")) if one.is_file()]
    kinds = {one.name: one for one in paths}
    for path in {one for one in paths if one.name == "current" and "shard-000" in one.parts} | set(kinds.values()):
        replace(broker, filled)
        (broker.data / path).unlink()
        if starts(broker):
            assert is_complete(broker), f"silently wrong: without {path}"
        else:
            refused(broker.data)


def test_doctor_finds_what_the_start_refuses(filled, tmp_path, seed):
    doctor = [BINARY, "doctor", "--data-dir"]
    if subprocess.run([BINARY, "doctor", "--help"], capture_output=True).returncode:
        pytest.skip("this binary has no `doctor`")
    assert subprocess.run([*doctor, filled]).returncode == 0
    chance, found = random.Random(seed), 0
    for number in range(12):
        data = tmp_path / str(number)
        copy_tree(filled, data)
        flip_a_bit(data, chance)
        status = subprocess.run([*doctor, data], capture_output=True).returncode
        assert status in (0, 1)
        found += status
    assert found
