r"""E[log sigma(y f)] for Gaussian f and its derivatives, by alternating series with a proved error. izmailov2016, 3.2.

With z = y f ~ N(a, s^2) and x = e^-|z|,

    -log sigma(z) = max(-z, 0) + sum_k (-1)^(k-1) x^k / k,     sigma(-z) = 1{z < 0} -+ sum_k (-1)^(k-1) x^k (z <> 0),
    sigma(z) sigma(-z) = sum_k (-1)^(k-1) k x^k,

k >= 1. On each half line the expectations of x^k are the scaled error functions T_k of `fast.likelihood.quadrature`,
and T_k / k, T_k are moments of positive measures on [0, 1]: 24 terms with Chebyshev weights leave 2 / (3 + sqrt 8)^24 =
9e-19 of each sum (Cohen, Rodriguez Villegas and Zagier 2000). k T_k are moments of a derivative, which costs a factor
24^2 at most. No sum cancels, so the errors are relative; what remains is rounding. In place of the Gauss-Hermite rule
of the paper, whose error grows with s.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from fast.core.types import FloatArray
from fast.ledger import equation
from fast.likelihood.probit import LinkMoments, hazard
from fast.likelihood.quadratic_bounds import logistic
from fast.likelihood.quadrature import _TERMS, _WEIGHTS, log_half_line_terms

_CHUNK = 2048
_TINY = 1e-30  # below this variance a Gaussian is a point mass
_ORDER = np.arange(1, _TERMS + 1, dtype=np.float64)
_TABLE = np.stack([_WEIGHTS / _ORDER, _WEIGHTS, _WEIGHTS * _ORDER], axis=1)


def _half_line(mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Sums over z < 0 of (-1)^(k-1) T_k / k, T_k, k T_k: (n, 3)."""
    log_terms = log_half_line_terms(mean, scale, 1)
    top = log_terms[:, :1]
    with np.errstate(under="ignore"):
        sums: FloatArray = np.exp(log_terms - top) @ _TABLE
        sums *= np.exp(top)
    return sums


@equation("izmailov2016", "u3.2-quadrature")
def expected_log_logit(y_sign: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> LinkMoments:
    """E[log sigma(y f)] for f ~ N(m, v), and its first and second derivative in m (twice the derivative in v).

    Relative error 1e-12 (1 + |m|/100) for |m| <= 1e3, 0 <= v <= 1e8, while the value exceeds 1e-280; the standing
    test has mpmath. Time about a hundred scaled error functions a point, memory O(n).

    Parameters
    ----------
    y_sign : (n,)         -1, +1
    latent_mean : (n,)    m, finite
    latent_var : (n,)     v >= 0

    Returns
    -------
    value, derivative, curvature (n,); the curvature is in [-1/4, 0]
    """
    out = LinkMoments(*(np.empty(latent_mean.size) for _ in range(3)))
    for start in range(0, latent_mean.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        centre, var = y_sign[part] * latent_mean[part], latent_var[part]
        wide = var > _TINY
        scale = np.sqrt(np.where(wide, var, 1.0))
        a = np.where(wide, centre, 0.0)
        left, right = _half_line(a, scale), _half_line(-a, scale)
        h = a / scale
        below = ndtr(-h)
        # E max(-z, 0) = s (phi(h) - h Phi(-h)) = s Phi(-h) (r + z at z = -h)
        value = -(scale * below * hazard(-h).excess + left[:, 0] + right[:, 0])
        derivative = below - left[:, 1] + right[:, 1]
        curvature = -(left[:, 2] + right[:, 2])
        if not wide.all():
            point = logistic(np.ones(centre.size), centre)
            value = np.where(wide, value, point.value)
            derivative = np.where(wide, derivative, point.derivative)
            curvature = np.where(wide, curvature, point.curvature)
        out.value[part], out.derivative[part], out.curvature[part] = value, y_sign[part] * derivative, curvature
    return out
