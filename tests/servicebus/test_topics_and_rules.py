"""Topics: each subscription gets its own copy of what its rules match, and what their actions make of it."""

import pytest
from azure.servicebus import ServiceBusMessage

from azure_client import complete_all, nothing_comes, take, take_one, text, texts


def sql(expression: str, action: str | None = None) -> dict:
    return {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}} | ({"Action": {"SqlExpression": action}} if action else {})


def correlation(**wanted) -> dict:
    return {"FilterType": "Correlation", "CorrelationFilter": wanted}


def ruled(*rules: dict, **properties) -> dict:
    return {"Properties": properties, "Rules": [{"Name": f"rule{number}", "Properties": rule} for number, rule in enumerate(rules)]}


@pytest.mark.topic({"one": {}, "two": {}, "three": {}})
def test_every_subscription_gets_a_copy(subscription):
    subscription("one").send("a", "b", subject="s")
    for name in ("one", "two", "three"):
        messages = take(subscription(name).plain(), 2)
        assert texts(messages) == ["a", "b"]
        assert [message.sequence_number for message in messages] == [1, 2]
        assert messages[0].subject == "s"


@pytest.mark.topic({"one": {}, "two": {}})
def test_copies_are_settled_each_for_itself(subscription):
    one, two = subscription("one"), subscription("two")
    one.send("a")
    assert complete_all(one.plain(), 1) == ["a"]
    receiver = two.plain()
    receiver.dead_letter_message(take_one(receiver))
    assert text(take_one(two.dead_letters())) == "a"
    assert nothing_comes(one.dead_letters())


@pytest.mark.topic({
    "red": ruled(sql("colour = 'red'")),
    "large": ruled(sql("size > 10 AND size <= 100")),
    "labelled": ruled(sql("sys.Label LIKE 'order%' AND NOT EXISTS(cancelled)")),
    "either": ruled(sql("colour IN ('red', 'blue')"), sql("size IS NULL")),
    "none": ruled(sql("1 = 0")),
})
def test_sql_filters(subscription):
    topic = subscription("red")
    topic.send("big red", application_properties={"colour": "red", "size": 50})
    topic.send("huge blue", application_properties={"colour": "blue", "size": 500})
    topic.send("order", subject="order 1", application_properties={"colour": "green", "size": 1})
    topic.send("cancelled order", subject="order 2", application_properties={"cancelled": True, "size": 1})
    topic.send("plain")
    expected = {"red": ["big red"], "large": ["big red"], "labelled": ["order"], "either": ["big red", "huge blue", "plain"], "none": []}
    for name, bodies in expected.items():
        receiver = subscription(name).plain()
        assert complete_all(receiver, len(bodies)) == bodies, name
        assert nothing_comes(receiver, 0.2), name


@pytest.mark.topic({
    "label": ruled(correlation(Label="important")),
    "both": ruled(correlation(CorrelationId="c", Properties={"kind": "a"})),
    "session": ruled(correlation(SessionId="s")),
})
def test_correlation_filters(subscription):
    topic = subscription("label")
    topic.send("1", subject="important")
    topic.send("2", correlation_id="c", application_properties={"kind": "a"})
    topic.send("3", correlation_id="c", application_properties={"kind": "b"})
    topic.send("4", session="s", subject="important")
    for name, bodies in {"label": ["1", "4"], "both": ["2"], "session": ["4"]}.items():
        receiver = subscription(name).plain()
        assert complete_all(receiver, len(bodies)) == bodies, name
        assert nothing_comes(receiver, 0.2), name


@pytest.mark.topic({
    "marked": ruled(sql("1 = 1", action="SET priority = 'high'; SET sys.Label = 'marked'; REMOVE secret")),
    "as-it-was": {},
})
def test_actions_change_the_copy_of_their_subscription(subscription):
    subscription("marked").send("a", subject="plain", application_properties={"secret": "x", "kept": 1})
    marked = take_one(subscription("marked").plain())
    assert (text(marked), marked.subject) == ("a", "marked")
    assert marked.application_properties == {b"kept": 1, b"priority": b"high", b"RuleName": b"rule0"}
    other = take_one(subscription("as-it-was").plain())
    assert (other.subject, other.application_properties) == ("plain", {b"secret": b"x", b"kept": 1})


@pytest.mark.topic({"s": {"Properties": {"RequiresSession": True}}, "plain": {}})
def test_subscriptions_can_have_sessions(subscription):
    subscription("s").send("a1", "a2", session="a")
    subscription("s").send("b1", session="b")
    sessions = subscription("s")
    first, second = sessions.accept_next(), sessions.accept_next()
    assert complete_all(first, 2) == ["a1", "a2"]
    assert complete_all(second, 1) == ["b1"]
    assert complete_all(subscription("plain").plain(), 3) == ["a1", "a2", "b1"]


@pytest.mark.topic({"s": {"Properties": {"RequiresSession": True}}, "plain": {}})
def test_what_has_no_session_is_a_dead_letter_of_a_subscription_with_sessions(subscription):
    """The topic itself has no sessions, so it takes the message."""
    sessions = subscription("s")
    sessions.send("a")
    dead = take_one(sessions.dead_letters())
    assert (text(dead), dead.dead_letter_reason) == ("a", "Session ID is null")
    assert complete_all(subscription("plain").plain(), 1) == ["a"]


@pytest.mark.topic({"s": {}}, RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT1M")
def test_a_topic_looks_for_duplicates(subscription):
    here = subscription("s")
    here.send("a", "b", message_id="same")
    receiver = here.plain()
    assert complete_all(receiver, 1) == ["a"]
    assert nothing_comes(receiver)


@pytest.mark.topic({"s": {}})
def test_nobody_receives_from_the_topic_itself(subscription):
    here = subscription("s")
    with pytest.raises(Exception, match="(?i)not"):
        here.client.get_queue_receiver(here.path).receive_messages(max_wait_time=2)


@pytest.mark.topic({"evens": ruled(sql("number % 2 = 0")), "odds": ruled(sql("number % 2 = 1"))})
def test_batches_are_divided(subscription):
    subscription("evens").sender.send_messages([
        ServiceBusMessage(str(number), application_properties={"number": number}) for number in range(20)])
    assert complete_all(subscription("evens").plain(), 10) == [str(number) for number in range(0, 20, 2)]
    assert complete_all(subscription("odds").plain(), 10) == [str(number) for number in range(1, 20, 2)]
