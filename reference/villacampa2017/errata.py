r"""Misprints of villacampa2017: (14), (36), (53), (56), (60), (61) and (10) for SEP as runnable code.

Wrong numbers:

- (10): right for EP. Section 2.3.1 takes it over for SEP, where it is no derivative of log Z_q.
- (14): the first line equates log p(y) with an integral that is p(y); the logarithm is missing on the right.
- (36): the cross-covariance of the label's class stands before K_ZZ⁻¹ of class k; the second form, υ_kᵀ m\_k, is meant.
- (53): β appears with the sign that it has for the label's class; (40) gives it the other one.
- (56): the logarithm of s̃_{i,k} is called s̃_{i,k}; (58) has it right.
- (60): the last determinant lacks its logarithm.
- (61): the distributions of the cavity are subtracted from themselves, and class k is missing; (58) is meant.

Slips of notation, of which no number can be computed, or which the same display puts right, are rows slip-1 to slip-26
of the paper's inventory.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior
from reference.common._training import State
from reference.common.ledger import equation
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.posterior import Gaussians, Natural
from reference.villacampa2017.tied import TiedEP

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@equation("villacampa2017", "14", as_printed=True)
def log_evidence_as_printed(log_likelihood: Callable[[Array], float], K_ZZ: Array, nodes: int = 20) -> float:
    """∫ q(f̄) p(y|f̄) p(f̄)/q(f̄) df̄, called log p(y): the first line of (14) of villacampa2017 as printed; q cancels.

    Parameters
    ----------
    log_likelihood : callable    f̄ (C, m) to log p(y|f̄)
    K_ZZ : (C, m, m)             prior covariances
    nodes : int                  of the Gauss-Hermite product rule, in each of the C m dimensions
    """
    C, m = K_ZZ.shape[:2]
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    roots = np.linalg.cholesky(K_ZZ)
    total = 0.0
    for place in np.ndindex(*(nodes,) * (C * m)):
        f_bar = np.einsum("kij,kj->ki", roots, x[list(place)].reshape(C, m))
        total += float(np.prod(w[list(place)] / np.sqrt(2.0 * np.pi)) * np.exp(log_likelihood(f_bar)))
    return total


@equation("villacampa2017", "36", as_printed=True)
def cavity_latent_mean_as_printed(k_xZ: Array, K_ZZ: Array, cavity_mean: Array) -> float:
    r"""a_i^k = k_yᵀ K_k⁻¹ m\_k with the cross-covariance of the label's class: (36) of villacampa2017 as printed.

    Parameters
    ----------
    k_xZ : (m,)               of the label's class
    K_ZZ : (m, m)             of class k
    cavity_mean : (m,)        of class k
    """
    return float(k_xZ @ np.linalg.inv(K_ZZ) @ cavity_mean)


@equation("villacampa2017", "53", as_printed=True)
def update_c2_other_as_printed(
    beta: float, b_sum: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array
) -> float:
    r"""C² = β/√b + C¹ υᵀm\ + β/√b C¹ υᵀV\υ, b = b_y + b_k: (53) of villacampa2017 as printed.

    Parameters
    ----------
    beta : float              β
    b_sum : float             b_y + b_k
    c1 : float                C¹
    upsilon : (m,)            υ of class k
    cavity_mean : (m,)        m\ of class k
    cavity_cov : (m, m)       V\ of class k
    """
    derivative = beta / np.sqrt(b_sum)
    return float(derivative + c1 * (upsilon @ cavity_mean) + derivative * c1 * (upsilon @ cavity_cov @ upsilon))


@equation("villacampa2017", "56", as_printed=True)
def factor_scale_as_printed(log_tilted_norm: float, log_normaliser_cavity: float, log_normaliser: float) -> float:
    r"""s̃_{i,k} = log Z_{i,k} + g(θ\) - g(θ): (56) of villacampa2017 as printed.

    Parameters
    ----------
    log_tilted_norm : float         log Z_{i,k}
    log_normaliser_cavity : float   g(θ\)
    log_normaliser : float          g(θ)
    """
    return log_tilted_norm + log_normaliser_cavity - log_normaliser


@equation("villacampa2017", "60", as_printed=True)
def ep_log_evidence_from_moments_as_printed(posterior: Gaussians, K_ZZ: Array, log_scales: Array) -> float:
    """Σ_k {½ log|V_k| + ½ m_kᵀV_k⁻¹m_k - ½ |K_k|} + Σ_i Σ_{k≠y_i} log s̃_{i,k}: (60) of villacampa2017 as printed.

    Parameters
    ----------
    posterior : Gaussians     m (C, m) and V (C, m, m)
    K_ZZ : (C, m, m)          prior covariances K_k
    log_scales : (n, C)       log s̃_{i,k}, zero in the columns of the labels
    """
    total = float(np.sum(log_scales))
    for m, V, K in zip(posterior.mean, posterior.cov, K_ZZ, strict=True):
        total += 0.5 * float(np.linalg.slogdet(V)[1] + m @ np.linalg.solve(V, m) - np.linalg.det(K))
    return total


@equation("villacampa2017", "61", as_printed=True)
def factor_log_scale_from_moments_as_printed(log_tilted_norm: float, cavity: Cavity) -> float:
    r"""log s̃ = log Z + ½ log|V\| + ½ m\ᵀV\⁻¹m\ - ½ log|V\| - ½ m\ᵀV\⁻¹m\: (61) of villacampa2017 as printed.

    Parameters
    ----------
    log_tilted_norm : float   log Z_{i,k}
    cavity : Cavity           moments of the label's class without the factor
    """
    whitened = 0.5 * float(np.linalg.slogdet(cavity.cov)[1] + cavity.mean @ np.linalg.solve(cavity.cov, cavity.mean))
    return log_tilted_norm + whitened - whitened


@equation("villacampa2017", "10", as_printed=True)
def sep_log_evidence_gradient_as_printed(
    sites: Sequence[Natural], X: Array, y: Labels, prior: Prior, count: str = "all"
) -> dict[str, Array]:
    """(10) with the cavities of SEP, fields with shapes as in the prior: section 2.3.1 of villacampa2017 as printed.

    Section 2.3.1 takes over the gradients of EP. (10) rests on a log Z_q that is stationary in the factors, and SEP's
    is not: its cavity leaves out one n-th of a product, where no factor is one.

    Five data, three classes, three inducing points, at the fixed point, by central differences of log Z_q: in the first
    variance (10) gives -0.0582, log Z_q with the tied factor held has -0.0161, and log Z_q of fixed points found anew
    +0.0040; in the second noise -0.0049, -0.0049 and +0.0136. The exact gradient of `tied` is the one with the
    factor held. That of fixed points would need the derivative of the tied factor itself.

    Parameters
    ----------
    sites : sequence          the tied factor, one part a class
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters
    count : str               "all" or "per-class": see `sep.factor_counts`

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    method = TiedEP(y, len(prior.Z), 1.0, count)
    K = prior_matrices(X, prior)
    tied = list(sites)
    gradients = method.gradients(X, State(tied, method.posterior(tied, K), prior, K))
    return {} if gradients is None else gradients
