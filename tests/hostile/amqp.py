"""What attacks over AMQP share: a client that says every byte, and a flood."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "servicebus"))
from amqp_codec import Raw, Symbol, Uint, encode
from amqp_wire import AMQP, SASL, performative
from namespace import KEY, KEY_NAME

ANONYMOUS = performative("init", mechanism=Symbol("ANONYMOUS"))
PLAIN = performative("init", mechanism=Symbol("PLAIN"), initial_response=f"\0{KEY_NAME}\0{KEY}".encode())
OPEN = performative("open", container_id="hostile", max_frame_size=Uint(65_536))


def begin(channel: int = 0, window: int = 1 << 20) -> bytes:
    return performative("begin", channel, next_outgoing_id=Uint(0), incoming_window=Uint(window), outgoing_window=Uint(1 << 20))


# What comes before everything else, of a client without and with a key.
STRANGER = SASL + ANONYMOUS + AMQP + OPEN
CLIENT = SASL + PLAIN + AMQP + OPEN


class Flood:
    """Sends as much as the broker takes, on one connection after the other."""

    def __init__(self, broker):
        self.address = "127.0.0.1", broker.amqp_port
        self.sent = self.connections = 0

    def run(self, entry: bytes, chunks, seconds: float) -> None:
        """`chunks` makes an iterator of bytes for each connection."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.connections += 1
            with socket.create_connection(self.address) as stream:
                stream.settimeout(0.2)
                with contextlib.suppress(OSError):
                    stream.sendall(entry)
                    for chunk in chunks():
                        self._send(stream, chunk, until)
                        if time.monotonic() >= until:
                            break

    def _send(self, stream: socket.socket, chunk: bytes, until: float) -> None:
        view = memoryview(chunk)
        while view and time.monotonic() < until:
            stream.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while data := stream.recv(1 << 20):
                    pass
                if data == b"":
                    raise ConnectionError("closed")
            stream.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                count = stream.send(view[:1 << 18])
                self.sent += count
                view = view[count:]


def repeated(data: bytes):
    """The same bytes again and again."""
    many = data * max(1, (1 << 20) // len(data))

    def chunks():
        while True:
            yield many

    return chunks


def tag(number: int) -> bytes:
    return struct.pack(">I", number)



