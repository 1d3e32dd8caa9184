"""@azure/service-bus, Microsoft's SDK for JavaScript. The tests are in js/; here they are run, over every transport."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from administration import Managed
from namespace import KEY, KEY_NAME, config_json, path_of

JS = Path(__file__).parent / "js"
ENTITIES = json.loads((JS / "entities.json").read_text())


def with_entities(test):
    for name, properties in ENTITIES["queues"].items():
        test = pytest.mark.queue(name, **properties)(test)
    for name, topic in ENTITIES["topics"].items():
        test = pytest.mark.topic(name, topic["Subscriptions"])(test)
    return test


@with_entities
@pytest.mark.parametrize("file, transport", [
    ("sessions.test.js", "tcp"), ("messages.test.js", "tcp"), ("topics.test.js", "tcp"), ("sessions.test.js", "tls"), ("messages.test.js", "wss"),
])
def test_js_sdk(request, broker, certificates, file, transport):
    assert (JS / "node_modules" / "@azure" / "service-bus").is_dir(), f"the SDK is missing: run `npm ci` in {JS}"
    port = {"tls": broker.amqps_port, "wss": broker.wss_port}.get(transport)
    secure = f"Endpoint=sb://localhost:{port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};"
    run(file, broker.connection_string() if transport == "tcp" else secure, certificates,
        {"SB_ENTITIES": path_of(request.node)} | ({"SB_WEBSOCKET": "1"} if transport == "wss" else {}))


def test_administration(certificates):
    broker = Managed(config_json({}, {}), certificates)
    endpoint = f"Endpoint=sb://localhost:{broker.management_port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}"
    run("administration.test.js", endpoint, certificates, {})
    broker.end()


def run(file: str, connection_string: str, certificates, more: dict) -> None:
    environment = os.environ | more | {
        "SERVICE_BUS": connection_string, "NODE_EXTRA_CA_CERTS": str(certificates.certificate("ca")), "FORCE_COLOR": "0",
    }
    command = ["node", "--test", "--test-reporter=tap", "--test-timeout=60000", file]
    done = subprocess.run(command, cwd=JS, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, "\n".join(failures(done.stdout)) + done.stderr[-5_000:]
    assert int(done.stdout.rsplit("# pass ", 1)[1].split()[0]) >= 4, done.stdout[-2_000:]


def failures(tap: str) -> list[str]:
    """What failed, with the reasons."""
    kept, keep = [], False
    for line in tap.splitlines():
        if line.lstrip().startswith(("ok ", "not ok ")):
            keep = line.lstrip().startswith("not ok ")
        if keep:
            kept.append(line)
    return kept[-300:]
