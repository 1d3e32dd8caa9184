"""Limits that change while clients are connected. What CONNACK has announced to a client of MQTT 5 holds for its
connection; everything else follows at once, in both directions, for clients of all versions."""

from __future__ import annotations

import pytest

import wire
from running import barid

# SUBACK: the filter is refused because of a quota. MQTT 3.1.1 has one code for all refusals.
REFUSED = {wire.V311: 0x80, wire.V5: 0x97}


@pytest.fixture(params=[wire.V311, wire.V5], ids=["v3.1.1", "v5"])
def version(request) -> int:
    return request.param


@pytest.fixture(params=["tenant set", "reload"])
def limited(request, broker_with):
    """A broker, and a function that changes the limits of its tenant `acme`: by a command, or by a reload."""
    running = broker_with("")

    def set_limits(**limits) -> None:
        if request.param == "reload":
            written = "".join(f"{key} = {str(value).lower()}\n" for key, value in limits.items())
            running.reload(f"[tenants.acme.limits]\n{written}")
            return
        options = [part for key, value in limits.items() for part in ("--limit", f"{key}={str(value).lower()}")]
        done = barid("tenant", "set", "acme", *options, "--admin", f"127.0.0.1:{running.admin_port}")
        assert done.returncode == 0, done.stderr

    return running, set_limits


def test_subscriptions(limited, connect, version):
    running, set_limits = limited
    client = connect(version, to=running, tenant="acme")
    assert client.subscribe("a", "b", "c").reasons == [0, 0, 0]
    set_limits(max_subscriptions=1)
    assert client.subscribe("d").reasons == [REFUSED[version]]
    assert client.subscribe("a").reasons == [0], "it replaces one that is there"
    client.unsubscribe("a", "b", "c")
    assert client.subscribe("d", "e").reasons == [0, REFUSED[version]]
    set_limits(max_subscriptions=2)
    assert client.subscribe("e", "f").reasons == [0, REFUSED[version]]


def test_bytes_and_patterns_of_subscriptions(limited, connect, version):
    running, set_limits = limited
    client = connect(version, to=running, tenant="acme")
    set_limits(max_subscription_bytes=100, max_pattern_levels=0)
    assert client.subscribe("a").reasons == [REFUSED[version]]
    set_limits(max_subscription_bytes=10_000, max_pattern_levels=0)
    assert client.subscribe("a", "+/b").reasons == [0, REFUSED[version]]
    set_limits(max_subscription_bytes=10_000, max_pattern_levels=2)
    assert client.subscribe("+/b", "+/b/c").reasons == [0, REFUSED[version]]


def test_messages_in_flight(limited, connect, version):
    """A higher limit lets messages go that wait, although the client sends nothing."""
    running, set_limits = limited
    set_limits(max_inflight=1)
    client, publisher = (connect(version, to=running, tenant="acme") for _ in range(2))
    client.subscribe("t", qos=1)
    for number in range(4):
        publisher.publish("t", b"%d" % number, qos=1)
    assert client.expect(wire.PUBLISH).payload == b"0"
    client.expect_nothing()
    set_limits(max_inflight=3)
    got = [client.expect(wire.PUBLISH) for _ in range(2)]
    assert [one.payload for one in got] == [b"1", b"2"]
    client.expect_nothing()
    set_limits(max_inflight=1)
    client.complete(got[0])
    client.expect_nothing()


def test_what_connack_has_announced(limited, connect, version):
    """A client of MQTT 5 keeps what it was told; one of 3.1.1 was told nothing."""
    running, set_limits = limited
    lower = {"max_packet_size": 1_000, "max_qos": 1, "retain_available": False, "wildcard_subscriptions": False,
             "shared_subscriptions": False}
    client, other, further = (connect(version, to=running, tenant="acme") for _ in range(3))
    set_limits(**lower)
    if version == wire.V5:
        assert client.subscribe("+/t", "$share/s/t", qos=2).reasons == [2, 2]
        client.publish("t", bytes(2_000), qos=2, retain=True)
    else:
        assert client.subscribe("t", "+/t", "$share/s/t", qos=2).reasons == [1, 0x80, 0x80]
        further.send(wire.publish("t", b"", 0, retain=True, version=version))
        other.send(wire.publish("t", bytes(2_000), version=version))
        client.send(wire.publish("t", b"", 2, 1, version=version))
        for one in (client, other, further):
            one.expect_refused()
    # The next connection is told the limits of now.
    later = connect(version, to=running, tenant="acme")
    assert later.subscribe("w", "+/u", qos=2).reasons == [1, 0xA2 if version == wire.V5 else 0x80]
    set_limits(max_packet_size=100_000, max_qos=2, wildcard_subscriptions=True)
    if version == wire.V5:
        assert later.connack.properties["maximum_packet_size"] == 1_000
        assert later.subscribe("w", "+/u", qos=2).reasons == [1, 0xA2]
        later.send(wire.publish("v", bytes(2_000), version=version))
        later.expect_refused(0x95)
    else:
        assert later.subscribe("w", "+/u", qos=2).reasons == [2, 2]
        later.publish("v", bytes(2_000), qos=2)
