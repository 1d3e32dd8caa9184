"""Tests bindings that send the messages of queues and subscriptions to MQTT clients."""

import datetime
import time
import uuid

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from azure_client import text, take
from configuring import binding, queue
from broker import until
from brokers import started


@pytest.fixture(scope="module")
def out():
    running = started(
        queue("commands") + binding("commands", from_queue="commands", publish="devices/{session}/commands")
        + queue("plain", RequiresSession=False) + binding("plain", from_queue="plain", publish="plain/{subject}", qos=2)
        + queue("kept", RequiresSession=False)
        + binding("kept", from_queue="kept", publish="kept/{property:of}", qos=0, retain=True)
        + '[[topics]]\nname = "t"\n[[topics.subscriptions]]\nname = "s"\n'
        + "[[topics.subscriptions.rules]]\nname = \"r\"\n"
        + "properties = { FilterType = \"Sql\", SqlFilter = { SqlExpression = \"1=1\" }, Action = { SqlExpression = \"SET seen = 'yes'; SET sys.Label = 'changed'\" } }\n"
        + binding("subscription", from_subscription="t/Subscriptions/s", publish="topics/{subject}")
        # This queue must not get the messages that bindings publish.
        + queue("loop", RequiresSession=False) + binding("loop", filter="#", queue="loop"))
    yield running
    running.end()


def test_each_session_in_its_order(out, device, entity):
    subscriber = device(out)
    subscriber.subscribe("devices/#", 1)
    sessions, count = [f"s{number}" for number in range(20)], 30
    commands = entity(out, "commands")
    commands.sender.send_messages([
        ServiceBusMessage(f"{number}", session_id=session) for number in range(count) for session in sessions])
    found: dict[str, list[int]] = {}
    for _ in range(len(sessions) * count):
        message = subscriber.receive()
        assert (message.qos, message.retain) == (1, False)
        found.setdefault(message.topic, []).append(int(message.payload))
    assert found == {f"devices/{session}/commands": list(range(count)) for session in sessions}


def test_order_without_sessions(out, device, entity):
    subscriber = device(out)
    subscriber.subscribe("plain/#", 2)
    entity(out, "plain").sender.send_messages([ServiceBusMessage(f"{number}", subject=f"s{number // 7}") for number in range(300)])
    messages = [subscriber.receive() for _ in range(300)]
    assert [int(message.payload) for message in messages] == list(range(300))
    assert {message.qos for message in messages} == {2} and messages[299].topic == "plain/s42"


def test_properties(out, device, entity):
    subscriber = device(out)
    subscriber.subscribe("plain/properties", 1)
    id_, at = uuid.uuid4(), datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    entity(out, "plain").send(
        "text", subject="properties", content_type="text/plain", correlation_id="c-1", reply_to="answers/1",
        time_to_live=datetime.timedelta(seconds=90),
        application_properties={"text": "ä", "true": True, "int": -5, "double": 1.5, "uuid": id_, "at": at,
                                "mqtt_topic": "not this", "mqtt_payload_format_indicator": 1})
    properties = subscriber.receive().properties
    assert dict(properties.UserProperty) == {
        "text": "ä", "true": "true", "int": "-5", "double": "1.5", "uuid": str(id_), "at": "1767323045000"}
    assert (properties.ContentType, properties.CorrelationData, properties.ResponseTopic) == ("text/plain", b"c-1", "answers/1")
    assert 85 <= properties.MessageExpiryInterval <= 90 and properties.PayloadFormatIndicator == 1


def test_retained(out, device, entity):
    entity(out, "kept").send("old", "new", application_properties={"of": "valve"})
    late = device(out)
    until(lambda: out.metric("^barid_retained_messages") >= 1)
    late.subscribe("kept/#", 1)
    message = late.receive()
    assert (message.topic, message.retain, message.qos) == ("kept/valve", True, 0)


def test_a_subscription_with_what_its_rules_changed(out, device, entity):
    subscriber = device(out)
    subscriber.subscribe("topics/#", 1)
    entity(out, "t", "s").send("x", subject="sent")
    message = subscriber.receive()
    assert message.topic == "topics/changed" and dict(message.properties.UserProperty)["seen"] == "yes"


@pytest.mark.parametrize("session", ["a+b", "#", "a//b", "/a", "a/", "a\0b"])
def test_a_session_that_is_no_level_is_a_dead_letter(out, entity, session):
    commands = entity(out, "commands")
    commands.send("x", session=session)
    with commands.dead_letters() as dead:
        [message] = take(dead, 1)
        assert message.dead_letter_reason == "InvalidTopic" and "{session}" in message.dead_letter_error_description
        dead.complete_message(message)


@pytest.mark.parametrize("body", [{"value_body": {"a": 1}}, {"sequence_body": [1, 2]}], ids=["value", "sequence"])
def test_a_body_that_is_no_payload_is_a_dead_letter(out, entity, body):
    plain = entity(out, "plain")
    plain.sender.send_messages(AmqpAnnotatedMessage(properties=AmqpMessageProperties(subject="body"), **body))
    with plain.dead_letters() as dead:
        [message] = take(dead, 1)
        assert message.dead_letter_reason == "UnsupportedBody"
        dead.complete_message(message)


def test_a_message_without_what_the_topic_needs_is_a_dead_letter(out, entity):
    plain = entity(out, "plain")
    plain.send("x")
    with plain.dead_letters() as dead:
        [message] = take(dead, 1)
        assert message.dead_letter_reason == "InvalidTopic" and "{subject}" in message.dead_letter_error_description
        dead.complete_message(message)


def test_what_a_binding_publishes_enters_none(out, device, entity):
    subscriber = device(out)
    subscriber.subscribe("plain/once", 1)
    entity(out, "plain").send("x", subject="once")
    assert subscriber.receive().payload == b"x"
    assert not [one for one in entity(out, "loop").peek(1000) if text(one) == "x"]


def test_a_subscriber_that_is_away_gets_it_later(out, connect, entity):
    away = connect(to=out, client_id="away", properties={"session_expiry_interval": 60})
    away.subscribe("devices/away/commands", qos=1)
    away.disconnect()
    commands = entity(out, "commands")
    commands.send("1", "2", session="away")
    until(lambda: out.metric("^barid_outbox_messages{") >= 2)
    back = connect(to=out, client_id="away", clean=False, properties={"session_expiry_interval": 60})
    assert [back.receive().payload for _ in range(2)] == [b"1", b"2"]


def test_many_sessions_take_turns(out, device, entity):
    """There are more sessions than are processed at once."""
    subscriber = device(out)
    subscriber.subscribe("devices/+/commands", 1)
    names = {f"turn{number}" for number in range(100)}
    entity(out, "commands").sender.send_messages([ServiceBusMessage("x", session_id=name) for name in sorted(names)])
    assert {subscriber.receive().topic.split("/")[1] for _ in names} == names


@pytest.mark.parametrize("overflow", ["reject", "block"])
def test_a_full_queue_of_a_subscriber_holds_back(brokers_with, connect, entity, overflow):
    """No message is dropped, none counts as a delivery attempt, and other sessions continue."""
    limits = f'[limits]\nmax_queued_messages = 10\nqueue_overflow = "{overflow}"\n'
    running = brokers_with(limits + queue("out", MaxDeliveryCount=2) + binding("out", from_queue="out", publish="out/{session}"))
    options = {"client_id": "away", "properties": {"session_expiry_interval": 60}}
    away, other = connect(to=running, **options), connect(to=running)
    away.subscribe("out/away", qos=1)
    away.disconnect()
    other.subscribe("out/other", qos=1)
    out = entity(running, "out")
    out.sender.send_messages([ServiceBusMessage(f"{number}", session_id="away") for number in range(500)])
    until(lambda: running.metric("^barid_outbox_messages{") >= 10)
    out.send("x", session="other")
    assert other.receive(b"x")
    assert running.metric("^barid_outbox_messages{") < 200
    back = connect(to=running, clean=False, **options)
    assert [int(back.receive().payload) for _ in range(500)] == list(range(500))
    until(lambda: running.metric('^barid_entity_messages.*entity="out"') == 0)
    assert running.metric("^barid_dropped_messages_total") == 0


@pytest.mark.parametrize("overflow", ["reject", "block"])
def test_what_is_held_back_costs_nothing_meanwhile(brokers_with, connect, entity, overflow):
    limits = f'[limits]\nmax_queued_messages = 5\nqueue_overflow = "{overflow}"\n'
    running = brokers_with(limits + queue("out") + binding("out", from_queue="out", publish="out"))
    away = connect(to=running, properties={"session_expiry_interval": 60})
    away.subscribe("out", qos=1)
    away.disconnect()
    entity(running, "out").sender.send_messages([ServiceBusMessage("x", session_id="s") for _ in range(20)])
    until(lambda: running.metric("^barid_outbox_messages{") >= 5)
    time.sleep(0.3)
    before = running.cpu()
    time.sleep(1)
    assert running.cpu() - before < 0.2
