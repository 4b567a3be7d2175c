"""A small sparse model with its matrices, and the density of PG(1, 0) as a series, all written independently."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad


def kernel(A, B, variance, lengthscales):
    """The squared exponential, entry by entry."""
    K = np.empty((len(A), len(B)))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            K[i, j] = variance * np.exp(-0.5 * np.sum((a - b) ** 2 / lengthscales**2))
    return K


def random_model(rng, n, m, d=2):
    """A sparse model with a random q(u), tilts, draws of u and ω. Conditions stay below 1e4."""
    X, Z = rng.normal(size=(n, d)), 1.5 * rng.normal(size=(m, d))
    lengthscales = np.array([0.9, 1.3])[:d]
    variance, noise = 1.6, 0.2
    s = SimpleNamespace(n=n, m=m, X=X, Z=Z, variance=variance, lengthscales=lengthscales, noise=noise)
    s.K_ZZ = kernel(Z, Z, variance, lengthscales) + 0.05 * np.eye(m)
    s.K_XZ = kernel(X, Z, variance, lengthscales)
    s.K_XX = kernel(X, X, variance, lengthscales) + noise * np.eye(n)
    s.K_ZZ_inv = np.linalg.inv(s.K_ZZ)
    s.kappa = np.linalg.solve(s.K_ZZ, s.K_XZ.T).T
    s.K_tilde = s.K_XX - s.kappa @ s.K_XZ.T
    s.cond_var = np.diag(s.K_tilde).copy()
    s.y = rng.choice([-1.0, 1.0], size=n)
    s.mu = rng.normal(size=m)
    root = 0.4 * rng.normal(size=(m, m))
    s.Sigma = root @ root.T + 0.3 * np.eye(m)
    s.c = rng.uniform(0.2, 4.0, size=n)
    s.theta = np.tanh(s.c / 2) / (2 * s.c)
    s.u = rng.normal(size=m)
    s.f = rng.normal(size=n)
    s.omega = rng.uniform(0.05, 0.6, size=n)
    s.state = (s.mu, s.Sigma, s.c, s.y, s.K_ZZ, s.kappa, s.cond_var)
    return s


@pytest.fixture
def model(rng):
    return random_model(rng, n=6, m=3)


@pytest.fixture
def make_model(rng):
    return lambda n, m, d=2: random_model(rng, n, m, d)


def polya_gamma_density(omega):
    """Density of PG(1, 0) at one ω by whichever of its two alternating series converges fast."""
    k = np.arange(30)
    sign = (-1.0) ** k
    if omega <= 0.0:
        return 0.0
    if omega < 0.16:
        return float(
            np.sum(sign * (2 * k + 1) * np.exp(-((2 * k + 1) ** 2) / (8 * omega))) / np.sqrt(2 * np.pi * omega**3)
        )
    return float(4 * np.pi * np.sum(sign * (k + 0.5) * np.exp(-2 * (k + 0.5) ** 2 * np.pi**2 * omega)))


@pytest.fixture
def pg_integral():
    """∫ function(ω) PG(ω|1, 0) dω by adaptive quadrature; beyond ω = 12 the density is below e⁻⁵⁸.

    full_output keeps QUADPACK from warning where a panel is at the limit of rounding.
    """

    def integral(function):
        edges = [0.0, 0.02, 0.05, 0.1, 0.16, 0.3, 0.6, 1.2, 3.0, 12.0]
        return sum(
            quad(lambda w: function(w) * polya_gamma_density(w), low, high, epsabs=1e-15, epsrel=1e-12, full_output=1)[
                0
            ]
            for low, high in pairwise(edges)
        )

    return integral


@pytest.fixture
def pg_expectation(pg_integral):
    """E[function(ω)] under PG(1, c), from exponential tilting and its numerical normaliser."""

    def expectation(function, c):
        mass = pg_integral(lambda w: np.exp(-0.5 * c**2 * w))
        return pg_integral(lambda w: function(w) * np.exp(-0.5 * c**2 * w)) / mass

    return expectation


@pytest.fixture
def gaussian_expectation():
    """E[function(f)] for f ~ N(mean, var) by adaptive quadrature on ± 12 standard deviations."""

    def expectation(function, mean, var):
        sd = np.sqrt(var)
        edges = mean + sd * np.array([-12.0, -5.0, -2.0, 0.0, 2.0, 5.0, 12.0])
        return sum(
            quad(
                lambda f: function(f) * np.exp(-0.5 * ((f - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi)),
                low,
                high,
                epsabs=1e-15,
                epsrel=1e-12,
                full_output=1,
            )[0]
            for low, high in pairwise(edges)
        )

    return expectation
