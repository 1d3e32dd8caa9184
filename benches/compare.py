#!/usr/bin/env python3
"""Measures brokers in turns and prints Markdown tables. See README.md."""

from __future__ import annotations

import argparse
import statistics
import sys

import servers

PAIRS = "pairs -n 100 --size 1024"
# MQTT 3.1.1, which every broker speaks.
SCENARIOS = {
    "pairs0": f"{PAIRS} --qos 0",
    "pairs1": f"{PAIRS} --qos 1",
    "pairs0-20k": f"{PAIRS} --qos 0 --rate 20000",
    "pairs1-20k": f"{PAIRS} --qos 1 --rate 20000",
    "fanout-16": "fanout -n 1000 --size 16 --window 16",
    "fanout-1k": "fanout -n 1000 --size 1024 --window 16",
    "fanout-16-50k": "fanout -n 1000 --size 16 --rate 50",
    "fanout-1k-50k": "fanout -n 1000 --size 1024 --rate 50",
    "fanin": "fanin -n 500 --size 1024",
    "fanin-20k": "fanin -n 500 --size 1024 --rate 20000",
    "usable0": f"{PAIRS} --qos 0 --find-max",
    "usable1": f"{PAIRS} --qos 1 --find-max",
    "connections": "connections -n 18000",
}


def main() -> int:
    args = parse_arguments()
    targets = []
    for target in args.targets:
        if servers.is_there(target):
            targets.append(target)
        else:
            print(f"{target} is not installed and is left out", file=sys.stderr)
    print(f"{args.rounds} rounds of {args.seconds} s. Median [least–most].")
    failed = False
    for name in args.scenarios:
        arguments = [*SCENARIOS[name].split(), "--version", "311"]
        if name != "connections":
            arguments += ["--duration", str(args.seconds)]
        results = {target: [] for target in targets}
        for number in range(args.rounds):
            # Another one begins each round, so that nobody always has the same neighbour.
            for target in rotated(targets, number):
                result = measure(target, arguments, f"{name} {number + 1}/{args.rounds}")
                results[target].append(result)
                failed |= result is None
        command = " ".join(servers.bench_command(arguments, "PORT", "PID"))
        print(f"\n### {name}\n\n    {command}\n")
        columns = CONNECTION_COLUMNS if name == "connections" else MESSAGE_COLUMNS
        print(table(columns, results), flush=True)
    return int(failed)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement, after 1 s to warm up")
    parser.add_argument("--targets", nargs="+", default=["relay", "barid", "mosquitto"],
                        help="relay, barid, mosquitto, or NAME=HOST:PORT:PID of a broker that runs already")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), metavar="SCENARIO",
                        help=f"of {', '.join(SCENARIOS)}")
    return parser.parse_args()


def rotated(targets: list[str], by: int) -> list[str]:
    by %= len(targets)
    return targets[by:] + targets[:by]


def measure(target: str, arguments: list[str], what: str) -> dict | None:
    """One measurement of a fresh process, or `None` if there was no result."""
    try:
        with servers.start(target) as server:
            result = servers.bench(server, arguments + servers.login(target))
    except servers.Failed as reason:
        print(f"{what} {target}: {reason}", file=sys.stderr)
        return None
    print(f"{what} {target}: done", file=sys.stderr)
    return result


def table(columns: dict, results: dict[str, list[dict | None]], floor: str = "relay") -> str:
    """A row for each target. `results` are in the order of the rounds; ratios are to the target `floor`."""
    lines = ["| target | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for target, rounds in results.items():
        floors = results.get(floor) or [None] * len(rounds)
        cells = []
        for value, digits in columns.values():
            values = [value(result, floor) for result, floor in zip(rounds, floors) if result is not None]
            cells.append(cell([one for one in values if one is not None], digits))
        lines.append(f"| {target.split('=')[0]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(values: list[float], digits: int) -> str:
    """`median [least–most]`, or a dash if there is nothing."""
    if not values:
        return "–"
    texts = [f"{one:,.{digits}f}" for one in (statistics.median(values), min(values), max(values))]
    return texts[0] if len(set(texts)) == 1 else f"{texts[0]} [{texts[1]}–{texts[2]}]"


def ratio(*path: str):
    """How often the number of the floor in the same round."""
    own = number(*path)

    def divide(result: dict, floor: dict | None) -> float | None:
        value, least = own(result, None), own(floor, None)
        return value / least if value is not None and least else None

    return divide


def number(*path: str, scale: float = 1.0):
    """The number at `path` in a result."""

    def find(result: dict | None, _floor: dict | None) -> float | None:
        for key in path:
            result = (result or {}).get(key)
        return result / scale if result is not None else None

    return find


# Heading: the value of a result, and its decimals.
MESSAGE_COLUMNS = {
    "broker CPU, µs/message": (number("broker_cpu_us_per_message"), 2),
    "× relay": (ratio("broker_cpu_us_per_message"), 2),
    "delivered/s": (number("delivered_per_s"), 0),
    "p50, ms": (number("latency_us", "p50", scale=1_000), 2),
    "p99, ms": (number("latency_us", "p99", scale=1_000), 2),
    "lost": (number("lost"), 0),
    "generator CPU, µs/message": (number("generator_cpu_us_per_message"), 2),
}
CONNECTION_COLUMNS = {
    "memory, B/connection": (number("broker_rss_bytes_per_connection"), 0),
    "connections/s": (number("connections_per_s"), 0),
    "broker CPU, µs/connection": (number("broker_cpu_us_per_connection"), 1),
    "× relay": (ratio("broker_cpu_us_per_connection"), 2),
    "ready p50, ms": (number("connect_us", "p50", scale=1_000), 2),
    "ready p99, ms": (number("connect_us", "p99", scale=1_000), 2),
}

if __name__ == "__main__":
    sys.exit(main())
