"""Clients with a key that make much work for queues and topics by few messages."""

import json
import time

import pytest
from amqp import encode

from amqp_codec import Described, Uint, Ulong
from amqp_wire import SESSION_FILTER, Message, Refused, connect
from broker import until
from bystander import Bystander

BATCH = Uint(0x80013700)


def dial(broker):
    return connect(("127.0.0.1", broker.amqp_port)).session()


def batch(message: bytes, count: int) -> bytes:
    return encode(Described(Ulong(0x75), message)) * count


def topic(rules: list[str], subscriptions: int = 1) -> str:
    """TOML of a topic `t` whose subscriptions have these rules."""
    def rule(number: int, sql: str) -> str:
        return f"{{ name = 'r{number}', properties = {{ SqlFilter = {{ SqlExpression = {json.dumps(sql)} }} }} }}"

    each = "".join(f"[[topics.subscriptions]]\nname = 's{number}'\nrules = [{', '.join(rule(*one) for one in enumerate(rules))}]\n"
                   for number in range(subscriptions))
    return f"[[topics]]\nname = 't'\n{each}"


LONG_PATTERN = "%" + "a%" * 480
WITH_ANY = "%" + "a_" * 480 + "b%"

# Each costs much for a long text of nothing but `a`.
RULES = {
    "long patterns": [f"p LIKE '{LONG_PATTERN}b'"] * 100,
    "any characters": [f"p LIKE '{WITH_ANY}'"] * 100,
    "many computed patterns": [" OR ".join(["p LIKE q"] * 85)] * 100,
    "many comparisons": ["p IN (" + ", ".join(["p"] * 300) + ")"] * 100,
    "texts put together": [" + ".join(["q"] * 240) + " = p"] * 100,
}


@pytest.mark.parametrize("what", RULES)
def test_rules_that_are_dear(one_thread, what):
    broker = one_thread(topic(RULES[what]))
    sender = dial(broker).sender("t")
    dear = Message.of("x", application={"p": "a" * 200_000, "q": "%" + "a_" * 500 + "b"}).encode()
    cheap = Message.of("x", application={"p": "b", "q": "c"}).encode()
    with Bystander(broker) as bystander:
        for _ in range(20):
            state = sender.outcome(sender.transfer(dear))
            if state.descriptor != 0x24:
                assert state.value[0].value[0] == "amqp:resource-limit-exceeded", state
                assert "simpler rules" in state.value[0].value[1]
        sender.send(cheap)
        time.sleep(0.2)
    bystander.assert_served()


def test_many_properties_that_rules_look_through(one_thread):
    broker = one_thread(topic([" OR ".join(["absent = 1"] * 70)] * 100))
    sender = dial(broker).sender("t")
    message = Message.of("x", application={f"p{number}": number for number in range(50_000)}).encode()
    with Bystander(broker) as bystander:
        for _ in range(10):
            with pytest.raises(Refused, match="resource-limit-exceeded"):
                sender.send(message)
        time.sleep(0.2)
    bystander.assert_served()


@pytest.mark.parametrize("subscriptions", [1, 30])
def test_batches_of_the_smallest_messages(one_thread, subscriptions):
    broker = one_thread(topic(["1 = 1"], subscriptions))
    sender = dial(broker).sender("t")
    smallest = encode(Described(Ulong(0x75), b""))
    with Bystander(broker) as bystander:
        for count in (4_500, 300, 90_000) * 2:
            try:
                sender.send(batch(smallest, count), message_format=BATCH)
                assert count <= 4_500 and count * subscriptions <= 15_000
            except Refused as refused:
                assert count > 4_500 or count * subscriptions > 15_000, refused
        time.sleep(0.2)
    bystander.assert_served()


def test_many_locks_that_end_at_one_time(one_thread):
    broker = one_thread("[[queues]]\nname = 'q'\nproperties = { LockDuration = 'PT8S' }\n")
    sender = dial(broker).sender("q")
    for _ in range(14):
        sender.send(batch(Message.of("x").encode(), 4_500), message_format=BATCH)
    receivers = [dial(broker).receiver("q") for _ in range(6)]
    with Bystander(broker) as bystander:
        for receiver in receivers:
            receiver.flow(1 << 30)
        until(lambda: broker.metric(r'barid_entity_messages\{.*state="locked"') > 50_000)
        for receiver in receivers:
            receiver.session.connection.close()
        until(lambda: broker.metric(r'barid_entity_messages\{.*state="locked"') == 0, 30)
    bystander.assert_served()


def test_a_session_whose_messages_have_all_expired(one_thread):
    broker = one_thread("[[queues]]\nname = 'q'\nproperties = { RequiresSession = true, DeadLetteringOnMessageExpiration = true }\n")
    session = dial(broker)
    sender = session.sender("q")
    message = Message.of("x", "s")
    message.header = [None, None, Uint(1)]
    for _ in range(14):
        sender.send(batch(message.encode(), 4_500), message_format=BATCH)
    time.sleep(0.1)
    with Bystander(broker) as bystander:
        receiver = session.receiver("q", {SESSION_FILTER: "s"})
        assert receiver.receive_all() == []
        until(lambda: broker.metric(r'barid_entity_messages\{.*state="dead_lettered"') == 63_000, 30)
    bystander.assert_served()


def test_what_counts_is_what_is_taken(one_thread):
    """The process takes no more than twice what the limit of a queue counts; bodies are few."""
    broker = one_thread("[[queues]]\nname = 'q'\n")
    sender = dial(broker).sender("q")
    sender.send(batch(Message.of("warm").encode(), 1_000), message_format=BATCH)
    before, counted = broker.memory(), broker.metric("barid_entity_footprint_bytes")
    for _ in range(22):
        sender.send(batch(Message.of("x", message_id="m" * 30).encode(), 4_500), message_format=BATCH)
    counted = (broker.metric("barid_entity_footprint_bytes") - counted) / (1 << 20)
    # What waits for the disk takes memory for a moment.
    until(lambda: broker.memory() - before <= 2 * counted, 20)
