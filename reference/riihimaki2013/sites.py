"""Sections 3.1 and 3.2: cavities, tilted distributions, and what the inner sites make of the outer ones.

For a datum with label y the columns of B_i and B̃_i, and the entries of α_i and β_i, belong to the classes j ≠ y in
ascending order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from reference.common._product import product_rule
from reference.common.algebra import inverted, solution
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.riihimaki2013.model import log_multinomial_probit_likelihood

Array = NDArray[np.float64]

CAVITY = "the cavity of this datum is not a distribution; lower damping"


class Moments(NamedTuple):
    """Mean and covariance of a Gaussian."""

    mean: Array
    cov: Array


class Tilted(NamedTuple):
    """Normaliser, mean and covariance of a tilted distribution."""

    norm: float
    mean: Array
    cov: Array


class Site(NamedTuple):
    """A site exp(-½ f'Πf + ν'f)."""

    precision: Array  # (c, c)  Π = Σ̃⁻¹
    location: Array  # (c,)     ν = Σ̃⁻¹ μ̃


class Augmented(NamedTuple):
    """Cavity of w = (f, u), and the directions of its probit factors."""

    mu_w: Array  # (c+1,)
    Sigma_w: Array  # (c+1, c+1)
    B_tilde: Array  # (c+1, c-1)


def selector(c: int, y_i: int) -> Array:
    """E_{-y} (c, c-1): unit vectors e_j of the other classes; c the number of classes, y_i the label."""
    return np.delete(np.eye(c), y_i, axis=1)


@equation("riihimaki2013", "u3.2.2-B")
def difference_matrix(c: int, y_i: int) -> Array:
    """B_i = H'B̃_i = e_y 1' - E_{-y} (c, c-1) below (9) of riihimaki2013; c the number of classes, y_i the label."""
    e_y = np.eye(c)[:, [y_i]]
    return e_y @ np.ones((1, c - 1)) - selector(c, y_i)


@equation("riihimaki2013", "u3.1-cavity")
def cavity(latent_mean: Array, latent_cov: Array, site_precision: Array, site_location: Array) -> Moments:
    """q_{-i}(f_i) ∝ q(f_i)/r̃_i(f_i): section 3.1 of riihimaki2013.

    Parameters
    ----------
    latent_mean : (c,)        mean of the marginal q(f_i)
    latent_cov : (c, c)       its covariance
    site_precision : (c, c)   Π_i
    site_location : (c,)      ν_i

    Raises
    ------
    NotPositiveDefiniteError  if what is left is not a distribution
    """
    marginal = factorise(latent_cov, "latent_cov", "raise jitter or noise")
    precision = marginal.inverse - site_precision
    left = factorise(0.5 * (precision + precision.T), "cavity precision", CAVITY)
    return Moments(left.inverse @ (marginal.inverse @ latent_mean - site_location), left.inverse)


@equation("riihimaki2013", "5")
def tilted_density(f_i: Array, cavity_mean: Array, cavity_cov: Array, y_i: int) -> float:
    """log[q_{-i}(f_i) p(y_i|f_i)]: the logarithm of (5) of riihimaki2013 without its 1/Ẑ_i, multinomial probit.

    Parameters
    ----------
    f_i : (c,)                where
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    y_i : int                 label

    Raises
    ------
    NotPositiveDefiniteError  if cavity_cov is singular
    """
    factor = factorise(cavity_cov, "cavity_cov", CAVITY)
    off = f_i - cavity_mean
    gauss = -0.5 * off @ factor.inverse @ off - 0.5 * factor.log_det - 0.5 * len(f_i) * np.log(2.0 * np.pi)
    return float(gauss + log_multinomial_probit_likelihood(f_i, y_i))


@equation("riihimaki2013", "u3.1-outer-update")
def match_moments(tilted_mean: Array, tilted_cov: Array, cavity_mean: Array, cavity_cov: Array) -> Site:
    """Σ̃⁻¹ = Σ̂⁻¹ - Σ_{-i}⁻¹ and ν̃ = Σ̂⁻¹μ̂ - Σ_{-i}⁻¹μ_{-i}: sections 3.1 and 3.2.2 of riihimaki2013.

    Parameters
    ----------
    tilted_mean : (c,)        μ̂_i
    tilted_cov : (c, c)       Σ̂_i
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}

    Raises
    ------
    NotPositiveDefiniteError  if a covariance is singular
    """
    tilted = factorise(tilted_cov, "tilted_cov", CAVITY).inverse
    without = factorise(cavity_cov, "cavity_cov", CAVITY).inverse
    return Site(tilted - without, tilted @ tilted_mean - without @ cavity_mean)


@equation("riihimaki2013", "7")
def augmented_tilted(cavity_mean: Array, cavity_cov: Array, y_i: int) -> Augmented:
    """μ_w = (μ_{-i}, 0), Σ_w = blockdiag(Σ_{-i}, 1) and b̃_j = (e_y - e_j, 1): (7) of riihimaki2013.

    Parameters
    ----------
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    y_i : int                 label
    """
    c = len(cavity_mean)
    Sigma_w = np.zeros((c + 1, c + 1))
    Sigma_w[:c, :c] = cavity_cov
    Sigma_w[c, c] = 1.0
    B_tilde = np.vstack([difference_matrix(c, y_i), np.ones((1, c - 1))])
    return Augmented(np.append(cavity_mean, 0.0), Sigma_w, B_tilde)


@equation("riihimaki2013", "u3.2.1-zhat")
def tilted_normaliser(mu_w: Array, Sigma_w: Array, B_tilde: Array, nodes: int = 30) -> float:
    """Ẑ_i = ∫ N(w|μ_w, Σ_w) Π_j Φ(w'b̃_j) dw: section 3.2.1 of riihimaki2013, by a product rule over w.

    Parameters
    ----------
    mu_w : (c+1,)             mean of w under the cavity
    Sigma_w : (c+1, c+1)      its covariance
    B_tilde : (c+1, c-1)      columns b̃_j
    nodes : int               per dimension
    """
    w, weights = product_rule(mu_w, Sigma_w, nodes)
    return float(weights @ np.prod(ndtr(w @ B_tilde), axis=1))


@equation("riihimaki2013", "u3.2.1-g")
def difference_transform(w_i: Array, y_i: int) -> Array:
    """g_j = f_y - f_j + u for the classes j ≠ y (c-1,): g_i = B̃_i'w_i, section 3.2.1 of riihimaki2013.

    Parameters
    ----------
    w_i : (c+1,)              latent values and auxiliary variable
    y_i : int                 label
    """
    f_i, u_i = w_i[:-1], w_i[-1]
    return np.array([f_i[y_i] - f_i[j] + u_i for j in range(len(f_i)) if j != y_i])


@equation("riihimaki2013", "9")
def tilted_covariance_augmented(Sigma_w: Array, B_tilde: Array, alpha: Array) -> Array:
    """Σ̂_i = H'(Σ_w⁻¹ + B̃ T̃ B̃')⁻¹H, the block of f: (9) of riihimaki2013.

    Parameters
    ----------
    Sigma_w : (c+1, c+1)      covariance of w under the cavity
    B_tilde : (c+1, c-1)      columns b̃_j
    alpha : (c-1,)            diagonal of T̃_i
    """
    H = np.eye(len(Sigma_w))[:, :-1]
    return (
        H.T
        @ inverted(
            inverted(Sigma_w, "Σ_w") + B_tilde @ np.diag(alpha) @ B_tilde.T,
            "Σ_w⁻¹ + B̃TB̃ᵀ",
        )
        @ H
    )


@equation("riihimaki2013", "10")
def tilted_covariance(cavity_cov: Array, B: Array, alpha: Array) -> Array:
    """Σ̂_i = Σ_{-i} - Σ_{-i}B(T̃⁻¹ + 11' + B'Σ_{-i}B)⁻¹B'Σ_{-i}: first line of (10) of riihimaki2013.

    Parameters
    ----------
    cavity_cov : (c, c)       Σ_{-i}
    B : (c, c-1)              B_i
    alpha : (c-1,)            diagonal of T̃_i, positive
    """
    inner = np.diag(1.0 / alpha) + np.ones((len(alpha), len(alpha))) + B.T @ cavity_cov @ B
    return cavity_cov - cavity_cov @ B @ solution(inner, B.T @ cavity_cov, "inner")


@equation("riihimaki2013", "11")
def site_precision_lowrank(B: Array, alpha: Array) -> Array:
    """Σ̃_i⁻¹ = B(T̃ - α(1 + 1'α)⁻¹α')B': (11) of riihimaki2013.

    Parameters
    ----------
    B : (c, c-1)              B_i
    alpha : (c-1,)            α̃_i
    """
    return B @ (np.diag(alpha) - np.outer(alpha, alpha) / (1.0 + np.sum(alpha))) @ B.T


class AForm(NamedTuple):
    """A_i, π_i, and the site precision that they make."""

    A: Array
    pi: Array
    precision: Array


@equation("riihimaki2013", "u3.2.2-A-form")
def site_precision_a_form(alpha: Array, y_i: int) -> AForm:
    """Σ̃_i⁻¹ = A(E T̃ E' - π(1'π)⁻¹π')A' with A = I - e_y 1', π = E α + e_y: above (12) of riihimaki2013.

    Parameters
    ----------
    alpha : (c-1,)            α̃_i
    y_i : int                 label
    """
    c = len(alpha) + 1
    E, e_y = selector(c, y_i), np.eye(c)[y_i]
    A = np.eye(c) - np.outer(e_y, np.ones(c))
    pi = E @ alpha + e_y
    return AForm(A, pi, A @ (E @ np.diag(alpha) @ E.T - np.outer(pi, pi) / np.sum(pi)) @ A.T)


class PiForm(NamedTuple):
    """Site precision and the vector that it is made of."""

    precision: Array
    pi: Array


@equation("riihimaki2013", "12")
def site_precision(alpha: Array, y_i: int) -> PiForm:
    """Π_i = diag(π_i) - (1'π_i)⁻¹π_iπ_i': (12) of riihimaki2013. 1 is its null vector.

    Parameters
    ----------
    alpha : (c-1,)            α̃_i
    y_i : int                 label
    """
    pi = np.insert(alpha, y_i, 1.0)
    return PiForm(np.diag(pi) - np.outer(pi, pi) / np.sum(pi), pi)


@equation("riihimaki2013", "13")
def tilted_mean_augmented(mu_w: Array, Sigma_w: Array, B_tilde: Array, alpha: Array, beta: Array) -> Array:
    """μ̂_i = H'(Σ_w⁻¹ + B̃T̃B̃')⁻¹(Σ_w⁻¹μ_w + B̃β̃): (13) of riihimaki2013.

    Parameters
    ----------
    mu_w : (c+1,)             mean of w under the cavity
    Sigma_w : (c+1, c+1)      its covariance
    B_tilde : (c+1, c-1)      columns b̃_j
    alpha : (c-1,)            α̃_i
    beta : (c-1,)             β̃_i
    """
    H = np.eye(len(Sigma_w))[:, :-1]
    without = inverted(Sigma_w, "Σ_w")
    precision = without + B_tilde @ np.diag(alpha) @ B_tilde.T
    return H.T @ inverted(precision, "precision") @ (without @ mu_w + B_tilde @ beta)


@equation("riihimaki2013", "14")
def tilted_mean(cavity_mean: Array, cavity_cov: Array, B: Array, alpha: Array, beta: Array) -> Array:
    """μ̂_i = Σ̂Σ_{-i}⁻¹μ_{-i} + Σ_{-i}B(T̃⁻¹ + 11' + B'Σ_{-i}B)⁻¹T̃⁻¹β̃: (14) of riihimaki2013.

    Parameters
    ----------
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    B : (c, c-1)              B_i
    alpha : (c-1,)            α̃_i, positive
    beta : (c-1,)             β̃_i
    """
    inner = np.diag(1.0 / alpha) + np.ones((len(alpha), len(alpha))) + B.T @ cavity_cov @ B
    shift = cavity_cov @ B @ solution(inner, beta / alpha, "inner")
    return tilted_covariance(cavity_cov, B, alpha) @ solution(cavity_cov, cavity_mean, "cavity covariance") + shift


class Location(NamedTuple):
    """Site location and the scalar that it is made of."""

    location: Array
    a: float


@equation("riihimaki2013", "15")
def site_location(alpha: Array, beta: Array, y_i: int) -> Location:
    """ν̃_i = a_i π_i - E β̃_i with a_i = 1'β̃_i/1'π_i: (15) of riihimaki2013. It is orthogonal to 1.

    Parameters
    ----------
    alpha : (c-1,)            α̃_i
    beta : (c-1,)             β̃_i
    y_i : int                 label
    """
    pi = np.insert(alpha, y_i, 1.0)
    a = float(np.sum(beta) / np.sum(pi))
    return Location(a * pi - np.insert(beta, y_i, 0.0), a)


def outer_site(alpha: Array, beta: Array, y_i: int) -> Site:
    """The outer site of inner sites alpha (c-1,), beta (c-1,) for the label y_i: (12) and (15) of riihimaki2013."""
    return Site(site_precision(alpha, y_i).precision, site_location(alpha, beta, y_i).location)


@equation("riihimaki2013", "u3.2.2-iep")
def iep_site_update(tilted_mean: Array, tilted_cov: Array, cavity_mean: Array, cavity_cov: Array) -> Site:
    """The independent-class site that matches μ̂_i and diag(diag(Σ̂_i)): end of section 3.2.2 of riihimaki2013.

        τ_k = 1/Σ̂_kk - 1/Σ_{-i,kk},   ν_k = μ̂_k/Σ̂_kk - μ_{-i,k}/Σ_{-i,kk}

    Parameters
    ----------
    tilted_mean : (c,)        μ̂_i
    tilted_cov : (c, c)       Σ̂_i; its diagonal counts
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}, diagonal

    Returns
    -------
    Site                      precision (c,), the diagonal, and location (c,)
    """
    hat, without = np.diag(tilted_cov), np.diag(cavity_cov)
    return Site(1.0 / hat - 1.0 / without, tilted_mean / hat - cavity_mean / without)


@equation("riihimaki2013", "17")
def marginal_from_inner_sites(cavity_mean: Array, cavity_cov: Array, alpha: Array, beta: Array, y_i: int) -> Moments:
    """q(f_i) ∝ q_{-i}(f_i) ∫N(u|0,1) Π_j N(u + f_y - f_j|α⁻¹β, α⁻¹)du: (17) of riihimaki2013.

    Written as it stands: w = (f, u) multiplied by its c - 1 scalar sites, and u left out of the result.

    Parameters
    ----------
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    alpha : (c-1,)            α̃_i
    beta : (c-1,)             β̃_i
    y_i : int                 label
    """
    w = augmented_tilted(cavity_mean, cavity_cov, y_i)
    without = inverted(w.Sigma_w, "Σ_w")
    cov = np.asarray(
        inverted(without + (w.B_tilde * alpha) @ w.B_tilde.T, "Σ_w⁻¹ + B̃TB̃ᵀ"),
        dtype=np.float64,
    )
    mean = cov @ (without @ w.mu_w + w.B_tilde @ beta)
    return Moments(mean[:-1], cov[:-1, :-1])


@equation("riihimaki2013", "u3.2.3-damping")
def damp_inner_sites(
    alpha: Array, beta: Array, alpha_proposed: Array, beta_proposed: Array, damping: float
) -> tuple[Array, Array]:
    """(1 - δ) old + δ proposed for α̃ and β̃: section 3.2.3 of riihimaki2013, which keeps the form (12).

    Parameters
    ----------
    alpha, beta : (c-1,)                      present inner sites
    alpha_proposed, beta_proposed : (c-1,)    what a full step would make of them
    damping : float                           δ in (0, 1], 1 = undamped
    """
    return (
        (1.0 - damping) * alpha + damping * alpha_proposed,
        (1.0 - damping) * beta + damping * beta_proposed,
    )
