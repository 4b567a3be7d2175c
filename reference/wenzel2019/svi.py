"""Section 4.3: one mini-batch's natural gradient, its estimate of the bound, and that estimate's kernel gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._learning import FIELDS
from reference.common.ledger import equation
from reference.common.priors import Hyper
from reference.wenzel2019 import _prior
from reference.wenzel2019.augmentation import pg_mean
from reference.wenzel2019.bound import expected_loglik, kl_inducing, kl_polya_gamma
from reference.wenzel2019.updates import Gaussian, Natural, from_natural, natural_gradient_minibatch, update_local

Array = NDArray[np.float64]


class DataTerms(NamedTuple):
    """Σ_i of the data terms of a bound, with their derivatives in the moments of f_i."""

    value: float
    weights: _prior.Weights


@equation("wenzel2019", "u4.3-svi")
def svi_gradient(
    eta_1: Array,
    eta_2: Array,
    batch: NDArray[np.intp],
    y_sign: Array,
    upsilon: Array,
    cond_var: Array,
    K_ZZ_inv: Array,
) -> Natural:
    """The noisy natural gradient of one iteration: wenzel2019, section 4.3, (11) and then (12).

    The local parameters of the mini-batch are set to their maximum for the present q(u), and with these the natural
    gradient of the global parameters is taken.

    Parameters
    ----------
    eta_1 : (m,)              η₁
    eta_2 : (m, m)            η₂
    batch : (b,)              S, indices into the data
    y_sign : (n,)             labels of all data
    upsilon : (n, m)          rows κ_i of all data; only κ_S is read
    cond_var : (n,)           diagonal of K̃; only that of S is read
    K_ZZ_inv : (m, m)         K_mm⁻¹

    Returns
    -------
    Natural                   eta_1 (m,), eta_2 (m, m): ∇̃_η₁ and ∇̃_η₂
    """
    q = from_natural(eta_1, eta_2)
    theta = np.full(len(y_sign), np.nan)
    theta[batch] = pg_mean(1.0, update_local(*q, upsilon[batch], cond_var[batch]))
    return natural_gradient_minibatch(eta_1, eta_2, batch, y_sign, theta, upsilon, K_ZZ_inv)


def data_terms(inducing_mean: Array, inducing_cov: Array, y_sign: Array, upsilon: Array, cond_var: Array) -> DataTerms:
    """Data terms of (10) of wenzel2019 with c at its maximum (11), and their derivatives.

        Σ_i { E[log p(y_i|ω_i, f_i)] - KL(q(ω_i)||p(ω_i)) }

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    y_sign : (b,)             labels of these data
    upsilon : (b, m)          their rows κ_i
    cond_var : (b,)           their K̃_ii

    Returns
    -------
    DataTerms                 value, weights; c moves with the moments, but at its maximum that adds nothing
    """
    c = update_local(inducing_mean, inducing_cov, upsilon, cond_var)
    theta = pg_mean(1.0, c)
    value = expected_loglik(inducing_mean, inducing_cov, c, y_sign, upsilon, cond_var) - kl_polya_gamma(c)
    by_mean = 0.5 * y_sign - theta * (upsilon @ inducing_mean)
    return DataTerms(value, _prior.Weights(by_mean, -0.5 * theta, -0.5 * theta))


@equation("wenzel2019", "10")
def batch_bound(
    inducing_mean: Array,
    inducing_cov: Array,
    batch: NDArray[np.intp],
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
) -> float:
    """Estimate of the bound (10) of wenzel2019 from a mini-batch, c at its maximum, with every constant.

        L̂ = (n/s) Σ_{i in S} { E[log p(y_i|ω_i, f_i)] - KL(q(ω_i)||p(ω_i)) } - KL(q(u)||p(u))

    Its mean over uniformly drawn mini-batches is the bound; with S all data it is the bound.

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
    terms = data_terms(inducing_mean, inducing_cov, y_sign[batch], upsilon[batch], cond_var[batch])
    return len(y_sign) / len(batch) * terms.value - kl_inducing(inducing_mean, inducing_cov, K_ZZ)


def scaled(weights: _prior.Weights, weight: float) -> _prior.Weights:
    """All derivatives in weights times weight, such as n/s."""
    return _prior.Weights(*(weight * part for part in weights))


@equation("wenzel2019", "u4.3-hyper")
def batch_bound_gradients(
    X: Array,
    y_sign: Array,
    hyper: Hyper,
    inducing_mean: Array,
    inducing_cov: Array,
    batch: NDArray[np.intp],
    learn: Sequence[str] = FIELDS,
) -> dict[str, Any]:
    """Derivatives of `batch_bound` in the hyper-parameters: wenzel2019, section 4.3, "Optimization of the ...".

    μ and Σ are held as numbers, c stays at its maximum.

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
    terms = data_terms(inducing_mean, inducing_cov, y_sign[batch], K.upsilon[batch], K.cond_var[batch])
    weights = scaled(terms.weights, len(y_sign) / len(batch))
    return _prior.gradients(X, hyper, K, Gaussian(inducing_mean, inducing_cov), weights, batch=batch, fields=learn)
