"""The requests of clients, the answers to them, and their times: all that a checker may know.

Times are seconds of the monotonic clock of this machine, which the broker shares. A request is *invoked* when its first
PUBLISH is about to leave, and *answered* when its first response has arrived: if it took effect, it did so once, at some
time between the two. A request that was never answered may have taken effect at any time after it was invoked, or not at all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = math.inf

OK, NOT_APPLIED, VALUE, ABSENT, DELETED, NOTHING = "+OK", ":-1", "$", "$-1", ":1", ":0"
"""The first bytes of a response on the wire; a refusal is represented by its whole text, `-ERR ...`."""
TOKEN_REQUIRED = "-ERR a fencing token is required for this request"
TOKEN_TOO_OLD = "-ERR the request fencing token is a lower version than the fencing token protecting the resource"
QUOTA_EXCEEDED = "-ERR the quota has been exceeded"

SET, DELETE = "SET", "DELETE"
"""Kinds of changes of a key, named as in notifications."""


class Version(NamedTuple):
    """A reading of a hybrid logical clock, with its order. Fencing tokens have the same type."""

    wall: int
    counter: int = 0
    node: str = "StateStore"

    @classmethod
    def parse(cls, given: str) -> Version:
        wall, counter, node = given.split(":")
        return cls(int(wall), int(counter), node)

    def __str__(self) -> str:
        return f"{self.wall:015d}:{self.counter:05d}:{self.node}"


class Answer(NamedTuple):
    says: str
    value: bytes | None = None
    version: Version | None = None


@dataclass(slots=True, eq=False)
class Operation:
    """A request for one key. `verb` is SET, NX, NEX (a SET with that condition), GET, DEL or VDEL."""

    client: str
    verb: str
    key: bytes
    invoked: float
    value: bytes | None = None
    ttl: float | None = None
    """Seconds."""
    fence: Version | None = None
    stamp: Version | None = None
    resent: bool = False
    """Whether it was sent again after a connection was lost. Then it may be carried out late, if it changed nothing before."""
    answered: float = NEVER
    answer: Answer | None = None

    @property
    def change(self) -> str | None:
        """The change of the key that the answer reports, if any."""
        if self.answer is None or self.answer.says not in (OK, DELETED):
            return None
        return SET if self.answer.says == OK else DELETE

    def __str__(self) -> str:
        words = [self.verb, self.key.decode(errors="replace")]
        words += [] if self.value is None else [repr(self.value)]
        words += [] if self.ttl is None else [f"PX {self.ttl * 1000:.0f}"]
        words += [] if self.fence is None else [f"__ft {self.fence}"]
        told = "no answer"
        if self.answer:
            value, version = self.answer.value, self.answer.version
            told = self.answer.says + ("" if value is None else f" {value!r}") + ("" if version is None else f" {version}")
        return f"[{self.invoked:.4f}, {self.answered:.4f}] {self.client}: {' '.join(words)} -> {told}"


class Sighting(NamedTuple):
    """The content of a notification, and when it arrived."""

    version: Version
    kind: str
    value: bytes | None
    seen: float


@dataclass(slots=True, eq=False)
class Change:
    """A change of a key of which a client was told: it happened before the client was told."""

    version: Version
    kind: str
    value: bytes | None = None
    """The value of a SET; None if only its version is known."""
    seen: float = NEVER
    owner: Operation | None = None
    """The request whose answer says that it made this change. None: a request without an answer made it, or the key expired."""

    @property
    def order(self) -> tuple:
        """Sort key. A deletion with the version of the value that it deletes comes after that value."""
        return self.version, self.kind == DELETE

    def __str__(self) -> str:
        return f"{self.kind} {self.version}" + ("" if self.value is None else f" {self.value!r}")


def changes_of(operations: list[Operation], sightings: list[Sighting]) -> tuple[list[Change], list[str]]:
    """Returns all changes of a key of which any client was told, in the order of their versions, and the contradictions."""
    found: dict[tuple, Change] = {}
    problems: list[str] = []

    def saw(version: Version, kind: str, value: bytes | None, seen: float, owner: Operation | None, whence) -> None:
        change = found.setdefault((version, kind), Change(version, kind))
        change.seen = min(change.seen, seen)
        if owner:
            if change.owner:
                problems.append(f"two changes with one version: {change.owner} and {owner}")
            change.owner = owner
        if value is not None:
            if change.value not in (None, value):
                problems.append(f"version {version} is {change.value!r} and {value!r}: {whence}")
            change.value = value

    for one in operations:
        if one.answer is None or one.answer.version is None:
            continue
        version = one.answer.version
        if one.change:
            saw(version, one.change, one.value if one.change == SET else None, one.answered, one, one)
        elif one.answer.says == VALUE or one.answer.says == NOT_APPLIED and one.verb in ("NX", "NEX"):
            saw(version, SET, one.answer.value, one.answered, None, one)
    for one in sightings:
        saw(one.version, one.kind, one.value, one.seen, None, f"a notification at {one.seen:.4f}")
    return sorted(found.values(), key=lambda change: change.order), problems


@dataclass
class History:
    """The events of the keys of all tenants since the keys were known to be absent."""

    operations: dict[tuple[str, bytes], list[Operation]] = field(default_factory=lambda: defaultdict(list))
    sightings: dict[tuple[str, bytes], list[Sighting]] = field(default_factory=lambda: defaultdict(list))

    def invoked(self, tenant: str, operation: Operation) -> None:
        self.operations[tenant, operation.key].append(operation)

    def revoked(self, tenant: str, operation: Operation) -> None:
        """Removes a request that was not carried out, and will not be."""
        operations = self.operations[tenant, operation.key]
        operations[:] = [one for one in operations if one is not operation]

    def saw(self, tenant: str, key: bytes, sighting: Sighting) -> None:
        self.sightings[tenant, key].append(sighting)

    def answered_again(self, tenant: str, operation: Operation, answer: Answer, now: float) -> None:
        """Adds the second answer of a GET that was sent again: it was carried out again, and counts as another request."""
        another = Operation(operation.client, operation.verb, operation.key, operation.invoked, resent=True)
        another.answer, another.answered = answer, now
        self.operations[tenant, operation.key].append(another)
