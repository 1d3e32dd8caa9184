"""Tests rules for the files of the repository."""

import re

import pytest

from broker import ROOT

MOST_LINES = 800
SOURCES = sorted(path for path in ROOT.glob("crates/*/src/**/*.rs"))


def test_source_files_stay_small():
    """A file contains one concept, and is read top-down."""
    assert SOURCES
    long = {str(path.relative_to(ROOT)): lines for path in SOURCES if (lines := len(path.read_text().splitlines())) > MOST_LINES}
    assert not long, f"more than {MOST_LINES} lines: {long}"


def test_nothing_is_left_to_do():
    """Missing work belongs into an issue, not into a note in the code."""
    notes = [f"{path.relative_to(ROOT)}:{number}" for path in SOURCES
             for number, line in enumerate(path.read_text().splitlines(), 1) if re.search(r"\b(TODO|FIXME|XXX)\b|\btodo!", line)]
    assert not notes


def test_modules_of_tests_have_names_of_their_own():
    """All tests run in one process, which imports each name once. `run.py` is a program."""
    names = [path.name for path in ROOT.glob("tests/**/*.py") if "node_modules" not in path.parts]
    twice = {name for name in names if names.count(name) > 1} - {"conftest.py", "run.py"}
    assert len(names) > 100 and not twice, f"several modules of tests are called {sorted(twice)}"


def test_decisions_are_numbered_without_gaps():
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs/adr").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1)) != []


SERVER = ROOT / "crates/server/src"
ENGINE = ROOT / "crates/engine/src"
SETTINGS = "".join(path.read_text().split("#[cfg(test)]")[0] for path in
                   [SERVER / "settings.rs", *sorted((SERVER / "settings").glob("*.rs")),
                    *(ENGINE / f"{name}.rs" for name in ("limits", "key_rules", "bindings/binding"))])


def settings() -> list[str]:
    """Returns the keys of the configuration: public fields, and the entries of the `limits!` macro."""
    renamed = {field: name for name, field in re.findall(r'rename = "(\w+)"\)\]\n    pub (\w+): ', SETTINGS)}
    fields = [renamed.get(field, field) for field in re.findall(r"^    pub (\w+): ", SETTINGS, re.MULTILINE)]
    limits = re.findall(r"^    (\w+): \w+ = ", SETTINGS, re.MULTILINE)
    assert len(fields) > 20 and len(limits) > 10
    return sorted(set(fields + limits))


@pytest.mark.parametrize("name", settings())
def test_every_setting_is_documented(name):
    page = (ROOT / "docs/operating/configuration.md").read_text()
    assert re.search(rf"`(\w+\.)*{name}`|^{name} = |\[+(\w+\.)*{name}[\].]", page, re.MULTILINE), \
        f"docs/operating/configuration.md does not say what {name} is"


def values() -> list[str]:
    """Returns the values of the enums among the settings, as serde spells them."""
    enums = re.findall(r'rename_all = "kebab-case".*?pub enum \w+ \{(.*?)\n\}', SETTINGS, re.DOTALL)
    names = re.findall(r"^    (\w+),$", "".join(enums), re.MULTILINE)
    assert len(names) > 3
    return [re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() for name in names]


@pytest.mark.parametrize("value", values())
def test_every_value_is_documented(value):
    assert value in (ROOT / "docs/operating/configuration.md").read_text()
