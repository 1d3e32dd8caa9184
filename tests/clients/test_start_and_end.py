"""How the broker starts, refuses to start, and ends."""

import signal
import socket
import subprocess
import time

import pytest

from broker import BINARY, Broker, free_port, until
from running import ENVIRONMENT, barid

# As little as possible, out of everybody's way; a flag stands over each.
QUIET = {"BARID_MQTT": "127.0.0.1:0", "BARID_WS": "off", "BARID_AMQP": "off", "BARID_ADMIN": "127.0.0.1:0"}


def test_it_says_where_it_listens_and_is_ready_soon(tmp_path):
    """Well under a second, with the ports that the system chose. The machine may be busy once, and the broker must not be slow."""
    seconds = []
    for number in range(3):
        data, started = tmp_path / str(number), time.monotonic()
        command = [BINARY, "serve", "--ws", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--data-dir", data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | QUIET) as process:
            said = ""
            for line in process.stdout:
                said += line
                if line.startswith("ready"):
                    break
            seconds.append(time.monotonic() - started)
            process.terminate()
            assert process.wait(15) == 0
        for name in ("mqtt", "ws", "amqp", "admin", str(data)):
            assert name in said
        assert ":0\n" not in said, "the port that was chosen, not the one that was asked for"
    assert min(seconds) < 1, seconds


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_good_bye(broker_with, paho, number):
    """DISCONNECT with 0x8B to MQTT 5 clients, the end of the connection to others, exit status 0, all of it soon."""
    running = broker_with("")
    new, old = paho(to=running, version=5), paho(to=running, version=4)
    web = paho(to=Through(running), version=5, transport="ws")
    started = time.monotonic()
    running.signal(number)
    running.signal(number)  # As `timeout` does, to the process and to its group.
    assert running._process.wait(15) == 0
    assert time.monotonic() - started < 5
    assert new.disconnected.get(timeout=15) == 0x8B
    assert web.disconnected.get(timeout=15) == 0x8B
    old.disconnected.get(timeout=15)


class Through:
    """The WebSocket port of a plain broker."""

    def __init__(self, running):
        self.port_of = lambda transport: running.ws_port


def test_it_ends_soon_with_many_clients(broker_with, connect):
    running = broker_with("")
    for _ in range(200):
        connect(to=running)
    started = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - started < 4


def test_it_ends_though_a_client_does_not_read(broker_with, connect, topic):
    running = broker_with("")
    deaf, loud = connect(to=running), connect(to=running)
    deaf.subscribe(topic)
    for _ in range(200):
        loud.publish(topic, bytes(50_000))
    assert running.stop() == 0


def test_after_sigkill_it_starts_again(broker_with, paho, topic):
    """On the same ports and the same data directory, at once."""
    running = broker_with("")
    client = paho(to=running, transport="tcp")
    client.publish(topic, b"x", 1, retain=True)
    command = [*running._process.args]
    running.kill9()
    for _ in range(2):
        running._process = subprocess.Popen(command, stderr=open(running.directory / "stderr", "ab"), stdout=subprocess.DEVNULL)
        assert running._becomes_healthy(), running.stderr
        paho(to=running).publish(topic, b"again", 1)
        running.kill9()
    running.restart()


@pytest.mark.parametrize("flag", ["--mqtt", "--ws", "--amqp", "--admin"])
def test_two_on_one_port(ours, tmp_path, flag):
    """The second says which listener and which address, and what to do."""
    port = {"--mqtt": ours.port, "--ws": ours.ws_port, "--amqp": ours.amqp_port, "--admin": ours.admin_port}[flag]
    done = barid("serve", flag, f"127.0.0.1:{port}", "--data-dir", tmp_path, environment=QUIET)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr and flag[2:] in done.stderr and "another" in done.stderr, done.stderr
    assert "panicked" not in done.stderr


@pytest.mark.parametrize("flag", ["--mqtt", "--ws", "--amqp", "--admin"])
def test_a_start_that_fails_lets_nobody_in(ours, tmp_path, flag):
    """Whichever address is taken: no client is connected and then cut off, and nothing is made."""
    port = {"--mqtt": ours.port, "--ws": ours.ws_port, "--amqp": ours.amqp_port, "--admin": ours.admin_port}[flag]
    flags = {name: free_port() for name in ("--mqtt", "--ws", "--amqp", "--admin")} | {flag: port}
    command = [BINARY, "serve", "--data-dir", tmp_path / "data", *(part for name, port in flags.items() for part in (name, f"127.0.0.1:{port}"))]
    others = [port for name, port in flags.items() if name != flag]
    let_in = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        while process.poll() is None:
            for other in others:
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", other)) == 0:
                        let_in.append(other)
        assert process.returncode == 1 and "another" in process.stderr.read()
    assert not let_in
    assert not (tmp_path / "data").exists()


def test_nobody_is_let_in_before_the_data_directory_is_read(broker_with, connect, topic):
    """A start that finds it damaged fails, and has let nobody in either."""
    running = broker_with("")
    client = connect(to=running)
    for number in range(200):
        client.publish(f"{topic}/{number}", bytes(1000), qos=1, retain=True)
    running.stop()
    for segment in (running.directory / "data").glob("shard-*/log-*"):
        damaged = bytearray(segment.read_bytes())
        damaged[20] ^= 1
        segment.write_bytes(damaged)
    command = [*running._process.args]
    let_in = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        while process.poll() is None:
            with socket.socket() as client:
                let_in += client.connect_ex(running.address) == 0
        assert process.returncode == 1 and "damaged" in process.stderr.read()
    assert not let_in


@pytest.mark.parametrize("flag", ["--mqtt", "--ws"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_the_world_is_not_let_in_without_users(tmp_path, flag, address):
    done = barid("serve", flag, address, "--data-dir", tmp_path, environment=QUIET)
    assert done.returncode == 1
    assert "[[users]]" in done.stderr and "127.0.0.1" in done.stderr and "passwd" in done.stderr, done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_amqp_does_not_let_the_world_in_without_keys(tmp_path, address):
    done = barid("serve", "--amqp", address, "--data-dir", tmp_path, environment=QUIET)
    assert done.returncode == 1
    assert "[[keys]]" in done.stderr and "127.0.0.1" in done.stderr and "--amqp" in done.stderr, done.stderr


def test_with_users_it_may_listen_to_the_world(tmp_path):
    """On all addresses of this machine; asked on loopback."""
    config = tmp_path / "barid.toml"
    config.write_text(barid("passwd", "--stdin", "acme/ada", input="secret").stdout)
    port, admin = free_port(), free_port()
    command = [BINARY, "serve", "--config", config, "--mqtt", f"0.0.0.0:{port}", "--ws", "off", "--amqp", "off", "--admin", f"127.0.0.1:{admin}",
               "--data-dir", tmp_path / "data"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        published = ["pub", "-h", "127.0.0.1", "-p", str(port), "-t", "t", "-m", "x", "-q", "1", "-u", "acme/ada", "-P"]
        until(lambda: barid(*published, "secret").returncode == 0)
        assert barid(*published, "wrong").returncode != 0
        process.terminate()
        assert process.wait(15) == 0


def test_flag_over_environment_over_file_over_default(tmp_path):
    config = tmp_path / "barid.toml"
    config.write_text('data_dir = "from-file"\n[admin]\naddress = "127.0.0.1:1"\n[listeners]\nmqtt = { address = "127.0.0.1:2" }\n')
    environment = {"BARID_CONFIG": str(config), "BARID_MQTT": "127.0.0.1:3", "BARID_DATA_DIR": str(tmp_path / "data"),
                   "BARID_ADMIN": "nonsense"}
    refused = barid("serve", environment=environment)
    assert refused.returncode != 0 and "nonsense" in refused.stderr, "the environment is looked at"
    port, admin = free_port(), free_port()
    with subprocess.Popen([BINARY, "serve", "--mqtt", f"127.0.0.1:{port}", "--ws", "off", "--amqp", "off"], text=True, cwd=tmp_path,
                          env=ENVIRONMENT | environment | {"BARID_ADMIN": f"127.0.0.1:{admin}"},
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        said = ""
        while "ready" not in said:
            said += process.stdout.readline()
        process.terminate()
    assert f"127.0.0.1:{port}\n" in said and f"127.0.0.1:{admin}\n" in said and str(tmp_path / "data") in said
    assert not (tmp_path / "from-file").exists()


def test_a_data_directory_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    done = barid("serve", "--data-dir", tmp_path / "file" / "below", environment=QUIET)
    assert done.returncode == 1 and "data directory" in done.stderr, done.stderr


def test_the_broker_class_starts_many_at_once():
    """Brokers do not disturb each other: nothing but ports and directories is theirs."""
    brokers = [Broker() for _ in range(3)]
    assert all(one.http("/healthz")[0] == 200 for one in brokers)
    for one in brokers:
        one.close()
