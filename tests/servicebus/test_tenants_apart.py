"""Two tenants with entities of the same names: whatever one of them tries, it does not reach the other."""

import time
import uuid

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from amqp_codec import Array, Int, Timestamp, Uint
from amqp_wire import Closed, Connection, Message, Node, Refused, connect, put_token
from azure_client import complete_all
from namespace import Namespace, config_json
from sas import token

TENANTS = ("acme", "globex")
CONFIG = "".join(f"""
    [[keys]]
    name = "{tenant}/root"
    key = "key of {tenant}"
    rights = ["Manage"]
    [[queues]]
    tenant = "{tenant}"
    name = "jobs"
    properties = {{ RequiresSession = true }}
    [[queues]]
    tenant = "{tenant}"
    name = "plain"
    properties = {{ RequiresDuplicateDetection = true }}
    [[queues]]
    tenant = "{tenant}"
    name = "forwards"
    properties = {{ ForwardTo = "plain" }}
    [[topics]]
    tenant = "{tenant}"
    name = "news"
    subscriptions = [{{ name = "s" }}]
""" for tenant in TENANTS) + """
    [[keys]]
    name = "root"
    key = "key of default"
    rights = ["Manage"]
    [[queues]]
    tenant = "globex"
    name = "secret"
    [[queues]]
    tenant = "globex"
    name = "sessions"
    properties = { RequiresSession = true }
    [[topics]]
    tenant = "globex"
    name = "rumours"
    subscriptions = [{ name = "s" }]
"""


@pytest.fixture(scope="module")
def both():
    running = Namespace(config_json({}, {}), config=CONFIG)
    yield running
    running.end()


@pytest.fixture
def enter(dial, both):
    """An AMQP session with the key of a tenant."""
    return lambda tenant: dial(both, f"{tenant}/root" if tenant != "default" else "root", f"key of {tenant}").session()


def test_the_same_names_are_different_queues(both, client):
    clients = {tenant: client(both.connection_string(f"{tenant}/root", f"key of {tenant}")) for tenant in TENANTS}
    for tenant, connected in clients.items():
        for body in "ab":
            connected.get_queue_sender("jobs").send_messages(ServiceBusMessage(f"{tenant} {body}", session_id="s"))
    for tenant, connected in clients.items():
        with connected.get_queue_receiver("jobs", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            assert complete_all(receiver, 2) == [f"{tenant} a", f"{tenant} b"]
            receiver.session.set_state(tenant)
    for tenant, connected in clients.items():
        with connected.get_queue_receiver("jobs", session_id="s") as receiver:
            assert receiver.session.get_state() == tenant.encode()


FORMS = [
    "{}", "/{}", "//{}", "globex/{}", "/globex/{}", "globex:{}", "globex@{}", "sb://globex/{}", "sb://localhost/globex/{}", "amqp://globex@localhost/{}",
    "amqps://globex:key@localhost:5672/{}", "../globex/{}", "acme/../globex/{}", "./{}", "%67lobex/{}", "globex%2F{}", "default/{}", "{}\x00", "\x00{}",
    "globex\x00{}", "{}?tenant=globex", "{}#globex", "sb://globex.servicebus.windows.net/{}", "tenants/globex/{}", "$tenant/globex/{}",
]


@pytest.mark.parametrize("intruder", ["acme", "default"])
@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_address_leads_to_another_tenant(enter, intruder, form):
    for name in ("secret", "secret/$DeadLetterQueue", "secret/$management", "rumours/Subscriptions/s", "rumours/subscriptions/s/$management", "rumours"):
        address = form.format(name)
        session = enter(intruder)
        for attach in (session.receiver, session.sender):
            with pytest.raises(Refused) as refused:
                attach(address)
            assert refused.value.condition in ("amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed", "amqp:invalid-field",
                                               "com.microsoft:argument-error")
        with pytest.raises(Refused):
            session.accept(form.format("sessions"), "s")
    enter("globex").sender("secret")


def test_a_key_of_another_tenant_needs_its_own_secret(both, client):
    for name, key in (("globex/root", "key of acme"), ("globex/root", "key of default"), ("acme/root", "key of globex"), ("root", "key of acme")):
        with pytest.raises(ServiceBusAuthenticationError):
            client(both.connection_string(name, key)).get_queue_sender("plain").send_messages(ServiceBusMessage("x"))


def test_one_connection_has_one_tenant(both, enter):
    """With both keys it still does not see both."""
    session = enter("acme")
    audience = "sb://localhost/secret"
    answer = put_token(session, audience, "globex/root", "key of globex")
    assert answer.application["status-code"] == 401
    with pytest.raises(Refused):
        session.sender("secret")
    session.sender("plain")


def test_a_token_counts_for_the_tenant_of_its_key(both):
    for audience in ("sb://localhost/secret", "sb://localhost/globex/secret", "sb://globex/secret", "sb://localhost/"):
        connection = Connection(("127.0.0.1", both.amqp_port))
        connection.sasl()
        connection.open()
        session = connection.session()
        signed = token(audience, "acme/root", "key of acme", time.time() + 60)
        answer = put_token(session, audience, signed=signed.replace("acme%2Froot", "globex%2Froot"))
        assert answer.application["status-code"] == 401, "the name of the key is not signed, but the key is the other's"
        assert put_token(session, audience, signed=signed).application["status-code"] in (202, 401, 404)
        for address in ("secret", "globex/secret"):
            with pytest.raises(Refused):
                session.sender(address)
        connection.close()


def test_answers_do_not_go_to_the_links_of_others(enter):
    """Not even if a request names the reply address of somebody else."""
    victim, intruder = enter("globex"), enter("acme")
    listening = Node(victim, "secret/$management", reply_to="my-replies")
    node = Node(intruder, "plain/$management", reply_to="its-own")
    for reply_to in ("my-replies", listening.answers.name, "secret/$management"):
        node.requests.transfer(Message.of_value(
            {"from-sequence-number": 1, "message-count": Int(1)}, ["id", None, None, None, reply_to], {"operation": "com.microsoft:peek-message"}).encode())
    assert victim.connection.silent(0.5, "transfer")
    assert listening.request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})[0] in (200, 204)


def test_sessions_of_the_same_name_are_locked_each_for_itself(enter):
    acme, globex = enter("acme"), enter("globex")
    first, second = acme.accept("jobs", "same"), globex.accept("jobs", "same")
    for tenant, session, link in (("acme", acme, first), ("globex", globex, second)):
        session.sender("jobs").send(Message.of(tenant, "same"))
        delivery = link.receive()[0]
        assert delivery.message.data == tenant.encode()
        link.complete(delivery)


def test_tokens_numbers_and_links_of_others_are_nothing(enter):
    """Everything that proves a lock elsewhere proves nothing here."""
    acme, globex = enter("acme"), enter("globex")
    globex.sender("jobs").send(Message.of("theirs", "victim"))
    holder = globex.accept("jobs", "victim")
    [delivery] = holder.receive()
    node = Node(acme, "jobs/$management")
    tokens, link = Array((delivery.token,)), holder.name
    requests = [
        ("renew-lock", {"lock-tokens": tokens}), ("renew-session-lock", {"session-id": "victim"}),
        ("get-session-state", {"session-id": "victim"}), ("set-session-state", {"session-id": "victim", "session-state": b"stolen"}),
        ("update-disposition", {"disposition-status": "completed", "lock-tokens": tokens, "session-id": "victim"}),
        ("receive-by-sequence-number", {"sequence-numbers": Array((delivery.message.number,)), "receiver-settle-mode": Uint(0), "session-id": "victim"}),
        ("cancel-scheduled-message", {"sequence-numbers": Array((delivery.message.number,))}),
    ]
    for operation, body in requests:
        assert node.request(operation, body, link=link)[0] >= 400, operation
    status, body, _ = node.request("get-message-sessions", {"last-updated-time": Timestamp(253_402_300_800_000), "skip": Int(0), "top": Int(100)})
    assert status == 204 or "victim" not in body["sessions-ids"].items
    status, body, _ = node.request("peek-message", {"from-sequence-number": 1, "message-count": Int(100)})
    assert status == 204 or all(Message.decode(one["message"]).data != b"theirs" for one in body["messages"])
    holder.complete(delivery)


def test_forwarding_stays_within_the_tenant(enter):
    for tenant in TENANTS:
        enter(tenant).sender("forwards").send(Message.of(f"forwarded {tenant}", message_id=uuid.uuid4()))
    for tenant in TENANTS:
        [delivery] = enter(tenant).receiver("plain", mode=0).receive()
        assert delivery.message.data == f"forwarded {tenant}".encode()


@pytest.mark.parametrize("to", ["secret", "globex/secret", "sb://globex/secret"])
def test_a_queue_cannot_be_told_to_forward_elsewhere(to):
    """Either the configuration is refused, or what is sent stays with its tenant."""
    config = CONFIG + f"""
        [[queues]]
        tenant = "acme"
        name = "leak"
        properties = {{ ForwardTo = "{to}", ForwardDeadLetteredMessagesTo = "{to}" }}
    """
    try:
        running = Namespace(config_json({}, {}), config=config)
    except RuntimeError as refused:
        assert "leak" in str(refused) or to in str(refused)
        return
    try:
        acme = connect(("127.0.0.1", running.amqp_port), "acme/root", "key of acme").session()
        try:
            acme.sender("leak").send(Message.of("leaked"))
        except (Refused, Closed):
            pass
        globex = connect(("127.0.0.1", running.amqp_port), "globex/root", "key of globex").session()
        globex.receiver("secret", mode=0).flow(1)
        assert globex.connection.silent(0.7, "transfer")
    finally:
        running.close()


def test_message_ids_are_remembered_for_each_tenant(enter):
    for tenant in TENANTS:
        enter(tenant).sender("plain").send(Message.of(f"same id {tenant}", message_id="same"))
    for tenant in TENANTS:
        [delivery] = enter(tenant).receiver("plain", mode=0).receive()
        assert delivery.message.data == f"same id {tenant}".encode()


def test_topics_of_the_same_name_do_not_meet(enter):
    for tenant in TENANTS:
        enter(tenant).sender("news").send(Message.of(tenant))
    for tenant in TENANTS:
        session = enter(tenant)
        receiver = session.receiver("news/Subscriptions/s", mode=0)
        assert receiver.receive()[0].message.data == tenant.encode()
        receiver.flow(1)
        assert session.connection.silent(0.3, "transfer")
        rules = Node(session, "news/Subscriptions/s/$management")
        if tenant == TENANTS[0]:
            assert rules.request("remove-rule", {"rule-name": "$Default"})[0] == 200
        else:
            assert rules.request("enumerate-rules", {"top": Int(10), "skip": Int(0)})[0] == 200
