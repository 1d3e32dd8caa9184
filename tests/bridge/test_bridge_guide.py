"""docs/bridge.md: its programs and commands do what it says.

A comment before a block says what is done with it:

    <!-- tested: NAME -->                 written to a file of that name
    <!-- tested: starts the broker -->    run beside those files; the others then talk to that broker
    <!-- tested -->                       commands: run beside those files, each with a broker that has just been started
    <!-- tested: prints -->               all that the commands before it print

The ports of the page are those that are usual. Here each broker has others, so they are replaced in all that is run.
"""

import os
import re
import subprocess
import sys

import pytest

from broker import BINARY, ROOT, Broker

PAGE = (ROOT / "docs" / "bridge.md").read_text()
BLOCKS = re.findall(r"^<!-- tested(?:: ([\w .]+))? -->\n```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


class Guided(Broker):
    """The broker that the page starts, in a directory with the programs of the page."""

    def __init__(self, directory):
        self.beside = directory
        [config] = [text for name, language, text in BLOCKS if language == "toml"]
        [start] = [text for name, _, text in BLOCKS if name == "starts the broker"]
        assert start.split() == ["barid", "serve", "--config", "barid.toml"]
        super().__init__(config)

    def run(self, commands: str) -> str:
        ports = {"5672": self.amqp_port, "1883": self.port}
        for name, language, text in BLOCKS:
            if language == "python":
                (self.beside / name).write_text(re.sub(r"\b(5672|1883)\b", lambda usual: str(ports[usual[0]]), text))
        programs = self.beside / "bin"
        programs.mkdir(exist_ok=True)
        port = f'[ "$1" = pub ] && set -- "$@" -p {self.port}'
        for name, lines in (("barid", [port, f'exec {BINARY} "$@"']), ("python", [f'exec {sys.executable} "$@"'])):
            (programs / name).write_text("\n".join(["#!/bin/sh", *lines, ""]))
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BARID_")}
        kept |= {"PATH": f"{programs}:{os.environ['PATH']}", "BARID_ADMIN": f"127.0.0.1:{self.admin_port}"}
        done = subprocess.run(["bash", "-euc", commands], cwd=self.beside, env=kept, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"status {done.returncode} of\n{commands}\n{done.stdout}\n{done.stderr}\n{self.stderr}"
        return done.stdout


@pytest.fixture
def guided(tmp_path):
    running = Guided(tmp_path)
    yield running
    running.close()


def commands() -> list[tuple[str, str | None]]:
    """Each block of commands, and what the page says that it prints."""
    following = [*BLOCKS[1:], (None, None, None)]
    return [(text, printed if then == "prints" else None)
            for (kind, language, text), (then, _, printed) in zip(BLOCKS, following, strict=True)
            if language == "sh" and not kind]


def test_no_block_of_the_page_goes_untested():
    assert len(re.findall(r"^```\w+$", PAGE, re.MULTILINE)) == len(BLOCKS) > 5


@pytest.mark.parametrize("block, printed", commands(), ids=["devices and workers", "set while it runs"])
def test_the_commands_and_programs(guided, block, printed):
    found = guided.run(block)
    assert printed in (None, found)
