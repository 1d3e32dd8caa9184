"""Back ends of every kind, each with the user acme/ada who may publish to up/# and not to down/#, ten messages a second."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import wire
from answers import hashed
from authority import Secure
from broker import BINARY, Broker
from tokens import KEY, encoded, token

ADA = "acme/ada"
RIGHTS = {"publish": ["up/#"], "limits": {"publish_rate": 10}}


class Source:
    """A back end. `name` stands in the chain; `right` and `wrong` are passwords of acme/ada."""

    name, right, wrong = "main", "secret", "wrong"
    can_tell_unknown = True
    """Whether a user whom the back end does not know differs from one with a wrong password."""
    has_limits = True
    """Whether it can tell limits of a user."""
    asks_a_server, asks_about_everybody = False, True
    """Whether it may be unable to tell; and whether it is then about all names."""

    def __init__(self, fixture, directory: Path):
        self.directory = directory

    def toml(self) -> str:
        """Returns what follows `chain = […]` in [auth]."""
        return ""

    def start(self, broker_with, config: str) -> None:
        self.running = broker_with(config)

    def log_in(self, user: str, password: str, version: int) -> wire.Client:
        client = wire.Client(self.running.address, version)
        client.connect(user.encode().hex()[-20:], username=user, password=password.encode())
        return client

    def fail(self) -> None:
        raise NotImplementedError

    def recover(self) -> None:
        raise NotImplementedError


class File(Source):
    name = "file"

    def toml(self) -> str:
        return f'[[users]]\nname = "{ADA}"\npassword = "{hashed(self.right)}"\npublish = ["up/#"]\nlimits = {{ publish_rate = 10 }}\n'


def add_to_store(running: Broker, user: str, password: str, *rules: str) -> None:
    command = [BINARY, "user", "add", user, "--password-file", "-", "--cost", "device", *rules]
    command += ["--admin", f"127.0.0.1:{running.admin_port}"]
    subprocess.run(list(map(str, command)), input=password, text=True, check=True, capture_output=True)


class Stored(Source):
    name = "store"

    def start(self, broker_with, config: str) -> None:
        super().start(broker_with, config)
        add_to_store(self.running, ADA, self.right, "--allow", "publish:up/#", "--limit", "publish_rate=10")


class Database(Source):
    asks_a_server = True
    fixture = "settings"

    def __init__(self, fixture, directory: Path):
        super().__init__(fixture, directory)
        self.settings = fixture(self.fixture)
        self.settings.users.add(ADA, self.right, RIGHTS)

    def toml(self) -> str:
        return self.settings.toml().split('chain = ["main"]')[1]

    def fail(self) -> None:
        self.settings.users.server.kill()

    def recover(self) -> None:
        self.settings.users.server.start()


class DatabaseBehindRedis(Database):
    fixture = "cached_settings"


class Service:
    """A service on loopback that answers with a status and JSON."""

    def __init__(self, answer):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def do_GET(self):
                self.reply({})

            def reply(self, asked: dict) -> None:
                status, body = (503, {}) if service.is_broken else answer(urlsplit(self.path).path, asked)
                sent = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_) -> None:
                pass

        service, self.is_broken = self, False
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Emqx(Source):
    asks_a_server, has_limits = True, False

    def __init__(self, fixture, directory: Path):
        super().__init__(fixture, directory)
        self.service = Service(self.answer)

    def answer(self, path: str, asked: dict) -> tuple[int, dict]:
        if asked["username"] != ADA:
            return 200, {"result": "ignore"}
        if asked["password"] != self.right:
            return 200, {"result": "deny"}
        rules = [{"permission": "allow", "action": "publish", "topic": "up/#"}, {"permission": "deny", "action": "all", "topic": "#"}]
        return 200, {"result": "allow", "acl": rules}

    def toml(self) -> str:
        return f'[auth.http.main]\nshape = "emqx"\nurl = "{self.service.url}/auth"\n'

    def fail(self) -> None:
        self.service.is_broken = True

    def recover(self) -> None:
        self.service.is_broken = False


class GoAuth(Emqx):
    can_tell_unknown, has_limits = False, True

    def answer(self, path: str, asked: dict) -> tuple[int, dict]:
        is_right = (asked["username"], asked["password"]) == (ADA, self.right)
        return 200, {"ok": is_right, "rights": RIGHTS} if is_right else {"ok": False}

    def toml(self) -> str:
        return (f'[auth.http.main]\nshape = "mosquitto-go-auth"\nurl = "{self.service.url}"\nuser_uri = "/user"\n'
                'response_mode = "json"\n')


class Token(Source):
    def __init__(self, fixture, directory: Path):
        super().__init__(fixture, directory)
        (directory / "key").write_text(KEY)
        self.right = token("ada", 600, barid=RIGHTS).decode()
        self.wrong = token("ada", 600, "another secret, which is as long", barid=RIGHTS).decode()

    def toml(self) -> str:
        return f'[auth.jwt.main]\nsecret_file = "{self.directory}/key"\nalgorithms = ["HS256"]\ntenant_claim = "tenant"\n'


class TokenOfIssuer(Source):
    """The keys are at a URL. A password that is no token is nothing that they could tell about."""

    asks_a_server, asks_about_everybody = True, False

    def __init__(self, fixture, directory: Path):
        super().__init__(fixture, directory)
        self.right, self.wrong = self._signed("own"), self._signed("other")
        self.service = Service(lambda path, asked: (200, {"keys": [self.key]}))

    def _signed(self, name: str) -> str:
        file = self.directory / f"{name}.pem"
        subprocess.run(["openssl", "genrsa", "-out", file, "2048"], check=True, capture_output=True)
        if name == "own":
            modulus = subprocess.run(["openssl", "rsa", "-in", file, "-noout", "-modulus"], check=True, capture_output=True, text=True)
            number = base64.b16decode(modulus.stdout.strip().split("=")[1])
            self.key = {"kty": "RSA", "alg": "RS256", "kid": "1", "n": encoded(number).decode(), "e": "AQAB"}
        claims = {"sub": "ada", "exp": int(time.time()) + 600, "barid": RIGHTS}
        text = b".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", file], input=text, check=True, capture_output=True)
        return (text + b"." + encoded(signature.stdout)).decode()

    def toml(self) -> str:
        return f'[auth.jwt.main]\njwks_url = "{self.service.url}/keys"\nalgorithms = ["RS256"]\ntenant = "acme"\n'

    def fail(self) -> None:
        """Keys that were read once stay in use, so the broker starts again without them."""
        self.service.is_broken = True
        self.running.restart()

    def recover(self) -> None:
        self.service.is_broken = False


class Certificate(Source):
    """`right` and `wrong` are files of certificates; other passwords are sent without a certificate."""

    right, wrong, has_limits = "ada", "bob", False

    def __init__(self, fixture, directory: Path):
        super().__init__(fixture, directory)
        self.authority = fixture("authority")
        for name in (self.right, self.wrong):
            self.authority.client(name, f"/CN=acme\\/{name}")

    def toml(self) -> str:
        return '[auth.certificate.main]\n[tenants.acme]\nrules = [{ allow = "publish", topics = ["up/#"] }]\n'

    def start(self, broker_with, config: str) -> None:
        self.secure = Secure(broker_with, self.authority, config)
        self.running = self.secure.broker

    def log_in(self, user: str, password: str, version: int) -> wire.Client:
        file = password if password in (self.right, self.wrong) else None
        return self.secure.log_in(file, user, password.encode(), version, client_id=user.encode().hex()[-20:])


ALL = {"file": File, "store": Stored, "mysql": Database, "mysql behind redis": DatabaseBehindRedis, "http emqx": Emqx,
       "http mosquitto-go-auth": GoAuth, "jwt": Token, "jwks": TokenOfIssuer, "certificate": Certificate}
