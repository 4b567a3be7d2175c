r"""E[sigma(f)] for Gaussian f, by an alternating series with a proved relative error. wenzel2019 (14).

On each half line the logistic is a geometric series in x = exp(-|f|),

    sigma(f) = sum_{k>=1} (-1)^(k-1) e^{kf}  (f < 0),       sigma(f) = sum_{k>=0} (-1)^k e^{-kf}  (f > 0),

and the Gaussian integral of each term is a scaled error function. With z_k = (mu + k s^2)/s

    T_k(mu) = ∫_{f<0} e^{kf} N(f; mu, s^2) df = exp(k mu + k^2 s^2/2) Phi(-z_k) = exp(-mu^2/2s^2) erfcx(z_k/√2)/2,
    E[sigma(f)] = sum_{k>=1} (-1)^(k-1) T_k(mu) + sum_{k>=0} (-1)^k T_k(-mu).

T_k are the moments of a positive measure on x in [0, 1]. For such sums the Chebyshev weights of Cohen,
Rodriguez Villegas and Zagier (Experimental Mathematics 9, 2000, algorithm 1) with N terms leave a relative error of
at most 2/(3+√8)^N of each sum; both sums are positive, so of the probability. N = 24 gives 9e-19 whatever mu and s
are: what remains is rounding.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx, log_ndtr

from fast.core.types import FloatArray
from fast.ledger import equation

_TERMS = 24
#: Stated error: each probability is right to QUADRATURE_ERROR (1 + |mean|/100), relative.
QUADRATURE_ERROR = 1e-12
_SQRT2 = float(np.sqrt(2.0))
_CHUNK = 2048  # points at a time, so that the (points, terms) tables stay in cache


def _series_weights(terms: int) -> FloatArray:
    """Weights of a_0 .. a_{N-1}, sign included, in sum (-1)^k a_k (algorithm 1 of the source named above)."""
    d = np.cosh(terms * np.arccosh(3.0))
    b, c = -1.0, -d
    weights = np.empty(terms)
    for k in range(terms):
        c = b - c
        weights[k] = c / d
        b *= (k + terms) * (k - terms) / ((k + 0.5) * (k + 1.0))
    return weights


_WEIGHTS = _series_weights(_TERMS)


def log_half_line_terms(mean: FloatArray, scale: FloatArray, first: int) -> FloatArray:
    """log T_k(mean), k = first .. first + 23: (n, 24), falling with k.

    Parameters
    ----------
    mean : (n,)
    scale : (n,)     standard deviation, > 0
    first : int      smallest k
    """
    k = np.arange(first, first + _TERMS, dtype=np.float64)
    ratio = mean / scale
    z = ratio[:, None] + k * scale[:, None]
    # z <= 0: the exponents are at most k |mean|, no cancellation. z > 0: k^2 s^2/2 would cancel against log Phi, so
    # the scaled error function carries them.
    exponent = k * (mean[:, None] + 0.5 * k * (scale**2)[:, None]) + log_ndtr(np.maximum(-z, 0.0))
    scaled = np.log(0.5 * erfcx(np.maximum(z, 0.0) / _SQRT2)) - 0.5 * (ratio**2)[:, None]
    return np.where(z > 0.0, scaled, exponent)


def _log_half_line(mean: FloatArray, scale: FloatArray, first: int) -> FloatArray:
    """log of sum_{k>=first} (-1)^(k-first) T_k(mean), scale > 0."""
    log_terms = log_half_line_terms(mean, scale, first)
    top = log_terms[:, :1]  # T_k falls with k
    return top[:, 0] + np.log(np.exp(log_terms - top) @ _WEIGHTS)


def _log_sigmoid_mean(mean: FloatArray, scale: FloatArray) -> FloatArray:
    # Far out (|mean| above 1e6 standard deviations or so) ratio^2 stays finite for scale >= 1e-150.
    return np.logaddexp(_log_half_line(mean, scale, 1), _log_half_line(-mean, scale, 0))


@equation("wenzel2019", "14")
def log_class_probabilities(latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
    """log P(y = 0), log P(y = 1) for P(y = 1) = E[sigma(f)], f ~ N(latent_mean, latent_var): wenzel2019 (14).

    Each class by its own series, so that their sum being 1 is a check and not an identity. Relative error of each
    probability at most 1e-12 (1 + |latent_mean|/100) for |latent_mean| <= 1e3 and latent_var from 0 to 1e8 (the
    truncation of the series is proved to be below 1e-18, the rest is rounding of exponents). Time O(t) with 96
    scaled error functions a point; memory O(t).

    Parameters
    ----------
    latent_mean : (t,)   finite
    latent_var : (t,)    >= 0; 0 gives the logistic of the mean

    Returns
    -------
    (t, 2)
    """
    out = np.empty((latent_mean.size, 2))
    for start in range(0, latent_mean.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        mean, var = latent_mean[part], latent_var[part]
        # below 1e-30 the variance moves log P by less than 1e-30: the point mass is exact in float64
        wide = var > 1e-30
        scale = np.sqrt(np.where(wide, var, 1.0))
        for column, sign in ((0, -1.0), (1, 1.0)):
            point = -np.logaddexp(0.0, -sign * mean)
            centre = np.where(wide, sign * mean, 0.0)
            out[part, column] = np.where(wide, _log_sigmoid_mean(centre, scale), point)
    return out
