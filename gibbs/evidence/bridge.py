"""log Z by bridge sampling from the draws of the Gibbs sampler: Meng & Wong (1996).

The second route where Chib's densities spread too far. One half of every chain fits a Gaussian, the other half and as
many draws of that Gaussian meet in the optimal bridge. Both run in white coordinates, f = A ξ of the latent values or,
with inducing points, u = L ξ of the inducing values: given those the latent values are independent, and the likelihood
is a product of integrals in one variable, in as many dimensions as there are inducing points, however many data.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import expit, log_expit, logsumexp

from gibbs.core.declare import checked_options
from gibbs.core.errors import _in_reach, _numbers
from gibbs.core.linalg import cholesky
from gibbs.core.options import Trusted
from gibbs.evidence.result import LogEvidence

Array = NDArray[np.float64]
_BLOCK = 512  # draws at once whose likelihood is an average


def _log_bridge(log_ratio_post: Array, log_ratio_fit: Array, share_post: float) -> float:
    """Fixed point r = Z of the optimal bridge; log ratios are log [p(ξ) p(y|ξ) / q(ξ)] at posterior and q draws."""
    log_z = float(np.median(log_ratio_post))
    for _ in range(10_000):
        log_mix = np.log(share_post) - log_z
        top = logsumexp(log_ratio_fit - np.logaddexp(log_mix + log_ratio_fit, np.log1p(-share_post)))
        bottom = logsumexp(-np.logaddexp(log_mix + log_ratio_post, np.log1p(-share_post)))
        new = float(top - np.log(log_ratio_fit.size) - bottom + np.log(log_ratio_post.size))
        if abs(new - log_z) < 1e-11 * (1.0 + abs(new)):
            return new
        log_z = new
    raise ValueError(
        "latent_values: found halves that do not overlap (no fixed point of the bridge in 10000 steps), expected draws "
        "of one posterior"
    )


def _batch_error(values: Array) -> float:
    """Standard error of the mean of values (r, s) by batch means: 32 batches in all, at least 2 per chain."""
    r, s = values.shape
    per_chain = max(32 // r, 2)
    length = s // per_chain
    means = values[:, s - per_chain * length :].reshape(r * per_chain, length).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(means.size))


def _bridge(
    rng: np.random.Generator, log_likelihood: Callable[[Array], Array], white: Array, target_error: float
) -> LogEvidence:
    """white (r, s, p): posterior draws of ξ; log_likelihood: ξ (k, p) -> log p(y|ξ) (k,)."""
    r, s, p = white.shape
    middle = s // 2
    values, errors, overlaps = [], [], []
    for first in (True, False):  # each half fits once and bridges once: the average uses every draw
        fit = (white[:, :middle] if first else white[:, -middle:]).reshape(-1, p)
        post = white[:, -middle:] if first else white[:, :middle]
        mean = fit.mean(axis=0)
        chol = cholesky("covariance of the draws", np.cov(fit.T).reshape(p, p), "give more draws")
        zeta = rng.standard_normal((r * middle, p))
        log_det = float(np.log(np.diagonal(chol)).sum())

        def log_ratio(xi: Array, zeta: Array, log_det: float = log_det) -> Array:
            return log_likelihood(xi) - 0.5 * np.square(xi).sum(axis=1) + 0.5 * np.square(zeta).sum(axis=1) + log_det

        flat = post.reshape(-1, p)
        at_post = log_ratio(flat, solve_triangular(chol, (flat - mean).T, lower=True).T)
        at_fit = log_ratio(mean + zeta @ chol.T, zeta)
        log_z = _log_bridge(at_post, at_fit, 0.5)
        # with weights w = ratio/Z, both estimating functions are logistic in log w; their means agree at Z
        post_side = expit(log_z - at_post).reshape(r, middle)  # q/(q + p/Z)
        fit_side = expit(at_fit - log_z)
        relative = np.hypot(
            _batch_error(post_side) / post_side.mean(), fit_side.std(ddof=1) / np.sqrt(fit_side.size) / fit_side.mean()
        )
        values.append(log_z)
        errors.append(float(relative))
        overlaps.append(2.0 * float(fit_side.mean()))  # 1 when q is the posterior, 0 when they do not meet
    value = float(np.mean(values))
    # the two estimates are nearly one: the error of each is a product of what the fit and the other half miss,
    # and swapping the halves leaves that product alone; their errors are averaged as if fully correlated
    error = 0.5 * (errors[0] + errors[1])
    # either half's fit is random: where the two disagree by more than their errors explain, say so
    gap = abs(values[0] - values[1])
    return LogEvidence(
        value=value,
        standard_error=error,
        mean_log=value,
        bias=0.5 * error**2,
        trusted=bool(
            error <= target_error and min(overlaps) >= 0.02 and gap <= 4.0 * float(np.hypot(errors[0], errors[1]))
        ),
        detail={"overlap": min(overlaps), "gap_between_halves": gap},
    )


def _checked(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = _numbers(name, value)
    if array.ndim != len(shape) or any(e not in (-1, s) for e, s in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name}: found shape {array.shape}, expected {shape} (-1: any)")
    if array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: found NaN, infinite or no entries, expected finite ones")
    return _in_reach(name, array)


def _checked_signs(y_sign: ArrayLike) -> Array:
    signs = _checked("y_sign", y_sign, (-1,))
    if not np.all(np.abs(signs) == 1.0):
        raise ValueError(f"y_sign: found values {np.unique(signs)[:5].tolist()}, expected -1 and +1 only")
    return signs


def _enough(name: str, draws: Array) -> None:
    r, s, p = draws.shape
    if s < 128 or r * s < 20 * p:
        raise ValueError(f"{name}: found {r} chains of {s} draws, expected >= 128 per chain and >= {20 * p} in all")


@checked_options(Trusted)
def log_evidence_full(
    rng: np.random.Generator,
    K_XX: ArrayLike,
    y_sign: ArrayLike,
    latent_values: ArrayLike,
    *,
    target_error: float = 0.05,
) -> LogEvidence:
    """log p(y) of the full GP by bridge sampling between posterior draws and a fitted Gaussian.

    rng gives exactly 2 r ⌊s/2⌋ n normals. K_XX (n, n), noise and jitter included; y_sign (n,); latent_values (r, s, n):
    posterior draws of f in the order of the chains. target_error: `trusted` needs a standard error within it, an
    overlap of at least 0.02, and halves that agree. The standard error holds batch means of the chain's side.
    Raises ValueError on bad input or too few draws, NotPositiveDefiniteError if K_XX has no Cholesky factor.
    """
    signs = _checked_signs(y_sign)
    n = signs.size
    chol = cholesky("K_XX", _checked("K_XX", K_XX, (n, n)), "raise noise or jitter, or remove duplicate rows of X")
    draws = _checked("latent_values", latent_values, (-1, -1, n))
    _enough("latent_values", draws)
    white = solve_triangular(chol, draws.reshape(-1, n).T, lower=True).T.reshape(draws.shape)
    return _bridge(rng, lambda xi: log_expit(signs * (xi @ chol.T)).sum(axis=1), white, target_error)


@checked_options(Trusted)
def log_evidence_fitc(
    rng: np.random.Generator,
    K_ZZ: ArrayLike,
    K_XZ: ArrayLike,
    k_xx: ArrayLike,
    y_sign: ArrayLike,
    inducing_values: ArrayLike,
    *,
    target_error: float = 0.05,
) -> LogEvidence:
    """log p(y) of FITC by the bridge in the inducing values: p(y|u) is a product of averages of σ over f_i given u.

    rng gives exactly 2 r ⌊s/2⌋ m normals. K_ZZ (m, m), jitter included; K_XZ (n, m); k_xx (n,), noise included; y_sign
    (n,); inducing_values (r, s, m): posterior draws of u in the order of the chains; target_error as in
    `log_evidence_full`. Time r s n (m + nodes of the averages). Raises ValueError on bad input or too few draws,
    NotPositiveDefiniteError if K_ZZ has no Cholesky factor.
    """
    prior = _checked("k_xx", k_xx, (-1,))
    signs = _checked_signs(y_sign)
    if signs.size != prior.size:
        raise ValueError(f"y_sign: found {signs.size} labels, expected {prior.size}, one for each of k_xx")
    cross = _checked("K_XZ", K_XZ, (prior.size, -1))
    m = cross.shape[1]
    chol = cholesky("K_ZZ", _checked("K_ZZ", K_ZZ, (m, m)), "raise jitter or remove duplicate rows of Z")
    rows = solve_triangular(chol, cross.T, lower=True).T
    left = prior - np.square(rows).sum(axis=1)
    if not left.min() >= -1e-8 * prior.max():
        raise ValueError(f"k_xx: found {prior[left.argmin()]:.6g}, expected no less than K_XZ K_ZZ⁻¹ K_ZX has there")
    sd = np.sqrt(np.maximum(left, 0.0))
    draws = _checked("inducing_values", inducing_values, (-1, -1, m))
    _enough("inducing_values", draws)
    white = solve_triangular(chol, draws.reshape(-1, m).T, lower=True).T.reshape(draws.shape)

    def log_likelihood(xi: Array) -> Array:
        blocks = [signs * (xi[start : start + _BLOCK] @ rows.T) for start in range(0, len(xi), _BLOCK)]
        return np.concatenate([_log_averages(block, sd) for block in blocks])

    return _bridge(rng, log_likelihood, white, target_error)


def _log_averages(mean: Array, sd: Array) -> Array:
    """Sums over data of the log of ∫ σ(f) N(f; mean, sd²) df: (k,) of mean (k, n), sd (n,).

    By the trapezoidal rule in z = (f - mean)/sd, whose error falls as exp(d²/2 - 2πd/h) for every d up to the distance
    π/sd of the poles of σ: below 1e-13 at the step chosen. Data of similar sd share their nodes, and the nodes reach as
    far as the integrand does where the average is small: to the z at which f is no longer below zero, or sd.
    """
    total = np.zeros(len(mean))
    group = np.ceil(np.log2(np.maximum(sd, 1.0))).astype(int)  # sd up to 2^group
    for g in np.unique(group):
        chosen = np.flatnonzero(group == g)
        values, scale = mean[:, chosen], sd[chosen]
        widest = float(scale.max())
        d = min(np.pi / widest, 8.0) if widest > 0.0 else 8.0
        h = 2.0 * np.pi * d / (32.0 + 0.5 * d * d)
        far = 8.5 + (min(widest, max(0.0, float(-values.min())) / widest) if widest > 0.0 else 0.0)
        nodes = h * np.arange(-np.ceil(8.5 / h), np.ceil(far / h) + 1.0)
        weights = np.exp(-0.5 * nodes**2) * (h / np.sqrt(2.0 * np.pi))
        average = np.zeros_like(values)
        for z, weight in zip(nodes, weights, strict=True):
            average += weight * expit(values + scale * z)
        total += np.log(average).sum(axis=1)
    return total
