"""What the tests of the sampler share: a seeded generator, a z-test, and posteriors by brute-force quadrature."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm


@pytest.fixture
def rng():
    return np.random.default_rng(20190127)


@pytest.fixture
def assert_z():
    """Two-sided test of many z-statistics at once: Holm's first step at 1e-5.

    About ten tests of this folder use it, so a run of all of them is wrong by chance once in 10 000.
    """

    def check(z):
        z = np.ravel(z)
        assert np.all(np.isfinite(z))
        smallest = 2.0 * norm.sf(np.abs(z).max())
        assert smallest * z.size >= 1e-5, f"largest |z| is {np.abs(z).max():.2f} of {z.size}"

    return check


class Posterior:
    """p(f | y) for n <= 3 on a product grid in white coordinates: the trapezoid rule converges geometrically."""

    def __init__(self, K, y_sign, step):
        n = len(y_sign)
        axis = np.arange(-8.4, 8.4 + 0.5 * step, step)
        white = np.stack([g.ravel() for g in np.meshgrid(*[axis] * n, indexing="ij")], axis=1)
        self.f = white @ np.linalg.cholesky(K).T
        weight = np.exp(-0.5 * np.square(white).sum(axis=1)) * (step / np.sqrt(2 * np.pi)) ** n
        weight *= np.prod(expit(y_sign * self.f), axis=1)
        self.log_evidence = float(np.log(weight.sum()))
        self.weight = weight / weight.sum()
        self.mean = self.weight @ self.f
        self.cov = (self.f - self.mean).T @ ((self.f - self.mean) * self.weight[:, None])


@pytest.fixture
def quadrature_posterior():
    return Posterior
