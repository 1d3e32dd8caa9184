"""One broker of a cluster answers for another one: `Barid-Broker`, `--broker`."""

import http.client
import json
import time

import wire
from broker import until
from brokers import links_tls


def ask(member, path: str, of: str | bytes | None = None, method: str = "GET", token: str | None = None,
        body: dict | None = None) -> tuple[int, dict | str]:
    connection = http.client.HTTPConnection("127.0.0.1", member.admin_port, timeout=15)
    headers = ({"Barid-Broker": of} if of is not None else {}) | ({"Authorization": f"Bearer {token}"} if token else {})
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text) if text.startswith("{") else text


def names(three) -> list[str]:
    return [member.name for member in three]


def test_a_broker_is_asked_over_another_one(three):
    client = wire.Client(three[1].address)
    client.connect("far", username="acme/u")
    path = "/v1/tenants/acme/clients/far"
    for member in three:
        assert ask(member, "/v1/broker", member.name)[1]["broker"] == member.name
        assert ask(member, path, names(three)[1])[1]["client"] == "far"
        assert {of: ask(member, "/v1/broker", of)[1]["broker"] for of in names(three)} == {of: of for of in names(three)}
        assert all(f'member="{of}"' not in ask(member, "/metrics", of)[1] for of in names(three)), "of itself no broker tells"
    assert ask(three[2], path, names(three)[1], "DELETE")[0] == 202
    until(lambda: ask(three[0], path, names(three)[1])[0] == 404)
    client.drop()


def test_a_client_is_found_at_whichever_broker_it_is(three):
    """It has a session that ends with the connection, of which only its broker knows."""
    client = wire.Client(three[1].address)
    client.connect("somewhere", username="acme/u")
    for member in three:
        assert ask(member, "/v1/tenants/acme/clients/somewhere")[1]["client"] == "somewhere"
        assert ask(member, "/v1/tenants/acme/sessions/somewhere")[1]["client"] == "somewhere"
        assert ask(member, "/v1/tenants/acme/clients/nowhere")[0] == 404
        assert ask(member, "/v1/tenants/acme/sessions/nowhere", method="DELETE")[0] == 404
    assert three[2].run("client", "kick", "somewhere", "--tenant", "acme").returncode == 0
    client.expect(wire.DISCONNECT)
    until(lambda: ask(three[0], "/v1/tenants/acme/clients/somewhere")[0] == 404)
    client.drop()


def test_lists_are_those_of_all_brokers(homes):
    clients = []
    for number in range(12):
        client = wire.Client(homes[number % 3].address)
        kept = {"clean": False, "properties": {"session_expiry_interval": 60}} if number < 6 else {}
        client.connect(f"one-{number:02}", username="lists/u", **kept)
        clients.append(client)
    identifiers = [f"one-{number:02}" for number in range(12)]
    for kind in ("clients", "sessions"):
        of_each = {}
        for of in names(homes):
            part = ask(homes[0], f"/v1/tenants/lists/{kind}", of)[1]
            assert "not_answered" not in part and all("broker" not in one for one in part[kind])
            of_each |= {one["client"]: of for one in part[kind]}
        assert sorted(of_each) == identifiers and len(set(of_each.values())) == 3
        for member in homes:
            whole = ask(member, f"/v1/tenants/lists/{kind}")[1]
            assert [one["client"] for one in whole[kind]] == identifiers
            assert {one["client"]: one["broker"] for one in whole[kind]} == of_each
            assert whole["next"] is None and whole["not_answered"] == []
            found, after = [], ""
            while after is not None:
                page = ask(member, f"/v1/tenants/lists/{kind}?limit=5" + (f"&after={after}" if after else ""))[1]
                assert len(page[kind]) <= 5
                found += [one["client"] for one in page[kind]]
                after = page["next"]
            assert found == identifiers
    for member in homes:
        of_all = next(one for one in ask(member, "/v1/tenants")[1]["tenants"] if one["name"] == "lists")
        shown = ask(member, "/v1/tenants/lists")[1]
        assert of_all["sessions"] == of_all["connections"] == shown["sessions"] == shown["connections"] == 12
        assert shown["not_answered"] == [] and "max_entities" in shown["quotas"]
        assert sum(ask(member, "/v1/tenants/lists", of)[1]["sessions"] for of in names(homes)) == 12
    shown = homes[1].run("client", "list", "--tenant", "lists").stdout.splitlines()
    assert shown[0].split()[-1] == "BROKER" and [line.split()[0] for line in shown[1:]] == identifiers
    of_one = homes[1].run("client", "list", "--tenant", "lists", "--broker", names(homes)[1]).stdout
    assert "BROKER" not in of_one
    for client in clients:
        client.drop()


def test_each_broker_answers_about_a_tenant_that_has_clients_at_one_only(three):
    client = wire.Client(three[0].address)
    client.connect("only", username="remote/u")
    client.subscribe("t", qos=1)
    for member in three:
        assert ask(member, "/v1/tenants/remote")[0] == 200
        # For the rest it must have heard of the tenant.
        until(lambda member=member: ask(member, "/v1/tenants/remote/retained")[0] == 200)
        assert ask(member, "/v1/tenants/remote/receivers?topic=t")[0] == 200
        sent = ask(member, "/v1/tenants/remote/publish", method="POST", body={"topic": "t", "payload": member.name})
        assert sent[0] == 200 and client.receive().payload == member.name.encode(), sent
        assert ask(member, "/v1/tenants/nobody")[0] == 404
    client.drop()


def test_what_is_missing_is_named(cluster_of):
    """A broker that is not heard may have clients, so a list without it says so, and nobody is said not to exist."""
    # Of two brokers neither is down because it is silent.
    here, silent = cluster_of(2, homes=True, tls=f'{links_tls()}\nwithout_quorum = "serve"')
    client = wire.Client(here.address)
    client.connect("here", username="acme/u")
    silent.pause()
    until(lambda: here.states()[silent.name] == "unreachable")
    listed = ask(here, "/v1/tenants/acme/clients")[1]
    assert [one["client"] for one in listed["clients"]] == ["here"]
    assert listed["not_answered"] == [silent.name]
    shown = here.run("client", "list", "--tenant", "acme").stdout
    assert f"! {silent.name} has not answered: what it has is missing" in shown
    status, answer = ask(here, "/v1/tenants/acme/clients/elsewhere")
    assert status == 503 and silent.name in answer["error"], answer
    silent.go_on()
    client.drop()


def test_of_a_broker_that_is_down_what_is_stored_is_missing(cluster_of):
    """The clients that it had are not connected any more. What is in its slots is still there."""
    brokers = cluster_of(3, homes=True)
    client = wire.Client(brokers[0].address)
    client.connect("here", username="acme/u")
    brokers[2].pause()
    until(lambda: brokers[0].states()["b3"] == "down")
    listed = ask(brokers[0], "/v1/tenants/acme/clients")[1]
    assert [one["client"] for one in listed["clients"]] == ["here"] and listed["not_answered"] == []
    assert ask(brokers[0], "/v1/tenants/acme/clients/elsewhere")[0] in (404, 503), "its slot may be at b3"
    for path in ("/v1/tenants/acme/sessions", "/v1/tenants/acme", "/v1/tenants"):
        assert ask(brokers[0], path)[1]["not_answered"] == ["b3"], path
    for command in (("session", "list", "--tenant", "acme"), ("tenant", "show", "acme"), ("tenant", "list")):
        shown = brokers[0].run(*command)
        assert shown.returncode == 0 and "! b3 has not answered: what it has is missing" in shown.stdout, shown
    # Also without the home of a tenant.
    tenants = [f"t{number}" for number in range(8)]
    for tenant in tenants:
        other = wire.Client(brokers[0].address)
        other.connect("here", username=f"{tenant}/u")
        shown = brokers[0].run("session", "list", "--tenant", tenant)
        assert shown.returncode == 0 and "here" in shown.stdout, shown
        other.drop()
    brokers[2].go_on()
    client.drop()


def test_a_body_that_nobody_needs_delays_nothing(three):
    client = wire.Client(three[1].address)
    client.connect("far", username="acme/u")
    begin = time.monotonic()
    assert ask(three[0], "/v1/tenants/acme/clients/far", method="DELETE", body={})[0] == 202
    assert time.monotonic() - begin < 3
    client.drop()


def test_who_does_not_exist_does_not_answer(three, broker_with):
    for of in ("nobody", "", "é", "a" * 300):
        status, answer = ask(three[0], "/v1/broker", of.encode("latin-1") if of == "é" else of)
        assert status == 404 and "no broker" in answer["error"], of
    alone = broker_with("")
    assert ask(alone, "/v1/broker", "b1")[0] == 404
    assert ask(alone, "/v1/broker")[1]["broker"] is None


def test_what_a_tenant_has_at_one_broker_is_answered_by_that(homes):
    for member in homes:
        for of in names(homes):
            assert ask(member, "/v1/tenants/default/queues", of)[0] == 200


def test_the_broker_that_answers_checks_the_token(cluster_of):
    two = cluster_of(2, tls=links_tls())
    admin = two[0].run("token", "create", "--role", "admin").stdout.strip()
    # Until a token is there, no requests need one.
    until(lambda: ask(two[1], "/v1/broker")[0] == 401)
    token = ask(two[0], "/v1/tokens", method="POST", token=admin, body={"role": "viewer"})[1]["token"]
    until(lambda: ask(two[1], "/v1/broker", token=token)[0] == 200)
    for of in names(two):
        assert ask(two[0], "/v1/broker", of)[0] == 401
        assert ask(two[0], "/v1/broker", of, token=token)[0] == 200
        assert ask(two[0], "/v1/tokens", of, token=token)[0] == 403
    for one, tenant in zip(two, ("mine", "other"), strict=True):
        client = wire.Client(one.address)
        client.connect("c", username=f"{tenant}/u")
        client.drop()
    confined = ask(two[0], "/v1/tokens", method="POST", token=admin, body={"role": "viewer", "tenant": "mine"})[1]["token"]
    # The other broker asks nobody for tokens now, and so lists all its tenants.
    two[1].reload(two[1].of_cluster + "[admin]\ntokens = false\n")
    listed = ask(two[1], "/v1/tenants")[1]
    assert "other" in [one["name"] for one in listed["tenants"]] and listed["not_answered"] == [names(two)[0]]
    listed = ask(two[0], "/v1/tenants", token=confined)[1]["tenants"]
    assert [one["name"] for one in listed] == ["mine"]


def test_the_tools_ask_a_broker_by_its_name(three):
    client = wire.Client(three[2].address)
    client.connect("far", username="acme/u")
    listed = three[0].run("client", "list", "--tenant", "acme", "--broker", names(three)[2])
    assert "far" in listed.stdout, listed.stderr
    wrong = three[0].run("client", "list", "--tenant", "acme", "--broker", "nobody")
    assert wrong.returncode != 0 and 'no broker "nobody"' in wrong.stderr
    client.drop()
