"""Where a regression is: functions of the witnesses that failing checks execute and passing ones do not.

Some pairs of check and problem are run again in this process while every call into a witness is counted. Functions are
ranked by Ochiai's coefficient, red / sqrt(all red * (red + green)): 1 for one that every failure and no pass executes.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from validation.checks import core, runner
from validation.checks.core import NO_PROBLEM, Context, Result
from validation.checks.selection import Pair

WITNESSES = ("reference", "fast", "gibbs")
BUDGET = 12.0  # seconds of processor time after which no pair is asked
MOST = 40  # pairs of either colour


class Suspect(NamedTuple):
    """A function, in how many of the failures and of the passes it was executed, and its rank."""

    function: str
    file: str
    line: int
    red: int
    green: int
    score: float


def suspects(results: Iterable[Result], budget: float = BUDGET) -> tuple[list[Suspect], int, int]:
    """Functions that failures execute, the likeliest first, and how many failures and passes were asked again."""
    red, green = _chosen(list(results))
    executed: dict[CodeType, list[int]] = {}
    asked = [0, 0]
    began = time.process_time()
    # in turns, so that a budget that ends early leaves some of both
    for result in filter(None, chain.from_iterable(zip_longest(red, green))):
        if time.process_time() - began > budget:
            break
        colour = int(not result.failed)
        asked[colour] += 1
        for code in _calls(result):
            executed.setdefault(code, [0, 0])[colour] += 1
    return _ranked(executed, asked[0]), asked[0], asked[1]


def _ranked(executed: dict[CodeType, list[int]], failures: int) -> list[Suspect]:
    found = []
    for code, (red, green) in executed.items():
        if red:
            path = Path(code.co_filename)
            package = next(k for k, part in enumerate(path.parts) if part in WITNESSES)
            name = code.co_qualname.replace(".<locals>", "")
            file = "/".join(path.parts[package:])
            score = red / math.sqrt(failures * (red + green))
            found.append(Suspect(name, file, code.co_firstlineno, red, green, score))
    return sorted(found, key=lambda one: (-one.score, one.file, one.line))


def _chosen(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """One result of each pair: failures, cheapest first; passes, those of the failing methods first.

    A pass of the same method on the same problem says most: it shares all but what fails.
    """
    pairs: dict[tuple[str, str], Result] = {}
    for result in results:
        key = result.check, result.problem
        if result.verdict != "SKIP" and (key not in pairs or result.failed):
            pairs[key] = result
    red = sorted((one for one in pairs.values() if one.failed), key=lambda one: one.seconds)
    methods, problems = {one.method for one in red}, {one.problem for one in red}
    green = sorted(
        (one for one in pairs.values() if not one.failed),
        key=lambda one: (one.method not in methods, one.problem not in problems, one.seconds),
    )
    return red[:MOST], green[:MOST]


def _calls(result: Result) -> set[CodeType]:
    """Codes of functions of the witnesses that a pair executes, asked again with nothing remembered."""
    check = core.registered()[result.check]
    context = Context(quick=not result.full)
    seen: set[CodeType] = set()
    others: set[CodeType] = set()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in seen and code not in others:
            (seen if _of_a_witness(code) else others).add(code)

    problem = None if result.problem == NO_PROBLEM else context.problem(result.problem)
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        runner.ask(check, context, problem, Pair(result.check, result.problem, result.full))
    finally:
        sys.setprofile(before)
    return seen


def _of_a_witness(code: CodeType) -> bool:
    """Whether a code is a function of a witness, and no comprehension or module."""
    parts = Path(code.co_filename).parts
    return not code.co_name.startswith("<") and any(f"{name}" in parts[-4:-1] for name in WITNESSES)


def lines(found: Sequence[Suspect], red: int, green: int, most: int = 5) -> Iterator[str]:
    """The first suspects, a line each."""
    if not found:
        return
    yield f"where: functions that {red} failures and few of {green} passes execute"
    for one in found[:most]:
        yield f"  {one.file}:{one.line} {one.function}: {one.red} of {red} failures, {one.green} of {green} passes"
