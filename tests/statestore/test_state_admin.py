"""What an operator sees of the state store: the admin API and the metrics."""

from __future__ import annotations

import base64
import http.client
import json
import re
from urllib.parse import quote

import pytest

from brokers import AnyBroker


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
        texts = [one.http("/metrics")[1] for one in (broker.cluster if isinstance(broker, AnyBroker) else [broker])]
        found = [re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE) for text in texts]
        return sum(float(one[1]) for one in found if one)

    return metric


def keys_of(page: dict) -> list[bytes]:
    return [key["key"].encode() if "key" in key else base64.b64decode(key["key_base64"]) for key in page["keys"]]


def test_keys_are_listed_page_by_page(store, tenant, ask):
    client = store()
    names = sorted([b"a/%d" % number for number in range(25)] + [b"b", b"\xff\x00"])
    for name in names:
        client.set(name, b"value")
    found, after = [], ""
    while True:
        status, page = ask(f"/v1/tenants/{quote(tenant)}/state?limit=10{after}")
        assert status == 200 and len(page["keys"]) <= 10
        found += keys_of(page)
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == names
    assert page["usage"] == {"keys": 27, "bytes": sum(len(name) + 5 + 128 for name in names), "watchers": 0}
    _, page = ask(f"/v1/tenants/{quote(tenant)}/state?prefix=a%2F2&limit=100")
    assert keys_of(page) == [b"a/2", b"a/20", b"a/21", b"a/22", b"a/23", b"a/24"]


def test_one_key(store, tenant, ask):
    client = store()
    version = client.set(b"line/\xff", b"\x00\xfe")
    client.set(b"text", "grün".encode(), "PX", "60000")
    status, key = ask(f"/v1/tenants/{quote(tenant)}/state/line%2F%FF")
    assert status == 200
    assert key["key_base64"] == base64.b64encode(b"line/\xff").decode() and key["version"] == version
    assert key["value_base64"] == base64.b64encode(b"\x00\xfe").decode()
    assert key["expires_at"] is None and key["fencing_token"] is None and key["durability"] == "local"
    status, key = ask(f"/v1/tenants/{quote(tenant)}/state/text")
    assert status == 200 and (key["key"], key["value"], key["value_bytes"]) == ("text", "grün", 5)
    assert key["expires_at"] is not None


@pytest.mark.parametrize("path, status", [
    ("state/absent", 404),
    ("state?limit=0", 400),
    ("state?limit=10001", 400),
    ("state?after=%21", 400),
    ("state?unknown=1", 400),
])
def test_what_cannot_be_answered(store, tenant, ask, path, status):
    store()
    found, body = ask(f"/v1/tenants/{quote(tenant)}/{path}")
    assert found == status and body["error"]


def test_an_unknown_tenant(ask):
    assert ask("/v1/tenants/nobody/state")[0] == 404
    assert ask("/v1/tenants/nobody/state/key")[0] == 404


def test_what_is_counted(store, tenant, metric):
    client = store()

    def requests(verb, outcome):
        return metric(f'barid_state_requests_total{{tenant="{tenant}",verb="{verb}",outcome="{outcome}"}}')

    client.set(b"key", b"value")
    client.ask("SET", "key", "other", "NX")
    client.get(b"key")
    client.get(b"absent")
    client.watch(b"key")
    client.ask("set", "key", "value")
    assert (requests("set", "ok"), requests("set", "not-applied")) == (1, 1)
    assert (requests("get", "ok"), requests("get", "absent"), requests("none", "unknown-command")) == (1, 1, 1)
    assert metric(f'barid_state_keys{{tenant="{tenant}"}}') == 1
    assert metric(f'barid_state_bytes{{tenant="{tenant}"}}') == 3 + 5 + 128 + 3 + 128  # the key, and that it is watched
    assert metric(f'barid_state_watchers{{tenant="{tenant}"}}') == 1
    client.ask("DEL", "key")
    assert metric(f'barid_state_keys{{tenant="{tenant}"}}') == 0
    assert metric(f'barid_state_bytes{{tenant="{tenant}"}}') == 3 + 128
    client.ask("KEYNOTIFY", "key", "STOP")
    assert metric(f'barid_state_bytes{{tenant="{tenant}"}}') == 0
    assert metric("barid_state_request_seconds_count") >= 7
    assert 0 < metric('barid_state_request_seconds{quantile="0.5"}') <= metric('barid_state_request_seconds{quantile="0.99"}') < 5
