"""The posterior of coupled classes refreshed after one site at a time. riihimaki2013, section 3.1.

Kept are B_k = D_k^1/2 A_k^-1 D_k^1/2 of each class and P^-1 (P = sum_k B_k). A change delta_k of pi_ik moves B_k by a
rank one, c_k z_k z_k' with z_k = (I - B_k K_k) e_i and c_k = delta_k / (1 + delta_k S0_k,ii), and P^-1 by a rank C:
O(C n^2) a site. Starting each pass from a fresh factorisation keeps rounding from piling up.
"""

from __future__ import annotations

import numpy as np

from fast.core.linalg import solve_rows, solve_square
from fast.core.types import FloatArray
from fast.full_classes.couplings import Coupled
from fast.full_classes.prior import MulticlassPrior


class SequentialPosterior:
    """q(f) that follows its sites one by one. Memory C n^2."""

    def __init__(self, prior: MulticlassPrior, posterior: Coupled, precision: FloatArray, location: FloatArray) -> None:
        self.K = [prior.K(k) for k in range(prior.n_classes)]
        self.B = [one.root[:, None] * one.inverse * one.root for one in posterior.factors]
        self.precision, self.location = precision.copy(), location.copy()
        self.pulled = [K @ location[:, k] for k, K in enumerate(self.K)]  # K nu
        self.P_inverse: FloatArray | None = None
        if posterior.coupling_chol is not None:
            whitened = solve_rows(posterior.coupling_chol, np.eye(prior.n)).T
            self.P_inverse = whitened.T @ whitened

    def _rows(self, i: int) -> tuple[FloatArray, FloatArray]:
        rows = np.array([K[i] @ B for K, B in zip(self.K, self.B, strict=True)])
        left = np.array([K[i, i] - row @ K[i] for K, row in zip(self.K, rows, strict=True)])
        return rows, np.maximum(left, 0.0)

    def marginal(self, i: int) -> tuple[FloatArray, FloatArray]:
        """Mean (C,) and covariance (C, C) of f_i. Time O(C n^2).

        Parameters
        ----------
        i : int    datum
        """
        rows, left = self._rows(i)
        b0 = np.array([self.location[:, k] - B @ self.pulled[k] for k, B in enumerate(self.B)])
        mean = np.array([K[i] @ b for K, b in zip(self.K, b0, strict=True)])
        cov = np.diag(left)
        if self.P_inverse is not None:
            mean -= rows @ (self.P_inverse @ b0.sum(axis=0))
            cov = cov + rows @ self.P_inverse @ rows.T
        return mean, cov

    def update(self, i: int, precision: FloatArray, location: FloatArray) -> None:
        """Refresh the posterior after site i changed. Time O(C n^2).

        Parameters
        ----------
        i : int             datum
        precision : (C,)    pi_i
        location : (C,)     nu_i
        """
        rows, left = self._rows(i)
        delta = precision - self.precision[i]
        weights = delta / (1.0 + delta * left)
        moved = -rows
        moved[:, i] += 1.0  # rows z_k
        for k, weight in enumerate(weights):
            self.B[k] += np.multiply.outer(weight * moved[k], moved[k])
            self.pulled[k] += self.K[k][:, i] * (location[k] - self.location[i, k])
        if self.P_inverse is not None:
            observed = moved @ self.P_inverse
            inner = np.eye(weights.size) + weights[:, None] * (observed @ moved.T)
            self.P_inverse -= observed.T @ solve_square(
                inner, weights[:, None] * observed, "I + W Z P^-1 Z'", "lower damping"
            )
        self.precision[i], self.location[i] = precision, location
