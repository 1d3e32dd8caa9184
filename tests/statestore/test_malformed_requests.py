"""Payloads that are no array of byte strings: each is refused, none does any harm."""

import random
import re

import pytest

from statestore_client import DELETED, SYNTAX, array, error, page

SOUND = [
    array("SET", "key", "value"),
    array("SET", "key", "value", "NX"),
    array("SET", "key", "value", "NEX"),
    array("SET", "key", "value", "PX", 60_000),
    array("SET", "key", "value", "NEX", "PX", 60_000),
    array("GET", "key"),
    array("DEL", "key"),
    array("VDEL", "key", "value"),
    array("KEYNOTIFY", "key"),
    array("KEYNOTIFY", "key", "STOP"),
    array("SCAN", "k*"),
    array("SCAN", "k*", "token"),
]


@pytest.mark.parametrize("request_", SOUND, ids=lambda request: " ".join(re.findall(r"[A-Z]+|k\*|token", request.decode())))
def test_every_truncation_is_a_syntax_error(store, request_):
    client = store()
    version = client.set(b"key", b"value")
    cut = [request_[:length] for length in range(len(request_))]
    longer = [request_ + more for more in (b"\0", b"\r\n", b"$1\r\nx\r\n", request_)]
    sent = [client.send(one) for one in cut + longer]
    for one, told in zip(cut + longer, sent):
        assert client.answer(told).payload == error(SYNTAX), one
    assert client.get(b"key") == (b"value", version)
    client.expect_quiet(0)


MALFORMED = [
    b"\r\n", b"\0", b"GET key\r\n", b"$3\r\nGET\r\n", b"+OK\r\n", b"-ERR x\r\n", b":1\r\n", b"_\r\n",
    b"*\r\n", b"*-1\r\n", b"*x\r\n", b"*+2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", b"* 2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
    b"*2 \r\n$3\r\nGET\r\n$3\r\nkey\r\n", b"*2\n$3\nGET\n$3\nkey\n", b"*2\r$3\rGET\r$3\rkey\r", b"%2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
    b"*2\r\n+GET\r\n$3\r\nkey\r\n", b"*2\r\n$3\r\nGET\r\n+key\r\n", b"*2\r\n$3\r\nGET\r\n:1\r\n", b"*2\r\n$3\r\nGET\r\n$-1\r\n",
    b"*2\r\n$3\r\nGET\r\n_\r\n", b"*1\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", b"*2\r\n$3\r\nGET\r\n*1\r\n$3\r\nkey\r\n",
    b"*2\r\n$3\r\nGET\r\n$\r\nkey\r\n", b"*2\r\n$3\r\nGET\r\n$x\r\nkey\r\n", b"*2\r\n$3\r\nGET\r\n$+3\r\nkey\r\n",
    b"*2\r\n$2\r\nGET\r\n$3\r\nkey\r\n", b"*2\r\n$4\r\nGET\r\n$3\r\nkey\r\n", b"*2\r\n$3\r\nGET\r\n$2\r\nkey\r\n",
    b"*2\r\n$3\r\nGET\r\n$4\r\nkey\r\n", b"*2\r\n$3\r\nGET\r\n$5\r\nkey\r\n", b"*2\r\n$3\r\nGET\r\n$6\r\nkey\r\n",
    b"*2\r\n$3\r\nGET\r\n$3\r\nkey\n\r", b"*2\r\n$3\r\nGET\r\n$3\r\nkeyxx", b"*2\r\n$3\r\nGET$3\r\nkey\r\n",
    b"*1\r\n$3\r\nGET\r\n$3\r\nkey\r\n", b"*3\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
    "*2\r\n$٣\r\nGET\r\n$3\r\nkey\r\n".encode(),
]
ABSURD = [str(number).encode() for number in (
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 2, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 2, 10**30)] + [b"9" * 100_000]


@pytest.mark.parametrize("payload", MALFORMED, ids=repr)
def test_malformed(store, payload):
    client = store()
    assert client.ask_bytes(payload).payload == error(SYNTAX)
    client.set(b"key", b"still connected")


def test_absurd_lengths(store, broker):
    """No memory is taken for what is only declared, and no number wraps round to a sound one."""
    client = store()
    client.set(b"key", b"value")
    payloads = [b"*%s\r\n$3\r\nGET\r\n$3\r\nkey\r\n" % number for number in ABSURD]
    payloads += [b"*2\r\n$%s\r\nGET\r\n$3\r\nkey\r\n" % number for number in ABSURD]
    payloads += [b"*2\r\n$3\r\nGET\r\n$%s\r\nkey\r\n" % number for number in ABSURD]
    payloads += [b"*%s\r\n" % number for number in ABSURD]
    for _ in range(5):
        for payload in payloads:
            assert client.ask_bytes(payload).payload == error(SYNTAX), payload[:80]
    assert client.get(b"key")[0] == b"value"


def test_many_arguments(store):
    """As many as fit into a packet."""
    client = store()
    for count in (100, 10_000, 100_000):
        answer = client.ask_bytes(b"*%d\r\n$3\r\nGET\r\n" % count + b"$1\r\nk\r\n" * (count - 1)).payload
        assert answer == error("wrong number of arguments")
        assert client.ask_bytes(b"*%d\r\n" % count + b"$0\r\n\r\n" * count).payload == error("unknown command")


ANSWERS = re.compile(rb"\+OK\r\n|:-1\r\n|:0\r\n|:1\r\n|\$-1\r\n|-ERR [a-z ;]+\r\n")


def test_damaged_requests(store):
    """Whatever is sent is answered once, with something an SDK can read."""
    client, chance = store(), random.Random(5)
    for _ in range(8):
        sent = []
        for _ in range(250):
            damaged = bytearray(chance.choice(SOUND))
            for _ in range(chance.choice((1, 1, 1, 2, 5))):
                at = chance.randrange(len(damaged))
                how = chance.randrange(3)
                if how == 0:
                    damaged[at] = chance.choice((chance.randrange(256), *b"0123456789$*\r\n"))
                elif how == 1 and len(damaged) > 1:
                    del damaged[at]
                else:
                    damaged[at:at] = bytes([chance.choice((chance.randrange(256), *b"0123456789$*\r\n"))])
            sent.append((bytes(damaged), client.send(bytes(damaged))))
        for damaged, told in sent:
            answer = client.answer(told).payload
            if answer.startswith(b"*"):
                page(answer)
            elif answer.startswith(b"$") and answer != b"$-1\r\n":
                assert re.fullmatch(rb"\$(\d+)\r\n(.*)\r\n", answer, re.DOTALL), (damaged, answer)
            else:
                assert ANSWERS.fullmatch(answer), (damaged, answer)
    client.set(b"key", b"still connected")
    assert client.ask("DEL", "key").payload == DELETED
