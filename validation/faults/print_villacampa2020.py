"""Faults of equations of villacampa2020 that no solve of a witness may need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from validation.selftest import Fault


def _fault(
    name: str, description: str, target: str, make: Callable[[Any], Any], checks: tuple[str, ...], method: str = "pep"
) -> Fault:
    return Fault(
        f"{method}/{name}",
        "reference",
        method,
        description,
        (f"reference.villacampa2020.{target}",),
        make,
        ("two-points-3-sparse-errors",),
        checks,
    )


def _number_for_its_power(original: Any) -> Any:
    return lambda d_mean, c1, upsilon, mean, cov, alpha: original(d_mean, c1 / alpha, upsilon, mean, cov, alpha)


def _cavity_dropped(original: Any) -> Any:
    return lambda log_tilted_norm, cavity, posterior: original(log_tilted_norm, posterior, posterior)


def _mean_dropped(original: Any) -> Any:
    return lambda mean, cov, K_ZZ: original(np.zeros_like(mean), cov, K_ZZ)


FAULTS: tuple[Fault, ...] = (
    _fault(
        "print-c1-for-its-power",
        "(A.20) has C1, which (A.17) has divided by alpha, for alpha C1, as printed",
        "refinement:update_c2",
        _number_for_its_power,
        ("print/pep/factors", "print/pep/sweeps"),
    ),
    _fault(
        "print-cavity-dropped",
        "log Z_i of (A.24) is without the normalisers of the cavity and of q",
        "evidence:site_log_normaliser",
        _cavity_dropped,
        ("print/pep/evidence",),
    ),
    _fault(
        "print-mean-dropped",
        "(A.30) is without the mean of q",
        "gradients:prior_term_matrix",
        _mean_dropped,
        ("print/pep/gradient",),
    ),
)
