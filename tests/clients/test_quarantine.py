"""`barid doctor --quarantine`: a damaged data directory is opened without what is damaged, and that is named and kept."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from running import barid

RETAINED, WAITING = b"R" * 300, b"W" * 300


@pytest.fixture
def filled(broker_with, paho):
    """A stopped broker: ten retained messages, ten that wait for a client, and a key of the state store."""
    running = broker_with("[storage]\nshards = 2\n")
    away = paho("sleeper", to=running, clean=False, SessionExpiryInterval=3600)
    away.subscribe("wait/#", 1)
    away.leave()
    publisher = paho(to=running)
    for number in range(10):
        publisher.publish(f"keep/{number}", RETAINED + b"%d" % number, 1, retain=True)
        publisher.publish(f"wait/{number}", WAITING + b"%d" % number, 1)
    assert barid("state", "set", "k", "v", "-h", "127.0.0.1", "-p", running.port).returncode == 0
    running.stop()
    return running


def written(broker) -> dict[Path, bytes]:
    """What is in the segments, without the space that is set aside behind it: opening a store cuts that off."""
    return {segment: segment.read_bytes().rstrip(b"\0") for segment in segments(broker)}


def segments(broker) -> list[Path]:
    """Those that are in use: the next one is made before it is needed, and thrown away if it is not."""
    return sorted((broker.directory / "data").glob("shard-*/log-" + "[0-9]" * 10))


def flip(broker, pattern: bytes, offset: int = 100) -> Path:
    """Flips a bit in the segment that has these bytes."""
    for segment in segments(broker):
        content = bytearray(segment.read_bytes())
        if (at := content.find(pattern)) >= 0:
            content[at + offset] ^= 1
            segment.write_bytes(content)
            return segment
    raise AssertionError(f"{pattern} is nowhere")


def doctor(broker, *flags, status: int) -> dict:
    done = barid("doctor", "--data-dir", broker.directory / "data", "--json", *flags)
    assert done.returncode == status, done
    return json.loads(done.stdout)


def test_a_healthy_directory_is_left_alone(filled):
    before = written(filled)
    assert doctor(filled, "--quarantine", status=0)["ok"]
    assert not (filled.directory / "data" / "quarantine").exists()
    assert written(filled) == before


def test_the_doctor_says_what_is_lost_and_what_to_do(filled):
    flip(filled, RETAINED + b"4")
    done = barid("doctor", "--data-dir", filled.directory / "data")
    assert done.returncode == 1
    assert 'the retained message of "keep/4"' in done.stdout and "perhaps" not in done.stdout, done.stdout
    for advice in ("cp -a", "barid restore BACKUP --data-dir", "barid doctor", "--quarantine"):
        assert advice in done.stdout, advice
    report = doctor(filled, status=1)
    assert report["can_be_quarantined"] and len(report["lost"]) == 1


def test_a_damaged_value_is_lost_alone(filled, paho):
    segment = flip(filled, RETAINED + b"4")
    damaged = segment.read_bytes()
    report = doctor(filled, "--quarantine", "--yes", status=0)
    assert report["ok"] and report["findings"] == []
    aside = report["quarantine"]
    assert [line for line in aside["lost"] if "lost" in line] == aside["lost"] and 'of "keep/4"' in aside["lost"][0]
    copy = next(Path(file) for file in aside["files"] if file.endswith(segment.name))
    assert copy.read_bytes() == damaged and copy.is_relative_to(filled.directory / "data" / "quarantine")
    assert 'of "keep/4"' in (Path(aside["directory"]) / "lost.txt").read_text()

    filled.start()
    reader = paho(to=filled)
    reader.subscribe("keep/#", 1)
    assert {reader.receive().topic for _ in range(9)} == {f"keep/{number}" for number in range(10)} - {"keep/4"}
    assert reader.silent()
    sleeper = paho("sleeper", to=filled, clean=False, SessionExpiryInterval=3600)
    assert sleeper.session_present and sleeper.payloads(10) == [WAITING + b"%d" % number for number in range(10)]
    # It is like any other from then on.
    paho(to=filled).publish("keep/4", b"anew", 1, retain=True)
    filled.stop()
    assert doctor(filled, status=0)["ok"]


def test_a_message_that_waited_is_named_with_its_client(filled, paho):
    flip(filled, WAITING + b"6")
    report = doctor(filled, "--quarantine", "--yes", status=0)
    assert any('of client "sleeper"' in line for line in report["quarantine"]["lost"]), report["quarantine"]
    assert report["quarantine"]["records"] == 1
    lines = (Path(report["quarantine"]["directory"]) / "records.jsonl").read_text().splitlines()
    [record] = map(json.loads, lines)
    assert record["keyspace"] == "entries" and base64.b64decode(record["key_base64"])
    filled.start()
    sleeper = paho("sleeper", to=filled, clean=False, SessionExpiryInterval=3600)
    assert sleeper.payloads(9) == [WAITING + b"%d" % number for number in range(10) if number != 6]
    assert sleeper.silent()


def test_a_damaged_frame(filled, paho):
    """What it had is told as far as it can be read; the broker starts and serves what is left."""
    # The topic in the key of a retained message: header and keys have one checksum.
    flip(filled, b"keep\x007", offset=5)
    before = doctor(filled, status=1)
    assert any("perhaps" in line for line in before["lost"]), before["lost"]
    report = doctor(filled, "--quarantine", "--yes", status=0)
    assert any("perhaps more" in line for line in report["quarantine"]["lost"])
    filled.start()
    reader = paho(to=filled)
    reader.subscribe("keep/#", 1)
    left = {reader.receive().topic for _ in range(9)}
    assert "keep/7" not in left
    sleeper = paho("sleeper", to=filled, clean=False, SessionExpiryInterval=3600)
    assert sleeper.session_present and len(sleeper.payloads(9)) == 9


def test_a_segment_that_is_gone(filled, paho):
    """The session that was in it is lost with all that waited for it; what is left of them does not keep the broker from starting."""
    victim = flip(filled, WAITING + b"0")
    victim.unlink()
    report = doctor(filled, "--quarantine", "--yes", status=0)
    assert report["ok"]
    filled.start()
    paho(to=filled).publish("keep/x", b"x", 1, retain=True)
    filled.stop()
    assert doctor(filled, status=0)["ok"]


def test_nothing_is_done_without_being_asked(filled):
    flip(filled, RETAINED + b"4")
    before = written(filled)
    done = barid("doctor", "--data-dir", filled.directory / "data", "--quarantine", stdin=-3)
    assert done.returncode == 1 and "--yes" in done.stderr
    assert written(filled) == before


def test_not_while_the_broker_runs(filled):
    filled.start()
    done = barid("doctor", "--data-dir", filled.directory / "data", "--quarantine", "--yes")
    assert done.returncode == 2


def test_the_other_engine_says_that_it_cannot(broker_with, paho):
    running = broker_with('[storage]\nengine = "lsm"\nshards = 1\n')
    paho(to=running).publish("keep", RETAINED, 1, retain=True)
    running.stop()
    journal = next((running.directory / "data").glob("shard-*/db/*.jnl"))
    content = journal.read_bytes()
    at = content.find(RETAINED)
    journal.write_bytes(content[:at] + b"X" + content[at + 1:])
    report = doctor(running, status=1)
    assert not report["can_be_quarantined"]
    done = barid("doctor", "--data-dir", running.directory / "data", "--quarantine", "--yes")
    assert done.returncode == 1 and "restore a backup" in done.stderr, done.stderr


def test_a_shard_that_is_gone_needs_a_backup(filled):
    shutil.rmtree(filled.directory / "data" / "shard-000")
    assert not doctor(filled, status=1)["can_be_quarantined"]
