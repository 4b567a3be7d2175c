"""Mutation testing: change one statement of a witness at a time and see which checks and tests fail.

    make mutate N=200 SEED=1          the power of the judge's checks, of the tests, and of both, on a random sample
    make mutate-change BASE=main      a handful of mutants in what differs from a commit; survivors are printed

There is no number to reach. Outcomes are kept in a folder, by a fingerprint of the code: an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from itertools import takewhile, zip_longest
from pathlib import Path

import power
from mutants import Mutant, draw, draw_changed
from planting import PACKAGES
from suite import Outcome, Suite, measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="how many mutants of each seed")
    parser.add_argument(
        "--seed", type=int, action="append", help="of a draw: the same seed gives the same mutants; repeatable"
    )
    parser.add_argument("--package", action="append", choices=PACKAGES, help="repeatable; all by default")
    parser.add_argument("--change", metavar="COMMIT", help="draw from the statements that differ from this commit")
    parser.add_argument("--against", action="append", choices=list(power.TARGETS), help="repeatable; all by default")
    parser.add_argument("--tests", action="append", metavar="PATH", help="repeatable; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--output", type=Path, default=Path("results/mutants"), help="folder of healthy runs, outcomes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no mutant later than that after now")
    parser.add_argument("--record", action="store_true", help="add what all targets have answered to power.json")
    chosen = parser.parse_args()
    targets = chosen.against or list(power.TARGETS)
    packages = tuple(chosen.package or PACKAGES)
    if chosen.record and (chosen.change or packages != PACKAGES):
        parser.error("--record: found it with part of the statements, expected all of all packages")
    samples = {
        seed: draw_changed(chosen.n, seed, chosen.change) if chosen.change else draw(chosen.n, seed, packages)
        for seed in chosen.seed or [0]
    }
    until = time.time() + 60.0 * chosen.minutes
    # in turn from each sample: what is answered in time is the beginning of each of them
    turns = [mutant for turn in zip_longest(*samples.values()) for mutant in turn if mutant is not None]
    mutants = list({mutant.name: mutant for mutant in turns}.values())
    outcomes: dict[str, dict[str, Outcome]] = {mutant.name: {} for mutant in mutants}
    aside: dict[str, list[str]] = {}
    for target in targets:
        suite = measure(target, mutants, chosen.tests or ["tests"], chosen.output, chosen.jobs)
        aside[target] = suite.aside
        for name, outcome in _attempt(suite, mutants, chosen.jobs, until).items():
            outcomes[name][target] = outcome
    answered = [mutant for mutant in mutants if len(outcomes[mutant.name]) == len(targets)]
    for mutant in answered:
        if not any(outcome.caught for outcome in outcomes[mutant.name].values()):
            states = ", ".join(f"{target}: {outcome.state}" for target, outcome in outcomes[mutant.name].items())
            sys.stdout.write(f"{mutant.name} ({mutant.kind}; {states})\n{mutant.diff}\n\n")
    caught = [{target for target, o in outcomes[mutant.name].items() if o.caught} for mutant in answered]
    for target in targets:
        sys.stdout.write(f"caught by {target}: {power.Share(sum(target in by for by in caught), len(caught))}\n")
    sys.stdout.write(f"caught by any: {power.Share(sum(map(bool, caught)), len(caught))}\n")
    if chosen.record:
        for seed, sample in samples.items():
            whole = list(takewhile(lambda mutant: mutant in answered, sample))
            power.record(seed, [power.row(mutant, outcomes[mutant.name]) for mutant in whole], chosen.tests, aside)
    return 0


def _attempt(suite: Suite, mutants: list[Mutant], jobs: int, until: float) -> dict[str, Outcome]:
    """Outcomes by name: those on disk, then the rest, each written as soon as it is known."""
    path = suite.folder / "outcomes.jsonl"
    done: dict[str, Outcome] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.endswith("]"):  # an interrupted run may leave half a line
            name, *fields = json.loads(line)
            done[name] = Outcome(*fields)
    waiting = [mutant for mutant in mutants if mutant.name not in done]
    with path.open("a", encoding="utf-8") as file:
        for count, (mutant, outcome) in enumerate(suite.attempt(waiting, jobs, until), start=1):
            done[mutant.name] = outcome
            file.write(json.dumps([mutant.name, *outcome]) + "\n")
            file.flush()
            sys.stderr.write(f"{suite.target} {count}/{len(waiting)} {outcome.state}: {mutant.name}\n")
    return {mutant.name: done[mutant.name] for mutant in mutants if mutant.name in done}


if __name__ == "__main__":
    raise SystemExit(main())
