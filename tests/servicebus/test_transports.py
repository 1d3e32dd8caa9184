"""Every way to the broker, and many at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from azure_client import complete_all, text
from namespace import KEY, KEY_NAME


def way(transport: str, broker, certificates) -> tuple[str, dict]:
    """The connection string and the options for a transport."""
    if transport == "tcp":
        return broker.connection_string(), {}
    if transport == "ws":
        return broker.connection_string(), {
            "transport_type": TransportType.AmqpOverWebsocket, "custom_endpoint_address": f"sb://127.0.0.1:{broker.ws_port}"}
    secure = f"Endpoint=sb://localhost;SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};"
    port = {"tls": broker.amqps_port, "wss": broker.wss_port}[transport]
    kind = {"tls": TransportType.Amqp, "wss": TransportType.AmqpOverWebsocket}[transport]
    return secure, {"transport_type": kind, "custom_endpoint_address": f"sb://localhost:{port}",
                    "connection_verify": str(certificates.certificate("ca"))}


@pytest.fixture(params=["tcp", "tls", "ws", "wss"])
def transport(request) -> str:
    return request.param


@pytest.fixture
def over(transport, broker, certificates, entity, client):
    """The queue of the test, over a transport."""
    connection_string, options = way(transport, broker, certificates)
    found = entity()
    found.client = client(connection_string, **options)
    return found


@pytest.mark.queue(RequiresSession=True)
def test_sessions_over_every_transport(over):
    over.send("a", "b", "x" * 300_000, session="s")
    receiver = over.accept_next()
    receiver.session.set_state("seen")
    assert complete_all(receiver, 3) == ["a", "b", "x" * 300_000]
    receiver.close()
    assert over.accept("s").session.get_state() == b"seen"


@pytest.mark.queue()
def test_the_certificate_is_checked(queue, broker, certificates, client):
    """The control: with another authority there is no connection."""
    connection_string, options = way("tls", broker, certificates)
    stranger = client(connection_string, **options | {"connection_verify": str(certificates.certificate("stranger"))})
    with pytest.raises(ServiceBusError):
        stranger.get_queue_receiver(queue.path).receive_messages(max_wait_time=2)


@pytest.mark.queue(RequiresSession=True)
def test_many_more_connections_than_ten(queue):
    """Each sender and receiver of the SDK has one of its own: here 64 are open at once, each with a session."""
    def work(number: int) -> tuple:
        session = f"s{number}"
        sender = queue.client.get_queue_sender(queue.path)
        queue._opened.append(sender)
        sender.send_messages(ServiceBusMessage(session, session_id=session), timeout=30)
        return queue.accept(session), session

    with ThreadPoolExecutor(16) as pool:
        held = list(pool.map(work, range(32)))
    for receiver, session in held:
        assert complete_all(receiver, 1) == [session]


@pytest.mark.queue()
def test_one_connection_string_serves_all_entities(queue, client, broker):
    """Also with the path of the entity in it, as the portal shows it."""
    connected = client(f"{broker.connection_string()}EntityPath={queue.path}")
    queue.send("a")
    with connected.get_queue_receiver(queue.path) as receiver:
        assert text(receiver.receive_messages(max_wait_time=5)[0]) == "a"
