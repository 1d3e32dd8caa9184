"""The long run: `python tests/crash/run.py --rounds 300 --seed 7`. Exit status 1 if a promise was broken."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import members  # noqa: E402
import reopened  # noqa: E402
from powercut import Unpowered  # noqa: E402
from victim import Brokers, Unharmed, Victim  # noqa: E402
from world import run  # noqa: E402

FAULTS = {
    "kill": lambda seed: Victim(),
    "power": lambda seed: Unpowered(random.Random(f"{seed}/power")),
    "network": lambda seed: Unharmed(),
    "cluster-network": lambda seed: Brokers(),
}
WORLDS = {"shards": reopened.run, "cluster": members.run}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="crashes, each after 0.3 to 2 s of traffic")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="what chance follows from")
    parser.add_argument("--fault", choices=[*FAULTS, *WORLDS], default="kill",
                        help="what happens at the end of a round; `shards`: they are closed and opened during the round, before a kill; "
                             "`cluster`: each connection is to one of three brokers, one of which is killed and comes back during the "
                             "round; `cluster-network`: the same, and only connections fail")
    parser.add_argument("--json", action="store_true", help="nothing but the summary, on one line")
    options = parser.parse_args()
    if not options.json:
        print(f"seed {options.seed}", flush=True)
    if options.fault in WORLDS:
        summary = WORLDS[options.fault](options.rounds, options.seed)
    else:
        summary = run(FAULTS[options.fault](options.seed), options.rounds, options.seed)
    if not options.json:
        for problem in summary.problems:
            print(problem)
    print(summary.line())
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
