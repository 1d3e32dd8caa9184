"""Dead letters: how messages become one, what they keep, and that their queue has no sessions."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from azure_client import DEAD, DELETE, complete_all, nothing_comes, take, take_one, text, texts


@pytest.mark.queue(RequiresSession=True)
def test_a_dead_letter_keeps_everything_and_says_why(queue):
    queue.send("poison", session="s", message_id="id", subject="subject", correlation_id="correlation",
               content_type="text/plain", application_properties={"kept": 42})
    receiver = queue.accept("s")
    message = take_one(receiver)
    receiver.dead_letter_message(message, reason="Unreadable", error_description="no such command")
    assert nothing_comes(receiver)
    dead = take_one(queue.dead_letters())
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Unreadable", "no such command")
    assert (text(dead), dead.session_id, dead.message_id, dead.subject) == ("poison", "s", "id", "subject")
    assert (dead.correlation_id, dead.content_type) == ("correlation", "text/plain")
    assert dead.application_properties[b"kept"] == 42
    assert dead.enqueued_sequence_number == message.sequence_number


@pytest.mark.queue(RequiresSession=True)
def test_a_reason_is_not_needed(queue):
    queue.send("a", session="s")
    receiver = queue.accept("s")
    receiver.dead_letter_message(take_one(receiver))
    dead = take_one(queue.dead_letters())
    assert (text(dead), dead.dead_letter_reason) == ("a", None)


@pytest.mark.queue(RequiresSession=True)
def test_the_rest_of_the_session_goes_on(queue):
    queue.send(*"abc", session="s")
    receiver = queue.accept("s")
    receiver.dead_letter_message(take_one(receiver))
    assert complete_all(receiver, 2) == ["b", "c"]


@pytest.mark.queue(RequiresSession=True)
def test_dead_letters_of_all_sessions_are_one_plain_queue(queue):
    for session in "abc":
        queue.send(f"of {session}", session=session)
    for session in "abc":
        receiver = queue.accept(session)
        receiver.dead_letter_message(take_one(receiver))
    dead = queue.dead_letters()
    messages = take(dead, 3)
    assert texts(messages) == ["of a", "of b", "of c"]
    assert [message.session_id for message in messages] == list("abc")
    for message in messages:
        dead.complete_message(message)
    assert nothing_comes(dead)


@pytest.mark.queue()
def test_dead_letters_are_abandoned_deferred_peeked_and_deleted_too(queue):
    queue.send(*"abc")
    receiver = queue.plain()
    for message in take(receiver, 3):
        receiver.dead_letter_message(message)
    dead = queue.dead_letters()
    first, second = take(dead, 2)
    dead.abandon_message(first)
    dead.defer_message(second)
    assert texts(dead.peek_messages(max_message_count=5, sequence_number=1)) == ["a", "b", "c"]
    [deferred] = dead.receive_deferred_messages(second.sequence_number)
    dead.complete_message(deferred)
    assert texts(take(queue.dead_letters(receive_mode=DELETE), 2)) == ["a", "c"]
    assert nothing_comes(dead)


@pytest.mark.queue()
def test_nothing_can_be_sent_to_the_dead_letters(queue):
    queue.send("a")
    with pytest.raises(ServiceBusError):
        queue.client.get_queue_sender(f"{queue.path}/$DeadLetterQueue").send_messages(ServiceBusMessage("x"), timeout=5)
    assert nothing_comes(queue.dead_letters())


@pytest.mark.queue()
def test_their_address_is_understood_in_all_forms(queue):
    queue.send("a")
    receiver = queue.plain()
    receiver.dead_letter_message(take_one(receiver))
    for address in ("$deadletterqueue", "$DeadLetterQueue"):
        with queue.client.get_queue_receiver(f"{queue.path.upper()}/{address}") as dead:
            assert texts(dead.peek_messages()) == ["a"]


@pytest.mark.topic({"s": {"Properties": {"RequiresSession": True}}})
def test_a_subscription_has_dead_letters_of_its_own(subscription):
    here = subscription("s")
    here.send("a", session="x")
    receiver = here.accept("x")
    receiver.dead_letter_message(take_one(receiver), reason="no")
    assert take_one(here.receiver(sub_queue=DEAD)).dead_letter_reason == "no"


@pytest.mark.queue("source", ForwardDeadLetteredMessagesTo="{test}/graveyard", RequiresSession=True)
@pytest.mark.queue("graveyard")
def test_dead_letters_can_go_to_another_queue(entity):
    source, graveyard = entity("source"), entity("graveyard")
    source.send("a", session="s")
    receiver = source.accept("s")
    receiver.dead_letter_message(take_one(receiver), reason="because")
    dead = take_one(graveyard.plain())
    assert (text(dead), dead.session_id, dead.dead_letter_reason) == ("a", "s", "because")
    assert dead.dead_letter_source.lower() == source.path.lower()
    assert nothing_comes(source.dead_letters())
