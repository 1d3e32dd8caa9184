"""Real database servers for tests: mariadbd and redis-server on free loopback ports, each with its own data directory.

A server is ended, stopped and restarted by its process id. It keeps its port and its data over a restart.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from broker import free_port, until
from certificates import Certificates

# Daemons are in /usr/sbin, which is not in the path of every user.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Server:
    """A server process. Subclasses say how it is prepared, started and asked whether it answers.

    With `certificates`, a server accepts TLS, and its URL asks for it.
    """

    def __init__(self, certificates: Certificates | None = None):
        self.certificates = certificates
        self._directory = tempfile.TemporaryDirectory(prefix=f"barid-{type(self).__name__.lower()}-")
        self.directory = Path(self._directory.name)
        self._process: subprocess.Popen | None = None
        self.port = free_port()
        self.prepare()
        self.start()

    def prepare(self) -> None:
        """Creates the data directory."""

    def command(self) -> list:
        """Returns the command line."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Returns whether it accepts connections and answers."""
        raise NotImplementedError

    def start(self) -> None:
        program, *arguments = map(str, self.command())
        path = shutil.which(program, path=PATH)
        assert path, f"{program} is not installed: scripts/test.sh setup installs it"
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen([path, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.answers() or not self.running(), 60)
        assert self.running(), f"{program} ended:\n{self.log}"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """Stops the process: connections stay open, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self._process.pid}/stat")
        until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T")

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process at once, also a paused one."""
        self._process.kill()
        self._process.wait()

    def stop(self, seconds: float = 15.0) -> None:
        """Ends the process in order, and at once if that takes too long."""
        if self.running():
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        if self.running():
            self.kill()
        self._directory.cleanup()


class MariaDb(Server):
    """mariadbd, with an empty database `barid`, and a user `barid` who may do everything in it."""

    PASSWORD = "pass:w@rd/ %"

    def prepare(self) -> None:
        install = ["mariadb-install-db", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={self.data}",
                   "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        environment = os.environ | {"PATH": PATH}
        done = subprocess.run(install, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        self.temporary.mkdir()
        (self.directory / "init.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS barid;\n"
            f"CREATE OR REPLACE USER barid@'127.0.0.1' IDENTIFIED BY '{self.PASSWORD}';\n"
            "GRANT ALL ON barid.* TO barid@'127.0.0.1';\n")

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def temporary(self) -> Path:
        """A server that starts removes temporary tables, also those of others in the same directory."""
        return self.directory / "tmp"

    def command(self) -> list:
        command = ["mariadbd", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={self.data}", f"--port={self.port}",
                "--bind-address=127.0.0.1", f"--socket={self.directory}/s", f"--tmpdir={self.temporary}", f"--pid-file={self.directory}/pid",
                f"--init-file={self.directory}/init.sql", "--skip-name-resolve", "--skip-log-bin", "--innodb-buffer-pool-size=32M",
                "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=2", "--character-set-server=latin1"]
        if self.certificates:
            command += [f"--ssl-cert={self.certificates.certificate('server')}", f"--ssl-key={self.certificates.key('server')}"]
        return command

    def answers(self) -> bool:
        try:
            return self.execute("SELECT 1", "barid") == "1\n"
        except AssertionError:
            return False

    def execute(self, sql: str, user: str = "root") -> str:
        """Executes statements and returns the rows of their results: one line each, with tabs between the columns."""
        words = [*self.client(user).split(), "--batch", "--skip-column-names", "--database=barid"]
        words += [f"--password={self.PASSWORD}"] if user == "barid" else []
        done = subprocess.run(words, input=sql, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def client(self, user: str = "root") -> str:
        """Returns the command of the server's client."""
        program = shutil.which("mariadb", path=PATH)
        return f"{program} --no-defaults --default-character-set=utf8mb4 --host=127.0.0.1 --port={self.port} --user={user}"

    @property
    def url(self) -> str:
        return f"mysql://barid:pass%3Aw%40rd%2F%20%25@127.0.0.1:{self.port}/barid"


def quoted(text: str) -> str:
    """Returns a text as SQL, whatever characters it has."""
    return f"CONVERT(0x{text.encode().hex()} USING utf8mb4)" if text else "''"


class Redis(Server):
    """redis-server, without a password and without files."""

    def prepare(self) -> None:
        self.tls_port = free_port() if self.certificates else 0

    def command(self) -> list:
        command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                   "--dir", self.directory]
        if self.certificates:
            command += ["--tls-port", self.tls_port, "--tls-cert-file", self.certificates.certificate("server"), "--tls-key-file",
                        self.certificates.key("server"), "--tls-auth-clients", "no"]
        return command

    def answers(self) -> bool:
        try:
            return self.ask("PING") == b"PONG"
        except (OSError, AssertionError):
            return False

    def ask(self, *words: str | bytes | int):
        """Sends one command, and returns its reply: bytes, an int, None, or a list of these."""
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(request)
            return _reply(connection.makefile("rb"))

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.tls_port}/0" if self.certificates else f"redis://127.0.0.1:{self.port}/0"


def _reply(stream):
    line = stream.readline()
    assert line.endswith(b"\r\n"), "the connection was closed"
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest
        case b":":
            return int(rest)
        case b"$":
            return None if int(rest) < 0 else stream.read(int(rest) + 2)[:-2]
        case b"*":
            return None if int(rest) < 0 else [_reply(stream) for _ in range(int(rest))]
    raise AssertionError(f"Redis answers {line!r}")
