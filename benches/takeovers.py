#!/usr/bin/env python3
"""Measures how long the old connection of a client lasts after the client has connected to another broker. See README.md."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time

import servers
from cluster import started

sys.path.insert(0, str(servers.ROOT / "tests"))
import wire  # noqa: E402

SESSION_TAKEN_OVER = 0x8E
KINDS = {"ends with the connection": (True, None), "outlives the connection": (False, {"session_expiry_interval": 600})}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=500, help="take-overs of each kind")
    args = parser.parse_args()
    print("| a session that | p50, ms | p99, ms | longest, ms |")
    print("| --- | ---: | ---: | ---: |")
    with started(3) as (running, _):
        for kind, (clean, properties) in KINDS.items():
            took = sorted(take_overs(running, args.times, clean, properties))
            shown = statistics.median(took), took[len(took) * 99 // 100], took[-1]
            print(f"| {kind} | {' | '.join(f'{value * 1e3:.1f}' for value in shown)} |", flush=True)
    return 0


def take_overs(running: list[dict], count: int, clean: bool, properties: dict | None) -> list[float]:
    """Lets a client connect to one broker after the other. Returns for how long each connection outlasts the next CONNACK, in
    seconds; 0 if it ends before."""
    took = []
    for number in range(count):
        old, new = (wire.Client(address(one)) for one in random.sample(running, 2))
        client_id = f"client-{number}"
        old.connect(client_id, clean=clean, properties=properties)
        new.connect(client_id, clean=clean, properties=properties)
        begin = time.monotonic()
        old.expect_refused(SESSION_TAKEN_OVER)
        took.append(time.monotonic() - begin)
        new.ping()
        old.drop()
        new.drop()
    return took


def address(broker: dict) -> tuple[str, int]:
    host, port = broker["mqtt"].rsplit(":", 1)
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
