"""Clients that do not behave: they are bounded, counted and ended, and the others are served."""

import socket
import time

import pytest

from broker import until
from paho_client import SECONDS, Refused


def ended(stream: socket.socket, seconds: float = SECONDS) -> bool:
    """Whether the broker ends the connection within a time."""
    stream.settimeout(seconds)
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("said", [b"", b"\x10", b"\x10\xff\xff\xff\x7f", b"\x10\x20\x00\x04MQTT"])
def test_connections_that_never_send_connect(broker_with, paho, said):
    """Closed after connect_timeout, however much of a CONNECT they sent; the others stay."""
    running = broker_with("[limits]\nconnect_timeout = 1\n")
    client = paho(to=running)
    started = time.monotonic()
    with socket.create_connection(running.address) as silent:
        silent.sendall(said)
        assert ended(silent)
        assert time.monotonic() - started > 0.8 or said[1:5] == b"\xff\xff\xff\x7f", "not before its time"
    assert client.client.is_connected()


def test_a_handful_of_bytes_at_a_time_is_no_way_around(broker_with):
    running = broker_with("[limits]\nconnect_timeout = 1\n")
    with socket.create_connection(running.address) as slow:
        started = time.monotonic()
        try:
            for byte in b"\x10\x2d\x00\x04MQTT\x04\x02\x00\x3c\x00\x21" + b"x" * 33:
                slow.sendall(bytes([byte]))
                time.sleep(0.2)
        except ConnectionError:
            pass
        assert time.monotonic() - started < 6


def test_a_slow_subscriber_harms_nobody(broker_with, connect, paho, topic):
    """It reads nothing of 100 MB: what waits for it is bounded, its drops are counted by reason, the others get all."""
    running = broker_with("[limits]\nmax_queued_messages = 1000\nmax_queued_bytes = 2_000_000\n")
    deaf = connect(to=running, tenant="acme")
    deaf.subscribe(topic)
    good, publisher = paho(to=running, tenant="acme"), paho(to=running, tenant="acme")
    good.subscribe(topic, 1)
    for number in range(1000):
        publisher.publish(topic, b"%06d" % number + bytes(100_000), 1)
        assert good.receive().payload[:6] == b"%06d" % number, "it is bound by the same limits, so it must not lag"
    assert running.metric("^barid_outbox_bytes") <= 2_200_000
    assert running.metric(r'^barid_dropped_messages_total\{tenant="acme",reason="queue_bytes"\}') > 800
    assert running.metric(r'^barid_dropped_messages_total\{tenant="acme",reason="queue_messages"\}') == 0
    assert memory(running) < 100_000


def memory(broker) -> int:
    """The most KiB the broker has had in memory."""
    with open(f"/proc/{broker._process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def test_a_declared_length_allocates_nothing(broker_with, paho):
    """Connections that each promise a packet of 1 MiB and send a byte of it."""
    running = broker_with("")
    before = memory(running)
    streams = [socket.create_connection(running.address) for _ in range(500)]
    for stream in streams:
        stream.sendall(b"\x10\xff\xff\x3f\x00")
    paho(to=running).publish("t", b"x", 1)
    until(lambda: running.http("/healthz")[0] == 200)
    assert memory(running) - before < 30_000
    for stream in streams:
        stream.close()


def test_noise(broker_with, paho, topic):
    """What is no MQTT ends its own connection and nothing else."""
    running = broker_with("")
    client = paho(to=running)
    client.subscribe(topic, 1)
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", bytes(1000), b"\xff" * 1000,
                  b"\x10\x00", b"\x30\x03\x00\x01a", b"SSH-2.0-OpenSSH_9.2\r\n"):
        with socket.create_connection(running.address) as stream:
            stream.sendall(noise)
            assert ended(stream), noise
    client.publish(topic, b"unharmed", 1)
    assert client.receive().payload == b"unharmed"


def test_limits_of_one_tenant_do_not_bind_another(broker_with, paho, topic):
    running = broker_with("[tenants.acme.limits]\nmax_connections = 2\nmax_subscriptions = 1\nmax_retained_messages = 1\n")
    acme = [paho(to=running, tenant="acme") for _ in range(2)]
    with pytest.raises(Refused) as refused:
        paho(to=running, tenant="acme")
    assert refused.value.code == 0x97
    globex = [paho(to=running, tenant="globex") for _ in range(3)]
    assert acme[0].subscribe(topic + "/1", 1) == 1
    assert acme[0].subscribe(topic + "/2", 1) == 0x97
    assert [globex[0].subscribe(f"{topic}/{number}", 1) for number in range(3)] == [1, 1, 1]
    for kept, client in ((1, acme[1]), (2, globex[1])):
        for number in range(2):
            client.publish(f"r/{number}", b"x", 1, retain=True)
        client.subscribe("r/#", 1)
        client.payloads(kept)
        assert client.silent(), "the limit is for what clients retain"


def test_tenants_are_bounded(broker_with, paho):
    """A client cannot fill the memory with tenants it makes up."""
    running = broker_with("max_tenants = 3\n")
    refusals = 0
    for number in range(5):
        try:
            paho(to=running, tenant=f"t{number}")
        except Refused as refused:
            assert refused.code == 0x97
            refusals += 1
    assert refusals in (2, 3), "the default tenant may count"
