"""Searches for an order in which the requests for one key could have been carried out one by one.

This is the search of Wing and Gong with Lowe's memoisation. It takes any request that was invoked before every other
remaining request was answered, carries it out on the model of one key, and continues. It never visits the same set of
executed requests with the same state twice. Two facts narrow the search. A client's requests for a key are carried out in
the order in which it sent them, except that a request that is sent again may come later. And versions ascend: a change of
which a client was told has a fixed place. So the search may only make the next known change, or a change of which no client
was told, which only a request without an answer can have made.

Expiry is an event of its own: not before its due time, and not later than `grace` after it. Each step is taken as early as
the times of the requests allow, and the latest due time is counted from the answer. So a history that is rejected is
impossible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, NamedTuple

from history import (ABSENT, DELETE, DELETED, NEVER, NOT_APPLIED, NOTHING, OK, SET, TOKEN_REQUIRED, TOKEN_TOO_OLD, VALUE,
                     Answer, Change, Operation, Sighting, Version, changes_of)

GRACE = 0.1
"""Maximum time between the due time of a key and its expiry, in seconds."""
EARLY = 0.002
"""Seconds by which an expiry may be early, because the broker counts in milliseconds."""
MOST_STEPS = 3_000_000


class State(NamedTuple):
    """The state of the key, and how far the search has come."""

    place: int = 0
    """Number of known changes that were made."""
    value: bytes | None = None
    """None: the key does not exist."""
    version: Version | None = None
    """None also if no client was told of the change that set the value."""
    fence: Version | None = None
    due_from: float = NEVER
    due_until: float = NEVER
    now: float = 0.0
    """The earliest time at which all this can have happened."""


@dataclass
class Verdict:
    problems: list[str] = field(default_factory=list)
    steps: int = 0
    changes: list[Change] = field(default_factory=list)


def check(operations: list[Operation], sightings: list[Sighting] = (), floor: Version | None = None,
          grace: float = GRACE, most_steps: int = MOST_STEPS, strays: bool = False) -> Verdict:
    """Returns the verdict on all requests for one key, which is absent at the beginning; `floor` is a version assigned before.
    `strays`: a request without an answer may be carried out after later requests of its client, which has sent them to another
    broker."""
    changes, problems = changes_of(operations, sightings)
    problems += _obvious(operations, changes, floor)
    if problems:
        return Verdict(problems, 0, changes)
    return _Search(operations, changes, grace, most_steps, strays).run()


def _obvious(operations: list[Operation], changes: list[Change], floor: Version | None) -> list[str]:
    """Returns the problems that can be found without a search."""
    problems = []
    if floor and changes and changes[0].version <= floor:
        problems.append(f"{changes[0]} is not above {floor}, which was given before")
    open_values = {one.value for one in operations if one.answer is None and one.verb in ("SET", "NX", "NEX")}
    for change in changes:
        if change.kind == SET and change.owner is None:
            if not open_values or change.value is not None and change.value not in open_values:
                problems.append(f"{change} was seen, and every request that could have made it was told of another outcome")
    for one in operations:
        if one.answer and one.answer.says not in (OK, NOT_APPLIED, VALUE, ABSENT, DELETED, NOTHING, TOKEN_REQUIRED, TOKEN_TOO_OLD):
            problems.append(f"unexpected: {one}")
    return problems


class _Search:
    def __init__(self, operations: list[Operation], changes: list[Change], grace: float, most_steps: int, strays: bool):
        self.operations = sorted((one for one in operations if one.answer or one.verb != "GET"), key=lambda one: one.invoked)
        self.changes, self.grace, self.most_steps, self.strays = changes, grace, most_steps, strays
        self._order_clients()

    def _order_clients(self) -> None:
        """Finds for each request the request of the same client that must be carried out before it, and the requests that are
        never carried out if it is."""
        self.before: list[int | None] = []
        self.given_up: list[tuple[int, ...]] = []
        last: dict[str, int] = {}
        unanswered: dict[str, list[int]] = {}
        for index, one in enumerate(self.operations):
            self.before.append(last.get(one.client))
            self.given_up.append(() if self.strays else tuple(unanswered.get(one.client, ())))
            if one.resent:
                continue
            if one.answer:
                last[one.client] = index
                unanswered[one.client] = []
            else:
                unanswered.setdefault(one.client, []).append(index)

    def run(self) -> Verdict:
        # The set of executed requests: all below `low`, and the bits of `done` from there on.
        start = (0, 0, State())
        stack, known = [start], {start}
        deepest, farthest = -1, start
        steps = 0
        while stack:
            node = stack.pop()
            low, done, state = node
            candidates, until = self._candidates(low, done)
            if until == NEVER and self._complete(state):
                return Verdict([], steps, self.changes)
            if steps > self.most_steps:
                return Verdict([f"undecided after {steps} steps; {self._explain(farthest)}"], steps, self.changes)
            depth = low + done.bit_count()
            if depth > deepest:
                deepest, farthest = depth, node
            if state.now > until:
                continue
            # The last one here is tried first: answered requests, the most urgent before the others.
            for index in sorted(candidates, key=lambda one: -self.operations[one].answered):
                after = self._with(low, done, index)
                for outcome in reversed(list(self._outcomes(state, index))):
                    steps += 1
                    following = (*after, outcome)
                    if following not in known:
                        known.add(following)
                        stack.append(following)
        return Verdict([f"no order explains what was answered; {self._explain(farthest)}"], steps, self.changes)

    # -- which requests may be next

    def _candidates(self, low: int, done: int) -> tuple[list[int], float]:
        """Returns the requests that were invoked before the first answer of the remaining ones, and the time of that answer."""
        found, until, index = [], NEVER, low
        while index < len(self.operations) and (one := self.operations[index]).invoked <= until:
            if not done >> (index - low) & 1:
                until = min(until, one.answered)
                before = self.before[index]
                if before is None or before < low or done >> (before - low) & 1:
                    found.append(index)
            index += 1
        return found, until

    def _with(self, low: int, done: int, index: int) -> tuple[int, int]:
        done |= 1 << (index - low)
        for one in self.given_up[index]:
            if one >= low:
                done |= 1 << (one - low)
        while done & 1:
            low, done = low + 1, done >> 1
        return low, done

    def _complete(self, state: State) -> bool:
        """Returns whether every change of which a client was told was made; all answered requests have been carried out."""
        if state.place == len(self.changes):
            return True
        return any(gone.place == len(self.changes) for gone in self._expired(state))

    # -- the model

    def _outcomes(self, state: State, index: int) -> Iterator[State]:
        """Returns the states in which the request can leave the key, if `state` can give its answer."""
        one = self.operations[index]
        now = max(state.now, one.invoked)
        if now <= min(one.answered, state.due_until):
            yield from self._carry_out(one, state._replace(now=now))
        for gone in self._expired(state):
            now = max(gone.now, one.invoked)
            if now <= one.answered:
                yield from self._carry_out(one, gone._replace(now=now))

    def _expired(self, state: State) -> Iterator[State]:
        if state.due_from == NEVER:
            return
        now = max(state.now, state.due_from)
        if (change := self._next(state)) and change.kind == DELETE and change.owner is None and now <= change.seen:
            yield State(state.place + 1, now=now)
        yield State(state.place, now=now)

    def _carry_out(self, one: Operation, state: State) -> Iterator[State]:
        says = one.answer and one.answer.says
        if one.verb == "GET":
            if one.answer == (Answer(ABSENT) if state.value is None else Answer(VALUE, state.value, state.version)):
                yield state
        elif state.fence is not None and (one.fence is None or one.fence < state.fence):
            if says == (TOKEN_REQUIRED if one.fence is None else TOKEN_TOO_OLD):
                yield state
        elif one.verb in ("DEL", "VDEL"):
            if state.value is None:
                if says == NOTHING:
                    yield state
            elif one.verb == "VDEL" and one.value != state.value:
                if says == NOT_APPLIED:
                    yield state
            elif says in (None, DELETED):
                for place, _, _ in self._make(one, state, DELETE):
                    yield State(place, now=state.now)
        elif state.value is not None and (one.verb == "NX" or one.verb == "NEX" and one.value != state.value):
            if says == NOT_APPLIED and one.answer.version == state.version:
                yield state
        elif says in (None, OK):
            fence = state.fence if one.fence is None else max(one.fence, state.fence or one.fence)
            for place, version, seen in self._make(one, state, SET):
                due_from = due_until = NEVER
                if one.ttl is not None:
                    due_from = state.now + one.ttl - EARLY
                    due_until = min(one.answered, seen) + one.ttl + self.grace
                yield State(place, one.value, version, fence, due_from, due_until, state.now)

    def _make(self, one: Operation, state: State, kind: str) -> Iterator[tuple[int, Version | None, float]]:
        """Returns the change that `one` makes: the place after it, its version if known, and when a client was first told of it."""
        change = self._next(state)
        if one.answer:
            if change and change.owner is one and state.now <= change.seen:
                yield state.place + 1, change.version, change.seen
            return
        if (change and change.owner is None and change.kind == kind and state.now <= change.seen
                and (kind == DELETE or change.value in (None, one.value))):
            yield state.place + 1, change.version, change.seen
        yield state.place, None, NEVER

    def _next(self, state: State) -> Change | None:
        return self.changes[state.place] if state.place < len(self.changes) else None

    # -- explaining why there is no order

    def _explain(self, node: tuple[int, int, State]) -> str:
        low, done, state = node
        candidates, _ = self._candidates(low, done)
        following = "\n".join(f"    {self.operations[index]}" for index in candidates[:12])
        done_before = [one for index, one in enumerate(self.operations[:low + done.bit_length()])
                       if index < low or done >> (index - low) & 1]
        recent = "\n".join(f"    {one}" for one in done_before[-6:])
        change = self._next(state)
        return (f"the longest way came to {state.value!r}, version {state.version}, fence {state.fence}, "
                f"due {state.due_from:.4f} to {state.due_until:.4f}, at {state.now:.4f}, next known change "
                f"{change}{f' by {change.owner}' if change and change.owner else ''}\n  after\n{recent}\n  and then none of\n{following}")
