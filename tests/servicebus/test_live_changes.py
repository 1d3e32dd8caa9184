"""Queues and topics that are made, changed and deleted while clients are attached."""

import http.client
import json
import time
from urllib.parse import quote

import pytest

from amqp_codec import Symbol, Uint
from amqp_wire import RECEIVER, SESSION_FILTER, Message, Refused, modified, source, target


@pytest.fixture
def ask(broker):
    """A request to the admin API about the tenant `default`; None if the entity is called by its names."""

    def ask_(method: str, kind: str, *names: str, **properties) -> int:
        path = f"/v1/tenants/default/{kind}/" + "/subscriptions/".join(quote(name, safe="") for name in names)
        connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=10)
        connection.request(method, path, json.dumps(properties) if method in ("PUT", "PATCH") else None)
        status = connection.getresponse().status
        connection.close()
        return status

    return ask_


def test_a_queue_is_there_as_soon_as_it_is_made(session, ask, path):
    with pytest.raises(Refused, match="amqp:not-found"):
        session.sender(path())
    assert ask("PUT", "queues", path(), RequiresSession=True) == 201
    session.sender(path()).send(Message.of("a", "s"))
    assert session.accept(path(), None).receive()[0].message.data == b"a"


def test_deleting_a_queue_detaches_its_links(dial, broker, ask, path):
    assert ask("PUT", "queues", path(), RequiresSession=True) == 201
    session = dial(broker).session()
    sender, holder = session.sender(path()), session.accept(path(), "s")
    sender.send(Message.of("a", "s"))
    holder.receive()
    waiting = session.attach(RECEIVER, wait=None, source=source(path(), {SESSION_FILTER: None}), target=target("here"))
    assert ask("DELETE", "queues", path()) == 204
    assert session.expect("detach", handle=holder.remote).condition == "amqp:not-found"
    with pytest.raises(Refused, match="amqp:not-found"):
        sender.send(Message.of("b", "s"))
    waiting.attached()
    with pytest.raises(Refused, match="amqp:not-found"):
        waiting.raise_if_refused()
    with pytest.raises(Refused, match="amqp:not-found"):
        session.sender(path())


def test_a_queue_that_is_made_again_has_nothing_of_the_old_one(dial, broker, ask, path):
    for number in range(2):
        assert ask("PUT", "queues", path(), RequiresSession=True) == 201
        session = dial(broker).session()
        sender = session.sender(path())
        for body in "ab":
            sender.send(Message.of(f"{body}{number}", "s"))
        deliveries = session.accept(path(), None).receive(2)
        assert [one.message.data.decode() for one in deliveries] == [f"a{number}", f"b{number}"]
        assert ask("DELETE", "queues", path()) == 204


@pytest.mark.queue(LockDuration="PT1M", MaxDeliveryCount=10)
def test_changes_count_from_then_on(session, ask, path):
    for body in "ab":
        session.sender(path()).send(Message.of(body))
    receiver = session.receiver(path())
    until = Symbol("x-opt-locked-until")
    [first] = receiver.receive()
    assert ask("PATCH", "queues", path(), LockDuration="PT1S", MaxDeliveryCount=1) == 200
    [second] = receiver.receive()
    now = time.time() * 1000
    assert first.message.annotations[until] - now > 50_000 and second.message.annotations[until] - now < 1100
    receiver.settle(second.id, modified(True, False))
    receiver.echo(second.id)
    [dead] = session.receiver(f"{path()}/$DeadLetterQueue").receive()
    assert dead.message.application["DeadLetterReason"] == "MaxDeliveryCountExceeded"


@pytest.mark.topic({"first": {}})
def test_a_new_subscription_gets_what_is_sent_from_then_on(session, ask, path):
    sender = session.sender(path())
    sender.send(Message.of("before"))
    assert ask("PUT", "topics", path(), "second") == 201
    sender.send(Message.of("after"))
    assert [one.message.data for one in session.receiver(f"{path()}/Subscriptions/first").receive(2)] == [b"before", b"after"]
    second = session.receiver(f"{path()}/Subscriptions/second")
    assert second.receive()[0].message.data == b"after"
    assert ask("DELETE", "topics", path(), "second") == 204
    assert session.expect("detach", handle=second.remote).condition == "amqp:not-found"
    sender.send(Message.of("without the second"))


@pytest.mark.queue("from")
@pytest.mark.queue("to")
def test_a_queue_begins_to_forward(session, ask, path):
    """Also what is in it already."""
    sender = session.sender(path("from"))
    sender.send(Message.of("before"))
    assert ask("PATCH", "queues", path("from"), ForwardTo=path("to")) == 200
    sender.send(Message.of("after"))
    receiver = session.receiver(path("to"))
    assert sorted(one.message.data for one in receiver.receive(2, 10)) == [b"after", b"before"]


@pytest.mark.queue(RequiresSession=True)
def test_a_reader_of_many_queues_sees_the_deletion_of_one(session, ask, path):
    """The rest of the connection goes on."""
    assert ask("PUT", "queues", path("other")) == 201
    other, holder = session.receiver(path("other")), session.accept(path(), "s")
    other.flow(10)
    assert ask("DELETE", "queues", path("other")) == 204
    session.expect("detach", handle=other.remote)
    session.sender(path()).send(Message.of("a", "s"))
    holder.complete(holder.receive()[0])
    assert session.accept(path(), "t", properties={Symbol("com.microsoft:timeout"): Uint(1000)}).answer.source is not None
