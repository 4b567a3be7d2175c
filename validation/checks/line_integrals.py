"""Integrals along one latent value: a Gaussian times normal distribution functions, with their derivatives.

Every probability of several classes is one of them. Both witnesses place their nodes by the mode, the bends and the
steps of the integrand, and have branches for steps, tails, sharp factors, point masses and many classes. The judge has
one rule for all: hundreds of panels, cut wherever a factor bends, and a tanh-sinh rule on each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.problem import Problem

Array = NDArray[np.float64]

# the tanh-sinh rule on (-1, 1): a trapezoidal rule in t, whose ends are approached double-exponentially
_T = np.linspace(-3.2, 3.2, 41)
_NODES = np.tanh(0.5 * np.pi * np.sinh(_T))
_WEIGHTS = 0.16 * 0.5 * np.pi * np.cosh(_T) / np.square(np.cosh(0.5 * np.pi * np.sinh(_T)))
EXACT = 1e-11
_WHY = "the judge's own rule, whose panels are a tenth of a standard deviation or half a bend; logarithms are below 1e3"
# a difference of step h leaves h²/6 of a third derivative, and 1e-13/h of rounding
_STEP, DERIVATIVE = 1e-4, 1e-6
_WHY_DERIVATIVE = "differences of step 1e-4 of the judge's own rule, in units of the narrowest factor"


def log_integral(mean: float, sd: float, offsets: Array, scales: Array, signs: Array) -> float:
    """log ∫ N(s|mean, sd²) Π_j Φ(sign_j (s - offset_j)/scale_j) ds; a scale of 0 is a step, sd = 0 a point mass."""
    soft = scales > 0.0
    if sd == 0.0:
        if (signs[~soft] * (mean - offsets[~soft]) < 0.0).any():
            return -np.inf
        return float(log_ndtr(signs[soft] * (mean - offsets[soft]) / scales[soft]).sum())
    place, step = (offsets - mean) / sd, ~soft
    low = float(place[step & (signs > 0.0)].max(initial=-np.inf))
    high = float(place[step & (signs < 0.0)].min(initial=np.inf))
    if low >= high:
        return -np.inf

    def log_density(t: Array) -> Array:
        z = signs[soft] * (t[..., None] - place[soft]) * (sd / scales[soft])
        return log_ndtr(z).sum(axis=-1) - 0.5 * t * t

    coarse = np.clip(np.linspace(-70.0, 70.0, 28_001), low, high)
    peak = float(coarse[log_density(coarse).argmax()])
    bends = place[soft, None] + np.arange(-12.0, 12.5, 0.5) * (scales[soft, None] / sd)
    edges = np.concatenate([peak + np.arange(-11.0, 11.05, 0.1), bends.ravel()])
    edges = np.unique(np.clip(edges, max(low, peak - 11.0), min(high, peak + 11.0)))
    half_width = 0.5 * np.diff(edges)
    term = log_density(edges[:-1, None] + half_width[:, None] * (1.0 + _NODES))
    top = float(term.max())
    total = float((half_width[:, None] * _WEIGHTS * np.exp(term - top)).sum())
    return top + float(np.log(total)) - 0.5 * float(np.log(2.0 * np.pi))


class Row(NamedTuple):
    """One integral."""

    mean: float
    var: float
    offsets: tuple[float, ...]
    scales: tuple[float, ...]
    signs: tuple[float, ...]


# wide and sharp factors, steps on either side, a tail in which no factor is near 1, a point mass
ROWS = (
    Row(0.3, 0.8, (0.1, -0.6, 1.2), (0.7, 1.3, 0.4), (1.0, 1.0, 1.0)),
    Row(0.3, 0.8, (0.1, -0.6, 0.5), (0.7, 1e-3, 0.4), (1.0, 1.0, -1.0)),
    Row(-0.4, 1.7, (0.2, -0.6, 1.4), (0.9, 0.0, 0.0), (-1.0, 1.0, -1.0)),
    Row(0.2, 0.5, (0.6, -0.3, 0.1), (0.0, 0.8, 0.002), (1.0, -1.0, 1.0)),
    Row(-9.0, 0.6, (14.0, 3.0, 0.0), (0.5, 1.1, 0.9), (1.0, 1.0, 1.0)),
    Row(0.4, 0.0, (0.1, -0.6, 0.9), (0.7, 0.0, 0.4), (1.0, 1.0, -1.0)),
)


def _held(actual: object, expected: object, limit: float, why: str, left: str) -> Compared:
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    size = float(np.abs(b).max(initial=1.0))
    gap = float(np.abs(a - b).max()) / size if a.shape == b.shape else np.inf
    return Compared(gap, limit, why, left, "definition", "relative difference")


@check(
    "identity/ep/line_integrals",
    paper="villacampa2017",
    question="Are integrals of a Gaussian times normal distribution functions those of a dense rule, steps included?",
    problems=(NO_PROBLEM,),
)
def integrals(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Values, derivatives and nodes of reference's integrals."""
    from reference.common._largest import line_integral
    from reference.common._probit_line import probit_line

    offsets, scales, signs = (np.array([getattr(row, name) for row in ROWS]) for name in Row._fields[2:])
    mean, var = np.array([row.mean for row in ROWS]), np.array([row.var for row in ROWS])
    result = line_integral(mean, var, offsets, scales, signs)
    value, derivative = np.empty(len(ROWS)), np.empty(len(ROWS))
    for i, sd in enumerate(np.sqrt(var)):
        h = _STEP * float(np.where(scales[i] > 0.0, scales[i], 1.0).min())
        value[i], up, down = (
            log_integral(mean[i], sd, offsets[i] - shift, scales[i], signs[i]) for shift in (0.0, h, -h)
        )
        derivative[i] = (up - down) / (2.0 * h)
    yield _held(result.log_norm, value, EXACT, f"logarithms; {_WHY}", "reference")
    # row by row: derivatives are of different size
    for i in range(len(ROWS)):
        yield _held(
            result.derivative[i],
            derivative[i],
            3e-6,
            f"by a shift of the factors, row {i}; {_WHY_DERIVATIVE}",
            "reference",
        )
    # a point mass on the wrong side of a step, and a step that leaves nothing
    none = line_integral(
        np.array([-0.7, 0.2]), np.array([0.0, 0.3]), np.array([[0.1, -0.6], [0.5, 0.1]]),
        np.array([[0.7, 0.0], [0.0, 0.0]]), np.array([[1.0, 1.0], [1.0, -1.0]]),
    )  # fmt: skip
    wrong = float((none.log_norm != -np.inf).sum() + (none.derivative != 0.0).sum())
    yield Compared(
        wrong, 0.0, "nothing is left: no probability, and zero gradient", "reference", "definition", "numbers"
    )
    for i in (0, 4):
        line = probit_line(mean[i], var[i], offsets[i], scales[i])
        yield _held(line.log_norm, value[i], EXACT, f"nodes that stand for the integrand; {_WHY}", "reference")
        # N(s|m, v) at m + h over that at m is exp(h (s - m)/v) to first order: a shift of m is a mean of s
        h = _STEP * float(np.sqrt(var[i]))
        up, down = (log_integral(mean[i] + a, float(np.sqrt(var[i])), offsets[i], scales[i], signs[i]) for a in (h, -h))
        tilted = mean[i] + var[i] * (up - down) / (2.0 * h)
        yield _held(line.weights @ line.s, tilted, DERIVATIVE, f"their mean; {_WHY_DERIVATIVE}", "reference")


# means, variances, label: few and many classes, a label far behind, sharp ratios, values known exactly
LARGEST: tuple[tuple[tuple[float, ...], tuple[float, ...], int], ...] = (
    ((0.3, -0.2, 0.5), (0.7, 1.3, 0.4), 0),
    ((0.3, -0.2, 0.5), (0.7, 4e-6, 1.3), 2),
    ((0.3, -0.2, 0.5), (4e-6, 0.9, 1.3), 0),
    ((0.3, -0.2, 0.5), (0.0, 0.7, 1.3), 1),
    ((0.3, -0.2, 0.5), (0.0, 0.4, 1.1), 0),
    ((-20.0, 3.0, 6.0), (0.7, 1.3, 0.9), 0),
    ((0.3, -0.2, 0.5, 0.1, -0.9), (0.7, 1.3, 0.4, 0.6, 2.1), 3),
    ((0.3, -9.0, 0.5, 0.1, 6.0), (0.7, 0.3, 0.4, 0.6, 0.2), 1),
    ((0.3, -0.2, 0.5, 0.1, -0.9), (0.7, 1e-4, 0.4, 0.6, 2.1), 3),
)


def log_largest(mean: Array, var: Array, y: int) -> float:
    """log P(f_y is the largest) by `log_integral`."""
    others = np.arange(mean.size) != y
    ones = np.ones(int(others.sum()))
    return log_integral(float(mean[y]), float(np.sqrt(var[y])), mean[others], np.sqrt(var[others]), ones)


@check(
    "identity/ep/largest",
    paper="villacampa2017",
    question="Are the probability of the largest of several values, its complement and derivatives those of a dense "
    "rule?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments, losing_probability
    from reference.common import _largest

    for means, variances, label in LARGEST:
        mean, var, y = np.array([means]), np.array([variances]), np.array([label])
        C = mean.size
        value = log_largest(mean[0], var[0], label)
        h = 1e-3 * float(np.sqrt(np.sort(var[0])[1]))  # P bends in a mean within √(v_y + v_k)
        shifts = np.array([[log_largest(mean[0] + a * np.eye(C)[k], var[0], label) for a in (h, -h)] for k in range(C)])
        first = (shifts[:, 0] - shifts[:, 1]) / (2.0 * h)
        curvature = (shifts.sum(axis=1) - 2.0 * value) / h**2
        other = np.logaddexp.reduce([log_largest(mean[0], var[0], k) for k in range(C) if k != label])
        own, fast = _largest.largest(mean, var, y), argmax_moments(mean, var, y)
        told = f"label {label} of {C}, variances {variances}"
        # h²/6 of a third derivative, which is below 10 in units of that deviation
        why = f"differences of step 1e-3 of the second narrowest deviation; {told}"
        for left, log_p, g, c in (
            ("reference", own.log_p, own.first, own.curvature),
            ("fast", fast.log_mass, fast.derivative, fast.curvature),
        ):
            yield _held(log_p[0], value, EXACT, f"log P; {told}; {_WHY}", left)
            scale = float(np.abs(first).max())
            yield _held(g[0] / scale, first / scale, 1e-5, f"by means; {why}", left)
            scale = float(np.abs(curvature).max())
            yield _held(c[0] / scale, curvature / scale, 1e-5, f"twice by means; {why}", left)
        wide = 1e-3 * np.where(var[0] > 0.0, var[0], np.nan)  # a point mass has no variance to be narrower
        by_var = np.full(C, np.nan)
        for k in np.flatnonzero(var[0] > 0.0):
            up, down = (log_largest(mean[0], var[0] + a * wide[k] * np.eye(C)[k], label) for a in (1.0, -1.0))
            by_var[k] = (up - down) / (2.0 * wide[k])
        sharp = np.isnan(by_var) | (np.abs(by_var) * wide < 1e-12)  # differences of which rounding is a part
        scale = float(np.abs(np.where(sharp, 0.0, by_var)).max())
        gap = np.where(sharp, 0.0, fast.by_variance[0] - by_var) / scale
        yield _held(gap, np.zeros(C), 1e-5, f"by variances; differences of a thousandth of each; {told}", "fast")
        wanted = own.curvature + own.first**2
        yield _held(
            own.second, wanted, 1e-8, f"P'' over P is that of log P and its derivative squared; {told}", "reference"
        )
        yield _held(_largest.log_largest(mean, var, y)[0], value, EXACT, f"log P alone; {told}", "reference")
        yield _held(
            _largest.log_not_largest(mean, var, y)[0] - other, 0.0, 1e-10, f"its complement; {told}", "reference"
        )
        yield _held(np.log(losing_probability(mean, var, y)[0]) - other, 0.0, 1e-10, f"its complement; {told}", "fast")
