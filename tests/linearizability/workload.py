"""The requests of clients. Each key has a mix of its own, so that every run has all mixes."""

from __future__ import annotations

import time

from history import Operation, Version

MIXES = {
    b"register": "SET SET SET GET GET GET DEL",
    b"letters": "SET NX NX NEX NEX GET GET DEL VDEL VDEL",
    b"lease": "NX NEX NEX NEX GET VDEL VDEL",
    b"brief": "SET SET SET NX NEX GET GET GET DEL VDEL",
    b"timed": "NX NX GET",
    b"fenced": "SET SET SET NX NEX GET GET DEL VDEL",
}
"""Verbs for each key, repeated by their frequency. `register`: every value is unique. `letters`: there are only three values.
`lease`: the value is the name of a client, and expires. `brief`: most values expire, if they are not replaced before. `timed`:
values live as long as requested, also across crashes. `fenced`: most requests have a token."""


def choose(client) -> Operation:
    """Returns the next request of `client`, a `Requester`, chosen by the client's own random generator."""
    chance = client.random
    key = chance.choice(list(MIXES))
    verb = chance.choice(MIXES[key].split())
    one = Operation(client.name, verb, key, 0.0)
    if verb in ("SET", "NX", "NEX", "VDEL"):
        one.value = _value(client, key)
    if verb in ("SET", "NX", "NEX"):
        if key == b"lease":
            one.ttl = chance.randint(20, 200) / 1000
        elif key == b"timed":
            one.ttl = chance.randint(50, 900) / 1000
        elif key == b"brief" and chance.random() < 0.8:
            one.ttl = chance.randint(5, 150) / 1000
        elif key == b"fenced" and chance.random() < 0.1:
            one.ttl = chance.randint(50, 300) / 1000
    if verb != "GET" and key == b"fenced" and chance.random() < 0.85:
        one.fence = _token(client)
    return one


def _value(client, key: bytes) -> bytes:
    """Returns a value that contains the name of the tenant, so that it cannot be confused with a value of another tenant."""
    if key == b"lease":
        word = client.name
    elif key == b"register" or client.random.random() < 0.5 and key != b"letters":
        word = f"{client.name}/{client._number}" + "." * (client.random.randrange(3000) if client.random.random() < 0.02 else 0)
    else:
        word = client.random.choice("abc")
    return f"{client.tenant} {word}".encode()


def _token(client) -> Version:
    """Returns the token of the client's last lease, or one that is about as old as those of other clients: some are too old,
    some are not."""
    if client.leased and client.random.random() < 0.3:
        return client.leased
    return Version(int(time.time() * 1000) + client.random.randint(-150, 150), client.random.randrange(3), client.name)
