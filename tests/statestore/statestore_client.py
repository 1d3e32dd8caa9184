"""A client of the state store that says every byte itself, and reads answers and notifications without mercy.

Like `wire.py`, on which it stands, it shares no code with the broker under test.
"""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field

import wire
from wire import PUBACK, PUBLISH, require

GUID = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8"
INVOKE = f"statestore/v1/{GUID}/command/invoke"
# Responses must not go below it: notifications do.
RESERVED = f"clients/statestore/v1/{GUID}"

OK, NOT_APPLIED, ABSENT, DELETED, NOTHING = b"+OK\r\n", b":-1\r\n", b"$-1\r\n", b":1\r\n", b":0\r\n"

DRIFT = 60_000  # ms that a client's clock may be ahead

TIMESTAMP_IN_FUTURE = ("the request timestamp is too far in the future; "
                       "ensure that the client and broker system clocks are synchronized")
TOKEN_REQUIRED = "a fencing token is required for this request"
TOKEN_IN_FUTURE = ("the request fencing token timestamp is too far in the future; "
                   "ensure that the client and broker system clocks are synchronized")
TOKEN_TOO_OLD = "the request fencing token is a lower version than the fencing token protecting the resource"
QUOTA = "the quota has been exceeded"
SYNTAX = "syntax error"
NOT_AUTHORIZED = "not authorized"
UNKNOWN = "unknown command"
ARGUMENTS = "wrong number of arguments"
NO_TIMESTAMP = "missing timestamp"
MALFORMED_TIMESTAMP = "malformed timestamp"
EMPTY_KEY = "the key length is zero"

# What an application that knows no better sends with each request.
NOW = object()


# ---------------------------------------------------------------------------------------------- bytes


def array(*parts: bytes | str | int) -> bytes:
    """A request: an array of byte strings."""
    encoded = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in encoded)


def value(content: bytes) -> bytes:
    """The answer to a GET."""
    return b"$%d\r\n%s\r\n" % (len(content), content)


def error(text: str) -> bytes:
    return b"-ERR " + text.encode() + b"\r\n"


def set_told(content: bytes) -> bytes:
    """The payload of a notification."""
    return array("NOTIFY", "SET", "VALUE", content)


DELETE_TOLD = array("NOTIFY", "DELETE")


def page(payload: bytes) -> tuple[list[bytes], bytes | None]:
    """The keys of an answer to SCAN, and the token for the next."""
    at = 0

    def number(kind: bytes) -> int:
        nonlocal at
        found = re.compile(re.escape(kind) + rb"(0|[1-9][0-9]*)\r\n").match(payload, at)
        require(found, f"expected {kind!r} and a number at {at} of {payload[:200]!r}")
        at = found.end()
        return int(found[1])

    def text() -> bytes:
        nonlocal at
        length = number(b"$")
        content, end = payload[at:at + length], payload[at + length:at + length + 2]
        require(len(content) == length and end == b"\r\n", f"a byte string ends wrongly in {payload[:200]!r}")
        at += length + 2
        return content

    parts = number(b"*")
    require(parts in (1, 2), f"{parts} parts in {payload[:200]!r}")
    keys = [text() for _ in range(number(b"*"))]
    token = text() if parts == 2 else None
    require(at == len(payload), f"{len(payload) - at} bytes after the page")
    return keys, token


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def stamp(wall: int | None = None, counter: int = 0, node: str = "test") -> str:
    """A timestamp of a hybrid logical clock as SDKs print it; now if nothing else is said."""
    return f"{now_ms() if wall is None else wall:015}:{counter:05}:{node}"


def order(version: str) -> tuple[int, int]:
    """What orders two versions of the store, which all have its node identifier."""
    found = re.fullmatch(r"(\d{15,}):(\d{5,}):StateStore", version)
    require(found, f"not a version of the store: {version!r}")
    wall, counter = int(found[1]), int(found[2])
    require(counter < 2**31 - 1, f"some clients cannot read the counter of {version!r}")
    return wall, counter


def response_topic(client_id: str) -> str:
    """Where the Rust SDK wants its answers."""
    return f"clients/{client_id}/services/{INVOKE}/response"


def notify_topic(client_id: str, key: bytes) -> str:
    return f"{RESERVED}/{client_id.encode().hex().upper()}/command/notify/{key.hex().upper()}"


def notify_filter(client_id: str) -> str:
    return f"{RESERVED}/{client_id.encode().hex().upper()}/command/notify/+"


# --------------------------------------------------------------------------------------------- client


@dataclass
class Answer:
    payload: bytes
    version: str | None
    properties: dict = field(repr=False)

    @classmethod
    def of(cls, packet: wire.Packet, topic: str) -> Answer:
        """Checks everything that a response has in common with all others."""
        require(packet.topic == topic, f"answered on {packet.topic}, not on {topic}")
        require(packet.qos == 1 and not packet.retain, f"not QoS 1 or retained: {packet}")
        require("response_topic" not in packet.properties, "a response to a response")
        stats, version = cls.user_properties(packet, {"__stat", "__ts", "__protVer"})
        require(stats.get("__stat") == "200", f"__stat is {stats.get('__stat')!r}")
        if packet.payload in (ABSENT, NOTHING):
            require(version is None, f"a version of nothing: {version}")
        if packet.payload == NOT_APPLIED or packet.payload.startswith(b"$") and packet.payload != ABSENT:
            require(version is not None, "what is stored has a version")
        return cls(packet.payload, version, packet.properties)

    @staticmethod
    def user_properties(packet: wire.Packet, allowed: set[str]) -> tuple[dict, str | None]:
        pairs = packet.properties.get("user_property", [])
        found = dict(pairs)
        require(len(found) == len(pairs), f"a user property twice: {pairs}")
        require(set(found) <= allowed, f"unexpected user properties: {set(found) - allowed}")
        require(found.get("__protVer", "1.0") == "1.0", f"__protVer is {found.get('__protVer')!r}")
        require(packet.properties.get("content_type", "application/octet-stream") == "application/octet-stream",
                f"the content type is {packet.properties.get('content_type')!r}")
        require(packet.properties.get("payload_format_indicator", 0) == 0, "binary data is no UTF-8")
        version = found.get("__ts")
        if version is not None:
            order(version)
        return found, version


@dataclass
class Notification:
    key: bytes
    payload: bytes
    version: str
    packet: wire.Packet = field(repr=False)

    @classmethod
    def of(cls, packet: wire.Packet, client_id: str) -> Notification:
        beginning = notify_topic(client_id, b"")
        require(packet.topic.startswith(beginning), f"a notification for somebody else: {packet.topic}")
        encoded = packet.topic.removeprefix(beginning)
        require(re.fullmatch(r"([0-9A-F]{2})+", encoded), f"not upper-case Base16: {encoded!r}")
        require(packet.qos == 1 and not packet.retain, f"not QoS 1 or retained: {packet}")
        for name in ("correlation_data", "response_topic"):
            require(name not in packet.properties, f"a notification with {name}")
        _, version = Answer.user_properties(packet, {"__ts", "__protVer"})
        require(version is not None, "a notification without a version is dropped by SDKs")
        return cls(bytes.fromhex(encoded), packet.payload, version, packet)


class Store:
    """A connected client whose answers come to a topic of its own.

    What `client` receives is acknowledged. Answers are kept by correlation data, notifications in their order.
    """

    def __init__(self, client: wire.Client, subscribes: bool = True):
        self.client = client
        self.responses = response_topic(client.client_id)
        self._acknowledged: dict[int, int] = {}
        self._answers: dict[bytes, wire.Packet] = {}
        self._told: list[Notification] = []
        # On a resumed session an answer may come again: the old one was not acknowledged, or the request was sent again.
        self._resumed = client.connack.session_present
        self._seen: dict[bytes, bytes] = {}
        if subscribes and not client.connack.session_present:
            assert client.subscribe((self.responses, 0x09)).reasons == [1]

    # -- requests

    def send(self, payload: bytes, timestamp=NOW, token: str | None = None, more=(), correlation: bytes | None = None,
             dup: bool = False, packet_id: int | None = None, **properties) -> tuple[int, bytes]:
        """Sends a request and waits for nothing; its packet identifier and correlation data."""
        packet_id = packet_id or self.client.next_packet_id()
        correlation = uuid.uuid4().bytes if correlation is None else correlation
        pairs = [] if timestamp is None else [("__ts", stamp() if timestamp is NOW else timestamp)]
        pairs += [] if token is None else [("__ft", token)]
        pairs += more
        envelope = {"response_topic": self.responses, "correlation_data": correlation, "user_property": pairs}
        # A property of value None is left out.
        envelope = {name: given for name, given in (envelope | properties).items() if given is not None}
        self.client.send(wire.publish(INVOKE, payload, 1, packet_id, dup=dup, properties=envelope))
        return packet_id, correlation

    def answer(self, sent: tuple[int, bytes], timeout: float | None = None) -> Answer:
        """The answer to what was sent, when its PUBACK has come as well."""
        packet_id, correlation = sent
        while packet_id not in self._acknowledged or correlation not in self._answers:
            self._take(timeout)
        assert self._acknowledged.pop(packet_id) == 0, "a request is acknowledged with Success"
        return Answer.of(self._answers.pop(correlation), self.responses)

    def ask(self, *parts, **envelope) -> Answer:
        """Sends a request, given by its parts, and waits for the answer."""
        return self.answer(self.send(array(*parts), **envelope))

    def ask_bytes(self, payload: bytes, **envelope) -> Answer:
        return self.answer(self.send(payload, **envelope))

    # -- what most tests do

    def set(self, key: bytes, content: bytes, *options, **envelope) -> str:
        """A SET that must be applied; its version."""
        answer = self.ask("SET", key, content, *options, **envelope)
        assert answer.payload == OK, answer
        assert answer.version, "a change has a version"
        return answer.version

    def get(self, key: bytes) -> tuple[bytes, str | None] | None:
        """The value and its version."""
        answer = self.ask("GET", key)
        if answer.payload == ABSENT:
            return None
        found = re.match(rb"\$(0|[1-9][0-9]*)\r\n", answer.payload)
        assert found, answer
        content = answer.payload[found.end():-2]
        assert answer.payload == value(content), answer
        return content, answer.version

    def watch(self, key: bytes) -> None:
        assert self.ask("KEYNOTIFY", key).payload == OK

    def scan(self, pattern: bytes | str, pages_max: int = 10_000) -> list[list[bytes]]:
        """All pages."""
        pages, token = [], None
        while len(pages) < pages_max:
            keys, token = page(self.ask("SCAN", pattern, *([] if token is None else [token])).payload)
            pages.append(keys)
            if token is None:
                return pages
        raise AssertionError(f"SCAN does not end after {pages_max} pages")

    # -- notifications

    def told(self, timeout: float | None = None) -> Notification:
        """The next notification."""
        while not self._told:
            self._take(timeout)
        return self._told.pop(0)

    def expect_told(self, key: bytes, payload: bytes, version: str | None = None) -> Notification:
        told = self.told()
        assert (told.key, told.payload) == (key, payload), told
        assert version is None or told.version == version, told
        return told

    def expect_quiet(self, seconds: float = 0.25) -> None:
        """Nothing has come that was not asked for, and nothing comes."""
        self.client.ping()
        while self.client._kept:
            self._take(0)
        assert not (self._told or self._answers or self._acknowledged), (self._told, self._answers, self._acknowledged)
        self.client.expect_nothing(seconds)

    def _take(self, timeout: float | None) -> None:
        packet = self.client.recv(timeout)
        if packet.kind == PUBACK:
            self._acknowledged[packet.packet_id] = packet.reason
            return
        require(packet.kind == PUBLISH, f"expected PUBACK or PUBLISH, got {packet}")
        if packet.topic.startswith(RESERVED):
            self._told.append(Notification.of(packet, self.client.client_id))
        else:
            correlation = packet.properties.get("correlation_data")
            require(correlation is not None, f"a response without correlation data: {packet}")
            if self._resumed and correlation in self._seen:
                require(packet.payload == self._seen[correlation], f"answered in two ways: {packet}")
            else:
                require(correlation not in self._answers, f"answered twice: {packet}")
                self._answers[correlation] = packet
            self._seen[correlation] = packet.payload
        self.client.complete(packet)
