"""`barid migrate mosquitto`: clients of a mosquitto find their passwords and their rights again."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import wire
from broker import Broker, free_port, until
from running import barid

PATHS = f"{os.environ['PATH']}:/usr/sbin"
MOSQUITTO = os.environ.get("MOSQUITTO") or shutil.which("mosquitto", path=PATHS)
MOSQUITTO_PASSWD = os.environ.get("MOSQUITTO_PASSWD") or shutil.which("mosquitto_passwd", path=PATHS)


class Installation:
    """The files of a mosquitto that listens on one port of loopback."""

    def __init__(self, directory: Path, acl: str, more: str = ""):
        self.directory = directory
        self.port = free_port()
        self.conf = directory / "mosquitto.conf"
        self.passwd = directory / "passwd"
        self.passwd.touch()
        (directory / "acl").write_text(acl)
        self.conf.write_text(f"listener {self.port} 127.0.0.1\n{more}\nallow_anonymous false\n"
                             f"password_file {self.passwd}\nacl_file {directory / 'acl'}\n")

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def user(self, name: str, password: str, *options: str) -> None:
        subprocess.run([MOSQUITTO_PASSWD, *options, "-b", self.passwd, name, password], check=True, capture_output=True)

    def migrate(self) -> str:
        """Returns the configuration, with `{port}` in place of the port. See `Broker`."""
        file = self.directory / "barid.toml"
        done = barid("migrate", "mosquitto", "--conf", self.conf, "--output", file)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it has hashes"
        checked = barid("check-config", file)
        assert checked.returncode == 0, checked.stdout
        return file.read_text().replace(f"127.0.0.1:{self.port}", "127.0.0.1:{port}")


def told(tool: str, broker: Broker, topic: str, user: str, password: str, *options: str, client: str) -> subprocess.CompletedProcess:
    """Runs mosquitto_pub or mosquitto_sub until it ends."""
    command = [tool, "-V", "5", "-h", "127.0.0.1", "-p", str(broker.port), "-u", user, "-P", password, "-i", client, "-t", topic, *options]
    return subprocess.run(command, capture_output=True, timeout=30)


ACL = """\
# Everybody reads the news.
topic read public

user ada
topic readwrite home/#
topic deny home/safe/#

user bob
topic read home/+

pattern write devices/%c/up
pattern read users/%u/#
"""


@pytest.fixture
def installation(tmp_path) -> Installation:
    made = Installation(tmp_path, ACL, "max_packet_size 5000\npersistence true\nconnection cloud\naddress cloud.example\n"
                                       "remote_password hunter2\ntopic # out\n")
    made.user("ada", "pass word ☃")
    made.user("bob", "secret", "-H", "sha512")
    return made


def test_old_passwords_are_valid(installation, broker_with, dial):
    running = broker_with(installation.migrate())
    subscriber = subprocess.Popen(
        ["stdbuf", "-oL", "mosquitto_sub", "-V", "5", "-h", "127.0.0.1", "-p", str(running.port), "-u", "bob", "-P", "secret",
         "-i", "b", "-t", "home/+", "-C", "1", "-W", "30", "-q", "1"], stdout=subprocess.PIPE)
    try:
        until(lambda: running.metric(r'^barid_subscriptions\{') == 1)
        done = told("mosquitto_pub", running, "home/lamp", "ada", "pass word ☃", "-m", "on", "-q", "1", client="a")
        assert done.returncode == 0, done.stderr
        assert subscriber.communicate(timeout=30)[0] == b"on\n"
    finally:
        subscriber.kill()
        subscriber.communicate()
    for user, password in (("ada", "secret"), ("bob", "Secret"), ("ada", ""), ("eve", "secret")):
        client = dial(to=running).send(wire.connect("x", username=user, password=password.encode()))
        client.expect_not_accepted(0x86, 0x87)
    dial(to=running).send(wire.connect("x")).expect_not_accepted(0x86, 0x87)
    too_large = dial(to=running)
    too_large.connect("a", username="ada", password="pass word ☃".encode())
    assert too_large.connack.properties["maximum_packet_size"] == 5000


def test_what_is_not_carried_over_is_named(installation):
    done = barid("migrate", "mosquitto", "--conf", installation.conf)
    assert done.returncode == 0
    for note in (f"{installation.conf}:3: persistence: ", f"{installation.conf}:4: connection cloud with 3 options: ",
                 f"{installation.directory}/acl:2: 1 topic before the first user: ", "when a client subscribes"):
        assert note in done.stderr, done.stderr
        assert note in done.stdout, done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    file = installation.directory / "again.toml"
    file.write_text("mine")
    again = barid("migrate", "mosquitto", "--conf", installation.conf, "--output", file)
    assert again.returncode == 1 and file.read_text() == "mine", "an existing file stays"


def test_a_file_that_mosquitto_cannot_read(installation):
    (installation.directory / "acl").write_text("user ada\ntopic write-only a\n")
    done = barid("migrate", "mosquitto", "--conf", installation.conf)
    assert done.returncode == 1 and not done.stdout
    assert f"{installation.directory}/acl:2: `write-only` is none of" in done.stderr


# ------------------------------------------------------------------------------------------------------ rights

USERS = ["ada", "eve", "b b", "c1"]
LEVELS = ["a", "b", "c1", "ada", "b b"]


def random_acl(source: random.Random) -> str:
    """Lines for all users but the last, and patterns."""
    def topic(*more: str) -> str:
        levels = [source.choice([*LEVELS, "+", *more]) for _ in range(source.randint(1, 3))]
        name = "/".join(levels + source.choice([[], ["#"]]))
        # Without an access, a topic with a space would be read as one.
        access = source.choice(["read ", "write ", "readwrite ", "deny ", "readwrite " if " " in name else ""])
        return access + name

    lines = ["user root", "topic readwrite #"]
    for user in USERS[:-1]:
        lines += [f"user {user}", *(f"topic {topic()}" for _ in range(source.randint(1, 4)))]
    lines += [f"pattern {topic('%c', '%u')}" for _ in range(source.randint(1, 3))]
    return "\n".join(lines) + "\n"


class Running:
    """A mosquitto on the port of its installation."""

    def __init__(self, installation: Installation):
        self.address = installation.address
        self._process = subprocess.Popen([MOSQUITTO, "-c", installation.conf], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(10)


@pytest.fixture(params=range(4))
def twins(request, tmp_path, broker_with):
    """A mosquitto with random rules, and a broker with the migrated ones."""
    source = random.Random(request.param)
    # mosquitto must still be able to read its files when it has changed its user.
    installation = Installation(tmp_path, random_acl(source), "user root")
    for user in [*USERS, "root"]:
        installation.user(user, "secret")
    migrated = broker_with(installation.migrate())
    mosquitto = Running(installation)
    yield source, mosquitto, migrated, (tmp_path / "acl").read_text()
    mosquitto.end()


def opened(address: tuple[str, int], client_id: str, user: str) -> wire.Client:
    def is_open() -> bool:
        nonlocal client
        try:
            client = wire.Client(address)
        except OSError:
            return False
        return True

    client = None
    until(is_open)
    assert client.connect(client_id, username=user, password=b"secret").reason == 0
    return client


def test_the_rules_decide_as_those_of_mosquitto(twins):
    """Publishing is answered, and reading is measured: mosquitto grants each subscription, and delivers what may be read.
    The filters have no wildcards, so both brokers decide on the same topics."""
    source, mosquitto, migrated, acl = twins
    allowed = 0
    for user in USERS:
        client_id = source.choice(["c1", "a"])
        theirs, ours = (opened(broker.address, client_id, user) for broker in (mosquitto, migrated))
        root = opened(mosquitto.address, "root", "root")
        topics = {"/".join(source.choice(LEVELS) for _ in range(source.randint(1, 3))) for _ in range(30)}
        for topic in topics:
            denied = [client.publish(topic, b"x", qos=1).reason >= 0x80 for client in (theirs, ours)]
            assert denied[0] == denied[1], f"{user} as {client_id} publishes to {topic}\n{acl}"
            allowed += not denied[0]
        theirs.subscribe(*topics)
        for topic in topics:
            assert root.publish(topic, b"y", qos=1).reason < 0x80
        read = {found.topic for found in theirs.receive_all(0.5)}
        for topic in topics:
            is_denied = ours.subscribe(topic).reasons[0] >= 0x80
            assert is_denied == (topic not in read), f"{user} as {client_id} reads {topic}\n{acl}"
        allowed += len(read)
        for client in (theirs, ours, root):
            client.disconnect()
    assert allowed > 0, "every request was denied: the rules test nothing"
