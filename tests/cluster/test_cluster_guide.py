"""docs/operating/cluster.md: its commands do what it says."""

from __future__ import annotations

from broker import BINARY, ROOT
from guide import Page, run

PAGE = Page("operating/cluster.md")


def test_five_minutes_with_three_brokers(tmp_path):
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    try:
        for commands, printed in PAGE.commands():
            found = run(commands, tmp_path, f'exec {BINARY} "$@"', BARID_BIN=str(BINARY))
            if printed is not None:
                assert found == printed
    finally:
        run("scripts/cluster.sh down --dir demo", tmp_path, f'exec {BINARY} "$@"', BARID_BIN=str(BINARY))
