"""Browsing: whatever is there, in order, without a lock."""

import os

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from azure_client import complete_all, take_one, text, texts


@pytest.mark.queue()
def test_nothing_is_locked_counted_or_taken(queue):
    queue.send(*"abc")
    for _ in range(3):
        peeked = queue.peek()
        assert texts(peeked) == ["a", "b", "c"]
        assert [message.delivery_count for message in peeked] == [0, 0, 0]
    assert complete_all(queue.plain(), 3) == ["a", "b", "c"]


@pytest.mark.queue()
def test_an_empty_queue_has_nothing_to_peek(queue):
    assert queue.peek() == []


@pytest.mark.queue()
def test_locked_messages_are_seen(queue):
    queue.send(*"ab")
    receiver = queue.plain()
    take_one(receiver)
    assert texts(queue.peek()) == ["a", "b"]


@pytest.mark.queue()
def test_from_a_sequence_number_and_so_many(queue):
    queue.send(*"abcdef")
    receiver = queue.plain()
    assert texts(receiver.peek_messages(max_message_count=2, sequence_number=3)) == ["c", "d"]
    assert texts(receiver.peek_messages(max_message_count=1)) == ["e"], "the receiver goes on where it was"
    assert receiver.peek_messages(max_message_count=5, sequence_number=100) == []


@pytest.mark.queue(RequiresSession=True)
def test_a_session_receiver_sees_its_session(queue):
    for session in "abab":
        queue.send(session, session=session)
    assert texts(queue.accept("b").peek_messages(max_message_count=10, sequence_number=1)) == ["b", "b"]


@pytest.mark.queue()
def test_many_at_once(queue):
    """More than fits into one frame."""
    queue.sender.send_messages([ServiceBusMessage(f"{number:0500}") for number in range(250)])
    assert texts(queue.plain().peek_messages(max_message_count=250, sequence_number=1)) == [f"{number:0500}" for number in range(250)]


@pytest.mark.queue()
def test_a_large_message(queue):
    body = os.urandom(200_000)
    queue.send(body)
    [peeked] = queue.peek(1)
    assert b"".join(peeked.body) == body


@pytest.mark.queue()
def test_a_peeked_message_cannot_be_settled(queue):
    queue.send("a")
    receiver = queue.plain()
    [peeked] = receiver.peek_messages(sequence_number=1)
    with pytest.raises(ValueError):
        receiver.complete_message(peeked)
    assert complete_all(receiver, 1) == ["a"]


@pytest.mark.queue(RequiresSession=True)
def test_a_plain_receiver_cannot_be_attached_to_peek_into_sessions(queue):
    with pytest.raises(ServiceBusError, match="requires sessions"):
        queue.plain()


@pytest.mark.topic({"s": {}})
def test_a_subscription(subscription):
    here = subscription("s")
    here.send("a")
    [peeked] = here.peek()
    assert text(peeked) == "a"
