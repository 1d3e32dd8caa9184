"""Runs the broker under powercut.c, which can cut its power, fill its disk and make its fsync fail."""

from __future__ import annotations

import os
import platform
import random
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from disk import Disk, any_fate, copy_tree
from victim import CONFIG, Victim


def available() -> bool:
    return platform.system() == "Linux" and platform.machine() == "x86_64" and shutil.which("cc") is not None


@cache
def library() -> Path:
    """Compiles powercut.c, once in a process, and returns the library."""
    target = Path(tempfile.mkdtemp(prefix="powercut-")) / "powercut.so"
    source = Path(__file__).with_name("powercut.c")
    subprocess.run(["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", target, source, "-lpthread"],
                   check=True)
    return target


@contextmanager
def recording(root: Path, log: Path, control: Path):
    """Context in which started processes are recorded. They must not start other processes."""
    changed = {"LD_PRELOAD": library(), "POWERCUT_ROOT": root.resolve(), "POWERCUT_LOG": log, "POWERCUT_CONTROL": control}
    os.environ.update({name: str(value) for name, value in changed.items()})
    try:
        yield
    finally:
        for name in changed:
            del os.environ[name]


class Recorded(Victim):
    """A broker for which every change of the data directory is recorded."""

    def __init__(self, config: str = CONFIG):
        self._base: Path | None = None
        super().__init__(config)

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def control(self) -> Path:
        return self.directory / "control"

    def start(self) -> None:
        if self._base is None:
            self.control.mkdir()
            self._base = self.directory / "disk0"
            self._base.mkdir()
        with recording(self.data, self.log, self.control):
            super().start()

    def disk(self) -> Disk:
        return Disk(self._base, self.log)

    def order(self, failure: str, content: str = "") -> None:
        """Makes calls fail from now on: `no-room` (after `content` bytes), `none-free`, `fsync-eio` or `read-eio`."""
        made = self.control / f".{failure}"
        made.write_text(content)
        made.rename(self.control / failure)

    def withdraw(self) -> None:
        """Ends all failures."""
        for one in self.control.iterdir():
            one.unlink()


class Unpowered(Recorded):
    """A broker that dies of power cuts: it starts again on what a disk may have kept."""

    def __init__(self, chance: random.Random, config: str = CONFIG):
        self._chance = chance
        self._cuts = 0
        super().__init__(config)

    def die(self) -> None:
        self.kill9()
        disk = self.disk()
        assert not disk.refused, f"the broker does what cannot be recorded: {disk.refused}"
        self._cuts += 1
        image = self.directory / f"disk{self._cuts}"
        disk.image(image, any_fate(self._chance, disk.changes))
        shutil.rmtree(self._base)
        shutil.rmtree(self.data)
        self.log.unlink()
        copy_tree(image, self.data)
        self._base = image
