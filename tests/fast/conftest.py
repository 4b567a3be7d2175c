"""Small problems and the same quantities by dense algebra with explicit inverses."""

from types import SimpleNamespace

import numpy as np
import pytest


def _dense_kernel(X1, X2, variance, lengthscales):
    """The kernel from its definition, entry by entry."""
    return np.array([[variance * np.exp(-0.5 * sum(((a - b) / lengthscales) ** 2)) for b in X2] for a in X1]).reshape(
        len(X1), len(X2)
    )


def _dense_sparse(X, y, variance, lengthscales, noise, jitter, Z):
    """K_ZZ, kappa and K_tilde of wenzel2019 with explicit inverses."""
    K_ZZ = _dense_kernel(Z, Z, variance, lengthscales) + jitter * np.eye(len(Z))
    K_XZ = _dense_kernel(X, Z, variance, lengthscales)
    inverse = np.linalg.inv(K_ZZ)
    K_tilde = _dense_kernel(X, X, variance, lengthscales) + noise * np.eye(len(X)) - K_XZ @ inverse @ K_XZ.T
    return SimpleNamespace(K_ZZ=K_ZZ, inverse=inverse, K_XZ=K_XZ, kappa=K_XZ @ inverse, K_tilde=K_tilde)


def _dense_bound(y_sign, mean, var, c, mu, Sigma, K):
    """The bound with every constant, term by term from its definition."""
    m = mu.size
    theta = np.tanh(c / 2) / (2 * c)
    local = -np.log(2) + y_sign * mean / 2 - theta * (var + mean**2) / 2 + c**2 * theta / 2 - np.log(np.cosh(c / 2))
    kl = 0.5 * (
        np.trace(np.linalg.solve(K, Sigma))
        + mu @ np.linalg.solve(K, mu)
        - m
        + np.linalg.slogdet(K)[1]
        - np.linalg.slogdet(Sigma)[1]
    )
    return local.sum() - kl


@pytest.fixture
def dense_kernel():
    return _dense_kernel


@pytest.fixture
def dense_sparse():
    return _dense_sparse


@pytest.fixture
def dense_bound():
    return _dense_bound


@pytest.fixture
def rng():
    return np.random.default_rng(20190127)


@pytest.fixture
def make_problem():
    """Arguments of `fit`: labels from a smooth function, inducing points off the data."""

    def make(n=14, m=5, d=2, *, seed=3, variance=1.7, noise=0.05, jitter=1e-6, full=False):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, d))
        chance = 1.0 / (1.0 + np.exp(-2.0 * np.sin(2.0 * X[:, 0]) - X[:, -1]))
        return SimpleNamespace(
            X=X,
            y=(rng.random(n) < chance).astype(int),
            variance=variance,
            lengthscales=0.6 + 0.5 * np.arange(1, d + 1) / d,
            noise=noise,
            jitter=jitter,
            Z=None if full else 1.2 * rng.normal(size=(m, d)),
        )

    return make
