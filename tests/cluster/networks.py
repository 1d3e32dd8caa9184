"""Brokers in network namespaces of their own, which can be cut off from each other, in one direction or in both, and whose links
can be slow.

A namespace is a network that no other process sees, so nothing else on this machine is reached or disturbed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import random
import socket
import subprocess
import threading
import time
from pathlib import Path

import wire
from broker import WORKER
from brokers import Cluster, Member, Proxy

CLONE_NEWNET = 0x40000000

_numbers = itertools.count()


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=30)


def is_possible() -> bool:
    """Returns whether this process may make namespaces, and filters packets in them."""
    name = f"barid-{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    try:
        run("ip", "netns", "exec", name, "nft", "add", "table", "inet", "cuts")
    except subprocess.CalledProcessError:
        return False
    finally:
        run("ip", "netns", "delete", name)
    return True


class Namespace:
    """A network namespace. Sockets that are created within `with` belong to it."""

    def __init__(self, name: str):
        self.name = name
        # Threads enter independently of each other.
        self._before = threading.local()
        run("ip", "netns", "add", name)
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *words: str) -> None:
        run("ip", "netns", "exec", self.name, *words)

    def __enter__(self) -> None:
        self._before.network = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._enter(Path("/run/netns") / self.name)

    def __exit__(self, *_) -> None:
        self._enter(f"/proc/self/fd/{self._before.network}")
        os.close(self._before.network)

    @staticmethod
    def _enter(path: str | Path) -> None:
        namespace = os.open(path, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the namespace")
        finally:
            os.close(namespace)

    def close(self) -> None:
        run("ip", "netns", "delete", self.name)


class Network:
    """Namespaces, each with an address, that reach each other over a bridge in another one."""

    def __init__(self, count: int):
        number = f"{os.getpid()}-{next(_numbers)}"
        self.hub = Namespace(f"barid-{number}-hub")
        self.hub.run("ip", "link", "add", "bridge", "type", "bridge")
        self.hub.run("ip", "link", "set", "bridge", "up")
        self.nodes = [self._node(index, f"barid-{number}-{index}") for index in range(count)]

    def _node(self, index: int, name: str) -> Namespace:
        node = Namespace(name)
        node.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", f"port{index}", "netns", self.hub.name)
        node.run("ip", "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        node.run("ip", "link", "set", "eth0", "up")
        self.hub.run("ip", "link", "set", f"port{index}", "master", "bridge", "up")
        node.run("nft", "add table inet cuts; add chain inet cuts in { type filter hook input priority 0; }")
        return node

    @staticmethod
    def address(index: int) -> str:
        return f"10.77.{WORKER}.{index + 1}"

    def cut(self, source: int, sink: int) -> None:
        """Drops every packet that comes from one node to another one."""
        self.nodes[sink].run("nft", f"add rule inet cuts in ip saddr {self.address(source)} drop")

    def cut_both(self, one: int, other: int) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def cut_off(self, node: int) -> None:
        """Cuts one node off from all others."""
        for other in range(len(self.nodes)):
            if other != node:
                self.cut_both(node, other)

    def mend(self) -> None:
        """Everything passes again."""
        for node in self.nodes:
            node.run("nft", "flush", "chain", "inet", "cuts", "in")

    def close(self) -> None:
        for node in (*self.nodes, self.hub):
            with contextlib.suppress(subprocess.CalledProcessError):
                node.close()


class Node(Member):
    """A broker in a namespace."""

    def __init__(self, name: str, peers: list[int], *, namespace: Namespace, **options):
        self.namespace = namespace
        super().__init__(name, peers, **options)

    def prefix(self) -> list:
        return ["ip", "netns", "exec", self.namespace.name]

    def http(self, path: str, **headers: str) -> tuple[int, str]:
        with self.namespace:
            return super().http(path, **headers)

    def run(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess:
        with self.namespace:
            return super().run(*words, input=input)

    def socket(self) -> socket.socket:
        """Returns a new TCP socket that reaches it."""
        with self.namespace:
            return socket.socket()

    def connect(self) -> wire.Client:
        """Opens a connection to it."""
        stream = self.socket()
        stream.settimeout(wire.SECONDS)
        stream.connect(self.address)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wire.Client(stream)


class CutCluster(Cluster):
    """Brokers `b1`, `b2` and so on, each in a namespace of its own. Links to a broker go through a proxy there."""

    faults = ("cut off", "cut both", "cut", "slow", "stop", "kill", "peace")
    delays = (0.02, 0.1, 0.3)
    """Seconds by which a slow link is late, and for which it takes 64 KiB at most."""

    def __init__(self, count: int, **options):
        self.network = Network(count)

        def proxy(index: int) -> Proxy:
            return Proxy(self.network.address(index), lambda: self.network.nodes[index])

        def node(name: str, peers: list[int], **of_node) -> Node:
            index = int(name.removeprefix("b")) - 1
            hosts = [self.network.address(other) for other in range(count)]
            return Node(name, peers, namespace=self.network.nodes[index], hosts=hosts, host=hosts[index], **of_node)

        super().__init__(count, member=node, proxied=True, proxy=proxy, **options)

    def suffers(self, chance: random.Random, lasts: tuple[float, ...]) -> str:
        """Something happens, lasts for a while, and is over. Returns what it was."""
        one = chance.randrange(len(self.members))
        other = chance.choice([index for index in range(len(self.members)) if index != one])
        kind, seconds = chance.choice(self.faults), chance.choice(lasts)
        print(f"{kind} {one} {other} {seconds} s", flush=True)
        match kind:
            case "cut off":
                self.network.cut_off(one)
            case "cut both":
                self.network.cut_both(one, other)
            case "cut":
                self.network.cut(one, other)
            case "slow":
                self.proxies[one].delay = chance.choice(self.delays)
            case "stop":
                self[one].pause()
            case "kill":
                self[one].kill9()
        time.sleep(seconds)
        self.network.mend()
        self.proxies[one].delay = 0
        match kind:
            case "stop":
                self[one].go_on()
            case "kill":
                self[one].start()
        return kind

    def close(self) -> None:
        super().close()
        self.network.close()
