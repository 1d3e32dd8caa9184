"""Server-sent events of the admin API."""

from __future__ import annotations

import contextlib
import http.client
import json
import time


class Stream:
    """An open stream of events, or its refusal."""

    def __init__(self, broker, path: str, token: str | None = None):
        self.connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=15)
        self.connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        self.answer = self.connection.getresponse()
        if self.answer.status == 200:
            assert self.answer.headers["Content-Type"] == "text/event-stream"
            self.greeting = self.line().removeprefix(": ")
            assert self.line() == ""

    def line(self) -> str:
        line = self.answer.readline()
        if not line:
            raise EOFError
        return line.decode().removesuffix("\n")

    def event(self) -> tuple[str, dict]:
        """The next event; comments are skipped."""
        last = time.monotonic() + 15
        while (line := self.line()).startswith(":") or not line:
            assert time.monotonic() < last, "no event in 15 seconds"
        kind, data = line.removeprefix("event: "), self.line().removeprefix("data: ")
        assert self.line() == ""
        return kind, json.loads(data)

    def next(self, expected: str) -> dict:
        """The data of the next event, which has this name."""
        kind, data = self.event()
        assert kind == expected, (kind, data)
        return data

    def message(self) -> dict:
        return self.next("message")

    def refusal(self, status: int) -> str:
        assert self.answer.status == status, self.answer.status
        return json.loads(self.answer.read())["error"]


@contextlib.contextmanager
def following(broker, path: str, token: str | None = None, waits: bool = True):
    """A stream that is closed at the end. The places of streams that ended a moment ago are waited for, unless told otherwise."""
    last = time.monotonic() + 10
    while (stream := Stream(broker, path, token)).answer.status == 503 and waits and time.monotonic() < last:
        stream.connection.close()
        time.sleep(0.1)
    try:
        yield stream
    finally:
        stream.answer.close()
        stream.connection.close()
