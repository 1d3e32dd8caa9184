"""Tests that destructors take no locks: a destructor runs implicitly, perhaps while another lock is held."""

import re

from broker import ROOT
from source import production

# These destructors take a lock that is held briefly and under which nothing else is done.
LEAVES = {
    "crates/engine/src/amqp_clients.rs": "a connection leaves the list of its tenant",
    "crates/auth/src/gate.rs": "a permit goes to the login that waits next",
}


def destructors(code: str) -> list[str]:
    """Returns the blocks `impl Drop for … { … }`."""
    blocks = []
    for begin in re.finditer(r"^impl\b.*\bDrop for .*\{$", code, re.MULTILINE):
        end = code.index("\n}", begin.end())
        blocks.append(code[begin.start():end])
    return blocks


def locking(code: str) -> bool:
    return any(re.search(r"\.(lock|read|write)\(\)", block) for block in destructors(code))


def test_destructors_take_no_locks():
    # The store is not checked: when it is closed, it ends its own threads and waits for them.
    sources = sorted(path for crate in ("auth", "core", "engine", "server") for path in ROOT.glob(f"crates/{crate}/src/**/*.rs"))
    found = {str(path.relative_to(ROOT)) for path in sources if locking(production(path.read_text()))}
    assert found == LEAVES.keys()


def test_a_destructor_that_locks_is_found():
    code = "impl<'a> Drop for X<'a> {\n    fn drop(&mut self) {\n        self.a.lock().b();\n    }\n}\n"
    assert locking(code) and not locking(code.replace("lock", "look"))
    assert not locking("impl X {\n    fn f() {\n        a.lock();\n    }\n}\n")
