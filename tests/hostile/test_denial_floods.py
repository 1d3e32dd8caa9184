"""Clients that try, as fast as they can, what they may not: each denial is counted, and neither the log nor the others suffer."""

from __future__ import annotations

import itertools
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wire
from broker import BINARY, until
from bystander import Bystander

sys.path.append(str(Path(__file__).resolve().parent.parent / "servicebus"))
from amqp_codec import Symbol
from amqp_wire import SASL, performative

SECONDS = 2.0

# Lines of the log in a second: five denials of a tenant and a summary, and 50 of all tenants together.
LINES, ALL_LINES = 6, 50

# What denials may cost in memory, in MiB: 64 of them are remembered for a tenant. The rest is what any traffic takes.
# A password takes 19 MiB while it is verified, on each core.
MEGABYTES, MEGABYTES_OF_PASSWORDS = 16, 64


class Attack:
    """Measures what a flood of denials leaves behind."""

    def __init__(self, broker, password: str = ""):
        self.broker, self.before = broker, broker.memory()
        self._bystander = Bystander(broker, password=password)

    def __enter__(self) -> Attack:
        self._bystander.__enter__()
        self._begun = time.monotonic()
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self.seconds = time.monotonic() - self._begun
        self.grown = self.broker.memory() - self.before
        self._bystander.__exit__(kind, error, traceback)

    def lines(self) -> list[str]:
        return [line for line in self.broker.stderr.splitlines() if " denied" in line]

    def told(self) -> int:
        """How many denials the log tells of: those with a line of their own, and those in summaries."""
        summaries = [re.search(r"denied more actions.* denials=(\d+)", line) for line in self.lines()]
        return sum(int(found[1]) if found else 1 for found in summaries)

    def counted(self, action: str) -> float:
        return self.broker.metric(rf'^barid_denied_total{{tenant="[^"]*",action="{action}"}}')

    def assert_bounded(self, action: str, denials: int, lines: int = LINES, megabytes: int = MEGABYTES) -> None:
        until(lambda: self.told() == self.counted(action) == denials, 30)
        # The seconds in which it begins and ends count as a whole, and the last summary is written in the one after.
        most = (self.seconds + 3) * lines
        assert denials > most, "this was no flood"
        assert len(self.lines()) <= most, f"{len(self.lines())} lines in {self.seconds:.1f} s"
        assert self.grown < megabytes, f"{self.grown} MiB more"
        self._bystander.assert_served()


class Client(wire.Client):
    """Hears everything, and looks for one kind."""

    def next_of(self, kind: int) -> wire.Packet:
        while (packet := self.recv()).kind != kind:
            pass
        return packet


def repeatedly(attempt) -> int:
    """Does something until the time is over, and so often that it is a flood, which may take a slow machine longer; how often."""
    begun = time.monotonic()
    for done in itertools.count(1):
        attempt()
        seconds = time.monotonic() - begun
        if seconds > SECONDS and done > max(100, (seconds + 5) * LINES) or seconds > 60:
            return done


def repeat(client: Client, blocks) -> int:
    """Sends one block of requests after the other, until the time is over; how many there were. All have been handled then."""
    sent, end = 0, time.monotonic() + SECONDS
    for requests in blocks:
        # Answers are of no interest, but somebody has to take them.
        client.stream.sendall(b"".join(requests) + wire.pingreq())
        client.next_of(wire.PINGRESP)
        sent += len(requests)
        if time.monotonic() > end:
            return sent


def dial(broker, name: str = "attacker", **login) -> Client:
    client = Client(broker.address)
    assert client.connect(name, **login).reason == 0
    return client


def test_publishes(one_thread):
    """Each to another topic, so that each is remembered anew."""
    broker = one_thread()
    publishes = [[wire.publish(f"$SYS/{block}/{number}" + "x" * 200) for number in range(1_000)] for block in range(20)]
    with Attack(broker) as attack:
        sent = repeat(dial(broker), itertools.cycle(publishes))
    attack.assert_bounded("publish", sent)


def test_publishes_in_many_tenants(one_thread):
    """Whoever may make up tenants gets no more lines than 50 in a second."""
    broker = one_thread()
    clients = [dial(broker, username=f"t{number}/x") for number in range(40)]
    block = wire.publish("$SYS/x") * 10
    denials, end = 0, time.monotonic() + SECONDS
    with Attack(broker) as attack:
        while time.monotonic() < end:
            for client in clients:
                client.stream.sendall(block + wire.pingreq())
                denials += 10
            for client in clients:
                client.next_of(wire.PINGRESP)
    attack.assert_bounded("publish", denials, ALL_LINES)


@pytest.fixture
def guarded(one_thread):
    """The attacker may connect, and nothing else."""
    def user(name: str, password: str, rules: str = "") -> str:
        made = subprocess.run([BINARY, "passwd", "--stdin"], input=password, capture_output=True, text=True, check=True)
        return f'[[users]]\nname = "{name}"\npassword = "{made.stdout.strip()}"\n{rules}\n'

    return one_thread(user("acme/ada", "secret", "publish = []\nsubscribe = []") + user("bystander/device", "bystander"))


def test_subscriptions(guarded):
    """A hundred filters in each request, each another one."""
    def blocks():
        for turn in itertools.count():
            filters = [[(f"{turn % 50}/{request}/{number}", 1) for number in range(100)] for request in range(10)]
            yield [wire.subscribe(1 + request, *filters[request]) for request in range(10)]

    with Attack(guarded, "bystander") as attack:
        requests = repeat(dial(guarded, username="acme/ada", password=b"secret"), blocks())
    # Two logins were verified meanwhile.
    attack.assert_bounded("subscribe", requests * 100, megabytes=MEGABYTES_OF_PASSWORDS)


def test_logins(guarded):
    """Passwords take time to verify, and still there is not a line for each."""
    def attempt() -> None:
        client = wire.Client(guarded.address)
        assert client.connect("x" * 200).reason != 0
        client.stream.close()

    with Attack(guarded, "bystander") as attack:
        attempts = repeatedly(attempt)
    attack.assert_bounded("login", attempts, megabytes=MEGABYTES_OF_PASSWORDS)


def test_keys_of_amqp(one_thread):
    """SASL PLAIN with a key that is none, on one connection after the other."""
    broker = one_thread('[[keys]]\nname = "acme/sender"\nkey = "a key"\nrights = ["Send"]\n')
    guess = SASL + performative("init", mechanism=Symbol("PLAIN"), initial_response=b"\0acme/sender\0a guess")

    def attempt() -> None:
        with socket.create_connection(("127.0.0.1", broker.amqp_port), timeout=wire.SECONDS) as stream:
            stream.sendall(guess)
            # Until the broker has ended it.
            while stream.recv(4096):
                pass

    with Attack(broker) as attack:
        attempts = repeatedly(attempt)
    attack.assert_bounded("login", attempts)
