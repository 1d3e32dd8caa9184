"""Messages for later: scheduled, seen, cancelled, and enqueued at their time."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from azure_client import complete_all, nothing_comes, take, take_one, text, texts


def after(seconds: float) -> datetime:
    # In whole milliseconds, which is what a message carries.
    now = datetime.now(timezone.utc)
    return now.replace(microsecond=now.microsecond // 1_000 * 1_000) + timedelta(seconds=seconds)


@pytest.mark.queue()
def test_a_message_comes_at_its_time_and_not_before(queue):
    receiver, sender = queue.plain(), queue.sender.__enter__()
    due = after(3)
    [number] = sender.schedule_messages(ServiceBusMessage("later"), due)
    assert nothing_comes(receiver)
    message = take_one(receiver)
    assert due <= datetime.now(timezone.utc) < due + timedelta(seconds=2)
    assert text(message) == "later"
    assert message.sequence_number > number, "a new number, since it is enqueued now"
    assert abs((message.scheduled_enqueue_time_utc - due).total_seconds()) < 0.002
    assert abs((message.enqueued_time_utc - due).total_seconds()) < 1


@pytest.mark.queue()
def test_the_time_can_be_a_property_of_a_message_that_is_sent(queue):
    queue.send("later", scheduled_enqueue_time_utc=after(4))
    queue.send("now")
    receiver = queue.plain()
    assert complete_all(receiver, 1) == ["now"]
    assert nothing_comes(receiver)
    assert complete_all(receiver, 1) == ["later"]


@pytest.mark.queue()
def test_a_time_in_the_past_is_now(queue):
    queue.send("a", scheduled_enqueue_time_utc=after(-60))
    queue.sender.schedule_messages(ServiceBusMessage("b"), after(-60))
    assert complete_all(queue.plain(), 2) == ["a", "b"]


@pytest.mark.queue()
def test_scheduled_messages_are_enqueued_in_the_order_of_their_times(queue):
    due = {delay: after(delay) for delay in (4.4, 3.6, 4.0)}
    for delay, at in due.items():
        queue.sender.schedule_messages(ServiceBusMessage(str(delay)), at)
    assert texts(take(queue.plain(), 3)) == ["3.6", "4.0", "4.4"]


@pytest.mark.queue()
def test_many_are_scheduled_by_one_request(queue):
    numbers = queue.sender.schedule_messages([ServiceBusMessage(str(number)) for number in range(50)], after(1))
    assert len(set(numbers)) == 50
    assert sorted(texts(take(queue.plain(), 50)), key=int) == [str(number) for number in range(50)]


@pytest.mark.queue()
def test_what_is_cancelled_never_comes(queue):
    first, second, third = queue.sender.schedule_messages([ServiceBusMessage(body) for body in "abc"], after(3))
    queue.sender.cancel_scheduled_messages([first, third])
    receiver = queue.plain()
    assert complete_all(receiver, 1) == ["b"]
    assert nothing_comes(receiver, 1.2)


@pytest.mark.queue()
def test_what_is_unknown_cancelled_or_enqueued_cannot_be_cancelled(queue):
    [number] = queue.sender.schedule_messages(ServiceBusMessage("a"), after(60))
    queue.sender.cancel_scheduled_messages(number)
    queue.send("active")
    active = queue.peek()[0].sequence_number
    [remaining] = queue.sender.schedule_messages(ServiceBusMessage("b"), after(60))
    for wrong in (number, 4711, active, [remaining, 4711]):
        with pytest.raises(MessageNotFoundError):
            queue.sender.cancel_scheduled_messages(wrong)
    assert texts(queue.peek()) == ["active", "b"], "all are cancelled or none"


@pytest.mark.queue()
def test_scheduled_messages_can_be_peeked(queue):
    queue.sender.schedule_messages(ServiceBusMessage("a", application_properties={"x": 1}), after(60))
    [peeked] = queue.peek()
    assert (text(peeked), peeked.state) == ("a", ServiceBusMessageState.SCHEDULED)
    assert peeked.application_properties[b"x"] == 1


@pytest.mark.queue(RequiresSession=True)
def test_a_session_queue_takes_only_messages_with_sessions(queue):
    with pytest.raises(ServiceBusError):
        queue.sender.schedule_messages(ServiceBusMessage("a"), after(60))
    queue.sender.schedule_messages([ServiceBusMessage(session, session_id=session) for session in "ab"], after(1))
    for session in "ab":
        assert complete_all(queue.accept_next(), 1) == [session]


@pytest.mark.topic({"s": {}})
def test_a_topic_schedules_too(subscription):
    here = subscription("s")
    kept, cancelled = here.sender.schedule_messages([ServiceBusMessage("kept"), ServiceBusMessage("cancelled")], after(3))
    here.sender.cancel_scheduled_messages(cancelled)
    receiver = here.plain()
    assert complete_all(receiver, 1) == ["kept"]
    assert nothing_comes(receiver)


@pytest.mark.queue()
def test_the_time_to_live_begins_when_it_is_enqueued(queue):
    receiver = queue.plain()
    queue.send("a", scheduled_enqueue_time_utc=after(2), time_to_live=timedelta(seconds=1))
    assert complete_all(receiver, 1) == ["a"]
