"""A small sparse model with its matrices, written independently, and quadrature under a Gaussian."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad

from reference.izmailov2016.model import Prior


def kernel(A, B, variance, lengthscales):
    """The squared exponential, entry by entry."""
    return np.array([[variance * np.exp(-0.5 * np.sum((a - b) ** 2 / lengthscales**2)) for b in B] for a in A])


def random_model(rng, n, m, d=2):
    """A sparse model with a random q(u) and local parameters. Conditions stay below 1e4."""
    s = SimpleNamespace(n=n, m=m, X=rng.normal(size=(n, d)), Z=1.5 * rng.normal(size=(m, d)))
    lengthscales = np.array([0.9, 1.3])[:d]
    s.hyper = Prior(1.6, lengthscales, 0.2, 0.05, s.Z)
    s.K_ZZ = kernel(s.Z, s.Z, 1.6, lengthscales) + 0.05 * np.eye(m)
    s.K_XZ = kernel(s.X, s.Z, 1.6, lengthscales)
    s.K_XX = kernel(s.X, s.X, 1.6, lengthscales) + 0.2 * np.eye(n)
    s.k_xx = np.diag(s.K_XX).copy()
    s.K = (s.K_ZZ, s.K_XZ, s.k_xx)
    s.kappa = np.linalg.solve(s.K_ZZ, s.K_XZ.T).T
    s.joint = np.block([[s.K_XX, s.K_XZ], [s.K_XZ.T, s.K_ZZ]])
    s.y = rng.choice([-1.0, 1.0], size=n)
    s.mu = rng.normal(size=m)
    root = 0.4 * rng.normal(size=(m, m))
    s.Sigma = root @ root.T + 0.3 * np.eye(m)
    s.L = np.linalg.cholesky(s.Sigma)
    s.xi = rng.uniform(0.2, 4.0, size=n) * rng.choice([-1.0, 1.0], size=n)
    s.lam = np.tanh(s.xi / 2) / (4 * s.xi)
    s.u, s.f = rng.normal(size=m), rng.normal(size=n)
    s.mean = s.kappa @ s.mu
    s.var = s.k_xx - np.sum(s.kappa * s.K_XZ, axis=1) + np.sum(s.kappa @ s.Sigma * s.kappa, axis=1)
    return s


@pytest.fixture
def model(rng):
    return random_model(rng, n=6, m=3)


@pytest.fixture
def make_model(rng):
    return lambda n, m, d=2: random_model(rng, n, m, d)


@pytest.fixture
def problem(rng):
    """Data on a line whose bounds have their maximum at moderate hyper-parameters."""
    X = np.linspace(-3.0, 3.0, 36)[:, None]
    y = np.where(np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=36) > 0, 1.0, -1.0)
    return SimpleNamespace(X=X, y=y, hyper=Prior(1.5, np.array([0.8]), 0.05, 1e-3, np.linspace(-2.7, 2.7, 6)[:, None]))


@pytest.fixture
def expectation():
    """E[function(f)] for f ~ N(mean, var) by adaptive quadrature on ± 12 standard deviations."""

    def expect(function, mean, var):
        sd = np.sqrt(var)
        edges = mean + sd * np.array([-12.0, -5.0, -2.0, 0.0, 2.0, 5.0, 12.0])
        scale = sd * np.sqrt(2 * np.pi)
        return sum(
            quad(lambda f: function(f) * np.exp(-0.5 * ((f - mean) / sd) ** 2) / scale, a, b, epsabs=1e-15,
                 epsrel=1e-12, full_output=1)[0]
            for a, b in pairwise(edges)
        )  # fmt: skip

    return expect


@pytest.fixture
def gradients_of():
    """Central differences of a function of an array, entry by entry; step eps^(1/3)."""

    def differences(function, where, h=6e-6):
        where = np.asarray(where, dtype=float)
        values = np.empty(where.shape)
        for place in np.ndindex(where.shape):
            move = np.zeros(where.shape)
            move[place] = h
            values[place] = (function(where + move) - function(where - move)) / (2 * h)
        return values

    return differences
