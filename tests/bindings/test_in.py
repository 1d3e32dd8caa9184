"""Tests bindings that put the messages of MQTT clients into queues and topics."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus.exceptions import OperationTimeoutError

import wire
from azure_client import complete_all, nothing_comes, take_one, text
from configuring import binding, queue
from brokers import started

SESSIONS = {
    "level": ("{2}", "levels/press/x"),
    "client": ("{client}", "clients/x"),
    "topic": ("{topic}", "topics/a/b"),
    "property": ("{property:serial}", "properties/x"),
    "text": ("line-{2}-{property:serial}", "texts/7"),
}


@pytest.fixture(scope="module")
def each():
    """A broker with a queue and a binding for each way to specify a session id, and some others."""
    toml = "".join(
        queue(name) + binding(name, filter=f"{topic.split('/')[0]}/#", queue=name, session=session)
        for name, (session, topic) in SESSIONS.items())
    toml += queue("plain", RequiresSession=False) + binding("plain", filter="plain/#", queue="plain")
    toml += queue("many") + binding("many", filter="many/#", queue="many", session="{2}")
    toml += queue("twice", RequiresSession=False) + binding("also", filter="plain/also", queue="twice")
    toml += """
        [[topics]]
        name = "events"
        [[topics.subscriptions]]
        name = "all"
        [[topics.subscriptions]]
        name = "alarms"
        properties.RequiresSession = true
        [[topics.subscriptions.rules]]
        name = "alarms"
        properties = { FilterType = "Sql", SqlFilter = { SqlExpression = "mqtt_topic LIKE '%/alarm'" } }
        """ + binding("events", filter="events/+/+", topic="events", session="{2}")
    running = started(toml)
    yield running
    running.end()


@pytest.mark.parametrize("way", SESSIONS)
def test_where_the_session_id_comes_from(each, device, entity, way):
    client = device(each, f"client-{way}")
    client.publish(SESSIONS[way][1], b"x", 1, UserProperty=[("serial", "s-1"), ("serial", "s-2")])
    expected = {"level": "press", "client": "client-client", "topic": "topics/a/b", "property": "s-2", "text": "line-7-s-2"}
    with entity(each, way).accept_next() as worker:
        assert worker.session.session_id == expected[way]
        assert complete_all(worker, 1) == ["x"]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [wire.V31, wire.V311, wire.V5])
def test_every_qos_and_version(each, connect, entity, unique, version, qos):
    """Includes clients with persistent sessions, for which QoS 2 identifiers are stored."""
    topic = f"levels/{unique()}"
    options = {"properties": {"session_expiry_interval": 60}} if version == wire.V5 else {}
    publisher = connect(version, to=each, clean=version == wire.V5, **options)
    for number in range(3):
        acknowledged = publisher.publish(topic, b"%d" % number, qos)
        assert qos == 0 or acknowledged.reason in (0, None)
    with entity(each, "level").accept(topic.split("/")[1]) as worker:
        assert complete_all(worker, 3) == ["0", "1", "2"]


def test_properties(each, device, entity):
    publisher = device(each, "publisher")
    publisher.publish("plain/a", b'{"t":21}', 1, True, ContentType="application/json", ResponseTopic="answers/1",
                      CorrelationData=b"order-7", MessageExpiryInterval=90, PayloadFormatIndicator=1,
                      UserProperty=[("unit", "C"), ("twice", "1"), ("twice", "2"), ("mqtt_client", "somebody else"), ("MQTT_QoS", "7")])
    with entity(each, "plain").plain() as worker:
        message = take_one(worker)
        worker.complete_message(message)
    properties = {key.decode(): value.decode() if isinstance(value, bytes) else value
                  for key, value in message.application_properties.items()}
    assert properties == {
        "unit": "C", "twice": "2", "mqtt_topic": "plain/a", "mqtt_client": "publisher", "mqtt_qos": 1, "mqtt_retain": True,
        "mqtt_payload_format_indicator": 1,
    }
    assert text(message) == '{"t":21}' and message.content_type == "application/json"
    assert (message.reply_to, message.correlation_id) == ("answers/1", "order-7")
    assert 85 < message.time_to_live.total_seconds() <= 90 and message.session_id is None
    assert len(message.message_id) == 32


def test_correlation_data_that_is_no_text(each, device, entity):
    device(each).publish("plain/b", b"", 1, CorrelationData=b"\xff\x00\x01")
    with entity(each, "plain").plain() as worker:
        message = take_one(worker)
        worker.complete_message(message)
    assert message.raw_amqp_message.properties.correlation_id == b"\xff\x00\x01" and text(message) == ""


def test_two_bindings_and_a_subscriber_get_the_same(each, device, entity):
    subscriber = device(each)
    subscriber.subscribe("plain/also", 1)
    device(each).publish("plain/also", b"x", 2)
    assert subscriber.receive().payload == b"x"
    for path in ("plain", "twice"):
        with entity(each, path).plain() as worker:
            assert complete_all(worker, 1) == ["x"]
            assert nothing_comes(worker)


def test_topics_with_rules(each, device, entity):
    publisher = device(each)
    publisher.publish("events/press/started", b"1", 1)
    publisher.publish("events/press/alarm", b"2", 1)
    with entity(each, "events", "all").plain() as worker:
        assert complete_all(worker, 2) == ["1", "2"]
    with entity(each, "events", "alarms").accept("press") as worker:
        assert complete_all(worker, 1) == ["2"] and nothing_comes(worker)


def test_a_will(each, device, entity):
    device(each, "lost", will={"topic": "clients/lost", "payload": b"gone", "qos": 1}).vanish()
    with entity(each, "client").accept("lost") as worker:
        assert complete_all(worker, 1) == ["gone"]


def test_the_acknowledgement_waits_for_the_disk(each, connect, entity):
    """There are no subscribers, so only the queue can need a commit."""
    commits = each.metric("^barid_store_commits_total")
    publisher = connect(to=each)
    for _ in range(20):
        assert publisher.publish("plain/disk", b"x", 1).reason == 0
    assert each.metric("^barid_store_commits_total") >= commits + 20
    with entity(each, "plain").plain() as worker:
        complete_all(worker, 20)


def test_many_workers_each_device_in_its_order(each, device, entity):
    """Ten devices and five workers: no device has two workers at a time, and each message arrives once."""
    names, count = [f"many{number}" for number in range(10)], 60
    done: dict[str, list[int]] = {one: [] for one in names}
    held, overlaps, left = set(), [], threading.Semaphore(0)

    def publish(one: str) -> None:
        client = device(each)
        for number in range(count):
            client.publish(f"many/{one}/x", b"%d" % number, 1, wait=number % 20 == 19)

    def work() -> None:
        path = entity(each, "many")
        while sum(map(len, done.values())) < count * len(names):
            try:
                receiver = path.accept_next(1)
            except OperationTimeoutError:
                continue
            session = receiver.session.session_id
            if session in held:
                overlaps.append(session)
            held.add(session)
            while messages := receiver.receive_messages(max_message_count=20, max_wait_time=0.3):
                for message in messages:
                    done[session].append(int(text(message)))
                    receiver.complete_message(message)
            held.discard(session)
            receiver.close()

    with ThreadPoolExecutor(15) as pool:
        running = [pool.submit(publish, one) for one in names] + [pool.submit(work) for _ in range(5)]
        for one in running:
            one.result(60)
    assert overlaps == []
    assert done == {one: list(range(count)) for one in names}


def test_a_long_run_of_one_topic(each, connect, entity):
    """All messages are published in one write, which is one batch for the queue."""
    publisher = connect(to=each)
    packets = [wire.publish("levels/run", b"%d" % number, 1, number + 1) for number in range(500)]
    publisher.send(*packets)
    for number in range(500):
        assert publisher.expect(wire.PUBACK, packet_id=number + 1).reason == 0
    with entity(each, "level").accept("run") as worker:
        assert complete_all(worker, 500, 20) == [str(number) for number in range(500)]
