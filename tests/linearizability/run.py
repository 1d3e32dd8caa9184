"""The long run: `python tests/linearizability/run.py --rounds 300 --seed 7`. Exit status 1 if a check finds a problem."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(TESTS), str(TESTS / "crash"), str(TESTS / "cluster")]

import divided  # noqa: E402
from contest import MEMORY, run  # noqa: E402
from powercut import Unpowered  # noqa: E402
from victim import CONFIG, Unharmed, Victim  # noqa: E402

FAULTS = {
    "none": lambda config, seed: Unharmed(config),
    "network": lambda config, seed: Unharmed(config),
    "kill": lambda config, seed: Victim(config),
    "power": lambda config, seed: Unpowered(random.Random(f"{seed}/power"), config),
    "shards": lambda config, seed: Victim(config + "[storage]\nshards = 4\n"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="each has 0.3 to 1.2 s of requests")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="what chance follows from")
    parser.add_argument("--fault", choices=[*FAULTS, "divided", "moved"], default="kill",
                        help="`divided`: three brokers lose each other; `moved`: the state stores move between them; all but `none` also break connections; `shards` closes and opens them before a kill")
    parser.add_argument("--memory", action="store_true", help="keys of class memory: after a crash only their versions have to fit")
    parser.add_argument("--dump", type=Path, help="a directory for the histories in which something does not fit")
    parser.add_argument("--json", action="store_true", help="nothing but the summary, on one line")
    options = parser.parse_args()
    if not options.json:
        print(f"seed {options.seed}", flush=True)
    if options.fault in ("divided", "moved"):
        what = divided.Moved if options.fault == "moved" else divided.Divided
        summary = divided.run(options.rounds, options.seed, what, dump=options.dump)
        return report(summary, options.json)
    victim = FAULTS[options.fault](CONFIG + (MEMORY if options.memory else ""), options.seed)
    keeps = not options.memory or options.fault in ("none", "network")
    summary = run(victim, options.rounds, options.seed, reopens=options.fault == "shards",
                  cuts=options.fault != "none", keeps=keeps, dump=options.dump)
    return report(summary, options.json)


def report(summary, as_json: bool) -> int:
    if not as_json:
        for problem in summary.problems:
            print(problem)
    print(summary.line())
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
