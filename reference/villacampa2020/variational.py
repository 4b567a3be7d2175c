"""Section 2.3: Jensen's inequality twice, and the bound that variational Bayes maximises."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import cholesky, factorise
from reference.common.ledger import equation
from reference.villacampa2020.posterior import REMEDY, Gaussians
from reference.villacampa2020.power_likelihood import check_power, log_largest_probability, scaled_log_expected_powers
from reference.villacampa2020.sparse import latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@equation("villacampa2020", "5")
def kl_to_prior(posterior: Gaussians, K_ZZ: Array) -> float:
    """KL[q(f̄)||p(f̄)] of independent Gaussians, in (4), (5) and (9) of villacampa2020.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    K_ZZ : (C, m, m)          prior covariances

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    total = 0.0
    for m, V, K in zip(posterior.mean, posterior.cov, K_ZZ, strict=True):
        prior, own = factorise(K, "K_ZZ", REMEDY), factorise(V, "inducing_cov", "lower learning_rate")
        trace = np.sum(prior.inverse * V)
        total += 0.5 * float(trace + m @ prior.inverse @ m - len(m) + prior.log_det - own.log_det)
    return total


@equation("villacampa2020", "3")
def vb_inner_bound(cond_mean: Array, cond_var: Array, y: Labels, epsilon: float) -> float:
    """E_{p(f|f̄)}[log p(y|f)] <= log p(y|f̄), independent latent values given f̄: (3) of villacampa2020.

    With P_i the probability that f_y is the largest, Σ_i {P_i log(1 - ε + ε/C) + (1 - P_i) log(ε/C)}.

    Parameters
    ----------
    cond_mean : (n, C)        υᵀf̄, means of the latent values given f̄
    cond_var : (n, C)         their variances
    y : (n,)                  labels, 0..C-1
    epsilon : float           ε > 0; the bound is minus infinity without it
    """
    check_power(0.0, epsilon)
    log_p, log_q = log_largest_probability(cond_mean, cond_var, y)
    C = cond_mean.shape[1]
    inside, outside = np.log(1.0 - epsilon + epsilon / C), np.log(epsilon / C)
    return float(np.sum(inside * np.exp(log_p) + outside * np.exp(log_q)))


@equation("villacampa2020", "4")
def vb_outer_bound(
    posterior: Gaussians, log_likelihood: Callable[[Array], float], K_ZZ: Array, nodes: int = 20
) -> float:
    """E_q[log p(y|f̄)] - KL[q(f̄)||p(f̄)] <= log p(y): (4) of villacampa2020, for few inducing values.

    Parameters
    ----------
    posterior : Gaussians        q(f̄)
    log_likelihood : callable    f̄ (C, m) to log p(y|f̄)
    K_ZZ : (C, m, m)             prior covariances
    nodes : int                  of the Gauss-Hermite product rule, in each of the C m dimensions

    Raises
    ------
    NotPositiveDefiniteError     if one of the matrices is not a covariance
    ValueError                   for more than 1e6 points
    """
    C, m = posterior.mean.shape
    if nodes ** (C * m) > 1e6:
        raise ValueError(f"nodes: found {nodes} in {C * m} dimensions, expected at most 1e6 points")
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    roots = [cholesky(V, "inducing_cov", REMEDY) for V in posterior.cov]
    total = 0.0
    for place in np.ndindex(*(nodes,) * (C * m)):
        white = x[list(place)].reshape(C, m)
        values = np.stack([posterior.mean[k] + roots[k] @ white[k] for k in range(C)])
        total += float(np.prod(w[list(place)] / np.sqrt(2.0 * np.pi))) * log_likelihood(values)
    return total - kl_to_prior(posterior, K_ZZ)


@equation("villacampa2020", "5")
def variational_elbo(
    posterior: Gaussians, y: Labels, upsilon: Array, cond_var: Array, K_ZZ: Array, epsilon: float
) -> float:
    """Σ_i E_{q(f_i)}[log p(y_i|f_i)] - KL[q(f̄)||p(f̄)]: last line of (5) of villacampa2020.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (n,)                  labels, 0..C-1
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    K_ZZ : (C, m, m)          prior covariances
    epsilon : float           ε > 0; the bound is minus infinity without it

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    marginal = latent_marginal(posterior, upsilon, cond_var)
    data = scaled_log_expected_powers(*marginal, y, epsilon, 0.0).log_expectation
    return float(np.sum(data)) - kl_to_prior(posterior, K_ZZ)
