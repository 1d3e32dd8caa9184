"""The state of a session, and which sessions there are."""

import time
from datetime import datetime, timezone

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from azure_client import complete_all, take_one


@pytest.mark.queue(RequiresSession=True)
def test_there_is_none_at_first(queue):
    queue.send("a", session="s")
    assert queue.accept("s").session.get_state() is None


@pytest.mark.queue(RequiresSession=True)
def test_it_is_set_read_replaced_and_cleared(queue):
    session = queue.accept("s").session
    for state in (b"first", b"second, longer", bytes(range(256)), b"x" * 200_000):
        session.set_state(state)
        assert bytes(session.get_state()) == state
    session.set_state(None)
    assert session.get_state() is None


@pytest.mark.queue(RequiresSession=True)
def test_no_bytes_clear_it(queue):
    session = queue.accept("s").session
    session.set_state(b"state")
    session.set_state(b"")
    assert session.get_state() is None


@pytest.mark.queue(RequiresSession=True)
def test_it_survives_the_messages_and_closing(queue):
    queue.send("a", session="s")
    receiver = queue.accept("s")
    receiver.session.set_state("1 message so far")
    assert complete_all(receiver, 1) == ["a"]
    receiver.close()
    assert queue.accept("s").session.get_state() == b"1 message so far"


@pytest.mark.queue(RequiresSession=True, LockDuration="PT2S")
def test_it_survives_expiry_of_the_lock(queue):
    queue.accept("s").session.set_state("kept")
    time.sleep(2.3)
    assert queue.accept("s").session.get_state() == b"kept"


@pytest.mark.queue("one", RequiresSession=True)
@pytest.mark.queue("two", RequiresSession=True)
def test_each_session_of_each_queue_has_its_own(entity):
    one, two = entity("one"), entity("two")
    one.accept("s").session.set_state("of one")
    assert two.accept("s").session.get_state() is None
    assert one.accept("S").session.get_state() is None


@pytest.mark.topic({"first": {"Properties": {"RequiresSession": True}}, "second": {"Properties": {"RequiresSession": True}}})
def test_each_subscription_has_its_own(subscription):
    first, second = subscription("first"), subscription("second")
    first.accept("s").session.set_state("of first")
    assert second.accept("s").session.get_state() is None


@pytest.mark.queue(RequiresSession=True)
def test_a_state_that_is_too_large_is_refused_and_the_old_one_stays(queue):
    session = queue.accept("s").session
    session.set_state("small")
    with pytest.raises(ServiceBusError):
        session.set_state(b"x" * (1100 << 10))
    assert queue.accept("other").session.get_state() is None
    assert session.get_state() == b"small"


@pytest.mark.queue(RequiresSession=True)
def test_sessions_with_messages_or_state_are_listed(queue):
    assert list(queue.client.list_queue_sessions(queue.path)) == []
    queue.send("a", session="with message")
    receiver = queue.accept("with state")
    receiver.session.set_state("x")
    queue.accept("with neither")
    assert set(queue.client.list_queue_sessions(queue.path)) == {"with message", "with state"}
    assert complete_all(queue.accept("with message"), 1) == ["a"]
    receiver.session.set_state(None)
    assert list(queue.client.list_queue_sessions(queue.path)) == []


@pytest.mark.queue(RequiresSession=True)
def test_many_sessions_are_listed_by_pages(queue):
    sessions = {f"session {number:03}" for number in range(250)}
    queue.sender.send_messages([ServiceBusMessage("x", session_id=session) for session in sessions])
    listed = list(queue.client.list_queue_sessions(queue.path))
    assert len(listed) == 250 and set(listed) == sessions


@pytest.mark.queue(RequiresSession=True)
def test_sessions_are_listed_by_the_time_their_state_was_set(queue):
    queue.accept("old").session.set_state("x")
    time.sleep(0.05)
    between = datetime.now(timezone.utc)
    time.sleep(0.05)
    queue.accept("new").session.set_state("x")
    queue.send("a", session="without state")
    assert list(queue.client.list_queue_sessions(queue.path, state_updated_after=between)) == ["new"]


@pytest.mark.topic({"s": {"Properties": {"RequiresSession": True}}})
def test_the_sessions_of_a_subscription_are_listed(subscription):
    subscription("s").send("a", session="one")
    here = subscription("s")
    assert list(here.client.list_subscription_sessions(here.path, "s")) == ["one"]


@pytest.mark.queue("requests")
@pytest.mark.queue("replies", RequiresSession=True)
def test_requests_are_answered_by_session(entity):
    """Each requester holds its session before any reply exists, and gets its own replies only."""
    requests, replies = entity("requests"), entity("replies")
    inboxes = {name: replies.accept(name) for name in ("alice", "bob")}
    for name in inboxes:
        requests.send(f"question of {name}", reply_to=replies.path, reply_to_session_id=name, message_id=f"request of {name}")
    worker = requests.plain()
    for _ in inboxes:
        request = take_one(worker)
        assert request.reply_to == replies.path
        body = b"".join(request.body).decode().replace("question", "answer")
        replies.send(body, session=request.reply_to_session_id, correlation_id=request.message_id)
        worker.complete_message(request)
    for name, inbox in inboxes.items():
        reply = take_one(inbox)
        assert b"".join(reply.body).decode() == f"answer of {name}"
        assert reply.correlation_id == f"request of {name}"
        inbox.complete_message(reply)
