"""Gaussian posteriors of C latent functions whose sites couple the classes of one datum. riihimaki2013, appendix B.

Sites: precision T_i = diag(pi_i) - pi_i pi_i' / (1'pi_i) on f_i and location nu_i with 1'nu_i = 0. With D = diag pi,

    A_k = I + D_k^1/2 K_k D_k^1/2,   B_k = D_k^1/2 A_k^-1 D_k^1/2,   P = sum_k B_k,   S0_k = (K_k^-1 + D_k)^-1,

everything follows from the C matrices A_k^-1 and one Cholesky factor of P:

- the posterior covariance is diag(S0_k) + G P^-1 G' with G_k = S0_k D_k = D_k^-1/2 (I - A_k^-1) D_k^1/2: a sum of two
  positive parts, with no product of n x n matrices before the triangular solve with P;
- with b0_k = (I + D_k K_k)^-1 nu_k = D_k^1/2 A_k^-1 D_k^-1/2 nu_k and 1'nu_i = 0, the weights b = nu - T mu are
  b = b0 - B R P^-1 R'b0, and mu_k = K_k b_k. No K is inverted.

Scaling a row of D scales rows of A_k^-1 - I exactly, so that quotients by D^1/2 keep their digits however small pi is.
Eigenvalues of A_k are at least 1; those of P lie between 1/(1 + |K|) (largest pi_ik of each datum 1) and C.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fast.core.linalg import cholesky, factorise, factorise_in_place, invert_in_place, solve_rows, solve_vector
from fast.core.types import FloatArray
from fast.full_classes.prior import MulticlassPrior
from fast.ledger import equation

_FLOOR = 1e-200  # of a site precision: below it the site says nothing, and its root can still be divided by
_TILE = 256
_MIRRORED = 64  # rows of a strip that `_mirror` copies: few enough that its two triangles cost nothing
_CELLS = 2**22  # numbers in the rows of all classes that are solved for at a time


class ClassFactor(NamedTuple):
    """One class with its diagonal sites."""

    root: FloatArray  # (n,) D^1/2
    inverse: FloatArray  # (n, n) A^-1, symmetric
    cond_var: FloatArray  # (n,) diagonal of S0 = (K^-1 + D)^-1
    log_det: float  # log|A|


class Coupled(NamedTuple):
    """The posterior of all classes."""

    factors: list[ClassFactor]
    coupling_chol: FloatArray | None  # (n, n); None: independent classes
    weights: FloatArray  # (C, n) b = nu - T mu
    mean: FloatArray  # (n, C) mu
    log_det: float  # log|I + K T|


def _mirror(matrix: FloatArray) -> None:
    """Copy the lower triangle of a square matrix to its upper one, strip by strip."""
    n = len(matrix)
    for start in range(0, n, _MIRRORED):
        stop = min(start + _MIRRORED, n)
        tile = matrix[start:stop, start:stop]
        tile[:] = np.tril(tile) + np.tril(tile, -1).T
        for below in range(stop, n, _TILE):
            matrix[start:stop, below : below + _TILE] = matrix[below : below + _TILE, start:stop].T


def class_factor(K: FloatArray, precision: FloatArray) -> ClassFactor:
    """A^-1, diag S0 and log|A| of A = I + D^1/2 K D^1/2. Calls dpotrf, dtrtri and dlauum: time n^3, memory n^2.

    diag S0 is (1 - A^-1_ii)/D_ii where D_ii K_ii > 1 and sum_j K_ij D_j^1/2 A^-1_ji D_ii^-1/2 elsewhere: absolute
    rounding is eps min(1/D_ii, K_ii) either way.

    Parameters
    ----------
    K : (n, n)           prior covariance, positive semi-definite
    precision : (n,)     D >= 0

    Raises
    ------
    NotPositiveDefiniteError    K is so far from positive semi-definite that A has no Cholesky factor
    """
    n = precision.size
    D = np.maximum(precision, _FLOOR)
    root = np.sqrt(D)

    def matrix() -> FloatArray:
        A = np.multiply(K, root)
        A *= root[:, None]
        A.flat[:: n + 1] += 1.0
        return A

    factor = factorise_in_place(matrix().T)
    if factor is None:
        factor = cholesky(matrix().T, "I + D^1/2 K D^1/2", "lower variance or raise jitter")
    log_det = 2.0 * float(np.log(factor.diagonal()).sum())
    inverse = invert_in_place(factor)
    _mirror(inverse)
    diagonal, prior_var = inverse.diagonal(), K.diagonal()
    cond_var = (1.0 - diagonal) / D
    weak = np.flatnonzero(D * prior_var <= 1.0)
    for start in range(0, weak.size, _TILE):
        some = weak[start : start + _TILE]
        cond_var[some] = ((K[some] * inverse[some]) @ root) / root[some]
    return ClassFactor(root, inverse.T, np.maximum(cond_var, 0.0), log_det)


def _smooth(factor: ClassFactor, values: FloatArray) -> FloatArray:
    """B_k values = D^1/2 A^-1 D^1/2 values for (n,)."""
    return factor.root * (factor.inverse @ (factor.root * values))


def _first_weights(factor: ClassFactor, location: FloatArray) -> FloatArray:
    return factor.root * (factor.inverse @ (location / factor.root))


@equation("riihimaki2013", "B-M")
def coupling_factor(factors: list[ClassFactor]) -> FloatArray:
    """Lower Cholesky factor of P = sum_k B_k, with which M = B - B R P^-1 R'B: riihimaki2013, appendix B.

    Time O(C n^2 + n^3/3).

    Parameters
    ----------
    factors    one a class
    """
    n = factors[0].root.size
    P = np.zeros((n, n))
    for one in factors:
        part = np.multiply(one.inverse, one.root)
        part *= one.root[:, None]
        P += part
    return factorise(P.T, "P = sum_k B_k", "lower variance or raise jitter")


@equation("riihimaki2013", "B-det")
def log_determinant(factors: list[ClassFactor], coupling_chol: FloatArray, total_precision: FloatArray) -> float:
    """log|I + K T| = log|A| - log|R'DR| + log|P|: riihimaki2013, appendix B. Time O(n).

    Parameters
    ----------
    factors                     one a class
    coupling_chol : (n, n)             lower Cholesky factor of P
    total_precision : (n,)      1'pi_i
    """
    log_A = sum(one.log_det for one in factors)
    return float(log_A - np.log(total_precision).sum() + 2.0 * np.log(coupling_chol.diagonal()).sum())


def weights_of(factors: list[ClassFactor], coupling_chol: FloatArray | None, location: FloatArray) -> FloatArray:
    """(I + T K)^-1 location, (C, n), for a location whose entries sum to zero over the classes of each datum.

    Independent classes (coupling_chol None): any location. Time C n^2.

    Parameters
    ----------
    factors                 one a class
    coupling_chol : (n, n)         lower Cholesky factor of P, or None
    location : (n, C)
    """
    first = np.array([_first_weights(one, location[:, k]) for k, one in enumerate(factors)])
    if coupling_chol is None:
        return first
    whitened = solve_vector(coupling_chol, first.sum(axis=0))
    common = solve_vector(coupling_chol, whitened, transposed=True)  # P^-1 R'b0
    return first - np.array([_smooth(one, common) for one in factors])


def _posterior(
    prior: MulticlassPrior,
    factors: list[ClassFactor],
    coupling_chol: FloatArray | None,
    location: FloatArray,
    log_det: float,
) -> Coupled:
    weights = weights_of(factors, coupling_chol, location)
    mean = np.column_stack([prior.K(k) @ b for k, b in enumerate(weights)])
    return Coupled(factors, coupling_chol, weights, mean, log_det)


@equation("riihimaki2013", "4", "16")
def condition(prior: MulticlassPrior, precision: FloatArray, location: FloatArray) -> Coupled:
    """q(f) given the sites: riihimaki2013 (4), (16), appendix B. Time (4/3) C n^3 at most, memory C n^2.

    Parameters
    ----------
    prior                       the data
    precision : (n, C)          pi_i >= 0; T_i = diag(pi_i) - pi_i pi_i' / (1'pi_i)
    location : (n, C)           nu_i, each summing to zero
    """
    factors = [class_factor(prior.K(k), precision[:, k]) for k in range(prior.n_classes)]
    coupling_chol = coupling_factor(factors)
    log_det = log_determinant(factors, coupling_chol, precision.sum(axis=1))
    return _posterior(prior, factors, coupling_chol, location, log_det)


def condition_independent(prior: MulticlassPrior, precision: FloatArray, location: FloatArray) -> Coupled:
    """q(f) with T diagonal: the classes stay independent. Time C n^3, memory C n^2.

    Parameters
    ----------
    prior                       the data
    precision, location : (n, C)    of the sites; precision >= 0
    """
    factors = [class_factor(prior.K(k), precision[:, k]) for k in range(prior.n_classes)]
    return _posterior(prior, factors, None, location, float(sum(one.log_det for one in factors)))


@equation("riihimaki2013", "B-marginals")
def marginal_covariances(posterior: Coupled) -> FloatArray:
    """Sigma_i of all data, (n, C, C), from C solves with the factor of P: riihimaki2013, appendix B.

    Row i of G_k is solved for in blocks of rows. Time C n^3 + C^2 n^2, memory a block. Independent classes: diagonal.

    Parameters
    ----------
    posterior    from `condition` or `condition_independent`
    """
    factors = posterior.factors
    n, C = factors[0].root.size, len(factors)
    cov = np.zeros((n, C, C))
    cov[:, np.arange(C), np.arange(C)] = np.column_stack([one.cond_var for one in factors])
    if posterior.coupling_chol is None:
        return cov
    step = max(16, _CELLS // (C * n))
    for start in range(0, n, step):
        stop = min(start + step, n)
        rows = np.empty((C, stop - start, n))
        for k, one in enumerate(factors):
            np.multiply(one.inverse[start:stop], one.root, out=rows[k])
            rows[k] /= -one.root[start:stop, None]
            rows[k][np.arange(stop - start), np.arange(start, stop)] = (one.cond_var * one.root**2)[start:stop]
        solved = solve_rows(posterior.coupling_chol, rows.reshape(-1, n)).reshape(C, stop - start, n)
        by_datum = solved.transpose(1, 0, 2)
        cov[start:stop] += by_datum @ by_datum.transpose(0, 2, 1)
    return cov


class LatentDistribution(NamedTuple):
    """Mean and covariance of f at test points."""

    mean: FloatArray  # (t, C)
    cov: FloatArray  # (t, C, C), noise included


@equation("riihimaki2013", "26")
def predictive_mean(weights: FloatArray, cross: list[FloatArray]) -> FloatArray:
    """E[f*] = K_* b with b = nu - M K nu: (t, C): riihimaki2013 (26). Time O(C t n).

    Parameters
    ----------
    weights : (C, n)              b
    cross : list of (t, n)        cross-covariances, one a class
    """
    return np.column_stack([np.einsum("tn,n->t", k_star, b) for k_star, b in zip(cross, weights, strict=True)])


@equation("riihimaki2013", "27")
def predictive_cov(posterior: Coupled, cross: list[FloatArray], prior_var: FloatArray) -> FloatArray:
    """Cov[f*] = K_** - K_* M K_*', (t, C, C): riihimaki2013 (27). Time 3 C t n^2, memory C t n.

    Parameters
    ----------
    posterior                     from `condition` or `condition_independent`
    cross : list of (t, n)        cross-covariances, one a class
    prior_var : (C,)              prior variance at a test point, noise included
    """
    t, C = cross[0].shape[0], len(cross)
    cov = np.zeros((t, C, C))
    smoothed = np.empty((C, t, cross[0].shape[1]))
    for k, one in enumerate(posterior.factors):
        np.matmul(cross[k] * one.root, one.inverse, out=smoothed[k])
        smoothed[k] *= one.root  # rows B_k k_*
        explained = np.einsum("tn,tn->t", smoothed[k], cross[k])
        cov[:, k, k] = np.maximum(prior_var[k] - explained, 0.0)
    if posterior.coupling_chol is not None:
        solved = solve_rows(posterior.coupling_chol, smoothed.reshape(C * t, -1)).reshape(smoothed.shape)
        by_point = solved.transpose(1, 0, 2)
        cov += by_point @ by_point.transpose(0, 2, 1)
    return cov


def m_blocks(posterior: Coupled) -> Iterator[FloatArray]:
    """Diagonal blocks M_kk = B_k - B_k P^-1 B_k of M = T (I + K T)^-1, one after the other. Time C n^3 in each half.

    Parameters
    ----------
    posterior    from `condition` or `condition_independent`
    """
    for one in posterior.factors:
        block = np.multiply(one.inverse, one.root)
        block *= one.root[:, None]
        if posterior.coupling_chol is not None:
            whitened = solve_rows(posterior.coupling_chol, block.copy())
            block -= whitened @ whitened.T
        yield block


def evidence_gradients(prior: MulticlassPrior, posterior: Coupled) -> Iterator[FloatArray]:
    """d/dK_k of nu'mu/2 - log|I + K T|/2 at held sites, (b_k b_k' - M_kk)/2 for each class.

    Parameters
    ----------
    prior        the data
    posterior    from `condition` or `condition_independent`
    """
    for b, block in zip(posterior.weights, m_blocks(posterior), strict=True):
        gradient = np.multiply.outer(b, b)
        gradient -= block
        gradient *= 0.5
        yield gradient
