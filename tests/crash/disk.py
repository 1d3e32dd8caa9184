"""Computes the content of a disk after a power cut: replays the log of powercut.c without some of the unsynced changes.

The model is harsher than any single file system, and no harsher than what POSIX allows all of them together:

- Content and length of a file are safe up to the last fsync or fdatasync of this file that has returned: everything written
  before the call began. Each later write may be there, or not, or in part: whole sectors of 512 bytes, old or new. A length
  may have grown without its data: the gap reads as zeros.
- A change of a name (creation, rename, removal) is safe when its directory has been synced. Otherwise it may be there or not.
  A rename is all or nothing, also between two directories, where one fsync is enough. The changes of one file keep their
  order: a rename does not survive without the creation of the name that it removes.
- A sync of a file does not save its name, and a sync of a directory does not save the content of its files.
- There are no other faults: no garbage in sectors never written, no flipped bits, no disk that lies about its cache.

One of the fates below chooses the changes that survive.
"""

from __future__ import annotations

import os
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
HEADER = struct.Struct("<IIqqq")
(STARTED, OPENED, CLOSED, DUPLICATED, WROTE, TRUNCATED, ALLOCATED, RENAMED, LINKED, UNLINKED, MADE_DIRECTORY,
 SYNC_BEGAN, SYNC_DONE, ALL_SYNCED, REFUSED) = range(1, 16)


class Node:
    """A file or a directory, independent of its names."""

    def __init__(self):
        self.changes: list[Change] = []


class File(Node):
    def __init__(self, base: Path | None = None):
        super().__init__()
        self.base = base
        """The file with its content before the log began."""


class Directory(Node):
    def __init__(self, entries: dict[str, Node] | None = None):
        super().__init__()
        self.base: dict[str, Node] = entries or {}
        self.entries = dict(self.base)
        """The entries as the running process sees them."""


@dataclass(eq=False)
class Change:
    index: int
    durable: bool = False


@dataclass(eq=False)
class Names(Change):
    """Entries that change together; None removes an entry."""

    entries: list[tuple[Directory, str, Node | None]] = field(default_factory=list)
    nodes: set[Node] = field(default_factory=set)


@dataclass(eq=False)
class Written(Change):
    offset: int = 0
    data: bytes = b""

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(eq=False)
class Length(Change):
    """A change by ftruncate, or by fallocate, which can only grow a file."""

    size: int = 0
    grows_only: bool = False


# -------------------------------------------------------------------------------------------- what survives


class Everything:
    """All changes survive: the machine stays on, and only the process ends."""

    def survives(self, change: Change) -> bool:
        return True

    def pieces(self, write: Written) -> list[tuple[int, bytes]]:
        return [(write.offset, write.data)]


class Synced:
    """Only synced changes survive."""

    def survives(self, change: Change) -> bool:
        return False

    def pieces(self, write: Written) -> list[tuple[int, bytes]]:
        return []


class Prefix:
    """All changes before some moment survive; the write at that moment is torn."""

    def __init__(self, chance: random.Random, changes: int):
        self._chance, self._moment = chance, chance.randrange(changes + 1)

    def survives(self, change: Change) -> bool:
        return change.index < self._moment

    def pieces(self, write: Written) -> list[tuple[int, bytes]]:
        if write.index == self._moment:
            return torn(write, self._chance)
        return [(write.offset, write.data)] if self.survives(write) else []


class Scattered:
    """Each change survives independently, with the same probability; a third of the surviving writes are torn."""

    def __init__(self, chance: random.Random):
        self._chance, self._probability = chance, chance.choice((0.1, 0.5, 0.9))

    def survives(self, change: Change) -> bool:
        return self._chance.random() < self._probability

    def pieces(self, write: Written) -> list[tuple[int, bytes]]:
        if not self.survives(write):
            return []
        return torn(write, self._chance) if self._chance.random() < 0.33 else [(write.offset, write.data)]


def torn(write: Written, chance: random.Random) -> list[tuple[int, bytes]]:
    """Returns some of the sectors that a write covers."""
    ends = [*range(write.offset // SECTOR * SECTOR + SECTOR, write.end, SECTOR), write.end]
    starts = [write.offset, *ends[:-1]]
    return [(start, write.data[start - write.offset : end - write.offset])
            for start, end in zip(starts, ends) if chance.random() < 0.5]


def any_fate(chance: random.Random, changes: int):
    return chance.choice((Synced(), Prefix(chance, changes), Scattered(chance), Scattered(chance)))


# -------------------------------------------------------------------------------------------------- the disk


class Disk:
    """The directory `base` as it was, and its changes since then according to `log`."""

    def __init__(self, base: Path, log: Path):
        self.root = _load(base)
        self.changes = 0
        self.refused: list[str] = []
        self._names: list[Names] = []
        self._files: dict[int, Node] = {}
        self._syncs: dict[int, tuple[Node, int]] = {}
        self._all: list[Change] = []
        if log.exists():
            for record in _records(log.read_bytes()):
                self._replay(*record)

    def _replay(self, kind: int, a: int, b: int, c: int, body: bytes) -> None:
        if kind == STARTED:
            self._files.clear()
        elif kind == OPENED:
            self._open(a, body.decode(), made=bool(b), emptied=bool(c))
        elif kind == CLOSED:
            del self._files[a]
        elif kind == DUPLICATED:
            self._files[b] = self._files[a]
        elif kind == WROTE:
            self._change(self._files[a], Written(self.changes, offset=b, data=body))
        elif kind == TRUNCATED:
            self._change(self._files[a], Length(self.changes, size=b))
        elif kind == ALLOCATED:
            self._change(self._files[a], Length(self.changes, size=b, grows_only=True))
        elif kind in (RENAMED, LINKED):
            self._move(*body.decode().split("\0"), keep=kind == LINKED)
        elif kind == UNLINKED:
            self._rename_entries((*self._place(body.decode()), None))
        elif kind == MADE_DIRECTORY:
            if body.strip(b"/"):
                self._rename_entries((*self._place(body.decode()), Directory()))
        elif kind == SYNC_BEGAN:
            self._syncs[b] = (self._files[a], self.changes)
        elif kind == SYNC_DONE:
            node, before = self._syncs.pop(b)
            for change in node.changes:
                if change.index < before:
                    self._make_durable(change)
        elif kind == ALL_SYNCED:
            for change in self._all:
                change.durable = True
        elif kind == REFUSED:
            self.refused.append(body.decode())

    def _change(self, node: Node, change: Change) -> None:
        self.changes += 1
        self._all.append(change)
        node.changes.append(change)

    def _place(self, path: str) -> tuple[Directory, str]:
        *parents, name = [part for part in path.split("/") if part not in ("", ".")] or [""]
        directory = self.root
        for part in parents:
            directory = directory.entries[part]
        return directory, name

    def _open(self, descriptor: int, path: str, made: bool, emptied: bool) -> None:
        directory, name = self._place(path)
        node = directory.entries.get(name) if name else self.root
        if node is None:
            assert made, f"{path} was opened, and the log does not know it"
            node = File()
            self._rename_entries((directory, name, node))
        elif emptied:
            self._change(node, Length(self.changes, size=0))
        self._files[descriptor] = node

    def _move(self, old: str, new: str, keep: bool) -> None:
        node = (source := self._place(old))[0].entries[source[1]]
        target = self._place(new)
        if source == target:
            return
        self._rename_entries((*target, node), *([] if keep else [(*source, None)]))

    def _rename_entries(self, *entries: tuple[Directory, str, Node | None]) -> None:
        change = Names(self.changes, entries=list(entries))
        self.changes += 1
        self._all.append(change)
        self._names.append(change)
        for directory, name, node in entries:
            change.nodes |= {one for one in (node, directory.entries.get(name)) if one}
            if change not in directory.changes:
                directory.changes.append(change)
            if node:
                directory.entries[name] = node
            else:
                del directory.entries[name]

    def _make_durable(self, change: Change) -> None:
        change.durable = True
        if isinstance(change, Names):
            for earlier in self._names:
                if earlier.index < change.index and not earlier.durable and earlier.nodes & change.nodes:
                    self._make_durable(earlier)

    # -- after the cut

    def image(self, target: Path, fate) -> None:
        """Creates `target`, the directory that is found when the power comes back."""
        survivors, lost = set(), set()
        for change in self._names:
            if change.durable or (not change.nodes & lost and fate.survives(change)):
                survivors.add(change)
            else:
                lost |= change.nodes
        self._write_directory(self.root, target, survivors, fate)

    def _write_directory(self, directory: Directory, target: Path, survivors: set, fate) -> None:
        target.mkdir()
        entries = dict(directory.base)
        for change in directory.changes:
            if change in survivors:
                for owner, name, node in change.entries:
                    if owner is directory and node:
                        entries[name] = node
                    elif owner is directory:
                        entries.pop(name, None)
        for name, node in entries.items():
            if isinstance(node, Directory):
                self._write_directory(node, target / name, survivors, fate)
            elif node.base and not node.changes:
                os.link(node.base, target / name)
            else:
                _write_file(node, target / name, fate)


def _write_file(node: File, target: Path, fate) -> None:
    if node.base:
        copy_sparse(node.base, target)
    with open(target, "r+b" if node.base else "w+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for change in node.changes:
            kept = change.durable or fate.survives(change)
            if isinstance(change, Length):
                if kept and not (change.grows_only and change.size <= size):
                    size = change.size
                    file.truncate(size)
                continue
            if kept and change.end > size:
                size = change.end
                file.truncate(size)
            for offset, data in [(change.offset, change.data)] if change.durable else fate.pieces(change):
                if offset < size:
                    os.pwrite(file.fileno(), data[: size - offset], offset)


def _records(log: bytes):
    """Yields the records of a log; the last one may be truncated, because its writer was killed."""
    at = 0
    while at + HEADER.size <= len(log):
        kind, length, a, b, c = HEADER.unpack_from(log, at)
        at += HEADER.size
        if at + length > len(log):
            return
        yield kind, a, b, c, log[at : at + length]
        at += length


def _load(path: Path) -> Directory:
    return Directory({one.name: _load(one) if one.is_dir() else File(one) for one in sorted(path.iterdir())})


# --------------------------------------------------------------------------------------------- whole directories


def copy_sparse(source: Path, target: Path) -> None:
    """Copies a file without its holes, because journals are allocated far ahead."""
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        size, at = os.fstat(old.fileno()).st_size, 0
        new.truncate(size)
        while at < size:
            try:
                begin = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:
                return
            at = os.lseek(old.fileno(), begin, os.SEEK_HOLE)
            os.pwrite(new.fileno(), os.pread(old.fileno(), at - begin, begin), begin)


def copy_tree(source: Path, target: Path) -> None:
    target.mkdir()
    for one in source.iterdir():
        (copy_tree if one.is_dir() else copy_sparse)(one, target / one.name)


def differences(one: Path, other: Path) -> list[str]:
    """Returns the names of files that differ between two directories."""
    names = {path.relative_to(root) for root in (one, other) for path in root.rglob("*")}
    return [str(name) for name in sorted(names) if not _same(one / name, other / name)]


def _same(one: Path, other: Path) -> bool:
    if one.is_dir() or other.is_dir():
        return one.is_dir() and other.is_dir()
    return one.exists() and other.exists() and one.read_bytes() == other.read_bytes()
