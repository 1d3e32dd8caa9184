"""The arrows between the crates, and what the pure ones may not touch."""

import json
import re
import subprocess
from functools import cache

import pytest

from broker import ROOT
from source import production

# From top to bottom: a crate may use those behind it, never those before it.
LAYERS = [
    "barid", "barid-sim", "barid-server", "barid-engine", "barid-amqp", "barid-core", "barid-store", "mqtt-proto", "statestore-proto",
]
PURE = ["barid-amqp", "barid-core", "mqtt-proto", "statestore-proto"]

# The core knows the port of the store, which comes in one crate with the engines behind it. What those use is their affair.
PORTS = {"barid-store"}

# What would bring a socket, a clock, randomness or a runtime into a pure crate, whoever asks for it.
IMPURE_CRATES = {"tokio", "mio", "socket2", "async-std", "smol", "rand", "rand_core", "getrandom", "fastrand", "chrono", "time"}
IMPURE_CODE = {
    "the time": r"\b(Instant|SystemTime)\b",
    "randomness": r"\b(RandomState|thread_rng|OsRng)\b",
    "sockets": r"\bstd::net\b(?!::\w*Addr)",
    "files": r"\bstd::fs\b",
    "threads": r"\bthread::(spawn|sleep|Builder)\b",
    "the environment": r"\bstd::env\b",
    "standard output": r"\b(e?println|dbg)!",
}


# The engine is given the time, random numbers and threads. Hash maps that seed themselves are not seen here.
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
    """Also for tests and build scripts: else a crate could not be taken out of the house."""
    below = LAYERS[LAYERS.index(crate) + 1:]
    upward = {dependency["name"] for dependency in ours()[crate]["dependencies"]} & set(LAYERS) - set(below)
    assert not upward, f"{crate} must not depend on {upward}"


@pytest.mark.parametrize("crate", PURE)
def test_pure_crates_depend_on_nothing_impure(crate):
    """Directly or through others; dependencies of tests and benchmarks do not count, nor do optional ones nobody asks for,
    which the metadata lists and the tree does not."""
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
    """Time is an argument, and so is everything else that comes from outside. Comments and tests may speak of it."""
    found = asked_for(crate, IMPURE_CODE[what])
    assert not found, f"{crate} asks for {what}:\n" + "\n".join(found)


@pytest.mark.parametrize("what", ENGINE_CODE)
def test_the_engine_asks_for_nothing(what):
    found = asked_for("barid-engine", ENGINE_CODE[what])
    assert not found, f"the engine asks for {what}:\n" + "\n".join(found)


def test_no_broker_can_break_its_rules():
    """What a simulation breaks on purpose is not in the program, nor is its scheduler."""
    command = ["cargo", "tree", "--locked", "--offline", "-p", "barid", "-e", "features", "-i", "barid-engine"]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "barid-engine" in tree
    assert 'feature "faults"' not in tree and 'feature "shuttle"' not in tree


def asked_for(crate: str, pattern: str) -> list[str]:
    """Lines of a crate's code that have the pattern."""
    directory = ROOT / "crates" / crate.removeprefix("barid-") / "src"
    files = sorted(directory.rglob("*.rs"))
    assert files
    found = []
    for file in files:
        for number, line in enumerate(production(file.read_text()).splitlines(), 1):
            if re.search(pattern, line.split("//")[0]):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    return found
