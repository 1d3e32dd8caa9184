"""Writes a data directory with the binary that BARID_BIN names, for test_directories.py to open:

    BARID_BIN=path/to/barid python tests/upgrade/write.py 0.1.0

It is killed, not stopped, so that what is in the directory is what a crash leaves.
"""

import sys
import tarfile
from pathlib import Path

from contents import CONFIG, fill

from broker import Broker

DIRECTORIES = Path(__file__).resolve().parent / "directories"


def write(version: str, engine: str) -> Path:
    broker = Broker(CONFIG + f'[storage]\nengine = "{engine}"\n')
    fill(broker)
    broker.kill9()
    archive = DIRECTORIES / f"{version}-{engine}.tar.xz"
    with tarfile.open(archive, "w:xz") as out:
        out.add(broker.directory / "data", ".")
    broker.close()
    return archive


if __name__ == "__main__":
    for engine in ("log", "lsm"):
        written = write(sys.argv[1], engine)
        print(f"{written}: {written.stat().st_size} bytes")
