#!/usr/bin/env python3
"""Measures for how long traffic between two brokers pauses when a third one is killed. See README.md."""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import threading
import time

import servers
from cluster import script, started
from replicas import connected, process

sys.path.insert(0, str(servers.ROOT / "tests"))
import wire  # noqa: E402

# Seconds before and after a kill in which deliveries are looked at.
BEFORE, AFTER = 1.0, 4.0
KINDS = {
    "QoS 0": (0, False),
    "QoS 1": (1, False),
    "QoS 1, the killed broker has subscribers, too": (1, True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second")
    parser.add_argument("--window", type=int, default=100, help="messages of QoS 1 without PUBACK at which the publisher waits")
    args = parser.parse_args()
    print("| | longest gap between deliveries before the kill, ms | after it | slowest PUBACK, ms |")
    print("| --- | ---: | ---: | ---: |")
    for kind, (qos, has_subscribers) in KINDS.items():
        found = [one_kill(qos, has_subscribers, args) for _ in range(args.kills)]
        cells = [cell([one[index] for one in found]) if qos or index < 2 else "" for index in range(3)]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)
    return 0


def cell(seconds: list[float]) -> str:
    low, mid, high = (f"{value * 1e3:.0f}" for value in (min(seconds), statistics.median(seconds), max(seconds)))
    return f"{mid} [{low}–{high}]"


def one_kill(qos: int, has_subscribers: bool, args: argparse.Namespace) -> tuple[float, float, float]:
    """Returns the longest gap before the kill and after it, and the slowest PUBACK, in seconds."""
    with started(3, "--homes", "b1") as (running, directory):
        receiver, sender = connected(running[1], "receiver"), connected(running[0], "sender")
        sender.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver.subscribe("t", qos=qos)
        if has_subscribers:
            connected(running[2], "other").subscribe("t", qos=qos)
        publishing = Publishing(sender, qos, args)
        arrivals: list[float] = []
        end = time.monotonic() + BEFORE + AFTER
        publishing.start()
        killed = threading.Timer(BEFORE, lambda: script("kill9", "b3", "--dir", directory))
        killed_at = time.monotonic() + BEFORE
        killed.start()
        while time.monotonic() < end:
            try:
                receiver.receive(timeout=max(0.01, end - time.monotonic()))
                arrivals.append(time.monotonic())
            except TimeoutError:
                arrivals.append(end)
        publishing.stops = True
        publishing.join()
        gaps = [(at, after - at) for at, after in zip(arrivals, arrivals[1:])]
        before = max(gap for at, gap in gaps if at + gap < killed_at)
        after = max(gap for at, gap in gaps if at + gap >= killed_at)
        return before, after, max(publishing.waits, default=0.0)


class Publishing(threading.Thread):
    """Publishes at a rate, and waits when too many messages have not been acknowledged."""

    def __init__(self, client: wire.Client, qos: int, args: argparse.Namespace):
        super().__init__()
        self.client, self.qos, self.rate, self.window = client, qos, args.rate, args.window
        self.stops = False
        self.sent: dict[int, float] = {}
        self.waits: list[float] = []

    def run(self) -> None:
        begin, number = time.monotonic(), 0
        while not self.stops:
            due = begin + number / self.rate
            self.hear(max(0.0, due - time.monotonic()))
            if time.monotonic() < due or len(self.sent) >= self.window:
                continue
            number += 1
            packet_id = number % 65_535 + 1
            self.client.send(wire.publish("t", b"x" * 100, self.qos, packet_id if self.qos else None))
            if self.qos:
                self.sent[packet_id] = time.monotonic()
        while self.sent:
            self.hear(1.0)

    def hear(self, seconds: float) -> None:
        """Takes the acknowledgements that come within this time, or at once."""
        if not self.qos:
            time.sleep(seconds)
            return
        try:
            while True:
                found = self.client.recv(max(seconds, 0.0005))
                self.waits.append(time.monotonic() - self.sent.pop(found.packet_id))
                seconds = 0
        except TimeoutError:
            pass


if __name__ == "__main__":
    sys.exit(main())
