"""Tests that a request that is sent again gets the same answer and changes nothing, whatever the first one did and whatever
has happened since."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import wire
from commands import INVOKE, answer, request, response_topic
from history import ABSENT, DELETED, NOT_APPLIED, NOTHING, OK, TOKEN_REQUIRED, TOKEN_TOO_OLD, Answer, Operation, Version
from victim import Unharmed, Victim

FENCE = Version(1_700_000_000_000, 0, "other")
OLDER, NEWER = FENCE._replace(counter=0, node="a"), FENCE._replace(counter=1)


def ask(verb: str, value: bytes | None = None, **more) -> Operation:
    return Operation("a", verb, b"", 0.0, value, **more)


class Client(wire.Client):
    """A client whose session outlives its connections."""

    def come(self, name: str) -> Client:
        connack = self.connect(name, clean=False, properties={"session_expiry_interval": 600}, username="acme/client")
        if not connack.session_present:
            self.subscribe(response_topic(name), qos=1)
        return self

    def ask(self, key: bytes, one: Operation, packet_id: int = 1, dup: bool = False) -> Answer:
        one = replace(one, key=key)
        user = [("__ts", str(Version(int(time.time() * 1000), 0, "a")))] + ([("__ft", str(one.fence))] if one.fence else [])
        properties = {"response_topic": response_topic(self.client_id), "correlation_data": b"c%d" % packet_id, "user_property": user}
        self.send(wire.publish(INVOKE, request(one), 1, packet_id, dup=dup, properties=properties))
        self.wait_for(wire.PUBACK, packet_id)
        return answer(self.receive(), one.verb)


# Requests made before, the request, its answer, and requests that another client makes then.
CASES = {
    "SET": ([], ask("SET", b"x"), OK, [ask("SET", b"y")]),
    "SET of a key that is deleted then": ([], ask("SET", b"x"), OK, [ask("DEL")]),
    "SET with a token": ([], ask("SET", b"x", fence=FENCE), OK, [ask("SET", b"y", fence=NEWER)]),
    "SET without the token": ([ask("SET", b"x", fence=FENCE)], ask("SET", b"y"), TOKEN_REQUIRED, [ask("DEL", fence=FENCE)]),
    "SET with an older token": ([ask("SET", b"x", fence=FENCE)], ask("SET", b"y", fence=OLDER), TOKEN_TOO_OLD, [ask("DEL", fence=FENCE)]),
    "NX": ([], ask("NX", b"x"), OK, [ask("DEL")]),
    "NX of a key that is there": ([ask("SET", b"x")], ask("NX", b"y"), NOT_APPLIED, [ask("DEL")]),
    "NEX": ([], ask("NEX", b"x"), OK, [ask("VDEL", b"x")]),
    "NEX of another's key": ([ask("SET", b"x")], ask("NEX", b"y"), NOT_APPLIED, [ask("VDEL", b"x")]),
    "DEL": ([ask("SET", b"x")], ask("DEL"), DELETED, [ask("SET", b"y")]),
    "DEL of nothing": ([], ask("DEL"), NOTHING, [ask("SET", b"y")]),
    "DEL of nothing any more": ([ask("SET", b"x"), ask("DEL")], ask("DEL"), NOTHING, [ask("SET", b"y")]),
    "DEL without the token": ([ask("SET", b"x", fence=FENCE)], ask("DEL"), TOKEN_REQUIRED, [ask("DEL", fence=FENCE), ask("SET", b"z")]),
    "VDEL": ([ask("SET", b"x")], ask("VDEL", b"x"), DELETED, [ask("SET", b"x")]),
    "VDEL of nothing": ([], ask("VDEL", b"x"), NOTHING, [ask("SET", b"x")]),
    "VDEL of another value": ([ask("SET", b"x")], ask("VDEL", b"y"), NOT_APPLIED, [ask("SET", b"y")]),
}


@pytest.fixture(scope="module", params=[Unharmed, Victim], ids=["connection lost", "broker killed"])
def interrupted(request):
    """Yields the broker after all first requests, and the answers to them."""
    victim = request.param()
    other, first = Client(victim.address).come("before"), {}
    for name, (before, sent, _, _) in CASES.items():
        for number, one in enumerate(before, 2):
            other.ask(name.encode(), one, number)
        client = Client(victim.address).come(name)
        first[name] = client.ask(name.encode(), sent)
        client.drop()
    victim.die()
    victim.revive()
    yield victim, first
    victim.close()


@pytest.mark.parametrize("name", CASES)
def test_what_is_sent_again_is_not_done_again(interrupted, name):
    """The client has received the answer, but not PUBACK. Meanwhile other clients go on."""
    victim, first = interrupted
    _, sent, says, meanwhile = CASES[name]
    key, other = name.encode(), Client(victim.address).come("after")
    assert first[name].says == says
    for number, one in enumerate(meanwhile, 2):
        assert other.ask(key, one, number).says in (OK, DELETED)
    there = other.ask(key, ask("GET"), 50)
    assert (there.says == ABSENT) == (meanwhile[-1].verb in ("DEL", "VDEL"))
    assert Client(victim.address).come(name).ask(key, sent, dup=True) == first[name]
    assert other.ask(key, ask("GET"), 51) == there
