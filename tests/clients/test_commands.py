"""The commands as a user meets them: one rule for -h and for times, completions, manual pages, plurals, hints, variables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from broker import BINARY, until
from running import ENVIRONMENT, barid, hashed


@pytest.fixture
def running(broker_with):
    """A broker that nobody else uses."""
    return broker_with("")


@pytest.fixture
def tool(running):
    """Runs a command that asks the admin address, and answers what it prints."""

    def run(*arguments, status: int = 0) -> str:
        done = barid(*arguments, "--admin", f"127.0.0.1:{running.admin_port}")
        assert done.returncode == status, done
        return done.stdout + done.stderr

    return run


def commands(*words: str) -> list[tuple[str, ...]]:
    """All commands that have none below them, as the help texts list them."""
    text = barid(*words, "--help").stdout
    below = re.search(r"^Commands:\n(.*?)^$", text, re.MULTILINE | re.DOTALL)
    if not below:
        return [words]
    names = re.findall(r"^  ([a-z][a-z-]*) ", below[1], re.MULTILINE)
    return [found for name in names if name != "help" for found in commands(*words, name)]


COMMANDS = commands()


# ------------------------------------------------------------------------------------------------------ help

def test_there_are_many_commands():
    assert len(COMMANDS) > 40 and ("pub",) in COMMANDS and ("topic", "subscription", "rule", "create") in COMMANDS


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help(words):
    """`--help` is help everywhere. `-h` takes the host where a command has one, and is help elsewhere."""
    done = barid(*words, "--help")
    assert done.returncode == 0 and "Usage: barid" in done.stdout
    has_host = "--host <HOST>" in done.stdout
    short = barid(*words, "-h")
    if has_host:
        assert re.search(r"-h, --host <HOST>", done.stdout)
        assert short.returncode == 2 and "--help prints help" in short.stderr
    else:
        assert short.returncode == 0 and short.stdout.startswith(done.stdout.splitlines()[0])


@pytest.mark.parametrize("words", [("pub", "-t", "a", "-m", "x"), ("sub", "-t", "a", "-E"), ("bench", "connections", "-n", "1"),
                                   ("bench", "state", "-n", "1", "--keys", "1", "-d", "100ms")], ids=lambda words: " ".join(words[:2]))
def test_short_h_is_the_host(running, words):
    assert barid(*words, "-h", "127.0.0.1", "-p", running.port).returncode == 0
    refused = barid(*words, "-h", "127.0.0.2", "-p", running.port)
    assert refused.returncode == 1 and "127.0.0.2" in refused.stderr


# ------------------------------------------------------------------------------------------------------ times

@pytest.mark.parametrize("time", ["1", "1s", "1000ms", "1.0"])
def test_times_are_seconds_or_have_a_unit(running, time):
    where = ("-h", "127.0.0.1", "-p", running.port)
    assert barid("sub", "-t", "a", "-W", time, *where).returncode == 27
    assert barid("sub", "-t", "a", "--timeout", time, *where).returncode == 27
    assert barid("state", "watch", "k", "-W", time, *where).returncode == 27
    assert barid("state", "set", "k", "v", "--ttl", time, *where).returncode == 0
    assert barid("state", "lock", "l", "--lease", time, "--grace", time, *where, "--", "true").returncode == 0
    assert barid("pub", "-t", "a", "-m", "x", "--connect-timeout", time, "-k", time, "-x", time, *where).returncode == 0
    assert barid("pub", "-t", "a", "-m", "x", "--repeat", "2", "--repeat-delay", time, *where).returncode == 0
    assert barid("bench", "pairs", "-n", "1", "--rate", "10", "-d", time, *where).returncode == 0


def test_times_of_properties(tool):
    assert "PT30S" in tool("queue", "create", "q", "--lock-duration", "30")
    assert "PT30S" in tool("queue", "update", "q", "--lock-duration", "30s")
    assert "PT30S" in tool("queue", "update", "q", "--lock-duration", "PT30S")


def test_no_time(running):
    done = barid("sub", "-t", "a", "-W", "soon")
    assert done.returncode == 2 and "500ms" in done.stderr


# ------------------------------------------------------------------------------------------------------ completions, manual pages

@pytest.mark.parametrize("shell, check", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_completions(tmp_path, shell, check):
    done = barid("completions", shell)
    assert done.returncode == 0
    for word in ("doctor", "subscription", "--retained-only", "--quarantine"):
        assert word.lstrip("-") in done.stdout, word
    script = tmp_path / "script"
    script.write_text(done.stdout)
    if shutil.which(check[0]):
        subprocess.run([*check, script], check=True, timeout=20)


def test_what_bash_completes():
    """The script is loaded and asked as bash asks it."""
    ask = 'source <("$1" completions bash); COMP_WORDS=(barid queue pe); COMP_CWORD=2; _barid barid pe queue; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", ask, "bash", BINARY], capture_output=True, text=True, timeout=20, env=ENVIRONMENT)
    assert done.stdout.split() == ["peek"], done


def test_manual_pages(tmp_path):
    """One for each command, with its options and its examples."""
    done = barid("man", tmp_path / "man")
    assert done.returncode == 0
    pages = {page.name for page in (tmp_path / "man").iterdir()}
    assert pages >= {"barid.1"} | {f"barid-{'-'.join(words)}.1" for words in COMMANDS}
    assert f"{len(pages)} pages" in done.stdout
    page = (tmp_path / "man" / "barid-pub.1").read_text()
    assert page.lstrip().startswith((".ie", ".TH")) and r"barid pub \-t sensors/kitchen \-m 21.5" in page
    if shutil.which("groff"):
        for page in (tmp_path / "man").iterdir():
            said = subprocess.run(["groff", "-man", "-Tutf8", "-K", "utf8", page], capture_output=True, text=True, timeout=20)
            assert said.returncode == 0 and not said.stderr, (page, said.stderr)


# ------------------------------------------------------------------------------------------------------ what is said

def test_one_thing_is_not_many(running, tool, paho, tmp_path):
    """`1 messages` is never said, wherever there is one of something."""
    away = paho("sleeper", to=running, clean=False, SessionExpiryInterval=3600)
    away.subscribe("a", 1)
    away.leave()
    paho(to=running).publish("a", b"x", 1)
    tool("queue", "create", "q")
    tool("topic", "create", "t")
    tool("topic", "subscription", "create", "t", "s")
    tool("binding", "set", "b", "--filter", "b", "--queue", "q")
    paho(to=running).publish("b", b"x", 1)
    until(lambda: "1" in tool("queue", "list"))
    said = [tool("session", "show", "sleeper"), tool("why", "--client", "sleeper"), tool("why", "--client", "nobody"),
            tool("session", "list"), tool("queue", "delete", "q", status=1), tool("queue", "purge", "q", "--yes"),
            tool("topic", "delete", "t", status=1), tool("topic", "delete", "t", "--yes"), tool("backup", tmp_path),
            tool("session", "drop", "sleeper"), tool("queue", "delete", "q", "--yes")]
    running.stop()
    said.append(barid("doctor", "--data-dir", running.directory / "data").stdout)
    assert "1 message" in said[0] and "1 subscription " in said[9]
    for text in said:
        assert not re.search(r"\b1 (?!B\b)\w+s\b", text.replace("1 is ", "")), text


def test_a_refused_publish_does_not_hint_at_the_password(broker_with):
    running = broker_with(f'[[users]]\nname = "ada"\npassword = "{hashed("secret")}"\npublish = []\nsubscribe = []\n')
    where = ("-h", "127.0.0.1", "-p", running.port, "-u", "ada", "-t", "a")
    secret = {"BARID_PASSWORD": "secret"}
    for done in (barid("pub", *where, "-m", "x", "-q", "1", environment=secret), barid("sub", *where, "-W", "5", environment=secret)):
        assert done.returncode == 3 and "[[users]]" in done.stderr and "-P" not in done.stderr, done.stderr
    guessed = barid("pub", *where, "-m", "x", environment={"BARID_PASSWORD": "a guess"})
    assert guessed.returncode == 3 and "-P" in guessed.stderr


def test_a_binding_that_carries_nothing_is_warned_of(tool):
    said = tool("binding", "set", "b", "--filter", "a/#", "--queue", "nowhere")
    assert "warning" in said and "`barid queue create nowhere`" in said
    assert "warning" in tool("binding", "show", "b")
    tool("queue", "create", "nowhere")
    assert "warning" not in tool("binding", "set", "b", "--filter", "a/#", "--queue", "nowhere")
    assert "warning" in tool("binding", "set", "c", "--publish", "a/{subject}", "--from-queue", "elsewhere")


@pytest.mark.parametrize("words, list_", [(("queue", "show", "x"), "barid queue list"), (("topic", "show", "x"), "barid topic list"),
                                          (("session", "show", "x"), "barid session list"), (("binding", "show", "x"), "barid binding list")])
def test_what_is_not_there_says_where_to_look(tool, words, list_):
    assert list_ in tool(*words, status=1)


def test_the_wrong_port_is_said(running):
    for port in (running.ws_port, running.admin_port, running.amqp_port):
        done = barid("pub", "-h", "127.0.0.1", "-p", port, "-t", "a", "-m", "x")
        assert done.returncode == 1 and "is it a port for" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [("bench", "connections", "-n", "1"), ("check-config", "{config}"), ("completions", "bash")],
                         ids=lambda words: words[0])
def test_a_reader_that_goes_is_no_error(running, words):
    """As `| head -0` does."""
    words = [word.format(config=running.directory / "barid.toml") for word in words]
    if words[0] == "bench":
        words += ["-p", str(running.port)]
    done = subprocess.run(["bash", "-c", 'set -o pipefail; "$@" | true', "bash", BINARY, *words], capture_output=True, text=True,
                          timeout=30, env=ENVIRONMENT)
    assert "panicked" not in done.stderr and done.returncode == 0, done.stderr


def test_restore_for_scripts(running, tool, tmp_path):
    tool("backup", tmp_path / "backups")
    done = barid("restore", tmp_path / "backups", "--data-dir", tmp_path / "restored", "--json")
    answer = json.loads(done.stdout)
    assert answer["data_dir"] == str(tmp_path / "restored") and answer["records"] >= 0


# ------------------------------------------------------------------------------------------------------ variables

def test_the_tools_and_the_broker_have_variables_of_their_own(running, tmp_path):
    """A variable of `serve` in the environment of an operator does not lead a tool to another broker or directory."""
    mine = {"BARID_TOOLS_ADMIN": f"127.0.0.1:{running.admin_port}", "BARID_ADMIN": "127.0.0.1:1"}
    assert barid("session", "list", environment=mine).returncode == 0
    lost = barid("session", "list", environment={"BARID_TOOLS_ADMIN": "127.0.0.1:1", "BARID_ADMIN": "127.0.0.1:2"})
    assert lost.returncode == 1 and "127.0.0.1:1:" in lost.stderr and "BARID_TOOLS_ADMIN" in lost.stderr
    running.stop()
    data = running.directory / "data"
    assert barid("doctor", environment={"BARID_TOOLS_DATA_DIR": str(data), "BARID_DATA_DIR": str(tmp_path)}).returncode == 0
    assert barid("doctor", environment={"BARID_DATA_DIR": str(data)}, cwd=tmp_path).returncode == 2


def test_the_broker_does_not_take_the_variables_of_the_tools(tmp_path):
    """Otherwise it would try to listen where the tools find another one."""
    addresses = {f"BARID_{name}": "127.0.0.1:0" for name in ("MQTT", "ADMIN")} | {"BARID_WS": "off", "BARID_AMQP": "off"}
    process = subprocess.Popen([BINARY, "serve", "--data-dir", tmp_path / "data"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=ENVIRONMENT | addresses | {"BARID_TOOLS_ADMIN": "192.0.2.1:1", "BARID_TOOLS_DATA_DIR": "/nowhere"})
    lines = [process.stdout.readline()]
    while lines[-1] and not lines[-1].startswith("ready"):
        lines.append(process.stdout.readline())
    process.terminate()
    process.communicate(timeout=20)
    assert lines[-1].startswith("ready") and not any("192.0.2.1" in line for line in lines), lines
