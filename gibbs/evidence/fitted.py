"""log Z of probit and threshold models from the draws of their chains: a bridge to a proposal fitted to the draws.

In triangular coordinates of the margins h_y - h_j the posterior is a truncated standard normal, one coordinate at a
time. One half of the draws fits a location per coordinate (maximum likelihood of normals cut where the coordinates
before put the limit), half and as many draws of the fit meet in the optimal bridge of Meng & Wong (1996); then
the halves change roles. With labelling errors the indicators are coordinates too: drawn given h for the chain, and from
their one-step odds, corrected by a fitted constant, for the proposal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import erfcx, expit, log_expit, log_ndtr, logit, ndtri_exp

from gibbs.core.declare import checked_options
from gibbs.core.errors import Array, _labels, _reachable, _scalar
from gibbs.core.linalg import cholesky
from gibbs.core.options import Trusted
from gibbs.evidence.bridge import _batch_error, _log_bridge
from gibbs.evidence.result import LogEvidence

Labels = NDArray[np.int64]


def _differences(y: Labels, n_latents: int) -> Array:
    """A with margins = A h, h stacked latent by latent: (n J, L n)."""
    n = y.size
    if n_latents == 1:
        return np.diag(2.0 * y - 1.0)
    blocks = []
    for i, label in enumerate(y):
        block = np.zeros((n_latents, n_latents, n))
        block[:, label, i] = 1.0
        block[np.arange(n_latents), np.arange(n_latents), i] -= 1.0
        blocks.append(np.delete(block, label, axis=0).reshape(n_latents - 1, -1))
    return np.concatenate(blocks)


class _Fit(NamedTuple):
    """The proposal: locations where a coordinate is cut and where it is free, a constant in the indicators' odds."""

    cut_mean: Array  # (D,)
    free_mean: Array  # (D,)
    log_odds: float


class _Problem(NamedTuple):
    chol: Array  # (D, D)
    constraints: int
    epsilon: float
    n_classes: int

    @property
    def log_floor(self) -> float:
        return float(np.log(self.epsilon / self.n_classes))

    def cuts(self, white: Array) -> Array:
        """Where the coordinates before put each constraint: (S, D)."""
        sd = np.diagonal(self.chol)
        cut: Array = white - white @ self.chol.T / sd
        return cut

    def one_step(self, cut: Array) -> Array:
        """Log odds of a random label given the data before, by the prior: (..., n)."""
        return self.log_floor - np.log1p(-self.epsilon) - log_ndtr(-cut)


def _hazard(gap: Array) -> Array:
    """φ(gap)/Φ(-gap), without the difference of two squares that rounding owns where the gap is wide."""
    return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(gap / np.sqrt(2.0)))


def _fit(problem: _Problem, white: Array, wrong: NDArray[np.bool_]) -> _Fit:
    """white (S, D), wrong (S, n): Newton's method, one coordinate apart from the others, each problem concave."""
    cut = problem.cuts(white)
    free = np.repeat(wrong, problem.constraints, axis=1)
    keep = ~free
    target = np.where(keep, white, 0.0).sum(axis=0)
    mean = np.zeros(white.shape[1])
    for _ in range(40):
        gap = cut - mean
        hazard = _hazard(gap)
        curvature = np.where(keep, 1.0 + gap * hazard - np.square(hazard), 0.0).sum(axis=0)
        score = target - np.where(keep, mean + hazard, 0.0).sum(axis=0)
        # one unit of curvature more: a coordinate with few draws stays near its prior, and none divides by zero
        step = np.asarray(np.clip((score - mean) / (curvature + 1.0), -1.0, 1.0))
        mean = mean + step
        if np.abs(step).max() < 1e-8:
            break
    free_mean = np.where(free, white, 0.0).sum(axis=0) / (free.sum(axis=0) + 1.0)
    shift = 0.0
    if problem.epsilon > 0.0:
        odds = problem.one_step(cut[:, :: problem.constraints])
        for _ in range(40):
            p = expit(odds + shift)
            step_odds = float(np.clip((wrong.sum() - p.sum() - shift) / ((p * (1.0 - p)).sum() + 1.0), -1.0, 1.0))
            shift += step_odds
            if abs(step_odds) < 1e-8:
                break
    return _Fit(mean, free_mean, shift)


def _log_ratio(problem: _Problem, fit: _Fit, white: Array, wrong: NDArray[np.bool_]) -> Array:
    """log of target over proposal, (S,): the normal densities' constants cancel."""
    cut = problem.cuts(white)
    free = np.repeat(wrong, problem.constraints, axis=1)
    mean = np.where(free, fit.free_mean, fit.cut_mean)
    out: Array = 0.5 * (np.square(white - mean) - np.square(white)).sum(axis=1)
    out += np.where(free, 0.0, log_ndtr(mean - cut)).sum(axis=1)
    if problem.epsilon > 0.0:
        odds = problem.one_step(cut[:, :: problem.constraints]) + fit.log_odds
        prior = np.where(wrong, problem.log_floor, np.log1p(-problem.epsilon))
        out += (prior - np.where(wrong, log_expit(odds), log_expit(-odds))).sum(axis=1)
    return out


def _propose(rng: np.random.Generator, problem: _Problem, fit: _Fit, size: int) -> tuple[Array, NDArray[np.bool_]]:
    D, constraints = len(problem.chol), problem.constraints
    white = np.empty((D, size))
    wrong = np.zeros((D // constraints, size), dtype=bool)
    for t in range(D):
        cut = -(problem.chol[t, :t] @ white[:t]) / problem.chol[t, t]
        if problem.epsilon > 0.0 and t % constraints == 0:
            wrong[t // constraints] = logit(rng.random(size)) < problem.one_step(cut) + fit.log_odds
        free = wrong[t // constraints]
        log_p = np.where(free, 0.0, log_ndtr(fit.cut_mean[t] - cut))
        mean = np.where(free, fit.free_mean[t], fit.cut_mean[t])
        white[t] = mean - ndtri_exp(log_p + np.log1p(-rng.random(size)))
    return white.T, wrong.T


def _bridge(
    rng: np.random.Generator, problem: _Problem, white: Array, wrong: NDArray[np.bool_], target_error: float
) -> LogEvidence:
    """white (r, s, D), wrong (r, s, n): draws of the chains."""
    r, s, D = white.shape
    middle = s // 2
    values, errors, overlaps = [], [], []
    for first in (True, False):  # each half fits once and bridges once: the average uses every draw
        fitting, meeting = (slice(middle), slice(s - middle, s)) if first else (slice(s - middle, s), slice(middle))
        fit = _fit(problem, white[:, fitting].reshape(-1, D), wrong[:, fitting].reshape(r * middle, -1))
        at_post = _log_ratio(problem, fit, white[:, meeting].reshape(-1, D), wrong[:, meeting].reshape(r * middle, -1))
        at_fit = _log_ratio(problem, fit, *_propose(rng, problem, fit, r * middle))
        log_z = _log_bridge(at_post, at_fit, 0.5)
        post_side, fit_side = expit(log_z - at_post).reshape(r, middle), expit(at_fit - log_z)
        fit_error = fit_side.std(ddof=1) / np.sqrt(fit_side.size) / fit_side.mean()
        values.append(log_z)
        errors.append(float(np.hypot(_batch_error(post_side) / post_side.mean(), fit_error)))
        overlaps.append(2.0 * float(fit_side.mean()))  # 1 when the fit is the posterior, 0 when they do not meet
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


@checked_options(Trusted)
def log_evidence(
    rng: np.random.Generator,
    cov: ArrayLike,
    y: ArrayLike,
    auxiliary: ArrayLike,
    epsilon: float = 0.0,
    *,
    target_error: float = 0.05,
) -> LogEvidence:
    """log p(y) where the label is the largest of h, with probability ε drawn at random instead, from draws of h | y.

    cov (L, n, n) prior covariance of h (of f plus the unit matrix for a probit likelihood); y (n,) ints; auxiliary
    (r, s, L, n) posterior draws of h in the order of the chains; epsilon in [0, 1); L = 1 is the binary model, h
    positive for y = 1. target_error: `trusted` needs a standard error within it, an overlap of at least 0.02, and
    halves that agree. rng: how many numbers it gives is not fixed. Time O(r s D²), D = n (C - 1).

    Raises ValueError on bad input, fewer than 64 draws per chain, or draws outside hard constraints;
    NotPositiveDefiniteError for a singular covariance.
    """
    S, draws = _reachable("cov", cov, 3), _reachable("auxiliary", auxiliary, 4)
    L, n = S.shape[:2]
    C = max(L, 2)
    if S.shape[2] != n or S.size == 0:
        raise ValueError(f"cov: found shape {S.shape}, expected (L, n, n)")
    if draws.shape[2:] != (L, n) or draws.shape[1] < 64 or draws.shape[0] == 0:
        raise ValueError(f"auxiliary: found shape {draws.shape}, expected (r, >= 64, {L}, {n})")
    labels = _labels(y, n, C)
    error = _scalar("epsilon", epsilon, positive=False)
    if error >= 1.0:
        raise ValueError(f"epsilon: found {error:.6g}, expected a probability in [0, 1)")
    _scalar("target_error", target_error, positive=True)
    A = _differences(labels, L)
    by_latent = A.reshape(len(A), L, n)
    G = np.sum([by_latent[:, k] @ S[k] @ by_latent[:, k].T for k in range(L)], axis=0)
    chol = cholesky("cov", G, "raise noise or jitter, or remove duplicate rows of X")
    problem = _Problem(chol, C - 1, error, C)
    r, s = draws.shape[:2]
    margins = draws.reshape(r * s, L * n) @ A.T
    inside = np.all(margins.reshape(r * s, n, C - 1) >= 0.0, axis=2)
    if error == 0.0 and not np.all(inside):
        raise ValueError(f"auxiliary: found {np.count_nonzero(~inside)} values outside the constraints, expected 0")
    floor = error / C
    wrong = ~inside | (rng.random(inside.shape) < floor / (1.0 - error + floor))
    white = solve_triangular(chol, margins.T, lower=True).T
    return _bridge(rng, problem, white.reshape(r, s, -1), wrong.reshape(r, s, n), target_error)
