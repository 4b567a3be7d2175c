"""Sections 2.2, 2.3.2 and G: the gradient of log Z_q, of all data or of a mini-batch, and two rules for steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._learning import FIELDS
from reference.common.algebra import solution
from reference.common.errors import factorise
from reference.common.kernels import derivative_inputs, derivative_lengthscales, derivative_variance
from reference.common.ledger import equation
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.factors import factor_cavities, probit_ratio
from reference.villacampa2017.model import REMEDY, fitc_conditional, projection_vectors
from reference.villacampa2017.posterior import Coefficients, Gaussians

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


class Direction(NamedTuple):
    """Derivatives of all prior matrices with respect to one hyper-parameter."""

    K_ZZ: Array  # (C, m, m)
    K_XZ: Array  # (C, n, m)
    k_xx: Array  # (C, n)


class Distributions(NamedTuple):
    """What the gradient of log Z_q is evaluated on."""

    posterior: Gaussians
    cavities: dict[tuple[int, int], tuple[Cavity, Cavity]]  # of factor (i, k): for the label's class and class k
    upsilon: Array  # (C, n, m)
    cond_var: Array  # (C, n)


@equation("villacampa2017", "64")
def prior_term_matrix(inducing_mean: Array, inducing_cov: Array, K_ZZ: Array) -> Array:
    """M_k = K⁻¹ - K⁻¹VK⁻¹ - K⁻¹mmᵀK⁻¹, a matrix (m, m): (64) of villacampa2017.

    Parameters
    ----------
    inducing_mean : (m,)      m of one class
    inducing_cov : (m, m)     V of the class
    K_ZZ : (m, m)             its prior covariance K

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    inverse = factorise(K_ZZ, "K_ZZ", REMEDY).inverse
    return inverse - inverse @ (inducing_cov + np.outer(inducing_mean, inducing_mean)) @ inverse


@equation("villacampa2017", "63")
def prior_term_gradient(matrix: Array, dK: Array) -> Array:
    """(η - η_prior)ᵀ ∂θ_prior/∂ξ = -½ trace(M_kᵀ ∂K_ZZ/∂ξ): (63) of villacampa2017, one class.

    Parameters
    ----------
    matrix : (m, m)           M_k
    dK : (..., m, m)          ∂K_ZZ/∂ξ, of one ξ or of several

    Returns
    -------
    (...)                     a number for each ξ
    """
    value: Array = -0.5 * np.sum(matrix * dK, axis=(-2, -1))
    return value


@equation("villacampa2017", "u27-trace-rotation")
def cyclic_trace(matrices: Sequence[Array]) -> float:
    """trace(ABCD) as trace(DABC): below (64) of villacampa2017, for any number of factors.

    Parameters
    ----------
    matrices : sequence       conformable matrices A, B, ..., D whose product is square
    """
    product = matrices[-1]
    for matrix in matrices[:-1]:
        product = product @ matrix
    return float(np.trace(product))


@equation("villacampa2017", "u25-direct-dependence")
def direct_dlogz_dhyper(
    cavities: Sequence[Cavity],
    upsilon: Sequence[Array],
    cond_var: Sequence[float],
    d_upsilon: Sequence[Array],
    d_cond_var: Sequence[Array],
) -> Array:
    r"""∂ log Z_{i,k}/∂ξ with m\ and V\ held: below (10) of villacampa2017. Pairs are (label's class, class k).

        β/√b (m\_yᵀ dυ_y - m\_kᵀ dυ_k) - ½ βα̂/b Σ (ds + 2 υᵀV\ dυ),   b = b_y + b_k

    Parameters
    ----------
    cavities : pair           moments m\ and V\
    upsilon : pair of (m,)    υ_i
    cond_var : pair           s_i
    d_upsilon : pair of (..., m)    ∂υ_i/∂ξ, of one ξ or of several
    d_cond_var : pair of (...)      ∂s_i/∂ξ

    Returns
    -------
    (...)                     a number for each ξ
    """
    a = [float(u @ c.mean) for u, c in zip(upsilon, cavities, strict=True)]
    b = [float(s + u @ c.cov @ u) for u, s, c in zip(upsilon, cond_var, cavities, strict=True)]
    alpha, beta = probit_ratio(a[0], a[1], b[0], b[1])
    d_a = [du @ c.mean for du, c in zip(d_upsilon, cavities, strict=True)]
    d_b = [ds + 2.0 * du @ (c.cov @ u) for u, du, ds, c in zip(upsilon, d_upsilon, d_cond_var, cavities, strict=True)]
    b_sum = sum(b)
    value: Array = beta / np.sqrt(b_sum) * (d_a[0] - d_a[1]) - 0.5 * beta * alpha / b_sum * (d_b[0] + d_b[1])
    return value


@equation("villacampa2017", "u18-minibatch-ratio")
def minibatch_scale(n: int, batch_size: int) -> float:
    """ρ = N/|M_j|: below (12) of villacampa2017.

    Parameters
    ----------
    n : int                   number of data
    batch_size : int          data in the mini-batch
    """
    return n / batch_size


def minibatch_weights(n: int, batch: Batch | None) -> Array:
    """Weights (n,) of the data's terms in a sum over a mini-batch of villacampa2017: ρ of its data, zero elsewhere.

    Parameters
    ----------
    n : int                   number of data
    batch : (b,) or None      indices, each once; None: all data, with weight one
    """
    if batch is None:
        return np.ones(n)
    weights = np.zeros(n)
    weights[batch] = minibatch_scale(n, len(batch))
    return weights


def distributions_of(
    coefficients: Coefficients, posterior: Gaussians, y: Labels, k_xx: Array, K_XZ: Array, K_ZZ: Array
) -> Distributions:
    """q, the cavities of all factors, υ and s: what (10) and (12) of villacampa2017 are evaluated on.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    k_xx : (C, n)                 prior variances, noise included
    K_XZ : (C, n, m)              cross-covariances
    K_ZZ : (C, m, m)              prior covariances of the inducing values

    Raises
    ------
    NotPositiveDefiniteError      if one of K_ZZ is singular
    ValueError                    if a cavity is not a distribution
    """
    # fmt: off
    q, upsilon = posterior, projection_vectors(K_XZ, K_ZZ)                                         # below (8)
    cond_var = fitc_conditional(q.mean, k_xx, K_XZ, K_ZZ).var                                      # (4), (5)
    cavities = {
        (i, k): factor_cavities(coefficients, q, upsilon, i, y_i, k)                               # (29) to (32)
        for i, y_i in enumerate(y) for k in range(len(K_ZZ)) if k != y_i
    }
    # fmt: on
    return Distributions(q, cavities, upsilon, cond_var)


def prior_changes(direction: Direction, upsilon: Array, K_ZZ: Array) -> tuple[Array, Array]:
    """dυ = K⁻¹(dk - dK υ), (..., C, n, m), and ds = dκ - 2 υᵀdk + υᵀdK υ, (..., C, n): of (5) and υ of villacampa2017.

    Parameters
    ----------
    direction : Direction     derivatives of the prior matrices, in one ξ or in several
    upsilon : (C, n, m)       υ_i^k
    K_ZZ : (C, m, m)          prior covariances of the inducing values

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    dK, dk, d_kappa = direction
    d_upsilon = solution(K_ZZ, np.swapaxes(dk - upsilon @ dK, -1, -2), "K_ZZ")
    d_cond_var = d_kappa - 2.0 * np.sum(upsilon * dk, axis=-1) + np.sum((upsilon @ dK) * upsilon, axis=-1)
    return np.swapaxes(d_upsilon, -1, -2), d_cond_var


@equation("villacampa2017", "10", "62")
def ep_log_evidence_gradient(distributions: Distributions, y: Labels, K_ZZ: Array, direction: Direction) -> Array:
    """∂ log Z_q/∂ξ = (η - η_prior)ᵀ ∂θ_prior/∂ξ + Σ_i Σ_{k≠y_i} ∂ log Z_{i,k}/∂ξ: (10) and (62) of villacampa2017.

    The derivative of log Z_q where EP has converged; elsewhere an approximation of it.

    Parameters
    ----------
    distributions : Distributions               q and the cavities
    y : (n,)                  labels, 0..C-1
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    direction : Direction     derivatives of the prior matrices with respect to ξ, or to several in a first axis

    Returns
    -------
    () or (h,)                a number for each ξ

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    # fmt: off
    q, total = distributions.posterior, np.zeros(direction.K_ZZ.shape[:-3])
    for k in range(len(K_ZZ)):
        M = prior_term_matrix(q.mean[k], q.cov[k], K_ZZ[k])                                        # (64)
        total = total + prior_term_gradient(M, direction.K_ZZ[..., k, :, :])                       # (63)
    d_upsilon, d_cond_var = prior_changes(direction, distributions.upsilon, K_ZZ)
    for (i, k), cavities in distributions.cavities.items():
        pair = y[i], k
        total = total + direct_dlogz_dhyper(                                                       # below (10)
            cavities, [distributions.upsilon[j, i] for j in pair], [float(distributions.cond_var[j, i]) for j in pair],
            [d_upsilon[..., j, i, :] for j in pair], [d_cond_var[..., j, i] for j in pair])
    return total
    # fmt: on


@equation("villacampa2017", "12")
def minibatch_log_evidence_gradient(
    distributions: Distributions, y: Labels, K_ZZ: Array, direction: Direction, batch: Batch
) -> Array:
    """(η - η_prior)ᵀ ∂θ_prior/∂ξ + ρ Σ_{i∈M_j} Σ_{k≠y_i} ∂ log Z_{i,k}/∂ξ: (12) of villacampa2017.

    Parameters
    ----------
    distributions : Distributions               q and the cavities
    y : (n,)                  labels, 0..C-1
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    direction : Direction     derivatives of the prior matrices with respect to ξ
    batch : (b,)              indices M_j, each once

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    # fmt: off
    q, total = distributions.posterior, np.zeros(direction.K_ZZ.shape[:-3])
    for k in range(len(K_ZZ)):
        M = prior_term_matrix(q.mean[k], q.cov[k], K_ZZ[k])                                        # (64)
        total = total + prior_term_gradient(M, direction.K_ZZ[..., k, :, :])                       # (63)
    rho = minibatch_scale(len(y), len(batch))                                                      # below (12)
    d_upsilon, d_cond_var = prior_changes(direction, distributions.upsilon, K_ZZ)
    for i in batch:
        for k in range(len(K_ZZ)):
            if k == y[i]:
                continue
            pair = y[i], k
            total = total + rho * direct_dlogz_dhyper(                                             # below (10)
                distributions.cavities[i, k], [distributions.upsilon[j, i] for j in pair],
                [float(distributions.cond_var[j, i]) for j in pair], [d_upsilon[..., j, i, :] for j in pair],
                [d_cond_var[..., j, i] for j in pair])
    return total
    # fmt: on


def hyper_directions(
    X: Array, Z: Array, variance: Array, lengthscales: Array, learn: Sequence[str] = FIELDS
) -> dict[str, list[Direction]]:
    """Derivatives of the prior with respect to each hyper-parameter of villacampa2017, jitter held.

    Parameters
    ----------
    X : (n, d)                inputs
    Z : (C, m, d)             inducing inputs
    variance : (C,)           of each class
    lengthscales : (C, d)     of each class
    learn : names             the fields

    Returns
    -------
    dict                      variance: C, lengthscales: C d, noise: C, Z: C m d directions, in the order of the arrays
    """
    C, m, d = Z.shape
    n = len(X)

    def still() -> Direction:
        return Direction(np.zeros((C, m, m)), np.zeros((C, n, m)), np.zeros((C, n)))

    results: dict[str, list[Direction]] = {name: [] for name in learn}
    for k in range(C):
        kernel = float(variance[k]), lengthscales[k]
        if "variance" in results:
            at = still()
            at.K_ZZ[k] = derivative_variance(Z[k], Z[k], *kernel)
            at.K_XZ[k] = derivative_variance(X, Z[k], *kernel)
            at.k_xx[k] = 1.0
            results["variance"].append(at)
        if "noise" in results:
            at = still()
            at.k_xx[k] = 1.0
            results["noise"].append(at)
        if "lengthscales" in results:
            by_ZZ, by_XZ = (derivative_lengthscales(A, Z[k], *kernel) for A in (Z[k], X))
            for j in range(d):
                at = still()
                at.K_ZZ[k], at.K_XZ[k] = by_ZZ[j], by_XZ[j]
                results["lengthscales"].append(at)
        if "Z" in results:
            by_ZZ, by_XZ = (derivative_inputs(A, Z[k], *kernel) for A in (Z[k], X))
            for p in range(m):  # z_pj moves column p of K_XZ, and row and column p of K_ZZ
                for j in range(d):
                    at = still()
                    at.K_XZ[k][:, p] = by_XZ[j][:, p]
                    at.K_ZZ[k][:, p] = by_ZZ[j][:, p]
                    at.K_ZZ[k][p, :] += by_ZZ[j][:, p]
                    results["Z"].append(at)
    return results


@equation("villacampa2017", "u28-adaptive-learning-rate")
def adaptive_learning_rate(gradient: Array, previous: Array, rates: Array) -> Array:
    """Rates (h,), two per cent up where the gradient keeps its sign, halved elsewhere: section G of villacampa2017.

    Parameters
    ----------
    gradient : (h,)           of this iteration
    previous : (h,)           of the iteration before
    rates : (h,)              rates of the iteration before
    """
    return np.where(np.sign(gradient) == np.sign(previous), 1.02, 0.5) * rates
