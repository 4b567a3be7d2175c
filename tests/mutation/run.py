"""Mutation testing: change one statement of a witness at a time and see which checks and tests fail.

    make mutate N=200 SEED=1          the power of the judge's checks, of the tests, and of both, on a random sample
    make mutate-change BASE=main      a handful of mutants in what differs from a commit; survivors are printed

There is no number to reach. Outcomes are kept in a folder, by a fingerprint of the code: an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import power
from mutants import PACKAGES, Mutant, draw, draw_changed
from suite import TARGETS, Outcome, Suite, measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the draw: the same seed gives the same mutants")
    parser.add_argument("--package", action="append", choices=PACKAGES, help="repeatable; all by default")
    parser.add_argument("--change", metavar="COMMIT", help="draw from the statements that differ from this commit")
    parser.add_argument("--against", action="append", choices=list(TARGETS), help="repeatable; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--output", type=Path, default=Path("results/mutants"), help="folder of healthy runs, outcomes")
    parser.add_argument("--record", action="store_true", help="add the sample to power.json")
    chosen = parser.parse_args()
    targets = chosen.against or list(TARGETS)
    packages = tuple(chosen.package or PACKAGES)
    if chosen.record and (chosen.change or len(targets) < len(TARGETS) or packages != PACKAGES):
        parser.error("--record: found it with part of the question, expected all packages against all targets")
    mutants = (
        draw_changed(chosen.n, chosen.seed, chosen.change) if chosen.change else draw(chosen.n, chosen.seed, packages)
    )
    outcomes: dict[str, dict[str, Outcome]] = {mutant.name: {} for mutant in mutants}
    for target in targets:
        suite = measure(target, chosen.output, chosen.jobs)
        for name, outcome in _attempt(suite, mutants, chosen.jobs).items():
            outcomes[name][target] = outcome
    for mutant in mutants:
        if not any(outcome.caught for outcome in outcomes[mutant.name].values()):
            states = ", ".join(f"{target}: {outcome.state}" for target, outcome in outcomes[mutant.name].items())
            sys.stdout.write(f"{mutant.name} ({mutant.kind}; {states})\n{mutant.diff}\n\n")
    for target in targets:
        share = power.Share(sum(value[target].caught for value in outcomes.values()), len(mutants))
        sys.stdout.write(f"caught by {target}: {share}\n")
    share = power.Share(sum(any(o.caught for o in value.values()) for value in outcomes.values()), len(mutants))
    sys.stdout.write(f"caught by any: {share}\n")
    if chosen.record:
        power.record(chosen.seed, [power.row(mutant, outcomes[mutant.name]) for mutant in mutants])
    return 0


def _attempt(suite: Suite, mutants: list[Mutant], jobs: int) -> dict[str, Outcome]:
    """Outcomes by name: those on disk, then the rest, each written as soon as it is known."""
    path = suite.folder / "outcomes.jsonl"
    done: dict[str, Outcome] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.endswith("]"):  # an interrupted run may leave half a line
            name, *fields = json.loads(line)
            done[name] = Outcome(*fields)
    waiting = [mutant for mutant in mutants if mutant.name not in done]
    with ThreadPoolExecutor(jobs) as pool, path.open("a", encoding="utf-8") as file:
        futures = {pool.submit(suite.attempt, mutant): mutant for mutant in waiting}
        for count, future in enumerate(as_completed(futures), start=1):
            mutant, outcome = futures[future], future.result()
            done[mutant.name] = outcome
            file.write(json.dumps([mutant.name, *outcome]) + "\n")
            file.flush()
            sys.stderr.write(f"{suite.target} {count}/{len(waiting)} {outcome.state}: {mutant.name}\n")
    return {mutant.name: done[mutant.name] for mutant in mutants}


if __name__ == "__main__":
    raise SystemExit(main())
