#!/usr/bin/env python3
"""How many clients log in in a second, by back end and by what is remembered? See README.md."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import servers

SECRET = "WmT9bq0Yx3hJ5dKr7uVnA2cF"
AUTH = "[auth]\nchain = [\"{back_end}\"]\nfresh = {fresh}\n"
LIMITS = "[limits]\ndurability = \"memory\"\n[storage]\nshards = 1\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=5_000, help="clients that connect, each with a user of its own [5000]")
    parser.add_argument("--json", help="file for the results of all rounds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rounds = measure(args, Path(directory))
    if args.json:
        Path(args.json).write_text(json.dumps(rounds, indent=1))
    base = statistics.median(rounds["anonymous"])
    print(f"{'logins':40} {'per second':>12} {'x anonymous':>12}")
    for kind, rates in rounds.items():
        middle = statistics.median(rates)
        print(f"{kind:40} {middle:12,.0f} {middle / base:12.2f}   [{min(rates):,.0f} to {max(rates):,.0f}]")
    return 0


def measure(args: argparse.Namespace, directory: Path) -> dict[str, list[float]]:
    back_ends = databases()
    mariadb, redis = back_ends.MariaDb(), back_ends.Redis()
    try:
        hash_ = prints("passwd", "--stdin", "--cost", "device", text=SECRET)
        files = {"mysql.url": mariadb.url, "redis.url": redis.url, "secret": secrets.token_hex(32)}
        for name, text in files.items():
            (directory / name).write_text(text)
        prints("auth", "init-mysql", "--url-file", directory / "mysql.url")
        names = [f"acme/device-{number}" for number in range(args.clients)]
        rows = ",".join(f"('{name}', '{hash_}', 1)" for name in names)
        mariadb.execute(f"INSERT INTO barid_users (name, password_hash, enabled) VALUES {rows};")
        users = "".join(f'[[users]]\nname = "{name}"\npassword = "{hash_}"\n' for name in names)
        mysql = f'[auth.mysql.db]\nurl_file = "{directory}/mysql.url"\n'
        cache = f'[auth.redis.db]\nurl_file = "{directory}/redis.url"\nsecret_file = "{directory}/secret"\nttl = 3600\n'
        # name, configuration, how often the clients have connected before
        kinds = [
            ("anonymous", "", 1),
            ("file, each password hashed", AUTH.format(back_end="file", fresh=0) + users, 0),
            ("file, remembered", AUTH.format(back_end="file", fresh=600) + users, 1),
            ("MariaDB, each password hashed", AUTH.format(back_end="db", fresh=0) + mysql, 0),
            ("MariaDB and Redis, both cold", AUTH.format(back_end="db", fresh=600) + mysql + cache, 0),
            ("MariaDB and Redis, Redis warm", AUTH.format(back_end="db", fresh=600) + mysql + cache, 0),
            ("MariaDB and Redis, remembered", AUTH.format(back_end="db", fresh=600) + mysql + cache, 1),
        ]
        rounds: dict[str, list[float]] = {kind: [] for kind, _, _ in kinds}
        for _ in range(args.rounds):
            for kind, configuration, before in kinds:
                if "cold" in kind:
                    redis.ask("FLUSHALL")
                with broker(directory, configuration) as (port, pid):
                    for _ in range(before):
                        connect(port, pid, args.clients)
                    rounds[kind].append(connect(port, pid, args.clients))
        return rounds
    finally:
        mariadb.close()
        redis.close()


def databases():
    """Returns the module that starts database servers for the tests."""
    os.environ["BARID_BIN"] = str(servers.BARID)
    sys.path.insert(0, str(servers.ROOT / "tests"))
    place = servers.ROOT / "tests" / "auth" / "servers.py"
    spec = importlib.util.spec_from_file_location("database_servers", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def broker(directory: Path, configuration: str):
    """A broker with this configuration: its port and its process id."""
    port, file = servers.free_port(), directory / "barid.toml"
    with tempfile.TemporaryDirectory() as data:
        off = ["--ws", "off", "--amqp", "off", "--admin", f"127.0.0.1:{servers.free_port()}", "--data-dir", data]
        file.write_text(configuration + LIMITS)
        command = [servers.BARID, "serve", "--config", file, "--mqtt", f"127.0.0.1:{port}", *off]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            server = servers.Server("127.0.0.1", port, process.pid)
            for _ in range(200):
                if server.is_open():
                    break
                time.sleep(0.05)
            # The connection to Redis is opened in the background.
            time.sleep(0.5)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait()


def connect(port: int, pid: int, clients: int) -> float:
    """Lets all clients connect, and returns how many did in a second."""
    command = [servers.BARID, "bench", "connections", "-n", clients, "-d", "100ms", "--json", "-p", port, "--pid", pid,
               "-u", "acme/device-%n"]
    return json.loads(prints(*command[1:], secret=SECRET))["connections_per_s"]


def prints(*words, text: str = "", secret: str | None = None) -> str:
    environment = os.environ | ({"BARID_PASSWORD": secret} if secret else {})
    words = [str(word) for word in (servers.BARID, *words)]
    done = subprocess.run(words, input=text, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise servers.Failed(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
