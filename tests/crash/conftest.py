"""A seed for each run: CRASH_SEED=N repeats one. It is printed when a test fails."""

import os
import random

import pytest


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    print(f"CRASH_SEED={chosen}")
    return chosen
