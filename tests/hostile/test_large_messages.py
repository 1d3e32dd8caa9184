"""Large messages to clients that do not read."""

import socket
import time

import pytest

import wire
from broker import until
from bystander import Bystander
from test_websocket_frames import BINARY, frame, upgraded

CLIENTS = 150

PAYLOAD = bytes(2_000_000)

# One copy of each message, kernel buffers apart, and what a connection takes.
MEMORY_MIB = 80


class Deaf:
    """Subscribes, and never reads again."""

    def __init__(self, address, client_id: str, qos: int, **options):
        stream = socket.socket()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        stream.connect(address)
        self.client = wire.Client(stream)
        self.client.connect(client_id, **options)
        self.client.subscribe("large", qos=qos)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_shared_by_all_who_do_not_read_it(one_thread, qos):
    running = one_thread('[limits]\ndurability = "memory"\n')
    deaf = [Deaf(running.address, f"deaf{number}", qos, properties={"session_expiry_interval": 60}) for number in range(CLIENTS)]
    publisher = wire.Client(running.address)
    publisher.connect("publisher")
    before = running.memory()
    with Bystander(running) as bystander:
        for _ in range(3):
            publisher.publish("large", PAYLOAD, qos=qos)
            publisher.ping()
        until(lambda: running.metric(r'barid_packets_total.*direction="out",type="publish"') >= CLIENTS)
        taken = running.memory() - before
        time.sleep(2)
    assert taken < MEMORY_MIB, f"{taken} MiB"
    bystander.assert_served()
    # Whoever does read gets all of it.
    for one in deaf[:3]:
        for _ in range(3):
            assert one.client.receive().payload == PAYLOAD
    assert running.memory() - before < MEMORY_MIB


def test_websockets_that_are_not_read_hold_a_frame_each(one_thread):
    running = one_thread()
    streams = []
    for number in range(100):
        streams.append(upgraded(("127.0.0.1", running.ws_port)))
        packets = wire.connect(f"deaf{number}") + wire.subscribe(1, ("large", 0))
        streams[-1].sendall(frame(BINARY, packets))
    until(lambda: running.metric("^barid_subscriptions") == 100)
    publisher = wire.Client(running.address)
    publisher.connect("publisher")
    before = running.memory()
    for _ in range(3):
        publisher.publish("large", PAYLOAD, qos=1)
    until(lambda: running.metric(r'barid_packets_total.*direction="out",type="publish"') >= 100)
    assert running.memory() - before < MEMORY_MIB
    for stream in streams:
        stream.close()
