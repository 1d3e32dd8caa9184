"""Clients of MQTT 3.1.1 whose sessions wait for messages while they are away.

Messages of a load have one length, so that a read is checked by slices, not packet by packet: Python
carries some hundred thousand a second that way, all of them looked at.
"""

from __future__ import annotations

import os
import selectors
import socket
import time

# Packet identifiers of a publisher go round; so do the acknowledgements it expects.
IDENTIFIERS = 60_000
PUBACKS = b"".join(b"\x40\x02" + i.to_bytes(2, "big") for i in range(1, IDENTIFIERS + 1)) * 2
CONNACK_BYTES, SUBACK_BYTES, PUBACK_BYTES = 4, 5, 4
ANSWER_SECONDS = 60
CONNECTED_AT_ONCE = 500
# Some brokers refuse subscriptions when they are asked for more at a time.
SUBSCRIBING_AT_ONCE = 20


class Wrong(Exception):
    """A broker's answer that no broker may give; says which."""


class Load:
    """`sessions` without their clients, and `size` bytes of payload in each message for one of them.

    A payload begins with the number of the message in its session, in two bytes.
    """

    def __init__(self, sessions: int, size: int):
        self.sessions, self.size = sessions, size
        self._filler = os.urandom(size - 2)
        self._head = publish_head(len(self.topic(0)) + 4 + size, qos=1)
        self.packet_bytes = len(self._head) + 2 + len(self.topic(0)) + 2 + size
        # Where, in a packet, topic, packet identifier and payload begin.
        self.topic_at = len(self._head) + 2
        self.identifier_at = self.topic_at + len(self.topic(0))
        self.payload_at = self.identifier_at + 2

    @staticmethod
    def topic(session: int) -> bytes:
        return b"offline/%07d" % session

    @staticmethod
    def client_id(session: int) -> str:
        return f"offline{session:07d}"

    def packet(self, session: int, identifier: int, number: int) -> bytes:
        topic = self.topic(session)
        return b"".join((self._head, len(topic).to_bytes(2, "big"), topic, identifier.to_bytes(2, "big"),
                         number.to_bytes(2, "big"), self._filler))


def make_sessions(port: int, load: Load, topic=None) -> None:
    """Each session subscribes to its topic, or all to `topic`, at QoS 1; then its client goes."""
    for first in range(0, load.sessions, SUBSCRIBING_AT_ONCE):
        clients = []
        for session in range(first, min(first + SUBSCRIBING_AT_ONCE, load.sessions)):
            client = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
            client.sendall(connect(load.client_id(session), clean=False) + subscribe(topic or load.topic(session)))
            clients.append(client)
        for client in clients:
            answer = receive(client, CONNACK_BYTES + SUBACK_BYTES)
            if answer[3] != 0 or answer[-1] != 1:
                raise Wrong(f"CONNECT and SUBSCRIBE are answered with {answer.hex(' ')}")
            client.sendall(b"\xe0\x00")
            client.close()


def store(port: int, load: Load, numbers: range, publishers: int = 10, window: int = 1_000) -> float:
    """Publishes to each session the messages with these `numbers`, at QoS 1.

    Each of the `publishers` has sessions of its own, goes round them, and has at most `window` messages
    unacknowledged. Answers the seconds until the last was acknowledged.
    """
    selector = selectors.DefaultSelector()
    total, window = load.sessions * len(numbers), min(window, IDENTIFIERS)
    clients = []
    for number in range(publishers):
        client = Publisher(port, load, range(number, load.sessions, publishers), numbers, f"p{number}x{time.monotonic_ns()}")
        selector.register(client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
        clients.append(client)
    start, acknowledged = time.monotonic(), 0
    while acknowledged < total:
        events = selector.select(ANSWER_SECONDS)
        if not events:
            raise Wrong(f"{total - acknowledged} of {total} messages are not acknowledged")
        for key, mask in events:
            client = key.data
            if mask & selectors.EVENT_READ:
                acknowledged += client.read()
            client.write(window)
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unwritten else 0)
            if key.events != wanted:
                selector.modify(client.socket, wanted, client)
    seconds = time.monotonic() - start
    for client in clients:
        client.socket.sendall(b"\xe0\x00")
        client.socket.close()
    return seconds


class Publisher:
    """Publishes its messages and checks that they are acknowledged in their order."""

    def __init__(self, port: int, load: Load, sessions: range, numbers: range, client_id: str):
        self.socket = connected(port, client_id, clean=True)
        self.socket.setblocking(False)
        self._packets = (load.packet(session, i % IDENTIFIERS + 1, number)
                         for i, (number, session) in enumerate((n, s) for n in numbers for s in sessions))
        self._total = len(sessions) * len(numbers)
        self._sent = self._acknowledged = 0
        self._input = b""
        self.unwritten = memoryview(b"")

    def read(self) -> int:
        """How many more messages are acknowledged."""
        got = self.socket.recv(1 << 16)
        if not got:
            raise Wrong("the broker closes a publisher's connection")
        self._input += got
        count = len(self._input) // PUBACK_BYTES
        at = self._acknowledged % IDENTIFIERS * PUBACK_BYTES
        if self._input[:count * PUBACK_BYTES] != PUBACKS[at:at + count * PUBACK_BYTES]:
            raise Wrong("PUBACKs come in another order than the messages went")
        self._input = self._input[count * PUBACK_BYTES:]
        self._acknowledged += count
        return count

    def write(self, window: int) -> None:
        while True:
            if not self.unwritten:
                # In pieces: a window of large messages is more than a socket takes.
                count = min(window - (self._sent - self._acknowledged), self._total - self._sent, 64)
                if count <= 0:
                    return
                self.unwritten = memoryview(b"".join(next(self._packets) for _ in range(count)))
                self._sent += count
            try:
                self.unwritten = self.unwritten[self.socket.send(self.unwritten):]
            except BlockingIOError:
                return


class Drained:
    """What came when the clients were back."""

    def __init__(self):
        self.seconds = 0.0
        self.messages = self.lost = self.duplicates = self.disordered = 0


def drain(port: int, load: Load, numbers: range, at_once: int = CONNECTED_AT_ONCE, quiet: float = 15.0) -> Drained:
    """Clients come back, `at_once` at a time, take what waits for them and acknowledge it.

    Each must get the messages with these `numbers` in their order. Whoever has not got them after so
    many `quiet` seconds, in which nobody gets anything, has lost them.
    """
    result = Drained()
    selector = selectors.DefaultSelector()
    waiting = iter(range(load.sessions))
    open_clients: dict[int, Subscriber] = {}
    start = last = time.monotonic()
    while True:
        while len(open_clients) < at_once and (session := next(waiting, None)) is not None:
            client = Subscriber(port, load, session, numbers)
            selector.register(client.socket, selectors.EVENT_READ, client)
            open_clients[session] = client
        if not open_clients:
            break
        for key, _ in selector.select(0.2):
            client = key.data
            client.read()
            last = time.monotonic()
            if client.is_done():
                selector.unregister(client.socket)
                client.leave(result)
                del open_clients[client.session]
        if time.monotonic() - last > quiet:
            for client in open_clients.values():
                selector.unregister(client.socket)
                client.leave(result)
            open_clients.clear()
    result.seconds = last - start
    return result


class Subscriber:
    """A client that comes back to its session."""

    def __init__(self, port: int, load: Load, session: int, numbers: range):
        self.session = session
        self._load, self._numbers = load, numbers
        self._got: list[int] = []
        self._input = bytearray()
        self._is_connected = False
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(connect(load.client_id(session), clean=False))

    def read(self) -> None:
        got = self.socket.recv(1 << 18)
        if not got:
            raise Wrong("the broker closes a subscriber's connection")
        data = self._input
        data += got
        if not self._is_connected:
            if len(data) < CONNACK_BYTES:
                return
            if data[:CONNACK_BYTES] != b"\x20\x02\x01\x00":
                raise Wrong(f"a session that should be there: CONNACK {data[:CONNACK_BYTES].hex(' ')}")
            del data[:CONNACK_BYTES]
            self._is_connected = True
        length = self._load.packet_bytes
        count = len(data) // length
        if count == 0:
            return
        packets = data[:count * length]
        del data[:count * length]
        topic_at, topic = self._load.topic_at, self._load.topic(self.session)
        if any(packets[i + topic_at:i + topic_at + len(topic)] != topic for i in range(0, len(packets), length)):
            raise Wrong("a subscriber gets another packet than the messages that wait for it")
        acknowledgements = bytearray(b"\x40\x02\x00\x00" * count)
        acknowledgements[2::4] = packets[self._load.identifier_at::length]
        acknowledgements[3::4] = packets[self._load.identifier_at + 1::length]
        self.socket.sendall(acknowledgements)
        high, low = packets[self._load.payload_at::length], packets[self._load.payload_at + 1::length]
        self._got += [h << 8 | l for h, l in zip(high, low)]

    def is_done(self) -> bool:
        return len(self._got) >= len(self._numbers)

    def leave(self, result: Drained) -> None:
        """Ends the connection, and counts what came."""
        self.socket.sendall(b"\xe0\x00")
        self.socket.close()
        distinct = set(self._got)
        result.messages += len(self._got)
        result.lost += len(set(self._numbers) - distinct)
        result.duplicates += len(self._got) - len(distinct)
        result.disordered += sum(a > b for a, b in zip(self._got, self._got[1:]))


def first_message_seconds(port: int, load: Load, session: int) -> float:
    """From connecting to the whole first message, of a client that goes without acknowledging it."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as client:
        client.sendall(connect(load.client_id(session), clean=False))
        receive(client, CONNACK_BYTES + load.packet_bytes)
        return time.monotonic() - start


def puback_seconds(client: socket.socket, packet: bytes) -> float:
    """From sending one PUBLISH to its PUBACK."""
    start = time.monotonic()
    client.sendall(packet)
    receive(client, PUBACK_BYTES)
    return time.monotonic() - start


def retain(port: int, topics, payload: bytes, window: int = 1_000) -> float:
    """Publishes a retained message of QoS 1 to each topic. Answers the seconds it took."""
    start = time.monotonic()
    with connected(port, "retainer", clean=True) as client:
        unacknowledged, packets = 0, []
        for topic in topics:
            packets.append(publish_head(4 + len(topic) + len(payload), qos=1, retain=True)
                           + len(topic).to_bytes(2, "big") + topic + b"\x00\x01" + payload)
            if len(packets) == window // 2:
                client.sendall(b"".join(packets))
                unacknowledged, packets = unacknowledged + len(packets), []
                while unacknowledged > window // 2:
                    receive(client, PUBACK_BYTES)
                    unacknowledged -= 1
        client.sendall(b"".join(packets))
        receive(client, PUBACK_BYTES * (unacknowledged + len(packets)))
    return time.monotonic() - start


def subscribe_seconds(client: socket.socket, topic_filter: bytes, answer_bytes: int) -> float:
    """From SUBSCRIBE to the SUBACK and the retained messages, `answer_bytes` together."""
    start = time.monotonic()
    client.sendall(subscribe(topic_filter, qos=0))
    receive(client, answer_bytes)
    return time.monotonic() - start


def wait_until_ready(port: int, seconds: float) -> float:
    """The moment at which a client was accepted, for at most so many `seconds`."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            connected(port, "ready", clean=True).close()
            return time.monotonic()
        except (OSError, Wrong):
            if time.monotonic() > give_up:
                raise Wrong(f"no client is accepted for {seconds} s") from None
            time.sleep(0.002)


def connected(port: int, client_id: str, clean: bool) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(connect(client_id, clean))
    answer = receive(client, CONNACK_BYTES)
    if answer[3] != 0:
        raise Wrong(f"CONNECT is refused: {answer.hex(' ')}")
    return client


def connect(client_id: str, clean: bool) -> bytes:
    name = client_id.encode()
    flags = b"\x02" if clean else b"\x00"
    return packet(0x10, b"\x00\x04MQTT\x04" + flags + b"\x00\x00" + len(name).to_bytes(2, "big") + name)


def subscribe(topic_filter: bytes, qos: int = 1) -> bytes:
    return packet(0x82, b"\x00\x01" + len(topic_filter).to_bytes(2, "big") + topic_filter + bytes([qos]))


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + remaining_length(len(body)) + body


def publish_head(remaining: int, qos: int, retain: bool = False) -> bytes:
    return bytes([0x30 | qos << 1 | retain]) + remaining_length(remaining)


def remaining_length(length: int) -> bytes:
    out = bytearray()
    while True:
        length, low = length >> 7, length & 0x7F
        out.append(low | 0x80 if length else low)
        if not length:
            return bytes(out)


def receive(client: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        more = client.recv(count - len(got))
        if not more:
            raise Wrong("the broker closes a connection")
        got += more
    return bytes(got)
