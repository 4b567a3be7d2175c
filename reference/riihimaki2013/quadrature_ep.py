"""Section 3.3: sites from (c-1)-dimensional quadratures, and the rules of section 5.1 that judge them."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from reference.common._product import product_rule
from reference.common.algebra import inverted, solution
from reference.common.ledger import equation
from reference.common.probit import mills_derivative
from reference.riihimaki2013._truncated import truncated_gaussian
from reference.riihimaki2013.sites import Site, Tilted, augmented_tilted, difference_matrix

Array = NDArray[np.float64]


@equation("riihimaki2013", "18")
def tilted_covariance_g(Sigma_w: Array, B_tilde: Array, Lambda: Array) -> Array:
    """Σ̂_g = B̃'(Σ_w⁻¹ + B̃ΛB̃')⁻¹B̃: (18) of riihimaki2013.

    Parameters
    ----------
    Sigma_w : (c+1, c+1)      covariance of w under the cavity
    B_tilde : (c+1, c-1)      columns b̃_j
    Lambda : (c-1, c-1)       Λ_i
    """
    return (
        B_tilde.T
        @ inverted(
            inverted(Sigma_w, "Σ_w") + B_tilde @ Lambda @ B_tilde.T,
            "Σ_w⁻¹ + B̃ΛB̃ᵀ",
        )
        @ B_tilde
    )


@equation("riihimaki2013", "19")
def lambda_from_moments(tilted_cov_g: Array, cavity_cov: Array, B: Array) -> Array:
    """Λ_i = Σ̂_g⁻¹ - Σ_g⁻¹ with Σ_g = B'Σ_{-i}B + 11': (19) of riihimaki2013, its subscript corrected.

    Parameters
    ----------
    tilted_cov_g : (c-1, c-1)   Σ̂_g
    cavity_cov : (c, c)         Σ_{-i}
    B : (c, c-1)                B_i
    """
    return inverted(tilted_cov_g, "tilted Σ_g") - inverted(cavity_covariance_g(cavity_cov, B), "Σ_g")


@equation("riihimaki2013", "u3.3-cavity-g")
def cavity_covariance_g(cavity_cov: Array, B: Array) -> Array:
    """Σ_g = B'Σ_{-i}B + 11' below (19) of riihimaki2013: cavity_cov (c, c) is Σ_{-i}, B (c, c-1) is B_i."""
    return B.T @ cavity_cov @ B + np.ones((B.shape[1], B.shape[1]))


@equation("riihimaki2013", "u3.3-site-precision")
def site_precision_full_lambda(Lambda: Array, B: Array) -> Array:
    """Σ̃_i⁻¹ = B(Λ⁻¹ + 11')⁻¹B' below (19) of riihimaki2013, written so that Λ may be singular.

    Parameters
    ----------
    Lambda : (c-1, c-1)       Λ_i
    B : (c, c-1)              B_i
    """
    ones = np.ones(len(Lambda))
    row = Lambda @ ones
    return B @ (Lambda - np.outer(row, row) / (1.0 + ones @ row)) @ B.T


@equation("riihimaki2013", "u3.3-diagonal")
def diagonal_lambda(Lambda: Array) -> Array:
    """Λ̃_i = diag(diag(Λ_i)), its diagonal (c-1,): section 3.3 of riihimaki2013.

    Parameters
    ----------
    Lambda : (c-1, c-1)       Λ_i
    """
    return np.diag(Lambda).copy()


@equation("riihimaki2013", "20")
def tilted_mean_g(mu_w: Array, Sigma_w: Array, B_tilde: Array, Lambda: Array, xi: Array) -> Array:
    """μ̂_g = B̃'(Σ_w⁻¹ + B̃ΛB̃')⁻¹(Σ_w⁻¹μ_w + B̃ξ): (20) of riihimaki2013.

    Parameters
    ----------
    mu_w : (c+1,)             mean of w under the cavity
    Sigma_w : (c+1, c+1)      its covariance
    B_tilde : (c+1, c-1)      columns b̃_j
    Lambda : (c-1, c-1)       Λ_i
    xi : (c-1,)               ξ_i
    """
    without = inverted(Sigma_w, "Σ_w")
    cov = inverted(without + B_tilde @ Lambda @ B_tilde.T, "Σ_w⁻¹ + B̃ΛB̃ᵀ")
    return B_tilde.T @ cov @ (without @ mu_w + B_tilde @ xi)


@equation("riihimaki2013", "21")
def xi_from_moments(
    tilted_mean_g: Array, tilted_cov_g: Array, cavity_mean: Array, cavity_cov: Array, B: Array, diagonal: bool
) -> Array:
    """ξ_i = Σ̂_g⁻¹μ̂_g - Σ_g⁻¹μ_g: (21) of riihimaki2013; with diagonal Λ̃, Σ̂_g⁻¹ is replaced by Λ̃ + Σ_g⁻¹.

    Parameters
    ----------
    tilted_mean_g : (c-1,)      μ̂_g
    tilted_cov_g : (c-1, c-1)   Σ̂_g
    cavity_mean : (c,)          μ_{-i}
    cavity_cov : (c, c)         Σ_{-i}
    B : (c, c-1)                B_i
    diagonal : bool             whether Λ_i is replaced by its diagonal
    """
    without = inverted(cavity_covariance_g(cavity_cov, B), "Σ_g")
    precision = inverted(tilted_cov_g, "tilted Σ_g")
    if diagonal:
        precision = np.diag(diagonal_lambda(precision - without)) + without
    return precision @ tilted_mean_g - without @ B.T @ cavity_mean


@equation("riihimaki2013", "u3.3-site-location")
def site_location_quadrature(xi: Array, Lambda: Array, B: Array) -> Array:
    """ν̃_i = B(ξ - Λ1(1 + 1'Λ1)⁻¹1'ξ): end of section 3.3 of riihimaki2013.

    Parameters
    ----------
    xi : (c-1,)               ξ_i
    Lambda : (c-1, c-1)       Λ_i, or its diagonal as a matrix
    B : (c, c-1)              B_i
    """
    row = Lambda @ np.ones(len(xi))
    return B @ (xi - row * (np.sum(xi) / (1.0 + np.sum(row))))


def quadrature_site(Lambda: Array, xi: Array, y_i: int) -> Site:
    """The outer site of Lambda (c-1, c-1) and xi (c-1,) for the label y_i."""
    B = difference_matrix(len(xi) + 1, y_i)
    return Site(site_precision_full_lambda(Lambda, B), site_location_quadrature(xi, Lambda, B))


@equation("riihimaki2013", "u3.3-quadrature")
def tilted_moments_quadrature(mean_g: Array, cov_g: Array, nodes: int) -> Tilted:
    """Ẑ, μ̂_g, Σ̂_g of N(g|μ_g, Σ_g)Π_jΦ(g_j) by a (c-1)-dimensional product rule: sections 3.3 and 5.1.

    Parameters
    ----------
    mean_g : (c-1,)           μ_g
    cov_g : (c-1, c-1)        Σ_g
    nodes : int               per dimension

    Raises
    ------
    ValueError                for more than 1e6 points
    """
    g, weights = product_rule(mean_g, cov_g, nodes)
    return _moments(g, weights, np.prod(ndtr(g), axis=1))


@equation("riihimaki2013", "u3.3-quadrature", "u5.1-qf")
def _moments(points: Array, weights: Array, factor: Array) -> Tilted:
    """Ẑ = Σ w t, and mean and covariance of the shares w t/Ẑ at the points x, of t = Π Φ: riihimaki2013."""
    norm = float(weights @ factor)
    share = weights * factor / norm if norm > 0.0 else weights
    mean = share @ points
    off = points - mean
    return Tilted(norm, mean, (off.T * share) @ off)


@equation("riihimaki2013", "6")
def tilted_multinomial_probit(cavity_mean: Array, cavity_cov: Array, y_i: int, nodes: int | None = None) -> Tilted:
    """Ẑ_i, μ̂_i and Σ̂_i of (6) of riihimaki2013 from those of h = B'f + u1 + e, e ~ N(0, I), given that h > 0.

    Each Φ(g_j) is the probability that g_j and a unit noise e_j of its own are positive together. f given h is Gaussian
    and free of the label, so that E[f] and Cov[f] follow from those of h by regression. To three classes by derivatives
    of log P(h > 0): relative errors of 1e-12 where the label is likely, 1e-7 (Σ̂) with the margins 30 standard
    deviations on the wrong side. Beyond by 65 536 points: errors in log Ẑ, μ̂ and Σ̂, in units of the tilted standard
    deviations, up to 5e-6, 1e-4, 1e-3 for four classes, 7e-5, 6e-4, 5e-3 for six and 5e-4, 0.02, 0.08 for ten, and a
    refusal where its halves disagree.

    With `nodes`, by a product rule over g = B̃'w, blind to bends much narrower than its Gaussian: for c = 3 and 60 nodes
    Ẑ is off by 6e-8, 6 % and 12 % at cavities of log variance 2, 4 and 8.

    Parameters
    ----------
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    y_i : int                 label
    nodes : int or None       of the product rule, per dimension; None: no product rule

    Raises
    ------
    ValueError                for more than 1e6 points of a product rule; c > 3: if the label is too unlikely for points
    NotPositiveDefiniteError  if a covariance is singular
    """
    w = augmented_tilted(cavity_mean, cavity_cov, y_i)
    mean_g, cov_g = w.B_tilde.T @ w.mu_w, w.B_tilde.T @ w.Sigma_w @ w.B_tilde
    if nodes is None:
        cov_g = cov_g + np.eye(len(mean_g))  # of h
        result = truncated_gaussian(mean_g, cov_g)
        hat = Tilted(float(np.exp(result.log_norm)), result.mean, result.cov)
    else:
        hat = tilted_moments_quadrature(mean_g, cov_g, nodes)
    gain = solution(cov_g, w.B_tilde.T @ w.Sigma_w, "Σ_g")[:, : len(cavity_mean)].T
    return Tilted(hat.norm, cavity_mean + gain @ (hat.mean - mean_g), cavity_cov - gain @ (cov_g - hat.cov) @ gain.T)


@equation("riihimaki2013", "u5.1-qf")
def tilted_moments_full_quadrature(cavity_mean: Array, cavity_cov: Array, y_i: int, nodes: int = 10) -> Tilted:
    """QF10 of section 5.1 of riihimaki2013: Ẑ_i, μ̂_i, Σ̂_i of (6) by a (c+1)-dimensional product rule over w = (f, u).

    Parameters
    ----------
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    y_i : int                 label
    nodes : int               per dimension

    Raises
    ------
    ValueError                for more than 1e6 points
    """
    distribution = augmented_tilted(cavity_mean, cavity_cov, y_i)
    w, weights = product_rule(distribution.mu_w, distribution.Sigma_w, nodes)
    return _moments(w[:, :-1], weights, np.prod(ndtr(w @ distribution.B_tilde), axis=1))


@equation("riihimaki2013", "u5.1-qiep")
def qiep_tilted_moments(cavity_mean: Array, cavity_var: Array, y_i: int, nodes: int = 10) -> Tilted:
    """Tilted means and variances of independent classes, after Seeger et al. (2006): section 5.1 of riihimaki2013.

    With s = f_y + u ~ N(m_y, 1 + v_y) and r_j = φ/Φ at z_j = (s - m_j)/√(1 + v_j), 2c - 1 one-dimensional rules give
    Ẑ = E_s[ΠΦ(z_j)] and, for j ≠ y, means m_j - v_jρ_j and variances v_j - v_j²γ_j with

        ρ_j = E_s[ΠΦ r_j]/(Ẑ√(1 + v_j)),   γ_j = ρ_j² + E_s[ΠΦ z_j r_j]/(Ẑ(1 + v_j))

    and two two-dimensional rules over (f_y, u) the first two moments of f_y, normalised by their own mass.

    Parameters
    ----------
    cavity_mean : (c,)        m
    cavity_var : (c,)         v
    y_i : int                 label
    nodes : int               per dimension

    Returns
    -------
    Tilted                    Ẑ, means (c,), variances (c,)
    """
    others = np.delete(np.arange(len(cavity_mean)), y_i)
    m, v = cavity_mean[others], cavity_var[others]
    m_y, v_y = np.array([cavity_mean[y_i], 0.0]), np.diag([cavity_var[y_i], 1.0])

    def factors(s: Array) -> tuple[Array, Array]:
        z = (s[:, None] - m) / np.sqrt(1.0 + v)
        return z, np.prod(ndtr(z), axis=1)

    s, weights = product_rule(m_y[:1], v_y[:1, :1] + 1.0, nodes)
    z, product = factors(s[:, 0])
    norm = float(weights @ product)
    mean, var = cavity_mean.copy(), cavity_var.copy()
    if norm <= 0.0:
        return Tilted(0.0, mean, var)
    share = weights * product / norm
    ratio = mills_derivative(z)[0]
    rho = share @ ratio / np.sqrt(1.0 + v)
    gamma = rho**2 + share @ (z * ratio) / (1.0 + v)
    mean[others], var[others] = m - v * rho, v - v**2 * gamma
    pair, weights = product_rule(m_y, v_y, nodes)
    plane = _moments(pair[:, :1], weights, factors(np.sum(pair, axis=1))[1])
    mean[y_i], var[y_i] = plane.mean[0], plane.cov[0, 0]
    return Tilted(norm, mean, var)
