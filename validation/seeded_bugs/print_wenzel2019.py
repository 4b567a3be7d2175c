"""Bugs of the printed equations of wenzel2019 that move no answer, and of the fixed point they are held against."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.selftest import SeededBug

_PROBLEMS = ("three-points-fitc",)


def _without_labels(original: Any) -> Any:
    def gradient(inducing_mean: Any, theta: Any, upsilon: Any, y_sign: Any, K_ZZ_inv: Any) -> Any:
        return original(inducing_mean, theta, upsilon, y_sign, K_ZZ_inv) - 0.5 * upsilon.T @ y_sign

    return gradient


def _smaller_variance(original: Any) -> Any:
    def local(latent_mean: Any, latent_var: Any) -> Any:
        return original(latent_mean, (1.0 - 1e-6) * np.asarray(latent_var))

    return local


def _prior_mean(original: Any) -> Any:
    def derivative(c: Any, inducing_mean: Any, *rest: Any) -> Any:
        return original(c, 0.0 * inducing_mean, *rest)

    return derivative


def _swapped(original: Any) -> Any:
    return lambda Sigma, theta, upsilon, K_ZZ_inv: original(K_ZZ_inv, theta, upsilon, Sigma)


FAULTS: tuple[SeededBug, ...] = (
    SeededBug(
        "print-wenzel2019/gradient-without-labels",
        "reference",
        "x-gpc",
        "(16) without kappa' y/2, which no loop of reference calls",
        ("reference.wenzel2019.updates:gradient_mu",),
        _without_labels,
        _PROBLEMS,
        ("print/x-gpc/updates",),
    ),
    SeededBug(
        "print-wenzel2019/tilts-too-small",
        "fast",
        "x-gpc",
        "(11) of fast with a millionth of the variance missing: its end is no zero of A.3",
        ("fast.one_latent.fixed_point:update_local",),
        _smaller_variance,
        _PROBLEMS,
        ("print/x-gpc/updates",),
    ),
    SeededBug(
        "print-wenzel2019/ascent-forgets-the-mean",
        "reference",
        "x-gpc",
        "the ascent ends with the derivative in c at the prior's mean",
        ("reference.wenzel2019.fit:local_gradient",),
        _prior_mean,
        _PROBLEMS,
        ("print/x-gpc/ascent",),
    ),
    SeededBug(
        "print-wenzel2019/ascent-swaps-covariances",
        "reference",
        "x-gpc",
        "the ascent ends with (15) whose two matrices stand in each other's place",
        ("reference.wenzel2019.fit:gradient_sigma",),
        _swapped,
        _PROBLEMS,
        ("print/x-gpc/ascent",),
    ),
)
