"""Shards of a broker that are closed, and opened again, while it is used."""

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
"""Shards that may be closed at the same time."""
MOST_SECONDS = 0.02
"""A shard stays closed for up to so long."""


def set_state(broker: Broker, shard: int, state: str) -> dict:
    """Closes a shard (`closed`) or opens it (`open`); the answer comes when that is done."""
    url = f"http://127.0.0.1:{broker.admin_port}/v1/shards/{shard}"
    body = json.dumps({"state": state}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PATCH")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


class Reopening:
    """Threads that close shards and open them again, whenever `broker` may be disturbed. It may be killed meanwhile."""

    def __init__(self, broker: Broker, seed: int, before=lambda: None, after=lambda: None):
        self.broker = broker
        self.times: Counter[int] = Counter()
        """How often each shard has been closed and opened."""
        self.problems: list[str] = []
        self._before, self._after = before, after
        self._may, self._over = threading.Event(), False
        self._idle = [threading.Event() for _ in range(TOGETHER)]
        self._threads = [threading.Thread(target=self._run, args=(idle, random.Random(f"{seed}/shards/{index}")))
                         for index, idle in enumerate(self._idle)]
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """From now on shards are closed and opened."""
        self._may.set()

    def rest(self) -> None:
        """All shards are open when this returns, and stay so."""
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
            # It was killed, perhaps a moment ago. Otherwise it must answer.
            is_cut = isinstance(error, ConnectionError) or isinstance(getattr(error, "reason", None), ConnectionError)
            time.sleep(0.2)
            if self.broker.running() and self.broker.admin_port == port and not is_cut:
                self.problems.append(f"a shard could not be closed and opened: {error!r}")
