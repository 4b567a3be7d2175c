"""Latent moments at test points by triangular solves, class probabilities there by link. wenzel2019 (13), (14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fast.core.blocks import block_edges, in_tiles
from fast.core.checks import shown
from fast.core.inputs import Hyper, finite_rows
from fast.core.linalg import solve_rows, squared_norms
from fast.core.types import FloatArray
from fast.kernel.kernels import matern, se_ard
from fast.ledger import equation
from fast.likelihood.probit import class_probabilities
from fast.likelihood.quadrature import QUADRATURE_ERROR, log_class_probabilities
from fast.one_latent.prior import whiten


class Prediction(NamedTuple):
    """Predictions at t test points."""

    latent_mean: FloatArray  # (t,)
    latent_var: FloatArray  # (t,), noise included
    probabilities: FloatArray  # (t, 2), rows sum to 1
    probability_mass: FloatArray  # (t,), their sum before normalising
    quadrature_error: float  # stated bound on the error of each probability, relative and absolute


@dataclass(frozen=True, eq=False)
class ProbitPrediction:
    """Predictions at t test points with the probit link, whose probabilities are in closed form."""

    latent_mean: FloatArray  # (t,)
    latent_var: FloatArray  # (t,), noise included
    probabilities: FloatArray  # (t, 2), rows sum to 1
    probability_mass: FloatArray  # (t,), their sum before normalising


class LatentMoments(NamedTuple):
    """Mean and variance of f at test points."""

    mean: FloatArray  # (t,)
    var: FloatArray  # (t,), noise included


@equation("wenzel2019", "13")
def sparse_latent(
    X_test: FloatArray,
    Z: FloatArray,
    hyper: Hyper,
    chol_K: FloatArray,
    factor: FloatArray,
    weights: FloatArray,
    block_size: int,
) -> LatentMoments:
    """Mean a'p, variance k - |a|^2 + |R^-1 a|^2 with a = L^-1 k_Z*: wenzel2019 (13). Time O(t m (m + d)).

    Parameters
    ----------
    X_test : (t, d)
    Z : (m, d)
    hyper              parameters of the prior
    chol_K : (m, m)    L
    factor : (m, m)    R
    weights : (m,)     p, mean of v
    block_size : int   test points at a time
    """
    mean, var = np.empty(X_test.shape[0]), np.empty(X_test.shape[0])
    for start, stop in block_edges(X_test.shape[0], block_size):
        block = finite_rows("X_test", X_test[start:stop], start)
        rows, cond_var = whiten(block, Z, chol_K, hyper.variance, hyper.lengthscales, hyper.noise, hyper.smoothness)
        mean[start:stop] = np.einsum("bm,m->b", rows, weights)
        var[start:stop] = cond_var + squared_norms(solve_rows(factor, in_tiles(rows))[: stop - start])
    return LatentMoments(mean, var)


@equation("wenzel2019", "13")
def full_latent(
    X_test: FloatArray,
    X: FloatArray,
    hyper: Hyper,
    theta: FloatArray,
    factor: FloatArray,
    weights: FloatArray,
    block_size: int,
) -> LatentMoments:
    """Mean k_*X alpha, variance k - |R^-1 Theta^1/2 k_X*|^2: wenzel2019 (13) with Z = X. Time O(t n (n + d)).

    Parameters
    ----------
    X_test : (t, d)
    X : (n, d)         training inputs
    hyper              parameters of the prior
    theta : (n,)       E[omega]
    factor : (n, n)    R
    weights : (n,)     alpha
    block_size : int   test points at a time
    """
    root = np.sqrt(theta)
    mean, var = np.empty(X_test.shape[0]), np.empty(X_test.shape[0])
    for start, stop in block_edges(X_test.shape[0], block_size):
        block = finite_rows("X_test", X_test[start:stop], start)
        if hyper.smoothness is None:
            cross = se_ard(block, X, hyper.variance, hyper.lengthscales)
        else:
            cross = matern(block, X, hyper.variance, hyper.lengthscales, hyper.smoothness)
        mean[start:stop] = np.einsum("bm,m->b", cross, weights)
        explained = squared_norms(solve_rows(factor, in_tiles(cross * root))[: stop - start])
        var[start:stop] = np.maximum(hyper.variance - explained, 0.0) + hyper.noise
    return LatentMoments(mean, var)


def logit_prediction(latent_mean: FloatArray, latent_var: FloatArray) -> Prediction:
    """Class probabilities (14) of wenzel2019 at latent moments. Time O(t).

    Parameters
    ----------
    latent_mean : (t,)
    latent_var : (t,)

    Raises
    ------
    ValueError    class probabilities miss 1 by more than the stated quadrature error
    """
    probabilities = np.exp(log_class_probabilities(latent_mean, latent_var))
    mass = probabilities.sum(axis=1)
    error = QUADRATURE_ERROR * (1.0 + float(np.abs(latent_mean).max(initial=0.0)) / 100.0)
    if (np.abs(mass - 1.0) > 2.0 * error).any():
        raise ValueError(
            f"probability_mass: found {shown(mass[np.argmax(np.abs(mass - 1.0))])}, expected 1 within {error:.1g}"
        )
    return Prediction(latent_mean, latent_var, probabilities / mass[:, None], mass, error)


def probit_prediction(latent_mean: FloatArray, latent_var: FloatArray) -> ProbitPrediction:
    """P(y = 1) = Phi(m / sqrt(1 + v)) at latent moments. Time O(t).

    Parameters
    ----------
    latent_mean, latent_var : (t,)
    """
    probabilities = class_probabilities(latent_mean, latent_var)
    mass = probabilities.sum(axis=1)
    return ProbitPrediction(latent_mean, latent_var, probabilities / mass[:, None], mass)
