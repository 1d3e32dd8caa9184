"""Enhanced authentication of MQTT 5 (§4.12): SCRAM-SHA-256, and tokens that a client renews while it is connected."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import subprocess
import time

import pytest

import wire
from broker import BINARY, until
from tokens import KEY, token
from wire import AUTH, CONNACK, V5

AGAIN, CONTINUE, SUCCESS = 0x19, 0x18, 0
METHOD = "SCRAM-SHA-256"


class Scram:
    """The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677)."""

    def __init__(self, user: str, password: str):
        self.password = password
        self.nonce = secrets.token_hex(12)
        self.bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        assert fields["r"].startswith(self.nonce) and len(fields["r"]) > len(self.nonce)
        self.iterations, self.salt = int(fields["i"]), base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), self.salt, self.iterations)
        key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self.bare},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature))
        self.expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), message, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        assert server_final == b"v=" + base64.b64encode(self.expected), "the broker does not know the password"


def properties(data: bytes | None = None, method: str = METHOD) -> dict:
    found = {"authentication_method": method}
    return found if data is None else found | {"authentication_data": data}


def begin(client: wire.Client, scram: Scram, client_id: str = "c", **options) -> wire.Packet:
    """Sends CONNECT, and returns the answer."""
    client.send(wire.connect(client_id, V5, properties=properties(scram.first()), **options))
    return client.recv()


def log_in(client: wire.Client, scram: Scram, **options) -> wire.Packet:
    challenge = begin(client, scram, **options)
    assert (challenge.kind, challenge.reason) == (AUTH, CONTINUE)
    assert challenge.properties["authentication_method"] == METHOD
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge.properties["authentication_data"]))))
    return client.recv()


def verifier(password: str, *options: str) -> str:
    words = [BINARY, "passwd", "--stdin", "--cost", "device", *options]
    return subprocess.run(words, input=password, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def scram_broker(broker_with):
    users = [("acme/ada", verifier("secret", "--scram")), ("acme/bob", verifier("secret"))]
    return broker_with("\n".join(f'[[users]]\nname = "{name}"\npassword = "{hash_}"\npublish = ["%u/#"]' for name, hash_ in users))


def test_scram(scram_broker, dial):
    """Both sides prove that they know the password, and nobody sends it."""
    client, scram = dial(V5, scram_broker), Scram("acme/ada", "secret")
    connack = log_in(client, scram, username="acme/ada")
    assert (connack.kind, connack.reason) == (CONNACK, 0)
    assert connack.properties["authentication_method"] == METHOD
    scram.check(connack.properties["authentication_data"])
    client.ping()


def test_what_follows_the_proof_comes_at_the_rate(broker_with, dial):
    """It is in one piece with the last AUTH, so that it is read before the client has a session."""
    running = broker_with(f'''
        [[users]]
        name = "acme/ada"
        password = "{verifier("secret", "--scram")}"
        [tenants.acme.limits]
        inbound_bytes_rate = 20000
    ''')
    client, scram = dial(V5, running), Scram("acme/ada", "secret")
    challenge = begin(client, scram, username="acme/ada")
    answer = wire.auth(CONTINUE, properties(scram.final(challenge.properties["authentication_data"])))
    started = time.monotonic()
    client.send(answer + wire.publish("t", bytes(1_000)) * 60 + wire.pingreq())
    client.expect(CONNACK, reason=0)
    client.expect(wire.PINGRESP)
    assert 1.9 < time.monotonic() - started < 3.5, "41,000 bytes behind the burst"


def test_the_user_of_scram_is_the_user(scram_broker, dial, login):
    """A CONNECT without a user name has the name in the exchange; the rules of that user apply."""
    client = dial(V5, scram_broker)
    assert log_in(client, Scram("acme/ada", "secret")).reason == 0
    assert client.publish("acme/ada/x", b"1", 1).reason in (0, 0x10)
    assert client.publish("acme/bob/x", b"1", 1).reason == 0x87
    other = dial(V5, scram_broker)
    assert begin(other, Scram("acme/ada", "secret"), username="acme/bob").reason == 0x86


def test_a_user_who_is_disabled_between_challenge_and_proof(broker_with, dial):
    running = broker_with('[auth]\nchain = ["store"]\n')

    def does(*words: str) -> None:
        command = [BINARY, *words, "--admin", f"127.0.0.1:{running.admin_port}"]
        subprocess.run(command, input="secret", capture_output=True, text=True, check=True)

    does("user", "add", "acme/ada", "--password-file", "-", "--cost", "device", "--scram")
    assert log_in(dial(V5, running), Scram("acme/ada", "secret")).reason == 0
    client, scram = dial(V5, running), Scram("acme/ada", "secret")
    challenge = begin(client, scram)
    does("user", "disable", "acme/ada")
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge.properties["authentication_data"]))))
    assert client.recv().reason == 0x88


@pytest.mark.parametrize("user, password", [("acme/ada", "wrong"), ("acme/bob", "secret"), ("acme/nobody", "secret"), ("nobody", "secret")])
def test_who_cannot_prove_it_is_refused_at_the_end(scram_broker, dial, user, password):
    """Users without keys and unknown names get a challenge as well, with a salt that is always the same."""
    attempts = [Scram(user, password) for _ in range(2)]
    for scram in attempts:
        connack = log_in(dial(V5, scram_broker), scram)
        assert (connack.kind, connack.reason) == (CONNACK, 0x86)
    assert attempts[0].salt == attempts[1].salt
    scram_broker.restart() if hasattr(scram_broker, "restart") else None


@pytest.mark.parametrize("packets", [
    [wire.pingreq()],
    [wire.publish("a", b"x")],
    [wire.auth(AGAIN, properties(b"n,,n=acme/ada,r=x"))],
    [wire.auth(CONTINUE, properties(b"c=biws,r=x,p=AAAA"))],
    [wire.auth(CONTINUE, properties(b"\xff" * 20_000))],
    [wire.auth(CONTINUE, properties(b"x", "JWT"))],
    [wire.auth(CONTINUE, properties())],
    [wire.connect("c", V5)],
], ids=["ping", "publish", "again", "proof", "large", "method", "nothing", "connect"])
def test_another_packet_than_the_answer_ends_the_connection(scram_broker, dial, packets):
    client = dial(V5, scram_broker)
    assert begin(client, Scram("acme/ada", "secret")).kind == AUTH
    client.send(*packets)
    with pytest.raises((wire.Closed, AssertionError)):
        while client.recv().reason != 0:
            pass
    assert scram_broker.running()


def test_what_is_no_first_message_is_refused(scram_broker, dial):
    for data in (b"", b"x", b"p=tls-unique,,n=acme/ada,r=x", b"n,,n=acme/ada", b"n,,n=acme/ada,r=" + b"x" * 60_000):
        client = dial(V5, scram_broker)
        client.send(wire.connect("c", V5, properties=properties(data)))
        client.expect_not_accepted(0x86)


def test_authenticating_again(scram_broker, dial):
    """MQTT-4.12.1: the connection goes on meanwhile, and ends if the client cannot prove who it is."""
    client = dial(V5, scram_broker)
    assert log_in(client, Scram("acme/ada", "secret")).reason == 0
    for _ in range(3):
        scram = Scram("acme/ada", "secret")
        client.send(wire.auth(AGAIN, properties(scram.first())))
        challenge = client.expect(AUTH, reason=CONTINUE)
        client.ping()
        client.send(wire.auth(CONTINUE, properties(scram.final(challenge.properties["authentication_data"]))))
        scram.check(client.expect(AUTH, reason=SUCCESS).properties["authentication_data"])
    scram = Scram("acme/ada", "wrong")
    client.send(wire.auth(AGAIN, properties(scram.first())))
    challenge = client.expect(AUTH, reason=CONTINUE)
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge.properties["authentication_data"]))))
    client.expect_refused(0x87)


def test_another_user_cannot_take_over_by_authenticating_again(broker_with, dial):
    hash_ = verifier("secret", "--scram")
    running = broker_with("\n".join(f'[[users]]\nname = "acme/{name}"\npassword = "{hash_}"' for name in ("ada", "bob")))
    client = dial(V5, running)
    assert log_in(client, Scram("acme/ada", "secret")).reason == 0
    client.send(wire.auth(AGAIN, properties(Scram("acme/bob", "secret").first())))
    client.expect_refused(0x87)


# ------------------------------------------------------------------------------------------------------- tokens

@pytest.fixture
def token_broker(broker_with, tmp_path):
    (tmp_path / "key").write_text(KEY)
    return broker_with(f"""
        [auth]
        chain = ["devices"]
        [auth.jwt.devices]
        secret_file = "{tmp_path}/key"
        algorithms = ["HS256"]
        tenant_claim = "tenant"
        leeway = 0
    """)


def test_a_token_is_a_password(token_broker, login, dial):
    client = login(token_broker, "acme/ada", token("ada", 60, barid={"publish": ["up/%c"]}), client_id="c1")
    assert client.connack.reason == 0
    assert client.publish("up/c1", b"1", 1).reason in (0, 0x10)
    assert client.publish("up/c2", b"1", 1).reason == 0x87
    assert login(token_broker, "acme/bob", token("ada", 60)).connack.reason == 0x86
    assert login(token_broker, "acme/ada", token("ada", -5)).connack.reason == 0x86
    assert login(token_broker, "globex/ada", token("ada", 60)).connack.reason == 0x86
    assert login(token_broker, "acme/ada", token("ada", 60)[:-2] + b"xx").connack.reason == 0x86


@pytest.mark.parametrize("version", [wire.V311, V5])
def test_the_connection_ends_when_its_token_expires(token_broker, login, version):
    began = time.monotonic()
    client = login(token_broker, "acme/ada", token("ada", 2), version=version)
    assert client.connack.reason == 0
    if version == V5:
        client.expect_refused(0x87, timeout=10)
    else:
        client.expect_closed(timeout=10)
    assert 0.5 < time.monotonic() - began < 4


def test_a_new_token_keeps_the_connection(token_broker, dial):
    client = dial(V5, token_broker)
    first = properties(token("ada", 2, barid={"subscribe": ["a/#"]}), "JWT")
    client.send(wire.connect("c", V5, username="acme/ada", properties=first))
    connack = client.recv()
    assert connack.reason == 0 and connack.properties["authentication_method"] == "JWT"
    client.subscribe(("a/b", 1))
    client.send(wire.auth(AGAIN, properties(token("ada", 60, barid={"subscribe": ["b/#"]}), "JWT")))
    client.expect(AUTH, reason=SUCCESS)
    time.sleep(2.5)
    client.ping()
    assert client.subscribe(("a/b", 1)).reasons == [0x87], "the rights are those of the new token"
    client.send(wire.auth(AGAIN, properties(token("bob", 60), "JWT")))
    client.expect_refused(0x87)


def test_a_method_that_does_not_exist_is_refused(token_broker, dial):
    client = dial(V5, token_broker)
    client.send(wire.connect("c", V5, properties=properties(b"x", "GS2-KRB5")))
    client.expect_not_accepted(0x8C)
