"""A disk that is full: what was sent is refused soon, and taken again when there is room."""

import sys
import time
from pathlib import Path

import pytest

import amqp_wire
from amqp_wire import Message
from broker import until

sys.path.append(str(Path(__file__).resolve().parent.parent / "crash"))
from powercut import Recorded, available

pytestmark = pytest.mark.skipif(not available(), reason="needs Linux on x86-64 and a C compiler")

# A client that is not answered within so many seconds is not answered.
SOON = 5.0

ACCEPTED, REJECTED = 0x24, 0x25


@pytest.fixture
def victim():
    running = Recorded('[[queues]]\nname = "q"\n')
    yield running
    running.withdraw()
    running.end()


def test_what_meets_the_full_disk_is_refused(victim):
    connection = amqp_wire.connect(("127.0.0.1", victim.amqp_port))
    session = connection.session()
    sender = session.sender("q")

    def outcome(body: str):
        delivery = sender.transfer(Message.of(body).encode())
        return session.expect("disposition", SOON, first=delivery).state

    assert outcome("before").descriptor == ACCEPTED
    victim.order("no-room", "0")
    started = time.monotonic()
    for _ in range(2):
        refused = outcome("refused")
        assert refused.descriptor == REJECTED and refused.value[0].value[0] == "com.microsoft:server-busy", refused
    assert time.monotonic() - started < SOON
    victim.withdraw()
    until(lambda: victim.metric("^barid_store_refuses") == 0)
    assert outcome("after").descriptor == ACCEPTED
    connection.close()
    connection = amqp_wire.connect(("127.0.0.1", victim.amqp_port))
    found = [delivery.message.data for delivery in connection.session().receiver("q").receive_all()]
    assert found[0] == b"before" and found[-1] == b"after"
    connection.close()
