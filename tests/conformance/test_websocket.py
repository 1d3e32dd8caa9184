"""MQTT over WebSocket (5 and 3.1.1: §6)."""

import base64
import hashlib
import os
import socket
import struct

import pytest

import wire
from wire import V5, V31

normative = pytest.mark.normative

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class WebSocket:
    """The client side of RFC 6455, with the stream interface that `wire.Client` wants."""

    def __init__(self, address, protocols: str | None = "mqtt", path: str = "/mqtt", wrap=lambda stream: stream):
        self.socket = wrap(socket.create_connection(address, timeout=5))
        self.frames = b""
        self.payload = b""
        self.control: list[tuple[int, bytes]] = []
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Protocol: {protocols}"] if protocols else []
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.socket.recv(4096)
            if not data:
                raise wire.Closed
            head += data
        head, self.frames = head.split(b"\r\n\r\n", 1)
        status, *fields = head.decode().split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {name.strip().lower(): value.strip() for name, value in (field.split(":", 1) for field in fields)}
        if self.status == 101:
            expected = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            assert self.headers["sec-websocket-accept"] == base64.b64encode(expected).decode()

    def frame(self, opcode: int, payload: bytes, final: bool = True, masked: bool = True) -> None:
        length = len(payload)
        size = bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length) if length < 65536 \
            else b"\x7f" + struct.pack(">Q", length)
        mask = os.urandom(4)
        body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if masked else payload
        head = bytes([final << 7 | opcode, size[0] | masked << 7]) + size[1:]
        self.socket.sendall(head + (mask if masked else b"") + body)

    def sendall(self, data: bytes) -> None:
        self.frame(BINARY, data)

    def settimeout(self, seconds: float) -> None:
        self.socket.settimeout(seconds)

    def close(self) -> None:
        self.socket.close()

    def recv(self, _size: int) -> bytes:
        """Payload of the next data frame; empty at the end of the connection or after a close frame."""
        while True:
            opcode, payload = self.next_frame()
            if opcode is None or opcode == CLOSE:
                return b""
            if opcode in (PING, PONG):
                self.control.append((opcode, payload))
                continue
            assert opcode in (BINARY, CONTINUATION), f"the broker sent a frame of type {opcode}"
            if payload:
                return payload

    def next_frame(self) -> tuple[int | None, bytes]:
        def need(count: int) -> bool:
            while len(self.frames) < count:
                data = self.socket.recv(65536)
                if not data:
                    return False
                self.frames += data
            return True

        if not need(2):
            return None, b""
        opcode, length, start = self.frames[0] & 15, self.frames[1], 2
        assert length < 128, "a server must not mask"
        if length == 126:
            need(4)
            length, start = struct.unpack(">H", self.frames[2:4])[0], 4
        elif length == 127:
            need(10)
            length, start = struct.unpack(">Q", self.frames[2:10])[0], 10
        if not need(start + length):
            return None, b""
        payload, self.frames = self.frames[start:start + length], self.frames[start + length:]
        return opcode, payload


@pytest.fixture
def websocket(broker):
    if not broker.ws_port:
        pytest.skip("needs a WebSocket address")
    opened = []

    def open_(version: int = V5, **options) -> wire.Client:
        stream = WebSocket((broker.address[0], broker.ws_port), **options)
        opened.append(stream)
        return wire.Client(stream, version)

    yield open_
    for stream in opened:
        stream.close()


@normative("5:MQTT-6.0.0-4", "311:MQTT-6.0.0-4", "5:MQTT-6.0.0-1", "311:MQTT-6.0.0-1")
def test_a_conversation(websocket, connect, topic, unique, version, qos):
    """Subprotocol mqtt (mqttv3.1 for 3.1), binary frames both ways, and the same topics as over TCP."""
    name = "mqttv3.1" if version == V31 else "mqtt"
    client = websocket(version, protocols=name)
    assert client.stream.status == 101
    assert client.stream.headers["sec-websocket-protocol"] == name
    assert client.connect(unique("w")).reason == 0
    client.subscribe(topic, qos=qos)
    connect(version).publish(topic, bytes(70_000), qos=qos)
    client.receive(bytes(70_000))
    over_tcp = connect(version)
    over_tcp.subscribe(topic + "/back")
    client.publish(topic + "/back", b"hello", qos=qos)
    over_tcp.receive(b"hello")
    client.send(wire.disconnect()).expect_closed()


@normative("5:MQTT-6.0.0-4", "311:MQTT-6.0.0-4")
@pytest.mark.parametrize("offered, selected", [("mqtt", "mqtt"), ("soap, mqtt", "mqtt"), ("mqtt,wamp", "mqtt"),
                                               ("mqttv3.1", "mqttv3.1")])
def test_the_subprotocol_is_selected(websocket, offered, selected):
    assert websocket(protocols=offered).stream.headers["sec-websocket-protocol"] == selected


@pytest.mark.parametrize("options", [{"protocols": None}, {"protocols": "soap"}, {"path": "/elsewhere"}],
                         ids=["none", "other", "path"])
def test_without_the_subprotocol_or_the_path_there_is_no_mqtt(websocket, options):
    """Refused in HTTP, or for want of a subprotocol upgraded without selecting one."""
    try:
        client = websocket(**options)
    except (wire.Closed, ConnectionError):
        return
    if client.stream.status == 101:
        assert "path" not in options and "sec-websocket-protocol" not in client.stream.headers
    else:
        assert 400 <= client.stream.status < 500


@normative("5:MQTT-6.0.0-2", "311:MQTT-6.0.0-2")
@pytest.mark.parametrize("size", [1, 3, 10, 100_000])
def test_frames_do_not_align_with_packets(websocket, topic, unique, oasis, size):
    client = websocket(oasis)
    packets = [wire.connect(unique("w"), version=oasis), wire.subscribe(1, (topic, 0), version=oasis),
               *(wire.publish(topic, b"%d" % number, version=oasis) for number in range(20))]
    stream = b"".join(packets)
    for at in range(0, len(stream), size):
        client.stream.frame(BINARY, stream[at:at + size])
    client.expect(wire.CONNACK, reason=0)
    client.wait_for(wire.SUBACK, 1)
    for number in range(20):
        client.receive(b"%d" % number)


@normative("5:MQTT-6.0.0-2", "311:MQTT-6.0.0-2")
def test_fragmented_messages_and_empty_frames(websocket, unique, oasis):
    """One message in three fragments with a ping in between, and frames with nothing in them."""
    client = websocket(oasis)
    packet = wire.connect(unique("w"), version=oasis)
    client.stream.frame(BINARY, b"")
    client.stream.frame(BINARY, packet[:3], final=False)
    client.stream.frame(PING, b"are you there")
    client.stream.frame(CONTINUATION, packet[3:7], final=False)
    client.stream.frame(CONTINUATION, packet[7:])
    client.expect(wire.CONNACK, reason=0)
    client.ping()
    assert (PONG, b"are you there") in client.stream.control


@normative("5:MQTT-6.0.0-1", "311:MQTT-6.0.0-1")
@pytest.mark.parametrize("before", [True, False], ids=["before-connect", "after-connect"])
def test_text_frames_end_the_connection(websocket, unique, oasis, before):
    client = websocket(oasis)
    if before:
        client.stream.frame(TEXT, wire.connect("c", version=V31))
    else:
        client.connect(unique("w"))
        client.stream.frame(TEXT, b"hello")
    try:
        while client.recv().kind == wire.DISCONNECT:
            pass
    except wire.Closed:
        return
    raise AssertionError("the connection stayed open")


def test_a_close_frame_is_answered(websocket, connect, topic, unique):
    """And without DISCONNECT before it the will is published."""
    watcher = connect(V5)
    watcher.subscribe(topic)
    client = websocket()
    client.connect(unique("w"), will=wire.Will(topic, b"gone"))
    client.stream.frame(CLOSE, struct.pack(">H", 1000))
    opcode, _ = client.stream.next_frame()
    assert opcode in (CLOSE, None)
    watcher.receive(b"gone")


def test_unmasked_frames_end_the_connection(websocket, connect):
    """RFC 6455, section 5.1."""
    client = websocket()
    client.stream.frame(BINARY, wire.connect("c"), masked=False)
    client.expect_closed()
    connect(V5).ping()


def test_a_declared_frame_length_allocates_nothing(websocket, connect):
    for _ in range(20):
        client = websocket()
        client.stream.socket.sendall(b"\x82\xff" + struct.pack(">Q", 1 << 40) + b"\0\0\0\0" + b"x" * 100)
    connect(V5).ping()


def test_malformed_packets_are_answered_in_a_frame(websocket, unique):
    client = websocket()
    client.connect(unique("w"))
    client.send(b"\x00\x00").expect_refused(0x81, 0x82)
