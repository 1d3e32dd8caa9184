"""`barid state` against the broker: what it prints, how it ends, and what of a lock outlives what goes wrong."""

import base64
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from broker import BINARY, free_port, until
from running import ENVIRONMENT, hashed

# All bytes, and some again that text tools trip over.
BYTES = bytes(range(256)) + b"\r\n\0"


@pytest.fixture
def state(broker):
    """Runs `barid state` until it ends; what it prints are bytes."""

    def run(*arguments, status: int = 0, to=None, input: bytes | None = None, environment: dict | None = None) -> subprocess.CompletedProcess:
        done = subprocess.run(command(to or broker, *arguments), capture_output=True, timeout=20, input=input, env=ENVIRONMENT | (environment or {}))
        assert done.returncode == status, done
        return done

    return run


@pytest.fixture
def start(broker):
    """Starts `barid state`, in a session of its own, so that no terminal is in the way of signals."""
    started = []

    def run(*arguments, to=None, **options) -> subprocess.Popen:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command(to or broker, *arguments), stdout=pipe, stderr=pipe, text=True, start_new_session=True,
                                        env=ENVIRONMENT, **options))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def watch(start, broker):
    """Starts `barid state watch` for some keys, and waits until the broker knows."""
    watched = 0

    def run(keys: list[str], *options, **how) -> subprocess.Popen:
        nonlocal watched
        process, watched = start("watch", *keys, *options, **how), watched + len(keys)
        until(lambda: watchers(broker) == watched)
        return process

    return run


@pytest.fixture(autouse=True)
def _nobody_watches(broker):
    """Watchers of the test before may be gone, and the broker not know it yet. They would be taken for those that are to come."""
    until(lambda: watchers(broker) == 0)


@pytest.fixture
def linked():
    """Makes ways to a broker that can be cut."""
    made = []

    def link(broker) -> Link:
        made.append(Link(broker))
        return made[-1]

    yield link
    for one in made:
        one.close()


@pytest.fixture
def link(broker, linked):
    return linked(broker)


def command(broker, verb: str, *arguments) -> list[str]:
    """The options stand before the operands, of which those behind `--` are a command."""
    return [str(word) for word in (BINARY, "state", verb, "-h", "localhost", "-p", broker.port, *arguments)]


def ended(process: subprocess.Popen, status: int = 0, seconds: float = 20.0) -> tuple[str, str]:
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == status, (process.returncode, out, err)
    return out, err


def version(text: str | bytes) -> tuple[int, int]:
    if isinstance(text, bytes):
        text = text.decode()
    assert re.fullmatch(r"\d{15,}:\d{5,}:StateStore", text.strip()), text
    wall, counter, _ = text.split(":")
    return int(wall), int(counter)


# Keys and values


def test_a_value_comes_back_byte_by_byte(state, unique, tmp_path):
    key, file = unique(), tmp_path / "value"
    file.write_bytes(BYTES)
    for source, stdin in ((("-",), BYTES), (("--file", file), None)):
        first = version(state("set", key, *source, input=stdin).stdout)
        assert state("get", key).stdout == BYTES
        told = json.loads(state("get", key, "--json").stdout)
        assert version(told.pop("version")) == first
        assert told == {"key": key, "value_base64": base64.b64encode(BYTES).decode()}
    for value in ("", "ü", "-x", "a b\n"):
        state("set", key, "--", value)
        assert state("get", key).stdout == value.encode()
        assert json.loads(state("get", key, "--json").stdout)["value"] == value


def test_keys_of_any_bytes(state, unique):
    prefix = unique()
    key = prefix.encode() + BYTES
    for notation, written in (("--hex", key.hex()), ("--hex", key.hex().upper()), ("--base64", base64.b64encode(key).decode())):
        state("set", notation, written, "value")
        assert state("get", notation, written).stdout == b"value"
        state("del", notation, written)
        state("get", notation, written, status=1)
    state("set", "--hex", key.hex(), "value")
    assert state("scan", prefix + "*").stdout == key + b"\n"
    assert state("scan", "-0", prefix + "*").stdout == key + b"\0"
    assert state("scan", "--hex", prefix + "*").stdout.decode() == key.hex().upper() + "\n"
    assert list(json.loads(state("scan", "--json", prefix + "*").stdout)) == ["key_base64"]


def test_what_is_not_there(state, unique):
    key = unique()
    done = state("get", key, status=1)
    assert (done.stdout, done.stderr.decode()) == (b"", f"barid: there is no key `{key}`\n")
    assert state("get", key, "--json", status=1).stdout == b""
    assert f"there is no key `{key}`" in state("del", key, status=1).stderr.decode()
    assert json.loads(state("vdel", key, "x", "--json", status=1).stdout) == {"key": key, "applied": False}


def test_conditions(state, unique):
    key = unique()
    first = version(state("set", key, "one", "--if-absent").stdout)
    refused = state("set", key, "one", "--if-absent", status=1)
    assert (refused.stdout, refused.stderr.decode()) == (b"", f"barid: not set: there is a key `{key}`\n")
    second = version(state("set", key, "one", "--if-absent-or-equal").stdout)
    assert second > first
    refused = state("set", key, "two", "--if-absent-or-equal", "--json", status=1)
    told = json.loads(refused.stdout)
    assert (told["applied"], version(told["version"])) == (False, second)
    assert "with another value" in refused.stderr.decode()
    assert "has another value" in state("vdel", key, "two", status=1).stderr.decode()
    assert state("get", key).stdout == b"one"
    state("vdel", key, "one")
    state("get", key, status=1)


def test_a_time_to_live(state, unique):
    key = unique()
    state("set", key, "x", "--ttl", "3s")
    state("get", key)
    time.sleep(3.1)
    state("get", key, status=1)
    state("set", key, "x", "--ttl", "1h")
    assert state("get", key).stdout == b"x"


def test_fencing_tokens(state, unique):
    lock, key = unique(), unique()
    older = state("set", lock, "me").stdout.decode().strip()
    newer = state("set", lock, "me").stdout.decode().strip()
    state("set", key, "1", "--fencing", newer)
    for arguments, expected in (
        (("set", key, "2"), "give the version of the lock that you hold with --fencing"),
        (("del", key), "a fencing token is required"),
        (("vdel", key, "1"), "a fencing token is required"),
        (("set", key, "2", "--fencing", older), "another client has taken the lock since"),
        (("del", key, "--fencing", older), "is a lower version"),
        (("set", lock, "2", "--fencing", "999999999999999:0:x"), "too far in the future"),
    ):
        done = state(*arguments, status=3)
        assert expected in done.stderr.decode() and done.stdout == b"", done
    state("vdel", key, "1", "--fencing", newer)


def test_many_pages(state, unique, broker):
    """As many bytes of keys as do not stand on one page."""
    prefix = unique()
    keys = {f"{prefix}/{n:02}{'x' * 30_000}" for n in range(20)}
    for key in keys:
        state("set", key, "")
    listed = state("scan", prefix + "/*").stdout.decode().splitlines()
    assert len(listed) == len(keys) and set(listed) == keys
    assert [json.loads(line)["key"] for line in state("scan", prefix + "/*", "--json").stdout.splitlines()] == listed
    assert {key[len(prefix):][:3] for key in state("scan", prefix + "/1[0-3]*").stdout.decode().split()} == {"/10", "/11", "/12", "/13"}
    assert state("scan", prefix + "?").stdout == b""
    shell = f"{BINARY} state scan -p {broker.port} '{prefix}/*' | head -c 10"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=10, env=ENVIRONMENT)
    assert (done.stdout, done.stderr) == (prefix.encode()[:10], b"")
    assert "at most 1024 bytes" in state("scan", "*" * 1025, status=1).stderr.decode()


def test_tenants_share_no_keys(state, unique):
    key = unique()
    state("set", key, "acme's", "-u", "acme/me")
    state("get", key, "-u", "globex/me", status=1)
    assert state("scan", key, "-u", "globex/me").stdout == b""
    assert state("get", key, "-u", "acme/me").stdout == b"acme's"


# What goes wrong


def test_nobody_there(state):
    class Nowhere:
        port = free_port()

    for verb in (("get", "k"), ("set", "k", "v"), ("del", "k"), ("scan",), ("watch", "k"), ("lock", "k", "--", "true")):
        message = state(*verb, to=Nowhere, status=1).stderr.decode()
        assert f"cannot connect to localhost:{Nowhere.port}" in message
        assert "is a broker running there? `barid serve` starts one" in message


def test_a_client_identifier_that_makes_no_topic(state):
    assert "choose another with -i" in state("get", "k", "-i", "a/#", status=1).stderr.decode()


def test_what_a_user_may_do(state, brokers_with):
    broker = brokers_with(f"""
        {hashed("secret", "reader")}
        state = [{{ access = "read", keys = ["open/*"] }}]
        {hashed("secret", "mute").replace('publish = ["#"]', 'publish = ["sensors/#"]')}
        {hashed("secret", "deaf").replace('subscribe = ["#"]', 'subscribe = ["sensors/#"]')}
        {hashed("secret", "writer")}
    """)
    password = {"BARID_PASSWORD": "secret"}

    def as_user(user: str, *arguments, status: int) -> str:
        return state(arguments[0], "-u", user, *arguments[1:], status=status, to=broker, environment=password).stderr.decode()

    as_user("writer", "set", "open/a", "x", status=0)
    as_user("writer", "set", "closed", "x", status=0)
    as_user("reader", "get", "open/a", status=0)
    message = as_user("reader", "get", "closed", status=3)
    assert "GET `closed` was refused: not authorized" in message
    assert 'state = [{ access = "read", type = "string", keys = ["closed"] }]' in message
    message = as_user("reader", "set", "open/a", "y", status=3)
    assert 'state = [{ access = "write", type = "string", keys = ["open/a"] }]' in message
    assert "KEYNOTIFY `closed` was refused" in as_user("reader", "watch", "closed", status=3)
    assert "SET `open/a` was refused" in as_user("reader", "lock", "open/a", "--", "true", status=3)
    assert "command/invoke was refused: Not authorized" in as_user("mute", "get", "open/a", status=3)
    assert "the subscription to clients/" in as_user("deaf", "get", "open/a", status=3)
    assert "check -u and -P" in as_user("nobody", "get", "open/a", status=3)


def test_a_value_that_is_too_large(state, brokers_with, unique):
    broker = brokers_with("[limits]\nmax_state_value = 1000\nmax_packet_size = 5000\n")
    state("set", "k", "-", to=broker, input=b"x" * 1000)
    assert "max_state_keys" in state("set", "k", "-", to=broker, input=b"x" * 1001, status=3).stderr.decode()
    assert "larger than the broker accepts" in state("set", "k", "-", to=broker, input=b"x" * 6000, status=3).stderr.decode()


# Watching


def test_changes_are_told_as_they_come(state, watch, unique):
    one, two = unique(), unique()
    watcher = watch([one, two], "--json", "--count", 5, "--timeout", "60s")
    plain = watch([one], "-C", 4, "-W", "60s")
    state("set", one, "a b")
    state("set", two, "-", input=b"\xff")
    state("set", one, "", "--ttl", "100ms")
    until(lambda: not exists(state, one))
    state("set", one, "x", "--if-absent")
    state("set", one, "x", "--if-absent", status=1)
    told = [json.loads(line) for line in ended(watcher)[0].splitlines()]
    versions = [version(change.pop("version")) for change in told]
    assert told == [
        {"key": one, "op": "SET", "value": "a b"},
        {"key": two, "op": "SET", "value_base64": "/w=="},
        {"key": one, "op": "SET", "value": ""},
        {"key": one, "op": "DELETE"},
        {"key": one, "op": "SET", "value": "x"},
    ]
    assert versions == sorted(versions)
    assert ended(plain)[0] == f"{one} SET a b\n{one} SET \n{one} DELETE\n{one} SET x\n"


def test_a_watcher_whose_time_is_up(start, unique):
    assert ended(start("watch", unique(), "-W", "200ms"), status=27)[0] == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watcher_that_is_interrupted(watch, unique, number):
    watcher = watch([unique()])
    watcher.send_signal(number)
    ended(watcher)


def test_a_watcher_whose_reader_has_gone(state, broker, unique):
    key = unique()
    script = f"{BINARY} state watch -p {broker.port} {key} | head -n 1"
    watching = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    until(lambda: watchers(broker) == 1)
    # It learns of that when it has something to write, which it may do once before the reader goes.
    until(lambda: state("set", key, "x") and watching.poll() is not None)
    assert watching.communicate()[0] == f"{key} SET x\n"


def test_a_watcher_survives_its_connection(state, watch, broker, link, unique):
    key = unique()
    watcher = watch([key], "--timeout", "60s", to=link)
    state("set", key, "before")
    assert watcher.stdout.readline() == f"{key} SET before\n"
    link.cut()
    until(lambda: link.connections == 2 and watchers(broker) == 1)
    state("set", key, "after")
    assert watcher.stdout.readline() == f"{key} SET after\n"
    watcher.send_signal(signal.SIGINT)
    _, err = ended(watcher)
    assert "connecting again in 500 ms; changes made meanwhile are not reported" in err


def test_a_watcher_that_is_not_to_connect_again(watch, link, unique):
    watcher = watch([unique()], "--no-reconnect", to=link)
    link.cut()
    assert "the connection to the broker is lost" in ended(watcher, status=1)[1]


# Locks


def test_the_command_of_a_lock(state, start, unique):
    name = unique()
    script = 'echo "$BARID_FENCING_TOKEN" "$TOKEN"; cat; exit 7'
    done = state("lock", name, "--fencing", "TOKEN", "--", "sh", "-c", script, input=BYTES, status=7)
    tokens, rest = done.stdout.split(b"\n", 1)
    first, second = tokens.split()
    assert version(first) == version(second)
    assert rest == BYTES and done.stderr == b""
    state("get", name, status=1)
    assert state("lock", name, "--", "sh", "-c", "kill -9 $$", status=128 + 9).stderr == b""
    for command_, status in ((("/no/such/program",), 127), (("/etc",), 126)):
        assert command_[0] in state("lock", name, "--", *command_, status=status).stderr.decode()
        state("get", name, status=1)


def test_the_fencing_token_protects(state, unique, broker):
    name, door = unique(), unique()
    inner = f'{BINARY} state set -p {broker.port} {door} "$1" --fencing $BARID_FENCING_TOKEN'
    stale = state("lock", name, "--", "sh", "-c", "echo $BARID_FENCING_TOKEN").stdout.decode().strip()
    state("lock", name, "--", "sh", "-c", inner, "sh", "open")
    state("set", door, "shut", "--fencing", stale, status=3)
    state("lock", name, "--", "sh", "-c", inner, "sh", "ajar")
    assert state("get", door).stdout == b"ajar"


def test_one_at_a_time(start, unique, tmp_path):
    """Those who wait are told of the release: they do not wait for the end of a lease."""
    name, journal = unique(), tmp_path / "journal"
    script = f'echo "in $BARID_FENCING_TOKEN" >> {journal}; sleep 0.05; echo "out $BARID_FENCING_TOKEN" >> {journal}'
    began = time.monotonic()
    for process in [start("lock", name, "--lease", "60s", "--", "sh", "-c", script) for _ in range(8)]:
        ended(process)
    assert time.monotonic() - began < 20
    lines = [line.split() for line in journal.read_text().splitlines()]
    assert [what for what, _ in lines] == ["in", "out"] * 8
    tokens = [version(token) for _, token in lines]
    assert tokens[::2] == tokens[1::2] == sorted(set(tokens))


def test_a_lock_that_somebody_has(state, start, unique):
    name = unique()
    holder = held(start, state, name, "--holder", "first", "--lease", "3s")
    began = time.monotonic()
    assert f"barid: `first` has the lock `{name}`\n" == state("lock", name, "--no-wait", "--", "true", status=1).stderr.decode()
    assert time.monotonic() - began < 2.5
    refused = state("lock", name, "--timeout", "4s", "--", "true", status=27)
    assert 4 <= time.monotonic() - began < 10, "the lease was renewed meanwhile"
    assert "`first` has the lock" in refused.stderr.decode() and "not released in time" in refused.stderr.decode()
    assert "somebody" not in state("lock", name, "--holder", "first", "--no-wait", "--", "true", status=1).stderr.decode()
    holder.send_signal(signal.SIGTERM)
    ended(holder, status=128 + 15)
    state("lock", name, "--no-wait", "--", "true")


def test_a_holder_that_vanishes(state, start, unique):
    name = unique()
    holder = held(start, state, name, "--lease", "2s", "--", "sleep", "6")
    waiting = start("lock", name, "--lease", "60s", "--", "true")
    time.sleep(0.5)
    os.killpg(holder.pid, signal.SIGKILL)
    began = time.monotonic()
    ended(waiting)
    assert time.monotonic() - began < 6


def test_a_lock_that_is_taken_away(state, start, unique, tmp_path):
    """Also what the command has started is ended, and the lock of whoever has it now is left alone."""
    name, journal = unique(), tmp_path / "journal"
    script = f"trap 'echo ending >> {journal}; exit 5' TERM; echo ready; sleep 30 & wait"
    losing = start("lock", name, "--", "sh", "-c", script)
    assert losing.stdout.readline() == "ready\n"
    state("del", name)
    state("set", name, "another")
    out, err = ended(losing, status=4)
    assert f"the lock `{name}` is lost: its key was deleted, or the lease expired; ending the command" in err
    assert journal.read_text() == "ending\n"
    assert state("get", name).stdout == b"another"
    state("del", name)
    losing = held(start, state, name, "--", "sh", "-c", "sleep 30")
    state("set", name, "another")
    assert "`another` has it" in ended(losing, status=4)[1]


def test_a_command_that_does_not_want_to_end(state, start, unique, tmp_path):
    name, alive = unique(), tmp_path / "alive"
    script = f"trap '' TERM; echo ready; while :; do echo >> {alive}; sleep 0.05; done"
    losing = start("lock", name, "--grace", "500ms", "--", "sh", "-c", script)
    assert losing.stdout.readline() == "ready\n"
    began = time.monotonic()
    state("del", name)
    ended(losing, status=4)
    assert 0.5 <= time.monotonic() - began < 8
    size = alive.stat().st_size
    time.sleep(0.3)
    assert alive.stat().st_size == size


def test_a_lock_outlives_its_connection(state, start, link, unique):
    name = unique()
    holder = start("lock", name, "--lease", "4s", "--", "cat", to=link, stdin=subprocess.PIPE)  # until the end of its input
    until(lambda: exists(state, name))
    before = state("get", name).stdout
    for _ in range(2):
        time.sleep(0.7)
        link.cut()
    time.sleep(3)
    assert state("get", name).stdout == before, "the holder is the same"
    assert "connection to the broker is lost" in ended(holder)[1]
    state("get", name, status=1)


def test_a_lock_outlives_the_broker(state, start, broker_with, linked, unique):
    broker, name = broker_with(""), unique()
    link = linked(broker)
    holder = start("lock", name, "--lease", "6s", "--", "sleep", "7", to=link)
    until(lambda: exists(state, name, to=broker))
    waiting = start("lock", name, "--", "echo", "second", to=link)
    time.sleep(0.5)
    broker.kill9()
    link.cut()
    broker.start()
    until(lambda: exists(state, name, to=broker))
    assert waiting.poll() is None and holder.poll() is None
    ended(holder)
    assert ended(waiting)[0] == "second\n"


def test_a_broker_out_of_reach_loses_the_lock(state, start, link, unique):
    """In time, although no call to the broker comes back."""
    name = unique()
    holder = start("lock", name, "--lease", "2s", "--", "sleep", "30", to=link)
    until(lambda: exists(state, name))
    began = time.monotonic()
    link.silence()
    out, err = ended(holder, status=4)
    assert f"the lock `{name}` is lost: it could not be renewed in time" in err
    assert 1 < time.monotonic() - began < 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_for_the_command(state, start, broker, unique, number):
    name = unique()
    script = f"trap 'echo caught; exit 9' {number.name[3:]}; echo ready; read line"
    holder = start("lock", name, "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "ready\n"
    holder.send_signal(number)
    # Its standard input stays open until then.
    assert holder.wait(15) == 9
    assert ended(holder, status=9) == ("caught\n", "")
    state("get", name, status=1)
    state("set", name, "another")
    until(lambda: watchers(broker) == 0)
    waiting = start("lock", name, "--", "true")
    until(lambda: watchers(broker) == 1)
    waiting.send_signal(number)
    assert ended(waiting, status=128 + number) == ("", "")
    assert state("get", name).stdout == b"another"


def test_on_a_terminal(state, broker, unique):
    """The command reads from it, and Ctrl-C reaches it once."""
    name = unique()
    script = "trap 'echo caught' INT; read line; echo got $line; sleep 1; read line; exit 9"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(BINARY, command(broker, "lock", name, "--", "sh", "-c", script), ENVIRONMENT)
    try:
        until(lambda: exists(state, name))
        os.write(terminal, b"this\n")
        shown = b""
        while b"got this" not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        time.sleep(1.2)
        os.write(terminal, b"that\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
        pid = 0
        shown += os.read(terminal, 1000)
        assert shown.count(b"caught") == 1, shown
        state("get", name, status=1)
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
        os.close(terminal)


def exists(state, key: str, **options) -> bool:
    return key in state("scan", key, **options).stdout.decode().split()


def watchers(broker) -> float:
    """How many keys are watched. Who waits for a lock watches its key."""
    return broker.metric("^barid_state_watchers")


def held(start, state, name: str, *options, **run) -> subprocess.Popen:
    """A lock that is held until it is lost or released."""
    if "--" not in options:
        options = (*options, "--", "sleep", "60")
    holder = start("lock", name, *options, **run)
    until(lambda: exists(state, name))
    return holder


class Link:
    """A way to the broker that can be cut, or fall silent."""

    def __init__(self, broker):
        self._broker, self._silent = broker, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker.address)
            except OSError:
                if self._listener.fileno() < 0:
                    return
                client.close()
                continue
            self._ends += [client, broker]
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self._silent.is_set():
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    @property
    def connections(self) -> int:
        """How many have been made."""
        return len(self._ends) // 2

    def cut(self) -> None:
        """Ends all connections; new ones may be made."""
        for end in self._ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def silence(self) -> None:
        """Nothing goes through any more, and nobody is told so."""
        self._silent.set()

    def close(self) -> None:
        self._listener.close()
        self.cut()
