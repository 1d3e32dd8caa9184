"""Rules for keys: what no rule of a user allows is refused, request by request."""

import signal

import pytest

from broker import Broker, until
from statestore_client import DELETED, EMPTY_KEY, NOT_AUTHORIZED, OK, SYNTAX, UNKNOWN, array, error, set_told, value

RULES = {
    "admin": '{ access = "readwrite", keys = ["*"] }',
    "nobody": "",
    "reader": '{ access = "read", keys = ["shared/*"] }',
    "writer": '{ access = "write", type = "pattern", keys = ["shared/*"] }',
    "both": '{ access = "readwrite", type = "pattern", keys = ["shared/*", "b?d", "n[0-9]"] }, { access = "read", keys = ["log"] }',
    "split": '{ access = "read", keys = ["in/*"] }, { access = "write", keys = ["out/*"] }',
    "exact": '{ access = "readwrite", type = "string", keys = ["a*", "{principal.clientId}"] }',
    # A newline, and the bytes 0 and 255.
    "binary": '{ access = "readwrite", type = "binary", keys = ["Cg==", "AP8="] }',
    "own": '{ access = "readwrite", keys = ["{principal.clientId}/*", "u/{principal.username}/*"] }',
}
USER = '[[users]]\nname = "acme/{}"\npassword = "{}"\nstate = [{}]\n'

READS = {"GET": ["GET", "{}"], "KEYNOTIFY": ["KEYNOTIFY", "{}"], "STOP": ["KEYNOTIFY", "{}", "STOP"]}
WRITES = {"SET": ["SET", "{}", "x"], "SET NX": ["SET", "{}", "x", "NX"], "SET NEX": ["SET", "{}", "x", "NEX"],
          "DEL": ["DEL", "{}"], "VDEL": ["VDEL", "{}", "y"]}


@pytest.fixture(scope="module")
def ruled(hashed_password):
    running = Broker("".join(USER.format(name, hashed_password, rules) for name, rules in RULES.items()))
    yield running
    messages = running.stderr
    running.close()
    assert "panicked at" not in messages


@pytest.fixture
def user(store, ruled):
    def connect(name: str, client_id: str | None = None):
        client = store(client_id or name, to=ruled, username=f"acme/{name}", password=b"secret", subscribes=False)
        client.responses = "answers/" + name
        assert client.client.subscribe(client.responses, qos=1).reasons == [1]
        return client

    return connect


def asked(client, request: list, key: bytes | str) -> bytes:
    key = key if isinstance(key, bytes) else key.encode()
    return client.ask(*(key if part == "{}" else part for part in request)).payload


def allowed(client, requests: dict, key: bytes | str) -> bool:
    """Whether all requests are allowed, or none."""
    answers = {name: asked(client, request, key) != error(NOT_AUTHORIZED) for name, request in requests.items()}
    assert len(set(answers.values())) == 1, answers
    return next(iter(answers.values()))


@pytest.mark.parametrize("name, key, reads, writes", [
    ("nobody", "shared/x", False, False),
    ("reader", "shared/x", True, False), ("reader", "shared/", True, False), ("reader", "shared", False, False),
    ("reader", "other/shared/x", False, False), ("reader", "Shared/x", False, False), ("reader", b"shared/\xff\r\n", True, False),
    ("writer", "shared/x", False, True), ("writer", "shared/x/y", False, True), ("writer", "other", False, False),
    ("both", "shared/x", True, True), ("both", "bad", True, True), ("both", "bd", False, False), ("both", "baad", False, False),
    ("both", "n7", True, True), ("both", "nx", False, False), ("both", "n77", False, False), ("both", "log", True, False),
    ("split", "in/x", True, False), ("split", "out/x", False, True),
    ("exact", "a*", True, True), ("exact", "ab", False, False), ("exact", "exact", False, False),
    ("exact", "{principal.clientId}", True, True),
    ("binary", b"\n", True, True), ("binary", b"\0\xff", True, True), ("binary", "Cg==", False, False), ("binary", b"\0", False, False),
    ("own", "own/x", True, True), ("own", "other/x", False, False), ("own", "u/acme/own/x", True, True), ("own", "u/acme/other/x", False, False),
    ("own", "{principal.clientId}/x", False, False),
    ("admin", "anything", True, True), ("admin", b"\0\xff", True, True),
], ids=str)
def test_rules(user, name, key, reads, writes):
    client = user(name)
    assert allowed(client, READS, key) is reads
    assert allowed(client, WRITES, key) is writes


@pytest.mark.parametrize("client_id", ["*", "?", "[a-z]", "**", "*/*", "{principal.username}", "\\", "[", "]", "[!a]"])
def test_a_client_identifier_is_no_pattern(user, client_id):
    """Who may choose it must not gain more than keys that begin with it, to the letter."""
    client = user("own", client_id)
    for key in ("x/x", "own/x", "a/x", "abc/x", "b/x", "/x", "acme/own/x"):
        assert not allowed(client, READS, key), key
        assert not allowed(client, WRITES, key), key
    assert allowed(client, READS, client_id + "/x")
    assert allowed(client, WRITES, client_id + "/x")


def test_what_is_refused_has_no_effect(user):
    admin, reader, writer = user("admin"), user("reader"), user("writer")
    version = admin.set(b"shared/k", b"v")
    for request in WRITES.values():
        assert asked(reader, request, "shared/k") == error(NOT_AUTHORIZED)
        assert asked(writer, request, "private") == error(NOT_AUTHORIZED)
    assert asked(writer, READS["KEYNOTIFY"], "shared/k") == error(NOT_AUTHORIZED)
    assert admin.get(b"shared/k") == (b"v", version)
    assert admin.get(b"private") is None
    version = admin.set(b"shared/k", b"w")
    writer.expect_quiet()

    reader.watch(b"shared/k")
    version = writer.set(b"shared/k", b"x")
    reader.expect_told(b"shared/k", set_told(b"x"), version)
    assert reader.ask("GET", "shared/k").payload == value(b"x")
    assert writer.ask("VDEL", "shared/k", "x").payload == DELETED


def test_scan_tells_what_may_be_read(user):
    admin = user("admin")
    keys = [b"shared/1", b"shared/2", b"log", b"private", b"in/x", b"out/x", b"own/x", b"other/x", b"n1", b"\n", b"u/acme/own/1"]
    for key in keys:
        admin.set(key, b"x")
    for name, seen in {"admin": keys, "nobody": [], "reader": [b"shared/1", b"shared/2"], "writer": [], "split": [b"in/x"], "exact": [],
                       "both": [b"shared/1", b"shared/2", b"log", b"n1"], "binary": [b"\n"], "own": [b"own/x", b"u/acme/own/1"]}.items():
        client = admin if name == "admin" else user(name)
        told = [key for page in client.scan("*") for key in page]
        assert sorted(told) == sorted(seen), name
        assert client.scan("private") == ([[b"private"]] if name == "admin" else [[]]), name
    for key in keys:
        admin.ask("DEL", key)


def test_rules_are_asked_before_timestamps_and_tokens(user):
    """And after everything that is wrong with the request itself."""
    reader = user("reader")
    assert reader.ask("SET", "shared/k", "x", timestamp=None).payload == error(NOT_AUTHORIZED)
    assert reader.ask("SET", "shared/k", "x", timestamp="nonsense").payload == error(NOT_AUTHORIZED)
    assert reader.ask("SET", "shared/k", "x", token="nonsense").payload == error(NOT_AUTHORIZED)
    assert reader.ask("DEL", "shared/k", token="nonsense").payload == error(NOT_AUTHORIZED)
    assert reader.ask("SET", "shared/k", "x", "XX").payload == error(SYNTAX)
    assert reader.ask("SET", "", "x").payload == error(EMPTY_KEY)
    assert reader.ask("FOO", "shared/k").payload == error(UNKNOWN)
    assert reader.ask_bytes(array("SET", "shared/k", "x")[:-1]).payload == error(SYNTAX)


def test_who_may_do_everything_without_users(store):
    client = store()
    assert client.ask("SET", "any", "x").payload == OK
    assert allowed(client, READS | WRITES, "any")


def test_rules_that_change(broker_with, store, hashed_password):
    """Hold for clients that connect from now on."""
    rules = USER.format("one", hashed_password, '{{ access = "{}", keys = ["a"] }}')
    running = broker_with(rules.format("read"))

    def connect(client_id: str):
        return store(client_id, to=running, username="acme/one", password=b"secret")

    before = connect("before")
    assert before.ask("SET", "a", "x").payload == error(NOT_AUTHORIZED)
    config = running.directory / "barid.toml"
    config.write_text(config.read_text().replace('access = "read"', 'access = "write"'))
    running.signal(signal.SIGHUP)
    until(lambda: connect("after").ask("SET", "a", "x").payload == OK)
    assert connect("after").ask("GET", "a").payload == error(NOT_AUTHORIZED)
