"""Slots of a cluster: where they are, and how they are moved."""

from __future__ import annotations

import json
import random

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
