#!/usr/bin/env python3
"""Measures what the topic filters of one broker's clients cost another broker: the memory, and the rate at which it hears of them.
See README.md."""

from __future__ import annotations

import argparse
import sys
import threading
import time

import servers
from cluster import started
from replicas import ask, connected, process

sys.path.insert(0, str(servers.ROOT / "tests"))
import wire  # noqa: E402

PLACE = "fleet/region-{region}/vehicle-{vehicle:07}"
# The filters of one kind, in turns.
KINDS = {
    "of a fleet, two of five without wildcards": [
        PLACE + "/telemetry", PLACE + "/commands", "fleet/+/vehicle-{vehicle:07}/telemetry", PLACE + "/#", "+/region-{region}/vehicle-{vehicle:07}/telemetry",
    ],
    "each without wildcards, for a topic level of its own": [PLACE + "/commands"],
    "each with a wildcard, below a topic level of its own": [PLACE + "/#"],
}
# Filters of one client.
EACH = 1_000
# SUBSCRIBE packets that are sent before the answers are read, of which EACH is a multiple, and the length of an answer.
AHEAD, SUBACK = 250, 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, default=1_000_000, help="distinct filters, each in a SUBSCRIBE of its own")
    parser.add_argument("--clients", type=int, default=4, help="clients that subscribe at the same time")
    parser.add_argument("--brokers", type=int, default=1, help="brokers whose clients have the same filters, which count once for each")
    args = parser.parse_args()
    print("| filters | | B for each | SUBSCRIBE/s until heard | CPU at the other broker, µs |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for kind, patterns in KINDS.items():
        with started(args.brokers + 1) as (running, _):
            print(measure(kind, patterns, running, args), flush=True)
    return 0


def measure(kind: str, patterns: list[str], running: list[dict], args: argparse.Namespace) -> str:
    # The load shares the cores with the brokers, so it makes its packets before.
    *having, hearing = running
    clients = [(connected(broker, f"{broker['name']}-{first}"), batches(patterns, first)) for first in range(0, args.filters, EACH) for broker in having]
    other = process(hearing)
    memory, cpu, begin = other.rss_bytes(), other.cpu_seconds(), time.monotonic()
    threads = [threading.Thread(target=subscribe, args=(clients[at::args.clients],)) for at in range(args.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = len(clients) * EACH
    while heard(hearing) < count:
        time.sleep(0.01)
    seconds, cpu = time.monotonic() - begin, other.cpu_seconds() - cpu
    memory = other.rss_bytes() - memory
    for client, _ in clients:
        client.drop()
    return f"| {kind} | {count:,} | {memory / count:.0f} | {count / seconds:,.0f} | {cpu / count * 1e6:.2f} |"


def batches(patterns: list[str], first: int) -> list[bytes]:
    """Returns the SUBSCRIBE packets of a client, so many of them together as are sent before the answers are read."""
    packets = [wire.subscribe(number % 60_000 + 1, (name(patterns, number), 0)) for number in range(first, first + EACH)]
    return [b"".join(packets[at:at + AHEAD]) for at in range(0, EACH, AHEAD)]


def subscribe(clients: list) -> None:
    for client, packets in clients:
        for batch in packets:
            client.send(batch)
            left = SUBACK * AHEAD
            while left:
                left -= len(client.stream.recv(left))


def name(patterns: list[str], number: int) -> str:
    vehicle, kind = divmod(number, len(patterns))
    return patterns[kind].format(vehicle=vehicle, region=vehicle % 100)


def heard(broker: dict) -> int:
    members = ask(broker, "GET", "/v1/cluster")["members"]
    return sum(member["filters"] for member in members)


if __name__ == "__main__":
    sys.exit(main())
