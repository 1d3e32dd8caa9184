"""Tests a disk that is full or fails: requests that need it are refused, others go on, and nothing acknowledged is lost."""

import asyncio
import http.client
import json
import time

import pytest
import wire
from broker import until
from powercut import Recorded, available
from steps import FOREVER, received
from test_kill import check
from wire import V311
from world import World

pytestmark = pytest.mark.skipif(not available(), reason="needs Linux on x86-64 and a C compiler")

FLEETING = {"clean": True, "expiry": None}
QUOTA_EXCEEDED = 0x97
UNLUCKY = [f"unlucky/{number}" for number in range(40)]


@pytest.fixture
def victim(make_victim):
    return make_victim(Recorded)


def fill(victim, connect, left: int = 0) -> wire.Client:
    """Fills the disk except for `left` bytes, but reports no free space, and waits until every shard has noticed. Then a
    client publishes to all sessions; it may have to wait for its answers.
    """
    victim.order("none-free")
    victim.order("no-room", str(left))
    until(lambda: refusing(victim) == len(list(victim.data.glob("shard-*"))))
    client = connect(**FLEETING)
    for number, topic in enumerate(UNLUCKY, 1):
        client.send(wire.publish(topic, b"unlucky", 1, number))
    client.ping()
    return client


def refusing(victim) -> float:
    """Returns the number of shards that refuse new data."""
    return victim.metric("^barid_store_refuses")


def subscribe_everywhere(connect) -> None:
    """Creates enough sessions for every shard to have some."""
    for topic in UNLUCKY:
        connect(topic.replace("/", "-")).subscribe(topic, qos=1)


def accepted_again(publisher: wire.Client, topic: str, payload: bytes, seconds: float = 10) -> int:
    """Publishes `payload` until it is accepted; returns how often it was refused."""
    deadline, refused = time.monotonic() + seconds, 0
    while publisher.publish(topic, payload, qos=1).reason >= 0x80:
        assert time.monotonic() < deadline, "still refused long after there is space again"
        refused += 1
        time.sleep(0.1)
    return refused


def test_a_full_disk_refuses_what_is_durable_and_recovers(victim, connect):
    connect("s").subscribe("durable/#", qos=2)
    connect("s").disconnect()
    subscribe_everywhere(connect)
    publisher = connect("p")
    for number in range(20):
        assert publisher.publish("durable/a", b"%d" % number, qos=1).reason == 0
    unlucky = fill(victim, connect)
    for qos, retain in ((1, False), (2, False), (1, True)):
        for _ in range(3):
            assert publisher.publish("durable/a", b"refused", qos, retain).reason == QUOTA_EXCEEDED
    victim.withdraw()
    accepted_again(publisher, "durable/a", b"again")
    answers = [unlucky.expect(wire.PUBACK).reason for _ in UNLUCKY]
    assert set(answers) <= {0, QUOTA_EXCEEDED}
    victim.die()
    victim.revive()
    found = received(connect("s"), 21)
    assert [one for one in found if one != b"refused"] == [b"%d" % one for one in range(20)] + [b"again"]
    for topic, answer in zip(UNLUCKY, answers):
        if answer == 0:
            assert received(connect(topic.replace("/", "-")), 1, 0.05) == [b"unlucky"]


def test_the_live_plane_does_not_notice(victim, connect):
    connect("s").subscribe("durable", qos=1)
    subscribe_everywhere(connect)
    live = connect(**FLEETING)
    live.subscribe("live", qos=2)
    fill(victim, connect)
    publisher = connect(**FLEETING)
    for qos in (0, 1, 2):
        answer = publisher.publish("live", b"%d" % qos, qos)
        assert answer is None or answer.reason == 0
        live.receive(b"%d" % qos)
    assert publisher.publish("durable", b"no", qos=1).reason == QUOTA_EXCEEDED
    assert publisher.publish("live", b"still", qos=1).reason == 0
    live.receive(b"still")


def test_what_waits_can_be_drained_from_a_full_disk(victim, connect):
    """If the messages could not be drained, the disk would stay full."""
    connect("s").subscribe("a", qos=1)
    connect("s").disconnect()
    subscribe_everywhere(connect)
    publisher = connect("p")
    for number in range(10):
        publisher.publish("a", b"%d" % number, qos=1)
    fill(victim, connect, left=1_000_000)  # a removal needs room as well, from the reserve
    client = connect("s")
    assert received(client, 10) == [b"%d" % one for one in range(10)]
    client.unsubscribe("a")  # answered when it is on disk; then so is everything that was noted before
    victim.die()
    victim.withdraw()
    victim.revive()
    assert received(connect("s")) == [], "taken, and not removed"


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_a_client_with_a_session_is_answered_on_a_full_disk(victim, connect, known):
    """A client whose session is stored must be admitted, to take the messages that wait for it. A new one may be refused, but
    gets an answer."""
    if known:
        connect("s").disconnect()
    subscribe_everywhere(connect)
    fill(victim, connect)
    client = wire.Client(victim.address)
    connack = client.connect("s", clean=False, username="acme/device", properties={"session_expiry_interval": FOREVER})
    assert (connack.reason, connack.session_present) == (0, True) if known else connack.reason in (0, QUOTA_EXCEEDED)


def test_a_client_of_31_is_not_told_what_is_not_so(victim, connect):
    """Its PUBACK has no reason code: none may be sent while the message is not stored."""
    connect("s").subscribe("a", qos=1)
    subscribe_everywhere(connect)
    fill(victim, connect)
    publisher = connect("p", V311, **FLEETING)
    publisher.send(wire.publish("a", b"x", 1, 1, version=V311))
    try:
        publisher.expect_nothing(1)
    except AssertionError as error:
        assert "was closed" in str(error), error


def test_a_full_disk_is_noticed_before_anybody_meets_it(victim, connect):
    """Another program fills the disk while the broker has nothing to write."""
    connect("s").subscribe("a", qos=1)
    connect("s").disconnect()
    publisher = connect("p", **FLEETING)
    victim.order("none-free")
    until(lambda: refusing(victim) == len(list(victim.data.glob("shard-*"))))
    assert publisher.publish("a", b"refused", qos=1).reason == QUOTA_EXCEEDED
    victim.withdraw()
    until(lambda: refusing(victim) == 0)
    assert publisher.publish("a", b"accepted", qos=1).reason == 0
    assert received(connect("s"), 1) == [b"accepted"]


def fill_unnoticed(victim) -> None:
    """Fills the disk without the broker noticing: the next change is noted and cannot be written.

    Waits first until earlier changes are written. Otherwise these would be the first to meet the full disk, and the next
    change would be refused.
    """
    until(victim.is_at_rest)
    victim.order("no-room", "0")


# Maximum time for an answer, in seconds.
SOON = 5.0


def test_a_publish_that_meets_the_full_disk_is_answered(victim, connect):
    """It is answered at once and not when there is room again: otherwise its client waits, and all its later messages."""
    connect("s").subscribe("a", qos=1)
    connect("s").disconnect()
    publisher = connect("p", **FLEETING)
    fill_unnoticed(victim)
    started = time.monotonic()
    assert publisher.publish("a", b"met", qos=1).reason == QUOTA_EXCEEDED
    assert time.monotonic() - started < SOON
    assert publisher.publish("a", b"known", qos=1).reason == QUOTA_EXCEEDED
    publisher.send(wire.pingreq())
    publisher.expect(wire.PINGRESP)
    victim.withdraw()
    accepted_again(publisher, "a", b"again")
    client = connect("s")
    while client.receive().payload != b"again":
        pass
    assert received(client) == []


def test_many_in_flight_that_meet_the_full_disk_are_answered_each(victim, connect):
    """All are answered, in their order."""
    connect("s").subscribe("a/#", qos=1)
    connect("s").disconnect()
    publisher = connect("p", **FLEETING)
    fill_unnoticed(victim)
    for number in range(1, 301):
        publisher.send(wire.publish(f"a/{number % 7}", b"x", 1, number))
    started = time.monotonic()
    answers = [publisher.expect(wire.PUBACK) for _ in range(300)]
    assert time.monotonic() - started < SOON
    assert [one.packet_id for one in answers] == list(range(1, 301))
    assert {one.reason for one in answers} == {QUOTA_EXCEEDED}


def test_an_exchange_of_qos_2_that_meets_the_full_disk_is_settled_later(victim, connect):
    """PUBREC cannot refuse the message, because it may still become durable. So the connection ends with 0x97, and the
    client sends the message again when it is back; it is delivered once.
    """
    connect("s").subscribe("a", qos=2)
    connect("s").disconnect()
    publisher = connect("p")
    fill_unnoticed(victim)
    publisher.send(wire.publish("a", b"once", 2, 1))
    started = time.monotonic()
    assert publisher.expect(wire.DISCONNECT).reason == QUOTA_EXCEEDED
    assert time.monotonic() - started < SOON
    victim.withdraw()
    publisher = connect("p", present=True)
    publisher.send(wire.publish("a", b"once", 2, 1, dup=True))
    assert publisher.expect(wire.PUBREC).reason == 0
    publisher.send(wire.acknowledge(wire.PUBREL, 1))
    publisher.expect(wire.PUBCOMP)
    assert received(connect("s"), 1) == [b"once"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_of_311_that_meets_the_full_disk_is_let_go(victim, connect, qos):
    """No acknowledgement can report the refusal, so the connection ends."""
    connect("s").subscribe("a", qos=2)
    connect("s").disconnect()
    publisher = connect("p", V311)
    fill_unnoticed(victim)
    publisher.send(wire.publish("a", b"x", qos, 1, version=V311))
    publisher.expect_closed(SOON)
    victim.withdraw()
    until(lambda: refusing(victim) == 0)
    publisher = connect("p", V311, present=True)
    publisher.send(wire.publish("a", b"x", qos, 1, dup=True, version=V311))
    publisher.expect(wire.PUBACK if qos == 1 else wire.PUBREC)
    assert b"x" in received(connect("s"), 1)


def test_others_that_meet_the_full_disk_are_answered(victim, connect):
    """Tests new sessions, and subscriptions of existing sessions."""
    known = connect("k")
    fill_unnoticed(victim)
    started = time.monotonic()
    known.send(wire.subscribe(1, ("a", 1)))
    new = wire.Client(victim.address)
    connack = new.connect("n", clean=False, username="acme/device", properties={"session_expiry_interval": FOREVER})
    assert connack.reason == QUOTA_EXCEEDED
    assert known.expect(wire.DISCONNECT, SOON).reason == QUOTA_EXCEEDED
    assert time.monotonic() - started < SOON
    victim.withdraw()
    until(lambda: refusing(victim) == 0)
    connect("k", present=True).subscribe("a", qos=1)


def test_operators_that_meet_the_full_disk_are_answered(victim):
    fill_unnoticed(victim)
    connection = http.client.HTTPConnection("127.0.0.1", victim.admin_port, timeout=SOON)
    connection.request("PUT", "/v1/tenants/acme/queues/q")
    answer = connection.getresponse()
    assert answer.status == 503 and "disk" in json.load(answer)["error"]
    connection.close()


def test_a_moment_of_failure_is_nobodys_affair(victim, connect):
    """Changes that can be committed soon are acknowledged, and no client is told of the failure."""
    connect("s").subscribe("a", qos=1)
    publisher = connect("p")
    fill_unnoticed(victim)
    publisher.send(wire.publish("a", b"x", 1, 1))
    publisher.expect_nothing(0.3)
    victim.withdraw()
    assert publisher.expect(wire.PUBACK).reason == 0


@pytest.mark.parametrize("failure", ["fsync-eio", "no-room"])
def test_a_failing_disk_makes_no_promises(victim, connect, failure):
    """The broker may end, or go on when the disk works again; in both cases everything acknowledged is there."""
    connect("s").subscribe("a", qos=1)
    connect("s").disconnect()
    publisher = connect("p")
    assert publisher.publish("a", b"before", qos=1).reason == 0
    victim.order(failure, "3000")
    acknowledged = [b"before"]
    try:
        for number in range(30):
            payload = b"%d " % number + bytes(500)
            if publisher.publish("a", payload, qos=1).reason < 0x80:
                acknowledged.append(payload)
        if failure == "fsync-eio":
            assert len(acknowledged) == 1, "acknowledged, and the disk has refused to keep it"
        assert len(acknowledged) < 30
    except (wire.Closed, TimeoutError):
        pass
    victim.withdraw()
    if victim.running():
        publisher = connect("p")
        accepted_again(publisher, "a", b"after", seconds=20)
        acknowledged.append(b"after")
        victim.die()
    else:
        assert victim.stop() != 0
    victim.revive()
    found = received(connect("s"), len(acknowledged))
    assert [one for one in found if one in acknowledged] == acknowledged


def test_what_cannot_be_read_now_is_given_to_others_later(victim, connect, rest):
    """The session that has the messages of a shared subscription ends while the disk cannot be read."""
    connect("s").subscribe("$share/g/a", qos=1)
    connect("s").disconnect()
    publisher = connect("p")
    expected = [b"%d " % number + bytes(500) for number in range(10)]
    for payload in expected:
        assert publisher.publish("a", payload, qos=1).reason == 0
    victim.die()
    victim.revive()  # the messages are on disk only
    other = connect("o")
    other.subscribe("$share/g/a", qos=1)
    victim.order("read-eio")
    connect("s", **FLEETING)  # a new session: the one that has the messages ends
    other.expect_nothing(1)
    victim.withdraw()
    assert received(other, len(expected)) == expected
    rest()
    victim.die()
    victim.revive()
    assert received(connect("o")) == [], "taken, and not removed"


class Troubled(World):
    """Lets the disk fail for a while in each round, in a different way each time. If the broker writes nothing, it notices a
    full disk within a second, which may be too late for a round.
    """

    async def trouble(self, seconds: float) -> None:
        await asyncio.sleep(self.random.uniform(0, seconds / 2))
        self.down = True  # connections may be closed, sessions refused
        for failure in (("no-room", "none-free"), ("no-room",), ("none-free",))[self.summary.rounds % 3]:
            self.victim.order(failure, str(self.random.randrange(100_000)))
        try:
            await asyncio.sleep(self.random.uniform(0, seconds / 2))
        finally:
            self.victim.withdraw()


def test_nothing_acknowledged_is_lost_when_the_disk_is_full(victim, seed):
    summary = asyncio.run(Troubled(victim, seed).run(5))
    check(summary)
    assert summary.counts["refused"], "the disk was never full"
