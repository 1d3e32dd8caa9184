"""What an operator and a service do beside the dashboard: requests to the admin API, and messages in queues."""

from __future__ import annotations

import http.client
import json

from azure.servicebus import ServiceBusClient, ServiceBusMessage


class Admin:
    """Asks the admin address of a broker, as a program on this machine."""

    def __init__(self, broker):
        self.broker = broker

    def ask(self, method: str, path: str, body=None, token: str | None = None, **headers) -> tuple[int, dict | None]:
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.admin_port, timeout=15)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text.startswith(b"{") else None

    def does(self, method: str, path: str, body=None, token: str | None = None) -> dict | None:
        status, answer = self.ask(method, path, body, token)
        assert status < 300, (method, path, status, answer)
        return answer


def bury(broker, queue: str, *bodies: str, reason: str = "Unreadable") -> None:
    """Sends messages to a queue, and makes dead letters of them."""
    text = (f"Endpoint=sb://127.0.0.1:{broker.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;")
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage(body, message_id=f"id-{body}") for body in bodies])
        with client.get_queue_receiver(queue) as receiver:
            for _ in bodies:
                [message] = receiver.receive_messages(1, max_wait_time=5)
                receiver.dead_letter_message(message, reason=reason, error_description="no JSON")
