"""A broker with the queues and topics that tests ask for, declared as the emulator's Config.json."""

from __future__ import annotations

import json
import re

from broker import Broker, free_port
from brokers import Member
from certificates import Certificates

KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"


class Namespace(Broker):
    """`barid serve --entities FILE`, listening for AMQP on TCP, TLS and both WebSockets."""

    def __init__(self, declared: dict, certificates: Certificates | None = None, config: str = "", tls: str = ""):
        self.declared, self.certificates = declared, certificates
        self.amqps_port, self.wss_port = free_port(), free_port()
        Broker.__init__(self, config + self.tls_settings(certificates, tls))

    def tls_settings(self, certificates: Certificates | None, more: str = "") -> str:
        if not certificates:
            return ""
        return f"""
            {certificates.toml(more)}
            [listeners.amqps]
            address = "127.0.0.1:{self.amqps_port}"
            [listeners.wss]
            address = "127.0.0.1:{self.wss_port}"
        """

    def arguments(self) -> list:
        entities = self.directory / "Config.json"
        entities.write_text("// The form of Microsoft's emulator, which allows comments.\n" + json.dumps(self.declared, indent=2))
        return ["--entities", entities]

    def connection_string(self, name: str = KEY_NAME, key: str = KEY, port: int | None = None) -> str:
        return connection_string(name, key, port or self.amqp_port)


class NamespaceMember(Namespace, Member):
    """A broker of a cluster whose brokers all have the same entities in their configuration."""

    def __init__(self, declared: dict, certificates: Certificates | None, *arguments, more: str = "", **options):
        self.declared, self.certificates = declared, certificates
        self.amqps_port, self.wss_port = free_port(), free_port()
        Member.__init__(self, *arguments, more=more + self.tls_settings(certificates), **options)


def connection_string(name: str, key: str, port: int) -> str:
    return f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;"


def config_json(queues: dict[str, dict], topics: dict[str, dict]) -> dict:
    """Queues are {name: properties}; topics {name: {"Properties": …, "Subscriptions": {name: {"Properties": …, "Rules": […]}}}}."""
    return {"UserConfig": {"Logging": {"Type": "File"}, "Namespaces": [{
        "Name": "sbemulatorns",
        "Queues": [{"Name": name, "Properties": properties} for name, properties in queues.items()],
        "Topics": [
            {"Name": name, "Properties": topic.get("Properties", {}), "Subscriptions": [
                {"Name": subscription, "Properties": of.get("Properties", {}), **({"Rules": of["Rules"]} if "Rules" in of else {})}
                for subscription, of in topic["Subscriptions"].items()
            ]} for name, topic in topics.items()
        ],
    }]}}


def path_of(item) -> str:
    """What the names of a test's entities begin with."""
    return f"{item.path.stem.removeprefix('test_')}/{re.sub(r'[^A-Za-z0-9_.-]+', '-', item.name).strip('-')}"


def named(item, suffix: str) -> str:
    return f"{path_of(item)}/{suffix}" if suffix else path_of(item)


def declared_by(items) -> dict:
    """What the marks of tests ask for; `{test}` in a property is what the names of the test's entities begin with."""
    queues, topics = {}, {}
    for item in items:
        def placed(properties: dict) -> dict:
            return {key: value.replace("{test}", path_of(item)) if isinstance(value, str) else value
                    for key, value in properties.items()}

        for mark in item.iter_markers("queue"):
            queues[named(item, *mark.args or [""])] = placed(mark.kwargs)
        for mark in item.iter_markers("topic"):
            suffix, subscriptions = mark.args if len(mark.args) == 2 else ("", *mark.args)
            subscriptions = {name: of | {"Properties": placed(of.get("Properties", {}))} for name, of in subscriptions.items()}
            topics[named(item, suffix)] = {"Properties": placed(mark.kwargs), "Subscriptions": subscriptions}
    return config_json(queues, topics)
