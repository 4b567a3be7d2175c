"""Identity on hard cases: where float64 does not decide an answer, a witness must not claim one.

Every cell of a seeded grid (`validation.checks.witnesses.hard_problems`) is asked of `reference` and of `fast` and
judged:

equal    both converged, and every quantity that `validation.judge.compare` compares lies within its limit
honest   a side has converged=False, with a reason; or both claim and differ, and last digits of variances and
         lengthscales, which no kernel is known to, move each quantity that differs by a tenth of the difference
error    a side refuses by a named error: `name: found X, expected Y`
red      anything else: two claims that differ, a warning, an error without a name, more than LONGEST seconds of a core,
         counted as on the machine that `validation.screen.pace` names

`python -m validation.checks.witnesses.hard_cases --method nested-ep --seed 7` asks the cells of one method on another
seed.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType, MappingProxyType
from typing import NamedTuple

import numpy as np

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.witnesses.hard_problems import FAMILIES, SCENARIOS, SEED, Cell, cells
from validation.door import catalogue, premises
from validation.door.solution import Solution
from validation.door.solve import solve
from validation.judge import compare as comparing
from validation.screen.pace import pace

# seconds of one core, for both witnesses together: what other programs do beside it is not counted, and neither is that
# a machine is slow
LONGEST = 30.0
_EPS = float(np.finfo(np.float64).eps)
_NEIGHBOURS = ((16, 4), (-4, -16))  # units in the last place of variances and lengthscales
_SHARE = 0.1  # of a difference that last digits must move: two neighbours seldom show the most that rounding does
VERDICTS = ("equal", "honest", "error", "red")
_NAMED = re.compile(r"[^:]+: found .+, expected .+", re.DOTALL)

# Cells of a quick run, each with what it is there for: a rule that takes the last change for the distance (slow),
# a fixed point that mixing finds and no plain step goes to (repeated), derivatives in which rounding is
# multiplied by the inverse of K (shallow), distances of inputs far from the origin (far-cluster). In these float64
# decides: both witnesses have to claim an answer, a doubt is a mistake that was noticed.
QUICK: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "nested-iep": ("slow",),
        "qep": ("repeated",),
        "svi": ("shallow",),
        "svgpc": ("shallow",),
        "epgpc": ("far-cluster",),
        "ep": ("slow",),
        "gfitc": ("slow",),
    }
)


class Verdict(NamedTuple):
    """What came of a cell: one of VERDICTS, the largest observed value over its limit (NaN if none), and why."""

    verdict: str
    ratio: float
    why: str
    seconds: float


class TimeExceededError(RuntimeError):
    """A cell took more than LONGEST seconds."""


def judged(cell: Cell) -> Verdict:
    """Ask both witnesses and judge what they answer; never raises but on an interrupt."""
    started, most = time.process_time(), LONGEST * pace()
    results: list[Solution] = []
    refused: list[str] = []
    with warnings.catch_warnings(record=True) as caught, _limited(most):
        warnings.simplefilter("always")
        for witness in ("reference", "fast"):
            try:
                results.append(solve(witness, cell.method, cell.problem, **cell.options))
            except TimeExceededError:
                return Verdict("red", np.nan, f"{witness}: found no answer after {most:.0f} s", most)
            except (ValueError, np.linalg.LinAlgError, ArithmeticError, RuntimeError, LookupError) as error:
                text = f"{witness}: {type(error).__name__}: {error}"
                if not _is_named(error):
                    return Verdict("red", np.nan, text, time.process_time() - started)
                refused.append(text)
        try:
            verdict = None if refused else _compared(results, cell)
        except TimeExceededError:
            return Verdict("red", np.nan, f"found no neighbour's answer after {most:.0f} s", most)
    seconds = time.process_time() - started
    if caught:
        return Verdict("red", np.nan, f"{caught[0].category.__name__}: {caught[0].message}", seconds)
    if seconds > most:
        return Verdict("red", np.nan, f"found {seconds:.0f} s, expected at most {most:.0f} s", seconds)
    if refused:
        return Verdict("error", np.nan, "; ".join(refused), seconds)
    assert verdict is not None
    return verdict._replace(seconds=seconds)


def _compared(value: Sequence[Solution], cell: Cell) -> Verdict:
    """What two answers are to each other; its seconds are not counted yet."""
    unfinished = [side for side in value if not side.converged and not premises.asked_for_steps(side)]
    if silent := [side.label for side in unfinished if not side.settings.get("reason")]:
        return Verdict("red", np.nan, f"{silent[0]}: found converged=False without a reason", 0.0)
    if unfinished:
        why = "; ".join(f"{side.label}: {side.settings['reason']}" for side in unfinished)
        return Verdict("honest", np.nan, why, 0.0)
    left, right = value
    bound, _ = comparing.identity_limit(left.problem)
    # beyond WIDEST_LIMIT `compare` judges nothing; who claims convergence there is held to that much
    limit = None if bound <= comparing.WIDEST_LIMIT else comparing.WIDEST_LIMIT
    rows = [row for row in comparing.compare(left, right, limit=limit) if np.isfinite(row.limit)]
    ratios = [row.observed / row.limit for row in rows]
    if not rows:
        return Verdict("red", np.nan, "found no quantity to compare, expected at least one", 0.0)
    worst = int(np.argmax(np.where(np.isnan(ratios), np.inf, ratios)))
    row = rows[worst]
    red = [entry.quantity for entry in rows if not entry.observed <= entry.limit]
    why = f"{row.quantity} {row.observed:.2g} of {row.limit:.2g}; {row.why}"
    if not red:
        return Verdict("equal", ratios[worst], why, 0.0)
    apart = f"both converged, and differ in {', '.join(red)}: {why}"
    if moved := _moved_by_last_digits(value, cell, limit, {e.quantity: e.observed for e in rows if e.quantity in red}):
        return Verdict("honest", np.nan, f"{apart}; {moved}", 0.0)
    return Verdict("red", ratios[worst], apart, 0.0)


def _moved_by_last_digits(
    sides: Sequence[Solution], cell: Cell, limit: float | None, apart: Mapping[str, float]
) -> str:
    """How far last digits of variances and lengthscales move what differs, in words; empty if less than a tenth as far.

    Parameters
    ----------
    sides            both answers
    cell, limit      the question, and the limit of its quantities
    apart            quantities that differ, each with its difference
    """
    moved = dict.fromkeys(apart, 0.0)
    for side in sides:
        for by_variance, by_lengthscale in _NEIGHBOURS:
            there = cell.problem.replace(
                variance=cell.problem.variance * (1.0 + by_variance * _EPS),
                lengthscales=cell.problem.lengthscales * (1.0 + by_lengthscale * _EPS),
            )
            try:
                answer = solve(side.implementation, cell.method, there, **cell.options)
            except (ValueError, np.linalg.LinAlgError) as error:
                return f"{side.label}: last digits of variance and lengthscales decide whether it answers ({error})"
            if not answer.converged:
                return f"{side.label}: last digits of variance and lengthscales decide whether it converges"
            for row in comparing.compare(side, replace(answer, problem=side.problem), limit=limit):
                if row.quantity in moved:
                    moved[row.quantity] = max(moved[row.quantity], row.observed)
    if any(moved[name] < _SHARE * difference for name, difference in apart.items()):
        return ""
    listed = ", ".join(f"{name} by {value:.2g}" for name, value in moved.items())
    return f"last digits of variance and lengthscales move {listed}"


def _is_named(error: BaseException) -> bool:
    """Whether an error is of a witness's own making: its class, and what it says."""
    if isinstance(error, np.linalg.LinAlgError):  # a ValueError too, and NumPy's own unless a package named it
        own = type(error).__name__ == "NotPositiveDefiniteError"
    else:
        own = isinstance(error, ValueError)
    return own and _NAMED.match(str(error)) is not None


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TimeExceededError inside the block after so many seconds of a core, where the system has such a timer."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(_number: int, _frame: FrameType | None) -> None:
        raise TimeExceededError

    before = signal.signal(signal.SIGPROF, expired)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def decided(cell: Cell) -> bool:
    """Whether float64 decides the answer of a cell, so that a witness without a claim is wrong."""
    return cell.problem.name in {f"hard-{name}" for name in QUICK.get(cell.method, ())}


# -- registration ----------------------------------------------------------------------------------------------------


def _outcomes(asked: Iterable[Cell]) -> Iterable[Outcome]:
    for cell in asked:
        verdict = judged(cell)
        # what is honest, or refused by name, has nothing to compare; what is red for another reason has no ratio
        doubted = np.inf if decided(cell) else 0.0
        observed = {"equal": verdict.ratio, "red": verdict.ratio if verdict.ratio > 1.0 else np.inf}.get(
            verdict.verdict, doubted
        )
        yield Compared(
            observed,
            1.0,
            f"{cell.problem.name}, {verdict.verdict}: two claims of convergence agree within the limits of `compare`, "
            f"or a side says why it makes none{', which here it need not' if decided(cell) else ''}; {verdict.why}",
            "reference",
            "fast",
            "largest difference over its limit",
        )


def _register(method: str, paper: str) -> None:
    def hard(context: Context, problem: None) -> Iterable[Outcome]:
        return _outcomes(cells(method, names=QUICK.get(method, ()) if context.quick else ()))

    quick, full = ((NO_PROBLEM,), ()) if method in QUICK else ((), (NO_PROBLEM,))
    check(
        f"identity/{method}/hard-cases",
        paper=paper,
        question="Where float64 hardly decides the answer, both witnesses agree or report that they do not know.",
        problems=quick,
        full=full,
    )(hard)


for _entry in catalogue.METHODS:
    _register(_entry.method, _entry.paper)


# -- command line ----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> int:
    """Ask the cells of some methods on some seeds; 1 if one of them is red."""
    parser = argparse.ArgumentParser(prog="python -m validation.checks.witnesses.hard_cases", description=__doc__)
    parser.add_argument("--method", action="append", choices=tuple(FAMILIES), help="repeatable; all without it")
    parser.add_argument("--seed", type=int, default=SEED, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after another")
    parser.add_argument(
        "--cell", action="append", default=[], choices=[scenario.name for scenario in SCENARIOS], help="repeatable"
    )
    asked = parser.parse_args(arguments)
    counts = dict.fromkeys(VERDICTS, 0)
    for method in asked.method or FAMILIES:
        for seed in range(asked.seed, asked.seed + asked.seeds):
            for cell in cells(method, seed, tuple(asked.cell)):
                result = judged(cell)
                counts[result.verdict] += 1
                name = f"{method} {cell.problem.name.removeprefix('hard-')} {seed}"
                write(f"{result.verdict:7s}{name:44s}{result.seconds:6.1f} s  {result.why}\n")
    write(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + "\n")
    return int(counts["red"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
