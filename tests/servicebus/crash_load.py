"""Senders and session workers that remember what they were told, while the broker is killed."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from amqp_codec import Array, Int, Symbol, Timestamp, Uint
from amqp_wire import ACCEPTED, RECEIVER, RELEASED, SENDER, SESSION_FILTER, Closed, Link, Message, Node, Refused, connect, modified, rejected
from namespace import Namespace
from reopening import Reopening

GONE = (Closed, OSError, TimeoutError)
SESSIONS, SENDERS, WORKERS, IN_FLIGHT = 12, 3, 4, 50
LATER = Symbol("x-opt-scheduled-enqueue-time")
BUSY, DETACHED = "com.microsoft:server-busy", "amqp:link:detach-forced"


@dataclass
class Ledger:
    """What was promised, and whether it was kept. Messages are known by their bodies."""

    sent: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    gone: dict[str, str] = field(default_factory=dict)
    """Settled, and the broker has said so: completed, dead or deferred."""
    tried: set[str] = field(default_factory=set)
    """Settled without an answer: either came of it."""
    numbers: dict[int, str] = field(default_factory=dict)
    latest: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of a session and a sender: the highest of its messages that were delivered."""
    states: dict[str, list[bytes | None]] = field(default_factory=dict)
    """What a session's state may be: the last that was confirmed, and those that were tried since."""
    deferred: dict[str, tuple[str, int]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    holders: dict[str, int] = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def was_accepted(self, body: str) -> None:
        with self.lock:
            self.accepted.add(body)
            self.counts["accepted"] += 1

    def was_granted(self, session: str, life: int) -> None:
        with self.lock:
            if self.holders.get(session) == life:
                self.problem(f"session {session} was granted while it was held")
            self.holders[session] = life
            self.counts["sessions granted"] += 1

    def was_left(self, session: str) -> None:
        with self.lock:
            self.holders.pop(session, None)

    def was_delivered(self, session: str, message: Message) -> None:
        body = message.data.decode()
        sender, of_session, number = body.split(":")
        with self.lock:
            self.counts["deliveries"] += 1
            if of_session != session or body not in self.sent:
                self.problem(f"{body} in session {session}: nobody has sent that")
            if body in self.gone:
                self.problem(f"{body} came back, which had been {self.gone[body]}")
            if self.numbers.setdefault(message.number, body) != body:
                self.problem(f"number {message.number} is {body} and was {self.numbers[message.number]}")
            if not sender.startswith("later"):
                # Redeliveries are of what was seen before; what is new must be behind all that was seen.
                highest = self.latest.get((session, sender), -1)
                if int(number) < highest and body not in self.seen:
                    self.problem(f"{body} came first after {highest} of the same sender")
                self.latest[session, sender] = max(highest, int(number))
            self.seen.add(body)

    def is_settled(self, body: str, how: str, confirmed: bool) -> None:
        with self.lock:
            if confirmed:
                self.gone[body] = how
                self.counts[how] += 1
            else:
                self.tried.add(body)

    def state_is(self, session: str, state: bytes | None) -> None:
        with self.lock:
            possible = self.states.setdefault(session, [None])
            if state not in possible:
                self.problem(f"the state of {session} is {state!r}, and can be {possible}")
            self.states[session] = [state]

    def state_tried(self, session: str, state: bytes) -> None:
        with self.lock:
            self.states.setdefault(session, [None]).append(state)

    def state_confirmed(self, session: str, state: bytes) -> None:
        with self.lock:
            self.states[session] = [state]

    def lost(self) -> set[str]:
        return self.accepted - set(self.gone) - self.tried


class World:
    """`rounds` of traffic against a broker that is killed at the end of each; what is left to chance follows from `seed`.
    With `reopens`, its shards are closed and opened meanwhile."""

    def __init__(self, broker: Namespace, path: str, seed: int, kills: bool = True, reopens: bool = False):
        self.broker, self.path, self.seed, self.kills, self.reopens = broker, path, seed, kills, reopens
        self.chance, self.ledger = random.Random(seed), Ledger()
        self.life, self.up, self.over, self.draining = 0, threading.Event(), False, False
        """`life`: no lock of a session outlives it."""
        self.next_number: Counter = Counter()

    def run(self, rounds: int) -> Ledger:
        if not self.reopens:
            return self._run(rounds)
        # A lock that is granted after it was closed is one of another life than those before.
        reopening = Reopening(self.broker, self.seed, self._next_life, self._next_life)
        reopening.begin()
        try:
            return self._run(rounds, reopening.rest)
        finally:
            reopening.end()
            self.ledger.problems += reopening.problems
            self.ledger.counts["reopened"] = sum(reopening.times.values())

    def _next_life(self) -> None:
        with self.ledger.lock:
            self.life += 1

    def _run(self, rounds: int, calm=lambda: None) -> Ledger:
        self.up.set()
        senders = [threading.Thread(target=self._send, args=(f"sender{index}", random.Random(f"{self.seed}/{index}"))) for index in range(SENDERS)]
        senders.append(threading.Thread(target=self._send, args=("later", random.Random(f"{self.seed}/later"))))
        workers = [threading.Thread(target=self._work, args=(random.Random(f"{self.seed}/worker/{index}"),)) for index in range(WORKERS)]
        for thread in senders + workers:
            thread.start()
        for _ in range(rounds):
            time.sleep(self.chance.uniform(0.4, 1.5))
            self._crash()
        time.sleep(0.5)
        calm()
        self.over = True
        for thread in senders:
            thread.join()
        time.sleep(1)
        self.draining = True
        for thread in workers:
            thread.join(60)
            assert not thread.is_alive(), "the queue does not come to rest"
        self._count_the_rest()
        for body in sorted(self.ledger.lost())[:20]:
            self.ledger.problem(f"{body} was accepted and is lost ({'seen' if body in self.ledger.seen else 'never seen'})")
        return self.ledger

    def _crash(self) -> None:
        if not self.kills:
            return
        self.up.clear()
        self.broker.kill9()
        self._next_life()
        self.broker.start()
        self.up.set()
        self.ledger.counts["kills"] += 1

    def _connected(self, do, chance: random.Random) -> None:
        """Does it on one connection after the other until it is over."""
        while not do.ended():
            self.up.wait()
            life = self.life
            try:
                connection = connect(("127.0.0.1", self.broker.amqp_port))
            except GONE:
                time.sleep(0.02)
                continue
            connection.ends_with_links = self.reopens
            try:
                do(connection.session())
            except GONE as error:
                if self.up.is_set() and self.life == life and not self.kills:
                    self.ledger.problem(f"the broker went away: {error!r}")
            except Refused as error:
                if not self.reopens or error.condition not in (BUSY, DETACHED):
                    self.ledger.problem(f"refused: {error}")
                time.sleep(0.005)
            finally:
                connection.close()

    # ------------------------------------------------------------------------------------------------- senders

    def _send(self, name: str, chance: random.Random) -> None:
        def send(session) -> None:
            link, pending = session.sender(self.path), {}
            until = time.monotonic() + chance.uniform(0.5, 3)
            while (time.monotonic() < until and not self.over) or pending:
                if len(pending) < IN_FLIGHT and time.monotonic() < until and not self.over:
                    to = f"s{chance.randrange(SESSIONS)}"
                    body = f"{name}:{to}:{self.next_number[name, to]}"
                    self.next_number[name, to] += 1
                    message = Message.of(body, to)
                    if name == "later":
                        message.annotations[LATER] = Timestamp(int(time.time() * 1000) + chance.randrange(0, 700))
                    with self.ledger.lock:
                        self.ledger.sent.add(body)
                    pending[link.transfer(message.encode())] = body
                    if len(pending) % 16:
                        continue
                answer = session.expect("disposition", role=RECEIVER)
                for number in range(answer.first, (answer.first if answer.last is None else answer.last) + 1):
                    body = pending.pop(number)
                    if answer.state.descriptor == ACCEPTED.descriptor:
                        self.ledger.was_accepted(body)
                    elif not self.reopens or answer.state.value[0].value[0] != BUSY:
                        self.ledger.problem(f"{body} was refused: {answer.state}")
                if name == "later":
                    time.sleep(0.005)

        send.ended = lambda: self.over
        self._connected(send, chance)

    # ------------------------------------------------------------------------------------------------- workers

    def _work(self, chance: random.Random) -> None:
        idle = threading.Event()

        def work(session) -> None:
            node = Node(session, f"{self.path}/$management")
            for _ in range(chance.randrange(1, 10) if not self.draining else 1000):
                life = self.life
                try:
                    link = session.accept(self.path, None, properties={Symbol("com.microsoft:timeout"): Uint(1000)})
                except Refused as refused:
                    if refused.condition != "com.microsoft:timeout":
                        raise
                    if self.draining:
                        idle.set()
                        return
                    continue
                self._hold(node, link, life, chance)
            # Who does not say goodbye frees the session too, once the broker sees that the connection is gone.

        work.ended = idle.is_set
        self._connected(work, chance)

    def _hold(self, node: Node, link: Link, life: int, chance: random.Random) -> None:
        ledger, name = self.ledger, link.answer.source.value[7][SESSION_FILTER]
        if self.life == life:  # otherwise nobody knows whether the lock is of this life
            ledger.was_granted(name, life)
        try:
            status, body, _ = node.request("get-session-state", {"session-id": name}, link=link.name)
            self._is_done(status)
            ledger.state_is(name, body["session-state"])
            deliveries, wanted = [], chance.randrange(1, 40)
            link.flow(wanted)
            try:
                while len(deliveries) < wanted:
                    deliveries.append(link.delivery(1.0 if not deliveries else 0.1))
                    ledger.was_delivered(name, deliveries[-1].message)
            except TimeoutError:
                pass
            self._settle(link, name, deliveries, chance)
            state = f"{name} {chance.random()}".encode()
            ledger.state_tried(name, state)
            status, *_ = node.request("set-session-state", {"session-id": name, "session-state": state}, link=link.name)
            self._is_done(status)
            if self.life == life:  # otherwise the next holder may have set another one
                ledger.state_confirmed(name, state)
        finally:
            ledger.was_left(name)
        link.detach()
        link.session.expect("detach", handle=link.remote)
        # What came for this link and was not read is not for the next one, which may get its handle.
        link.session.connection.said.clear()

    def _is_done(self, status: int) -> None:
        if self.reopens and status in (410, 503):
            raise Refused(BUSY, f"the lock is gone: {status}")
        assert status == 200, status

    def _settle(self, link: Link, name: str, deliveries: list, chance: random.Random) -> None:
        ledger, waiting = self.ledger, []
        for one in deliveries:
            body, choice = one.message.data.decode(), 0.0 if self.draining else chance.random()
            how, state = (
                ("completed", ACCEPTED) if choice < 0.8 else ("released", RELEASED) if choice < 0.85 else ("abandoned", modified(True, False))
                if choice < 0.9 else ("deferred", modified(None, True)) if choice < 0.95 else ("dead", rejected("com.microsoft:dead-letter")))
            if how in ("completed", "deferred", "dead"):
                ledger.is_settled(body, how, confirmed=False)
                if how == "deferred":
                    with ledger.lock:
                        ledger.deferred[body] = (name, one.message.number)
            link.settle(one.id, state)
            waiting.append((one, body, how))
        settled: dict[int, object] = {}
        while len(settled) < len(waiting):
            answer = link.session.expect("disposition", role=SENDER)
            for number in range(answer.first, (answer.first if answer.last is None else answer.last) + 1):
                settled[number] = answer.state
        for one, body, how in waiting:
            outcome = settled[one.id]
            if outcome.descriptor == 0x25 and outcome.value and outcome.value[0]:
                if self.reopens:
                    raise Refused(BUSY, f"the lock is gone: {outcome}")
                ledger.problem(f"{body} could not be {how}: {outcome}")
            elif how in ("completed", "deferred", "dead"):
                ledger.is_settled(body, how, confirmed=True)

    # --------------------------------------------------------------------------------------------------- the end

    def _count_the_rest(self) -> None:
        """The dead letters and the deferred messages are all there, once each."""
        connection = connect(("127.0.0.1", self.broker.amqp_port))
        session = connection.session()
        node, ledger = Node(session, f"{self.path}/$management"), self.ledger
        for name in sorted({name for name, _ in ledger.deferred.values()}):
            link = session.accept(self.path, name)
            for body, number in ((body, number) for body, (of, number) in ledger.deferred.items() if of == name):
                status, answer, _ = node.request("receive-by-sequence-number", {
                    "sequence-numbers": Array((number,)), "receiver-settle-mode": Uint(0), "session-id": name}, link=link.name)
                found = status == 200 and Message.decode(answer["messages"][0]["message"]).data.decode() == body
                if ledger.gone.get(body) == "deferred" and not found:
                    ledger.problem(f"{body}, deferred as {number}, is not there: {status}")
                connection.said.clear()
            link.detach()
        letters = session.receiver(f"{self.path}/$DeadLetterQueue", mode=0)
        dead = Counter(one.message.data.decode() for one in letters.receive_all())
        for body, count in dead.items():
            if count > 1 or ledger.gone.get(body, "dead") != "dead" or body not in ledger.tried:
                ledger.problem(f"{body} is a dead letter, {count} times, and was {ledger.gone.get(body)}")
        for body, how in ledger.gone.items():
            if how == "dead" and body not in dead:
                ledger.problem(f"{body} is no dead letter")
        status, *_ = node.request("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})
        if status != 204:
            ledger.problem("there is something left in the queue")
        connection.close()


def line(ledger: Ledger) -> str:
    return json.dumps({"counts": dict(ledger.counts), "problems": ledger.problems[:10]})
