"""Bugs of log Z: the routes of the samplers for the probit, the threshold rule and the softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_ndtr

from validation.seeded_bugs._seeded import Seeds

_bug = Seeds(checks="exactness/{}/log_evidence_routes", problems="two-points-3", label="log-evidence-")


def _without_determinant(original: Any) -> Any:
    return lambda d, chol: original(d, chol) + np.log(np.diagonal(chol)).sum()


def _without_constraints(original: Any) -> Any:
    def log_ratio(problem: Any, fit: Any, white: Any, wrong: Any) -> Any:
        return original(problem, fit, white, wrong) - log_ndtr(fit.cut_mean - problem.cuts(white)).sum(axis=1)

    return log_ratio


def _without_errors(original: Any) -> Any:
    def island(rng: Any, common: Any, size: int) -> Any:
        return original(rng, common._replace(epsilon=0.0), size)

    return island


def _norm_without_determinant(original: Any) -> Any:
    def factors(chol: Any, *rest: Any) -> Any:
        result = original(chol, *rest)
        return result._replace(log_norm=0.5 * float(result.shift @ result.mean))

    return factors


FAULTS = (
    _bug(
        "gibbs-probit",
        "factors-without-determinant",
        "particles: the integral of the prior and the factors that stand for labels ahead lacks its determinant",
        "gibbs.evidence.sequential:_factors",
        _norm_without_determinant,
    ),
    _bug(
        "gibbs-probit",
        "margins-independent",
        "particles: the margins are taken for independent, as if each datum and class had a prior of its own",
        "gibbs.evidence.sequential:_covariance",
        lambda original: lambda cov, y: np.diag(np.diagonal(original(cov, y))),
    ),
    _bug(
        "gibbs-probit",
        "constraints-forgotten",
        "bridge: the density of a proposal lacks the probabilities of its cuts",
        "gibbs.evidence.fitted:_log_ratio",
        _without_constraints,
    ),
    _bug(
        "gibbs-threshold",
        "without-errors",
        "particles: every label binds, whatever epsilon says",
        "gibbs.evidence.sequential:_island",
        _without_errors,
        problems="two-points-3-errors",
    ),
    _bug(
        "mh-softmax",
        "density-without-determinant",
        "bridge: Gaussian densities lack their determinants",
        "gibbs.evidence.softmax_bridge:_log_normal",
        _without_determinant,
        problems="two-points-3-softmax",
    ),
)
