"""Runs the programs and commands of pages in docs/, and compares the results with the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from broker import ROOT

MARKED = re.compile(r"^( *)<!-- tested(?:: ([\w .]+))? -->\n\1```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Page:
    """A page and its blocks. Each has the text of the comment before it, `<!-- tested: WHAT -->`, its language and its text."""

    def __init__(self, name: str):
        self.text = (ROOT / "docs" / name).read_text()
        self.blocks = [(what, language, textwrap.dedent(text)) for _, what, language, text in MARKED.findall(self.text)]

    def marked(self, what: str) -> list[str]:
        found = [text for kind, _, text in self.blocks if kind == what]
        assert found, f"no block of the page is marked: {what}"
        return found

    def commands(self, what: str = "") -> list[tuple[str, str | None]]:
        """Returns each block of commands, and the output that the page states for it."""
        following = [*self.blocks[1:], (None, None, None)]
        return [(text, printed if then == "prints" else None)
                for (kind, language, text), (then, _, printed) in zip(self.blocks, following, strict=True)
                if language == "sh" and kind == what]


def run(commands: str, directory: Path, barid: str, **environment: str) -> str:
    """Runs commands in a directory and returns their output; `barid` is the shell script that they find under this name."""
    programs = directory / "bin"
    programs.mkdir(exist_ok=True)
    for name, script in (("barid", barid), ("python", f'exec {sys.executable} "$@"')):
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BARID_")}
    kept |= {"PATH": f"{programs}:{os.environ['PATH']}", **environment}
    done = subprocess.run(["bash", "-euc", commands], cwd=directory, env=kept, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"status {done.returncode} of\n{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout
