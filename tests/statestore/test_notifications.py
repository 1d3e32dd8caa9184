"""Notifications: every change of a key, to every client that watches it, for as long as it is connected."""

import pytest

import wire
from broker import until
from statestore_client import (
    DELETE_TOLD, INVOKE, NOT_APPLIED, NOTHING, OK, RESERVED, array, notify_filter, notify_topic, order, set_told,
)
from wire import PUBLISH

KEPT = {"session_expiry_interval": 60}


def test_the_bytes(store):
    """The example of the protocol."""
    client = store("client-id1")
    client.watch(b"SOMEKEY")
    topic = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/636C69656E742D696431/command/notify/534F4D454B4559"
    version = client.set(b"SOMEKEY", b"VALUE5")
    told = client.told()
    assert told.packet.topic == topic
    assert told.payload == b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$6\r\nVALUE5\r\n"
    assert told.version == version
    assert client.ask("DEL", "SOMEKEY").payload == b":1\r\n"
    told = client.told()
    assert told.packet.topic == topic
    assert told.payload == b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n"
    assert order(told.version) >= order(version)


def test_what_is_told(store):
    """Everything that changes the key or renews it, whoever does it; nothing else."""
    client, other = store(), store()
    client.watch(b"key")
    for asked, parts, payload in [
        (other, ("SET", "key", "a"), set_told(b"a")),
        (client, ("SET", "key", "b"), set_told(b"b")),
        (other, ("SET", "key", "b"), set_told(b"b")),
        (other, ("SET", "key", "b", "NEX"), set_told(b"b")),
        (other, ("SET", "key", "", "PX", "60000"), set_told(b"")),
        (other, ("SET", "key", "x", "NX"), None),
        (other, ("SET", "key", "x", "NEX"), None),
        (other, ("SET", "key", "x", "XX"), None),
        (other, ("VDEL", "key", "x"), None),
        (other, ("GET", "key"), None),
        (other, ("KEYNOTIFY", "key"), None),
        (other, ("SET", "KEY", "x"), None),
        (other, ("SET", "key2", "x"), None),
        (other, ("VDEL", "key", ""), DELETE_TOLD),
        (other, ("VDEL", "key", ""), None),
        (other, ("DEL", "key"), None),
        (other, ("SET", "key", bytes(range(256)), "NX"), set_told(bytes(range(256)))),
        (client, ("DEL", "key"), DELETE_TOLD),
    ]:
        answer = asked.ask(*parts)
        if payload is None:
            client.expect_quiet(0.02)
        else:
            told = client.expect_told(b"key", payload, answer.version if parts[0] == "SET" else None)
            assert told.version is not None
    client.expect_quiet()


def test_refused_requests_are_not_told(store):
    client = store()
    client.watch(b"key")
    client.ask("SET", "key", "x", timestamp=None)
    client.ask("SET", "key", "x", token="nonsense")
    version = client.set(b"key", b"x", token="2:0:n")
    client.ask("SET", "key", "x", token="1:0:n")
    client.ask("DEL", "key", token="1:0:n")
    client.expect_told(b"key", set_told(b"x"), version)
    client.expect_quiet()


# Filters of a client for its own notifications, and how often it is told.
OWN = {
    "none": [],
    "Rust and Go": ["{reserved}/{hex}/command/notify/+"],
    "exact": ["{reserved}/{hex}/command/notify/6B6579"],
    ".NET, which matches nothing": ["{reserved}/{id}/command/notify"],
    "all below": ["{reserved}/{hex}/#"],
    "several": ["{reserved}/{hex}/command/notify/+", "{reserved}/{hex}/command/notify/6B6579", "{reserved}/{hex}/#"],
}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("filters", OWN.values(), ids=OWN)
def test_told_once_whatever_is_subscribed_to(store, filters, qos):
    """At QoS 1, also where the subscription has another."""
    client, other = store(), store()
    own = client.client.client_id
    for one in filters:
        granted = client.client.subscribe(one.format(reserved=RESERVED, hex=own.encode().hex().upper(), id=own), qos=qos)
        assert granted.reasons == [qos]
    client.watch(b"key")
    for number in range(3):
        version = other.set(b"key", b"%d" % number)
        client.expect_told(b"key", set_told(b"%d" % number), version)
    client.expect_quiet()


def test_told_once_to_who_subscribed_to_everything(store):
    client, other = store(), store()
    client.watch(b"key")
    client.client.subscribe("#", "clients/#", qos=1)
    other.set(b"key", b"x")
    client.client.ping()
    topics = [packet.topic for packet in client.client._kept if packet.topic.startswith(RESERVED)]
    assert topics == [notify_topic(client.client.client_id, b"key")]


def test_the_sdks_subscriptions_are_granted_with_qos_1(store):
    client = store("sdk-client")
    assert client.client.subscribe((notify_filter("sdk-client"), 0x09)).reasons == [1]
    assert client.client.subscribe((f"{RESERVED}/sdk-client/command/notify", 0x01)).reasons == [1]


def test_each_watcher_is_told_at_its_own_topic(store):
    one, two, three = store(), store(), store()
    one.watch(b"shared")
    two.watch(b"shared")
    two.watch(b"two")
    three.watch(b"three")
    version = three.set(b"shared", b"x")
    for watcher in (one, two):
        watcher.expect_told(b"shared", set_told(b"x"), version)
    version = three.set(b"two", b"x")
    two.expect_told(b"two", set_told(b"x"), version)
    for client in (one, two, three):
        client.expect_quiet(0.1)


def test_watching_twice_is_watching_once(store):
    client = store()
    client.watch(b"key")
    client.watch(b"key")
    version = client.set(b"key", b"x")
    client.expect_told(b"key", set_told(b"x"), version)
    client.expect_quiet()
    assert client.ask("KEYNOTIFY", "key", "STOP").payload == OK
    client.set(b"key", b"y")
    client.expect_quiet()
    assert client.ask("KEYNOTIFY", "key", "STOP").payload == NOTHING


def test_stop_is_for_one_key_of_one_client(store):
    one, two = store(), store()
    for watcher in (one, two):
        watcher.watch(b"key")
        watcher.watch(b"other")
    assert one.ask("KEYNOTIFY", "key", "STOP").payload == OK
    version = two.set(b"key", b"x")
    two.expect_told(b"key", set_told(b"x"), version)
    version = two.set(b"other", b"x")
    for watcher in (one, two):
        watcher.expect_told(b"other", set_told(b"x"), version)
        watcher.expect_quiet(0.1)


def test_a_key_is_no_pattern(store):
    client = store()
    for key in (b"*", b"key*", b"#", b"+", b"k?y"):
        client.watch(key)
    client.set(b"key", b"x")
    client.set(b"*", b"x")
    client.expect_told(b"*", set_told(b"x"))
    client.expect_quiet()


@pytest.mark.parametrize("key", [b"\0", b"/", b"a/b", b"+#", b"\xff\xfe", "ä".encode(), bytes(range(256)), b"k" * 6_500, b"k" * 32_000],
                         ids=lambda key: repr(key[:8]))
def test_any_key(store, key):
    client = store()
    client.watch(key)
    version = client.set(key, b"x")
    client.expect_told(key, set_told(b"x"), version)
    client.ask("DEL", key)
    client.expect_told(key, DELETE_TOLD)


def test_a_key_too_long_to_be_told(store):
    """Its topic would be longer than MQTT allows. It is a key nevertheless, and its watcher stays connected."""
    client, other = store(), store()
    key = b"k" * 40_000
    client.ask("KEYNOTIFY", key)
    other.set(key, b"x")
    assert client.get(key)[0] == b"x"
    client.expect_quiet()


@pytest.mark.parametrize("client_id", ["a", "a/b", "+", "#", "ä β", "$SYS", "client:1", "*", "x" * 200])
def test_any_client_identifier(store, client_id):
    client = store(client_id, subscribes=False)
    client.responses = "answers"
    client.client.subscribe("answers", qos=1)
    client.watch(b"key")
    version = client.set(b"key", b"x")
    told = client.expect_told(b"key", set_told(b"x"), version)
    assert told.packet.topic == f"{RESERVED}/{client_id.encode().hex().upper()}/command/notify/6B6579"


def test_in_the_order_of_the_changes(store):
    clients = [store() for _ in range(3)]
    watcher = store()
    watcher.watch(b"key")
    sent = [(client, client.send(array("SET", "key", f"{at} {number}"))) for number in range(150) for at, client in enumerate(clients)]
    versions = sorted(order(client.answer(one).version) for client, one in sent)
    told = [watcher.told() for _ in sent]
    assert [order(one.version) for one in told] == versions
    for at in range(3):
        own = [one.payload for one in told if b"\r\n%d " % at in one.payload]
        assert own == [set_told(b"%d %d" % (at, number)) for number in range(150)]


def test_one_at_a_time_for_who_wants_it_so(store):
    watcher, client = store(properties={"receive_maximum": 1}), store()
    watcher.watch(b"key")
    for number in range(5):
        client.set(b"key", b"%d" % number)
    for number in range(5):
        packet = watcher.client.recv()
        assert (packet.kind, packet.payload) == (PUBLISH, set_told(b"%d" % number))
        watcher.client.expect_nothing(0.05)
        watcher.client.complete(packet)


def test_what_is_too_large_for_the_watcher(store):
    """Is not told (MQTT-3.1.2-25); what follows is."""
    watcher, client = store(properties={"maximum_packet_size": 1_000}), store()
    watcher.watch(b"key")
    client.set(b"key", b"x" * 2_000)
    version = client.set(b"key", b"small")
    watcher.expect_told(b"key", set_told(b"small"), version)
    watcher.expect_quiet(0.1)


ENDS = {"DISCONNECT": wire.Client.disconnect, "lost": wire.Client.drop, "taken over": lambda client: None}


@pytest.mark.parametrize("expiry", [0, 60], ids=["session ends", "session kept"])
@pytest.mark.parametrize("end", ENDS)
def test_watching_ends_with_the_connection(broker, store, tenant, end, expiry):
    """Also if the session is kept: changes are neither queued meanwhile nor told afterwards. Subscriptions persist."""
    options = {"clean": False, "properties": {"session_expiry_interval": expiry}}
    watcher, other = store("watcher", **options), store("other")
    watcher.watch(b"key")
    version = other.set(b"key", b"before")
    watcher.expect_told(b"key", set_told(b"before"), version)
    # Its PUBACK has arrived, and the notification is not sent again to the next connection.
    watcher.client.ping()

    ENDS[end](watcher.client)
    if end != "taken over":
        until(lambda: broker.metric(f'^barid_state_watchers{{tenant="{tenant}"') == 0)
        other.set(b"key", b"meanwhile")
    again = store("watcher", **options)
    assert again.client.connack.session_present or expiry == 0
    other.set(b"key", b"after")
    again.expect_quiet()
    assert again.ask("KEYNOTIFY", "key", "STOP").payload == NOTHING
    again.watch(b"key")
    version = other.set(b"key", b"watched again")
    again.expect_told(b"key", set_told(b"watched again"), version)
    again.expect_quiet()


def test_who_takes_over_does_not_inherit(store):
    """Even when the new connection is there before the old one has noticed."""
    old, other = store("watcher", clean=False, properties=KEPT), store("other")
    old.watch(b"key")
    new = store("watcher", clean=False, properties=KEPT)
    assert new.client.connack.session_present
    new.watch(b"key")
    version = other.set(b"key", b"x")
    new.expect_told(b"key", set_told(b"x"), version)
    new.expect_quiet()
    old.client.expect_refused(0x8E)


def test_a_notification_not_acknowledged(store):
    """The connection ends before the PUBACK: the session, if kept, may deliver it again, and nothing else."""
    watcher, other = store("watcher", clean=False, properties=KEPT), store("other")
    watcher.watch(b"key")
    other.set(b"key", b"x")
    packet = watcher.client.recv()
    assert packet.payload == set_told(b"x")
    watcher.client.drop()
    again = store("watcher", clean=False, properties=KEPT)
    try:
        packet = again.client.recv(0.3)
        assert packet.dup and packet.payload == set_told(b"x")
        again.client.complete(packet)
    except TimeoutError:
        pass
    again.expect_quiet()
    assert again.ask("KEYNOTIFY", "key", "STOP").payload == NOTHING


def test_older_clients_cannot_watch_but_may_subscribe(connect, tenant):
    """To their own topics, where nothing comes."""
    client = connect(wire.V311, "old", tenant=tenant)
    assert client.subscribe(notify_filter("old"), qos=1).reasons == [1]
    client.publish(INVOKE, array("KEYNOTIFY", "key"), 0)
    client.ping()
    client.expect_nothing(0.1)


def test_conditions_are_told_as_they_end(store):
    """A lock: acquired, refused to another, renewed, released."""
    holder, waiter = store(), store()
    waiter.watch(b"lock")
    first = holder.set(b"lock", b"holder", "NEX", "PX", "60000")
    assert waiter.ask("SET", "lock", "waiter", "NEX", "PX", "60000").payload == NOT_APPLIED
    second = holder.set(b"lock", b"holder", "NEX", "PX", "60000")
    holder.ask("VDEL", "lock", "holder")
    third = waiter.set(b"lock", b"waiter", "NEX", "PX", "60000")
    told = [waiter.told() for _ in range(4)]
    assert [one.payload for one in told] == [set_told(b"holder"), set_told(b"holder"), DELETE_TOLD, set_told(b"waiter")]
    assert [told[0].version, told[1].version, told[3].version] == [first, second, third]
    waiter.expect_quiet()
