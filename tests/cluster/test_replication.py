"""What every broker of a cluster has: users, settings of tenants, bans and tokens, and retained messages. They are changed at
any broker, and the others follow, also those that were away meanwhile."""

from __future__ import annotations

import json
import time
import uuid

import pytest

import wire
from broker import until
from brokers import Cluster, Member

# Within this time, a change is in force at all brokers that can be reached.
SOON = 1.0


def barid(member: Member, *words: str, password: str | None = None) -> str:
    """Runs a command for a broker. It must succeed."""
    done = member.run(*words, input=password)
    assert done.returncode == 0, done.stderr
    return done.stdout


def add_user(member: Member, name: str, *options: str, password: str = "secret") -> None:
    barid(member, "user", "add", name, "--password-file", "-", "--cost", "device", *options, password=password)


def soon(condition) -> None:
    until(condition, SOON)


def are_same(cluster) -> bool:
    """Returns whether all brokers found no difference when they last compared what they have."""
    return all(other["replicas"]["are_same"] for member in cluster for other in member.cluster["members"] if other["state"] == "up")


def may_log_in(member: Member, user: str, password: bytes = b"secret") -> bool:
    one = wire.Client(member.address)
    one.send(wire.connect(uuid.uuid4().hex[:20], username=user, password=password))
    try:
        return one.expect(wire.CONNACK).reason == 0
    finally:
        one.drop()


def retained(client, member: Member, filter_: str, seconds: float = 0.25) -> dict[str, bytes]:
    """Returns the retained messages that a new client of a broker gets."""
    one = client(member)
    one.subscribe(filter_, qos=1)
    found = {message.topic: message.payload for message in one.receive_all(seconds)}
    one.disconnect()
    return found


def set_retained(client, member: Member, messages: dict[str, bytes], **options) -> None:
    one = client(member)
    for topic, payload in messages.items():
        one.publish(topic, payload, qos=1, retain=True, **options)
    one.disconnect()


def name() -> str:
    return f"replicated/{uuid.uuid4().hex[:12]}"


class TestUsersTenantsBansAndTokens:
    @pytest.fixture(scope="class")
    def users(self):
        """Three brokers with users of the tenant `acme`, a client of one of which is allowed to do everything."""
        cluster = Cluster(3)
        add_user(cluster[0], "default/anybody")
        yield cluster
        cluster.close()

    def test_a_user_logs_in_everywhere(self, users):
        add_user(users[0], "acme/ada")
        soon(lambda: all(may_log_in(one, "acme/ada") for one in users))
        barid(users[1], "user", "disable", "acme/ada")
        soon(lambda: not any(may_log_in(one, "acme/ada") for one in users))
        barid(users[2], "user", "enable", "acme/ada")
        soon(lambda: all(may_log_in(one, "acme/ada") for one in users))

    def test_a_removed_user_is_disconnected_everywhere(self, users, client):
        add_user(users[1], "acme/bob")
        soon(lambda: all(may_log_in(one, "acme/bob") for one in users))
        connected = [client(one, username="acme/bob", password=b"secret") for one in users]
        barid(users[2], "user", "remove", "acme/bob", "--yes")
        for one in connected:
            one.expect_refused(0x87, 0x98, timeout=SOON)
        assert not any(may_log_in(one, "acme/bob") for one in users)

    def test_rights_change_everywhere(self, users, client):
        add_user(users[0], "acme/eve", "--deny", "publish:secret/#", "--allow", "publish,subscribe:#")
        soon(lambda: all(may_log_in(one, "acme/eve") for one in users))
        sender = client(users[2], username="acme/eve", password=b"secret")
        assert sender.publish("secret/x", b"", qos=1).reason == 0x87
        barid(users[1], "user", "set", "acme/eve", "--no-rules")
        soon(lambda: sender.publish("secret/x", b"", qos=1).reason != 0x87)

    def test_a_ban_is_in_force_everywhere(self, users, client):
        connected = [client(one, "banned", username="default/anybody", password=b"secret") for one in users[1:2]]
        barid(users[0], "ban", "add", "--client", "banned", "--tenant", "default")
        for one in connected:
            one.expect_refused(0x8A, 0x98, timeout=SOON)
        bans = json.loads(barid(users[2], "ban", "list", "--json"))
        assert len(bans["bans"]) == 1
        barid(users[2], "ban", "remove", bans["bans"][0]["id"])
        soon(lambda: not json.loads(barid(users[0], "ban", "list", "--json"))["bans"])

    def test_limits_of_a_tenant_are_in_force_everywhere(self, users):
        barid(users[0], "tenant", "set", "acme", "--limit", "max_qos=1")

        def most(member: Member) -> int:
            settings = json.loads(member.http("/v1/tenants/acme")[1]).get("settings") or {}
            return settings.get("limits", {}).get("max_qos")
        soon(lambda: [most(one) for one in users] == [1, 1, 1])
        barid(users[1], "tenant", "remove", "acme", "--yes")
        soon(lambda: [most(one) for one in users] == [None, None, None])

    def test_of_two_changes_the_later_one_wins(self, users):
        """Whatever broker they are made at, and also if each of them is on its way while the other is made."""
        add_user(users[0], "acme/race")
        soon(lambda: all(may_log_in(one, "acme/race") for one in users))
        for round_ in range(10):
            for index, one in enumerate(users):
                barid(one, "user", "set", "acme/race", "--note", f"{round_}.{index}")
        soon(lambda: {json.loads(barid(one, "user", "show", "acme/race", "--json"))["note"] for one in users} == {"9.2"})


class TestAwayBrokers:
    """A broker that was away follows when it is back."""

    def test_users(self, cluster_of):
        cluster = cluster_of(3)
        for user in ("acme/stays", "acme/goes", "acme/changes"):
            add_user(cluster[0], user)
        soon(lambda: all(may_log_in(one, "acme/changes") for one in cluster))
        cluster[2].kill9()
        barid(cluster[0], "user", "remove", "acme/goes", "--yes")
        barid(cluster[1], "user", "disable", "acme/changes")
        add_user(cluster[1], "acme/comes")
        cluster[2].start()
        # It takes clients only when it has heard what has changed.
        assert [may_log_in(cluster[2], f"acme/{user}") for user in ("stays", "goes", "changes", "comes")] == [True, False, False, True]
        cluster.settles()
        until(lambda: are_same(cluster))
        assert not may_log_in(cluster[0], "acme/goes"), "nobody brings it back"

    def test_the_last_user_who_was_removed_is_not_forgotten(self, cluster_of):
        """Without it, a new broker would be open to everybody."""
        cluster = cluster_of(2)
        add_user(cluster[0], "acme/last")
        barid(cluster[0], "user", "remove", "acme/last", "--yes")
        new = Member("b3", [cluster[0].link_port])
        try:
            assert not may_log_in(new, "acme/anybody", b"anything")
        finally:
            new.close()

    def test_brokers_that_change_alone_agree_later(self, cluster_of):
        cluster = cluster_of(2)
        add_user(cluster[0], "acme/ada")
        soon(lambda: may_log_in(cluster[1], "acme/ada"))
        cluster[1].stop()
        barid(cluster[0], "user", "set", "acme/ada", "--note", "first")
        cluster[0].stop()
        cluster[1].start()
        barid(cluster[1], "user", "set", "acme/ada", "--note", "second")
        add_user(cluster[1], "acme/bob")
        cluster[0].start()
        until(lambda: cluster[0].sees("b2") and cluster[1].sees("b1"))
        until(lambda: {json.loads(barid(one, "user", "show", "acme/ada", "--json"))["note"] for one in cluster} == {"second"})
        until(lambda: may_log_in(cluster[0], "acme/bob"))

    def test_retained_messages(self, cluster_of, client):
        cluster = cluster_of(3)
        top = name()
        set_retained(client, cluster[0], {f"{top}/{key}": b"1" for key in ("stays", "goes", "changes", "is-deleted")})
        soon(lambda: len(retained(client, cluster[2], f"{top}/#", 0.1)) == 4)
        cluster[2].kill9()
        until(lambda: cluster[0].states()["b3"] == "down")
        set_retained(client, cluster[1], {f"{top}/goes": b"", f"{top}/changes": b"2", f"{top}/comes": b"3"})
        barid(cluster[0], "retained", "delete", f"{top}/is-deleted", "--yes")
        cluster[2].start()
        expected = {f"{top}/stays": b"1", f"{top}/changes": b"2", f"{top}/comes": b"3"}
        assert retained(client, cluster[2], f"{top}/#") == expected
        cluster.settles()
        until(lambda: are_same(cluster))
        assert all(retained(client, one, f"{top}/#") == expected for one in cluster), "nobody brings it back"

    def test_a_broker_that_joins_gets_everything(self, cluster_of, client):
        cluster = cluster_of(1)
        top, count = name(), 20_000
        one = client(cluster[0])
        for number in range(count):
            one.send(wire.publish(f"{top}/{number % 100}/{number}", str(number).encode(), retain=True))
        one.ping()
        new = Member("b2", [cluster[0].link_port])
        try:
            assert new.metric("^barid_retained_messages") == cluster[0].metric("^barid_retained_messages") >= count
            assert len(retained(client, new, f"{top}/17/+", 0.5)) == count // 100
        finally:
            new.close()


class TestRetainedMessages:
    def test_a_subscriber_of_any_broker_gets_them(self, three, client):
        top = name()
        for index, one in enumerate(three):
            set_retained(client, one, {f"{top}/{index}": str(index).encode()})
        expected = {f"{top}/{index}": str(index).encode() for index in range(3)}
        soon(lambda: all(retained(client, one, f"{top}/+", 0.1) == expected for one in three))
        assert retained(client, three[2], f"{top}/0") == {f"{top}/0": b"0"}

    def test_who_subscribes_meanwhile_gets_it_once(self, three, client):
        """When its publisher has PUBACK, a message is on its way, and a subscriber elsewhere gets it: live or retained."""
        sender = client(three[0])
        for round_ in range(100):
            receiver, topic = client(three[1]), name()
            sender.send(wire.publish(topic, b"x", 1, sender.next_packet_id(), retain=True))
            receiver.subscribe(topic, qos=1)
            receiver.receive(b"x")
            receiver.expect_nothing(0.02)
            receiver.drop()

    def test_properties_and_the_user_come_along(self, three, client):
        topic = name()
        set_retained(client, three[0], {topic: b"x"}, properties={"content_type": "a/b", "user_property": [("k", "v")],
                                                                  "message_expiry_interval": 600})
        soon(lambda: retained(client, three[1], topic, 0.1))
        one = client(three[1])
        one.subscribe(topic)
        found = one.receive(b"x")
        assert found.retain and found.properties["content_type"] == "a/b" and found.properties["user_property"] == [("k", "v")]
        assert 590 <= found.properties["message_expiry_interval"] <= 600

    def test_a_message_expires_everywhere(self, three, client):
        topic = name()
        set_retained(client, three[0], {topic: b"x"}, properties={"message_expiry_interval": 2})
        soon(lambda: all(retained(client, one, topic, 0.1) for one in three))
        until(lambda: not any(retained(client, one, topic, 0.1) for one in three), 5)

    def test_a_removed_message_is_removed_everywhere(self, three, client):
        topic = name()
        set_retained(client, three[0], {topic: b"x"})
        soon(lambda: retained(client, three[2], topic, 0.1))
        set_retained(client, three[1], {topic: b""})
        soon(lambda: not any(retained(client, one, topic, 0.1) for one in three))
        set_retained(client, three[2], {topic: b"again"})
        soon(lambda: all(retained(client, one, topic, 0.1) == {topic: b"again"} for one in three))
        barid(three[0], "retained", "delete", topic, "--yes")
        soon(lambda: not any(retained(client, one, topic, 0.1) for one in three))

    def test_brokers_agree_on_the_last_message(self, three, client):
        """Publishers at all brokers change the same topics at the same time."""
        top, topics = name(), 5
        senders = [client(one) for one in three]
        for round_ in range(200):
            for index, sender in enumerate(senders):
                sender.send(wire.publish(f"{top}/{(round_ + index) % topics}", f"{round_} of {index}".encode(), retain=True))
        for sender in senders:
            sender.ping()

        def agree() -> bool:
            found = [retained(client, one, f"{top}/+", 0.1) for one in three]
            return found[0] == found[1] == found[2] and len(found[0]) == topics
        soon(agree)

    def test_a_subscriber_sees_the_latest_state_last(self, three, client):
        """Whatever is live and whatever is replayed, the last message that comes is the last one of the publisher."""
        topic = name()
        sender = client(three[0])
        for number in range(150):
            sender.send(wire.publish(topic, str(2 * number).encode(), 1, sender.next_packet_id(), retain=True))
            receiver = client(three[1])
            receiver.send(wire.subscribe(1, (topic, 1)))
            sender.send(wire.publish(topic, str(2 * number + 1).encode(), 1, sender.next_packet_id(), retain=True))
            seen, is_subscribed = [], False
            while not (is_subscribed and seen and seen[-1] == 2 * number + 1):
                found = receiver.recv()
                is_subscribed |= found.kind == wire.SUBACK
                if found.kind == wire.PUBLISH:
                    seen.append(int(found.payload))
                    receiver.complete(found)
            # The last one may come twice: as the retained message, and live behind one that was published with it.
            seen += [int(found.payload) for found in receiver.receive_all(0.02)]
            assert seen[-1] == 2 * number + 1, seen
            receiver.drop()

    def test_each_broker_keeps_them_over_a_crash(self, cluster_of, client):
        """Also if the broker at which they were published is gone."""
        cluster = cluster_of(2)
        topic = name()
        set_retained(client, cluster[0], {topic: b"x"})
        soon(lambda: retained(client, cluster[1], topic, 0.1))
        until(cluster[1].is_at_rest)
        for one in cluster:
            one.kill9()
        cluster[1].start()
        assert retained(client, cluster[1], topic) == {topic: b"x"}

    def test_messages_of_one_broker_stay_there(self, three, client):
        """`$SYS` is about one broker."""
        client(three[0]).publish(name(), b"x" * 10_000, qos=1)
        received = "$SYS/broker/bytes/received"
        until(lambda: len({*retained(client, three[0], received).values(), *retained(client, three[1], received).values()}) == 2, 15)


def test_the_status_says_whether_brokers_have_the_same(three):
    until(lambda: are_same(three))
    view = three[0].cluster["members"][0]["replicas"]
    assert view["differing_parts"] == 0 and view["sent"] + view["received"] >= 0
    assert three[0].metric('^barid_cluster_differing_parts{member="b2"}') == 0
    assert three[0].metric("^barid_cluster_objects_sent_total") >= 0


def test_a_change_is_heard_although_the_link_was_cut(cluster_of):
    """What a link has not told is found when the brokers compare."""
    cluster = cluster_of(2, proxied=True)
    add_user(cluster[0], "acme/ada")
    soon(lambda: may_log_in(cluster[1], "acme/ada"))
    for proxy in cluster.proxies:
        proxy.stall()
    time.sleep(0.2)
    add_user(cluster[0], "acme/bob")
    barid(cluster[0], "user", "remove", "acme/ada", "--yes")
    for proxy in cluster.proxies:
        proxy.cut()
        proxy.flow()
    until(lambda: may_log_in(cluster[1], "acme/bob") and not may_log_in(cluster[1], "acme/ada"))
