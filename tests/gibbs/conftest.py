"""What the tests of the sampler share: a seeded generator, a z-test, and posteriors by brute-force quadrature."""

import itertools

import numpy as np
import pytest
from scipy.linalg import block_diag
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


class Orthants:
    """The posterior of h ~ N(0, S) per class, under (1 - ε)[h_y is the largest] + ε/C, by products of Gauss-Legendre.

    The margins d = A h, n (C - 1) <= 4 of them, have a density that is smooth inside each orthant, and the likelihood
    is constant there; whatever else is Gaussian is linear in d. S is (C, n, n).
    """

    def __init__(self, S, y, epsilon=0.0, nodes=32):
        C, n = S.shape[:2]
        self.joint = block_diag(*S)  # order: class, datum
        A = []
        for i, label in enumerate(y):
            for j in range(C):
                if j != label:
                    row = np.zeros(C * n)
                    row[label * n + i], row[j * n + i] = 1.0, -1.0
                    A.append(row)
        self.A = np.array(A)
        self.G = self.A @ self.joint @ self.A.T
        chol, P = np.linalg.cholesky(self.G), len(A)
        x, w = np.polynomial.legendre.leggauss(nodes)
        width = 7.5 * np.sqrt(np.diag(self.G))
        total, first, second = 0.0, np.zeros(P), np.zeros((P, P))
        for signs in itertools.product((1.0, -1.0), repeat=P):
            inside = np.all(np.reshape(signs, (n, C - 1)) > 0, axis=1)
            weight = np.prod(np.where(inside, 1.0 - epsilon + epsilon / C, epsilon / C))
            if weight == 0.0:
                continue
            axes = [s * 0.5 * (x + 1.0) * wd for s, wd in zip(signs, width, strict=True)]
            d = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")])
            mass = np.prod([g.ravel() for g in np.meshgrid(*[w * wd / 2 for wd in width], indexing="ij")], axis=0)
            white = np.linalg.solve(chol, d)
            mass *= weight * np.exp(-0.5 * np.square(white).sum(axis=0))
            mass /= np.prod(np.diag(chol)) * (2 * np.pi) ** (P / 2)
            total += mass.sum()
            first += d @ mass
            second += (d * mass) @ d.T
        self.evidence = total
        self.mean = first / total
        self.cov = second / total - np.outer(self.mean, self.mean)

    def moments(self, cross, prior):
        """Mean and covariance of Gaussians with Cov(t, h) = cross (T, C n) and prior covariance (T, T)."""
        gain = cross @ self.A.T @ np.linalg.inv(self.G)
        return gain @ self.mean, prior - gain @ self.G @ gain.T + gain @ self.cov @ gain.T


@pytest.fixture
def orthants():
    return Orthants
