"""mosquitto_pub and mosquitto_sub: the tools most people try first."""

import json
import subprocess

import pytest

from broker import until
from conftest import TENANTS


class Mosquitto:
    """Runs the tools against a broker; those that subscribe run until they have what they count to."""

    def __init__(self, broker, version: str):
        self.broker, self.version = broker, version
        self.started: list[subprocess.Popen] = []

    def publish(self, topic: str, *options, tenant: str | None = None, fails: bool = False, **run) -> str:
        done = subprocess.run(self._command("mosquitto_pub", topic, tenant, options), capture_output=True, timeout=20, **run)
        assert (done.returncode != 0) == fails, done.stderr.decode()
        return done.stderr.decode()

    def publish_lines(self, topic: str, *options, lines) -> None:
        """Publishes lines from standard input.

        Does not wait for the end: mosquitto_pub 2.0.11 sometimes (one time in 500, with any broker) does not see that its
        last line has been published, and never ends.
        """
        command = self._command("mosquitto_pub", topic, None, [*options, "-l"])
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        process.stdin.write("\n".join(lines).encode())
        process.stdin.close()
        process.stdin = None

    def subscribe(self, topic: str, *options, count: int = 1, tenant: str | None = None) -> subprocess.Popen:
        """Starts a subscriber, and answers when the broker has granted what it asks for."""
        command = self._command("mosquitto_sub", topic, tenant, ["-C", str(count), "-W", "30", "-d", *options])
        # Into a pipe it would say that it has subscribed only at its end.
        process = subprocess.Popen(["stdbuf", "-oL", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   bufsize=0)
        self.started.append(process)
        said = b""
        while not said.startswith(b"Subscribed"):
            said = process.stdout.readline()
            assert said, process.communicate()[1].decode()
        return process

    def _command(self, tool: str, topic: str, tenant: str | None, options) -> list[str]:
        login = ["-u", f"{tenant}/tool"] if tenant else []
        port = [] if "-p" in options else ["-p", str(self.broker.port)]
        return [tool, "-V", self.version, "-h", "localhost", *port, "-t", topic, *login, *map(str, options)]


def heard(subscriber: subprocess.Popen) -> list[str]:
    """The lines it printed, without what -d adds."""
    out, err = subscriber.communicate(timeout=35)
    assert subscriber.returncode == 0, (subscriber.returncode, out, err)
    return [line for line in out.decode().splitlines() if not line.startswith(("Client ", "Subscribed ", "Unsubscribed "))]


@pytest.fixture
def mosquitto(broker):
    """The tools in a version of MQTT."""
    made = []

    def tools(version: str) -> Mosquitto:
        made.append(Mosquitto(broker, version))
        return made[-1]

    yield tools
    for process in (process for tools in made for process in tools.started):
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(params=["31", "311", "5"], ids=["v3.1", "v3.1.1", "v5"])
def tools(mosquitto, request) -> Mosquitto:
    return mosquitto(request.param)


def test_a_message_in_two_tenants(tools, topic, qos):
    """The same client identifier and topic in both: each hears its own."""
    subscribers = [tools.subscribe(topic, "-q", qos, "-v", "-i", topic[-8:], tenant=tenant) for tenant in TENANTS]
    for tenant in TENANTS:
        tools.publish(topic, "-q", qos, "-m", f"for {tenant}", tenant=tenant)
    assert [heard(one) for one in subscribers] == [[f"{topic} for {tenant}"] for tenant in TENANTS]


def test_lines_of_standard_input(tools, topic, qos):
    lines = [f"line {number}" for number in range(200)]
    subscriber = tools.subscribe(topic, "-q", qos, count=len(lines))
    tools.publish_lines(topic, "-q", qos, lines=lines)
    assert heard(subscriber) == lines


def test_a_large_file(tools, topic, qos, tmp_path):
    """1,000,000 bytes arrive as they were."""
    file = tmp_path / "large"
    file.write_bytes(bytes(range(256)) * 3906 + b"tail")
    subscriber = tools.subscribe(topic, "-q", qos, "-F", "%X")
    tools.publish(topic, "-q", qos, "-f", file)
    assert bytes.fromhex(heard(subscriber)[0]) == file.read_bytes()


@pytest.mark.one_broker
def test_retained(tools, topic):
    """In a cluster the message may come before SUBACK, which waits for other brokers: the tool ends and does not tell of SUBACK."""
    tools.publish(topic, "-r", "-m", "kept", tenant="acme")
    assert heard(tools.subscribe(topic, "-F", "%r %p", tenant="acme")) == ["1 kept"]
    tools.publish(topic, "-r", "-n", tenant="acme")
    late = tools.subscribe(topic, "-F", "%r %p", tenant="acme")
    tools.publish(topic, "-m", "new", tenant="acme")
    assert heard(late) == ["0 new"]


def test_a_will(tools, topic):
    """A killed subscriber leaves one behind."""
    watcher = tools.subscribe(topic)
    mortal = tools.subscribe(topic + "/other", "--will-topic", topic, "--will-payload", "gone", "--will-qos", "1")
    mortal.kill()
    assert heard(watcher) == ["gone"]


def test_a_session_that_outlives_its_client(tools, topic, unique):
    options = ["-q", "1", "-i", unique("m"), "-c", *(["-x", "60"] if tools.version == "5" else [])]
    first = tools.subscribe(topic, *options)
    tools.publish(topic, "-q", "1", "-m", "present")
    assert heard(first) == ["present"]
    for text in ("away 1", "away 2"):
        tools.publish(topic, "-q", "1", "-m", text)
    command = tools._command("mosquitto_sub", topic, None, ["-C", "2", "-W", "30", *options])
    assert subprocess.run(command, capture_output=True, timeout=35).stdout.decode().split("\n") == ["away 1", "away 2", ""]


def test_tls(tools, broker, certificates, topic):
    """With and without a certificate; neither side talks to one that it has no reason to trust."""
    trust = ["-p", broker.mqtts_port, "--cafile", certificates.certificate("ca")]
    identity = ["--cert", certificates.certificate("client"), "--key", certificates.key("client")]
    subscriber = tools.subscribe(topic, *trust, *identity, count=2)
    tools.publish(topic, "-m", "anonymous", "-q", "1", *trust)
    tools.publish(topic, "-m", "certified", "-q", "1", *trust, *identity)
    assert heard(subscriber) == ["anonymous", "certified"]
    tools.publish(topic, "-m", "x", "-p", broker.mqtts_port, "--cafile", certificates.certificate("stranger"), fails=True)
    tools.publish(topic, "-m", "x", *trust, "--cert", certificates.certificate("stranger"),
                  "--key", certificates.key("stranger"), fails=True)


def test_properties(mosquitto, topic):
    tools = mosquitto("5")
    subscriber = tools.subscribe(topic, "-F", "%j")
    tools.publish(topic, "-m", "x", "-D", "publish", "content-type", "text/plain", "-D", "publish", "user-property", "a", "1",
                  "-D", "publish", "response-topic", "back", "-D", "publish", "message-expiry-interval", "60")
    properties = json.loads(heard(subscriber)[0])["properties"]
    assert properties["content-type"] == "text/plain"
    assert properties["response-topic"] == "back"
    assert 58 <= properties["message-expiry-interval"] <= 60


@pytest.mark.one_broker
def test_a_shared_subscription(tools, topic):
    """Each member ends after five messages: in a cluster, the one at the broker of the publisher is to get all."""
    members = [tools.subscribe(f"$share/g/{topic}", "-q", "1", count=5) for _ in range(2)]
    tools.publish_lines(topic, "-q", "1", lines="0123456789")
    assert sorted(heard(members[0]) + heard(members[1])) == list("0123456789")


def test_a_subscriber_that_leaves_is_forgotten(tools, broker, topic):
    """No connection, session or subscription is left of it."""
    mine = r'\{tenant="fleeting"\}'
    leaver = tools.subscribe(topic, tenant="fleeting")
    assert broker.metric("^barid_subscriptions" + mine) == 1
    tools.publish(topic, "-m", "bye", tenant="fleeting")
    heard(leaver)
    until(lambda: not any(broker.metric(f"^barid_{what}{mine}") for what in ("connections", "sessions", "subscriptions")))
