"""A client with a persistent session, whose Session State outlives its connections (MQTT 5 §4.1)."""

from __future__ import annotations

import asyncio
import contextlib
import random

import wire
from connection import Connection

FOREVER = 0xFFFFFFFF


class Refused(ConnectionError):
    """A CONNACK with a reason."""

    def __init__(self, client: Client, connack: wire.Packet):
        super().__init__(f"{client} was refused: {connack}")
        self.reason = connack.reason


class Client:
    """Base class of publishers and subscribers. `world` has the broker's address, the ledger and all subscribers."""

    properties: dict = {}
    persistent = True

    def __init__(self, world, tenant: str, name: str, version: int = wire.V5):
        self.world, self.tenant, self.name, self.version = world, tenant, name, version
        self.ledger = world.ledger
        self.random = random.Random(f"{world.seed}/{tenant}/{name}")
        self.connection: Connection | None = None
        self.address: tuple[str, int] | None = None
        """The broker that it has reached last, or tried to."""
        self.established = False
        """Whether the broker has acknowledged state that it must keep in this session."""
        self._connack: asyncio.Future | None = None
        self._answers: dict[tuple[int, int], asyncio.Future] = {}
        self._changes = 0

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"

    @property
    def online(self) -> bool:
        return self.connection is not None

    def send(self, *packets: bytes) -> None:
        """Sends if there is a connection. Packets that must not be lost are sent again after the next CONNACK."""
        if self.connection:
            self.connection.send(*packets)

    # -- coming and going

    async def connect(self, clean: bool | None = None, **options) -> wire.Packet:
        """Connects and resumes the session; raises `ConnectionError` if the broker is killed meanwhile."""
        properties = dict(self.properties)
        if self.version == wire.V5 and self.persistent:
            properties.setdefault("session_expiry_interval", FOREVER)
        loop = asyncio.get_running_loop()
        self._connack = loop.create_future()
        self.address = self.world.address
        with contextlib.ExitStack() as open_socket:
            stream = open_socket.enter_context(self.world.socket(self.address))
            stream.setblocking(False)
            await loop.sock_connect(stream, self.address)
            _, connection = await loop.create_connection(
                lambda: Connection(self.version, self._dispatch, self._violation, self._lost), sock=stream)
            open_socket.pop_all()
        self.connection = connection
        self.world.connections.add(connection)
        clean = not self.persistent if clean is None else clean
        connection.send(wire.connect(self.name, self.version, clean, properties=options.pop("properties", properties),
                                     username=f"{self.tenant}/client", **options))
        async with asyncio.timeout(self.world.patience):
            connack = await self._connack
        if connack.reason:
            raise Refused(self, connack)
        if self.established and self.persistent and not clean and not connack.session_present:
            self.ledger.problem("sessions lost", f"{self} found its session gone")
            self.established = False
        self.resumed(connack)
        return connack

    def abort(self) -> None:
        if self.connection:
            self.connection.abort()

    async def disconnect(self) -> None:
        """Sends DISCONNECT, and waits until the broker has closed the connection, too."""
        if connection := self.connection:
            connection.send(wire.disconnect())
            await asyncio.shield(connection.lost)

    async def leave(self) -> None:
        """Goes offline, with or without DISCONNECT."""
        if self.random.random() < 0.5:
            await self.disconnect()
        elif self.online:
            connection = self.connection
            self.abort()
            await asyncio.shield(connection.lost)

    async def lose_connection(self) -> None:
        """Waits until the connection has ended, and raises `ConnectionError` then."""
        if connection := self.connection:
            await asyncio.shield(connection.lost)
        raise ConnectionError(f"{self} lost its connection")

    # -- what happens to a client

    def resumed(self, connack: wire.Packet) -> None:
        """Called after CONNACK: sends again what the session requires."""

    def on_packet(self, packet: wire.Packet) -> None:
        """Called for a packet for which no `_ask` waits."""
        self.ledger.problem("violations", f"{self} did not expect {packet}")

    def _dispatch(self, connection: Connection, packet: wire.Packet) -> None:
        if connection is not self.connection:
            return
        if packet.kind == wire.CONNACK:
            if not self._connack.done():
                self._connack.set_result(packet)
        elif waiting := self._answers.pop((packet.kind, packet.packet_id), None):
            if not waiting.done():
                waiting.set_result(packet)
        elif packet.kind == wire.DISCONNECT:
            if packet.reason not in self.world.farewells:
                self.ledger.problem("violations", f"{self} was disconnected: {packet}")
        else:
            self.on_packet(packet)

    def _violation(self, sentence: str) -> None:
        self.ledger.problem("violations", f"{self}: {sentence}")

    def _lost(self, connection: Connection) -> None:
        self.world.connections.discard(connection)
        if connection is self.connection:
            self.connection = None
            for waiting in (self._connack, *self._answers.values()):
                if not waiting.done():
                    waiting.set_exception(ConnectionError(f"{self} lost its connection"))
                    waiting.exception()  # marks the exception as retrieved: perhaps nothing waits any more
            self._answers.clear()
            self.offline()

    def offline(self) -> None:
        """Called when the connection was lost."""

    # -- conversations

    async def subscribe(self, filters: dict[str, int]) -> None:
        answer = await self._ask(wire.SUBACK, lambda one: wire.subscribe(one, *filters.items(), version=self.version))
        if any(reason >= 0x80 for reason in answer.reasons):
            raise ConnectionError(f"{self} was refused: {answer}")
        if answer.reasons != list(filters.values()):
            self.ledger.problem("violations", f"{self} asked for {filters} and got {answer}")

    async def unsubscribe(self, *filters: str) -> None:
        answer = await self._ask(wire.UNSUBACK, lambda one: wire.unsubscribe(one, *filters, version=self.version))
        if any(reason >= 0x80 for reason in answer.reasons):
            raise ConnectionError(f"{self} was refused: {answer}")

    async def _ask(self, kind: int, build) -> wire.Packet:
        # Packet identifiers of SUBSCRIBE and UNSUBSCRIBE are outside the range of those of PUBLISH.
        self._changes = self._changes % 1000 + 1
        packet_id = 60_000 + self._changes
        if not self.online:
            raise ConnectionError(f"{self} is not connected")
        waiting = self._answers[kind, packet_id] = asyncio.get_running_loop().create_future()
        self.send(build(packet_id))
        async with asyncio.timeout(self.world.patience):
            return await waiting
