"""docs/operating/grafana.json: its panels show metrics that a broker has, by labels that these have."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

import wire
from broker import BINARY, ROOT, Broker, free_port

DASHBOARD = json.loads((ROOT / "docs/operating/grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
NAME = re.compile(r"\b(?:barid|process)_\w+")

# Labels of series that appear with what they count: another broker, an entity, a binding, a limit that refuses.
LATER = {
    "barid_binding_messages_total": {"tenant", "binding"},
    "barid_certificate_expires_timestamp_seconds": set(),
    "barid_cluster_link_lost_total": {"member"},
    "barid_cluster_link_messages_total": {"member"},
    "barid_cluster_link_waiting_bytes": {"member"},
    "barid_quota_refused_total": {"tenant", "quota"},
    "barid_quota_throttled_seconds_total": {"tenant", "quota"},
}


@pytest.fixture(scope="module")
def labels():
    """The labels of each metric of a broker that has done a little of everything."""
    running = Broker(f"""
        [[queues]]
        name = "q"
        [cluster]
        name = "c"
        broker = "b"
        listen = "127.0.0.1:{free_port()}"
        secret = "{'s' * 16}"
        [tenants.acme]
        auth = ["store"]
    """)
    assert wire.Client(running.address).connect("a", username="acme/a", password=b"x").reason == 0x86
    subprocess.run([BINARY, "state", "set", "k", "v", "-p", str(running.port)], check=True, capture_output=True)
    client = wire.Client(running.address)
    client.connect("c")
    client.subscribe("t", qos=1)
    client.send(wire.publish("t", b"m", 1, 1))
    client.stream.close()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(running.http("/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    running.end()
    return found | {name: of for name, of in LATER.items() if name not in found}


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_shows_what_there_is(panel, labels):
    assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        expression, names = target["expr"], NAME.findall(target["expr"])
        assert names, expression
        known = set.union(*(labels[name] for name in names)) | {"instance"}
        for name in names:
            [selector] = re.findall(name + r"\{(.*?)\}", expression)
            selected = set(re.findall(r"(\w+)=", selector))
            assert selected <= labels[name] | {"instance"}, f"{name} has no {selected - labels[name]}"
            # A broker or a tenant that is not chosen is not shown.
            assert "$broker" in selector and ("$tenant" in selector) == ("tenant" in labels[name])
            # Counters only grow, so their rate is shown; the rate of anything else says nothing.
            assert (f"rate({name}{{" in expression) == name.endswith("_total")
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert set(grouped.split(", ")) <= known, expression
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known, target["legendFormat"]
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")


def test_panels_have_places_of_their_own():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_variables_are_those_of_the_panels(labels):
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "broker", "tenant"}
    for name, label in (("broker", "instance"), ("tenant", "tenant")):
        metric, wanted = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["definition"]).groups()
        assert wanted == label and label in labels[metric] | {"instance"}
