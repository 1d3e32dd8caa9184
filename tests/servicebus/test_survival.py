"""What survives the process: everything but locks. With `kill -9` and with SIGTERM."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError

from azure_client import complete_all, nothing_comes, take, take_one, text, texts


@pytest.fixture(params=["kill -9", "SIGTERM"])
def again(request, own_broker, entity):
    """The queue of the test on a broker of its own, and what ends that and starts it anew."""
    running = own_broker()

    def find(suffix: str = "", subscription: str | None = None):
        return entity(suffix, subscription, to=running)

    def restart() -> None:
        running.kill9() if request.param == "kill -9" else running.stop()
        running.start()

    return find, restart


@pytest.mark.queue(RequiresSession=True)
def test_messages_order_counts_and_states_survive(again):
    find, restart = again
    queue = find()
    queue.send(*"abcde", session="s")
    queue.send("x", session="t")
    receiver = queue.accept("s")
    first, second, third = take(receiver, 3)
    receiver.complete_message(second)
    receiver.abandon_message(first)
    receiver.session.set_state(b"\x00state")
    restart()
    queue = find()
    receiver = queue.accept_next()
    assert receiver.session.session_id == "s"
    assert receiver.session.get_state() == b"\x00state"
    messages = take(receiver, 4)
    assert texts(messages) == ["a", "c", "d", "e"]
    assert messages[0].delivery_count == 1
    assert [message.sequence_number for message in messages] == [first.sequence_number, third.sequence_number, 4, 5]
    queue.send("new", session="t")
    old, new = take(queue.accept("t"), 2)
    assert texts([old, new]) == ["x", "new"]
    assert new.sequence_number > 6
    assert set(queue.client.list_queue_sessions(queue.path)) == {"s", "t"}


@pytest.mark.queue(RequiresSession=True)
def test_deferred_scheduled_and_dead_messages_survive(again):
    find, restart = again
    queue = find()
    queue.send("deferred", "dead", session="s")
    receiver = queue.accept("s")
    deferred, dead = take(receiver, 2)
    receiver.defer_message(deferred)
    receiver.dead_letter_message(dead, reason="because", error_description="of this")
    due = datetime.now(timezone.utc) + timedelta(seconds=3)
    soon, cancelled = queue.sender.schedule_messages(
        [ServiceBusMessage("soon", session_id="s"), ServiceBusMessage("cancelled", session_id="s")], due)
    [late] = queue.sender.schedule_messages(ServiceBusMessage("late", session_id="s"), due + timedelta(hours=1))
    queue.sender.cancel_scheduled_messages(cancelled)
    restart()
    queue = find()
    receiver = queue.accept("s")
    states = {text(one): one.state for one in receiver.peek_messages(max_message_count=10, sequence_number=1)}
    assert states["deferred"] == ServiceBusMessageState.DEFERRED and states["late"] == ServiceBusMessageState.SCHEDULED
    assert "cancelled" not in states
    [message] = receiver.receive_deferred_messages(deferred.sequence_number)
    assert text(message) == "deferred"
    receiver.complete_message(message)
    assert complete_all(receiver, 1) == ["soon"]
    assert nothing_comes(receiver)
    queue.sender.cancel_scheduled_messages(late)
    message = take_one(queue.dead_letters())
    assert (text(message), message.dead_letter_reason, message.dead_letter_error_description) == ("dead", "because", "of this")
    assert message.session_id == "s"


@pytest.mark.topic({"s": {"Properties": {"RequiresSession": True}}, "plain": {}})
def test_subscriptions_survive(again):
    find, restart = again
    find("", "s").send("a", "b", session="x")
    assert complete_all(find("", "plain").plain(), 1) == ["a"]
    restart()
    assert complete_all(find("", "plain").plain(), 1) == ["b"]
    assert complete_all(find("", "s").accept("x"), 2) == ["a", "b"]


@pytest.mark.queue()
def test_what_was_completed_does_not_come_back_and_locks_do_not_survive(again):
    find, restart = again
    queue = find()
    queue.send(*"abc")
    receiver = queue.plain()
    completed, locked = take(receiver, 2)
    receiver.complete_message(completed)
    restart()
    messages = take(find().plain(), 2)
    assert texts(messages) == ["b", "c"], "nobody waits for the lock of a process that is gone"
    assert messages[0].delivery_count == 0


@pytest.mark.queue(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1M")
def test_duplicates_are_known_afterwards(again):
    find, restart = again
    queue = find()
    queue.send("a", message_id="same")
    restart()
    queue = find()
    queue.send("b", message_id="same")
    receiver = queue.plain()
    assert complete_all(receiver, 1) == ["a"]
    assert nothing_comes(receiver)
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(1)
