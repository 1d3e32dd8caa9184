"""Slots of a cluster: where they are, and how they are moved."""

from __future__ import annotations

import json
import random
import threading
import time

import xxhash

from broker import until
from brokers import Member

SLOTS = 32


def slot_of(client_id: str, tenant: str = "default") -> int:
    return xxhash.xxh3_64_intdigest(f"{tenant}/{client_id}".encode()) % SLOTS


def home_of(slot: int, brokers) -> Member:
    """Returns the broker that has a slot; all of them know it."""
    def known() -> set[str]:
        answers = [json.loads(one.http("/v1/cluster/slots")[1])["slots"][slot] for one in brokers]
        return {answer["broker"] for answer in answers}
    until(lambda: len(known()) == 1)
    name = known().pop()
    return next(one for one in brokers if one.name == name)


def move(slot: int, to: Member, by: Member | None = None) -> dict:
    """Moves a slot, over any broker."""
    moved = (by or to).command("move", str(slot), to.name, "--json")
    assert moved.returncode == 0, moved.stdout + moved.stderr
    answer = json.loads(moved.stdout)
    assert answer["broker"] == to.name and answer["is_active"]
    return answer


def another(home: Member, brokers) -> Member:
    return random.choice([one for one in brokers if one is not home])


def move_and_kill(slot: int, brokers, chance: random.Random, within: float) -> Member:
    """Moves a slot, and kills the broker that has it or the one that is to get it, within so many seconds. Returns the one that was killed, when
    all brokers are up again and know where the slot is."""
    home = home_of(slot, brokers)
    to = another(home, brokers)
    mover = threading.Thread(target=lambda: home.command("move", str(slot), to.name))
    mover.start()
    time.sleep(chance.random() * within)
    victim = chance.choice([home, to])
    victim.kill9()
    mover.join()
    victim.start()
    brokers.settles()
    until(lambda: home_of(slot, brokers), 20)
    return victim
