"""Two answers to one question, quantity by quantity, each against its limit.

The limit is the judge's own for an identity, max(1e-8, 100 eps cond). A plain iteration that takes k steps down to its
tolerance falls by a factor of e in about k/log(1/tolerance) steps, and its last change leaves so many times the
tolerance undone: where k is in the hundreds, four times that is the limit. After given steps nothing is left undone.

What vanishes in theory is rounding on both sides: means are held against a share of the largest deviation of a latent
value. Gradients are differences of terms of the size of log Z, and at a fixed point to 1e-10 off by that much times the
number of terms: with several classes the limit is ten times as large, 1e-7 at least; the scale is at least 1 % of log Z
for each logarithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from validation import Problem, Solution, solve
from validation.judge.compare import identity_limit, relative_difference

FIELDS = ("variance", "lengthscales", "noise", "Z")
_TOLERANCE = 1e-10  # the methods' own
_ARRAYS = (
    "inducing_mean", "inducing_cov", "latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov",
    "probabilities", "probability_mass",
)  # fmt: skip
_BINARY = ("logit", "probit")


def both(method: str, p: Problem, **options: Any) -> tuple[Solution, Solution]:
    """The answers of `reference` and of `fast`."""
    return solve("reference", method, p, **options), solve("fast", method, p, **options)


def above_limit(left: Solution, right: Solution, least: float = 0.0, without: tuple[str, ...] = ()) -> dict[str, float]:
    """What differs by more than its limit, in limits; least: of a limit; without: local quantities that are free."""
    p = left.problem
    limit, one_function = max(least, identity_limit(p)[0]), p.likelihood in _BINARY
    if left.converged and right.converged:
        limit = max(limit, 4.0 * _TOLERANCE * max(left.iterations, right.iterations) / np.log(1.0 / _TOLERANCE))
    assert left.log_evidence is not None
    assert left.latent_cov is not None
    largest = float(left.latent_cov.max())
    floor = 0.01 * largest if one_function else 0.1 * float(np.sqrt(largest))
    apart = {"log_evidence": relative_difference(left.log_evidence, right.log_evidence) / limit}
    for name in _ARRAYS:
        a, b = getattr(left, name), getattr(right, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape
            assert np.isfinite(a).all()
            apart[name] = relative_difference(a, b, floor if name.endswith("mean") else 0.0) / limit
    for name in (left.local.keys() & right.local.keys()) - set(without):
        size = np.sqrt(floor) if one_function else 0.01
        apart[name] = relative_difference(left.local[name], right.local[name], size) / limit
    for name in FIELDS:
        a, b = getattr(p, name), getattr(right.problem, name)
        if a is not None:
            apart[f"learned {name}"] = relative_difference(a, b) / limit
    if left.gradients and right.gradients:
        unit = {"variance": p.variance, "noise": p.variance + p.noise, "lengthscales": p.lengthscales,
                "Z": p.lengthscales[:, None]}  # fmt: skip
        for name in left.gradients.keys() & right.gradients.keys():
            a, b = (each.gradients[name] * unit[name] for each in (left, right))
            gap = relative_difference(a, b, 0.01 * abs(left.log_evidence))
            apart[f"gradient {name}"] = gap / (limit if one_function else max(1e-7, 10.0 * limit))
    if left.trace.size and left.trace.shape == right.trace.shape and not left.converged:
        apart["trace"] = relative_difference(left.trace, right.trace) / limit
    return {name: value for name, value in apart.items() if not value <= 1.0}
