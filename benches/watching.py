#!/usr/bin/env python3
"""Measures what it costs a broker that somebody watches it: in turns, nobody, an open overview of the dashboard, its streams
of messages, and Prometheus. Then how long single questions take, with many clients and tenants. See README.md."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import socket
import statistics
import sys
import threading
import time

import compare
import servers
from offline import packet

SCENARIOS = {name: compare.SCENARIOS[name] for name in ("pairs0", "pairs0-20k", "pairs1-20k")}

# What a view asks for, and how often, in seconds; or a stream that it reads.
OVERVIEW = [("/v1/history?step=5", 5), ("/v1/broker", 5), ("/v1/tenants", 15)]
WATCHERS = {
    "nobody": [],
    "overview": OVERVIEW,
    "topics": [("/v1/tenants/default/messages?filter=%23&rate=1000", None)],
    "try": [("/v1/tenants/default/messages?filter=%23&rate=20", None)],
    "prometheus": [("/metrics", 5)],
    "trace": [("/v1/tenants/default/clients/nobody/trace", None)],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10, help="of each measurement, after 1 s to warm up")
    parser.add_argument("--scenarios", nargs="*", choices=SCENARIOS, default=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--watchers", nargs="+", choices=WATCHERS, default=list(WATCHERS), metavar="WATCHER", help=f"of {', '.join(WATCHERS)}")
    parser.add_argument("--no-questions", action="store_true")
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--tenants", type=int, default=1_000)
    args = parser.parse_args()
    print(f"{args.rounds} rounds of {args.seconds} s. Median [least–most].")
    for name in args.scenarios:
        arguments = [*SCENARIOS[name].split(), "--version", "311", "--duration", str(args.seconds)]
        results = {watcher: [] for watcher in args.watchers}
        for number in range(args.rounds):
            for watcher in compare.rotated(args.watchers, number):
                with servers.start("barid") as server, watching(admin_of(server), WATCHERS[watcher]):
                    results[watcher].append(servers.bench(server, arguments))
                print(f"{name} {number + 1}/{args.rounds} {watcher}: done", file=sys.stderr)
        print(f"\n### {name}\n")
        columns = {heading.replace("relay", "nobody"): column for heading, column in compare.MESSAGE_COLUMNS.items()}
        print(compare.table(columns, results, floor="nobody"), flush=True)
    if not args.no_questions:
        questions(args)
    return 0


def admin_of(server: servers.Server) -> tuple[str, int]:
    host, port = server.command[server.command.index("--admin") + 1].split(":")
    return host, int(port)


def ask(admin: tuple[str, int], path: str) -> int:
    """Asks for something. Returns the number of bytes of the answer."""
    connection = http.client.HTTPConnection(*admin, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise servers.Failed(f"{path}: {answer.status} {body[:200]!r}")
    return len(body)


@contextlib.contextmanager
def watching(admin: tuple[str, int], asked: list):
    """Somebody who watches meanwhile."""
    over = threading.Event()

    def repeat(path: str, every: float) -> None:
        while not over.wait(every):
            ask(admin, path)

    def read(path: str) -> None:
        # The stream is for a tenant that exists when its first client has connected.
        while not over.wait(0.2):
            connection = http.client.HTTPConnection(*admin, timeout=60)
            connection.request("GET", path)
            answer = connection.getresponse()
            # It ends with the broker.
            with contextlib.suppress(http.client.HTTPException, OSError):
                while answer.status == 200 and not over.is_set() and answer.read1(65_536):
                    pass
            connection.close()

    threads = [threading.Thread(target=repeat if every else read, args=(path, every) if every else (path,), daemon=True) for path, every in asked]
    for one in threads:
        one.start()
    yield
    over.set()


# ------------------------------------------------------------------------------------------------------ questions

def questions(args: argparse.Namespace) -> None:
    """How long an answer takes, and how long a client waits for a PINGRESP meanwhile."""
    clients, tenants = (args.clients, 0), (0, args.tenants)
    asked = [
        ("history", "/v1/history?step=5", clients),
        ("broker", "/v1/broker", clients),
        ("clients", f"/v1/tenants/default/clients?limit={args.clients}", clients),
        ("one client of many", "/v1/tenants/default/clients?limit=10000&search=c00077", clients),
        ("metrics, many clients", "/metrics", clients),
        ("tenants", "/v1/tenants", tenants),
        ("metrics, many tenants", "/metrics", tenants),
    ]
    print(f"\n### Questions, with {args.clients:,} clients or {args.tenants:,} tenants with a client each\n")
    print("| question | answer, ms | broker CPU, ms | answer, bytes | PINGRESP alone, p99 ms | PINGRESP meanwhile, p99 ms |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: |")
    for load in (clients, tenants):
        with many_tenants() as server, connected(server, *load):
            admin = admin_of(server)
            for name, path, needed in asked:
                if needed != load:
                    continue
                alone, times, meanwhile, length = [], [], [], 0
                with pinging(server, alone):
                    time.sleep(2)
                with pinging(server, meanwhile):
                    for _ in range(50):
                        started = time.perf_counter()
                        length = ask(admin, path)
                        times.append(time.perf_counter() - started)
                before = server.cpu_seconds()
                for _ in range(100):
                    ask(admin, path)
                cpu = (server.cpu_seconds() - before) / 100
                row = [statistics.median(times), cpu]
                print(f"| {name} | {row[0] * 1000:.1f} | {row[1] * 1000:.1f} | {length:,} | {p99(alone) * 1000:.2f} | "
                      f"{p99(meanwhile) * 1000:.2f} |", flush=True)


def many_tenants() -> servers.Server:
    """A broker with room for them."""
    def command(port: int, directory) -> list:
        (directory / "config").write_text("max_tenants = 100000\n")
        return [servers.BARID, "serve", "--config", directory / "config", "--mqtt", f"127.0.0.1:{port}", "--ws", "off", "--amqp", "off",
                "--admin", f"127.0.0.1:{servers.free_port()}", "--data-dir", directory / "data", "--log", "error"]
    return servers.launch("barid", command)


def p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


@contextlib.contextmanager
def connected(server: servers.Server, clients: int, tenants: int):
    """Clients of one tenant, and one client in each of many tenants."""
    open_ = []
    for number in range(clients + tenants):
        stream = socket.create_connection((server.host, server.port))
        flags, user = (0x82, f"t{number:05}/c") if number >= clients else (0x02, "")
        body = b"\0\4MQTT\4" + bytes([flags]) + b"\0\0" + text(f"c{number:05}") + (text(user) if user else b"")
        stream.sendall(packet(0x10, body))
        if stream.recv(4) != b"\x20\x02\0\0":
            raise servers.Failed("a client was refused")
        open_.append(stream)
    yield
    for stream in open_:
        stream.close()


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


@contextlib.contextmanager
def pinging(server: servers.Server, times: list[float]):
    """A client that asks every 2 ms whether the broker answers."""
    stream = socket.create_connection((server.host, server.port))
    stream.sendall(packet(0x10, b"\0\4MQTT\4\2\0\0" + text("ping")))
    stream.recv(4)
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.002):
            started = time.perf_counter()
            stream.sendall(b"\xc0\0")
            stream.recv(2)
            times.append(time.perf_counter() - started)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()
    stream.close()


if __name__ == "__main__":
    sys.exit(main())
