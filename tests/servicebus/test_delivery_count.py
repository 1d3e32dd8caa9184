"""What counts as a delivery, and what happens after the last one."""

import time

import pytest
from azure.servicebus.exceptions import SessionCannotBeLockedError

from azure_client import complete_all, nothing_comes, take, take_one, text, texts


def counts(messages) -> list[int]:
    return [message.delivery_count for message in messages]


@pytest.mark.queue(RequiresSession=True)
def test_it_is_zero_at_first(queue):
    queue.send("a", session="s")
    assert take_one(queue.accept("s")).delivery_count == 0


@pytest.mark.queue(RequiresSession=True, LockDuration="PT2S", MaxDeliveryCount=10)
def test_expiry_counts_only_what_was_delivered(queue):
    queue.send(*"abcd", session="s")
    assert texts(take(queue.accept("s"), 2)) == ["a", "b"]
    time.sleep(2.3)
    messages = take(queue.accept("s"), 4)
    assert texts(messages) == list("abcd")
    assert counts(messages) == [1, 1, 0, 0]


@pytest.mark.queue(RequiresSession=True, LockDuration="PT3S")
def test_expiry_does_not_count_what_was_settled(queue):
    queue.send(*"ab", session="s")
    receiver = queue.accept("s")
    first, second = take(receiver, 2)
    receiver.abandon_message(second)
    receiver.complete_message(first)
    time.sleep(3.2)
    [again] = take(queue.accept("s"), 1)
    assert (text(again), again.delivery_count) == ("b", 1)


@pytest.mark.queue(RequiresSession=True)
def test_closing_the_session_does_not_count(queue):
    queue.send(*"ab", session="s")
    for _ in range(4):
        receiver = queue.accept("s")
        assert counts(take(receiver, 2)) == [0, 0]
        receiver.close()


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=10)
def test_abandoning_counts(queue):
    queue.send("a", session="s")
    receiver = queue.accept("s")
    for count in range(5):
        message = take_one(receiver)
        assert message.delivery_count == count
        receiver.abandon_message(message)


@pytest.mark.queue(RequiresSession=True)
def test_peeking_renewing_and_refusing_do_not_count(queue):
    queue.send("a", session="s")
    receiver = queue.accept("s")
    message = take_one(receiver)
    assert counts(receiver.peek_messages(max_message_count=1, sequence_number=1)) == [0]
    receiver.session.renew_lock()
    with pytest.raises(SessionCannotBeLockedError):
        queue.accept("s")
    assert counts(receiver.peek_messages(max_message_count=1, sequence_number=1)) == [0]
    receiver.complete_message(message)


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=3)
def test_after_the_last_delivery_it_is_a_dead_letter(queue):
    """Deliveries with counts 0, 1 and 2; the session goes on with what is behind it."""
    queue.send("poison", "fine", session="s")
    receiver = queue.accept("s")
    for count in range(3):
        message = take_one(receiver)
        assert (text(message), message.delivery_count) == ("poison", count)
        receiver.abandon_message(message)
    assert complete_all(receiver, 1) == ["fine"]
    dead = take_one(queue.dead_letters())
    assert (text(dead), dead.session_id) == ("poison", "s")
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert "3" in dead.dead_letter_error_description


@pytest.mark.queue(RequiresSession=True, LockDuration="PT2S", MaxDeliveryCount=1)
def test_expiry_can_be_the_last_delivery(queue):
    queue.send(*"abc", session="s")
    assert texts(take(queue.accept("s"), 2)) == ["a", "b"]
    time.sleep(2.3)
    assert complete_all(queue.accept("s"), 1) == ["c"]
    assert texts(take(queue.dead_letters(), 2)) == ["a", "b"]


@pytest.mark.queue(RequiresSession=True)
def test_ten_deliveries_unless_the_queue_says_otherwise(queue):
    queue.send("a", session="s")
    receiver = queue.accept("s")
    for _ in range(10):
        receiver.abandon_message(take_one(receiver))
    assert nothing_comes(receiver)
    assert take_one(queue.dead_letters()).dead_letter_reason == "MaxDeliveryCountExceeded"


@pytest.mark.queue(MaxDeliveryCount=40)
def test_more_deliveries_than_the_emulator_allows(queue):
    queue.send("a")
    receiver = queue.plain()
    for count in range(40):
        message = take_one(receiver)
        assert message.delivery_count == count
        receiver.abandon_message(message)
    assert nothing_comes(receiver)


@pytest.mark.queue(LockDuration="PT1S", MaxDeliveryCount=2)
def test_without_sessions_expiry_counts_too(queue):
    queue.send("a")
    receiver = queue.plain()
    for count in range(2):
        message = take_one(receiver)
        assert message.delivery_count == count
        time.sleep(1.2)
    assert nothing_comes(receiver)
    assert take_one(queue.dead_letters()).dead_letter_reason == "MaxDeliveryCountExceeded"
