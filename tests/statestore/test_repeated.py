"""A request that is sent again, because its connection was lost, is answered again and applied once."""

import pytest

from statestore_client import ABSENT, DELETED, NOT_APPLIED, NOTHING, OK, Store, array, order, set_told, value

KEPT = {"clean": False, "properties": {"session_expiry_interval": 300}}


@pytest.fixture
def session(store):
    """Connects the client `again`, whose session is kept, and whose next connection finds it there."""
    def connect(present: bool, **options) -> Store:
        client = store("again", **(KEPT | options))
        assert client.client.connack.session_present == present
        return client

    return connect


def lost(client: Store) -> None:
    client.client.drop()


# What the first request does to `key`, which has the value `x` or is absent, and what it is answered.
FIRST = {
    "NX": (None, ("SET", "key", "y", "NX"), OK),
    "NX refused": (b"x", ("SET", "key", "y", "NX"), NOT_APPLIED),
    "NEX": (None, ("SET", "key", "y", "NEX", "PX", "60000"), OK),
    "NEX renewed": (b"x", ("SET", "key", "x", "NEX"), OK),
    "NEX refused": (b"x", ("SET", "key", "y", "NEX"), NOT_APPLIED),
    "SET": (b"x", ("SET", "key", "y"), OK),
    "DEL": (b"x", ("DEL", "key"), DELETED),
    "DEL absent": (None, ("DEL", "key"), NOTHING),
    "VDEL": (b"x", ("VDEL", "key", "x"), DELETED),
    "VDEL other": (b"x", ("VDEL", "key", "y"), NOT_APPLIED),
    "VDEL absent": (None, ("VDEL", "key", "x"), NOTHING),
}


@pytest.mark.parametrize("answer_seen", [True, False], ids=["answer seen", "answer lost"])
@pytest.mark.parametrize("before, request_, expected", FIRST.values(), ids=FIRST)
def test_applied_once(session, store, before, request_, expected, answer_seen):
    """What another client does in between is not undone."""
    client, other = session(False), store("other")
    if before is not None:
        other.set(b"key", before)
    other.watch(b"key")
    sent = client.send(array(*request_), packet_id=7)
    first = client.answer(sent) if answer_seen else None
    if not answer_seen:
        # The first request has been carried out when this one has, also where another broker does that.
        client.get(b"another key")
    lost(client)
    if expected == DELETED or expected == OK:
        other.told()
    after = other.set(b"key", b"of another")
    other.told()

    client = session(True)
    again = client.answer(client.send(array(*request_), packet_id=7, correlation=sent[1], dup=True))
    assert again.payload == expected
    if first:
        assert again.version == first.version
    if again.version:
        assert order(again.version) < order(after)
    assert other.get(b"key") == (b"of another", after)
    other.expect_quiet(0.05)


@pytest.mark.parametrize("request_, expected", [
    (("SET", "key", "y", "NX"), OK), (("SET", "key", "y"), OK), (("DEL", "x"), DELETED), (("VDEL", "x", "x"), DELETED),
    (("GET", "x"), value(b"x")), (("KEYNOTIFY", "key"), OK), (("SCAN", "x"), b"*1\r\n*1\r\n$1\r\nx\r\n"),
], ids=lambda part: " ".join(part) if isinstance(part, tuple) else None)
def test_sent_again_but_never_seen(session, store, request_, expected):
    """DUP alone does not make it a repetition: the first attempt may have been lost on its way."""
    client = session(False)
    client.set(b"x", b"x")
    lost(client)
    client = session(True)
    answer = client.answer(client.send(array(*request_), packet_id=99, dup=True))
    assert answer.payload == expected


@pytest.mark.parametrize("how", [
    {"packet_id": 7, "dup": True, "correlation": b"other"}, {"packet_id": 7, "dup": False, "correlation": b"other"},
    {"packet_id": 8, "dup": True, "correlation": b"other"}, {"packet_id": 8, "dup": False, "correlation": b"first"},
], ids=str)
def test_another_request_is_not_taken_for_a_repetition(session, how):
    client = session(False)
    assert client.answer(client.send(array("SET", "key", "1", "NX"), packet_id=7, correlation=b"first")).payload == OK
    # The PUBACK of the response has arrived: otherwise the response comes again, and answers the next request here.
    client.client.ping()
    lost(client)
    client = session(True)
    assert client.answer(client.send(array("SET", "key", "1", "NX"), **how)).payload == NOT_APPLIED


def test_a_packet_identifier_is_used_again(session):
    """What counts is its last request."""
    client = session(False)
    for number in range(5):
        sent = client.send(array("SET", "key", number), packet_id=7)
        version = client.answer(sent).version
    lost(client)
    client = session(True)
    again = client.answer(client.send(array("SET", "key", "4"), packet_id=7, correlation=sent[1], dup=True))
    assert again.version == version
    assert client.get(b"key") == (b"4", version)


def test_again_and_again(session):
    client = session(False)
    sent = client.send(array("SET", "key", "x", "NX"), packet_id=7)
    version = client.answer(sent).version
    for _ in range(5):
        lost(client)
        client = session(True)
        again = client.answer(client.send(array("SET", "key", "x", "NX"), packet_id=7, correlation=sent[1], dup=True))
        assert (again.payload, again.version) == (OK, version)


def test_watching_again(session, store):
    """A registration ended with its connection, so what is sent again makes a new one."""
    client, other = session(False), store("other")
    sent = client.send(array("KEYNOTIFY", "key"), packet_id=7)
    client.answer(sent)
    lost(client)
    client = session(True)
    assert client.answer(client.send(array("KEYNOTIFY", "key"), packet_id=7, correlation=sent[1], dup=True)).payload == OK
    version = other.set(b"key", b"x")
    client.expect_told(b"key", set_told(b"x"), version)
    client.expect_quiet()


def test_reading_again(session, store):
    """Tells what is there now or was there then."""
    client, other = session(False), store("other")
    sent = client.send(array("GET", "key"), packet_id=7)
    assert client.answer(sent).payload == ABSENT
    lost(client)
    version = other.set(b"key", b"x")
    client = session(True)
    again = client.answer(client.send(array("GET", "key"), packet_id=7, correlation=sent[1], dup=True))
    assert (again.payload, again.version) in ((ABSENT, None), (value(b"x"), version))


def test_a_new_session_knows_nothing_of_the_old(session):
    client = session(False)
    sent = client.send(array("SET", "key", "x", "NX"), packet_id=7)
    client.answer(sent)
    lost(client)
    client = session(False, clean=True)
    again = client.answer(client.send(array("SET", "key", "x", "NX"), packet_id=7, correlation=sent[1], dup=True))
    assert again.payload == NOT_APPLIED


def test_another_session_is_not_it(session, store):
    client = session(False)
    sent = client.send(array("SET", "key", "x", "NX"), packet_id=7)
    client.answer(sent)
    other = store("other", **KEPT)
    again = other.answer(other.send(array("SET", "key", "x", "NX"), packet_id=7, correlation=sent[1], dup=True))
    assert again.payload == NOT_APPLIED


@pytest.mark.parametrize("end", ["lost", "killed"])
def test_everything_that_was_in_flight(broker_with, store, end):
    """Hundreds of requests whose answers were lost, some perhaps never read: each is answered, and applied once. An SDK may
    have as many on their way as its application asks for."""
    running = broker_with("")
    requests = []
    for number in range(600):
        key = f"key {number % 200}"
        requests.append([("SET", key, number, "NX"), ("SET", key, number % 200, "NEX"), ("VDEL", key, number % 200)][number // 200])
    client = store("again", to=running, **KEPT)
    watcher = store("watcher", to=running)
    counter = watcher.set(b"start", b"")
    sent = [client.send(array(*one), packet_id=1_000 + at) for at, one in enumerate(requests)]
    if end == "lost":
        lost(client)
    else:
        client.answer(sent[300])
        running.kill9()
        running.start()
    client = store("again", to=running, **KEPT)
    assert client.client.connack.session_present
    again = [client.send(array(*one), packet_id=1_000 + at, correlation=sent[at][1], dup=True) for at, one in enumerate(requests)]
    answers = [client.answer(one) for one in again]
    assert {answer.payload for answer in answers[:400]} == {OK}
    assert {answer.payload for answer in answers[400:]} == {DELETED}
    versions = [order(answer.version) for answer in answers[:400]]
    assert len(set(versions)) == 400 and min(versions) > order(counter)
    assert client.get(b"key 0") is None


@pytest.mark.parametrize("requests", [1, 100, 500, 1_000])
@pytest.mark.parametrize("end", ["lost", "killed"])
def test_all_of_many_are_known(broker_with, store, requests, end):
    """All are answered with the version of the first time, and what another client has set since stays."""
    running = broker_with("")
    client, other = store("again", to=running, **KEPT), store("other", to=running)
    keys = [b"key %d" % number for number in range(requests)]
    sent = [client.send(array("SET", key, "first"), packet_id=1_000 + at) for at, key in enumerate(keys)]
    versions = [client.answer(one).version for one in sent]
    other.set(keys[-1], b"of another")
    lost(client)
    if end == "killed":
        running.kill9()
        running.start()
    client = store("again", to=running, **KEPT)
    again = [client.send(array("SET", key, "first"), packet_id=1_000 + at, correlation=sent[at][1], dup=True) for at, key in enumerate(keys)]
    assert [client.answer(one).version for one in again] == versions
    assert client.get(keys[-1])[0] == b"of another"


@pytest.mark.parametrize("before, request_, expected", FIRST.values(), ids=FIRST)
def test_applied_once_also_when_the_broker_is_killed(broker_with, store, before, request_, expected):
    running = broker_with("")
    client = store("again", to=running, **KEPT)
    if before is not None:
        client.set(b"key", before)
    sent = client.send(array(*request_), packet_id=7)
    first = client.answer(sent)
    for _ in range(2):
        running.kill9()
        running.start()
        client = store("again", to=running, **KEPT)
        assert client.client.connack.session_present
        again = client.answer(client.send(array(*request_), packet_id=7, correlation=sent[1], dup=True))
        assert (again.payload, again.version) == (expected, first.version)
