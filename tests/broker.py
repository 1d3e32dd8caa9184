"""The broker under test: the real binary on loopback, started, stopped and killed by its process id."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("BARID_BIN", ROOT / "target" / "release" / "barid"))


# Each worker process of a test run has its own ports, and does not return a port again that is about to be used.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
_given: deque[int] = deque(maxlen=200)

# Ports that pages of docs/operating name in their examples, which are executed beside other tests.
GUIDES = range(21_883, 21_898)


def free_port() -> int:
    """Returns a free port, below the range from which the kernel picks ports for outgoing connections."""
    while True:
        port = random.randrange(10_000 + WORKER, 32_000, WORKERS)
        if port in _given or port in GUIDES:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.append(port)
            return port


def until(condition, seconds: float = 15.0) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


@contextlib.contextmanager
def ending():
    """A list for brokers, which are closed at the end. None of them may have panicked."""
    started: list[Broker] = []
    yield started
    told = [one.stderr for one in started]
    for one in started:
        one.close()
    for stderr in told:
        assert "panicked at" not in stderr, stderr


class Broker:
    """`barid serve` with its own data directory, on free ports.

    `config` is TOML. A `{port}` in it is replaced by the MQTT port, which then is not passed as a flag.
    """

    def __init__(self, config: str = ""):
        self._directory = tempfile.TemporaryDirectory(prefix="barid-")
        self.directory = Path(self._directory.name)
        self._config = config
        self._process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        self._log_begins = len(self.stderr) if (self.directory / "stderr").exists() else 0
        # A port can be taken between the probe and the bind; with new ports the next attempt succeeds.
        for attempt in range(3):
            self.port, self.ws_port, self.admin_port, self.amqp_port = (free_port() for _ in range(4))
            config = self.directory / "barid.toml"
            config.write_text(self._config.replace("{port}", str(self.port)))
            flags = {"--ws": self.ws_port, "--admin": self.admin_port, "--amqp": self.amqp_port}
            if "{port}" not in self._config:
                flags["--mqtt"] = self.port
            command = [BINARY, "serve", "--config", config, "--data-dir", self.directory / "data"]
            command += [part for flag, port in flags.items() for part in (flag, f"127.0.0.1:{port}")]
            command = self.prefix() + command + self.arguments()
            with open(self.directory / "stderr", "ab") as stderr:
                self._process = subprocess.Popen(command, stdout=stderr, stderr=stderr)
            if self._becomes_healthy():
                return
            self.kill9()
        raise RuntimeError(f"the broker did not start:\n{self.stderr}")

    def prefix(self) -> list:
        """Words before the command line, for subclasses: a program that executes the broker."""
        return []

    def arguments(self) -> list:
        """Arguments after the command line, for subclasses."""
        return []

    def _becomes_healthy(self, seconds: float = 30.0) -> bool:
        """Waits until it answers on its admin address, and has logged that it is ready and how clients connect."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self.http("/healthz")[0] == 200 and "\nready in" in self.stderr[self._log_begins:]:
                    return True
            except OSError:
                pass
            time.sleep(0.02)
        return False

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def one(self) -> Broker:
        """The broker itself; where there are several, one of them."""
        return self

    @property
    def stderr(self) -> str:
        return (self.directory / "stderr").read_text(errors="replace")

    def http(self, path: str, **headers: str) -> tuple[int, str]:
        """Returns status and body of a GET on the admin address."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def cpu(self) -> float:
        """Returns its CPU time so far, in seconds."""
        user, system = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Returns its resident memory, in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmRSS"))

    def metric(self, pattern: str) -> float:
        """Returns the sum of all samples of /metrics whose name and labels match `pattern`."""
        samples = (line.rsplit(" ", 1) for line in self.http("/metrics")[1].splitlines() if line and line[0] != "#")
        return sum(float(value) for name, value in samples if re.search(pattern, name))

    def is_at_rest(self) -> bool:
        """Returns whether, for a short time, nothing waits to be stored and no commit begins."""
        commits = self.metric("^barid_store_commits_total")
        time.sleep(0.3)
        return self.metric("^barid_store_pending_bytes") == 0 and self.metric("^barid_store_commits_total") == commits

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self, seconds: float = 15.0) -> int:
        """Sends SIGTERM, and SIGKILL if that does not end it in time; returns the exit status."""
        if self.running():
            self.signal(signal.SIGTERM)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def kill9(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def reload(self, toml: str) -> str:
        """Writes the configuration, sends SIGHUP, and returns the log lines that follow."""
        before = len(self.stderr)
        (self.directory / "barid.toml").write_text(toml)
        self.signal(signal.SIGHUP)
        until(lambda: "reloaded" in self.stderr[before:])
        return self.stderr[before:]

    def configure(self, toml: str) -> None:
        """Reloads the configuration, with which the broker is started from now on as well."""
        self._config = toml
        self.reload(toml)

    def close(self) -> None:
        self.stop()
        self._directory.cleanup()

    def end(self) -> None:
        """Closes a broker that must have run until now."""
        alive, messages = self.running(), self.stderr
        self.close()
        assert alive, f"the broker ended during the tests:\n{messages}"
        assert "panicked at" not in messages, messages


class ForeignBroker:
    """A broker that was started elsewhere, given by MQTT_TARGET=host:port and perhaps MQTT_TARGET_WS=port.

    It cannot be configured, and its admin address is not used.
    """

    def __init__(self, target: str):
        host, port = target.rsplit(":", 1)
        self.address = (host, int(port))
        self.ws_port = int(os.environ.get("MQTT_TARGET_WS", 0))
        self.one = self

    def end(self) -> None:
        pass
