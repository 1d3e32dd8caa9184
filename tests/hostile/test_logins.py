"""Somebody who tries passwords: others log in all the same."""

import contextlib
import socket
import subprocess
import threading
import time

import pytest

import wire
from broker import BINARY
from bystander import Bystander

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


@contextlib.contextmanager
def guessing(broker):
    """Wrong passwords from another address, as many at once as are let in."""
    stop, begun = threading.Event(), threading.Event()
    attempt = wire.connect(username="acme/ada", password=b"wrong" + bytes(1000), clean=True)

    def attack() -> None:
        open_: list[socket.socket] = []
        while not stop.is_set():
            for one in [one for one in open_ if answered(one)]:
                one.close()
                open_.remove(one)
            while len(open_) < LOGINS and not stop.is_set():
                one = socket.socket()
                one.bind(("127.0.0.2", 0))
                one.settimeout(5)
                with contextlib.suppress(OSError):
                    one.connect(broker.address)
                    one.sendall(attempt)
                one.setblocking(False)
                open_.append(one)
            begun.set()
            time.sleep(0.01)
        for one in open_:
            one.close()

    attacker = threading.Thread(target=attack)
    attacker.start()
    assert begun.wait(30)
    try:
        yield
    finally:
        stop.set()
        attacker.join()


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
