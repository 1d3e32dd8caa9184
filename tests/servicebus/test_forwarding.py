"""Queues and subscriptions that pass their messages on."""

import pytest
from azure.servicebus import ServiceBusSubQueue

from azure_client import complete_all, nothing_comes, take, take_one, text
from broker import until


@pytest.mark.queue("from", ForwardTo="{test}/to")
@pytest.mark.queue("to")
def test_a_queue_forwards_to_another(entity):
    entity("from").send("a", "b", subject="s", application_properties={"x": 1})
    first, second = take(entity("to").plain(), 2)
    assert (text(first), text(second)) == ("a", "b")
    assert (first.subject, first.application_properties, first.delivery_count) == ("s", {b"x": 1}, 0)


@pytest.mark.queue("from", ForwardTo="{test}/to")
@pytest.mark.queue("to", RequiresSession=True)
def test_into_sessions(entity):
    entity("from").send("a1", "a2", session="a")
    entity("from").send("b1", session="b")
    to = entity("to")
    assert complete_all(to.accept("a"), 2) == ["a1", "a2"]
    assert complete_all(to.accept("b"), 1) == ["b1"]


@pytest.mark.topic("topic", {"s": {"Properties": {"ForwardTo": "{test}/to"}}, "other": {}})
@pytest.mark.queue("to")
def test_a_subscription_forwards(entity):
    entity("topic", "s").send("a")
    assert complete_all(entity("to").plain(), 1) == ["a"]
    assert complete_all(entity("topic", "other").plain(), 1) == ["a"]


@pytest.mark.queue("from", ForwardTo="{test}/topic")
@pytest.mark.topic("topic", {"one": {}, "two": {}})
def test_to_a_topic(entity):
    entity("from").send("a")
    for name in ("one", "two"):
        assert complete_all(entity("topic", name).plain(), 1) == ["a"]


@pytest.mark.queue("1", ForwardTo="{test}/2")
@pytest.mark.queue("2", ForwardTo="{test}/3")
@pytest.mark.queue("3", ForwardTo="{test}/4")
@pytest.mark.queue("4", ForwardTo="{test}/5")
@pytest.mark.queue("5")
def test_four_hops(entity):
    entity("1").send("a")
    assert complete_all(entity("5").plain(), 1) == ["a"]


@pytest.mark.queue("from", ForwardTo="{test}/to", ForwardDeadLetteredMessagesTo="{test}/graveyard")
@pytest.mark.queue("to", RequiresSession=True)
@pytest.mark.queue("graveyard")
def test_what_the_target_does_not_take_is_not_lost(entity):
    """It has no session: it ends among the dead letters of the transfer."""
    source = entity("from")
    source.send("a")
    dead = take_one(source.plain(sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER))
    assert text(dead) == "a" and dead.dead_letter_reason


@pytest.mark.queue("from", ForwardDeadLetteredMessagesTo="{test}/to", DefaultMessageTimeToLive="PT1S", DeadLetteringOnMessageExpiration=True)
@pytest.mark.queue("to")
def test_expired_messages_are_forwarded_as_dead_letters(entity):
    source = entity("from")
    source.send("a")
    dead = take_one(entity("to").plain())
    assert (text(dead), dead.dead_letter_reason) == ("a", "TTLExpiredException")
    assert nothing_comes(source.dead_letters())


def dead_anywhere(entity, names) -> list[tuple[str, str]]:
    """Bodies and reasons of all dead letters of these queues, also those of transfers."""
    found = []
    for name in names:
        for part in (ServiceBusSubQueue.DEAD_LETTER, ServiceBusSubQueue.TRANSFER_DEAD_LETTER):
            found += [(text(one), one.dead_letter_reason) for one in entity(name).peek(sub_queue=part)]
    return found


@pytest.mark.queue("1", ForwardTo="{test}/2")
@pytest.mark.queue("2", ForwardTo="{test}/3")
@pytest.mark.queue("3", ForwardTo="{test}/4")
@pytest.mark.queue("4", ForwardTo="{test}/5")
@pytest.mark.queue("5", ForwardTo="{test}/6")
@pytest.mark.queue("6")
def test_no_more_than_four_hops(entity):
    entity("1").send("a")
    until(lambda: dead_anywhere(entity, "12345") == [("a", "MaxTransferHopCountExceeded")], 60)
    assert nothing_comes(entity("6").plain(), 1)


@pytest.mark.queue("a", ForwardDeadLetteredMessagesTo="{test}/b")
@pytest.mark.queue("b", ForwardDeadLetteredMessagesTo="{test}/a")
def test_dead_letters_that_are_sent_to_and_fro(entity):
    """Each time somebody rejects it, it goes to the other."""
    entity("a").send("x")
    for name in "abab":
        receiver = entity(name).plain()
        message = take_one(receiver)
        receiver.dead_letter_message(message, reason=f"not for {name}")
        receiver.close()
    assert text(take_one(entity("a").plain())) == "x"
