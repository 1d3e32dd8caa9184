"""Floods of TLS records that carry next to nothing, before the handshake is done."""

import socket
import struct
import time

import pytest

import wire
from broker import free_port
from bystander import Bystander
from certificates import Certificates

SECONDS = 2.0

HANDSHAKE, CHANGE_CIPHER_SPEC, ALERT = 22, 20, 21

# The header of a ClientHello of 65,535 bytes; and a whole one of another length cannot come before all of that has.
CLIENT_HELLO = b"\x01\x00\xff\xff"


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("!BHH", kind, 0x0303, len(body)) + body


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("records", [
    b"".join(record(HANDSHAKE, bytes([byte])) for byte in CLIENT_HELLO + bytes(65_000)),
    record(CHANGE_CIPHER_SPEC, b"\x01") * 10_000,
    record(ALERT, b"\x01\x5a") * 10_000,
    record(HANDSHAKE, b"") * 10_000,
], ids=["fragments", "ccs", "warnings", "empty"])
@pytest.mark.parametrize("name", ["mqtts", "wss"])
def test_records_hold_no_thread(one_thread, certificates, name, records):
    """Many connections, one after another: most are refused after some records."""
    port = free_port()
    running = one_thread(f'{certificates.toml()}\n[listeners.{name}]\naddress = "127.0.0.1:{port}"\n')
    connections = 0
    with Bystander(running) as bystander:
        until = time.monotonic() + SECONDS
        while connections < 2 or time.monotonic() < until:
            connections += 1
            with socket.create_connection(("127.0.0.1", port), timeout=wire.SECONDS) as stream:
                try:
                    stream.sendall(records)
                except ConnectionError:
                    pass
    bystander.assert_served()
    assert running.memory() < 100
