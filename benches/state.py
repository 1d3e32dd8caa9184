#!/usr/bin/env python3
"""Measures the state store beside redis-server and beside the disk, and prints Markdown tables. See README.md."""

from __future__ import annotations

import sys

import rounds
import servers
from compare import number, ratio
from rounds import Scenario, quantiles


def main() -> int:
    targets = [f"barid, barid-memory, {', '.join(servers.REDIS)}", "barid/plain or barid-memory/plain",
               "or NAME=HOST:PORT:PID of a broker that runs already"]
    parser = rounds.arguments(__doc__, SCENARIOS, "of " + ", ".join(targets))
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement, after 1 s to warm up [5]")
    return rounds.run(SCENARIOS, parser.parse_args())


def many(size: int):
    """50 clients with 10 requests each on their way, SETs and GETs in turn."""

    def measure(target: str, args) -> dict:
        with servers.start(target.partition("/")[0]) as server:
            return load(server, target, ["--size", str(size), "--duration", str(args.seconds)])

    measure.__doc__ = (f"`barid bench state --size {size}`, and `redis_load --size {size}` for redis: 50 clients with 10 "
                       "requests each on their way, SETs and GETs in turn, 10,000 keys.")
    return measure


def one(target: str, args) -> dict:
    """`barid bench state -n 1 --in-flight 1 --sets 100`, 64 B, and 2,000 times `fdatasync` after appending 1 KiB to a
    file on the same disk: half of them before, half after."""
    with servers.start(target.partition("/")[0]) as server:
        syncs = rounds.syncs(1_000)
        result = load(server, target, ["-n", "1", "--in-flight", "1", "--sets", "100", "--duration", str(args.seconds)])
        syncs += rounds.syncs(1_000)
    sync = quantiles("sync", syncs)
    ratios = {f"{key}_ratio": result["set_latency_us"][key] / 1e3 / sync[f"sync_{key}_ms"] for key in ("p50", "p99")}
    return {**result, **sync, **ratios}


def load(server: servers.Server, target: str, arguments: list[str]) -> dict:
    if target.startswith("redis"):
        return servers.redis_load(server, arguments)
    plain = ["--plain"] if target.endswith("/plain") else []
    return servers.bench(server, ["state", *arguments, *plain])


def latency(verb: str, quantile: str):
    return number(f"{verb}_latency_us", quantile, scale=1_000)


FAULTS = {"wrong": ("errors", 0), "not answered": ("unanswered", 0)}
MANY = {
    "operations/s": ("operations_per_s", 0),
    "× redis": (ratio("operations_per_s"), 2),
    "operations/s of CPU": ("operations_per_cpu_s", 0),
    "× redis, of CPU": (ratio("operations_per_cpu_s"), 2),
    "server CPU, µs/operation": ("server_cpu_us_per_operation", 2),
    "SET p50, ms": (latency("set", "p50"), 2),
    "SET p99, ms": (latency("set", "p99"), 2),
    "GET p50, ms": (latency("get", "p50"), 2),
    "GET p99, ms": (latency("get", "p99"), 2),
    **FAULTS,
    "generator CPU, µs/operation": ("generator_cpu_us_per_operation", 2),
}
MEMORY = ["redis", "barid-memory", "barid-memory/plain"]
DURABLE = ["redis-always", "barid", "barid/plain"]
SCENARIOS = {
    "memory-64": Scenario(many(64), MEMORY, MANY, floor="redis"),
    "memory-1k": Scenario(many(1_024), MEMORY, MANY, floor="redis"),
    "durable-64": Scenario(many(64), DURABLE, MANY, floor="redis-always"),
    "durable-1k": Scenario(many(1_024), DURABLE, MANY, floor="redis-always"),
    "one": Scenario(one, ["redis-always", "barid"], {
        "SET p50, ms": (latency("set", "p50"), 3),
        "p99, ms": (latency("set", "p99"), 3),
        "fdatasync p50, ms": ("sync_p50_ms", 3),
        "fdatasync p99, ms": ("sync_p99_ms", 3),
        "p50 × fdatasync": ("p50_ratio", 2),
        "p99 × fdatasync": ("p99_ratio", 2),
        **FAULTS,
    }),
}

if __name__ == "__main__":
    sys.exit(main())
