"""Tests the checker itself: it must accept correct histories, and find each kind of error."""

from __future__ import annotations

import random
import time

import pytest

from checker import check
from history import (ABSENT, DELETE, DELETED, NEVER, NOT_APPLIED, NOTHING, OK, SET, TOKEN_REQUIRED, TOKEN_TOO_OLD, VALUE,
                     Answer, Operation, Sighting, Version)

KEY = b"k"


def version(number: int) -> Version:
    return Version(1000, number)


class Script:
    """A hand-written history. A request lasts from `begin` to `end`; one without an answer never ends."""

    def __init__(self):
        self.operations: list[Operation] = []
        self.sightings: list[Sighting] = []

    def ask(self, client: str, verb: str, begin: float, end: float | None, says: str | None = None, value: bytes | None = None,
            number: int | None = None, read: bytes | None = None, **more) -> Script:
        answer = says and Answer(says, read, None if number is None else version(number))
        self.operations.append(Operation(client, verb, KEY, begin, value, answered=NEVER if end is None else end, answer=answer, **more))
        return self

    def set(self, client, begin, end, value, number, verb="SET", **more) -> Script:
        return self.ask(client, verb, begin, end, OK, value, number, **more)

    def lost(self, client, begin, value, verb="SET", **more) -> Script:
        return self.ask(client, verb, begin, None, None, value, **more)

    def get(self, client, begin, end, value, number) -> Script:
        return self.ask(client, "GET", begin, end, VALUE, read=value, number=number)

    def absent(self, client, begin, end) -> Script:
        return self.ask(client, "GET", begin, end, ABSENT)

    def told(self, seen, number, value=None) -> Script:
        self.sightings.append(Sighting(version(number), DELETE if value is None else SET, value, seen))
        return self

    def problems(self, **options) -> list[str]:
        return check(self.operations, self.sightings, **options).problems

    def right(self) -> None:
        assert not self.problems()

    def wrong(self, word: str = "no order") -> None:
        problems = self.problems()
        assert problems and word in problems[0], problems


# -- reading and writing


def test_nothing_happened():
    Script().right()


def test_one_after_the_other():
    Script().absent("a", 0, 1).set("a", 2, 3, b"x", 1).get("b", 4, 5, b"x", 1).ask("b", "DEL", 6, 7, DELETED, number=2).absent("a", 8, 9).right()


def test_at_the_same_time_in_either_order():
    Script().set("a", 0, 10, b"x", 1).set("b", 0, 10, b"y", 2).get("c", 11, 12, b"y", 2).right()
    Script().set("a", 0, 10, b"x", 2).set("b", 0, 10, b"y", 1).get("c", 11, 12, b"x", 2).right()


def test_a_read_before_the_answer_to_the_write():
    Script().set("a", 0, 10, b"x", 1).get("b", 1, 2, b"x", 1).get("c", 3, 4, b"x", 1).right()


def test_stale_read():
    Script().set("a", 0, 1, b"x", 1).set("a", 2, 3, b"y", 2).get("b", 4, 5, b"x", 1).wrong()


def test_reading_backwards():
    Script().set("a", 0, 1, b"x", 1).set("a", 2, 9, b"y", 2).get("b", 3, 4, b"y", 2).get("c", 5, 6, b"x", 1).wrong()


def test_a_value_that_nobody_wrote():
    Script().set("a", 0, 1, b"x", 1).get("b", 2, 3, b"z", 5).wrong("was seen")


def test_a_value_with_another_version():
    Script().set("a", 0, 1, b"x", 1).get("b", 2, 3, b"y", 1).wrong("is b'x' and b'y'")


def test_lost_update():
    Script().set("a", 0, 1, b"x", 1).set("a", 2, 3, b"y", 2).absent("b", 4, 5).wrong()


def test_a_deletion_that_deleted_nothing():
    Script().set("a", 0, 1, b"x", 1).ask("b", "DEL", 2, 3, NOTHING).wrong()


def test_one_value_deleted_twice():
    (Script().set("a", 0, 1, b"x", 1).ask("b", "DEL", 2, 3, DELETED, number=2)
     .ask("c", "VDEL", 2, 3, DELETED, b"x", number=3).wrong())


def test_the_value_is_back_after_it_was_deleted():
    Script().set("a", 0, 1, b"x", 1).ask("a", "DEL", 2, 3, DELETED, number=2).get("b", 4, 5, b"x", 1).wrong()


def test_a_deletion_may_have_the_version_of_what_it_deletes():
    Script().set("a", 0, 1, b"x", 1).ask("a", "DEL", 2, 3, DELETED, number=1).set("a", 4, 5, b"y", 2).right()


def test_a_client_reads_its_own_writes():
    """Requests that are sent one after the other without waiting are carried out in that order."""
    Script().set("a", 0, 10, b"x", 1).get("a", 1, 10, b"x", 1).right()
    Script().set("a", 0, 10, b"x", 1).absent("a", 1, 10).wrong()
    Script().set("a", 0, 10, b"x", 1).absent("b", 1, 10).right()


def test_what_is_sent_again_may_be_carried_out_later():
    Script().ask("a", "GET", 0, 10, VALUE, read=b"x", number=1, resent=True).set("a", 1, 10, b"x", 1).right()
    Script().get("a", 0, 10, b"x", 1).set("a", 1, 10, b"x", 1).wrong()


# -- conditions


def test_conditions():
    (Script().set("a", 0, 1, b"a", 1, "NX").ask("b", "NX", 2, 3, NOT_APPLIED, b"b", 1).ask("b", "NEX", 4, 5, NOT_APPLIED, b"b", 1)
     .set("a", 6, 7, b"a", 2, "NEX").ask("b", "VDEL", 8, 9, NOT_APPLIED, b"b").ask("a", "VDEL", 10, 11, DELETED, b"a", 3)
     .set("b", 12, 13, b"b", 4, "NEX").ask("a", "VDEL", 14, 15, NOT_APPLIED, b"a").right())


def test_nx_twice():
    Script().set("a", 0, 10, b"a", 1, "NX").set("b", 0, 10, b"b", 2, "NX").wrong()


def test_nx_twice_is_right_with_a_deletion_between_that_nobody_was_told_of():
    Script().set("a", 0, 1, b"a", 1, "NX").ask("c", "DEL", 2, None).set("b", 5, 6, b"b", 2, "NX").right()


def test_nex_over_another_value():
    Script().set("a", 0, 1, b"a", 1).set("b", 2, 3, b"b", 2, "NEX").wrong()


def test_refused_although_absent():
    Script().ask("a", "NX", 0, 1, NOT_APPLIED, b"a", 1).wrong("was seen")
    Script().ask("a", "VDEL", 0, 1, NOT_APPLIED, b"a").wrong()


def test_refused_with_a_version_of_before():
    Script().set("a", 0, 1, b"a", 1).set("a", 2, 3, b"b", 2).ask("b", "NX", 4, 5, NOT_APPLIED, b"c", 1).wrong()


def test_vdel_of_another_value():
    Script().set("a", 0, 1, b"a", 1).ask("b", "VDEL", 2, 3, DELETED, b"b", 2).wrong()


# -- versions


def test_a_version_goes_back():
    Script().set("a", 0, 1, b"x", 2).set("a", 2, 3, b"y", 1).wrong()


def test_a_version_goes_back_over_a_deletion():
    Script().set("a", 0, 1, b"x", 2).ask("a", "DEL", 2, 3, DELETED, number=3).set("b", 4, 5, b"y", 1).wrong()


def test_a_version_given_twice():
    Script().set("a", 0, 1, b"x", 1).set("a", 2, 3, b"y", 1).wrong("two changes with one version")


def test_a_version_below_what_was_given_before():
    script = Script().set("a", 0, 1, b"x", 1)
    assert "not above" in check(script.operations, floor=version(1)).problems[0]


# -- fencing tokens


def test_fences():
    (Script().set("a", 0, 1, b"x", 1, fence=version(5)).ask("b", "SET", 2, 3, TOKEN_REQUIRED, b"y")
     .ask("b", "DEL", 4, 5, TOKEN_TOO_OLD, fence=version(4)).ask("b", "NX", 6, 7, NOT_APPLIED, b"y", 1, fence=version(9))
     .set("b", 8, 9, b"y", 2, fence=version(5)).set("b", 10, 11, b"z", 3, fence=version(7))
     .ask("a", "VDEL", 12, 13, TOKEN_TOO_OLD, b"z", fence=version(5)).get("c", 14, 15, b"z", 3)
     .ask("a", "DEL", 16, 17, DELETED, number=4, fence=version(8)).set("c", 18, 19, b"n", 5).right())


def test_a_fence_is_forgotten():
    Script().set("a", 0, 1, b"x", 1, fence=version(5)).set("b", 2, 3, b"y", 2).wrong()


def test_a_fence_goes_back():
    Script().set("a", 0, 1, b"x", 1, fence=version(5)).set("b", 2, 3, b"y", 2, fence=version(4)).wrong()


def test_a_refused_set_leaves_no_fence():
    (Script().set("a", 0, 1, b"x", 1).ask("b", "NX", 2, 3, NOT_APPLIED, b"y", 1, fence=version(5))
     .ask("a", "SET", 4, 5, TOKEN_REQUIRED, b"z").wrong())


def test_a_fence_outlives_the_key():
    (Script().set("a", 0, 1, b"x", 1, fence=version(5)).ask("a", "DEL", 2, 3, DELETED, number=2, fence=version(5))
     .ask("b", "SET", 4, 5, TOKEN_REQUIRED, b"y").wrong())


# -- time to live


def test_a_key_expires():
    (Script().set("a", 0, 0.1, b"x", 1, ttl=1.0).get("b", 0.9, 0.95, b"x", 1).get("b", 1.12, 1.15, b"x", 1)
     .absent("b", 1.21, 1.25).set("c", 2, 2.1, b"y", 2, "NX").right())


def test_a_key_expires_too_early():
    Script().set("a", 0, 0.1, b"x", 1, ttl=1.0).absent("b", 0.5, 0.99).wrong()


def test_a_key_expires_too_early_after_a_renewal():
    (Script().set("a", 0, 0.1, b"x", 1, "NEX", ttl=1.0).set("a", 0.8, 0.9, b"x", 2, "NEX", ttl=1.0)
     .absent("b", 1.2, 1.3).wrong())


def test_a_key_expires_too_late():
    Script().set("a", 0, 0.1, b"x", 1, ttl=1.0).get("b", 1.3, 1.4, b"x", 1).wrong()


def test_a_time_to_live_begins_anew():
    """A crash could cause this: the key is gone at first, then back with a longer time to live."""
    Script().set("a", 0, 0.1, b"x", 1, ttl=1.0).absent("b", 1.1, 1.15).get("b", 1.16, 1.18, b"x", 1).wrong()


def test_a_time_to_live_is_forgotten():
    Script().set("a", 0, 0.1, b"x", 1, ttl=1.0).get("b", 60, 61, b"x", 1).wrong()


def test_a_set_without_px_ends_the_time_to_live():
    Script().set("a", 0, 0.1, b"x", 1, ttl=1.0).set("a", 0.2, 0.3, b"y", 2).get("b", 60, 61, b"y", 2).right()


def test_the_fence_goes_with_the_expired_key():
    Script().set("a", 0, 0.1, b"x", 1, ttl=1.0, fence=version(5)).set("b", 2, 3, b"y", 2).right()


def test_an_expired_key_deletes_nothing():
    Script().set("a", 0, 0.1, b"x", 1, ttl=1.0).ask("b", "DEL", 2, 3, DELETED, number=2).wrong()


# -- requests without an answer


def test_a_lost_request_happened_or_not():
    Script().set("a", 0, 1, b"x", 1).lost("b", 2, b"y").get("c", 4, 5, b"x", 1).right()
    Script().set("a", 0, 1, b"x", 1).lost("b", 2, b"y").get("c", 4, 5, b"y", 2).get("c", 6, 7, b"y", 2).right()


def test_a_lost_request_may_happen_late_but_once():
    (Script().set("a", 0, 1, b"x", 1).lost("b", 2, b"y").get("c", 4, 5, b"x", 1).get("c", 6, 7, b"y", 2)
     .set("a", 8, 9, b"z", 3).get("c", 10, 11, b"y", 2).wrong())


def test_a_lost_request_does_not_happen_twice():
    Script().lost("b", 2, b"y").get("c", 4, 5, b"y", 2).set("a", 6, 7, b"z", 3).get("c", 8, 9, b"y", 4).wrong()


def test_dup_applied_twice():
    """The request was answered once, and the key has the value again with a version of which no client was told."""
    Script().set("a", 0, 1, b"x", 1).set("b", 2, 3, b"y", 2).get("c", 4, 5, b"x", 3).wrong("was seen")
    Script().set("a", 0, 9, b"x", 1).set("b", 10, 11, b"y", 3).told(12, 1, b"x").told(12, 2, b"x").wrong("was seen")


def test_not_before_it_was_asked_for():
    Script().get("c", 0, 1, b"y", 1).lost("b", 2, b"y").wrong()


def test_a_client_that_goes_on_has_given_up_what_it_sent_before():
    Script().lost("a", 0, b"x").set("a", 2, 3, b"y", 1).get("c", 4, 5, b"x", 2).wrong()


def test_a_lost_request_may_be_a_straggler():
    """The client goes on with another broker, while the first one has its request still."""
    history = Script().lost("a", 0, b"x").set("a", 2, 3, b"y", 1).get("c", 4, 5, b"x", 2)
    history.wrong()
    assert not history.problems(strays=True)


def test_a_lost_fence():
    Script().lost("a", 0, b"x", fence=version(5)).ask("b", "SET", 2, 3, TOKEN_REQUIRED, b"y").right()


# -- notifications


def test_notifications_tell_what_happened():
    (Script().set("a", 0, 1, b"x", 1, ttl=5.0).told(1, 1, b"x").told(5.6, 2).set("b", 6, 7, b"y", 3, "NX").told(7, 3, b"y")
     .ask("b", "DEL", 8, 9, DELETED, number=4).told(9, 4).right())


def test_a_notification_of_what_did_not_happen():
    Script().set("a", 0, 1, b"x", 1).told(1, 2).set("b", 2, 3, b"x", 3, "NEX").wrong()


def test_a_notification_of_what_was_lost():
    """A change is told before the crash and missing after it."""
    Script().lost("a", 0, b"x").told(1, 1, b"x").absent("b", 2, 3).wrong()
    Script().lost("a", 0, b"x").told(1, 1, b"x").get("b", 2, 3, b"x", 1).right()


def test_a_notification_before_the_key_is_due():
    Script().set("a", 0, 1, b"x", 1, ttl=5.0).told(4, 2).wrong()


def test_unexpected_answers():
    Script().ask("a", "GET", 0, 1, "-ERR syntax error").wrong("unexpected")


# -- many requests


def generate(seed: int, operations: int, clients: int = 10, loss: float = 0.0) -> Script:
    """Returns a history of a correct store: each request takes effect at one moment between its begin and its end."""
    chance = random.Random(seed)
    script = Script()
    ends = dict.fromkeys(range(clients), 0.0)
    requests = []
    for number in range(operations):
        client = min(ends, key=ends.get)
        begin = ends[client] + chance.expovariate(100)
        moment = begin + chance.expovariate(200)
        ends[client] = moment + chance.expovariate(200)
        requests.append((moment, begin, ends[client], client, number))
    value = fence = None
    current, due, number = 0, NEVER, 0
    for moment, begin, end, client, serial in sorted(requests):
        if moment >= due:
            value, fence, due = None, None, NEVER
            number += 1
        verb = chance.choice(("SET", "NX", "NEX", "GET", "GET", "DEL", "VDEL"))
        given = b"%d" % chance.randrange(3) if chance.random() < 0.5 else b"%d/%d" % (client, serial)
        token = version(int(moment * 10) + chance.randrange(-2, 2)) if chance.random() < 0.3 else None
        ttl = chance.uniform(0.01, 0.3) if chance.random() < 0.3 else None
        if verb == "GET":
            answer, given, token, ttl = Answer(ABSENT) if value is None else Answer(VALUE, value, version(current)), None, None, None
        elif fence is not None and (token is None or token < fence):
            answer = Answer(TOKEN_REQUIRED if token is None else TOKEN_TOO_OLD)
        elif verb in ("DEL", "VDEL"):
            ttl = None
            if value is None:
                answer = Answer(NOTHING)
            elif verb == "VDEL" and given != value:
                answer = Answer(NOT_APPLIED)
            else:
                number += 1
                answer, value, fence, due = Answer(DELETED, None, version(number)), None, None, NEVER
        elif value is not None and (verb == "NX" or verb == "NEX" and given != value):
            answer = Answer(NOT_APPLIED, None, version(current))
        else:
            number += 1
            answer, value, current = Answer(OK, None, version(number)), given, number
            fence, due = token or fence, NEVER if ttl is None else moment + ttl
        one = Operation(f"c{client}", verb, KEY, begin, None if verb == "DEL" else given, ttl, token, answered=end, answer=answer)
        if chance.random() < loss:
            one.answered, one.answer = NEVER, None
        script.operations.append(one)
    return script


@pytest.mark.parametrize("seed", range(40))
def test_what_a_right_store_says_is_right(seed):
    script = generate(seed, 300, clients=1 + seed % 10, loss=0.05 * (seed % 3))
    assert not script.problems()


@pytest.mark.parametrize("seed", range(40))
def test_a_false_answer_is_seen(seed):
    """An applied SET is reported as refused, a refused request as applied, or a GET returns a value that nobody set."""
    script = generate(seed, 200, clients=4)
    chance = random.Random(seed)
    one = chance.choice([one for one in script.operations if one.answer.says in (OK, NOT_APPLIED, VALUE) and one.invoked > 0.1])
    top = version(100_000)
    if one.answer.says == OK:
        one.answer = Answer(TOKEN_TOO_OLD)
    elif one.answer.says == NOT_APPLIED:
        one.answer = Answer(DELETED if one.verb == "VDEL" else OK, None, top)
    else:
        one.answer = Answer(VALUE, b"nobody's", top)
    assert script.problems()


def test_thousands_of_requests_take_seconds():
    script = generate(1, 6000, clients=10, loss=0.01)
    begin = time.process_time()
    assert not script.problems()
    assert time.process_time() - begin < 10
