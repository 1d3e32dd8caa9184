"""mqtt.js: the client of browsers and of Node.js. The tests are in js/; here they are run for every transport and version."""

import os
import subprocess
from pathlib import Path

import pytest

JS = Path(__file__).parent / "js"
URLS = {"tcp": "mqtt://localhost:{}", "tls": "mqtts://localhost:{}", "ws": "ws://localhost:{}/mqtt", "wss": "wss://localhost:{}/mqtt"}


def test_mqttjs(broker, certificates, version, transport):
    assert (JS / "node_modules" / "mqtt").is_dir(), f"mqtt.js is missing: run `npm ci` in {JS}"
    environment = {
        **os.environ, "MQTT_URL": URLS[transport].format(broker.port_of(transport)), "MQTT_VERSION": str(version),
        "MQTT_CA": str(certificates.certificate("ca")), "FORCE_COLOR": "0",
    }
    files = sorted(file.name for file in JS.glob("*.test.js"))
    done = subprocess.run(["node", "--test", "--test-reporter=tap", *files], cwd=JS, env=environment, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    assert int(done.stdout.rsplit("# pass ", 1)[1].split()[0]) >= 11, done.stdout[-2_000:]
