"""Bridges of Mosquitto: the way in which most people connect a broker at the edge with one in the middle.

`MOSQUITTO` names another `mosquitto` than the one that is installed.
"""

import os
import queue
import shutil
import subprocess
import time

import pytest

import wire
from broker import free_port, until
from paho_client import Paho
from running import hashed

MOSQUITTO = os.environ.get("MOSQUITTO") or shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")

VERSIONS = {"v3.1": "mqttv31", "v3.1.1": "mqttv311", "v5": "mqttv50"}

# How long the end of a stream of messages may take to show that it has ended: what comes twice comes at once.
QUIET = 0.5


class Edge:
    """A `mosquitto` on loopback with a bridge to our broker."""

    def __init__(self, directory, to, name: str, version: str, *more: str):
        self.port = free_port()
        self.address = ("127.0.0.1", self.port)
        self.name, self.client_id = name, f"edge.{name}"
        config = directory / f"{name}.conf"
        config.write_text("\n".join([
            f"listener {self.port} 127.0.0.1", "allow_anonymous true", "persistence false", f"connection {name}",
            f"address 127.0.0.1:{to.port}", f"remote_clientid {self.client_id}",
            f"bridge_protocol_version {VERSIONS[version]}", "restart_timeout 1", "keepalive_interval 5", *more, ""]))
        self._log = open(directory / f"{name}.log", "ab")
        self._process = subprocess.Popen([MOSQUITTO, "-v", "-c", config], stdout=self._log, stderr=self._log)
        self.log = directory / f"{name}.log"

    def end(self, kill: bool = False) -> None:
        if self._process.poll() is None:
            self._process.kill() if kill else self._process.terminate()
        self._process.wait(10)
        self._log.close()


@pytest.fixture(params=VERSIONS)
def version(request) -> str:
    return request.param


@pytest.fixture
def bridged(ours, tmp_path, unique, version):
    """Starts an edge, and waits until its bridge says to both brokers that it is there."""
    edges = []

    def start(*more: str, to=None, name: str | None = None, login: dict | None = None) -> Edge:
        to = to or ours
        edges.append(edge := Edge(tmp_path, to, name or unique("bridge"), version, *more))
        until(lambda: state(to, edge, **(login or {})) == b"1")
        return edge

    yield start
    for edge in edges:
        edge.end()


def state(broker, edge: Edge, seconds: float = 1.0, **login) -> bytes | None:
    """What the bridge has told of itself, as a subscriber who comes now is told; None: nothing yet."""
    watcher = Paho(broker, version=5, **login)
    try:
        watcher.subscribe(f"$SYS/broker/connection/{edge.client_id}/state")
        message = watcher.messages.get(timeout=seconds)
        # One that is not retained comes just now: who asks again gets it retained.
        return message.payload if message.retain else None
    except queue.Empty:
        return None
    finally:
        watcher.leave()


def all_of(client: Paho, count: int) -> list:
    """That many messages, if no more come."""
    found = [client.messages.get(timeout=15) for _ in range(count)]
    time.sleep(QUIET)
    assert client.messages.empty(), [(one.topic, one.payload) for one in (found[-1], client.messages.get())]
    return found


def test_messages_pass_both_ways_once(bridged, ours, paho, topic, qos):
    """A topic of both directions: without No Local a message would go round for ever."""
    edge = bridged(f"topic {topic}/# both {qos}")
    here, there = paho(to=ours), paho(to=edge, version=4)
    for client in (here, there):
        client.subscribe(f"{topic}/#", qos)
    for number in range(20):
        here.publish(f"{topic}/a", f"from here {number}", qos)
        there.publish(f"{topic}/b", f"from there {number}", qos)
    expected = sorted((f"{topic}/{way}", f"from {name} {number}".encode())
                      for way, name in (("a", "here"), ("b", "there")) for number in range(20))
    for client in (here, there):
        messages = all_of(client, 40)
        assert sorted((one.topic, one.payload) for one in messages) == expected
        assert {one.qos for one in messages} == {qos}


def test_retained_messages_stay_retained_on_both_sides(bridged, ours, paho, topic):
    """A message that is retained on one side while the bridge is up is retained on the other."""
    edge = bridged(f"topic {topic}/# both 1")
    paho(to=ours).publish(f"{topic}/a", "ours", 1, retain=True)
    paho(to=edge, version=4).publish(f"{topic}/b", "theirs", 1, retain=True)
    for broker, version in ((ours, 5), (edge, 4)):
        def retained(broker=broker, version=version) -> set:
            late = Paho(broker, version=version)
            late.subscribe(f"{topic}/#", 1)
            time.sleep(QUIET / 5)
            found = set()
            while not late.messages.empty():
                message = late.messages.get()
                found.add((message.topic, message.payload, bool(message.retain)))
            late.leave()
            return found

        until(lambda: retained() == {(f"{topic}/a", b"ours", True), (f"{topic}/b", b"theirs", True)})


def test_prefixes_map_topics(bridged, ours, paho, topic):
    edge = bridged(f"topic # out 1 plant/ {topic}/plant/", f"topic # in 1 orders/ {topic}/orders/")
    here, there = paho(to=ours), paho(to=edge, version=4)
    here.subscribe(f"{topic}/#", 1)
    there.subscribe("#", 1)
    there.publish("plant/temperature", "21", 1)
    assert [(one.topic, one.payload) for one in all_of(here, 1)] == [(f"{topic}/plant/temperature", b"21")]
    assert there.messages.get(timeout=15).topic == "plant/temperature"
    here.publish(f"{topic}/orders/stop", "now", 1)
    assert [(one.topic, one.payload) for one in all_of(there, 1)] == [("orders/stop", b"now")]


def test_a_bridge_that_is_gone_is_seen(bridged, ours, topic):
    """Its will, which is retained, says so."""
    edge = bridged(f"topic {topic}/# both 1")
    edge.end(kill=True)
    until(lambda: state(ours, edge) == b"0")


@pytest.mark.parametrize("version", ["v3.1", "v3.1.1"])
def test_what_was_sent_meanwhile_waits_for_the_bridge(bridged, ours, paho, topic):
    """Its session is kept, with the options of its subscriptions. (With MQTT 5 bridges ask for no Session Expiry.)"""
    lasting = (f"topic {topic}/# both 1", "cleansession false")
    edge = bridged(*lasting)
    here = paho(to=ours)
    edge.end(kill=True)
    until(lambda: state(ours, edge) == b"0")
    for number in range(10):
        here.publish(f"{topic}/down", str(number), 1)
    back = bridged(*lasting, name=edge.name)
    there = paho(to=back, version=4)
    # The edge keeps nothing for who comes later, so only what follows is certain to be seen there; that it comes
    # once, and nothing of it comes back, shows the options of the session.
    here.subscribe(f"{topic}/#", 1)
    there.subscribe(f"{topic}/#", 1)
    there.publish(f"{topic}/up", "there", 1)
    assert [one.payload for one in all_of(here, 1)] == [b"there"]
    assert f"{topic}/down" in back.log.read_text()


def test_a_user_of_a_bridge_needs_no_rule_for_its_state(brokers_with, bridged, paho, topic):
    secret = hashed("secret")
    guarded = brokers_with(f"""
        [[users]]
        name = "acme/edge"
        password = "{secret}"
        publish = ["up/#"]
        subscribe = ["down/#"]
        [[users]]
        name = "acme/office"
        password = "{secret}"
        subscribe = ["#", "$SYS/#"]
    """)
    login = {"username": "acme/office", "password": "secret"}
    edge = bridged("topic up/# out 1", "topic down/# in 1", "remote_username acme/edge", "remote_password secret",
                   to=guarded, login=login)
    here, there = paho(to=guarded, **login), paho(to=edge, version=4)
    here.subscribe("#", 1)
    there.subscribe("down/#", 1)
    there.publish("up/a", "x", 1)
    here.publish("down/a", "y", 1)
    assert here.receive().topic in ("up/a", "down/a")
    assert there.receive().topic == "down/a"
    edge.end(kill=True)
    until(lambda: state(guarded, edge, **login) == b"0")


@pytest.mark.parametrize("other", ["{}x", "x{}", "{}/more", ""])
def test_nobody_tells_the_state_of_another(ours, connect, dial, unique, other):
    """The topic has the Client Identifier in it; all else below `$SYS` is the broker's."""
    name = unique("edge")
    client = connect(wire.V5, name)
    told = client.publish(f"$SYS/broker/connection/{name}/state", b"1", qos=1)
    assert told.reason in (0, 0x10), "perhaps nobody listens"
    assert client.publish(f"$SYS/broker/connection/{name}/state", b"more than bridges say", qos=1, retain=True).reason == 0x87
    topic = f"$SYS/broker/connection/{other.format(name)}/state"
    assert client.publish(topic, b"1", qos=1).reason == 0x87
    assert dial(wire.V5).connect(unique("thief"), will=wire.Will(topic, b"0")).reason == 0x87
