"""The quantities of a solution, and z statistics of two solutions of which at least one has standard errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from validation.door.solution import Solution

# quantities in the order of reports; `gradients/...` and `local/...` follow where both sides have them
QUANTITIES = (
    "log_evidence",
    "latent_mean",
    "latent_cov",
    "test_latent_mean",
    "test_latent_cov",
    "probabilities",
    "inducing_mean",
    "inducing_cov",
)

# level of the z statistics of one row together
LEVEL = 1e-4

# of the largest entry: what solves with a kernel matrix and averages of many draws leave in the last digits
ROUNDING = 1e-12


def z_statistics(
    left: Solution, right: Solution, quantity: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """(z, standard error) of left minus right, entry by entry, where at least one has standard errors.

    None where a side lacks the quantity or neither has an error. An entry without any error (an exact zero on both
    sides) must agree exactly: its z is 0 or infinite. No error is taken for smaller than ROUNDING of the largest entry:
    at a point where data say nothing, draws vary by less than their sums round.
    """
    a, b = getattr(left, quantity), getattr(right, quantity)
    if a is None or b is None:
        return None
    errors = [getattr(s, f"{quantity}_se") for s in (left, right)]
    if all(e is None for e in errors):
        return None
    se = np.sqrt(sum(np.square(np.asarray(e, dtype=float)) for e in errors if e is not None))
    se = np.atleast_1d(se)
    gap = np.atleast_1d(np.asarray(a, dtype=float) - np.asarray(b, dtype=float))
    largest = max(float(np.max(np.abs(side), initial=0.0)) for side in (a, b))
    se = np.where(se > 0.0, np.hypot(se, ROUNDING * largest), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(se > 0.0, gap / se, np.where(np.abs(gap) < 1e-12, 0.0, np.inf))
    return z, se


def same_evidence(left: Solution, right: Solution) -> str | None:
    """Why two log evidences are not comparable, or None if they are."""
    if left.log_evidence is None or right.log_evidence is None:
        return "one side has no log evidence"
    if left.evidence_target != right.evidence_target:
        return f"different targets: {left.evidence_target!r} and {right.evidence_target!r}"
    if left.prior_model != right.prior_model:
        return f"different priors: {left.prior_model!r} and {right.prior_model!r}"
    return None
