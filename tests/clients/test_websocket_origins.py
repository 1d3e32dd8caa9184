"""Pages of browsers: a browser opens a WebSocket to any address for any page, also to one that only its own machine reaches."""

import socket

import pytest

from broker import until

pytestmark = pytest.mark.one_broker

UPGRADE = ("GET /mqtt HTTP/1.1\r\nHost: {host}\r\n{more}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n")


def status(broker, origin: str | None, host: str = "127.0.0.1:{port}") -> int:
    """What an upgrade request is answered with. `{port}` is that of the listener."""
    with socket.create_connection(("127.0.0.1", broker.ws_port), 10) as stream:
        more = "" if origin is None else f"Origin: {origin.format(port=broker.ws_port)}\r\n"
        stream.sendall(UPGRADE.format(host=host.format(port=broker.ws_port), more=more).encode())
        answer = b""
        while b"\r\n" not in answer:
            answer += stream.recv(4096)
        return int(answer.split()[1])


@pytest.mark.parametrize("origin, host", [
    (None, "127.0.0.1:{port}"),
    (None, "broker.example:{port}"),
    ("http://127.0.0.1:{port}", "127.0.0.1:{port}"),
    ("http://localhost:{port}", "localhost:{port}"),
    ("http://LOCALHOST:{port}", "localhost:{port}"),
    ("http://[::1]:{port}", "[::1]:{port}"),
], ids=["no-browser", "no-browser-other-host", "same-address", "same-name", "same-name-in-capitals", "same-IPv6"])
def test_clients_and_own_pages_connect(ours, origin, host):
    assert status(ours, origin, host) == 101


@pytest.mark.parametrize("origin, host", [
    ("http://evil.example", "127.0.0.1:{port}"),
    ("https://127.0.0.1:{port}", "127.0.0.1:{port}"),
    ("http://127.0.0.1:1", "127.0.0.1:{port}"),
    ("http://localhost:{port}", "127.0.0.1:{port}"),
    ("http://rebound.example:{port}", "rebound.example:{port}"),
    ("null", "127.0.0.1:{port}"),
    ("http://127.0.0.1:{port}.evil.example", "127.0.0.1:{port}"),
    ("", "127.0.0.1:{port}"),
], ids=["foreign", "other-scheme", "other-port", "other-name", "rebound-name", "null", "longer", "empty"])
def test_pages_of_others_do_not(ours, origin, host):
    assert status(ours, origin, host) == 403


def test_the_listener_names_those_that_may(broker_with):
    listed = broker_with("""
        [listeners.ws]
        address = "127.0.0.1:8083"
        origins = ["https://app.example"]
    """)
    assert status(listed, "https://app.example") == 101
    assert status(listed, "https://app.example:8443") == 403
    assert status(listed, "http://app.example") == 403
    every = broker_with("""
        [listeners.ws]
        address = "127.0.0.1:8083"
        origins = ["*"]
    """)
    assert status(every, "http://evil.example") == 101


def test_a_page_that_is_refused_is_seen(broker_with):
    """A browser tells the page nothing, so the log has to."""
    running = broker_with("")
    assert status(running, "http://evil.example") == 403
    until(lambda: "http://evil.example" in running.stderr)
    assert "origins" in running.stderr
    assert running.metric('^barid_denied_total{tenant="default",action="login"}') == 1
