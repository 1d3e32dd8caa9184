"""What is sent is what is received: batches, properties, bodies, sizes; and what is refused."""

import os
import time
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusAuthenticationError, ServiceBusError

from azure_client import DELETE, SECONDS, complete_all, nothing_comes, take, take_one, text, texts


@pytest.mark.queue(RequiresSession=True)
def test_a_batch_may_mix_sessions(queue):
    queue.sender.send_messages([ServiceBusMessage(f"{session}{number}", session_id=session) for number in range(20) for session in "abc"])
    for session in "abc":
        assert complete_all(queue.accept(session), 20) == [f"{session}{number}" for number in range(20)]


@pytest.mark.queue(RequiresSession=True)
def test_a_batch_is_accepted_whole_or_not_at_all(queue):
    batch = [ServiceBusMessage("a", session_id="s"), ServiceBusMessage("without session"), ServiceBusMessage("b", session_id="s")]
    with pytest.raises(ServiceBusError, match="SessionId"):
        queue.sender.send_messages(batch, timeout=SECONDS)
    assert nothing_comes(queue.accept("s"))


@pytest.mark.queue()
def test_a_full_batch(queue):
    batch, count = queue.sender.create_message_batch(), 0
    try:
        while True:
            batch.add_message(ServiceBusMessage(f"{count:01000}"))
            count += 1
    except MessageSizeExceededError:
        pass
    assert count > 200
    queue.sender.send_messages(batch)
    assert texts(take(queue.plain(receive_mode=DELETE), count)) == [f"{number:01000}" for number in range(count)]


@pytest.mark.queue()
def test_every_property_comes_back(queue):
    now, identifier = datetime.now(timezone.utc), uuid.uuid4()
    queue.send(
        "body", message_id="id", correlation_id="correlation", subject="subject", content_type="text/plain", to="to",
        reply_to="reply to", reply_to_session_id="reply session", partition_key="key", time_to_live=timedelta(minutes=3),
        application_properties={"text": "ü", "int": 1 << 30, "small": -1, "float": 1.5, "yes": True, "no": False, "none": None,
                                "uuid": identifier, "time": now},
    )
    got = take_one(queue.plain())
    assert (got.message_id, got.correlation_id, got.subject, got.content_type) == ("id", "correlation", "subject", "text/plain")
    assert (got.to, got.reply_to, got.reply_to_session_id, got.partition_key) == ("to", "reply to", "reply session", "key")
    assert got.time_to_live == timedelta(minutes=3)
    assert got.application_properties == {
        b"text": "ü".encode(), b"int": 1 << 30, b"small": -1, b"float": 1.5, b"yes": True, b"no": False, b"none": None,
        b"uuid": identifier, b"time": int(now.timestamp() * 1000),
    }
    assert abs((got.enqueued_time_utc - now).total_seconds()) < 5
    assert got.delivery_count == 0 and got.sequence_number == 1 and got.enqueued_sequence_number == 1


@pytest.mark.queue()
def test_bodies_of_all_kinds_come_back(queue):
    value = {"a": [1, 2.5, None, True], "b": "text"}
    sent = [
        AmqpAnnotatedMessage(data_body=[b"two", b"sections"]),
        AmqpAnnotatedMessage(value_body=value),
        AmqpAnnotatedMessage(sequence_body=[[1, 2], ["three"]]),
        ServiceBusMessage(None),
        AmqpAnnotatedMessage(data_body=b""),
    ]
    for message in sent:
        queue.sender.send_messages(message)
    data, mapped, sequence, none, empty = take(queue.plain(), 5)
    assert (data.body_type, list(data.body)) == (AmqpMessageBodyType.DATA, [b"two", b"sections"])
    assert (mapped.body_type, mapped.body) == (AmqpMessageBodyType.VALUE, {b"a": [1, 2.5, None, True], b"b": b"text"})
    assert (sequence.body_type, list(sequence.body)) == (AmqpMessageBodyType.SEQUENCE, [[1, 2], [b"three"]])
    assert (none.body_type, none.body) == (AmqpMessageBodyType.VALUE, None)
    assert list(empty.body) == [b""]


@pytest.mark.queue()
def test_annotations_header_and_footer_of_the_sender_come_back(queue):
    queue.sender.send_messages(AmqpAnnotatedMessage(
        data_body=b"x", annotations={"x-own": "kept"}, footer={"foot": 1}, header=AmqpMessageHeader(priority=7, durable=True),
        properties=AmqpMessageProperties(user_id=b"somebody", group_sequence=5, content_encoding="gzip"),
    ))
    got = take_one(queue.plain()).raw_amqp_message
    assert got.annotations[b"x-own"] == b"kept"
    assert got.footer == {b"foot": 1}
    assert (got.header.priority, got.header.durable) == (7, True)
    assert (got.properties.user_id, got.properties.group_sequence, got.properties.content_encoding) == (b"somebody", 5, b"gzip")


@pytest.mark.queue()
def test_who_gives_no_message_id_gets_one(queue):
    queue.send("a", "b")
    first, second = take(queue.plain(), 2)
    assert first.message_id and second.message_id and first.message_id != second.message_id


@pytest.mark.queue()
@pytest.mark.parametrize("size", [0, 1, 60_000, 65_536, 130_000, 900 * 1024])
def test_sizes_from_nothing_to_many_frames(queue, size):
    body = os.urandom(size)
    queue.send(body)
    receiver = queue.plain()
    message = take_one(receiver)
    assert b"".join(message.body) == body
    receiver.complete_message(message)


@pytest.mark.queue(RequiresSession=True)
def test_large_messages_among_small_ones_stay_in_order(queue):
    bodies = [os.urandom(size) for size in (10, 300_000, 10, 700_000, 10, 100_000)]
    queue.send(*bodies, session="s")
    assert [b"".join(message.body) for message in take(queue.accept("s"), 6, 15)] == bodies


@pytest.mark.queue()
def test_what_is_too_large_is_refused_and_the_sender_goes_on(queue):
    queue.send("before")
    with pytest.raises(MessageSizeExceededError):
        queue.send(b"x" * (1100 << 10))
    queue.send("after")
    assert complete_all(queue.plain(), 2) == ["before", "after"]


@pytest.mark.queue(RequiresSession=True)
def test_a_session_queue_refuses_messages_without_a_session(queue):
    with pytest.raises(ServiceBusError, match="The SessionId was not set on a message"):
        queue.send("a")
    queue.send("b", session="s")
    assert complete_all(queue.accept("s"), 1) == ["b"]


@pytest.mark.queue()
def test_a_plain_queue_takes_session_ids_as_properties(queue):
    queue.send("a", session="s")
    message = take_one(queue.plain())
    assert (text(message), message.session_id) == ("a", "s")


@pytest.mark.queue()
def test_a_plain_queue_has_no_session_receivers(queue):
    for session in ("s", ""):
        with pytest.raises(ServiceBusError, match="does not require sessions"):
            queue.accept(session)
    with pytest.raises(ServiceBusError, match="does not require sessions"):
        queue.accept_next(2)


def test_what_is_not_there_is_not_found(client):
    connected = client()
    with pytest.raises(ServiceBusAuthenticationError):
        connected.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("a"))
    with pytest.raises(ServiceBusAuthenticationError):
        connected.get_queue_receiver("no-such-queue").receive_messages(max_wait_time=2)
    with pytest.raises(ServiceBusAuthenticationError):
        connected.get_queue_receiver("no-such-queue", session_id="s").receive_messages(max_wait_time=2)
    with pytest.raises(ServiceBusAuthenticationError):
        connected.get_subscription_receiver("no-such-topic", "s").receive_messages(max_wait_time=2)


@pytest.mark.topic({"s": {}})
def test_a_subscription_that_is_not_there_is_not_found(subscription):
    with pytest.raises(ServiceBusAuthenticationError):
        subscription("t").plain()


@pytest.mark.queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1M")
def test_duplicates_are_accepted_and_dropped_within_the_window(queue):
    receiver = queue.plain()
    queue.send("first", message_id="same")
    queue.send("again", message_id="same")
    queue.send("other", message_id="other")
    queue.sender.send_messages([ServiceBusMessage("batched", message_id="same"), ServiceBusMessage("third", message_id="third")])
    assert complete_all(receiver, 3) == ["first", "other", "third"]
    queue.send("again, though the first is gone", message_id="same")
    assert nothing_comes(receiver)


@pytest.mark.queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1S")
def test_after_the_window_it_is_no_duplicate(queue):
    queue.send("first", message_id="same")
    time.sleep(1.2)
    queue.send("after the window", message_id="same")
    assert complete_all(queue.plain(), 2) == ["first", "after the window"]


@pytest.mark.queue()
def test_duplicates_are_messages_unless_the_queue_looks_for_them(queue):
    queue.send("first", "second", message_id="same")
    assert complete_all(queue.plain(), 2) == ["first", "second"]
