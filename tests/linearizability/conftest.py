"""Uses the clients of `crash` with other requests. Each run has a seed: LINEARIZABILITY_SEED=N repeats it."""

import os
import random
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "crash"), str(TESTS / "cluster")]


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("LINEARIZABILITY_SEED", random.randrange(1 << 32)))
    print(f"LINEARIZABILITY_SEED={chosen}")
    return chosen
