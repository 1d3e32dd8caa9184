"""Topic names, topic filters and their strings (5: §1.5.4, §4.7; 3.1.1: §1.5.3, §4.7)."""

import pytest

import wire
from wire import V5, V31

normative = pytest.mark.normative

# A filter, and topic names below the same prefix that it matches and does not match. "%" stands for the prefix.
MATCHING = [
    ("%/a", ["%/a"], ["%/b", "%/a/", "%/A", "%", "%//a"]),
    ("%/#", ["%", "%/", "%/a", "%/a/b/c", "%//"], ["%a", "%a/b"]),
    ("%/a/#", ["%/a", "%/a/b", "%/a/b/c", "%/a/"], ["%/b", "%/ab", "%"]),
    ("%/+", ["%/a", "%/", "%/$x"], ["%", "%/a/b", "%/a/"]),
    ("%/+/c", ["%/a/c", "%//c"], ["%/c", "%/a/b/c", "%/a/c/"]),
    ("%/+/+/#", ["%/a/b", "%/a/b/c/d", "%///"], ["%/a"]),
    ("%/+/", ["%/a/", "%//"], ["%/a", "%/a/b"]),
    ("%//", ["%//"], ["%/", "%///"]),
    ("%/a/+/b/+/#", ["%/a/x/b/y", "%/a/x/b/y/z"], ["%/a/x/b", "%/a/x/c/y"]),
    ("+/%/a", ["x/%/a", "/%/a"], ["%/a", "x/y/%/a", "$x/%/a"]),
    ("%/ ", ["%/ "], ["%/", "%/  "]),
    ("%/ü", ["%/ü"], ["%/u", "%/u\u0308"]),
    ("%/\ufeffa", ["%/\ufeffa"], ["%/a"]),
]


@normative("5:MQTT-4.7.1-1", "5:MQTT-4.7.1-2", "5:MQTT-3.3.2-3", "5:MQTT-4.7.3-4", "5:MQTT-1.5.4-3", "311:MQTT-4.7.1-2",
           "311:MQTT-4.7.1-3", "311:MQTT-3.3.2-3", "311:MQTT-4.7.3-4", "311:MQTT-1.5.3-3")
@pytest.mark.parametrize("pattern, matching, others", MATCHING, ids=[pattern for pattern, _, _ in MATCHING])
def test_matching(connect, unique, oasis, pattern, matching, others):
    """A marker that comes last shows that nothing else is on its way."""
    prefix, marker = unique("p"), unique("end")
    client = connect(oasis)
    client.subscribe(pattern.replace("%", prefix), marker, qos=1)
    for name in [*others, *matching, marker]:
        client.publish(name.replace("%", prefix), b"x", qos=1)
    expected = [name.replace("%", prefix) for name in matching] + [marker]
    assert [client.receive().topic for _ in expected] == expected
    client.expect_nothing(0.05)


@normative("5:MQTT-4.7.2-1", "311:MQTT-4.7.2-1")
def test_leading_wildcards_do_not_match_dollar_topics(connect, unique, version):
    """Other filters do, and a $ further behind is nothing special. In a tenant where nothing else is retained."""
    name, marker, tenant = unique("n"), unique("end"), unique("t")
    client, publisher = connect(version, tenant=tenant), connect(version, tenant=tenant)
    publisher.publish(f"${name}/x", b"retained", qos=1, retain=True)
    client.subscribe("#", f"+/{marker}", f"${name}/+", qos=1)
    seen = []
    publisher.publish(f"${name}/x", b"dollar", qos=1, retain=True)
    publisher.publish(f"{name}/$x", b"plain", qos=1)
    publisher.publish(f"x/{marker}", b"end", qos=1)
    while not seen or seen[-1].payload != b"end":
        one = client.receive()
        if name in one.topic or marker in one.topic:
            seen.append(one)
    assert [one.payload for one in seen] == [b"retained", b"dollar", b"plain", b"end"]


@normative("5:MQTT-4.7.2-1", "311:MQTT-4.7.2-1")
def test_sys_topics_need_a_filter_that_says_so(connect, unique, version):
    client = connect(version, tenant=unique("t"))
    client.subscribe("#", "+/broker/#", "+/#")
    client.publish(unique("end"), b"marker", qos=1)
    while (found := client.receive()).payload != b"marker":
        assert not found.topic.startswith("$")


INVALID_FILTERS = ["#/a", "a/#/b", "a#", "a/#b", "##", "a+", "+a", "a/+b/c", "a/b+", "++", "+#", "#+"]


@normative("5:MQTT-4.7.1-1", "5:MQTT-4.7.1-2", "311:MQTT-4.7.1-2", "311:MQTT-4.7.1-3")
@pytest.mark.parametrize("pattern", INVALID_FILTERS)
def test_misplaced_wildcards_are_malformed(connect, version, pattern):
    refuse_filter(connect(version), pattern)
    connect(version).ping()


@normative("5:MQTT-4.7.3-1", "311:MQTT-4.7.3-1")
def test_an_empty_filter_is_malformed(connect, version):
    refuse_filter(connect(version), "")


@normative("5:MQTT-4.8.2-1", "5:MQTT-4.8.2-2")
@pytest.mark.parametrize("pattern", ["$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/#", "$share/g#/a", "$share/g/a#"])
def test_a_shared_filter_that_is_not_whole_is_malformed(connect, version, pattern):
    refuse_filter(connect(version), pattern)


@pytest.mark.parametrize("pattern", ["", "a#", "$share/g"])
def test_nothing_of_a_packet_with_a_malformed_filter_is_done(connect, topic, unique, pattern):
    """Neither what stands before it nor what stands behind; and the same in UNSUBSCRIBE."""
    name = unique("c")
    kept = {"session_expiry_interval": 60}
    client = connect(V5, name, properties=kept)
    client.subscribe(f"{topic}/there")
    client.send(wire.subscribe(1, (f"{topic}/before", 0), (pattern, 0), (f"{topic}/behind", 0)))
    client.expect_refused(0x81)
    again = connect(V5, name, clean=False, properties=kept)
    again.send(wire.unsubscribe(1, f"{topic}/there", pattern)).expect_refused(0x81)
    last = connect(V5, name, clean=False, properties=kept)
    for part in ("before", "behind", "there"):
        last.publish(f"{topic}/{part}", part.encode())
    last.receive(b"there")


def refuse_filter(client: wire.Client, pattern: str) -> None:
    """The end of the connection (§4.13.1). Others answer with a failure in SUBACK, which their users rely on."""
    client.send(wire.subscribe(1, (pattern, 0), version=client.version))
    if client.explains:
        client.expect_refused(0x81)
        return
    try:
        found = client.recv()
    except wire.Closed:
        return
    if found.kind == wire.SUBACK:
        assert found.reasons in ([0x8F], [0x80]), found
    else:
        assert client.version == V5 and found.kind == wire.DISCONNECT and found.reason in (0x81, 0x82, 0x8F), found
        client.expect_closed()


@normative("5:MQTT-3.3.2-2", "5:MQTT-4.7.0-1", "311:MQTT-3.3.2-2", "311:MQTT-4.7.1-1")
@pytest.mark.parametrize("name", ["#", "+", "a/#", "a/+/b", "a+", "a#b"])
def test_topic_names_have_no_wildcards(connect, topic, version, name, qos):
    """Refused with the end of the connection, or in MQTT 5 with an acknowledgement; never delivered."""
    watcher = connect(version)
    watcher.subscribe("a/+/b", "a/#", topic)
    client = connect(version)
    client.send(wire.publish(name, b"x", qos, 1 if qos else None, version=version))
    try:
        found = client.recv()
        assert found.reason in (0x81, 0x82, 0x90), found
    except wire.Closed:
        assert version != V5 or not client.explains
    watcher.publish(topic, b"marker")
    while (one := watcher.receive()).topic != topic:
        assert one.topic != name


@normative("5:MQTT-4.7.3-3", "311:MQTT-4.7.3-3")
def test_the_longest_topic(connect, unique, version):
    """65,535 bytes is what the length field can say; a broker may have a lower limit, but must not choke on it."""
    prefix = unique("p") + "/"
    name = prefix + "x" * (65_535 - len(prefix))
    client = connect(version)
    try:
        granted = client.subscribe(name, prefix + "#").reasons
        client.publish(name, b"long")
        if granted == [0, 0]:
            assert client.receive(b"long").topic == name
    except (wire.Closed, ConnectionError, AssertionError):
        pass
    connect(version).ping()


def test_many_levels(connect, unique, version):
    """Two hundred levels with wildcards among them: served, or refused; the broker lives on."""
    prefix = unique("p")
    client = connect(version)
    client.send(wire.subscribe(1, (prefix + "/+" * 199, 0), version=version))
    try:
        granted = client.recv()
        if granted.kind == wire.SUBACK and granted.reasons == [0]:
            client.publish(prefix + "/a" * 199, b"deep")
            client.receive(b"deep")
    except wire.Closed:
        pass
    connect(version).ping()


@normative("5:MQTT-1.5.4-3", "311:MQTT-1.5.3-3", "5:MQTT-4.7.3-4", "311:MQTT-4.7.3-4")
@pytest.mark.parametrize("name", [
    "\ufeff", "\ufeffstart", "mid\ufeffdle", "日本語", "🦀", "a\u0301", "\u00e1", " leading", "trailing ", "tab\tinside",
    "\x7f", "\x01", "\ufdd0", "quote\"back\\slash", "ﬀ", "ＦＵＬＬ", "İ", "\U0010ffff",
])
def test_strings_arrive_as_they_were_sent(connect, unique, version, name):
    """Byte for byte: no normalisation, no trimming, no byte order mark lost. Control characters may be refused."""
    prefix = unique("p") + "/"
    client = connect(version)
    try:
        client.subscribe(prefix + name, prefix + "+")
        client.publish(prefix + name, b"x")
        assert client.receive(b"x").topic == prefix + name
    except (wire.Closed, AssertionError):
        assert name in ("\x7f", "\x01", "\ufdd0", "tab\tinside", "\U0010ffff"), "only these may be refused"


@normative("5:MQTT-4.7.3-4", "311:MQTT-4.7.3-4")
def test_case_matters(connect, topic, version):
    client = connect(version)
    client.subscribe(topic + "/a", qos=1)
    client.publish(topic + "/A", b"other", qos=1)
    client.publish(topic + "/a", b"same", qos=1)
    client.receive(b"same")


def test_mqtt_31_refuses_a_filter_by_closing(connect):
    """Its SUBACK has no failure code; the strict parser would not let one pass."""
    connect(V31).send(wire.subscribe(1, ("a/#/b", 0), version=V31)).expect_refused()
