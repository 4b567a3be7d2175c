"""Bugs of equations of izmailov2016 that no solve of a witness may need."""

from __future__ import annotations

from typing import Any

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds(asks="print/{}/", problems="three-points-fitc", package="reference.izmailov2016.")


def _without_variance(original: Any) -> Any:
    return lambda xi, mean, var, y_sign: original(xi, mean, 0.0 * var, y_sign)


def _prior_mean(original: Any) -> Any:
    return lambda mean, cov, K_ZZ, K_XZ, K_XX: original(0.0 * mean, cov, K_ZZ, K_XZ, K_XX)


FAULTS: tuple[SeededBug, ...] = (
    _bug(
        "vi-taylor",
        "print-derivative-without-variance",
        "the derivative of the approximate bound in xi is without the variance, as printed",
        "taylor:taylor_xi_derivative",
        _without_variance,
        "bound",
    ),
    _bug(
        "svi",
        "print-prior-mean",
        "the divergence of u and f has the prior's mean in the place of q's",
        "bound:kl_joint",
        _prior_mean,
        "inducing",
    ),
)
