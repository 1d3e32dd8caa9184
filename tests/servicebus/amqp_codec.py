"""AMQP 1.0 types as bytes and back, with nothing lost: what is read says which type it had (AMQP 1.0, part 1)."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass


class Symbol(str):
    """A symbol; a string is `str`."""


class Timestamp(int):
    """Milliseconds since 1970."""


class Ubyte(int):
    pass


class Ushort(int):
    pass


class Uint(int):
    pass


class Ulong(int):
    pass


class Byte(int):
    pass


class Short(int):
    pass


class Int(int):
    """32 bits; an `int` that is none of these classes is a long."""


class Float(float):
    """32 bits; a `float` is a double."""


@dataclass(frozen=True)
class Described:
    descriptor: object
    value: object


@dataclass(frozen=True)
class Array:
    """All elements are of one type."""
    items: tuple


@dataclass(frozen=True)
class Raw:
    """Bytes that stand for a value, well-formed or not."""
    data: bytes


# ------------------------------------------------------------------------------------------------------ to bytes

FIXED = {Ubyte: (0x50, ">B"), Byte: (0x51, ">b"), Ushort: (0x60, ">H"), Short: (0x61, ">h"), Uint: (0x70, ">I"), Int: (0x71, ">i"),
         Float: (0x72, ">f"), Ulong: (0x80, ">Q"), Timestamp: (0x83, ">q"), float: (0x82, ">d")}


def sized(small: int, large: int, data: bytes) -> bytes:
    return bytes([small, len(data)]) + data if len(data) < 256 else bytes([large]) + struct.pack(">I", len(data)) + data


def compound(code: int, items: list[bytes]) -> bytes:
    """A list (0xd0) or a map (0xd1)."""
    content = struct.pack(">I", len(items)) + b"".join(items)
    return bytes([code]) + struct.pack(">I", len(content)) + content


def encode(value) -> bytes:
    if value is None:
        return b"\x40"
    if isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if isinstance(value, Raw):
        return value.data
    if isinstance(value, Described):
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    if isinstance(value, Symbol):
        return sized(0xA3, 0xB3, value.encode("ascii"))
    if isinstance(value, str):
        return sized(0xA1, 0xB1, value.encode())
    if isinstance(value, (bytes, bytearray)):
        return sized(0xA0, 0xB0, bytes(value))
    if isinstance(value, uuid.UUID):
        return b"\x98" + value.bytes
    if isinstance(value, Array):
        return array(value.items)
    if isinstance(value, list):
        return compound(0xD0, [encode(item) for item in value]) if value else b"\x45"
    if isinstance(value, dict):
        return compound(0xD1, [encode(part) for pair in value.items() for part in pair])
    if isinstance(value, Ulong) and value < 256:  # Some clients know descriptors in this form only.
        return bytes([0x53, value])
    code, form = FIXED.get(type(value), (0x81, ">q"))
    return bytes([code]) + struct.pack(form, value)


def array(items: tuple) -> bytes:
    """Elements share a constructor: of variable width, with four bytes of length, or fixed."""
    if not items:
        content = struct.pack(">I", 0) + b"\x40"
    elif isinstance(items[0], (str, bytes)):
        code = 0xB3 if isinstance(items[0], Symbol) else 0xB1 if isinstance(items[0], str) else 0xB0
        raw = [item.encode() if isinstance(item, str) else item for item in items]
        content = struct.pack(">I", len(items)) + bytes([code]) + b"".join(struct.pack(">I", len(item)) + item for item in raw)
    else:
        encoded = [encode(item) for item in items]
        content = struct.pack(">I", len(items)) + encoded[0][:1] + b"".join(item[1:] for item in encoded)
    return b"\xf0" + struct.pack(">I", len(content)) + content


# ---------------------------------------------------------------------------------------------------- from bytes

WIDTHS = {0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
EMPTY = {0x40: None, 0x41: True, 0x42: False, 0x43: Uint(0), 0x44: Ulong(0), 0x45: []}
NUMBERS = {0x50: (">B", Ubyte), 0x51: (">b", Byte), 0x52: (">B", Uint), 0x53: (">B", Ulong), 0x54: (">b", Int), 0x55: (">b", int),
           0x56: (">B", bool), 0x60: (">H", Ushort), 0x61: (">h", Short), 0x70: (">I", Uint), 0x71: (">i", Int), 0x72: (">f", Float),
           0x80: (">Q", Ulong), 0x81: (">q", int), 0x82: (">d", float), 0x83: (">q", Timestamp)}


class Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        assert self.at + count <= len(self.data), "the bytes end before the value"
        self.at += count
        return self.data[self.at - count:self.at]

    def more(self) -> bool:
        return self.at < len(self.data)

    def value(self):
        code = self.take(1)[0]
        if code == 0:
            return Described(self.value(), self.value())
        return self.of(code)

    def of(self, code: int):
        """A value whose constructor has been read."""
        if code in EMPTY:
            return EMPTY[code] if code != 0x45 else []
        kind = code >> 4
        if kind in WIDTHS:
            data = self.take(WIDTHS[kind])
            if code == 0x98:
                return uuid.UUID(bytes=data)
            form, as_type = NUMBERS[code]
            return as_type(struct.unpack(form, data)[0])
        if kind in (0xA, 0xB):
            data = self.take(self.length(kind == 0xB))
            return {0: bytes, 1: lambda raw: raw.decode(), 3: lambda raw: Symbol(raw.decode("ascii"))}[code & 0xF](data)
        if kind in (0xC, 0xD):
            inner = Reader(self.take(self.length(kind == 0xD)))
            items = [inner.value() for _ in range(inner.length(kind == 0xD))]
            assert not inner.more(), "a list with bytes behind its last item"
            return items if code & 0xF == 0 else dict(zip(items[::2], items[1::2], strict=True))
        assert kind in (0xE, 0xF), f"no type has the code {code:#x}"
        inner = Reader(self.take(self.length(kind == 0xF)))
        count, constructor = inner.length(kind == 0xF), inner.take(1)[0]
        if constructor == 0:
            descriptor, constructor = inner.value(), inner.take(1)[0]
            return Array(tuple(Described(descriptor, inner.of(constructor)) for _ in range(count)))
        return Array(tuple(inner.of(constructor) for _ in range(count)))

    def length(self, wide: bool) -> int:
        return struct.unpack(">I", self.take(4))[0] if wide else self.take(1)[0]


def decode(data: bytes):
    reader = Reader(data)
    value = reader.value()
    assert not reader.more(), "bytes behind the value"
    return value
