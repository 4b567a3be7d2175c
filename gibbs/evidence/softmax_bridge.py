"""log Z under the softmax likelihood by bridge sampling from draws of a chain: Meng & Wong (1996).

One half of every chain fits a Gaussian to the class contrasts of f, the other half and as many draws of that Gaussian
meet in the optimal bridge; then the halves change places. The contrasts d = T f, rows of T orthonormal and
orthogonal to ones, are all that the likelihood sees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import expit, log_softmax

from gibbs.core.declare import checked_options
from gibbs.core.errors import _labels, _reachable
from gibbs.core.linalg import cholesky, contrasts
from gibbs.core.options import Trusted
from gibbs.evidence.bridge import _batch_error, _enough, _log_bridge
from gibbs.evidence.result import LogEvidence

Array = NDArray[np.float64]
_BLOCK = 4096  # draws at a time


class _Posterior(NamedTuple):
    y: NDArray[np.int64]
    basis: Array  # (C - 1, C)
    chol: Array  # (p, p) of the prior covariance of d

    def log_density(self, d: Array) -> Array:
        """log p(y | d) + log N(d; 0, S), (k, p) -> (k,)."""
        shaped = d.reshape(len(d), len(self.basis), self.y.size)
        out = np.empty(len(d))
        for begin in range(0, len(d), _BLOCK):
            f = np.einsum("ac,kan->knc", self.basis, shaped[begin : begin + _BLOCK])
            log_p = np.take_along_axis(log_softmax(f, axis=2), self.y[None, :, None], axis=2)
            out[begin : begin + _BLOCK] = log_p.sum(axis=(1, 2))
        return out + _log_normal(d, self.chol)


def _log_normal(d: Array, chol: Array) -> Array:
    white = solve_triangular(chol, d.T, lower=True)
    return -0.5 * np.square(white).sum(axis=0) - np.log(np.diagonal(chol)).sum() - 0.5 * len(chol) * np.log(2.0 * np.pi)


class _Half(NamedTuple):
    log_z: float
    error: float
    overlap: float  # 1 where the fit is the posterior, 0 where they do not meet


def _half(rng: np.random.Generator, posterior: _Posterior, fit: Array, post: Array) -> _Half:
    """fit (k, p) fits the Gaussian, post (r, s, p) meets it."""
    r, s, p = post.shape
    mean: Array = fit.mean(axis=0)
    chol = cholesky("covariance of the draws", np.cov(fit.T).reshape(p, p), "give more draws")
    proposal = mean + rng.standard_normal((r * s, p)) @ chol.T
    flat = post.reshape(-1, p)
    at_post = posterior.log_density(flat) - _log_normal(flat - mean, chol)
    at_fit = posterior.log_density(proposal) - _log_normal(proposal - mean, chol)
    log_z = _log_bridge(at_post, at_fit, 0.5)
    # both estimating functions are logistic in the log of the ratio; their means agree at Z
    post_side, fit_side = expit(log_z - at_post).reshape(r, s), expit(at_fit - log_z)
    error = np.hypot(
        _batch_error(post_side) / post_side.mean(), fit_side.std(ddof=1) / np.sqrt(fit_side.size) / fit_side.mean()
    )
    return _Half(log_z, float(error), 2.0 * float(fit_side.mean()))


@checked_options(Trusted)
def log_evidence(
    rng: np.random.Generator,
    cov: ArrayLike,
    y: ArrayLike,
    latent_values: ArrayLike,
    *,
    target_error: float = 0.05,
) -> LogEvidence:
    """log ∫ Π_c N(f_c; 0, cov_c) Π_i softmax_{y_i}(f_i) df, riihimaki2013 (1), by bridge sampling.

    cov (C, n, n) prior covariances of f at the data, noise included (of FITC: with u integrated out); y (n,) ints
    below C; latent_values (r, s, n, C) posterior draws in the order of the chains. target_error: `trusted` needs a
    standard error within it, an overlap of at least 0.02, and halves that agree. rng gives exactly 2 r ⌊s/2⌋ n (C - 1)
    normals. The standard error holds batch means of the chains' side.

    Raises ValueError on bad input or too few draws, NotPositiveDefiniteError if the covariance of the contrasts has no
    Cholesky factor.
    """
    K, draws = _reachable("cov", cov, 3), _reachable("latent_values", latent_values, 4)
    if K.shape[0] < 2 or K.shape[1] != K.shape[2] or K.size == 0:
        raise ValueError(f"cov: found shape {K.shape}, expected (C, n, n) with C >= 2")
    C, n = K.shape[:2]
    labels = _labels(y, n, C)
    if draws.shape[2:] != (n, C):
        raise ValueError(f"latent_values: found shape {draws.shape}, expected (r, s, {n}, {C})")
    basis = contrasts(C)
    S = np.einsum("ac,bc,cnm->anbm", basis, basis, K, optimize=True).reshape((C - 1) * n, (C - 1) * n)
    posterior = _Posterior(labels, basis, cholesky("contrasts of cov", S, "raise noise or jitter"))
    contrast = np.einsum("ac,rsnc->rsan", basis, draws).reshape(*draws.shape[:2], -1)
    _enough("latent_values", contrast)
    middle = contrast.shape[1] // 2
    first, second = contrast[:, :middle], contrast[:, -middle:]
    halves = [
        _half(rng, posterior, fit.reshape(-1, fit.shape[2]), post) for fit, post in ((first, second), (second, first))
    ]
    value = 0.5 * (halves[0].log_z + halves[1].log_z)
    # averaged as if the two were fully correlated: swapping the halves leaves alone what both sides miss
    error = 0.5 * (halves[0].error + halves[1].error)
    gap = abs(halves[0].log_z - halves[1].log_z)
    overlap = min(h.overlap for h in halves)
    return LogEvidence(
        value=value,
        standard_error=error,
        mean_log=value,
        bias=0.5 * error**2,
        trusted=bool(
            error <= target_error and overlap >= 0.02 and gap <= 4.0 * float(np.hypot(halves[0].error, halves[1].error))
        ),
        detail={"overlap": overlap, "gap_between_halves": gap},
    )
