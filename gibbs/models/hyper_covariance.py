"""Covariances of latent values as functions of the kernel parameters, many parameter vectors at a time, and the
gradient of log N(v; 0, S) in their logarithms.

A block is a latent function, or all of them where they share their parameters. Parameters are (r, B, 2 + d): variance,
lengthscales, noise. Everything is dense, (r, B, n, n), for FITC as well: sizes are those of a truth, n in the hundreds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gibbs.core.errors import Array
from gibbs.core.hyperpriors import LogDensity
from gibbs.core.linalg import Flags, factor, solve_triangles


class Design(NamedTuple):
    """What covariances are made of: squared differences per input, and the jitter. A full GP has no inducing fields."""

    data: Array  # (d, n, n)
    test: Array  # (d, t, n)
    cross: Array | None  # (B, d, m, n)
    inducing: Array | None  # (B, d, m, m)
    cross_test: Array | None  # (B, d, m, t)
    jitter: Array  # (B,)


class Cross(NamedTuple):
    """Covariances with f at the data, (r, B, ...)."""

    K_TX: Array  # (r, B, t, n)
    k_tt: Array  # (r, B, t)
    K_ZX: Array | None  # (r, B, m, n)
    K_ZZ: Array | None  # (r, B, m, m)


def _squares(X1: Array, X2: Array) -> Array:
    difference = np.swapaxes(X1, -1, -2)[..., :, None] - np.swapaxes(X2, -1, -2)[..., None, :]
    with np.errstate(over="ignore"):  # farther apart than float64 reaches: infinitely far, a covariance of 0
        return np.square(difference)


def make_design(X: Array, X_test: Array, Z: Array | None, jitter: Array) -> Design:
    """Squared differences of inputs X (n, d), X_test (t, d) and Z (B, m, d) or None; jitter (B,)."""
    XX, TX = _squares(X, X), _squares(X_test, X)
    if Z is None:
        return Design(XX, TX, None, None, None, jitter)
    return Design(XX, TX, _squares(Z, X[None]), _squares(Z, Z), _squares(Z, X_test[None]), jitter)


def one_block(design: Design, block: int) -> Design:
    """The design of one block alone, B = 1. block: its index."""
    part = slice(block, block + 1)
    if design.cross is None:
        return design._replace(jitter=design.jitter[part])
    assert design.inducing is not None
    assert design.cross_test is not None
    return Design(
        design.data,
        design.test,
        design.cross[part],
        design.inducing[part],
        design.cross_test[part],
        design.jitter[part],
    )


def _kernel(squares: Array, hyper: Array) -> Array:
    """variance exp(-½ Σ_j squares_j/lengthscales_j²): squares (d, a, b) or (B, d, a, b) -> (r, B, a, b)."""
    weights = -0.5 / np.square(hyper[..., 1:-1])
    flat = squares.reshape(*squares.shape[:-2], -1)
    # (r, B, d) @ (d, ab), or block by block (r, B, 1, d) @ (B, d, ab)
    exponent = weights @ flat if squares.ndim == 3 else np.matmul(weights[..., None, :], flat)
    result: Array = np.exp(exponent.reshape(*weights.shape[:2], *squares.shape[-2:]))
    result *= hyper[..., 0][..., None, None]
    return result


def _add_diagonal(matrix: Array, value: Array | float) -> Array:
    index = np.arange(matrix.shape[-1])
    matrix[..., index, index] += value
    return matrix


def inducing_rows(design: Design, hyper: Array) -> tuple[Array, Array, Flags]:
    """chol(K_ZZ)⁻¹ K_ZX (r, B, m, n), chol(K_ZZ) and flags (r, B): False where K_ZZ has no Cholesky factor.

    design: of an inducing prior; hyper (r, B, 2 + d).
    """
    assert design.cross is not None and design.inducing is not None  # noqa: PT018
    chol, good = factor(_add_diagonal(_kernel(design.inducing, hyper), design.jitter[:, None]))
    return solve_triangles(chol, _kernel(design.cross, hyper)), chol, good


def covariance(design: Design, hyper: Array) -> Array:
    """Prior covariance of f at the data, noise included (and jitter, full GP): (r, B, n, n), NaN where K_ZZ fails.

    hyper (r, B, 2 + d); design: a Design. FITC: k_XZ K_ZZ⁻¹ k_ZX off the diagonal, variance + noise on it; there too a
    K_ZZ fails whose explained variance exceeds the prior one by more than rounding, 1e-6 of it.
    """
    variance, noise = hyper[..., 0], hyper[..., -1]
    if design.cross is None:
        return _add_diagonal(_kernel(design.data, hyper), (noise + design.jitter)[..., None])
    rows, _, good = inducing_rows(design, hyper)
    S = np.matmul(np.swapaxes(rows, -1, -2), rows)
    explained = np.einsum("rbii->rbi", S).copy()
    good = good & np.all(explained <= variance[..., None] * (1.0 + 1e-6), axis=-1)
    index = np.arange(S.shape[-1])
    S[..., index, index] = np.maximum(variance[..., None], explained) + noise[..., None]
    S[~good] = np.nan
    return S


def cross_covariance(design: Design, hyper: Array) -> Cross:
    """Covariances of f at the test points and of u with f at the data: design a Design, hyper (r, B, 2 + d)."""
    k_tt = np.repeat((hyper[..., 0] + hyper[..., -1])[..., None], design.test.shape[1], axis=-1)
    if design.cross is None:
        return Cross(_kernel(design.test, hyper), k_tt, None, None)
    assert design.inducing is not None
    assert design.cross_test is not None
    rows, chol, _ = inducing_rows(design, hyper)
    rows_test = solve_triangles(chol, _kernel(design.cross_test, hyper))
    K_TX = np.matmul(np.swapaxes(rows_test, -1, -2), rows)
    K_ZZ = _add_diagonal(_kernel(design.inducing, hyper), design.jitter[:, None])
    return Cross(K_TX, k_tt, _kernel(design.cross, hyper), K_ZZ)


def log_normal_density(design: Design, hyper: Array, values: Array, extra: Array | float = 0.0) -> LogDensity:
    """Σ_c log N(v_c; 0, S + diag(extra)) and its gradient in the logarithms of all parameters.

    With α_c = S⁻¹v_c and M = Σ_c α_c α_cᵀ - c S⁻¹ the derivative along dS is ½ tr(M dS). Full GP, D_j the squared
    differences: dS/d log variance = K, dS/d log l_j = K ∘ D_j/l_j², dS/d log noise = noise I. FITC, A = K_ZZ⁻¹K_ZX and
    M° = M without its diagonal: tr(M° dQ) = 2 Σ(A M° ∘ dK_ZX) - Σ(A M° Aᵀ ∘ dK_ZZ), and the diagonal of S is
    variance + noise.

    design: a Design; hyper (r, B, 2 + d); values v (r, B, c, n), c vectors a block; extra: further variances, a number
    or (r, B, n). Returns value (r, B), -inf where there is no Cholesky factor, and gradient (r, B, 2 + d), zero there.
    Time O(r B n³).
    """
    S = covariance(design, hyper)
    n, c = S.shape[-1], values.shape[2]
    chol, good = factor(_add_diagonal(S, extra))
    inverse_chol = solve_triangles(chol, np.eye(n))
    white = np.matmul(values, np.swapaxes(inverse_chol, -1, -2))  # (r, B, c, n)
    log_det = np.log(np.einsum("rbii->rbi", chol)).sum(axis=-1)
    value = -0.5 * np.square(white).sum(axis=(2, 3)) - c * (log_det + 0.5 * n * np.log(2.0 * np.pi))
    alpha = np.matmul(white, inverse_chol)
    M = np.matmul(np.swapaxes(alpha, -1, -2), alpha) - c * np.matmul(np.swapaxes(inverse_chol, -1, -2), inverse_chol)
    gradient = np.empty(hyper.shape)
    trace = np.einsum("rbii->rb", M)
    gradient[..., -1] = 0.5 * hyper[..., -1] * trace
    with np.errstate(over="ignore", invalid="ignore"):
        inverse_square = 1.0 / np.square(hyper[..., 1:-1])
        if design.cross is None:
            weighted = M * _kernel(design.data, hyper)
            gradient[..., 0] = 0.5 * weighted.sum(axis=(-2, -1))
            by_scale = np.einsum("rbij,dij->rbd", weighted, design.data, optimize=True)
            gradient[..., 1:-1] = 0.5 * by_scale * inverse_square
        else:
            assert design.inducing is not None
            rows, chol_ZZ, _ = inducing_rows(design, hyper)
            A = solve_triangles(np.swapaxes(chol_ZZ, -1, -2), rows)
            diagonal = np.einsum("rbii->rbi", M).copy()
            AM = np.matmul(A, M - diagonal[..., None] * np.eye(n))
            W_ZX = 2.0 * AM * _kernel(design.cross, hyper)
            W_ZZ = -np.matmul(AM, np.swapaxes(A, -1, -2)) * _kernel(design.inducing, hyper)
            total = W_ZX.sum(axis=(-2, -1)) + W_ZZ.sum(axis=(-2, -1))
            gradient[..., 0] = 0.5 * (total + hyper[..., 0] * diagonal.sum(axis=-1))
            by_scale = np.einsum("rbij,bdij->rbd", W_ZX, design.cross, optimize=True)
            by_scale += np.einsum("rbij,bdij->rbd", W_ZZ, design.inducing, optimize=True)
            gradient[..., 1:-1] = 0.5 * by_scale * inverse_square
    good = good & np.isfinite(value) & np.isfinite(gradient).all(axis=-1)
    return LogDensity(np.where(good, value, -np.inf), np.where(good[..., None], gradient, 0.0))
