"""The baselines of wenzel2019 with a probit link: on which problems they are checked, and where their truths come from.

svgpc bounds the evidence of the full model and approximates its posterior; epgpc is expectation propagation in FITC's.
"""

from __future__ import annotations

import numpy as np

from validation.checks.core import Context
from validation.checks.subjects import FEW, THIRD, Subject, exact, exact_draws
from validation.door.problem import Problem
from validation.door.solution import Solution

BASELINES = (Subject("svgpc", "wenzel2019", "exact-probit"), Subject("epgpc", "wenzel2019", "exact-probit"))
SVGPC, EPGPC = BASELINES

# asked with the probit link in the place of the logistic one; log variance 4 among both
QUICK = ("two-points", "three-points", "three-points-fitc", "toy")
FULL = ("toy-steep", "toy-sparse", "iris")
# against truths
JUDGED, JUDGED_FULL = (*FEW, "toy"), (*THIRD, *FULL)
# of quadrature: a thousandth of the distances, and what exact draws are held against in the same run
DIGITS = 6.0
# the quadratures of svgpc in `reference` take seconds there
LARGE = ("wine", "digits", "breast-cancer")


def prior_model(subject: Subject, problem: Problem) -> str:
    """The prior whose posterior the method approximates."""
    return "full" if subject.method == "svgpc" else problem.prior_model


def truth(context: Context, subject: Subject, problem: Problem) -> Solution:
    """Quadrature where n <= 3, exact draws elsewhere, of the prior that the method approximates."""
    question = problem.replace(prior_model=prior_model(subject, problem))
    return exact(context, question, DIGITS) if problem.n <= 3 else exact_draws(context, question)


def resolution(quantity: str, exact: Solution) -> float:
    """What errors of sampled truths leave open in a recorded distance; 0 for quadrature.

    Six times the standard error: the recorded distance was measured against another sample, and the largest of some
    ten differences counts.
    """
    error, value = getattr(exact, f"{quantity}_se"), getattr(exact, quantity)
    if error is None:
        return 0.0
    if quantity == "latent_cov":
        error, value = np.einsum("nll->nl", error), np.einsum("nll->nl", value)
        return float(6.0 * np.mean(error / value))
    scale = np.abs(value).max() if quantity == "latent_mean" else 1.0
    return float(6.0 * np.max(error) / scale)
