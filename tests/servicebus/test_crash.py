"""`kill -9` under load: what was accepted is there, what was settled stays settled, order and states hold, numbers are never used again."""

import os
import random
import time

import pytest

from amqp_codec import Timestamp
from amqp_wire import SECONDS, Message, connect
from crash_load import LATER, World, line


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    print(f"CRASH_SEED={chosen}")
    return chosen


def check(ledger) -> None:
    print(line(ledger))
    assert not ledger.problems, "\n".join(ledger.problems[:20])
    assert ledger.counts["accepted"] > 500 and ledger.counts["completed"] > 300
    assert ledger.counts["deferred"] > 5 and ledger.counts["dead"] > 5


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=1_000_000)
def test_the_ledger_is_right_without_a_crash(own_broker, path, seed):
    """The control."""
    check(World(own_broker(), path(), seed, kills=False).run(4))


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=1_000_000)
def test_nothing_is_lost_when_the_broker_is_killed(own_broker, path, seed):
    check(World(own_broker(), path(), seed).run(int(os.environ.get("CRASH_ROUNDS", 6))))


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=1_000_000)
def test_nothing_is_lost_when_shards_are_closed_and_opened(own_broker, path, seed):
    """And the broker is killed meanwhile."""
    ledger = World(own_broker(), path(), seed, reopens=True).run(int(os.environ.get("CRASH_ROUNDS", 6)))
    check(ledger)
    assert ledger.counts["reopened"] > 50


@pytest.mark.topic("topic", {"plain": {}, "sessions": {"Properties": {"RequiresSession": True}}, "away": {"Properties": {"ForwardTo": "{test}/target"}}})
@pytest.mark.queue("target")
def test_every_subscription_gets_what_a_topic_accepted(own_broker, path, seed):
    """Also where that is passed on, and what waits for its time. What was sent again by nobody comes once."""
    running, chance = own_broker(), random.Random(seed)
    accepted, later = [], []
    for round_ in range(5):
        deadline, number = time.monotonic() + chance.uniform(0.3, 1), 0
        connection = connect(("127.0.0.1", running.amqp_port))
        sender, pending = connection.session().sender(path("topic")), {}
        while time.monotonic() < deadline:
            while len(pending) < 40:
                message, is_later = Message.of(f"{round_}:{number}", f"s{number % 5}"), chance.random() < 0.1
                if is_later:
                    message.annotations[LATER] = Timestamp(int(time.time() * 1000) + chance.randrange(50, 2500))
                pending[sender.transfer(message.encode())] = (f"{round_}:{number}".encode(), is_later)
                number += 1
            answer = connection.expect("disposition")
            for delivery in range(answer.first, (answer.first if answer.last is None else answer.last) + 1):
                body, is_later = pending.pop(delivery)
                (later if is_later else accepted).append(body)
        running.kill9()
        connection.close()
        running.start()
    assert len(accepted) > 300 and len(later) > 10
    time.sleep(2.6)
    connection = connect(("127.0.0.1", running.amqp_port))
    session = connection.session()
    for name in (path("topic") + "/Subscriptions/plain", path("target"), path("topic") + "/Subscriptions/sessions"):
        received, is_session = [], name.endswith("sessions")
        receivers = [session.accept(name, f"s{number}", mode=0) for number in range(5)] if is_session else [session.receiver(name, mode=0)]
        deadline, known = time.monotonic() + SECONDS, set(accepted)
        while missing := set(accepted + later) - set(received):
            assert time.monotonic() < deadline, f"{name} has lost {len(missing)}: {sorted(missing)[:5]}"
            received += [one.message.data for receiver in receivers for one in receiver.receive_all()]
        at_once = [body for body in received if body in known]
        assert len(at_once) == len(set(at_once)), f"{name} has some twice"
        if not is_session:
            assert at_once == accepted, f"{name} is out of order"
