"""Bugs of equations of villacampa2017 that no solve of a witness may need."""

from __future__ import annotations

from functools import partial
from typing import Any

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = partial(
    Seeds(asks="print/{}/", problems="two-points-3-sparse-threshold", package="reference.villacampa2017."), "ep"
)


def _variance_forgotten(original: Any) -> Any:
    return lambda alpha, beta, b_sum, upsilon, cov: original(alpha, beta, b_sum, upsilon, 0.0 * cov)


def _own_distribution_twice(original: Any) -> Any:
    return lambda log_tilted_norm, cavities, posterior: original(
        log_tilted_norm, (cavities[0], cavities[0]), (posterior[0], posterior[0])
    )


FAULTS: tuple[SeededBug, ...] = (
    _bug(
        "print-cavity-variance-forgotten",
        "C1 of (48) is the bracket, without the cavity's variance",
        "factors:update_c1",
        _variance_forgotten,
        "factors",
    ),
    _bug(
        "print-class-of-label-twice",
        "the scale (61) has the label's class in the place of class k",
        "evidence:factor_log_scale_from_moments",
        _own_distribution_twice,
        "evidence",
    ),
)
