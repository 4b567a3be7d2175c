"""Natural-gradient steps for q(u) in whitened coordinates, and their adaptive rate. wenzel2019, section 4.3, A.3.

With u = L v, L = chol(K_ZZ), A = L^-1 K_ZS and q(v) = N(p, P^-1), w = P p, the natural parameters of the paper are

    eta_1 = L^-T w,        eta_2 = -1/2 L^-T P L^-1,

so that a step in (w, P) is a step in (eta_1, eta_2): the map is linear. P starts at I and stays a convex combination of
I + (positive semi-definite) terms: its eigenvalues never fall below 1, however ill conditioned K_ZZ is. Only the norms
of the adaptive rate depend on the coordinates; they are taken where the paper has them, in (eta_1, eta_2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import daxpy, dtrmm, dtrsm

from fast.core.linalg import factorise_any, solve_rows, solve_vector
from fast.core.types import FloatArray
from fast.ledger import equation


class Natural(NamedTuple):
    """Natural parameters, or a gradient with respect to them."""

    first: FloatArray  # (m,)
    second: FloatArray  # (m, m), symmetric


class Precision(NamedTuple):
    """q(v) = N(P^-1 w, P^-1)."""

    shift: FloatArray  # w, (m,)
    precision: FloatArray  # P, (m, m), symmetric


class Moments(NamedTuple):
    """q(u) = N(mu, Sigma)."""

    inducing_mean: FloatArray  # (m,)
    inducing_cov: FloatArray  # (m, m)


@equation("wenzel2019", "12", "A.3-natural")
def natural_gradient(
    rows: FloatArray,
    site_shift: FloatArray,
    site_precision: FloatArray,
    scale: float,
    shift: FloatArray,
    precision: FloatArray,
) -> Natural:
    """Natural gradient of the bound, whitened: scale A site_shift - w, -1/2 (I + scale A Lambda A' - P).

    For the logit link site_shift = y/2 and site_precision = theta give wenzel2019 (12); with a batch of all data and
    scale 1 it is the gradient of A.3. For any likelihood with dE/dm_i and dE/dv_i of its expected log density,
    site_precision = -2 dE/dv_i and site_shift = dE/dm_i + site_precision m_i give (17). Time b m^2.

    Parameters
    ----------
    rows : (b, m)              row i is a_i = L^-1 k_Zi
    site_shift : (b,)
    site_precision : (b,)      >= 0
    scale : float              n / b
    shift : (m,)               w
    precision : (m, m)         P

    Returns
    -------
    first (m,), second (m, m)  of (w, -P/2)
    """
    first = rows.T @ (scale * site_shift)
    first -= shift
    scaled = rows * np.sqrt(scale * site_precision)[:, None]
    second = scaled.T @ scaled  # one array and its transpose: BLAS computes one triangle, NumPy copies the other
    np.subtract(precision, second, out=second)
    second.flat[:: shift.size + 1] -= 1.0
    second *= 0.5
    return Natural(first, second)


@equation("wenzel2019", "u4.3-natural-params")
def unwhiten(natural: Natural, chol_K: FloatArray) -> Natural:
    """(L^-T first, L^-T second L^-1): from the coordinates of v to those of u, parameters and gradients alike.

    eta_1 = Sigma^-1 mu and eta_2 = -1/2 Sigma^-1 of wenzel2019, section 4.3, from (w, -P/2). Time 2 m^3.

    Parameters
    ----------
    natural            first (m,), second (m, m)
    chol_K : (m, m)    L
    """
    second = dtrsm(1.0, chol_K, natural.second.T, side=0, lower=True, trans_a=True)
    second = dtrsm(1.0, chol_K, second, side=1, lower=True, overwrite_b=True)
    return Natural(solve_vector(chol_K, natural.first, transposed=True), second)


@equation("wenzel2019", "u4.3-step", "A.4-eta1")
def natural_step(shift: FloatArray, precision: FloatArray, gradient: Natural, rate: float) -> Precision:
    """(eta_1, eta_2) + rate gradient: wenzel2019, section 4.3, whitened; at rate 1 the coordinate ascent of A.4.

    Parameters
    ----------
    shift : (m,)          w
    precision : (m, m)    P
    gradient              of (w, -P/2)
    rate : float          in (0, 1]
    """
    moved = gradient.second * (-2.0 * rate)
    moved += precision
    return Precision(shift + rate * gradient.first, moved)


@equation("wenzel2019", "u4.3-natural-params")
def moments(chol_K: FloatArray, factor: FloatArray, weights: FloatArray) -> Moments:
    """mu = L p and Sigma = L P^-1 L' with P = R R': the inverse map of wenzel2019, section 4.3. Time 3 m^3 / 2.

    Parameters
    ----------
    chol_K : (m, m)     L
    factor : (m, m)     R
    weights : (m,)      p
    """
    # a copy even for m = 1, where one order of memory is the other: the solve is in place
    root = solve_rows(factor, np.array(chol_K, order="C"))  # row i: R^-1 (row i of L)
    return Moments(chol_K @ weights, root @ root.T)


def move_kernel(shift: FloatArray, precision: FloatArray, chol_K: FloatArray, new_chol_K: FloatArray) -> Precision:
    """Whiten with another kernel, mu and Sigma held: w <- T'w, P <- T'P T with T = L^-1 L_new. Time 3 m^3.

    T is close to I for a small move, so nothing of the condition of K_ZZ enters P but through T.

    Parameters
    ----------
    shift : (m,)             w
    precision : (m, m)       P
    chol_K : (m, m)          L
    new_chol_K : (m, m)      L_new
    """
    turn = dtrsm(1.0, chol_K, new_chol_K, side=0, lower=True)
    moved = dtrmm(1.0, turn, precision.T, side=0, lower=True, trans_a=True)
    moved = dtrmm(1.0, turn, moved, side=1, lower=True, overwrite_b=True)
    return Precision(turn.T @ shift, moved.T)  # symmetric; rows contiguous like every other P


def factor_precision(precision: FloatArray) -> FloatArray:
    """R = chol(P). Time m^3/3.

    Parameters
    ----------
    precision : (m, m)   P

    Raises
    ------
    NotPositiveDefiniteError
    """
    # P >= I whatever the step: only a number that is not finite, or a kernel that leapt, has none
    return factorise_any(precision.T, "precision of q(u), whitened", "lower rate or learning_rate")


@dataclass
class RateMemory:
    """Running averages of the gradient and of its squared norm: Ranganath et al. (2013)."""

    first: FloatArray  # (m,), of g_1
    second: FloatArray  # (m^2,), of g_2, which is symmetric: no matter in which order
    squared_norm: float
    length: float  # tau, steps that the averages look back on

    @classmethod
    def empty(cls, m: int) -> RateMemory:
        """Nothing seen yet."""
        return cls(np.zeros(m), np.zeros(m * m), 0.0, 0.0)

    def copy(self) -> RateMemory:
        """What it knows now, whatever it takes in later."""
        return RateMemory.restore(self.state())

    def look(self, gradient: Natural) -> None:
        """Take a gradient into the averages without a step: each of the first ones counts alike."""
        self.length += 1.0
        self._average(gradient)

    def _average(self, gradient: Natural) -> None:
        share = 1.0 / self.length
        first, second = gradient.first, gradient.second.ravel(order="K")
        self.first = (1.0 - share) * self.first + share * first
        self.second *= 1.0 - share
        self.second = daxpy(second, self.second, a=share)  # in place
        squared = float(first @ first) + float(second @ second)
        self.squared_norm = (1.0 - share) * self.squared_norm + share * squared

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` continues."""
        return {
            "rate_first": self.first,
            "rate_second": self.second,
            "rate_scalars": np.array([self.squared_norm, self.length]),
        }

    @classmethod
    def restore(cls, state: Mapping[str, np.ndarray]) -> RateMemory:
        """The memory that `state` was taken from."""
        squared_norm, length = (float(value) for value in state["rate_scalars"])
        return cls(state["rate_first"].copy(), state["rate_second"].copy(), squared_norm, length)


@equation("wenzel2019", "u4.3-adaptive-rate")
def adaptive_rate(memory: RateMemory, gradient: Natural) -> float:
    """rate = |g_bar|^2 / h_bar after taking in the gradient; the memory then grows to (1 - rate) tau + 1.

    Ranganath et al. (2013), named in wenzel2019, section 4.3. g_bar averages the gradients of (eta_1, eta_2), all m^2
    entries of the second, h_bar their squared norms; by Jensen the rate is at most 1. A gradient that vanishes
    throughout gives 1. Time O(m^2).

    Parameters
    ----------
    memory      running averages, changed in place
    gradient    of (eta_1, eta_2)
    """
    memory._average(gradient)
    signal = float(memory.first @ memory.first) + float(memory.second @ memory.second)
    # clip: |g_bar|^2 <= h_bar holds up to rounding
    rate = min(signal / memory.squared_norm, 1.0) if memory.squared_norm > 0.0 else 1.0
    memory.length = (1.0 - rate) * memory.length + 1.0
    return rate


def decaying_rate(iteration: int, rate: tuple[float, float, float]) -> float:
    """rho_0 (t + tau)^(-kappa): Robbins and Monro's conditions hold for kappa in (1/2, 1].

    Parameters
    ----------
    iteration : int    t = 1, 2, ...
    rate : tuple       rho_0, tau, kappa
    """
    initial, delay, power = rate
    return initial * (iteration + delay) ** -power
