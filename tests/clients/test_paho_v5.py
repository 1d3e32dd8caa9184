"""paho-mqtt (Python): what only MQTT 5 has."""

import queue
import time

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from paho_client import Refused, properties


def test_properties_are_forwarded(paho, topic, transport):
    """All that a publisher says of its message, user properties in their order and with duplicates."""
    said = {
        "PayloadFormatIndicator": 1, "ContentType": "text/plain", "ResponseTopic": "answers/here",
        "CorrelationData": bytes(range(256)), "UserProperty": [("b", "1"), ("a", "2"), ("b", "3"), ("", "")],
    }
    client = paho(transport=transport)
    client.subscribe(topic, 1)
    client.publish(topic, "grüße".encode(), 1, **said)
    heard = client.receive().properties
    assert {name: getattr(heard, name) for name in said} == said


def test_request_and_response(paho, topic, unique):
    requester, responder, answers = paho(), paho(), "answers/" + unique("a")
    responder.subscribe(topic, 1)
    requester.subscribe(answers, 1)
    requester.publish(topic, b"6 * 7", 1, ResponseTopic=answers, CorrelationData=b"#1")
    asked = responder.receive().properties
    responder.publish(asked.ResponseTopic, b"42", 1, CorrelationData=asked.CorrelationData)
    answer = requester.receive()
    assert (answer.payload, answer.properties.CorrelationData) == (b"42", b"#1")


def test_message_expiry_counts_down(paho, topic, unique):
    name = unique("c")
    options = {"clean": False, "SessionExpiryInterval": 60}
    first = paho(name, **options)
    first.subscribe(topic, 1)
    first.leave()
    publisher = paho()
    publisher.publish(topic, b"short", 1, MessageExpiryInterval=1)
    publisher.publish(topic, b"long", 1, MessageExpiryInterval=100)
    time.sleep(2.1)
    second = paho(name, **options)
    message = second.receive()
    assert message.payload == b"long", "the short-lived one has expired"
    assert 90 <= message.properties.MessageExpiryInterval <= 98
    assert second.silent()


def test_subscription_identifiers_and_one_copy(paho, topic):
    client = paho()
    client.subscribe(topic + "/#", 0, identifier=7)
    client.subscribe(topic + "/+", 2, identifier=300)
    client.publish(topic + "/x", b"x", 2)
    message = client.receive()
    assert sorted(message.properties.SubscriptionIdentifier) == [7, 300]
    assert message.qos == 2
    assert client.silent()


def test_subscription_options(paho, topic):
    """No Local, Retain As Published, Retain Handling."""
    client, other = paho(), paho()
    other.publish(topic, b"old", 1, retain=True)
    client.subscribe(topic, 1, noLocal=True, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    assert client.silent()
    client.publish(topic, b"mine", 1)
    other.publish(topic, b"new", 1, retain=True)
    message = client.receive()
    assert (message.payload, message.retain) == (b"new", True)
    client.subscribe(topic, 1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
    assert client.silent(), "it was subscribed before"
    other.subscribe(topic, 1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
    assert other.receive().payload == b"new"


def test_a_client_without_identifier_is_given_one(paho):
    first, second = paho(""), paho("")
    names = {client.connack.AssignedClientIdentifier for client in (first, second)}
    assert len(names) == 2 and "" not in names


def test_the_session_may_be_shortened_at_its_end(paho, unique):
    name, kept = unique("c"), {"clean": False, "SessionExpiryInterval": 60}
    paho(name, **kept).leave()
    again = paho(name, **kept)
    assert again.session_present
    again.leave(SessionExpiryInterval=0)
    assert not paho(name, **kept).session_present


def test_a_will_can_be_delayed_and_cancelled(paho, topic, unique):
    watcher, name = paho(), unique("c")
    watcher.subscribe(topic, 1)
    delayed = properties(PacketTypes.WILLMESSAGE, {"WillDelayInterval": 2, "ContentType": "obituary"})
    options = {"will": {"topic": topic, "payload": b"gone", "qos": 1, "properties": delayed},
               "clean": False, "SessionExpiryInterval": 60}
    paho(name, **options).vanish()
    second = paho(name, **options)
    assert watcher.silent(2.5), "back in time, so there is no will"
    second.vanish()
    message = watcher.receive()
    assert (message.payload, message.properties.ContentType) == (b"gone", "obituary")


def test_a_publisher_may_use_topic_aliases(paho, topic):
    publisher, subscriber = paho(), paho()
    subscriber.subscribe(topic, 1)
    assert publisher.connack.TopicAliasMaximum >= 1
    publisher.publish(topic, b"first", 1, TopicAlias=1)
    publisher.publish("", b"second", 1, TopicAlias=1)
    messages = [subscriber.receive() for _ in range(2)]
    assert [(message.topic, message.payload) for message in messages] == [(topic, b"first"), (topic, b"second")]


def test_what_is_too_large_for_a_subscriber_is_left_out(paho, topic):
    small = paho(MaximumPacketSize=1_000)
    small.subscribe(topic, 1)
    publisher = paho()
    publisher.publish(topic, bytes(2_000), 1)
    publisher.publish(topic, b"fits", 1)
    assert small.receive().payload == b"fits"


def test_receive_maximum_of_the_client_is_kept(paho, topic, unique):
    """Two in flight at most: paho acknowledges, and all arrive."""
    slow, publisher = paho(ReceiveMaximum=2), paho()
    slow.subscribe(topic, 2)
    for number in range(50):
        publisher.publish(topic, b"%d" % number, 2, wait=False)
    assert slow.payloads(50) == [b"%d" % number for number in range(50)]


def test_an_unknown_authentication_method_is_refused(paho):
    with pytest.raises(Refused) as refused:
        paho(AuthenticationMethod="telepathy")
    assert refused.value.code == 0x8C


def test_a_packet_that_is_too_large_ends_only_its_connection(paho, topic):
    """The broker's Maximum Packet Size is in CONNACK; a client that ignores it is told 0x95."""
    client, other = paho(), paho()
    limit = client.connack.MaximumPacketSize
    other.subscribe(topic, 1)
    client.publish(topic, bytes(limit + 1), 0, wait=False)
    try:
        assert client.disconnected.get(timeout=5) in (0x95, 0x80)
    except queue.Empty:
        pytest.fail("the connection goes on")
    other.publish(topic, b"unharmed", 1)
    assert other.receive().payload == b"unharmed"
