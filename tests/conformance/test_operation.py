"""What an operator sees from outside: $SYS topics, health, metrics, the PROXY protocol, signals."""

import signal
import socket
import struct
import subprocess

import pytest

import wire
from broker import BINARY
from wire import V5


def test_health(ours):
    assert ours.http("/healthz")[0] == 200


def test_metrics_count_packets_both_ways(broker_with, connect, topic):
    counted = broker_with("")
    client = connect(V5, to=counted)
    client.subscribe(topic)
    for _ in range(10):
        client.publish(topic, b"x", qos=0)
        client.receive(b"x")
    client.ping()
    for direction in ("in", "out"):
        labels = rf'\{{tenant="default",direction="{direction}",type="publish"'
        assert counted.metric("^barid_packets_total" + labels) == 10
        assert counted.metric("^barid_bytes_total" + labels) == 10 * len(wire.publish(topic, b"x"))


def test_metrics_are_prometheus_text(ours):
    status, text = ours.http("/metrics")
    assert status == 200
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert samples
    for line in samples:
        name, value = line.rsplit(" ", 1)
        assert name[0].isalpha() and name.count("{") == name.count("}") <= 1
        float(value)


@pytest.mark.parametrize("name", ["version", "uptime", "clients/connected", "messages/received", "messages/sent"])
def test_sys_topics(ours, connect, version, name):
    """The usual names."""
    client = connect(version)
    client.subscribe("$SYS/broker/" + name)
    assert client.receive().payload


def test_clients_cannot_write_sys_topics(ours, connect):
    """A forged value reaches nobody."""
    watcher, forger = connect(V5), connect(V5)
    watcher.subscribe("$SYS/#")
    try:
        forger.publish("$SYS/broker/version", b"forged", qos=1)
    except (wire.Closed, AssertionError):
        pass
    with pytest.raises(TimeoutError):
        while watcher.receive(timeout=0.3).payload != b"forged":
            pass


def test_sighup_does_not_disturb_clients(broker_with, connect, topic):
    running = broker_with("")
    client = connect(V5, to=running)
    client.subscribe(topic)
    running.signal(signal.SIGHUP)
    client.expect_nothing(0.3)
    client.publish(topic, b"x")
    client.receive(b"x")
    assert running.running()


def test_the_world_is_not_let_in_without_users(ours, tmp_path):
    """Listening beyond loopback needs authentication; the message says what to do."""
    config = tmp_path / "barid.toml"
    config.write_text("")
    refused = subprocess.run([BINARY, "serve", "--config", config, "--data-dir", tmp_path / "data", "--mqtt", "0.0.0.0:0", "--amqp", "off"],
                             capture_output=True, text=True, timeout=10)
    assert refused.returncode != 0
    assert "users" in refused.stderr or "authentication" in refused.stderr


# --------------------------------------------------------------------------------------- PROXY protocol


@pytest.fixture
def proxied(broker_with):
    return broker_with('[listeners.mqtt]\naddress = "127.0.0.1:{port}"\nproxy_protocol = true\n')


V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


@pytest.mark.parametrize("header", [
    b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n",
    b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 1883\r\n",
    b"PROXY UNKNOWN\r\n",
    V2_SIGNATURE + b"\x21\x11\x00\x0c" + socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.1")
    + struct.pack(">HH", 40000, 1883),
    V2_SIGNATURE + b"\x21\x21\x00\x27" + bytes(32) + struct.pack(">HH", 40000, 1883) + b"\x04\x00\x00",
    V2_SIGNATURE + b"\x20\x00\x00\x00",
], ids=["v1-tcp4", "v1-tcp6", "v1-unknown", "v2-tcp4", "v2-tcp6-with-tlv", "v2-local"])
@pytest.mark.parametrize("split", [False, True])
def test_a_proxy_header_comes_before_connect(proxied, dial, version, header, split):
    client = dial(version, proxied)
    if split:
        for byte in header:
            client.send(bytes([byte]))
        client.send(wire.connect("c", version=version))
    else:
        client.send(header + wire.connect("c", version=version))
    client.expect(wire.CONNACK, reason=0)
    client.ping()


@pytest.mark.parametrize("header", [
    b"",
    b"PROXY TCP4 nonsense\r\n",
    b"PROXY TCP4 192.0.2.7 192.0.2.1 99999 1883\r\n",
    b"PROXY " + b"x" * 200 + b"\r\n",
    V2_SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12),
    V2_SIGNATURE + b"\x21\x11\x00\x04" + bytes(4),
], ids=["none", "v1-nonsense", "v1-port", "v1-too-long", "v2-version-3", "v2-too-short"])
def test_a_wrong_proxy_header_ends_the_connection(proxied, dial, header):
    """Also a missing one: an address nobody vouched for is not to be believed."""
    dial(V5, proxied).send(header + wire.connect("c")).expect_closed()


def test_without_the_setting_a_proxy_header_is_not_mqtt(dial):
    dial(V5).send(b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 1883\r\n" + wire.connect("c")).expect_closed()
