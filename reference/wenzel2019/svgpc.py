"""Section 5, baseline svgpc: sparse variational inference with a probit link and natural gradients.

Hensman et al. (2015), Salimbeni et al. (2018). The paper only names the method; what is written here follows from the
model p(y_i|f_i) = Φ(y_i f_i), q(u) = N(μ, Σ), q(f_i) = N(κ_i μ, K̃_ii + κ_i Σ κ_iᵀ).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._learning import FIELDS
from reference.common.priors import Hyper
from reference.common.probit import expect_log_phi
from reference.wenzel2019 import _prior
from reference.wenzel2019.bound import kl_inducing
from reference.wenzel2019.svi import DataTerms, scaled
from reference.wenzel2019.updates import Gaussian, Natural, from_natural, natural_from_euclidean

Array = NDArray[np.float64]


def probit_data_terms(
    inducing_mean: Array, inducing_cov: Array, y_sign: Array, upsilon: Array, cond_var: Array
) -> DataTerms:
    """Σ_i E_{q(f_i)}[log Φ(y_i f_i)] and its derivatives in the moments of each f_i.

    By the theorems of Bonnet and Price ∂/∂m_i = E[g'(f_i)] and ∂/∂v_i = ½ E[g''(f_i)], g(f) = log Φ(y_i f); with
    z = y_i f ~ N(y_i m_i, v_i) they are y_i E[(log Φ)'(z)] and ½ E[(log Φ)''(z)].

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    y_sign : (b,)             labels of these data
    upsilon : (b, m)          their rows κ_i
    cond_var : (b,)           their K̃_ii

    Returns
    -------
    DataTerms                 value, weights
    """
    spread = np.sum((upsilon @ inducing_cov) * upsilon, axis=1)
    # K̃_ii + κ_i Σ κ_iᵀ >= 0, but for rounding
    moments = expect_log_phi(y_sign * (upsilon @ inducing_mean), np.maximum(cond_var + spread, 0.0))
    halved = 0.5 * moments.second
    return DataTerms(float(np.sum(moments.value)), _prior.Weights(y_sign * moments.first, halved, halved))


def svgpc_bound(
    inducing_mean: Array,
    inducing_cov: Array,
    batch: NDArray[np.intp],
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
) -> float:
    """Estimate of the bound on log p(y) from a mini-batch, every constant included; with all data it is the bound.

        L̂ = (n/s) Σ_{i in S} E_{q(f_i)}[log Φ(y_i f_i)] - KL(q(u)||p(u))

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    batch : (b,)              S, indices into the data
    y_sign : (n,)             labels of all data
    K_ZZ : (m, m)             K_mm
    upsilon : (n, m)          rows κ_i of all data
    cond_var : (n,)           diagonal of K̃

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov or K_ZZ is singular
    """
    terms = probit_data_terms(inducing_mean, inducing_cov, y_sign[batch], upsilon[batch], cond_var[batch])
    return len(y_sign) / len(batch) * terms.value - kl_inducing(inducing_mean, inducing_cov, K_ZZ)


def svgpc_natural_gradient(
    eta_1: Array,
    eta_2: Array,
    batch: NDArray[np.intp],
    y_sign: Array,
    upsilon: Array,
    cond_var: Array,
    K_ZZ_inv: Array,
) -> Natural:
    """Natural gradient of `svgpc_bound` in the natural parameters of q(u).

        ∇_μ L̂ = (n/s) κ_Sᵀ a - K_mm⁻¹μ,   ∇_Σ L̂ = (n/s) κ_Sᵀ diag(b) κ_S + ½ (Σ⁻¹ - K_mm⁻¹)

    with a, b the derivatives in m_i and v_i, and the natural gradient from these by (17) of wenzel2019: the gradient in
    the expectation parameters (μ, Σ + μμᵀ). Since b <= 0, a step of rate in (0, 1] leaves Σ positive definite.

    Parameters
    ----------
    eta_1 : (m,)              η₁ = Σ⁻¹μ
    eta_2 : (m, m)            η₂ = -½ Σ⁻¹
    batch : (b,)              S, indices into the data
    y_sign : (n,)             labels of all data
    upsilon : (n, m)          rows κ_i of all data; only κ_S is read
    cond_var : (n,)           diagonal of K̃; only that of S is read
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Returns
    -------
    Natural                   eta_1 (m,), eta_2 (m, m): the gradient's two parts
    """
    mu, Sigma = from_natural(eta_1, eta_2)
    kappa = upsilon[batch]
    terms = probit_data_terms(mu, Sigma, y_sign[batch], kappa, cond_var[batch])
    derivatives = scaled(terms.weights, len(y_sign) / len(batch))
    grad_mean = kappa.T @ derivatives.mean - K_ZZ_inv @ mu
    grad_cov = (kappa.T * derivatives.spread) @ kappa - eta_2 - 0.5 * K_ZZ_inv
    return natural_from_euclidean(grad_mean, grad_cov, mu)


def svgpc_gradients(
    X: Array,
    y_sign: Array,
    hyper: Hyper,
    inducing_mean: Array,
    inducing_cov: Array,
    batch: NDArray[np.intp],
    learn: Sequence[str] = FIELDS,
) -> dict[str, Any]:
    """Derivatives of `svgpc_bound` in the hyper-parameters, with μ and Σ held as numbers.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    hyper : Hyper             variance, lengthscales (d,), noise, jitter, Z
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    batch : (b,)              S, indices into the data
    learn : names             the fields whose derivatives are wanted

    Returns
    -------
    {"variance": float, "lengthscales": (d,), "noise": float, "Z": (m, d) unless the GP is full}

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    K = _prior.matrices(X, hyper)
    terms = probit_data_terms(inducing_mean, inducing_cov, y_sign[batch], K.upsilon[batch], K.cond_var[batch])
    weights = scaled(terms.weights, len(y_sign) / len(batch))
    return _prior.gradients(X, hyper, K, Gaussian(inducing_mean, inducing_cov), weights, batch=batch, fields=learn)


def svgpc_gradients_at_maximum(
    X: Array, y_sign: Array, hyper: Hyper, inducing_mean: Array, inducing_cov: Array
) -> dict[str, Any]:
    """`svgpc_gradients` from all data where q(u) is at its maximum: without the cancellation that K_mm⁻¹ multiplies.

    There Σ⁻¹ = K_mm⁻¹ - 2 κᵀdiag(b)κ and K_mm⁻¹μ = κᵀa, with a, b the derivatives in m_i and v_i.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    hyper : Hyper             variance, lengthscales (d,), noise, jitter, Z
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ

    Returns
    -------
    {"variance": float, "lengthscales": (d,), "noise": float, "Z": (m, d) unless the GP is full}

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    K = _prior.matrices(X, hyper)
    weights = probit_data_terms(inducing_mean, inducing_cov, y_sign, K.upsilon, K.cond_var).weights
    prior_part = _prior.prior_part_of_sites(K, inducing_cov, -2.0 * weights.spread, weights.mean)
    return _prior.gradients(X, hyper, K, Gaussian(inducing_mean, inducing_cov), weights, prior_part)
