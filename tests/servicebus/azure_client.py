"""azure-servicebus, Microsoft's SDK for Python, with what the tests do again and again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
DEAD = ServiceBusSubQueue.DEAD_LETTER
SECONDS = 15


def text(message) -> str:
    """The body of a message."""
    return b"".join(bytes(part) for part in message.body).decode()


def texts(messages) -> list[str]:
    return [text(message) for message in messages]


def take(receiver, count: int, seconds: float = SECONDS) -> list:
    """So many messages, in order of arrival; a receive call may return fewer."""
    messages, deadline = [], time.monotonic() + seconds
    while len(messages) < count:
        left = deadline - time.monotonic()
        assert left > 0, f"{len(messages)} of {count} messages in time: {texts(messages)}"
        messages += receiver.receive_messages(max_message_count=count - len(messages), max_wait_time=left)
    return messages


def take_one(receiver, seconds: float = SECONDS):
    return take(receiver, 1, seconds)[0]


def complete_all(receiver, count: int, seconds: float = SECONDS) -> list[str]:
    """The bodies of the next messages, which are completed."""
    messages = take(receiver, count, seconds)
    for message in messages:
        receiver.complete_message(message)
    return texts(messages)


def nothing_comes(receiver, seconds: float = 0.4) -> bool:
    return receiver.receive_messages(max_message_count=1, max_wait_time=seconds) == []


def annotation(message, name: str):
    return message.raw_amqp_message.annotations.get(name.encode())


class Entity:
    """A queue, or a topic with one of its subscriptions, as one test sees it."""

    def __init__(self, client: ServiceBusClient, path: str, subscription: str | None = None):
        self.client, self.path, self.subscription = client, path, subscription
        self._sender, self._opened = None, []

    @property
    def sender(self):
        """Opened when it is first needed."""
        if self._sender is None:
            make = self.client.get_topic_sender if self.subscription is not None else self.client.get_queue_sender
            self._sender = make(self.path)
            self._opened.append(self._sender)
        return self._sender

    def send(self, *bodies, session: str | None = None, **properties) -> None:
        """Sends one message after the other, and waits for each to be accepted."""
        for body in bodies:
            self.sender.send_messages(ServiceBusMessage(body, session_id=session, **properties), timeout=SECONDS)

    def receiver(self, **options):
        """A receiver, not yet attached: `with` attaches it, so does its first use."""
        if self.subscription is None:
            opened = self.client.get_queue_receiver(self.path, **options)
        else:
            opened = self.client.get_subscription_receiver(self.path, self.subscription, **options)
        self._opened.append(opened)
        return opened

    def plain(self, **options):
        """An attached receiver for an entity without sessions."""
        return self.receiver(**options).__enter__()

    def dead_letters(self, **options):
        return self.plain(sub_queue=DEAD, **options)

    def accept(self, session: str, **options):
        """Locks the session; the receiver that holds the lock."""
        return self.receiver(session_id=session, **options).__enter__()

    def accept_next(self, seconds: float = SECONDS, **options):
        """Locks the next session that has messages, waiting so long for one."""
        return self.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=seconds, **options).__enter__()

    def peek(self, count: int = 100, **options) -> list:
        """Without a lock on anything; only for entities without sessions and for dead letters, which have none."""
        return self.plain(**options).peek_messages(max_message_count=count)

    def close(self) -> None:
        """All that was opened, at once: the SDK takes a second to close one."""
        with ThreadPoolExecutor(max_workers=max(len(self._opened), 1)) as pool:
            list(pool.map(close_quietly, self._opened))


def close_quietly(opened) -> None:
    try:
        opened.close()
    except Exception:  # The broker may have been stopped by the test.
        pass
