"""Quotas of a tenant and of its users: connections, connection rates, messages and bytes per second, in both directions.

Rates are measured over seconds in which a flood lasts, after its burst.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest

import wire
from broker import until
from running import barid, hashed

# How far a measured rate may be from the quota.
TOLERANCE = 0.1


class Flood:
    """Sends packets on a connection as fast as it takes them, in a thread, until it has sent all or is told to stop."""

    def __init__(self, client: wire.Client, packets):
        self.sent, self.error = 0, None
        self._client, self._packets, self._stop = client, packets, threading.Event()
        client.stream.settimeout(0.2)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for packet in self._packets:
                rest = memoryview(packet)
                while rest and not self._stop.is_set():
                    try:
                        rest = rest[self._client.stream.send(rest):]
                    except TimeoutError:
                        continue
                if self._stop.is_set():
                    return
                self.sent += 1
        except OSError as error:
            self.error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, self.error

    def wait(self, seconds: float = 30) -> None:
        """Waits until all is sent."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"sent {self.sent}"
        assert self.error is None, self.error


class Ear:
    """Reads what a subscriber gets in a thread, acknowledges QoS 1, and notes when each message came."""

    def __init__(self, client: wire.Client):
        self.client, self.payloads, self.times, self.sizes, self.error = client, [], [], [], None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    found = self.client.receive(timeout=0.2)
                except TimeoutError:
                    continue
                self.times.append(time.monotonic())
                self.sizes.append(found.size)
                self.payloads.append(found.payload)
        except Exception as error:  # reported by `stop`, in the thread of the test
            self.error = error

    def __len__(self) -> int:
        return len(self.payloads)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, self.error

    def rate(self, seconds: float = 3.0, of_bytes: bool = False) -> float:
        """What comes in a second, for some seconds from now on."""
        started = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
        sizes = [size for at, size in zip(self.times, self.sizes) if started <= at < ended]
        return (sum(sizes) if of_bytes else len(sizes)) / (ended - started)


@pytest.fixture
def ear():
    """Subscribes a client and listens."""
    ears = []

    def listen(client: wire.Client, topic: str, qos: int = 0) -> Ear:
        client.subscribe(topic, qos=qos)
        ears.append(Ear(client))
        return ears[-1]

    yield listen
    for one in ears:
        one.stop()


@pytest.fixture
def flood():
    """Floods a topic with numbered messages of QoS 0."""
    floods = []

    def begin(client: wire.Client, topic: str, count: int = 10_000_000, size: int = 8) -> Flood:
        messages = (wire.publish(topic, b"%08d" % number + bytes(size - 8), version=client.version)
                    for number in range(count))
        floods.append(Flood(client, messages))
        return floods[-1]

    yield begin
    for one in floods:
        one.stop()


def handled(broker, seconds: float = 3.0) -> float:
    """The messages that the broker takes from clients of the default tenant in a second, for some seconds from now on."""
    def count() -> tuple[float, float]:
        taken = broker.metric(r'^barid_packets_total\{tenant="default",direction="in",type="publish"\}')
        return taken, time.monotonic()

    first, started = count()
    time.sleep(seconds)
    last, ended = count()
    return (last - first) / (ended - started)


def near(rate: float) -> object:
    return pytest.approx(rate, rel=TOLERANCE)


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(payload[:8]) for payload in payloads]


def quotas(broker, tenant: str = "default") -> dict:
    tenants = json.loads(broker.http("/v1/tenants")[1])["tenants"]
    return next(one["quotas"] for one in tenants if one["name"] == tenant)


# ---------------------------------------------------------------------------------------------------- inbound


@pytest.mark.parametrize("publishers", [1, 20])
def test_messages_come_at_the_rate(broker_with, connect, ear, flood, topic, publishers):
    """However many clients send them; a second's worth comes at once."""
    running = broker_with("[limits]\npublish_rate = 1000\n")
    listener = ear(connect(to=running), topic)
    started = time.monotonic()
    for _ in range(publishers):
        flood(connect(to=running), topic)
    time.sleep(1.5)
    assert len(listener) <= 1_100 + 1_000 * (time.monotonic() - started), "more than a burst and the rate"
    # As the broker counts them: on a busy machine the listener, a thread beside those that flood, does not keep up. There
    # the turns of the clients, one after the other, come late as well.
    assert 1_000 * (1 - TOLERANCE if publishers == 1 else 0.4) < handled(running) < 1_000 * (1 + TOLERANCE)
    assert running.metric(r'^barid_quota_throttled_seconds_total\{tenant="default",quota="publish_rate"\}') > publishers
    assert running.stderr.count("clients are slowed down") == 1


def test_no_message_is_lost(broker_with, connect, ear, flood, topic):
    """Not even if the client disconnects at once."""
    running = broker_with("[limits]\npublish_rate = 1000\n")
    listener = ear(connect(to=running), topic)
    publisher = connect(to=running)
    sent = flood(publisher, topic, count=4_000)
    sent.wait()
    publisher.send(wire.disconnect())
    publisher.stream.shutdown(socket.SHUT_WR)
    until(lambda: len(listener) == 4_000)
    assert numbers(listener.payloads) == list(range(4_000))
    assert listener.times[-1] - listener.times[0] > 2.7, "3,000 behind the burst"


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_messages_come_at_the_rate(broker_with, connect, topic, qos):
    """Each acknowledgement shows that the message was handled."""
    running = broker_with("[limits]\npublish_rate = 100\ndurability = \"memory\"\n")
    client = connect(to=running)
    started = time.monotonic()
    for _ in range(250):
        client.publish(topic, b"x", qos)
    took = time.monotonic() - started
    assert 1.35 < took < 2.0, "150 behind the burst"


def test_bytes_come_at_the_rate(broker_with, connect, ear, flood, topic):
    running = broker_with("[limits]\ninbound_bytes_rate = 500000\n")
    listener = ear(connect(to=running), topic)
    flood(connect(to=running), topic, size=5_000)
    time.sleep(1.5)
    assert listener.rate(of_bytes=True) == near(500_000)


def test_a_large_packet_comes_at_the_rate(broker_with, connect, topic):
    """It is read in parts."""
    running = broker_with("[limits]\ninbound_bytes_rate = 400000\n")
    client = connect(to=running)
    started = time.monotonic()
    client.publish(topic, bytes(1_200_000), qos=1)
    assert 1.8 < time.monotonic() - started < 2.6, "a second's worth at once, and two more"


def test_a_client_that_is_not_read_from_keeps_its_connection(broker_with, connect, topic):
    """Its PINGREQ waits behind its messages, longer than the Keep Alive allows."""
    running = broker_with("[limits]\npublish_rate = 100\n")
    client = connect(to=running, keep_alive=1)
    client.send(*[wire.publish(topic, b"x")] * 500, wire.pingreq())
    started = time.monotonic()
    client.expect(wire.PINGRESP, timeout=10)
    assert 3.5 < time.monotonic() - started < 5
    client.expect_refused(0x8D, timeout=5)


def test_a_client_that_only_listens_is_not_slowed_down(broker_with, connect, flood, topic):
    """Nor is another tenant."""
    running = broker_with("[limits]\npublish_rate = 50\n[tenants.other.limits]\npublish_rate = 0\n")
    flood(connect(to=running), topic)
    time.sleep(1.2)
    for client in (connect(to=running), connect(to=running, tenant="other")):
        for _ in range(20):
            started = time.monotonic()
            client.ping()
            assert time.monotonic() - started < 0.2
    other = connect(to=running, tenant="other")
    started = time.monotonic()
    for _ in range(200):
        other.publish(topic, b"x", qos=1)
    assert time.monotonic() - started < 2


def test_small_clients_are_served_beside_a_flood(broker_with, connect, flood, topic):
    """A tenant at its limit is shared: who sends little waits little."""
    running = broker_with("[limits]\npublish_rate = 1000\n")
    for _ in range(10):
        flood(connect(to=running), topic)
    time.sleep(1.5)
    client = connect(to=running)
    waits = []
    for _ in range(20):
        started = time.monotonic()
        client.publish("quiet", b"x", qos=1)
        waits.append(time.monotonic() - started)
    assert sorted(waits)[10] < 0.5, waits


# --------------------------------------------------------------------------------------------------- outbound


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_leave_at_the_rate(broker_with, connect, ear, flood, topic, qos):
    """None is lost that the queue has room for."""
    running = broker_with("[limits]\noutbound_bytes_rate = 200000\n")
    listener = ear(connect(to=running), topic, qos)
    publisher = connect(to=running)
    payload = bytes(992)
    count = 1_000
    publisher.send(*(wire.publish(topic, b"%08d" % number + payload, qos=qos, packet_id=number + 1 if qos else None)
                     for number in range(count)))
    time.sleep(1.5)
    assert listener.rate(2.0, of_bytes=True) == near(200_000)
    until(lambda: len(listener) == count)
    assert numbers(listener.payloads) == list(range(count))
    assert running.metric(r'^barid_quota_throttled_seconds_total\{.*quota="outbound_bytes_rate"\}') > 2


def test_several_subscribers_share_the_rate(broker_with, connect, ear, flood, topic):
    running = broker_with("[limits]\noutbound_bytes_rate = 300000\nmax_queued_messages = 50\n")
    listeners = [ear(connect(to=running), topic) for _ in range(10)]
    flood(connect(to=running), topic, size=400)
    time.sleep(1.5)
    before = [sum(listener.sizes) for listener in listeners]
    started = time.monotonic()
    time.sleep(3)
    took = time.monotonic() - started
    rates = [(sum(listener.sizes) - sizes) / took for listener, sizes in zip(listeners, before)]
    assert sum(rates) == near(300_000)
    assert max(rates) < 2 * min(rates), "each gets its share"
    assert running.metric('^barid_dropped_messages_total.*reason="queue_messages"') > 0
    assert running.metric('^barid_quota_refused_total.*quota="max_queued_messages"') > 0


def test_retained_messages_leave_at_the_rate(broker_with, connect, ear, unique):
    running = broker_with("[limits]\noutbound_bytes_rate = 100000\n")
    publisher, name = connect(to=running), unique("r")
    for number in range(300):
        publisher.send(wire.publish(f"{name}/{number}", b"%08d" % number + bytes(992), retain=True))
    publisher.ping()
    started = time.monotonic()
    listener = ear(connect(to=running), f"{name}/#")
    until(lambda: len(listener) == 300)
    assert 1.8 < time.monotonic() - started < 2.8, "100 at once, and 100 a second"


def test_acknowledgements_are_not_delayed(broker_with, connect, ear, topic):
    """Though the client that publishes also subscribes, and its messages wait."""
    running = broker_with("[limits]\noutbound_bytes_rate = 20000\n")
    client = connect(to=running)
    client.subscribe(topic)
    for _ in range(100):
        started = time.monotonic()
        client.publish(topic, bytes(1_000), qos=1)
        assert time.monotonic() - started < 0.5
    client.ping()


def test_an_idle_subscriber_gets_a_message_at_once(broker_with, connect, topic):
    running = broker_with("[limits]\noutbound_bytes_rate = 10000\n")
    listener, publisher = connect(to=running), connect(to=running)
    listener.subscribe(topic)
    for _ in range(20):
        started = time.monotonic()
        publisher.publish(topic, b"x")
        listener.receive(b"x")
        assert time.monotonic() - started < 0.2


# ------------------------------------------------------------------------------------------------ connections


RATE, QUOTA = 0x9F, 0x97


def refused(broker, dial, version: int, reason: int, names: str, username: str | None = None, client_id: str = "r") -> None:
    """Expects that a CONNECT is refused, for MQTT 5 with this reason and a text that names the quota."""
    client = dial(version, broker)
    connack = client.connect(client_id, username=username)
    if version == wire.V5:
        assert connack.reason == reason and names in connack.properties["reason_string"], connack
    else:
        assert connack.reason == 3, "server unavailable"
    client.expect_closed()


@pytest.mark.parametrize("version", [wire.V31, wire.V311, wire.V5])
def test_the_connection_rate(broker_with, connect, dial, version):
    running = broker_with("[limits]\nconnect_rate = 5\n")
    for _ in range(5):
        connect(version, to=running)
    refused(running, dial, version, RATE, "connect_rate")
    assert running.metric(r'^barid_quota_refused_total\{tenant="default",quota="connect_rate"\}') == 1
    assert quotas(running)["connect_rate"] == {"limit": 5, "used": None, "refused": 1, "throttled_seconds": None}
    until(lambda: "connect_rate" in running.stderr)
    connect(version, to=running)


def test_a_client_that_comes_back_needs_no_other_place(broker_with, connect, dial):
    running = broker_with("[limits]\nmax_connections = 1\n")
    first = connect(to=running, client_id="same")
    refused(running, dial, wire.V5, QUOTA, "max_connections")
    connect(to=running, client_id="same")
    first.expect_refused(0x8E)
    assert quotas(running)["max_connections"] == {"limit": 1, "used": 1, "refused": 1, "throttled_seconds": None}


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_connections_of_a_user(broker_with, connect, dial, version):
    running = broker_with("[limits]\nmax_user_connections = 2\n")
    ada = [connect(version, to=running, username="acme/ada") for _ in range(2)]
    refused(running, dial, version, QUOTA, "max_user_connections", "acme/ada")
    connect(version, to=running, username="acme/bob")
    ada[0].drop()

    def is_free() -> bool:
        return dial(version, running).connect("again", username="acme/ada").reason == 0

    until(is_free)
    assert quotas(running, "acme")["max_user_connections"]["refused"] >= 1


def test_the_connection_rate_of_a_user(broker_with, connect, dial):
    """Who exceeds it does not use up the rate of the tenant."""
    running = broker_with("[limits]\nconnect_rate = 10\nuser_connect_rate = 1\n")
    connect(to=running, username="ada")
    others = [dial(wire.V5, running).send(wire.connect(username="ada")) for _ in range(15)]
    for user in ("bob", "eve", "joe"):
        connect(to=running, username=user)
    for other in others:
        connack = other.expect(wire.CONNACK, reason=RATE)
        assert "user_connect_rate" in connack.properties["reason_string"]
        other.expect_closed()


def test_a_refusal_by_rate_takes_a_second(broker_with, connect, dial):
    """So a client that tries again at once does no harm. Others are refused at once, and who gives up is forgotten."""
    running = broker_with("[limits]\nconnect_rate = 1\nmax_connections = 2\n")
    connect(to=running)
    started = time.monotonic()
    clients = [dial(wire.V311, running).send(wire.connect("c", wire.V311)) for _ in range(20)]
    for client in clients[10:]:
        client.drop()
    for client in clients[:10]:
        client.expect(wire.CONNACK, reason=3)
        assert 0.9 < time.monotonic() - started < 2
        client.expect_closed()
    connect(to=running)
    time.sleep(1)
    started = time.monotonic()
    refused(running, dial, wire.V5, QUOTA, "max_connections")
    assert time.monotonic() - started < 0.5
    assert quotas(running)["connect_rate"]["refused"] == 20


def test_sessions(broker_with, connect, dial):
    running = broker_with("[limits]\nmax_sessions = 1\n")
    connect(to=running)
    refused(running, dial, wire.V5, QUOTA, "max_sessions")
    assert quotas(running)["max_sessions"] == {"limit": 1, "used": 1, "refused": 1, "throttled_seconds": None}


def test_what_is_too_large_is_counted(broker_with, connect, dial):
    running = broker_with("max_tenants = 2\n[limits]\nmax_client_id_bytes = 23\nmax_packet_size = 100\n")
    client = connect(to=running, tenant="acme", client_id="a")
    for _ in range(2):
        assert dial(wire.V5, running).connect("x" * 24, username="acme/device").reason == 0x85
    client.send(wire.publish("t", bytes(100)))
    client.expect_refused(0x95)
    refused(running, dial, wire.V5, QUOTA, "maximum number of tenants", username="other/device")
    counted = {"max_client_id_bytes": (23, None, 2), "max_packet_size": (100, None, 1)}
    for quota, (limit, used, times) in counted.items():
        assert quotas(running, "acme")[quota] == {"limit": limit, "used": used, "refused": times, "throttled_seconds": None}
        assert running.metric(rf'^barid_quota_refused_total\{{tenant="acme",quota="{quota}"\}}') == times
    assert quotas(running)["max_tenants"] == {"limit": 2, "used": 2, "refused": 1, "throttled_seconds": None}
    assert running.metric(r'^barid_quota_refused_total\{tenant="default",quota="max_tenants"\}') == 1


def test_subscriptions_of_a_tenant(broker_with, connect, oasis):
    """Those of all clients count together, also of sessions without a client and after a restart, until they end."""
    limits = "[tenants.acme.limits]\nmax_tenant_subscriptions = 3\n"
    running = broker_with(limits)
    refusal = 0x97 if oasis == wire.V5 else 0x80

    def of(tenant: str, name: str, clean: bool = True) -> wire.Client:
        properties = {} if clean or oasis != wire.V5 else {"properties": {"session_expiry_interval": 1000}}
        return connect(oasis, client_id=name, to=running, tenant=tenant, clean=clean, **properties)

    first, second = of("acme", "first", clean=False), of("acme", "second")
    assert first.subscribe("a", "$share/s/a").reasons == [0, 0]
    assert second.subscribe("a", "b", "a").reasons == [0, refusal, 0]
    assert of("globex", "first").subscribe("a", "b", "c", "d").reasons == [0] * 4
    assert quotas(running, "acme")["max_tenant_subscriptions"] == {"limit": 3, "used": 3, "refused": 1, "throttled_seconds": None}
    assert running.metric(r'barid_quota_refused_total{tenant="acme",quota="max_tenant_subscriptions"}') == 1
    second.unsubscribe("a")
    assert second.subscribe("b").reasons == [0]
    first.disconnect()
    second.disconnect()
    running.restart()
    second = of("acme", "second")
    assert second.subscribe("b", "c").reasons == [0, refusal], "two are those of the first session"
    first = of("acme", "first")
    assert second.subscribe("c", "d", "e").reasons == [0, 0, refusal], "its session has ended"
    running.reload(limits.replace("3", "4"))
    assert first.subscribe("e", "f").reasons == [0, refusal]


# ------------------------------------------------------------------------------------------------------ users


def test_a_user_at_its_limit_leaves_others_alone(broker_with, connect, ear, flood):
    """Users with passwords: the rates of one are shared by all its connections."""
    logins = "".join(hashed("secret", f"acme/{name}") + "\n" for name in ("ada", "bob", "ear"))
    running = broker_with(f"{logins}[tenants.acme.limits]\nuser_publish_rate = 500\n")

    def of(user: str) -> wire.Client:
        return connect(to=running, username=f"acme/{user}", password=b"secret", timeout=30)

    listener, quiet = ear(of("ear"), "loud"), ear(of("ear"), "quiet")
    for _ in range(3):
        flood(of("ada"), "loud")
    time.sleep(1.5)
    bob = of("bob")
    started = time.monotonic()
    for _ in range(100):
        bob.publish("quiet", b"x", qos=1)
    assert time.monotonic() - started < 2
    until(lambda: len(quiet) == 100)
    assert listener.rate() == near(500)
    flood(bob, "loud")
    time.sleep(1.5)
    assert listener.rate() == near(1_000)
    assert quotas(running, "acme")["user_publish_rate"]["throttled_seconds"] > 3


def test_bytes_of_a_user(broker_with, connect, ear, flood, topic):
    running = broker_with("[limits]\nuser_inbound_bytes_rate = 200000\nuser_outbound_bytes_rate = 100000\n")
    listener = ear(connect(to=running, username="ear"), topic)
    flood(connect(to=running, username="ada"), topic, size=2_000)
    time.sleep(1.5)
    assert listener.rate(of_bytes=True) == near(100_000)
    received = running.metric(r'^barid_bytes_total\{tenant="default",direction="in",type="publish"\}')
    time.sleep(2)
    more = running.metric(r'^barid_bytes_total\{tenant="default",direction="in",type="publish"\}') - received
    assert more / 2 == pytest.approx(200_000, rel=0.15)


# ------------------------------------------------------------------------------------- who evades, and who pays


def rush(broker, packets: bytes, seconds: float = 3, patience: float = 0.02) -> int:
    """Connects, sends these packets in one piece and closes, again and again. Returns how many connections it were."""
    ends, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        with socket.create_connection(broker.address) as stream:
            stream.settimeout(patience)
            try:
                stream.sendall(packets)
                stream.recv(64)
            except OSError:
                pass
        count += 1
    return count


def waits_for_acknowledgement(client: wire.Client) -> float:
    started = time.monotonic()
    client.publish("quiet", b"x", qos=1)
    return time.monotonic() - started


def hashed_for_device(password: str) -> str:
    """A hash that costs little to verify."""
    done = barid("passwd", "--stdin", "--cost", "device", input=password)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("has_login", [False, True], ids=["anybody", "login"])
def test_what_is_sent_with_connect_comes_at_the_rate(broker_with, connect, ear, has_login):
    """Though a client that connects again and again sends it all at once."""
    logins = "".join(f'[[users]]\nname = "x/{name}"\npassword = "{hashed_for_device("secret")}"\n' for name in ("eve", "ear"))
    running = broker_with(f"{logins if has_login else ''}[tenants.x.limits]\n"
                          "inbound_bytes_rate = 20000\nuser_inbound_bytes_rate = 10000\n")
    password = b"secret" if has_login else None
    listener = ear(connect(to=running, username="x/ear", password=password), "t")
    packets = wire.connect("e", username="x/eve", password=password) + wire.publish("t", bytes(1_000)) * 60
    connections = rush(running, packets, patience=0.05)
    assert connections > 10
    assert 0 < sum(listener.sizes) < 60_000, "a burst and three seconds are 40,000 bytes"


def test_what_is_sent_with_connect_is_not_lost(broker_with, connect, dial, ear, topic):
    """It comes in order, at the rate, and before what is sent later; nor does Keep Alive end the connection."""
    running = broker_with("[limits]\ninbound_bytes_rate = 20000\n")
    listener = ear(connect(to=running), topic)
    client = dial(wire.V5, running)
    messages = [wire.publish(topic, b"%08d" % number + bytes(992)) for number in range(60)]
    started = time.monotonic()
    client.send(b"".join([wire.connect("c", keep_alive=1), *messages]), wire.publish(topic, b"%08d" % 60))
    client.expect(wire.CONNACK, reason=0)
    until(lambda: len(listener) == 61)
    assert numbers(listener.payloads) == list(range(61))
    assert 1.9 < time.monotonic() - started < 3.5, "42,000 bytes behind the burst"
    assert listener.times[40] - listener.times[20] > 0.7, "not all at the end"
    assert running.metric(r'^barid_quota_throttled_seconds_total\{.*quota="inbound_bytes_rate"\}') > 1.5


def test_large_connects_of_a_user_leave_its_tenant_alone(broker_with, connect, dial):
    running = broker_with("[limits]\ninbound_bytes_rate = 100000\nuser_inbound_bytes_rate = 20000\n")
    bob = connect(to=running, username="bob")
    large = wire.connect("e", username="eve", will=wire.Will("nobody", bytes(60_000)))
    waits = []
    for _ in range(6):
        rush(running, large, 0.5)
        waits.append(waits_for_acknowledgement(bob))
    assert max(waits) < 0.5, waits
    for version in (wire.V311, wire.V5):
        rush(running, large, 0.1)
        refused(running, dial, version, RATE, "user_inbound_bytes_rate", "eve")
    assert quotas(running)["user_inbound_bytes_rate"]["refused"] > 10
    assert "inbound_bytes_rate" not in quotas(running) or quotas(running)["inbound_bytes_rate"]["refused"] == 0


def test_large_connects_bring_a_tenant_into_no_long_debt(broker_with, connect, dial):
    """Without a quota of users they cost its other clients a second and one of them, not hours."""
    running = broker_with("[limits]\ninbound_bytes_rate = 100000\n")
    bob = connect(to=running, username="bob")
    rush(running, wire.connect("e", username="eve", will=wire.Will("nobody", bytes(60_000))), 2)
    refused(running, dial, wire.V5, RATE, "inbound_bytes_rate", "eve")
    assert waits_for_acknowledgement(bob) < 2.5
    assert quotas(running)["inbound_bytes_rate"]["refused"] > 10


def test_pings_of_a_user_leave_its_tenant_alone(broker_with, connect):
    """A client whose answers exceed its quota is not read from, so it cannot cause more."""
    running = broker_with("[limits]\noutbound_bytes_rate = 100000\nuser_outbound_bytes_rate = 10000\n")
    bob, ada = connect(to=running, username="bob"), connect(to=running, username="ada")
    bob.subscribe("t")
    eves = [connect(to=running, username="eve") for _ in range(3)]
    floods = [Flood(eve, [wire.pingreq() * 20_000] * 1_000) for eve in eves]
    answered, waits, started = 0, [], time.monotonic()
    while time.monotonic() - started < 3:
        for eve in eves:
            try:
                answered += len(eve.stream.recv(1 << 16))
            except TimeoutError:
                pass
        sent = time.monotonic()
        ada.publish("t", b"x")
        bob.receive(b"x")
        waits.append(time.monotonic() - sent)
    for flood in floods:
        flood.stop()
    assert 20_000 < answered < 60_000, "a burst, a second of debt and three seconds are 50,000 bytes"
    assert max(waits) < 0.5, waits
    assert quotas(running)["user_outbound_bytes_rate"]["throttled_seconds"] > 2


def test_a_client_that_waits_for_its_answers_gets_them(broker_with, connect):
    """All of them, and Keep Alive does not end its connection."""
    running = broker_with("[limits]\noutbound_bytes_rate = 1000\n")
    client = connect(to=running, keep_alive=1)
    started = time.monotonic()
    client.send(*[wire.publish("t", b"x", qos=1, packet_id=number + 1) for number in range(900)], wire.pingreq())
    answers = [client.recv() for _ in range(901)]
    assert [answer.packet_id for answer in answers if answer.kind == wire.PUBACK] == list(range(1, 901))
    assert wire.PINGRESP in (answer.kind for answer in answers)
    assert 1.2 < time.monotonic() - started < 3, "3,600 bytes, of which 2,000 are sent at once"


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_wills_come_at_the_rate(broker_with, connect, dial, ear, version):
    """A client that connects with a will and goes away, again and again, sends messages."""
    running = broker_with("[limits]\npublish_rate = 10\nuser_publish_rate = 5\n")
    listener = ear(connect(to=running, username="ear"), "t")
    rush(running, wire.connect("e", version, username="eve", will=wire.Will("t", b"x")), 3)
    time.sleep(0.3)
    assert 5 <= len(listener) <= 27, "a burst, a second of debt, and three seconds"
    assert quotas(running)["user_publish_rate"]["refused"] > 10
    for _ in range(5):
        connack = dial(version, running).connect("f", username="eve", will=wire.Will("t", b"x"))
        if connack.reason != 0:
            break
    assert connack.reason == (RATE if version == wire.V5 else 3)
    if version == wire.V5:
        assert "user_publish_rate" in connack.properties["reason_string"]
    connect(version, to=running, username="eve")
    connect(version, to=running, username="bob", will=wire.Will("t", b"x"))


def test_at_the_limit_of_a_tenant_clients_connect(broker_with, connect, flood, topic):
    """The places of clients that wait are no debt that refuses others, with a will or without one."""
    running = broker_with("[limits]\npublish_rate = 1000\ninbound_bytes_rate = 50000\noutbound_bytes_rate = 50000\n")
    for _ in range(20):
        flood(connect(to=running), topic)
        connect(to=running).subscribe(topic)
    time.sleep(1.5)
    for _ in range(20):
        client = connect(to=running, will=wire.Will("w", b"x"))
        started = time.monotonic()
        client.publish("quiet", b"x", qos=1)
        assert time.monotonic() - started < 2


# ----------------------------------------------------------------------------------------------------- reload


def test_a_reload_changes_rates_of_connected_clients(broker_with, connect, ear, flood, topic):
    """Within a second, in both directions, and back to none."""
    running = broker_with("[limits]\npublish_rate = 200\n")
    listener = ear(connect(to=running), topic)
    publisher = connect(to=running)
    flood(publisher, topic)
    time.sleep(1.5)
    assert listener.rate(2) == near(200)
    running.reload("[limits]\npublish_rate = 2000\n")
    time.sleep(1)
    assert listener.rate() == near(2_000)
    running.reload("[limits]\npublish_rate = 100\n")
    time.sleep(1)
    assert listener.rate() == near(100)
    running.reload("[limits]\npublish_rate = 0\noutbound_bytes_rate = 20000\n")
    time.sleep(2)
    assert listener.rate(of_bytes=True) == near(20_000)
    running.reload("")
    time.sleep(1)
    assert listener.rate(1) > 3_000


def test_a_reload_wakes_who_waits(broker_with, connect, topic):
    """A wait of a minute ends when the quota does."""
    running = broker_with("[limits]\ninbound_bytes_rate = 1000\noutbound_bytes_rate = 1000\n")
    listener, publisher = connect(to=running), connect(to=running)
    listener.subscribe(topic)
    publisher.send(wire.publish(topic, bytes(50_000)), wire.publish(topic, b"next"), wire.pingreq())
    publisher.expect_nothing(2)
    running.reload("")
    publisher.expect(wire.PINGRESP, timeout=2)
    listener.receive(bytes(50_000), timeout=2)
    listener.receive(b"next", timeout=2)


def test_limits_of_users_that_come_with_a_reload_count_who_is_connected(broker_with, connect, dial, ear, flood, topic):
    running = broker_with("")
    listener = ear(connect(to=running, username="ear"), topic)
    publisher = connect(to=running, username="ada")
    flood(publisher, topic)
    running.reload("[limits]\nuser_publish_rate = 300\nmax_user_connections = 1\n")
    time.sleep(1.5)
    assert listener.rate() == near(300)
    refused(running, dial, wire.V5, QUOTA, "max_user_connections", "ada")


def test_a_reload_gives_no_new_burst(broker_with, connect, ear, flood, topic):
    running = broker_with("[limits]\npublish_rate = 500\n")
    listener = ear(connect(to=running), topic)
    flood(connect(to=running), topic)
    time.sleep(1.5)
    before, started = len(listener), time.monotonic()
    for rate in (501, 502, 503, 504, 500):
        running.reload(f"[limits]\npublish_rate = {rate}\n")
        time.sleep(0.4)
    assert (len(listener) - before) / (time.monotonic() - started) == near(500)


# --------------------------------------------------------------------------------------------------- counting


def test_each_refusal_is_counted_by_its_quota(broker_with, connect):
    running = broker_with("[limits]\nmax_subscriptions = 1\nmax_retained_messages = 1\nmax_entities = 0\nmax_pattern_levels = 1\n")
    client = connect(to=running)
    assert client.subscribe("a", "b", "c").reasons == [0, QUOTA, QUOTA]
    client.unsubscribe("a")
    assert client.subscribe("a/+/b").reasons == [QUOTA]
    client.publish("r/1", b"x", qos=1, retain=True)
    assert client.publish("r/2", b"x", qos=1, retain=True).reason == QUOTA
    counted = {name: state["refused"] for name, state in quotas(running).items()}
    assert counted == {"max_subscriptions": 2, "max_pattern_levels": 1, "max_retained_messages": 1}
    for name, count in counted.items():
        assert running.metric(rf'^barid_quota_refused_total\{{tenant="default",quota="{name}"\}}') == count


def test_queues_that_refuse_are_counted(broker_with, connect, topic):
    running = broker_with('[limits]\nmax_queued_messages = 2\nqueue_overflow = "reject"\n')
    away = connect(to=running, clean=False, properties={"session_expiry_interval": 600})
    away.subscribe(topic, qos=1)
    away.disconnect()
    publisher = connect(to=running)
    assert [publisher.publish(topic, b"x", qos=1).reason for _ in range(4)] == [0, 0, QUOTA, QUOTA]
    assert quotas(running)["max_queued_messages"]["refused"] == 2


def test_without_quotas_nothing_is_counted(broker_with, connect, topic):
    running = broker_with("")
    client = connect(to=running)
    client.publish(topic, b"x", qos=1)
    assert quotas(running) == {}
    assert "barid_quota_refused_total{" not in running.http("/metrics")[1]


# ------------------------------------------------------------------------------------------------------ neighbours

def wake_ups(broker, thread: str) -> int:
    """How often a thread of the broker has waited for something so far."""
    for task in Path(f"/proc/{broker._process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == thread:
            [line] = [line for line in (task / "status").read_text().splitlines() if line.startswith("voluntary")]
            return int(line.split()[1])
    raise AssertionError(f"no thread {thread}")


@pytest.mark.parametrize("rate, moves", [(50, True), (0, False)])
def test_who_is_slowed_down_has_a_thread_apart_from_its_neighbours(broker_with, dial, rate, moves):
    """While there is little to do, all others are on the first thread."""
    running = broker_with(f"workers = 2\n[tenants.flood.limits]\npublish_rate = {rate}\n")
    flooding = dial(to=running)
    flooding.connect("f", username="flood/f")
    before = wake_ups(running, "barid-io-1")
    began = time.monotonic()
    while time.monotonic() < began + 2:
        flooding.publish("a", b"x", 1)
    assert (wake_ups(running, "barid-io-1") - before > 20) == moves


@pytest.mark.parametrize("resets", [False, True])
def test_clients_that_are_gone_do_not_stay_while_their_answers_would_wait(broker_with, dial, resets):
    """Their connections would take the descriptors of all tenants."""
    running = broker_with("[tenants.kw.limits]\noutbound_bytes_rate = 1000\n")
    greedy = dial(to=running)
    greedy.connect("greedy", username="kw/a")
    greedy.subscribe("a", qos=0)
    greedy.send(wire.publish("a", b"x" * 200_000))

    def connections() -> int:
        status, body = running.http("/v1/tenants/kw")
        return json.loads(body)["connections"] if status == 200 else 0

    until(lambda: connections() == 1)
    time.sleep(0.5)
    for number in range(50):
        stream = socket.create_connection(("127.0.0.1", running.port))
        if resets:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        stream.sendall(wire.connect(f"c{number}", username="kw/b") + wire.subscribe(1, ("b", 0)))
        time.sleep(0.01)
        stream.close()
    until(lambda: connections() <= 1, 5)
