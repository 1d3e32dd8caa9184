#!/usr/bin/env python3
"""Measures what it costs to keep messages safe, and prints Markdown tables. See README.md."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time

import offline
import rounds
import servers
from compare import ratio
from offline import Load
from rounds import Scenario, quantiles, sync_seconds

PAIRS = "pairs -n 100 --size 1024 --qos 1 --version 311"
MIB = 1 << 20

# Messages of a publisher that are not acknowledged. nats-server closes publishers that have waited for too many
# syncs; it makes one for each message, so more in flight would not be faster.
WINDOWS = {"nats-always": 20}

# A broker goes on after its last acknowledgement: merging, deleting. That belongs to the messages, too.
REST_SECONDS = 2


def main() -> int:
    parser = rounds.arguments(__doc__, SCENARIOS,
                              f"of {', '.join(servers.MQTT)}, or NAME=HOST:PORT:PID of a broker that runs already")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement with connected subscribers [5]")
    parser.add_argument("--sessions", type=int, default=10_000, help="in `backlog` and `one-to-many` [10000]")
    parser.add_argument("--messages", type=int, default=100, help="for each session in `backlog` [100]")
    parser.add_argument("--retained", type=int, default=1_000_000, help="messages in `retained` [1000000]")
    return rounds.run(SCENARIOS, parser.parse_args())


def disk(_target: str, _args) -> dict:
    """What the disk can do: `fdatasync` after appending 1 KiB to a file, 1,000 times, and writing 512 MiB in
    pieces of 8 MiB with one `fdatasync` at the end."""
    with tempfile.NamedTemporaryFile(prefix="barid-bench-") as file:
        data = os.urandom(8 * MIB)
        start = time.monotonic()
        for _ in range(64):
            os.write(file.fileno(), data)
        os.fdatasync(file.fileno())
        seconds = time.monotonic() - start
    return {**quantiles("sync", rounds.syncs(1_000)), "mib_per_s": 512 / seconds}


def acknowledgement(target: str, _args) -> dict:
    """One publisher with one message of 1 KiB in flight, for a session without its client, 2,000 times; after each
    `fdatasync` after appending 1 KiB to a file on the same disk."""
    load = Load(1, 1_024)
    with servers.start(target) as server, tempfile.NamedTemporaryFile(prefix="barid-bench-") as file:
        offline.make_sessions(server.port, load)
        data, pubacks, syncs = os.urandom(1_024), [], []
        with offline.connected(server.port, "publisher", clean=True) as client:
            for number in range(2_000):
                pubacks.append(offline.puback_seconds(client, load.packet(0, number + 1, number)))
                syncs.append(sync_seconds(file.fileno(), data))
    ratio = statistics.median(pubacks) / statistics.median(syncs)
    return {**quantiles("puback", pubacks), **quantiles("sync", syncs), "ratio": ratio}


def stored_and_drained(target: str, _args) -> dict:
    """500 sessions without their clients, 200 messages of 1 KiB and QoS 1 for each, from 10 publishers with up to
    1,000 unacknowledged messages (nats-always: 20); then the clients come back, all at once. CPU with that of 2 s of rest.
    All is done twice, and the second time counts: what a virtual machine charges for fresh memory is no broker's.
    (nats: once, it closes publishers the second time.)"""
    load, numbers = Load(500, 1_024), range(200)
    with servers.start(target) as server:
        offline.make_sessions(server.port, load)
        for _ in range(1 if target.startswith("nats") else 2):
            cpu = server.cpu_seconds()
            seconds = offline.store(server.port, load, numbers, window=WINDOWS.get(target, 1_000))
            time.sleep(REST_SECONDS)
            store_cpu = server.cpu_seconds() - cpu
            drained = offline.drain(server.port, load, numbers)
            time.sleep(REST_SECONDS)
            drain_cpu = server.cpu_seconds() - cpu - store_cpu
    total = load.sessions * len(numbers)
    return {"stored_per_s": total / seconds, "store_cpu_us": store_cpu / total * 1e6,
            "drained_per_s": drained.messages / drained.seconds, "drain_cpu_us": drain_cpu / total * 1e6,
            "lost": drained.lost, "duplicates": drained.duplicates, "disordered": drained.disordered}


def connected(options: str):
    """100 pairs, 1 KiB, QoS 1, with the subscribers connected."""

    def measure(target: str, args) -> dict:
        server_target, _, kept = target.partition("/")
        arguments = [*PAIRS.split(), *options.split(), "--duration", str(args.seconds)]
        if kept == "persistent":
            arguments.append("--persistent")
        with servers.start(server_target) as server:
            result = servers.bench(server, arguments)
        return result | {f"latency_{key}_ms": us / 1e3 for key, us in result["latency_us"].items()}

    measure.__doc__ = (f"`barid bench {PAIRS} {options}`, with `--persistent` where the target says so: CPU for "
                       "a message delivered and acknowledged.")
    return measure


def backlog(target: str, args) -> dict:
    """`--sessions` sessions without their clients, `--messages` messages of 1 KiB for each, in ten parts; `kill -9`
    and a start; 100 clients take their first message; all come back and take the rest."""
    load, numbers = Load(args.sessions, 1_024), range(args.messages)
    parts = [numbers[i * len(numbers) // 10:(i + 1) * len(numbers) // 10] for i in range(10)]
    with servers.start(target) as server:
        offline.make_sessions(server.port, load)
        cpus, seconds = [], []
        for part in parts:
            before = server.cpu_seconds()
            seconds.append(offline.store(server.port, load, part))
            cpus.append((server.cpu_seconds() - before) / (load.sessions * len(part)) * 1e6)
        rss_full = server.rss_bytes()
        disk_full = server.disk_bytes()
        start = time.monotonic()
        server.kill_and_start()
        ready = offline.wait_until_ready(server.port, 60) - start
        start_cpu = server.cpu_seconds()
        time.sleep(REST_SECONDS)
        rss_started = server.rss_bytes()
        firsts = [offline.first_message_seconds(server.port, load, session)
                  for session in range(0, load.sessions, max(1, load.sessions // 100))]
        before = server.cpu_seconds()
        drained = offline.drain(server.port, load, numbers)
        drain_cpu = server.cpu_seconds() - before
        disk_after, settle = disk_at_rest(server)
    total = load.sessions * len(numbers)
    return {"stored_per_s": total / sum(seconds), "first_part_cpu_us": cpus[0], "last_part_cpu_us": cpus[-1],
            "parts_per_s": [load.sessions * len(part) / one for part, one in zip(parts, seconds)],
            "parts_cpu_us": cpus, "rss_full_mib": rss_full / MIB, "disk_full_mib": disk_full / MIB,
            "ready_s": ready, "start_cpu_s": start_cpu, "rss_started_mib": rss_started / MIB,
            "first_message_ms": statistics.median(firsts) * 1e3, "first_message_max_ms": max(firsts) * 1e3,
            "drained_per_s": drained.messages / drained.seconds, "drain_cpu_us": drain_cpu / total * 1e6,
            "disk_after_mib": disk_after / MIB, "settled_s": settle,
            "lost": drained.lost, "duplicates": drained.duplicates, "disordered": drained.disordered}


def disk_at_rest(server) -> tuple[int, float]:
    """What the files occupy when that has not changed for 5 s, or after 60 s; and when it was reached."""
    start = changed = time.monotonic()
    size = server.disk_bytes()
    while time.monotonic() - changed < 5 and time.monotonic() - start < 60:
        time.sleep(0.5)
        now = server.disk_bytes()
        if now != size:
            size, changed = now, time.monotonic()
    return size, changed - start


def one_to_many(target: str, args) -> dict:
    """One message of 1 MB for `--sessions` sessions without their clients: what the broker writes for it."""
    load, payload = Load(args.sessions, 1_024), os.urandom(1_000_000)
    with servers.start(target) as server:
        offline.make_sessions(server.port, load, topic=b"everybody")
        time.sleep(REST_SECONDS)
        before = server.written_bytes()
        head = offline.publish_head(2 + 9 + 2 + len(payload), qos=1)
        with offline.connected(server.port, "publisher", clean=True) as client:
            seconds = offline.puback_seconds(client, head + b"\x00\x09everybody\x00\x01" + payload)
        time.sleep(REST_SECONDS)
        return {"written_mb": (server.written_bytes() - before) / 1e6, "puback_ms": seconds * 1e3}


def retained(target: str, args) -> dict:
    """`--retained` retained messages of 64 B; a SUBSCRIBE that matches 10 of them, 200 times, each another; `kill -9`
    and a start, and the same again."""
    payload, groups = b"." * 64, args.retained // 10
    topics = (b"retained/%07d/%d" % (group, one) for group in range(groups) for one in range(10))

    def subscribe(server) -> list[float]:
        answer = offline.SUBACK_BYTES + 10 * (2 + 2 + len(b"retained/0000000/0") + len(payload))
        with offline.connected(server.port, "subscriber", clean=True) as client:
            return [offline.subscribe_seconds(client, b"retained/%07d/+" % group, answer)
                    for group in range(0, groups, max(1, groups // 200))]

    with servers.start(target) as server:
        stored = offline.retain(server.port, topics, payload)
        warm, rss = subscribe(server), server.rss_bytes()
        start = time.monotonic()
        server.kill_and_start()
        ready = offline.wait_until_ready(server.port, 60) - start
        cold = subscribe(server)
        rss_started, disk_bytes = server.rss_bytes(), server.disk_bytes()
    return {"stored_per_s": groups * 10 / stored, **quantiles("warm", warm), **quantiles("cold", cold),
            "ready_s": ready, "rss_mib": rss / MIB, "rss_started_mib": rss_started / MIB, "disk_mib": disk_bytes / MIB}


KEPT = ["barid", "barid/persistent", "barid-memory/persistent"]
DELIVERED = {
    "broker CPU, µs/message": ("broker_cpu_us_per_message", 2),
    "× not persistent": (ratio("broker_cpu_us_per_message"), 2),
    "delivered/s": ("delivered_per_s", 0),
    "p50, ms": ("latency_p50_ms", 2),
    "p99, ms": ("latency_p99_ms", 2),
    "lost": ("lost", 0),
    "generator CPU, µs/message": ("generator_cpu_us_per_message", 2),
}
FAULTS = {"lost": ("lost", 0), "twice": ("duplicates", 0), "out of order": ("disordered", 0)}
SCENARIOS = {
    "disk": Scenario(disk, ["disk"], {
        "fdatasync p50, ms": ("sync_p50_ms", 3),
        "p99, ms": ("sync_p99_ms", 3),
        "write, MiB/s": ("mib_per_s", 0),
    }, is_fixed=True),
    "acknowledgement": Scenario(acknowledgement, ["barid", "nats-always"], {
        "PUBACK p50, ms": ("puback_p50_ms", 3),
        "p99, ms": ("puback_p99_ms", 3),
        "fdatasync p50, ms": ("sync_p50_ms", 3),
        "fdatasync p99, ms": ("sync_p99_ms", 3),
        "PUBACK × fdatasync": ("ratio", 2),
    }),
    "offline": Scenario(stored_and_drained, ["barid", "barid-memory", "mosquitto-saved", "nats", "nats-always"], {
        "stored/s": ("stored_per_s", 0),
        "CPU, µs/stored": ("store_cpu_us", 2),
        "drained/s": ("drained_per_s", 0),
        "CPU, µs/drained": ("drain_cpu_us", 2),
        **FAULTS,
    }),
    "connected": Scenario(connected(""), KEPT, DELIVERED),
    "connected-20k": Scenario(connected("--rate 20000"), KEPT, DELIVERED),
    "backlog": Scenario(backlog, ["barid"], {
        "stored/s": ("stored_per_s", 0),
        "CPU, µs/stored, first tenth": ("first_part_cpu_us", 2),
        "last tenth": ("last_part_cpu_us", 2),
        "memory, MiB": ("rss_full_mib", 0),
        "disk, MiB": ("disk_full_mib", 0),
        "ready, s": ("ready_s", 2),
        "memory after it, MiB": ("rss_started_mib", 0),
        "first message, ms": ("first_message_ms", 2),
        "longest, ms": ("first_message_max_ms", 2),
        "drained/s": ("drained_per_s", 0),
        "CPU, µs/drained": ("drain_cpu_us", 2),
        "disk after it, MiB": ("disk_after_mib", 1),
        **FAULTS,
    }, is_repeated=False),
    "one-to-many": Scenario(one_to_many, ["barid"], {
        "written, MB": ("written_mb", 2),
        "PUBACK, ms": ("puback_ms", 1),
    }, is_repeated=False),
    "retained": Scenario(retained, ["barid"], {
        "stored/s": ("stored_per_s", 0),
        "10 of them p50, ms": ("warm_p50_ms", 2),
        "longest, ms": ("warm_max_ms", 2),
        "memory, MiB": ("rss_mib", 0),
        "disk, MiB": ("disk_mib", 0),
        "ready, s": ("ready_s", 2),
        "10 of them p50 after it, ms": ("cold_p50_ms", 2),
        "longest after it, ms": ("cold_max_ms", 2),
        "memory after it, MiB": ("rss_started_mib", 0),
    }, is_repeated=False),
}

if __name__ == "__main__":
    sys.exit(main())
