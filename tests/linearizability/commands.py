"""Requests, responses and notifications of the state store on the wire. Like `wire.py` independent of the broker under test."""

from __future__ import annotations

import wire
from history import ABSENT, DELETE, DELETED, NOT_APPLIED, NOTHING, OK, SET, VALUE, Answer, Operation, Sighting, Version

STORE = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8"
INVOKE = f"{STORE}/command/invoke"


def response_topic(client_id: str) -> str:
    return f"clients/{client_id}/services/{INVOKE}/response"


def notify_prefix(client_id: str) -> str:
    return f"clients/{STORE}/{client_id.encode().hex().upper()}/command/notify/"


def encode(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def request(operation: Operation) -> bytes:
    verb = "SET" if operation.verb in ("NX", "NEX") else operation.verb
    words = [verb.encode(), operation.key]
    words += [] if operation.value is None else [operation.value]
    words += [operation.verb.encode()] if operation.verb in ("NX", "NEX") else []
    words += [] if operation.ttl is None else [b"PX", b"%d" % round(operation.ttl * 1000)]
    return encode(*words)


def answer(packet: wire.Packet, verb: str) -> Answer:
    """Parses a response; raises `Violation` if it is not, byte for byte, a response to `verb`."""
    stamp = _stamp(packet)
    properties = dict(packet.properties.get("user_property", []))
    wire.require(properties.get("__stat") == "200", f"__stat is not 200: {packet}")
    wire.require(properties.get("__protVer", "1.0") == "1.0", f"__protVer is not 1.0: {packet}")
    payload = packet.payload
    if payload.startswith(b"-ERR "):
        wire.require(payload.endswith(b"\r\n") and payload.count(b"\r\n") == 1, f"ill-formed: {packet}")
        return Answer(payload[:-2].decode())
    if verb == "GET" and payload != b"$-1\r\n":
        value = _bulk(payload)
        wire.require(value is not None and payload == b"$%d\r\n%b\r\n" % (len(value), value), f"ill-formed: {packet}")
        wire.require(stamp, f"a value without a version: {packet}")
        return Answer(VALUE, value, stamp)
    says = payload.removesuffix(b"\r\n").decode(errors="replace")
    allowed = {"GET": (ABSENT,), "DEL": (DELETED, NOTHING), "VDEL": (DELETED, NOTHING, NOT_APPLIED),
               "NX": (OK, NOT_APPLIED), "NEX": (OK, NOT_APPLIED), "SET": (OK,), "KEYNOTIFY": (OK,)}[verb]
    wire.require(says in allowed and payload.endswith(b"\r\n"), f"no answer to {verb}: {packet}")
    wire.require(stamp is None or says not in (ABSENT, NOTHING), f"a version of nothing: {packet}")
    wire.require(stamp or verb == "KEYNOTIFY" or says in (ABSENT, NOTHING) or verb == "VDEL" and says == NOT_APPLIED,
                 f"an answer without a version: {packet}")
    return Answer(says, None, stamp)


def sighting(packet: wire.Packet, seen: float) -> Sighting:
    """Parses a notification."""
    stamp = _stamp(packet)
    wire.require(stamp, f"a notification without a version: {packet}")
    for name in ("correlation_data", "response_topic"):
        wire.require(name not in packet.properties, f"{name} in a notification: {packet}")
    if packet.payload == encode(b"NOTIFY", b"DELETE"):
        return Sighting(stamp, DELETE, None, seen)
    begin = encode(b"NOTIFY", b"SET", b"VALUE").replace(b"*3", b"*4", 1)
    value = _bulk(packet.payload.removeprefix(begin))
    wire.require(value is not None and packet.payload == encode(b"NOTIFY", b"SET", b"VALUE", value), f"ill-formed: {packet}")
    return Sighting(stamp, SET, value, seen)


def _bulk(payload: bytes) -> bytes | None:
    length, _, rest = payload.partition(b"\r\n")
    return rest[:int(length[1:])] if length[:1] == b"$" and length[1:].isdigit() else None


def _stamp(packet: wire.Packet) -> Version | None:
    """Checks what all messages of the store have in common, and returns the version of the message."""
    given = packet.properties.get("user_property", [])
    wire.require(len(dict(given)) == len(given), f"a property twice: {packet}")
    wire.require(packet.qos == 1 and not packet.retain, f"not QoS 1, or retained: {packet}")
    wire.require(packet.properties.get("content_type", "application/octet-stream") == "application/octet-stream", f"{packet}")
    wire.require("payload_format_indicator" not in packet.properties or packet.properties["payload_format_indicator"] == 0, f"{packet}")
    stamp = dict(given).get("__ts")
    if stamp is None:
        return None
    version = Version.parse(stamp)
    wire.require(version.node == "StateStore" and str(version) == stamp, f"an odd version: {packet}")
    return version
