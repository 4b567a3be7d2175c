"""Class probabilities of correlated Gaussians by fixed points of Sobol's sequence. riihimaki2013, section 5.2.

Points are the first 2^r of the sequence of Sobol' (1967) with the directions of Joe and Kuo (2008), unscrambled, each
coordinate moved by half a step of 2^-r: in each dimension they are the midpoints of 2^r equal intervals. The same
points serve every test point, so that probabilities are smooth functions of mean and covariance. An orthant is taken
one condition after the other (Genz 1992), which leaves a bounded integrand over the unit cube in one dimension less.

Largest errors of a probability, for random Gaussians (60 for C <= 6, 24 beyond) of each log variance v, against
scrambled sequences of 2^16 and more points:

              C = 3                    4                        6                        12
    v         1      4      8          1      4      8          1      4      8          1      4      8
    softmax   7e-5   3e-4   1.2e-3     1e-4   7e-4   3e-3       3e-4   3e-3   7e-3       8e-4   6e-3   7e-3
    orthant   1e-5   2e-5   2e-5       1e-4   3e-4   4e-4       3e-4   6e-4   1e-3       2e-3   1e-3   3e-3

Two classes have a midpoint rule of a monotone function, off by at most half a step, 1.2e-4 (found: 1e-5, 3e-5, 4e-5),
and a closed form. Orthants of all classes, each by itself, add up to one within 2e-5 (C = 3), 4e-4 (4), 2e-3 (6) and
6e-3 (12); normalised, none is further from the truth than 7e-4 (6) and 3e-3 (12).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri, ndtri_exp

from fast.core.linalg import cholesky_of_all
from fast.core.results import Differences
from fast.core.types import FloatArray

SOFTMAX_POINTS = 4096
ORTHANT_POINTS = 1024
# entries of all arrays that are alive at once: 16 MiB
_CELLS = 2**21
# below it the distribution function is taken in logarithms: its relative error grows with z^2, and it ends at -38
_TAIL = -30.0


@lru_cache(maxsize=32)
def uniform_points(dimension: int, count: int) -> FloatArray:
    """Points (D, count) in the open unit cube.

    Parameters
    ----------
    dimension : int    D >= 1
    count : int        a power of two
    """
    # scipy.stats takes a second to load: only who predicts pays for it
    from scipy.stats import qmc

    value = qmc.Sobol(dimension, scramble=False).random_base2(count.bit_length() - 1).T + 0.5 / count
    value = np.ascontiguousarray(value)
    value.setflags(write=False)
    return value


@lru_cache(maxsize=32)
def normal_points(dimension: int, count: int) -> FloatArray:
    """The same points (D, count) for N(0, I).

    Parameters
    ----------
    dimension : int    D >= 1
    count : int        a power of two
    """
    result = ndtri(uniform_points(dimension, count))
    result.setflags(write=False)
    return result


def softmax_of_differences(mean: FloatArray, root: FloatArray) -> FloatArray:
    """E[softmax((d, 0))] for d ~ N(mean, root root'): (t, D + 1); rows sum to one up to rounding.

    4096 points in D dimensions; D = 1 is the midpoint rule. Time O(4096 t D^2), memory bounded.

    Parameters
    ----------
    mean : (t, D)       of the classes' values less that of the last
    root : (t, D, D)    lower Cholesky factors of their covariances
    """
    t, D = mean.shape
    x = normal_points(D, SOFTMAX_POINTS)
    out = np.empty((t, D + 1))
    size = max(1, _CELLS // (x.size + 4 * SOFTMAX_POINTS))
    for start in range(0, t, size):
        part = slice(start, start + size)
        d = root[part] @ x
        d += mean[part, :, None]
        top = np.maximum(d.max(axis=1), 0.0)
        d -= top[:, None, :]
        np.exp(d, out=d)
        last = np.exp(-top)
        total = d.sum(axis=1)
        total += last
        out[part, :D] = np.einsum("tdq,tq->td", d, 1.0 / total)
        out[part, D] = (last / total).sum(axis=1)
    return out / SOFTMAX_POINTS


def log_orthant(distribution: Differences) -> FloatArray:
    """log P(all entries of g are positive), g ~ N(mean, cov): (t,), finite far below the smallest double.

    With cov = L L' and g = mean + L x, entry j is positive where -x_j < b_j = (mean_j + sum_{i<j} L_ji x_i)/L_jj: a
    weight Phi(b_j), and -x_j = Phi^-1(u_j Phi(b_j)) for the entries below (Genz 1992). 1024 points u in D - 1
    dimensions; D = 1 is exact. Time O(1024 t D^2), memory bounded.

    Parameters
    ----------
    distribution  of g: (t, D), (t, D, D) positive definite
    """
    t, D = distribution.mean.shape
    L = cholesky_of_all(
        distribution.cov, "covariance of the differences", "raise noise or move the test point off the data"
    )
    index = np.arange(D)
    # rows over their diagonal entries, so that nothing is left to divide by
    scale = L[:, index, index]
    mean, rows = distribution.mean / scale, L / scale[:, :, None]
    if D == 1:
        return np.asarray(log_ndtr(mean[:, 0]), dtype=np.float64)
    u = uniform_points(D - 1, ORTHANT_POINTS)
    out = np.empty(t)
    size = max(1, _CELLS // (u.size + 8 * ORTHANT_POINTS))
    for start in range(0, t, size):
        part = slice(start, start + size)
        out[part] = _sequential(mean[part], rows[part], u)
    return out - np.log(ORTHANT_POINTS)


def _sequential(mean: FloatArray, rows: FloatArray, u: FloatArray) -> FloatArray:
    """Log of the sum over the points of the products of weights."""
    D, count = u.shape
    below = np.empty((mean.shape[0], D, count))  # -x
    log_weight = np.zeros((mean.shape[0], count))
    for j in range(D):
        b = mean[:, j, None] - (rows[:, None, j, :j] @ below[:, :j])[:, 0]
        log_p, below[:, j] = _truncated(b, u[j])
        log_weight += log_p
    log_weight += log_ndtr(mean[:, D, None] - (rows[:, None, D, :D] @ below)[:, 0])
    return np.asarray(logsumexp(log_weight, axis=1), dtype=np.float64)


def _truncated(b: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log Phi(b), and Phi^-1(u Phi(b)): the quantiles u of N(0, 1) below b. b (t, count) or (t, 1), u (count,)."""
    p = ndtr(b)
    if b.min() >= _TAIL:
        return np.log(p), ndtri(u * p)
    log_p = log_ndtr(b)
    return log_p, np.where(b < _TAIL, ndtri_exp(log_p + np.log(u)), ndtri(u * p))
