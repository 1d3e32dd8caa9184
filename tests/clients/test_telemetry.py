"""OpenTelemetry: metrics and traces of messages, as a collector gets them."""

from __future__ import annotations

import re
import secrets
import time

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

import wire
from broker import until
from collector import Collector, attributes

ERROR = 2


@pytest.fixture
def collector():
    one = Collector()
    yield one
    one.close()


@pytest.fixture
def traced(broker_with, collector):
    """A broker that records all traces."""
    def start(more: str = "", rest: str = ""):
        return broker_with(f'[telemetry]\nendpoint = "{collector.endpoint}"\ninterval = 1\ntraces = 1.0\n{more}\n{rest}')
    return start


class Trace:
    """A trace, and the span of the sender in it."""

    def __init__(self, is_sampled: bool = True):
        self.id, self.parent = secrets.token_hex(16), secrets.token_hex(8)
        self.text = f"00-{self.id}-{self.parent}-0{int(is_sampled)}"

    def spans(self, collector: Collector, count: int) -> dict:
        """Returns the spans of the trace by their names, when there are so many."""
        own = lambda: [one for one in collector.spans() if one.trace_id.hex() == self.id]
        until(lambda: len(own()) == count)
        published = {one.span_id: one for one in own() if one.name.startswith("publish")}
        for one in own():
            assert len(one.span_id) == 8
            if one.name.startswith("commit"):
                # A part of the span of its message.
                whole = published[one.parent_span_id]
                assert whole.start_time_unix_nano <= one.start_time_unix_nano < one.end_time_unix_nano == whole.end_time_unix_nano
            else:
                assert one.parent_span_id.hex() == self.parent
        assert len({one.span_id for one in own()}) == count
        return {f"{one.name} {attributes(one)['messaging.client.id']}": one for one in own()}


def client(broker, name: str, version: int = wire.V5, **options) -> wire.Client:
    one = wire.Client(broker.address, version)
    one.connect(name, **options)
    return one


def publish(one: wire.Client, trace: Trace, topic: str, qos: int = 1):
    one.publish(topic, b"payload", qos=qos, properties={"user_property": [("a", "b"), ("traceparent", trace.text)]})


def test_a_message_is_followed_from_its_publisher_to_its_subscribers(traced, collector):
    broker, trace = traced(), Trace()
    publisher, subscribers = client(broker, "p"), [client(broker, name) for name in ("s1", "s2")]
    for qos, one in enumerate(subscribers, 1):
        one.subscribe("a/#", qos=qos)
    before = time.time_ns()
    publish(publisher, trace, "a/b", qos=2)
    for one in subscribers:
        message = one.receive(b"payload")
        # What was published is carried through.
        assert ("traceparent", trace.text) in message.properties["user_property"]
    spans = trace.spans(collector, 3)
    assert set(spans) == {"publish a/b p", "deliver a/b s1", "deliver a/b s2"}
    for name, span in spans.items():
        assert before - 10**9 < span.start_time_unix_nano < span.end_time_unix_nano < time.time_ns()
        facts = attributes(span)
        assert (facts["messaging.system"], facts["messaging.destination.name"], facts["barid.tenant"]) == ("mqtt", "a/b", "default")
        assert span.status.code != ERROR and facts["messaging.mqtt.reason"] == "Success"
    assert attributes(spans["deliver a/b s1"])["messaging.mqtt.qos"] == 1
    resource = attributes(collector.traces[0].resource_spans[0].resource)
    assert resource["service.name"] == "barid" and resource["service.version"]
    for one in (publisher, *subscribers):
        one.drop()


def test_a_message_for_an_absent_client_is_followed_over_a_restart(traced, collector):
    broker, trace = traced(), Trace()
    options = {"clean": False, "properties": {"session_expiry_interval": 600}}
    away = client(broker, "away", **options)
    away.subscribe("a", qos=1)
    away.drop()
    publisher = client(broker, "p")
    publish(publisher, trace, "a")
    assert set(trace.spans(collector, 2)) == {"publish a p", "commit a p"}
    broker.kill9()
    broker.start()
    back = client(broker, "away", **options)
    back.receive(b"payload")
    assert set(trace.spans(collector, 3)) == {"publish a p", "commit a p", "deliver a away"}
    back.drop()


def test_only_sampled_messages_are_followed(traced, collector):
    broker, sampled = traced(), Trace()
    publisher, subscriber, old = client(broker, "p"), client(broker, "s"), client(broker, "old", wire.V311)
    subscriber.subscribe("#", qos=1)
    old.subscribe("#", qos=1)
    publish(publisher, Trace(is_sampled=False), "a")
    publisher.publish("a", b"payload", qos=1)
    for text in ("", "00", "00-x", f"ff{sampled.text[2:]}", "é" * 60):
        publisher.publish("a", b"payload", qos=1, properties={"user_property": [("traceparent", text)]})
    publish(publisher, sampled, "a", qos=0)
    assert set(sampled.spans(collector, 2)) == {"publish a p", "deliver a s"}
    time.sleep(1.2)
    assert len(collector.spans()) == 2
    for one in (publisher, subscriber, old):
        one.drop()


def test_topics_of_aliases_and_failed_deliveries(traced, collector):
    broker, named, aliased, refused = traced(), Trace(), Trace(), Trace()
    publisher, subscriber = client(broker, "p"), client(broker, "s", properties={"topic_alias_maximum": 5})
    subscriber.subscribe("long/topic", qos=1)
    for trace, topic in ((named, "long/topic"), (aliased, "")):
        publisher.publish(topic, b"payload", qos=1, properties={"topic_alias": 1, "user_property": [("traceparent", trace.text)]})
        subscriber.receive(b"payload")
        assert set(trace.spans(collector, 2)) == {"publish long/topic p", "deliver long/topic s"}
    # One that is not acknowledged before the client goes.
    raw = client(broker, "raw")
    raw.subscribe("raw", qos=1)
    publish(publisher, refused, "raw")
    assert set(refused.spans(collector, 1)) == {"publish raw p"}
    raw.drop()
    assert refused.spans(collector, 2)["deliver raw raw"].status.code == ERROR
    for one in (publisher, subscriber):
        one.drop()


def test_a_message_is_followed_over_a_binding_into_a_queue(traced, collector):
    broker = traced(rest='[[queues]]\nname = "orders"\n[[bindings]]\nname = "in"\nfilter = "orders/#"\nqueue = "orders"\n')
    from_device, from_service = Trace(), Trace()
    publisher = client(broker, "device")
    publish(publisher, from_device, "orders/7")
    connection = (f"Endpoint=sb://127.0.0.1:{broker.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
                  "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;")
    with ServiceBusClient.from_connection_string(connection) as bus:
        with bus.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("text", application_properties={"Diagnostic-Id": from_service.text}))
        with bus.get_queue_receiver("orders") as receiver:
            for _ in range(2):
                receiver.complete_message(*receiver.receive_messages(1, max_wait_time=5))
            spans = from_device.spans(collector, 3)
            (published,), (delivered,) = ([span for name, span in spans.items() if name.startswith(word)] for word in ("publish", "deliver"))
            assert attributes(published)["messaging.system"] == "mqtt" and published.name == "publish orders/7"
            facts = attributes(delivered)
            assert (facts["messaging.system"], facts["messaging.amqp.outcome"], delivered.name) == ("amqp", "accepted", "deliver orders")
            assert published.start_time_unix_nano < delivered.start_time_unix_nano < delivered.end_time_unix_nano
            names = sorted(span.name for span in from_service.spans(collector, 3).values())
            assert names == ["commit orders", "deliver orders", "publish orders"]
    publisher.drop()


def test_a_tenant_that_marks_everything_keeps_no_other_out(traced, collector):
    broker = traced("trace_rate = 5")
    loud, quiet = client(broker, "p", username="loud/p"), client(broker, "p", username="quiet/p")
    for _ in range(200):
        publish(loud, Trace(), "a", qos=0)
    trace = Trace()
    publish(quiet, trace, "a")
    assert set(trace.spans(collector, 1)) == {"publish a p"}
    recorded = [one for one in collector.spans() if attributes(one)["barid.tenant"] == "loud"]
    assert 5 <= len(recorded) <= 50
    assert broker.metric(r'^barid_telemetry_spans_total{outcome="skipped"}') >= 150
    loud.drop()
    quiet.drop()


def test_metrics_are_those_of_prometheus(traced, collector):
    broker = traced()
    one = client(broker, "p", username='acme/"p"')
    one.publish("a", b"payload", qos=1)
    key = ("barid_packets_total", (("direction", "in"), ("tenant", "acme"), ("type", "publish")))
    until(lambda: collector.metrics and collector.values().get(key, (None, 0))[1] == 1)
    told = broker.http("/metrics")[1]
    values = collector.values()
    families = {name for name, _ in values}
    samples = {name for name in re.findall(r"^(\w+)(?:{[^}]*})? ", told, re.MULTILINE)}
    assert {name for name in families if f"{name}_sum" not in samples} <= samples
    assert len(families) > 50 and families >= {name for name in samples if not name.endswith(("_sum", "_count"))}
    packets, connections = values[key][0], values["barid_connections", (("tenant", "acme"),)]
    assert packets.sum.is_monotonic and packets.sum.aggregation_temporality == 2 and packets.description == "MQTT packets."
    assert connections[0].HasField("gauge") and connections[1] == 1
    one.drop()


def test_a_collector_that_is_away_delays_nobody(broker_with):
    collector = Collector()
    port, trace = collector.port, Trace()
    collector.close()
    broker = broker_with(f'[telemetry]\nendpoint = "http://127.0.0.1:{port}"\ninterval = 1\ntraces = 1.0\n')
    one = client(broker, "p")
    begin = time.monotonic()
    publish(one, trace, "a")
    assert time.monotonic() - begin < 1
    until(lambda: broker.metric("^barid_telemetry_failures_total") >= 1)
    until(lambda: f"cannot send telemetry to http://127.0.0.1:{port}" in broker.stderr)
    collector = Collector(port)
    # What was kept is sent when the collector is back.
    assert set(trace.spans(collector, 1)) == {"publish a p"}
    # One that refuses gets no second chance, and what it has refused is counted.
    collector.status = 400
    publish(one, Trace(), "a")
    until(lambda: broker.metric(r'^barid_telemetry_spans_total{outcome="lost"}') == 1)
    collector.close()
    one.drop()


def test_headers_authorise_and_are_not_logged(broker_with, collector, tmp_path):
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer s3cret\n")
    headers.chmod(0o600)
    broker = broker_with(f'[telemetry]\nendpoint = "{collector.endpoint}/"\ninterval = 1\nheaders_file = "{headers}"\n')
    until(lambda: collector.headers)
    assert collector.headers[0]["authorization"] == "Bearer s3cret" and "s3cret" not in broker.stderr


def test_nothing_is_sent_unless_it_is_wanted(broker_with, collector):
    broker = broker_with("")
    assert "barid_telemetry" not in broker.http("/metrics")[1]
    broker = broker_with(f'[telemetry]\nendpoint = "{collector.endpoint}"\nmetrics = false\n')
    one = client(broker, "p")
    publish(one, Trace(), "a")
    time.sleep(1.5)
    assert not collector.traces and not collector.metrics
    one.drop()
