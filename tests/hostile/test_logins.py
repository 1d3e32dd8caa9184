"""Somebody who tries passwords: others log in all the same."""

import contextlib
import socket
import subprocess
import time

import pytest

import wire
from broker import BINARY
from bystander import Bystander
from flooding import crowd

# Logins that the attacker has waiting at once: as many as may wait, and more.
LOGINS = 1500

# The longest time that a login may take beside it. One takes about 20 ms of a core.
SECONDS = 3.0


@pytest.fixture
def guarded(one_thread):
    """A broker with users whose passwords are costly to verify."""
    users = [subprocess.run([BINARY, "passwd", "--stdin", name], input="secret", capture_output=True, text=True, check=True).stdout
             for name in ("acme/ada", "bystander/device")]
    return one_thread("\n".join(users))


def guessing(broker):
    """Wrong passwords from another address, as many at once as are let in."""
    attempt = wire.connect(username="acme/ada", password=b"wrong" + bytes(1000), clean=True)

    def open_one() -> socket.socket:
        one = socket.socket()
        one.bind(("127.0.0.2", 0))
        one.settimeout(5)
        with contextlib.suppress(OSError):
            one.connect(broker.address)
            one.sendall(attempt)
        return one

    return crowd(LOGINS, open_one, answered)


def answered(stream: socket.socket) -> bool:
    try:
        stream.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def login(broker) -> float:
    """How long a login with the right password takes."""
    started = time.monotonic()
    client = wire.Client(broker.address)
    assert client.connect("", username="acme/ada", password=b"secret").reason == 0
    client.stream.close()
    return time.monotonic() - started


def test_others_log_in_while_somebody_tries_passwords(guarded):
    """Address after address has its turn, and whoever has most waiting is told that the broker is busy."""
    before = guarded.memory()
    with Bystander(guarded, password="secret") as bystander, guessing(guarded):
        worst = max(login(guarded) for _ in range(15))
    bystander.assert_served()
    assert worst < SECONDS, f"a login took {worst:.1f} s"
    assert guarded.memory() - before < 150
