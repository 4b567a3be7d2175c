"""Failures grouped by cause: what is computed first comes first, and finite numbers come before infinite ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from validation.checks.core import KINDS, NO_PROBLEM, Result

# The order in which a method computes, by words of the names of quantities; a name without any comes last.
COMPUTED = (
    *("local", "site", "cavity", "tilted", "converged", "inducing", "test_latent", "latent", "log_evidence"),
    *("gradient", "probabilities", "learn", "batches"),
)


class Cause(NamedTuple):
    """Failures of one method that fail in one way; the first is the one that was computed first, and is finite."""

    words: str
    results: tuple[Result, ...]

    @property
    def problems(self) -> int:
        """On how many problems."""
        return len({result.problem for result in self.results})


def causes(failures: Iterable[Result]) -> list[Cause]:
    """All failures by cause; causes with a finite number first, in each case in the order of computation."""
    groups: dict[str, list[Result]] = {}
    for result in sorted(failures, key=_order):
        groups.setdefault(_words(result), []).append(result)
    return sorted(
        (Cause(words, tuple(group)) for words, group in groups.items()), key=lambda one: _order(one.results[0])
    )


def _words(result: Result) -> str:
    if result.verdict == "ERROR":
        return f"{result.method} raises {result.why.partition(':')[0]}"
    if math.isinf(result.observed) and "converge" in result.why:
        return f"{result.left or result.method} does not converge"
    if not math.isfinite(result.observed):
        return f"{result.method} gives no finite number"
    sides = " and ".join(side for side in (result.left, result.right) if side)
    return f"{result.method}: {result.kind} fails{f', {sides}' if sides else ''}"


def _order(result: Result) -> tuple[bool, int, int, float]:
    place = next((k for k, word in enumerate(COMPUTED) if word in result.quantity), len(COMPUTED))
    kind = KINDS.index(result.kind) if result.kind in KINDS else len(KINDS)
    ratio = result.ratio if math.isfinite(result.ratio) else 0.0
    return not math.isfinite(result.observed), kind, place, -ratio


def lines(found: Iterable[Cause], most: int) -> Iterator[str]:
    """Two lines for each cause, at most so many in all: how many results, and the first of them."""
    listed = list(found)
    fits = len(listed) if 2 * len(listed) <= most else (most - 1) // 2
    for cause in listed[:fits]:
        first, count = cause.results[0], len(cause.results)
        where = (
            "" if first.problem == NO_PROBLEM else f" on {cause.problems} problem{'s' if cause.problems > 1 else ''}"
        )
        yield f"{cause.words}{where}: {count} result{'s' if count > 1 else ''}"
        told = f"{first.observed:.3g} of {first.limit:.3g}" if math.isfinite(first.observed) else first.why
        yield f"  first {first.quantity}, {told}: {first.reproduce}"
    if fits < len(listed):
        rest = sum(len(one.results) for one in listed[fits:])
        yield f"{len(listed) - fits} more causes, {rest} results (report.html)"
