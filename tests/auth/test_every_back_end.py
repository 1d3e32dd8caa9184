"""What must hold for each back end: whom it lets in, whom it keeps out, and when the next one of the chain is asked."""

from __future__ import annotations

import time

import pytest

import wire
from answers import ACCEPTED, DENIED, UNAVAILABLE, hashed
from sources import ADA, ALL, Source, add_to_store

pytestmark = pytest.mark.parametrize("version", [wire.V311, wire.V5], ids=["v3.1.1", "v5"])

NEXT = "acme/next"
DENIALS = r'^barid_denied_total\{tenant="acme",action="publish"\}'


@pytest.fixture(params=ALL.values(), ids=ALL)
def source(request, broker_with, tmp_path) -> Source:
    """A broker with the back end and another one behind it, which has acme/next, and acme/ada with the password that is wrong in
    the first."""
    one: Source = request.param(request.getfixturevalue, tmp_path)
    following = {NEXT: "next", ADA: one.wrong}
    behind = "store" if one.name == "file" else "file"
    users = "".join(f'[[users]]\nname = "{user}"\npassword = "{hashed(password)}"\n' for user, password in following.items())
    one.start(broker_with, f'[auth]\nchain = ["{one.name}", "{behind}"]\n{one.toml()}{users if behind == "file" else ""}')
    if behind == "store":
        for user, password in following.items():
            add_to_store(one.running, user, password)
    return one


def reason(source: Source, user: str, password: str, version: int) -> int:
    client = source.log_in(user, password, version)
    client.stream.close()
    return client.connack.reason


def test_the_right_login_has_the_rights_of_the_user(source, version):
    client = source.log_in(ADA, source.right, version)
    assert client.connack.reason == ACCEPTED
    assert source.running.metric(r'^barid_connections\{tenant="acme"') == 1
    before = source.running.metric(DENIALS)
    client.publish("up/1", b"1", 1)
    assert source.running.metric(DENIALS) == before
    client.publish("down/1", b"2", 1)
    assert source.running.metric(DENIALS) == before + 1


def test_the_right_login_has_the_limits_of_the_user(source, version):
    client = source.log_in(ADA, source.right, version)
    started = time.monotonic()
    for _ in range(25):
        client.publish("up/1", b"1", 1)
    took = time.monotonic() - started
    assert took > 1.3 if source.has_limits else took < 1, took


def test_a_wrong_login_is_final(source, version):
    assert reason(source, ADA, source.wrong, version) == DENIED[version]
    assert reason(source, ADA, source.right, version) == ACCEPTED
    assert reason(source, ADA, source.wrong, version) == DENIED[version]


def test_the_next_back_end_is_asked_about_others(source, version):
    expected = ACCEPTED if source.can_tell_unknown else DENIED[version]
    assert reason(source, NEXT, "next", version) == expected
    assert reason(source, NEXT, "wrong", version) == DENIED[version]
    assert reason(source, "acme/nobody", "next", version) == DENIED[version]


@pytest.mark.parametrize("user", ["acme/Ada", "acme/ada ", "acme/ada/", "acme/ad", "acme//ada", "globex/ada", "ada", "acme/", "/ada",
                                  "acme/ada\u200b", "acme/%", "acme/*"])
def test_a_user_is_found_by_its_whole_name(source, version, user):
    assert reason(source, user, source.right, version) == DENIED[version]


def test_passwords_that_are_empty_or_too_long(source, version):
    for password in ("", "x" * 16_385, "x" * 60_000):
        assert reason(source, ADA, password, version) == DENIED[version], len(password)


def test_a_back_end_that_cannot_tell_lets_nobody_in(source, version):
    if not source.asks_a_server:
        pytest.skip("it always can")
    source.fail()
    began = time.monotonic()
    assert reason(source, ADA, source.right, version) == UNAVAILABLE[version]
    assert reason(source, ADA, source.wrong, version) == UNAVAILABLE[version]
    others = UNAVAILABLE[version] if source.asks_about_everybody else ACCEPTED
    assert reason(source, NEXT, "next", version) == others
    assert time.monotonic() - began < 10
    source.recover()
    until = time.monotonic() + 20
    while (answer := reason(source, ADA, source.right, version)) != ACCEPTED and time.monotonic() < until:
        assert answer == UNAVAILABLE[version]
        time.sleep(0.2)
    assert answer == ACCEPTED
