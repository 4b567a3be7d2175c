"""A small problem with kernels and inducing inputs of their own for every class, and factors in no special state."""

from types import SimpleNamespace

import numpy as np
import pytest

from reference.villacampa2020.hyper import Matrices


@pytest.fixture
def rng():
    return np.random.default_rng(20200101)


@pytest.fixture
def model(rng):
    """Five data, three classes, two inducing points each; α and ε inside their ranges; class first in every array."""
    s = SimpleNamespace(n=5, C=3, m=2, d=2, alpha=0.6, epsilon=0.07)
    s.X = rng.normal(size=(s.n, s.d))
    s.y = np.array([0, 1, 2, 1, 0])
    s.Z = 0.8 * rng.normal(size=(s.C, s.m, s.d))
    s.variance = np.array([2.0, 3.0, 1.5])
    s.lengthscales = np.array([[1.0, 0.8], [0.7, 1.2], [1.1, 0.9]])
    s.noise = np.array([0.1, 0.05, 0.2])
    s.jitter = np.array([1e-2, 2e-2, 3e-2])

    def k(A, B, c):
        return s.variance[c] * np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / s.lengthscales[c]) ** 2, axis=2))

    s.kernel = k
    s.K_ZZ = np.stack([k(s.Z[c], s.Z[c], c) + s.jitter[c] * np.eye(s.m) for c in range(s.C)])
    s.K_XZ = np.stack([k(s.X, s.Z[c], c) for c in range(s.C)])
    s.k_xx = np.repeat((s.variance + s.noise)[:, None], s.n, axis=1)
    s.upsilon = np.stack([np.linalg.solve(s.K_ZZ[c], s.K_XZ[c].T).T for c in range(s.C)])
    s.cond_var = s.k_xx - np.sum(s.K_XZ * s.upsilon, axis=2)
    s.inducing_values = rng.normal(size=(s.C, s.m))
    s.c1 = rng.uniform(0.05, 0.3, size=(s.n, s.C))
    s.c2 = rng.uniform(-0.8, 0.8, size=(s.n, s.C))
    s.mean, s.cov = [], []
    for c in range(s.C):
        precision = np.linalg.inv(s.K_ZZ[c]) + sum(
            s.c1[i, c] * np.outer(s.upsilon[c, i], s.upsilon[c, i]) for i in range(s.n)
        )
        s.cov.append(np.linalg.inv(precision))
        s.mean.append(s.cov[c] @ sum(s.c2[i, c] * s.upsilon[c, i] for i in range(s.n)))
    s.mean, s.cov = np.array(s.mean), np.array(s.cov)
    s.matrices = Matrices(s.K_ZZ, s.upsilon, s.cond_var, s.k_xx, s.K_XZ)
    return s
