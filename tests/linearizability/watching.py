"""Checks that a watcher was told of every change of its key, once and in order, from its KEYNOTIFY on."""

from __future__ import annotations

from dataclasses import dataclass, field

from history import DELETE, NEVER, SET, Change, Sighting


@dataclass
class Watch:
    """One registration of one client for one key, on one connection."""

    watcher: str
    key: bytes
    registered: float
    """When KEYNOTIFY was answered; NEVER while it is not."""
    ended: float = NEVER
    """When the connection was lost: notifications in flight then may be missing. NEVER: it was not lost."""
    told: list[Sighting] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.watcher}, watching {self.key.decode()} since {self.registered:.4f}"


def check_watch(watch: Watch, changes: list[Change], now: float, grace: float) -> list[str]:
    """Returns the problems of the notifications of one registration.

    `changes` are all changes of which any client was told, as `changes_of` returns them. By `now` all notifications
    have been sent.
    """
    places = {change.order: place for place, change in enumerate(changes)}
    told = [places[one.version, one.kind == DELETE] for one in watch.told]
    problems = []
    for earlier, later in zip(told, told[1:]):
        if later == earlier:
            problems.append(f"{watch}: told twice of {changes[later]}")
        elif later < earlier:
            problems.append(f"{watch}: told of {changes[later]} after {changes[earlier]}")
    due = [place for place, change in enumerate(changes) if change.owner and change.owner.invoked > watch.registered]
    first = min(told[:1] + due[:1], default=0)
    end = max(told, default=-1) if watch.ended < NEVER else len(changes) - 1 if told or due else -1
    for place in sorted(set(range(first, end + 1)) - set(told)):
        problems.append(f"{watch}: never told of {changes[place]}, by {changes[place].owner}")
    last = changes[-1] if changes else None
    if watch.ended == NEVER and last and _expires(last):
        owner = last.owner
        if watch.registered < owner.invoked + owner.ttl and owner.answered + owner.ttl < now - grace:
            problems.append(f"{watch}: never told that {last} expired, by {owner}")
    return problems


def lateness(watch: Watch, changes: list[Change]) -> list[tuple[float, Change]]:
    """Returns for each expiry how many seconds after its due time `watch` was told of it. This is a lower bound, because the
    due time is counted from the answer."""
    seen = {(one.version, one.kind == DELETE): one.seen for one in watch.told}
    found = []
    for change, following in zip(changes, changes[1:]):
        expired = following.kind == DELETE and following.owner is None and following.order in seen
        if expired and _expires(change) and (due_at := change.owner.answered + change.owner.ttl) > watch.registered:
            found.append((seen[following.order] - due_at, following))
    return found


def _expires(change: Change) -> bool:
    """Whether the change set a value that expires."""
    return change.kind == SET and change.owner is not None and change.owner.ttl is not None
