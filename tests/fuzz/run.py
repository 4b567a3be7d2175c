"""Draw the calls, make them, shrink what is found, print how to see it again."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fuzz.door import Arguments, Door
from fuzz.doors import doors
from fuzz.judge import Finding, outcome
from fuzz.values import ANY, ARRAYS, LABELS, SCALARS, extremes
from validation.door.options import options_of
from validation.screen.pace import pace

SECONDS = 20.0  # of a core for one call, as on the machine that `validation.screen.pace` names


class Change(NamedTuple):
    """One argument, and what is put in its place."""

    name: str
    label: str
    make: Callable[[Any], Any]


class Case(NamedTuple):
    """A call: which door, and what is changed in arguments that are right."""

    door: Door
    changes: tuple[Change, ...]
    base: Arguments


def drawn(seed: int, number: int) -> Case:
    """Case `number` of a seed; the same in every process."""
    rng = np.random.default_rng([seed, number])
    every = doors()
    weights = np.array([door.weight for door in every])
    door = every[int(rng.choice(len(every), p=weights / weights.sum()))]
    base = door.base(rng)
    count = int(rng.choice([0, 1, 1, 1, 1, 2, 3])) if door.kinds else 0
    names = list(door.kinds)
    chosen = dict.fromkeys(str(rng.choice(names)) for _ in range(count))
    changes = [_change(rng, door, name, base) for name in chosen]
    return Case(door, tuple(changes), base)


def _change(rng: np.random.Generator, door: Door, name: str, base: Arguments) -> Change:
    kind = door.kinds[name]
    there = base.get(name)
    if kind == "array" and isinstance(there, np.ndarray) and rng.random() < 0.7:
        label = str(rng.choice(list(ARRAYS)))
        return Change(name, label, ARRAYS[label])
    if kind == "labels" and isinstance(there, np.ndarray) and rng.random() < 0.8:
        label = str(rng.choice(list(LABELS)))
        return Change(name, label, LABELS[label])
    if name.startswith("option ") and rng.random() < 0.25:
        _, implementation, method = door.name.split()
        choices = getattr(options_of(implementation, method)[name[7:]], "choices", ())
        ends = extremes(getattr(options_of(implementation, method)[name[7:]], "interval", ""))
        if ends and rng.random() < 0.7:
            end = ends[int(rng.integers(len(ends)))]
            return Change(name, repr(end), lambda _: end)
        if choices:
            choice = str(rng.choice(choices))
            return Change(name, repr(choice), lambda _: choice)
    label = str(rng.choice(list(SCALARS if rng.random() < 0.5 else ANY)))
    return Change(name, label, lambda _: ANY[label]())


def made(case: Case, changes: tuple[Change, ...]) -> Finding | None:
    """The call with these changes, judged."""
    given = dict(case.base)
    for change in changes:
        try:
            given[change.name] = change.make(given.get(change.name))
        except (TypeError, ValueError, OverflowError):  # a change that this array cannot take, int8 of a text
            return None
    return outcome(lambda: case.door.call(given), SECONDS * pace())


def shrunk(case: Case, value: Finding) -> tuple[tuple[Change, ...], Finding]:
    """The fewest changes that still end in the same kind of finding."""
    changes = case.changes
    for change in case.changes:
        fewer = tuple(other for other in changes if other is not change)
        again = made(case, fewer)
        if again is not None and again.kind == value.kind:
            changes, value = fewer, again
    return changes, value


def look(seed: int, number: int) -> tuple[str, float, str | None, str]:
    """Door, seconds, report or None, and kind of one case."""
    case = drawn(seed, number)
    started = time.perf_counter()
    result = made(case, case.changes)
    seconds = time.perf_counter() - started
    if result is None:
        return case.door.name, seconds, None, ""
    changes, result = shrunk(drawn(seed, number), result)
    with np.printoptions(threshold=20, precision=17):
        put = ", ".join(f"{change.name} = {change.label}" for change in changes) or "nothing changed"
        base = ", ".join(f"{name}={value!r}" for name, value in case.base.items() if name not in _put(changes))
    text = f"{case.door.name}: {put}\n    {result.kind}: {result.text}"
    text += f"\n    --seed {seed} --case {number}\n    {base[:600]}"
    return case.door.name, seconds, text, result.kind


def _put(changes: tuple[Change, ...]) -> set[str]:
    return {change.name for change in changes}


def _looks(seed: int, numbers: range, processes: int) -> Iterator[tuple[str, float, str | None, str]]:
    if processes == 1:
        for number in numbers:
            yield look(seed, number)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_Look(seed), numbers, chunksize=25)


class _Look:
    """`look` of one seed, for another process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, number: int) -> tuple[str, float, str | None, str]:
        return look(self.seed, number)


def run(seed: int, numbers: range, processes: int = 1, write: Callable[[str], Any] = sys.stdout.write) -> int:
    """Make the calls of these numbers, report what is found; returns how many findings there were."""
    started = time.perf_counter()
    kinds: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for door, seconds, text, kind in _looks(seed, numbers, processes):
        spent[door] += seconds  # type: ignore[assignment]
        calls[door] += 1
        if text is not None:
            kinds[kind] += 1
            write(f"FOUND {text}\n")
            sys.stdout.flush()
    slow = ", ".join(f"{door} {seconds:.0f} s of {calls[door]}" for door, seconds in spent.most_common(5))
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()) or "none"
    write(f"{len(numbers)} calls at {len(calls)} doors, seed {seed}: {sum(kinds.values())} findings ({counts}), ")
    write(f"{time.perf_counter() - started:.0f} s; longest: {slow}\n")
    return sum(kinds.values())


def main() -> int:
    """Exit 1 if a call ended in none of the ways it may."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=(__doc__ or "").strip())
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None, help="default: a fresh one, printed")
    parser.add_argument("--case", type=int, default=None, help="this call of the seed alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args()
    seed = secrets.randbelow(2**32) if chosen.seed is None else chosen.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    numbers = range(chosen.first, chosen.first + chosen.calls)
    if chosen.case is not None:
        numbers = range(chosen.case, chosen.case + 1)
    return int(run(seed, numbers, chosen.processes) > 0)
