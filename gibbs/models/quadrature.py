"""E[σ(f)] under a Gaussian, many at a time: the class probability of wenzel2019 (14)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr

from gibbs.core.errors import Array, _reachable

# Absolute error of `logistic_normal_mean`, measured over means to 60 and standard deviations 1e-6 to 1e3.
QUADRATURE_ERROR = 1e-10

_SWITCH = 1.6  # standard deviation where the two rules change over: both err below 1e-11 there
# Rule 1, trapezoid in x with f = mean + sd · x. σ has its poles at distance π/sd from the real axis, so the error is
# about exp(-2π²/(sd · step)); the range leaves out a Gaussian mass of 1e-15.
_STEP_X = 0.45
_X = _STEP_X * np.arange(-18, 19)
_WEIGHT_X = np.exp(-0.5 * _X * _X)
_WEIGHT_X /= _WEIGHT_X.sum()  # makes constants exact
# Rule 2, E[σ(f)] = P(l < f) with l standard logistic, trapezoid in l: the poles of the logistic density are at
# distance π, the error is about exp(-2π²/step) exp(π²/(2 sd²)); the range leaves out a mass of 1e-12.
_STEP_L = 0.7
_L = _STEP_L * np.arange(-40, 41)
_WEIGHT_L = expit(_L) * expit(-_L)
_WEIGHT_L /= _WEIGHT_L.sum()
_ROWS = 4096  # Gaussians at a time


def logistic_normal_mean(latent_mean: ArrayLike, latent_var: ArrayLike) -> Array:
    """E[1/(1 + exp(-f))] for f ~ N(latent_mean, latent_var), wenzel2019 (14), to an absolute QUADRATURE_ERROR.

    latent_mean, latent_var: any broadcastable shapes, latent_var >= 0. Returns values in [0, 1] of that shape.
    Raises ValueError for entries that are not finite or a negative variance.
    """
    mean, var = _reachable("latent_mean", latent_mean, None), _reachable("latent_var", latent_var, None)
    if np.any(var < 0.0):
        raise ValueError(f"latent_var: found {var.min():.6g}, expected entries >= 0")
    try:
        mean, var = np.broadcast_arrays(mean, var)
    except ValueError:
        raise ValueError(f"latent_var: found shape {var.shape}, expected one that goes with {mean.shape}") from None
    centre, sd = mean.ravel(), np.sqrt(var).ravel()
    out = np.empty(centre.size)
    narrow = np.flatnonzero(sd <= _SWITCH)
    wide = np.flatnonzero(sd > _SWITCH)
    for start in range(0, narrow.size, _ROWS):
        rows = narrow[start : start + _ROWS]
        out[rows] = expit(centre[rows, None] + sd[rows, None] * _X) @ _WEIGHT_X
    for start in range(0, wide.size, _ROWS):
        rows = wide[start : start + _ROWS]
        out[rows] = ndtr((centre[rows, None] - _L) / sd[rows, None]) @ _WEIGHT_L
    return np.clip(out, 0.0, 1.0).reshape(mean.shape)
