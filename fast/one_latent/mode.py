"""The mode of log p(y|f) - f'K^-1 f/2 for a full GP: damped Newton steps in the weights a, f = K a, K never factorised.

With g, W the gradient and the negative second derivatives of the log likelihood at f, S = W^1/2, B = I + S K S = R R'
and r = g - a, what is left to the mode is

    da = r - S B^-1 S K r,   df = K da = (I + K W)^-1 (K g - f).

r vanishes at the mode, so that what a step rounds vanishes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fast.core.linalg import factorise, solve_vector
from fast.core.types import FloatArray
from fast.likelihood.quadratic_bounds import Expansion, LogLikelihood
from fast.one_latent.prior import FullPrior

_SHORTEST = 2.0**-40  # of a step
_ROUNDING = 64.0 * np.finfo(np.float64).eps


class NewtonProgress(NamedTuple):
    """What a callback is given after a Newton step."""

    iteration: int
    log_joint: float
    residual: float


class Mode(NamedTuple):
    """Where Newton's method stopped."""

    latent: FloatArray  # (n,) f
    weights: FloatArray  # (n,) a, f = K a
    terms: Expansion  # of the log likelihood at f
    factor: FloatArray  # (n, n) R at f
    trace: FloatArray  # log joint at f = 0 or the start, and after every step
    residual: float  # the step that is left, over max(1, max |f|)
    converged: bool
    iterations: int


def newton_factor(prior: FullPrior, precision: FloatArray) -> FloatArray:
    """R = chol(I + W^1/2 K W^1/2). Time n^3/3.

    Parameters
    ----------
    prior                 the training data
    precision : (n,)      W >= 0
    """
    root = np.sqrt(precision)
    B = prior.K * root
    B *= root[:, None]
    B.flat[:: root.size + 1] += 1.0
    return factorise(B.T, "B = I + W^1/2 K W^1/2", "lower variance")


def damped(factor: FloatArray, precision: FloatArray, rhs: FloatArray) -> FloatArray:
    """S B^-1 S rhs, which is (K + W^-1)^-1 rhs. Time 2 n^2.

    Parameters
    ----------
    factor : (n, n)       R
    precision : (n,)      W
    rhs : (n,)
    """
    root = np.sqrt(precision)
    return root * solve_vector(factor, solve_vector(factor, root * rhs), transposed=True)


def find_mode(
    prior: FullPrior,
    log_likelihood: LogLikelihood,
    *,
    tolerance: float,
    max_iterations: int,
    start: FloatArray | None = None,
    callback: Callable[[NewtonProgress], object] | None = None,
) -> Mode:
    """Newton's method, steps halved while the log joint falls. Time n^3/3 a step and O(n^2) a halving.

    Parameters
    ----------
    prior                    the training data
    log_likelihood           (y_sign, f) -> Expansion; log-concave
    tolerance : float        on the step that is left, max |df| / max(1, max |f|)
    max_iterations : int     Newton steps
    start : (n,)             weights to start from; None, or weights with a lower log joint than f = 0: zero
    callback                 given a NewtonProgress after every step
    """
    y, K = prior.y_sign, prior.K

    def joint(weights: FloatArray) -> tuple[FloatArray, Expansion, float]:
        latent = K @ weights
        terms = log_likelihood(y, latent)
        return latent, terms, float(terms.value.sum()) - 0.5 * float(weights @ latent)

    weights = np.zeros(y.size)
    latent, terms, here = joint(weights)
    if start is not None:
        there = joint(start)
        if there[2] > here:
            weights, (latent, terms, here) = start.copy(), there
    trace = [here]
    while True:
        precision = -terms.curvature
        factor = newton_factor(prior, precision)
        rest = terms.derivative - weights
        step = rest - damped(factor, precision, K @ rest)
        residual = float(np.abs(K @ step).max()) / max(1.0, float(np.abs(latent).max()))
        taken = len(trace) - 1
        if callback is not None and taken:
            callback(NewtonProgress(taken, here, residual))
        if residual <= tolerance or taken == max_iterations:
            return Mode(latent, weights, terms, factor, np.array(trace), residual, residual <= tolerance, taken)
        share, lowest = 1.0, here - _ROUNDING * (y.size + abs(here))
        while True:
            moved = weights + share * step
            latent, terms, value = joint(moved)
            if value >= lowest or share < _SHORTEST:
                break
            share *= 0.5
        weights, here = moved, value
        trace.append(here)
