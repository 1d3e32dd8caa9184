"""Tests that the programs and commands of docs/bindings.md do what the page says.

A comment before a block says how it is tested:

    <!-- tested: NAME -->                 the block is written to a file of that name
    <!-- tested: starts the broker -->    the block is run in the directory of those files; the others use that broker
    <!-- tested -->                       commands that are run in that directory, each block with a new broker
    <!-- tested: prints -->               the whole output of the commands before it

The page uses the default ports. In the test each broker has other ports, so they are replaced in everything that is run.
"""

import re

import pytest

import guide
from broker import BINARY, Broker

PAGE = guide.Page("bindings.md")


class Guided(Broker):
    """The broker that the page starts, with the programs of the page in a directory."""

    def __init__(self, directory):
        self.beside = directory
        [config] = [text for _, language, text in PAGE.blocks if language == "toml"]
        [start] = PAGE.marked("starts the broker")
        assert start.split() == ["barid", "serve", "--config", "barid.toml"]
        super().__init__(config)

    def run(self, commands: str) -> str:
        ports = {"5672": self.amqp_port, "1883": self.port}
        for name, language, text in PAGE.blocks:
            if language == "python":
                (self.beside / name).write_text(re.sub(r"\b(5672|1883)\b", lambda usual: str(ports[usual[0]]), text))
        port = f'[ "$1" = pub ] && set -- "$@" -p {self.port}'
        return guide.run(commands, self.beside, f'{port}\nexec {BINARY} "$@"', BARID_TOOLS_ADMIN=f"127.0.0.1:{self.admin_port}")


@pytest.fixture
def guided(tmp_path):
    running = Guided(tmp_path)
    yield running
    running.close()


def test_no_block_of_the_page_goes_untested():
    assert len(re.findall(r"^```\w+$", PAGE.text, re.MULTILINE)) == len(PAGE.blocks) > 5


@pytest.mark.parametrize("block, printed", PAGE.commands(), ids=["devices and workers", "set while it runs"])
def test_the_commands_and_programs(guided, block, printed):
    found = guided.run(block)
    assert printed in (None, found)
