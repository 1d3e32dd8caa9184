"""paho-mqtt with its callbacks turned into queues that a test can wait for."""

from __future__ import annotations

import queue
import socket
import ssl

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

SECONDS = 15.0


class Refused(Exception):
    """The broker answered CONNECT with another reason code than 0; `code` is that one."""

    def __init__(self, reason):
        super().__init__(str(reason))
        self.code = reason.value


def properties(packet: int, values: dict) -> Properties | None:
    """MQTT 5 properties by their names without spaces, as in `UserProperty`; None for none."""
    if not values:
        return None
    made = Properties(packet)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Paho:
    """A connected client. `messages` has what arrived, `disconnected` the reason codes of its ends."""

    def __init__(self, broker, client_id: str = "", version: int = 5, transport: str = "tcp", clean: bool = True,
                 username: str | None = None, password: str | None = None, will: dict | None = None, keep_alive: int = 60,
                 certificate: str | None = None, alpn: list[str] | None = None, **connect_properties):
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.disconnected: queue.Queue[int] = queue.Queue()
        self.failures: list[str] = []
        self.version = version
        self._connected: queue.Queue = queue.Queue()
        self._granted: queue.Queue = queue.Queue()
        self.client = client = Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, reconnect_on_failure=False,
                                      transport="websockets" if transport.startswith("ws") else "tcp",
                                      clean_session=None if version == 5 else clean)
        if transport in ("ws", "wss"):
            client.ws_set_options("/mqtt")
        if transport in ("tls", "wss"):
            client.tls_set_context(self._tls(broker.certificates, certificate, alpn))
        if username:
            client.username_pw_set(username, password)
        if will:
            client.will_set(**will)
        client.on_connect = lambda _c, _u, flags, reason, props: self._connected.put((flags, reason, props))
        client.on_subscribe = lambda _c, _u, _mid, reasons, _p: self._granted.put([reason.value for reason in reasons])
        client.on_unsubscribe = lambda _c, _u, _mid, reasons, _p: self._granted.put([reason.value for reason in reasons])
        client.on_disconnect = lambda _c, _u, _flags, reason, _p: self.disconnected.put(reason.value)
        client.on_message = lambda _c, _u, message: self.messages.put(message)
        fresh = {}
        if version == 5:
            fresh = {"clean_start": clean, "properties": properties(PacketTypes.CONNECT, connect_properties)}
        port = broker.port if transport == "tcp" else broker.port_of(transport)
        client.connect("localhost", port, keep_alive, **fresh)
        client.loop_start()
        flags, reason, self.connack = self._connected.get(timeout=SECONDS)
        self.session_present = flags.session_present
        if reason.is_failure:
            client.loop_stop()
            raise Refused(reason)

    @staticmethod
    def _tls(certificates, name: str | None, alpn: list[str] | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=certificates.certificate("ca"))
        if name:
            context.load_cert_chain(certificates.certificate(name), certificates.key(name))
        if alpn:
            context.set_alpn_protocols(alpn)
        return context

    def subscribe(self, pattern: str, qos: int = 0, identifier: int | None = None, **options) -> int:
        """Subscribes, waits for SUBACK and answers with its code."""
        if self.version == 5:
            props = properties(PacketTypes.SUBSCRIBE, {"SubscriptionIdentifier": identifier} if identifier else {})
            self.client.subscribe(pattern, options=SubscribeOptions(qos, **options), properties=props)
        else:
            self.client.subscribe(pattern, qos)
        return self._granted.get(timeout=SECONDS)[0]

    def unsubscribe(self, pattern: str) -> None:
        self.client.unsubscribe(pattern)
        self._granted.get(timeout=SECONDS)

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, wait: bool = True, **props) -> None:
        """Publishes, and waits until it is acknowledged as its QoS demands (QoS 0: written)."""
        info = self.client.publish(topic, payload, qos, retain, properties(PacketTypes.PUBLISH, props))
        if wait:
            info.wait_for_publish(SECONDS)
            if not info.is_published():
                self.failures.append(f"{topic} with QoS {qos} was not acknowledged in time")

    def receive(self, timeout: float = SECONDS) -> MQTTMessage:
        return self.messages.get(timeout=timeout)

    def payloads(self, count: int) -> list[bytes]:
        return [self.receive().payload for _ in range(count)]

    def silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing arrives for a while."""
        try:
            self.messages.get(timeout=seconds)
            return False
        except queue.Empty:
            return True

    def vanish(self) -> None:
        """Ends the Network Connection without DISCONNECT."""
        self.client.socket().shutdown(socket.SHUT_RDWR)
        self.disconnected.get(timeout=SECONDS)
        self.client.loop_stop()

    def leave(self, **props) -> None:
        """DISCONNECT, if still connected."""
        if self.client.is_connected():
            if self.version == 5:
                self.client.disconnect(properties=properties(PacketTypes.DISCONNECT, props))
            else:
                self.client.disconnect()
        self.client.loop_stop()
