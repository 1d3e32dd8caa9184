"""Quotas of connections, messages and bytes per second, for AMQP clients."""

from __future__ import annotations

import json
import time

import pytest

import amqp_wire
from amqp_wire import Message

KEYS = """
[[keys]]
name = "acme/ada"
key = "secret"
rights = ["Manage"]
[[keys]]
name = "acme/bob"
key = "secret"
rights = ["Manage"]
[[queues]]
tenant = "acme"
name = "{name}"
"""

# Most of the answers of the broker must not take longer, beside those that a quota delays.
SOON = 0.5


def throttled(broker, quota: str) -> float:
    return broker.metric(rf'^barid_quota_throttled_seconds_total\{{tenant="default",quota="{quota}"\}}')


def send(link, count: int, size: int = 10) -> list[int]:
    """Sends messages without waiting for their outcome."""
    return [link.transfer(Message.of(b"%06d" % number + bytes(size)).encode()) for number in range(count)]


def accepted(link, number: int) -> None:
    assert link.outcome(number).descriptor == 0x24


@pytest.mark.queue()
def test_messages_are_taken_at_the_rate(own_broker, dial, path):
    """A second's worth at once. Each is accepted, and none is lost."""
    broker = own_broker("[limits]\npublish_rate = 100\n")
    sender = dial(broker).session().sender(path())
    started = time.monotonic()
    numbers = send(sender, 350)
    for number in numbers:
        accepted(sender, number)
    assert 2.3 < time.monotonic() - started < 3.2
    assert throttled(broker, "publish_rate") > 2
    receiver = dial(broker).session().receiver(path())
    assert [int(one.message.data[:6]) for one in receiver.receive(350)] == list(range(350))


@pytest.mark.queue()
def test_all_entities_of_a_tenant_together_are_bounded(own_broker, dial, path):
    """The queue alone may hold much more."""
    broker = own_broker("[limits]\nmax_tenant_entity_bytes = 100000\n")
    connection = dial(broker).session()
    sender = connection.sender(path())
    first, second, third = send(sender, 3, size=60_000)
    accepted(sender, first)
    for number in (second, third):
        refusal = sender.outcome(number)
        assert refusal.descriptor == 0x25 and "max_tenant_entity_bytes" in str(refusal), refusal
    quota = json.loads(broker.http("/v1/tenants/default")[1])["quotas"]["max_tenant_entity_bytes"]
    assert 60_000 < quota["used"] < 61_000 and quota["refused"] == 2 and quota["limit"] == 100_000
    assert broker.metric(r'^barid_quota_refused_total.*"max_tenant_entity_bytes"') == 2
    broker.restart()
    sender = dial(broker).session().sender(path())
    number, small = send(sender, 1, size=60_000) + send(sender, 1)
    assert sender.outcome(number).descriptor == 0x25, "what is stored counts"
    accepted(sender, small)


@pytest.mark.queue()
def test_bytes_are_read_at_the_rate(own_broker, dial, path):
    broker = own_broker("[limits]\ninbound_bytes_rate = 300000\n")
    sender = dial(broker).session().sender(path())
    started = time.monotonic()
    for number in send(sender, 30, size=30_000):
        accepted(sender, number)
    assert 1.7 < time.monotonic() - started < 2.7, "300 kB at once, and 600 kB behind them"
    assert throttled(broker, "inbound_bytes_rate") > 1


@pytest.mark.queue()
def test_messages_leave_at_the_rate(own_broker, dial, path):
    """All of them, though a client gives credit for all at once; answers to it are not delayed."""
    broker = own_broker("[limits]\noutbound_bytes_rate = 100000\n")
    connection = dial(broker)
    sender = connection.session().sender(path())
    for number in send(sender, 300, size=1_000):
        accepted(sender, number)
    receiver = dial(broker).session().receiver(path())
    started = time.monotonic()
    receiver.flow(300)
    received = [receiver.delivery() for _ in range(100)]
    before = time.monotonic()
    sender.send(Message.of("one more"))
    assert time.monotonic() - before < SOON
    received += [receiver.delivery() for _ in range(200)]
    assert 1.8 < time.monotonic() - started < 3.2
    assert [int(one.message.data[:6]) for one in received] == list(range(300))
    assert throttled(broker, "outbound_bytes_rate") > 1
    for one in received[-3:]:
        receiver.complete(one)


@pytest.mark.queue()
def test_a_reload_lets_a_client_go_on_that_waits(own_broker, dial, path):
    broker = own_broker("[limits]\npublish_rate = 1\noutbound_bytes_rate = 100\n")
    sender = dial(broker).session().sender(path())
    receiver = dial(broker).session().receiver(path())
    receiver.flow(100)
    numbers = send(sender, 60, size=100)
    accepted(sender, numbers[0])
    before = (broker.directory / "barid.toml").read_text()
    broker.reload(before.replace("publish_rate = 1\noutbound_bytes_rate = 100", ""))
    started = time.monotonic()
    for number in numbers[1:]:
        accepted(sender, number)
    for _ in range(60):
        receiver.delivery()
    assert time.monotonic() - started < 1


def test_the_connection_rate(own_broker):
    broker = own_broker("[limits]\nconnect_rate = 3\n")
    address = ("127.0.0.1", broker.amqp_port)
    opened = [amqp_wire.connect(address) for _ in range(3)]
    stranger = amqp_wire.Connection(address)
    initial = b"\0RootManageSharedAccessKey\0SAS_KEY_VALUE"
    assert stranger.sasl("PLAIN", initial).code != 0
    assert broker.metric(r'^barid_quota_refused_total\{tenant="default",quota="connect_rate"\}') == 1
    for connection in [*opened, stranger]:
        connection.close()
    time.sleep(0.5)
    amqp_wire.connect(address).close()


def test_limits_of_a_key(own_broker, dial):
    """A key is a user: one that floods leaves the other alone."""
    broker = own_broker(KEYS.replace("{name}", "q") + "[limits]\nuser_publish_rate = 50\nmax_user_connections = 1\n")
    address = ("127.0.0.1", broker.amqp_port)

    def of(name: str) -> amqp_wire.Connection:
        connection = amqp_wire.Connection(address)
        assert connection.sasl("PLAIN", f"\0acme/{name}\0secret".encode()).code == 0
        connection.open()
        return connection

    ada, bob = of("ada"), of("bob")
    again = amqp_wire.Connection(address)
    assert again.sasl("PLAIN", b"\0acme/ada\0secret").code != 0
    again.close()
    loud, quiet = ada.session().sender("q"), bob.session().sender("q")
    started = time.monotonic()
    numbers = send(loud, 150)
    for _ in range(20):
        quiet.send(Message.of("x"))
    assert time.monotonic() - started < 1
    for number in numbers:
        accepted(loud, number)
    assert 1.7 < time.monotonic() - started < 2.7
    ada.close()
    time.sleep(0.2)
    of("ada").close()
    bob.close()
