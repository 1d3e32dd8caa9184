"""Scenarios, measured target by target in rounds, and their tables."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import offline
import servers
from compare import number, rotated, table


class Scenario:
    """How to measure a target, which targets if nobody names others (`is_fixed`: and if somebody does), and what the
    table shows: heading to decimals and the key of the result, or what finds it. Ratios are to the target `floor`."""

    def __init__(self, measure, targets: list[str], columns: dict, is_repeated: bool = True, is_fixed: bool = False,
                 floor: str = "barid"):
        self.measure, self.targets, self.is_repeated, self.is_fixed = measure, targets, is_repeated, is_fixed
        self.columns = {heading: (number(key) if isinstance(key, str) else key, digits)
                        for heading, (key, digits) in columns.items()}
        self.floor = floor


def arguments(description: str, scenarios: dict, targets: str) -> argparse.ArgumentParser:
    """What all of these benchmarks may be asked."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--targets", nargs="+", help=targets)
    parser.add_argument("--scenarios", nargs="+", choices=scenarios, default=list(scenarios), metavar="SCENARIO",
                        help=f"of {', '.join(scenarios)}")
    parser.add_argument("--json", type=Path, help="file for the results of all measurements")
    return parser


def run(scenarios: dict, args: argparse.Namespace) -> int:
    """Measures and prints what was asked for; the exit status."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results, failed = [], False
    print(f"{args.rounds} rounds. Median [least–most].")
    for name in args.scenarios:
        scenario = scenarios[name]
        asked = scenario.targets if scenario.is_fixed else args.targets or scenario.targets
        targets = [one for one in asked if scenario.is_fixed or available(one)]
        rounds = {target: [] for target in targets}
        for turn in range(args.rounds if scenario.is_repeated else 1):
            # Another one begins each round, so that nobody always has the same neighbour.
            for target in rotated(targets, turn):
                what = f"{name} {turn + 1} {target}"
                try:
                    result = scenario.measure(target, args)
                except (servers.Failed, offline.Wrong, OSError) as reason:
                    print(f"{what}: {reason}", file=sys.stderr)
                    result, failed = None, True
                else:
                    print(f"{what}: {json.dumps(result)}", file=sys.stderr, flush=True)
                rounds[target].append(result)
                results.append({"scenario": name, "target": target, "result": result})
        print(f"\n### {name}\n\n{' '.join(scenario.measure.__doc__.split())}\n")
        print(table(scenario.columns, rounds, floor=scenario.floor), flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(failed)


def available(target: str) -> bool:
    is_there = servers.is_there(target)
    if not is_there:
        print(f"{target} is not installed and is left out", file=sys.stderr)
    return is_there


def syncs(count: int, size: int = 1_024) -> list[float]:
    """How many seconds each of some `fdatasync` takes, after appending `size` bytes to a file in `TMPDIR`."""
    data = os.urandom(size)
    with tempfile.NamedTemporaryFile(prefix="barid-bench-") as file:
        return [sync_seconds(file.fileno(), data) for _ in range(count)]


def sync_seconds(file: int, data: bytes) -> float:
    """Appending `data` and having it on the disk."""
    start = time.monotonic()
    os.write(file, data)
    os.fdatasync(file)
    return time.monotonic() - start


def quantiles(name: str, seconds: list[float]) -> dict:
    """p50, p99 and the greatest, in ms."""
    ordered = sorted(seconds)
    pick = {"p50": statistics.median_high(ordered), "p99": ordered[len(ordered) * 99 // 100], "max": ordered[-1]}
    return {f"{name}_{key}_ms": one * 1e3 for key, one in pick.items()}
