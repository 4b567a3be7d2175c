"""Section 3, derivatives of the bound (15): in the latent moments (16) and (17), in q, and in the prior."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import class_gradients
from reference.common._gaussians import Gaussians, Natural, along, natural_parameters
from reference.common._largest import largest
from reference.common._learning import FIELDS, Derivative
from reference.common.errors import factorise
from reference.common.priors import Prior
from reference.villacampa2017.gradients import prior_term_gradient, prior_term_matrix
from reference.villacampa2017.hyper import Matrices, prior_matrices
from reference.villacampa2017.model import REMEDY
from reference.villacampa2017.vi import vi_latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


class LabelProbability(NamedTuple):
    """P_i = P(f_y > f_k for all k ≠ y) under independent Gaussians, and its derivatives."""

    value: Array  # (n,)
    by_mean: Array  # (n, C)
    by_var: Array  # (n, C)


def label_probability(latent_mean: Array, latent_var: Array, y: Labels) -> LabelProbability:
    """P_i and its derivatives in m̂_i and ŝ_i, by one-dimensional quadrature: the integral in (15) of villacampa2017.

    P = E_t[Π_{k≠y} Φ((t - m̂_k)/√ŝ_k)], t ~ N(m̂_y, ŝ_y). Gaussians obey the heat equation: ∂P/∂ŝ = ½ ∂²P/∂m̂².

    Parameters
    ----------
    latent_mean : (n, C)      m̂
    latent_var : (n, C)       ŝ
    y : (n,)                  labels, 0..C-1
    """
    result = largest(latent_mean, latent_var, y)
    value = np.exp(result.log_p)
    return LabelProbability(value, value[:, None] * result.first, 0.5 * value[:, None] * result.second)


class Expected(NamedTuple):
    """The data term of (15) for some data, weighted, and its derivatives."""

    value: float
    by_mean: Array  # (b, C)
    by_var: Array  # (b, C)
    probability: Array  # (b,) P_i


def expected_terms(posterior: Gaussians, K: Matrices, y: Labels, epsilon: float, rows: Batch) -> Expected:
    """ρ Σ_{i∈rows} E_q[log p(y_i|f_i)], ρ = N/|rows|, with derivatives in m̂ and ŝ: (15) of villacampa2017.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    K : Matrices              what the prior says of all data
    y : (n,)                  labels of all data, 0..C-1
    epsilon : float           ε > 0
    rows : (b,)               indices, each once
    """
    C = len(K.K_ZZ)
    scale = len(y) / len(rows)
    marginal = vi_latent_marginal(posterior, K.k_xx[:, rows], K.K_XZ[:, rows], K.K_ZZ)  # (16), (17)
    result = label_probability(*marginal, y[rows])
    low, high = np.log(epsilon) - np.log(C), np.log(1.0 - epsilon + epsilon / C)
    gap = scale * (high - low)
    value = scale * float(np.sum(low + (high - low) * result.value))
    return Expected(value, gap * result.by_mean, gap * result.by_var, result.value)


def natural_target(posterior: Gaussians, K: Matrices, expected: Expected, rows: Batch) -> Natural:
    """η_prior + ∂F/∂μ of every class, F the data term, μ = (m, S + mmᵀ): where a whole natural-gradient step leads.

    Precision K⁻¹ - 2 Υ diag(∂F/∂ŝ) Υᵀ and shift Υ (∂F/∂m̂ - 2 ∂F/∂ŝ υᵀm); the precision need not be positive, for the
    bound (15) of villacampa2017 is not concave. The natural gradient of the bound is target minus present.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    K : Matrices              what the prior says of all data
    expected : Expected       data term at q, of the rows
    rows : (b,)               indices
    """
    precision, shift = np.empty_like(K.K_ZZ), np.empty_like(posterior.mean)
    for k in range(len(K.K_ZZ)):
        upsilon, by_var = K.upsilon[k, rows], expected.by_var[:, k]
        P = factorise(K.K_ZZ[k], "K_ZZ", REMEDY).inverse - 2.0 * (upsilon.T * by_var) @ upsilon
        precision[k] = 0.5 * (P + P.T)
        shift[k] = upsilon.T @ (expected.by_mean[:, k] - 2.0 * by_var * (upsilon @ posterior.mean[k]))
    return Natural(precision, shift)


class Bound(NamedTuple):
    """(15) at q, and its derivatives in q."""

    value: float
    direction: Natural  # natural gradient: what would be added to η
    by_mean: Array  # (C, m) derivative by m
    by_cov: Array  # (C, m, m) derivative by S, all entries free
    probability: Array  # (b,) P_i


def bound_of(value: float, expected: Expected, posterior: Gaussians, K: Matrices, rows: Batch | None) -> Bound:
    """(15) of villacampa2017 with its derivatives: of a change (dT, dt) of η, by m it is dt - dT m, by S it is -½ dT.

    Parameters
    ----------
    value : float             the bound at q
    expected : Expected       data term at q, of the rows
    posterior : Gaussians     q(f̄)
    K : Matrices              what the prior says of all data
    rows : (b,) or None       indices; None: all data
    """
    rows = np.arange(K.upsilon.shape[1]) if rows is None else rows
    direction = along(natural_target(posterior, K, expected, rows), natural_parameters(posterior), -1.0)
    by_mean = direction.shift - np.einsum("kml,kl->km", direction.precision, posterior.mean)
    return Bound(value, direction, by_mean, -0.5 * direction.precision, expected.probability)


def vi_gradients(
    X: Array,
    y: Labels,
    prior: Prior,
    posterior: Gaussians,
    epsilon: float,
    rows: Batch | None = None,
    learn: Sequence[str] = FIELDS,
) -> dict[str, Array]:
    """The derivative of the bound (15) of villacampa2017 in the prior, m and S held; the divergence by (63) and (64).

        dm̂ = mᵀdυ,   dŝ = dκ - 2 υᵀdk_xZ + υᵀdK υ + 2 υᵀS dυ,   dυ = K⁻¹(dk_xZ - dK υ)

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters of all classes
    posterior : Gaussians     m and S
    epsilon : float           ε > 0
    rows : (b,) or None       indices of a mini-batch, whose data term stands for all with weight N/b; None: all data
    learn : names             the fields

    Returns
    -------
    dict                      field to derivatives, shapes as in the prior; jitter is held
    """
    rows = np.arange(len(y)) if rows is None else rows
    K = prior_matrices(X, prior)
    expected = expected_terms(posterior, K, y, epsilon, rows)

    def derivative_of(k: int) -> Derivative:
        inverse = factorise(K.K_ZZ[k], "K_ZZ", REMEDY).inverse
        M = prior_term_matrix(posterior.mean[k], posterior.cov[k], K.K_ZZ[k])
        upsilon, m, S = K.upsilon[k, rows], posterior.mean[k], posterior.cov[k]

        def derivative(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
            d_upsilon = (dK_XZ - upsilon @ dK_ZZ) @ inverse
            d_cond_var = dk - 2.0 * np.sum(upsilon * dK_XZ, axis=1) + np.sum((upsilon @ dK_ZZ) * upsilon, axis=1)
            d_var = d_cond_var + 2.0 * np.sum((upsilon @ S) * d_upsilon, axis=1)
            data = expected.by_mean[:, k] @ (d_upsilon @ m) + expected.by_var[:, k] @ d_var
            return float(prior_term_gradient(M, dK_ZZ)) + float(data)

        return derivative

    return class_gradients([derivative_of(k) for k in range(len(K.K_ZZ))], X[rows], prior, learn)
