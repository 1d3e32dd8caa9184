#!/usr/bin/env python3
"""Measures what it costs that messages cross brokers: in turns, one broker, two clients of one broker of a cluster, and
clients of two brokers. The CPU time of all brokers counts together. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import compare
import servers

SCENARIOS = {name: compare.SCENARIOS[name] for name in ("pairs0", "pairs1", "pairs0-20k", "pairs1-20k", "fanout-16-50k", "fanout-1k-50k")}
# Subscribers whose sessions outlive their connections, and are at a broker that they have not connected to.
PERSISTENT = {
    "persistent0": "pairs -n 100 --size 1024 --qos 0 --persistent",
    "persistent0-20k": "pairs -n 100 --size 1024 --qos 0 --persistent --rate 20000",
    "persistent1": "pairs -n 100 --size 1024 --qos 1 --persistent",
}
# Requests to the state store of a tenant, at its home and over another broker.
STATE = {
    "state-one": "state -n 1 --in-flight 1 --sets 50",
    "state-many": "state -n 50 --in-flight 10 --sets 50",
}
STATE_COLUMNS = {
    "broker CPU, µs/request": (compare.number("server_cpu_us_per_operation"), 2),
    "× one": (compare.ratio("server_cpu_us_per_operation"), 2),
    "requests/s": (compare.number("operations_per_s"), 0),
    "SET p50, ms": (compare.number("set_latency_us", "p50", scale=1_000), 3),
    "SET p99, ms": (compare.number("set_latency_us", "p99", scale=1_000), 3),
    "GET p50, ms": (compare.number("get_latency_us", "p50", scale=1_000), 3),
}
# With "tls" the links between brokers use TLS.
TARGETS, HOME_TARGETS = ("one", "same", "across", "across tls"), ("one", "home", "relayed", "relayed tls")
ALL = SCENARIOS | PERSISTENT | STATE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement, after 1 s to warm up")
    parser.add_argument("--scenarios", nargs="+", choices=[*ALL], default=[*ALL], metavar="SCENARIO")
    args = parser.parse_args()
    print(f"{args.rounds} rounds of {args.seconds} s. Median [least–most].")
    for name in args.scenarios:
        arguments = [*ALL[name].split(), "--duration", str(args.seconds)]
        if name not in STATE:
            arguments += ["--version", "5" if name in PERSISTENT else "311"]
        targets = TARGETS if name in SCENARIOS else HOME_TARGETS
        results = {target: [] for target in targets}
        for number in range(args.rounds):
            for target in compare.rotated(list(targets), number):
                with running(target, name in STATE) as (server, more):
                    results[target].append(servers.bench(server, arguments + more))
                print(f"{name} {number + 1}/{args.rounds} {target}: done", file=sys.stderr)
        print(f"\n### {name}\n")
        columns = STATE_COLUMNS if name in STATE else {heading.replace("relay", "one"): column for heading, column in compare.MESSAGE_COLUMNS.items()}
        print(compare.table(columns, results, floor="one"), flush=True)
    return 0


@contextmanager
def running(target: str, of_state: bool = False):
    """Starts what is measured. Yields where publishers connect, and further arguments of the load."""
    if target == "one":
        with servers.start("barid") as server:
            yield server, []
        return
    target, *tls = target.split()
    with started(2, "--homes", "b1", *(["--tls"] if tls else [])) as (brokers, _):
        crosses = target in ("across", "relayed")
        host, first = brokers[1 if crosses and of_state else 0]["mqtt"].rsplit(":", 1)
        pids = ",".join(str(broker["pid"]) for broker in brokers)
        more = ["--subscribers", brokers[1]["mqtt"]] if crosses and not of_state else []
        yield servers.Server(host, int(first), pids), more


@contextmanager
def started(count: int, *options: str):
    """Starts a cluster of so many brokers. Yields what each of them prints about itself, and the directory of all."""
    with tempfile.TemporaryDirectory(prefix="barid-bench-") as directory:
        try:
            lines = script("up", str(count), "--port", str(servers.free_port()), "--dir", directory, *options).splitlines()
            brokers = [json.loads(line) for line in lines]
            await_links(brokers)
            yield brokers, directory
        finally:
            script("down", "--dir", directory)


def script(*words: str) -> str:
    environment = os.environ | {"BARID_BIN": str(servers.BARID)}
    done = subprocess.run([servers.ROOT / "scripts/cluster.sh", *words], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise servers.Failed(done.stderr)
    return done.stdout


def await_links(brokers: list[dict]) -> None:
    for broker in brokers:
        for _ in range(100):
            command = [servers.BARID, "cluster", "status", "--admin", broker["admin"]]
            if subprocess.run(command, capture_output=True).returncode == 0:
                break


if __name__ == "__main__":
    sys.exit(main())
