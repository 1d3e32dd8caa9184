"""RabbitMQ with its AMQP 1.0 plugin and one durable queue, as a node of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import servers

# Debian's `rabbitmq-server` in the PATH starts this as another user.
SCRIPT = Path(os.environ.get("RABBITMQ_SERVER", "/usr/lib/rabbitmq/bin/rabbitmq-server"))
QUEUE = "bench"
USER = "guest"
# How `barid bench amqp` finds it.
ARGUMENTS = ["--plain", "--queue", f"/amq/queue/{QUEUE}", "--user", USER, "--pw", USER]

CONFIG = """\
listeners.tcp.default = 127.0.0.1:{port}
load_definitions = {directory}/definitions.json
log.console = true
log.console.level = error
log.file = false
"""


def is_there() -> bool:
    return SCRIPT.exists() and shutil.which("epmd") is not None


def start(kind: str) -> servers.Server:
    """A new node whose queue is `classic` or `quorum`."""
    # Nodes find each other through it; one that finds none starts one, which outlives the node.
    names_port = servers.free_port()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    names = subprocess.Popen(["epmd", "-port", str(names_port), "-address", "127.0.0.1"], **quiet)

    def command(port: int, directory: Path) -> list:
        (directory / "definitions.json").write_text(json.dumps(_definitions(kind)))
        (directory / "rabbitmq.conf").write_text(CONFIG.format(port=port, directory=directory))
        (directory / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        return [SCRIPT]

    def environment(port: int, directory: Path) -> dict:
        return {
            **os.environ,
            "HOME": str(directory),
            # Then the process that is started becomes the node.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(servers.free_port()),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory),
            "ERL_EPMD_PORT": str(names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    try:
        server = servers.launch("rabbitmq", command, 60, environment)
    except servers.Failed:
        names.terminate()
        names.wait()
        raise
    server.companions.append(names)
    return server


def _definitions(kind: str) -> dict:
    salt = os.urandom(4)
    digest = base64.b64encode(salt + hashlib.sha256(salt + USER.encode()).digest()).decode()
    return {
        "users": [{"name": USER, "password_hash": digest, "hashing_algorithm": "rabbit_password_hashing_sha256",
                   "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [{"name": QUEUE, "vhost": "/", "durable": True, "auto_delete": False,
                    "arguments": {"x-queue-type": kind}}],
    }
