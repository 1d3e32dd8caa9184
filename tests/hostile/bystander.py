"""A client that is not part of an attack: how long it waits for a PINGRESP meanwhile.

    with Bystander(broker) as bystander:
        ...                              # the attack
    bystander.assert_served()

The time in which other processes kept the broker from a processor is not the attack's, and does not count.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import wire

# The longest wait of a bystander that an attack may cause, at the 99th percentile.
P99_SECONDS = 0.1

# The pause between two pings.
PAUSE = 0.005

# So many pings are made, though the attack may end before.
FEWEST = 10


class Bystander:
    """Pings the broker in a process of its own, from entering to leaving the context."""

    def __init__(self, broker, tenant: str = "bystander", password: str = ""):
        self._broker, self._login = broker, (tenant, password)
        self.pings: list[float] = []
        self.echoes: list[float] = []

    def __enter__(self) -> Bystander:
        host, port = self._broker.address
        command = [sys.executable, __file__, host, str(port), str(self._broker._process.pid), *self._login]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, kind, error, traceback) -> None:
        output, _ = self._process.communicate("stop\n", timeout=60)
        report = json.loads(output)
        self.pings, self.echoes = report["pings"], report["echoes"]

    def assert_served(self) -> None:
        """The client was served all the time, as well as the machine allowed."""
        assert len(self.pings) >= FEWEST, f"it was answered {len(self.pings)} times only"
        ping, echo = p99(self.pings), p99(self.echoes)
        waited = (f"PINGRESP p99 {ping * 1000:.1f} ms, worst {max(self.pings) * 1000:.1f} ms, of {len(self.pings)}; "
                  f"the machine's own {echo * 1000:.1f} ms, worst {max(self.echoes) * 1000:.1f} ms")
        print(waited)
        assert ping < P99_SECONDS + echo, waited


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def scheduled(process: Path) -> tuple[float, float]:
    """For how many seconds the threads of a broker have run, and for how many its IO threads were ready to and waited."""
    ran = waited = 0
    for thread in process.glob("task/*"):
        try:
            running, waiting, _ = map(int, (thread / "schedstat").read_text().split())
            ran += running
            waited += waiting if (thread / "comm").read_text().startswith("barid-io-") else 0
        except OSError:
            continue  # it has ended, or the kernel does not say
    return ran / 1e9, waited / 1e9


def kept_from_running(seconds: float, before: tuple[float, float], after: tuple[float, float]) -> float:
    """How much of some seconds others kept the broker waiting: not longer than they had processors, as its own threads keep
    each other waiting, too.
    """
    ran, waited = (later - earlier for earlier, later in zip(before, after, strict=True))
    return min(waited, max(0.0, os.cpu_count() * seconds - ran))


def echo_server() -> tuple[str, int]:
    """A server in this process that sends back what it reads."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        stream, _ = listener.accept()
        while data := stream.recv(64):
            stream.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()


def main(host: str, port: str, pid: str, tenant: str, password: str) -> None:
    client = wire.Client((host, int(port)), timeout=120)
    client.connect("bystander", username=f"{tenant}/device", password=password.encode() or None)
    echo = socket.create_connection(echo_server())
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    process = Path("/proc", pid)
    pings: list[float] = []
    echoes: list[float] = []
    print("ready", flush=True)
    # Of a short attack on a busy machine there may be few; those of the attack count even then.
    while not stop.is_set() or len(pings) < FEWEST:
        before, started = scheduled(process), time.monotonic()
        echo.sendall(b"ping")
        echo.recv(4)
        echoed = time.monotonic()
        client.send(wire.pingreq())
        client.expect(wire.PINGRESP)
        answered = time.monotonic()
        echoes.append(echoed - started)
        pings.append(answered - echoed - kept_from_running(answered - echoed, before, scheduled(process)))
        time.sleep(PAUSE)
    json.dump({"pings": pings, "echoes": echoes}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
