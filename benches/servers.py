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
# Another build, to be measured in turns with the first: the targets `before` and `before-memory`.
BEFORE = Path(os.environ.get("BARID_BEFORE", "barid-before"))
REDIS_LOAD = Path(os.environ.get("REDIS_LOAD_BIN", ROOT / "target" / "release" / "examples" / "redis_load"))

MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 65535
log_type error
log_dest stderr
"""
# Writes at its end and every half hour.
MOSQUITTO_SAVED = "persistence true\npersistence_location {directory}/\n"

# Sessions and messages of QoS 1 are always in its files; `sync` says when these are on the disk.
# Quotas that nobody reaches: what they cost.
HIGH_QUOTAS = "".join(f"{user}{name} = 1000000000000\n" for user in ("", "user_")
                      for name in ("publish_rate", "inbound_bytes_rate", "outbound_bytes_rate"))

# One user for all clients, with a limit of all that belongs to it, which nobody reaches.
USER, PASSWORD = "bench/all", "secret"
USER_CONFIG = """
[[users]]
name = "bench/all"
password = "{hash}"
"""
HIGH_HELD = "max_user_sessions = 1000000000000\nmax_user_queued_bytes = 1000000000000\n"

NATS_CONFIG = """\
listen: "127.0.0.1:{other_port}"
server_name: "bench"
jetstream {{ store_dir: "{directory}/data"{sync} }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 65535 }}
max_pending: 1GB
write_deadline: "60s"
"""


class Failed(Exception):
    """A server or a measurement did not work; says why."""


class Server:
    """Something that listens on `host:port` and is the process `pid`."""

    def __init__(self, host: str, port: int, pid: int, process=None, directory=None, command=()):
        self.host, self.port, self.pid = host, port, pid
        self._process, self._directory, self.command = process, directory, command
        # Ended after it.
        self.companions: list[subprocess.Popen] = []

    def kill_and_start(self) -> None:
        """Ends the process without warning and starts it with what it has left behind."""
        self._process.kill()
        self._process.wait()
        self._process = _spawn(self.command, self._directory.name)
        self.pid = self._process.pid

    def is_open(self) -> bool:
        """Whether it takes connections."""
        try:
            socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            return False
        return True

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def written_bytes(self) -> int:
        """What it has sent towards the disk so far."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
        raise Failed(f"process {self.pid} has ended")

    def disk_bytes(self) -> int:
        """What its files occupy."""
        total = 0
        for path in Path(self._directory.name).rglob("*"):
            try:
                total += path.lstat().st_blocks * 512
            except FileNotFoundError:
                pass  # It goes away while we look.
        return total

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
        for companion in self.companions:
            companion.terminate()
            companion.wait()
        if self._directory is not None:
            self._directory.cleanup()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def start(target: str) -> Server:
    """One of those that `_command` knows as a new process, or `NAME=HOST:PORT:PID`, which runs already."""
    if "=" in target:
        host, port, pid = target.split("=", 1)[1].rsplit(":", 2)
        return Server(host, int(port), int(pid))
    return launch(target, lambda port, directory: _command(target, port, directory))


def launch(target: str, command, seconds: int = 10, environment=None) -> Server:
    """What `command(port, directory)` names as a new process that listens on `port` within some seconds. A
    function as `environment` is asked in the same way."""
    directory = tempfile.TemporaryDirectory(prefix="barid-bench-")
    port = free_port()
    arguments = command(port, Path(directory.name))
    process = _spawn(arguments, directory.name, environment and environment(port, Path(directory.name)))
    server = Server("127.0.0.1", port, process.pid, process, directory, arguments)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if server.is_open():
            return server
        time.sleep(0.05)
    said = (Path(directory.name) / "log").read_text(errors="replace")
    server.stop()
    raise Failed(f"{target} does not start: {said}")


def is_there(target: str) -> bool:
    """Whether `target` can be measured on this machine."""
    if "=" in target:
        return True
    if target.startswith("before"):
        return BEFORE.exists()
    if target.startswith("redis"):
        return _redis() is not None and REDIS_LOAD.exists()
    if target.startswith("mosquitto"):
        return _mosquitto() is not None
    return not target.startswith("nats") or _nats() is not None


def redis_load(server: Server, arguments: list[str]) -> dict:
    """What the load of `barid bench state` says about a server that speaks RESP."""
    return _told([REDIS_LOAD, *arguments, "--json", "--port", str(server.port), "--pid", str(server.pid)])


def bench(server: Server, arguments: list[str]) -> dict:
    """What `barid bench … --json` says about `server`."""
    return _told([BARID, *bench_command(arguments, server.port, server.pid, server.host)[1:]])


def login(target: str) -> list[str]:
    """Arguments of `barid bench` for a target that has a user."""
    return ["--username", USER, "--pw", PASSWORD] if target.endswith("-user") else []


def bench_command(arguments: list[str], port, pid, host="127.0.0.1") -> list[str]:
    where = [] if host == "127.0.0.1" else ["--host", host]
    return ["barid", "bench", *arguments, "--json", *where, "--port", str(port), "--pid", str(pid)]


def _told(command: list) -> dict:
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        # Exit status 1 with a result means that messages were lost: that is a result.
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise Failed(done.stderr.strip() or f"{command[0]} ended with {done.returncode}") from None


def _command(target: str, port: int, directory: Path) -> list:
    address = f"127.0.0.1:{port}"
    config = directory / "config"
    match target:
        case "relay":
            return [BARID, "bench", "relay", "--listen", address]
        case "barid" | "barid-memory" | "barid-quotas" | "barid-user" | "barid-metrics" | "barid-traces" | "before" | "before-memory" | "before-user":
            durability = "memory" if target.endswith("-memory") else "local"
            quotas = HIGH_QUOTAS if target.endswith("-quotas") else ""
            users = ""
            if target.endswith("-user"):
                hashed = [BARID, "passwd", "--stdin", "--cost", "device"]
                users = USER_CONFIG.format(hash=subprocess.run(hashed, input=PASSWORD, capture_output=True, text=True, check=True).stdout.strip())
            if target == "barid-user":
                quotas = HIGH_HELD
            if target in ("barid-metrics", "barid-traces"):
                # Nobody listens there: messages without a trace context make no spans.
                users = f'[telemetry]\nendpoint = "http://127.0.0.1:9"\ntraces = {float(target == "barid-traces")}\n'
            config.write_text(f'[limits]\ndurability = "{durability}"\n{quotas}{users}')
            admin = f"127.0.0.1:{free_port()}"
            return [binary(target), "serve", "--config", config, "--mqtt", address, "--ws", "off", "--amqp", "off", "--admin", admin,
                    "--data-dir", directory / "data", "--log", "error"]
        case "mosquitto" | "mosquitto-saved":
            saved = MOSQUITTO_SAVED.format(directory=directory) if target == "mosquitto-saved" else ""
            config.write_text(MOSQUITTO_CONFIG.format(port=port) + saved)
            # As root it would become another user, who may not write here.
            user = ["user root\n"] if os.geteuid() == 0 else []
            with config.open("a") as more:
                more.writelines(user)
            return [_mosquitto(), "-c", config]
        case "nats" | "nats-always":
            sync = ", sync_interval: always" if target == "nats-always" else ""
            config.write_text(NATS_CONFIG.format(port=port, other_port=free_port(), directory=directory, sync=sync))
            return [_nats(), "-c", config]
        case "redis" | "redis-always":
            kept = ["yes", "--appendfsync", "always"] if target == "redis-always" else ["no"]
            return [_redis(), "--bind", "127.0.0.1", "--port", str(port), "--dir", directory, "--save", "",
                    "--appendonly", *kept]
    raise Failed(f"{target}: not one of relay, {', '.join(MQTT + REDIS)}, or NAME=HOST:PORT:PID")


def binary(target: str) -> Path:
    """The build of Barid that a target names."""
    return BEFORE if target.startswith("before") else BARID


MQTT = ("barid", "barid-memory", "barid-quotas", "barid-user", "barid-metrics", "barid-traces", "before", "before-memory", "before-user", "mosquitto", "mosquitto-saved", "nats", "nats-always")
REDIS = ("redis", "redis-always")


def _spawn(command: list, directory: str, environment: dict | None = None) -> subprocess.Popen:
    with open(Path(directory) / "log", "ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment, preexec_fn=_raise_open_files)


def _mosquitto() -> str | None:
    return shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def _redis() -> str | None:
    return shutil.which("redis-server")


def _nats() -> str | None:
    return shutil.which(os.environ.get("NATS_SERVER", "nats-server"))


def free_port() -> int:
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
