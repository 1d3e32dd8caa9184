"""What the broker writes is its owner's alone, and who is in the way of a lock is told."""

import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

from broker import BINARY, Broker, until
from running import ENVIRONMENT, barid, hashed

QUIET = {"BARID_MQTT": "127.0.0.1:0", "BARID_WS": "off", "BARID_AMQP": "off", "BARID_ADMIN": "127.0.0.1:0"}


def modes(directory: Path) -> dict[str, int]:
    """Permission bits of a directory and all that is in it."""
    everything = [directory, *directory.rglob("*")]
    return {str(one.relative_to(directory.parent)): one.stat().st_mode & 0o777 for one in everything if not one.is_symlink()}


def is_private(directory: Path) -> bool:
    """Nobody but the owner has any right."""
    return all(mode & 0o077 == 0 for mode in modes(directory).values())


@pytest.fixture(autouse=True)
def usual_umask():
    """With which files are readable by everybody unless somebody cares."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(params=["log", "lsm"])
def running(request, broker_with, paho):
    """A broker that has something to keep."""
    running = broker_with(f'[storage]\nengine = "{request.param}"\n')
    client = paho("away", to=running, clean=False, SessionExpiryInterval=600)
    client.subscribe("t", 1)
    client.leave()
    paho(to=running).publish("t", b"x" * 10_000, 1, retain=True)
    return running


def test_a_data_directory_is_private(running):
    found = modes(running.directory / "data")
    assert len(found) > 5 and is_private(running.directory / "data"), found


def test_a_data_directory_that_was_open_is_taken_away_from_others(running, tmp_path):
    """One of an earlier version, or one that was copied."""
    running.stop()
    data = running.directory / "data"
    for one in [data, *data.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    (data / "link").symlink_to(elsewhere)
    running.start()
    (data / "link").unlink()
    assert is_private(data), modes(data)
    assert elsewhere.stat().st_mode & 0o777 == 0o644, "what a link leads to is somebody else's"
    # The log is written by a thread of its own.
    until(lambda: "had mode 755" in running.stderr and "restricted it to its owner" in running.stderr)
    before = len(running.stderr)
    running.restart()
    assert "had mode" not in running.stderr[before:]


def test_a_backup_and_what_is_restored_from_it_are_private(running, tmp_path):
    backups, restored = tmp_path / "new" / "backups", tmp_path / "restored"
    restored.mkdir(mode=0o755)
    done = barid("backup", backups, "--admin", f"127.0.0.1:{running.admin_port}")
    assert done.returncode == 0, done.stderr
    assert len(modes(backups)) == 2 and is_private(backups), modes(backups)
    assert barid("restore", backups, "--data-dir", restored).returncode == 0
    assert len(modes(restored)) > 5 and is_private(restored), modes(restored)


def test_somebody_elses_directory_is_left_as_it_is(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"")
    tmp_path.chmod(0o755)
    done = barid("serve", "--data-dir", tmp_path, environment=QUIET)
    assert done.returncode == 1 and "not a data directory" in done.stderr
    assert modes(tmp_path) == {tmp_path.name: 0o755, f"{tmp_path.name}/photo.jpg": 0o644}


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_a_lock_of_somebody_else_is_told(tmp_path, exclusive):
    """Not that of a broker: who has it is said, with the file and what to do, and no broker of before is accused."""
    running = Broker()
    running.stop()
    lock = running.directory / "data" / "lock"
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        done = barid("serve", "--data-dir", lock.parent, environment=QUIET)
    former = lock.read_text().strip()
    running.close()
    assert done.returncode == 1
    assert f"process {os.getpid()}" in done.stderr and str(lock) in done.stderr, done.stderr
    assert "end that process" in done.stderr and f"process {former}" not in done.stderr, done.stderr


def test_a_lock_of_a_broker_is_told(broker_with):
    running = broker_with("")
    done = barid("serve", "--data-dir", running.directory / "data", environment=QUIET)
    assert done.returncode == 1
    assert f"another broker (process {running._process.pid})" in done.stderr and "stop that one" in done.stderr, done.stderr


def test_a_configuration_with_secrets_that_everybody_can_read(tmp_path):
    file, key = tmp_path / "barid.toml", tmp_path / "key"
    key.write_text("secret")
    file.write_text(hashed("x", "ada") + f'\n[[keys]]\nname = "k"\nrights = ["Send"]\nkey_file = "{key}"\n')

    def told() -> list[str]:
        return json.loads(barid("check-config", "--json", file).stdout)["warnings"]

    file.chmod(0o644)
    key.chmod(0o640)
    done = barid("check-config", file)
    assert done.returncode == 0 and f"chmod o= {file}" in done.stdout and "hashes of passwords" in done.stdout, done.stdout
    assert len(told()) == 1
    file.chmod(0o640)
    assert told() == []
    key.chmod(0o604)
    assert len(told()) == 1 and str(key) in told()[0]
    command = [BINARY, "serve", "--config", file, "--data-dir", tmp_path / "data"]
    with subprocess.Popen(command, env=ENVIRONMENT | QUIET, stdout=subprocess.DEVNULL, stderr=open(tmp_path / "log", "w")) as process:
        until(lambda: f"chmod o= {key}" in (tmp_path / "log").read_text())
        process.terminate()
