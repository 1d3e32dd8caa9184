"""SCAN: the keys that match a pattern, page by page."""

import random
import time

import pytest

from statestore_client import DELETED, OK, SYNTAX, array, error, page


def filled(client, keys) -> None:
    sent = [client.send(array("SET", key, "x")) for key in keys]
    assert {client.answer(one).payload for one in sent} == {OK}


def together(pages: list[list[bytes]]) -> list[bytes]:
    return sorted(key for keys in pages for key in keys)


KEYS = [b"a", b"ab", b"abc", b"b", b"b1", b"b2", b"b12", b"bx", b"key/1", b"key/2", b"key/2/3", b"[", b"*", b"?", b"\\", b"{x}", b"a\r\nb", b"\xff\0"]
PATTERNS = {
    b"*": KEYS,
    b"**": KEYS,
    b"a": [b"a"],
    b"a*": [b"a", b"ab", b"abc", b"a\r\nb"],
    b"*b": [b"ab", b"b", b"a\r\nb"],
    b"*b*": [b"ab", b"abc", b"b", b"b1", b"b2", b"b12", b"bx", b"a\r\nb"],
    b"a*c": [b"abc"],
    b"a?": [b"ab"],
    b"?": [b"a", b"b", b"[", b"*", b"?", b"\\"],
    b"a???": [b"a\r\nb"],
    b"b[0-9]": [b"b1", b"b2"],
    b"b[0-9]*": [b"b1", b"b2", b"b12"],
    b"b[12x]": [b"b1", b"b2", b"bx"],
    b"key/*": [b"key/1", b"key/2", b"key/2/3"],
    b"key/?": [b"key/1", b"key/2"],
    b"KEY/*": [],
    b"ke": [],
    b"\xff*": [b"\xff\0"],
    b"\xff?": [b"\xff\0"],
    b"{x}": [b"{x}"],
    b"x*": [],
}


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_patterns(store, tenant, pattern):
    client, other = store(), store(tenant="other-of-" + tenant)
    filled(client, KEYS)
    assert together(client.scan(pattern)) == sorted(PATTERNS[pattern])
    assert other.scan(pattern) == [[]]


def test_thousands_of_keys(store):
    """Each once, in pages that are neither one nor thousands."""
    client = store()
    keys = [b"key %05d" % number for number in range(5_000)]
    random.Random(1).shuffle(keys)
    filled(client, keys)
    pages = client.scan("*")
    assert together(pages) == sorted(keys)
    assert 1 < len(pages) < 1_000
    for pattern, expected in {"key 0*": 5_000, "key 00[0-4]*": 500, "key 0123?": 10, "*99": 50, "key 04999": 1, "none": 0}.items():
        told = together(client.scan(pattern))
        assert len(told) == len(set(told)) == expected, pattern


def test_changes_between_pages(store):
    """What is there all the time is told once, what never was is not told; the rest may be or not."""
    client, other = store(), store()
    steady = [b"steady %04d" % number for number in range(2_000)]
    brief = [b"steady %04d brief" % number for number in range(2_000)]
    filled(client, steady + brief)
    told, token, pages = [], None, 0
    while pages == 0 or token is not None:
        keys, token = page(client.ask("SCAN", "*", *([token] if token else [])).payload)
        told += keys
        for key in brief[pages * 150:pages * 150 + 150]:
            other.ask("DEL", key)
        filled(other, [b"new %d %d" % (pages, number) for number in range(5)])
        pages += 1
        assert pages < 2_000
    assert len(told) == len(set(told))
    assert set(steady) <= set(told)
    assert all(key.startswith((b"steady", b"new")) for key in told)


def test_a_page_fits_into_a_packet(store):
    """Also where keys are long."""
    client = store()
    keys = [b"%04d" % number + b"k" * 30_000 for number in range(150)]
    for key in keys:
        client.set(key, b"")
    told, token = [], None
    while True:
        answer = client.ask("SCAN", "*", *([token] if token else []))
        assert len(answer.payload) <= 1 << 20
        keys_told, token = page(answer.payload)
        told += keys_told
        if token is None:
            break
    assert sorted(told) == keys


def test_what_has_gone_is_not_told(store):
    client = store()
    filled(client, [b"a", b"b", b"c"])
    assert client.ask("DEL", "a").payload == DELETED
    client.watch(b"b")
    client.set(b"b", b"x", "PX", "30")
    client.told(), client.told()
    assert client.scan("*") == [[b"c"]]


@pytest.mark.parametrize("token", [b"", b"0", b"nonsense", b"1;1;", b"\0" * 8, b"\xff" * 100, b"x" * 60_000], ids=lambda token: repr(token[:9]))
def test_tokens_that_were_never_given(store, tenant, token):
    """Are refused, or taken for some place to go on from: no key is told that does not match, and none of others."""
    client, other = store(), store(tenant="other-of-" + tenant)
    filled(client, [b"key %d" % number for number in range(10)] + [b"x"])
    filled(other, [b"key of another"])
    answer = client.ask("SCAN", "key*", token).payload
    if not answer.startswith(b"-ERR "):
        assert set(page(answer)[0]) <= {b"key %d" % number for number in range(10)}


def test_tokens_tell_nothing_to_another_tenant(store, tenant):
    ours, theirs = store(), store(tenant="other-of-" + tenant)
    filled(ours, [b"ours %04d" % number for number in range(3_000)])
    filled(theirs, [b"theirs"])
    _, token = page(ours.ask("SCAN", "*").payload)
    assert token
    answer = theirs.ask("SCAN", "*", token).payload
    assert answer.startswith(b"-ERR ") or set(page(answer)[0]) <= {b"theirs"}


HARD = {"a*": b"a*" * 500 + b"b", "*a": b"*a" * 500 + b"b", "?*": b"?*" * 500 + b"b", "classes": b"[a-z]*" * 150 + b"!",
        "stars": b"*" * 1_000 + b"b", "one piece": b"*" + b"a" * 1_000 + b"b", "two pieces": b"*" + b"a" * 500 + b"*" + b"a" * 500 + b"b"}


@pytest.mark.parametrize("length", [1_000, 60_000])
@pytest.mark.parametrize("pattern", HARD.values(), ids=HARD)
def test_patterns_that_are_hard_to_match(store, pattern, length):
    """Matching does not blow up, and others go on meanwhile: each page is bounded in what it may cost."""
    client, other = store(), store()
    filled(client, [b"a" * length + b"%d" % number for number in range(60)])
    token, longest, pages = None, 0.0, 0
    while pages == 0 or token is not None:
        asked = client.send(array("SCAN", pattern, *([token] if token else [])))
        begin = time.monotonic()
        other.set(b"0", b"x")
        longest = max(longest, time.monotonic() - begin)
        keys, token = page(client.answer(asked).payload)
        assert not keys
        pages += 1
    assert longest < 1, "another client was held up"


def test_the_longest_pattern(store):
    client = store()
    filled(client, [b"a" * 1_024, b"a" * 1_025])
    assert client.scan(b"a" * 1_024) == [[b"a" * 1_024]]
    for size in (1_025, 100_000):
        assert client.ask("SCAN", b"a" * size).payload == error(SYNTAX)


@pytest.mark.parametrize("pattern", [b"[", b"[a", b"[]", b"[a-", b"]", b"[z-a]", b"\\", b"[[]", b"[!a]", b"[^a]", b"{", b"}", b"{principal.clientId}"], ids=repr)
def test_odd_patterns(store, pattern):
    """Are answered, one way or the other."""
    client = store()
    filled(client, KEYS)
    answer = client.ask("SCAN", pattern).payload
    assert answer.startswith(b"-ERR ") or set(page(answer)[0]) <= set(KEYS)


def test_an_empty_pattern_matches_nothing(store):
    """SDKs refuse it themselves."""
    client = store()
    filled(client, [b"a"])
    answer = client.ask("SCAN", "").payload
    assert answer.startswith(b"-ERR ") or page(answer) == ([], None)
