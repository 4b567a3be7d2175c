"""Bugs that only hard cases show: stopping rules, cancellation, distances far from the origin."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds(checks="identity/{}/hard-cases")


def _last_change(_original: Any) -> Any:
    def see(self: Any, moved: float) -> None:
        self.changes.append(moved)
        self.residual = moved

    return see


def _change_for_distance(_original: Any) -> Any:
    def distance(self: Any, change: float) -> float:
        return change

    return distance


def _never_above_one(original: Any) -> Any:
    def note_rate(self: Any, latent_var: Any, step: float) -> None:
        original(self, latent_var, step)
        self.rates[-1] = min(self.rates[-1], 0.99)

    return note_rate


def _cancelling_derivatives(_original: Any) -> Any:
    def derivatives(mu: Any, Sigma: Any, y_sign: Any, *K: Any) -> Any:
        from reference.izmailov2016.bound import elbo_gradient

        arguments: list[Any] = [mu, np.linalg.cholesky(Sigma), y_sign, *K[:-1], 1.0, K[-1]]
        return elbo_gradient(*arguments).derivatives

    return derivatives


def _expanded_squares(_original: Any) -> Any:
    def squared(self: Any, X: Any) -> Any:
        a, b = X / self.lengthscales, self.Z / self.lengthscales
        return np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T, 0.0)

    return squared


FAULTS: tuple[SeededBug, ...] = (
    *(
        _bug(
            method,
            "last-change-for-distance",
            "sweeps end when the last change is below the tolerance, however slowly changes shrink",
            "reference.common._iteration:Arrival.see",
            _last_change,
        )
        for method in ("nested-iep", "qiep", "gfitc")
    ),
    _bug(
        "ep",
        "last-change-for-distance",
        "sweeps end when the last change is below the tolerance, however slowly changes shrink",
        "fast.sparse_classes.training:SweepDistance.__call__",
        _change_for_distance,
    ),
    _bug(
        "qep",
        "repelling-fixed-point",
        "mixing goes on to a fixed point that repels plain steps: its rate above one is taken for .99",
        "fast.solve.site_iteration:_Mixer.note_rate",
        _never_above_one,
    ),
    _bug(
        "svi",
        "derivatives-that-cancel",
        "the derivative of the divergence is formed from terms that cancel, and K^-1 multiplies what rounding leaves",
        "reference.izmailov2016.fit:elbo_gradients_at_maximum",
        _cancelling_derivatives,
    ),
    _bug(
        "epgpc",
        "squares-expanded",
        "squared distances are |x|^2 + |z|^2 - 2 x.z, of inputs a million from the origin",
        "fast.kernel.kernels:PreparedKernel._squared",
        _expanded_squares,
        raises=True,
    ),
)
