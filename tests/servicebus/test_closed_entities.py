"""What clients of queues and topics notice when the shard of an entity is closed, and opened again."""

import pytest

from amqp_codec import Symbol, Uint
from amqp_wire import ACCEPTED, RECEIVER, Message, Node, Refused, connect
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from reopening import set_state

BUSY, DETACHED = "com.microsoft:server-busy", "amqp:link:detach-forced"
ONE = "[storage]\nshards = 1\n"


def session_to(running):
    return connect(("127.0.0.1", running.amqp_port)).session()


@pytest.mark.queue(LockDuration="PT1M")
def test_a_queue_is_as_it_was(own_broker, path):
    running = own_broker(ONE)
    session = session_to(running)
    sender = session.sender(path())
    for number in range(5):
        sender.send(Message.of(f"{number}"))
    receiver = session.receiver(path())
    first, second = receiver.receive(2)
    receiver.complete(first)
    set_state(running, 0, "closed")
    assert session.expect("detach", handle=receiver.remote).condition == DETACHED
    with pytest.raises(Refused) as refused:
        sender.send(Message.of("no"))
    assert refused.value.condition == BUSY
    with pytest.raises(Refused) as refused:
        session.sender(path())
    assert refused.value.condition == BUSY
    with pytest.raises(Refused) as refused:
        session.receiver(path())
    assert refused.value.condition == BUSY
    set_state(running, 0, "open")
    sender.send(Message.of("5"))
    session = session_to(running)
    found = session.receiver(path()).receive(5)
    assert [one.message.data for one in found] == [b"1", b"2", b"3", b"4", b"5"]
    assert found[0].message.number == second.message.number


@pytest.mark.queue(RequiresSession=True)
def test_a_session_has_its_state(own_broker, path):
    running = own_broker(ONE)
    session = session_to(running)
    session.sender(path()).send(Message.of("one", "s"))
    link = session.accept(path(), "s")
    node = Node(session, f"{path()}/$management")
    assert node.request("set-session-state", {"session-id": "s", "session-state": b"state"}, link=link.name)[0] == 200
    set_state(running, 0, "closed")
    assert session.expect("detach", handle=link.remote).condition == DETACHED
    assert node.request("get-session-state", {"session-id": "s"})[0] == 503
    set_state(running, 0, "open")
    session = session_to(running)
    link = session.accept(path(), None, properties={Symbol("com.microsoft:timeout"): Uint(5000)})
    assert link.receive(1)[0].message.data == b"one"
    status, body, _ = Node(session, f"{path()}/$management").request("get-session-state", {"session-id": "s"}, link=link.name)
    assert (status, body["session-state"]) == (200, b"state")


@pytest.mark.topic({"all": {}, "some": {"Rules": [{"Name": "big", "Properties": {
    "FilterType": "Sql", "SqlFilter": {"SqlExpression": "size > 5"}}}]}})
def test_a_topic_has_its_subscriptions(own_broker, path):
    running = own_broker(ONE)
    session = session_to(running)
    sender = session.sender(path())
    sender.send(Message.of("before", application={"size": 7}))
    set_state(running, 0, "closed")
    with pytest.raises(Refused) as refused:
        sender.send(Message.of("no", application={"size": 7}))
    assert refused.value.condition == BUSY
    set_state(running, 0, "open")
    session = session_to(running)
    session.sender(path()).send(Message.of("after", application={"size": 3}))
    found = {name: [one.message.data for one in session.receiver(f"{path()}/Subscriptions/{name}", mode=0).receive_all()]
             for name in ("all", "some")}
    assert found == {"all": [b"before", b"after"], "some": [b"before"]}


@pytest.mark.queue("first", ForwardTo="{test}/second")
@pytest.mark.queue("second")
def test_what_is_forwarded_arrives(own_broker, path):
    running = own_broker(ONE)
    for number in range(5):
        session_to(running).sender(path("first")).send(Message.of(f"{number}"))
        set_state(running, 0, "closed")
        set_state(running, 0, "open")
    found = session_to(running).receiver(path("second")).receive(5)
    assert [one.message.data for one in found] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.queue()
def test_what_was_sent_and_not_answered_is_accepted_or_not(own_broker, path):
    """Accepted is what is there afterwards; of the rest nobody was told anything."""
    running = own_broker(ONE)
    accepted = set()
    for round_ in range(10):
        session = session_to(running)
        sender = session.sender(path())
        pending = {sender.transfer(Message.of(f"{round_}:{number}").encode()): f"{round_}:{number}".encode() for number in range(200)}
        set_state(running, 0, "closed")
        while pending:
            answer = session.expect("disposition", role=RECEIVER)
            for number in range(answer.first, (answer.first if answer.last is None else answer.last) + 1):
                body = pending.pop(number)
                if answer.state.descriptor == ACCEPTED.descriptor:
                    accepted.add(body)
        session.connection.close()
        set_state(running, 0, "open")
    found = [one.message.data for one in session_to(running).receiver(path(), mode=0).receive_all()]
    assert len(found) == len(set(found))
    assert accepted <= set(found)


@pytest.mark.queue()
def test_microsofts_client_tries_again(own_broker, path):
    """With its usual retries it does not notice more than a pause."""
    running = own_broker(ONE)
    with ServiceBusClient.from_connection_string(running.connection_string(), retry_backoff_factor=0.1) as client:
        with client.get_queue_sender(path()) as sender, client.get_queue_receiver(path()) as receiver:
            sender.send_messages(ServiceBusMessage("one"))
            set_state(running, 0, "closed")
            set_state(running, 0, "open")
            sender.send_messages(ServiceBusMessage("two"))
            found = []
            while len(found) < 2:
                got = receiver.receive_messages(max_message_count=2, max_wait_time=5)
                assert got, f"only {found}"
                for one in got:
                    receiver.complete_message(one)
                    found.append(str(one))
    assert found == ["one", "two"]
