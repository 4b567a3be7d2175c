"""Misprints of villacampa2017 as runnable code; why each is wrong stands in the paper's inventory (`because`)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common._training import State
from reference.common.ledger import equation
from reference.common.priors import Prior
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.evidence import ep_log_evidence, factor_log_scale
from reference.villacampa2017.factors import posterior_of
from reference.villacampa2017.gradients import (
    Direction,
    Distributions,
    direct_dlogz_dhyper,
    minibatch_scale,
    prior_changes,
    prior_term_gradient,
    prior_term_matrix,
)
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.methods import SEP
from reference.villacampa2017.model import fitc_conditional, inducing_prior, standardised_margin
from reference.villacampa2017.posterior import Coefficients, Gaussians, Natural
from reference.villacampa2017.sep import sep_tied_factor

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@equation("villacampa2017", "7", as_printed=True)
def approximate_inducing_posterior_as_printed(
    inducing_values: Array, y: Labels, k_xx: Array, K_XZ: Array, K_ZZ: Array
) -> float:
    """log p(f̄) + Σ_i Σ_{k≠y_k} log Φ(α_i^k), y_k the label of datum k: (7) of villacampa2017 as printed, times p(y).

    Parameters
    ----------
    inducing_values : (C, m)  f̄
    y : (n,)                  labels, 0..C-1; n >= C
    k_xx : (C, n)             prior variances, noise included
    K_XZ : (C, n, m)          cross-covariances
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    """
    given = fitc_conditional(inducing_values, k_xx, K_XZ, K_ZZ)
    total = inducing_prior(inducing_values, K_ZZ)
    for i, label in enumerate(y):
        for k in range(len(K_ZZ)):
            if k != y[k]:
                pair = given.mean[label, i], given.mean[k, i], given.var[label, i], given.var[k, i]
                total += float(log_ndtr(standardised_margin(*pair)))
    return total


@equation("villacampa2017", "9", as_printed=True)
def ep_log_evidence_as_printed(
    posterior: Sequence[Natural], prior: Sequence[Natural], log_scales: Array, y: Labels
) -> float:
    """log Z_q = g(θ) - g(θ_prior) + Σ_i Σ_{k≠y_k} log s̃_{i,k}, y_k the label of datum k: (9) as printed.

    Parameters
    ----------
    posterior : sequence      natural parameters of q(f̄^k), one a class
    prior : sequence          natural parameters of p(f̄^k), one a class
    log_scales : (n, C)       log s̃_{i,k}, zero in the columns of the labels
    y : (n,)                  labels, 0..C-1; n >= C
    """
    C = log_scales.shape[1]
    return ep_log_evidence(posterior, prior, log_scales[:, np.arange(C) != y[:C]])


@equation("villacampa2017", "u15-sep-tied-factor", as_printed=True)
def sep_tied_factor_as_printed(coefficients: Coefficients, y: Labels, upsilon: Array) -> list[Natural]:
    """φ̃ = Π_i Π_{k≠y_k} φ̃_i^k, y_k the label of datum k: section 2.3.1 of villacampa2017 as printed.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    y : (n,)                      labels, 0..C-1; n >= C
    upsilon : (C, n, m)           υ_i^k
    """
    C = len(upsilon)
    kept = Coefficients(*(part * (np.arange(C) != y[:C]) for part in coefficients))
    return sep_tied_factor(kept, y, upsilon)


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


@equation("villacampa2017", "51", as_printed=True)
def factor_linear_from_moments_as_printed(
    beta: float, b_sum: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array
) -> Array:
    r"""β/√b υ + Ṽ m\ + Ṽ β/√b υυᵀV\υ, Ṽ = C¹υυᵀ, b = b_y + b_k: (51) of villacampa2017, third line from its end.

    Parameters
    ----------
    beta : float              β
    b_sum : float             b_y + b_k
    c1 : float                C¹
    upsilon : (m,)            υ of the label's class
    cavity_mean : (m,)        m\ of the label's class
    cavity_cov : (m, m)       V\ of the label's class
    """
    derivative, V_tilde = beta / np.sqrt(b_sum), c1 * np.outer(upsilon, upsilon)
    last: Array = V_tilde @ upsilon * (derivative * (upsilon @ cavity_cov @ upsilon))
    return derivative * upsilon + V_tilde @ cavity_mean + last


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


@equation("villacampa2017", "58", "u10-log-scale-inline", as_printed=True)
def factor_log_scale_as_printed(
    log_tilted_norm: float,
    cavities: Sequence[Natural],
    coefficients: Coefficients,
    factor: tuple[int, int],
    y: Labels,
    upsilon: Array,
    K_ZZ: Array,
) -> float:
    r"""log s̃_{i,k} = log Z_{i,k} + g(θ\) - g(θ), θ of the q rebuilt from all refined factors: (58), below (9).

    Parameters
    ----------
    log_tilted_norm : float       log Z_{i,k}
    cavities : pair               natural parameters θ\ of the classes y_i and k
    coefficients : Coefficients   of all factors after a parallel sweep, each (n, C)
    factor : (int, int)           i and k
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k
    K_ZZ : (C, m, m)              prior covariances
    """
    q, (i, k) = posterior_of(coefficients, y, upsilon, K_ZZ), factor
    precisions = [(c, np.linalg.inv(q.cov[c])) for c in (y[i], k)]
    return factor_log_scale(log_tilted_norm, cavities, [Natural(P, P @ q.mean[c]) for c, P in precisions])


@equation("villacampa2017", "10", "12", "62", as_printed=True)
def ep_log_evidence_gradient_as_printed(
    distributions: Distributions, y: Labels, K_ZZ: Array, direction: Direction, k: int, batch: Array
) -> Array:
    """(η - η_prior)ᵀ ∂θ_prior/∂ξ^k + ρ Σ_i Σ_{k≠y_i} ∂ log Z_{i,k}/∂ξ^k with one k: (10), (12), (62) as printed.

    Parameters
    ----------
    distributions : Distributions    q and the cavities
    y : (n,)                  labels, 0..C-1
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    direction : Direction     derivatives of the prior matrices with respect to ξ^k
    k : int                   the class that ξ^k belongs to
    batch : (b,)              indices of (12); all of them for (10) and (62)
    """
    # fmt: off
    q = distributions.posterior
    total = prior_term_gradient(prior_term_matrix(q.mean[k], q.cov[k], K_ZZ[k]), direction.K_ZZ[..., k, :, :])
    rho = minibatch_scale(len(y), len(batch))
    d_upsilon, d_cond_var = prior_changes(direction, distributions.upsilon, K_ZZ)
    for i in batch:
        if k != y[i]:
            pair = y[i], k
            total = total + rho * direct_dlogz_dhyper(
                distributions.cavities[i, k], [distributions.upsilon[j, i] for j in pair],
                [float(distributions.cond_var[j, i]) for j in pair], [d_upsilon[..., j, i, :] for j in pair],
                [d_cond_var[..., j, i] for j in pair])
    return total
    # fmt: on


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

    The exact gradient of `methods` is the one with the tied factor held. That of fixed points would need the derivative
    of the tied factor itself.

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
    method = SEP(y, len(prior.Z), 1.0, count)
    K = prior_matrices(X, prior)
    tied = list(sites)
    gradients = method.gradients(X, State(tied, method.posterior(tied, K), prior, K))
    return {} if gradients is None else gradients
