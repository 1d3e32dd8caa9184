"""Messages that expire: a session goes as a whole, and only when somebody takes it."""

import time
from datetime import timedelta

import pytest
from azure.servicebus.exceptions import OperationTimeoutError

from azure_client import complete_all, nothing_comes, take, take_one, text, texts

SHORT = timedelta(seconds=1)


@pytest.mark.queue(RequiresSession=True, DeadLetteringOnMessageExpiration=True)
def test_one_expired_message_takes_its_whole_session_with_it(queue):
    queue.send("stays", "expires", session="s", time_to_live=timedelta(minutes=5))
    queue.send("expires", session="s", time_to_live=SHORT)
    queue.send("other", session="other")
    time.sleep(1.3)
    assert nothing_comes(queue.accept("s"))
    dead = take(queue.dead_letters(), 3)
    assert texts(dead) == ["stays", "expires", "expires"]
    assert {one.session_id for one in dead} == {"s"}
    assert {one.dead_letter_reason for one in dead} == {"TTLExpiredException"}
    assert complete_all(queue.accept("other"), 1) == ["other"]


@pytest.mark.queue(RequiresSession=True)
def test_expired_sessions_are_dropped_unless_the_queue_dead_letters_them(queue):
    queue.send("a", session="s", time_to_live=SHORT)
    time.sleep(1.3)
    assert nothing_comes(queue.accept("s"))
    assert nothing_comes(queue.dead_letters())


@pytest.mark.queue(RequiresSession=True, DeadLetteringOnMessageExpiration=True)
def test_nothing_expires_while_nobody_looks(queue):
    queue.send("a", session="s", time_to_live=SHORT)
    time.sleep(2)
    assert nothing_comes(queue.dead_letters())
    assert nothing_comes(queue.accept("s"))
    assert text(take_one(queue.dead_letters())) == "a"


@pytest.mark.queue(RequiresSession=True, DeadLetteringOnMessageExpiration=True)
def test_an_expired_session_is_not_granted_as_the_next_one(queue):
    queue.send("expired", session="s", time_to_live=SHORT)
    time.sleep(1.3)
    queue.send("alive", session="t")
    assert queue.accept_next().session.session_id == "t"
    with pytest.raises(OperationTimeoutError):
        queue.accept_next(0.8)


@pytest.mark.queue(RequiresSession=True, DeadLetteringOnMessageExpiration=True)
def test_what_is_in_flight_does_not_expire(queue):
    receiver = queue.accept("s")
    queue.send("a", session="s", time_to_live=timedelta(seconds=2))
    message = take_one(receiver)
    time.sleep(2.3)
    assert nothing_comes(receiver)
    receiver.complete_message(message)
    assert nothing_comes(queue.dead_letters())


@pytest.mark.queue(RequiresSession=True, DeadLetteringOnMessageExpiration=True, MaxDeliveryCount=10)
def test_what_was_in_flight_expires_when_it_comes_back(queue):
    receiver = queue.accept("s")
    queue.send("a", session="s", time_to_live=timedelta(seconds=2))
    message = take_one(receiver)
    time.sleep(2.3)
    receiver.abandon_message(message)
    assert nothing_comes(receiver)
    assert take_one(queue.dead_letters()).dead_letter_reason == "TTLExpiredException"


@pytest.mark.queue(RequiresSession=True, DeadLetteringOnMessageExpiration=True)
def test_deferred_messages_do_not_expire(queue):
    receiver = queue.accept("s")
    queue.send("a", session="s", time_to_live=timedelta(seconds=2))
    message = take_one(receiver)
    receiver.defer_message(message)
    time.sleep(2.3)
    [deferred] = receiver.receive_deferred_messages(message.sequence_number)
    assert text(deferred) == "a"
    receiver.complete_message(deferred)
    assert nothing_comes(queue.dead_letters())


@pytest.mark.queue(DefaultMessageTimeToLive="PT1S", DeadLetteringOnMessageExpiration=True)
def test_the_queue_limits_how_long_messages_live(queue):
    """The shorter of both counts."""
    queue.send("default")
    queue.send("longer than allowed", time_to_live=timedelta(hours=1))
    time.sleep(1.3)
    receiver = queue.plain()
    assert nothing_comes(receiver)
    assert texts(take(queue.dead_letters(), 2)) == ["default", "longer than allowed"]


@pytest.mark.queue(DefaultMessageTimeToLive="PT1H", DeadLetteringOnMessageExpiration=True)
def test_a_message_may_live_shorter_than_the_queue_allows(queue):
    queue.send("short", time_to_live=SHORT)
    queue.send("long")
    time.sleep(1.3)
    assert complete_all(queue.plain(), 1) == ["long"]
    dead = take_one(queue.dead_letters())
    assert (text(dead), dead.dead_letter_reason) == ("short", "TTLExpiredException")


@pytest.mark.queue(DefaultMessageTimeToLive="PT3S", DeadLetteringOnMessageExpiration=True)
def test_dead_letters_do_not_expire(queue):
    receiver = queue.plain()
    queue.send("a")
    receiver.dead_letter_message(take_one(receiver))
    time.sleep(3.5)
    assert text(take_one(queue.dead_letters())) == "a"


@pytest.mark.queue(DefaultMessageTimeToLive="PT1M")
def test_receivers_are_told_when_a_message_expires(queue):
    queue.send("default")
    queue.send("own", time_to_live=timedelta(seconds=30))
    default, own = take(queue.plain(), 2)
    assert (default.expires_at_utc - default.enqueued_time_utc).total_seconds() == 60
    assert (own.expires_at_utc - own.enqueued_time_utc).total_seconds() == 30
