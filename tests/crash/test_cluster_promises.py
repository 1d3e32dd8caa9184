"""Tests one promise each, step by step: what clients of a cluster are told before one of its brokers is killed holds after it."""

import json
import time
import uuid

import pytest

import wire
from brokers import Cluster
from outages import Outages
from steps import FOREVER, received
from victim import MortalMember


@pytest.fixture(scope="module")
def brokers():
    cluster = Cluster(3, homes=True, member=MortalMember)
    yield cluster
    for broker in cluster:
        assert "panicked at" not in broker.stderr, broker.stderr
    cluster.close()


@pytest.fixture
def client_at(brokers):
    """Connects a new client, whose stored session is at a broker, over another one."""
    slots = json.loads(brokers[0].http("/v1/cluster/slots")[1])["slots"]
    homes, clients = Outages([slot["broker"] for slot in slots]), []

    def connect(home: MortalMember, expiry: int = FOREVER, **options) -> wire.Client:
        name = next(name for name in iter(lambda: uuid.uuid4().hex, None) if homes.home("acme", name) == home.name)
        clients.append(wire.Client(brokers.others(home)[-1].address))
        clients[-1].connect(name, clean=False, username="acme/device", properties={"session_expiry_interval": expiry}, **options)
        return clients[-1]

    yield connect
    for one in clients:
        one.drop()


@pytest.mark.parametrize("delay", [0, 1])
def test_a_will_that_is_due_while_its_broker_is_down_reaches_others(brokers, client_at, delay):
    mortal, other = brokers[0], brokers[1]
    watcher = client_at(other)
    watcher.subscribe("will", qos=1)
    client = client_at(mortal, will=wire.Will("will", b"gone", 1, properties={"will_delay_interval": delay}))
    if delay:
        client.drop()
        time.sleep(0.3)  # its broker notes when the delay has begun
    mortal.die()
    time.sleep(delay)
    mortal.revive()
    brokers.settles()
    assert received(watcher, quiet=2) == [b"gone"]


def test_what_a_session_leaves_that_expires_while_its_broker_is_down_goes_to_others(brokers, client_at):
    """The last member of a shared subscription at one broker, and another member elsewhere."""
    mortal, other = brokers[0], brokers[1]
    member = client_at(mortal, expiry=1)
    member.subscribe("$share/group/shared", qos=1)
    member.disconnect()
    client_at(other).publish("shared", b"left", qos=1)
    heir = client_at(other)
    heir.subscribe("$share/group/shared", qos=1)
    mortal.die()
    time.sleep(2)
    mortal.revive()
    brokers.settles()
    assert received(heir, quiet=2) == [b"left"]
