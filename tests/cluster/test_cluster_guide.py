"""docs/operating/cluster.md: its commands do what it says."""

from __future__ import annotations

import json

from broker import BINARY, ROOT, WORKER
from guide import Page, run

PAGE = Page("operating/cluster.md")


def test_the_script_prints_a_line_for_each_broker(tmp_path):
    def script(words: str) -> str:
        return run(f"{ROOT}/scripts/cluster.sh {words} --dir {tmp_path}/d", tmp_path, f'exec {BINARY} "$@"', BARID_BIN=str(BINARY))

    # Below the ports that other tests use.
    port = 8_500 + 20 * WORKER
    try:
        shown = script(f"up 2 --port {port}")
        told = [json.loads(line) for line in shown.splitlines()]
        assert [list(one) for one in told] == [["name", "pid", "mqtt", "ws", "amqp", "admin"]] * 2
        assert [one["mqtt"] for one in told] == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 5}"]
        assert script("status") == shown
        script("kill9 b2")
        assert script("status") == shown.splitlines(keepends=True)[0]
        started = json.loads(script("start b2"))
        assert started.pop("pid") != told[1].pop("pid") and started == told[1]
    finally:
        script("down")


def test_five_minutes_with_three_brokers(tmp_path):
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    try:
        for commands, printed in PAGE.commands():
            found = run(commands, tmp_path, f'exec {BINARY} "$@"', BARID_BIN=str(BINARY))
            if printed is not None:
                assert found == printed
    finally:
        run("scripts/cluster.sh down --dir demo", tmp_path, f'exec {BINARY} "$@"', BARID_BIN=str(BINARY))
