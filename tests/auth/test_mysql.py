"""Users in MariaDB: who is let in, and what happens when the database is away, hangs or lies."""

from __future__ import annotations

import socket
import subprocess
import threading
import time

import pytest

import wire
from broker import BINARY, until
from certificates import Certificates
from answers import ACCEPTED, DENIED, UNAVAILABLE, hashed
from servers import MariaDb, quoted

pytestmark = pytest.mark.parametrize("version", [wire.V311, wire.V5], ids=["v3.1.1", "v5"])

CHANGES = "changes = {}"


@pytest.fixture
def guarded(settings, broker_with):
    return broker_with(settings.toml())


def test_right_and_wrong_passwords(guarded, mariadb, login, version):
    mariadb.add("acme/ada")
    assert login(guarded, "acme/ada", version=version).connack.reason == ACCEPTED
    for user, password in [("acme/ada", "wrong"), ("acme/ada", ""), ("acme/bob", "secret"), ("globex/ada", "secret"), ("ada", "secret")]:
        assert login(guarded, user, password, version).connack.reason == DENIED[version], user
    mariadb.set("acme/ada", "password_hash", f"'{hashed('new')}'")
    assert login(guarded, "acme/ada", "new", version).connack.reason == ACCEPTED
    assert login(guarded, "acme/ada", "secret", version).connack.reason == DENIED[version]
    mariadb.set("acme/ada", "enabled", "0")
    assert login(guarded, "acme/ada", "new", version).connack.reason == DENIED[version]
    mariadb.set("acme/ada", "password_hash = NULL, enabled", "1")
    assert login(guarded, "acme/ada", "new", version).connack.reason == DENIED[version]


SQL = ["acme/' OR '1'='1", "acme/ada' -- ", "acme/x'; DROP TABLE barid_users; -- ", "acme/x\\", 'acme/"', "acme/%", "acme/_da", "acme/`ada`",
       "acme/ada/*", "acme/?", "acme/0x61", "acme/é𝄞☃", "acme/\u200b", "acme/x" + "y" * 400]


@pytest.mark.parametrize("name", SQL, ids=range(len(SQL)))
def test_names_that_look_like_sql_are_names(guarded, mariadb, login, version, name):
    mariadb.add("acme/ada")
    assert login(guarded, name, version=version).connack.reason == DENIED[version]
    mariadb.add(name, "own")
    assert login(guarded, name, "own", version).connack.reason == ACCEPTED
    assert login(guarded, name, "secret", version).connack.reason == DENIED[version]
    assert login(guarded, "acme/ada", version=version).connack.reason == ACCEPTED


def test_names_are_compared_byte_by_byte(settings, broker_with, mariadb, login, version):
    """Also when the database takes them for the same."""
    mariadb.execute("CREATE OR REPLACE TABLE people (org VARCHAR(64), login VARCHAR(64), pw TEXT) COLLATE utf8mb4_general_ci;")
    mariadb.add("acme/jürgen")
    mariadb.execute("INSERT INTO people SELECT 'acme', 'jürgen', password_hash FROM barid_users;")
    query = ("SELECT CONCAT(org, '/', login) AS name, pw AS password_hash FROM people WHERE org = ? AND login = ?")
    running = broker_with(settings.toml(f'query = "{query}"\nparameters = ["tenant", "client"]'))
    assert login(running, "acme/jürgen", version=version).connack.reason == ACCEPTED
    for other in ("acme/JÜRGEN", "acme/jurgen", "acme/jürgen ", "ACME/jürgen"):
        assert login(running, other, version=version).connack.reason == DENIED[version], other
    mariadb.execute("INSERT INTO people SELECT 'acme', 'JÜRGEN', pw FROM people;")
    assert login(running, "acme/jürgen", version=version).connack.reason == UNAVAILABLE[version]
    until(lambda: "more than one row" in running.stderr)


def test_rights_come_from_the_database(guarded, mariadb, login, version):
    mariadb.add("acme/ada", rights={"publish": ["up/%c/#"], "subscribe": ["down/#"]})
    mariadb.add("acme/all")
    ada, everything = login(guarded, "acme/ada", client_id="ada", version=version), login(guarded, "acme/all", version=version)
    everything.subscribe("#")
    assert ada.subscribe("down/x", "up/ada/x").reasons == [0, 0x87 if version == wire.V5 else 0x80]
    ada.publish("up/ada/x", b"allowed", 1)
    ada.publish("up/bob/x", b"denied", 1)
    everything.receive(b"allowed")
    everything.expect_nothing()


@pytest.mark.parametrize("rights", ["[]", '{"publsh": []}', '{"publish": ["a/#/b"]}', '{"rules": [{"allow": "fly"}]}', '"all"'],
                         ids=["list", "misspelt", "no filter", "no action", "text"])
def test_invalid_rights_let_nobody_in(guarded, mariadb, login, version, rights):
    mariadb.add("acme/ada", rights=rights)
    mariadb.add("acme/bob")
    assert login(guarded, "acme/ada", version=version).connack.reason == UNAVAILABLE[version]
    until(lambda: "`rights`" in guarded.stderr and "`main`" in guarded.stderr)
    assert login(guarded, "acme/bob", version=version).connack.reason == ACCEPTED


def test_killed(settings, broker_with, mariadb, login, version):
    mariadb.add("acme/ada")
    mariadb.add("acme/bob")
    running = broker_with(settings.toml(remembered=1, grace=600))
    ada = login(running, "acme/ada", version=version)
    mariadb.server.kill()
    time.sleep(1.2)
    began = time.monotonic()
    assert login(running, "acme/ada", client_id="again", version=version).connack.reason == ACCEPTED, "in its grace"
    assert login(running, "acme/ada", "wrong", version).connack.reason == UNAVAILABLE[version]
    assert login(running, "acme/bob", version=version).connack.reason == UNAVAILABLE[version]
    assert login(running, "acme/eve", version=version).connack.reason == UNAVAILABLE[version], "it may be a user"
    assert time.monotonic() - began < 10
    ada.ping()
    until(lambda: "mysql back end `main`" in running.stderr)
    assert "pass:w" not in running.stderr and "pass%3A" not in running.stderr
    mariadb.server.start()
    until(lambda: login(running, "acme/bob", version=version).connack.reason == ACCEPTED)
    assert login(running, "acme/eve", version=version).connack.reason == DENIED[version]
    assert running.metric(r'^barid_logins_total\{.*backend="main".*unavailable') >= 2


def test_restarted_between_two_logins(guarded, mariadb, login, version):
    """Connections that were open are replaced, and nobody notices."""
    mariadb.add("acme/ada")
    assert login(guarded, "acme/ada", version=version).connack.reason == ACCEPTED
    mariadb.server.restart()
    assert login(guarded, "acme/ada", version=version).connack.reason == ACCEPTED


def test_a_database_that_hangs_delays_nobody_else(settings, broker_with, mariadb, login, dial, version):
    mariadb.add("acme/ada")
    file_user = hashed("secret", "globex/eve")
    running = broker_with(settings.toml(more=f'\n[tenants.globex]\nauth = ["file"]\n{file_user}'))
    assert login(running, "acme/ada", version=version).connack.reason == ACCEPTED
    assert login(running, "globex/eve", version=version).connack.reason == ACCEPTED
    mariadb.server.pause()
    try:
        waiting = [dial(version, running) for _ in range(50)]
        for number, client in enumerate(waiting):
            client.send(wire.connect(f"w{number}", version=version, username="acme/ada", password=b"secret"))
        slowest = 0.0
        for number in range(20):
            began = time.monotonic()
            assert login(running, "globex/eve", client_id=f"e{number}", version=version).connack.reason == ACCEPTED
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.1
        for client in waiting:
            assert client.expect(wire.CONNACK).reason == UNAVAILABLE[version]
    finally:
        mariadb.server.resume()
    until(lambda: login(running, "acme/ada", version=version).connack.reason == ACCEPTED)


def test_the_broker_starts_without_its_database(settings, broker_with, mariadb, login, version):
    mariadb.add("acme/ada")
    mariadb.server.kill()
    running = broker_with(settings.toml())
    assert login(running, "acme/ada", version=version).connack.reason == UNAVAILABLE[version]
    mariadb.server.start()
    until(lambda: login(running, "acme/ada", version=version).connack.reason == ACCEPTED)


class Liar:
    """A server that sends the same bytes to everybody, and reads nothing."""

    def __init__(self, sent: bytes):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open: list[socket.socket] = []
        threading.Thread(target=self._serve, args=[sent], daemon=True).start()

    def _serve(self, sent: bytes) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
                self.open.append(connection)
                connection.sendall(sent)
            except OSError:
                if self.listener.fileno() < 0:
                    return

    def close(self) -> None:
        self.listener.close()
        for connection in self.open:
            connection.close()


LIES = [b"", b"\x01\0\0\0\x0a", b"220 mail.example ESMTP\r\n", b"\xff\xff\xff\0" + bytes(1000), b"\0\0\0\0", b"\x03\0\0\0\xff\x10\x04",
        b"\x09\0\0\0\x0a8.0.1\0ab", bytes(range(256)) * 100]


@pytest.mark.parametrize("sent", LIES, ids=range(len(LIES)))
def test_a_server_that_is_no_database_lets_nobody_in(settings, broker_with, mariadb, login, version, sent):
    liar = Liar(sent)
    mariadb.url_file.write_text(f"mysql://barid:secret@127.0.0.1:{liar.port}/barid")
    running = broker_with(settings.toml())
    try:
        for _ in range(3):
            assert login(running, "acme/ada", version=version, timeout=10).connack.reason == UNAVAILABLE[version]
    finally:
        liar.close()
    assert running.running()


def test_a_user_who_is_disabled_is_disconnected_within_a_second(settings, broker_with, mariadb, login, version):
    running = broker_with(settings.toml(CHANGES, remembered=600, grace=600))
    mariadb.add("acme/ada")
    mariadb.add("acme/bob")
    ada, bob = login(running, "acme/ada", version=version), login(running, "acme/bob", version=version)
    time.sleep(1.5)
    began = time.monotonic()
    mariadb.set("acme/ada", "enabled", "0")
    ada.expect_refused(0x87, 0x98, timeout=5)
    assert time.monotonic() - began < 2
    assert login(running, "acme/ada", version=version).connack.reason == DENIED[version]
    bob.ping()


def test_connected_clients_stay_while_the_database_is_away(settings, broker_with, mariadb, login, version):
    running = broker_with(settings.toml(grace=1))
    for name in ("acme/ada", "acme/bob"):
        mariadb.add(name)
    ada, bob = login(running, "acme/ada", version=version), login(running, "acme/bob", version=version)
    mariadb.server.kill()
    for who in (("--all",), ("acme/ada",)):
        subprocess.run([BINARY, "auth", "changed", *who, "--admin", f"127.0.0.1:{running.admin_port}"], check=True)
    began = time.monotonic()
    ada.expect_refused(0x87, timeout=10)
    assert time.monotonic() - began > 1
    bob.expect_nothing(2)
    bob.ping()
    mariadb.server.start()
    mariadb.set("acme/bob", "enabled", "0")
    bob.expect_refused(0x98, timeout=10)


def test_rights_that_change_hold_for_who_is_connected(settings, broker_with, mariadb, login, version):
    running = broker_with(settings.toml(CHANGES, remembered=600))
    mariadb.add("acme/ada")
    mariadb.add("acme/all")
    ada, everything = login(running, "acme/ada", version=version), login(running, "acme/all", version=version)
    everything.subscribe("#")
    ada.publish("a/b", b"allowed", 1)
    everything.receive(b"allowed")
    mariadb.set("acme/ada", "rights", quoted('{"publish": []}'))
    time.sleep(2)
    ada.publish("a/b", b"denied", 1)
    everything.expect_nothing()


def test_tls(settings, broker_with, mariadb, login, version, tmp_path_factory):
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    server = MariaDb(certificates)
    try:
        server.execute("ALTER USER barid@'127.0.0.1' REQUIRE SSL;")
        mariadb.url_file.write_text(server.url)
        for authority, reason in [("ca", DENIED[version]), ("stranger", UNAVAILABLE[version])]:
            toml = settings.toml(f'ca_file = "{certificates.certificate(authority)}"')
            if authority == "ca":
                done = server.execute("CREATE TABLE IF NOT EXISTS barid_users (name VARCHAR(99), password_hash TEXT, rights TEXT, enabled INT);")
                assert done == ""
            assert login(broker_with(toml), "acme/ada", version=version).connack.reason == reason
    finally:
        server.close()


def test_init_mysql_says_what_it_does(mariadb, version):
    assert mariadb.init() == "nothing to do: the table barid_users is there\n"
    mariadb.execute("DROP TABLE barid_users;")
    assert mariadb.init() == "created the table barid_users\n"
