"""A TCP proxy with an address that stays, in front of a broker that may come back on another port."""

from __future__ import annotations

import socket
import threading

from broker import Broker


class Cuttable:
    """Carries bytes in both directions until `cut` closes all connections; new ones are accepted at once."""

    def __init__(self, broker: Broker):
        self._broker = broker
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._clients: set[socket.socket] = set()
        self._deaf: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self._broker.address)
        except OSError:
            client.close()
            return
        for one in (client, broker):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {client, broker}
            self._clients.add(client)
        for source, sink in ((client, broker), (broker, client)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if sink not in self._deaf:
                    sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            self._end(one)

    def _end(self, one: socket.socket) -> None:
        with self._lock:
            self._open.discard(one)
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def deafen(self) -> None:
        """The clients hear no more of the broker, which goes on hearing them, until the cut that must follow."""
        with self._lock:
            self._deaf = self._clients & self._open

    def cut(self) -> None:
        with self._lock:
            connections = list(self._open)
        for one in connections:
            self._end(one)

    def close(self) -> None:
        self._listener.close()
        self.cut()
