"""Connections that send much and never get a session."""

import socket
import struct
import time

import pytest

import amqp
import wire
from broker import free_port, until
from bystander import Bystander
from certificates import Certificates

STRANGERS = 800

BOUND_MIB = 16

# What the connections take besides, those of TLS included.
BESIDES_MIB = 60

LIMIT = f"max_connecting_bytes = {BOUND_MIB * 1024 * 1024}\n"


def connect_but_its_end(size: int) -> bytes:
    """The beginning of a CONNECT with a very long password."""
    packet = wire.connect("stranger", username="u", password=bytes(60_000), will=wire.Will("t", bytes(60_000)))
    return packet[:size]


def hello_but_its_end(size: int) -> bytes:
    """The beginning of a ClientHello of 60,000 bytes, in records as long as they may be."""
    hello = b"\x01\x00\xea\x60" + bytes(60_000)
    records = [hello[at:at + 16_000] for at in range(0, len(hello), 16_000)]
    return b"".join(struct.pack("!BHH", 22, 0x0303, len(one)) + one for one in records)[:size]


def open_many(address, said: bytes) -> list[socket.socket]:
    streams = []
    for _ in range(STRANGERS):
        stream = socket.create_connection(address, timeout=wire.SECONDS)
        try:
            stream.sendall(said)
        except ConnectionError:
            pass
        streams.append(stream)
    return streams


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def frame_but_its_end(size: int) -> bytes:
    """An AMQP client without a token, and the beginning of a long frame."""
    return amqp.STRANGER + struct.pack("!IBBH", 65_000, 2, 0, 0) + bytes(size)


@pytest.mark.parametrize("transport", ["tcp", "tls", "amqp"])
def test_what_strangers_send_is_bounded_together(one_thread, certificates, transport):
    port = free_port()
    running = one_thread(f'{LIMIT}{certificates.toml()}\n[listeners.mqtts]\naddress = "127.0.0.1:{port}"\n[limits]\nconnect_timeout = 60\n')
    address, said = {
        "tcp": (running.address, connect_but_its_end(100_000)),
        "tls": (("127.0.0.1", port), hello_but_its_end(58_000)),
        "amqp": (("127.0.0.1", running.amqp_port), frame_but_its_end(64_000)),
    }[transport]
    before = running.memory()
    with Bystander(running) as bystander:
        streams = open_many(address, said)
        until(lambda: running.metric("^barid_connecting_bytes") > 0.5 * BOUND_MIB * 2**20)
        time.sleep(0.5)  # in which it could become too much
        taken = running.memory() - before
        counted = running.metric("^barid_connecting_bytes")
        # Who wants no more than usual is let in.
        for number in range(20):
            client = wire.Client(running.address)
            client.connect(f"client{number}", username="u", password=b"p" * 1_000)
            client.stream.close()
    assert counted / 2**20 <= BOUND_MIB + 0.2
    assert taken < BOUND_MIB + BESIDES_MIB, f"{taken} MiB"
    bystander.assert_served()
    for stream in streams:
        stream.close()
    until(lambda: running.metric("^barid_connecting_bytes") == 0)
    large = wire.Client(running.address)
    large.connect("large", username="u", password=bytes(60_000))
