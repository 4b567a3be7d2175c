"""Exact truth for probit likelihoods: log Z as a Gaussian orthant probability, independent posterior draws, moments.

One row for each constraint between the latent values and a wrong label:

    probit                y_i f_i + e_i > 0                          n rows
    multinomial probit    (f_i^y + e_i^y) - (f_i^j + e_i^j) > 0      n(C-1) rows, j ≠ y_i, e independent N(0, 1)
    threshold, epsilon 0  f_i^y - f_i^j > 0                          n(C-1) rows, the noise is part of f

so g = Sf + (noise) with S of entries 0, ±1, p(y) = P(g > 0), and p(f | y) is a unified skew-normal (Durante 2019):
g given g > 0 is drawn exactly (`gibbs.draws.truncated_normal`), and given g everything else is Gaussian, with means
linear in g and covariances that do not depend on it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from gibbs.chains.chain import spawn_generators
from gibbs.core.checks import shown
from gibbs.core.declare import takes_values
from gibbs.core.errors import Array, _count
from gibbs.core.linalg import spectrum
from gibbs.core.options import ExactOptions, Proposed
from gibbs.core.values import Data, Prior
from gibbs.draws.truncated_normal import (
    MAX_DIMENSION,
    Probability,
    Tilting,
    draw_truncated,
    log_probability,
    tilt,
)
from gibbs.models.multilatent import LatentPrior, check

LIKELIHOODS = ("probit", "multinomial-probit", "threshold")
PURPOSES = ("evidence", "truncated", "latent", "predict")

# Absolute error of a class probability given a draw: trapezoid rule, measured for C = 2 to 20 (see `_STEP`).
QUADRATURE_ERROR = 1e-11
# d/dx Π Φ(x - f_j) has a spectrum that falls at least as fast as exp(-k²/(2C)); at k = 2π/step that is e^-27.
_STEP = 2.0 * np.pi / np.sqrt(54.0)
_RANGE = 8.2  # Φ(-8.2) = 1e-16
_VALUES = 1_000_000  # entries of one block of draws
_DRAW_BLOCK = 512  # draws at a time: part of what a seed fixes
_BLOCK = 64  # test points at a time: so is that


class ExactDraws(NamedTuple):
    """Averages over independent draws, Rao-Blackwellised over everything but g; `_se` is the sample sd over √s."""

    log_evidence: float  # log p(y) with every constant
    log_evidence_se: float
    log_evidence_bound: float  # proven upper bound
    acceptance: float  # of exact draws among proposals
    dimension: int  # rows of g
    n_draws: int
    n_proposals: int
    latent_mean: Array  # (n, L) E[f_i | y], noise included in f
    latent_mean_se: Array
    latent_cov: Array  # (n, L, L)
    latent_cov_se: Array
    inducing_mean: Array | None  # (L, m), FITC only
    inducing_mean_se: Array | None
    inducing_cov: Array | None  # (L, m, m)
    inducing_cov_se: Array | None
    test_latent_mean: Array  # (t, L)
    test_latent_mean_se: Array
    test_latent_cov: Array  # (t, L, L)
    test_latent_cov_se: Array
    probabilities: Array  # (t, C), rows sum to one
    probabilities_se: Array
    probability_mass: Array  # (t,) the sum before normalising
    quadrature_error: float  # absolute, of each probability given a draw
    latent_draws: Array  # (s, n, L) independent draws from p(f | y)
    seconds: float


class Evidence(NamedTuple):
    """log p(y) without draws."""

    log_evidence: float
    log_evidence_se: float
    log_evidence_bound: float
    acceptance: float
    dimension: int
    n_proposals: int


class _Constraints(NamedTuple):
    """Rows of g: datum and signs of the latents, g_r = Σ_l signs[r, l] f^l(x_{datum[r]}) + noise."""

    datum: NDArray[np.int64]  # (D,)
    signs: Array  # (D, L)


class _Model(NamedTuple):
    constraints: _Constraints
    prior: LatentPrior
    unit_noise: float  # variance of e: 1 for the probit likelihoods, 0 for threshold
    tilting: Tilting


def _constraints(y: NDArray[np.int64], n_classes: int, n_latents: int) -> _Constraints:
    if n_latents == 1:
        return _Constraints(np.arange(y.size), np.where(y == 1, 1.0, -1.0)[:, None])
    datum, other = np.nonzero(np.arange(n_classes) != y[:, None])
    signs = np.zeros((datum.size, n_classes))
    signs[np.arange(datum.size), y[datum]] = 1.0
    signs[np.arange(datum.size), other] = -1.0
    return _Constraints(datum, signs)


def _constraints_covariance(constraints: _Constraints, prior: LatentPrior, unit_noise: float) -> Array:
    """Cov(g): Σ_l (signs_l signs_lᵀ) ∘ (K^l + unit_noise I) at the data of the rows."""
    covariance = np.zeros((constraints.datum.size, constraints.datum.size))
    for signs, K in zip(constraints.signs.T, prior.K_XX, strict=True):
        noisy = K + unit_noise * np.eye(len(K))
        covariance += np.outer(signs, signs) * noisy[np.ix_(constraints.datum, constraints.datum)]
    return covariance


def _prepare(likelihood: str, data: Data, prior: Prior) -> _Model:
    n_classes = data.n_classes
    if not isinstance(likelihood, str) or likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(likelihood)}, expected one of {LIKELIHOODS}")
    _count("n_classes", n_classes, 2)
    if likelihood == "probit" and n_classes != 2:
        raise ValueError(f"n_classes: found {n_classes}, expected 2 for the binary likelihood 'probit'")
    n_latents = 1 if likelihood == "probit" else n_classes
    setting = check(data, prior, n_latents)
    constraints = _constraints(setting.y, n_classes, n_latents)
    if constraints.datum.size > MAX_DIMENSION:
        raise ValueError(
            f"X: found {setting.y.size} rows and {n_classes} classes, orthant dimension {constraints.datum.size}, "
            f"expected at most {MAX_DIMENSION}; take fewer data or a chain"
        )
    unit_noise = 0.0 if likelihood == "threshold" else 1.0
    tilting = tilt(
        _constraints_covariance(constraints, setting.prior, unit_noise),
        0.0,
        np.inf,
        remedy="raise noise or jitter, or remove duplicate rows of X",
    )
    return _Model(constraints, setting.prior, unit_noise, tilting)


@takes_values
def log_evidence(likelihood: str, data: Data, prior: Prior, options: Proposed) -> Evidence:
    """log p(y) of a probit likelihood, to a standard error of target_error where max_proposals allow.

    likelihood, data, prior: as in `sample_exact`, without test points; options: seed, target_error, max_proposals.
    Costs a hundredth and less of exact draws.

    Raises ValueError on bad input and, with acceptance and dimension, where the weights of the proposals cannot vouch
    for their mean; NotPositiveDefiniteError for a singular prior.
    """
    model = _prepare(likelihood, replace(data, X_test=None), prior)
    rng = spawn_generators(options.seed, PURPOSES)["evidence"]
    result = log_probability(rng, model.tilting, target_error=options.target_error, max_proposals=options.max_proposals)
    return Evidence(
        result.value,
        result.standard_error,
        result.log_bound,
        result.acceptance,
        model.constraints.datum.size,
        result.n_proposals,
    )


@takes_values
def sample_exact(likelihood: str, data: Data, prior: Prior, options: ExactOptions) -> ExactDraws:
    """Independent draws from p(f | y) and log p(y) of a probit likelihood: Durante (2019) by Botev (2017).

    likelihood : "probit" (n_classes = 2, L = 1), "multinomial-probit" or "threshold" with epsilon = 0 (L = n_classes)
    data, prior : see `gibbs.core.values`; prior_model "full" does not look at Z
    options : n_draws independent draws, >= 4; the seed fixes all randomness, one generator per purpose; target_error
        of log p(y), for which more proposals are made if those of the draws do not reach it, as far as max_proposals
        allow; max_proposals after which the draws are given up; callback sees a `Proposals` after every block

    Time O(D³) to prepare and O(D²/acceptance) per draw, D = n or n(C-1); memory O(s (D + nL)).
    Class probabilities for L >= 3 average one conditional draw of L - 2 Gaussian directions per posterior draw, the
    rest by quadrature: their standard errors include it.

    Raises ValueError on bad input, and with acceptance and dimension where max_proposals do not give n_draws;
    NotPositiveDefiniteError for a singular prior.
    """
    began = time.perf_counter()
    _count("n_draws", options.n_draws, 4)
    model = _prepare(likelihood, data, prior)
    rngs, most = spawn_generators(options.seed, PURPOSES), options.max_proposals
    drawn = draw_truncated(
        rngs["truncated"], model.tilting, options.n_draws, max_proposals=most, callback=options.callback
    )
    value = drawn.probability
    if value.standard_error > options.target_error:
        more = log_probability(rngs["evidence"], model.tilting, target_error=options.target_error, max_proposals=most)
        value = min(value, more, key=lambda p: p.standard_error)
    return _summary(model, drawn.white, drawn.probability, value, rngs, began)


# -- averages ------------------------------------------------------------------------------------------------------


class _Average(NamedTuple):
    mean: Array
    mean_se: Array
    cov: Array
    cov_se: Array


def _loadings(model: _Model, cross: Array) -> Array:
    """(D, k, L) from cross (L, k, n) = Cov(h^l, f^l): the mean of h given g is white @ loadings.

    Cov(g_r, h^l_k) = signs[r, l] cross[l, k, datum_r], and white = factor⁻¹ g[order].
    """
    datum, signs = model.constraints.datum[model.tilting.order], model.constraints.signs[model.tilting.order]
    covariance = np.moveaxis(cross, 0, 2)[:, datum].transpose(1, 0, 2) * signs[:, None, :]
    flat = covariance.reshape(datum.size, -1)
    solved: Array = solve_triangular(model.tilting.factor, flat, lower=True, check_finite=False)
    return solved.reshape(covariance.shape)


def _conditional(prior_var: Array, loadings: Array, name: str) -> Array:
    """(k, L, L) covariance of h_k given g, from (k, L) prior variances: rounding below zero is zero, more an error."""
    explained = np.einsum("dkl,dkp->klp", loadings, loadings)
    var = prior_var - np.einsum("kll->kl", explained)
    if var.size and np.any(var < -1e-6 * prior_var):
        raise ValueError(f"jitter: found conditional variance {var.min():.3g} at {name}, expected >= 0; raise jitter")
    covariance = -explained
    index = np.arange(var.shape[1])
    covariance[:, index, index] = np.maximum(var, 0.0)
    return covariance


def _average(white: Array, loadings: Array, conditional: Array) -> _Average:
    """Mean and E[Cov] + Cov[E] over the last axis of h (k, l), given g: white (s, D), loadings (D, k, l).

    The terms of the covariance are those of known independent draws, so its error is the sd of the terms over √s.
    """
    s = white.shape[0]
    mean = np.tensordot(white.mean(axis=0), loadings, axes=1)
    second, fourth = np.zeros_like(conditional), np.zeros_like(conditional)
    rows = max(1, _VALUES // max(1, mean.size))
    for first in range(0, s, rows):
        centred = np.tensordot(white[first : first + rows], loadings, axes=1) - mean
        by_item = np.moveaxis(centred, 1, 0)  # (k, s, l)
        second += np.matmul(by_item.transpose(0, 2, 1), by_item)
        squares = np.square(by_item)
        fourth += np.matmul(squares.transpose(0, 2, 1), squares)
    between = second / (s - 1)
    var = np.einsum("kll->kl", between)
    term_var = np.maximum(fourth / s - np.square(second / s), 0.0)
    return _Average(mean, np.sqrt(var / s), conditional + between, np.sqrt(term_var / (s - 1)))


def _draw_latent(rng: np.random.Generator, model: _Model, white: Array, loadings: Array) -> Array:
    """f given g, (s, n, L): prior draws of (f, g) corrected by what g says, loadings (D, n, L).

    The root of a singular K comes from its eigenvalues: with noise in g no K needs a Cholesky factor.
    """
    K, (datum, signs) = model.prior.K_XX, model.constraints
    n_latents, n = K.shape[:2]
    shared = K.strides[0] == 0
    roots = [_root(K[k]) for k in range(1 if shared else n_latents)]
    out = np.empty((white.shape[0], n, n_latents))
    for first in range(0, white.shape[0], _DRAW_BLOCK):
        block = white[first : first + _DRAW_BLOCK]
        normals = rng.standard_normal((2, block.shape[0], n_latents, n))
        prior = np.stack([normals[0, :, k] @ roots[0 if shared else k].T for k in range(n_latents)], axis=2)
        noisy = prior + np.sqrt(model.unit_noise) * np.moveaxis(normals[1], 1, 2)
        observed = np.einsum("rdl,dl->rd", noisy[:, datum], signs)[:, model.tilting.order]
        gap = block - solve_triangular(model.tilting.factor, observed.T, lower=True, check_finite=False).T
        out[first : first + _DRAW_BLOCK] = prior + np.tensordot(gap, loadings, axes=1)
    return out


def _root(K: Array) -> Array:
    values, vectors = spectrum("covariance", K)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _inducing(model: _Model, white: Array) -> _Average | None:
    prior = model.prior
    if prior.K_ZX is None:
        return None
    assert prior.K_ZZ is not None
    loadings = np.moveaxis(_loadings(model, prior.K_ZX), 2, 1)  # (D, L, m): the last axis is the one averaged over
    conditional = prior.K_ZZ - np.einsum("dlm,dlp->lmp", loadings, loadings)
    return _average(white, loadings, 0.5 * (conditional + conditional.transpose(0, 2, 1)))


def _summary(
    model: _Model,
    white: Array,
    drawn: Probability,
    evidence: Probability,
    rngs: dict[str, np.random.Generator],
    began: float,
) -> ExactDraws:
    prior = model.prior
    loadings = _loadings(model, prior.K_XX)
    latent = _average(white, loadings, _conditional(np.einsum("lnn->nl", prior.K_XX), loadings, "X"))
    latent_draws = _draw_latent(rngs["latent"], model, white, loadings)
    inducing = _inducing(model, white)
    test_loadings = _loadings(model, prior.K_TX)
    conditional = _conditional(prior.k_tt.T, test_loadings, "X_test")
    test = _average(white, test_loadings, conditional)
    probability = _probabilities(rngs["predict"], white, test_loadings, conditional, model.unit_noise)
    return ExactDraws(
        log_evidence=evidence.value,
        log_evidence_se=evidence.standard_error,
        log_evidence_bound=evidence.log_bound,
        acceptance=drawn.acceptance,
        dimension=white.shape[1],
        n_draws=white.shape[0],
        n_proposals=drawn.n_proposals,
        latent_mean=latent.mean,
        latent_mean_se=latent.mean_se,
        latent_cov=latent.cov,
        latent_cov_se=latent.cov_se,
        inducing_mean=None if inducing is None else inducing.mean,
        inducing_mean_se=None if inducing is None else inducing.mean_se,
        inducing_cov=None if inducing is None else inducing.cov,
        inducing_cov_se=None if inducing is None else inducing.cov_se,
        test_latent_mean=test.mean,
        test_latent_mean_se=test.mean_se,
        test_latent_cov=test.cov,
        test_latent_cov_se=test.cov_se,
        probabilities=probability.mean,
        probabilities_se=probability.mean_se,
        probability_mass=probability.mass,
        quadrature_error=QUADRATURE_ERROR,
        latent_draws=latent_draws,
        seconds=time.perf_counter() - began,
    )


# -- class probabilities -------------------------------------------------------------------------------------------


class _Probabilities(NamedTuple):
    mean: Array  # (t, C)
    mean_se: Array
    mass: Array  # (t,)


class _Split(NamedTuple):
    """Cov of f* + e given g, up to what moves all classes alike: least · I + Σ_k root_k root_kᵀ."""

    least: Array  # (t,) variance that is independent between the classes
    root: Array  # (t, L, L - 2)


def _contrasts(n_latents: int) -> Array:
    """(L, L - 1) orthonormal columns, each of sum zero (Helmert)."""
    columns = np.triu(np.ones((n_latents, n_latents - 1)))
    index = np.arange(1, n_latents)
    columns[index, index - 1] = -index
    return columns / np.sqrt(index * (index + 1.0))


def _split(conditional: Array, unit_noise: float) -> _Split:
    """Only differences between classes count, so the covariance (t, L, L) is seen on contrasts.

    There its least eigenvalue is taken out as noise that is independent between classes, the largest such part;
    what is left has rank L - 2. An eigenvalue that rounding leaves at zero becomes 1e-24 of the largest variance:
    the class of the largest latent value, without a division by zero.
    """
    n_latents = conditional.shape[1]
    H = _contrasts(n_latents)
    values, vectors = spectrum("covariance of contrasts", H.T @ conditional @ H + unit_noise * np.eye(n_latents - 1))
    ceiling = np.einsum("tll->t", conditional) + unit_noise
    least = np.maximum(values[:, 0], 1e-24 * np.maximum(ceiling, 1e-250))
    extra = np.sqrt(np.maximum(values[:, 1:] - values[:, :1], 0.0))
    return _Split(least, H @ (vectors[:, :, 1:] * extra[:, None, :]))


def _largest(latent: Array) -> Array:
    """P(f_c + e_c is the largest), e independent N(0, 1): (..., C) from (..., C), before normalising.

    ∫ φ(x - f_c) Π_{j≠c} Φ(x - f_j) dx by the trapezoid rule around max f; the sum over c is that of the derivative of
    Π Φ(x - f_j), whose values at both ends are 0 and 1 to 1e-16 C.
    """
    n_classes = latent.shape[-1]
    half_count = int(np.ceil(_RANGE * np.sqrt(n_classes) / _STEP))
    nodes = _RANGE / half_count * np.arange(-half_count, half_count + 1)
    gap = nodes - (latent - latent.max(axis=-1, keepdims=True))[..., None]  # (..., C, q)
    below = ndtr(gap)
    before, after = np.ones_like(below), np.ones_like(below)
    np.cumprod(below[..., :-1, :], axis=-2, out=before[..., 1:, :])
    after[..., :-1, :] = np.cumprod(below[..., :0:-1, :], axis=-2)[..., ::-1, :]
    with np.errstate(under="ignore"):
        density = np.exp(-0.5 * np.square(gap)) * before * after
    total: Array = density.sum(axis=-1) * (_RANGE / half_count / np.sqrt(2.0 * np.pi))
    return total


def _given_draw(rng: np.random.Generator, mean: Array, split: _Split, first: int, last: int) -> Array:
    """Class probabilities (s, k, C) at test points first to last for means (s, k, L), before normalising."""
    scale = np.sqrt(split.least[first:last])[:, None]
    if mean.shape[2] == 2:
        plus = (mean[:, :, 1] - mean[:, :, 0]) / (np.sqrt(2.0) * scale[:, 0])
        return np.stack([ndtr(-plus), ndtr(plus)], axis=2)
    normals = rng.standard_normal((*mean.shape[:2], mean.shape[2] - 2))
    moved = mean + np.einsum("tlk,stk->stl", split.root[first:last], normals)
    return _largest(moved / scale)


def _probabilities(
    rng: np.random.Generator, white: Array, loadings: Array, conditional: Array, unit_noise: float
) -> _Probabilities:
    """p(y* = c): given g, f* is Gaussian; binary likelihoods and C = 2 in closed form.

    white (s, D), loadings (D, t, L), conditional (t, L, L). rng gives s t (L - 2) normals for L >= 3, none below.
    """
    s, t, n_latents = white.shape[0], loadings.shape[1], loadings.shape[2]
    n_classes = max(n_latents, 2)
    mean, square, mass = np.zeros((t, n_classes)), np.zeros((t, n_classes)), np.zeros(t)
    split = _split(conditional, unit_noise) if n_latents > 1 else None
    for first in range(0, t, _BLOCK):
        last = min(first + _BLOCK, t)
        for start in range(0, s, _DRAW_BLOCK):
            means = np.tensordot(white[start : start + _DRAW_BLOCK], loadings[:, first:last], axes=1)
            if split is None:
                plus = ndtr(means[:, :, 0] / np.sqrt(conditional[first:last, 0, 0] + unit_noise))
                raw = np.stack([1.0 - plus, plus], axis=2)
            else:
                parts = max(1, _VALUES // (means.shape[1] * n_classes * 40))
                raw = np.concatenate(
                    [_given_draw(rng, means[k : k + parts], split, first, last) for k in range(0, len(means), parts)]
                )
            total = raw.sum(axis=2)
            mass[first:last] += total.sum(axis=0)
            raw /= total[:, :, None]
            mean[first:last] += raw.sum(axis=0)
            square[first:last] += np.square(raw).sum(axis=0)
    mean /= s
    var = np.maximum(square / s - np.square(mean), 0.0) * s / (s - 1)
    return _Probabilities(mean / mean.sum(axis=1, keepdims=True), np.sqrt(var / s), mass / s)
