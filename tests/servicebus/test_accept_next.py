"""The next session: which one it is, waiting for it, and leaving before it comes."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from amqp_wire import RECEIVER, SESSION_FILTER, Message, source, target
from azure_client import complete_all, take_one


def no_session_comes(queue, seconds: float = 0.8) -> bool:
    try:
        queue.accept_next(seconds)
    except OperationTimeoutError:
        return True
    return False


@pytest.mark.queue(RequiresSession=True)
def test_it_is_the_session_whose_message_waits_longest(queue):
    for session in ("b", "a", "c", "a"):
        queue.send("x", session=session)
    assert [queue.accept_next().session.session_id for _ in range(3)] == ["b", "a", "c"]


@pytest.mark.queue(RequiresSession=True)
def test_sessions_that_are_held_are_passed_over(queue):
    for session in "abc":
        queue.send("x", session=session)
    queue.accept("a")
    assert queue.accept_next().session.session_id == "b"


@pytest.mark.queue(RequiresSession=True)
def test_a_session_with_nothing_left_is_not_granted(queue):
    queue.send("x", session="a")
    first = queue.accept_next()
    assert complete_all(first, 1) == ["x"]
    first.close()
    assert no_session_comes(queue)


@pytest.mark.queue(RequiresSession=True)
def test_it_waits_for_a_session(queue):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.accept_next)
        time.sleep(0.7)
        assert not waiting.done()
        queue.send("x", session="s")
        receiver = waiting.result()
    assert receiver.session.session_id == "s"
    assert complete_all(receiver, 1) == ["x"]


@pytest.mark.queue(RequiresSession=True)
def test_the_wait_ends_with_a_time_out(queue):
    """Not before the time that the client asks for, and hardly after it."""
    started = time.monotonic()
    with pytest.raises(OperationTimeoutError):
        queue.accept_next(1.5)
    assert 1.3 < time.monotonic() - started < 6


@pytest.mark.queue(RequiresSession=True)
def test_a_session_that_its_holder_leaves_goes_to_who_waits(queue):
    queue.send("x", session="s")
    holder = queue.accept("s")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.accept_next)
        time.sleep(0.5)
        holder.close()
        assert waiting.result().session.session_id == "s"


@pytest.mark.queue(RequiresSession=True, LockDuration="PT2S")
def test_a_session_whose_lock_expires_goes_to_who_waits(queue):
    queue.send("x", session="s")
    holder = queue.accept("s")
    take_one(holder)
    assert queue.accept_next().session.session_id == "s"


@pytest.mark.queue(RequiresSession=True)
def test_who_waits_first_is_served_first(session, path):
    """With our own client: of an SDK nobody knows when it has asked."""
    next_one = source(path(), {SESSION_FILTER: None})
    waiting = [session.attach(RECEIVER, wait=None, source=next_one, target=target("here")) for _ in range(3)]
    sender, names = session.sender(path()), ["one", "two", "three"]
    for name in names:
        sender.send(Message.of("x", name))
    assert [link.attached().source.value[7][SESSION_FILTER] for link in waiting] == names


@pytest.mark.queue(RequiresSession=True)
def test_state_alone_does_not_make_a_session_available(queue):
    receiver = queue.accept("s")
    receiver.session.set_state("state")
    receiver.close()
    assert no_session_comes(queue)


@pytest.mark.queue(RequiresSession=True)
def test_deferred_messages_alone_do_not_make_a_session_available(queue):
    queue.send("x", session="s")
    receiver = queue.accept("s")
    receiver.defer_message(take_one(receiver))
    receiver.close()
    assert no_session_comes(queue)


@pytest.mark.queue(RequiresSession=True)
def test_scheduled_messages_make_a_session_available_when_they_are_due(queue):
    queue.sender.schedule_messages(ServiceBusMessage("x", session_id="s"), datetime.now(timezone.utc) + timedelta(seconds=4))
    assert no_session_comes(queue)
    receiver = queue.accept_next()
    assert receiver.session.session_id == "s"
    assert complete_all(receiver, 1) == ["x"]


@pytest.mark.queue(RequiresSession=True)
def test_abandoned_messages_make_a_session_available(queue):
    queue.send("x", session="s")
    receiver = queue.accept("s")
    receiver.abandon_message(take_one(receiver))
    receiver.close()
    assert queue.accept_next().session.session_id == "s"


@pytest.mark.queue(RequiresSession=True)
def test_the_session_of_a_message_that_comes_back_keeps_its_turn(queue):
    """Its first message is still the oldest."""
    queue.send("x", session="a")
    queue.send("y", session="b")
    receiver = queue.accept("a")
    take_one(receiver)
    receiver.close()
    assert queue.accept_next().session.session_id == "a"
