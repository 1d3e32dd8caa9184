"""What clients asked for, what they were told, and when: all that a checker may know.

Times are seconds of the monotonic clock of this machine, which the broker shares. A request is *invoked* when its first
PUBLISH is about to leave, and *answered* when its first response has come: it took effect, if it did, once, somewhere
between the two. One that never was answered may have taken effect at any time after it was invoked, or not at all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = math.inf

OK, NOT_APPLIED, VALUE, ABSENT, DELETED, NOTHING = "+OK", ":-1", "$", "$-1", ":1", ":0"
"""What a response says, as it begins on the wire; a refusal is its whole text, `-ERR ...`."""
TOKEN_REQUIRED = "-ERR a fencing token is required for this request"
TOKEN_TOO_OLD = "-ERR the request fencing token is a lower version than the fencing token protecting the resource"
QUOTA_EXCEEDED = "-ERR the quota has been exceeded"

SET, DELETE = "SET", "DELETE"
"""What happens to a key, as notifications call it."""


class Version(NamedTuple):
    """A hybrid logical clock, in its order. Fencing tokens are such, too."""

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
    """Sent again after a connection was lost: if it changed nothing the first time, it may be carried out later than it was sent."""
    answered: float = NEVER
    answer: Answer | None = None

    @property
    def change(self) -> str | None:
        """What the answer says it did to the key."""
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
    """What a notification says, and when it came."""

    version: Version
    kind: str
    value: bytes | None
    seen: float


@dataclass(slots=True, eq=False)
class Change:
    """A change of a key of which somebody was told: it has happened, and before that."""

    version: Version
    kind: str
    value: bytes | None = None
    """Of a SET; None if only its version is known."""
    seen: float = NEVER
    owner: Operation | None = None
    """The request that was told that it made this change. None: one without an answer did, or the key expired."""

    @property
    def order(self) -> tuple:
        """A deletion that has the version of what it deletes comes after it."""
        return self.version, self.kind == DELETE

    def __str__(self) -> str:
        return f"{self.kind} {self.version}" + ("" if self.value is None else f" {self.value!r}")


def changes_of(operations: list[Operation], sightings: list[Sighting]) -> tuple[list[Change], list[str]]:
    """All changes of a key that anybody was told of, in the order of their versions, and what contradicts itself."""
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
    """What happened to the keys of all tenants since they were known to be absent."""

    operations: dict[tuple[str, bytes], list[Operation]] = field(default_factory=lambda: defaultdict(list))
    sightings: dict[tuple[str, bytes], list[Sighting]] = field(default_factory=lambda: defaultdict(list))

    def invoked(self, tenant: str, operation: Operation) -> None:
        self.operations[tenant, operation.key].append(operation)

    def revoked(self, tenant: str, operation: Operation) -> None:
        """It was not carried out, and will not be."""
        operations = self.operations[tenant, operation.key]
        operations[:] = [one for one in operations if one is not operation]

    def saw(self, tenant: str, key: bytes, sighting: Sighting) -> None:
        self.sightings[tenant, key].append(sighting)

    def answered_again(self, tenant: str, operation: Operation, answer: Answer, now: float) -> None:
        """A GET that was sent again was carried out again: that counts as another one."""
        another = Operation(operation.client, operation.verb, operation.key, operation.invoked, resent=True)
        another.answer, another.answered = answer, now
        self.operations[tenant, operation.key].append(another)
