"""docs/message-sessions.md: its programs and commands do what it says.

A comment before a block says what is done with it:

    <!-- tested: NAME -->                 written to a file of that name; no program goes without
    <!-- tested: starts the broker -->    run beside those files; the others then talk to that broker
    <!-- tested -->                       commands: run beside those files, each with a broker that has just been started
    <!-- tested: with TLS -->             the same, when ca.pem is the authority of the broker's certificate
    <!-- tested: prints -->               all that the commands before it print
    <!-- tested: keys -->                 a configuration

The ports of the page are those that are usual. Here each broker has others, so they are replaced in all that is run.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError, ServiceBusError

import guide
from broker import BINARY, Broker, free_port

PAGE = guide.Page("message-sessions.md")
PROGRAMS = ("python", "js", "json")
NODE_MODULES = Path(__file__).parent / "js" / "node_modules"


class Guided(Broker):
    """The broker that the page starts, in a directory with the programs of the page; with certificates also over TLS."""

    def __init__(self, directory: Path, config: str = "", tls: bool = False):
        self.beside, self.tls = directory, tls
        super().__init__(config)

    def arguments(self) -> list:
        ports = {"5672": self.amqp_port, "8083": self.ws_port, "5671": free_port(), "8084": free_port()}
        for name, language, text in PAGE.blocks:
            if language in PROGRAMS:
                (self.beside / name).write_text(re.sub(r"(?<=[: ])(567[12]|808[34])\b", lambda usual: str(ports[usual[0]]), text))
        [command] = PAGE.marked("starts the broker")
        barid, serve, *words = command.split()
        assert (barid, serve) == ("barid", "serve")
        secure = ["--amqps", f"127.0.0.1:{ports['5671']}", "--wss", f"127.0.0.1:{ports['8084']}"]
        return [self.beside / word if (self.beside / word).exists() else word for word in words] + self.tls * secure

    def run(self, commands: str) -> str:
        port = f'[ "$1" = pub ] && set -- "$@" -p {self.port}'
        return guide.run(commands, self.beside, f'{port}\nexec {BINARY} "$@"', BARID_TOOLS_ADMIN=f"127.0.0.1:{self.admin_port}")

    def connection_string(self, name: str, key: str) -> str:
        [template] = re.findall(r"```text\n(Endpoint=.*;)\n```", PAGE.text)
        where = template.replace("HOST:PORT", f"127.0.0.1:{self.amqp_port}")
        return where.replace("=NAME;", f"={name};").replace("=KEY;", f"={key};")


@pytest.fixture
def guided(tmp_path):
    started = []
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)

    def start(config: str = "", **options) -> Guided:
        started.append(Guided(tmp_path, config, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_no_program_of_the_page_goes_untested():
    for language in (*PROGRAMS, "sh"):
        fences = len(re.findall(rf"^```{language}$", PAGE.text, re.MULTILINE))
        marked = sum(kind == language for _, kind, _ in PAGE.blocks)
        assert marked == fences > 0, language


@pytest.mark.parametrize("block, printed", PAGE.commands(), ids=lambda given: given and given.splitlines()[0][:40])
def test_the_commands_and_programs(guided, block, printed):
    found = guided().run(block)
    assert printed in (None, found)


def test_the_programs_over_tls(guided, certificates, tmp_path):
    shutil.copy(certificates.certificate("ca"), tmp_path / "ca.pem")
    running = guided(certificates.toml(), tls=True)
    [(block, _)] = PAGE.commands("with TLS")
    running.run(block)
    counts = json.loads(running.run("barid queue show jobs --json"))["counts"]
    assert counts["active"] == 4


def test_the_connection_string_is_printed(guided):
    running = guided()
    assert running.connection_string("RootManageSharedAccessKey", "SAS_KEY_VALUE") in running.stderr


def test_what_keys_are_for(guided):
    [config] = PAGE.marked("keys")
    running = guided(config)
    running.run("barid queue create private --tenant acme")

    def send(name: str, key: str, queue: str) -> None:
        string = running.connection_string(name, key)
        with ServiceBusClient.from_connection_string(string, retry_total=0) as client, client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("x", session_id="s"))

    send("shop", "a long secret", "orders")
    send("acme/worker", "another secret", "private")
    with pytest.raises(ServiceBusAuthorizationError, match="Unauthorized access to '.*': no valid token with the right to do that"):
        send("shop", "a long secret", "jobs")
    with pytest.raises(ServiceBusAuthenticationError):
        send("acme/worker", "another secret", "orders")
    with pytest.raises(ServiceBusError):
        send("RootManageSharedAccessKey", "SAS_KEY_VALUE", "orders")


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_what_survives(guided, killed):
    running = guided()
    string = running.connection_string("RootManageSharedAccessKey", "SAS_KEY_VALUE")
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages([ServiceBusMessage(text, session_id="ada") for text in ("done", "abandoned", "in hand")])
        receiver = client.get_queue_receiver("orders", session_id="ada").__enter__()
        done, abandoned, in_hand = receiver.receive_messages(max_message_count=3, max_wait_time=5)
        receiver.complete_message(done)
        receiver.abandon_message(abandoned)
        receiver.session.set_state("two left")
        running.kill9() if killed else running.stop()
    running.start()
    string = running.connection_string("RootManageSharedAccessKey", "SAS_KEY_VALUE")
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        with client.get_queue_receiver("orders", session_id="ada") as receiver:
            assert receiver.session.get_state() == b"two left"
            left = receiver.receive_messages(max_message_count=3, max_wait_time=5)
            assert [(str(one), one.delivery_count, one.sequence_number) for one in left] == [
                ("abandoned", 1, abandoned.sequence_number), ("in hand", 0, in_hand.sequence_number)]
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("new", session_id="ada"))
            [new] = receiver.receive_messages(max_wait_time=5)
            gap = new.sequence_number - in_hand.sequence_number - 1
            assert 0 < gap <= 2 ** 21 if killed else gap == 0
