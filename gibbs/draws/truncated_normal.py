"""Exact draws from N(0, Σ) in a box, and its probability: minimax tilting (Botev 2017, J. R. Stat. Soc. B 79).

With Σ = LLᵀ and x = Lw the box lower < x < upper reads l̃_k(w) < w_k < ũ_k(w), limits that depend on w_1..w_{k-1}.
The proposal draws w_k from N(μ_k, 1) between these limits, k = 1, 2, ...; its weight is exp ψ(w, μ),

    ψ(w, μ) = Σ_k [ μ_k²/2 - w_k μ_k + log P(l̃_k - μ_k < N(0, 1) < ũ_k - μ_k) ],   μ_D = 0,

concave in w and convex in μ. At the saddle point ψ* no weight exceeds exp ψ*: a proposal kept with probability
exp(ψ - ψ*) is an exact draw, the mean weight estimates the probability, and weights between 0 and exp ψ* cannot hide
a heavy tail: their squared coefficient of variation is below 1/acceptance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf, erfcx, log_ndtr, ndtr, ndtri

from gibbs.core.errors import Array, NotPositiveDefiniteError, _count, _reachable, _scalar
from gibbs.core.linalg import smallest_and_largest, solve

Order = NDArray[np.int_]

_ROOT_2 = np.sqrt(2.0)
_ROOT_2_PI = np.sqrt(2.0 * np.pi)
_TAIL = 5.0  # from here on by continued fractions and scaled error functions: 60 terms give 15 digits at 5
_TERMS = 60
_SMALLEST_UNIFORM = 2.0**-54  # half the spacing of Generator.random: keeps 0 out
_BLOCK = 2048  # proposals at a time; part of what a seed fixes
_PILOT = 20 * _BLOCK  # proposals before a run may be called hopeless
_NEWTON_PATIENCE = 200
_MIN_EXPECTED_DRAWS = 25.0  # weights in [0, 1] of total 25 pin their own mean to a factor of two at 5 s.e.
MAX_DIMENSION = 800  # beyond this acceptance is out of reach in every case that has been measured


class Interval(NamedTuple):
    """N(0, 1) between two limits."""

    log_probability: Array
    mean: Array
    var: Array


class Tilting(NamedTuple):
    """The proposal: Σ reordered and factorised, the saddle point."""

    order: Order  # (D,) ints: x[order] = factor @ white
    factor: Array  # (D, D) lower Cholesky factor of Σ[order][:, order]
    lower: Array  # (D,) limits in this order
    upper: Array
    mean: Array  # (D,) μ of the proposal, the last is 0
    saddle: Array  # (D,) w at the saddle point
    log_bound: float  # ψ*: an upper bound on the log probability
    residual: float  # largest entry of the gradient left at the saddle point
    n_steps: int  # Newton steps taken


class Probability(NamedTuple):
    """log P(lower < x < upper)."""

    value: float
    standard_error: float  # of the logarithm: relative error of the mean weight
    log_bound: float
    acceptance: float  # mean weight over its bound
    n_proposals: int


class TruncatedDraws(NamedTuple):
    """Independent draws of w, x[order] = factor @ w."""

    white: Array  # (s, D)
    probability: Probability  # from all proposals made for them


class Proposals(NamedTuple):
    """What a callback sees after every block."""

    n_proposals: int
    n_draws: int  # accepted so far
    acceptance: float  # mean weight over its bound, so far


# -- one variable ----------------------------------------------------------------------------------------------


def _tail_moments(a: Array) -> tuple[Array, Array]:
    """Mean s and variance of N(0, 1) above a.

    s = φ(a)/Q(a) = a + t₁, t₁ = 1/(a + t₂), t_k = k/(a + t_{k+1}) (continued fraction of the Mills ratio), and then
    the variance 1 - s t₁ = t₁ (t₂ - t₁) without cancellation.
    """
    far, x = a > _TAIL, np.maximum(a, _TAIL)
    t = x  # any positive end will do
    for k in range(_TERMS, 1, -1):
        t = k / (x + t)
    t_1 = 1.0 / (x + t)
    near = np.clip(a, -40.0, _TAIL)  # below -40 nothing is cut off
    mean = np.sqrt(2.0 / np.pi) / erfcx(near / _ROOT_2)
    return np.where(far, x + t_1, mean), np.where(far, t_1 * (t - t_1), 1.0 - mean * (mean - near))


def _log_tail_ratio(a: Array, delta: Array) -> Array:
    """log Q(a + delta)/Q(a) for a >= 0, delta >= 0, with the leading -a²/2 taken out by hand."""
    ratio = erfcx((a + delta) / _ROOT_2) / erfcx(a / _ROOT_2)
    return -delta * (a + 0.5 * delta) + np.log(ratio)


def interval(lower: ArrayLike, upper: ArrayLike) -> Interval:
    """log probability, mean and variance of N(0, 1) between lower and upper, entry by entry.

    lower < upper of any broadcastable shapes, infinite where there is no limit. One-sided intervals keep full relative
    accuracy in the far tails (to 1e100 and beyond); two-sided ones lose digits as 1e-16 over their width.
    Raises ValueError for NaN and empty intervals.
    """
    low, high = np.broadcast_arrays(np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64))
    if not np.all(low < high):
        raise ValueError(f"lower: found {np.count_nonzero(~(low < high))} limits not below upper, expected 0")
    if np.all(high == np.inf):  # the orthants of this package: no other case to sort out
        mean, var = _tail_moments(low)
        return Interval(log_ndtr(-low), mean, var)
    mirrored = np.abs(low) > np.abs(high)  # work with the limit nearer to 0 as `a`: a >= 0 or the interval holds 0
    a, b = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    log_probability, mean, var = (np.array(part) for part in _interval(a, b))
    return Interval(log_probability, np.where(mirrored, -mean, mean), var)


def _interval(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """As `interval` for |a| <= |b|: a one-sided tail, a finite interval on the right of 0, or one that holds 0."""
    log_tail = log_ndtr(-a)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # branches not taken
        width = b - a
        drop = _log_tail_ratio(a, width)
        right = log_tail + np.log(-np.expm1(drop))
        across = np.log(0.5 * (erf(b / _ROOT_2) - erf(a / _ROOT_2)))
        log_probability = np.where(np.isinf(b), log_tail, np.where(a >= 0.0, right, across))
        mean, var = _straddling_moments(a, b, log_probability)
        # the tail above a is the interval, and with share r the tail above b: mean and variance of the part by
        # those of the whole, of the rest, and of the mixture
        tail_mean, tail_var = _tail_moments(a)
        rest_mean, rest_var = _tail_moments(b)
        share = np.exp(drop)
        part_mean = (tail_mean - share * rest_mean) / -np.expm1(drop)
        part_var = (tail_var - share * rest_var) / -np.expm1(drop) - share * np.square(part_mean - rest_mean)
    one_sided, right_of_0 = np.isinf(b), a >= 0.0
    mean = np.where(one_sided, tail_mean, np.clip(np.where(right_of_0, part_mean, mean), a, b))
    # rounding may leave the variance of a narrow interval anywhere; it only steers Newton, lies below width²/4, and is
    # near the smaller of width²/12 and the variance of the tail
    ceiling = np.minimum(1.0, 0.25 * np.square(width))
    floor = 0.1 * np.minimum(ceiling, tail_var)
    var = np.where(one_sided, tail_var, np.clip(np.where(right_of_0, part_var, var), floor, ceiling))
    return log_probability, mean, var


def _straddling_moments(a: Array, b: Array, log_probability: Array) -> tuple[Array, Array]:
    """Mean and variance between finite a < 0 < b, from the densities at both ends."""
    edge_a, edge_b = (np.exp(-0.5 * np.square(limit) - log_probability) / _ROOT_2_PI for limit in (a, b))
    mean = edge_a - edge_b
    return mean, 1.0 + a * edge_a - b * edge_b - np.square(mean)


def _tail_excess(a: Array, log_ratio: Array) -> Array:
    """delta >= 0 with log Q(a + delta)/Q(a) = log_ratio, for a > 0: Newton from the Rayleigh tail.

    The start solves -aδ - δ²/2 = log_ratio and lies within 1/a² of the root, relative to it; three steps from a = 5
    on leave the rounding of log_ratio, an absolute error of 1e-16/a.
    """
    delta = -2.0 * log_ratio / (a + np.sqrt(a * a - 2.0 * log_ratio))
    for _ in range(3):
        hazard = np.sqrt(2.0 / np.pi) / erfcx((a + delta) / _ROOT_2)
        delta = np.maximum(delta + (_log_tail_ratio(a, delta) - log_ratio) / hazard, 0.0)
    return delta


def draw_interval(rng: np.random.Generator, lower: ArrayLike, upper: ArrayLike) -> Array:
    """N(0, 1) between lower and upper, one draw per entry, by inversion; rng gives one uniform per entry.

    lower < upper of broadcastable shapes, infinite where there is no limit. Beyond 5 standard deviations the excess
    over the limit is found in logarithms, to 1e-16/limit however far out the limit lies.
    Raises ValueError for NaN and empty intervals.
    """
    low, high = np.broadcast_arrays(np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64))
    if not np.all(low < high):
        raise ValueError(f"lower: found {np.count_nonzero(~(low < high))} limits not below upper, expected 0")
    if np.all(high == np.inf):
        return _draw_above(rng, low)
    uniform = np.maximum(rng.random(low.shape), _SMALLEST_UNIFORM)
    mirrored = np.abs(low) > np.abs(high)
    a, b = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    far = a > _TAIL
    # near: x = -ndtri(Q(b) + u (Q(a) - Q(b))), from the right tail, where b may be infinite
    mass_b = ndtr(-b)
    near = -ndtri(np.clip(mass_b + uniform * (ndtr(-np.minimum(a, _TAIL)) - mass_b), 5e-324, 1.0 - 2.0**-53))
    far_a = np.maximum(a, _TAIL)
    with np.errstate(over="ignore", divide="ignore"):
        drop = _log_tail_ratio(far_a, np.abs(b - far_a))
    excess = _tail_excess(far_a, np.log1p(uniform * np.expm1(drop)))
    drawn = np.clip(np.where(far, a + excess, near), a, b)
    return np.where(mirrored, -drawn, drawn)


def _draw_above(rng: np.random.Generator, a: Array) -> Array:
    """N(0, 1) above a."""
    uniform = np.maximum(rng.random(a.shape), _SMALLEST_UNIFORM)
    # 1 - 2⁻⁵³ is the largest argument below 1: a lower end of -8.2, beyond which the mass is 1e-16
    drawn = -ndtri(np.minimum(uniform * ndtr(-np.minimum(a, _TAIL)), 1.0 - 2.0**-53))
    far = np.flatnonzero(a > _TAIL)
    if far.size:
        drawn[far] = a[far] + _tail_excess(a[far], np.log(uniform[far]))
    return np.maximum(drawn, a)


# -- many variables --------------------------------------------------------------------------------------------


def _reorder(covariance: Array, lower: Array, upper: Array, remedy: str) -> tuple[Order, Array, Array]:
    """Order, Cholesky factor in that order, and expected w: the least likely variable first.

    The rule of Genz & Bretz (2009): given the expected values of those before, take the variable with the least
    probability of staying in its interval.
    """
    size = int(lower.size)
    S, low, high = covariance.copy(), lower.copy(), upper.copy()
    order, L, expected = np.arange(size), np.zeros((size, size)), np.zeros(size)
    var, mean = np.diagonal(S).copy(), np.zeros(size)
    # what cancellation leaves of a variance is no variance
    floor = 8.0 * size * np.finfo(np.float64).eps * np.diagonal(S).copy()
    for k in range(size):
        if not np.all(var[k:] > floor[k:]):
            smallest = smallest_and_largest("covariance", covariance)[0]
            raise NotPositiveDefiniteError(
                f"covariance {covariance.shape}: found smallest eigenvalue {smallest:.3g}, expected > 0; {remedy}"
            )
        sd = np.sqrt(var[k:])
        j = k + int(np.argmin(interval((low[k:] - mean[k:]) / sd, (high[k:] - mean[k:]) / sd).log_probability))
        for array in (order, low, high, var, mean, floor, L, S):
            array[[k, j]] = array[[j, k]]
        S[:, [k, j]] = S[:, [j, k]]
        L[k, k] = np.sqrt(var[k])
        L[k + 1 :, k] = (S[k + 1 :, k] - L[k + 1 :, :k] @ L[k, :k]) / L[k, k]
        expected[k] = interval((low[k] - mean[k]) / L[k, k], (high[k] - mean[k]) / L[k, k]).mean
        var[k + 1 :] -= np.square(L[k + 1 :, k])
        mean[k + 1 :] += L[k + 1 :, k] * expected[k]
    return order, L, expected


class _Point(NamedTuple):
    """ψ's derivatives at one (w, μ)."""

    moments: Interval
    grad_mean: Array
    grad_white: Array

    def merit(self, var: Array) -> float:
        """Squared gradient in units of var, the variances of w: ∂ψ/∂μ goes with its sd, ∂ψ/∂w with the inverse."""
        return float(np.square(self.grad_mean) @ (1.0 / var) + np.square(self.grad_white) @ var)


def _derivatives(unit: Array, low: Array, high: Array, white: Array, mean: Array) -> _Point:
    """unit: strictly lower part of the factor with row k divided by L_kk; low, high: limits divided by it too.

    With s_k the mean of N(0, 1) between the shifted limits, ∂ log P/∂μ_k = s_k, so that
    ∂ψ/∂μ_k = μ_k - w_k + s_k and ∂ψ/∂w_j = -μ_j + Σ_{k>j} unit_kj s_k. The last of each has no free variable.
    """
    shift = unit @ white + mean
    result = interval(low - shift, high - shift)
    grad_mean, grad_white = mean - white + result.mean, unit.T @ result.mean - mean
    grad_mean[-1] = grad_white[-1] = 0.0
    return _Point(result, grad_mean, grad_white)


def _newton_step(unit: Array, point: _Point) -> tuple[Array, Array]:
    """(dw, dμ) from the exact Jacobian.

    ds_k = -(1 - v_k)(dμ_k + (unit dw)_k) with v_k the variance. Write B = I + (1 - v) unit and
    S = unitᵀ (1 - v) unit; eliminating dμ = v⁻¹(B dw - grad_mean) leaves (Bᵀ v⁻¹ B + S) dw = grad_white +
    Bᵀ v⁻¹ grad_mean, positive definite because B is unit triangular and 0 < v <= 1.
    """
    v = point.moments.var
    inner = unit[:, :-1]
    weighted = (1.0 - v)[:, None] * inner
    B = weighted[:-1] + np.eye(inner.shape[1])
    scaled = B / v[:-1, None]
    matrix = B.T @ scaled + inner.T @ weighted
    d_white = solve(
        "Jacobian of the tilting", matrix, point.grad_white[:-1] + scaled.T @ point.grad_mean[:-1], "raise noise"
    )
    d_mean = (B @ d_white - point.grad_mean[:-1]) / v[:-1]
    return np.append(d_white, 0.0), np.append(d_mean, 0.0)


def tilt(
    covariance: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    remedy: str = "remove rows that depend on others",
) -> Tilting:
    """The proposal of least worst-case weight for N(0, covariance) between lower and upper: Botev (2017), section 2.

    covariance (D, D), lower < upper (D,) or scalars, infinite where there is no limit; remedy: what the error on a
    covariance without Cholesky factor advises. Newton with a line search on the squared gradient, whose Jacobian
    belongs to a strictly monotone map and is regular everywhere, from the expected values of the ordering. Time O(D³)
    per step.

    Raises ValueError on bad input, for D > MAX_DIMENSION and where no saddle point is found in double precision;
    NotPositiveDefiniteError for a covariance without Cholesky factor.
    """
    matrix = _reachable("covariance", covariance, 2)
    size = len(matrix)
    if matrix.shape != (size, size) or size == 0:
        raise ValueError(f"covariance: found shape {matrix.shape}, expected a square matrix")
    if size > MAX_DIMENSION:
        raise ValueError(f"covariance: found dimension {size}, expected at most {MAX_DIMENSION}")
    if not np.allclose(matrix, matrix.T, rtol=0.0, atol=1e-12 * np.abs(matrix).max()):
        raise ValueError("covariance: found an asymmetric matrix, expected a symmetric one")
    limits = np.broadcast_to(np.asarray(lower, float), (size,)), np.broadcast_to(np.asarray(upper, float), (size,))
    if not np.all(limits[0] < limits[1]):
        raise ValueError("lower: found limits not below upper, expected an interval for each variable")
    order, L, expected = _reorder(matrix, *limits, remedy)
    low, high = limits[0][order], limits[1][order]
    diagonal = np.diagonal(L)
    unit = np.tril(L, -1) / diagonal[:, None]
    white, mean = expected, np.zeros(size)
    white[-1] = 0.0
    point = _derivatives(unit, low / diagonal, high / diagonal, white, mean)
    n_steps = 0
    while not _converged(point, white, mean):
        if n_steps == _NEWTON_PATIENCE:
            raise ValueError(f"covariance: found no saddle point in {n_steps} steps, expected one; {remedy}")
        d_white, d_mean = _newton_step(unit, point)
        step, var = 1.0, point.moments.var
        merit = point.merit(var)
        while True:
            there = white + step * d_white, mean + step * d_mean
            new = _derivatives(unit, low / diagonal, high / diagonal, *there)
            if new.merit(var) < (1.0 - 1e-4 * step) * merit:
                break
            step *= 0.5
            if step < 1e-9:
                raise ValueError(
                    f"covariance: found a scaled gradient of {np.sqrt(merit):.3g} that no step lowers, expected 0 at "
                    f"the saddle point; {remedy}"
                )
        (white, mean), point = there, new
        n_steps += 1
    log_bound = float(np.sum(0.5 * mean * mean - white * mean + point.moments.log_probability))
    residual = float(max(np.abs(point.grad_mean).max(), np.abs(point.grad_white).max()))
    return Tilting(order, L, low, high, mean, white, log_bound, residual, n_steps)


def _converged(point: _Point, white: Array, mean: Array) -> bool:
    """The gradient has gone down to 1e-9 of the quantities it is the difference of."""
    scale = 1.0 + np.abs(white).max() + np.abs(mean).max() + np.abs(point.moments.mean).max()
    return max(np.abs(point.grad_mean).max(), np.abs(point.grad_white).max()) <= 1e-9 * scale


def propose(rng: np.random.Generator, tilting: Tilting, n_draws: int) -> tuple[Array, Array]:
    """n_draws proposals of w and their log weights ψ(w, μ), columns side by side.

    tilting: of `tilt`. rng gives exactly D · n_draws uniforms. Returns white (D, s) and log_weight (s,), whose
    exponential has the probability as its mean and exp(tilting.log_bound) as its bound.
    """
    _count("n_draws", n_draws, 1)
    diagonal = np.diagonal(tilting.factor)
    unit = tilting.factor / diagonal[:, None]
    low, high = tilting.lower / diagonal, tilting.upper / diagonal
    white = np.empty((diagonal.size, n_draws))
    log_weight = np.zeros(n_draws)
    for k, mean in enumerate(tilting.mean):
        shift = unit[k, :k] @ white[:k] + mean
        a = low[k] - shift
        if high[k] == np.inf:
            log_mass, drawn = log_ndtr(-a), _draw_above(rng, a)
        else:
            log_mass, drawn = interval(a, high[k] - shift).log_probability, draw_interval(rng, a, high[k] - shift)
        white[k] = mean + drawn
        log_weight += log_mass - mean * (0.5 * mean + drawn)  # μ²/2 - w μ, w = μ + drawn
    return white, log_weight


class _Weights:
    """Running mean and spread of weights over their bound."""

    def __init__(self, tilting: Tilting) -> None:
        self.log_bound, self.size = tilting.log_bound, tilting.mean.size
        self.count, self.total, self.square = 0, 0.0, 0.0

    def add(self, log_weight: Array) -> Array:
        """Take a block; returns log weight over bound, at most 0."""
        excess = log_weight - self.log_bound
        # rounding of ψ, a sum of terms as large as ψ*; beyond it the saddle point is none
        if not np.all(excess <= 1e-6 * (1.0 + abs(self.log_bound))):
            raise ValueError(
                f"covariance: found a weight {np.max(excess):.3g} above its bound, expected none: too near singular"
            )
        weight = np.exp(excess)
        self.count += weight.size
        self.total += float(weight.sum())
        self.square += float(weight @ weight)
        return excess

    def probability(self) -> Probability:
        mean = self.total / self.count
        if mean == 0.0:
            return Probability(-np.inf, np.inf, self.log_bound, 0.0, self.count)
        var = max(self.square / self.count - mean * mean, 0.0) / max(self.count - 1, 1)
        error = float(np.sqrt(var)) / mean
        if self.size > 1:  # one variable: all weights are the probability
            error = float(np.hypot(error, 1.0 / self.count))  # what one proposal in so many may do, seen or not
        return Probability(self.log_bound + float(np.log(mean)), error, self.log_bound, mean, self.count)


def _refuse(value: Probability, size: int, wanted: str) -> None:
    raise ValueError(
        f"max_proposals: found {value.n_proposals} proposals at an acceptance of {value.acceptance:.2g} in dimension "
        f"{size}, expected {wanted}; the problem is beyond minimax tilting, take fewer data or a chain"
    )


def log_probability(
    rng: np.random.Generator, tilting: Tilting, *, target_error: float = 0.01, max_proposals: int = 4_000_000
) -> Probability:
    """log P(lower < x < upper), to a standard error of target_error where max_proposals allow.

    tilting: of `tilt`. Blocks of 2048 proposals are drawn from rng, at least five, until the standard error is reached
    and the weights add up to 25 times their bound: below that the largest weights may not have been seen, and the
    error would be an opinion. Raises ValueError with acceptance and dimension if max_proposals end before that, or
    the acceptance of the first 40960, raised by four standard errors, shows that they will.
    """
    goal = _scalar("target_error", target_error, positive=True)
    most = _count("max_proposals", max_proposals, 1)
    weights = _Weights(tilting)
    while True:
        weights.add(propose(rng, tilting, _BLOCK)[1])
        result = weights.probability()
        sure = weights.total >= _MIN_EXPECTED_DRAWS
        if sure and result.n_proposals >= 5 * _BLOCK and result.standard_error <= goal:
            return result
        error = result.standard_error if np.isfinite(result.standard_error) else 0.0
        hopeful = result.acceptance * (1.0 + 4.0 * error) * most
        if not sure and (
            result.n_proposals >= most or (result.n_proposals >= _PILOT and hopeful < _MIN_EXPECTED_DRAWS)
        ):
            _refuse(result, tilting.mean.size, f"{_MIN_EXPECTED_DRAWS:g} acceptances within {most}")
        if result.n_proposals >= most:
            return result


def draw_truncated(
    rng: np.random.Generator,
    tilting: Tilting,
    n_draws: int,
    *,
    max_proposals: int = 20_000_000,
    callback: Callable[[Proposals], object] | None = None,
) -> TruncatedDraws:
    """n_draws independent exact draws from N(0, Σ) in the box, by acceptance and rejection.

    tilting: of `tilt`; rng: one stream for proposals and decisions; callback: called with a `Proposals` after every
    block of 2048. The probability returned uses the weights of all proposals; that their number follows from the draws
    biases it by a term of the order of the squared standard error.

    Raises ValueError with acceptance and dimension as soon as the acceptance seen, raised by four standard errors,
    makes it clear that max_proposals will not do.
    """
    wanted = _count("n_draws", n_draws, 1)
    most = _count("max_proposals", max_proposals, 1)
    weights = _Weights(tilting)
    kept: list[Array] = []
    n_kept = 0
    while n_kept < wanted:
        white, log_weight = propose(rng, tilting, _BLOCK)
        accept = np.log1p(-rng.random(_BLOCK)) <= weights.add(log_weight)
        kept.append(white[:, accept].T)
        n_kept += int(np.count_nonzero(accept))
        result = weights.probability()
        if callback is not None:
            callback(Proposals(result.n_proposals, min(n_kept, wanted), result.acceptance))
        error = result.standard_error if np.isfinite(result.standard_error) else 0.0
        hopeful = result.acceptance * (1.0 + 4.0 * error) * (most - result.n_proposals) + n_kept + 4.0 * np.sqrt(wanted)
        if n_kept < wanted and (result.n_proposals >= most or (weights.count >= _PILOT and hopeful < wanted)):
            _refuse(result, tilting.mean.size, f"{wanted} acceptances within {most}")
    return TruncatedDraws(np.concatenate(kept)[:wanted], weights.probability())
