"""Sections 3.1 and 3.2 and appendix B: the Gaussian posterior that the sites make, and its update by one of them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from reference.common.algebra import eigenvectors, inverted, solution
from reference.common.errors import cholesky
from reference.common.ledger import equation
from reference.riihimaki2013.sites import Moments, Site

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_A = "raise jitter or noise, or lower damping"


class Posterior(NamedTuple):
    """q(f) of all latent values, class-major."""

    mean: Array  # (cn,)
    cov: Array  # (cn, cn)
    log_det: float  # log|I + KT|


def stack_blocks(site_precision: Array) -> Array:
    """T (cn, cn), class-major, with the blocks site_precision (n, c, c) of each datum: T[(k,i), (l,i)]."""
    n, c, _ = site_precision.shape
    T = np.zeros((c, n, c, n))
    for i in range(n):
        T[:, i, :, i] = site_precision[i]
    return T.reshape(c * n, c * n)


def marginals(mean: Array, cov: Array, n: int) -> Moments:
    """Means (n, c) and covariances (n, c, c) of each datum: mean (cn,) and cov (cn, cn) class-major, n data."""
    c = len(mean) // n
    blocks = cov.reshape(c, n, c, n)
    return Moments(mean.reshape(c, n).T, np.stack([blocks[:, i, :, i] for i in range(n)]))


def _root_times(roots: Array, matrix: Array) -> Array:
    """S'A for the S (cn, cn) with the blocks of roots (n, c, c) and A (cn, p), one datum at a time."""
    n, c, _ = roots.shape
    by_datum = matrix.reshape(c, n, -1).transpose(1, 0, 2)
    return (roots.transpose(0, 2, 1) @ by_datum).transpose(1, 0, 2).reshape(c * n, -1)


def _roots_and_factor(K: Array, site_precision: Array) -> tuple[Array, Array, Array]:
    """Blocks (n, c, c) of S with SS' = T, S'K, and the Cholesky factor of I + S'KS."""
    values, vectors = eigenvectors(site_precision, "Π")
    # what lies below zero is the rounding of a null direction
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    whitened = _root_times(roots, K)
    inner = _root_times(roots, whitened.T)  # S'KS is its own transpose
    return roots, whitened, cholesky(np.eye(len(K)) + 0.5 * (inner + inner.T), "I + S'KS", _A)


def m_matrix(K: Array, site_precision: Array) -> Array:
    """M = T(I + KT)⁻¹ = S(I + S'KS)⁻¹S' (cn, cn) for sites of any form T = SS'.

    Parameters
    ----------
    K : (cn, cn)              prior covariance, class-major
    site_precision : (n, c, c)    Π_i, positive semidefinite
    """
    roots, _, factor = _roots_and_factor(K, site_precision)
    whitened = solve_triangular(factor, _root_times(roots, np.eye(len(K))), lower=True)
    return whitened.T @ whitened


def covariance_times(K: Array, site_precision: Array, vector: Array) -> Array:
    """(K⁻¹ + T)⁻¹v = Kv - KSA⁻¹S'Kv (cn,), A = I + S'KS: (4)'s covariance times v, never formed.

    Parameters
    ----------
    K : (cn, cn)              prior covariance, class-major
    site_precision : (n, c, c)    Π_i, positive semidefinite
    vector : (cn,)            v
    """
    _, whitened, factor = _roots_and_factor(K, site_precision)
    inner = solve_triangular(factor, solve_triangular(factor, whitened @ vector, lower=True), lower=True, trans="T")
    return np.asarray(K @ vector - whitened.T @ inner)


def log_det_of(K: Array, site_precision: Array) -> float:
    """log|I + KT| alone: K (cn, cn), blocks of T in site_precision (n, c, c)."""
    return 2.0 * float(np.sum(np.log(np.diag(_roots_and_factor(K, site_precision)[2]))))


@equation("riihimaki2013", "4")
def ep_posterior(K: Array, site_precision: Array, site_location: Array) -> Posterior:
    """q_EP(f) ∝ p(f) Π_i exp(-½f_i'Π_if_i + ν_i'f_i): (4) of riihimaki2013.

    With any square root T = SS', which the sites have one datum at a time, and A = I + S'KS,
    covariance K - KSA⁻¹S'K and mean (covariance) ν: K may be singular. |I + KT| = |A|.

    Parameters
    ----------
    K : (cn, cn)              prior covariance, class-major
    site_precision : (n, c, c)    Π_i, positive semidefinite
    site_location : (n, c)    ν_i

    Raises
    ------
    NotPositiveDefiniteError  if the sites are not positive semidefinite
    """
    _, whitened, factor = _roots_and_factor(K, site_precision)
    V = solve_triangular(factor, whitened, lower=True)
    cov = K - V.T @ V
    return Posterior(cov @ site_location.T.ravel(), cov, 2.0 * float(np.sum(np.log(np.diag(factor)))))


@equation("riihimaki2013", "16")
def posterior_from_inner_sites(alpha: Array, beta: Array, y: Labels, K: Array) -> Moments:
    """q(f) ∝ p(f) Π_i ∫N(u_i|0,1) Π_{j≠y_i} N(u_i + f_y - f_j|α⁻¹β, α⁻¹)du_i: (16) of riihimaki2013, as it stands.

    f and all u_i in one Gaussian, multiplied by its n(c - 1) scalar sites; the u_i are then left out.

    Parameters
    ----------
    alpha : (n, c-1)          α̃
    beta : (n, c-1)           β̃
    y : (n,)                  labels
    K : (cn, cn)              prior covariance, not singular
    """
    n, c = len(y), len(K) // len(y)
    size = c * n + n
    precision, shift = np.zeros((size, size)), np.zeros(size)
    precision[: c * n, : c * n] = inverted(K, "K")
    precision[c * n :, c * n :] = np.eye(n)
    for i in range(n):
        others = np.delete(np.arange(c), y[i])
        for place, j in enumerate(others):
            direction = np.zeros(size)
            direction[int(y[i]) * n + i], direction[j * n + i], direction[c * n + i] = 1.0, -1.0, 1.0
            precision += alpha[i, place] * np.outer(direction, direction)
            shift += beta[i, place] * direction
    cov = np.asarray(inverted(precision, "precision"), dtype=np.float64)
    return Moments((cov @ shift)[: c * n], cov[: c * n, : c * n])


@equation("riihimaki2013", "B-site")
def stacked_site_matrix(pi: Array) -> Array:
    """T = D - DR(R'DR)⁻¹R'D: appendix B of riihimaki2013.

    Parameters
    ----------
    pi : (n, c)               π_i

    Returns
    -------
    (cn, cn)                  class-major
    """
    n, c = pi.shape
    D, R = np.diag(pi.T.ravel()), np.tile(np.eye(n), (c, 1))
    return D - D @ R @ solution(R.T @ D @ R, R.T @ D, "RᵀDR")


class ClassBlocks(NamedTuple):
    """The blocks of B, and the log-determinant of A."""

    B: Array  # (c, n, n)
    log_det_a: float


@equation("riihimaki2013", "B-M")
def class_blocks(pi: Array, K: Array) -> ClassBlocks:
    """B = D^½A⁻¹D^½ and log|A|, A = I + D^½KD^½ by c Cholesky factors: appendix B of riihimaki2013.

    Parameters
    ----------
    pi : (n, c)               the diagonal of D
    K : (cn, cn)              block-diagonal prior covariance

    Raises
    ------
    NotPositiveDefiniteError  if a block of A has no factor
    """
    n, c = pi.shape
    B, log_det_a = np.empty((c, n, n)), 0.0
    for k in range(c):
        root = np.sqrt(pi[:, k])  # D^½
        block = K[k * n : (k + 1) * n, k * n : (k + 1) * n]
        factor = cholesky(np.eye(n) + root[:, None] * block * root, f"A, class {k}", _A)  # LL' = A
        whitened = solve_triangular(factor, np.diag(root), lower=True)  # L⁻¹D^½
        B[k] = whitened.T @ whitened
        log_det_a += 2.0 * float(np.sum(np.log(np.diag(factor))))
    return ClassBlocks(B, log_det_a)


@equation("riihimaki2013", "B-M")
def posterior_m_matrix(pi: Array, K: Array) -> Array:
    """M = B - BRP⁻¹R'B, P = R'BR: appendix B of riihimaki2013.

    Parameters
    ----------
    pi : (n, c)               π_i, the diagonal of D
    K : (cn, cn)              block-diagonal prior covariance

    Returns
    -------
    (cn, cn)                  M = T(I + KT)⁻¹

    Raises
    ------
    NotPositiveDefiniteError  if a block of A, or P, has no factor
    """
    n, c = pi.shape
    B = class_blocks(pi, K).B
    P = cholesky(np.sum(B, axis=0), "P", _A)  # R'BR
    whitened = solve_triangular(P, B.reshape(c * n, n).T, lower=True)  # R'B
    return independent_m_matrix(B) - whitened.T @ whitened


def independent_m_matrix(blocks: Array) -> Array:
    """M = B (cn, cn) from its blocks (c, n, n): of diagonal sites T = D, where no R couples the classes."""
    c, n, _ = blocks.shape
    M = np.zeros((c * n, c * n))
    for k in range(c):
        M[k * n : (k + 1) * n, k * n : (k + 1) * n] = blocks[k]
    return M


@equation("riihimaki2013", "B-det")
def ep_log_determinant(pi: Array, K: Array) -> float:
    """log|I + KT| = log|A| - log|R'DR| + log|P|, P = R'BR: appendix B of riihimaki2013.

    Parameters
    ----------
    pi : (n, c)               π_i
    K : (cn, cn)              block-diagonal prior covariance

    Raises
    ------
    NotPositiveDefiniteError  if a block of A, or P, has no factor
    """
    B, log_det_a = class_blocks(pi, K)
    P = cholesky(np.sum(B, axis=0), "P", _A)  # R'BR
    log_det_p = 2.0 * float(np.sum(np.log(np.diag(P))))
    return log_det_a - float(np.sum(np.log(np.sum(pi, axis=1)))) + log_det_p  # R'DR is diagonal


@equation("riihimaki2013", "B-marginals")
def training_marginals(K: Array, location: Array, M: Array, n: int) -> Moments:
    """μ_i and Σ_i of every datum: (26) and (27) of riihimaki2013 with K in place of K_* and K_**.

    Parameters
    ----------
    K : (cn, cn)              prior covariance
    location : (cn,)          ν, class-major
    M : (cn, cn)              T(I + KT)⁻¹
    n : int                   number of data

    Returns
    -------
    Moments                   means (n, c), covariances (n, c, c)
    """
    KM = K @ M
    return marginals(K @ location - KM @ (K @ location), K - KM @ K, n)


@equation("riihimaki2013", "u3.1-schedule")
def follow_site(q: Posterior, i: int, old: Site, new: Site) -> Posterior:
    """q(f) after the site of datum i has changed, by a rank-c update: sequential EP, section 3.1 of riihimaki2013.

        Σ ← Σ - Σ_i(I + ΔΠ Σ_ii)⁻¹ΔΠΣ_i',   μ ← μ + Σ_i(I + ΔΠ Σ_ii)⁻¹(Δν - ΔΠμ_i),   Σ_i the columns of datum i

    Parallel EP makes q(f) anew from all sites instead, after every one of them was updated. Sequential EP does so too
    at the end of each sweep, against the rounding of its updates.

    Parameters
    ----------
    q : Posterior             before; its log-determinant is not followed
    i : int                   datum
    old, new : Site           its site before and after

    Raises
    ------
    NotPositiveDefiniteError  if there is no such update
    """
    c = len(new.location)
    mine = slice(i, None, len(q.mean) // c)
    d_precision, d_location = new.precision - old.precision, new.location - old.location
    columns = q.cov[:, mine]
    shrink = inverted(np.eye(c) + d_precision @ columns[mine], "I + ΔΠ Σ")
    mean = q.mean + columns @ shrink @ (d_location - d_precision @ q.mean[mine])
    return Posterior(mean, q.cov - columns @ shrink @ d_precision @ columns.T, q.log_det)
