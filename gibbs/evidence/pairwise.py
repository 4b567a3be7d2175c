"""log Z of the pairwise model, villacampa2017 (7), by a bridge in the inducing values: Meng & Wong (1996).

The posterior of white inducing values ξ is log-concave and smooth, so a Gaussian fitted to one half of the draws meets
the other half well. This route stays with ξ and Φ(α); the other (gibbs.evidence.sequential) has no ξ, only the signs
of margins α + e with the noise e of each pair written out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import expit, log_ndtr

from gibbs.core.declare import checked_options
from gibbs.core.errors import Array, _reachable, _scalar
from gibbs.core.linalg import cholesky
from gibbs.core.options import Trusted
from gibbs.evidence.bridge import _batch_error, _log_bridge
from gibbs.evidence.result import LogEvidence


@checked_options(Trusted)
def log_evidence(
    rng: np.random.Generator, loadings: ArrayLike, white: ArrayLike, *, target_error: float = 0.05
) -> LogEvidence:
    """log ∫ Π Φ(loadings ξ) N(ξ; 0, I) dξ from draws of its posterior.

    rng gives exactly 2 r ⌊s/2⌋ p normals. loadings (D, p); white (r, s, p) posterior draws of ξ in the order of the
    chains, at least 64 per chain and 20 p in all. target_error: `trusted` needs a standard error within it, an overlap
    of at least 0.02, and halves that agree. Raises ValueError on bad input or too few draws.
    """
    B, draws = _reachable("loadings", loadings, 2), _reachable("white", white, 3)
    _scalar("target_error", target_error, positive=True)
    r, s, p = draws.shape
    if p != B.shape[1] or s < 64 or r * s < 20 * p:
        raise ValueError(
            f"white: found shape {draws.shape}, expected (r, >= 64, {B.shape[1]}) with {20 * B.shape[1]} draws in all"
        )
    middle = s // 2
    values, errors, overlaps = [], [], []
    for first in (True, False):  # each half fits once and bridges once: the average uses every draw
        fit = (draws[:, :middle] if first else draws[:, -middle:]).reshape(-1, p)
        post = (draws[:, -middle:] if first else draws[:, :middle]).reshape(-1, p)
        mean = fit.mean(axis=0)
        chol = cholesky("covariance of the draws", np.cov(fit.T).reshape(p, p), "give more draws")
        fresh = rng.standard_normal((r * middle, p))
        at_post = _log_ratio(B, chol, post, solve_triangular(chol, (post - mean).T, lower=True).T)
        at_fit = _log_ratio(B, chol, mean + fresh @ chol.T, fresh)
        log_z = _log_bridge(at_post, at_fit, 0.5)
        post_side, fit_side = expit(log_z - at_post).reshape(r, middle), expit(at_fit - log_z)
        fit_error = fit_side.std(ddof=1) / np.sqrt(fit_side.size) / fit_side.mean()
        values.append(log_z)
        errors.append(float(np.hypot(_batch_error(post_side) / post_side.mean(), fit_error)))
        overlaps.append(2.0 * float(fit_side.mean()))
    value, gap = float(np.mean(values)), abs(values[0] - values[1])
    error = 0.5 * (errors[0] + errors[1])  # as if fully correlated
    agree = gap <= 4.0 * float(np.hypot(errors[0], errors[1]))
    return LogEvidence(
        value=value,
        standard_error=error,
        mean_log=value,
        bias=0.5 * error**2,
        trusted=bool(error <= target_error and min(overlaps) >= 0.02 and agree),
        detail={"overlap": min(overlaps), "gap_between_halves": gap},
    )


def _log_ratio(loadings: Array, chol: Array, white: Array, fresh: Array) -> Array:
    """log of p(ξ) Π Φ over the fit at ξ = mean + chol fresh; the constants of the two normals cancel."""
    at = log_ndtr(white @ loadings.T).sum(axis=1) + float(np.log(np.diagonal(chol)).sum())
    return np.asarray(at + 0.5 * (np.square(fresh).sum(axis=1) - np.square(white).sum(axis=1)))
