"""Filters with `+` in every combination of places, and topics that nearly match all of them."""

import time

import wire
from bystander import Bystander

CLIENTS, FILTERS, LEVELS = 10, 5_000, 20

QUOTA_EXCEEDED = 0x97


def filters(first: int) -> list[tuple[str, int]]:
    """Filters whose levels are `+` or `a` as the bits of a number are, and which end with a level of their own."""
    return [("/".join("+" if number >> bit & 1 else "a" for bit in range(LEVELS)) + "/b", 0)
            for number in range(first, first + FILTERS)]


def test_patterns_of_wildcards_hold_no_thread(one_thread):
    running = one_thread()
    attackers = []
    refused = 0
    with Bystander(running) as bystander:
        for index in range(CLIENTS):
            attacker = wire.Client(running.address, timeout=60)
            attacker.connect(f"attacker{index}", username="attacker/x")
            attacker.send(wire.subscribe(1, *filters(1 + index * FILTERS)))
            refused += attacker.expect(wire.SUBACK).reasons.count(QUOTA_EXCEEDED)
            attackers.append(attacker)
        until = time.monotonic() + 2
        number = 0
        while time.monotonic() < until:
            # Each topic is new, so its route is found anew.
            publishes = [wire.publish(f"{'a/' * LEVELS}c{number + more}", b"x") for more in range(1_000)]
            attackers[0].send(*publishes)
            attackers[0].ping()
            number += 1_000
    bystander.assert_served()
    assert refused > CLIENTS * FILTERS // 2
    # Others have patterns of their own, and so has this tenant where they are not new.
    assert attackers[1].subscribe("+/b/+").reasons == [0]
    other = wire.Client(running.address)
    other.connect("other", username="other/x")
    assert other.subscribe(*(one for one, _ in filters(1)[:10])).reasons == [0] * 10


def test_the_bound_is_of_patterns_and_not_of_filters(one_thread):
    """Ten thousand filters with one pattern pass; a second pattern does not."""
    running = one_thread("[limits]\nmax_pattern_levels = 4\n")
    client = wire.Client(running.address, timeout=60)
    client.connect("c")
    client.send(wire.subscribe(1, *((f"fleet/+/{number}/state", 0) for number in range(9_999))))
    assert set(client.expect(wire.SUBACK).reasons) == {0}
    assert client.subscribe("fleet/9/+/state").reasons == [QUOTA_EXCEEDED]
    assert client.subscribe("$share/g/fleet/9/+/state").reasons == [QUOTA_EXCEEDED]
    assert client.subscribe("$share/g/fleet/+/9/#").reasons == [QUOTA_EXCEEDED], "three levels, and no way through the others"
    client.send(wire.unsubscribe(2, *(f"fleet/+/{number}/state" for number in range(9_999))))
    client.expect(wire.UNSUBACK)
    assert client.subscribe("fleet/9/+/state").reasons == [0]
