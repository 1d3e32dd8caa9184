"""Tests that deny.toml allows the licences of everything that is linked into Barid or used to test it."""

import re
import tomllib

from broker import ROOT
from test_crates import metadata

ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])


def permitted(expression: str, allowed: set[str]) -> bool:
    """Evaluates an SPDX expression. `/` is the old form of OR, and AND binds tighter than OR."""
    tokens = re.findall(r"[()]|[^\s()/]+|/", expression.replace(" WITH ", "_WITH_"))
    position = 0

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def take() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1]

    def alternatives() -> bool:
        value = together()
        while peek() in ("OR", "/"):
            take()
            value = together() or value
        return value

    def together() -> bool:
        value = one()
        while peek() == "AND":
            take()
            value = one() and value
        return value

    def one() -> bool:
        token = take()
        if token != "(":
            return token.replace("_WITH_", " WITH ") in allowed
        value = alternatives()
        assert take() == ")"
        return value

    value = alternatives()
    assert position == len(tokens), f"not an SPDX expression: {expression}"
    return value


def test_the_evaluation():
    allowed = {"MIT", "ISC", "Apache-2.0 WITH LLVM-exception"}
    for expression, expected in {
        "MIT": True, "GPL-3.0": False, "MIT/GPL-3.0": True, "GPL-3.0 OR MIT": True, "MIT AND GPL-3.0": False,
        "(GPL-3.0 OR MIT) AND ISC": True, "GPL-3.0 OR MIT AND ISC": True, "MIT AND (GPL-2.0 OR GPL-3.0)": False,
        "Apache-2.0 WITH LLVM-exception": True, "Apache-2.0": False,
    }.items():
        assert permitted(expression, allowed) is expected, expression


def test_all_licences_are_allowed():
    packages = metadata()["packages"]
    assert len(packages) > 20
    refused = [f'{package["name"]} {package["version"]}: {package["license"]}' for package in packages
               if not package["license"] or not permitted(package["license"], ALLOWED)]
    assert not refused, "not allowed by deny.toml:\n" + "\n".join(refused)


def test_all_sources_are_the_registry():
    """There are no git dependencies: a release must be built from the registry only."""
    foreign = [package["id"] for package in metadata()["packages"]
               if package["source"] and not package["source"].startswith("registry+https://github.com/rust-lang/crates.io-index")]
    assert not foreign
