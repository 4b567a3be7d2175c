"""How far each method is from the truths at hand, as recorded: what its answers to those questions are held against.

An approximation errs, and by how much is its own: a distance from the truth says something of an implementation only
beside the distance that the method has. `distances.toml` has it for the methods of `fast` on the problems with a truth
(`python -m validation.judge.distances` measures it anew); `triad compare` and `discrepancy/.../moments` hold answers
to it. The statistics see an answer a few percent off: of covariances not only the largest difference, but the mean
logarithm of the ratio of variances too, which variances 5 % too large move by 0.049 however far the method is from the
truth.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation import problems
from validation.door import premises
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import ImplementationError, solve
from validation.door.solve import methods as methods_of
from validation.truth import store

MOMENTS = (
    "latent_mean",
    "latent_cov",
    "test_latent_mean",
    "test_latent_cov",
    "probabilities",
    "inducing_mean",
    "inducing_cov",
)
QUANTITIES = ("log_evidence", *MOMENTS)

# Two runs of one method end within 1e-8; another implementation of it may stop earlier or integrate more coarsely. A
# fiftieth of the method's own distance (of 1 at most) and half a percent admit that; 5 % stand out.
SHARE, FLOOR = 0.02, 0.005

# a mean logarithm of ratios held more widely than this would pass variances 5 % off
RESOLVING = 0.04

# of the largest covariance: nine of ten recorded distances are smaller (tests/validation/judge/test_distances.py)
COVARIANCE_BAND = 0.6

# small problems without a stored truth, which quadrature answers, and its digits where eight cost too much
QUADRATURES: Mapping[str, float | None] = {
    "two-points": None,
    "three-points": None,
    "three-points-fitc": None,
    "two-points-probit": None,
    "three-points-probit": None,
    "three-points-fitc-probit": None,
    "two-points-3": 6.0,
    "two-points-3-threshold": 6.0,
    "two-points-3-errors": 6.0,
    "two-points-3-softmax": 5.0,
}

# options beside the defaults under which a method answers for another model, or at another power
VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "ep": ({"factors": "datum"},),
    "pep": ({"alpha": 1.0},),
}


# of a problem, what a posterior does not depend on, and what the truth alone decides
_FREE = ("name", "y_test", "prior_model")


class Entry(NamedTuple):
    """One method on one problem: the options it was asked with, the settings it stated, and its distances."""

    method: str
    problem: str
    options: dict[str, Any]
    settings: dict[str, Any]
    distances: dict[str, tuple[float, ...]]


class Held(NamedTuple):
    """The largest departure from a recorded distance in units of what is allowed, and whether 5 % would show in it."""

    observed: float
    limit: float
    why: str
    resolves: bool


class Known(NamedTuple):
    """An entry that speaks of a candidate, with the truth that it was measured against."""

    entry: Entry
    truth: Solution | None  # None: quadrature, without errors

    def held(self, quantity: str, candidate: Solution, truth: Solution) -> Held | None:
        """A candidate's distance from its truth beside the recorded one; None where nothing was recorded."""
        recorded = self.entry.distances.get(quantity)
        result = statistics(quantity, candidate, truth)
        if recorded is None or result is None or len(result) != len(recorded):
            return None
        noise = self._noise(quantity, truth)
        allowed = [min(SHARE * abs(r), SHARE) + FLOOR + e for r, e in zip(recorded, noise, strict=True)]
        ratios = [abs(f - r) / a for f, r, a in zip(result, recorded, allowed, strict=True)]
        told = "; ".join(
            f"{unit} {f:.4g}, recorded {r:.4g} ± {a:.2g}"
            for unit, f, r, a in zip(_units(quantity), result, recorded, allowed, strict=True)
        )
        resolves = len(allowed) == 1 or allowed[-1] <= RESOLVING
        blind = "" if resolves else "; errors of the truths would hide variances 5 % off: nothing is judged"
        why = f"{told}: the distance that {self.entry.method} has from the truth on {self.entry.problem}{blind}"
        return Held(float(np.max(ratios)), 1.0, why, resolves)

    def _noise(self, quantity: str, truth: Solution) -> list[float]:
        """What errors of the two truths leave open in each statistic; nothing where they are one file."""
        mine = _errors(quantity, truth)
        if self.truth is not None and np.array_equal(getattr(truth, quantity), getattr(self.truth, quantity)):
            return [0.0] * len(mine)
        other = [0.0] * len(mine) if self.truth is None else _errors(quantity, self.truth)
        # largest differences: 4 standard errors; a mean of ratios, whose errors go together: 3
        return [factor * float(np.hypot(a, b)) for factor, a, b in zip((4.0, 3.0), mine, other, strict=False)]


def relative_difference(left: Any, right: Any, floor: float = 0.0) -> float:
    """Largest difference over the largest entry of the two arrays; NaN anywhere gives NaN, empty arrays 0.

    The largest entry and not each one scales, so that an entry near zero asks for no more digits than its array has.
    Symmetric, at most 2, and so never infinite: a zero array differs from any other by 1. floor is the smallest
    scale: with 1 the differences of arrays below one are absolute ones.
    """
    a, b = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    if a.shape != b.shape:
        raise ValueError(f"right: found shape {b.shape}, expected {a.shape}")
    if a.size == 0:
        return 0.0
    scale = np.max([np.abs(a).max(), np.abs(b).max(), floor])  # np.max hands NaN on, max would not
    return float(np.abs(a - b).max() / scale) if scale > 0.0 or np.isnan(scale) else 0.0


def statistics(quantity: str, answer: Solution, truth: Solution) -> tuple[float, ...] | None:
    """The distance of one quantity in the units of `_units`; None where a side lacks it, or has no entries."""
    a, b = getattr(answer, quantity), getattr(truth, quantity)
    if a is None or b is None or not np.size(b):
        return None
    if quantity == "log_evidence":
        if answer.evidence_target != truth.evidence_target:
            return None
        return (float((a - b) / max(abs(b), 1.0)),)
    if quantity == "probabilities":
        return (float(np.abs(a - b).max()),)
    if not quantity.endswith("_cov"):
        return (relative_difference(a, b),)
    var, exact = _variances(a), _variances(b)
    with np.errstate(divide="ignore"):  # a variance of zero is infinitely far
        return relative_difference(a, b), float(np.mean(np.log(var / exact)))


def _units(quantity: str) -> tuple[str, ...]:
    if quantity == "log_evidence":
        return ("log Z less the truth, over |log Z|",)
    if quantity == "probabilities":
        return ("largest difference",)
    first = "difference over the largest entry"
    return (first, "mean log ratio of variances") if quantity.endswith("_cov") else (first,)


def _errors(quantity: str, truth: Solution) -> list[float]:
    """Standard errors of a truth in the units of `_units`."""
    error, value = getattr(truth, f"{quantity}_se"), getattr(truth, quantity)
    if error is None:
        return [0.0] * len(_units(quantity))
    if quantity == "log_evidence":
        return [float(error / max(abs(value), 1.0))]
    scale = 1.0 if quantity == "probabilities" else float(np.abs(value).max())
    results = [float(np.max(error) / scale)]
    if quantity.endswith("_cov"):
        results.append(float(np.mean(_variances(error) / _variances(value))))
    return results


def _variances(cov: Any) -> NDArray[np.float64]:
    return np.asarray(np.einsum("...ii->...i", cov))


# -- the record ----------------------------------------------------------------------------------------------------


@cache
def entries() -> tuple[Entry, ...]:
    """Everything recorded."""
    text = resources.files("validation.judge").joinpath("distances.toml").read_text(encoding="utf-8")
    return tuple(
        Entry(
            row["method"],
            row["problem"],
            json.loads(row["options"]),
            json.loads(row["settings"]),
            {name: tuple(row[name]) for name in QUANTITIES if name in row},
        )
        for row in tomllib.loads(text)["entries"]
    )


@cache
def methods(likelihood: str | None = None) -> frozenset[str]:
    """Methods whose own distances are recorded somewhere, for that likelihood or for any."""
    return frozenset(entry.method for entry in entries() if likelihood in (None, question(entry.problem).likelihood))


@cache
def question(name: str) -> Problem:
    """The problem of that name, its link a probit where it ends so."""
    if name in (*problems.names(), *problems.judged()):
        result: Problem = problems.get(name)
        return result
    return question(name.removesuffix("-probit")).replace(name=name, likelihood="probit")


def known(candidate: Solution, truth: Solution) -> Known | None:
    """The entry of a candidate's method for its problem, the prior of the truth and the settings; None without one.

    A run of so many steps, or an answer that did not converge, is at no fixed point whose distance could be recorded.
    """
    if not candidate.converged or premises.asked_for_steps(candidate):
        return None
    for entry in entries():
        if entry.method != candidate.method or not premises.same_settings(entry.settings, candidate.settings):
            continue
        asked = question(entry.problem)
        if truth.problem.prior_model == asked.prior_model and _same_question(candidate.problem, asked):
            stored = entry.problem in store.RECIPES
            return Known(entry, store.load(entry.problem).solution if stored else None)
    return None


def _same_question(left: Problem, right: Problem) -> bool:
    """Equal up to what another machine's sums leave of standardised data, whatever the problem and its prior's name."""
    a, b = ({k: np.asarray(v) for k, v in p.to_arrays().items() if k not in _FREE} for p in (left, right))
    return a.keys() == b.keys() and all(
        a[k].shape == b[k].shape
        and (np.allclose(a[k], b[k], rtol=1e-9, atol=1e-12) if a[k].dtype.kind == "f" else np.array_equal(a[k], b[k]))
        for k in a
    )


def truth_of(name: str, solve: Any) -> Solution:
    """The truth that distances on a problem are measured against: the stored one, else quadrature by `solve`."""
    if name in store.RECIPES:
        value: Solution = store.load(name).solution
        return value
    options = {} if QUADRATURES[name] is None else {"digits": QUADRATURES[name]}
    answer: Solution = solve("quadrature", "exact", question(name), **options)
    return answer


def measured() -> Iterator[Entry]:
    """Every method of `fast` on every problem with a truth that it can answer: the entries anew."""
    for name in (*QUADRATURES, *store.RECIPES):
        problem, truth = question(name), truth_of(name, solve)
        for method in methods_of()["fast"]:
            for options in ({}, *VARIANTS.get(method, ())):
                try:
                    answer = solve("fast", method, problem, **options)
                except (ImplementationError, ValueError):
                    continue  # another likelihood
                if answer.evidence_target != truth.evidence_target or not answer.converged:
                    continue
                if premises.asked_for_steps(answer):  # where a run of so many steps ends is no fixed point
                    continue
                results = {q: s for q in QUANTITIES if (s := statistics(q, answer, truth)) is not None}
                yield Entry(method, name, options, premises.comparable_settings(answer), results)


def text(rows: Iterator[Entry]) -> str:
    """The file of entries, a line each."""
    lines = [
        "# Made by `python -m validation.judge.distances`: how far each method is from the truth (units there).",
        "# Do not edit by hand.",
        "entries = [",
    ]
    for row in sorted(rows, key=lambda row: (row.method, row.problem, json.dumps(row.options, sort_keys=True))):
        cells = [f"method = {json.dumps(row.method)}", f"problem = {json.dumps(row.problem)}"]
        cells += [f"{k} = {json.dumps(json.dumps(v, sort_keys=True))}" for k, v in
                  (("options", row.options), ("settings", row.settings))]  # fmt: skip
        cells += [f"{q} = [{', '.join(f'{v:.6g}' for v in s)}]" for q, s in row.distances.items()]
        lines.append(f"  {{ {', '.join(cells)} }},")
    return "\n".join([*lines, "]", ""])


if __name__ == "__main__":
    from pathlib import Path

    from validation.door.storage import write_text

    write_text(Path(__file__).with_name("distances.toml"), text(measured()))
