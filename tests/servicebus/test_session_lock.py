"""The lock of a session: exclusive, on present and future messages, renewed, lost by time, freed by those who leave."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError, SessionLockLostError

from azure_client import DELETE, complete_all, nothing_comes, take, take_one, text, texts


def seconds_left(receiver) -> float:
    return (receiver.session.locked_until_utc - datetime.now(timezone.utc)).total_seconds()


@pytest.mark.queue(RequiresSession=True)
def test_a_session_has_one_holder(queue):
    """Who asks for a session that is held is refused at once."""
    queue.send("a", session="s")
    holder, started = queue.accept("s"), time.monotonic()
    with pytest.raises(SessionCannotBeLockedError, match="The requested session 's' cannot be accepted"):
        queue.accept("s")
    assert time.monotonic() - started < 5
    assert complete_all(holder, 1) == ["a"]


@pytest.mark.queue(RequiresSession=True)
def test_the_lock_is_on_future_messages_too(queue):
    holder = queue.accept("s")
    queue.send("a", session="s")
    queue.send("b", session="other")
    next_one = queue.accept_next(2)
    assert next_one.session.session_id == "other"
    assert complete_all(holder, 1) == ["a"]
    queue.send("c", session="s")
    assert complete_all(holder, 1) == ["c"]


@pytest.mark.queue(RequiresSession=True)
def test_a_session_that_nobody_has_heard_of_can_be_accepted(queue):
    receiver = queue.accept("never seen")
    assert receiver.session.session_id == "never seen"
    assert nothing_comes(receiver)


@pytest.mark.queue(RequiresSession=True)
def test_the_empty_session_id_can_be_accepted(queue):
    assert queue.accept("").session.session_id == ""


@pytest.mark.queue(RequiresSession=True)
def test_session_ids_are_any_text_and_are_told_apart_by_case(queue):
    for session in ("Straße/ü 🚌", "A", "a", "x" * 128, "$management", "a'b\"c\\d"):
        queue.send(session, session=session)
    for session in ("x" * 128, "a", "A", "$management", "Straße/ü 🚌", "a'b\"c\\d"):
        receiver = queue.accept(session)
        assert receiver.session.session_id == session
        assert complete_all(receiver, 1) == [session]


@pytest.mark.queue(RequiresSession=True, LockDuration="PT30S")
def test_the_client_is_told_until_when_it_has_the_lock(queue):
    assert 27 < seconds_left(queue.accept("s")) <= 30.5


@pytest.mark.queue(RequiresSession=True)
def test_the_lock_lasts_a_minute_unless_the_queue_says_otherwise(queue):
    assert 57 < seconds_left(queue.accept("s")) <= 60.5


@pytest.mark.queue(RequiresSession=True)
def test_closing_frees_the_session_at_once(queue):
    queue.send("a", session="s")
    queue.accept("s").close()
    assert complete_all(queue.accept("s"), 1) == ["a"]


@pytest.mark.queue(RequiresSession=True, LockDuration="PT4S")
def test_settling_and_receiving_do_not_extend_the_lock(queue):
    queue.send(*"abc", session="s")
    holder, locked = queue.accept("s"), time.monotonic()
    complete_all(holder, 1)
    time.sleep(1.5)
    complete_all(holder, 1)
    time.sleep(max(0.0, locked + 4.2 - time.monotonic()))
    assert complete_all(queue.accept("s"), 1) == ["c"], "the session must be free"


@pytest.mark.queue(RequiresSession=True, LockDuration="PT2S")
def test_an_expired_session_is_free_at_once(queue):
    """Nobody waits for the client that had it."""
    queue.send("a", session="s")
    started, first = time.monotonic(), queue.accept("s")
    assert text(take_one(first)) == "a"
    second = queue.accept_next()
    assert second.session.session_id == "s"
    assert 1.8 < time.monotonic() - started < 6
    assert complete_all(second, 1) == ["a"]


@pytest.mark.queue(RequiresSession=True, LockDuration="PT1S")
def test_expiry_detaches_the_link_also_when_it_has_credit_and_nothing_to_receive(queue):
    holder = queue.accept("s")
    with pytest.raises(SessionLockLostError):
        holder.receive_messages(max_message_count=10, max_wait_time=8)


@pytest.mark.queue(RequiresSession=True, LockDuration="PT2S")
def test_nothing_is_settled_after_the_lock_is_lost(queue):
    queue.send("a", session="s")
    holder = queue.accept("s")
    message = take_one(holder)
    time.sleep(2.3)
    with pytest.raises(SessionLockLostError):
        holder.complete_message(message)
    assert complete_all(queue.accept("s"), 1) == ["a"]


@pytest.mark.queue(RequiresSession=True, LockDuration="PT4S")
def test_renewal_answers_now_and_the_lock_duration(queue):
    queue.send("a", session="s")
    holder = queue.accept("s")
    message = take_one(holder)
    for _ in range(2):
        time.sleep(2.2)
        until = holder.session.renew_lock()
        left = (until - datetime.now(timezone.utc)).total_seconds()
        assert 2.5 < left <= 4.1
    holder.complete_message(message)
    assert nothing_comes(holder)


@pytest.mark.queue(RequiresSession=True, LockDuration="PT1S")
def test_a_lost_lock_cannot_be_renewed(queue):
    holder = queue.accept("s")
    time.sleep(1.3)
    with pytest.raises(SessionLockLostError):
        holder.session.renew_lock()


@pytest.mark.queue(RequiresSession=True, LockDuration="PT3S")
def test_the_auto_lock_renewer_keeps_a_session(queue):
    queue.send("a", session="s")
    with AutoLockRenewer() as renewer:
        holder = queue.accept("s")
        renewer.register(holder, holder.session, max_lock_renewal_duration=30)
        message = take_one(holder)
        time.sleep(4.5)
        with pytest.raises(SessionCannotBeLockedError):
            queue.accept("s")
        holder.complete_message(message)
        assert holder.session.auto_renew_error is None


@pytest.mark.queue(RequiresSession=True)
def test_receive_and_delete_locks_the_session_too(queue):
    queue.send(*"ab", session="s")
    holder = queue.accept("s", receive_mode=DELETE)
    assert texts(take(holder, 2)) == ["a", "b"]
    with pytest.raises(SessionCannotBeLockedError):
        queue.accept("s")
    holder.close()
    assert nothing_comes(queue.accept("s")), "they are deleted"


@pytest.mark.queue(RequiresSession=True)
def test_of_many_who_ask_one_gets_the_session(queue):
    def ask(_) -> bool:
        try:
            queue.accept("s")
        except SessionCannotBeLockedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(ask, range(8))) == [False] * 7 + [True]


@pytest.mark.queue(RequiresSession=True)
def test_workers_share_the_sessions_and_each_session_stays_in_order(queue):
    """Scale-out: each worker takes the next session until there is none."""
    sessions = [f"s{number}" for number in range(12)]
    queue.sender.send_messages([ServiceBusMessage(f"{number}", session_id=session) for number in range(5) for session in sessions])
    done: dict[str, list[str]] = {}

    def work(_) -> None:
        while True:
            try:
                receiver = queue.accept_next(1.5)
            except OperationTimeoutError:
                return
            done.setdefault(receiver.session.session_id, []).extend(complete_all(receiver, 5))
            receiver.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert done == {session: list("01234") for session in sessions}
