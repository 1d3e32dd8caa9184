#!/usr/bin/env python3
"""Measures queues with sessions beside RabbitMQ, and prints Markdown tables. See README.md."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import rabbitmq
import rounds
import servers
from compare import number, ratio
from rounds import Scenario

LOAD = ["--sessions", "100", "--senders", "10", "--receivers", "10", "--size", "1024"]
PROPERTIES = {"LockDuration": "PT5M", "MaxDeliveryCount": 10}
ENTITIES = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "bench", "Properties": {**PROPERTIES, "RequiresSession": True}},
    {"Name": "plain", "Properties": {**PROPERTIES, "RequiresSession": False}},
]}]}}


def main() -> int:
    parser = rounds.arguments(__doc__, SCENARIOS, "of " + ", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement, after 1 s to warm up [5]")
    parser.add_argument("--restarted", type=int, default=1_000_000, help="sessions in `restart` [1,000,000]")
    return rounds.run(SCENARIOS, parser.parse_args())


def start(target: str) -> servers.Server:
    kind = target.partition("/")[0]
    if kind.startswith("rabbitmq"):
        if not rabbitmq.is_there():
            raise servers.Failed("rabbitmq-server is not installed")
        return rabbitmq.start("quorum" if kind == "rabbitmq-quorum" else "classic")

    def command(port: int, directory: Path) -> list:
        (directory / "entities").write_text(json.dumps(ENTITIES))
        others = [f"127.0.0.1:{servers.free_port()}" for _ in range(2)]
        return [servers.binary(target), "serve", "--entities", directory / "entities",
                "--amqp", f"127.0.0.1:{port}", "--mqtt", others[0], "--ws", "off", "--admin", others[1],
                "--data-dir", directory / "data", "--log", "error"]

    return servers.launch(target, command)


def load(server: servers.Server, target: str, arguments: list[str]) -> dict:
    """What `barid bench amqp` says; faults are a failure."""
    where = []
    if target.startswith("rabbitmq"):
        where = rabbitmq.ARGUMENTS
    elif target.endswith("/plain"):
        where = ["--plain", "--queue", "plain"]
    result = servers.bench(server, ["amqp", *arguments, *where])
    if not result["clean"]:
        raise servers.Failed(f"messages are lost, doubled, refused or out of order: {result}")
    return result


def live(target: str, args) -> dict:
    """`barid bench amqp --sessions 100 --senders 10 --receivers 10 --size 1024`: 100 messages of each sender are on
    their way, from being sent to being completed. Without sessions at RabbitMQ and in `/plain`."""
    with start(target) as server:
        return load(server, target, ["live", *LOAD, "--duration", str(args.seconds)])


def live_5k(target: str, args) -> dict:
    """The same with `--rate 5000`."""
    with start(target) as server:
        return load(server, target, ["live", *LOAD, "--rate", "5000", "--duration", str(args.seconds)])


def backlog(target: str, args, messages: int = 50_000) -> dict:
    """`barid bench amqp backlog --messages 50000`: stored first, then received and completed."""
    with start(target) as server:
        return load(server, target, ["backlog", *LOAD, "--messages", str(messages), "--duration", "60"])


def backlog_500k(target: str, args) -> dict:
    """The same with ten times as many."""
    return backlog(target, args, 500_000)


def accept(target: str, args, sessions: int = 100_000) -> dict:
    """`barid bench amqp accept --sessions 100000 --receivers 1`: every session has a message; the next session is
    accepted, its message completed, and the session closed, again and again."""
    with start(target) as server:
        arguments = ["--sessions", str(sessions), "--receivers", "1", "--duration", str(args.seconds)]
        return load(server, target, ["accept", *arguments])


def accept_1k(target: str, args) -> dict:
    """The same with 1,000 sessions."""
    return accept(target, args, 1_000)


def restart(target: str, args) -> dict:
    """So many sessions with a message of 64 B each, `kill -9`, and the time until connections are taken again and
    until the first session is accepted."""
    with start(target) as server:
        arguments = ["--sessions", str(args.restarted), "--senders", "10", "--receivers", "1", "--size", "64"]
        stored = load(server, target, ["accept", *arguments, "--duration", "1"])
        begun = time.monotonic()
        server.kill_and_start()
        while not server.is_open():
            if time.monotonic() - begun > 60:
                raise servers.Failed("does not start again")
            time.sleep(0.005)
        opened = time.monotonic() - begun
        again = load(server, target, ["accept", "--no-store", *arguments, "--duration", "1"])
        return {**again, "sessions": args.restarted, "stored_per_s": stored["stored_per_s"],
                "open_after_s": opened, "accepted_after_s": opened + again["first_accepted_s"]}


def millis(*path: str):
    return number(*path, scale=1_000)


LIVE = {
    "completed/s": ("completed_per_s", 0),
    "completed/s of CPU": ("completed_per_cpu_s", 0),
    "× rabbitmq, of CPU": (ratio("completed_per_cpu_s"), 2),
    "server CPU, µs/message": ("broker_cpu_us_per_message", 2),
    "accepted p50, ms": (millis("store_latency_us", "p50"), 2),
    "accepted p99, ms": (millis("store_latency_us", "p99"), 2),
    "received p50, ms": (millis("latency_us", "p50"), 2),
    "received p99, ms": (millis("latency_us", "p99"), 2),
    "generator CPU, µs/message": ("generator_cpu_us_per_message", 2),
}
BACKLOG = {
    "stored/s": ("stored_per_s", 0),
    "server CPU, µs/stored": ("broker_cpu_us_per_stored", 2),
    "completed/s": ("completed_per_s", 0),
    "server CPU, µs/completed": ("broker_cpu_us_per_message", 2),
    "memory, MiB": (number("broker_rss_bytes", scale=1_048_576), 0),
}
ACCEPT = {
    "sessions/s": ("completed_per_s", 0),
    "accepted p50, ms": (millis("accept_latency_us", "p50"), 3),
    "accepted p99, ms": (millis("accept_latency_us", "p99"), 3),
    "server CPU, µs/session": ("broker_cpu_us_per_message", 2),
}
TARGETS = ["rabbitmq", "rabbitmq-quorum", "barid", "barid/plain"]
SCENARIOS = {
    "live": Scenario(live, TARGETS, LIVE, floor="rabbitmq"),
    "live-5k": Scenario(live_5k, TARGETS, LIVE, floor="rabbitmq"),
    "backlog": Scenario(backlog, TARGETS, BACKLOG, floor="rabbitmq"),
    "backlog-500k": Scenario(backlog_500k, ["barid", "barid/plain"], BACKLOG),
    "accept": Scenario(accept, ["barid"], ACCEPT, is_fixed=True),
    "accept-1k": Scenario(accept_1k, ["barid"], ACCEPT, is_fixed=True),
    "restart": Scenario(restart, ["barid"], {
        "sessions": ("sessions", 0),
        "stored/s": ("stored_per_s", 0),
        "open after, s": ("open_after_s", 2),
        "first session accepted after, s": ("accepted_after_s", 2),
        "accepted p99, ms": (millis("accept_latency_us", "p99"), 3),
        "memory after, MiB": (number("broker_rss_bytes", scale=1_048_576), 0),
    }, is_repeated=False, is_fixed=True),
}

if __name__ == "__main__":
    sys.exit(main())
