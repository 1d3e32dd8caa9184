"""Tests the dependencies between the modules of a crate: the files and folders directly below `src`.

A module that depends on itself through other modules is tangled: it cannot be read or changed without them.
"""

import re
from pathlib import Path

import pytest

from broker import ROOT
from source import production

CRATES = {path.parent.name: path for path in ROOT.glob("crates/*/src")}


def modules(source: Path) -> dict[str, str]:
    """Returns the code of each module."""
    code: dict[str, str] = {}
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        is_test = "tests" in parts or parts[-1].endswith("tests")
        if parts[0] not in ("lib", "main") and not is_test:
            code[parts[0]] = code.get(parts[0], "") + re.sub(r"//[^\n]*", "", production(path.read_text()))
    return code


def roots(tree: str) -> set[str]:
    """Returns the first path segments in the braces of `use crate::{…}`."""
    names, depth, name = set(), 0, ""
    for character in tree + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            names.add(re.match(r"\s*(\w*)", name)[1])
            name = ""
        else:
            name += character
    return names


def arrows(source: Path) -> dict[str, set[str]]:
    """Returns for each module the modules that it uses."""
    found = {}
    code = modules(source)
    for module, text in code.items():
        uses = set(re.findall(r"\bcrate::(\w+)", text))
        for tree in re.findall(r"\bcrate::\{([^;]*?)\};", text):
            uses |= roots(tree)
        found[module] = uses & code.keys() - {module}
    return found


def tangled(uses: dict[str, set[str]]) -> set[str]:
    """Returns the modules that depend on themselves."""
    def reaches_itself(module: str) -> bool:
        seen, ahead = set(), list(uses[module])
        while ahead:
            if (step := ahead.pop()) not in seen:
                seen.add(step)
                ahead += uses[step]
        return module in seen

    return {module for module in uses if reaches_itself(module)}


@pytest.mark.parametrize("crate", CRATES)
def test_modules_are_not_tangled(crate):
    found = tangled(arrows(CRATES[crate]))
    assert not found, f"there is a cycle among {sorted(found)}"


def documented(crate: str) -> list[str]:
    """Returns the modules in the table of a crate, in the order of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.split(f"### `crates/{crate}`")[1].split("\n### ")[0]
    firsts = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = [re.split(r"[./]", name)[0] for cell in firsts for name in re.findall(r"`([^`]+)`", cell)]
    return list(dict.fromkeys(names))


@pytest.mark.parametrize("crate", ["engine", "server"])
def test_modules_are_documented_from_the_bottom_to_the_top(crate):
    uses = arrows(CRATES[crate])
    order = documented(crate)
    assert sorted(set(order) & uses.keys()) == sorted(uses), "each module has its row in ARCHITECTURE.md"
    place = {module: at for at, module in enumerate(order)}
    upward = [f"{module} uses {used}" for module in uses for used in uses[module] if place[used] > place[module]]
    assert not upward, f"these stand in the wrong order in ARCHITECTURE.md: {upward}"


def test_what_is_for_tests_is_left_out():
    code = "a\n#[cfg(test)]\nmod tests {\n    fn f() { \"}\" }\n}\nb\n#[cfg(test)]\nuse c;\nd\n#[cfg(test)]\nfn e() {\n}\nf\n"
    assert production(code).split() == ["a", "b", "d", "f"]
    assert production(code).count("\n") == code.count("\n")


def test_a_tangle_is_found():
    assert tangled({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}
