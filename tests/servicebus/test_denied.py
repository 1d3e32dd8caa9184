"""What a client of AMQP was not allowed to do is seen, and its connection is counted and listed."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError

from amqp_wire import Connection, Refused, put_token
from broker import BINARY, until
from sas import token

KEYS = """
    [[keys]]
    name = "acme/sender"
    key = "key of sender"
    rights = ["Send"]
    [[keys]]
    name = "acme/all"
    key = "key of all"
    rights = ["Manage"]
    [[queues]]
    name = "orders"
    tenant = "acme"
"""


@pytest.fixture
def running(own_broker):
    return own_broker(KEYS)


def barid(broker, *arguments) -> str:
    command = [BINARY, *arguments, "--admin", f"127.0.0.1:{broker.admin_port}", "--tenant", "acme"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done
    return done.stdout


def denials(broker, tenant: str = "acme") -> list[dict]:
    return json.loads(broker.http(f"/v1/tenants/{tenant}/denials")[1]).get("denials", [])


def denied(broker, action: str, tenant: str = "acme") -> float:
    return broker.metric(rf'^barid_denied_total{{tenant="{tenant}",action="{action}"}}')


def lines(broker, *parts: str) -> list[str]:
    return [line for line in broker.stderr.splitlines() if all(part in line for part in parts)]


def connections(broker) -> list[dict]:
    return json.loads(broker.http("/v1/tenants/acme/amqp-connections")[1]).get("connections", [])


def send(client, path: str) -> None:
    with client.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("x"), timeout=5)


def test_a_token_with_another_key(running, client):
    """The tenant is known by the configuration, though nobody was there yet."""
    with pytest.raises(ServiceBusError):
        send(client(running.connection_string("acme/sender", "a guess")), "orders")
    until(lambda: lines(running, "INFO", "login denied", 'user="acme/sender"', "peer=127.0.0.1:"))
    assert not lines(running, "a guess"), "no key is written"
    assert denied(running, "login") == 1 and running.metric('^barid_refused_connects_total{tenant="acme"') == 1
    [denial] = denials(running)
    assert denial["action"] == "login" and denial["user"] == "acme/sender" and "signature" in denial["reason"]
    assert "login" in barid(running, "why", "--client", denial["client"])


@pytest.fixture
def stranger(running):
    """A connection that has proved nothing."""
    connection = Connection(("127.0.0.1", running.amqp_port))
    yield connection
    connection.close()


def test_a_token_that_has_expired(running, stranger):
    audience = f"sb://127.0.0.1:{running.amqp_port}/orders"
    stranger.sasl()
    stranger.open()
    signed = token(audience, "acme/sender", "key of sender", time.time() - 60)
    assert put_token(stranger.session(), audience, signed=signed).application["status-code"] == 401
    until(lambda: lines(running, "login denied", "expired", 'user="acme/sender"', "wire-"))


@pytest.mark.parametrize("response, user", [(b"\0acme/sender\0a guess", 'user="acme/sender"'), (b"acme/sender", ""), (b"", "")],
                         ids=["wrong", "malformed", "empty"])
def test_a_password_that_is_no_key(running, stranger, response, user):
    """SASL PLAIN."""
    assert stranger.sasl("PLAIN", response).code != 0
    until(lambda: lines(running, "INFO", "login denied", user))
    assert not lines(running, "a guess")
    assert denied(running, "login", "acme" if user else "default") == 1


def test_a_link_without_any_token(running, stranger):
    stranger.sasl()
    stranger.open()
    with pytest.raises(Refused):
        stranger.session().sender("orders")
    until(lambda: lines(running, "login denied", 'entity="orders"'))


def test_a_key_without_the_right(running, client):
    sender = client(running.connection_string("acme/sender", "key of sender"))
    with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
        with sender.get_queue_receiver("orders", max_wait_time=1) as receiver:
            receiver.receive_messages(1, max_wait_time=1)
    until(lambda: lines(running, "INFO", "receive denied", 'user="acme/sender"', 'entity="orders"'))
    assert denied(running, "receive") >= 1 and denied(running, "login") == 0


def test_a_request_without_the_right(running, client):
    sender = client(running.connection_string("acme/sender", "key of sender"))
    with pytest.raises(ServiceBusError):
        with sender.get_queue_receiver("orders", max_wait_time=1) as receiver:
            receiver.peek_messages(1, timeout=3)
    until(lambda: denied(running, "receive") + denied(running, "manage") >= 1)


def test_connections_are_counted_and_listed(running, client, dial):
    """Where the clients of MQTT are: in the gauge and the counters of the tenant, and in `barid session list`."""
    def gauge(name: str) -> float:
        return running.metric(rf'^{name}{{tenant="acme"}}')

    with client(running.connection_string("acme/sender", "key of sender")).get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        [connection] = connections(running)
        assert connection["key"] == "acme/sender" and connection["address"].startswith("127.0.0.1:") and connection["container"]
        assert gauge("barid_connections") == gauge("barid_amqp_connections") == 1 and gauge("barid_connects_total") == 1
        assert json.loads(running.http("/v1/tenants")[1])["tenants"][0]["connections"] == 1
        said = barid(running, "session", "list")
        assert connection["container"] in said and "acme/sender" in said
        assert json.loads(barid(running, "session", "list", "--json"))["amqp_connections"] == [connection]
    until(lambda: gauge("barid_connections") == gauge("barid_amqp_connections") == 0 and connections(running) == [])
    assert gauge("barid_connects_total") == 1 and gauge("barid_abnormal_disconnects_total") == 0


def test_tenants_do_not_see_each_others_connections(running, client):
    with client(running.connection_string("acme/all", "key of all")).get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        assert json.loads(running.http("/v1/tenants/default/amqp-connections")[1])["connections"] == []


def test_an_operator_closes_a_connection(running, dial):
    connection = dial(running, name="acme/all", key="key of all")
    until(lambda: connections(running))
    [listed] = connections(running)
    barid(running, "session", "drop", "--amqp", listed["id"])
    assert connection.expect("close").condition == "amqp:connection:forced"
    connection.say("close")
    until(lambda: connections(running) == [])
