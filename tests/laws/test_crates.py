"""Tests the dependencies between the crates, and that the pure crates are pure."""

import json
import re
import subprocess
from functools import cache

import pytest

from broker import ROOT
from source import production

# From top to bottom: a crate may depend on those after it, never on those before it.
LAYERS = [
    "barid", "barid-sim", "barid-server", "barid-auth", "barid-engine", "barid-peers", "barid-amqp", "barid-core", "barid-store", "mqtt-proto", "statestore-proto",
]
PURE = ["barid-peers", "barid-amqp", "barid-core", "mqtt-proto", "statestore-proto"]

# The core uses the port of the store, which is in one crate with the storage engines. The dependencies of the engines are
# not checked.
PORTS = {"barid-store"}

# Crates that would bring a socket, a clock, randomness or a runtime into a pure crate, directly or indirectly.
IMPURE_CRATES = {"tokio", "mio", "socket2", "async-std", "smol", "rand", "rand_core", "getrandom", "fastrand", "chrono", "time"}
IMPURE_CODE = {
    "the time": r"\b(Instant|SystemTime)\b",
    "randomness": r"\b(RandomState|thread_rng|OsRng)\b",
    "sockets": r"\bstd::net\b(?!::(\w*Addr\b|\{(\w*Addr(, )?)+\}))",
    "files": r"\bstd::fs\b",
    "threads": r"\bthread::(spawn|sleep|Builder)\b",
    "the environment": r"\bstd::env\b",
    "standard output": r"\b(e?println|dbg)!",
}


# Time, random numbers and threads are passed to the engine. This check does not find hash maps that seed themselves.
ENGINE_CODE = IMPURE_CODE | {"the time": r"\b(Instant::now|SystemTime)\b|\.elapsed\(", "randomness": r"\b(RandomState|OsRng|SystemRandom|new_v4)\b"}


@cache
def metadata() -> dict:
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def ours() -> dict[str, dict]:
    members = set(metadata()["workspace_members"])
    return {package["name"]: package for package in metadata()["packages"] if package["id"] in members}


def test_every_crate_has_its_layer():
    assert sorted(ours()) == sorted(LAYERS), "say in LAYERS where the new crate stands"


@pytest.mark.parametrize("crate", LAYERS)
def test_arrows_point_downward(crate):
    """Includes dependencies of tests and build scripts: otherwise a crate could not be moved to another repository."""
    below = LAYERS[LAYERS.index(crate) + 1:]
    upward = {dependency["name"] for dependency in ours()[crate]["dependencies"]} & set(LAYERS) - set(below)
    assert not upward, f"{crate} must not depend on {upward}"


@pytest.mark.parametrize("crate", PURE)
def test_pure_crates_depend_on_nothing_impure(crate):
    """Checks direct and indirect dependencies. Dependencies of tests and benchmarks do not count. Nor do optional ones that
    are not enabled: they are in the metadata but not in the tree."""
    command = ["cargo", "tree", "--locked", "--package", crate, "--edges", "normal", "--prefix", "depth", "--no-dedupe"]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    reached, port = set(), None
    for depth, name in re.findall(r"^(\d+)(\S+)", tree, re.MULTILINE):
        if port is None or int(depth) <= port:
            reached.add(name)
            port = int(depth) if name in PORTS else None
    assert crate in reached
    assert not reached & IMPURE_CRATES, f"{crate} depends on {reached & IMPURE_CRATES}"


@pytest.mark.parametrize("crate", PURE)
@pytest.mark.parametrize("what", IMPURE_CODE)
def test_pure_crates_ask_for_nothing(crate, what):
    """Time and everything else from outside is an argument. Comments and tests may mention it."""
    found = asked_for(crate, IMPURE_CODE[what])
    assert not found, f"{crate} asks for {what}:\n" + "\n".join(found)


@pytest.mark.parametrize("what", ENGINE_CODE)
def test_the_engine_asks_for_nothing(what):
    found = asked_for("barid-engine", ENGINE_CODE[what])
    assert not found, f"the engine asks for {what}:\n" + "\n".join(found)


def test_no_broker_can_break_its_rules():
    """The code by which a simulation breaks rules on purpose is not in the program, nor is its scheduler."""
    command = ["cargo", "tree", "--locked", "--offline", "-p", "barid", "-e", "features", "-i", "barid-engine"]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "barid-engine" in tree
    assert 'feature "faults"' not in tree and 'feature "shuttle"' not in tree


def asked_for(crate: str, pattern: str) -> list[str]:
    """Returns the lines of a crate's code that match the pattern."""
    directory = ROOT / "crates" / crate.removeprefix("barid-") / "src"
    files = sorted(directory.rglob("*.rs"))
    assert files
    found = []
    for file in files:
        for number, line in enumerate(production(file.read_text()).splitlines(), 1):
            if re.search(pattern, line.split("//")[0]):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


def used_outside(crate: str) -> set[str]:
    """The modules of a crate that code outside it names: `crate::module` or `crate::{module, …}`."""
    ident = crate.replace("-", "_")
    inside = ROOT / "crates" / crate.removeprefix("barid-") / "src"
    found = set()
    for path in ROOT.glob("**/*.rs"):
        if "target" in path.parts or path.is_relative_to(inside):
            continue
        text = path.read_text()
        found |= set(re.findall(rf"\b{ident}::(\w+)", text))
        for tree in re.findall(rf"\b{ident}::\{{([^;]*?)\}};", text):
            found |= set(re.findall(r"\w+", tree))
    return found


@pytest.mark.parametrize("crate", ["barid-engine", "barid-core", "barid-store", "barid-amqp", "mqtt-proto", "statestore-proto"])
def test_public_modules_are_used_outside(crate):
    source = (ROOT / "crates" / crate.removeprefix("barid-") / "src/lib.rs").read_text()
    public = set(re.findall(r"^pub mod (\w+);", source, re.MULTILINE))
    unused = public - used_outside(crate)
    assert not unused, f"make these modules of {crate} private: {sorted(unused)}"
