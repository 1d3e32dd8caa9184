"""Fencing tokens: who has an older one than the key has seen may not change it."""

import pytest

from statestore_client import (
    ABSENT, DELETED, DRIFT, MALFORMED_TIMESTAMP, NOT_APPLIED, NOTHING, OK, TIMESTAMP_IN_FUTURE, TOKEN_IN_FUTURE, TOKEN_REQUIRED,
    TOKEN_TOO_OLD, error, now_ms, stamp, value,
)
from test_versions import MALFORMED

CHANGES = {"SET": ("SET", "key", "x"), "SET NX": ("SET", "key", "x", "NX"), "SET NEX": ("SET", "key", "value", "NEX"),
           "DEL": ("DEL", "key"), "VDEL": ("VDEL", "key", "value"), "VDEL other": ("VDEL", "key", "other")}
change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)

# Of years ago: nothing says how old a token may be.
OLD, TOKEN, NEW = "1696374425000:00000:a", "1696374425000:00001:a", "1696374425001:00000:a"


@pytest.fixture
def fenced(store):
    """A client, and the key `key` with the value `value` and the token TOKEN, which must not have changed in the end."""
    client = store()
    version = client.set(b"key", b"value", token=TOKEN)

    def unchanged():
        assert client.get(b"key") == (b"value", version)
        assert client.ask("VDEL", "key", "no", token=TOKEN).payload == NOT_APPLIED, "no greater token has been noted"

    client.unchanged = unchanged
    yield client


@change
def test_a_token_is_required(fenced, change):
    assert fenced.ask(*change).payload == error(TOKEN_REQUIRED)
    fenced.unchanged()


@change
@pytest.mark.parametrize("token", [
    OLD, "0:0:n", "1:0:n", "1696374424999:99999:z", "1696374425000:1:Z", "1696374425000:00001:", stamp(0),
], ids=repr)
def test_older_tokens(fenced, change, token):
    """By wall clock, then counter, then node identifier, byte by byte."""
    expected = MALFORMED_TIMESTAMP if token.endswith(":") else TOKEN_TOO_OLD
    assert fenced.ask(*change, token=token).payload == error(expected)
    fenced.unchanged()


@change
@pytest.mark.parametrize("token", MALFORMED, ids=repr)
def test_malformed_tokens(fenced, change, token):
    """Also for a key without one."""
    assert fenced.ask(*change, token=token).payload == error(MALFORMED_TIMESTAMP)
    verb, _, *more = change
    assert fenced.ask(verb, "other", *more, token=token).payload == error(MALFORMED_TIMESTAMP)
    assert fenced.get(b"other") is None
    fenced.unchanged()


@change
def test_tokens_too_far_ahead(fenced, change):
    ten_years = 10 * 365 * 24 * 3_600_000
    for ahead in (DRIFT + 5_000, ten_years):
        assert fenced.ask(*change, token=stamp(now_ms() + ahead)).payload == error(TOKEN_IN_FUTURE)
        verb, _, *more = change
        assert fenced.ask(verb, "other", *more, token=stamp(now_ms() + ahead)).payload == error(TOKEN_IN_FUTURE)
        assert fenced.get(b"other") is None
    assert fenced.ask(*change, token=f"{2**63 - 1}:0:n").payload == error(TOKEN_IN_FUTURE)
    fenced.unchanged()


def test_a_minute_ahead_is_allowed(store):
    client = store()
    client.set(b"key", b"value", token=stamp(now_ms() + DRIFT))
    assert client.ask("SET", "key", "x", token=stamp()).payload == error(TOKEN_TOO_OLD)


@pytest.mark.parametrize("token", [
    TOKEN, "1696374425000:1:a", "1696374425000:00001:aa", "1696374425000:1:b", "1696374425000:00002:A", "1696374425000:10:a",
    NEW, "1696374425001:0:A", "01696374425001:0:A",
], ids=repr)
def test_equal_and_newer_tokens(fenced, token):
    """Padding is no matter; what has been accepted will be accepted again."""
    fenced.set(b"key", b"x", token=token)
    fenced.set(b"key", b"y", token=token)
    assert fenced.ask("SET", "key", "z", token=OLD).payload == error(TOKEN_TOO_OLD)


def test_the_greatest_token_counts(store):
    client = store()
    client.set(b"key", b"value")
    client.set(b"key", b"value", token=TOKEN)
    client.set(b"key", b"value", token=NEW)
    assert client.ask("SET", "key", "x", token=TOKEN).payload == error(TOKEN_TOO_OLD)
    assert client.ask("DEL", "key", token=TOKEN).payload == error(TOKEN_TOO_OLD)
    client.set(b"key", b"value", token=NEW)


@pytest.mark.parametrize("deletion", [("DEL", "key"), ("VDEL", "key", "value")], ids=lambda parts: parts[0])
def test_the_token_goes_with_the_key(fenced, deletion):
    assert fenced.ask(*deletion, token=NEW).payload == DELETED
    assert fenced.get(b"key") is None
    assert fenced.ask(*deletion).payload == NOTHING, "what is absent is not fenced"
    fenced.set(b"key", b"new")
    assert fenced.ask("DEL", "key", token="1:0:n").payload == DELETED, "a key without a token takes any"


def test_the_token_goes_with_a_key_that_expires(store):
    client = store()
    client.set(b"key", b"value", "PX", "50", token=NEW)
    client.watch(b"key")
    client.told()
    client.set(b"key", b"new")
    client.set(b"key", b"new", token=OLD)


@pytest.mark.parametrize("refused", [("SET", "key", "x", "NX"), ("SET", "key", "x", "NEX"), ("VDEL", "key", "x")], ids=" ".join)
def test_what_is_not_applied_leaves_no_token(fenced, refused):
    assert fenced.ask(*refused, token=NEW).payload == NOT_APPLIED
    fenced.unchanged()
    fenced.set(b"free", b"value")
    verb, _, *more = refused
    assert fenced.ask(verb, "free", *more, token=NEW).payload == NOT_APPLIED
    fenced.set(b"free", b"other")


def test_deleting_what_is_absent_leaves_no_token(store):
    client = store()
    assert client.ask("DEL", "key", token=NEW).payload == NOTHING
    assert client.ask("VDEL", "key", "x", token=NEW).payload == NOTHING
    client.set(b"key", b"value")


def test_reading_needs_no_token(fenced):
    """And does not look at one."""
    for token in (None, OLD, "nonsense", stamp(now_ms() + 3_600_000)):
        assert fenced.ask("GET", "key", token=token).payload == value(b"value")
        assert fenced.ask("GET", "absent", token=token).payload == ABSENT
        assert fenced.ask("KEYNOTIFY", "key", token=token).payload == OK
        assert fenced.ask("KEYNOTIFY", "key", "STOP", token=token).payload == OK
        assert fenced.ask("SCAN", "k*", token=token).payload == b"*1\r\n*1\r\n$3\r\nkey\r\n"
    fenced.unchanged()


def test_the_order_of_checks(fenced):
    """The request's clock, then the token's form, then its time, then what the key has, then the condition."""
    ahead = stamp(now_ms() + 3_600_000)
    for envelope, expected in [
        ({"timestamp": ahead, "token": "nonsense"}, error(TIMESTAMP_IN_FUTURE)),
        ({"timestamp": ahead}, error(TIMESTAMP_IN_FUTURE)),
        ({"timestamp": ahead, "token": ahead}, error(TIMESTAMP_IN_FUTURE)),
        ({"token": ahead}, error(TOKEN_IN_FUTURE)),
        ({}, error(TOKEN_REQUIRED)),
        ({"token": OLD}, error(TOKEN_TOO_OLD)),
        ({"token": TOKEN}, NOT_APPLIED),
    ]:
        assert fenced.ask("SET", "key", "x", "NX", **envelope).payload == expected
    fenced.unchanged()
