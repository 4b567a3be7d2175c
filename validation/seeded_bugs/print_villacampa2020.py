"""Bugs of equations of villacampa2020 that no solve of a witness may need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_seeds = Seeds(problems="two-points-3-sparse-errors", package="reference.villacampa2020.")
_bug = partial(_seeds, "pep")


def _number_for_its_power(original: Any) -> Any:
    return lambda d_mean, c1, upsilon, mean, cov, alpha: original(d_mean, c1 / alpha, upsilon, mean, cov, alpha)


def _cavity_dropped(original: Any) -> Any:
    return lambda log_tilted_norm, cavity, posterior: original(log_tilted_norm, posterior, posterior)


def _mean_dropped(original: Any) -> Any:
    return lambda mean, cov, K_ZZ: original(np.zeros_like(mean), cov, K_ZZ)


def _loops(
    name: str, description: str, target: str, make: Callable[[Any], Any], *methods: str
) -> tuple[SeededBug, ...]:
    """Of an equation that the loop of a method calls: `fast` tells."""
    asked = "identity/{}/gradient_variance" if target.startswith("gradients:") else "identity/{}/log_evidence"
    return tuple(_seeds(method, f"loop-{name}", description, target, make, asked) for method in methods)


def _conditional_dropped(original: Any) -> Any:
    return lambda k_xx, upsilon, K_ZZ, cov: original(float(upsilon @ K_ZZ @ upsilon), upsilon, K_ZZ, cov)


def _derivative_of_q(original: Any) -> Any:
    return lambda matrix, dK: 0.5 * original(matrix, dK)


def _whole_factor(original: Any) -> Any:
    return lambda theta, tied_factor, n, alpha: original(theta, tied_factor, 2 * n, alpha)


def _one_factor_less(original: Any) -> Any:
    return lambda theta, n, alpha: original(theta, n - 1, alpha)


def _divergence_shifted(original: Any) -> Any:
    return lambda posterior, K_ZZ: original(posterior, K_ZZ) + 0.5 * posterior.mean.size


def _prior_normaliser_dropped(original: Any) -> Any:
    def energy(posterior: Any, K_ZZ: Any, n: int, log_expectations: Any, alpha: float) -> Any:
        dropped = 0.5 * float(np.sum(np.linalg.slogdet(K_ZZ)[1]))
        return original(posterior, K_ZZ, n, log_expectations, alpha) - dropped

    return energy


FAULTS: tuple[SeededBug, ...] = (
    *_loops(
        "conditional-dropped",
        "(A.11) is without the variance that f has given the inducing values",
        "pep:cavity_latent_variance",
        _conditional_dropped,
        "pep",
        "apep",
        "rpapep",
    ),
    *_loops(
        "half-the-prior",
        "(A.29) is half of itself in the gradient of PEP",
        "gradients:prior_term_gradient",
        _derivative_of_q,
        "pep",
    ),
    *_loops(
        "half-a-factor",
        "the cavity keeps half of what it should lack of the tied factor",
        "energies:apep_cavity",
        _whole_factor,
        "apep",
        "bb-alpha",
    ),
    *_loops(
        "one-factor-less", "the prior is not counted as a factor", "energies:rpapep_cavity", _one_factor_less, "rpapep"
    ),
    *_loops(
        "divergence-shifted",
        "the divergence of (9) is without the number of dimensions",
        "energies:kl_to_prior",
        _divergence_shifted,
        "arpep",
    ),
    *_loops(
        "prior-normaliser",
        "(11) is without the determinant of the prior",
        "energies:bb_alpha_energy",
        _prior_normaliser_dropped,
        "bb-alpha",
    ),
    _bug(
        "print-c1-for-its-power",
        "(A.20) has C1, which (A.17) has divided by alpha, for alpha C1, as printed",
        "refinement:update_c2",
        _number_for_its_power,
        ("print/pep/factors", "print/pep/sweeps"),
    ),
    _bug(
        "print-cavity-dropped",
        "log Z_i of (A.24) is without the normalisers of the cavity and of q",
        "evidence:site_log_normaliser",
        _cavity_dropped,
        ("print/pep/evidence",),
    ),
    _bug(
        "print-mean-dropped",
        "(A.30) is without the mean of q",
        "gradients:prior_term_matrix",
        _mean_dropped,
        ("print/pep/gradient",),
    ),
)
