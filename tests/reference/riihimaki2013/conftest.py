"""A small problem with kernels of their own for every class."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import block_diag

from reference.riihimaki2013.fit import Prior


@pytest.fixture
def model(rng):
    """Five data, three classes, latent values class-major."""
    s = SimpleNamespace(n=5, c=3, d=2)
    s.X = rng.normal(size=(s.n, s.d))
    s.y = np.array([0, 1, 2, 1, 0])
    s.prior = Prior(
        np.array([2.0, 3.0, 1.5]),
        np.array([[1.0, 0.8], [0.7, 1.2], [1.1, 0.9]]),
        np.array([0.1, 0.05, 0.2]),
        np.array([1e-3, 0.0, 1e-2]),
    )
    s.blocks = [
        v * np.exp(-0.5 * np.sum(((s.X[:, None] - s.X[None]) / ell) ** 2, axis=2)) + (e + j) * np.eye(s.n)
        for v, ell, e, j in zip(*s.prior, strict=True)
    ]
    s.K = block_diag(*s.blocks)
    s.alpha = rng.uniform(0.1, 0.6, size=(s.n, s.c - 1))
    s.beta = rng.normal(size=(s.n, s.c - 1))
    s.cavity_mean = rng.normal(size=s.c)
    root = rng.normal(size=(s.c, s.c))
    s.cavity_cov = root @ root.T + 0.4 * np.eye(s.c)
    return s
