"""What the admin address answers, whoever asks: this machine only, and no browser that runs a stranger's page."""

import http.client
import json
import re
import socket

import pytest

from running import barid, hashed

pytestmark = pytest.mark.one_broker

QUIET = {"BARID_MQTT": "127.0.0.1:0", "BARID_WS": "off", "BARID_AMQP": "off"}


def raw(broker, sent: bytes, half_close: bool = True) -> bytes:
    """All that is answered to some bytes until the connection ends."""
    with socket.create_connection(("127.0.0.1", broker.admin_port), timeout=10) as stream:
        answer = b""
        try:
            stream.sendall(sent)
            if half_close:
                stream.shutdown(socket.SHUT_WR)
            while part := stream.recv(65_536):
                answer += part
        except (ConnectionError, OSError) as error:
            assert not isinstance(error, TimeoutError), "it answers nothing and goes on waiting"
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)]


def status(broker, method: str = "GET", path: str = "/v1/tenants", body: bytes | None = None, **headers: str) -> int:
    """The status of one request; headers are written with `_` for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in ({"host": f"127.0.0.1:{broker.admin_port}"} | headers).items():
        connection.putheader(name.replace("_", "-"), value)
    if body is not None:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    told = answer.read()
    connection.close()
    if answer.status >= 400:
        assert json.loads(told)["error"]
    return answer.status


# ------------------------------------------------------------------------------------------------ who may ask


def test_whoever_is_on_this_machine(broker):
    port = broker.admin_port
    for host in (f"127.0.0.1:{port}", "localhost", f"LOCALHOST:{port}", "[::1]:8081", "127.9.9.9", "localhost:1"):
        assert status(broker, host=host) == 200, host


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8081", "192.0.2.1",
                                  "0.0.0.0", "[::]", "[2001:db8::1]:8081", "localhost@evil.example", "127.1"])
def test_no_name_that_a_stranger_has_given_this_machine(broker, host):
    """DNS rebinding: the browser of an operator asks for the stranger's own name, which leads here."""
    for method, path in (("GET", "/v1/backup"), ("GET", "/healthz"), ("DELETE", "/v1/tenants/default/sessions/c")):
        assert status(broker, method, path, host=host) in (400, 403)


def test_a_host_is_needed_and_only_one(broker):
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"):
        assert statuses(raw(broker, sent)) == [400], sent
    assert b" 200 " in raw(broker, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")


def test_the_target_says_no_other_host(broker):
    """In absolute form it counts more than Host."""
    for target, expected in ((b"http://localhost/healthz", 200), (b"http://evil.example/healthz", 403),
                             (b"http://me@localhost/healthz", 403), (b"*", 404), (b"localhost:80", 404)):
        assert statuses(raw(broker, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")) in ([expected], [403]), target
    assert statuses(raw(broker, b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] >= 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8081", "http://localhost:1", "file://", ""])
def test_no_page_of_another_site(broker, origin):
    for method, path in (("GET", "/v1/backup"), ("GET", "/metrics"), ("PUT", "/v1/tenants/default/queues/q"), ("OPTIONS", "/")):
        assert status(broker, method, path, origin=origin) == 403


@pytest.mark.parametrize("site, expected", [("cross-site", 403), ("same-site", 403), ("none", 200), ("same-origin", 200)])
def test_what_a_page_loads_without_asking(broker, site, expected):
    """Pictures and scripts carry no Origin. Browsers say all the same where they come from."""
    assert status(broker, path="/metrics", sec_fetch_site=site) == expected
    refused = status(broker, "DELETE", "/v1/tenants/default/queues/q", sec_fetch_site=site) == 403
    assert refused == (site != "same-origin"), "nobody enters an address to delete something"


def test_only_own_pages_change_something(broker, unique):
    own, queue = f"http://127.0.0.1:{broker.admin_port}", f"/v1/tenants/default/queues/{unique()}"
    assert status(broker, origin=own) == 200
    for method, expected in (("PUT", 201), ("PATCH", 200), ("POST", 405), ("DELETE", 204)):
        for others in ({"origin": own.replace("127.0.0.1", "localhost")}, {"origin": own, "sec_fetch_site": "same-site"},
                       {"origin": own, "sec_fetch_site": "none"}, {"origin": own, "host": "localhost"}):
            assert status(broker, method, queue, **others) == 403, others
        assert status(broker, method, queue, origin=own, sec_fetch_site="same-origin") == expected
    assert status(broker, path=queue) == 404


def test_browsers_are_sent_to_the_dashboard(broker):
    for accept, expected in (("text/html,application/xhtml+xml,*/*;q=0.8", 303), ("*/*", 200), ("application/json", 200)):
        assert status(broker, path="/", accept=accept) == expected
    for path, expected in (("/dashboard", 303), ("/dashboard/", 200), ("/dashboard/views/try.js", 200), ("/dashboard/..", 404),
                           ("/dashboard/nothing.js", 404), ("/dashboard/views/", 404), ("/dashboard/views%2Ftry.js", 200)):
        assert status(broker, path=path) == expected, path
    answer = raw(broker, b"GET /dashboard/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for header in (b"content-security-policy: default-src 'none'; script-src 'self';", b"frame-ancestors 'none'", b"trusted-types 'none'",
                   b"x-frame-options: DENY", b"referrer-policy: no-referrer", b"cross-origin-opener-policy: same-origin", b"nosniff"):
        assert header in answer


def test_answers_are_for_programs(broker):
    """What a client has put into a name is no page, no script and no picture, and is not kept."""
    for path in ("/", "/metrics", "/v1/tenants", "/nothing"):
        connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=5)
        connection.request("GET", path)
        headers = connection.getresponse().headers
        assert headers["x-content-type-options"] == "nosniff" and headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store" and "access-control-allow-origin" not in headers
        connection.close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8081"])
def test_it_listens_on_loopback_whatever_else_is_configured(tmp_path, address):
    """Users have passwords; the admin API has none."""
    config = tmp_path / "barid.toml"
    config.write_text(f'{hashed("secret", "acme/ada")}\n[admin]\naddress = "{address}"\n')
    for done in (barid("check-config", config), barid("serve", "--config", config, "--data-dir", tmp_path / "data", environment=QUIET)):
        said = done.stdout + done.stderr
        assert done.returncode == 1 and "has no password" in said and "127.0.0.1" in said and "https" in said, said
    config.write_text(hashed("secret", "acme/ada"))
    flag = barid("serve", "--config", config, "--admin", address, "--data-dir", tmp_path / "data", environment=QUIET)
    assert flag.returncode == 1 and "has no password" in flag.stderr
    assert not (tmp_path / "data").exists()


# ------------------------------------------------------------------------------------------------ what a request is


@pytest.mark.parametrize("fields", [
    "Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 3", "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity", "Content-Length: 3\r\nContent-Length: 4", "Content-Length: +3",
    "Content-Length: 3, 4", "Content-Length: 0x3", "Content-Length: -1", "Content-Length: 99999999999999999999", "A: b\r\n c: d",
    "Content-Length : 3", " A: b", "A\x00: b", "A: b\x00",
])
def test_where_a_request_ends_is_not_a_matter_of_taste(broker, fields):
    """The second request, which a proxy may have taken for a body, is never answered."""
    hidden = b"DELETE /v1/tenants/default/sessions/nobody HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sent = f"PUT /v1/tenants/default/queues/never HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n0\r\n\r\n".encode() + hidden
    found = statuses(raw(broker, sent))
    assert len(found) == 1 and 400 <= found[0] < 500, found
    assert status(broker, path="/v1/tenants/default/queues/never") == 404


def test_requests_in_a_row_are_answered_in_a_row(broker):
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    other = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert statuses(raw(broker, one + other + last, half_close=False)) == [200, 404, 200]
    refused = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert statuses(raw(broker, one + refused + one)) == [200, 403], "a refused one is the last of its connection"


def test_heads_and_bodies_have_a_length(broker):
    long = "x" * 60_000
    assert status(broker, path=f"/v1/tenants/default/state/{long}") == 404, "a key may be as long"
    assert statuses(raw(broker, f"GET /{'x' * 70_000} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))[0] in (414, 431)
    assert statuses(raw(broker, b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 74_000 + b"\r\n\r\n")) == [431]
    assert statuses(raw(broker, b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 2_000_000)) in ([], [431])
    assert statuses(raw(broker, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100 + b"\r\n")) == [431]
    declared = b"PUT /v1/tenants/default/queues/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 262145\r\n\r\n"
    assert statuses(raw(broker, declared, half_close=False)) == [413], "at once, before it comes"
    assert status(broker, "PUT", "/v1/tenants/default/queues/q", b"x" * 262_144) == 400


def test_paths_are_names_and_nothing_else(broker, unique):
    tenant = unique()
    for path in ("/v1/tenants/../tenants", "/v1/tenants/%2e%2e/sessions", "//v1/tenants", "/v1/tenants/%00/sessions",
                 "/v1/tenants/%ff/sessions", f"/v1/tenants/{tenant}/sessions/%2e%2e%2f", "/v1/backup/", "/V1/tenants"):
        assert status(broker, path=path) in (400, 404), path
    for name in ("a%00b", "%ff", "..%2f%2fetc", "a%0d%0ab"):
        assert status(broker, "PUT", f"/v1/tenants/{tenant}/queues/{name}", b"{}") == 400, name
    for name in ("a b", "a%20b", "a%2fb", "%2b", "x" * 65):
        assert status(broker, "PUT", f"/v1/tenants/{name.replace(' ', '%20')}/queues/q", b"{}") in (400, 404), name


def test_it_speaks_plain_http_1_and_nothing_else(broker):
    assert statuses(raw(broker, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) in ([], [400], [505])
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    assert statuses(raw(broker, upgrade)) == [200], "not upgraded"
    for junk in (b"\x16\x03\x01\x02\x00\x01", b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", b"\r\n" * 100, b"\x00" * 100, b"GET /\r\n\r\n"):
        assert all(code >= 400 for code in statuses(raw(broker, junk))), junk
    assert broker.http("/healthz")[0] == 200
