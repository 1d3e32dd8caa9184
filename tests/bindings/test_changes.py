"""Sets and deletes bindings while the broker runs: by its configuration, by `barid binding`, and by the admin address."""

import json
import urllib.error
import urllib.request

import pytest
from azure.servicebus import ServiceBusMessage

from azure_client import DELETE, complete_all, texts
from configuring import binding, queue
from broker import until
from brokers import BROKERS
from running import barid

QUEUES = queue("a", RequiresSession=False) + queue("b", RequiresSession=False)


def told(running, *arguments, status: int = 0) -> str:
    done = barid("binding", *arguments, "--admin", f"127.0.0.1:{running.admin_port}")
    assert done.returncode == status, done
    return done.stdout + done.stderr


def listed(running, tenant: str = "default") -> dict[str, dict]:
    return {one["name"]: one for one in json.loads(running.http(f"/v1/tenants/{tenant}/bindings")[1])["bindings"]}


def test_the_configuration(brokers_with, connect, entity):
    """A removed binding no longer works, a new one does; the other bindings continue with their counts."""
    first = QUEUES + binding("stays", filter="stays", queue="a") + binding("goes", filter="goes", queue="a")
    running = brokers_with(first + binding("out", from_queue="b", publish="out"))
    device = connect(to=running)
    device.subscribe("out", qos=1)
    for topic in ("stays", "goes"):
        assert device.publish(topic, topic.encode(), 1).reason == 0
    second = QUEUES + binding("stays", filter="stays", queue="a") + binding("comes", filter="comes", queue="a")
    assert "bindings" in running.reload(second)
    assert [device.publish(topic, topic.encode(), 1).reason for topic in ("stays", "goes", "comes")] == [0, 0x10, 0]
    with entity(running, "a").plain() as worker:
        assert complete_all(worker, 4) == ["stays", "goes", "stays", "comes"]
    entity(running, "b").send("kept")
    device.expect_nothing()
    with entity(running, "b").plain() as worker:
        assert complete_all(worker, 1) == ["kept"]
    now = listed(running)
    assert {name: (one["declared_by"], one["passed"]) for name, one in now.items()} == {
        "stays": ("configuration", 2), "comes": ("configuration", 1)}


def test_set_by_an_operator(brokers_with, connect, entity):
    """Such bindings outlive the broker, can be told from bindings of the configuration, and cannot change those."""
    running = brokers_with(QUEUES + binding("fixed", filter="fixed", queue="a"))
    told(running, "set", "in", "--filter", "in/+", "--queue", "a")
    told(running, "set", "out", "--from-queue", "b", "--publish", "out/{subject}", "--qos", "2")
    for arguments in (["set", "fixed", "--filter", "x", "--queue", "a"], ["delete", "fixed", "--yes"]):
        assert "configuration" in told(running, *arguments, status=1)
    assert "exists already" in told(running, "set", "in", "--filter", "x", "--queue", "a", "--new", status=1)
    assert "filter" in told(running, "set", "none", status=1)
    for restart in (False, True):
        if restart:
            running.kill9()
            running.start()
        device = connect(to=running)
        device.subscribe("out/#", qos=1)
        assert device.publish("in/1", b"x", 1).reason == 0
        with entity(running, "a").plain() as worker:
            assert complete_all(worker, 1) == ["x"]
        entity(running, "b").send("y", subject="s")
        assert device.receive(b"y").topic == "out/s"
        assert {name: one["declared_by"] for name, one in listed(running).items()} == {
            "fixed": "configuration", "in": "admin", "out": "admin"}
    told(running, "delete", "in", "--yes")
    told(running, "delete", "out", "--yes")
    assert device.publish("in/1", b"x", 1).reason == 0x10
    entity(running, "b").send("y", subject="s")
    device.expect_nothing()
    running.restart()
    assert list(listed(running)) == ["fixed"]


@pytest.mark.parametrize("members, why", [
    ({"filter": "a#", "queue": "a"}, "filter"),
    ({"filter": "a"}, "queue"),
    ({"filter": "a", "queue": "a", "session": "{2}"}, "levels"),
    ({"from_queue": "a", "publish": "x/#"}, "topic"),
    ({"from_queue": "a", "publish": "x", "tenant": "other"}, "tenant"),
])
def test_what_makes_no_sense(ours, members, why):
    request = urllib.request.Request(f"http://127.0.0.1:{ours.admin_port}/v1/tenants/default/bindings/x", method="PUT",
                                     data=json.dumps(members).encode())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    assert refused.value.code == 400 and why in refused.value.read().decode()
    assert "x" not in listed(ours)


def is_refused(reason: int) -> bool:
    """Whether the queue of a binding has refused a message, as far as the publisher's broker knows: only the one with the queue tells."""
    return reason == 0x83 or BROKERS > 1 and reason == 0


def test_entities_that_come_and_go(brokers_with, connect, entity):
    """A binding waits for its queue, and finds it again when it was created anew."""
    running = brokers_with(binding("in", filter="in", queue="late") + binding("out", from_queue="outgoing", publish="out"))
    device = connect(to=running)
    device.subscribe("out", qos=1)
    assert is_refused(device.publish("in", b"", 1).reason)
    assert told(running, "list").count("forwards nothing: there is no queue") == 2
    admin = f"127.0.0.1:{running.admin_port}"
    for payload in (b"1", b"2"):
        for name in ("late", "outgoing"):
            assert barid("queue", "create", name, "--admin", admin).returncode == 0
        assert device.publish("in", payload, 1).reason == 0
        with entity(running, "late").plain() as worker:
            assert complete_all(worker, 1) == [payload.decode()]
        entity(running, "outgoing").send(payload.decode())
        assert device.receive(payload)
        assert "forwards nothing" not in told(running, "list")
        for name in ("late", "outgoing"):
            assert barid("queue", "delete", name, "--yes", "--admin", admin).returncode == 0
    assert is_refused(device.publish("in", b"", 1).reason)


def test_a_deleted_binding_gives_back_what_it_has(brokers_with, device, entity):
    """Deletes a binding in the middle of many messages: each was published or is still in the queue, in order."""
    running = brokers_with(queue("many"))
    subscriber, many = device(running), entity(running, "many")
    subscriber.subscribe("out/one", 1)
    for first in range(0, 5000, 500):
        many.sender.send_messages([ServiceBusMessage(f"{first + number}", session_id="one") for number in range(500)])
    told(running, "set", "out", "--from-queue", "many", "--publish", "out/{session}")
    until(lambda: subscriber.messages.qsize() > 0)
    told(running, "delete", "out", "--yes")
    with many.accept("one", receive_mode=DELETE) as worker:
        kept = [int(body) for body in texts(worker.receive_messages(max_message_count=5000, max_wait_time=10))]
    published = [int(subscriber.receive().payload) for _ in range(kept[0] if kept else 5000)]
    assert published + kept == list(range(len(published) + len(kept)))
    assert subscriber.silent()


def test_counts_in_metrics(brokers_with, connect):
    running = brokers_with(queue("a", RequiresSession=False) + binding("in", filter="in", queue="a")
                          + queue("s") + binding("strict", filter="strict", queue="s"))
    device = connect(to=running)
    *passed, refused = [device.publish(topic, b"x", 1).reason for topic in ("in", "in", "strict")]
    assert passed == [0, 0]
    assert is_refused(refused)
    assert running.metric('^barid_binding_messages_total{tenant="default",binding="in",way="in",outcome="passed"}') == 2
    assert running.metric('^barid_binding_messages_total{tenant="default",binding="strict",way="in",outcome="refused"}') == 1
