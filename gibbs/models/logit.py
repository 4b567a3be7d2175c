"""Pólya-Gamma Gibbs sampling for the binary logit GP, full and FITC: wenzel2019, sections 3.1 and 5.1.

Given ω the labels act as observations y/(2ω) of variance 1/ω, so everything about f given ω is Gaussian and in closed
form; given f the ω_i are independent PG(1, f_i). All chains advance side by side: (r, n).

The FITC model has f_i independent given the inducing values u, f_i | u ~ N(k_xZ K_ZZ⁻¹ u, cond_var_i). It is written in
white coordinates, u = chol(K_ZZ) v and f = white_rows v + √cond_var e, white_rows = K_XZ chol(K_ZZ)⁻ᵀ, with v and e
standard normal a priori, so that cond_var = 0 needs no special case.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_expit

from gibbs.core.errors import Array
from gibbs.core.generators import subset
from gibbs.core.linalg import cholesky, factor_over, invert_triangles, solve_factored, substitute
from gibbs.draws.polya_gamma import sample_polya_gamma
from gibbs.ledger import equation


class Moments(NamedTuple):
    """Mean and variance, entry by entry; shapes (r, ...)."""

    mean: Array
    var: Array


class InducingMoments(NamedTuple):
    """Moments of u given ω, and of latent values with u integrated out."""

    white_mean: Array  # (r, m) of v
    white_cov: Array  # (r, m, m) of v
    latent: Moments  # (r, n)
    test: Moments  # (r, t)


def log_likelihood(latent_values: Array, y_sign: Array) -> Array:
    """log p(y | f) = Σ_i log σ(y_i f_i), wenzel2019 (1). latent_values (r, n) or (n,), y_sign (n,)."""
    return log_expit(y_sign * latent_values).sum(axis=-1)


@equation("wenzel2019", "u5.1-gibbs")
def draw_omega(rng: np.random.Generator, latent_values: Array) -> Array:
    """Draw ω | f: ω_i ~ PG(1, f_i) independently, wenzel2019 section 5.1.

    rng: how many numbers it gives is not fixed. latent_values (r, n) or (n,); returns ω of that shape.
    """
    return sample_polya_gamma(rng, latent_values)


def _each(matrix: Array, rows: Array) -> Array:
    """matrix @ row, chain by chain: the rounding of a row must not hang on how many rows there are."""
    product: Array = np.matmul(matrix, rows[..., None])[..., 0]
    return product


def _factor_seen(K_XX: Array, root: Array) -> Array:
    """Lower Cholesky factor of B = I + Ω^½ K Ω^½ (upper triangle unused); eigenvalues of B are >= 1."""
    B = root[:, None] * K_XX * root
    B.flat[:: root.size + 1] += 1.0
    return factor_over("I + Ω^½ K Ω^½", B.T, "lower variance or raise jitter")


@equation("wenzel2019", "u5.1-gibbs-f")
def draw_latent(rng: np.random.Generator, K_XX: Array, chol_K: Array, y_sign: Array, omega: Array) -> Array:
    """Draw f | ω, y ~ N(V y/2, V), V = (K⁻¹ + Ω)⁻¹: the full GP, from (5) of wenzel2019.

    Read as n observations y/(2ω) of variances 1/ω: a prior draw is corrected to a posterior draw, K is never inverted.
    rng gives exactly 2rn normals, (r, n) for the prior draws and then (r, n) for the observations.
    K_XX (n, n) with its lower Cholesky factor chol_K; y_sign (n,); omega (r, n) or (n,) > 0. Returns f like omega.
    """
    rows = np.atleast_2d(omega)
    root = np.sqrt(rows)
    prior = _each(chol_K, rng.standard_normal(rows.shape))  # f₀ ~ N(0, K)
    residual = (
        0.5 * y_sign / root - root * prior - rng.standard_normal(rows.shape)
    )  # Ω^½ (y/(2ω) - (f₀ + noise of variance 1/ω))
    weights = np.empty_like(rows)
    for k in range(rows.shape[0]):
        solved = solve_factored(_factor_seen(K_XX, root[k]), residual[k])
        weights[k] = root[k] * solved
    return (prior + _each(K_XX, weights)).reshape(omega.shape)


def latent_moments(K_XX: Array, K_TX: Array, k_tt: Array, y_sign: Array, omega: Array) -> tuple[Moments, Moments]:
    """Moments of f at data and test points given ω, y, with everything else integrated out: the full GP.

    mean = K (K + Ω⁻¹)⁻¹ y/(2ω), var = k - k_i (K + Ω⁻¹)⁻¹ k_iᵀ. K_XX (n, n); K_TX (t, n) cross-covariance, k_tt (t,)
    prior variance at the test points, noise included; y_sign (n,); omega (r, n). Returns Moments (r, n) and (r, t).
    """
    n, t = K_XX.shape[0], K_TX.shape[0]
    cross = np.concatenate([K_XX, K_TX])
    prior = np.concatenate([np.diagonal(K_XX), k_tt])
    mean, var = np.empty((2, omega.shape[0], n + t))
    right = np.empty((n, n + t + 1), order="F")
    for k, root in enumerate(np.sqrt(omega)):
        right[:, :-1] = root[:, None] * cross.T
        right[:, -1] = 0.5 * y_sign / root
        solved = substitute(_factor_seen(K_XX, root), right)
        mean[k] = solved[:, -1] @ solved[:, :-1]
        var[k] = prior - np.einsum("nt,nt->t", solved[:, :-1], solved[:, :-1])
    return Moments(mean[:, :n], var[:, :n]), Moments(mean[:, n:], var[:, n:])


def _white_posterior(white_rows: Array, cond_var: Array, y_sign: Array, omega: Array) -> tuple[Array, Array]:
    """Means (r, m) of v | ω, y with f integrated out, and R (r, m, m) with RᵀR the covariance.

    Observation i: y/(2ω) = white_row · v + noise of variance cond_var + 1/ω, precision ω/(1 + cond_var ω).
    The precision I + WᵀD⁻¹W has eigenvalues >= 1, so its Cholesky factor can be inverted without harm.
    """
    shrink = 1.0 / (1.0 + cond_var * omega)
    scaled = np.sqrt(omega * shrink)[:, :, None] * white_rows
    precision = np.matmul(scaled.transpose(0, 2, 1), scaled)
    precision[:, np.arange(white_rows.shape[1]), np.arange(white_rows.shape[1])] += 1.0
    root = invert_triangles(cholesky("I + WᵀD⁻¹W", precision, "lower variance or raise jitter"))
    shift = _each(white_rows.T, 0.5 * y_sign * shrink)
    mean = np.einsum("rpm,rp->rm", root, np.einsum("rpm,rm->rp", root, shift))
    return mean, root


def draw_inducing(rng: np.random.Generator, white_rows: Array, cond_var: Array, y_sign: Array, omega: Array) -> Array:
    """Draw v | ω, y with f integrated out, u = chol(K_ZZ) v: FITC.

    N(M⁻¹ W'D⁻¹ y/(2ω), M⁻¹), M = I + W'D⁻¹W, D = cond_var + 1/ω. rng gives exactly rm normals.
    white_rows W (n, m); cond_var, y_sign (n,); omega (r, n). Returns v (r, m).
    """
    mean, root = _white_posterior(white_rows, cond_var, y_sign, omega)
    return mean + np.einsum("rpm,rp->rm", root, rng.standard_normal(mean.shape))


def draw_residual(rng: np.random.Generator, proj_mean: Array, cond_var: Array, y_sign: Array, omega: Array) -> Array:
    """Draw e | u, ω, y, where f = proj_mean + √cond_var e: FITC.

    Independent normals of precision 1 + cond_var ω and mean √cond_var (y/2 - ω proj_mean)/(1 + cond_var ω).
    rng gives exactly rn normals. proj_mean (r, n): E[f | u]; cond_var, y_sign (n,); omega (r, n). Returns e (r, n).
    """
    shrink = 1.0 / (1.0 + cond_var * omega)
    mean = np.sqrt(cond_var) * (0.5 * y_sign - omega * proj_mean) * shrink
    return mean + np.sqrt(shrink) * rng.standard_normal(omega.shape)


def inducing_moments(
    white_rows: Array,
    cond_var: Array,
    white_rows_test: Array,
    cond_var_test: Array,
    y_sign: Array,
    omega: Array,
) -> InducingMoments:
    """Moments given ω, y of the white inducing values and, with those integrated out, of f at data and test points.

    FITC. white_rows (n, m), cond_var (n,), white_rows_test (t, m), cond_var_test (t,), y_sign (n,), omega (r, n).
    f_i | v, ω, y has mean (white_row v + cond_var y/2)/(1 + cond_var ω) and variance cond_var/(1 + cond_var ω).
    """
    white_mean, root = _white_posterior(white_rows, cond_var, y_sign, omega)
    both = np.concatenate([white_rows, white_rows_test])
    halved = np.matmul(both, root.transpose(0, 2, 1))
    explained_var = np.einsum("rnm,rnm->rn", halved, halved)
    white_cov = np.matmul(root.transpose(0, 2, 1), root)
    n = white_rows.shape[0]
    projected = white_mean @ both.T
    shrink = 1.0 / (1.0 + cond_var * omega)
    latent = Moments(
        (projected[:, :n] + 0.5 * cond_var * y_sign) * shrink, cond_var * shrink + explained_var[:, :n] * shrink**2
    )
    test = Moments(projected[:, n:], cond_var_test + explained_var[:, n:])
    return InducingMoments(white_mean, white_cov, latent, test)


def scale_move(rng: np.random.Generator, white: Array, margins: Array, *, n_steps: int = 4) -> Array:
    """Factors s (r,), s > 0, drawn so that (s · white, s · f) leaves p(white, f | y) invariant.

    Metropolis steps in log s on the ray through the origin (generalised Gibbs move, Liu & Sabatti 2000): with p white
    coordinates the density is s^p exp(-s²|white|²/2) Π σ(y s f) ds/s. Step sizes are drawn over two decades, so none
    has to be tuned. white (r, p) standard normal a priori; margins (r, n) y f, f linear in white; n_steps >= 1
    Metropolis steps. rng gives exactly 3r n_steps numbers.
    """
    size = white.shape[1]
    half_norm = 0.5 * np.einsum("rp,rp->r", white, white)
    log_scale = np.zeros(white.shape[0])
    value = log_expit(margins).sum(axis=1) - half_norm
    normals = rng.standard_normal((white.shape[0], n_steps))
    uniforms = rng.random((white.shape[0], n_steps, 2))
    for k in range(n_steps):
        width = 2.0 * 10.0 ** (-2.0 * uniforms[:, k, 0])
        proposal = log_scale + width * normals[:, k]
        scale = np.exp(proposal)
        there = log_expit(scale[:, None] * margins).sum(axis=1) - scale**2 * half_norm + size * proposal
        accept = np.log1p(-uniforms[:, k, 1]) < there - value
        log_scale = np.where(accept, proposal, log_scale)
        value = np.where(accept, there, value)
    return np.exp(log_scale)


def ellipse_move(
    rng: np.random.Generator, latent_values: Array, prior_values: Array, y_sign: Array
) -> tuple[Array, Array]:
    """One elliptical slice step per chain (Murray, Adams & MacKay 2010) under the exact likelihood.

    latent_values, prior_values (r, n): the state and an independent prior draw; y_sign (n,). Returns (cos, sin), each
    (r,): the new state is cos · state + sin · prior draw, for the latent and the white values alike.
    rng: how many numbers it gives is not fixed.
    """
    r = latent_values.shape[0]
    level = log_likelihood(latent_values, y_sign) + np.log1p(-rng.random(r))
    angle = rng.uniform(0.0, 2.0 * np.pi, (r,))
    low, high = angle - 2.0 * np.pi, angle.copy()
    live = np.arange(r)
    while live.size:
        moved = np.cos(angle[live])[:, None] * latent_values[live] + np.sin(angle[live])[:, None] * prior_values[live]
        live = live[log_likelihood(moved, y_sign) < level[live]]
        below = angle[live] < 0.0
        low[live[below]] = angle[live[below]]
        high[live[~below]] = angle[live[~below]]
        angle[live] = low[live] + (high[live] - low[live]) * subset(rng, live, r).random(live.size)
    return np.cos(angle), np.sin(angle)
