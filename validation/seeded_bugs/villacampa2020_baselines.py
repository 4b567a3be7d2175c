"""Bugs of `fast`'s label-regression and laplace-sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validation.seeded_bugs._seeded import seeded
from validation.selftest import SeededBug


def _times(factor: float) -> Callable[[Any], Any]:
    """What a function gives, by a factor."""

    def make(original: Any) -> Any:
        return lambda *arguments, **options: factor * original(*arguments, **options)

    return make


def _less_conditional_variance(original: Any) -> Any:
    return lambda pi, cond_var: original(pi, 0.9 * cond_var)


def _turned(original: Any) -> Any:
    return lambda mean, root: original(-mean, root)


_MOMENTS = ("identity/{}/log_evidence", "identity/{}/inducing_*", "identity/{}/latent_*")

_REGRESSION = tuple(
    seeded("label-regression", *rest, checks, "two-points-3-sparse-errors")
    for rest, checks in (
        (
            (
                "targets-short",
                "targets are 0.98 and -0.98 in place of 1 and -1",
                "fast.methods.label_regression:label_targets",
                _times(0.98),
            ),
            (*_MOMENTS, "limit/{}/conditioning"),
        ),
        (
            (
                "evidence-scaled",
                "the log density of the targets is a hundredth too large",
                "fast.methods.label_regression:regression_evidence",
                _times(1.01),
            ),
            ("identity/{}/log_evidence", "limit/{}/conditioning"),
        ),
        (
            (
                "residuals-long",
                "residuals in the evidence and its gradient are a fiftieth too long",
                "fast.methods.label_regression:LabelRun._residuals",
                _times(1.02),
            ),
            ("identity/{}/log_evidence", "identity/{}/gradient_*", "limit/{}/conditioning"),
        ),
    )
)

_CLAIM = seeded(
    "label-regression",
    "doubt-unseen",
    "the closed form is claimed whatever the last digits of the prior do to it",
    "fast.methods.label_regression:uncertainty",
    _times(0.0),
    "limit/label-regression/claims",
)

_LAPLACE = tuple(
    seeded("laplace-sparse", *rest, checks, "two-points-3-sparse-threshold")
    for rest, checks in (
        (
            (
                "conditional-variance-short",
                "a tenth of the conditional variance is missing where it is integrated out of each datum",
                "fast.sparse_classes.softmax_inducing:effective_sites",
                _less_conditional_variance,
            ),
            (*_MOMENTS, "limit/{}/definition"),
        ),
        (
            (
                "precision-scaled",
                "the precision of the inducing values is a fiftieth too large",
                "fast.sparse_classes.softmax_inducing:inducing_precision",
                _times(1.02),
            ),
            (*_MOMENTS, "limit/{}/definition"),
        ),
        (
            (
                "test-covariances-short",
                "what inducing values add to predictive covariances is a twentieth too small",
                "fast.methods.laplace_sparse:projected_covariances",
                _times(0.95),
            ),
            ("identity/{}/test_latent_cov", "identity/{}/probabilities", "limit/{}/definition"),
        ),
        (
            (
                "evidence-scaled",
                "log Z is a hundredth too large",
                "fast.methods.laplace_sparse:laplace_log_evidence",
                _times(1.01),
            ),
            ("identity/{}/log_evidence", "limit/{}/definition", "discrepancy/{}/quadrature"),
        ),
        (
            (
                "last-class-turned",
                "the differences to the last class have the sign of the last class's to the others",
                "fast.full_classes.predict:softmax_of_differences",
                _turned,
            ),
            ("limit/{}/own_integral",),
        ),
    )
)

FAULTS: tuple[SeededBug, ...] = (*_REGRESSION, _CLAIM, *_LAPLACE)
