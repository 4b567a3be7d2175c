"""A Gaussian a class: by moments, by natural parameters, and as one vector of numbers that may take any value."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import cholesky, factorise

Array = NDArray[np.float64]


class Gaussians(NamedTuple):
    """Means and covariances."""

    mean: Array  # (C, m)
    cov: Array  # (C, m, m)


class Natural(NamedTuple):
    """Precisions, and precisions times means."""

    precision: Array  # (C, m, m)
    shift: Array  # (C, m)


def natural_parameters(q: Gaussians) -> Natural:
    """Natural parameters; NotPositiveDefiniteError if a covariance is none."""
    precision = np.stack([factorise(V, "cov", "lower damping").inverse for V in q.cov])
    return Natural(precision, np.einsum("kml,kl->km", precision, q.mean))


def moments_of(theta: Natural, name: str = "precision") -> Gaussians:
    """Moments; NotPositiveDefiniteError, which has the name, if a precision is none."""
    cov = np.stack([factorise(0.5 * (P + P.T), name, "lower damping").inverse for P in theta.precision])
    return Gaussians(np.einsum("kml,kl->km", cov, theta.shift), cov)


def along(theta: Natural, direction: Natural, length: float) -> Natural:
    """θ + length direction."""
    return Natural(theta.precision + length * direction.precision, theta.shift + length * direction.shift)


def mapped(q: Gaussians, maps: Array) -> Gaussians:
    """Gaussians of A u, one A a class."""
    cov = maps @ q.cov @ np.transpose(maps, (0, 2, 1))
    return Gaussians(np.einsum("kij,kj->ki", maps, q.mean), 0.5 * (cov + np.transpose(cov, (0, 2, 1))))


def pack(q: Gaussians) -> Array:
    """Means, and lower Cholesky factors with the logarithms of their diagonals, one vector."""
    parts = []
    for m, V in zip(*q, strict=True):
        root = cholesky(V, "inducing_cov", "lower learning_rate")
        low = np.tril_indices(len(m), -1)
        parts += [m, np.log(np.diag(root)), root[low]]
    return np.concatenate(parts)


def unpack(where: Array, C: int, m: int) -> tuple[Gaussians, Array]:
    """Gaussians, and their Cholesky factors (C, m, m)."""
    low = np.tril_indices(m, -1)
    rows = where.reshape(C, -1)
    roots = np.zeros((C, m, m))
    with np.errstate(over="ignore", invalid="ignore"):  # after a step too far, which the objective there tells
        for root, row in zip(roots, rows, strict=True):
            root[low] = row[2 * m :]
            root[np.diag_indices(m)] = np.exp(row[m : 2 * m])
        return Gaussians(rows[:, :m].copy(), roots @ np.transpose(roots, (0, 2, 1))), roots


def packed_gradient(by_mean: Array, by_cov: Array, roots: Array) -> Array:
    """Derivatives in the numbers of `pack` from those in means (C, m) and covariances (C, m, m), all entries free."""
    low = np.tril_indices(roots.shape[1], -1)
    parts = []
    for of_mean, of_cov, root in zip(by_mean, by_cov, roots, strict=True):
        by_root = 2.0 * of_cov @ root
        parts += [of_mean, np.diag(by_root) * np.diag(root), by_root[low]]
    return np.concatenate(parts)
