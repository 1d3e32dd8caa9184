"""What belongs to one user has limits: sessions, subscriptions, waiting messages and retained messages. They hold over
sessions and connections, after a restart, and change while clients are connected."""

from __future__ import annotations

import json
import re
import time

import pytest

import wire
from broker import Broker, until
from running import barid, hashed
from wire import V5, V311

QUOTA = 0x97
UNHEARD = 0x10
"""Success: no subscription matches (MQTT 5 §3.4.2.1)."""
STAYS = {"clean": False, "properties": {"session_expiry_interval": 600}}


@pytest.fixture(scope="module")
def password() -> str:
    return hashed("secret")


class Users:
    """A broker with the users `acme/ada`, whose limits change, and `acme/bob`, who has none of his own."""

    def __init__(self, broker: Broker, password: str, limits: str):
        self.broker, self._password, self._limits, self._own = broker, password, limits, {}
        self.limit()

    def limit(self, **own: int | None) -> None:
        """Changes limits that ada has of her own; None: she has it no more."""
        self._own = {key: value for key, value in (self._own | own).items() if value is not None}
        own = ", ".join(f"{key} = {value}" for key, value in self._own.items())
        self.broker.configure(f"{self._limits}\n" + "".join(
            f'[[users]]\nname = "acme/{name}"\npassword = "{self._password}"\n{limits}'
            for name, limits in (("ada", f"limits = {{ {own} }}\n"), ("bob", ""))))

    def change(self, limits: str) -> None:
        """Changes the limits of the tenant."""
        self._limits = limits
        self.limit()

    def usage(self, user: str = "acme/ada") -> dict[str, dict]:
        done = barid("user", "usage", user, "--json", "--admin", f"127.0.0.1:{self.broker.admin_port}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["quotas"]

    def used(self, quota: str, user: str = "acme/ada") -> int:
        return self.usage(user)[quota]["used"]

    def refused(self, quota: str) -> float:
        return self.broker.metric(rf'^barid_quota_refused_total\{{tenant="acme",quota="{quota}"\}}')

    def dropped(self, reason: str) -> float:
        return self.broker.metric(rf'^barid_dropped_messages_total\{{tenant="acme",reason="{reason}"\}}')


@pytest.fixture
def users(broker_with, password):
    return lambda limits="[limits]\n": Users(broker_with(limits), password, limits)


@pytest.fixture
def log_in(dial):
    """Connects a user, who keeps the session; `reason`: how the broker answers."""
    def connect(users: Users, name: str, client_id: str, version: int = V5, reason: int = 0, **options) -> wire.Client:
        client = dial(version, users.broker)
        kept = STAYS if version == V5 else {"clean": False}
        connack = client.connect(client_id, username=f"acme/{name}", password=b"secret", **(kept | options))
        assert connack.reason == reason, connack
        return client

    return connect


def test_sessions(users, log_in, dial):
    """With and without a client, also after a crash."""
    users = users("[limits]\nmax_user_sessions = 2\n")
    log_in(users, "ada", "a1").disconnect()
    log_in(users, "ada", "a2")
    connack = dial(V5, users.broker).connect("a3", username="acme/ada", password=b"secret")
    assert connack.reason == QUOTA and "max_user_sessions" in connack.properties["reason_string"]
    log_in(users, "ada", "a4", V311, reason=3)
    log_in(users, "ada", "a1")
    log_in(users, "ada", "a2", clean=True), log_in(users, "bob", "b1")
    assert users.refused("max_user_sessions") == 2
    users.broker.kill9()
    users.broker.start()
    log_in(users, "ada", "a3", reason=QUOTA)
    users.limit(max_sessions=3)
    log_in(users, "ada", "a3")
    log_in(users, "ada", "a4", reason=QUOTA)
    users.limit(max_sessions=0)
    for client in "a4", "a5":
        log_in(users, "ada", client)
    users.limit(max_sessions=None)
    log_in(users, "ada", "a6", reason=QUOTA)
    # Sessions that end make room.
    for client in ("a2", "a3", "a4", "a5"):
        log_in(users, "ada", client, clean=True, properties={}).disconnect()
    until(lambda: users.used("max_user_sessions") == 1)
    log_in(users, "ada", "a6")


def test_subscriptions(users, log_in, topic):
    """Of all sessions together."""
    users = users("[limits]\nmax_user_subscriptions = 3\n")
    one, two, bob = log_in(users, "ada", "a1"), log_in(users, "ada", "a2"), log_in(users, "bob", "b1")
    assert one.subscribe(f"{topic}/1", f"{topic}/2").reasons == [0, 0]
    assert two.subscribe(f"{topic}/1", f"{topic}/2", "$share/g/x").reasons == [0, QUOTA, QUOTA]
    assert one.subscribe(f"{topic}/1").reasons == [0], "it is there"
    assert bob.subscribe(*(f"{topic}/{n}" for n in range(3))).reasons == [0] * 3
    assert users.refused("max_user_subscriptions") == 2
    one.disconnect()
    users.broker.restart()
    two = log_in(users, "ada", "a2")
    assert two.subscribe(f"{topic}/2").reasons == [QUOTA]
    two.unsubscribe(f"{topic}/1")
    assert two.subscribe(f"{topic}/2").reasons == [0]
    users.limit(max_subscriptions=5)
    until(lambda: two.subscribe(f"{topic}/3").reasons == [0])
    assert two.subscribe(f"{topic}/4", f"{topic}/5").reasons == [0, QUOTA]
    log_in(users, "ada", "a1", clean=True, properties={}).disconnect()
    until(lambda: users.used("max_user_subscriptions") == 3)
    assert two.subscribe(f"{topic}/5", f"{topic}/6").reasons == [0, 0]


def absent(log_in, users, name: str, topic: str, *clients: str) -> None:
    """Sessions whose clients have gone."""
    for client_id in clients:
        client = log_in(users, name, client_id)
        client.subscribe(topic, qos=1)
        client.disconnect()


def test_waiting_messages_are_dropped(users, log_in, topic):
    """Those of all sessions together, and those of another user are not."""
    users = users("[limits]\nmax_user_queued_bytes = 20000\n")
    absent(log_in, users, "ada", topic, "a1", "a2")
    absent(log_in, users, "bob", topic, "b1")
    bob = log_in(users, "bob", "b2")
    for _ in range(15):
        assert bob.publish(topic, bytes(1_000), 1).reason == 0
    assert 15_000 < users.used("max_user_queued_bytes") <= 20_000
    assert users.used("max_user_queued_bytes", "acme/bob") > 15_000
    dropped = users.dropped("user_queue")
    assert 10 < dropped < 20 and users.refused("max_user_queued_bytes") == dropped
    shown = barid("why", "--tenant", "acme", "--client", "a1", "--admin", f"127.0.0.1:{users.broker.admin_port}").stdout
    assert "max_user_queued_bytes" in shown, shown
    client = log_in(users, "bob", "b1")
    assert len(client.receive_all(count=15)) == 15
    for client_id in ("a1", "a2"):
        taken = log_in(users, "ada", client_id).receive_all()
        for message in taken:
            assert len(message.payload) == 1_000
    until(lambda: users.used("max_user_queued_bytes") == 0)


def test_waiting_messages_of_an_own_limit_survive_a_restart(users, log_in, topic):
    """The broker does not know of the own limit before the user logs in, and drops nothing that it would allow."""
    users = users("[limits]\nmax_user_queued_bytes = 5000\n")
    users.limit(max_queued_bytes=50_000)
    absent(log_in, users, "ada", topic, "a1")
    bob = log_in(users, "bob", "b1")
    for _ in range(10):
        bob.publish(topic, bytes(1_000), 1)
    users.broker.restart()
    assert users.usage()["max_user_queued_bytes"]["limit"] is None
    bob = log_in(users, "bob", "b1")
    for _ in range(10):
        bob.publish(topic, bytes(1_000), 1)
    assert users.dropped("user_queue") == 0
    assert len(log_in(users, "ada", "a1").receive_all(count=20)) == 20
    assert users.usage()["max_user_queued_bytes"]["limit"] == 50_000


def test_a_publisher_is_refused_while_the_queues_of_a_user_are_full(users, log_in, topic):
    users = users('[limits]\nmax_user_queued_bytes = 20000\nqueue_overflow = "reject"\n')
    absent(log_in, users, "ada", topic, "a1")
    absent(log_in, users, "ada", f"{topic}/other", "a2")
    bob = log_in(users, "bob", "b1")
    reasons = [bob.publish(f"{topic}/other", bytes(4_000), 1).reason for _ in range(6)]
    assert reasons[:3] == [0] * 3 and reasons[-1] == QUOTA
    assert bob.publish(topic, bytes(4_000), 1).reason == QUOTA, "the other session of the user has all"
    assert users.refused("max_user_queued_bytes") >= 2
    users.limit(max_queued_bytes=100_000)
    # Her limit counts from her next login on.
    log_in(users, "ada", "a3")
    until(lambda: bob.publish(topic, bytes(4_000), 1).reason == 0)


def test_a_user_at_its_limit_of_sessions_is_refused_at_the_connection_rate(users, log_in, dial):
    users = users("[limits]\nmax_user_sessions = 1\nuser_connect_rate = 5\n")
    log_in(users, "ada", "a1")
    started, reasons = time.monotonic(), []
    for number in range(20):
        connack = dial(V5, users.broker).connect(f"more{number}", username="acme/ada", password=b"secret")
        reasons.append(connack.reason)
    assert set(reasons) == {QUOTA, 0x9F} and time.monotonic() - started > 2, reasons


def acknowledged(client: wire.Client, seconds: float = 0.5) -> int:
    """Number of messages that are acknowledged until nothing comes for so long."""
    count = 0
    try:
        while True:
            client.expect(wire.PUBACK, timeout=seconds)
            count += 1
    except TimeoutError:
        return count


def test_a_publisher_waits_while_the_queues_of_a_user_are_full(users, log_in, topic):
    """Until one of her clients takes messages, or the limit changes."""
    users = users('[limits]\nmax_user_queued_bytes = 20000\nqueue_overflow = "block"\n')
    absent(log_in, users, "ada", topic, "a1")
    absent(log_in, users, "ada", f"{topic}/other", "a2")
    bob = log_in(users, "bob", "b1")
    for packet_id in range(1, 7):
        bob.send(wire.publish(f"{topic}/other", bytes(4_000), 1, packet_id))
    some = acknowledged(bob)
    assert some < 6
    carol = log_in(users, "bob", "b2")
    carol.send(wire.publish(topic, b"x", 1, 1))
    carol.expect_nothing()
    assert len(log_in(users, "ada", "a2").receive_all(count=6)) == 6
    carol.expect(wire.PUBACK)
    for _ in range(6 - some):
        bob.expect(wire.PUBACK)
    absent(log_in, users, "ada", f"{topic}/other", "a2")
    for packet_id in range(1, 7):
        bob.send(wire.publish(f"{topic}/other", bytes(4_000), 1, packet_id))
    some = acknowledged(bob)
    assert some < 6
    ada = log_in(users, "ada", "a3")
    users.limit(max_queued_bytes=0)
    for _ in range(6 - some):
        bob.expect(wire.PUBACK)
    ada.ping()


def test_a_publisher_that_does_not_wait_is_refused_at_twice_the_limit(users, log_in, topic):
    """With `block`, what is in flight finds room, and no more: the memory is bounded. Also for what the session and the
    tenant may have."""
    for limit in ("max_user_queued_bytes", "max_queued_bytes", "max_tenant_queued_bytes"):
        running = users(f'[limits]\n{limit} = 50000\nqueue_overflow = "block"\n')
        absent(log_in, running, "ada", topic, "a1")
        bob = log_in(running, "bob", "b1")
        for packet_id in range(1, 101):
            bob.send(wire.publish(topic, bytes(9_000), 1, packet_id))
        until(lambda: running.refused(limit) >= 88)
        assert 50_000 < running.used("max_user_queued_bytes") < 110_000
        # Acknowledgements keep their order: the refusals come behind those of the messages that wait.
        taken = len(log_in(running, "ada", "a1").receive_all())
        reasons = [bob.expect(wire.PUBACK).reason for _ in range(100)]
        assert 5 < taken <= 12 and reasons == [0] * taken + [QUOTA] * (100 - taken)


def test_room_that_comes_with_a_login_wakes_publishers(users, log_in, topic):
    users = users('[limits]\nmax_user_queued_bytes = 10000\nqueue_overflow = "block"\n')
    absent(log_in, users, "ada", topic, "a1")
    bob = log_in(users, "bob", "b1")
    bob.send(wire.publish(topic, bytes(12_000), 1, 1))
    bob.expect_nothing()
    users.limit(max_queued_bytes=100_000)
    bob.expect_nothing()
    log_in(users, "ada", "a2")
    bob.expect(wire.PUBACK)
    log_in(users, "ada", "a1").receive_all(count=1)
    # A reload with another limit for every user wakes them as well.
    users.limit(max_queued_bytes=None)
    absent(log_in, users, "ada", topic, "a2")
    bob.send(wire.publish(topic, bytes(12_000), 1, 2))
    bob.expect_nothing()
    users.change("[limits]\nmax_user_queued_bytes = 100000\n")
    bob.expect(wire.PUBACK)


def test_retained_messages(users, log_in, topic):
    """A retained message belongs to the user who has set it last, also after a crash."""
    users = users("[limits]\nmax_user_retained_messages = 2\n")
    ada, bob = log_in(users, "ada", "a1"), log_in(users, "bob", "b1")

    def retain(client: wire.Client, name: str, payload: bytes = b"x", qos: int = 1) -> int:
        told = client.publish(f"{topic}/{name}", payload, qos, retain=True)
        return 0 if told is None or told.reason == UNHEARD else told.reason

    assert [retain(ada, name) for name in "abc"] == [0, 0, QUOTA]
    assert retain(ada, "a", b"again") == 0
    assert retain(bob, "b") == 0, "it is his now"
    assert [retain(ada, name) for name in "cd"] == [0, QUOTA]
    retain(ada, "d", qos=0)
    until(lambda: users.dropped("user_retained_messages") == 3)
    assert users.refused("max_user_retained_messages") == 3
    assert (users.used("max_user_retained_messages"), users.used("max_user_retained_messages", "acme/bob")) == (2, 1)
    users.broker.kill9()
    users.broker.start()
    ada, bob = log_in(users, "ada", "a1"), log_in(users, "bob", "b1")
    assert (users.used("max_user_retained_messages"), users.used("max_user_retained_messages", "acme/bob")) == (2, 1)
    assert retain(ada, "d") == QUOTA
    assert [retain(ada, "c", b""), retain(ada, "d")] == [0, 0], "a message that is removed makes room"
    found = bob.subscribe(f"{topic}/#")
    assert found.reasons == [0]
    assert sorted(message.topic[-1] for message in bob.receive_all(count=3)) == ["a", "b", "d"]
    users.limit(max_retained_messages=3)
    until(lambda: retain(ada, "e") == 0)
    assert retain(ada, "f") == QUOTA


def test_bytes_of_retained_messages(users, log_in, topic):
    users = users("[limits]\nmax_user_retained_bytes = 4000\n")
    ada, bob = log_in(users, "ada", "a1"), log_in(users, "bob", "b1")
    publish = lambda client, name, size: client.publish(f"{topic}/{name}", bytes(size), 1, retain=True).reason
    assert [publish(ada, "a", 2_000), publish(ada, "b", 2_000)] == [UNHEARD, QUOTA]
    assert [publish(ada, "a", 4_000), publish(ada, "a", 1_000), publish(ada, "b", 1_000)] == [QUOTA, UNHEARD, UNHEARD]
    assert publish(bob, "c", 3_000) == UNHEARD
    assert 2_000 < users.used("max_user_retained_bytes") < 4_000
    assert users.dropped("user_retained_bytes") == users.refused("max_user_retained_bytes") == 2


def test_a_will_counts_for_its_user(users, log_in, topic):
    users = users("[limits]\nmax_user_retained_messages = 1\n")
    ada = log_in(users, "ada", "a1")
    ada.publish(f"{topic}/a", b"x", 1, retain=True)
    gone = log_in(users, "ada", "a2", will=wire.Will(f"{topic}/will", b"gone", 1, retain=True))
    watcher = log_in(users, "bob", "b1")
    watcher.subscribe(f"{topic}/will", qos=1)
    gone.drop()
    assert watcher.receive().payload == b"gone"
    until(lambda: users.dropped("user_retained_messages") == 1)
    assert users.used("max_user_retained_messages") == 1


def test_what_belongs_to_a_user_is_shown(users, log_in, topic):
    users = users("[limits]\nmax_user_subscriptions = 7\n")
    users.limit(max_sessions=5)
    admin = ("--admin", f"127.0.0.1:{users.broker.admin_port}")
    assert barid("user", "usage", "acme/ada", *admin).stdout == "nothing: no client of its tenant has connected\n"
    client = log_in(users, "ada", "a1")
    client.subscribe(topic)
    client.publish(f"{topic}/a", b"x", 1, retain=True)
    shown = barid("user", "usage", "acme/ada", *admin).stdout
    assert re.search(r"^QUOTA +USED +LIMIT$", shown, re.MULTILINE)
    for quota, used, limit in (("sessions", 1, 5), ("subscriptions", 1, 7), ("retained_messages", 1, "-"), ("state_keys", 0, "-")):
        assert re.search(rf"^max_user_{quota} +{used} +{limit}$", shown, re.MULTILINE), shown
    other = barid("user", "usage", "acme/nobody", *admin)
    assert other.stdout == "nothing: no client has logged in with this name since the broker started, and nothing belongs to it\n"
    wrong = barid("user", "usage", "a b/c", *admin)
    assert wrong.returncode == 2 and "cannot contain" in wrong.stderr


def test_an_operator_is_warned_of_a_user_of_the_same_name(users):
    """The file is asked first, so what is changed in the store changes nothing."""
    users = users()
    admin = ("--admin", f"127.0.0.1:{users.broker.admin_port}")
    for command in (("add", "acme/ada", "--password-file", "-", "--cost", "device"), ("set", "acme/ada", "--note", "x"),
                    ("disable", "acme/ada"), ("enable", "acme/ada")):
        done = barid("user", *command, *admin, input="secret")
        assert done.returncode == 0 and "warning: `file` has a user of this name, too," in done.stderr, done
    done = barid("user", "add", "acme/carol", "--password-file", "-", *admin, input="secret")
    assert done.returncode == 0 and "warning" not in done.stderr, done


def test_a_changed_limit_applies_to_what_waits_for_absent_clients(broker_with, dial, topic):
    """Of a user in the broker's own store, at once: nobody has to log in."""
    running = broker_with("")
    admin = ("--admin", f"127.0.0.1:{running.admin_port}")

    def user(*arguments) -> None:
        done = barid("user", *arguments, *admin, input="secret")
        assert done.returncode == 0, done.stderr

    def client(name: str, client_id: str) -> wire.Client:
        connected = dial(V5, running)
        assert connected.connect(client_id, username=f"acme/{name}", password=b"secret", **STAYS).reason == 0
        return connected

    def dropped() -> float:
        return running.metric(r'^barid_dropped_messages_total\{tenant="acme",reason="user_queue"\}')

    for name, *limit in (("ada", "--limit", "max_queued_bytes=2000"), ("bob",)):
        user("add", f"acme/{name}", "--password-file", "-", "--cost", "device", *limit)
    ada, bob = client("ada", "a1"), client("bob", "b1")
    ada.subscribe(topic, qos=1)
    ada.disconnect()
    for size, limit, drops in ((1_000, None, 0), (1_000, None, 1), (1_000, "100000", 1), (50_000, None, 1), (1_000, "500", 2),
                               (90_000, "default", 2)):
        if limit:
            user("set", "acme/ada", "--limit", f"max_queued_bytes={limit}")
        bob.publish(topic, bytes(size), 1)
        assert dropped() == drops, (size, limit)


@pytest.mark.parametrize(("limit", "says"), [
    ("publish_rate=-1", "`publish_rate`: invalid value: integer `-1`, expected a whole number of 0 or more"),
    ("max_queued_bytes=1MB", "`max_queued_bytes`: invalid type: string \"1MB\""),
    ("max_user_sessions=1", "`max_user_sessions` is a limit of all users of a tenant; for one user it is `max_sessions`"),
    ("max_sesions=default", "unknown field `max_sesions`"), ("max_sesions=1", "unknown field `max_sesions`"),
])
def test_what_is_wrong_with_a_limit_is_said(ours, unique, limit, says):
    name, admin = f"{unique('acme')}/ada", ("--admin", f"127.0.0.1:{ours.admin_port}")
    done = barid("user", "add", name, "--password-file", "-", "--limit", limit, *admin, input="secret")
    assert done.returncode != 0 and says in done.stderr, done


def test_limits_in_a_store_that_nobody_asks_do_not_apply(users, log_in, topic):
    """The file alone decides on the user, who is in the store as well."""
    users = users()
    users.change('[auth]\nchain = ["file"]\n[limits]\n')
    users.limit(max_queued_bytes=50_000)
    absent(log_in, users, "ada", topic, "a1")
    admin = ("--admin", f"127.0.0.1:{users.broker.admin_port}")
    done = barid("user", "add", "acme/ada", "--password-file", "-", "--limit", "max_queued_bytes=10", *admin, input="secret")
    assert done.returncode == 0 and "nobody asks for this user" in done.stderr, done
    assert users.usage()["max_user_queued_bytes"]["limit"] == 50_000
