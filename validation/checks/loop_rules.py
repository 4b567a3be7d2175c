"""Rules of loops in their own sentences: when rounding ends one, what it refuses, what a run does that is told little.

The judge hands the loop its steps, one by one, and reads its end off the sentence. No fixed point knows these rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Context, Outcome, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]

# -- ends by rounding ---------------------------------------------------------------------------------------------

# what the module says of itself: fifty sweeps without a smaller step, none of them above this, are rounding
_WITHOUT, _ROUNDED = 50, 1e-9


def ended_at(steps: Sequence[float]) -> int | None:
    """The first sweep, counted from one, with fifty behind it none of which is the smallest so far, it itself small."""
    for count in range(1, len(steps) + 1):
        smallest = int(np.argmin(steps[:count])) + 1  # the first of equal ones: the later are not smaller
        if count - smallest >= _WITHOUT and steps[count - 1] <= _ROUNDED:
            return count
    return None


def _prescribed(path: Array) -> tuple[int, bool, list[float]]:
    """Sweeps of the loop that is led along a path of c, two data moving oppositely; whether it converged; its steps."""
    from fast.one_latent.fixed_point import ascend

    stops = np.exp(path[:, None] * np.array([1.0, -0.5]))
    left = iter(stops[1:])

    def evaluate(c: Array) -> Any:
        return SimpleNamespace(elbo=-1.0, latent_mean=c, latent_var=c)

    # the tolerance of no step: what is left is rounding's to end
    end = ascend(evaluate, stops[0], 0.0, len(path) - 1, False, None, lambda mean, var: next(left))
    moves = np.abs(np.diff(np.log(stops), axis=0)).max(axis=1)
    return len(end.trace), end.converged, [float(move) for move in moves]


@check(
    "identity/x-gpc/rounding_ends",
    paper="wenzel2019",
    question="Does a loop over local parameters end by rounding after fifty sweeps without a smaller step, no sooner?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    rng = np.random.default_rng(71)
    small, shrinking = 1e-11 * (4.0 + rng.random(200)), 0.3 * 0.9 ** np.arange(120.0)
    again, late = small.copy(), 5e-9 * (2.0 + rng.random(200))
    again[[0, 30]] = 3.9e-11, 2e-11
    late[[40, 90]], late[91:] = (5e-9, 6e-10), 8e-10
    for steps, why in (
        (shrinking, "steps that shrink for ever"),
        (np.concatenate([shrinking[:7], small]), "seven that shrink, then noise"),
        (again, "a smaller one after thirty"),
        (np.full(200, 3e-11), "equal steps, to and fro: the second is not smaller"),
        (np.full(200, 2e-9), "steps that stand still above 1e-9"),
        (late, "a smaller one after ninety that are above 1e-9"),
    ):
        path = np.append(0.0, np.cumsum(steps * (-1.0) ** np.arange(len(steps))))
        count, converged, moves = _prescribed(path)
        wanted = ended_at(moves)
        yield flaws(abs(count - (wanted or len(steps))) + converged, f"{why}: sweep {wanted or 'at the limit'}", "fast",
                    "sweeps too many or few")  # fmt: skip


def _always(updated: Array, *moments: Array) -> Array:
    return updated


@check(
    "identity/x-gpc/unusable_updates",
    paper="wenzel2019",
    question="Is a local parameter that is no positive number refused, with its value and row?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.one_latent.fixed_point import ascend

    start = np.array([0.7, 2.0, 1.0, 0.4])
    state: Any = SimpleNamespace(elbo=-1.0, latent_mean=start, latent_var=start)
    for value, row in itertools.product((0.0, -0.5, -3.0, np.inf, -np.inf, np.nan), (0, 2, 3)):
        updated = start.copy()
        updated[row:] = value
        text = ""
        try:
            ascend(lambda c: state, start, 1e-9, 3, False, None, partial(_always, updated))
        except ValueError as error:
            text = str(error)
        wanted = text.startswith(f"c: found {np.float64(value)} at row {row}, expected a finite number > 0")
        yield flaws(not wanted, f"{value} from row {row} on is refused", "fast", "answers")


# -- what a run does that is told little --------------------------------------------------------------------------


class _Asked(SimpleNamespace):
    """Options as a method hands them over."""


def _default(lbfgs: bool, asked: dict[str, Any]) -> dict[str, Any] | str:
    """Optimiser, scheme, steps and rate by the sentences of the documentation; the option that is refused, if any."""
    lists, size, steps = asked.get("batches"), asked.get("batch_size"), asked.get("n_steps")
    learns, optimizer, scheme = bool(asked.get("learn")), asked.get("optimizer"), asked.get("scheme")
    in_batches = lists is not None or size is not None
    # a search where a run of its own objective is given no steps, and asked for no scheme of steps
    if optimizer is None:
        searched = lbfgs and not in_batches and steps is None and scheme != "inner-approximate"
        optimizer = "lbfgs" if searched and scheme != "inner-exact" else "adam"
    scheme = scheme or {"lbfgs": "outer"}.get(optimizer, "inner-approximate")
    if learns and in_batches and optimizer == "lbfgs":
        return "optimizer"
    if learns and ((scheme == "outer" and in_batches) or (scheme != "outer" and optimizer == "lbfgs")):
        return "scheme"
    if lists is not None and steps is not None and steps > len(lists):
        return "n_steps"
    if not learns and not in_batches and steps is not None:
        return "n_steps"
    if steps is None:
        steps = {True: 200, False: 250}[optimizer == "lbfgs"]
        steps = steps if lists is None else len(lists)
    rate = asked.get("rate") or {"adam": 0.001, "adaptive": 0.01, "lbfgs": 1.0}[optimizer]
    return {"optimizer": optimizer, "scheme": scheme, "n_steps": steps, "rate": rate}


_BATCHES = ((0, 3, 3, 5), (6, 1), (3, 2, 7, 1))


@check(
    "identity/ep/settings_left_open",
    paper="villacampa2017",
    question="Are steps, rate, optimiser and scheme that a run leaves open those of the documentation?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.sparse_classes.training import settings_of

    wrong, count = [], 0
    in_batches: tuple[dict[str, Any], ...] = ({}, {"batches": _BATCHES}, {"batch_size": 3})
    for batches, learn, optimizer, scheme, steps, rate, lbfgs in itertools.product(
        in_batches, ((), ("variance",)), (None, "lbfgs", "adaptive", "adam"),
        (None, "outer", "inner-approximate", "inner-exact"), (None, 2, 7), (None, 0.3), (True, False),
    ):  # fmt: skip
        asked = {"learn": learn, "optimizer": optimizer, "scheme": scheme, "n_steps": steps, "rate": rate, **batches}
        wanted = _default(lbfgs, asked)
        try:
            settings = settings_of(8, _Asked(**asked), lbfgs=lbfgs)  # type: ignore[arg-type]
            result: Any = {name: getattr(settings, name) for name in ("optimizer", "scheme", "n_steps", "rate")}
            if "batches" in asked and (
                settings.batches is None
                or [tuple(batch) for batch in settings.batches] != [tuple(sorted(set(batch))) for batch in _BATCHES]
            ):
                result = "batches"
        except ValueError as error:
            result = str(error).partition(":")[0]
        count += 1
        if result != wanted:
            wrong.append(f"{asked} (lbfgs {lbfgs}): found {result}, expected {wanted}")
    yield flaws(len(wrong), "; ".join(wrong[:2]) or f"{count} combinations, each by the sentences", "fast", "settings")
