"""Tests power cuts: first that the recorder is correct, then the traffic of `test_kill.py` with power cuts.

`run.py --fault power` runs many rounds.
"""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from disk import Disk, Everything, Prefix, Scattered, Synced, differences
from powercut import Recorded, Unpowered, available, recording
from test_kill import check
from world import World, run

pytestmark = pytest.mark.skipif(not available(), reason="needs Linux on x86-64 and a C compiler")

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture
def perform(tmp_path):
    """Runs a Python script in a recorded directory, and returns the disk that it leaves."""
    live, base, log, control = (tmp_path / name for name in ("live", "base", "log", "control"))
    for directory in (live, base, control):
        directory.mkdir()

    def perform_(script: str) -> Disk:
        with recording(live, log, control):
            subprocess.run([PYTHON, "-c", script], cwd=live, check=True)
        disk = Disk(base, log)
        assert_complete(disk, live, tmp_path / "everything")
        return disk

    return perform_


def assert_complete(disk: Disk, live: Path, target: Path) -> None:
    """Checks that the recorded changes give the real directory: no change bypassed the recorder."""
    disk.image(target, Everything())
    assert not disk.refused
    assert differences(target, live) == []


def contents(disk: Disk, target: Path, fate) -> dict[str, bytes]:
    disk.image(target, fate)
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


SYNC_DIRECTORY = "import os; directory = os.open('.', os.O_RDONLY); os.fsync(directory)\n"


def test_what_was_synced_is_there_and_nothing_else(perform, tmp_path):
    disk = perform("""
import os
file = open('kept', 'wb', buffering=0)
file.write(b'safe')
os.fsync(file.fileno())
file.write(b' lost')
unnamed = open('unnamed', 'wb', buffering=0)
unnamed.write(b'x')
os.fdatasync(unnamed.fileno())
""" + SYNC_DIRECTORY + """
os.rename('unnamed', 'renamed')
os.unlink('kept')
open('late', 'wb').close()
""")
    assert contents(disk, tmp_path / "synced", Synced()) == {"kept": b"safe", "unnamed": b"x"}


def test_a_synced_file_without_a_synced_name_may_be_gone(perform, tmp_path):
    disk = perform("import os; file = open('a', 'wb', buffering=0); file.write(b'x'); os.fsync(file.fileno())")
    assert contents(disk, tmp_path / "synced", Synced()) == {}


def test_writes_are_torn_at_sectors_and_lengths_grow_without_data(perform, tmp_path):
    disk = perform(SYNC_DIRECTORY + f"""
file = open('a', 'wb', buffering=0)
os.fsync(directory)
file.write(bytes([1]) * 700); os.fsync(file.fileno())
file.seek(300); file.write(bytes([2]) * 2000)
""")
    seen = set()
    for seed in range(200):
        (found,) = contents(disk, tmp_path / str(seed), Scattered(random.Random(seed))).values()
        assert len(found) in (700, 2300)
        assert found[:300] == bytes([1]) * 300, "bytes that nobody wrote again are safe"
        for begin, end in ((300, 512), (512, 700), (1024, 1536), (1536, 2048), (2048, 2300)):
            assert len(set(found[begin:end])) <= 1, "a sector is old or new"
        seen.add(tuple(found[at] for at in (300, 512) if at < len(found)) + (len(found),))
    assert {(1, 1, 700), (2, 2, 2300), (1, 2, 2300), (2, 1, 2300), (1, 1, 2300)} <= seen


def test_a_rename_replaces_or_does_not(perform, tmp_path):
    disk = perform(SYNC_DIRECTORY + """
for name in ('current', 'next'):
    file = open(name, 'wb', buffering=0); file.write(name.encode()); os.fsync(file.fileno())
os.fsync(directory)
os.mkdir('below')
os.rename('next', 'current')
""")
    outcomes = {tuple(sorted(contents(disk, tmp_path / str(seed), Prefix(random.Random(seed), disk.changes)).items()))
                for seed in range(50)}
    assert {(("current", b"current"), ("next", b"next")), (("current", b"next"),)} <= outcomes


def test_what_cannot_be_recorded_is_refused_and_reported(tmp_path):
    for name in ("live", "base", "control"):
        (tmp_path / name).mkdir()
    script = """
import mmap
file = open('a', 'w+b'); file.truncate(4096)
mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ).close()
try:
    mmap.mmap(file.fileno(), 4096)
except PermissionError:
    raise SystemExit(0)
raise SystemExit('a change to the mapping would go unseen')
"""
    with recording(tmp_path / "live", tmp_path / "log", tmp_path / "control"):
        subprocess.run([PYTHON, "-c", script], cwd=tmp_path / "live", check=True)
    assert Disk(tmp_path / "base", tmp_path / "log").refused == ["a shared writable mapping"]


def test_calls_fail_on_demand(tmp_path):
    for name in ("live", "control"):
        (tmp_path / name).mkdir()
    (tmp_path / "control" / "no-room").write_text("10")
    (tmp_path / "control" / "none-free").touch()
    (tmp_path / "live" / "a").touch()
    script = """
import errno, os
file = open('a', 'wb', buffering=0)
file.write(b'12345')
for attempt in (lambda: file.write(b'123456'), lambda: open('b', 'wb'), lambda: os.mkdir('c')):
    try:
        attempt()
    except OSError as error:
        assert error.errno == errno.ENOSPC
    else:
        raise SystemExit('there was room')
assert os.statvfs('.').f_bavail == 0
"""
    with recording(tmp_path / "live", tmp_path / "log", tmp_path / "control"):
        subprocess.run([PYTHON, "-c", script], cwd=tmp_path / "live", check=True)


def test_the_broker_changes_nothing_unseen(seed):
    """After an orderly end the log accounts for every byte of the data directory."""
    broker = Recorded()
    try:
        world = World(broker, seed)
        broker.die = lambda: broker.stop()
        asyncio.run(world.run(2))
        broker.stop()
        assert_complete(broker.disk(), broker.data, broker.directory / "everything")
    finally:
        broker.close()


def test_nothing_acknowledged_is_lost_when_the_power_is_cut(seed):
    check(run(Unpowered(random.Random(f"{seed}/power")), 5, seed))
