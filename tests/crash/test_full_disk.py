"""A disk that is full, or fails: what needs it is refused, what does not goes on, and nothing acknowledged is lost."""

import asyncio
import time

import pytest
import wire
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
    """Fills the disk but for some bytes, which is told as none; and lets the broker notice, by messages of a client that
    may have to wait for their answer.
    """
    victim.order("none-free")
    victim.order("no-room", str(left))
    time.sleep(1.5)  # free space need not be asked for at every message
    client = connect(**FLEETING)
    for number, topic in enumerate(UNLUCKY, 1):
        client.send(wire.publish(topic, b"unlucky", 1, number))
    time.sleep(0.5)
    return client


def subscribe_everywhere(connect) -> None:
    """Sessions enough for every shard to notice."""
    for topic in UNLUCKY:
        connect(topic.replace("/", "-")).subscribe(topic, qos=1)


def accepted_again(publisher: wire.Client, topic: str, payload: bytes, seconds: float = 10) -> int:
    """How often `payload` was refused before it was accepted."""
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
    found = received(connect("s"))
    assert [one for one in found if one != b"refused"] == [b"%d" % one for one in range(20)] + [b"again"]
    for topic, answer in zip(UNLUCKY, answers):
        if answer == 0:
            assert received(connect(topic.replace("/", "-")), 0.05) == [b"unlucky"]


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
    """Or else it would stay full."""
    connect("s").subscribe("a", qos=1)
    connect("s").disconnect()
    subscribe_everywhere(connect)
    publisher = connect("p")
    for number in range(10):
        publisher.publish("a", b"%d" % number, qos=1)
    fill(victim, connect, left=1_000_000)  # removing takes room as well: the reserve
    assert received(connect("s")) == [b"%d" % one for one in range(10)]
    time.sleep(0.5)
    victim.die()
    victim.withdraw()
    victim.revive()
    assert received(connect("s")) == [], "taken, and not removed"


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_a_client_with_a_session_is_answered_on_a_full_disk(victim, connect, known):
    """One whose session is stored has to come in, to take what waits for it. A new one may be refused, but is told."""
    if known:
        connect("s").disconnect()
    subscribe_everywhere(connect)
    fill(victim, connect)
    client = wire.Client(victim.address)
    connack = client.connect("s", clean=False, username="acme/device", properties={"session_expiry_interval": FOREVER})
    assert (connack.reason, connack.session_present) == (0, True) if known else connack.reason in (0, QUOTA_EXCEEDED)


def test_a_client_of_31_is_not_told_what_is_not_so(victim, connect):
    """Its PUBACK has no reason code: none may come while the message is nowhere."""
    connect("s").subscribe("a", qos=1)
    subscribe_everywhere(connect)
    fill(victim, connect)
    publisher = connect("p", V311, **FLEETING)
    publisher.send(wire.publish("a", b"x", 1, 1, version=V311))
    try:
        publisher.expect_nothing(1)
    except AssertionError as error:
        assert "was closed" in str(error), error


@pytest.mark.parametrize("failure", ["fsync-eio", "no-room"])
def test_a_failing_disk_makes_no_promises(victim, connect, failure):
    """The broker may end, or go on when the disk does; what it acknowledged is there either way."""
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
    found = received(connect("s"))
    assert [one for one in found if one in acknowledged] == acknowledged


def test_what_cannot_be_read_now_is_given_to_others_later(victim, connect):
    """The member that has the messages of a shared subscription ends while the disk cannot be read."""
    connect("s").subscribe("$share/g/a", qos=1)
    connect("s").disconnect()
    publisher = connect("p")
    expected = [b"%d " % number + bytes(500) for number in range(10)]
    for payload in expected:
        assert publisher.publish("a", payload, qos=1).reason == 0
    victim.die()
    victim.revive()  # the messages are on the disk only
    other = connect("o")
    other.subscribe("$share/g/a", qos=1)
    victim.order("read-eio")
    connect("s", **FLEETING)  # a new session: the one that has the messages is over
    other.expect_nothing(1)
    victim.withdraw()
    assert received(other, 2) == expected
    time.sleep(0.5)
    victim.die()
    victim.revive()
    assert received(connect("o")) == [], "taken, and not removed"


class Troubled(World):
    """In each round the disk fails for a while."""

    async def trouble(self, seconds: float) -> None:
        await asyncio.sleep(self.random.uniform(0, seconds / 2))
        self.down = True  # connections may be closed, sessions refused
        for failure in self.random.choice((("no-room", "none-free"), ("no-room",), ("none-free",))):
            self.victim.order(failure, str(self.random.randrange(100_000)))
        try:
            await asyncio.sleep(self.random.uniform(0, seconds / 2))
        finally:
            self.victim.withdraw()


def test_nothing_acknowledged_is_lost_when_the_disk_is_full(victim, seed):
    summary = asyncio.run(Troubled(victim, seed).run(5))
    check(summary)
    assert summary.counts["refused"], "the disk was never full"
