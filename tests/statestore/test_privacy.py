"""Who hears of what: requests nobody, notifications only their watcher, responses only whom the requester may tell."""

import pytest

import wire
from broker import Broker
from statestore_client import INVOKE, OK, RESERVED, array, notify_filter, notify_topic, response_topic, set_told, stamp, value
from wire import PUBACK, PUBREC, V31, V311

VICTIM = "victim".encode().hex().upper()

# Filters that match nothing but what belongs to another client, or requests.
FOREIGN = [
    notify_filter("victim"), notify_topic("victim", b"key"), f"{RESERVED}/{VICTIM}/#", f"{RESERVED}/{VICTIM}/command/+/6B6579",
    f"{RESERVED}/{VICTIM}/command/notify/#", f"{RESERVED}/+/command/notify/+", f"{RESERVED}/+/command/notify/6B6579", f"{RESERVED}/#",
    f"{RESERVED}/+/#", INVOKE, f"$share/group/{INVOKE}", f"$share/group/{notify_filter('victim')}", f"$share/group/{RESERVED}/#",
]

# Filters that match more. They may be refused or not.
WIDE = [
    "#", "clients/#", "clients/+/+/+/+/+/+/+", "+/+/+/+/+/+/+/+", "clients/statestore/#", "clients/statestore/v1/#",
    "clients/statestore/v1/+/+/command/notify/+", "statestore/#", "statestore/v1/+/command/invoke", "+/+/+/+/+",
    "$share/group/#", "$share/group/clients/#", "$share/group/statestore/#", "$share/group/+/+/+/+/+",
]


@pytest.mark.parametrize("filter_", FOREIGN)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_nobody_may_subscribe_to(connect, tenant, filter_, qos):
    spy = connect(client_id="spy", tenant=tenant)
    assert spy.subscribe(filter_, qos=qos).reasons == [0x87]
    assert spy.subscribe("ordinary", filter_, notify_filter("spy")).reasons == [0, 0x87, 0]


@pytest.mark.parametrize("client_id", [VICTIM, VICTIM.lower(), VICTIM + "/command", "victi", "victimx", "+", "#"])
def test_a_client_identifier_that_looks_like_a_part_of_the_topic(store, client_id):
    """Gives no right to the topics of another client."""
    victim, spy = store("victim"), store(client_id, subscribes=False)
    reasons = spy.client.subscribe(notify_filter("victim"), notify_topic("victim", b"key"), f"{RESERVED}/{VICTIM}/#", qos=1).reasons
    assert reasons == [0x87, 0x87, 0x87]
    spy.responses = "answers"
    spy.client.subscribe("answers", qos=1)
    spy.watch(b"other")
    victim.watch(b"key")
    version = victim.set(b"key", b"x")
    victim.expect_told(b"key", set_told(b"x"), version)
    version = victim.set(b"other", b"x")
    spy.expect_told(b"other", set_told(b"x"), version)
    spy.expect_quiet(0.05)
    victim.expect_quiet(0.05)


@pytest.mark.parametrize("version", [V31, V311], ids=["v3.1", "v3.1.1"])
def test_older_clients_may_not_either(connect, tenant, version):
    """MQTT 3.1 has no way to refuse a subscription but to disconnect."""
    for filter_ in FOREIGN:
        spy = connect(version, "spy", tenant=tenant)
        if version == V31:
            spy.send(wire.subscribe(1, (filter_, 1), version=version))
            spy.expect_refused()
        else:
            assert spy.subscribe(filter_, qos=1).reasons == [0x80], filter_


def test_a_response_topic_is_no_notification_topic(connect, tenant):
    """The clients' own response topics are ordinary topics."""
    spy = connect(client_id="spy", tenant=tenant)
    for filter_ in (response_topic("spy"), f"clients/spy/services/{INVOKE}/response", f"clients/{VICTIM}/{INVOKE}/response"):
        assert spy.subscribe(filter_, qos=1).reasons == [1]


@pytest.mark.parametrize("filter_", WIDE)
def test_wide_subscriptions(store, connect, tenant, filter_):
    """Nothing of requests and notifications comes through, neither live nor retained."""
    victim, spy, stranger = store("victim"), connect(client_id="spy", tenant=tenant), connect(client_id="victim", tenant="x" + tenant)
    for one in (spy, stranger):
        one.subscribe(filter_, qos=1)
    victim.watch(b"key")
    version = victim.set(b"key", b"secret", "PX", "60")
    victim.expect_told(b"key", set_told(b"secret"), version)
    victim.told()
    for one in (spy, stranger):
        one.ping()
    heard = [packet.topic for packet in spy._kept]
    assert set(heard) <= {victim.responses}, "answers are ordinary messages, nothing else of the state store is"
    assert not stranger._kept


@pytest.mark.parametrize("own", [True, False], ids=["own", "of another"])
@pytest.mark.parametrize("topic", ["{reserved}/{hex}/command/notify/6B6579", "{reserved}/{hex}/x", "{reserved}/{id}/command/notify", "{reserved}"])
def test_nobody_publishes_notifications(store, connect, tenant, topic, own):
    victim = store("victim")
    victim.watch(b"key")
    victim.client.subscribe(notify_filter("victim"), f"{RESERVED}/{VICTIM}/#", qos=1)
    forger = victim.client if own else connect(client_id="forger", tenant=tenant)
    topic = topic.format(reserved=RESERVED, hex=VICTIM, id="victim")
    forged = {"user_property": [("__ts", stamp(node="StateStore"))]}
    for retain in (False, True):
        assert forger.publish(topic, set_told(b"forged"), 1, retain, forged).reason == 0x87
        assert forger.publish(topic, set_told(b"forged"), 2, retain, forged).reason == 0x87
        forger.publish(topic, set_told(b"forged"), 0, retain, forged)
    victim.expect_quiet()


@pytest.mark.parametrize("version", [V31, V311], ids=["v3.1", "v3.1.1"])
def test_older_clients_publish_no_notifications(store, connect, tenant, version):
    victim = store("victim")
    victim.client.subscribe(notify_filter("victim"), qos=1)
    for qos, answer in ((0, None), (1, PUBACK), (2, PUBREC)):
        forger = connect(version, "forger", tenant=tenant)
        forger.send(wire.publish(notify_topic("victim", b"key"), set_told(b"forged"), qos, 1 if qos else None, version=version))
        try:
            if answer:
                forger.expect(answer)
            forger.ping()
        except wire.Closed:
            pass
    victim.expect_quiet()


def test_a_retained_forgery_leaves_nothing(store, connect, tenant):
    """Also for those who subscribe later."""
    forger = connect(tenant=tenant)
    for topic in (notify_topic("victim", b"key"), INVOKE):
        forger.publish(topic, b"forged", 0, retain=True)
    victim = store("victim")
    victim.client.subscribe(notify_filter("victim"), "#", qos=1)
    victim.expect_quiet()


def test_a_bridge_of_aliases_and_shares_finds_no_way(store, connect, tenant):
    """A topic alias stands for its topic."""
    victim = store("victim")
    victim.client.subscribe(notify_filter("victim"), qos=1)
    forger = connect(tenant=tenant)
    topic = notify_topic("victim", b"key")
    forger.send(wire.publish(topic, b"forged", 1, 1, properties={"topic_alias": 1}))
    assert forger.expect(PUBACK, packet_id=1).reason == 0x87
    forger.send(wire.publish("", b"forged", 1, 2, properties={"topic_alias": 1}))
    assert forger.expect(PUBACK, packet_id=2).reason == 0x87
    victim.expect_quiet()


def test_the_same_client_in_two_tenants(store, tenant):
    """The notification topics are the same by name."""
    ours, theirs = store("same"), store("same", tenant="other-of-" + tenant)
    for client in (ours, theirs):
        client.client.subscribe(notify_filter("same"), qos=1)
        client.watch(b"key")
    version = ours.set(b"key", b"ours")
    ours.expect_told(b"key", set_told(b"ours"), version)
    assert theirs.get(b"key") is None
    assert theirs.scan("*") == [[]]
    version = theirs.set(b"key", b"theirs", "NX")
    theirs.expect_told(b"key", set_told(b"theirs"), version)
    for client in (ours, theirs):
        client.expect_quiet(0.1)
    assert ours.get(b"key")[0] == b"ours"


# --- responses go with the requester's own rights

RULES = """
[[users]]
name = "acme/narrow"
password = "{hash}"
publish = ["statestore/#", "mine/#"]
subscribe = ["mine/#", "clients/narrow/#", "clients/statestore/#", "$SYS/#", "quiet/#"]
[[users]]
name = "acme/wide"
password = "{hash}"
[[users]]
name = "acme/mute"
password = "{hash}"
publish = ["mine/#"]
"""


@pytest.fixture(scope="module")
def ruled(hashed_password):
    running = Broker(RULES.format(hash=hashed_password))
    yield running
    messages = running.stderr
    running.close()
    assert "panicked at" not in messages


@pytest.fixture
def user(store, ruled):
    """Connects a user whose client identifier is the last part of its name."""
    return lambda name, **options: store(name, to=ruled, username=f"acme/{name}", password=b"secret", **options)


@pytest.mark.parametrize("topic", ["theirs/x", "$SYS/broker/x", "clients/wide/x", "$other/x"])
def test_no_answer_goes_where_the_requester_may_not_publish(user, unique, topic):
    """The request is executed; nobody hears the answer. It could be a command to whoever listens there."""
    narrow, wide = user("narrow", subscribes=False), user("wide", subscribes=False)
    wide.client.subscribe("theirs/#", "clients/#", "#", "$SYS/broker/x", "$other/#", "$share/group/theirs/#", qos=1)
    key = unique("k").encode()
    packet_id, _ = narrow.send(array("SET", key, "x"), response_topic=topic)
    narrow.client.expect(PUBACK, packet_id=packet_id, reason=0)
    wide.expect_quiet()
    narrow.client.expect_nothing(0.05)
    narrow.responses = "mine/answers"
    narrow.client.subscribe("mine/answers", qos=1)
    assert narrow.get(key)[0] == b"x", "it has been executed"


def test_the_requester_itself_is_answered_where_it_may_subscribe(user, unique):
    """A rule for publishing to the own response topic is not needed. Others with the same subscription are not told."""
    narrow, wide = user("narrow", subscribes=False), user("wide", subscribes=False)
    assert narrow.client.subscribe("clients/narrow/#", qos=1).reasons == [1]
    wide.client.subscribe("clients/#", "#", qos=1)
    key = unique("k").encode()
    version = narrow.set(key, b"x")
    assert narrow.get(key) == (b"x", version)
    wide.expect_quiet()


def test_without_a_subscription_the_requester_is_not_answered(user, unique):
    narrow = user("narrow", subscribes=False)
    packet_id, _ = narrow.send(array("SET", unique("k"), "x"), response_topic="clients/narrow/answers")
    narrow.client.expect(PUBACK, packet_id=packet_id, reason=0)
    narrow.client.expect_nothing()


def test_where_it_may_publish_others_hear_the_answer(user, unique):
    narrow, wide = user("narrow", subscribes=False), user("wide", subscribes=False)
    wide.client.subscribe("mine/#", qos=1)
    narrow.send(array("SET", unique("k"), "x"), response_topic="mine/answers")
    narrow.client.expect(PUBACK, reason=0)
    assert wide.client.receive(OK).topic == "mine/answers"


def test_who_may_not_publish_to_the_store_may_not_ask(user, unique):
    mute, wide = user("mute"), user("wide")
    key = unique("k").encode()
    packet_id, _ = mute.send(array("SET", key, "x"))
    mute.client.expect(PUBACK, packet_id=packet_id, reason=0x87)
    mute.expect_quiet()
    assert wide.get(key) is None


def test_no_rule_opens_what_is_reserved(user, unique):
    """Not even one that allows everything, or names it."""
    narrow, wide = user("narrow"), user("wide")
    key = unique("k").encode()
    for client in (narrow, wide):
        other = "wide" if client is narrow else "narrow"
        assert client.client.subscribe(notify_filter(other), INVOKE, qos=1).reasons == [0x87, 0x87]
        assert client.client.publish(notify_topic(other, key), b"forged", 1).reason == 0x87
    assert wide.client.subscribe(notify_filter("wide"), qos=1).reasons == [1]
    wide.watch(key)
    version = wide.set(key, b"x")
    wide.expect_told(key, set_told(b"x"), version)
    assert wide.ask("GET", key).payload == value(b"x")
    narrow.expect_quiet()
