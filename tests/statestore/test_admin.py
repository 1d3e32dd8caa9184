"""What an operator sees of the state store: the admin API and the metrics."""

from __future__ import annotations

import base64
import http.client
import json
import re
from urllib.parse import quote

import pytest


@pytest.fixture
def ask(broker):
    def ask(path: str) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=5)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        connection.close()
        return answer.status, body

    return ask


@pytest.fixture
def metric(broker):
    def metric(name: str) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=5)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    return metric


def keys_of(page: dict) -> list[bytes]:
    return [key["key"].encode() if "key" in key else base64.b64decode(key["key_base64"]) for key in page["keys"]]


