"""Shared subscriptions: each message goes to one member of the group (5: §4.8.2)."""

import collections
import select

import pytest

import wire
from wire import V5, V311

normative = pytest.mark.normative


def drain(clients, count: int, timeout: float = wire.SECONDS) -> list[list[bytes]]:
    """`count` deliveries to any of the clients, by client, acknowledged; fails if they do not come."""
    found = [[] for _ in clients]
    misses = 0
    while sum(map(len, found)) < count:
        before = sum(map(len, found))
        for client, mine in zip(clients, found):
            try:
                while True:
                    mine.append(client.receive(timeout=0.02).payload)
            except TimeoutError:
                pass
        misses = misses + 1 if sum(map(len, found)) == before else 0
        assert misses * 0.02 * len(clients) < timeout, f"{sum(map(len, found))} of {count} messages came"
    return found


@normative("5:MQTT-4.8.2-1", "5:MQTT-4.8.2-2")
def test_each_message_goes_to_one_member(connect, topic, unique, qos):
    shared = f"$share/{unique('g')}/{topic}/+"
    members = [connect(V5) for _ in range(3)]
    for member in members:
        assert member.subscribe(shared, qos=qos).reasons == [qos]
    publisher = connect(V5)
    sent = [b"%d" % number for number in range(60)]
    for payload in sent:
        publisher.publish(topic + "/x", payload, qos=qos)
    found = drain(members, 60)
    assert sorted(sum(found, [])) == sorted(sent)
    for member in members:
        member.expect_nothing(0.05)


@normative("5:MQTT-4.8.2-1")
def test_groups_and_plain_subscriptions_each_get_every_message(connect, topic, unique):
    first, second, plain = connect(V5), connect(V5), connect(V5)
    first.subscribe(f"$share/{unique('a')}/{topic}")
    second.subscribe(f"$share/{unique('b')}/{topic}")
    plain.subscribe(topic)
    connect(V5).publish(topic, b"all")
    for client in (first, second, plain):
        client.receive(b"all")
        client.expect_nothing(0.05)


def test_groups_with_the_same_name_and_other_filters_are_other_groups(connect, topic, unique):
    name = unique("g")
    first, second = connect(V5), connect(V5)
    first.subscribe(f"$share/{name}/{topic}/#")
    second.subscribe(f"$share/{name}/{topic}/+")
    connect(V5).publish(topic + "/x", b"both")
    first.receive(b"both")
    second.receive(b"both")


def test_a_shared_and_a_plain_subscription_of_one_client_are_two(connect, topic, unique):
    client = connect(V5)
    shared = f"$share/{unique('g')}/{topic}"
    client.subscribe(shared, properties={"subscription_identifier": 1})
    client.subscribe(topic, properties={"subscription_identifier": 2})
    client.publish(topic, b"x")
    identifiers = []
    while len(identifiers) < 2:
        identifiers += client.receive(b"x").properties["subscription_identifier"]
    assert sorted(identifiers) == [1, 2]
    assert client.unsubscribe(shared, shared, topic).reasons == [0x00, 0x11, 0x00]


@normative("5:MQTT-4.8.2-1", "5:MQTT-4.8.2-2")
@pytest.mark.parametrize("pattern", ["$share/", "$share//", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/#/a",
                                     "$share/g+/a", "$share/g#/a", "$share/g/a/#/b", "$share/g/a+"])
def test_a_malformed_shared_filter_is_refused(connect, pattern):
    client = connect(V5)
    client.send(wire.subscribe(1, (pattern, 0)))
    try:
        found = client.recv()
    except wire.Closed:
        assert not client.explains
        return
    if found.kind == wire.SUBACK:
        assert found.reasons == [0x8F] or found.reasons == [0x80]
    else:
        assert found.kind == wire.DISCONNECT and found.reason in (0x81, 0x82, 0x8F)


@normative("5:MQTT-4.8.2-3")
def test_a_delivery_respects_the_members_qos(connect, topic, unique, qos):
    member = connect(V5)
    member.subscribe(f"$share/{unique('g')}/{topic}", qos=qos)
    connect(V5).publish(topic, b"x", qos=2)
    assert member.receive(b"x").qos == qos


def test_retained_messages_do_not_come_with_a_shared_subscription(connect, topic, unique):
    """§4.8.2 with §3.3.1.3: not at the time of the SUBSCRIBE."""
    connect(V5).publish(topic, b"kept", qos=1, retain=True)
    member = connect(V5)
    member.subscribe(f"$share/{unique('g')}/{topic}")
    member.expect_nothing()


def test_older_versions_can_share_too(connect, topic, unique):
    shared = f"$share/{unique('g')}/{topic}"
    members = [connect(V311), connect(V5)]
    for member in members:
        member.subscribe(shared, qos=1)
    publisher = connect(V5)
    for number in range(20):
        publisher.publish(topic, b"%d" % number, qos=1)
    assert sorted(sum(drain(members, 20), [])) == sorted(b"%d" % number for number in range(20))


# ----------------------------------------------------------------------------- members that go away


@pytest.mark.parametrize("how", ["disconnect", "drop", "unsubscribe", "take-over"])
def test_a_member_that_goes_loses_nothing(connect, broker, topic, unique, how):
    """What it had in flight at QoS 1, unacknowledged, and what would have come next go to the other. In a cluster, both
    members are at the broker of the publisher, because otherwise only those that are there get messages."""
    place = broker.one
    shared, name = f"$share/{unique('g')}/{topic}", unique("c")
    going, staying = connect(V5, name, to=place, properties={"receive_maximum": 5}), connect(V5, to=place)
    going.subscribe(shared, qos=1)
    staying.subscribe(shared, qos=1)
    publisher = connect(V5, to=place)
    for number in range(40):
        publisher.publish(topic, b"%d" % number, qos=1)
    acknowledged = [going.receive().payload]
    if how == "unsubscribe":
        # Deliveries under way are completed, so this member still acknowledges what it has got.
        going.unsubscribe(shared)
        acknowledged += [one.payload for one in going.receive_all()]
    elif how == "take-over":
        connect(V5, name, clean=True)
    else:
        going.disconnect() if how == "disconnect" else going.drop()
    found = drain([staying], 40 - len(acknowledged))[0]
    assert set(found) | set(acknowledged) == {b"%d" % number for number in range(40)}


def test_the_last_member_may_come_back(connect, topic, unique):
    """A group of one persistent session keeps messages for it, in whichever order they come."""
    shared, name = f"$share/{unique('g')}/{topic}", unique("c")
    options = {"properties": {"session_expiry_interval": 60}}
    first = connect(V5, name, **options)
    first.subscribe(shared, qos=1)
    publisher = connect(V5)
    publisher.publish(topic, b"1", qos=1)
    first.expect(wire.PUBLISH, payload=b"1")
    first.drop()
    publisher.publish(topic, b"2", qos=1)
    second = connect(V5, name, clean=False, **options)
    assert {second.receive().payload, second.receive().payload} == {b"1", b"2"}


def test_a_connected_member_is_preferred(connect, topic, unique):
    """What is published while a member is away goes to one that is there."""
    shared, name = f"$share/{unique('g')}/{topic}", unique("c")
    away, here = connect(V5, name, properties={"session_expiry_interval": 60}), connect(V5)
    for member in (away, here):
        member.subscribe(shared, qos=1)
    away.disconnect()
    publisher = connect(V5)
    for number in range(20):
        publisher.publish(topic, b"%d" % number, qos=1)
    assert drain([here], 20)[0] == [b"%d" % number for number in range(20)]


@normative("5:MQTT-4.8.2-4")
def test_a_qos_2_delivery_is_completed_when_the_member_returns(connect, topic, unique):
    """To that member and no other, although another is there."""
    shared, name = f"$share/{unique('g')}/{topic}", unique("c")
    options = {"properties": {"session_expiry_interval": 60}}
    first = connect(V5, name, **options)
    first.subscribe(shared, qos=2)
    publisher = connect(V5)
    publisher.publish(topic, b"1", qos=2)
    sent = first.expect(wire.PUBLISH)
    other = connect(V5)
    other.subscribe(shared, qos=2)
    first.drop()
    other.expect_nothing()
    found = connect(V5, name, clean=False, **options).receive(b"1")
    assert found.dup and found.packet_id == sent.packet_id
    other.expect_nothing(0.1)


@normative("5:MQTT-4.8.2-5")
@pytest.mark.parametrize("received", [False, True], ids=["publish-sent", "pubrel-sent"])
def test_a_qos_2_delivery_dies_with_the_session(connect, topic, unique, received):
    shared = f"$share/{unique('g')}/{topic}"
    member = connect(V5)
    member.subscribe(shared, qos=2)
    connect(V5).publish(topic, b"1", qos=2)
    found = member.expect(wire.PUBLISH)
    if received:
        member.send(wire.acknowledge(wire.PUBREC, found.packet_id)).expect(wire.PUBREL)
    other = connect(V5)
    other.subscribe(shared, qos=2)
    member.drop()
    other.expect_nothing()


@normative("5:MQTT-4.8.2-6")
@pytest.mark.parametrize("level, kind", [(1, wire.PUBACK), (2, wire.PUBREC)])
def test_what_a_member_refuses_goes_to_no_other(connect, topic, unique, level, kind):
    shared = f"$share/{unique('g')}/{topic}"
    member = connect(V5)
    member.subscribe(shared, qos=level)
    connect(V5).publish(topic, b"unwanted", qos=level)
    found = member.expect(wire.PUBLISH)
    other = connect(V5)
    other.subscribe(shared, qos=level)
    member.send(wire.acknowledge(kind, found.packet_id, 0x83))
    other.expect_nothing()
    member.drop()
    other.expect_nothing()


# --------------------------------------------------------------------------------------- strategies


def members_and_publishers(connect, broker, shared, count=3):
    members = [connect(V5, to=broker) for _ in range(count)]
    for member in members:
        member.subscribe(shared, qos=1)
    return members


def strategy(name: str) -> str:
    return f'[shared_subscriptions]\nstrategy = "{name}"\n'


def test_round_robin(broker_with, connect, topic):
    broker = broker_with(strategy("round-robin"))
    members = members_and_publishers(connect, broker, "$share/g/" + topic)
    publisher = connect(V5, to=broker)
    for number in range(30):
        publisher.publish(topic, b"%d" % number, qos=1)
    assert [len(found) for found in drain(members, 30)] == [10, 10, 10]


def test_least_in_flight(broker_with, connect, topic):
    """A member that does not acknowledge gets no more than its fair start; the others share the rest."""
    broker = broker_with(strategy("least-in-flight"))
    members = members_and_publishers(connect, broker, "$share/g/" + topic)
    stuck, *working = members
    publisher = connect(V5, to=broker)
    found = [0, 0]
    for number in range(30):
        publisher.publish(topic, b"%d" % number, qos=1)
        # Nobody but the one that is stuck may keep a message longer than it takes to read it.
        readable, *_ = select.select([member.stream for member in working], [], [], 1)
        for at, member in enumerate(working):
            if member.stream in readable:
                member.receive()
                found[at] += 1
    assert sum(found) >= 28
    stuck.expect(wire.PUBLISH)


@pytest.mark.parametrize("name", ["hash-client", "hash-topic"])
def test_hash(broker_with, connect, topic, name):
    """Equal publishers, or equal topics, go to the same member; many of them spread."""
    broker = broker_with(strategy(name))
    members = members_and_publishers(connect, broker, f"$share/g/{topic}/+")
    if name == "hash-client":
        for number in range(12):
            publisher = connect(V5, f"publisher{number}", to=broker)
            for turn in range(4):
                publisher.publish(f"{topic}/{turn}", b"%d" % number, qos=1)
    else:
        for turn in range(4):
            publisher = connect(V5, to=broker)
            for number in range(12):
                publisher.publish(f"{topic}/{number}", b"%d" % number, qos=1)
    found = [collections.Counter(mine) for mine in drain(members, 48)]
    assert all(count == 4 for mine in found for count in mine.values())
    assert sum(bool(mine) for mine in found) >= 2
