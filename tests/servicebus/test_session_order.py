"""Order: the messages of a session come as they were sent, and what comes back takes its old place."""

from datetime import datetime, timedelta, timezone
from time import sleep

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from azure_client import complete_all, nothing_comes, take, take_one, text, texts


@pytest.mark.queue(RequiresSession=True)
def test_the_messages_of_a_session_come_in_the_order_they_were_sent(queue):
    sent = [str(number) for number in range(30)]
    queue.send(*sent, session="s")
    receiver = queue.accept("s")
    messages = take(receiver, 30)
    assert texts(messages) == sent
    assert [message.sequence_number for message in messages] == list(range(1, 31))
    assert {message.session_id for message in messages} == {"s"}


@pytest.mark.queue(RequiresSession=True)
def test_sessions_that_are_mixed_in_the_queue_are_each_in_order(queue):
    for number in range(10):
        for session in "abc":
            queue.send(f"{session}{number}", session=session)
    for session in "cab":
        assert complete_all(queue.accept(session), 10) == [f"{session}{number}" for number in range(10)]


@pytest.mark.queue(RequiresSession=True)
def test_one_message_after_the_other_is_in_order_too(queue):
    queue.send(*"abcde", session="s")
    receiver = queue.accept("s")
    assert [complete_all(receiver, 1)[0] for _ in range(5)] == list("abcde")
    assert nothing_comes(receiver)


@pytest.mark.queue(RequiresSession=True)
def test_more_is_sent_and_received_while_a_message_is_in_flight(queue):
    queue.send("a", session="s")
    receiver = queue.accept("s")
    first = take_one(receiver)
    queue.send("b", session="s")
    assert complete_all(receiver, 1) == ["b"]
    receiver.complete_message(first)
    assert nothing_comes(receiver)


@pytest.mark.queue(RequiresSession=True)
def test_messages_in_flight_are_settled_in_any_order(queue):
    queue.send(*"abcd", session="s")
    receiver = queue.accept("s")
    messages = take(receiver, 4)
    for number in (2, 0, 3, 1):
        receiver.complete_message(messages[number])
    receiver.close()
    assert nothing_comes(queue.accept("s"))


@pytest.mark.queue(RequiresSession=True)
def test_a_message_in_flight_is_not_delivered_again(queue):
    queue.send("a", "b", session="s")
    receiver = queue.accept("s")
    assert texts(take(receiver, 2)) == ["a", "b"]
    assert nothing_comes(receiver)


@pytest.mark.queue(RequiresSession=True)
def test_an_abandoned_message_takes_its_old_place(queue):
    """Before those that were never delivered, and also while the one behind it is in flight."""
    queue.send(*"abc", session="s")
    receiver = queue.accept("s")
    first, second = take(receiver, 2)
    receiver.abandon_message(first)
    again = take_one(receiver)
    assert (text(again), again.sequence_number) == ("a", first.sequence_number)
    receiver.complete_message(again)
    receiver.complete_message(second)
    assert complete_all(receiver, 1) == ["c"]


@pytest.mark.queue(RequiresSession=True)
def test_what_is_in_flight_when_the_session_is_closed_takes_its_old_place(queue):
    queue.send(*"abcd", session="s")
    receiver = queue.accept("s")
    first, second, third = take(receiver, 3)
    receiver.complete_message(second)
    receiver.close()
    messages = take(queue.accept("s"), 3)
    assert texts(messages) == ["a", "c", "d"]
    assert messages[0].sequence_number == first.sequence_number


@pytest.mark.queue(RequiresSession=True, LockDuration="PT2S")
def test_what_is_in_flight_when_the_lock_expires_takes_its_old_place(queue):
    queue.send(*"abc", session="s")
    assert texts(take(queue.accept("s"), 2)) == ["a", "b"]
    sleep(2.3)
    assert complete_all(queue.accept("s"), 3) == ["a", "b", "c"]


@pytest.mark.queue(RequiresSession=True)
def test_deferred_messages_leave_the_stream(queue):
    queue.send(*"abc", session="s")
    receiver = queue.accept("s")
    deferred = take_one(receiver)
    receiver.defer_message(deferred)
    assert complete_all(receiver, 2) == ["b", "c"]
    assert nothing_comes(receiver)
    [back] = receiver.receive_deferred_messages(deferred.sequence_number)
    assert text(back) == "a"


@pytest.mark.queue(RequiresSession=True)
def test_scheduled_messages_join_the_stream_when_they_are_due(queue):
    """With a new number: behind what was sent in the meantime."""
    # In whole milliseconds, which is what a message carries.
    now = datetime.now(timezone.utc)
    due = now.replace(microsecond=now.microsecond // 1_000 * 1_000) + timedelta(seconds=4)
    [scheduled] = queue.sender.schedule_messages(ServiceBusMessage("later", session_id="s"), due)
    queue.send("now", session="s")
    receiver = queue.accept("s")
    assert [(text(one), one.state) for one in receiver.peek_messages(max_message_count=5)] == [
        ("later", ServiceBusMessageState.SCHEDULED), ("now", ServiceBusMessageState.ACTIVE)]
    first, second = take(receiver, 2)
    assert texts([first, second]) == ["now", "later"]
    assert second.sequence_number > first.sequence_number > scheduled
    assert datetime.now(timezone.utc) >= due
