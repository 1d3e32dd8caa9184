"""Every normative statement that binds a server has a test that names it, and no test names one that does not exist."""

import ast
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
STATEMENTS = tomllib.loads((HERE / "statements.toml").read_text())

# What cannot be seen from outside of this broker, and why.
UNOBSERVABLE = {
    "5:MQTT-3.15.2-1": "no enhanced authentication method is built in, so the broker never sends AUTH",
    "5:MQTT-3.15.2-2": "the broker never sends AUTH",
    "5:MQTT-3.15.2-3": "the broker never sends AUTH",
    "5:MQTT-4.12.0-2": "the broker never sends AUTH",
    "5:MQTT-4.12.0-5": "the broker accepts no CONNECT with an authentication method",
    "311:MQTT-4.8.0-2": "a transient error of the broker itself cannot be provoked through the protocol",
    "311:MQTT-7.0.0-1": "the broker connects to no other servers",
}


def named() -> dict[str, str]:
    """Each statement in a `normative(...)` of this directory, with a file that names it."""
    found = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and "normative" in (getattr(node.func, "attr", ""), getattr(node.func, "id", "")):
                assert node.args, f"{path.name}:{node.lineno}: normative() without a statement"
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path.name}:{node.lineno}: statements are literals"
                    found[argument.value] = path.name
    return found


def statements(*binds: str) -> set[str]:
    return {f"{standard}:{name}" for standard, all_of in STATEMENTS.items() for name, (who, _) in all_of.items() if who in binds}


def test_the_list_is_complete():
    """The standards number 251 and 141 statements."""
    assert {standard: len(all_of) for standard, all_of in STATEMENTS.items()} == {"5": 251, "311": 141}
    assert statements("server", "client", "both", "network") == statements(*{
        who for all_of in STATEMENTS.values() for who, _ in all_of.values()})


def test_every_statement_that_binds_a_server_is_tested():
    missing = statements("server", "both", "network") - named().keys() - UNOBSERVABLE.keys()
    assert not missing, sorted(missing)


def test_no_test_names_an_unknown_statement():
    unknown = {name: where for name, where in named().items() if name not in statements("server", "client", "both", "network")}
    assert not unknown


def test_the_unobservable_ones_are_not_tested_after_all():
    assert not UNOBSERVABLE.keys() & named().keys()
    assert UNOBSERVABLE.keys() <= statements("server", "both", "network")
