#!/usr/bin/env python3
"""Measures what it costs that every broker of a cluster has all retained messages and users: retained messages that are
published to one broker and to one of three, a broker that joins many, and the time until a change of a tenant is at the others.
See README.md."""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import servers
from cluster import script, started

sys.path.insert(0, str(servers.ROOT / "tests"))
import wire  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100_000, help="retained messages of each measurement")
    parser.add_argument("--changes", type=int, default=200, help="changes of a tenant")
    args = parser.parse_args()
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}")
        costs = {}
        for count in (1, 3):
            with started(count) as (running, _):
                costs[count] = publish(running, args.messages)
        print(f"  a retained message of 100 B: {costs[1]:.2f} µs of CPU at one broker, {costs[3]:.2f} µs at three together: "
              f"{costs[3] / costs[1]:.2f} ×, {costs[3] / costs[1] / 3:.2f} × for each")
        with started(3) as (running, directory):
            publish(running, args.messages)
            join(running, directory, args.messages)
            change(running, args.changes)
    return 0


def publish(running: list[dict], count: int) -> float:
    """Publishes retained messages, each to a topic of its own. Returns the CPU time of all brokers for each, in µs."""
    client = connected(running[0], "publisher")
    packets = [wire.publish(f"fleet/{number % 1_000}/{number}/state", b"x" * 100, retain=True) for number in range(count)]
    processes = [process(one) for one in running]
    before = sum(one.cpu_seconds() for one in processes)
    for at in range(0, count, 200):
        client.send(b"".join(packets[at:at + 200]))
        # The pace of a fleet, at which links lose nothing.
        time.sleep(0.002)
    client.ping()
    await_objects(running, count)
    client.drop()
    return (sum(one.cpu_seconds() for one in processes) - before) / count * 1e6


def join(running: list[dict], directory: str, count: int) -> None:
    """Kills a broker, empties its directory, and starts it again: it gets everything from the others."""
    one, before = running[2], process(running[1]).rss_bytes()
    script("kill9", one["name"], "--dir", directory)
    subprocess.run(["rm", "-r", str(Path(directory) / one["name"] / "data")], check=True)
    begin = time.monotonic()
    again = json.loads(script("start", one["name"], "--dir", directory).splitlines()[-1])
    connected(again, "first").drop()
    seconds, there = time.monotonic() - begin, retained(again)
    if there < count:
        raise servers.Failed(f"the broker takes clients with {there} of {count} messages")
    print(f"  an empty broker takes clients after {seconds:.2f} s, with {count:,} messages of the others; "
          f"each broker has {before / count:.0f} B of memory for a message, everything else included")
    running[2] |= again


def change(running: list[dict], count: int) -> None:
    """Changes a limit of a tenant at one broker, and waits until another one has the change."""
    times = []
    for number in range(1, count + 1):
        ask(running[0], "PUT", "/v1/tenants/acme", {"limits": {"max_queued_messages": number}})
        begin = time.monotonic()
        while limit(running[1]) != number:
            if time.monotonic() - begin > 5:
                raise servers.Failed("a change does not come")
        times.append(time.monotonic() - begin)
    times.sort()
    print(f"  a change of a tenant is at another broker {statistics.median(times) * 1e3:.2f} ms after the answer, "
          f"p99 {times[len(times) * 99 // 100] * 1e3:.2f} ms")


def limit(broker: dict) -> int | None:
    settings = ask(broker, "GET", "/v1/tenants/acme").get("settings") or {}
    return settings.get("limits", {}).get("max_queued_messages")


def ask(broker: dict, method: str, path: str, body: dict | None = None) -> dict:
    connection = http.client.HTTPConnection(broker["admin"], timeout=10)
    connection.request(method, path, body=json.dumps(body) if body else None, headers={"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    connection.close()
    return json.loads(answer or b"{}")


def await_objects(running: list[dict], count: int) -> None:
    while any(retained(one) < count for one in running):
        time.sleep(0.05)


def retained(broker: dict) -> int:
    connection = http.client.HTTPConnection(broker["admin"], timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith("barid_retained_messages{"))


def process(broker: dict) -> servers.Server:
    host, port = broker["mqtt"].rsplit(":", 1)
    return servers.Server(host, int(port), broker["pid"])


def connected(broker: dict, name: str) -> wire.Client:
    at = process(broker)
    client = wire.Client((at.host, at.port), timeout=120)
    client.connect(name)
    return client


if __name__ == "__main__":
    sys.exit(main())
