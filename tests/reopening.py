"""Closes shards of a broker and opens them again while it is used."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

from broker import Broker

TOGETHER = 2
"""Number of shards that may be closed at the same time."""
MOST_SECONDS = 0.02
"""Maximum time that a shard stays closed, and maximum pause before the next one, in seconds."""


def set_state(broker: Broker, shard: int, state: str) -> dict:
    """Closes a shard (`closed`) or opens it (`open`); returns when that is done."""
    url = f"http://127.0.0.1:{broker.admin_port}/v1/shards/{shard}"
    body = json.dumps({"state": state}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PATCH")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


class Reopening:
    """Threads that close and open shards between `begin` and `rest`. The broker may be killed meanwhile."""

    def __init__(self, broker: Broker, seed: int, before=lambda: None, after=lambda: None):
        self.broker = broker
        self.times: Counter[int] = Counter()
        """Number of times that each shard has been closed and opened."""
        self.problems: list[str] = []
        self._before, self._after = before, after
        self._may, self._over = threading.Event(), False
        self._idle = [threading.Event() for _ in range(TOGETHER)]
        self._threads = [threading.Thread(target=self._run, args=(idle, random.Random(f"{seed}/shards/{index}")))
                         for index, idle in enumerate(self._idle)]
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """Starts closing and opening shards."""
        self._may.set()

    def rest(self) -> None:
        """Stops closing and opening shards. When this returns, all shards are open."""
        self._may.clear()
        for idle in self._idle:
            idle.wait()

    def end(self) -> None:
        self._over = True
        self._may.set()
        for thread in self._threads:
            thread.join()

    def _run(self, idle: threading.Event, chance: random.Random) -> None:
        while True:
            idle.set()
            self._may.wait()
            if self._over:
                return
            idle.clear()
            if self._may.is_set():
                self._disturb(chance)

    def _disturb(self, chance: random.Random) -> None:
        port = self.broker.admin_port
        try:
            count = len(json.loads(self.broker.http("/v1/shards")[1])["shards"])
            shard = chance.randrange(count)
            self._before()
            set_state(self.broker, shard, "closed")
            time.sleep(chance.uniform(0, MOST_SECONDS))
            set_state(self.broker, shard, "open")
            self._after()
            self.times[shard] += 1
            time.sleep(chance.uniform(0, MOST_SECONDS))
        except (OSError, ValueError) as error:
            # The broker was killed, perhaps just now. Otherwise it must answer.
            is_cut = isinstance(error, ConnectionError) or isinstance(getattr(error, "reason", None), ConnectionError)
            time.sleep(0.2)
            if self.broker.running() and self.broker.admin_port == port and not is_cut:
                self.problems.append(f"a shard could not be closed and opened: {error!r}")
