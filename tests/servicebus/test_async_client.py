"""The asynchronous half of the SDK, which has a transport of its own."""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, TransportType
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusAuthenticationError, SessionCannotBeLockedError

from azure_client import text, texts
from namespace import named


@pytest.fixture
def run(request, broker):
    """Runs an asynchronous test, given a client and the path of its queue."""

    def run_(test, **options) -> None:
        async def connected():
            async with ServiceBusClient.from_connection_string(broker.connection_string(), retry_total=0, **options) as client:
                await asyncio.wait_for(test(client, named(request.node, "")), 40)

        asyncio.run(connected())

    return run_


async def send(client, path: str, *bodies, session: str | None = None) -> None:
    async with client.get_queue_sender(path) as sender:
        for body in bodies:
            await sender.send_messages(ServiceBusMessage(body, session_id=session))


async def take(receiver, count: int) -> list:
    messages = []
    while len(messages) < count:
        more = await receiver.receive_messages(max_message_count=count - len(messages), max_wait_time=5)
        assert more, f"{len(messages)} of {count} messages"
        messages += more
    return messages


@pytest.mark.queue(RequiresSession=True)
def test_a_session_is_worked_through(run):
    async def test(client, path):
        await send(client, path, *"abc", session="s")
        async with client.get_queue_receiver(path, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            assert receiver.session.session_id == "s"
            first, second = await take(receiver, 2)
            await receiver.session.set_state("two")
            await receiver.abandon_message(first)
            await receiver.complete_message(second)
            again = await take(receiver, 2)
            assert texts(again) == ["a", "c"]
            assert [message.delivery_count for message in again] == [1, 0]
            await receiver.complete_message(again[0])
            await receiver.dead_letter_message(again[1], reason="because")
            assert await receiver.session.get_state() == b"two"
            assert await receiver.session.renew_lock() > datetime.now(timezone.utc)
        async with client.get_queue_receiver(path, sub_queue="deadletter") as dead:
            [message] = await take(dead, 1)
            assert (text(message), message.dead_letter_reason) == ("c", "because")

    run(test)


@pytest.mark.queue(RequiresSession=True, LockDuration="PT3S")
def test_many_workers_and_a_renewer(run):
    async def test(client, path):
        async with client.get_queue_sender(path) as sender:
            await sender.send_messages([ServiceBusMessage(f"{number}", session_id=f"s{number % 10}") for number in range(50)])
        done: dict[str, list[str]] = {}

        async def work(renewer):
            while True:
                try:
                    async with client.get_queue_receiver(path, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1.5) as receiver:
                        renewer.register(receiver, receiver.session)
                        for message in await take(receiver, 5):
                            await receiver.complete_message(message)
                            done.setdefault(receiver.session.session_id, []).append(text(message))
                except OperationTimeoutError:
                    return

        async with AutoLockRenewer() as renewer:
            await asyncio.gather(*(work(renewer) for _ in range(5)))
        assert done == {f"s{first}": [f"{first + 10 * number}" for number in range(5)] for first in range(10)}

    run(test)


@pytest.mark.queue(RequiresSession=True)
def test_refusals(run):
    async def test(client, path):
        async with client.get_queue_receiver(path, session_id="s"):
            with pytest.raises(SessionCannotBeLockedError):
                async with client.get_queue_receiver(path, session_id="s"):
                    pass
        with pytest.raises(ServiceBusAuthenticationError):
            await send(client, "nowhere", "a")

    run(test)


@pytest.mark.queue()
def test_scheduling_deferring_and_peeking(run):
    async def test(client, path):
        async with client.get_queue_sender(path) as sender, client.get_queue_receiver(path) as receiver:
            numbers = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")],
                                                     datetime.now(timezone.utc) + timedelta(seconds=1))
            assert texts(await receiver.peek_messages(5, sequence_number=1)) == ["a", "b"]
            await sender.cancel_scheduled_messages(numbers[0])
            [message] = await take(receiver, 1)
            await receiver.defer_message(message)
            [deferred] = await receiver.receive_deferred_messages(message.sequence_number)
            assert text(deferred) == "b"
            await receiver.complete_message(deferred)

    run(test)


@pytest.mark.queue(RequiresSession=True)
def test_over_a_websocket(run, broker):
    async def test(client, path):
        await send(client, path, "a", "x" * 200_000, session="s")
        async with client.get_queue_receiver(path, session_id="s") as receiver:
            messages = await take(receiver, 2)
            assert texts(messages) == ["a", "x" * 200_000]
            for message in messages:
                await receiver.complete_message(message)

    run(test, transport_type=TransportType.AmqpOverWebsocket, custom_endpoint_address=f"sb://127.0.0.1:{broker.ws_port}")
