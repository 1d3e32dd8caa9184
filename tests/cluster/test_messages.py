"""Messages between clients of different brokers."""

from __future__ import annotations

import itertools
import time
import uuid

import pytest

import wire

QUIET = 0.4


def topic() -> str:
    return f"cluster/{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("version", [wire.V31, wire.V311, wire.V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_broker_reaches_every_other(three, client, qos, version):
    name = topic()
    for publisher, subscriber in itertools.permutations(three, 2):
        receiver, sender = (client(one, uuid.uuid4().hex[:20], version) for one in (subscriber, publisher))
        receiver.subscribe(name, qos=qos)
        sender.publish(name, f"{publisher.name} to {subscriber.name}".encode(), qos=qos)
        found = receiver.receive(f"{publisher.name} to {subscriber.name}".encode())
        assert (found.topic, found.qos, found.retain) == (name, qos, False)
        receiver.disconnect()


def test_a_subscription_counts_on_all_brokers_when_it_is_acknowledged(three, client):
    """A message that is published after SUBACK, at any broker, arrives."""
    receiver = client(three[0])
    senders = [client(member) for member in three]
    for round_ in range(60):
        name = f"{topic()}/{round_}"
        receiver.subscribe(name if round_ % 2 else f"{name}/#", qos=1)
        for index, sender in enumerate(senders):
            sender.publish(name, str(index).encode(), qos=1)
        assert {receiver.receive().payload for _ in senders} == {b"0", b"1", b"2"}


def test_a_publisher_is_told_whether_anybody_has_subscribed(three, client):
    """MQTT 5: 0x10 in PUBACK and PUBREC if no broker has a matching subscription."""
    name = topic()
    client(three[1]).subscribe(f"{name}/here", qos=1)
    sender = client(three[0])
    assert sender.publish(f"{name}/here", b"x", qos=1).reason == 0
    assert sender.publish(f"{name}/nowhere", b"x", qos=1).reason == 0x10


def test_properties_arrive_as_they_were_published(three, client):
    name, sent = topic(), {"content_type": "text/plain", "user_property": [("a", "1"), ("a", "2")], "correlation_data": b"\0\xff",
                           "response_topic": "answers", "payload_format_indicator": 1, "message_expiry_interval": 1_000}
    receiver, sender = client(three[1]), client(three[0])
    receiver.subscribe(name, qos=1)
    sender.publish(name, b"hi", qos=1, properties=sent)
    found = receiver.receive(b"hi").properties
    assert found.pop("message_expiry_interval") in (999, 1_000)
    del sent["message_expiry_interval"]
    assert found == sent


def test_a_large_message_arrives(three, client):
    name, payload = topic(), bytes(range(256)) * 3_000
    receiver = client(three[2])
    receiver.subscribe(name, qos=1)
    client(three[0]).publish(name, payload, qos=1)
    assert receiver.receive().payload == payload


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_publisher_keep_their_order(three, client, qos):
    name, count = topic(), 2_000
    receiver, sender = client(three[1]), client(three[0])
    receiver.subscribe(f"{name}/#", qos=qos)
    for number in range(count):
        if qos == 0:
            sender.send(wire.publish(f"{name}/{number % 3}", str(number).encode()))
        else:
            sender.publish(f"{name}/{number % 3}", str(number).encode(), qos=qos)
    found = [int(receiver.receive().payload) for _ in range(count)]
    assert found == list(range(count))


def test_each_subscriber_gets_its_own_qos_and_identifier(three, client):
    name = topic()
    receivers = [client(member) for member in (three[1], three[1], three[2])]
    for qos, receiver in enumerate(receivers):
        receiver.subscribe(name, qos=qos, properties={"subscription_identifier": qos + 7})
    client(three[0]).publish(name, b"x", qos=2)
    for qos, receiver in enumerate(receivers):
        found = receiver.receive(b"x")
        assert (found.qos, found.properties["subscription_identifier"]) == (qos, [qos + 7])


def test_nothing_comes_after_unsubscribing(three, client):
    name = topic()
    first, second, sender = client(three[1]), client(three[1]), client(three[0])
    for receiver in (first, second):
        receiver.subscribe(f"{name}/+")
    first.unsubscribe(f"{name}/+")
    sender.publish(f"{name}/a", b"1")
    second.receive(b"1")
    first.expect_nothing()
    second.drop()
    sender.publish(f"{name}/a", b"2")
    first.expect_nothing()


def test_a_publisher_is_told_whether_anybody_subscribes_anywhere(three, client):
    name = topic()
    sender = client(three[0])
    assert sender.publish(name, b"x", qos=1).reason == 0x10
    receiver = client(three[1])
    receiver.subscribe(name, qos=1)
    assert sender.publish(name, b"y", qos=1).reason == 0
    receiver.receive(b"y")


def test_tenants_do_not_meet(three, client):
    name = topic()
    ours, theirs = client(three[1], username="acme/r"), client(three[1], username="zeta/r")
    for receiver in (ours, theirs):
        receiver.subscribe(name, qos=1)
    client(three[0], username="acme/s").publish(name, b"for acme", qos=1)
    ours.receive(b"for acme")
    theirs.expect_nothing()


def test_topics_of_one_broker_stay_there(three, client):
    """`$SYS` of another broker would contradict that of this one."""
    receiver = client(three[0])
    receiver.subscribe("$SYS/broker/uptime")
    sent = b"%d seconds"
    uptimes = [int(receiver.receive().payload.split()[0]) for _ in range(4)]
    assert sent and uptimes == sorted(uptimes) and len(set(uptimes)) >= 3


def test_a_will_reaches_clients_of_other_brokers(three, client):
    name = topic()
    receiver = client(three[1])
    receiver.subscribe(name, qos=1)
    dying = client(three[0], will=wire.Will(name, b"gone", qos=1))
    dying.drop()
    receiver.receive(b"gone")


def test_a_stored_session_gets_what_other_brokers_publish_while_it_is_away(three, client):
    name, who = topic(), f"away-{uuid.uuid4().hex[:8]}"
    first = client(three[1], who, clean=False, properties={"session_expiry_interval": 600})
    first.subscribe(name, qos=1)
    first.disconnect()
    sender = client(three[0])
    for number in range(50):
        assert sender.publish(name, str(number).encode(), qos=1).reason == 0
    again = client(three[1], who, clean=False, properties={"session_expiry_interval": 600})
    assert [int(again.receive().payload) for _ in range(50)] == list(range(50))
    again.disconnect(properties={"session_expiry_interval": 0})


class TestSharedSubscriptions:
    """One member gets each message, on whatever broker it is."""

    def count(self, receivers) -> list[list[bytes]]:
        return [[packet.payload for packet in receiver.receive_all(QUIET)] for receiver in receivers]

    def test_members_on_another_broker_take_turns(self, three, client):
        name = topic()
        receivers = [client(three[1]), client(three[1])]
        for receiver in receivers:
            receiver.subscribe(f"$share/g/{name}", qos=1)
        sender = client(three[0])
        for number in range(20):
            sender.publish(name, b"%d" % number, qos=1)
        found = self.count(receivers)
        assert sorted(map(int, found[0] + found[1])) == list(range(20))
        assert len(found[0]) == len(found[1]) == 10

    def test_brokers_take_turns(self, three, client):
        name = topic()
        receivers = [client(three[1]), client(three[2])]
        for receiver in receivers:
            receiver.subscribe(f"$share/g/{name}", qos=1)
        sender = client(three[0])
        for number in range(20):
            sender.publish(name, b"%d" % number, qos=1)
        found = self.count(receivers)
        assert sorted(map(int, found[0] + found[1])) == list(range(20))
        assert len(found[0]) == len(found[1]) == 10

    def test_members_of_the_publishers_broker_come_first(self, three, client):
        name = topic()
        near, far, plain = client(three[0]), client(three[1]), client(three[1])
        for receiver in (near, far):
            receiver.subscribe(f"$share/g/{name}", qos=1)
        plain.subscribe(name, qos=1)
        sender = client(three[0])
        for number in range(5):
            sender.publish(name, b"%d" % number, qos=1)
        assert [len(found) for found in self.count([near, far, plain])] == [5, 0, 5]

    def test_a_member_that_is_away_leaves_messages_to_others(self, three, client):
        name, who = topic(), f"away-{uuid.uuid4().hex[:8]}"
        away = client(three[0], who, clean=False, properties={"session_expiry_interval": 600})
        away.subscribe(f"$share/g/{name}", qos=1)
        away.disconnect()
        there = client(three[1])
        there.subscribe(f"$share/g/{name}", qos=1)
        client(three[0]).publish(name, b"x", qos=1)
        there.receive(b"x")


class TestTakeOver:
    """A client is connected to one broker: the one that it has reached last."""

    def test_the_old_connection_ends(self, three, client):
        who = uuid.uuid4().hex[:20]
        old = client(three[0], who)
        new = client(three[1], who)
        begin = time.monotonic()
        old.expect_refused(0x8E)
        assert time.monotonic() - begin < 0.5
        new.ping()
        client(three[2], who).ping()
        new.expect_refused(0x8E)

    def test_it_is_told_why_also_while_it_is_written_to(self, three, client):
        """The writer of a packet sees whether it was cut off; nothing follows half a packet."""
        name, sender = topic(), client(three[0])
        for number in range(100):
            who = uuid.uuid4().hex[:20]
            old = client(three[number % 3], who)
            if number % 2:
                old.subscribe(name)
                sender.stream.sendall(wire.publish(name, b"x" * 100) * 200)
            client(three[(number + 1) % 3], who)
            while (found := old.recv()).kind == wire.PUBLISH:
                pass
            assert (found.kind, found.reason) == (wire.DISCONNECT, 0x8E)

    def test_tenants_and_identifiers_are_told_apart(self, three, client):
        who = uuid.uuid4().hex[:20]
        first = client(three[0], who, username="acme/a")
        client(three[1], who, username="zeta/a")
        client(three[1], who + "x", username="acme/a")
        time.sleep(QUIET)
        first.ping()

    def test_the_will_of_the_old_connection_is_published(self, three, client):
        name, who = topic(), uuid.uuid4().hex[:20]
        receiver = client(three[2])
        receiver.subscribe(name, qos=1)
        client(three[0], who, will=wire.Will(name, b"taken over", qos=1))
        client(three[1], who)
        receiver.receive(b"taken over")
