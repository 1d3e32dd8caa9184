"""`barid bench amqp` against the broker: what it prints is what it has seen."""

import json
import subprocess

import pytest

from broker import BINARY


def bench(broker, queue: str, *options) -> subprocess.CompletedProcess:
    command = [BINARY, "bench", "amqp", *options, "--port", broker.amqp_port, "--queue", queue, "--json"]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)


@pytest.mark.queue(RequiresSession=True, LockDuration="PT5M")
@pytest.mark.parametrize("scenario", ["live", "accept", "backlog"])
def test_queues_with_sessions(broker, path, scenario):
    amount = {"live": ["--rate", 300, "-d", 1], "accept": ["-d", 1], "backlog": ["--messages", 200, "-d", 5]}[scenario]
    done = bench(broker, path(), scenario, "--sessions", 10, "--senders", 2, "--receivers", 2, *amount)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["completed"] > 0 and told["lost"] == 0


@pytest.mark.queue()
def test_queues_without_sessions(broker, path):
    done = bench(broker, path(), "--plain", "--senders", 2, "--receivers", 2, "--rate", 300, "-d", 1)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lost"] == 0


def test_a_queue_that_is_not_there(broker):
    done = bench(broker, "not/there", "-d", 1)
    assert done.returncode != 0 and "could not be found" in done.stderr
