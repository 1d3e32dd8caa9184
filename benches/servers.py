"""Programs under measurement: started on spare ports of the loopback interface, ended by their process id."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BARID = Path(os.environ.get("BARID_BIN", ROOT / "target" / "release" / "barid"))

MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
max_inflight_messages 65535
log_type error
log_dest stderr
"""


class Failed(Exception):
    """A server or a measurement did not work; says why."""


class Server:
    """Something that listens for MQTT on `host:port` and is the process `pid`."""

    def __init__(self, host: str, port: int, pid: int, process=None, directory=None):
        self.host, self.port, self.pid = host, port, pid
        self._process, self._directory = process, directory

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise Failed(f"process {self.pid} has ended")

    def stop(self) -> None:
        """Ends the process, if it was started here."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._directory is not None:
            self._directory.cleanup()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def start(target: str) -> Server:
    """`relay`, `barid` or `mosquitto` as a new process, or `NAME=HOST:PORT:PID`, which runs already."""
    if "=" in target:
        host, port, pid = target.split("=", 1)[1].rsplit(":", 2)
        return Server(host, int(port), int(pid))
    directory = tempfile.TemporaryDirectory(prefix="barid-bench-")
    port = _free_port()
    command = _command(target, port, Path(directory.name))
    log = Path(directory.name) / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=_raise_open_files)
    server = Server("127.0.0.1", port, process.pid, process, directory)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            time.sleep(0.05)
    said = log.read_text(errors="replace")
    server.stop()
    raise Failed(f"{target} does not start: {said}")


def is_there(target: str) -> bool:
    """Whether `target` can be measured on this machine."""
    return target != "mosquitto" or _mosquitto() is not None


def bench(server: Server, arguments: list[str]) -> dict:
    """What `barid bench … --json` says about `server`."""
    command = bench_command(arguments, server.port, server.pid, server.host)
    done = subprocess.run([BARID, *command[1:]], capture_output=True, text=True)
    try:
        # Exit status 1 with a result means that messages were lost: that is a result.
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise Failed(done.stderr.strip() or f"barid bench ended with {done.returncode}") from None


def bench_command(arguments: list[str], port, pid, host="127.0.0.1") -> list[str]:
    where = [] if host == "127.0.0.1" else ["--host", host]
    return ["barid", "bench", *arguments, "--json", *where, "--port", str(port), "--pid", str(pid)]


def _command(target: str, port: int, directory: Path) -> list:
    address = f"127.0.0.1:{port}"
    match target:
        case "relay":
            return [BARID, "bench", "relay", "--listen", address]
        case "barid":
            admin = f"127.0.0.1:{_free_port()}"
            data = directory / "data"
            return [BARID, "serve", "--mqtt", address, "--ws", "off", "--admin", admin,
                    "--data-dir", data, "--log", "error"]
        case "mosquitto":
            config = directory / "mosquitto.conf"
            config.write_text(MOSQUITTO_CONFIG.format(port=port))
            return [_mosquitto(), "-c", config]
    raise Failed(f"{target}: not relay, barid, mosquitto or NAME=HOST:PORT:PID")


def _mosquitto() -> str | None:
    return shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def _free_port() -> int:
    """Below the range from which the kernel picks ports for outgoing connections."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _raise_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
