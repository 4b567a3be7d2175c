"""Faults of the printed equations of wenzel2019 that move no answer, and of the fixed point they are held against."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.selftest import Fault

_PROBLEMS = ("three-points-fitc",)


def _without_labels(original: Any) -> Any:
    def gradient(inducing_mean: Any, theta: Any, upsilon: Any, y_sign: Any, K_ZZ_inv: Any) -> Any:
        return original(inducing_mean, theta, upsilon, y_sign, K_ZZ_inv) - 0.5 * upsilon.T @ y_sign

    return gradient


def _smaller_variance(original: Any) -> Any:
    def local(latent_mean: Any, latent_var: Any) -> Any:
        return original(latent_mean, (1.0 - 1e-6) * np.asarray(latent_var))

    return local


FAULTS: tuple[Fault, ...] = (
    Fault(
        "print-wenzel2019/gradient-without-labels",
        "reference",
        "x-gpc",
        "(16) without kappa' y/2, which no loop of reference calls",
        ("reference.wenzel2019.updates:gradient_mu",),
        _without_labels,
        _PROBLEMS,
        ("print/x-gpc/updates",),
    ),
    Fault(
        "print-wenzel2019/tilts-too-small",
        "fast",
        "x-gpc",
        "(11) of fast with a millionth of the variance missing: its end is no zero of A.3",
        ("fast.one_latent.fixed_point:update_local",),
        _smaller_variance,
        _PROBLEMS,
        ("print/x-gpc/updates",),
    ),
)
