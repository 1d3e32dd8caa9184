"""Behind a load balancer: a real client through a relay that speaks the PROXY protocol."""

import socket
import struct
import threading

import pytest

V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 1883\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 198, 51, 100, 1]) + struct.pack(">HH", 4711, 1883)


class Balancer:
    """Accepts connections and relays them, after a header, to another port."""

    def __init__(self, header: bytes, target: int):
        self.header, self.target = header, target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets: list[socket.socket] = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self.target))
            broker.sendall(self.header)
            self.sockets += [client, broker]
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=self._relay, args=(source, sink), daemon=True).start()

    @staticmethod
    def _relay(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        for one in self.sockets:
            one.close()

    def port_of(self, transport: str) -> int:
        return self.port


@pytest.fixture
def behind(request):
    balancers = []

    def start(header: bytes, port: int) -> Balancer:
        balancers.append(Balancer(header, port))
        return balancers[-1]

    yield start
    for balancer in balancers:
        balancer.close()


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
def test_a_client_behind_a_balancer(broker_with, behind, paho, topic, version, header):
    broker = broker_with('[log]\nlevel = "debug"\n[listeners.mqtt]\naddress = "127.0.0.1:{port}"\nproxy_protocol = true\n')
    balancer = behind(header, broker.port)
    client = paho(to=balancer, version=version)
    client.subscribe(topic, 2)
    client.publish(topic, bytes(100_000), 2)
    assert client.receive().payload == bytes(100_000)


def test_a_websocket_behind_a_balancer(broker_with, behind, paho, topic):
    broker = broker_with('[listeners.ws]\naddress = "127.0.0.1:0"\nproxy_protocol = true\n')
    client = paho(to=behind(V2, broker.ws_port), transport="ws")
    client.subscribe(topic, 1)
    client.publish(topic, b"x", 1)
    assert client.receive().payload == b"x"


def test_without_the_header_nobody_gets_in(broker_with):
    """Else a client could go around the balancer."""
    broker = broker_with('[listeners.mqtt]\naddress = "127.0.0.1:{port}"\nproxy_protocol = true\n')
    with socket.create_connection(broker.address, timeout=5) as direct:
        direct.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c")
        with pytest.raises(ConnectionError):
            if not direct.recv(1):
                raise ConnectionError("closed")
    assert broker.metric("^barid_connections") == 0
