"""Queues without sessions: locks are on single messages."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError

from azure_client import DELETE, complete_all, nothing_comes, take, take_one, text, texts


@pytest.mark.queue()
def test_messages_are_received_and_completed_in_order(queue):
    sent = [str(number) for number in range(20)]
    queue.send(*sent)
    receiver = queue.plain()
    assert complete_all(receiver, 20) == sent
    assert nothing_comes(receiver)


@pytest.mark.queue()
def test_a_locked_message_is_for_its_receiver_only(queue):
    queue.send(*"ab")
    first, second = queue.plain(), queue.plain()
    a = take_one(first)
    b = take_one(second)
    assert (text(a), text(b)) == ("a", "b")
    assert nothing_comes(second)
    first.complete_message(a)
    second.complete_message(b)


@pytest.mark.queue(MaxDeliveryCount=10)
def test_an_abandoned_message_comes_again_before_the_others(queue):
    queue.send(*"abc")
    receiver = queue.plain()
    message = take_one(receiver)
    receiver.abandon_message(message)
    assert complete_all(receiver, 3) == ["a", "b", "c"]


@pytest.mark.queue(LockDuration="PT30S")
def test_the_client_is_told_until_when_it_has_the_lock(queue):
    queue.send("a")
    left = (take_one(queue.plain()).locked_until_utc - datetime.now(timezone.utc)).total_seconds()
    assert 27 < left <= 30.1


@pytest.mark.queue(LockDuration="PT2S", MaxDeliveryCount=10)
def test_an_expired_message_goes_to_who_waits(queue):
    queue.send("a")
    first, second = queue.plain(), queue.plain()
    message = take_one(first)
    again = take_one(second)
    assert (text(again), again.delivery_count) == ("a", 1)
    with pytest.raises(MessageLockLostError):
        first.complete_message(message)
    second.complete_message(again)


@pytest.mark.queue(LockDuration="PT4S")
def test_renewal_keeps_a_message(queue):
    queue.send("a")
    receiver = queue.plain()
    message = take_one(receiver)
    for _ in range(2):
        time.sleep(2.2)
        left = (receiver.renew_message_lock(message) - datetime.now(timezone.utc)).total_seconds()
        assert 2.5 < left <= 4.1
    receiver.complete_message(message)
    assert nothing_comes(receiver)


@pytest.mark.queue(LockDuration="PT3S")
def test_the_auto_lock_renewer_keeps_a_message(queue):
    queue.send("a")
    with AutoLockRenewer() as renewer:
        receiver = queue.plain(auto_lock_renewer=renewer)
        message = take_one(receiver)
        time.sleep(4.5)
        receiver.complete_message(message)
        assert nothing_comes(receiver)


@pytest.mark.queue()
def test_receive_and_delete(queue):
    queue.send(*"abc")
    receiver = queue.plain(receive_mode=DELETE)
    assert texts(take(receiver, 3)) == ["a", "b", "c"]
    assert queue.peek() == []


@pytest.mark.queue()
def test_a_prefetching_receiver_gives_back_what_it_has_not_used(queue):
    queue.send(*"abcdef")
    receiver = queue.plain(prefetch_count=10)
    assert complete_all(receiver, 2) == ["a", "b"]
    receiver.close()
    messages = take(queue.plain(), 4)
    assert texts(messages) == ["c", "d", "e", "f"]
    assert [message.delivery_count for message in messages] == [0, 0, 0, 0]


@pytest.mark.queue()
def test_competing_consumers_share_the_messages_and_none_comes_twice(queue):
    queue.sender.send_messages([ServiceBusMessage(str(number)) for number in range(200)])

    def work(_) -> list[str]:
        receiver, done = queue.plain(), []
        while messages := receiver.receive_messages(max_message_count=20, max_wait_time=1.5):
            for message in messages:
                receiver.complete_message(message)
                done.append(text(message))
        return done

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(work, range(4)))
    assert sorted(sum(shares, []), key=int) == [str(number) for number in range(200)]
    assert queue.peek() == []


@pytest.mark.queue()
def test_a_receiver_waits_for_messages(queue):
    receiver = queue.plain()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take_one, receiver, 20)
        time.sleep(0.7)
        sent = time.monotonic()
        queue.send("a")
        assert text(waiting.result()) == "a"
        assert time.monotonic() - sent < 5


@pytest.mark.queue()
def test_the_receiver_is_an_iterator(queue):
    queue.send(*"abc")
    seen = []
    with queue.receiver(max_wait_time=3) as receiver:
        for message in receiver:
            seen.append(text(message))
            receiver.complete_message(message)
    assert seen == ["a", "b", "c"]
