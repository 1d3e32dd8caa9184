"""MQTT on the wire: builds any packet, valid or malformed, and strictly parses what a broker sends.

It is deliberately independent of the broker under test: it shares no code with it, and requires exact conformance to MQTT
3.1, 3.1.1 and 5. Builders return bytes and check nothing, so that a test can specify exactly what is wrong with a packet.
`Client` parses strictly: a packet that a server must never send raises `Violation`, in every test.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field

V31, V311, V5 = 3, 4, 5

# Timeout for events that must happen, in seconds; long enough for a busy machine.
SECONDS = 15.0

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)
NAMES = ("reserved0 CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE "
         "SUBACK UNSUBSCRIBE UNSUBACK PINGREQ PINGRESP DISCONNECT AUTH").split()

# For each property identifier: name, encoding, and the packets in which a *server* may send it (MQTT 5, table 2-4).
_ACKS = (CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH)
PROPERTIES = {
    0x01: ("payload_format_indicator", "byte", (PUBLISH,)),
    0x02: ("message_expiry_interval", "u32", (PUBLISH,)),
    0x03: ("content_type", "text", (PUBLISH,)),
    0x08: ("response_topic", "text", (PUBLISH,)),
    0x09: ("correlation_data", "binary", (PUBLISH,)),
    0x0B: ("subscription_identifier", "varint", (PUBLISH,)),
    0x11: ("session_expiry_interval", "u32", (CONNACK,)),
    0x12: ("assigned_client_identifier", "text", (CONNACK,)),
    0x13: ("server_keep_alive", "u16", (CONNACK,)),
    0x15: ("authentication_method", "text", (CONNACK, AUTH)),
    0x16: ("authentication_data", "binary", (CONNACK, AUTH)),
    0x17: ("request_problem_information", "byte", ()),
    0x18: ("will_delay_interval", "u32", ()),
    0x19: ("request_response_information", "byte", ()),
    0x1A: ("response_information", "text", (CONNACK,)),
    0x1C: ("server_reference", "text", (CONNACK, DISCONNECT)),
    0x1F: ("reason_string", "text", _ACKS),
    0x21: ("receive_maximum", "u16", (CONNACK,)),
    0x22: ("topic_alias_maximum", "u16", (CONNACK,)),
    0x23: ("topic_alias", "u16", (PUBLISH,)),
    0x24: ("maximum_qos", "byte", (CONNACK,)),
    0x25: ("retain_available", "byte", (CONNACK,)),
    0x26: ("user_property", "pair", (PUBLISH, *_ACKS)),
    0x27: ("maximum_packet_size", "u32", (CONNACK,)),
    0x28: ("wildcard_subscription_available", "byte", (CONNACK,)),
    0x29: ("subscription_identifier_available", "byte", (CONNACK,)),
    0x2A: ("shared_subscription_available", "byte", (CONNACK,)),
}
_PROPERTY_IDS = {name: (identifier, encoding) for identifier, (name, encoding, _) in PROPERTIES.items()}
_REPEATABLE = {"user_property", "subscription_identifier"}

# Reason codes a server may send, by packet (MQTT 5, sections 3.2.2.2 to 3.15.2.1).
REASONS = {
    CONNACK: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    PUBACK: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    PUBREC: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    PUBREL: {0x00, 0x92},
    PUBCOMP: {0x00, 0x92},
    SUBACK: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    DISCONNECT: {0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3)},
    AUTH: {0x00, 0x18},
}


# ---------------------------------------------------------------------------------------------- building


def varint(value: int) -> bytes:
    """Encodes a Variable Byte Integer in its shortest form (section 1.5.5)."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def u16(value: int) -> bytes:
    return struct.pack(">H", value)


def binary(value: bytes) -> bytes:
    return u16(len(value)) + value


def text(value: str | bytes) -> bytes:
    """Encodes a length-prefixed string; bytes are used as they are, so ill-formed UTF-8 can be sent."""
    return binary(value if isinstance(value, bytes) else value.encode())


def property_(name: str, value) -> bytes:
    identifier, encoding = _PROPERTY_IDS[name]
    encoded = {
        "byte": lambda: bytes([value]),
        "u16": lambda: u16(value),
        "u32": lambda: struct.pack(">I", value),
        "varint": lambda: varint(value),
        "text": lambda: text(value),
        "binary": lambda: binary(value),
        "pair": lambda: text(value[0]) + text(value[1]),
    }[encoding]()
    return bytes([identifier]) + encoded


def property_block(given) -> bytes:
    """Encodes a property block with its length, from a dict (a list value repeats the property) or from raw bytes."""
    if isinstance(given, bytes):
        return varint(len(given)) + given
    body = b"".join(
        property_(name, one)
        for name, value in (given or {}).items()
        for one in (value if isinstance(value, list) else [value])
    )
    return varint(len(body)) + body


def packet(kind: int, flags: int, body: bytes, length: bytes | None = None) -> bytes:
    """Builds a Control Packet; `length` overrides the Remaining Length field."""
    return bytes([kind << 4 | flags]) + (varint(len(body)) if length is None else length) + body


@dataclass
class Will:
    topic: str | bytes
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: dict | bytes = field(default_factory=dict)


def connect(client_id: str | bytes = "", version: int = V5, clean: bool = True, keep_alive: int = 0,
            properties: dict | bytes | None = None, will: Will | None = None, username=None, password=None,
            flags: int | None = None, name: str | None = None, level: int | None = None) -> bytes:
    """Builds CONNECT; `flags`, `name` and `level` override what the other arguments imply."""
    implied = clean << 1
    payload = text(client_id)
    if will:
        implied |= 0x04 | will.qos << 3 | will.retain << 5
        payload += property_block(will.properties) if version == V5 else b""
        payload += text(will.topic) + binary(will.payload)
    if username is not None:
        implied |= 0x80
        payload += text(username)
    if password is not None:
        implied |= 0x40
        payload += binary(password)
    header = text(("MQIsdp" if version == V31 else "MQTT") if name is None else name)
    header += bytes([version if level is None else level, implied if flags is None else flags]) + u16(keep_alive)
    if version == V5:
        header += property_block(properties)
    return packet(CONNECT, 0, header + payload)


def publish(topic: str | bytes, payload: bytes = b"", qos: int = 0, packet_id: int | None = None, retain: bool = False,
            dup: bool = False, properties=None, version: int = V5) -> bytes:
    body = text(topic) + (b"" if packet_id is None else u16(packet_id))
    body += property_block(properties) if version == V5 else b""
    return packet(PUBLISH, dup << 3 | qos << 1 | retain, body + payload)


def acknowledge(kind: int, packet_id: int, reason: int | None = None, properties=None, flags: int | None = None) -> bytes:
    """Builds PUBACK, PUBREC, PUBREL or PUBCOMP; without a reason in the two-byte form of every version."""
    body = u16(packet_id) + (b"" if reason is None else bytes([reason]))
    body += b"" if properties is None else property_block(properties)
    return packet(kind, (2 if kind == PUBREL else 0) if flags is None else flags, body)


def subscribe(packet_id: int, *filters: tuple[str | bytes, int], properties=None, version: int = V5, flags: int = 2) -> bytes:
    """Builds SUBSCRIBE for (filter, options byte) pairs."""
    body = u16(packet_id) + (property_block(properties) if version == V5 else b"")
    return packet(SUBSCRIBE, flags, body + b"".join(text(name) + bytes([options]) for name, options in filters))


def unsubscribe(packet_id: int, *filters: str | bytes, properties=None, version: int = V5, flags: int = 2) -> bytes:
    body = u16(packet_id) + (property_block(properties) if version == V5 else b"")
    return packet(UNSUBSCRIBE, flags, body + b"".join(text(name) for name in filters))


def disconnect(reason: int | None = None, properties=None, flags: int = 0) -> bytes:
    body = b"" if reason is None else bytes([reason])
    return packet(DISCONNECT, flags, body + (b"" if properties is None else property_block(properties)))


def auth(reason: int | None = None, properties=None, flags: int = 0) -> bytes:
    body = b"" if reason is None else bytes([reason])
    return packet(AUTH, flags, body + (b"" if properties is None else property_block(properties)))


def pingreq(flags: int = 0) -> bytes:
    return packet(PINGREQ, flags, b"")


# ----------------------------------------------------------------------------------------------- parsing


class Violation(AssertionError):
    """The broker sent something that the standard forbids."""


class Closed(Exception):
    """The broker closed the Network Connection."""


@dataclass
class Packet:
    """A packet from a server. `reasons` is the list of SUBACK and UNSUBACK, `reason` the code of all other packets."""

    kind: int
    size: int = 0
    dup: bool = False
    qos: int = 0
    retain: bool = False
    packet_id: int | None = None
    topic: str | None = None
    payload: bytes = b""
    session_present: bool = False
    reason: int = 0
    reasons: list[int] = field(default_factory=list)
    properties: dict = field(default_factory=dict)

    def __repr__(self) -> str:
        """Returns the name and all fields that are not at their default; a long payload is truncated."""
        fields = {one: getattr(self, one) for one in self.__dataclass_fields__ if one not in ("kind", "payload")}
        shown = [f"{one}={value!r}" for one, value in fields.items() if value or value == 0 and one == "packet_id"]
        if self.payload:
            shown.append(f"payload={self.payload[:40]!r}" + ("…" if len(self.payload) > 40 else ""))
        return f"{NAMES[self.kind]}({', '.join(shown)})"


def require(condition, message: str) -> None:
    if not condition:
        raise Violation(message)


class Reader:
    """Takes fields off the front of a packet body."""

    def __init__(self, data: bytes):
        self.data = data

    def take(self, count: int) -> bytes:
        require(len(self.data) >= count, f"packet ends {count - len(self.data)} bytes early")
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def text(self) -> str:
        raw = self.binary()
        try:
            decoded = raw.decode()
        except UnicodeDecodeError as error:
            raise Violation(f"ill-formed UTF-8 {raw!r}") from error
        require("\0" not in decoded, "U+0000 in a string")
        return decoded

    def varint(self) -> int:
        value, digits = 0, 0
        while True:
            digit = self.number(1)
            value |= (digit & 0x7F) << 7 * digits
            digits += 1
            if digit < 0x80:
                require(digits == len(varint(value)), "Variable Byte Integer longer than necessary")
                return value
            require(digits < 4, "Variable Byte Integer of more than four bytes")

    def properties(self, kind: int) -> dict:
        block = Reader(self.take(self.varint()))
        found: dict = {}
        while block.data:
            identifier = block.varint()
            require(identifier in PROPERTIES, f"unknown property 0x{identifier:02x} in {NAMES[kind]}")
            name, encoding, allowed = PROPERTIES[identifier]
            require(kind in allowed, f"a server must not send {name} in {NAMES[kind]}")
            value = {
                "byte": lambda: block.number(1),
                "u16": lambda: block.number(2),
                "u32": lambda: block.number(4),
                "varint": block.varint,
                "text": block.text,
                "binary": block.binary,
                "pair": lambda: (block.text(), block.text()),
            }[encoding]()
            if name in _REPEATABLE:
                found.setdefault(name, []).append(value)
            else:
                require(name not in found, f"{name} twice in {NAMES[kind]}")
                found[name] = value
        for name in ("payload_format_indicator", "maximum_qos", "retain_available", "wildcard_subscription_available",
                     "subscription_identifier_available", "shared_subscription_available"):
            require(found.get(name, 0) in (0, 1), f"{name} is {found.get(name)}")
        for name in ("receive_maximum", "maximum_packet_size", "topic_alias"):
            require(found.get(name, 1) != 0, f"{name} is 0")
        require(0 not in found.get("subscription_identifier", []), "subscription identifier 0")
        return found


def parse(first: int, body: bytes, version: int) -> Packet:
    """Parses a packet from a server; raises `Violation` if the server must not send it."""
    kind, flags, reader = first >> 4, first & 0x0F, Reader(body)
    require(kind in (CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, PINGRESP)
            or version == V5 and kind in (DISCONNECT, AUTH), f"a server must not send {NAMES[kind]}")
    found = Packet(kind)
    if kind != PUBLISH:
        require(flags == (2 if kind == PUBREL else 0), f"{NAMES[kind]} with flags {flags:04b}")

    if kind == CONNACK:
        acknowledge_flags = reader.number(1)
        require(acknowledge_flags in (0, 1), "reserved Connect Acknowledge Flags set")
        found.session_present = acknowledge_flags == 1
        found.reason = reader.number(1)
        if version == V5:
            found.properties = reader.properties(kind)
        require(version != V31 or not found.session_present, "Session Present is reserved in MQTT 3.1")
        require(version == V5 or found.reason <= 5, f"return code {found.reason} is reserved")
        require(found.reason == 0 or not found.session_present, "refused, but Session Present set")
    elif kind == PUBLISH:
        found.dup, found.qos, found.retain = bool(flags & 8), flags >> 1 & 3, bool(flags & 1)
        require(found.qos < 3, "both QoS bits set")
        require(found.qos or not found.dup, "DUP set at QoS 0")
        found.topic = reader.text()
        require(not set(found.topic) & set("+#"), f"wildcard in topic name {found.topic!r}")
        if found.qos:
            found.packet_id = reader.number(2)
        if version == V5:
            found.properties = reader.properties(kind)
        require(found.topic or "topic_alias" in found.properties, "empty topic name without an alias")
        found.payload, reader.data = reader.data, b""
        if found.properties.get("payload_format_indicator") == 1:
            require(is_utf8(found.payload), "payload declared as UTF-8 is not")
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        found.packet_id = reader.number(2)
        if version == V5 and reader.data:
            found.reason = reader.number(1)
            if reader.data:
                found.properties = reader.properties(kind)
    elif kind in (SUBACK, UNSUBACK):
        found.packet_id = reader.number(2)
        if version == V5:
            found.properties = reader.properties(kind)
        if kind == SUBACK or version == V5:
            found.reasons, reader.data = list(reader.data), b""
            require(found.reasons, f"{NAMES[kind]} without reason codes")
        if version != V5:
            granted = (0, 1, 2) if version == V31 else (0, 1, 2, 0x80)
            require(all(code in granted for code in found.reasons), f"reserved return code in {found.reasons}")
    elif kind in (DISCONNECT, AUTH) and reader.data:
        found.reason = reader.number(1)
        if reader.data:
            found.properties = reader.properties(kind)

    require(not reader.data, f"{len(reader.data)} bytes too many in {NAMES[kind]}")
    require(found.packet_id != 0, f"packet identifier 0 in {NAMES[kind]}")
    if version == V5 and kind in REASONS:
        for code in found.reasons or [found.reason]:
            require(code in REASONS[kind], f"0x{code:02x} is no reason code of {NAMES[kind]}")
    return found


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ client


class Client:
    """A blocking client that does nothing by itself: no keep alive, no acknowledgement, no reconnection.

    The helpers `subscribe`, `unsubscribe` and `publish` wait for their acknowledgement. Other packets that arrive in the
    meantime (a server may send a PUBLISH before the SUBACK) are kept, and `recv` returns them in order.
    """

    def __init__(self, stream, version: int = V5, timeout: float = SECONDS, explains: bool = True):
        """`stream` is an address (host, port) or anything with `sendall`, `recv`, `settimeout` and `close`.

        MQTT 5 allows a server to close without a reason code; `explains` says that this one always sends it.
        """
        if isinstance(stream, tuple):
            stream = socket.create_connection(stream, timeout=timeout)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = stream
        self.version = version
        self.timeout = timeout
        self.explains = explains
        self.client_id: str | None = None
        self.connack: Packet | None = None
        self._buffer = b""
        self._kept: deque[Packet] = deque()
        self._packet_ids = itertools.cycle(range(1, 65536))

    # -- bytes and packets

    def send(self, *packets: bytes) -> Client:
        self.stream.sendall(b"".join(packets))
        return self

    def next_packet_id(self) -> int:
        return next(self._packet_ids)

    def recv(self, timeout: float | None = None) -> Packet:
        """Returns the next packet; raises `TimeoutError` if none comes in time, `Closed` at the end of the connection."""
        return self._kept.popleft() if self._kept else self._read(timeout)

    def _read(self, timeout: float | None) -> Packet:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while (framed := self._frame()) is None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError("no packet came in time")
            self.stream.settimeout(remaining)
            try:
                data = self.stream.recv(65536)
            except ConnectionError as error:
                raise Closed from error
            if not data:
                require(not self._buffer, f"closed in the middle of a packet: {self._buffer[:32]!r}")
                raise Closed
            self._buffer += data
        first, body, size = framed
        found = parse(first, body, self.version)
        found.size = size
        return found

    def _frame(self) -> tuple[int, bytes, int] | None:
        if len(self._buffer) < 2:
            return None
        ends = [at for at, byte in enumerate(self._buffer[1:5]) if byte < 0x80]
        if not ends:
            require(len(self._buffer) < 5, "Remaining Length of more than four bytes")
            return None
        header = 2 + ends[0]
        length = Reader(self._buffer[1:header]).varint()
        if len(self._buffer) < header + length:
            return None
        first, body = self._buffer[0], self._buffer[header:header + length]
        self._buffer = self._buffer[header + length:]
        return first, body, header + length

    def wait_for(self, kind: int, packet_id: int) -> Packet:
        """Returns the acknowledgement `kind` of `packet_id`, and keeps every PUBLISH and PUBREL that comes before it."""
        kept = []
        while True:
            found = self._read(None)
            if (found.kind, found.packet_id) == (kind, packet_id) and kind not in (PUBLISH, PUBREL):
                self._kept.extend(kept)
                return found
            require(found.kind in (PUBLISH, PUBREL), f"expected {NAMES[kind]} {packet_id}, got {found}")
            kept.append(found)

    # -- expectations

    def expect(self, kind: int, timeout: float | None = None, **fields) -> Packet:
        found = self.recv(timeout)
        assert found.kind == kind, f"expected {NAMES[kind]}, got {found}"
        for name, value in fields.items():
            assert getattr(found, name) == value, f"{name} of {found} is not {value!r}"
        return found

    def expect_closed(self, timeout: float | None = None) -> None:
        try:
            found = self.recv(timeout)
        except Closed:
            return
        except TimeoutError:
            raise AssertionError("the connection stayed open") from None
        raise AssertionError(f"expected the end of the connection, got {found}")

    def expect_refused(self, *reasons: int, timeout: float | None = None) -> None:
        """Expects that the broker ends this connection: for MQTT 5 with DISCONNECT and one of `reasons`, else without a packet."""
        if self.version == V5:
            self._expect_reason(DISCONNECT, reasons, timeout)
        self.expect_closed(timeout)

    def expect_not_accepted(self, *reasons: int, timeout: float | None = None) -> None:
        """Expects that the broker refuses the CONNECT: with CONNACK and one of `reasons`, or without a packet if there are none."""
        if reasons:
            self._expect_reason(CONNACK, reasons, timeout)
        self.expect_closed(timeout)

    def _expect_reason(self, kind: int, reasons: tuple[int, ...], timeout: float | None) -> None:
        try:
            found = self.expect(kind, timeout)
        except Closed:
            assert self.version == V5 and not self.explains, f"closed without {NAMES[kind]}"
            return
        assert found.reason in reasons, f"{NAMES[kind]} 0x{found.reason:02x}, expected {[hex(one) for one in reasons]}"

    def expect_nothing(self, seconds: float = 0.25) -> None:
        try:
            found = self.recv(seconds)
        except TimeoutError:
            return
        except Closed:
            raise AssertionError("the connection was closed") from None
        raise AssertionError(f"expected nothing, got {found}")

    def receive(self, payload: bytes | None = None, timeout: float | None = None) -> Packet:
        """Returns the next PUBLISH, after acknowledging it to the end of its QoS flow."""
        found = self.expect(PUBLISH, timeout)
        if payload is not None:
            assert found.payload == payload, f"expected {payload!r}, got {found}"
        self.complete(found)
        return found

    def receive_all(self, seconds: float = 0.25, count: int = 0) -> list[Packet]:
        """Returns the next `count` messages, however long they take, and the messages after them, until none arrives for
        `seconds`. Then a PINGREQ, which rules out that the broker is merely slow, must not bring any either.
        """
        found = [self.receive() for _ in range(count)]
        while True:
            try:
                found.append(self.receive(timeout=seconds))
            except TimeoutError:
                self.ping()
                if not self._kept:
                    return found

    def complete(self, found: Packet) -> None:
        """Acknowledges a PUBLISH to the end of its QoS flow."""
        if found.qos == 1:
            self.send(acknowledge(PUBACK, found.packet_id))
        elif found.qos == 2:
            self.send(acknowledge(PUBREC, found.packet_id))
            kept = []
            while (answer := self._read(None)).kind == PUBLISH:
                kept.append(answer)
            require((answer.kind, answer.packet_id) == (PUBREL, found.packet_id), f"expected PUBREL, got {answer}")
            self._kept.extend(kept)
            self.send(acknowledge(PUBCOMP, found.packet_id))

    # -- conversations

    def connect(self, client_id: str = "", **options) -> Packet:
        self.client_id = client_id
        self.send(connect(client_id, version=self.version, **options))
        self.connack = self.expect(CONNACK)
        return self.connack

    def subscribe(self, *filters, qos: int = 0, properties=None) -> Packet:
        """Subscribes to filters, each a string at `qos` or a (filter, options byte) pair; returns the SUBACK."""
        packet_id = self.next_packet_id()
        pairs = [one if isinstance(one, tuple) else (one, qos) for one in filters]
        self.send(subscribe(packet_id, *pairs, properties=properties, version=self.version))
        return self.wait_for(SUBACK, packet_id)

    def unsubscribe(self, *filters: str) -> Packet:
        packet_id = self.next_packet_id()
        self.send(unsubscribe(packet_id, *filters, version=self.version))
        return self.wait_for(UNSUBACK, packet_id)

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, properties=None) -> Packet | None:
        """Publishes and completes the QoS flow; returns the packet that ended it."""
        packet_id = self.next_packet_id() if qos else None
        self.send(publish(topic, payload, qos, packet_id, retain, properties=properties, version=self.version))
        if qos == 0:
            return None
        answer = self.wait_for(PUBACK if qos == 1 else PUBREC, packet_id)
        if qos == 1 or answer.reason >= 0x80:
            return answer
        self.send(acknowledge(PUBREL, packet_id))
        return self.wait_for(PUBCOMP, packet_id)

    def ping(self) -> None:
        """Sends PINGREQ and waits for the answer; keeps other packets that arrive before it."""
        self.send(pingreq())
        kept = []
        while (found := self._read(None)).kind != PINGRESP:
            kept.append(found)
        self._kept.extend(kept)

    def disconnect(self, reason: int | None = None, properties=None) -> None:
        """Sends DISCONNECT, and waits until the broker has closed the connection too, so that the session is offline."""
        self.send(disconnect(reason, properties))
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            try:
                self._read(deadline - time.monotonic())
            except (Closed, TimeoutError):
                break
        self.stream.close()

    def drop(self) -> None:
        """Ends the connection as a failing network does: without DISCONNECT."""
        self.stream.close()
