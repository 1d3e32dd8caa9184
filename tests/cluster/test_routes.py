"""`/v1/tenants/{tenant}/routes` and `barid cluster routes`: the topic filters of other brokers."""

import json

from broker import until


def routes(member, query: str = "", tenant: str = "default") -> dict[str, list[str]]:
    status, text = member.http(f"/v1/tenants/{tenant}/routes?{query}")
    assert status == 200, text
    return {route["filter"]: route["brokers"] for route in json.loads(text)["routes"]}


def test_they_are_those_of_other_brokers(cluster_of, client):
    three = cluster_of(3)
    one, two, last = three.members
    client(one, "a").subscribe("plant/+/t", "own", qos=1)
    client(two, "b").subscribe("plant/#", "plant/+/t", "$share/workers/plant/7/t", qos=0)
    third = client(last, "c")
    third.subscribe("plant/#", "plant/7/t", qos=2)
    client(last, "d", username="acme/u").subscribe("theirs")
    everything = {"$share/workers/plant/7/t": ["b2"], "plant/#": ["b2", "b3"], "plant/+/t": ["b2"], "plant/7/t": ["b3"]}
    until(lambda: routes(one) == everything)
    assert list(routes(one)) == sorted(everything)
    assert routes(one, "topic=plant/8/t") == {"plant/#": ["b2", "b3"], "plant/+/t": ["b2"]}
    assert routes(one, "topic=other") == {}
    assert routes(one, tenant="acme") == {"theirs": ["b3"]}
    until(lambda: "own" in routes(two))
    assert routes(two)["plant/+/t"] == ["b1"]

    page = json.loads(one.http("/v1/tenants/default/routes?limit=2")[1])
    assert page["next"] == "plant/#" and len(page["routes"]) == 2
    assert list(routes(one, "after=plant/%23")) == ["plant/+/t", "plant/7/t"]
    assert one.http("/v1/tenants/default/routes?topic=a/%23")[0] == 400
    assert one.http("/v1/tenants/nobody/routes")[0] == 404

    listed = one.command("routes", "--topic", "plant/7/t").stdout.splitlines()
    assert [line.split() for line in listed[:3]] == [["FILTER", "BROKERS"], ["$share/workers/plant/7/t", "b2"], ["plant/#", "b2", "b3"]]
    assert "… and more" in one.command("routes", "--limit", "1").stdout
    assert "no client of another broker has such" in one.command("routes", "--topic", "other").stdout

    third.unsubscribe("plant/7/t")
    until(lambda: "plant/7/t" not in routes(one))
    last.kill9()
    until(lambda: routes(one) == {"$share/workers/plant/7/t": ["b2"], "plant/#": ["b2"], "plant/+/t": ["b2"]}, 10)


def test_a_single_broker_has_none(broker_with):
    status, text = broker_with("").http("/v1/tenants/default/routes")
    assert status == 404 and "does not belong to a cluster" in text
