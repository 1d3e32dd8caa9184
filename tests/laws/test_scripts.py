"""The scripts of the dashboard: no linter is there, so the mistakes that one would find are looked for here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker import ROOT

DASHBOARD = ROOT / "crates" / "server" / "dashboard"
SCRIPTS = sorted(DASHBOARD.rglob("*.js"))


def imports(text: str) -> list[tuple[list[str], str]]:
    """The names that a script imports, and from where."""
    found = re.findall(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "([^"]+)";$', text, re.MULTILINE)
    return [([name.strip() for name in (names or whole).split(",")], source) for names, whole, source in found]


def uses(name: str, text: str) -> int:
    """How often a name stands in a script: not as a member, and not in a comment."""
    code = re.sub(r"^\s*(//|\*|/\*).*$", "", text, flags=re.MULTILINE)
    return len(re.findall(rf"(?<![.\w])(?<!\. ){name}\b(?!:)", code))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(DASHBOARD)))
def test_a_script(script: Path):
    text = script.read_text()
    for names, source in imports(text):
        there = (script.parent / source).resolve()
        assert there in SCRIPTS, f"{source} is not there"
        exported = re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", there.read_text(), re.MULTILINE)
        for name in names:
            assert uses(name, text) > 1, f"{name} is imported and not used"
            assert name in exported or f"* as {name}" in text, f"{source} does not export {name}"
    assert text.startswith("// "), "it begins with what it is about"
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "srcdoc", "setHTML"):
        assert word not in text, f"{word} makes HTML or scripts from text"
    declared = re.findall(r"^(?:async )?function (\w+)|^const (\w+)", text, re.MULTILINE)
    for name in (one or other for one, other in declared):
        assert uses(name, text) > 1, f"{name} is not used"


def test_every_export_is_used():
    texts = {script: script.read_text() for script in SCRIPTS}
    for script, text in texts.items():
        for name in re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", text, re.MULTILINE):
            elsewhere = any(re.search(rf"\b{name}\b", other) for where, other in texts.items() if where != script)
            assert elsewhere or len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} of {script.name} is not used"
