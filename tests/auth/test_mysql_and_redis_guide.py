"""docs/operating/authentication/mysql-and-redis.md: its commands do what it says, in the order of the page."""

from __future__ import annotations

import os

import pytest

from broker import BINARY, Broker
from guide import Page, run
from servers import MariaDb, Redis

PAGE = Page("operating/authentication/mysql-and-redis.md")


@pytest.fixture
def servers():
    started = [MariaDb(), Redis()]
    yield started
    for server in started:
        server.close()


def test_a_thousand_tenants(servers, tmp_path):
    mariadb, redis = servers
    mariadb.execute("DROP USER barid@'127.0.0.1';")
    (tmp_path / "bin").mkdir()
    client = tmp_path / "bin/mariadb"
    client.write_text(f'#!/bin/sh\nexec {mariadb.client()} "$@"\n')
    client.chmod(0o755)
    barid = f'exec {BINARY} "$@"'

    def block(what: str) -> str:
        [text] = PAGE.marked(what)
        return text.replace(":3306/", f":{mariadb.port}/").replace(":6379/", f":{redis.port}/")

    for name in ("tenants.py", "barid.toml"):
        (tmp_path / name).write_text(block(name))
    run(block("database"), tmp_path, barid)
    run(block("files"), tmp_path, barid)
    assert oct((tmp_path / "redis.secret").stat().st_mode & 0o777) == "0o600"
    assert run(block("tenants"), tmp_path, barid) == block("prints")
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        running = Broker((tmp_path / "barid.toml").read_text())
    finally:
        os.chdir(here)
    try:
        connected = f'words=("$1"); shift\nexec {BINARY} "${{words[@]}}" -p {running.port} "$@"'
        assert run(block("login"), tmp_path, connected) == "not let in\n"
        run(block("disable").splitlines()[0], tmp_path, connected)
        assert run("\n".join(block("disable").splitlines()[1:]), tmp_path, connected) == "disabled\n"
        assert redis.ask("EXISTS", "barid:user:tenant-0007/sensor") == 1
    finally:
        running.end()
