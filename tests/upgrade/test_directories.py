"""Data directories that earlier versions have written are opened, and all that is in them is there.

directories/ has one for each version that wrote something new, and each engine: `write.py` makes them.
"""

import tarfile
from pathlib import Path

import pytest
from contents import CONFIG, check, fill

from broker import Broker

ARCHIVES = sorted((Path(__file__).resolve().parent / "directories").glob("*.tar.xz"))

# Versions without users, settings of tenants and bans in the store.
WITHOUT_MANAGED = {"33dde37", "6d16f5d"}

# Versions without what belongs to a user.
WITHOUT_OF_USER = WITHOUT_MANAGED | {"59b6bf5"}


class Found(Broker):
    """A broker that finds a data directory at its first start."""

    def __init__(self, archive: Path):
        self.archive = archive
        super().__init__(CONFIG)

    def start(self) -> None:
        data = self.directory / "data"
        if not data.exists():
            with tarfile.open(self.archive) as files:
                files.extractall(data, filter="data")
        super().start()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def test_what_an_earlier_version_wrote_is_there(archive):
    broker = Found(archive)
    version = archive.name.split("-")[0]
    check(broker, has_managed=version not in WITHOUT_MANAGED, has_of_user=version not in WITHOUT_OF_USER)
    broker.end()


@pytest.mark.parametrize("engine", ["log", "lsm"])
def test_what_this_version_writes_is_there_after_a_crash(engine):
    """So that the archives have what the tests look for."""
    broker = Broker(CONFIG + f'[storage]\nengine = "{engine}"\n')
    fill(broker)
    broker.kill9()
    broker.start()
    check(broker)
    broker.end()
