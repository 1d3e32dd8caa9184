"""Every form of request and its answer, to the byte."""

import pytest

from statestore_client import (
    ABSENT, ARGUMENTS, DELETED, EMPTY_KEY, INVOKE, MALFORMED_TIMESTAMP, NO_TIMESTAMP, NOT_APPLIED, NOTHING, OK, QUOTA, SYNTAX,
    UNKNOWN, array, error, now_ms, order, stamp, value,
)

# Requests of one client in a tenant of its own, one after the other, with the answers.
CONVERSATIONS = {
    "SET, GET, DEL": [
        (b"*2\r\n$3\r\nGET\r\n$7\r\nSETKEY2\r\n", b"$-1\r\n"),
        (b"*3\r\n$3\r\nSET\r\n$7\r\nSETKEY2\r\n$6\r\nVALUE5\r\n", b"+OK\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$7\r\nSETKEY2\r\n", b"$6\r\nVALUE5\r\n"),
        (b"*3\r\n$3\r\nSET\r\n$7\r\nSETKEY2\r\n$5\r\nother\r\n", b"+OK\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$7\r\nSETKEY2\r\n", b"$5\r\nother\r\n"),
        (b"*2\r\n$3\r\nDEL\r\n$7\r\nSETKEY2\r\n", b":1\r\n"),
        (b"*2\r\n$3\r\nDEL\r\n$7\r\nSETKEY2\r\n", b":0\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$7\r\nSETKEY2\r\n", b"$-1\r\n"),
    ],
    "keys are exact": [
        (array("SET", "key", "1"), OK),
        (array("SET", "KEY", "2"), OK),
        (array("SET", "key ", "3"), OK),
        (array("GET", "key"), value(b"1")),
        (array("GET", "ke"), ABSENT),
        (array("GET", "keys"), ABSENT),
        (array("DEL", "key"), DELETED),
        (array("GET", "KEY"), value(b"2")),
        (array("GET", "key "), value(b"3")),
    ],
    "any bytes": [
        (array("SET", b"\0", b""), OK),
        (array("GET", b"\0"), b"$0\r\n\r\n"),
        (array("SET", b"\r\n", b"\r\n$-1\r\n"), OK),
        (array("GET", b"\r\n"), b"$7\r\n\r\n$-1\r\n\r\n"),
        (array("SET", bytes(range(256)), bytes(range(256))), OK),
        (array("GET", bytes(range(256))), value(bytes(range(256)))),
        (array("SET", "GET", "SET"), OK),
        (array("GET", "GET"), value(b"SET")),
        (array("SET", "PX", "NX", "NX"), OK),
        (array("GET", "PX"), value(b"NX")),
        (array("VDEL", "PX", ""), NOT_APPLIED),
        (array("VDEL", b"\0", ""), DELETED),
    ],
    "NX": [
        (array("SET", "key", "a", "NX"), OK),
        (array("SET", "key", "a", "NX"), NOT_APPLIED),
        (array("SET", "key", "b", "NX"), b":-1\r\n"),
        (array("GET", "key"), value(b"a")),
        (array("DEL", "key"), DELETED),
        (array("SET", "key", "b", "NX"), OK),
        (array("GET", "key"), value(b"b")),
    ],
    "NEX": [
        (array("SET", "key", "a", "NEX"), OK),
        (array("SET", "key", "a", "NEX"), OK),
        (array("SET", "key", "b", "NEX"), NOT_APPLIED),
        (array("SET", "key", "", "NEX"), NOT_APPLIED),
        (array("SET", "key", "A", "NEX"), NOT_APPLIED),
        (array("GET", "key"), value(b"a")),
    ],
    "PX": [
        (b"*5\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\na\r\n$2\r\nPX\r\n$5\r\n60000\r\n", b"+OK\r\n"),
        (array("GET", "key"), value(b"a")),
        (array("SET", "key", "a", "NEX", "PX", 60_000), OK),
        (array("SET", "key", "b", "NEX", "PX", 60_000), NOT_APPLIED),
        (array("SET", "key", "b", "NX", "PX", 60_000), NOT_APPLIED),
        (array("SET", "key", "a", "PX", 60_000, "NEX"), OK),
        (array("SET", "new", "a", "PX", 60_000, "NX"), OK),
        (array("SET", "new", "a", "PX", 60_000, "NX"), NOT_APPLIED),
        (array("SET", "far", "a", "PX", 10 * 365 * 24 * 3_600_000), OK),
        (array("GET", "far"), value(b"a")),
    ],
    "VDEL": [
        (b"*3\r\n$4\r\nVDEL\r\n$3\r\nkey\r\n$1\r\na\r\n", b":0\r\n"),
        (array("SET", "key", "a"), OK),
        (b"*3\r\n$4\r\nVDEL\r\n$3\r\nkey\r\n$1\r\nb\r\n", b":-1\r\n"),
        (array("VDEL", "key", ""), NOT_APPLIED),
        (b"*3\r\n$4\r\nVDEL\r\n$3\r\nkey\r\n$1\r\na\r\n", b":1\r\n"),
        (array("VDEL", "key", "a"), NOTHING),
        (array("GET", "key"), ABSENT),
    ],
    "KEYNOTIFY": [
        (b"*3\r\n$9\r\nKEYNOTIFY\r\n$3\r\nkey\r\n$4\r\nSTOP\r\n", b":0\r\n"),
        (b"*2\r\n$9\r\nKEYNOTIFY\r\n$3\r\nkey\r\n", b"+OK\r\n"),
        (array("KEYNOTIFY", "key"), OK),
        (array("KEYNOTIFY", "other", "STOP"), NOTHING),
        (b"*3\r\n$9\r\nKEYNOTIFY\r\n$3\r\nkey\r\n$4\r\nSTOP\r\n", b"+OK\r\n"),
        (array("KEYNOTIFY", "key", "STOP"), NOTHING),
    ],
    "SCAN": [
        (b"*2\r\n$4\r\nSCAN\r\n$1\r\n*\r\n", b"*1\r\n*0\r\n"),
        (array("SET", "key", "a"), OK),
        (b"*2\r\n$4\r\nSCAN\r\n$1\r\n*\r\n", b"*1\r\n*1\r\n$3\r\nkey\r\n"),
        (b"*2\r\n$4\r\nSCAN\r\n$4\r\nkey*\r\n", b"*1\r\n*1\r\n$3\r\nkey\r\n"),
        (b"*2\r\n$4\r\nSCAN\r\n$5\r\nother\r\n", b"*1\r\n*0\r\n"),
    ],
}


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_conversation(store, conversation):
    """Also in another tenant at the same time: neither hears of the other."""
    ours, theirs = store("same"), store("same", tenant="other-of-" + store().client.client_id)
    for request, expected in conversation:
        for client in (ours, theirs):
            assert client.ask_bytes(request).payload == expected, request
    ours.expect_quiet(0)


@pytest.mark.parametrize("request_, expected", [
    (array("SET", "key", "x"), error(NO_TIMESTAMP)),
    (array("SET", "key", "x", "NX"), error(NO_TIMESTAMP)),
    (array("GET", "key"), value(b"kept")),
    (array("VDEL", "key", "other"), NOT_APPLIED),
    (array("DEL", "absent"), NOTHING),
    (array("DEL", "other"), DELETED),
    (array("KEYNOTIFY", "key"), OK),
    (array("KEYNOTIFY", "absent", "STOP"), NOTHING),
    (array("SCAN", "k*"), b"*1\r\n*1\r\n$3\r\nkey\r\n"),
])
def test_only_set_needs_a_timestamp(store, request_, expected):
    """Current SDKs send one with every request; others need not, and a bad one does no harm there."""
    client = store()
    client.set(b"key", b"kept")
    for timestamp in [None] if expected.startswith(b"-") else [None, "", "nonsense", stamp(now_ms() + 3_600_000)]:
        client.set(b"other", b"")
        assert client.ask_bytes(request_, timestamp=timestamp).payload == expected
    assert client.get(b"key")[0] == b"kept"


# What is wrong with an array of byte strings, and the texts with which it may be refused.
WRONG = [
    (array("PING"), UNKNOWN),
    (array("set", "key", "x"), UNKNOWN),
    (array("Set", "key", "x"), UNKNOWN),
    (array("get", "key"), UNKNOWN),
    (array("del", "key"), UNKNOWN),
    (array("vdel", "key", "kept"), UNKNOWN),
    (array("keynotify", "key"), UNKNOWN),
    (array("scan", "*"), UNKNOWN),
    (array("MGET", "key"), UNKNOWN),
    (array("SETX", "key", "x"), UNKNOWN),
    (array("SET ", "key", "x"), UNKNOWN),
    (array("", "key"), UNKNOWN),
    (array(b"\xff\0", "key"), UNKNOWN),
    (array("A" * 100_000), UNKNOWN),
    (array("GET"), ARGUMENTS),
    (array("GET", "key", "x"), ARGUMENTS),
    (array("DEL"), ARGUMENTS),
    (array("DEL", "key", "kept"), ARGUMENTS),
    (array("VDEL", "key"), ARGUMENTS),
    (array("VDEL", "key", "kept", "x"), ARGUMENTS),
    (array("SET"), ARGUMENTS),
    (array("SET", "key"), ARGUMENTS),
    (array("SET", "key", "x", "NX", "PX", "100", "x"), ARGUMENTS),
    (array("KEYNOTIFY"), ARGUMENTS),
    (array("KEYNOTIFY", "key", "STOP", "x"), ARGUMENTS),
    (array("SCAN"), ARGUMENTS),
    (array("SCAN", "*", "x", "x"), ARGUMENTS),
    (array("GET", ""), EMPTY_KEY),
    (array("SET", "", "x"), EMPTY_KEY),
    (array("DEL", ""), EMPTY_KEY),
    (array("VDEL", "", "x"), EMPTY_KEY),
    (array("KEYNOTIFY", ""), EMPTY_KEY),
    (array("KEYNOTIFY", "", "STOP"), EMPTY_KEY),
    (array("SET", "key", "x", "XX"), SYNTAX),
    (array("SET", "key", "x", ""), SYNTAX),
    (array("SET", "key", "x", "nx"), SYNTAX),
    (array("SET", "key", "x", "Nex"), SYNTAX),
    (array("SET", "key", "x", "px", "100"), SYNTAX),
    (array("SET", "key", "x", "EX", "100"), SYNTAX),
    (array("SET", "key", "x", "NEX", "kept"), SYNTAX),
    (array("SET", "key", "kept", "NEX", "kept"), SYNTAX),
    (array("SET", "key", "x", "NX", "NX"), SYNTAX),
    (array("SET", "key", "x", "NX", "NEX"), SYNTAX),
    (array("SET", "key", "x", "PX"), SYNTAX),
    (array("SET", "key", "x", "NEX", "PX"), SYNTAX),
    (array("SET", "key", "x", "100", "PX"), SYNTAX),
    (array("SET", "key", "x", "PX", "NEX"), SYNTAX),
    (array("SET", "key", "x", "PX", "100", "XX"), SYNTAX),
    *[(array("SET", "key", "x", "PX", bad), SYNTAX)
      for bad in ["0", "00", "-1", "", "abc", "1.5", "+5", " 5", "5 ", "5ms", "0x10", "1e3", "٣",
                  2**64, 10**40, "9" * 5_000]],
    (array("KEYNOTIFY", "key", "START"), SYNTAX),
    (array("KEYNOTIFY", "key", "stop"), SYNTAX),
    (array("KEYNOTIFY", "key", ""), SYNTAX),
]


def test_wrong_requests(store):
    """Each is refused with its text, changes nothing, and leaves the client connected."""
    client = store()
    version = client.set(b"key", b"kept")
    for request, text in WRONG:
        assert client.ask_bytes(request).payload == error(text), request[:200]
        assert client.get(b"key") == (b"kept", version), request[:200]
    assert client.scan("*") == [[b"key"]]
    client.expect_quiet()


# Two things are wrong with each: what is told is what comes first in the order of checks.
TWICE_WRONG = [
    (b"*3\r\n$3\r\nset\r\n$0\r\n\r\n", {}, SYNTAX),
    (b"*1\r\n$3\r\nSET\r\nx", {}, SYNTAX),
    (array("set"), {}, UNKNOWN),
    (array("get", "", "x", "x", "x", "x", "x", "x"), {}, UNKNOWN),
    (array("SET", ""), {}, ARGUMENTS),
    (array("KEYNOTIFY", "", "x", "x"), {}, ARGUMENTS),
    (array("SET", "", "x", "XX"), {}, EMPTY_KEY),
    (array("KEYNOTIFY", "", "x"), {}, EMPTY_KEY),
    (array("SET", "", "x"), {"timestamp": None}, EMPTY_KEY),
    (array("SET", "key", "x", "XX"), {"timestamp": None}, SYNTAX),
    (array("SET", "key", "x", "XX"), {"timestamp": "nonsense"}, SYNTAX),
    (array("SET", "key", "x", "PX", "0"), {"timestamp": stamp(now_ms() + 3_600_000)}, SYNTAX),
    (array("SET", "key", "x"), {"timestamp": None, "token": "nonsense"}, NO_TIMESTAMP),
    (array("SET", "key", "x", "NX"), {"timestamp": None}, NO_TIMESTAMP),
    (array("SET", "key", "x", "NX"), {"timestamp": "nonsense"}, MALFORMED_TIMESTAMP),
]


def test_the_order_of_checks(store):
    """That of versions, fences, rights and quotas is in their tests."""
    client = store()
    version = client.set(b"key", b"kept")
    for request, envelope, text in TWICE_WRONG:
        assert client.ask_bytes(request, **envelope).payload == error(text), (request, envelope)
    assert client.get(b"key") == (b"kept", version)


def test_requests_are_executed_in_order(store):
    """Those of one client, also when it waits for none of them."""
    client = store()
    sent = []
    for number in range(300):
        sent.append((client.send(array("SET", "key", number)), OK))
        sent.append((client.send(array("GET", "key")), value(b"%d" % number)))
        sent.append((client.send(array("VDEL", "key", number + 1)), NOT_APPLIED))
    answers = [(client.answer(one), expected) for one, expected in sent]
    assert [answer.payload for answer, _ in answers] == [expected for _, expected in answers]
    versions = [order(answer.version) for answer, expected in answers if expected == OK]
    assert versions == sorted(set(versions))


def test_large_values(store):
    client = store()
    for size in (65_000, 65_535, 65_536, 1 << 20):
        content = bytes(at % 251 for at in range(size))
        version = client.set(b"key", content)
        assert client.get(b"key") == (content, version)
        assert client.ask("VDEL", b"key", content[:-1] + b"\xff").payload == NOT_APPLIED
        assert client.ask("VDEL", b"key", content).payload == DELETED


def test_long_keys(store):
    client = store()
    for size in (6_500, 32_000, 65_000):
        key = b"k" * size
        client.set(key, b"value")
        assert client.get(key)[0] == b"value"
        assert client.get(key[:-1]) is None
        assert client.scan("*") == [[key]]
        assert client.ask("DEL", key).payload == DELETED
    for size in (65_001, 65_536, 500_000):
        assert client.ask("SET", "k" * size, "value").payload == error(QUOTA)
        assert client.ask("GET", "k" * size).payload == ABSENT
        assert client.ask("DEL", "k" * size).payload == NOTHING
    assert client.scan("*") == [[]]


def test_the_topic_is_exact(store, tenant):
    """Another case, or a level more or less, is an ordinary topic."""
    client = store()
    for topic in (INVOKE.lower(), INVOKE + "/", "/" + INVOKE, INVOKE.rsplit("/", 1)[0], INVOKE.replace("v1", "v2")):
        client.client.publish(topic, array("SET", "key", "x"), 1, properties={
            "response_topic": client.responses, "correlation_data": b"1", "user_property": [("__ts", stamp())]})
    client.expect_quiet()
    assert client.get(b"key") is None
