"""Requests that are sent without waiting: among other packets, in one write, faster than their answers are read."""

import pytest

import wire
from broker import until
from statestore_client import (
    ABSENT, DELETE_TOLD, INVOKE, NOTHING, OK, Store, array, notify_filter, response_topic, set_told, stamp, value,
)
from wire import CONNACK, PUBACK, PUBCOMP, PUBLISH, PUBREC, SUBACK


def request(payload: bytes, packet_id: int, client_id: str, correlation: bytes = b"1", **more) -> bytes:
    properties = {"response_topic": response_topic(client_id), "correlation_data": correlation, "user_property": [("__ts", stamp())]} | more
    return wire.publish(INVOKE, payload, 1, packet_id, properties={name: given for name, given in properties.items() if given is not None})


def test_everything_in_one_write(dial, tenant):
    """CONNECT, SUBSCRIBE and requests, as a client may send them: the answers find the subscription."""
    client = dial()
    client.client_id = "eager"
    client.send(wire.connect("eager", username=f"{tenant}/device"), wire.subscribe(1, (response_topic("eager"), 1)),
                request(array("SET", "key", "x"), 2, "eager", b"2"), request(array("GET", "key"), 3, "eager", b"3"))
    client.connack = client.expect(CONNACK, reason=0)
    # In a cluster, the other brokers hear of the subscription first.
    assert client.wait_for(SUBACK, 1).reasons == [1]
    store = Store(client, subscribes=False)
    assert store.answer((2, b"2")).payload == OK
    assert store.answer((3, b"3")).payload == value(b"x")


def test_a_request_before_disconnect(dial, store, tenant):
    """It was sent, so it counts."""
    client, other = dial(), store()
    client.connect("brief", username=f"{tenant}/device")
    client.send(request(array("SET", "key", "x"), 1, "brief"), wire.disconnect())
    while True:
        try:
            client.recv()
        except wire.Closed:
            break
    # Over a cluster, the two may be at different brokers.
    until(lambda: (other.get(b"key") or [None])[0] == b"x")


def test_watching_in_one_write(store):
    """What is told is what happens between KEYNOTIFY and STOP, in the order of the requests."""
    client = store()
    sent = [client.send(array(*parts)) for parts in [
        ("SET", "key", "before"), ("KEYNOTIFY", "key"), ("SET", "key", "1"), ("DEL", "key"), ("SET", "key", "2", "NX"),
        ("KEYNOTIFY", "key", "STOP"), ("SET", "key", "after"), ("KEYNOTIFY", "key", "STOP"), ("GET", "key")]]
    expected = [OK, OK, OK, b":1\r\n", OK, OK, OK, NOTHING, value(b"after")]
    assert [client.answer(one).payload for one in sent] == expected
    for payload in (set_told(b"1"), DELETE_TOLD, set_told(b"2")):
        client.expect_told(b"key", payload)
    client.expect_quiet()


def test_acknowledgements_in_order(connect, tenant):
    """Of requests and ordinary messages of QoS 1, good and bad, durable or not, in the order of the PUBLISHes (MQTT-4.6.0-2)."""
    kept = connect(client_id="kept", tenant=tenant, clean=False, properties={"session_expiry_interval": 60})
    kept.subscribe("durable", qos=1)
    kept.disconnect()
    client = connect(client_id="me", tenant=tenant)
    client.subscribe(response_topic("me"), qos=1)
    kinds = [
        lambda at: (request(array("SET", f"key {at}", "x"), at, "me"), 0),
        lambda at: (wire.publish("durable", b"x", 1, at), 0),
        lambda at: (request(array("GET", f"key {at - 2}"), at, "me"), 0),
        lambda at: (wire.publish("nobody", b"x", 1, at), 0x10),
        lambda at: (request(b"nonsense", at, "me"), 0),
        lambda at: (request(array("GET", "x"), at, "me", correlation_data=None), 0x83),
        lambda at: (wire.publish(notify_filter("me").replace("+", "AA"), b"x", 1, at), 0x87),
        lambda at: (request(array("KEYNOTIFY", "other"), at, "me", response_topic="nobody"), 0),
    ]
    packets = [kinds[at * 7 % 8](at) for at in range(1, 801)]
    client.send(b"".join(packet for packet, _ in packets))
    acknowledged, answers = [], 0
    while len(acknowledged) < 800 or answers < 300:
        packet = client.recv()
        if packet.kind == PUBACK:
            acknowledged.append((packet.packet_id, packet.reason))
        else:
            assert packet.topic == response_topic("me")
            answers += 1
            client.complete(packet)
    assert acknowledged == [(at, reason) for at, (_, reason) in enumerate(packets, 1)]
    client.expect_nothing(0.05)


def test_between_the_packets_of_qos_2(store):
    client = store()
    client.client.subscribe("other", qos=1)
    for number in range(20):
        packet_id = client.client.next_packet_id()
        client.client.send(wire.publish("other", b"%d" % number, 2, packet_id))
        sent = client.send(array("SET", "key", number))
        client.client.send(wire.acknowledge(wire.PUBREL, packet_id))
        read = client.send(array("GET", "key"))
        kinds = []
        while kinds.count(PUBCOMP) < 1 or kinds.count(PUBLISH) < 3:
            packet = client.client.recv()
            kinds.append(packet.kind)
            assert packet.kind in (PUBREC, PUBCOMP, PUBLISH, PUBACK), packet
            if packet.kind == PUBLISH and packet.topic == "other":
                assert packet.payload == b"%d" % number
                client.client.complete(packet)
            elif packet.kind == PUBLISH:
                assert packet.payload == {sent[1]: OK, read[1]: value(b"%d" % number)}[packet.properties["correlation_data"]]
                client.client.complete(packet)


@pytest.mark.parametrize("size, requests", [(1_000, 10_000), (10_000, 3_000), (64_000, 1_200), (500_000, 300)])
def test_answers_larger_than_requests(store, size, requests):
    """A client that asks for much before it reads gets all of it, as far as its queue reaches: 1,024 messages in flight, and
    max_queued_messages and max_queued_bytes behind them."""
    client = store()
    client.set(b"key", b"x" * size)
    sent = [client.send(array("GET", "key")) for _ in range(requests)]
    expected = value(b"x" * size)
    for one in sent:
        assert client.answer(one).payload == expected


@pytest.mark.parametrize("requests", [15, 16, 17, 32])
def test_the_last_request_has_a_large_answer(store, requests):
    """Others have their turn after some large answers, also when no request is left of what was read."""
    client = store()
    client.set(b"key", b"x" * 500_000)
    asked = b"".join(request(array("GET", "key"), at, client.client.client_id, b"%d" % at) for at in range(1, requests + 1))
    client.client.send(asked)
    for at in range(1, requests + 1):
        assert client.answer((at, b"%d" % at)).payload == value(b"x" * 500_000)
    assert client.ask("GET", "other").payload == ABSENT


def test_who_does_not_read_holds_up_nobody(store):
    """Some hundred bytes ask for half a megabyte, and the client never reads: the others hardly notice."""
    greedy, other = store(), store()
    greedy.set(b"key", b"x" * 500_000)
    asked = b"".join(request(array("GET", "key"), at, greedy.client.client_id) for at in range(1, 3_001))
    greedy.client.stream.settimeout(2)
    try:
        greedy.client.stream.sendall(asked)
    except TimeoutError:
        pass  # held back by the broker, as it may be
    other.client.timeout = 5.0
    for number in range(20):
        other.set(b"other", b"%d" % number)
    greedy.client.drop()


def test_answers_too_large_for_the_requester(store):
    """Are not sent (MQTT-3.1.2-24); the connection goes on."""
    client, other = store(properties={"maximum_packet_size": 1_000}), store()
    other.set(b"key", b"x" * 2_000)
    packet_id, _ = client.send(array("GET", "key"))
    client.client.expect(PUBACK, packet_id=packet_id, reason=0)
    assert client.ask("GET", "other").payload == ABSENT


def test_without_problem_information(store):
    """That is about Reason Strings: the user properties of a PUBLISH are the message's (MQTT-3.1.2-29)."""
    client = store(properties={"request_problem_information": 0})
    version = client.set(b"key", b"x")
    assert client.get(b"key") == (b"x", version)
    client.watch(b"key")
    version = client.set(b"key", b"y")
    client.expect_told(b"key", set_told(b"y"), version)


def test_subscription_options(store):
    """Subscription Identifiers come with responses; No Local does not keep them away: they are the store's, not the client's."""
    client = store(subscribes=False)
    client.client.subscribe((client.responses, 0x0D), properties={"subscription_identifier": 7})
    answer = client.ask("GET", "key")
    assert answer.payload == ABSENT and answer.properties["subscription_identifier"] == [7]
