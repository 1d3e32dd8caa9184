#!/usr/bin/env python3
"""How long does a tenant wait while another one floods the broker at the limit of its quotas? See README.md."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import select
import socket
import statistics
import subprocess
import sys
import time

import servers
from compare import cell
from offline import packet, remaining_length

# What the flooding tenant may do in a second. Its neighbour has no quotas. Both have clients without users; users are in
# tenants of their own, and the one that is attacked has a password that is dear to verify.
QUOTAS = """\
[limits]
durability = "{durability}"
[tenants.flood.limits]
publish_rate = 500
inbound_bytes_rate = 200000
outbound_bytes_rate = 500000
connect_rate = 20
[tenants.flood]
auth = []
[tenants.neighbour]
auth = []
[[keys]]
name = "flood/key"
key = "flood"
rights = ["Manage"]
[[queues]]
name = "bench"
tenant = "flood"
"""
SECRET = "WmT9bq0Yx3hJ5dKr7uVnA2cF"
USERS = (("users/ada", "device"), ("attacked/eve", "person"))

# The bar: the p99 of a neighbour beside a flood, as a multiple of that without it.
BAR = 1.5

FLOODERS = 20
RETAINED = 100
TIMESTAMP = b"__ts"
INVOKE = b"statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement [8]")
    parser.add_argument("--floods", nargs="+", choices=FLOODS, default=list(FLOODS))
    parser.add_argument("--durability", choices=["memory", "local"], default="memory")
    parser.add_argument("--json", help="file for the results of all measurements")
    parser.add_argument("--flood", nargs=2, metavar=("KIND", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--probe", nargs=2, metavar=("SECONDS", "PORT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.flood:
        return FLOODS[args.flood[0]](int(args.flood[1]))
    if args.probe:
        return probe(float(args.probe[0]), int(args.probe[1]))
    return compare(args)


def compare(args: argparse.Namespace) -> int:
    kinds = ["alone", *(f"{place} {flood}" for flood in args.floods for place in ("elsewhere", "beside"))]
    rounds: dict[str, list[dict]] = {kind: [] for kind in kinds}
    quotas = QUOTAS.format(durability=args.durability) + "".join(user(*one) for one in USERS)
    for turn in range(args.rounds):
        for kind in kinds[turn % len(kinds):] + kinds[:turn % len(kinds)]:
            with broker(quotas) as server, broker(quotas) as other:
                place, _, flood = kind.partition(" ")
                target = server if place == "beside" else other
                rounds[kind].append(measure(args.seconds, server, flood, target))
            print(f"{turn + 1} {kind}: {json.dumps(rounds[kind][-1])}", file=sys.stderr, flush=True)
    is_above = False
    for name in PROBES:
        print(f"\n### {name}\n")
        print("| | p50, ms | p99, ms | p99 × alone | p99 × flood elsewhere | operations |\n| --- |" + " ---: |" * 5)
        base = {key: [one[name][key] for one in rounds["alone"]] for key in ("p50", "p99")}
        for kind, results in rounds.items():
            p99 = [one[name]["p99"] for one in results]
            others = [one[name]["p99"] for one in rounds[kind.replace("beside", "elsewhere")]]
            ratio = statistics.median(p99) / statistics.median(others)
            is_above |= kind.startswith("beside") and ratio > BAR
            print(f"| {kind} | {cell([one[name]['p50'] for one in results], 3)} | {cell(p99, 3)} "
                  f"| {statistics.median(p99) / statistics.median(base['p99']):.2f} | {ratio:.2f} "
                  f"| {sum(one[name]['count'] for one in results):,} |")
    print("\n| flood | broker CPU, s/s | done in a second |\n| --- | ---: | ---: |")
    for kind, results in rounds.items():
        if kind.startswith(("alone", "beside")):
            print(f"| {kind} | {cell([one['cpu'] for one in results], 2)} | {cell([one['flooded'] for one in results], 0)} |")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rounds, file, indent=1)
    return int(is_above)


def user(name: str, cost: str) -> str:
    """A user of the configuration."""
    line = [servers.BARID, "passwd", "--stdin", "--cost", cost, name]
    return subprocess.run(line, input=SECRET, capture_output=True, text=True, check=True).stdout


def broker(config: str) -> servers.Server:
    """A broker with these settings."""
    amqp = servers.free_port()

    def command(port: int, directory) -> list:
        (directory / "config").write_text(config)
        addresses = ["--mqtt", f"127.0.0.1:{port}", "--ws", "off", "--amqp", f"127.0.0.1:{amqp}", "--admin",
                     f"127.0.0.1:{servers.free_port()}"]
        return [servers.BARID, "serve", "--config", directory / "config", *addresses, "--data-dir", directory / "data",
                "--log", "error"]

    server = servers.launch("barid", command)
    server.amqp = amqp
    return server


def measure(seconds: float, server: servers.Server, flood: str, target: servers.Server) -> dict:
    """The latencies at `server` while `target` is flooded."""
    flooder = None
    if flood:
        command = [sys.executable, __file__, "--flood", flood, str(target.amqp if flood == "amqp" else target.port)]
        flooder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # The burst of the first second passes.
        time.sleep(2)
    cpu, started = server.cpu_seconds(), time.monotonic()
    command = [sys.executable, __file__, "--probe", str(seconds), str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took = time.monotonic() - started
    result = json.loads(done.stdout) | {"cpu": (server.cpu_seconds() - cpu) / took, "flooded": 0}
    if flooder:
        output, _ = flooder.communicate("stop\n", timeout=30)
        result["flooded"] = int(output) / (took + 2)
    return result


# ----------------------------------------------------------------------------------------------- the neighbour


def probe(seconds: float, port: int) -> int:
    """Does one thing of each kind after the other, as a client of the tenant that has no quotas, and says how long
    each took."""
    gc.disable()
    operations = {name: operation(port) for name, operation in PROBES.items()}
    times: dict[str, list[float]] = {name: [] for name in PROBES}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, operation in operations.items():
            started = time.perf_counter()
            operation()
            times[name].append(time.perf_counter() - started)
        # At random, because the timers of a flood are in milliseconds, too: a fixed pause would keep step with them.
        time.sleep(random.uniform(0.0005, 0.003))
    json.dump({name: quantiles(all_) for name, all_ in times.items()}, sys.stdout)
    return 0


def quantiles(times: list[float]) -> dict:
    ordered = sorted(times)
    return {"count": len(ordered), "p50": ordered[len(ordered) // 2] * 1e3, "p99": ordered[len(ordered) * 99 // 100] * 1e3}


def publishing(port: int):
    """A message of QoS 1, until its publisher, which has subscribed to it, has it and the acknowledgement."""
    client = Client(port, "neighbour/publisher")
    client.send(subscribe(b"own", 0))
    client.read(0x90)
    message = publish(b"own", b"x" * 100, qos=1)

    def act() -> None:
        client.send(message)
        client.read_all({0x30, 0x40})

    return act


def connecting(port: int):
    """A connection, until its CONNACK."""

    def act() -> None:
        Client(port, "neighbour/connector").close()

    return act


def logging_in(port: int):
    """A connection of a user with a password, until its CONNACK."""

    def act() -> None:
        Client(port, "users/ada", password=SECRET).close()

    return act


def subscribing(port: int):
    """A subscription, until its last retained message has come."""
    client = Client(port, "neighbour/subscriber")
    for number in range(RETAINED):
        client.send(publish(b"retained/%d" % number, b"x" * 100, retain=True))
    asks = subscribe(b"retained/#", 0) + unsubscribe(b"retained/#")

    def act() -> None:
        client.send(asks)
        seen = 0
        while seen < RETAINED + 2:
            seen += len(client.packets())

    return act


def requesting(port: int):
    """A SET of the state store, until its response has come."""
    client = Client(port, "neighbour/requester")
    client.send(subscribe(b"answers", 0))
    client.read(0x90)

    def act() -> None:
        client.send(set_request(b"key", b"x" * 64))
        client.read_all({0x30, 0x40})

    return act


PROBES = {"publishes": publishing, "connects": connecting, "logins": logging_in, "retained": subscribing, "requests": requesting}


# ------------------------------------------------------------------------------------------------- the floods


def flood(begin, act) -> int:
    """Calls `act` until standard input says stop; says how often something was done in the end. It yields the
    processor to everything else on the machine, so that only the broker's own work counts."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    state, count = begin(), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        count += act(state)
    print(count)
    return 0


def pouring(port: int, frames: bytes, prepare=lambda client: None) -> int:
    """Sends frames on all connections as fast as they are taken, and reads what comes back."""
    block = frames * max(1, 65_536 // len(frames))

    def join(at: dict) -> None:
        client = Client(port, "flood/some", patient=True)
        prepare(client)
        client.socket.setblocking(False)
        at[client.socket] = 0

    def begin() -> dict:
        at = {}
        for _ in range(FLOODERS):
            join(at)
        return at

    def act(at: dict) -> int:
        readable, writable, _ = select.select(at, at, [], 0.05)
        done = 0
        for connection in {*readable, *writable}:
            try:
                if connection in readable and not connection.recv(1 << 16):
                    raise ConnectionError
                if connection in writable:
                    taken = connection.send(memoryview(block)[at[connection]:])
                    done += (at[connection] % len(frames) + taken) // len(frames)
                    at[connection] = (at[connection] + taken) % len(block)
            except BlockingIOError:
                pass
            except ConnectionError:
                # The broker has had enough of it.
                del at[connection]
                connection.close()
                join(at)
        return done

    return flood(begin, act)


def flood_messages(port: int) -> int:
    """Messages of QoS 0 to a topic that all publishers have subscribed to."""
    return pouring(port, publish(b"flood", b"x" * 100), lambda client: client.send(subscribe(b"flood", 0)))


def flood_requests(port: int) -> int:
    """SETs to the state store."""
    return pouring(port, set_request(b"key", b"x" * 64), lambda client: client.send(subscribe(b"answers", 0)))


def flood_retained(port: int) -> int:
    """Subscriptions to 1,500 retained messages of 1 kB, again and again."""
    with Client(port, "flood/first", patient=True) as first:
        for number in range(1_500):
            first.send(publish(b"r/%d" % number, b"x" * 1_000, retain=True))
    return pouring(port, subscribe(b"r/#", 0) + unsubscribe(b"r/#"))


def flood_connections(port: int) -> int:
    """Connections, of which most are refused."""
    return knocking(port, connect("flood/connector"))


def flood_logins(port: int) -> int:
    """Wrong passwords of a user."""
    return knocking(port, connect("attacked/eve", "wrong"))


def flood_amqp(port: int) -> int:
    """Messages of AMQP through a queue, to clients that complete them."""
    command = [servers.BARID, "bench", "amqp", "--plain", "--size", "100", "-u", "flood/key", "-P", "flood", "-p", str(port),
               "-d", "2s", "--json"]

    def act(_) -> int:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        return json.loads(done.stdout)["completed"]

    return flood(lambda: None, act)


def knocking(port: int, hello: bytes) -> int:
    """Connects, and waits for the answer, one after the other on some sockets at once."""

    def begin() -> dict:
        return {}

    def act(state: dict) -> int:
        while len(state) < FLOODERS:
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            state[connection] = False
        waiting = [one for one, has_sent in state.items() if not has_sent]
        readable, writable, _ = select.select([one for one in state if state[one]], waiting, [], 0.05)
        done = 0
        for connection in writable:
            try:
                connection.send(hello)
                state[connection] = True
            except OSError:
                del state[connection]
                connection.close()
        for connection in readable:
            try:
                connection.recv(64)
            except OSError:
                pass
            del state[connection]
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.close()
            done += 1
        return done

    return flood(begin, act)


FLOODS = {"messages": flood_messages, "connections": flood_connections, "logins": flood_logins,
          "retained": flood_retained, "requests": flood_requests, "amqp": flood_amqp}


# ----------------------------------------------------------------------------------------------- MQTT 5 packets


class Client:
    """A connection that waits for answers."""

    def __init__(self, port: int, user: str, patient: bool = False, password: str = ""):
        while True:
            self.socket = socket.create_connection(("127.0.0.1", port), 20)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.rest = b""
            self.socket.sendall(connect(user, password))
            connack = self.read(0x20)
            reason = connack[3 if connack[1] < 0x80 else 4]
            if reason == 0:
                return
            self.socket.close()
            if not patient:
                raise servers.Failed(f"CONNECT is refused: 0x{reason:02x}")
            time.sleep(0.2)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def packets(self) -> list[bytes]:
        """The packets that come next, at least one."""
        found = []
        while not found:
            data = self.socket.recv(1 << 16)
            if not data:
                raise servers.Failed("the connection was closed")
            self.rest += data
            while (length := self.length()) and len(self.rest) >= length:
                found.append(self.rest[:length])
                self.rest = self.rest[length:]
        return found

    def length(self) -> int:
        length = shift = 0
        for at, byte in enumerate(self.rest[1:5]):
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return length + at + 2
        return 0

    def read(self, kind: int) -> bytes:
        """Waits for one packet, which must be of this kind."""
        [found] = self.packets()
        if found[0] & 0xF0 != kind:
            raise servers.Failed(f"expected {kind:#x}, not {found[:20].hex(' ')}")
        return found

    def read_all(self, kinds: set[int]) -> None:
        """Waits for a packet of each kind."""
        missing = set(kinds)
        while missing:
            missing -= {one[0] & 0xF0 for one in self.packets()}

    def close(self) -> None:
        self.socket.sendall(b"\xe0\x00")
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def text(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def connect(user: str, password: str = "") -> bytes:
    flags, texts = (0xC2, ["", user, password]) if password else (0x82, ["", user])
    return packet(0x10, b"\x00\x04MQTT\x05" + bytes([flags]) + b"\x00\x00\x00" + b"".join(text(one.encode()) for one in texts))


def publish(topic: bytes, payload: bytes, qos: int = 0, retain: bool = False, properties: bytes = b"") -> bytes:
    packet_id = b"\x00\x01" if qos else b""
    return packet(0x30 | qos << 1 | retain, text(topic) + packet_id + remaining_length(len(properties)) + properties + payload)


def subscribe(topic_filter: bytes, qos: int) -> bytes:
    return packet(0x82, b"\x00\x02\x00" + text(topic_filter) + bytes([qos]))


def unsubscribe(topic_filter: bytes) -> bytes:
    return packet(0xA2, b"\x00\x03\x00" + text(topic_filter))


def set_request(key: bytes, value: bytes) -> bytes:
    request = b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)
    stamp = b"%015d:00000:neighbour" % (time.time_ns() // 1_000_000)
    properties = b"\x08" + text(b"answers") + b"\x09" + text(b"0123456789abcdef") + b"\x26" + text(TIMESTAMP) + text(stamp)
    return publish(INVOKE, request, qos=1, properties=properties)


if __name__ == "__main__":
    sys.exit(main())
