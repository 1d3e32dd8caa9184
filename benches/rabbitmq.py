"""A RabbitMQ node of its own, with the AMQP 1.0 plugin and one durable queue."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import servers

# The script that Debian's wrapper in the PATH starts as another user.
SCRIPT = Path(os.environ.get("RABBITMQ_SERVER", "/usr/lib/rabbitmq/bin/rabbitmq-server"))
QUEUE = "bench"
USER = "guest"

CONFIG = """\
listeners.tcp.default = 127.0.0.1:{port}
load_definitions = {definitions}
log.console = true
log.console.level = error
log.file = false
"""


def is_there() -> bool:
    return SCRIPT.exists() and shutil.which("epmd") is not None


def start(kind: str) -> servers.Server:
    """A new node whose queue is `classic` or `quorum`."""
    directory = tempfile.TemporaryDirectory(prefix="barid-bench-")
    path = Path(directory.name)
    port, names_port = servers._free_port(), servers._free_port()
    (path / "definitions.json").write_text(json.dumps(_definitions(kind)))
    (path / "rabbitmq.conf").write_text(CONFIG.format(port=port, definitions=path / "definitions.json"))
    (path / "plugins").write_text("[rabbitmq_amqp1_0].\n")
    environment = {
        **os.environ,
        "HOME": directory.name,
        "RUNNING_UNDER_SYSTEMD": "true",  # Then the process that is started is the node itself.
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(servers._free_port()),
        "RABBITMQ_CONFIG_FILE": str(path / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(path / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(path / "data"),
        "RABBITMQ_LOG_BASE": str(path),
        "RABBITMQ_PID_FILE": str(path / "pid"),
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    with open(path / "log", "ab") as output:
        names = subprocess.Popen(["epmd", "-port", str(names_port), "-address", "127.0.0.1"],
                                 stdout=output, stderr=output)
        process = subprocess.Popen([SCRIPT], env=environment, stdout=output, stderr=output, cwd=path,
                                   preexec_fn=servers._raise_open_files)
    server = Node("127.0.0.1", port, process.pid, process, directory, names=names)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if server.is_open():
            return server
        time.sleep(0.2)
    said = (path / "log").read_text(errors="replace")
    server.stop()
    raise servers.Failed(f"rabbitmq does not start: {said}")


class Node(servers.Server):
    """The node, and the process that knows its name."""

    def __init__(self, *server, names):
        super().__init__(*server)
        self._names = names

    def is_open(self) -> bool:
        try:
            servers.socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self._names.terminate()
            self._names.wait()


def _definitions(kind: str) -> dict:
    salt = os.urandom(4)
    digest = base64.b64encode(salt + hashlib.sha256(salt + USER.encode()).digest()).decode()
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    return {
        "users": [{"name": USER, "password_hash": digest, "tags": "administrator",
                   "hashing_algorithm": "rabbit_password_hashing_sha256"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": USER, "vhost": "/", **rights}],
        "queues": [{"name": QUEUE, "vhost": "/", "durable": True, "auto_delete": False,
                    "arguments": {"x-queue-type": kind}}],
    }
