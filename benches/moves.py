#!/usr/bin/env python3
"""Measures for how long clients wait while a slot of a cluster of three brokers moves: those of the slot, and those that publish
meanwhile. See README.md."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time

import servers
import xxhash
from cluster import started

sys.path.insert(0, str(servers.ROOT / "tests"))
import wire  # noqa: E402

SLOT = 7
HOUR = {"session_expiry_interval": 3_600}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=6, help="of each slot, to and fro")
    parser.add_argument("--contents", nargs="+", default=["1x0", "1000x10", "1000x100", "10000x1"], metavar="SESSIONSxMESSAGES",
                        help="what the slot has: so many stored sessions, each with so many messages of 1 KiB")
    args = parser.parse_args()
    print("sessions  messages      MiB   closed, ms        held, ms          slowest PUBACK, ms")
    for contents in args.contents:
        sessions, messages = map(int, contents.split("x"))
        with started(3) as (running, _):
            fill(running, sessions, messages)
            moved = [move(running, number) for number in range(args.moves)]
        closed, held, slowest, size = zip(*moved)
        print(f"{sessions:8}  {sessions * messages:8}  {size[0] / 2**20:7.1f}   {spread(closed)}   {spread(held)}   {spread(slowest)}")
    return 0


def fill(running: list[dict], sessions: int, messages: int) -> None:
    """Makes sessions of one slot, each with messages of its own that wait."""
    names = (f"s{number}" for number in itertools.count())
    of_slot = list(itertools.islice((name for name in names if slot_of(name) == SLOT), sessions))
    for name in of_slot:
        client = connected(running[0], name, clean=False, properties=HOUR)
        client.subscribe(f"to/{name}", qos=1)
        client.disconnect()
    sender = connected(running[1], "sender")
    sender.timeout = 60
    for name in of_slot:
        sender.send(b"".join(wire.publish(f"to/{name}", b"x" * 1024, 1, number + 1) for number in range(messages)))
        for number in range(messages):
            sender.wait_for(wire.PUBACK, number + 1)
    sender.disconnect()


def slot_of(name: str) -> int:
    return xxhash.xxh3_64_intdigest(f"default/{name}".encode()) % 32


def move(running: list[dict], number: int) -> tuple[float, float, float, int]:
    """Moves the slot on. Returns for how long its clients could not connect, for how long no broker took messages, the slowest
    acknowledgement of a publisher at the third broker, all in ms; and the size of what was moved."""
    home = slots(running)[SLOT]["broker"]
    names = [one["name"] for one in running]
    to = names[(names.index(home) + 1) % 3]
    ends, waits = threading.Event(), []

    def publish() -> None:
        client = connected(running[(names.index(home) + 2) % 3], f"publisher{number}")
        while not ends.is_set():
            begin = time.perf_counter()
            client.publish("somewhere", b"x" * 64, qos=1)
            waits.append((time.perf_counter() - begin) * 1e3)
            time.sleep(0.001)
        client.disconnect()

    publisher = threading.Thread(target=publish)
    publisher.start()
    time.sleep(0.3)
    command = [servers.BARID, "cluster", "move", str(SLOT), to, "--json", "--admin", running[0]["admin"]]
    moved = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    time.sleep(0.3)
    ends.set()
    publisher.join()
    return moved["closed_ms"], moved["held_ms"], max(waits), moved["bytes"]


def slots(running: list[dict]) -> list[dict]:
    command = [servers.BARID, "cluster", "slots", "--json", "--admin", running[0]["admin"]]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["slots"]


def connected(broker: dict, name: str, **options) -> wire.Client:
    host, port = broker["mqtt"].rsplit(":", 1)
    client = wire.Client((host, int(port)))
    client.connect(name, **options)
    return client


def spread(values) -> str:
    return f"{statistics.median(values):5.0f} [{min(values):.0f}–{max(values):.0f}]".ljust(16)


if __name__ == "__main__":
    sys.exit(main())
