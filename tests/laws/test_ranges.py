"""Tests that `check-config` accepts exactly the ranges of settings that the documentation states."""

import json
import re
import subprocess

import pytest

from broker import BINARY, ROOT
from test_files import SETTINGS

# A number that must be accepted where the documentation states no maximum.
HUGE = 2**62

CONFIGURATION = (ROOT / "docs/operating/configuration.md").read_text()
ENTITIES = (ROOT / "docs/operating/entities.md").read_text()

# The duration one millisecond below a minimum and above a maximum.
JUST_BELOW = {"PT1S": "PT0.999S", "PT0.001S": "PT0S"}
JUST_ABOVE = {"P1D": "P1DT0.001S", "P7D": "P7DT0.001S"}


def ranges() -> list[tuple[str, str, int, int | None]]:
    """Returns table, key, minimum and maximum of each number in configuration.md; None if there is no maximum."""
    found = []
    for heading, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", CONFIGURATION, re.MULTILINE | re.DOTALL):
        tables = re.findall(r"`\[+(\w+)\]+`", heading) or [""]
        for key, range_ in re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", section, re.MULTILINE):
            if match := re.fullmatch(r"(\d+) …(?: (\d+))?(?: bytes| seconds)?", range_):
                found.append((tables[0], key, int(match[1]), int(match[2]) if match[2] else None))
            elif match := re.fullmatch(r"\d+(?:, \d+)+", range_):
                numbers = [int(number) for number in range_.split(", ")]
                assert numbers == list(range(numbers[0], numbers[-1] + 1)), range_
                found.append((tables[0], key, numbers[0], numbers[-1]))
    return found


def cases() -> list[tuple[str, str, int, int | None]]:
    """Returns all ranges; those of limits also for the settings of one tenant."""
    own = [("tenants.acme.limits", *rest) for table, *rest in ranges() if table == "limits"]
    return ranges() + own


def document(table: str, key: str, value: int) -> str:
    if table == "bindings":
        return f"[[bindings]]\nname = 'b'\npublish = 't'\nfrom_queue = 'q'\n{key} = {value}\n"
    if table == "telemetry":
        return f"[telemetry]\nendpoint = 'http://127.0.0.1:4318'\n{key} = {value}\n"
    return f"[{table}]\n{key} = {value}\n" if table else f"{key} = {value}\n"


def is_accepted(tmp_path, toml: str) -> bool:
    file = tmp_path / "barid.toml"
    file.write_text(toml)
    done = subprocess.run([BINARY, "check-config", "--json", file], capture_output=True, text=True)
    return json.loads(done.stdout)["ok"]


@pytest.mark.parametrize("table, key, least, most", cases())
def test_a_range_is_what_it_says(tmp_path, table, key, least, most):
    outcomes = {
        least - 1: False,
        least: True,
        most or HUGE: True,
        **({most + 1: False} if most else {}),
    }
    assert {value: is_accepted(tmp_path, document(table, key, value)) for value in outcomes} == outcomes


def test_every_number_has_a_range():
    """Checks the numeric fields of the settings, and the limits. Slots are a power of two."""
    number = r"(?:Option<)?(?:u8|u16|u32|u64|usize)\b"
    names = set(re.findall(rf"^    (?:pub )?(\w+): {number}", SETTINGS, re.MULTILINE))
    assert len(names) > 30
    assert names <= {key for _, key, _, _ in ranges()} | {"slots"}


def properties() -> list[tuple[str, str, str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| [^|]* \| ([^ |]+) \| ([^|]+?) \| ", ENTITIES, re.MULTILINE)
    return [(name, of.split(",")[0].replace("all", "queue"), least.strip("`"), most.strip("`")) for name, of, least, most in rows]


@pytest.mark.parametrize("name, of, least, most", properties())
def test_a_property_is_what_it_says(tmp_path, name, of, least, most):
    def accepted(value: str) -> bool:
        written = value if value.isdecimal() else f"'{value}'"
        return is_accepted(tmp_path, f"[[{of}s]]\nname = 'e'\nproperties = {{ {name} = {written} }}\n")

    below = JUST_BELOW[least] if least.startswith("P") else str(int(least) - 1)
    assert accepted(least) and not accepted(below)
    if most != "no limit":
        above = JUST_ABOVE[most] if most.startswith("P") else str(int(most) + 1)
        assert accepted(most) and not accepted(above)


def test_all_properties_with_a_range_were_found():
    assert len(properties()) == len(re.findall(r"^\| `\w+` \|.*\| (?:`PT|1 \|)", ENTITIES, re.MULTILINE)) >= 6
