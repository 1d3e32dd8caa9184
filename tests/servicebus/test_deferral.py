"""Deferred messages: out of the stream, had by their sequence number only."""

import pytest
from azure.servicebus import ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from azure_client import DELETE, complete_all, nothing_comes, take, take_one, text, texts


def deferred(receiver, count: int) -> list[int]:
    messages = take(receiver, count)
    for message in messages:
        receiver.defer_message(message)
    return [message.sequence_number for message in messages]


@pytest.mark.queue(RequiresSession=True)
def test_a_deferred_message_is_received_by_its_number_and_completed(queue):
    queue.send("a", session="s", application_properties={"x": 1})
    receiver = queue.accept("s")
    [number] = deferred(receiver, 1)
    assert nothing_comes(receiver)
    [message] = receiver.receive_deferred_messages(number)
    assert (text(message), message.session_id, message.application_properties) == ("a", "s", {b"x": 1})
    receiver.complete_message(message)
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(number)


@pytest.mark.queue(RequiresSession=True)
def test_it_stays_deferred_when_the_session_is_closed(queue):
    queue.send(*"ab", session="s")
    receiver = queue.accept("s")
    [number] = deferred(receiver, 1)
    receiver.close()
    receiver = queue.accept("s")
    assert complete_all(receiver, 1) == ["b"]
    assert texts(receiver.receive_deferred_messages(number)) == ["a"]


@pytest.mark.queue(RequiresSession=True, MaxDeliveryCount=5)
def test_an_abandoned_one_stays_deferred(queue):
    queue.send("a", session="s")
    receiver = queue.accept("s")
    [number] = deferred(receiver, 1)
    [message] = receiver.receive_deferred_messages(number)
    receiver.abandon_message(message)
    assert nothing_comes(receiver)
    [message] = receiver.receive_deferred_messages(number)
    receiver.defer_message(message)
    [message] = receiver.receive_deferred_messages(number)
    receiver.dead_letter_message(message, reason="enough")
    assert take_one(queue.dead_letters()).dead_letter_reason == "enough"


@pytest.mark.queue(RequiresSession=True)
def test_all_of_them_or_none(queue):
    queue.send(*"abc", session="s")
    receiver = queue.accept("s")
    first, second = deferred(receiver, 2)
    for wrong in ([first, 4711], [first, 3]):
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(wrong)
    messages = receiver.receive_deferred_messages([second, first])
    assert sorted(texts(messages)) == ["a", "b"]
    for message in messages:
        receiver.complete_message(message)
    assert complete_all(receiver, 1) == ["c"]


@pytest.mark.queue(RequiresSession=True)
def test_a_session_has_its_own_deferred_messages_only(queue):
    queue.send("of s", session="s")
    receiver, other = queue.accept("s"), queue.accept("t")
    [number] = deferred(receiver, 1)
    with pytest.raises(MessageNotFoundError):
        other.receive_deferred_messages(number)
    assert texts(receiver.receive_deferred_messages(number)) == ["of s"]


@pytest.mark.queue()
def test_without_sessions(queue):
    queue.send(*"abc")
    receiver = queue.plain()
    numbers = deferred(receiver, 2)
    assert [(text(one), one.state) for one in queue.peek()] == [
        ("a", ServiceBusMessageState.DEFERRED), ("b", ServiceBusMessageState.DEFERRED), ("c", ServiceBusMessageState.ACTIVE)]
    assert complete_all(receiver, 1) == ["c"]
    messages = receiver.receive_deferred_messages(numbers)
    with pytest.raises(ServiceBusError):
        queue.plain().receive_deferred_messages(numbers[0])
    for message in messages:
        receiver.renew_message_lock(message)
        receiver.complete_message(message)
    assert queue.peek() == []


@pytest.mark.queue(RequiresSession=True)
def test_they_can_be_received_and_deleted(queue):
    queue.send(*"ab", session="s")
    receiver = queue.accept("s")
    numbers = deferred(receiver, 2)
    receiver.close()
    receiver = queue.accept("s", receive_mode=DELETE)
    assert texts(receiver.receive_deferred_messages(numbers)) == ["a", "b"]
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(numbers)
