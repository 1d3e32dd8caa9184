"""Fixtures: database servers for the whole session, as if they were new for each test, and brokers that ask them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import wire
from answers import hashed
from authority import Authority, Secure
from broker import BINARY, Broker
from servers import MariaDb, Redis, quoted

# A secret that the brokers of a test share.
SECRET = "0123456789abcdef0123456789abcdef"


HASHES: dict[str, str] = {}


def hash_of(password: str) -> str:
    return HASHES.setdefault(password, hashed(password))


@pytest.fixture(scope="session")
def mariadb_server():
    server = MariaDb()
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis_server():
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def mariadb(mariadb_server, tmp_path) -> Users:
    """MariaDB with an empty table of users."""
    if not mariadb_server.running():
        mariadb_server.start()
    mariadb_server.resume()
    users = Users(mariadb_server, tmp_path / "mysql.url")
    users.execute("DROP TABLE IF EXISTS barid_users;")
    users.init()
    return users


@pytest.fixture
def redis(redis_server) -> Redis:
    """Redis without any key."""
    if not redis_server.running():
        redis_server.start()
    redis_server.resume()
    redis_server.ask("FLUSHALL")
    return redis_server


class Users:
    """The users in the default schema of a database."""

    def __init__(self, server: MariaDb, url_file: Path):
        self.server, self.url_file = server, url_file
        url_file.write_text(server.url + "\n")
        self.execute = server.execute

    def init(self) -> str:
        words = [BINARY, "auth", "init-mysql", "--url-file", self.url_file]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def add(self, name: str, password: str = "secret", rights: dict | str | None = None) -> None:
        text = rights if isinstance(rights, str) else json.dumps(rights)
        self.execute(f"INSERT INTO barid_users (name, password_hash, rights) VALUES ({quoted(name)}, "
                     f"'{hash_of(password)}', {'NULL' if rights is None else quoted(text)});")

    def set(self, name: str, column: str, value: str) -> None:
        self.execute(f"UPDATE barid_users SET {column} = {value} WHERE name = {quoted(name)};")

    def look_ups(self) -> int:
        """Returns the number of prepared statements that were executed in the database since its start."""
        return int(self.execute("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute';").split()[1])


class Settings:
    """The configuration of a broker with users in a database. Logins are remembered by the broker itself for `remembered`
    seconds, and for `grace` seconds longer while the database does not answer.
    """

    def __init__(self, users: Users, redis: Redis | None, directory: Path):
        self.users, self.redis, self.directory = users, redis, directory

    def toml(self, mysql: str = "", redis: str = "", more: str = "", remembered: int = 0, grace: int = 0,
             secret: str = SECRET) -> str:
        """`mysql`, `redis` and `more` are further settings of the back end, of its cache and of the broker."""
        text = f"""
            [auth]
            chain = ["main"]
            fresh = {remembered}
            grace = {grace}
            [auth.mysql.main]
            url_file = "{self.users.url_file}"
            {mysql}
        """
        if self.redis:
            (self.directory / "redis.url").write_text(self.redis.url)
            file = self.directory / f"secret-{abs(hash(secret))}"
            file.write_text(secret)
            text += f"""
            [auth.redis.main]
            url_file = "{self.directory}/redis.url"
            secret_file = "{file}"
            {redis}
            """
        return text + more


@pytest.fixture
def settings(mariadb, tmp_path) -> Settings:
    """The configuration with a database alone."""
    return Settings(mariadb, None, tmp_path)


@pytest.fixture
def cached_settings(mariadb, redis, tmp_path) -> Settings:
    """The configuration with a database and a shared cache."""
    return Settings(mariadb, redis, tmp_path)


@pytest.fixture
def login(dial):
    """Logs in, and returns the client. Its `connack` says whether it was let in."""

    def login_(to: Broker, user: str | None, password: str | bytes = "secret", version: int = wire.V5, client_id: str = "",
               timeout: float = wire.SECONDS, **options) -> wire.Client:
        client = dial(version, to, timeout)
        secret = password if isinstance(password, bytes) else password.encode()
        client.connect(client_id or (user or "")[-10:].encode().hex(), username=user, password=secret, **options)
        return client

    return login_


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secure(broker_with, authority):
    return lambda config, tls="": Secure(broker_with, authority, config, tls)
