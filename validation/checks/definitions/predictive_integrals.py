"""Class probabilities as integrals over a method's own predictive Gaussian, by other routes than the witnesses take.

A witness reports the distribution of f at a test point and class probabilities beside it. These are one integral of the
other, so that a mistake in the integral shows even where both witnesses share a rule. The integrals are those of
`validation.judge.class_integrals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from validation.checks.core import Compared, Context, Outcome, Skipped
from validation.checks.subjects import Subject
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.class_integrals import RATIOS, probit_orthants, softmax_mean

# Largest errors of a probability that the rules of the witnesses state, by the number of classes and for log variances
# up to 1, 4 and 8: 4096 points of Sobol's sequence for the softmax, 1024 for an orthant. Measured on 60 random
# distributions of each (24 beyond six classes). Two classes: a midpoint rule for a monotone function, at most half a
# step of 1/4096, and a closed form.
SOFTMAX_ERROR = {
    2: (2e-5, 4e-5, 1.3e-4),
    3: (1e-4, 3e-4, 1.2e-3),
    4: (1.5e-4, 8e-4, 3e-3),
    6: (3e-4, 4e-3, 7e-3),
    12: (8e-4, 6e-3, 8e-3),
}
ORTHANT_ERROR = {
    2: (1e-12, 1e-12, 1e-12),
    3: (2e-5, 2e-5, 3e-5),
    4: (2e-4, 4e-4, 5e-4),
    6: (7e-4, 7e-4, 1.2e-3),
    12: (3e-3, 3e-3, 4e-3),
}
# the sum of all orthants, each by itself
MASS_ERROR = {2: (1e-12,) * 3, 3: (3e-5,) * 3, 4: (5e-4,) * 3, 6: (2e-3,) * 3, 12: (6e-3,) * 3}
LOG_VARIANCES = (1.0, 4.0, 8.0)
# what independent classes, and two of them, have in place of a rule: one integral in one dimension, or a closed form
ONE_INTEGRAL = 1e-9
# methods whose sums of class probabilities are no integrals: normalisers of inner EP, ratios of two evidences
NO_INTEGRAL = ("nested-ep", "nested-iep", *RATIOS)


def stated(errors: Mapping[int, tuple[float, ...]], n_classes: int, variance: float) -> float:
    """The stated error: that of the next larger number of classes and variance for which one was measured."""
    rows = next((row for C, row in errors.items() if n_classes <= C), ())
    return next((error for v, error in zip(LOG_VARIANCES, rows, strict=False) if np.log(variance) <= v), np.inf)


def rule_error(answer: Solution) -> float:
    """What the rule that a method predicts with states of a probability."""
    assert answer.test_latent_cov is not None
    soft = answer.problem.likelihood == "softmax"
    if not soft and answer.method == "qiep":
        return ONE_INTEGRAL
    largest = float(np.einsum("tcc->tc", answer.test_latent_cov).max())
    return stated(SOFTMAX_ERROR if soft else ORTHANT_ERROR, answer.problem.n_classes, largest)


def unit_mass(answer: Solution) -> Iterable[Outcome]:
    """The sum of class probabilities before normalising against one; nothing for methods that integrate none."""
    if answer.probability_mass is None or answer.probability_mass.size == 0 or answer.method in NO_INTEGRAL:
        return
    limit, why = ONE_INTEGRAL, "integrals in one dimension are good to ten digits, and a mean of softmaxes to more"
    if answer.method == "qep":
        limit = stated(MASS_ERROR, answer.problem.n_classes, 1.0)
        why = f"what 1024 points an orthant leave of the sum over {answer.problem.n_classes} classes"
    yield Compared(
        float(np.abs(answer.probability_mass - 1.0).max()),
        limit,
        f"class probabilities add up to one: {why}",
        answer.label,
        "one",
        "largest |sum - 1|",
    )


def own_integral(context: Context, subject: Subject, problem: Problem, *, most: int = 6) -> Iterable[Outcome]:
    """Probabilities of both witnesses against integrals over the Gaussian that each reports, at six points at most."""
    soft = problem.likelihood == "softmax"
    for witness in ("reference", "fast"):
        answer = context.solve(witness, subject.method, problem)
        mean, cov, probabilities = answer.test_latent_mean, answer.test_latent_cov, answer.probabilities
        if mean is None or cov is None or probabilities is None:
            yield Skipped(f"X_test: found no predictions for {problem.name}, expected some", witness)
            continue
        expected, left = (softmax_mean if soft else probit_orthants)(mean[:most], cov[:most])
        error = rule_error(answer)
        yield Compared(
            float(np.abs(probabilities[:most] - expected).max()),
            error + left,
            f"the rule states {error:.2g} for {problem.n_classes} classes and these variances, the other route leaves "
            f"{left:.2g} open",
            answer.label,
            "a rule of the judge's own",
            "largest difference in probability",
        )
