"""Metrics of more tenants than have series of their own."""

from __future__ import annotations

import re

import wire

OWN = 1_000


def visit(broker, tenants: range) -> None:
    """A client of each tenant connects, publishes once and goes."""
    for number in tenants:
        one = wire.Client(broker.address)
        one.connect("c", username=f"t{number}/u")
        one.publish("a", b"x", qos=1)
        one.disconnect()


def test_the_number_of_series_is_bounded_and_counters_never_go_back(broker_with):
    running = broker_with("")

    def connects() -> dict[str, int]:
        _, text = running.http("/metrics")
        tenants = {line for line in re.findall(r'tenant="([^"]*)"', text)}
        assert len(tenants) <= OWN + 1, len(tenants)
        return {name: int(count) for name, count in re.findall(r'^barid_connects_total{tenant="([^"]*)"} (\d+)', text, re.MULTILINE)}

    visit(running, range(OWN + 20))
    before = connects()
    # The default tenant is there from the start.
    assert before["#other"] == 21 and sum(before.values()) == OWN + 20
    visit(running, range(OWN + 30))
    after = connects()
    assert after.keys() == before.keys() and all(after[name] >= count for name, count in before.items())
    assert after["#other"] == 21 + 31 and sum(after.values()) == 2 * OWN + 50
