"""Limits of one user over AMQP: another user is not concerned, and changes apply to connected clients."""

from __future__ import annotations

import subprocess
import time

import pytest

from amqp_wire import Connection, Message
from broker import BINARY

# How long a change may take until it applies to a connected client, with the time of the command and of a slow machine.
SOON = 1.5

WAITED = r'^barid_quota_throttled_seconds_total\{tenant="acme",quota="user_outbound_bytes_rate"\}'


class Users:
    """A broker with the queues `ada` and `bob`, and the users of these names in the tenant `acme`."""

    def __init__(self, broker):
        self.broker = broker
        for name in ("ada", "bob"):
            self.does("user", "add", f"acme/{name}", "--password-file", "-", "--cost", "device", input="secret")

    def does(self, *arguments, **run) -> None:
        command = [BINARY, *arguments, "--admin", f"127.0.0.1:{self.broker.admin_port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, **run)
        assert done.returncode == 0, done

    def limit(self, *limits: str) -> None:
        self.does("user", "set", "acme/ada", *(f"--limit={limit}" for limit in limits))


@pytest.fixture
def users(own_broker) -> Users:
    queues = "".join(f'[[queues]]\nname = "{name}"\ntenant = "acme"\n' for name in ("ada", "bob"))
    return Users(own_broker(queues))


@pytest.fixture
def log_in(users):
    """Connects a user."""
    opened = []

    def connect(name: str = "ada") -> Connection:
        connection = Connection(("127.0.0.1", users.broker.amqp_port))
        opened.append(connection)
        outcome = connection.sasl("PLAIN", f"\0acme/{name}\0secret".encode()).code
        if outcome != 0:
            raise PermissionError(outcome)
        connection.open(container_id=name)
        return connection

    yield connect
    for connection in opened:
        connection.close()


def takes(count: int, sender, size: int = 1) -> float:
    """How long it takes until as many messages are accepted, which are sent at once."""
    started = time.monotonic()
    numbers = [sender.transfer(Message.of(bytes(size)).encode()) for _ in range(count)]
    for number in numbers:
        assert sender.outcome(number, 20).descriptor == 0x24
    return time.monotonic() - started


def test_messages_of_a_user(users, log_in):
    ada, bob = (log_in(name).session().sender(name) for name in ("ada", "bob"))
    assert takes(100, ada) < 1
    users.limit("publish_rate=5")
    time.sleep(SOON)
    assert takes(15, ada) > 1.3
    assert takes(100, bob) < 1
    numbers = [ada.transfer(Message.of(b"x").encode()) for _ in range(100)]
    time.sleep(0.5)
    started = time.monotonic()
    users.limit("publish_rate=10000")
    for number in numbers:
        assert ada.outcome(number).descriptor == 0x24
    assert time.monotonic() - started < SOON, "not twenty seconds"


def test_messages_to_a_user(users, log_in):
    """They stay in the queue, and the client need not do anything when it may get more."""
    connection = log_in()
    sender = connection.session().sender("ada")
    takes(6, sender, size=500)
    takes(1, sender, size=30_000)
    takes(20, sender)
    users.limit("outbound_bytes_rate=1000")
    time.sleep(SOON)
    receiver = connection.session().receiver("ada")
    receiver.flow(27)
    started = time.monotonic()
    for _ in range(6):
        receiver.delivery()
    assert time.monotonic() - started > 1.3
    assert (waited := users.broker.metric(WAITED)) > 1
    receiver.delivery()
    assert connection.silent(1.0, "transfer")
    started = time.monotonic()
    users.limit("outbound_bytes_rate=default")
    for _ in range(20):
        receiver.delivery()
    assert time.monotonic() - started < SOON, "not half a minute, in which the large message would be paid"
    assert users.broker.metric(WAITED) > waited + 1, "the wait counts that the change has ended"


def test_connections_of_a_user(users, log_in):
    log_in()
    users.limit("max_connections=1")
    time.sleep(SOON)
    with pytest.raises(PermissionError):
        log_in()
    for _ in range(3):
        log_in("bob")
    users.limit("max_connections=2")
    log_in()
    with pytest.raises(PermissionError):
        log_in()
    quota = r'^barid_quota_refused_total\{tenant="acme",quota="max_user_connections"\}'
    assert users.broker.metric(quota) == 2
