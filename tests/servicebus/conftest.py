"""A broker with the entities that the tests ask for, and clients that end with their test.

A test names what it needs by marks, with the properties of the emulator's Config.json:

    @pytest.mark.queue(RequiresSession=True, LockDuration="PT2S")
    def test_of_one_queue(queue): ...

    @pytest.mark.queue("requests")
    @pytest.mark.queue("replies", RequiresSession=True)
    def test_of_two_queues(entity): entity("requests").send("…")

    @pytest.mark.topic({"all": {}, "some": {"Rules": […]}})
    def test_of_a_topic(subscription): subscription("all").send("…")

One broker in each process has the entities of all tests, so that no test sees the messages of another.
"""

from __future__ import annotations

from functools import partial

import pytest
from azure.servicebus import ServiceBusClient

import amqp_wire
from azure_client import Entity
from broker import ending
from brokers import BROKERS, AnyBroker
from certificates import Certificates
from namespace import Namespace, NamespaceMember, declared_by, named


def pytest_configure(config):
    config.addinivalue_line("markers", "queue(suffix, **properties): a queue that the test needs")
    config.addinivalue_line("markers", "topic(suffix, subscriptions, **properties): a topic that the test needs")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def broker(request, certificates):
    declared = declared_by(request.session.items)
    member = partial(NamespaceMember, declared, certificates)
    running = AnyBroker(BROKERS, member=member) if BROKERS > 1 else Namespace(declared, certificates)
    yield running
    running.end()


@pytest.fixture
def own_broker(request, certificates):
    """A broker for this test alone, which it may stop; the settings, and more of those of TLS, are TOML."""
    with ending() as started:
        def start(config: str = "", tls: str = "") -> Namespace:
            started.append(Namespace(declared_by([request.node]), certificates, config, tls))
            return started[-1]

        yield start


@pytest.fixture
def client(broker):
    """Connects as the emulator's users do. What fails is not tried again, so that a test sees it."""
    opened = []

    def connect(connection_string: str | None = None, **options) -> ServiceBusClient:
        options = {"retry_total": 0} | options
        opened.append(ServiceBusClient.from_connection_string(connection_string or broker.connection_string(), **options))
        return opened[-1]

    return connect


@pytest.fixture
def dial():
    """A connection of our own client, by default one that may do everything."""
    opened = []

    def connect(to: Namespace, *arguments, **options) -> amqp_wire.Connection:
        opened.append(amqp_wire.connect(("127.0.0.1", to.amqp_port), *arguments, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def session(dial, broker) -> amqp_wire.Session:
    """An AMQP session of our own client."""
    return dial(broker).session()


@pytest.fixture
def path(request):
    """The path of a queue of this test."""
    return lambda suffix="": named(request.node, suffix)


@pytest.fixture
def entity(request, client):
    """The queue of this test with that suffix, or a subscription of its topic."""
    made = []

    def find(suffix: str = "", subscription: str | None = None, to: Namespace | None = None, **options) -> Entity:
        connected = client(to.connection_string() if to else None, **options)
        made.append(Entity(connected, named(request.node, suffix), subscription))
        return made[-1]

    yield find
    for one in made:
        one.close()


@pytest.fixture
def queue(entity) -> Entity:
    """The only queue of this test."""
    return entity()


@pytest.fixture
def subscription(entity):
    """A subscription of the only topic of this test."""
    return lambda name: entity("", name)
