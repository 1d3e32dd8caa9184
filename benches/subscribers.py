#!/usr/bin/env python3
"""Does subscribing many clients slow publishing? See README.md."""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import threading
import time

import servers

PAIRS = "pairs -n 100 --size 1024 --qos 0"
LOADS = {"20,000/s": f"{PAIRS} --rate 20000", "unpaced": PAIRS}

# Sessions that are being made at once.
BATCH = 100
EXPIRY_SECONDS = 3600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--pace", type=int, default=5_000,
                        help="sessions a second while publishing is measured; 0: as many as go, which also "
                             "measures who gets the processor [5000]")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement, after 1 s to warm up [5]")
    args = parser.parse_args()
    with servers.start("barid") as server:
        rss_before = server.rss_bytes()
        before = measure(server, args.seconds)
        rss_warm = server.rss_bytes()
        # What the clients themselves take from the processors is seen where the sessions are another's.
        with servers.start("barid") as other:
            elsewhere, _ = measure_beside(server, args.seconds, Subscribing(other.port, args.sessions, args.pace))
        subscribing = Subscribing(server.port, args.sessions, args.pace)
        during, covered = measure_beside(server, args.seconds, subscribing)
        rss_after = server.rss_bytes()
        after = measure(server, args.seconds)
    for load, scenario in LOADS.items():
        arguments = [*scenario.split(), "--duration", str(args.seconds)]
        print(f"\n### {load}\n\n    {' '.join(servers.bench_command(arguments, 'PORT', 'PID'))}\n")
        print(table({
            "before": before[load],
            "while they subscribe to another broker": elsewhere[load],
            "while they subscribe": during[load],
            "after": after[load],
        }))
    rate = args.sessions / subscribing.seconds
    grown = max(0, rss_after - rss_warm)
    print(f"\n{args.sessions:,} sessions (connect, subscribe, disconnect) in {subscribing.seconds:.1f} s: "
          f"{rate:,.0f}/s; {grown / args.sessions:,.0f} B of memory for each "
          f"({rss_before / 2**20:.1f} MiB idle, {rss_after / 2**20:.1f} MiB with all of them).")
    if not covered:
        print("The subscribing ended before the measurements beside it: take a lower --pace or fewer --seconds.")
    return 0


def measure(server: servers.Server, seconds: int) -> dict[str, dict]:
    return {load: servers.bench(server, [*scenario.split(), "--duration", str(seconds)])
            for load, scenario in LOADS.items()}


def measure_beside(server: servers.Server, seconds: int, subscribing: Subscribing) -> tuple[dict[str, dict], bool]:
    """Also tells whether the subscribing went on until the measurements had ended."""
    subscribing.start()
    try:
        results = measure(server, seconds)
        covered = subscribing.is_alive()
    finally:
        subscribing.join()
    if subscribing.failure is not None:
        raise subscribing.failure
    return results, covered


def table(results: dict[str, dict]) -> str:
    lines = ["| | delivered/s | × before | broker CPU, µs/message | × before | p50, ms | p99, ms | lost |",
             "| --- |" + " ---: |" * 7]
    base = results["before"]
    for name, result in results.items():
        rate, cpu = result["delivered_per_s"], result["broker_cpu_us_per_message"]
        latency = result["latency_us"]
        lines.append(f"| {name} | {rate:,} | {rate / base['delivered_per_s']:.2f} | {cpu:.2f} "
                     f"| {cpu / base['broker_cpu_us_per_message']:.2f} "
                     f"| {latency['p50'] / 1000:.2f} | {latency['p99'] / 1000:.2f} | {result['lost']:,} |")
    return "\n".join(lines)


class Subscribing(threading.Thread):
    """Makes sessions 0 … `count` − 1, each with one subscription, and leaves them to the broker."""

    def __init__(self, port: int, count: int, pace: int):
        super().__init__()
        self.port, self.count, self.pace = port, count, pace
        self.seconds = 0.0
        self.failure: Exception | None = None

    def run(self) -> None:
        begun = time.monotonic()
        try:
            for first in range(0, self.count, BATCH):
                make_sessions(self.port, range(first, min(first + BATCH, self.count)))
                if self.pace:
                    due = begun + (first + BATCH) / self.pace
                    time.sleep(max(0.0, due - time.monotonic()))
        except (OSError, servers.Failed) as failure:
            self.failure = failure
        self.seconds = time.monotonic() - begun


def make_sessions(port: int, numbers: range) -> None:
    # One source address has ports for some 28,000 connections a minute to one port.
    source = f"127.2.0.{numbers.start // BATCH % 250 + 1}"
    waiting = []
    for number in numbers:
        connection = socket.create_connection(("127.0.0.1", port), 20, (source, 0))
        # In one write: a client need not wait for the CONNACK (MQTT 5 §3.1.4).
        connection.sendall(connect(f"fleet-{number}") + subscribe(topic_filter(number)) + DISCONNECT)
        waiting.append(connection)
    for connection in waiting:
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
        connection.close()
        check(answer)


def topic_filter(number: int) -> str:
    """A fifth of them have a wildcard."""
    return f"fleet/{number}/+/state" if number % 5 == 0 else f"fleet/{number}/commands"


DISCONNECT = b"\xe0\x00"


def connect(client_id: str) -> bytes:
    """MQTT 5, Clean Start 1, Keep Alive 60 s, Session Expiry Interval."""
    properties = b"\x11" + struct.pack(">I", EXPIRY_SECONDS)
    body = text("MQTT") + b"\x05\x02" + struct.pack(">H", 60) + bytes([len(properties)]) + properties
    return packet(0x10, body + text(client_id))


def subscribe(topic_filter: str) -> bytes:
    """Packet Identifier 1, no properties, QoS 1."""
    return packet(0x82, b"\x00\x01\x00" + text(topic_filter) + b"\x01")


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128, "the Remaining Length is one byte"
    return bytes([first, len(body)]) + body


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def check(answer: bytes) -> None:
    """A CONNACK that accepts and a SUBACK that grants."""
    if len(answer) < 4 or answer[0] != 0x20 or answer[3] != 0:
        raise servers.Failed(f"the broker does not accept a session: {answer.hex()}")
    suback = answer[2 + answer[1]:]
    if len(suback) < 6 or suback[0] != 0x90 or suback[suback[1] + 1] > 2:
        raise servers.Failed(f"the broker does not grant a subscription: {answer.hex()}")


if __name__ == "__main__":
    sys.exit(main())
