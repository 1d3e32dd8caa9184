"""Keys: who has none, the wrong one, an old one, or one for something else."""

import time
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError

from azure_client import complete_all
from namespace import KEY, KEY_NAME, named
from sas import token

# A key with one right each, and one for one queue only.
KEYS = """
    [[keys]]
    name = "all"
    key = "key of all"
    rights = ["Manage"]
    [[keys]]
    name = "sender"
    key = "key of sender"
    rights = ["Send"]
    [[keys]]
    name = "listener"
    key = "key of listener"
    rights = ["Listen"]
    [[keys]]
    name = "one"
    key = "key of one"
    rights = ["Send", "Listen"]
    entity = "rights/test_a_key_can_be_for_one_entity/mine"
"""


def refused(do) -> None:
    with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
        do()


@pytest.fixture
def restricted(own_broker, client):
    """A broker with keys; a client for each."""
    running = own_broker(KEYS)
    return lambda name: client(running.connection_string(name, f"key of {name}"))


def send(connected, path: str) -> None:
    connected.get_queue_sender(path).send_messages(ServiceBusMessage("x"), timeout=5)


def receive(connected, path: str, **options):
    return connected.get_queue_receiver(path, **options).receive_messages(max_wait_time=2)


@pytest.mark.queue()
def test_a_wrong_key_is_refused(queue, broker, client):
    for name, key in ((KEY_NAME, "wrong"), ("nobody", KEY), (KEY_NAME, KEY.lower())):
        with pytest.raises(ServiceBusAuthenticationError):
            send(client(broker.connection_string(name, key)), queue.path)
    assert queue.peek() == []


@pytest.mark.queue()
def test_an_expired_token_is_refused(queue, broker, client):
    audience = f"sb://127.0.0.1:{broker.amqp_port}/{queue.path}"
    endpoint = f"Endpoint=sb://127.0.0.1:{broker.amqp_port};UseDevelopmentEmulator=true;SharedAccessSignature="
    expired, fresh = token(audience, KEY_NAME, KEY, time.time() - 5), token(audience, KEY_NAME, KEY, time.time() + 60)
    refused(lambda: send(client(endpoint + expired), queue.path))
    send(client(endpoint + fresh), queue.path)
    assert complete_all(queue.plain(), 1) == ["x"]


@pytest.mark.queue()
def test_a_token_is_for_what_it_names(queue, broker, client):
    host = f"sb://127.0.0.1:{broker.amqp_port}"
    endpoint = f"Endpoint={host};UseDevelopmentEmulator=true;SharedAccessSignature="
    parent, _, name = queue.path.rpartition("/")
    for scope, allowed in ((queue.path, True), ("", True), (parent, True), (queue.path.upper(), True), ("another", False),
                           (queue.path[:-1], False), (f"{queue.path}/$management", False), (f"{parent}/{name}x", False)):
        connected = client(endpoint + token(f"{host}/{scope}", KEY_NAME, KEY, time.time() + 60))
        if allowed:
            send(connected, queue.path)
        else:
            refused(lambda: send(connected, queue.path))


@pytest.mark.queue()
def test_a_token_that_was_changed_is_refused(queue, broker, client):
    audience = f"sb://127.0.0.1:{broker.amqp_port}/{queue.path}"
    endpoint = f"Endpoint=sb://127.0.0.1:{broker.amqp_port};UseDevelopmentEmulator=true;SharedAccessSignature="
    until = int(time.time() + 60)
    good = token(audience, KEY_NAME, KEY, until)
    for changed in (good.replace(f"se={until}", f"se={until + 3600}"), good.replace("sr=sb", "sr=Sb"), good.replace("sig=", "sig=A"),
                    "SharedAccessSignature ", "SharedAccessSignature sr=&sig=&se=&skn=", "no token"):
        refused(lambda: send(client(endpoint + changed), queue.path))


@pytest.mark.queue()
def test_credentials_of_all_kinds(queue, broker, client):
    """By name and key, and by signature."""
    host = f"127.0.0.1:{broker.amqp_port}"
    for credential in (AzureNamedKeyCredential(KEY_NAME, KEY),
                       AzureSasCredential(token(f"sb://{host}/{queue.path}", KEY_NAME, KEY, time.time() + 60))):
        with ServiceBusClient(host, credential, use_tls=False, retry_total=0) as connected:
            send(connected, queue.path)
    assert complete_all(queue.plain(), 2) == ["x", "x"]


@pytest.mark.queue()
def test_who_may_send_may_not_listen(restricted, request):
    path = named(request.node, "")
    send(restricted("sender"), path)
    refused(lambda: receive(restricted("sender"), path))
    refused(lambda: restricted("sender").get_queue_receiver(path).peek_messages())
    assert len(receive(restricted("listener"), path)) == 1


@pytest.mark.queue()
def test_who_may_listen_may_not_send(restricted, request):
    path = named(request.node, "")
    refused(lambda: send(restricted("listener"), path))
    due = datetime.now(timezone.utc) + timedelta(minutes=1)
    refused(lambda: restricted("listener").get_queue_sender(path).schedule_messages(ServiceBusMessage("x"), due))
    assert receive(restricted("listener"), path) == []


@pytest.mark.queue()
def test_who_may_manage_may_do_everything(restricted, request):
    path = named(request.node, "")
    send(restricted("all"), path)
    assert len(receive(restricted("all"), path)) == 1


@pytest.mark.queue("mine")
@pytest.mark.queue("other")
def test_a_key_can_be_for_one_entity(restricted, request):
    mine, other = named(request.node, "mine"), named(request.node, "other")
    send(restricted("one"), mine)
    refused(lambda: send(restricted("one"), other))
    refused(lambda: receive(restricted("one"), other))
    assert len(receive(restricted("one"), mine)) == 1


@pytest.mark.queue()
def test_with_keys_of_ones_own_the_one_of_the_emulator_does_not_count(own_broker, client, request):
    running = own_broker(KEYS)
    with pytest.raises(ServiceBusAuthenticationError):
        send(client(running.connection_string()), named(request.node, ""))


@pytest.mark.queue("jobs", RequiresSession=True)
def test_what_is_not_there_is_not_told_to_strangers(restricted, request):
    """With a key for one entity nobody learns what others there are."""
    with pytest.raises(ServiceBusError) as there:
        send(restricted("one"), "rights/test_what_is_not_there_is_not_told_to_strangers/jobs")
    with pytest.raises(ServiceBusError) as nowhere:
        send(restricted("one"), "rights/nowhere")
    assert type(there.value) is type(nowhere.value)
