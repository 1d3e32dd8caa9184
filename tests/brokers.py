"""A cluster of brokers on loopback, and a proxy between them that cuts and stalls connections."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from broker import BINARY, Broker, free_port, until
from certificates import Certificates

# With more than one, the default broker is a cluster of so many, and each connection is to one of them, chosen at random.
BROKERS = int(os.environ.get("BARID_BROKERS", 1))

# Whether the links between the brokers of a cluster use TLS unless a test says otherwise.
LINK_TLS = bool(os.environ.get("BARID_LINK_TLS"))

SECRET = "the secret of the cluster under test"

CONFIG = """
[cluster]
name = "{cluster}"
broker = "{name}"
listen = "{host}:{listen}"
advertise = "{host}:{advertise}"
peers = [{peers}]
homes = [{homes}]
secret = "{secret}"
{tls}

[sys]
interval = 1
"""


@functools.cache
def issued() -> Certificates:
    """Certificates for links, for all clusters of the process."""
    return Certificates(Path(tempfile.mkdtemp(prefix="links-")))


def link_tls(certificates: Certificates, name: str = "server") -> str:
    """Returns the entry of [cluster] of a broker that shows the certificate with this name."""
    directory = certificates.directory
    return f'tls = {{ certificate = "{directory}/{name}.pem", key = "{directory}/{name}.key", ca = "{directory}/ca.pem" }}'


def links_tls() -> str:
    return link_tls(issued()) if LINK_TLS else ""


class Member(Broker):
    """A broker of a cluster. Other brokers reach it through `proxy`, if there is one."""

    def __init__(self, name: str, peers: list[int], *, listen: int | None = None, cluster: str = "test", secret: str = SECRET,
                 proxy: Proxy | None = None, homes: list[str] = (), more: str = "", tls: str | None = None,
                 host: str = "127.0.0.1", hosts: list[str] | None = None):
        self.name, self.link_port = name, listen or free_port()
        if proxy:
            proxy.leads_to(self.link_port)
        advertise = proxy.port if proxy else self.link_port
        hosts = hosts or [host] * len(peers)
        addresses = ", ".join(f'"{at}:{port}"' for at, port in zip(hosts, peers, strict=True))
        self.of_cluster = CONFIG.format(cluster=cluster, name=name, host=host, listen=self.link_port, advertise=advertise,
                                        peers=addresses, secret=secret, homes=", ".join(f'"{home}"' for home in homes),
                                        tls=links_tls() if tls is None else tls)
        super().__init__(more + self.of_cluster)

    @property
    def cluster(self) -> dict:
        """What the broker says of the cluster."""
        status, body = self.http("/v1/cluster")
        assert status == 200, body
        return json.loads(body)

    def states(self) -> dict[str, str]:
        """Returns the states of the other brokers, by name."""
        return {member["name"]: member["state"] for member in self.cluster["members"]}

    def sees(self, *names: str) -> bool:
        """Returns whether it hears the brokers with these names, and they hear it, and it takes clients."""
        view = self.cluster
        members = {member["name"]: member for member in view["members"]}
        return (view["takes_clients"] and view["has_quorum"]
                and all(members.get(name, {}).get("state") == "up" and members[name]["hears_us"] for name in names))

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        # The signal has no effect on a thread before that is scheduled.
        threads = Path(f"/proc/{self._process.pid}/task")
        until(lambda: all(stat.read_text().rsplit(")", 1)[1].split()[0] == "T" for stat in threads.glob("*/stat")))

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def has_session(self, client_id: str) -> bool:
        """Whether this broker itself has the session of a client of the tenant `default`."""
        return self.http(f"/v1/tenants/default/sessions/{client_id}", **{"Barid-Broker": self.name})[0] == 200

    def command(self, *words: str) -> subprocess.CompletedProcess:
        """Runs `barid cluster …` for this broker."""
        return self.run("cluster", *words)

    def run(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess:
        """Runs `barid …` for this broker."""
        command = [BINARY, *words, "--admin", f"127.0.0.1:{self.admin_port}"]
        return subprocess.run(command, input=input, capture_output=True, text=True, timeout=30)


class Cluster:
    """Brokers that know each other, called `b1`, `b2` and so on. With `homes`, sessions belong to slots of all of them."""

    def __init__(self, count: int, more: str | Callable[[int], str] = "", proxied: bool = False, homes: bool = False,
                 member: Callable[..., Member] = Member, proxy: Callable[[int], Proxy] = lambda _: Proxy(), **options):
        self.proxies = [proxy(index) for index in range(count)] if proxied else []
        listen = [free_port() for _ in range(count)]
        reached = [proxy.port for proxy in self.proxies] or listen
        self.members: list[Member] = []
        for index in range(count):
            proxy = self.proxies[index] if proxied else None
            names = [f"b{number + 1}" for number in range(count)] if homes else []
            own = more(index) if callable(more) else more
            self.members.append(member(f"b{index + 1}", reached, listen=listen[index], proxy=proxy, homes=names, more=own, **options))
        self.settles()

    def __getitem__(self, index: int) -> Member:
        return self.members[index]

    def __iter__(self):
        return iter(self.members)

    def others(self, member: Member) -> list[Member]:
        return [other for other in self.members if other is not member]

    def settles(self) -> None:
        """Waits until each broker hears each other one."""
        for member in self.members:
            until(lambda member=member: member.sees(*(other.name for other in self.others(member))))

    def close(self) -> None:
        for member in self.members:
            member.close()
        for proxy in self.proxies:
            proxy.close()


class AnyBroker:
    """A cluster of so many brokers, as one broker to whose clients and operators it does not matter which of them they reach: each
    connection is to another one, chosen at random, and so is each request to the admin API."""

    def __init__(self, count: int, more: str = "", cluster: Callable[..., Cluster] = Cluster, **options):
        self.cluster = cluster(count, more=more, homes=True, **options)

    @property
    def one(self) -> Member:
        return random.choice(self.cluster.members)

    def __getattr__(self, name: str):
        return getattr(self.one, name)

    def kill9(self) -> None:
        for member in self.cluster:
            member.kill9()

    def start(self) -> None:
        for member in self.cluster:
            member.start()
        self.cluster.settles()

    def restart(self) -> None:
        for member in self.cluster:
            member.stop()
        self.start()

    def reload(self, toml: str) -> str:
        """Reloads the configuration of each broker, with `toml` in place of what they have beside the cluster."""
        return "".join(member.reload(toml + member.of_cluster) for member in self.cluster)

    def configure(self, toml: str) -> None:
        for member in self.cluster:
            member.configure(toml + member.of_cluster)

    def running(self) -> bool:
        return all(member.running() for member in self.cluster)

    @property
    def stderr(self) -> str:
        return "".join(member.stderr for member in self.cluster)

    def close(self) -> None:
        self.cluster.close()

    def cpu(self) -> float:
        """Returns the CPU time of all brokers so far, in seconds."""
        return sum(member.cpu() for member in self.cluster)

    def metric(self, pattern: str) -> float:
        """Returns the sum of all samples of all brokers whose name and labels match `pattern`."""
        return sum(member.metric(pattern) for member in self.cluster)

    def end(self) -> None:
        told = [(member.running(), member.stderr) for member in self.cluster]
        self.cluster.close()
        for alive, stderr in told:
            assert alive, f"a broker ended during the tests:\n{stderr}"
            assert "panicked at" not in stderr, stderr


def started(config: str = "") -> Broker | AnyBroker:
    """Starts a broker with the given TOML, or as many as the tests are to have."""
    return AnyBroker(BROKERS, config) if BROKERS > 1 else Broker(config)


class Proxy:
    """Passes connections on, and breaks and slows them on demand. Remembers the last bytes that it has passed on."""

    KEPT = 1 << 20
    READ = 1 << 16

    def __init__(self, host: str = "127.0.0.1", within: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext):
        """Sockets are created in the network that `within` enters."""
        self.delay = 0.0
        """Seconds for which what was read at once, `READ` bytes at most, is held before it is passed on."""
        self._host, self._within = host, within
        with within():
            self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        self._to: int | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.passed = bytearray()
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def leads_to(self, port: int) -> None:
        self._to = port

    def cut(self) -> None:
        """Breaks all connections. New ones are passed on."""
        pairs, self._pairs = self._pairs, []
        for one in (end for pair in pairs for end in pair):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Passes nothing on any more, until `flow`. Connections stay."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def close(self) -> None:
        self._listener.close()
        self.flow()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                with self._within():
                    server = socket.create_connection((self._host, self._to))
            except OSError:
                if self._listener.fileno() < 0:
                    return
                client.close()
                continue
            self._pairs.append((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(self.READ):
                self._flows.wait()
                time.sleep(self.delay)
                self.passed += data
                del self.passed[:-self.KEPT]
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def pause_of(action, interval: float = 0.02) -> float:
    """Repeats an action until it fails no more. Returns the seconds that this took."""
    begin = time.monotonic()
    while not action():
        time.sleep(interval)
    return time.monotonic() - begin
