r"""Powers of the robust likelihood under independent Gaussian latent values, stable from alpha = 0 to 1.

villacampa2017 (13): L = 1 - eps + eps/C =: b where the label's latent value is the largest, eps/C =: a elsewhere. With
P of `fast.likelihood.largest`,

    log E[L^alpha] = log(a^alpha (1 - P) + b^alpha P)
                   = log1p((1 - P) expm1(alpha log a) + P expm1(alpha log b)).

Both terms in the second form are negative, so that it keeps its relative accuracy as alpha -> 0, and so does
the quotient F = log E[L^alpha]/alpha, whose limit is E[log L] = (1 - P) log a + P log b: the data term of the
variational bound (15). Where the sum nears -1 (small P and eps) the first form is taken, in logarithms.
With phi = dF/d log P = P (b^alpha - a^alpha)/(alpha E[L^alpha]) in (0, 1/alpha], g_j and h_j those of log P,

    dF/dm_j = phi g_j,   dF/dv_j = phi (g_j^2 + h_j)/2,   d^2F/dm_j^2 = phi (h_j + (1 - alpha phi) g_j^2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fast.core.checks import shown
from fast.core.results import ScalarMoments
from fast.core.types import FloatArray, IntArray
from fast.ledger import equation
from fast.likelihood.largest import ArgmaxMoments, argmax_moments, losing_probability

# alpha and 1 - P below which 1 - P is summed over the other classes
_MAGNIFIED, _NEARLY_SURE = 1e-3, 1e-2


class PowerMoments(NamedTuple):
    """F = log E[L^alpha]/alpha and its derivatives; times alpha they are those of log E[L^alpha]."""

    value: FloatArray  # (n,) F; E[log L] at alpha = 0
    derivative: FloatArray  # (n, C) dF/dm_j
    curvature: FloatArray  # (n, C) d^2F/dm_j^2
    by_variance: FloatArray  # (n, C) dF/dv_j
    log_norm: FloatArray  # (n,) log E[L^alpha]


_TINY = float(np.finfo(np.float64).tiny)


def _logs(epsilon: float, n_classes: int) -> tuple[float, float]:
    """log a, log b."""
    share = epsilon / n_classes
    high = float(np.log1p(share - epsilon))
    if share >= _TINY:
        return float(np.log(share)), high
    # the quotient may be zero where epsilon is not
    return (float(np.log(epsilon) - np.log(n_classes)) if epsilon > 0.0 else -np.inf), high


@equation("villacampa2017", "13")
def robust_power(
    largest: ArgmaxMoments, alpha: float, epsilon: float, n_classes: int, rest: FloatArray | None = None
) -> PowerMoments:
    """log E[L^alpha] and its quotient by alpha, with derivatives: powers of villacampa2017 (13). Time O(n C).

    The error of the quotient is 1e-12 of it, and what 1 - P leaves open times (1 - (a/b)^alpha)/alpha, at most 1/alpha
    and log b/a: where 1 - P is taken from log P, 1e-16.

    Parameters
    ----------
    largest            `fast.likelihood.largest.argmax_moments` of the same rows; without derivatives, none are returned
    alpha : float      in [0, 1]
    epsilon : float    in [0, 1]; > 0 if alpha is 0
    n_classes : int    C >= 2
    rest : (n,)        1 - P where it is known better than from log P

    Raises
    ------
    ValueError    alpha or epsilon out of range, or both 0: E[log L] is -inf
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha: found {shown(alpha)}, expected a number from 0 to 1")
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected a number from 0 to 1")
    if alpha == 0.0 and epsilon == 0.0:
        raise ValueError("epsilon: found 0.0, expected > 0 at alpha = 0: the expected logarithm is -inf")
    low, high = _logs(epsilon, n_classes)
    log_P = np.minimum(largest.log_mass, 0.0)
    P, Q = np.exp(log_P), -np.expm1(log_P) if rest is None else rest
    if alpha == 0.0:
        value = Q * low + P * high
        log_norm = np.zeros_like(value)
        weight = P * (high - low)
    else:
        summed = Q * np.expm1(alpha * low) + P * np.expm1(alpha * high)
        with np.errstate(divide="ignore"):  # log 0 of a sure label
            log_norm = np.where(
                summed > -0.5,
                np.log1p(np.maximum(summed, -0.5)),  # the sum may round to less than -1
                np.logaddexp(alpha * low + np.log(Q), alpha * high + log_P),
            )
        value = log_norm / alpha
        # (b^alpha - a^alpha)/alpha = b^alpha (1 - (a/b)^alpha)/alpha; log P = -inf with eps = 0 has no derivative
        # to weigh
        with np.errstate(invalid="ignore"):
            share = np.exp(log_P + alpha * high - log_norm)
        weight = np.where(np.isnan(share), 1.0, share) * (-np.expm1(alpha * (low - high)) / alpha)
    phi = weight[:, None]
    squared = largest.derivative**2
    return PowerMoments(
        value,
        phi * largest.derivative,
        phi * (largest.curvature + (1.0 - alpha * phi) * squared),
        0.5 * phi * (largest.curvature + squared),
        log_norm,
    )


@equation("villacampa2017", "13")
def robust_probabilities(raw: FloatArray, epsilon: float) -> FloatArray:
    """Class probabilities under the robust likelihood, (1 - eps) P_k + eps/C: (t, C). villacampa2017 (13).

    Parameters
    ----------
    raw : (t, C)       probabilities that each latent value is the largest
    epsilon : float    probability of a random label
    """
    return (1.0 - epsilon) * raw + epsilon / raw.shape[1]


def log1p_quotient(t: float, x: np.ndarray) -> FloatArray:
    """log(1 + t x)/t, and x at t = 0; relative accuracy of log1p for every t.

    Parameters
    ----------
    t : float    >= 0
    x : array    t x > -1
    """
    # below the smallest normal number t x would lose digits; there log(1 + t x)/t is x to the last one
    return np.log1p(t * x) / t if t * (1.0 + np.abs(x).max(initial=0.0)) > 1e-200 else x.copy()


@equation("villacampa2020", "u27-power-expectation")
@equation("villacampa2017", "15")
def powered_labels(y: IntArray, moments: ScalarMoments, alpha: float, epsilon: float) -> PowerMoments:
    """F_i = log E[p(y_i | f_i)^alpha]/alpha and its derivatives: villacampa2020, section 3.1. Time O(b C nodes).

    At alpha = 0 it is E[log p(y_i | f_i)], a term of villacampa2017 (15). With epsilon = 0 a small alpha magnifies what
    log P leaves open of 1 - P, which is then summed over the other classes.

    Parameters
    ----------
    y : (b,)           labels
    moments            of the latent values, (b, C)
    alpha : float      in [0, 1]
    epsilon : float    in [0, 1)
    """
    result = argmax_moments(*moments, y)
    rest = None
    if epsilon == 0.0 and 0.0 < alpha < _MAGNIFIED:
        rest = -np.expm1(np.minimum(result.log_mass, 0.0))
        near = rest < _NEARLY_SURE
        rest[near] = losing_probability(moments.mean[near], moments.var[near], y[near])
    return robust_power(result, alpha, epsilon, moments.mean.shape[1], rest)
