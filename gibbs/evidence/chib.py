"""log Z by Chib's identity from the output of the Gibbs sampler: Chib (1995).

log p(y) = log p(y|f*) + log p(f*) - log p(f*|y) at any f*, and p(f*|y) is the average over the chain of the Gaussian
density p(f*|ω, y). FITC takes u in place of f, with p(y|u*) by quadrature, datum by datum. The average is over
densities in n (or m) dimensions; where a few draws of ω carry it, its error cannot be trusted and `trusted` is False.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import log_expit, logsumexp

from gibbs.core.declare import checked_options
from gibbs.core.errors import _in_reach, _numbers
from gibbs.core.linalg import cholesky, solve
from gibbs.core.options import Trusted
from gibbs.evidence.result import LogEvidence

Array = NDArray[np.float64]
_LOG_2PI = float(np.log(2.0 * np.pi))
_BLOCK = 2_000_000  # numbers of working arrays: some 16 MB
_BATCHES = 32  # per run: enough to know the standard error within 15 %


def _finish(at_point: float, log_density: Array, target_error: float) -> LogEvidence:
    """Value and batch-means error from log p(f*|ω_s, y), (r, s) in the order of the chains."""
    r, s = log_density.shape
    per_chain = max(_BATCHES // r, 2)
    length = s // per_chain
    batches = log_density[:, s - per_chain * length :].reshape(r * per_chain, length)
    logs = logsumexp(batches, axis=1) - np.log(length)
    log_mean = float(logsumexp(log_density) - np.log(r * s))
    relative = np.exp(logs - log_mean)
    error = float(relative.std(ddof=1) / np.sqrt(relative.size))
    weights = np.exp(log_density - logsumexp(log_density))
    ess = float(1.0 / np.square(weights).sum())
    k_hat = _pareto_k(log_density.ravel())
    return LogEvidence(
        value=at_point - log_mean,
        standard_error=error,
        mean_log=at_point - float(logs.mean()),
        # E[-log mean] lies above -log E by half the relative variance
        bias=0.5 * error**2,
        # tail index below 0.7: the average obeys a usable law of large numbers (Vehtari et al. 2024)
        trusted=bool(error <= target_error and k_hat < 0.7 and ess >= 200.0),
        detail={"weight_ess": ess, "pareto_k": k_hat, "log_density_spread": float(log_density.std())},
    )


def _pareto_k(log_weights: Array) -> float:
    """Tail index of the weights: generalised Pareto fit to the largest, Zhang & Stephens (2009); 0 for equal ones."""
    size = log_weights.size
    n_tail = int(min(0.2 * size, 3.0 * np.sqrt(size)))
    if n_tail < 5:
        return float("inf")
    ordered = np.sort(log_weights)
    cut = ordered[-n_tail - 1]
    tail = np.exp(ordered[-n_tail:] - ordered[-1]) - np.exp(cut - ordered[-1])
    if tail[-1] <= 0.0:
        return 0.0
    grid = 30 + int(np.sqrt(n_tail))
    quartile = max(tail[int(n_tail / 4 + 0.5) - 1], np.finfo(float).tiny)
    b = 1.0 / tail[-1] + (1.0 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3.0 * quartile)
    k = np.log1p(-b[:, None] * tail).mean(axis=1)
    log_profile = n_tail * (np.log(-b / k) - k - 1.0)
    weights = np.exp(log_profile - logsumexp(log_profile))
    return float(np.log1p(-float(weights @ b) * tail).mean())


def _checked(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = _numbers(name, value)
    if array.ndim != len(shape) or any(e not in (-1, s) for e, s in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name}: found shape {array.shape}, expected {shape} (-1: any)")
    if array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name}: found NaN, infinite or no entries, expected finite ones")
    return _in_reach(name, array)


def _checked_chain(y_sign: ArrayLike, omega: ArrayLike) -> tuple[Array, Array]:
    signs = _checked("y_sign", y_sign, (-1,))
    if not np.all(np.abs(signs) == 1.0):
        raise ValueError(f"y_sign: found values {np.unique(signs)[:5].tolist()}, expected -1 and +1 only")
    draws = _checked("omega", omega, (-1, -1, signs.size))
    if draws.shape[1] < 64:
        raise ValueError(f"omega: found {draws.shape[1]} draws per chain, expected >= 64 for batch means")
    if draws.min() <= 0.0:
        raise ValueError(f"omega: found {draws.min():.3g}, expected > 0")
    return signs, draws


@checked_options(Trusted)
def log_evidence_full(
    K_XX: ArrayLike,
    y_sign: ArrayLike,
    omega: ArrayLike,
    latent_mean: ArrayLike | None = None,
    *,
    target_error: float = 0.05,
) -> LogEvidence:
    """log p(y) of the full GP from the ω of a Gibbs run, Chib (1995).

    K_XX (n, n), noise and jitter included; y_sign (n,); omega (r, s, n) draws of p(ω | y) in the order of the chains;
    latent_mean (n,): the point f*, by default the posterior mean by the draws. target_error: `trusted` needs
    a standard error (batch means of the density) within it, and weights with tail index below 0.7.
    Time O(r s n³). Raises ValueError on bad input, NotPositiveDefiniteError if K_XX has no Cholesky factor.
    """
    signs, draws = _checked_chain(y_sign, omega)
    n = signs.size
    K = _checked("K_XX", K_XX, (n, n))
    chol = cholesky("K_XX", K, "raise noise or jitter, or remove duplicate rows of X")
    flat = draws.reshape(-1, n)
    # white coordinates f = L ξ: precision of ξ given ω is P = I + LᵀΩL, mean P⁻¹Lᵀy/2
    shifts = np.broadcast_to(chol.T @ (0.5 * signs), flat.shape)
    means, log_dets = _gaussians(chol, flat, shifts)
    if latent_mean is None:
        white = means.mean(axis=0)
    else:
        white = solve_triangular(chol, _checked("latent_mean", latent_mean, (n,)), lower=True)
    log_density = _log_gaussians(chol, flat, means, log_dets, white).reshape(draws.shape[:2])
    # the Jacobian |L| is left out of both p(f*) and p(f*|y)
    at_point = float(log_expit(signs * (chol @ white)).sum() - 0.5 * white @ white - 0.5 * n * _LOG_2PI)
    return _finish(at_point, log_density, target_error)


def _gaussians(rows: Array, weights: Array, shifts: Array) -> tuple[Array, Array]:
    """Means P⁻¹ shift (s, p) and log det P (s,), P = I + rowsᵀ diag(w) rows, for every row w of weights (s, n)."""
    size, p = weights.shape[0], rows.shape[1]
    means, log_dets = np.empty((size, p)), np.empty(size)
    block = max(1, _BLOCK // (rows.size + p * p))
    for start in range(0, size, block):
        part = slice(start, start + block)
        scaled = np.sqrt(weights[part])[:, :, None] * rows
        precision = np.eye(p) + np.matmul(scaled.transpose(0, 2, 1), scaled)
        factor = cholesky("I + WᵀΩW", precision, "lower variance")
        log_dets[part] = 2.0 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        means[part] = solve("I + WᵀΩW", precision, shifts[part][:, :, None], "lower variance")[:, :, 0]
    return means, log_dets


def _log_gaussians(rows: Array, weights: Array, means: Array, log_dets: Array, point: Array) -> Array:
    """log N(point; mean, P⁻¹) (s,): the quadratic form is |point - mean|² + Σ_n w_n (row_n · (point - mean))²."""
    gap = point - means
    form = np.einsum("sp,sp->s", gap, gap) + np.einsum("sn,sn->s", weights, np.square(gap @ rows.T))
    return 0.5 * log_dets - 0.5 * form - 0.5 * point.size * _LOG_2PI


def _log_expected_sigmoid(mean: Array, var: Array) -> Array:
    """log E[σ(f)], f ~ N(mean, var), by the trapezoid rule on a grid doubled until it stands still to 1e-12."""
    sd = np.sqrt(var)
    previous = np.full(mean.shape, np.inf)
    for order in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384):
        x = np.linspace(-9.5, 9.5, order + 1)
        log_phi = -0.5 * x * x
        value = logsumexp(log_expit(mean[:, None] + sd[:, None] * x) + log_phi, axis=1) - logsumexp(log_phi)
        if np.all(np.abs(value - previous) < 1e-12 * (1.0 + np.abs(value))):
            return value
        previous = value
    raise ArithmeticError("cond_var: found no convergence of the quadrature at 16384 points")


@checked_options(Trusted)
def log_evidence_fitc(
    K_ZZ: ArrayLike,
    K_XZ: ArrayLike,
    k_xx: ArrayLike,
    y_sign: ArrayLike,
    omega: ArrayLike,
    inducing_mean: ArrayLike | None = None,
    *,
    target_error: float = 0.05,
) -> LogEvidence:
    """log p(y) of FITC from the ω of a Gibbs run: Chib (1995) at u*, with p(y|u*) by quadrature.

    K_ZZ (m, m), jitter included; K_XZ (n, m); k_xx (n,), noise included; y_sign (n,); omega (r, s, n);
    inducing_mean (m,): the point u*, by default the posterior mean by the draws; target_error: as in
    `log_evidence_full`. Time O(r s n m²). Raises ValueError on bad input, NotPositiveDefiniteError if K_ZZ has no
    Cholesky factor.
    """
    signs, draws = _checked_chain(y_sign, omega)
    cross = _checked("K_XZ", K_XZ, (signs.size, -1))
    m = cross.shape[1]
    chol = cholesky("K_ZZ", _checked("K_ZZ", K_ZZ, (m, m)), "raise jitter or remove duplicate rows of Z")
    prior = _checked("k_xx", k_xx, (signs.size,))
    rows = solve_triangular(chol, cross.T, lower=True).T
    rest = prior - np.square(rows).sum(axis=1)
    if rest.min() < -1e-6 * prior.max():
        raise ValueError(f"k_xx: found {rest.min():.3g} below the part explained by u, expected >= 0; raise jitter")
    rest = np.maximum(rest, 0.0)
    flat = draws.reshape(-1, signs.size)
    shrink = 1.0 / (1.0 + rest * flat)
    shifts = (0.5 * signs * shrink) @ rows
    weights = flat * shrink
    means, log_dets = _gaussians(rows, weights, shifts)
    if inducing_mean is None:
        white = means.mean(axis=0)
    else:
        white = solve_triangular(chol, _checked("inducing_mean", inducing_mean, (m,)), lower=True)
    log_density = _log_gaussians(rows, weights, means, log_dets, white).reshape(draws.shape[:2])
    # E[σ(y f)] with y = -1 is the same integral at the mirrored mean
    log_lik = float(_log_expected_sigmoid(signs * (rows @ white), rest).sum())
    at_point = log_lik - 0.5 * float(white @ white) - 0.5 * m * _LOG_2PI
    return _finish(at_point, log_density, target_error)
