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
import time
from contextlib import contextmanager
from pathlib import Path

import compare
import servers

sys.path.insert(0, str(servers.ROOT / "tests"))
import wire  # noqa: E402

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
NATS_CONFIG = """\
listen: "127.0.0.1:{listen}"
server_name: "n{number}"
cluster {{ name: "bench", listen: "127.0.0.1:{route}", routes: [{routes}] }}
jetstream {{ store_dir: "{directory}/{number}" }}
mqtt {{ listen: "127.0.0.1:{mqtt}", max_ack_pending: 65535 }}
max_pending: 1GB
write_deadline: "60s"
"""
# Without what is not measured, and without limits that the load would reach.
RMQTT_CONFIG = """\
node.busy.check_enable = false
rpc.server_addr = "127.0.0.1:{listen}"
log.level = "warn"
plugins.dir = "{directory}"
plugins.default_startups = ["rmqtt-cluster-raft"]
plugins.disabled_default_startups = ["rmqtt-http-api"]
[listener.tcp.bench]
addr = "127.0.0.1:{mqtt}"
allow_anonymous = true
nodelay = true
max_inflight = 65535
max_mqueue_len = 1000000
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement, after 1 s to warm up")
    parser.add_argument("--scenarios", nargs="+", choices=[*ALL], default=[*ALL], metavar="SCENARIO")
    parser.add_argument("--nats", action="store_true", help="measure pairs across three brokers, and across three nats-servers")
    parser.add_argument("--rmqtt", metavar="RMQTTD", help="the same, or in addition, across three of this program, which form a cluster with Raft")
    args = parser.parse_args()
    others = {"across nats": args.nats and "nats-server", "across rmqtt": args.rmqtt}
    others = {target: program for target, program in others.items() if program}
    print(f"{args.rounds} rounds of {args.seconds} s. Median [least–most].")
    for name in args.scenarios:
        arguments = [*ALL[name].split(), "--duration", str(args.seconds)]
        if name not in STATE:
            arguments += ["--version", "5" if name in PERSISTENT else "311"]
        targets = TARGETS if name in SCENARIOS else HOME_TARGETS
        if others:
            targets = ("one", "across three", *others)
        if servers.is_there("before"):
            targets = ("before", *targets)
        results = {target: [] for target in targets}
        for number in range(args.rounds):
            for target in compare.rotated(list(targets), number):
                with running(target, name in STATE, others.get(target)) as (server, more):
                    results[target].append(servers.bench(server, arguments + more))
                print(f"{name} {number + 1}/{args.rounds} {target}: done", file=sys.stderr)
        print(f"\n### {name}\n")
        columns = STATE_COLUMNS if name in STATE else {heading.replace("relay", "one"): column for heading, column in compare.MESSAGE_COLUMNS.items()}
        print(compare.table(columns, results, floor="one"), flush=True)
    return 0


@contextmanager
def running(target: str, of_state: bool = False, program: str | None = None):
    """Starts what is measured: Barid, or another program. Yields where publishers connect, and further arguments of the load."""
    if target in ("before", "one"):
        with servers.start("before" if target == "before" else "barid") as server:
            yield server, []
        return
    if program:
        with three_of(program, nats_configs if target == "across nats" else rmqtt_configs) as (first, pids, second):
            yield servers.Server(*first, pids), ["--subscribers", second]
        return
    target, *more = target.split()
    with started(3 if more == ["three"] else 2, "--homes", "b1", *(["--tls"] if more == ["tls"] else [])) as (brokers, _):
        crosses = target in ("across", "relayed")
        host, first = brokers[1 if crosses and of_state else 0]["mqtt"].rsplit(":", 1)
        pids = ",".join(str(broker["pid"]) for broker in brokers)
        more = ["--subscribers", brokers[1]["mqtt"]] if crosses and not of_state else []
        yield servers.Server(host, int(first), pids), more


@contextmanager
def three_of(program: str, configs):
    """Starts another program three times as one cluster. Yields where publishers connect, the pids of all, and where subscribers connect."""
    with tempfile.TemporaryDirectory(prefix="barid-bench-") as directory:
        ports = [[servers.free_port() for _ in range(3)] for _ in range(3)]
        processes = []
        try:
            for number, (text, options) in enumerate(configs(ports, directory)):
                config = Path(directory) / f"{number}.toml"  # rmqttd looks at the ending.
                config.write_text(text)
                with open(config.with_suffix(".log"), "wb") as log:
                    processes.append(subprocess.Popen([program, *options, config], stdout=log, stderr=log))
            for mqtt, _, _ in ports:
                await_mqtt(mqtt, program)
            yield ("127.0.0.1", ports[0][0]), ",".join(str(one.pid) for one in processes), f"127.0.0.1:{ports[1][0]}"
        finally:
            for one in processes:
                one.terminate()
            for one in processes:
                one.wait(10)


def nats_configs(ports: list[list[int]], directory: str):
    """The configuration of each nats-server, and the options before its path."""
    routes = ", ".join(f'"nats://127.0.0.1:{route}"' for _, _, route in ports)
    for number, (mqtt, listen, route) in enumerate(ports):
        yield NATS_CONFIG.format(number=number, mqtt=mqtt, listen=listen, route=route, routes=routes, directory=directory), ["-c"]


def rmqtt_configs(ports: list[list[int]], directory: str):
    """The same of each rmqttd. They share the configuration of the cluster."""
    grpc = [f"{number}@127.0.0.1:{port}" for number, (_, port, _) in enumerate(ports, 1)]
    raft = [f"{number}@127.0.0.1:{port}" for number, (_, _, port) in enumerate(ports, 1)]
    (Path(directory) / "rmqtt-cluster-raft.toml").write_text(f"node_grpc_addrs = {grpc}\nraft_peer_addrs = {raft}\nleader_id = 1\n")
    for number, (mqtt, listen, _) in enumerate(ports, 1):
        yield RMQTT_CONFIG.format(mqtt=mqtt, listen=listen, directory=directory), ["--id", str(number), "-f"]


def await_mqtt(port: int, program: str) -> None:
    """Waits until a client of MQTT is accepted: the cluster has elected its leader."""
    for _ in range(300):
        try:
            client = wire.Client(("127.0.0.1", port), wire.V311)
            if client.connect(f"first-{port}").reason == 0:
                client.send(wire.disconnect())
                client.drop()  # rmqttd waits for this.
                return
        except (OSError, wire.Closed):
            pass
        time.sleep(0.1)
    raise servers.Failed(f"{program} accepts no clients")


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
