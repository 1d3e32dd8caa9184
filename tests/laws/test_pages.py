"""Tests that the documentation is true: absent features are on one page, links resolve, and the commands, flags, variables
and metrics that it names exist."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from broker import BINARY, ROOT, Broker, free_port

# Decision records describe the state at their time, so they are not checked.
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "adr"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *DOCS]

# The page that lists absent features.
ABSENT = ROOT / "docs/limits-of-this-release.md"

# The environment of the commands, without the variables of Barid.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("BARID_")}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def each_page(pages=PAGES):
    return pytest.mark.parametrize("page", pages, ids=name_of)


@functools.cache
def help_of(*words: str) -> str:
    """Returns the help text of a command; empty if the command does not exist."""
    done = subprocess.run([BINARY, *words, "--help"], capture_output=True, text=True, timeout=30, env=ENVIRONMENT)
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def below(*words: str) -> tuple[str, ...]:
    """Returns the names of the subcommands of a command."""
    listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", help_of(*words), re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r"^  ([a-z][a-z-]*)\b", listed[1], re.MULTILINE)) if listed else ()


def commands(*words: str) -> list[tuple[str, ...]]:
    found = [words]
    for name in below(*words):
        if name != "help":
            found += commands(*words, name)
    return found


# ------------------------------------------------------------------------------------------------------ what is absent

# Words that say that a feature is absent for the time being. They tend to remain when the feature is added.
MEANWHILE = re.compile(r"\b(yet|no way to|for now|at present|currently|planned|(next|later|future) release|will be added|so far not"
                       r"|not (implemented|supported))\b", re.IGNORECASE)

# Descriptions of the states of messages and packets. They do not describe absent features.
STATES = re.compile(r"not yet (released|acknowledged)|not (been )?taken yet|not taken yet|or not yet: wait|is written yet|not leave yet")


def statements(text: str) -> list[str]:
    """Returns the places of a text that say that a feature is absent."""
    text = STATES.sub("", re.sub(r"\s+", " ", text))
    return [text[max(found.start() - 60, 0):found.end() + 40] for found in MEANWHILE.finditer(text)]


@each_page([page for page in PAGES if page != ABSENT])
def test_what_is_absent_is_on_one_page(page):
    assert not statements(page.read_text()), f"write it on {name_of(ABSENT)}, and link there"


def test_help_texts_say_what_there_is():
    said = {" ".join(words): found for words in commands() if (found := statements(help_of(*words)))}
    assert len(commands()) > 40 and not said, f"write it on {name_of(ABSENT)}"


@pytest.mark.parametrize("sentence", ["It keeps everything in memory as yet.", "There is no way to disconnect\na client.",
                                      "Sessions cannot be listed yet.", "Not tested yet.", "QoS 2 is not supported."])
def test_such_sentences_are_found(sentence):
    assert statements(sentence)


# ------------------------------------------------------------------------------------------------------ links

LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Returns a page without its code blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page: its headings, as GitHub names them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        heading = LINK.sub(lambda link: link[0][1:link[0].index("](")], heading)
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found) | set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text()))


def links(page: Path) -> list[tuple[Path, str]]:
    """Returns the files to which a page links, each with the anchor of the link."""
    here = [target for target in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", target)]
    return [(page if path == "" else (page.parent / path).resolve(), anchor) for path, _, anchor in (target.partition("#") for target in here)]


@each_page()
def test_links_lead_somewhere(page):
    for path, anchor in links(page):
        assert path.exists(), f"{path} is not there"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{name_of(path)} has no #{anchor}"


def test_every_page_is_reached_from_the_readme():
    reached, coming = set(), [ROOT / "README.md"]
    while coming:
        page = coming.pop()
        if page not in reached:
            reached.add(page)
            coming += [path for path, _ in links(page) if path.suffix == ".md" and path.exists()]
    missing = [name_of(page) for page in (ROOT / "docs").rglob("*.md") if page not in reached]
    assert not missing


# ------------------------------------------------------------------------------------------------------ commands

FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SHELLS = ("sh", "bash", "console", "")

# Matches where a command begins in a shell line.
BEGINS = re.compile(r"(?:^|[|;&(]|\bsudo |\bexec |\$ )\s*barid (?![0-9]|data directory)")


def typed(page: Path) -> list[str]:
    """Returns the `barid` commands on a page, in code blocks and in sentences."""
    text = page.read_text()
    blocks = [block.replace("\\\n", " ") for _, language, block in FENCED.findall(text) if language in SHELLS]
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    spans = [span for span in re.findall(r"`([^`\n]+)`", prose(page)) if span.startswith("barid ")]
    return [line[found.end():] for line in lines + spans for found in BEGINS.finditer(line)]


def words_of(line: str) -> list[str]:
    """Returns the words of the command; arguments after `--` belong to another program and do not count."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&()<>")
    lexer.whitespace_split = True
    words = []
    try:
        for word in lexer:
            if set(word) & set("|;&()<>") or word == "--":
                break
            words.append(word)
    except ValueError:
        pass  # a quotation that ends on another line
    return words


def wrong(line: str) -> str | None:
    """Returns what is wrong with the command and its flags, if anything."""
    words = words_of(line)
    path: list[str] = []
    while words and words[0] in below(*path):
        path.append(words.pop(0))
    if below(*path) and not all(word.startswith("-") or word.isupper() or word == "…" for word in words[:1]):
        return f"barid {' '.join(path)} has no {words[0]}"
    known = help_of(*path)
    flags = [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]
    unknown = [flag for flag in flags if not re.search(rf"{flag}\b(?!-)", known)]
    return f"barid {' '.join(path)} has no {unknown[0]}" if unknown else None


@each_page([page for page in PAGES if typed(page)])
def test_commands_and_flags_are_there(page):
    mistakes = {line: found for line in typed(page) if (found := wrong(line))}
    assert not mistakes


@pytest.mark.parametrize("line", ["pubb -t a", "pub --topick a", "session kill x", "bench pairs --qos 1 --nonsense"])
def test_commands_that_are_not_there_are_found(line):
    assert wrong(line)


def test_examples_of_help_texts():
    mistakes = {}
    for command in commands():
        lines = re.findall(r"^ +(?:.*\| )?barid ((?![0-9]).*)$", help_of(*command), re.MULTILINE)
        mistakes |= {line: found for line in lines if (found := wrong(re.split(r" {3,}", line)[0]))}
    assert not mistakes


# ------------------------------------------------------------------------------------------------------ variables, metrics, paths

def test_variables():
    """The variables on the pages are those of the help texts, except for variables that only tests and benchmarks read."""
    sources = [*ROOT.glob("crates/*/tests/**/*.rs"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("benches/*.py")]
    tests = {name for source in sources for name in re.findall(r'(?:var|environ\.get)\("(BARID_\w+)"', source.read_text())}
    known = {name for words in commands() for name in re.findall(r"\bBARID_[A-Z_]+\b", help_of(*words))}
    told = {name for page in DOCS for name in re.findall(r"\bBARID_[A-Z_]+\b", page.read_text())}
    assert len(known) > 5 and told - known - tests == set(), "nobody reads these"
    assert known - told == set(), "no page says what these are"


@pytest.fixture(scope="module")
def running():
    broker = Broker(f"""[cluster]\nname = "c"\nbroker = "b"\nlisten = "127.0.0.1:{free_port()}"\nsecret = "{'s' * 16}"\n[telemetry]\nendpoint = "http://127.0.0.1:{free_port()}"\n""")
    yield broker
    broker.end()


def test_metrics(running):
    page = set(re.findall(r"^\| `((?:barid|process)_\w+)` \|", (ROOT / "docs/operating/metrics.md").read_text(), re.MULTILINE))
    exposed = set(re.findall(r"^# TYPE (\w+) ", running.http("/metrics")[1], re.MULTILINE))
    assert len(page) > 20 and page == exposed
    used = {name for other in PAGES for name in re.findall(r"`?\b(barid_[a-z_]+)\b", other.read_text())}
    parts = {f"{name}{part}" for name in exposed for part in ("_count", "_sum")}
    used -= {name for name in used if not re.search(r"_(total|bytes|messages|seconds|keys|sessions|connections|refuses)$", name)}
    assert used <= exposed | parts


def test_paths_of_the_admin_api(running):
    """The paths that the page names exist, and the paths that the broker lists are on the page."""
    page = (ROOT / "docs/operating/admin-api.md").read_text()
    listed = set(re.findall(r"^(/\S+)$", running.http("/")[1], re.MULTILINE))
    told = set(re.findall(r"`(?:GET |PUT |PATCH |DELETE )?((?:/|…/)[^`? ]+)`", page))
    assert len(listed) > 10
    missing = [path for path in listed if path not in told and not any(path.endswith(other.lstrip("…")) for other in told if other[0] == "…")]
    assert not missing
    for path in (path for path in told if path[0] == "/" and path not in ("/v1", "/v1/backup")):
        # The parameter, which nothing has, keeps streams from being endless.
        status, body = running.http(re.sub(r"\{\w+\}", "nothing", path.replace("{tenant}", "default")) + "?no-such-parameter=1")
        assert status != 404 or "GET / lists all paths" not in body, f"{path}: {body}"
