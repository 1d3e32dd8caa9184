"""An AMQP 1.0 client that can say every byte, and sees every byte: for what no SDK says or shows."""

from __future__ import annotations

import itertools
import socket
import struct
import time
import uuid
from dataclasses import dataclass, field

from amqp_codec import Described, Reader, Symbol, Ubyte, Uint, Ulong, encode
from namespace import KEY, KEY_NAME
from sas import token

SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
NAMES = {0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer", 0x15: "disposition", 0x16: "detach", 0x17: "end",
         0x18: "close", 0x40: "mechanisms", 0x41: "init", 0x44: "outcome"}
CODES = {name: code for code, name in NAMES.items()}
FIELDS = {
    "open": "container_id hostname max_frame_size channel_max idle_time_out outgoing_locales incoming_locales offered desired properties",
    "begin": "remote_channel next_outgoing_id incoming_window outgoing_window handle_max offered desired properties",
    "attach": "name handle role snd_settle_mode rcv_settle_mode source target unsettled incomplete_unsettled initial_delivery_count"
              " max_message_size offered desired properties",
    "flow": "next_incoming_id incoming_window next_outgoing_id outgoing_window handle delivery_count link_credit available drain echo"
            " properties",
    "transfer": "handle delivery_id delivery_tag message_format settled more rcv_settle_mode state resume aborted batchable",
    "disposition": "role first last settled state batchable",
    "detach": "handle closed error", "end": "error", "close": "error",
    "mechanisms": "mechanisms", "init": "mechanism initial_response hostname", "outcome": "code additional_data",
}
FIELDS = {name: fields.split() for name, fields in FIELDS.items()}
SENDER, RECEIVER = False, True
SESSION_FILTER = Symbol("com.microsoft:session-filter")
BATCH = Uint(0x80013700)
SECONDS = 15.0

ACCEPTED, RELEASED = Described(Ulong(0x24), []), Described(Ulong(0x26), [])


def rejected(condition: str | None = None, description: str | None = None, info: dict | None = None) -> Described:
    return Described(Ulong(0x25), [error(condition, description, info)] if condition else [])


def modified(failed=None, undeliverable=None, annotations: dict | None = None) -> Described:
    return Described(Ulong(0x27), [failed, undeliverable, annotations])


def error(condition: str, description: str | None = None, info: dict | None = None) -> Described:
    return Described(Ulong(0x1D), [Symbol(condition), description, info])


def source(address, filters: dict | None = None) -> Described:
    return Described(Ulong(0x28), [address, *[None] * 6, filters])


def target(address) -> Described:
    return Described(Ulong(0x29), [address])


class Frame:
    """A performative that came, with its fields by name; those that were left out are None."""

    def __init__(self, channel: int, described: Described, payload: bytes):
        self.channel, self.payload = channel, payload
        self.kind, self.values = NAMES[described.descriptor], described.value
        names = FIELDS[self.kind]
        assert len(self.values) <= len(names), f"{self.kind} with {len(self.values)} fields"
        self.fields = dict(zip(names, [*self.values, *[None] * (len(names) - len(self.values))]))

    def __getattr__(self, name: str):
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.fields.items() if value is not None)})"

    @property
    def condition(self) -> str | None:
        return str(self.error.value[0]) if self.error else None


def performative(kind: str, channel: int = 0, payload: bytes = b"", /, **fields) -> bytes:
    """The bytes of a frame."""
    unknown = set(fields) - set(FIELDS[kind])
    assert not unknown, f"{kind} has no {unknown}"
    values = [fields.get(field) for field in FIELDS[kind]]
    while values and values[-1] is None:
        values.pop()
    return frame(encode(Described(Ulong(CODES[kind]), values)) + payload, channel, 1 if CODES[kind] >= 0x40 else 0)


def frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


class Closed(Exception):
    """The broker closed the connection."""


class Connection:
    """A socket with AMQP on it. `said` has all frames that came and were not waited for, in order."""

    def __init__(self, address: tuple[str, int], timeout: float = SECONDS):
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.said: list[Frame] = []
        self.ends_with_links = False
        """Whoever waits for something is told when the broker ends a link with an error: `Refused`."""
        self._buffer = bytearray()
        self._channels = itertools.count()

    # ------------------------------------------------------------------------------------------------- bytes

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, kind: str, channel: int = 0, payload: bytes = b"", /, **fields) -> None:
        self.write(performative(kind, channel, payload, **fields))

    def read_exactly(self, count: int, deadline: float) -> bytes:
        self._fill(count, deadline)
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _fill(self, count: int, deadline: float) -> None:
        """Reads until so many bytes are there; nothing is lost when they do not come in time."""
        while len(self._buffer) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("nothing came in time")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not data:
                raise Closed("the connection was closed")
            self._buffer += data

    def next_frame(self, seconds: float = SECONDS) -> Frame:
        """The next frame that is not empty."""
        deadline = time.monotonic() + seconds
        while True:
            self._fill(8, deadline)
            size, offset, _, channel = struct.unpack(">IBBH", self._buffer[:8])
            data = self.read_exactly(size, deadline)
            if size > 4 * offset:
                reader = Reader(data[4 * offset:])
                described = reader.value()
                return Frame(channel, described, reader.data[reader.at:])

    def expect(self, kind: str, seconds: float = SECONDS, /, **fields) -> Frame:
        """The first frame of that kind with these fields, among those that were said or will be."""
        deadline = time.monotonic() + seconds
        position = 0
        while True:
            while position < len(self.said):
                if self.said[position].kind == kind and all(getattr(self.said[position], key) == value for key, value in fields.items()):
                    return self.said.pop(position)
                if self.ends_with_links and self.said[position].kind == "detach" and self.said[position].error:
                    raise Refused(self.said[position].condition, "the link was ended")
                position += 1
            try:
                self.said.append(self.next_frame(max(deadline - time.monotonic(), 0.001)))
            except TimeoutError:
                raise TimeoutError(f"no {kind} {fields} but {self.said[-20:]}") from None
            except Closed as closed:
                raise Closed(f"{closed}; no {kind} {fields} but {self.said[-20:]}") from None

    def silent(self, seconds: float = 0.3, *kinds: str) -> bool:
        """Whether no frame (of these kinds) comes."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                self.said.append(self.next_frame(max(deadline - time.monotonic(), 0.001)))
        except TimeoutError:
            return not [one for one in self.said if not kinds or one.kind in kinds]

    # ------------------------------------------------------------------------------------------------- layers

    def sasl(self, mechanism: str = "ANONYMOUS", initial: bytes | None = b"") -> Frame:
        """Negotiates; the outcome."""
        self.write(SASL)
        assert self.read_exactly(8, time.monotonic() + SECONDS) == SASL
        self.mechanisms = self.expect("mechanisms").mechanisms
        self.say("init", mechanism=Symbol(mechanism), initial_response=initial)
        return self.expect("outcome")

    def open(self, max_frame_size: int = 65_536, idle_time_out: int | None = None, container_id: str | None = None, **fields) -> Frame:
        self.write(AMQP)
        assert self.read_exactly(8, time.monotonic() + SECONDS) == AMQP
        self.say("open", container_id=container_id or f"wire-{uuid.uuid4()}", hostname="localhost", max_frame_size=Uint(max_frame_size),
                 idle_time_out=None if idle_time_out is None else Uint(idle_time_out), **fields)
        return self.expect("open")

    def session(self, **fields) -> Session:
        return Session(self, next(self._channels), **fields)

    def close(self) -> None:
        self.socket.close()


class Session:
    """A pair of channels. Only as much of flow control as a client needs that is well treated."""

    def __init__(self, connection: Connection, channel: int, window: int = 1 << 20, **fields):
        self.connection, self.channel, self.window = connection, channel, window
        self._handles, self._deliveries, self.sent = itertools.count(), itertools.count(), 0
        connection.say("begin", channel, next_outgoing_id=Uint(0), incoming_window=Uint(window), outgoing_window=Uint(1 << 20),
                       handle_max=Uint(1 << 20), **fields)
        self.begun = connection.expect("begin", remote_channel=channel)
        self.remote = self.begun.channel

    def say(self, kind: str, payload: bytes = b"", /, **fields) -> None:
        self.connection.say(kind, self.channel, payload, **fields)

    def expect(self, kind: str, seconds: float = SECONDS, /, **fields) -> Frame:
        return self.connection.expect(kind, seconds, channel=self.remote, **fields)

    def attach(self, role: bool, name: str | None = None, wait: float | None = SECONDS, **fields) -> Link:
        """Attaches a link; with `wait` None no answer is waited for."""
        link = Link(self, next(self._handles), name or f"link-{uuid.uuid4()}", role)
        self.say("attach", name=link.name, handle=Uint(link.handle), role=role,
                 initial_delivery_count=Uint(0) if role is SENDER else None, **fields)
        if wait is not None:
            link.attached(wait)
        return link

    def sender(self, address: str, **fields) -> Link:
        link = self.attach(SENDER, **{"source": source("here"), "target": target(address), "snd_settle_mode": Ubyte(0),
                                      "rcv_settle_mode": Ubyte(0)} | fields)
        link.raise_if_refused()
        link.credit = self.expect("flow", handle=link.remote).link_credit
        return link

    def receiver(self, address: str, filters: dict | None = None, mode: int = 1, **fields) -> Link:
        """`mode` 1: peek-lock, 0: receive and delete."""
        link = self.attach(RECEIVER, **{"source": source(address, filters), "target": target("here"),
                                        "snd_settle_mode": Ubyte(0 if mode else 1), "rcv_settle_mode": Ubyte(mode)} | fields)
        link.raise_if_refused()
        return link

    def accept(self, address: str, session: str | None, **fields) -> Link:
        """A session receiver; None is the next session."""
        return self.receiver(address, {SESSION_FILTER: session}, **fields)

    def end(self) -> None:
        self.say("end")


class Refused(Exception):
    """The broker refused a link or a delivery."""

    def __init__(self, condition, description=None):
        super().__init__(f"{condition}: {description}")
        self.condition, self.description = condition, description


@dataclass
class Delivery:
    """A message that came."""
    id: int
    tag: bytes
    settled: bool
    message: Message
    frames: int
    raw: bytes

    @property
    def token(self) -> uuid.UUID:
        """The lock token: tags are GUIDs in .NET's byte order."""
        return uuid.UUID(bytes_le=self.tag)


@dataclass
class Link:
    session: Session
    handle: int
    name: str
    role: bool
    remote: int | None = None
    answer: Frame | None = None
    credit: int = 0
    delivery_count: int = 0
    tags: itertools.count = field(default_factory=itertools.count)

    def attached(self, seconds: float = SECONDS) -> Frame:
        self.answer = self.session.expect("attach", seconds, name=self.name)
        self.remote = self.answer.handle
        return self.answer

    def raise_if_refused(self) -> None:
        node = self.answer.source if self.role is RECEIVER else self.answer.target
        if node is None:
            detached = self.session.expect("detach", handle=self.remote)
            raise Refused(*[detached.error.value[index] if index < len(detached.error.value) else None for index in (0, 1)])

    # ------------------------------------------------------------------------------------------------ sending

    def transfer(self, message: bytes, message_format: int = Uint(0), frame_size: int = 60_000, **fields) -> int:
        """Sends without waiting; the delivery id."""
        number = next(self.session._deliveries)
        parts = [message[at:at + frame_size] for at in range(0, len(message), frame_size)] or [b""]
        for index, part in enumerate(parts):
            first = {"delivery_id": Uint(number), "delivery_tag": struct.pack(">I", next(self.tags)),
                     "message_format": message_format} if index == 0 else {}
            self.session.say("transfer", part, handle=Uint(self.handle), settled=False, more=index < len(parts) - 1, **first, **fields)
        return number

    def outcome(self, number: int, seconds: float = SECONDS) -> Described:
        """The state that settles a delivery that was sent."""
        while True:
            answer = self.session.expect("disposition", seconds, role=RECEIVER)
            if answer.first <= number <= (answer.first if answer.last is None else answer.last):
                if answer.last is not None and answer.last > number:
                    answer.fields["first"] = Uint(number + 1)
                    self.session.connection.said.append(answer)
                assert answer.settled, answer
                return answer.state

    def send(self, message: bytes | Message, **fields) -> None:
        """Sends, and waits for it to be accepted."""
        data = message.encode() if isinstance(message, Message) else message
        state = self.outcome(self.transfer(data, **fields))
        if state.descriptor != 0x24:
            raise Refused(*state.value[0].value[:2])

    # ---------------------------------------------------------------------------------------------- receiving

    def flow(self, credit: int, drain: bool | None = None, **fields) -> None:
        self.session.say("flow", next_incoming_id=Uint(0), incoming_window=Uint(self.session.window), next_outgoing_id=Uint(0),
                         outgoing_window=Uint(1 << 20), handle=Uint(self.handle), delivery_count=Uint(self.delivery_count),
                         link_credit=Uint(credit), drain=drain, **fields)

    def delivery(self, seconds: float = SECONDS) -> Delivery:
        """The next message on this link."""
        first = self.session.expect("transfer", seconds, handle=self.remote)
        parts, last, frames = [first.payload], first, 1
        while last.more:
            last = self.session.expect("transfer", seconds, handle=self.remote)
            parts.append(last.payload)
            frames += 1
        self.delivery_count += 1
        raw = b"".join(parts)
        return Delivery(first.delivery_id, first.delivery_tag, bool(first.settled), Message.decode(raw), frames, raw)

    def receive(self, count: int = 1, seconds: float = SECONDS) -> list[Delivery]:
        self.flow(count)
        return [self.delivery(seconds) for _ in range(count)]

    def receive_all(self) -> list[Delivery]:
        """All that there is now: a drain, whose end the broker tells."""
        self.flow(1_000_000, drain=True)
        self.session.expect("flow", handle=self.remote, drain=True)
        found = []
        while any(one.kind == "transfer" and one.handle == self.remote for one in self.session.connection.said):
            found.append(self.delivery())
        return found

    def settle(self, first: int, state: Described, last: int | None = None, settled: bool = False) -> None:
        self.session.say("disposition", role=RECEIVER, first=Uint(first), last=None if last is None else Uint(last), settled=settled,
                         state=state)

    def echo(self, first: int, seconds: float = SECONDS) -> Described:
        """What the broker made of a settlement."""
        answer = self.session.expect("disposition", seconds, role=SENDER, first=first)
        assert answer.settled is True, answer
        return answer.state

    def complete(self, delivery: Delivery) -> None:
        self.settle(delivery.id, ACCEPTED)
        state = self.echo(delivery.id)
        if state.descriptor != 0x24:
            raise Refused(*state.value[0].value[:2])

    def detach(self, closed: bool = True) -> None:
        self.session.say("detach", handle=Uint(self.handle), closed=closed)


@dataclass
class Message:
    """The sections of a message. `body` are encoded sections."""
    header: list = field(default_factory=list)
    delivery_annotations: dict = field(default_factory=dict)
    annotations: dict = field(default_factory=dict)
    properties: list = field(default_factory=list)
    application: dict = field(default_factory=dict)
    body: list = field(default_factory=list)
    footer: dict = field(default_factory=dict)

    @classmethod
    def of(cls, body: bytes | str, session: str | None = None, message_id=None, application: dict | None = None) -> Message:
        data = body.encode() if isinstance(body, str) else body
        properties = [message_id, *[None] * 9, session] if session is not None else [message_id] if message_id is not None else []
        return cls(properties=properties, application=application or {}, body=[Described(Ulong(0x75), data)])

    @classmethod
    def of_value(cls, value, properties: list, application: dict) -> Message:
        return cls(properties=properties, application=application, body=[Described(Ulong(0x77), value)])

    def encode(self) -> bytes:
        sections = [(0x70, self.header), (0x71, self.delivery_annotations), (0x72, self.annotations), (0x73, self.properties),
                    (0x74, self.application)]
        head = b"".join(encode(Described(Ulong(code), value)) for code, value in sections if value)
        tail = encode(Described(Ulong(0x78), self.footer)) if self.footer else b""
        return head + b"".join(encode(section) for section in self.body) + tail

    @classmethod
    def decode(cls, data: bytes) -> Message:
        message, reader = cls(), Reader(data)
        names = {0x70: "header", 0x71: "delivery_annotations", 0x72: "annotations", 0x73: "properties", 0x74: "application", 0x78: "footer"}
        last = 0
        while reader.more():
            section = reader.value()
            assert section.descriptor >= last, "sections out of order"
            last = section.descriptor
            if section.descriptor in names:
                setattr(message, names[section.descriptor], section.value)
            else:
                message.body.append(section)
        return message

    @property
    def data(self) -> bytes:
        return b"".join(section.value for section in self.body)

    @property
    def value(self):
        return self.body[0].value

    def property_at(self, index: int):
        return self.properties[index] if index < len(self.properties) else None

    @property
    def session(self):
        return self.property_at(10)

    @property
    def number(self) -> int:
        return self.annotations[Symbol("x-opt-sequence-number")]

    @property
    def count(self) -> int:
        return self.header[4]


class Node:
    """Requests to `$cbs` or a `$management` node, and their answers."""

    def __init__(self, session: Session, address: str, reply_to: str | None = None):
        self.address, self.reply_to = address, reply_to or f"reply-{uuid.uuid4()}"
        self.requests = session.sender(address)
        self.answers = session.attach(RECEIVER, source=source(address), target=target(self.reply_to), rcv_settle_mode=Ubyte(0))
        self.answers.raise_if_refused()
        self.answers.flow(100)

    def ask(self, body, application: dict, message_id=None, reply_to: bool = True, seconds: float = SECONDS) -> Message:
        identifier = message_id or uuid.uuid4()
        properties = [identifier, None, None, None, self.reply_to if reply_to else None]
        self.requests.transfer(Message.of_value(body, properties, application).encode())
        delivery = self.answers.delivery(seconds)
        assert delivery.message.property_at(5) == identifier and type(delivery.message.property_at(5)) is type(identifier)
        if not delivery.settled:
            self.answers.settle(delivery.id, ACCEPTED, settled=True)
        self.answers.flow(100)
        return delivery.message

    def request(self, operation: str, body: dict, link: str | None = None, **options) -> tuple[int, object, Message]:
        """Status, body and the whole answer of an operation of Service Bus."""
        application = {"operation": f"com.microsoft:{operation}", "com.microsoft:server-timeout": Uint(30_000)}
        answer = self.ask(body, application | ({"associated-link-name": link} if link else {}), **options)
        return answer.application["statusCode"], answer.value, answer


def put_token(session: Session, audience: str, name: str = KEY_NAME, key: str = KEY, signed: str | None = None, kind: str = "jwt") -> Message:
    """The answer of `$cbs`."""
    value = token(audience, name, key, time.time() + 600) if signed is None else signed
    return Node(session, "$cbs").ask(value, {"operation": "put-token", "type": kind, "name": audience})


def connect(address: tuple[str, int], name: str = KEY_NAME, key: str = KEY, frame_size: int = 65_536, **open_fields) -> Connection:
    """Opens a connection that may do whatever the key allows."""
    connection = Connection(address)
    assert connection.sasl("PLAIN", f"\0{name}\0{key}".encode()).code == 0
    connection.open(frame_size, **open_fields)
    return connection
