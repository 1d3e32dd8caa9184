"""What clients of the state store notice when the shard of their keys is closed, and opened again."""

import pytest

import wire
from reopening import set_state
from statestore_client import ABSENT, OK, QUOTA, error, notify_topic, order, value

EXPIRES = {"session_expiry_interval": 3600}


@pytest.fixture
def running(broker_with):
    """Keys share half of the shards: the first of two. So does a session, or not, by its client identifier."""
    return broker_with("[storage]\nshards = 2\n")


def test_keys_are_as_they_were(store, running):
    client = store(to=running)
    before = client.ask("SET", "k", "v")
    assert client.ask("SET", "brief", "v", "PX", 100).payload == OK
    set_state(running, 0, "closed")
    for request in (("GET", "k"), ("SET", "k", "w"), ("DEL", "k"), ("SET", "new", "v"), ("SCAN", "*")):
        assert client.ask(*request).payload == error(QUOTA), request
    set_state(running, 0, "open")
    found = client.ask("GET", "k")
    assert (found.payload, found.version) == (value(b"v"), before.version)
    after = client.ask("SET", "k", "w")
    assert after.payload == OK and order(after.version) > order(before.version)
    assert client.ask("GET", "new").payload == ABSENT


def test_a_key_expires(store, running):
    client = store(to=running)
    client.ask("SET", "k", "v", "PX", 300)
    set_state(running, 0, "closed")
    set_state(running, 0, "open")
    assert client.ask("GET", "k").payload == value(b"v")
    client.ask("KEYNOTIFY", "k")
    told = client.client.expect(wire.PUBLISH, timeout=5)
    assert told.topic == notify_topic(client.client.client_id, b"k")
    assert client.ask("GET", "k").payload == ABSENT


def test_who_watches_goes_on(store, running):
    watcher, client = store(to=running), store(to=running)
    watcher.ask("KEYNOTIFY", "k")
    client.ask("SET", "k", "one")
    set_state(running, 0, "closed")
    set_state(running, 0, "open")
    client.ask("SET", "k", "two")
    client.ask("DEL", "k")
    topic = notify_topic(watcher.client.client_id, b"k")
    payloads = [one.payload for one in watcher.client.receive_all(count=3) if one.topic == topic]
    assert [b"one" in payloads[0], b"two" in payloads[1], b"DELETE" in payloads[2]] == [True] * 3 and len(payloads) == 3


def test_a_request_that_is_sent_again_is_not_refused(store, running):
    """It may have been carried out: its answer is known when the shard is open."""
    client = store("requester", to=running, clean=False, properties=EXPIRES)
    sent = client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", timestamp=None, more=[("__ts", "001795479688418:00000:test")], packet_id=77)
    first = client.answer(sent)
    client.client.drop()
    again = {"timestamp": None, "more": [("__ts", "001795479688418:00000:test")], "correlation": sent[1], "dup": True, "packet_id": 77}
    client = store("requester", to=running, clean=False, properties=EXPIRES)
    set_state(running, 0, "closed")
    try:
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", **again)
        client.client.expect_refused(0x89)
    except wire.Closed:
        pass
    set_state(running, 0, "open")
    other = store(to=running)
    assert other.ask("SET", "k", "w").payload == OK
    client = store("requester", to=running, clean=False, properties=EXPIRES)
    assert client.answer(client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", **again)).version == first.version
    assert other.ask("GET", "k").payload == value(b"w"), "it was carried out once"
