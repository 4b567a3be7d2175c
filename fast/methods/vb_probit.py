"""vb-probit: factorised variational approximation, multinomial probit. riihimaki2013, 4.3; Girolami and Rogers 2006.

q(f^k) = N(m_k, (K_k^-1 + I)^-1), q(v_i) a normal N(m_i, I) on the region of the label. The auxiliary values integrated
out, the bound is a concave function of m alone,

    L(m) = sum_i log Z_i(m_i) - sum_k [m_k'K_k^-1 m_k + log|I + K_k|]/2,   E[v_i] = m_i + grad log Z_i,

whose maximum m = K grad log Z is found by Newton's method: b = K^-1 m, (I + H K) db = grad log Z - b by conjugate
gradients in the inner product of K, H = -hess log Z between 0 and I. Matrices are factorised once.

Parameters of the prior are learned by `fast.full_classes.learning.search` on the maximised bound, or in turns with q,
as the paper has it: `alternate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.declare import takes_values
from fast.core.ending import ended
from fast.core.hyper import ClassGradients, ClassHyper
from fast.core.linalg import factorise, solve_rows
from fast.core.options import Accelerated, Iteration, Watched
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.full_classes.couplings import Coupled, class_factor, evidence_gradients, marginal_covariances
from fast.full_classes.learning import ClassSearch, Searched, learned_logarithms, search
from fast.full_classes.nested_sites import other_classes, scatter
from fast.full_classes.predict import predict_distribution
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.ledger import equation
from fast.likelihood.region import region_moments
from fast.methods.nested_ep import ClassPredicting
from fast.solve.outer_loop import OuterProgress


@dataclass(frozen=True, kw_only=True, eq=False)
class VBOptions(Iteration, Watched, Accelerated):
    """Options of `fit`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Alternating(Iteration, ClassSearch):
    """Options of `alternate`."""


DEFAULTS = VBOptions()


class RegionTerms(NamedTuple):
    """log Z_i and E[v_i] - m_i of all data."""

    value: float
    derivative: FloatArray  # (n, C) E[v] - m
    curvature: FloatArray | None  # (n, D, D) of log Z in the differences, sign changed


@dataclass(frozen=True, eq=False)
class VBProbitPosterior:
    """q(f) where the iteration stopped."""

    prior: MulticlassPrior
    posterior: Coupled
    latent_mean: FloatArray  # (n, C)
    latent_cov: FloatArray  # (n, C, C), diagonal
    expected_auxiliary: FloatArray  # (n, C) E[v]
    elbo: float  # lower bound on log p(y), every constant in it
    trace: FloatArray  # after each iteration
    residual: float
    converged: bool
    iterations: int


@equation("riihimaki2013", "24", "u4.3-vb-expectation")
def region_terms(mean: FloatArray, y: IntArray, *, curvature: bool = False) -> RegionTerms:
    """sum_i log Z_i, and E[v] - m of conic truncations of N(m_i, I): riihimaki2013 (24), section 4.3.

    Time O(n C) in some ten nodes.

    Parameters
    ----------
    mean : (n, C)       m
    y : (n,)            labels
    curvature : bool    second derivatives too
    """
    others = other_classes(y, mean.shape[1])
    h = mean[np.arange(y.size), y][:, None] - np.take_along_axis(mean, others, axis=1)
    moments = region_moments(h, np.ones_like(h), moments=True, curvature=curvature)
    assert moments.hazards is not None
    return RegionTerms(float(moments.log_mass.sum()), scatter(y, others, moments.hazards), moments.curvature)


def _times(prior: MulticlassPrior, weights: FloatArray) -> FloatArray:
    """K b of every class, (C, n) to (C, n)."""
    return np.array([prior.K(k) @ b for k, b in enumerate(weights)])


def _solve(
    prior: MulticlassPrior, others: IntArray, curvature: FloatArray, rhs: FloatArray, tolerance: float
) -> tuple[FloatArray, FloatArray]:
    """(I + H K) x = rhs by conjugate gradients in the inner product of K; x and K x, (C, n)."""
    y = prior.y
    rows = np.arange(y.size)

    def by_H(values: FloatArray) -> FloatArray:
        table = values.T
        h = table[rows, y][:, None] - np.take_along_axis(table, others, axis=1)
        return scatter(y, others, np.einsum("nij,nj->ni", curvature, h)).T

    x, K_x = np.zeros_like(rhs), np.zeros_like(rhs)
    r = rhs.copy()
    K_r = _times(prior, r)
    p, K_p = r.copy(), K_r.copy()
    norm = first = float(np.vdot(r, K_r))
    for _ in range(2 * rhs.size):
        if not norm > tolerance**2 * first:
            break
        image = p + by_H(K_p)
        energy = float(np.vdot(K_p, image))
        if not energy > 0.0:
            break
        step = norm / energy
        x += step * p
        K_x += step * K_p
        r -= step * image
        K_r = _times(prior, r)
        norm, before = float(np.vdot(r, K_r)), norm
        p = r + (norm / before) * p
        K_p = K_r + (norm / before) * K_p
    return x, K_x


def _smoothed(posterior: Coupled, prior: MulticlassPrior, values: FloatArray) -> FloatArray:
    """(K + I)^-1 values and K times that, for (C, n)."""
    return np.array([one.inverse @ value for one, value in zip(posterior.factors, values, strict=True)])


@equation("riihimaki2013", "u4.3-vb-bound")
def vb_bound(weights: FloatArray, mean: FloatArray, log_mass: float, log_det: float) -> float:
    """sum_i log Z_i - (b'm + log|I + K|)/2, b = K^-1 m: riihimaki2013, section 4.3.

    Parameters
    ----------
    weights : (C, n)      b
    mean : (C, n)         m
    log_mass : float      sum_i log Z_i
    log_det : float       sum_k log|I + K_k|
    """
    return log_mass - 0.5 * (float(np.vdot(weights, mean)) + log_det)


@equation("riihimaki2013", "u4.3-vb-family")
@one_thread
def factorised_posterior(prior: MulticlassPrior, weights: FloatArray) -> Coupled:
    """q(f^k) = N(K_k b_k, (K_k^-1 + I)^-1): riihimaki2013, section 4.3. Time n^3 for each distinct kernel.

    Parameters
    ----------
    prior               the data
    weights : (C, n)    b
    """
    kinds = [class_factor(K, np.ones(prior.n)) for K in prior.matrices]
    factors = [kinds[kind] for kind in prior.kind]
    return Coupled(factors, None, weights, _times(prior, weights).T, float(sum(one.log_det for one in factors)))


@one_thread
def converge(
    prior: MulticlassPrior, options: VBOptions = DEFAULTS, *, start: FloatArray | None = None
) -> VBProbitPosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior             from `prepare`
    options           of `fit`
    start : (C, n)    b to start from; default zero
    """
    tolerance, max_iterations = options.tolerance, options.max_iterations
    accelerate, callback = options.accelerate, options.callback
    others = other_classes(prior.y, prior.n_classes)
    weights = np.zeros((prior.n_classes, prior.n)) if start is None else start.copy()
    at = factorised_posterior(prior, weights)
    mean = at.mean.T.copy()
    terms = region_terms(mean.T, prior.y, curvature=accelerate)
    value = vb_bound(weights, mean, terms.value, at.log_det)
    trace: list[float] = []
    residual = np.inf
    while True:
        away = terms.derivative.T - weights
        moved = _smoothed(at, prior, away)  # (K + I)^-1 (grad - b): the plain sweep adds this to b
        last, residual = residual, float(np.abs(_times(prior, moved)).max()) / max(1.0, float(np.abs(mean).max()))
        if callback is not None and trace:
            callback(OuterProgress(len(trace), value, residual, 0))
        if not (residual >= 0.5 * last and residual < 1e-7):  # what falls no further there is rounding
            halved_at = len(trace)
        stalled = accelerate and len(trace) - halved_at >= 3
        if residual <= tolerance or len(trace) >= max_iterations or stalled or ended():
            break
        if accelerate:
            assert terms.curvature is not None
            step, K_step = _solve(prior, others, terms.curvature, away, min(1e-2, residual))
        else:
            step, K_step = moved, _times(prior, moved)
        share = 1.0
        while True:
            new_weights, new_mean = weights + share * step, mean + share * K_step
            new_terms = region_terms(new_mean.T, prior.y, curvature=accelerate)
            new_value = vb_bound(new_weights, new_mean, new_terms.value, at.log_det)
            if not accelerate or new_value >= value - 1e-11 * (1.0 + abs(value)) or share < 2.0**-30:
                break
            share *= 0.5
        weights, mean, terms, value = new_weights, new_mean, new_terms, new_value
        trace.append(value)
    posterior = at._replace(weights=weights, mean=mean.T)
    return VBProbitPosterior(
        prior,
        posterior,
        posterior.mean,
        marginal_covariances(posterior),
        posterior.mean + terms.derivative,
        value,
        np.array(trace),
        residual,
        residual <= tolerance,
        len(trace),
    )


@takes_values
def fit(data: Data, prior: Prior, options: VBOptions = DEFAULTS) -> VBProbitPosterior:
    """Maximise the bound over q, hyper-parameters held. Time n^3 for each distinct kernel once, then C n^2 a product.

    Parameters
    ----------
    data : Data      at least two classes
    prior : Prior    full; one number or one vector stands for all classes
    options          tolerance on the largest change of m in a plain sweep, over max(1, max |m|); accelerated by
                     Newton's method, else plain sweeps m <- K (K + I)^-1 E[v]

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    a matrix of the prior is not positive semi-definite
    """
    return converge(prepare(data, prior), options)


@one_thread
def gradients(posterior: VBProbitPosterior) -> ClassGradients:
    """Gradient of the bound at its maximum over q, (b b' - (K + I)^-1)/2 for each K. Time O(C n^2 d).

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.prior.vjp(evidence_gradients(posterior.prior, posterior.posterior))


@ClassPredicting.checks
def predict(posterior: VBProbitPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent distribution and class probabilities, each one integral.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_distribution(
        posterior.prior, posterior.posterior, X_test, prediction="quadrature", block_size=block_size
    )


_REMEDY = "raise jitter or noise: with q held, log p(f) needs the inverse of K"


class _Group(NamedTuple):
    """q(f^k) of classes whose kernels are and stay one: N(m_k, R R')."""

    first: int
    root: FloatArray  # (n, n) R, transposed
    means: FloatArray  # (classes, n)


def _held(posterior: VBProbitPosterior) -> list[_Group]:
    prior, mean = posterior.prior, posterior.latent_mean.T
    results = []
    for members in [list(range(prior.n_classes))] if prior.shared else [[k] for k in range(prior.n_classes)]:
        # S = (K^-1 + I)^-1 = L (I + L'L)^-1 L' without a difference
        factor = factorise(prior.K(members[0]), "K_XX", _REMEDY)
        inner = factor.T @ factor
        inner.flat[:: prior.n + 1] += 1.0
        root = solve_rows(factorise(inner, "I + L'L", _REMEDY), np.ascontiguousarray(factor))
        results.append(_Group(members[0], np.ascontiguousarray(root.T), mean[members]))
    return results


def _expected_log_prior(held: list[_Group], prior: MulticlassPrior) -> tuple[float, ClassGradients]:
    """E_q[log p(f|theta)] with q held, and its gradient in theta."""
    n, value, by_K = prior.n, 0.0, []
    for group in held:
        count = group.means.shape[0]
        factor = factorise(prior.K(group.first), "K_XX", _REMEDY)
        spread_out = solve_rows(factor, group.root.copy())
        centred = solve_rows(factor, group.means.copy())
        log_det = 2.0 * float(np.log(factor.diagonal()).sum())
        value -= 0.5 * count * (log_det + float(np.vdot(spread_out, spread_out)) + n * np.log(2.0 * np.pi))
        value -= 0.5 * float(np.vdot(centred, centred))
        inside = 0.5 * (count * spread_out.T @ spread_out + centred.T @ centred)
        inside.flat[:: n + 1] -= 0.5 * count
        whitened = solve_rows(factor, np.ascontiguousarray(inside), transposed=True)
        by_K.append(solve_rows(factor, np.ascontiguousarray(whitened.T), transposed=True))
    return value, prior.vjp(by_K)


@equation("riihimaki2013", "u4.3-vb-hyper")
@ClassSearch.checks
def update_hyperparameters(
    posterior: VBProbitPosterior,
    learn: Iterable[str],
    *,
    max_iterations: int = 200,
    learning_tolerance: float = 1e-6,
) -> ClassHyper:
    """Parameters that maximise the bound with q(v) and q(f) held: riihimaki2013, section 4.3.

    Only E_q[log p(f|theta)] depends on them then. Time n^3 for each distinct kernel an evaluation.

    Parameters
    ----------
    posterior                     from `fit`; its parameters are the start
    learn                         names out of variance, lengthscales, noise
    max_iterations : int          of L-BFGS-B
    learning_tolerance : float    on the largest entry of the projected gradient in logarithms

    Raises
    ------
    ValueError                    by name
    NotPositiveDefiniteError      K is singular
    """
    held = _held(posterior)
    return search(
        posterior.prior,
        lambda here, start: here,
        lambda here: _expected_log_prior(held, here),
        ClassSearch(
            learn=inputs.names("learn", learn), max_iterations=max_iterations, learning_tolerance=learning_tolerance
        ),
    ).hyper


@_Alternating.checks
def alternate(
    prior: MulticlassPrior,
    *,
    learn: Iterable[str],
    tolerance: float = 1e-10,
    max_iterations: int = 200,
    learning_tolerance: float = 1e-5,
    callback: Callable[[VBProbitPosterior], None] | None = None,
) -> Searched:
    """The best q and `update_hyperparameters` in turn, until logarithms move by less than learning_tolerance.

    No round lowers the bound, and where it ends the maximised bound has zero gradient. Moves shrink by a constant
    factor a round, which may be near one: `search` gets there sooner.

    Parameters
    ----------
    prior                         from `prepare`; its parameters are the start
    learn                         names out of variance, lengthscales, noise
    tolerance : float             of each `converge`
    max_iterations : int          rounds
    learning_tolerance : float    largest move of a logarithm in a round
    callback : callable           called with the posterior after each round's `converge`
    """
    before = learned_logarithms(learn, prior.hyper, prior.shared)
    at = converge(prior, VBOptions(tolerance=tolerance))
    trace: list[float] = []
    moved = np.inf
    while len(trace) < max_iterations and moved > learning_tolerance:
        trace.append(at.elbo)
        if callback is not None:
            callback(at)
        hyper = update_hyperparameters(at, learn, learning_tolerance=0.1 * learning_tolerance)
        after = learned_logarithms(learn, hyper, prior.shared)
        moved, before = float(np.abs(after - before).max()), after
        here = MulticlassPrior(prior.X, prior.y, prior.n_classes, hyper, prior.shared)
        at = converge(here, VBOptions(tolerance=tolerance), start=at.posterior.weights)
    converged = moved <= learning_tolerance
    reason = "logarithms at rest" if converged else "iteration limit reached"
    return Searched(at, at.prior.hyper, at.elbo, np.array(trace), converged, reason, len(trace), 0)
