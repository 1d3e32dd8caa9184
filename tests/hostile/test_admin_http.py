"""Clients of the admin address that keep it waiting: it answers whether the broker is well all the same."""

import contextlib
import http.client
import select
import socket
import threading
import time
import urllib.error

import pytest

from bystander import Bystander
from broker import until

# The longest time that /healthz may take beside an attack, however busy the machine is.
SECONDS = 3.0

SLOW_BODY = b"PUT /v1/tenants/default/queues/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
SLOW_HEAD = b"GET /v1/tenants HTTP/1.1\r\nHost: localhost\r\nA: "
UNREAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50

ATTACKS = {"slow bodies": SLOW_BODY, "slow heads": SLOW_HEAD, "nothing": b"", "answers that nobody reads": UNREAD}


def worst_health(broker) -> float:
    """The longest time that /healthz takes, asked again and again for a while."""
    deadline, worst = time.monotonic() + 1.5, 0.0
    while time.monotonic() < deadline:
        worst = max(worst, health(broker))
    return worst


def health(broker) -> float:
    """How long /healthz takes, on a new connection, or on the next one if that is pushed out."""
    started = time.monotonic()
    while True:
        with contextlib.suppress(ConnectionError, http.client.HTTPException, urllib.error.URLError):
            assert broker.http("/healthz")[0] == 200
            return time.monotonic() - started
        assert time.monotonic() - started < 5 * SECONDS, "it is not answered"


@contextlib.contextmanager
def connections(broker, count: int, sent: bytes):
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(count):
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", broker.admin_port), timeout=5))
            with contextlib.suppress(ConnectionError):
                stream.sendall(sent)
            streams.append(stream)
        yield streams


@pytest.mark.parametrize("sent", ATTACKS.values(), ids=ATTACKS)
def test_health_is_answered_whatever_others_keep_waiting(one_thread, sent):
    """Many more connections than there may be, each of which could stay for seconds."""
    broker = one_thread()
    before = broker.memory()
    with Bystander(broker) as bystander, connections(broker, 500, sent):
        worst = worst_health(broker)
    bystander.assert_served()
    assert worst < SECONDS, f"/healthz took {worst:.1f} s"
    assert broker.memory() - before < 64


def test_health_is_answered_while_new_connections_come_all_the_time(one_thread):
    """They push each other out; whoever asks is answered, perhaps at the second attempt."""
    broker = one_thread()
    stop = threading.Event()

    def attack() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), connections(broker, 100, SLOW_BODY):
                pass

    attackers = [threading.Thread(target=attack) for _ in range(2)]
    with Bystander(broker) as bystander:
        for attacker in attackers:
            attacker.start()
        worst = worst_health(broker)
        stop.set()
        for attacker in attackers:
            attacker.join()
    bystander.assert_served()
    assert worst < SECONDS, f"/healthz took {worst:.1f} s"


def test_a_body_that_does_not_come_is_not_waited_for(one_thread):
    broker = one_thread()
    with connections(broker, 1, SLOW_BODY) as [stream]:
        stream.settimeout(20)
        started = time.monotonic()
        answer = b""
        while part := stream.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 408 ") and time.monotonic() - started < 15, answer


def test_a_slow_body_does_not_hold_back_another_request(one_thread):
    """Each byte comes in time for a timeout that begins anew with it."""
    broker = one_thread()
    with connections(broker, 64, SLOW_BODY) as streams:
        def is_over() -> bool:
            for stream in streams:
                with contextlib.suppress(OSError):
                    stream.sendall(b" ")
            # Each has an answer, or its end.
            return len(select.select(streams, [], [], 0)[0]) == len(streams)

        assert health(broker) < SECONDS
        until(is_over)

