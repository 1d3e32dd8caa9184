"""docs/state-store.md: its bytes are those of the broker, and its programs do what it says.

A comment before a block says what is done with it:

    <!-- tested: NAME.py -->             Python: written to a file; no Python block goes without
    <!-- tested -->                      commands: run beside those files, `barid` and `python` find the broker
    <!-- tested: prints -->              all that the commands before it print
    <!-- tested: exchange -->            requests, responses and notifications of one client, in the order of the page
    <!-- tested: users -->               a configuration, and
    <!-- tested: exchange of users -->   what a client of its user is answered
    <!-- tested: durability -->         a configuration under which `cache:` keys are in memory only
    <!-- tested: topic -->               where client-id1 is told of SOMEKEY
"""

import re
import socket
import time

import pytest

import wire
from broker import BINARY
from guide import Page, run
from running import hashed

PAGE = Page("state-store.md")

GUID = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8"
INVOKE = f"statestore/v1/{GUID}/command/invoke"
CLIENT = "client-id1"
ANSWERS = f"clients/{CLIENT}/services/{INVOKE}/response"
NOTICES = f"clients/statestore/v1/{GUID}/{CLIENT.encode().hex().upper()}/command/notify/"


def array(*words: bytes | str) -> bytes:
    strings = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(string), string) for string in strings)


def clock(ahead_ms: int = 0) -> str:
    return f"{time.time_ns() // 1_000_000 + ahead_ms:015}:00000:{CLIENT}"


def parsed(version: str) -> tuple[int, int, str]:
    assert re.fullmatch(r"\d{15,}:\d{5,}:StateStore", version), version
    wall, counter, node = version.split(":")
    return int(wall), int(counter), node


class Requester:
    """A client of the store, by the byte."""

    def __init__(self, connection: wire.Client):
        self.connection, self.requests, self.versions = connection, 0, {}
        self.arrived: dict[str, list[wire.Packet]] = {}
        assert connection.subscribe((ANSWERS, 1), (NOTICES + "+", 1)).reasons == [1, 1]

    def ask(self, payload: bytes, timestamp: str | None = None, token: str | None = None, more=()) -> None:
        """Sends a request, with `more` user properties, and waits for its PUBACK."""
        envelope = self.envelope(timestamp, token)
        envelope["user_property"] += more
        acknowledged = self.connection.publish(INVOKE, payload, 1, properties=envelope)
        assert acknowledged.reason == 0, acknowledged

    def envelope(self, timestamp: str | None, token: str | None) -> dict:
        self.requests += 1
        user = [(name, text) for name, text in (("__ts", timestamp), ("__ft", token)) if text is not None]
        return {"response_topic": ANSWERS, "correlation_data": b"request %d" % self.requests, "user_property": user}

    def response(self) -> tuple[bytes, str | None]:
        """Payload and version of the response to the last request, whose envelope is as the page says."""
        found = self.next(ANSWERS)
        assert found.properties["correlation_data"] == b"request %d" % self.requests
        user = dict(found.properties["user_property"])
        assert len(user) == len(found.properties["user_property"])
        assert (user.pop("__stat"), user.pop("__protVer")) == ("200", "1.0")
        version = user.pop("__ts", None)
        assert not user
        return found.payload, version

    def notification(self) -> tuple[bytes, str]:
        found = self.next(NOTICES)
        [(name, version)] = found.properties["user_property"]
        assert name == "__ts"
        return found.payload, version

    def next(self, kind: str) -> wire.Packet:
        """The next message that arrives at ANSWERS or at NOTICES."""
        while not self.arrived.get(kind):
            found = self.connection.receive()
            assert (found.qos, found.retain) == (1, False)
            where = ANSWERS if found.topic == ANSWERS else NOTICES
            assert found.topic.startswith(where)
            self.arrived.setdefault(where, []).append(found)
        return self.arrived[kind].pop(0)

    def play(self, exchange: str) -> None:
        """Does what a block says, line by line."""
        for line in exchange.splitlines():
            text, *properties = re.split(r" {2,}", line)
            mark, _, text = text.partition(" ")
            payload = text.encode().decode("unicode_escape").encode("latin-1")
            said = dict(one.split(": ") for one in properties)
            try:
                if mark == "#":
                    time.sleep(int(text.removesuffix(" ms later")) / 1000)
                elif mark == ">":
                    self.ask(payload, self.stamp(said.get("__ts", "in 0 s")), self.stamp(said.get("__ft", "none")))
                else:
                    found, version = self.response() if mark == "<" else self.notification()
                    assert mark in "<!" and found == payload
                    self.is_version(said.get("__ts"), version)
            except (AssertionError, TimeoutError, wire.Closed) as wrong:
                raise AssertionError(f"{line}\n{wrong!r}") from wrong
        self.connection.ping()
        self.connection.expect_nothing(0.05)
        assert not any(self.arrived.values()), f"more than the page says, after:\n{exchange}"

    def stamp(self, said: str) -> str | None:
        if ahead := re.fullmatch(r"in (\d+) s", said):
            return clock(int(ahead[1]) * 1000)
        return None if said == "none" else self.versions.get(said, said)

    def is_version(self, name: str | None, version: str | None) -> None:
        """The same name always means the same version, and a higher one a later one."""
        if name is None or version is None:
            assert name is version, f"__ts is {version}, not {name}"
            return
        assert self.versions.setdefault(name, version) == version, f"{name} is {self.versions}, not {version}"
        named = sorted(self.versions, key=lambda name: int(name.removeprefix("v")))
        assert sorted(self.versions, key=lambda name: parsed(self.versions[name])) == named, self.versions


@pytest.fixture
def requester(connect, unique) -> Requester:
    """Alone in a tenant."""
    return Requester(connect(client_id=CLIENT, tenant=unique()))


def test_no_program_of_the_page_goes_untested():
    for language in ("python", "sh", "toml"):
        fences = len(re.findall(rf"^ *```{language}$", PAGE.text, re.MULTILINE))
        marked = sum(kind == language for _, kind, _ in PAGE.blocks)
        assert marked == fences > 0, language


def test_the_exchanges(requester):
    for exchange in PAGE.marked("exchange"):
        requester.play(exchange)


def test_the_exchange_with_users(broker_with, connect):
    [config], [exchange] = PAGE.marked("users"), PAGE.marked("exchange of users")
    running = broker_with(config.replace("$argon2id$…", hashed("secret")))
    client = connect(client_id=CLIENT, to=running, username="acme/worker", password=b"secret")
    Requester(client).play(exchange)


def test_every_error_has_an_example():
    table = PAGE.text.partition("\n## Errors\n")[2].partition("\n## ")[0]
    texts = set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    assert len(texts) == 12
    shown = "".join(PAGE.marked("exchange") + PAGE.marked("exchange of users"))
    assert texts == set(re.findall(r"^< -ERR (.+?)\\r\\n$", shown, re.MULTILINE))


def test_the_topic_of_a_notification(requester):
    [topic] = PAGE.marked("topic")
    requester.ask(array("KEYNOTIFY", "SOMEKEY"))
    requester.ask(array("SET", "SOMEKEY", "1"), clock())
    assert requester.next(NOTICES).topic == topic.strip()


def test_the_table_of_versions(requester):
    """Its rows in which the broker's clock does not decide: `now` of the table is the present."""
    table = PAGE.text.partition("| now | last version |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| [\d:]+ \| (\d+):(\d+):c \| (?:(\d+):(\d+):StateStore|none: refused) \|$", table, re.MULTILINE)
    assert len(rows) == 5
    present = time.time_ns() // 1_000_000
    for now, sent, counter, wall, expected in rows:
        # The last row is refused a second later as well, when the present has moved on.
        ahead = int(sent) - int(now) + (0 if wall else 2_000)
        requester.ask(array("SET", "a", "1"), f"{present + ahead}:{counter}:c")
        payload, version = requester.response()
        if not wall:
            assert payload.startswith(b"-ERR the request timestamp") and version is None
        elif int(wall) > int(now):
            assert parsed(version) == (present + int(wall) - int(now), int(expected), "StateStore")
        else:
            assert abs(parsed(version)[0] - present) < 3_000


def test_what_the_protocol_leaves_open(requester):
    ok, wrong = "+OK", "-ERR syntax error"
    for words, answer in [
        (["SET", "a", "1", "PX", "60000", "NX"], ok),
        (["SET", "a", "2", "NX", "PX", "60000"], ":-1"),
        (["SET", "a", "1", "NX", "NX"], wrong),
        (["SET", "a", "1", "NX", "NEX"], wrong),
        (["SET", "a", "1", "NEX", "1"], wrong),
        *((["SET", "a", "1", "PX", number], wrong) for number in ("0", "-1", "", "1.5", str(2 ** 64))),
        (["KEYNOTIFY", "a"], ok),
        (["KEYNOTIFY", "a"], ok),
        (["KEYNOTIFY", "b", "GET"], ok),
        (["KEYNOTIFY", "c", "PUT"], wrong),
        (["KEYNOTIFY", "b", "STOP"], ok),
        (["SET", "a", "1", "PX", "1000"], ok),
        (["SET", "a", "1"], ok),
    ]:
        requester.ask(array(*words), clock())
        assert requester.response()[0] == f"{answer}\r\n".encode(), words
    time.sleep(1.2)
    for payload, timestamp, token, answer in [
        (array("GET", "a"), "yesterday", None, b"$1\r\n1\r\n"),
        (array("GET", "a") + b"*", None, None, b"-ERR syntax error\r\n"),
        (array("DEL", "a"), None, "1:0:", b"-ERR malformed timestamp\r\n"),
        (array("DEL", "a"), None, "1:0:a:b", b"-ERR malformed timestamp\r\n"),
        (array("DEL", "a"), clock(3_600_000), "1:0:c", b":1\r\n"),
    ]:
        requester.ask(payload, timestamp, token)
        assert requester.response()[0] == answer, (payload, timestamp, token)
    connection = requester.connection
    assert connection.publish(INVOKE, array("GET", "a"), 1, True, requester.envelope(None, None)).reason == 0
    assert requester.response() == (b"$-1\r\n", None), "RETAIN makes no difference"
    told = [requester.notification()[0] for _ in range(3)]
    assert [payload.count(b"SET") for payload in told] == [1, 1, 0], "once for each change, though the client asked twice"
    connection.expect_nothing()


def test_the_bounds(broker_with, connect):
    running = broker_with("[limits]\nmax_state_bytes = 65_400\nmax_state_watchers = 2\n")
    requester = Requester(connect(client_id=CLIENT, to=running))
    ok, quota, syntax = (f"{text}\r\n".encode() for text in ("+OK", "-ERR the quota has been exceeded", "-ERR syntax error"))
    longest_watched = (65_535 - len(NOTICES)) // 2
    assert abs(longest_watched - 32_700) < 50
    for words, answer in [
        (("SET", "k" * 65_000, ""), ok),
        (("SET", "k" * 65_001, ""), quota),
        (("SET", "a", "1" * 143), ok),                   # 65,000 + 128 + 1 + 143 + 128
        (("SET", "a", "1" * 144), quota),
        (("SET", "a", "1"), ok),
        (("SCAN", "k" + "?" * 1_023), b"*1\r\n*0\r\n"),
        (("SCAN", "k" + "?" * 1_024), syntax),
        (("DEL", "k" * 65_000), b":1\r\n"),
        (("KEYNOTIFY", "k" * longest_watched), ok),
        (("KEYNOTIFY", "k" * (longest_watched + 1)), quota),
        (("KEYNOTIFY", "a"), ok),
        (("KEYNOTIFY", "b"), quota),
    ]:
        requester.ask(array(*words), clock())
        assert requester.response()[0] == answer, (words[0], len(words[1]), answer)


def test_requests_without_an_envelope_have_no_effect(connect, unique):
    tenant, payload = unique(), array("SET", "a", "1")
    requester = Requester(connect(client_id=CLIENT, tenant=tenant))
    connection, whole = requester.connection, requester.envelope(clock(), None)
    for missing in ("response_topic", "correlation_data"):
        given = {name: one for name, one in whole.items() if name != missing}
        assert connection.publish(INVOKE, payload, 1, properties=given).reason == 0x83
    connection.publish(INVOKE, payload, 0, properties=whole)
    assert connection.publish(INVOKE, payload, 2, properties=whole).reason == 0x83
    assert connection.publish(INVOKE, payload, 1, properties=whole | {"message_expiry_interval": 0}).reason == 0, "too late"
    connection.expect_nothing()
    connect(wire.V311, tenant=tenant).publish(INVOKE, payload, 1)
    requester.ask(array("GET", "a"))
    assert requester.response() == (b"$-1\r\n", None)


def test_a_will_is_no_request(dial):
    client = dial()
    client.send(wire.connect("c", will=wire.Will(INVOKE, qos=1)))
    client.expect_not_accepted(0x87)


@pytest.mark.parametrize("topic", [INVOKE, NOTICES + "61", f"clients/statestore/v1/{GUID}"])
def test_an_invalid_response_topic_ends_the_connection(requester, topic):
    payload = array("SET", "a", "1")
    properties = requester.envelope(clock(), None) | {"response_topic": topic}
    requester.connection.send(wire.publish(INVOKE, payload, 1, 9, properties=properties))
    requester.connection.expect_refused(0x90)


def test_nobody_hears_of_the_requests_and_notifications_of_others(connect, unique):
    tenant = unique()
    other, nosy = Requester(connect(client_id=CLIENT, tenant=tenant)), connect(tenant=tenant)
    assert nosy.subscribe((INVOKE, 1), (NOTICES + "+", 1), ("statestore/#", 1), ("#", 1)).reasons == [0x87, 0x87, 1, 1]
    other.ask(array("KEYNOTIFY", "a"))
    other.ask(array("SET", "a", "1"), clock())
    other.notification()
    assert nosy.receive().topic == ANSWERS, "a response is an ordinary message"
    assert nosy.receive().topic == ANSWERS
    assert nosy.publish(NOTICES + "61", b"forged", 1).reason == 0x87
    nosy.expect_nothing()


@pytest.mark.parametrize("killed", [False, True], ids=["connection lost", "broker killed"])
def test_a_request_that_is_sent_again_is_not_carried_out_again(broker_with, connect, killed):
    running, kept = broker_with(""), {"session_expiry_interval": 3600}
    requester = Requester(connect(client_id=CLIENT, to=running, properties=kept))
    envelope, payload = requester.envelope(clock(), None), array("SET", "a", "1", "NX")
    requester.connection.send(wire.publish(INVOKE, payload, 1, 77, properties=envelope))
    # The client goes before it has seen either, and the response is not acknowledged.
    assert {requester.connection.recv().kind, requester.connection.recv().kind} == {wire.PUBLISH, wire.PUBACK}
    if killed:
        running.kill9()
        running.start()
    else:
        requester.connection.drop()
    again = connect(client_id=CLIENT, to=running, clean=False, properties=kept)
    assert again.connack.session_present
    again.send(wire.publish(INVOKE, payload, 1, 77, dup=True, properties=envelope))
    answers = []
    while len(answers) < (1 if killed else 2):
        found = again.recv()
        if found.kind == wire.PUBLISH:
            again.complete(found)
            answers.append((found.payload, dict(found.properties["user_property"])["__ts"]))
    assert set(answers) == {answers[0]} and answers[0][0] == b"+OK\r\n"


class Guide:
    """The programs of the page in a directory, and commands that find the broker."""

    def __init__(self, broker, directory):
        self.directory, self.port = directory, broker.port
        for what, language, text in PAGE.blocks:
            if language == "python":
                (directory / what).write_text(text)

    def run(self, commands: str) -> str:
        words = 'words=("$1"); shift; if [ "${words[0]}" = state ]; then words+=("$1"); shift; fi'
        barid = f'{words}\nexec {BINARY} "${{words[@]}}" -p {self.port} "$@"'
        return run(commands, self.directory, barid, MQTT_PORT=str(self.port))


@pytest.fixture
def guide(broker_with, tmp_path) -> Guide:
    return Guide(broker_with(""), tmp_path)


@pytest.mark.parametrize("block, printed", PAGE.commands(), ids=lambda given: given and given.splitlines()[0][:40])
def test_the_commands_and_programs(guide, block, printed):
    found = guide.run(block)
    assert printed in (None, found)


def test_what_survives_a_crash(broker_with, connect):
    [config] = PAGE.marked("durability")
    running = broker_with(config)
    before = Requester(connect(client_id=CLIENT, to=running))

    def set_(requester: Requester, key: bytes, *options: bytes, token: str | None = None, persist: bool = False) -> tuple:
        requester.ask(array("SET", key, "1", *options), clock(), token, [("aio-persistence", "true")] if persist else [])
        return requester.response()

    token = clock()
    versions = {key: set_(before, key, **with_)[1] for key, with_ in
                [(b"cache:1", {}), (b"cache:2", {"persist": True}), (b"fenced", {"token": token})]}
    set_(before, b"short", b"PX", b"1")
    versions[b"long"] = set_(before, b"long", b"PX", b"6000")[1]
    time.sleep(2)
    running.kill9()
    running.start()
    started = time.monotonic()
    after = Requester(connect(client_id=CLIENT, to=running))
    for key, is_there in [(b"cache:1", False), (b"cache:2", True), (b"fenced", True), (b"short", False), (b"long", True)]:
        after.ask(array("GET", key))
        assert after.response() == ((b"$1\r\n1\r\n", versions[key]) if is_there else (b"$-1\r\n", None)), key
    assert set_(after, b"fenced")[0] == b"-ERR a fencing token is required for this request\r\n"
    done, version = set_(after, b"fenced", token=token)
    assert done == b"+OK\r\n" and parsed(version) > max(map(parsed, versions.values()))
    after.ask(array("KEYNOTIFY", "long"))
    after.response()
    assert after.notification()[0] == array("NOTIFY", "DELETE")
    assert time.monotonic() - started < 6, "its time has run on"


def test_without_its_fence_the_old_holder_writes(guide):
    program = guide.directory / "paused.py"
    program.write_text(program.read_text().replace("fence=lock.token", "fence=None"))
    assert guide.run("python paused.py").splitlines()[-1] == "the door is closed by old"


@pytest.fixture
def store(broker_with, tmp_path):
    """Makes stores with the client of the page."""
    Guide(running := broker_with(""), tmp_path)
    names: dict = {}
    exec(compile((tmp_path / "state_store.py").read_text(), "state_store.py", "exec"), names)
    made = []

    def connect(client_id: str):
        made.append(names["StateStore"](client_id, "127.0.0.1", running.port))
        return made[-1]

    connect.refused = names["Refused"]
    yield connect
    for one in made:
        one.close()


def test_the_client_says_all_commands(store):
    one = store("one")
    every_byte = bytes(range(256)) * 300
    done, version = one.set(every_byte[:300], every_byte)
    assert done and one.get(every_byte[:300]) == (every_byte, version)
    assert one.set(every_byte[:300], b"other", b"NX") == (False, version)
    assert one.delete_if(every_byte[:300], b"other") is False
    assert one.delete(every_byte[:300]) and not one.delete(every_byte[:300])
    assert one.get(every_byte[:300]) == (None, None)
    with pytest.raises(store.refused, match="^the key length is zero$"):
        one.get(b"")


def test_the_client_reads_all_pages_of_a_scan(store):
    one = store("one")
    keys = [b"key-%05d-%s" % (number, b"x" * 100) for number in range(3_000)]
    for answer in [one._send((b"SET", key, b"")) for key in keys]:
        assert answer.result(20)[0] == b"+OK\r\n"
    found = list(one.keys(b"key-*"))
    assert sorted(found) == keys


def test_the_client_watches_on_after_its_connection_was_lost(store):
    one, other = store("one"), store("other")
    events = one.watch(b"k")

    def told(wanted) -> None:
        # What was told before may be told again, if the connection was lost before it was acknowledged.
        while events.get(timeout=20) != wanted:
            pass

    other.set(b"k", b"1")
    told(("SET", b"1"))
    one.mqtt.socket().shutdown(socket.SHUT_RDWR)
    told(("UNSURE", None))
    assert one.get(b"k")[0] == b"1", "requests are carried out in order: from here on the key is watched"
    other.set(b"k", b"2")
    told(("SET", b"2"))
    one.unwatch(b"k")
    other.set(b"k", b"3")
    one.get(b"k")
    assert events.empty()


def test_the_client_keeps_its_clock_behind_nobody(store):
    one = store("one")
    ahead = int(time.time() * 1000) + 30_000
    one.clock.read(f"{ahead}:7:other")
    done, version = one.set(b"k", b"1")
    assert done and parsed(version)[:2] == (ahead, 10), "its clock had 8, and the request 9"
    assert int(one.clock.read().split(":")[0]) == ahead
