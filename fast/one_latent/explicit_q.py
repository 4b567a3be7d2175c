"""The bound (11) of izmailov2016 on a batch for q(u) = N(mu, C C') given by mu and C, and all its derivatives.

Whitened, p = L^-1 mu, M = L^-1 C (lower triangular), a_i = L^-1 k_Zi:

    m_i = a_i'p,    S_i^2 = cond_var_i + |M'a_i|^2,    KL = (|M|^2 + |p|^2 - m) / 2 - sum_j log|M_jj|,

and with e_i = dE_i/dm_i, t_i = -2 dE_i/dS_i^2, the scale n/b in both,

    dF/dmu = L^-T (A e - p),    dF/dC = tril L^-T [-(A T A' + I) M + diag(1 / M_jj)].

(tril of the last term: L^-T diag is upper triangular, so its lower triangle is the diagonal 1 / C_jj.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fast.core.linalg import solve_rows, solve_vector, squared_norms
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.ledger import equation
from fast.likelihood.probit import LinkMoments
from fast.one_latent.batch_gradients import Projected, moment_gradients
from fast.one_latent.stochastic import Kernel

#: (y_sign, latent_mean, latent_var) -> expected log density and its derivatives.
Expected = Callable[[FloatArray, FloatArray, FloatArray], LinkMoments]


class Derivatives(NamedTuple):
    """A batch estimate of the bound and its gradient."""

    value: float
    inducing_mean: FloatArray  # (m,)
    chol_cov: FloatArray  # (m, m), lower triangle
    prior: Gradients | None  # None if not asked for


@equation("izmailov2016", "u5.1-cholesky")
def covariance_from_factor(chol_cov: FloatArray) -> FloatArray:
    """Sigma = C C': izmailov2016, 5.1. Time m^3.

    Parameters
    ----------
    chol_cov : (m, m)    C, lower triangular
    """
    factor = np.tril(chol_cov)
    return factor @ factor.T


@equation("izmailov2016", "11", "u3.2-svi-gradient")
def batch_bound(
    kernel: Kernel,
    expected: Expected,
    X: FloatArray,
    y_sign: FloatArray,
    scale: float,
    inducing_mean: FloatArray,
    chol_cov: FloatArray,
    *,
    learning: bool,
) -> Derivatives:
    """(n/b) sum over a batch of E log p(y_i | f_i) - KL(q(u) || p(u)), and its gradient: izmailov2016 (11), 3.2.

    With all data and scale 1 the bound itself. Time O(b m (m + d) + m^3).

    Parameters
    ----------
    kernel                     the prior at Z
    expected : callable        (y_sign, m, S^2) -> LinkMoments
    X, y_sign : (b, d), (b,)   the batch
    scale : float              n / b
    inducing_mean : (m,)       mu
    chol_cov : (m, m)          C, lower triangular
    learning : bool            gradients with respect to the prior as well
    """
    hyper, L = kernel.hyper, kernel.chol_K
    m = inducing_mean.size
    K_XZ = kernel.of.cross(X)
    rows = solve_rows(L, K_XZ.copy())
    cond_var = np.maximum(hyper.variance - squared_norms(rows), 0.0) + hyper.noise
    p = solve_vector(L, inducing_mean)
    M = np.tril(solve_rows(L, np.array(np.tril(chol_cov).T, order="C")).T)  # L^-1 C
    whitened = rows @ M
    link = expected(y_sign, rows @ p, cond_var + squared_norms(whitened))
    diagonal = M.diagonal()
    kl = 0.5 * (float(np.vdot(M, M)) + float(p @ p) - m) - float(np.log(np.abs(diagonal)).sum())
    value = scale * float(link.value.sum()) - kl
    e, t = scale * link.derivative, -scale * link.curvature
    by_mean = solve_vector(L, rows.T @ e - p, transposed=True)
    inner = -(rows.T @ (whitened * t[:, None])) - M
    by_factor = np.tril(solve_rows(L, np.array(inner.T, order="C"), transposed=True).T)  # L^-T inner
    by_factor.flat[:: m + 1] += 1.0 / np.diagonal(chol_cov)
    prior: Gradients | None = None
    if learning:
        projected = Projected(kernel.of, X, K_XZ, kernel.K_ZZ, L, rows)
        prior = moment_gradients(projected, e, t, M @ M.T, p)
    return Derivatives(value, by_mean, by_factor, prior)


def start_of(m: int) -> tuple[FloatArray, FloatArray]:
    """mu = 0, C = I.

    Parameters
    ----------
    m : int    inducing points
    """
    return np.zeros(m), np.eye(m)
