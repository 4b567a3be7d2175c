"""Sites of the multinomial probit: differences of latent values, their inner sites, what those are on f_i.

riihimaki2013, sections 3.2 and 3.3. All that a site sees is the projection h_i = B_i'f_i, entries f_y - f_j for j != y
ascending. Inner sites exp(beta_j g_j - alpha_j g_j^2/2) on g = h + u 1, u ~ N(0, 1); integrated over u they are

    exp(lambda'h - h'S h/2),   S = T - alpha alpha'/s,   lambda = beta - alpha (1'beta)/s,   s = 1 + 1'alpha,

so Pi_i = B S B' and nu_i = B lambda. Given q(h) = N(h, H), sites included, g has the distribution

    mean F h + 1 (1'beta)/s,   covariance F H F' + 11'/s,   F = I - 1 alpha'/s,

which is q(w) of (8) seen through g: nested EP is EP with n (C - 1) scalar probit sites, and no cavity of f_i is needed
except to see that it is proper. In log Z (28) what couples the sites of a datum telescopes away:

    log Z = nu'mu/2 - (log|I + K T| + sum_i log s_i)/2 + sum_i (1'beta_i)^2/(2 s_i) + sum_ij [log Phi(z_ij) - J_ij],

with J_ij the log integral of inner site ij against its own scalar cavity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fast.core.linalg import positive_factors, solve_stack
from fast.core.results import Differences
from fast.core.types import BoolArray, FloatArray, IntArray
from fast.ledger import equation


class OuterSites(NamedTuple):
    """Sites on f_i."""

    precision: FloatArray  # (n, C) pi_i, Pi_i = diag(pi) - pi pi'/(1'pi)
    location: FloatArray  # (n, C) nu_i


def other_classes(y: IntArray, n_classes: int) -> IntArray:
    """Classes j != y_i in ascending order: (n, C - 1).

    Parameters
    ----------
    y : (n,)           labels
    n_classes : int    C
    """
    index = np.arange(n_classes - 1)
    return index + (index >= y[:, None])


def scatter(y: IntArray, others: IntArray, values: FloatArray) -> FloatArray:
    """B_i values: the sum goes to the label's class, minus each entry to its own. (n, D) to (n, C).

    Parameters
    ----------
    y : (n,)              labels
    others : (n, D)       `other_classes`
    values : (n, D)
    """
    out = np.zeros((y.size, others.shape[1] + 1))
    np.put_along_axis(out, others, -values, axis=1)
    out[np.arange(y.size), y] = values.sum(axis=1)
    return out


@equation("riihimaki2013", "u3.2.1-g")
def differences(y: IntArray, others: IntArray, mean: FloatArray, cov: FloatArray) -> Differences:
    """Distribution of h = B'f for f ~ N(mean, cov): riihimaki2013, section 3.2.1, without u. Time O(n C^2).

    Parameters
    ----------
    y : (n,)              labels
    others : (n, D)       `other_classes`
    mean, cov             (n, C), (n, C, C)
    """
    rows = np.arange(y.size)
    own = mean[rows, y]
    h = own[:, None] - np.take_along_axis(mean, others, axis=1)
    with_own = cov[rows[:, None], y[:, None], others]
    H = cov[rows[:, None, None], others[:, :, None], others[:, None, :]]
    H += cov[rows, y, y][:, None, None]
    H -= with_own[:, :, None]
    H -= with_own[:, None, :]
    return Differences(h, H)


@equation("riihimaki2013", "12", "15")
def outer_sites(y: IntArray, others: IntArray, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> OuterSites:
    """pi_i = E alpha + e_y and nu_i = a pi_i - E beta, a = 1'beta/1'pi: riihimaki2013 (12), (15).

    Parameters
    ----------
    y : (n,)                labels
    others : (n, D)         `other_classes`
    alpha_tilde, beta_tilde : (n, D)    inner sites
    """
    precision = np.ones((y.size, others.shape[1] + 1))
    np.put_along_axis(precision, others, alpha_tilde, axis=1)
    total = 1.0 + alpha_tilde.sum(axis=1)
    shift = beta_tilde.sum(axis=1) / total
    # the label's entry is the sum of the others with a minus: 1'nu = 0 to the last bit that matters
    return OuterSites(precision, scatter(y, others, beta_tilde - alpha_tilde * shift[:, None]))


@equation("riihimaki2013", "12", "B-site")
def site_matrices(precision: FloatArray) -> FloatArray:
    """Pi_i = diag(pi) - pi pi'/(1'pi), (n, C, C): riihimaki2013 (12), and B for their stacking.

    Parameters
    ----------
    precision : (n, C)    pi_i
    """
    total = precision.sum(axis=1)
    matrices = -precision[:, :, None] * (precision / total[:, None])[:, None, :]
    index = np.arange(precision.shape[1])
    # the diagonal from the other entries: pi_k (sum of the others)/total, no difference of near equals
    matrices[:, index, index] = 0.0
    matrices[:, index, index] = -matrices.sum(axis=2)
    return matrices


@equation("riihimaki2013", "8", "17")
def augmented_differences(projected: Differences, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> Differences:
    """Distribution of g = h + u 1 under q(w), from that of h under q with the sites in it: riihimaki2013 (8), (17).

    Time O(n C^2).

    Parameters
    ----------
    projected               distribution of h
    alpha_tilde, beta_tilde : (n, D)    inner sites
    """
    s = 1.0 + alpha_tilde.sum(axis=1)
    share = alpha_tilde / s[:, None]
    w = np.einsum("nij,nj->ni", projected.cov, share)
    common = np.einsum("ni,ni->n", share, w) + 1.0 / s
    cov = projected.cov - w[:, :, None]
    cov -= w[:, None, :]
    cov += common[:, None, None]
    shift = beta_tilde.sum(axis=1) / s - np.einsum("ni,ni->n", share, projected.mean)
    return Differences(projected.mean + shift[:, None], cov)


def site_root(alpha_tilde: FloatArray) -> FloatArray:
    """X (n, D, D) with S = X X': T^1/2 (I - kappa a a'), a = alpha^1/2.

    Parameters
    ----------
    alpha_tilde : (n, D)    inner site precisions >= 0
    """
    a = np.sqrt(alpha_tilde)
    total = alpha_tilde.sum(axis=1)
    # kappa = (1 - 1/sqrt(1 + total)) / total, written without a difference
    scale = np.sqrt(1.0 + total)
    kappa = 1.0 / (scale * (1.0 + scale))
    root = -a[:, :, None] * (kappa[:, None] * a)[:, None, :]
    index = np.arange(alpha_tilde.shape[1])
    root[:, index, index] += 1.0
    root *= a[:, :, None]
    return root


class ProjectedCavity(NamedTuple):
    """h_i without its site."""

    mean: FloatArray  # (n, D)
    cov: FloatArray  # (n, D, D)
    proper: BoolArray  # (n,)
    log_det_left: FloatArray  # (n,) log|I - S^1/2 H S^1/2|


def _reduced(projected: Differences, alpha_tilde: FloatArray) -> tuple[FloatArray, FloatArray]:
    """X and I - X'H X."""
    root = site_root(alpha_tilde)
    reduced = -(root.transpose(0, 2, 1) @ projected.cov @ root)
    index = np.arange(alpha_tilde.shape[1])
    reduced[:, index, index] += 1.0
    return root, reduced


def proper_cavities(projected: Differences, alpha_tilde: FloatArray) -> BoolArray:
    """Which data have a cavity precision Sigma_i^-1 - Pi_i that is positive definite: (n,) bool.

    Parameters
    ----------
    projected         distribution of h
    alpha_tilde : (n, D)    inner sites
    """
    return positive_factors(_reduced(projected, alpha_tilde)[1])[1]


@equation("riihimaki2013", "u3.1-cavity")
def projected_cavity(projected: Differences, alpha_tilde: FloatArray, beta_tilde: FloatArray) -> ProjectedCavity:
    """h_i under the cavity q_-i(f_i): riihimaki2013, section 3.1, through the projection that the site sees.

    H_- = H + H X (I - X'H X)^-1 X'H and h_- = h + H_- (S h - lambda): sums of positive parts. Time O(n C^3).

    Parameters
    ----------
    projected               distribution of h
    alpha_tilde, beta_tilde : (n, D)    inner sites
    """
    root, reduced = _reduced(projected, alpha_tilde)
    factor, proper = positive_factors(reduced)
    cross = root.transpose(0, 2, 1) @ projected.cov
    whitened = solve_stack(factor, cross)
    cov = projected.cov + whitened.transpose(0, 2, 1) @ whitened
    s = 1.0 + alpha_tilde.sum(axis=1)
    location = beta_tilde - alpha_tilde * (beta_tilde.sum(axis=1) / s)[:, None]
    score = np.einsum("nij,nj->ni", root, np.einsum("nji,nj->ni", root, projected.mean)) - location
    mean = projected.mean + np.einsum("nij,nj->ni", cov, score)
    index = np.arange(alpha_tilde.shape[1])
    log_det = 2.0 * np.log(factor[:, index, index]).sum(axis=1)
    return ProjectedCavity(mean, cov, proper, log_det)


@equation("riihimaki2013", "28")
def ep_log_evidence(
    location: FloatArray,
    mean: FloatArray,
    log_det: float,
    alpha_tilde: FloatArray,
    beta_tilde: FloatArray,
    log_ratio: FloatArray,
) -> float:
    """log Z_EP of the present sites, every constant in it: riihimaki2013 (28) with the couplings of a datum cancelled.

    Parameters
    ----------
    location, mean : (n, C)    nu, mu
    log_det : float            log|I + K T|
    alpha_tilde, beta_tilde : (n, D)       inner sites
    log_ratio : (n, D)         log Phi(z_ij) - J_ij
    """
    s = 1.0 + alpha_tilde.sum(axis=1)
    quadratic = 0.5 * float(np.vdot(location, mean)) + 0.5 * float((beta_tilde.sum(axis=1) ** 2 / s).sum())
    return quadratic - 0.5 * (log_det + float(np.log(s).sum())) + float(log_ratio.sum())


class FullSites(NamedTuple):
    """Sites on h from full matrices on g."""

    precision: FloatArray  # (n, D, D) S
    location: FloatArray  # (n, D) lambda


@equation("riihimaki2013", "u3.3-site-precision", "u3.3-site-location")
def integrated_sites(precision: FloatArray, location: FloatArray) -> FullSites:
    """S = (Lambda^-1 + 11')^-1 and its location, u integrated out: riihimaki2013, 3.3; Pi = B S B', nu = B lambda.

    S = Lambda - Lambda 1 (1 + 1'Lambda 1)^-1 1'Lambda: Lambda may be singular.

    Parameters
    ----------
    precision : (n, D, D)    Lambda
    location : (n, D)        xi
    """
    row = precision.sum(axis=2)
    total = 1.0 + row.sum(axis=1)
    S = precision - row[:, :, None] * (row / total[:, None])[:, None, :]
    return FullSites(S, location - row * (location.sum(axis=1) / total)[:, None])


class FullCavity(NamedTuple):
    """h without its site."""

    mean: FloatArray  # (n, D)
    cov: FloatArray  # (n, D, D)
    proper: BoolArray  # (n,)
    log_site: FloatArray  # (n,) log integral of exp(lambda'h - h'S h/2) over the cavity


def full_cavity(projected: Differences, sites: FullSites) -> FullCavity:
    """Cavity of h for any symmetric S, and what the site integrates to under it. Time O(n C^3).

    With H = L L': H_- = L (I - L'S L)^-1 L', proper where that matrix is positive definite.

    Parameters
    ----------
    projected    distribution of h, sites included
    sites        S, lambda
    """
    h, H = projected
    S, location = sites
    D = h.shape[1]
    index = np.arange(D)
    root, solid = positive_factors(H)
    reduced = -(root.transpose(0, 2, 1) @ S @ root)
    reduced[:, index, index] += 1.0
    factor, proper = positive_factors(reduced)
    whitened = solve_stack(factor, root.transpose(0, 2, 1))
    cov = whitened.transpose(0, 2, 1) @ whitened
    mean = h + np.einsum("nij,nj->ni", cov, np.einsum("nij,nj->ni", S, h) - location)
    score = location - np.einsum("nij,nj->ni", S, mean)
    log_site = 0.5 * np.einsum("ni,ni->n", mean, location + score)
    log_site += 0.5 * np.einsum("ni,nij,nj->n", score, H, score) + np.log(factor[:, index, index]).sum(axis=1)
    return FullCavity(mean, cov, proper & solid, log_site)


class FullDistribution(NamedTuple):
    """Distribution of g from its cavity and its sites."""

    mean: FloatArray  # (n, D)
    cov: FloatArray  # (n, D, D)
    proper: BoolArray  # (n,) False where rounding has left no factor: the numbers of that datum mean nothing


@equation("riihimaki2013", "18", "20")
def full_distribution(cavity: Differences, precision: FloatArray, location: FloatArray) -> FullDistribution:
    """Distribution of g from its cavity and sites Lambda, xi on it: riihimaki2013 (18), (20), through g. Time O(n C^3).

    (Sigma_g^-1 + Lambda)^-1 = L (I + L'Lambda L)^-1 L'.

    Parameters
    ----------
    cavity                   distribution of g without its site
    precision : (n, D, D)    Lambda
    location : (n, D)        xi
    """
    root, solid = positive_factors(cavity.cov)
    inner = root.transpose(0, 2, 1) @ precision @ root
    index = np.arange(location.shape[1])
    inner[:, index, index] += 1.0
    factor, proper = positive_factors(inner)
    whitened = solve_stack(factor, root.transpose(0, 2, 1))
    cov = whitened.transpose(0, 2, 1) @ whitened
    score = location - np.einsum("nij,nj->ni", precision, cavity.mean)
    return FullDistribution(cavity.mean + np.einsum("nij,nj->ni", cov, score), cov, solid & proper)
