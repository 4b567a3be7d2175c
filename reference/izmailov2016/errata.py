"""Misprints of izmailov2016 as runnable code; the ledger has the reasons, and slips in words."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, kv

from reference.common._search import REACH, Limits, maximise
from reference.common.ledger import equation
from reference.common.logistic import log_sigmoid
from reference.izmailov2016 import _prior
from reference.izmailov2016.algorithm1 import Adapted, Variational
from reference.izmailov2016.jaakkola_jordan import (
    QuadraticBound,
    jj_collapsed_bound,
    jj_collapsed_gradient,
    jj_optimal_covariance,
    jj_optimal_mean,
)
from reference.izmailov2016.model import Prior
from reference.izmailov2016.sparse import marginal_moments

Array = NDArray[np.float64]


@equation("izmailov2016", "u2.3-matern", as_printed=True)
def kernel_matern_as_printed(X1: Array, X2: Array, smoothness: float, length: float) -> Array:
    """The Matérn covariance of izmailov2016, section 2.3, with the argument of K_ν as it stands in the extracted text.

        ... K_ν( √(2ν) ‖x - x'‖ l )

    Parameters
    ----------
    X1 : (a, d)               first points
    X2 : (b, d)               second points
    smoothness : float        ν
    length : float            l
    """
    r = np.sqrt(np.sum((X1[:, None, :] - X2[None, :, :]) ** 2, axis=2))
    nu, apart = smoothness, r > 0.0
    s = np.sqrt(2.0 * nu) * np.where(apart, r, 1.0)
    return np.where(apart, 2.0 ** (1.0 - nu) / gamma(nu) * (s / length) ** nu * kv(nu, s * length), 1.0)


@equation("izmailov2016", "u4.1-jj", as_printed=True)
def jaakkola_jordan_bound_as_printed(t: Array, xi: Array) -> QuadraticBound:
    """The bound of section 4.1 of izmailov2016 with its λ(ξ) = tanh(ξ)/(4ξ).

    Parameters
    ----------
    t : (n,)                  arguments
    xi : (n,)                 ξ, not 0
    """
    lam = np.tanh(xi) / (4.0 * xi)
    return QuadraticBound(0.5 * (t - xi) + log_sigmoid(xi) - lam * (t**2 - xi**2), lam)


@equation("izmailov2016", "u4.1-Lambda", as_printed=True)
def lambda_matrix_as_printed(xi: Array) -> Array:
    """Diagonal of Λ(ξ) of section 4.1 of izmailov2016 with its λ(ξ) = tanh(ξ)/(4ξ); xi (n,), not 0."""
    return np.tanh(xi) / (4.0 * xi)


@equation("izmailov2016", "alg1-stage1", as_printed=True)
def vi_jj_stage_one_as_printed(
    inducing_mean: Array, inducing_cov: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, k_xx: Array, n_upd: int
) -> Variational:
    """First stage of algorithm 1 of izmailov2016, letter by letter.

        m_t, S_t ← k_tᵀK_mm⁻¹μ̃, K_tt + k_tᵀK_mm⁻¹(Σ̃ - K_mm)K_mm⁻¹k_t
        ξ̃_t² ← m_t² + S_t²

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    k_xx : (n,)               diagonal of K_nn
    n_upd : int               rounds, at least one
    """
    mu, Sigma = inducing_mean, inducing_cov
    for _ in range(n_upd):
        m_t, S_t = marginal_moments(mu, Sigma, K_ZZ, K_XZ, k_xx)
        xi = np.sqrt(m_t**2 + S_t**2)
        mu, Sigma = jj_optimal_mean(xi, y_sign, K_ZZ, K_XZ), jj_optimal_covariance(xi, K_ZZ, K_XZ)
    return Variational(mu, Sigma, xi)


@equation("izmailov2016", "alg1-stage2", as_printed=True)
def vi_jj_stage_two_as_printed(
    X: Array, y_sign: Array, hyper: Prior, xi: Array, learn: Sequence[str], n_fun: int
) -> Adapted:
    """Second stage of algorithm 1 of izmailov2016, letter by letter: θ = minimize(Ĵ(·, ξ)).

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             y, labels -1 or +1
    hyper : Prior             θ, where the search starts
    xi : (n,)                 ξ
    learn : names             of "variance", "lengthscales", "noise"
    n_fun : int               evaluations
    """
    names = tuple(learn)

    def objective(where: Array) -> tuple[float, Array]:
        there = _prior.moved(hyper, names, where)
        K = _prior.matrices(X, there)
        derivatives = _prior.through_kernel(jj_collapsed_gradient(xi, y_sign, *K).derivatives, X, there, names)
        return -jj_collapsed_bound(xi, y_sign, *K), -_prior.log_derivatives(there, names, derivatives)

    start = _prior.coordinates(hyper, names)
    optimum = maximise(objective, start, Limits(evaluations=n_fun), REACH)
    return Adapted(_prior.moved(hyper, names, optimum.where), xi, -optimum.value, optimum.evaluations)
