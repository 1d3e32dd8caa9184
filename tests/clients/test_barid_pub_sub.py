"""`barid pub`, `barid sub` and `barid bench` against the broker, and side by side with mosquitto's tools."""

import json
import subprocess

import pytest

from broker import BINARY
from conftest import TENANTS
from running import ENVIRONMENT, barid

VERSIONS = pytest.mark.parametrize("version", ["31", "311", "5"], ids=["v3.1", "v3.1.1", "v5"])


class Subscribers:
    """Runs `barid sub` or `mosquitto_sub` in the background, from when the broker has granted the subscription."""

    def __init__(self, broker):
        self.broker, self.started = broker, []

    def start(self, *options, tool: tuple = (BINARY, "sub"), count: int = 1, where: tuple | None = None) -> subprocess.Popen:
        before = self.broker.metric("^barid_packets_total.*suback")
        where = where or ("-h", "localhost", "-p", self.broker.port)
        command = [*tool, *where, "-C", count, "-W", 30, *options]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        self.started.append(process)
        # One that gets a retained message at once may have ended already.
        while self.broker.metric("^barid_packets_total.*suback") == before and process.poll() != 0:
            assert process.poll() is None, process.communicate()
        return process


def heard(process: subprocess.Popen) -> list[str]:
    out, err = process.communicate(timeout=35)
    assert process.returncode == 0, (process.returncode, out, err)
    return out.decode().splitlines()


@pytest.fixture
def sub(broker):
    made = Subscribers(broker)
    yield made.start
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def pub(broker):
    def publish(*options, status: int = 0, where: tuple | None = None, **run) -> str:
        done = barid("pub", *(where or ("-h", "localhost", "-p", broker.port)), *options, **run)
        assert done.returncode == status, done
        return done.stderr
    return publish


@VERSIONS
def test_a_message_in_two_tenants(pub, sub, topic, version, qos):
    options = ["-t", topic, "-q", qos, "-V", version]
    subscribers = [sub(*options, "-v", "-i", "twin", "-u", f"{tenant}/cli") for tenant in TENANTS]
    for tenant in TENANTS:
        pub(*options, "-m", f"for {tenant}", "-u", f"{tenant}/cli")
    assert [heard(one) for one in subscribers] == [[f"{topic} for {tenant}"] for tenant in TENANTS]


@VERSIONS
def test_with_mosquittos_tools(broker, pub, sub, topic, version):
    """Each understands what the other says."""
    ours = sub("-t", topic, "-V", version, "-q", 1, "-F", "%t %q %r %l %p", count=2)
    theirs = sub("-t", topic, "-V", version, "-q", 1, "-F", "%t %q %r %l %p", tool=("mosquitto_sub",), count=2)
    pub("-t", topic, "-q", 1, "-m", "from ours", "-V", version)
    subprocess.run(["mosquitto_pub", "-h", "localhost", "-p", str(broker.port), "-t", topic, "-q", "1", "-m", "from theirs", "-V", version],
                   check=True, timeout=10)
    assert heard(ours) == heard(theirs) == [f"{topic} 1 0 9 from ours", f"{topic} 1 0 11 from theirs"]


@pytest.mark.parametrize("transport", ["tls", "ws", "wss"])
def test_other_transports(pub, sub, broker, certificates, topic, transport):
    trust = ("--cafile", certificates.certificate("ca"))
    scheme = {"tls": "mqtts", "ws": "ws", "wss": "wss"}[transport]
    path = "" if transport == "tls" else "/mqtt"
    where = ("-L", f"{scheme}://localhost:{broker.port_of(transport)}{path}", *(trust if transport != "ws" else ()))
    subscriber = sub("-t", topic, where=where)
    pub("-t", topic, "-m", "x" * 100_000, "-q", 2, where=where)
    assert heard(subscriber) == ["x" * 100_000]


def test_client_certificates(pub, broker, certificates, topic):
    where = ("-h", "localhost", "-p", broker.mqtts_port, "--cafile", certificates.certificate("ca"))
    def identity(name):
        return ["--cert", certificates.certificate(name), "--key", certificates.key(name)]
    pub("-t", topic, "-m", "x", "-q", 1, *identity("client"), where=where)
    assert pub("-t", topic, "-m", "x", "-q", 1, *identity("stranger"), where=where, status=1)


def test_lines_and_files(pub, sub, topic, tmp_path):
    lines = [f"line {number}" for number in range(500)]
    subscriber = sub("-t", topic, "-q", 2, count=500)
    pub("-t", topic, "-q", 2, "-l", input="\n".join(lines) + "\n")
    assert heard(subscriber) == lines
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 3000)
    subscriber = sub("-t", topic, "-N")
    pub("-t", topic, "-f", file)
    assert subscriber.communicate(timeout=35)[0] == file.read_bytes()


def test_retained_messages_come_and_go(pub, sub, topic):
    pub("-t", topic, "-m", "kept", "-r", "-q", 1)
    assert heard(sub("-t", topic, "-F", "%r %p")) == ["1 kept"]
    pub("-t", topic, "-n", "-r", "-q", 1)
    late = sub("-t", topic, "-F", "%r %p")
    pub("-t", topic, "-m", "new")
    assert heard(late) == ["0 new"]


def test_properties_and_json(pub, sub, topic):
    subscriber = sub("-t", topic, "--json", "-D", "subscribe", "subscription-identifier", 9)
    pub("-t", topic, "-m", "21.5", "-D", "publish", "user-property", "unit", "C", "-D", "publish", "content-type", "text/plain",
        "-D", "publish", "response-topic", "back")
    message = json.loads(heard(subscriber)[0])
    assert message["topic"] == topic
    assert "21.5" in json.dumps(message) and "text/plain" in json.dumps(message) and "unit" in json.dumps(message)


def test_a_will(sub, topic):
    watcher = sub("-t", topic, "-q", 1)
    mortal = sub("-t", topic + "/x", "--will-topic", topic, "--will-payload", "gone", "--will-qos", 1)
    mortal.kill()
    assert heard(watcher) == ["gone"]


def test_a_session_that_outlives_its_client(pub, sub, topic, unique):
    options = ["-t", topic, "-q", 1, "-c", "-i", unique("s")]
    first = sub(*options)
    pub("-t", topic, "-q", 1, "-m", "0")
    assert heard(first) == ["0"]
    for text in "123":
        pub("-t", topic, "-q", 1, "-m", text)
    assert heard(sub(*options, count=3)) == ["1", "2", "3"]


def test_exit_statuses(broker, pub, topic):
    """0 done, 1 no broker there, 2 wrong usage, 3 refused, 27 time is up."""
    assert pub("-t", topic, "-m", "x", where=("-h", "127.0.0.1", "-p", 1), status=1)
    assert pub("-t", topic, status=2)
    assert pub("-t", topic, "-m", "x", "-D", "connect", "authentication-method", "telepathy", status=3)
    waited = barid("sub", "-h", "localhost", "-p", broker.port, "-t", topic, "-W", 1)
    assert waited.returncode == 27


def bench(broker, *options) -> dict:
    done = barid("bench", *options, "-p", broker.port, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario, n", [("pairs", 4), ("fanout", 8), ("fanin", 8)])
def test_bench(broker, scenario, n, qos):
    """Everything that is sent arrives, once."""
    told = bench(broker, scenario, "-n", n, "--rate", 400, "-d", 1, "-q", qos, "--size", 64, "--pid", broker._process.pid)
    assert told["sent"] > 100 and told["lost"] == 0 and told["surplus"] == 0 and told["connections_dropped"] == 0
    assert told["delivered_per_s"] > 100
    # So few messages may take less than the kernel's tick of CPU time.
    assert told["broker_cpu_us_per_message"] >= 0 and told["broker_rss_bytes"] > 0


def test_bench_connections(broker):
    told = bench(broker, "connections", "-n", 200)
    assert told["connections"] >= 200 and told["connections_per_s"] > 0
