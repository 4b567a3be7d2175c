"""Posteriors whose sites are arbitrary C x C matrices: no structure to use. riihimaki2013, 3.3, full Lambda_i.

With Pi_i = Y_i Y_i', Y_i (C, D), M = Y A^-1 Y', A = I + Y'K Y of size n D. Time (n D)^3, memory C D n^2: this is what
the diagonal Lambda spares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm

from fast.core.linalg import factorise
from fast.core.types import FloatArray
from fast.full_classes.prior import MulticlassPrior


class Dense(NamedTuple):
    """The posterior of all classes."""

    loadings: list[FloatArray]  # C times (n D, n): V_k with M_kl = V_k'V_l
    coupling_chol: FloatArray  # (n D, n D) lower Cholesky factor of A
    weights: FloatArray  # (C, n) b = nu - M K nu
    mean: FloatArray  # (n, C)
    log_det: float  # log|I + K T|


def condition_dense(prior: MulticlassPrior, roots: FloatArray, location: FloatArray) -> Dense:
    """q(f) for sites Pi_i = Y_i Y_i' and nu_i.

    Parameters
    ----------
    prior                  the data
    roots : (n, C, D)      Y_i
    location : (n, C)      nu_i
    """
    n, C, D = roots.shape
    A = np.zeros((n, D, n, D))
    for k in range(C):
        A += np.einsum("ia,ij,jb->iajb", roots[:, k], prior.K(k), roots[:, k], optimize=True)
    square = np.asfortranarray(A.reshape(n * D, n * D))
    square.flat[:: n * D + 1] += 1.0
    factor = factorise(square, "I + Y'K Y", "lower variance or raise jitter")
    loadings = []
    for k in range(C):
        columns = np.zeros((n, D, n), order="C")
        columns[np.arange(n), :, np.arange(n)] = roots[:, k]
        loadings.append(dtrsm(1.0, factor, columns.reshape(n * D, n), side=0, lower=1))
    pulled = [prior.K(k) @ location[:, k] for k in range(C)]
    observed = np.sum([V @ one for V, one in zip(loadings, pulled, strict=True)], axis=0)
    weights = np.array([location[:, k] - loadings[k].T @ observed for k in range(C)])
    mean = np.column_stack([prior.K(k) @ weights[k] for k in range(C)])
    return Dense(loadings, factor, weights, mean, 2.0 * float(np.log(factor.diagonal()).sum()))


def dense_covariance(posterior: Dense, cross: list[FloatArray], prior_var: FloatArray) -> FloatArray:
    """K_** - K_* M K_*' at points with the given cross-covariances: (t, C, C).

    Parameters
    ----------
    posterior                     from `condition_dense`
    cross : list of (t, n)        one a class
    prior_var : (C,) or (t, C)    prior variance at the points
    """
    observed = np.stack([k_star @ V.T for k_star, V in zip(cross, posterior.loadings, strict=True)], axis=1)
    cov: FloatArray = -(observed @ observed.transpose(0, 2, 1))
    index = np.arange(len(cross))
    cov[:, index, index] = np.maximum(cov[:, index, index] + prior_var, 0.0)
    return cov


def dense_gradients(posterior: Dense) -> Iterator[FloatArray]:
    """(b_k b_k' - M_kk)/2 for each class.

    Parameters
    ----------
    posterior    from `condition_dense`
    """
    for b, V in zip(posterior.weights, posterior.loadings, strict=True):
        yield 0.5 * (np.multiply.outer(b, b) - V.T @ V)
