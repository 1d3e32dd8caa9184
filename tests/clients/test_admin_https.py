"""The admin API over TLS, for other machines; and how many requests a token may send."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import time

import pytest

from broker import BINARY, free_port

LOOPBACK = "127.0.0.1"


class Api:
    """Asks one of the addresses of the API."""

    def __init__(self, port: int, authority=None):
        self.port = port
        self.context = authority and ssl.create_default_context(cafile=authority)

    def ask(self, path: str, token: str | None = None, method: str = "GET", body: dict | None = None, host: str = "localhost", **headers):
        """Returns status, headers and JSON of an answer."""
        connect = http.client.HTTPSConnection("localhost", self.port, timeout=10, context=self.context) if self.context else \
            http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)
        try:
            connect.putrequest(method, path, skip_host=True)
            text = json.dumps(body).encode() if body is not None else b""
            given = {"Host": f"{host}:{self.port}", "Content-Length": str(len(text)), **headers}
            if token:
                given["Authorization"] = f"Bearer {token}"
            for name, value in given.items():
                connect.putheader(name.replace("_", "-"), value)
            connect.endheaders(text)
            answer = connect.getresponse()
            return answer.status, answer.headers, json.loads(answer.read() or b"{}")
        finally:
            connect.close()

    def status(self, *arguments, **options) -> int:
        return self.ask(*arguments, **options)[0]


@pytest.fixture
def start(broker_with, certificates):
    """Starts a broker with an address over TLS, and returns it with that address."""
    def start(more: str = ""):
        port = free_port()
        running = broker_with(f'{certificates.toml()}\n[admin]\nhttps = "{LOOPBACK}:{port}"\n{more}\n')
        return running, Api(port, certificates.certificate("ca"))
    return start


def make(broker, role: str = "admin", token: str | None = None) -> str:
    status, _, made = Api(broker.admin_port).ask("/v1/tokens", token, "POST", {"role": role})
    assert status == 201, made
    return made["token"]


def test_every_request_needs_a_token(start):
    running, api = start()
    status, headers, refusal = api.ask("/v1/tenants")
    assert status == 401 and headers["WWW-Authenticate"] == "Bearer" and "barid token create" in refusal["error"]
    assert Api(running.admin_port).status("/v1/tenants") == 200, "on this machine none is needed while there is none"
    token = make(running)
    assert api.status("/v1/tenants", token) == 200 and api.status("/v1/tenants", token + "x") == 401
    assert api.status("/healthz", method="HEAD") == 200
    # What is open on this machine stays closed here.
    running.reload((running.directory / "barid.toml").read_text().replace("[admin]", "[admin]\ntokens = false"))
    assert (Api(running.admin_port).status("/v1/tenants"), api.status("/v1/tenants"), api.status("/v1/tenants", token)) == (200, 401, 200)


def test_nothing_is_answered_without_tls(start):
    _, api = start()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        Api(api.port).ask("/healthz")


def test_host_and_origin(start):
    running, api = start()
    token = make(running)
    asked = lambda host, **headers: api.status("/v1/tenants/default/publish", token, "POST", {"topic": "a"}, host=host, **headers)
    assert (asked("localhost"), asked(LOOPBACK), asked("10.0.0.7"), asked("[2001:db8::7]")) == (200, 200, 200, 200)
    assert (asked("evil.example"), asked("localhost.evil.example")) == (403, 403)
    assert asked("localhost", Origin=f"https://localhost:{api.port}", Sec_Fetch_Site="same-origin") == 200
    for origin in (f"http://localhost:{api.port}", "https://evil.example", "null"):
        assert asked("localhost", Origin=origin) == 403, origin


def test_a_new_certificate_is_used_after_a_reload(start, certificates, tmp_path_factory):
    from certificates import Certificates
    running, api = start()
    other = Certificates(tmp_path_factory.mktemp("other"))
    running.reload(other.toml() + f'\n[admin]\nhttps = "{LOOPBACK}:{api.port}"\n')
    with pytest.raises(ssl.SSLError):
        api.ask("/healthz")
    assert Api(api.port, other.certificate("ca")).status("/healthz", method="HEAD") == 200


def test_the_tools_ask_over_tls(start, certificates, tmp_path):
    running, api = start()
    assert f"https://{LOOPBACK}:{api.port}" in running.stderr
    (tmp_path / "token").write_text(make(running) + "\n")
    ca, stranger = (str(certificates.certificate(name)) for name in ("ca", "stranger"))

    def tenants(address: str, *more: str) -> subprocess.CompletedProcess:
        command = [BINARY, "tenant", "list", "--admin", address, "--token-file", tmp_path / "token", *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    listed = tenants(f"https://localhost:{api.port}", "--admin-ca", ca)
    assert listed.returncode == 0 and listed.stdout.startswith("TENANT"), listed
    for more in ([], ["--admin-ca", stranger]):
        refused = tenants(f"https://localhost:{api.port}", *more)
        assert refused.returncode == 1 and f"cannot reach https://localhost:{api.port}" in refused.stderr, refused
    assert "no certificate" in tenants("https://x", "--admin-ca", str(tmp_path / "token")).stderr


def test_a_configuration_without_certificates_is_refused(tmp_path):
    (tmp_path / "barid.toml").write_text('[admin]\nhttps = "0.0.0.0:8444"\n')
    checked = subprocess.run([BINARY, "check-config", tmp_path / "barid.toml"], capture_output=True, text=True, timeout=30)
    assert checked.returncode != 0 and "has no certificates" in checked.stdout + checked.stderr


def test_a_token_may_send_so_many_requests(broker_with):
    running = broker_with("[admin]\nmax_request_rate = 5\n")
    api = Api(running.admin_port)
    assert all(api.status("/v1/tenants") == 200 for _ in range(30)), "without tokens nobody is limited"
    busy = make(running)
    other = make(running, "viewer", busy)
    begin = time.monotonic()
    answers = [api.ask("/v1/tenants", busy) for _ in range(40)]
    accrued = 5 * (time.monotonic() - begin)
    refused = [(headers["Retry-After"], body["error"]) for status, headers, body in answers if status == 429]
    # One request has made the other token.
    assert 40 - 10 - accrued - 1 <= len(refused) <= 40 - 9, (len(refused), accrued)
    assert all(seconds == "1" and "max_request_rate" in error for seconds, error in refused)
    assert api.status("/v1/tenants", other) == 200
    time.sleep(1.2)
    assert [api.status("/v1/tenants", busy) for _ in range(4)] == [200] * 4
    running.reload("[admin]\nmax_request_rate = 0\n")
    assert all(api.status("/v1/tenants", busy) == 200 for _ in range(30))


def test_guesses_are_few(broker_with):
    running = broker_with("")
    api = Api(running.admin_port)
    token = make(running)
    begin = time.monotonic()
    answers = [api.status("/v1/tenants", f"barid_{number}_x") for number in range(100)]
    assert set(answers) <= {401, 429} and answers.count(401) <= 20 + 10 * (time.monotonic() - begin) + 1
    assert answers.count(401) >= 20
    assert api.status("/v1/tenants", token) == 200, "who has a token is not kept out by others of the same address"
