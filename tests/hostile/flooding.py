"""Sends as much as a broker takes, and holds as many connections."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator


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


@contextlib.contextmanager
def crowd(count: int, open_one: Callable[[], socket.socket | None], has_ended: Callable[[socket.socket], bool]) -> Iterator[None]:
    """Holds as many connections as it gets, `count` at most, beside the test, and opens others for those that have ended.

    `open_one` answers a connection, or None if there is none to be had just now. The context begins when it was tried to
    have all.
    """
    stop, begun = threading.Event(), threading.Event()

    def hold() -> None:
        held: list[socket.socket] = []
        while not stop.is_set():
            for one in [one for one in held if has_ended(one)]:
                one.close()
                held.remove(one)
            while len(held) < count and not stop.is_set():
                one = open_one()
                if one is None:
                    break
                one.setblocking(False)
                held.append(one)
            begun.set()
            time.sleep(0.01)
        for one in held:
            one.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert begun.wait(30)
        yield
    finally:
        stop.set()
        holder.join()
