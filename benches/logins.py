#!/usr/bin/env python3
"""How many clients log in in a second, by back end and by what is remembered? See README.md."""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import hmac
import http.client
import importlib.util
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import servers

SECRET = "WmT9bq0Yx3hJ5dKr7uVnA2cF"
AUTH = "[auth]\nchain = [\"{back_end}\"]\nfresh = {fresh}\n"
LIMITS = "[limits]\ndurability = \"memory\"\n[storage]\nshards = 1\n"
USERS = ("-u", "acme/device-%n")
SCRAM_LOGINS = 1_000


@dataclass
class Kind:
    """Logins that are measured: how the broker is configured, and how the clients connect."""

    name: str
    configuration: str
    # How often the clients have connected before.
    before: int = 0
    secret: str = SECRET
    options: tuple = USERS
    base: str = "anonymous"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=5_000, help="clients that connect, each with a user of its own [5000]")
    parser.add_argument("--only", nargs="+", help="beginnings of the names of what is measured [everything]")
    parser.add_argument("--json", help="file for the results of all rounds")
    parser.add_argument("--service", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.service:
        return serve(int(args.service))
    with tempfile.TemporaryDirectory() as directory:
        kinds, rounds = measure(args, Path(directory))
    if args.json:
        Path(args.json).write_text(json.dumps(rounds, indent=1))
    print("| | logins/s | × anonymous | broker CPU, µs/login |\n| --- | ---: | ---: | ---: |")
    for kind in kinds:
        rates = [one["rate"] for one in rounds[kind.name]]
        cpu = [one["cpu"] for one in rounds[kind.name]]
        ratio = statistics.median(rates) / statistics.median(one["rate"] for one in rounds[kind.base])
        print(f"| {kind.name} | {statistics.median(rates):,.0f} [{min(rates):,.0f}–{max(rates):,.0f}] | {ratio:.2f} "
              f"| {statistics.median(cpu):.0f} [{min(cpu):.0f}–{max(cpu):.0f}] |")
    return 0


def measure(args: argparse.Namespace, directory: Path) -> tuple[list[Kind], dict[str, list[dict]]]:
    back_ends = module("servers")
    mariadb, redis, service = back_ends.MariaDb(), back_ends.Redis(), servers.free_port()
    answering = subprocess.Popen([sys.executable, __file__, "--service", str(service)])
    try:
        hash_ = prints("passwd", "--stdin", "--cost", "device", text=SECRET)
        files = {"mysql.url": mariadb.url, "redis.url": redis.url, "secret": secrets.token_hex(32)}
        for name, text in files.items():
            (directory / name).write_text(text)
        prints("auth", "init-mysql", "--url-file", directory / "mysql.url")
        names = [f"acme/device-{number}" for number in range(args.clients)]
        rows = ",".join(f"('{name}', '{hash_}', 1)" for name in names)
        mariadb.execute(f"INSERT INTO barid_users (name, password_hash, enabled) VALUES {rows};")
        kinds = kinds_of_logins(directory, names, hash_, service)
        wanted = args.only or [""]
        bases = {kind.base for kind in kinds if any(kind.name.startswith(name) for name in wanted)}
        kinds = [kind for kind in kinds if kind.name in bases or any(kind.name.startswith(name) for name in wanted)]
        rounds: dict[str, list[dict]] = {kind.name: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind in kinds:
                if "cold" in kind.name:
                    redis.ask("FLUSHALL")
                with broker(directory, kind) as server:
                    if kind.name.startswith("store"):
                        fill(server.admin, names, hash_)
                    if kind.name.startswith("SCRAM"):
                        rounds[kind.name].append(scram(server, SCRAM_LOGINS))
                        continue
                    for _ in range(kind.before):
                        connect(server, kind, args.clients)
                    rounds[kind.name].append(connect(server, kind, args.clients))
        return kinds, rounds
    finally:
        answering.terminate()
        mariadb.close()
        redis.close()


def kinds_of_logins(directory: Path, names: list[str], hash_: str, service: int) -> list[Kind]:
    users = "".join(f'[[users]]\nname = "{name}"\npassword = "{hash_}"\n' for name in names)
    mysql = f'[auth.mysql.db]\nurl_file = "{directory}/mysql.url"\n'
    cached = mysql + f'[auth.redis.db]\nurl_file = "{directory}/redis.url"\nsecret_file = "{directory}/secret"\nttl = 3600\n'
    jwt = f'[auth.jwt.token]\nsecret_file = "{directory}/secret"\nalgorithms = ["HS256"]\ntenant_claim = "tenant"\n'
    http = f'[auth.http.web]\nshape = "emqx"\nurl = "http://127.0.0.1:{service}/auth"\n'
    scram_user = prints("passwd", "--stdin", "--scram", "--cost", "device", "acme/device-0", text=SECRET)
    authority = module("authority").Authority(directory)
    device = authority.client("device", "/CN=acme\\/device")
    secure = authority.toml(f'client_ca = "{authority.certificate("ca")}"\n') + '[listeners.mqtts]\naddress = "127.0.0.1:{tls}"\n'
    over_tls = ("--cafile", authority.certificate("ca"), "--cert", authority.certificate(device), "--key", authority.key(device))

    def chain(back_end: str, fresh: int = 0) -> str:
        return AUTH.format(back_end=back_end, fresh=fresh)

    return [
        Kind("anonymous", "", 1),
        Kind("file, each password hashed", chain("file") + users),
        Kind("file, remembered", chain("file", 600) + users, 1),
        Kind("store, each password hashed", chain("store")),
        Kind("store, remembered", chain("store", 600), 1),
        Kind("MariaDB, each password hashed", chain("db") + mysql),
        Kind("MariaDB and Redis, both cold", chain("db", 600) + cached),
        Kind("MariaDB and Redis, Redis warm", chain("db", 600) + cached),
        Kind("MariaDB and Redis, remembered", chain("db", 600) + cached, 1),
        Kind("JWT, HS256", chain("token") + jwt, secret=token(directory)),
        Kind("HTTP, each login asked", chain("web") + http),
        Kind("HTTP, remembered", chain("web", 600) + http + "remember = true\n", 1),
        Kind("anonymous over TLS", secure, 1, options=over_tls, base="anonymous over TLS"),
        Kind("certificate over TLS", chain("own") + "[auth.certificate.own]\n" + secure, 1, options=over_tls, base="anonymous over TLS"),
        Kind("SCRAM-SHA-256, one client after the other", chain("file") + scram_user + "\n"),
    ]


def token(directory: Path) -> str:
    """A token for all users of the tenant."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"tenant": "acme", "exp": int(time.time()) + 36_000}
    signed = part(b'{"alg":"HS256","typ":"JWT"}') + "." + part(json.dumps(claims).encode())
    return signed + "." + part(hmac.digest((directory / "secret").read_bytes(), signed.encode(), "sha256"))


def serve(port: int) -> int:
    """The service that is asked over HTTP. It lets everybody in."""
    import asyncio

    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n" + b'{"result":"allow"}'

    class Connection(asyncio.Protocol):
        def connection_made(self, transport) -> None:
            self.transport, self.rest = transport, b""

        def data_received(self, data: bytes) -> None:
            self.rest += data
            while True:
                head, end, after = self.rest.partition(b"\r\n\r\n")
                if not end:
                    return
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                if len(after) < length:
                    return
                self.rest = after[length:]
                self.transport.write(answer)

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(run())
    return 0


def fill(admin: int, names: list[str], hash_: str) -> None:
    """Adds users to the broker's own store."""
    body = json.dumps({"password_hash": hash_})

    def put(some: list[str]) -> None:
        connection = None
        for number, name in enumerate(some):
            # The admin address closes a connection after a minute.
            if number % 100 == 0:
                connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=30)
            connection.request("PUT", f"/v1/users/{name}", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            if answer.read() and answer.status >= 300:
                raise servers.Failed(f"{name}: {answer.status}")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, [names[start::16] for start in range(16)]))


def scram(server: servers.Server, logins: int) -> dict:
    """Lets one client log in again and again with SCRAM-SHA-256. It costs more than the broker, so only CPU time counts."""
    before, began = server.cpu_seconds(), time.monotonic()
    for _ in range(logins):
        scram_login(server.port)
    took = time.monotonic() - began
    return {"rate": logins / took, "cpu": (server.cpu_seconds() - before) / logins * 1e6}


def scram_login(port: int) -> None:
    def text(value: bytes) -> bytes:
        return len(value).to_bytes(2, "big") + value

    def properties(data: bytes) -> bytes:
        block = b"\x15" + text(b"SCRAM-SHA-256") + b"\x16" + text(data)
        return len(block).to_bytes(1, "big") + block

    def exchange(stream: socket.socket, first: int, body: bytes) -> bytes:
        stream.sendall(bytes([first]) + len(body).to_bytes(1, "big") + body if len(body) < 128 else
                       bytes([first, len(body) % 128 | 128, len(body) // 128]) + body)
        return stream.recv(4096)

    bare = b"n=acme/device-0,r=" + base64.b64encode(os.urandom(12))
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connect = text(b"MQTT") + b"\x05\x02\x00\x00" + properties(b"n,," + bare) + text(b"scram")
        challenge = exchange(stream, 0x10, connect)
        challenge = challenge[challenge.index(b"r="):]
        nonce, salt, count = challenge.split(b",")
        salted = hashlib.pbkdf2_hmac("sha256", SECRET.encode(), base64.b64decode(salt[2:]), int(count[2:]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        final = b"c=biws," + nonce
        signature = hmac.digest(hashlib.sha256(key).digest(), bare + b"," + challenge + b"," + final, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signature))
        answer = exchange(stream, 0xF0, b"\x18" + properties(final + b",p=" + base64.b64encode(proof)))
        if answer[0] != 0x20 or answer[3 + (answer[1] >> 7)] != 0:
            raise servers.Failed(f"SCRAM: {answer!r}")


def module(name: str):
    """Returns a module of the tests, which starts database servers or issues certificates."""
    os.environ["BARID_BIN"] = str(servers.BARID)
    sys.path.insert(0, str(servers.ROOT / "tests"))
    place = servers.ROOT / "tests" / "auth" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"auth_{name}", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def broker(directory: Path, kind: Kind):
    """A broker with the configuration of the kind."""
    port, admin, tls, file = servers.free_port(), servers.free_port(), servers.free_port(), directory / "barid.toml"
    with tempfile.TemporaryDirectory() as data:
        off = ["--ws", "off", "--amqp", "off", "--admin", f"127.0.0.1:{admin}", "--data-dir", data]
        file.write_text(kind.configuration.replace("{tls}", str(tls)) + LIMITS)
        command = [servers.BARID, "serve", "--config", file, "--mqtt", f"127.0.0.1:{port}", *off]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            server = servers.Server("127.0.0.1", port, process.pid)
            server.admin, server.tls = admin, tls
            for _ in range(200):
                if server.is_open():
                    break
                time.sleep(0.05)
            # The connection to Redis is opened in the background.
            time.sleep(0.5)
            yield server
        finally:
            process.terminate()
            process.wait()


def connect(server: servers.Server, kind: Kind, clients: int) -> dict:
    """Lets all clients connect: how many did in a second, and the CPU time of the broker for each, in µs."""
    port = server.tls if "--cafile" in kind.options else server.port
    command = ["bench", "connections", "-n", clients, "-d", "100ms", "--json", "-p", port, "--pid", server.pid, *kind.options]
    result = json.loads(prints(*command, secret=kind.secret))
    return {"rate": result["connections_per_s"], "cpu": result["broker_cpu_us_per_connection"]}


def prints(*words, text: str = "", secret: str | None = None) -> str:
    environment = os.environ | ({"BARID_PASSWORD": secret} if secret else {})
    words = [str(word) for word in (servers.BARID, *words)]
    done = subprocess.run(words, input=text, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise servers.Failed(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
