"""Sends as much as a broker takes."""

from __future__ import annotations

import select
import socket
import time


def flood(streams: list[socket.socket], frames: bytes, seconds: float) -> int:
    """Sends the same frames over and over, as fast as they are taken. Answers how many bytes were."""
    block = frames * max(1, 262_144 // len(frames))
    at = dict.fromkeys(streams, 0)
    sent, until = 0, time.monotonic() + seconds
    for stream in streams:
        stream.setblocking(False)
    while time.monotonic() < until:
        _, writable, _ = select.select([], streams, [], 0.1)
        for stream in writable:
            taken = stream.send(memoryview(block)[at[stream]:])
            at[stream] = (at[stream] + taken) % len(block)
            sent += taken
    return sent
