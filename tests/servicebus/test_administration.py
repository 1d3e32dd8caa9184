"""ServiceBusAdministrationClient: queues, topics, subscriptions and rules over HTTP."""

import datetime as dt
import json
import socket
import ssl
import subprocess
import sys
import uuid

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError
from azure.servicebus.management import (CorrelationRuleFilter, EntityStatus, FalseRuleFilter, ServiceBusAdministrationClient, SqlRuleAction,
                                         SqlRuleFilter, TrueRuleFilter)

import guide
import sas
from administration import Managed, described
from azure_client import DEAD, take_one, text
from broker import BINARY, ending, until
from namespace import KEY, KEY_NAME, config_json

SECONDS = dt.timedelta(seconds=1)
FAR = 4_000_000_000


@pytest.fixture(scope="module")
def managed(certificates):
    running = Managed(config_json({}, {}), certificates)
    yield running
    running.end()


@pytest.fixture
def admin(managed):
    return managed.administrator()


@pytest.fixture
def name():
    return f"n{uuid.uuid4().hex[:12]}"


@pytest.fixture
def own(certificates):
    with ending() as started:
        def start(config: str = "", tls: bool = False) -> Managed:
            started.append(Managed(config_json({}, {}), certificates if tls else None, config))
            return started[-1]

        yield start


class TestEntities:
    def test_a_queue_is_made_found_changed_and_deleted(self, managed, admin, name):
        made = admin.create_queue(f"{name}/Q", requires_session=True, lock_duration=5 * SECONDS, max_delivery_count=3,
                                  default_message_time_to_live=dt.timedelta(days=14), user_metadata="<&\"'> ä\n")
        assert made.name == f"{name}/Q" and made.requires_session and made.lock_duration == 5 * SECONDS
        found = admin.get_queue(f"{name}/q")
        assert (found.max_delivery_count, found.user_metadata, found.status) == (3, "<&\"'> ä\n", "Active")
        assert found.default_message_time_to_live == dt.timedelta(days=14)
        found.max_delivery_count = 7
        admin.update_queue(found)
        # Other tools see the same queue, under the name that it was given first.
        _, answer = managed.http(f"/v1/tenants/default/queues/{name}%2Fq")
        assert json.loads(answer)["name"] == f"{name}/Q"
        assert json.loads(answer)["properties"]["MaxDeliveryCount"] == 7
        with pytest.raises(ResourceExistsError):
            admin.create_queue(f"{name}/q")
        admin.delete_queue(f"{name}/Q")
        for gone in (admin.get_queue, admin.delete_queue, admin.get_queue_runtime_properties):
            with pytest.raises(ResourceNotFoundError):
                gone(f"{name}/Q")

    def test_what_is_not_named_in_a_change_has_its_default_again(self, admin, name):
        admin.create_queue(f"{name}-target")
        queue = admin.create_queue(name, forward_to=f"{name}-target", user_metadata="x")
        assert queue.forward_to.endswith(f"/{name}-target")
        queue.forward_to = queue.user_metadata = None
        admin.update_queue(queue)
        queue = admin.get_queue(name)
        assert queue.forward_to is None and queue.user_metadata is None

    def test_topics_subscriptions_and_rules(self, admin, name):
        admin.create_topic(name, max_size_in_megabytes=2)
        assert admin.get_topic(name).max_size_in_megabytes == 2
        first = admin.create_subscription(name, "All", max_delivery_count=2)
        assert first.name == "All" and admin.get_subscription(name, "all").max_delivery_count == 2
        assert [(rule.name, type(rule.filter)) for rule in admin.list_rules(name, "All")] == [("$Default", TrueRuleFilter)]
        values = {"i": 7, "l": 5_000_000_000, "d": 1.5, "s": " x ", "b": True,
                  "t": dt.datetime(2026, 7, 5, 11, 12, 13, tzinfo=dt.timezone.utc)}
        admin.create_rule(name, "All", "typed", filter=CorrelationRuleFilter(label="", session_id="s", properties=values))
        found = admin.get_rule(name, "All", "TYPED").filter
        assert dict(found.properties) == values and found.session_id == "s"
        admin.create_rule(name, "All", "none", filter=FalseRuleFilter())
        assert isinstance(admin.get_rule(name, "All", "none").filter, FalseRuleFilter)
        rule = admin.create_rule(name, "All", "sql", filter=SqlRuleFilter("a < 1"), action=SqlRuleAction("SET b = '&'"))
        assert (rule.filter.sql_expression, rule.action.sql_expression) == ("a < 1", "SET b = '&'")
        rule.filter = SqlRuleFilter("a > 2")
        admin.update_rule(name, "All", rule)
        assert admin.get_rule(name, "All", "sql").filter.sql_expression == "a > 2"
        with pytest.raises(HttpResponseError, match="cannot be understood"):
            admin.create_rule(name, "All", "bad", filter=SqlRuleFilter("a >"))
        with pytest.raises(ResourceExistsError):
            admin.create_rule(name, "All", "Sql")
        admin.delete_rule(name, "All", "$Default")
        assert [rule.name for rule in admin.list_rules(name, "All")] == ["typed", "none", "sql"]
        admin.delete_topic(name)
        with pytest.raises(ResourceNotFoundError):
            admin.get_subscription(name, "All")

    def test_lists_have_pages(self, admin, name):
        for number in range(205):
            admin.create_queue(f"{name}-{number:03}")
        listed = [queue.name for queue in admin.list_queues() if queue.name.startswith(name)]
        assert listed == [f"{name}-{number:03}" for number in range(205)]
        assert len([queue for queue in admin.list_queues_runtime_properties() if queue.name.startswith(name)]) == 205

    def test_messages_are_counted_where_they_are(self, managed, admin, name):
        admin.create_queue(name)
        admin.create_topic(f"{name}-t")
        admin.create_subscription(f"{name}-t", "s")
        with ServiceBusClient.from_connection_string(managed.connection_string()) as client:
            later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
            with client.get_queue_sender(name) as sender:
                for body in ("a", "b", "c"):
                    sender.send_messages(ServiceBusMessage(body))
                sender.schedule_messages(ServiceBusMessage("later"), later)
            with client.get_topic_sender(f"{name}-t") as sender:
                sender.send_messages(ServiceBusMessage("x"))
            with client.get_queue_receiver(name) as receiver:
                message = take_one(receiver)
                assert text(message) == "a"
                receiver.dead_letter_message(message)
                until(lambda: admin.get_queue_runtime_properties(name).dead_letter_message_count == 1)
            found = admin.get_queue_runtime_properties(name)
            assert dt.timedelta() <= dt.datetime.now(dt.timezone.utc) - found.created_at_utc < dt.timedelta(minutes=5)
            assert found.created_at_utc <= found.updated_at_utc
            assert (found.active_message_count, found.scheduled_message_count, found.total_message_count) == (2, 1, 4)
            assert found.size_in_bytes > 0
            until(lambda: admin.get_queue_runtime_properties(name).accessed_at_utc.year > 2000)
            assert admin.get_subscription_runtime_properties(f"{name}-t", "s").active_message_count == 1
            topic = admin.get_topic_runtime_properties(f"{name}-t")
            assert (topic.subscription_count, topic.sql_filter_count, topic.correlation_filter_count) == (1, 1, 0)
            with client.get_queue_receiver(name, sub_queue=DEAD) as receiver:
                assert text(take_one(receiver)) == "a"

    def test_they_outlive_a_crash(self, own, name):
        broker = own()
        broker.administrator().create_queue(name, auto_delete_on_idle=dt.timedelta(hours=1), enable_express=True)
        before = broker.administrator().get_queue_runtime_properties(name).created_at_utc
        broker.kill9()
        broker.start()
        assert broker.administrator().get_queue_runtime_properties(name).created_at_utc == before
        found = broker.administrator().get_queue(name)
        assert found.auto_delete_on_idle == dt.timedelta(hours=1) and found.enable_express

    def test_the_namespace_is_the_tenant(self, admin):
        assert admin.get_namespace_properties().name == "default"


def test_what_nobody_uses_is_deleted(managed, admin, name, client):
    admin.create_queue(name, auto_delete_on_idle=2 * SECONDS)
    admin.create_queue(f"{name}-held", auto_delete_on_idle=2 * SECONDS)
    with client(managed.connection_string()) as used, used.get_queue_receiver(f"{name}-held"):
        # Uses are noted every 10 s.
        until(lambda: name not in [queue.name for queue in admin.list_queues()], 45)
        assert admin.get_queue(f"{name}-held").name == f"{name}-held"
    told = f'deleted an entity that nobody has used (AutoDeleteOnIdle) tenant="default" entity="{name}"'
    until(lambda: told in managed.stderr)


def test_a_rule_has_the_time_of_its_creation(own, name):
    managed = own()
    admin = managed.administrator()
    admin.create_topic(name)
    admin.create_subscription(name, "s")
    before = dt.datetime.now(dt.timezone.utc) - SECONDS
    admin.create_rule(name, "s", "own", filter=SqlRuleFilter("a = 1"))
    created = admin.get_rule(name, "s", "own").created_at_utc
    assert before < created < dt.datetime.now(dt.timezone.utc) + SECONDS
    # Neither a change nor another rule makes it younger.
    changed = admin.get_rule(name, "s", "own")
    changed.filter = SqlRuleFilter("a = 2")
    admin.update_rule(name, "s", changed)
    admin.create_rule(name, "s", "another", filter=TrueRuleFilter())
    managed.kill9()
    managed.start()
    admin = managed.administrator()
    times = {rule.name: rule.created_at_utc for rule in admin.list_rules(name, "s")}
    assert times["own"] == created <= times["another"] and times["$Default"] <= created
    admin.delete_topic(name)


def set_status(admin, queue: str, status: str) -> None:
    found = admin.get_queue(queue)
    found.status = status
    admin.update_queue(found)
    assert admin.get_queue(queue).status.lower() == status.lower()


def test_a_status_keeps_clients_from_sending_and_receiving(managed, admin, client, name):
    assert admin.create_queue(name).status == EntityStatus.ACTIVE
    with client(managed.connection_string()) as bus, bus.get_queue_sender(name) as sender, bus.get_queue_receiver(name) as receiver:
        sender.send_messages(ServiceBusMessage("1"))
        take_one(receiver)
        set_status(admin, name, EntityStatus.SEND_DISABLED)
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("2"))
        with pytest.raises(MessagingEntityDisabledError), bus.get_queue_sender(name) as another:
            another.send_messages(ServiceBusMessage("2"))
        set_status(admin, name, EntityStatus.RECEIVE_DISABLED)
        sender.send_messages(ServiceBusMessage("3"))
        # The receiver that is there has to go.
        with pytest.raises(MessagingEntityDisabledError):
            receiver.receive_messages(1, max_wait_time=5)
    with client(managed.connection_string()) as bus:
        with pytest.raises(MessagingEntityDisabledError), bus.get_queue_receiver(name, sub_queue="deadletter") as another:
            another.receive_messages(1, max_wait_time=1)
        set_status(admin, name, EntityStatus.DISABLED)
        with pytest.raises(MessagingEntityDisabledError), bus.get_queue_sender(name) as another:
            another.send_messages(ServiceBusMessage("4"))
        set_status(admin, name, EntityStatus.ACTIVE)
        with bus.get_queue_receiver(name) as another:
            assert text(take_one(another)) == "3"
    admin.delete_queue(name)


def test_a_disabled_topic_takes_nothing_and_a_disabled_subscription_still_collects(managed, admin, client, name):
    admin.create_topic(name, status=EntityStatus.DISABLED)
    admin.create_subscription(name, "s", status=EntityStatus.RECEIVE_DISABLED)
    assert admin.get_topic(name).status == EntityStatus.DISABLED
    with client(managed.connection_string()) as bus:
        with pytest.raises(MessagingEntityDisabledError), bus.get_topic_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("1"))
        topic = admin.get_topic(name)
        topic.status = EntityStatus.ACTIVE
        admin.update_topic(topic)
        with bus.get_topic_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("2"))
        with pytest.raises(MessagingEntityDisabledError), bus.get_subscription_receiver(name, "s") as receiver:
            receiver.receive_messages(1, max_wait_time=1)
        assert admin.get_subscription_runtime_properties(name, "s").active_message_count == 1
        subscription = admin.get_subscription(name, "s")
        subscription.status = EntityStatus.ACTIVE
        admin.update_subscription(name, subscription)
        with bus.get_subscription_receiver(name, "s") as receiver:
            assert text(take_one(receiver)) == "2"
    admin.delete_topic(name)


@pytest.mark.parametrize("properties, reason", [
    ("<Status>Off</Status>", "Status: &quot;Off&quot; is not a value"),
    ("<AuthorizationRules><AuthorizationRule/></AuthorizationRules>", "AuthorizationRules: not supported"),
    ("<LockDuration>1 minute</LockDuration>", "is no duration"),
    ("<LockDuration>PT0S</LockDuration>", "LockDuration is PT0S, but must be"),
    ("<MaxDeliveryCount>many</MaxDeliveryCount>", "MaxDeliveryCount: &quot;many&quot; is not a value"),
    ("<Colour>red</Colour>", "Colour: there is no such property"),
    ("<ForwardTo>nowhere</ForwardTo>", "there is no queue or topic of that name"),
])
def test_what_is_wrong_is_said(managed, name, properties, reason):
    status, answer = managed.ask(f"/{name}", "PUT", described("Queue", properties))
    assert status in (400, 501) and reason in answer and "<Error><Code>" in answer, answer
    assert managed.ask(f"/{name}")[0] == 404


def test_a_fixed_property_cannot_be_changed(admin, name):
    queue = admin.create_queue(name)
    queue.requires_session = True
    with pytest.raises(HttpResponseError, match="RequiresSession is false and cannot be changed"):
        admin.update_queue(queue)


class TestWhoMay:
    KEYS = """
        [[keys]]
        name = "acme/manager"
        key = "one"
        rights = ["Manage"]
        [[keys]]
        name = "acme/orders"
        key = "two"
        rights = ["Manage"]
        entity = "orders"
        [[keys]]
        name = "acme/worker"
        key = "three"
        rights = ["Send", "Listen"]
        [[keys]]
        name = "other/manager"
        key = "four"
        rights = ["Manage"]
    """

    def test_a_key_needs_the_right(self, own):
        broker = own(self.KEYS)
        manager = broker.administrator("acme/manager", "one")
        manager.create_queue("orders")
        manager.create_queue("secrets")
        for key in (("acme/worker", "three"), ("acme/manager", "two"), ("nobody", "one"), (KEY_NAME, KEY)):
            with pytest.raises(ClientAuthenticationError):
                broker.administrator(*key).get_queue("orders")
        # A key of one entity manages that one.
        limited = broker.administrator("acme/orders", "two")
        assert limited.get_queue("orders").name == "orders"
        for forbidden in (lambda: limited.get_queue("secrets"), lambda: list(limited.list_queues()), lambda: limited.create_queue("more"),
                          lambda: limited.delete_queue("secrets"), limited.get_namespace_properties,
                          # What it may not send to, it may not fill by forwarding either.
                          lambda: limited.update_queue(limited.get_queue("orders"), forward_to="secrets")):
            with pytest.raises(HttpResponseError) as refused:
                forbidden()
            assert refused.value.status_code == 401
        assert {queue.name for queue in manager.list_queues()} == {"orders", "secrets"}
        # Another tenant sees nothing of it.
        other = broker.administrator("other/manager", "four")
        assert list(other.list_queues()) == []
        other.create_queue("orders", max_delivery_count=1)
        assert manager.get_queue("orders").max_delivery_count == 10

    def test_a_supplementary_token_lets_it_forward(self, own):
        broker = own(self.KEYS)
        manager = broker.administrator("acme/manager", "one")
        manager.create_queue("orders")
        manager.create_queue("secrets")
        url = f"http://127.0.0.1:{broker.management_port}"
        token = sas.token(f"{url}/orders", "acme/orders", "two", FAR)
        body = described("Queue", "<ForwardTo>secrets</ForwardTo>")
        for status, key in ((401, ("other/manager", "four")), (401, ("acme/manager", "two")), (200, ("acme/worker", "three"))):
            supplement = sas.token(f"{url}/secrets", *key, FAR)
            asked = broker.ask("/orders", "PUT", body, token=token, If_Match="*", ServiceBusSupplementaryAuthorization=supplement)
            assert asked[0] == status, asked
        assert manager.get_queue("orders").forward_to.endswith("/secrets")

    def test_requests_without_a_valid_token_are_refused(self, managed, name):
        url = f"http://127.0.0.1:{managed.management_port}"
        for token in ("", "Bearer x", "SharedAccessSignature x", sas.token(url, KEY_NAME, KEY, 1_000), sas.token(url, KEY_NAME, "no", FAR)):
            for path in ("/$Resources/queues", f"/{name}", "/$namespaceinfo", "/"):
                status, answer = managed.ask(path, token=token)
                assert status == 401 and "<Error><Code>401</Code>" in answer
        until(lambda: "refused requests to the administration of Service Bus" in managed.stderr)
        # A token of one entity is for no other.
        limited = sas.token(f"{url}/{name}", KEY_NAME, KEY, FAR)
        assert managed.ask(f"/{name}", "PUT", described("Queue"), token=limited)[0] == 201
        assert managed.ask(f"/{name}2", "PUT", described("Queue"), token=limited)[0] == 401
        assert managed.ask("/$Resources/queues", token=limited)[0] == 401
        assert "SAS_KEY_VALUE" not in managed.stderr.split("ready in", 1)[1]

    def test_who_is_banned_has_no_access(self, own):
        broker = own()
        assert broker.ask("/$Resources/queues")[0] == 200
        command = [BINARY, "ban", "add", "--address", "127.0.0.1", "--admin", f"127.0.0.1:{broker.admin_port}"]
        subprocess.run(command, check=True, capture_output=True)
        assert broker.ask("/$Resources/queues")[0] == 401

    def test_changes_are_in_the_log(self, managed, name):
        managed.ask(f"/{name}", "PUT", described("Queue"))
        until(lambda: f'path="/{name}"' in managed.stderr)
        line = next(line for line in managed.stderr.splitlines() if f'path="/{name}"' in line)
        assert f'by="{KEY_NAME}"' in line and "method=PUT" in line and "status=201" in line and "address=127.0.0.1:" in line


class TestListener:
    def test_health_needs_no_token(self, managed, admin):
        status, answer = managed.ask("/health", token="")
        assert status == 200 and json.loads(answer)["status"] == "healthy"
        admin.create_queue("health")
        assert admin.get_queue("health").name == "health"

    def test_tls_on_the_same_port(self, managed, certificates, monkeypatch, name):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates.certificate("ca")))
        client = ServiceBusAdministrationClient.from_connection_string(
            f"Endpoint=sb://localhost:{managed.management_port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}")
        assert client.create_queue(name).name == name

    def test_renewed_certificates_are_used(self, own, certificates):
        broker = own(tls=True)

        def fingerprint() -> bytes:
            context = ssl._create_unverified_context()
            with socket.create_connection(("127.0.0.1", broker.management_port), 10) as stream:
                with context.wrap_socket(stream) as secure:
                    return secure.getpeercert(True)

        before = fingerprint()
        certificates.issue("server")
        broker.reload((broker.directory / "barid.toml").read_text())
        until(lambda: fingerprint() != before)

    def test_the_network_gets_tls_only(self, certificates, tmp_path):
        base = [BINARY, "check-config"]
        config = tmp_path / "barid.toml"
        for toml, reason in (("", "there are no [[keys]] to sign with"), ('[[keys]]\nname="k"\nkey="x"\nrights=["Manage"]\n', "needs TLS")):
            config.write_text('[management]\naddress = "0.0.0.0:5300"\n' + toml)
            done = subprocess.run([*base, config], capture_output=True, text=True)
            assert done.returncode != 0 and reason in done.stdout + done.stderr
        config.write_text('[management]\naddress = "0.0.0.0:5300"\n[[keys]]\nname="k"\nkey="x"\nrights=["Manage"]\n' + certificates.toml())
        done = subprocess.run([*base, config], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def test_without_tls_the_network_is_not_answered(self, own, certificates):
        keys = '[[keys]]\nname = "k"\nkey = "x"\nrights = ["Manage"]\n'

        class Open(Managed):
            def arguments(self) -> list:
                return [word.replace("127.0.0.1:", "0.0.0.0:") if isinstance(word, str) else word for word in super().arguments()]

        broker = Open(config_json({}, {}), certificates, keys)
        try:
            with pytest.raises(OSError):
                broker.ask("/health", token="")
            context = ssl.create_default_context(cafile=certificates.certificate("ca"))
            assert broker.ask("/health", token="", scheme="https", context=context)[0] == 200
        finally:
            broker.close()

    @pytest.mark.parametrize("body", [
        b"", b"{}", b"<entry>", b"\xff" * 100, b"<entry xmlns='http://www.w3.org/2005/Atom'/>",
        b'<!DOCTYPE e [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><e>&b;</e>',
        b'<!DOCTYPE e [<!ENTITY a SYSTEM "file:///etc/passwd">]><e>&a;</e>',
        b"<a>" * 80_000, b"<e>" + b"<a/>" * 50_000 + b"</e>", b"<e " + b"".join(b"a%d='' " % n for n in range(20_000)) + b"/>",
    ], ids=range(10))
    def test_hostile_bodies_are_refused_quickly(self, managed, name, body):
        before, cpu = managed.memory(), managed.cpu()
        status, answer = managed.ask(f"/{name}", "PUT", body)
        assert status in (400, 413) and "root:" not in answer
        assert managed.memory() - before < 50 and managed.cpu() - cpu < 2
        assert managed.ask("/$Resources/queues")[0] == 200

    def test_requests_of_unusual_forms(self, managed, name):
        for method in ("POST", "PATCH", "OPTIONS", "TRACE"):
            assert managed.ask(f"/{name}", method, b"")[0] == 405
        for path, status in (("/a/subscriptions/b/c", 404), ("/%ff", 400), ("/$Resources/queues?$top=x", 400),
                             ("/$Resources/queues?$skip=18446744073709551615", 200), ("/$Resources/queues?$top=0", 200)):
            assert managed.ask(path)[0] == status, path
        assert managed.ask("/$Resources/queues", "DELETE")[0] == 405
        assert managed.ask(f"/{name}/subscriptions/s", "PUT", described("Queue"))[0] == 400
        with socket.create_connection(("127.0.0.1", managed.management_port), 10) as stream:
            stream.sendall(b"PUT /q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
            assert stream.recv(100).startswith(b"HTTP/1.1 411")

    def test_the_admin_api_is_not_there(self, managed):
        for path in ("/v1/tenants", "/metrics"):
            assert "MessagingEntity" not in managed.ask(path)[1] and managed.ask(path)[0] == 404


def test_the_program_of_the_page(own, tmp_path):
    page = guide.Page("operating/service-bus-administration.md")
    [program], [printed] = page.marked("administration.py"), page.marked("prints")
    broker = own()
    file = tmp_path / "administration.py"
    file.write_text(program.replace("5300", str(broker.management_port)))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60)
    assert done.stdout == printed, done.stderr
