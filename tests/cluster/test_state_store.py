"""The state store of a tenant is at one broker of a cluster, and can be used over any of them."""

import sys
import time
from pathlib import Path

import pytest

import wire
from broker import until
from brokers import Cluster, Member

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "statestore"))

from statestore_client import ABSENT, DELETED, NOT_APPLIED, NOTHING, OK, Store, array, order, set_told, value  # noqa: E402

TENANTS = [f"t{number}" for number in range(3)]


@pytest.fixture
def store():
    """Connects a client of the state store of a tenant to a broker."""
    opened = []

    def connect(tenant: str, to: Member, name: str, **options) -> Store:
        client = wire.Client(to.address)
        opened.append(client)
        client.connect(name, username=f"{tenant}/{name}", **options)
        return Store(client)

    yield connect
    for client in opened:
        client.drop()


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_key_is_the_same_over_all_brokers(homes, store, tenant):
    clients = [store(tenant, member, f"c{index}") for index, member in enumerate(homes)]
    versions = [client.set(b"key", b"by %d" % index) for index, client in enumerate(clients)]
    assert [order(version) for version in versions] == sorted(order(version) for version in versions)
    assert [client.get(b"key") for client in clients] == [(b"by 2", versions[2])] * 3
    assert clients[1].ask("SET", "key", "other", "NX").payload == NOT_APPLIED
    assert clients[2].ask("DEL", "key").payload == DELETED
    assert clients[0].ask("GET", "key").payload == ABSENT
    assert clients[0].ask("DEL", "key").payload == NOTHING


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_response_is_an_ordinary_message_also_at_other_brokers(homes, store, tenant):
    """Whether it reveals a change, which must be durable first, or not. Responses keep their order."""
    asks = store(tenant, homes[0], "asks")
    nosy = [wire.Client(member.address) for member in homes]
    shared = [wire.Client(member.address) for member in homes]
    for index, client in enumerate((*nosy, *shared)):
        client.connect(f"nosy{index}", username=f"{tenant}/nosy{index}")
        client.subscribe("#" if client in nosy else f"$share/group/{asks.responses}", qos=1)
    expected = []
    for number in range(20):
        for words in (("SET", "seen", str(number)), ("GET", "seen"), ("DEL", "seen")):
            expected.append(asks.ask(*words).payload)
    for client in nosy:
        assert [client.receive().payload for _ in expected] == expected
    got = sorted(message.payload for client in shared for message in client.receive_all(0.5))
    assert got == sorted(expected), "each of them reaches one member of a shared subscription"
    for client in (*nosy, *shared):
        client.drop()


@pytest.mark.parametrize("tenant", TENANTS)
def test_all_keys_are_found_over_each_broker(homes, store, tenant):
    clients = [store(tenant, member, f"s{index}") for index, member in enumerate(homes)]
    names = sorted(b"scan/%d" % number for number in range(60))
    for index, name in enumerate(names):
        clients[index % 3].set(name, b"x")
    for client in clients:
        assert [key for page in client.scan("scan/*") for key in page] == names
    for index, name in enumerate(names):
        assert clients[index % 3].ask("DEL", name).payload == DELETED


@pytest.mark.parametrize("tenant", TENANTS)
def test_who_watches_is_told_whoever_changes_the_key(homes, store, tenant):
    watchers = [store(tenant, member, f"w{index}") for index, member in enumerate(homes)]
    for watcher in watchers:
        watcher.watch(b"watched")
    for index, member in enumerate(homes):
        content = b"%d" % index
        version = store(tenant, member, f"changes{index}").set(b"watched", content)
        for watcher in watchers:
            watcher.expect_told(b"watched", set_told(content), version)
    assert watchers[1].ask("KEYNOTIFY", "watched", "STOP").payload == OK
    store(tenant, homes[0], "last").ask("DEL", "watched")
    watchers[0].told(), watchers[2].told()
    watchers[1].expect_quiet()


@pytest.mark.parametrize("tenant", TENANTS)
def test_watches_end_with_the_connection(homes, store, tenant):
    client = store(tenant, homes[0], "leaves")
    client.watch(b"left")
    setter = store(tenant, homes[1], "sets")
    setter.set(b"left", b"1")
    client.told()
    client.client.drop()
    metric = f'barid_state_watchers{{tenant="{tenant}"}} '
    until(lambda: all(line.endswith(" 0") for one in homes for line in one.http("/metrics")[1].splitlines()
                      if line.startswith(metric)))
    again = store(tenant, homes[2], "leaves")
    setter.set(b"left", b"2")
    again.expect_quiet()


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_lock_is_held_by_one_client_of_all_brokers(homes, store, tenant):
    clients = [store(tenant, member, f"l{index}") for index, member in enumerate(homes)]
    asked = [(client, client.send(array("SET", "lock", client.client.client_id, "NEX", "PX", "60000"))) for client in clients]
    answers = [client.answer(sent).payload for client, sent in asked]
    assert sorted(answers) == sorted([OK, NOT_APPLIED, NOT_APPLIED])
    holder = clients[answers.index(OK)]
    assert holder.ask("VDEL", "lock", holder.client.client_id).payload == DELETED


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_request_that_comes_again_is_carried_out_once(homes, store, tenant):
    kept = {"clean": False, "properties": {"session_expiry_interval": 300}}
    other = store(tenant, homes[0], "other")
    for index, member in enumerate(homes):
        client = store(tenant, member, "again", **kept)
        sent = client.send(array("SET", f"once{index}", "first", "NX"), packet_id=9)
        assert client.answer(sent).payload == OK
        client.client.drop()
        assert other.ask("DEL", f"once{index}").payload == DELETED
        client = store(tenant, homes[(index + 1) % 3], "again", **kept)
        repeated = client.send(array("SET", f"once{index}", "first", "NX"), packet_id=9, correlation=sent[1], dup=True)
        assert client.answer(repeated).payload == OK
        assert other.ask("GET", f"once{index}").payload == ABSENT


def test_many_requests_of_one_client_are_answered_in_order(homes, store):
    for tenant in TENANTS:
        for index, member in enumerate(homes):
            client = store(tenant, member, f"many{index}")
            client.set(b"large", b"x" * 200_000)
            sent = [client.send(array("GET", "large")) for _ in range(100)]
            assert all(client.answer(one).payload == value(b"x" * 200_000) for one in sent)


def tenants_of(brokers: Cluster, store) -> dict[str, str]:
    """Returns a tenant for each broker, which has its state store. The tenant has one key, `key`."""
    tenants = {}
    for number in range(8):
        tenant = f"d{number}"
        store(tenant, brokers[0], "first").set(b"key", b"kept")
        line = f'barid_state_keys{{tenant="{tenant}"}} 1'
        home = next(one for one in brokers if line in one.http("/metrics")[1])
        tenants.setdefault(home.name, tenant)
    return tenants


def test_a_request_is_acknowledged_when_it_is_answered(cluster_of, store):
    """Behind PUBACK a client does not send it again, so a response that is still on its way must not depend on the connection."""
    brokers = cluster_of(2, homes=True, proxied=True)
    asks = store(tenants_of(brokers, store)["b2"], brokers[0], "asks")
    # Only the response is slow: it does not pass where the request and its acknowledgement do.
    brokers.proxies[0].delay = 0.4
    begin = time.monotonic()
    asks.send(array("GET", "key"))
    first = asks.client.recv()
    assert time.monotonic() - begin > 0.3, first
    assert {first.kind, asks.client.recv().kind} == {wire.PUBLISH, wire.PUBACK}


def test_a_home_that_is_down_says_so_and_its_clients_begin_again(cluster_of, store):
    brokers = cluster_of(2, homes=True)
    tenants = tenants_of(brokers, store)
    tenant, here = tenants["b2"], brokers[0]
    watcher = store(tenant, here, "watcher")
    watcher.watch(b"key")
    brokers[1].kill9()
    # Its watches are gone, so its connection ends, and it watches again when it comes back.
    with pytest.raises((wire.Closed, AssertionError)):
        while True:
            watcher.client.recv()
    until(lambda: here.states()["b2"] == "down")
    refused = store(tenant, here, "asks").ask("GET", "key").payload
    assert refused.startswith(b"-ERR"), refused
    # The tenants of the other broker go on.
    assert store(tenants["b1"], here, "goes-on").get(b"key")[0] == b"kept"
    begin = time.monotonic()
    brokers[1].start()
    brokers.settles()
    again = store(tenant, here, "watcher")
    again.watch(b"key")
    version = store(tenant, brokers[1], "sets").set(b"key", b"new")
    again.expect_told(b"key", set_told(b"new"), version)
    assert time.monotonic() - begin < 30
