"""Users over AMQP: they log in with SASL PLAIN or a certificate, their rules decide about entities, and what changes
reaches them while they are connected.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from amqp_codec import Symbol
from amqp_wire import AMQP, SASL, SECONDS, Closed, Connection, Message, Refused, performative
from broker import BINARY, until
from namespace import KEY, KEY_NAME

JS = Path(__file__).parent / "js"
QUEUES = "".join(f'[[queues]]\nname = "{name}"\ntenant = "acme"\n' for name in ("orders", "secret", "ada/own"))
FORCED, UNAUTHORIZED = "amqp:connection:forced", "amqp:unauthorized-access"


class Operator:
    """Runs `barid … --admin …` for one broker."""

    def __init__(self, broker):
        self.broker = broker

    def does(self, *arguments, **run) -> str:
        command = [BINARY, *arguments, "--admin", f"127.0.0.1:{self.broker.admin_port}"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=30, **run)
        assert done.returncode == 0, done
        return done.stdout

    def user(self, name: str, *rules: str, does: str = "add", cost: str = "device") -> None:
        secret = ("--password-file", "-", "--cost", cost) if does == "add" else ()
        self.does("user", does, name, *secret, *rules, input="secret")

    def connections(self) -> list[dict]:
        return json.loads(self.broker.http("/v1/tenants/acme/amqp-connections?limit=1000")[1])["connections"]


@pytest.fixture
def running(own_broker):
    return own_broker(QUEUES)


@pytest.fixture
def operator(running) -> Operator:
    return Operator(running)


@pytest.fixture
def log_in(running):
    """Connects a user; the connection is open."""
    opened = []

    def connect(name: str = "acme/ada", password: str = "secret", container_id: str = "box-1") -> Connection:
        connection = Connection(("127.0.0.1", running.amqp_port))
        opened.append(connection)
        if (outcome := connection.sasl("PLAIN", f"\0{name}\0{password}".encode()).code) != 0:
            raise Refused(outcome)
        connection.open(container_id=container_id)
        return connection

    yield connect
    for connection in opened:
        connection.close()


def is_refused(attempt, condition=UNAUTHORIZED) -> None:
    with pytest.raises(Refused) as refused:
        attempt()
    assert refused.value.condition == condition


def ends(connection: Connection, seconds: float = 2.0) -> tuple[str, str]:
    """The condition and the text with which the broker closes the connection."""
    error = connection.expect("close", seconds).error.value
    return str(error[0]), error[1]


# ------------------------------------------------------------------------------------------------------ logins

def test_a_user_logs_in_with_rhea(running, operator):
    operator.user("acme/ada", "--allow", "send,receive:orders")
    operator.user("acme/bob", "--allow", "send:orders")
    port = running.amqp_port

    def play(*arguments) -> list[str]:
        done = subprocess.run(["node", "user.js", str(port), *arguments], cwd=JS, capture_output=True, text=True, timeout=30)
        return done.stdout.splitlines()

    assert set(play("acme/ada", "secret", "orders")) == {"open", "sent", "received hello", "closed"}
    assert set(play("acme/ada", "secret", "secret")) == {"open", f"sender {UNAUTHORIZED}", f"receiver {UNAUTHORIZED}", "closed"}
    assert set(play("acme/bob", "secret", "orders")) == {"open", f"receiver {UNAUTHORIZED}", "sent", "closed"}
    assert "open" not in (told := play("acme/ada", "wrong", "orders")) and told[0].startswith("refused"), told


@pytest.mark.parametrize("name, password", [("acme/ada", "wrong"), ("acme/eve", "secret"), ("ada", "secret"), ("zeta/ada", "secret"),
                                            ("acme/ada", ""), pytest.param("acme/ada", "x" * 60_000, id="long")])
def test_a_wrong_login_is_refused(operator, log_in, name, password):
    operator.user("acme/ada")
    is_refused(lambda: log_in(name, password), 1)
    log_in()


def test_keys_and_users_beside_each_other(operator, own_broker):
    running = own_broker(QUEUES + '[[keys]]\nname = "acme/worker"\nkey = "text"\nrights = ["Listen"]\n')
    Operator(running).user("acme/ada", "--allow", "send:#")
    opened = []
    for name, password in (("acme/worker", "text"), ("acme/ada", "secret")):
        connection = Connection(("127.0.0.1", running.amqp_port))
        assert connection.sasl("PLAIN", f"\0{name}\0{password}".encode()).code == 0
        connection.open()
        connection.session()
        opened.append(connection)
    found = {(one.get("user"), one.get("key")) for one in Operator(running).connections()}
    assert found == {("acme/ada", None), (None, "acme/worker")}


def test_a_login_may_be_sent_with_all_that_follows(running, operator):
    """The password has a slow hash, so the rest of the bytes waits for the outcome."""
    operator.user("acme/ada", cost="person")
    connection = Connection(("127.0.0.1", running.amqp_port))
    connection.write(SASL + performative("init", mechanism=Symbol("PLAIN"), initial_response=b"\0acme/ada\0secret") + AMQP
                     + performative("open", container_id="pipelined"))
    assert connection.read_exactly(8, time.monotonic() + SECONDS) == SASL
    assert connection.expect("outcome").code == 0
    assert connection.read_exactly(8, time.monotonic() + SECONDS) == AMQP
    connection.expect("open")


def test_slow_hashes_keep_nobody_waiting(running, operator, log_in):
    """While many wrong passwords are verified, a client that is connected is served."""
    operator.user("acme/ada", cost="person")
    operator.user("acme/bob")
    sender = log_in("acme/bob").session().sender("orders")

    def attempt(number: int) -> int:
        connection = Connection(("127.0.0.1", running.amqp_port))
        code = connection.sasl("PLAIN", b"\0acme/ada\0wrong %d" % number).code
        connection.close()
        return code

    with ThreadPoolExecutor(20) as threads:
        codes = threads.map(attempt, range(60))
        slowest = 0.0
        for _ in range(100):
            began = time.monotonic()
            sender.send(Message.of("now"))
            slowest = max(slowest, time.monotonic() - began)
        assert set(codes) <= {1, 3}, "wrong, or too many are waiting"
    assert slowest < 1.0


# ------------------------------------------------------------------------------------------------------ rules

def test_rules_decide_about_entities(operator, log_in):
    operator.user("acme/ada", "--deny", "send,receive:secret", "--allow", "send:#", "--allow", "receive:ada/#")
    session = log_in().session()
    session.sender("orders").send(Message.of("1"))
    session.receiver("ada/own")
    is_refused(lambda: session.sender("secret"))
    is_refused(lambda: session.receiver("orders"))
    is_refused(lambda: session.receiver("secret/$DeadLetterQueue"))
    denials = json.loads(operator.does("why", "--tenant", "acme", "--json", "--client", "box-1"))
    assert "orders" in json.dumps(denials) and "secret" in json.dumps(denials)


def test_rules_with_the_container_id(operator, log_in):
    operator.user("acme/ada", "--allow", "send,receive:%c/own")
    log_in(container_id="ada").session().sender("ada/own")
    is_refused(lambda: log_in(container_id="eve").session().sender("ada/own"))


def test_other_rules_end_links(operator, log_in):
    operator.user("acme/ada", "--allow", "send,receive:#")
    connection = log_in()
    session = connection.session()
    first, second = session.sender("orders"), session.sender("secret")
    operator.user("acme/ada", "--allow", "send:orders", does="set")
    gone = session.expect("detach", 2, handle=second.remote)
    assert gone.condition == UNAUTHORIZED and "rules" in gone.error.value[1]
    first.send(Message.of("still"))
    is_refused(lambda: session.sender("secret"))


# ------------------------------------------------------------------------------------------- changes and bans

@pytest.mark.parametrize("change, condition", [
    (("user", "disable", "acme/ada"), FORCED), (("user", "remove", "acme/ada", "--yes"), FORCED),
    (("user", "set", "acme/ada", "--random", "--cost", "device"), UNAUTHORIZED),
    (("ban", "add", "--user", "acme/ada"), FORCED), (("ban", "add", "--address", "127.0.0.0/8"), FORCED),
    (("ban", "add", "--client", "box-1", "--tenant", "acme"), FORCED),
])
def test_who_may_not_stay_is_disconnected(operator, log_in, change, condition):
    operator.user("acme/ada")
    if "--address" not in change:
        operator.user("acme/bob")
        bob = log_in("acme/bob", container_id="box-2")
    ada = log_in()
    began = time.monotonic()
    operator.does(*change)
    ended = ends(ada)
    assert ended[0] == condition and time.monotonic() - began < 2, ended
    said = ("INFO login denied", ": disconnected", 'user="acme/ada"', "peer=127.0.0.1:")
    until(lambda: any(all(part in line for part in said) for line in operator.broker.stderr.splitlines()))
    with pytest.raises((Refused, Closed, AssertionError, TimeoutError)):
        log_in().expect("begin", 1)
    if "--address" not in change:
        bob.session()


def test_clients_with_keys_are_banned_as_well(own_broker):
    running = own_broker(QUEUES + '[[keys]]\nname = "acme/worker"\nkey = "text"\nrights = ["Listen"]\n')
    connection = Connection(("127.0.0.1", running.amqp_port))
    assert connection.sasl("PLAIN", b"\0acme/worker\0text").code == 0
    connection.open()
    Operator(running).user("acme/ada")
    connection.session()
    Operator(running).does("ban", "add", "--address", "127.0.0.1")
    assert ends(connection)[0] == FORCED


def test_a_thousand_connections_are_checked(operator, log_in):
    """After one change, all are checked, and only those that it concerns are disconnected."""
    names = ["acme/ada", "acme/bob", "acme/eve"]
    for name in names:
        operator.user(name)
    with ThreadPoolExecutor(8) as threads:
        clients = list(threads.map(lambda number: log_in(names[number % 3], container_id=f"box-{number}"), range(600)))
    until(lambda: len(operator.connections()) == 600)
    operator.does("user", "disable", "acme/bob")
    until(lambda: len(operator.connections()) == 400, 5)
    for number, client in enumerate(clients):
        if number % 3 == 1:
            assert ends(client)[0] == FORCED
    clients[0].session()
    clients[599].session()


# ------------------------------------------------------------------------------------------------ certificates

def test_a_certificate_is_a_user(own_broker, certificates):
    running = own_broker(QUEUES + """
        [auth]
        chain = ["devices", "store"]
        [auth.certificate.devices]
        user = "acme/{name}"
    """, f'client_ca = "{certificates.certificate("ca")}"')

    def connect(certificate: str | None) -> Connection:
        connection = Connection(("127.0.0.1", running.amqps_port))
        context = ssl.create_default_context(cafile=certificates.certificate("ca"))
        if certificate:
            context.load_cert_chain(certificates.certificate(certificate), certificates.key(certificate))
        connection.socket = context.wrap_socket(connection.socket, server_hostname="localhost")
        return connection

    for name in (b"", b"acme/client"):
        connection = connect("client")
        assert connection.sasl("EXTERNAL", name).code == 0
        connection.open()
        connection.session().sender("orders")
    until(lambda: {one.get("user") for one in Operator(running).connections()} == {"acme/client"})
    assert connect("client").sasl("EXTERNAL", b"acme/ada").code == 1
    anybody = connect(None)
    assert anybody.sasl("EXTERNAL", b"").code == 0, "such a client has to send a token"
    anybody.open()
    is_refused(lambda: anybody.session().sender("orders"))
    assert connect("client").sasl("PLAIN", f"\0{KEY_NAME}\0{KEY}".encode()).code == 0, "a key is a key"
