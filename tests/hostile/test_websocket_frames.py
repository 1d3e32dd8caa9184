"""Floods of WebSocket frames without payload, before CONNECT."""

import base64
import os
import socket
import struct

import pytest

import wire
from bystander import Bystander
from flooding import flood

SECONDS = 2.0

PING, PONG, BINARY, BINARY_BEGINS, CONTINUATION, END = 0x89, 0x8A, 0x82, 0x02, 0x00, 0x80


def upgraded(address) -> socket.socket:
    """A WebSocket that was opened, without any frame."""
    stream = socket.create_connection(address, timeout=wire.SECONDS)
    key = base64.b64encode(os.urandom(16)).decode()
    stream.sendall(f"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += stream.recv(4096)
    assert b" 101 " in answer
    return stream


def frame(first: int, payload: bytes = b"") -> bytes:
    """A masked frame of at most 125 bytes, with a mask of zeros."""
    return struct.pack("!BB4x", first, 0x80 | len(payload)) + payload


@pytest.mark.parametrize("frames", [
    frame(PING), frame(PING, b"x" * 125), frame(PONG), frame(BINARY), frame(BINARY_BEGINS) + frame(CONTINUATION) * 1_000 + frame(END),
], ids=["ping", "long-ping", "pong", "empty", "fragments"])
def test_a_flood_of_frames_holds_no_thread(one_thread, frames):
    running = one_thread("[limits]\nconnect_timeout = 60\n")
    streams = [upgraded(("127.0.0.1", running.ws_port)) for _ in range(2)]
    with Bystander(running) as bystander:
        sent = flood(streams, frames, SECONDS)
    bystander.assert_served()
    assert sent > 1_000_000, "the broker reads"
    assert running.memory() < 100
    for stream in streams:
        stream.close()
