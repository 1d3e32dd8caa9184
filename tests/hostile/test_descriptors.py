"""Strangers that take all file descriptors: what is durable is committed all the same."""

import resource
import socket
import time

import pytest

import wire
from broker import Broker, until
from bystander import Bystander
from flooding import crowd

# As many as the broker may have. Strangers come with twice as many connections.
DESCRIPTORS = 256
STRANGERS = 2 * DESCRIPTORS

# The longest wait for a PUBACK, whatever the disk does.
SECONDS = 4.0

MESSAGE = bytes(500_000)


class Limited(Broker):
    """A broker with few descriptors."""

    def prefix(self) -> list:
        return ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]


@pytest.fixture
def limited():
    started = []

    def start(engine: str = "log") -> Limited:
        started.append(Limited(f'workers = 1\n[storage]\nshards = 1\nengine = "{engine}"\nmin_free = 0\n'))
        return started[-1]

    yield start
    for one in started:
        one.end()


def strangers(broker, port: int):
    """Hold as many connections as they get, and try again and again to get more."""
    def open_one() -> socket.socket | None:
        one = socket.socket()
        one.settimeout(1)
        if one.connect_ex(("127.0.0.1", port)):
            one.close()
            return None
        return one

    return crowd(STRANGERS, open_one, is_closed)


def is_closed(stream: socket.socket) -> bool:
    try:
        return stream.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def longest_wait(publisher, topic: str, messages: int) -> float:
    """For a PUBACK, of so many messages of class `local`."""
    worst = 0.0
    for _ in range(messages):
        started = time.monotonic()
        assert publisher.publish(topic, MESSAGE, qos=1).reason == 0
        worst = max(worst, time.monotonic() - started)
    return worst


# Messages that are more than two segments of the log, or a journal of the tree.
@pytest.mark.parametrize("engine, messages", [("log", 90), ("lsm", 140)])
def test_what_is_durable_is_committed(limited, connect, engine, messages):
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 3 * STRANGERS, "the strangers need descriptors, too"
    broker = limited(engine)
    away = connect(to=broker, client_id="away", clean=False, properties={"session_expiry_interval": 600})
    away.subscribe("t", qos=1)
    away.disconnect()
    publisher = connect(to=broker, timeout=30)
    started = time.monotonic()
    with Bystander(broker) as bystander, strangers(broker, broker.port):
        worst = longest_wait(publisher, "t", messages)
        assert worst < SECONDS, f"a PUBACK took {worst:.1f} s"
        # Operators find out what is going on, and can do something.
        assert broker.http("/healthz")[0] == 200
        assert broker.metric("^barid_refused_connections_total.*descriptors") > 0
        assert broker.metric("^barid_store_refuses") == 0
        assert "limits" in broker.reload("[limits]\nmax_qos = 1\n")
    bystander.assert_served()
    # Once in ten seconds.
    most = 1 + max(3, (time.monotonic() - started) // 10)
    told = broker.stderr.count("closed connections at once")
    assert 1 <= told <= most, f"told {told} times"
    until(lambda: is_admitted(broker), 15)


def is_admitted(broker) -> bool:
    """Whether a client is let in, now that the strangers have gone."""
    try:
        return wire.Client(broker.address).connect("new", username="new/device").reason == 0
    except (OSError, wire.Closed):
        return False
