"""One Network Connection in an asyncio loop, which parses packets as strictly as `wire.py`."""

from __future__ import annotations

import asyncio

import wire


class Connection(asyncio.Protocol):
    """Calls `on_packet` for each packet, `on_violation` if a server must not send one, and `on_lost` once, at the end."""

    def __init__(self, version: int, on_packet, on_violation, on_lost):
        self.version = version
        self._on_packet, self._on_violation, self._on_lost = on_packet, on_violation, on_lost
        self._buffer = b""
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        self.transport = transport

    def send(self, *packets: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"".join(packets))

    def abort(self) -> None:
        """Ends the connection as a failing network does: bytes that were not read are lost."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data
        at = 0
        try:
            while (framed := _frame(buffer, at)) is not None:
                body, end = framed
                self._on_packet(self, wire.parse(buffer[at], buffer[body:end], self.version))
                at = end
        except wire.Violation as violation:
            self._on_violation(str(violation))
            self.abort()
        self._buffer = buffer[at:]

    def connection_lost(self, error) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self._on_lost(self)


def _frame(buffer: bytes, at: int) -> tuple[int, int] | None:
    """Returns where the body of the packet at `at` begins and ends, if the packet is complete."""
    length = shift = 0
    for position in range(at + 1, min(len(buffer), at + 5)):
        length |= (buffer[position] & 0x7F) << shift
        shift += 7
        if buffer[position] < 0x80:
            end = position + 1 + length
            return (position + 1, end) if end <= len(buffer) else None
    wire.require(len(buffer) < at + 5, "Remaining Length of more than four bytes")
    return None
