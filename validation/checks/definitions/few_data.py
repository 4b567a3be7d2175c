"""Two data and up to three classes of unequal parameters: log Z by rules, posterior draws by rejection from the prior.

Rejection needs nothing but the prior and the likelihood, and its draws are independent: they are what a chain, or a
route to log Z that is fed with draws, is held against. Nothing is shared with `gibbs`.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax
from scipy.stats import multivariate_normal

from validation.checks.definitions import hyper_model as own
from validation.door.problem import Problem

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

X = np.array([[-0.6, 0.1], [0.5, -0.2]])
X_TEST = np.array([[0.2, 0.3]])
Z = np.array([[-0.4, 0.0], [0.6, 0.2]])
JITTER = 1e-3
# variance, two lengthscales, noise of each class: none equal
THETAS = np.array([[2.0, 0.9, 1.2, 0.3], [1.2, 0.7, 0.8, 0.5], [3.1, 1.3, 0.6, 0.2]])


class Few(NamedTuple):
    """A likelihood on two data."""

    likelihood: str
    epsilon: float = 0.0
    fitc: bool = False

    @property
    def n_latents(self) -> int:
        """L."""
        return 1 if self.likelihood in own.BINARY else len(THETAS)

    @property
    def n_classes(self) -> int:
        """C."""
        return max(self.n_latents, 2)

    @property
    def y(self) -> Labels:
        """Labels."""
        return np.array([0, 1]) if self.n_latents == 1 else np.array([2, 0])

    @property
    def thetas(self) -> Array:
        """(L, 4)."""
        return THETAS[: self.n_latents]

    @property
    def given(self) -> own.Given:
        """Inputs."""
        return own.Given(X, X_TEST, Z if self.fitc else None, JITTER)

    @property
    def blocks(self) -> list[own.Blocks]:
        """Prior covariances of each latent."""
        return [own.blocks(theta, self.given) for theta in self.thetas]

    @property
    def cov(self) -> Array:
        """(L, n, n) of f, of h for the probits."""
        return np.array([value.data for value in self.blocks]) + own.unit_noise(self.likelihood) * np.eye(len(X))

    def problem(self, hyperprior: Any = None) -> Problem:
        """The question."""
        theta = self.thetas
        return Problem(
            f"few {self.likelihood}", X, self.y, self.n_classes, self.likelihood, theta[:, 0], theta[:, 1:-1],
            noise=theta[:, -1], jitter=JITTER, Z=Z if self.fitc else None, X_test=X_TEST, epsilon=self.epsilon,
            prior_model="fitc" if self.fitc else "full", hyperprior=hyperprior,
        )  # fmt: skip

    def log_evidence(self) -> float:
        """Orthants of scipy for constraints, product rules for logit and softmax."""
        if self.likelihood in own.SMOOTH:
            return self._by_rule()
        margins = margin_covariance(self.cov, self.y)
        J, n, total = self.n_classes - 1, len(X), 0.0
        for wrong in itertools.product((False, True), repeat=n):
            weight = float(np.prod([self.epsilon / self.n_classes if w else 1.0 - self.epsilon for w in wrong]))
            if weight > 0.0:
                rows = [i * J + j for i in range(n) if not wrong[i] for j in range(J)]
                total += weight * (orthant(margins[np.ix_(rows, rows)]) if rows else 1.0)
        return float(np.log(total))

    def _by_rule(self) -> float:
        if self.n_latents == 1:
            nodes = np.linspace(-9.0, 9.0, 181)
            grid = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes, indexing="ij")])
            log_p = log_expit((2.0 * self.y - 1.0)[:, None] * (np.linalg.cholesky(self.cov[0]) @ grid)).sum(axis=0)
        else:  # differences to the last class are all that the softmax sees
            cov = np.block([[self.cov[2] + (a == b) * self.cov[a] for b in range(2)] for a in range(2)])
            nodes = np.linspace(-7.0, 7.0, 29)
            grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * 4, indexing="ij")])
            e = (np.linalg.cholesky(cov) @ grid).reshape(2, 2, -1)
            scores = log_softmax(np.concatenate([e, np.zeros((1, *e.shape[1:]))]), axis=0)
            log_p = scores[self.y, np.arange(2)].sum(axis=0)
        weight = np.exp(-0.5 * (grid**2).sum(axis=0)) * ((nodes[1] - nodes[0]) / np.sqrt(2.0 * np.pi)) ** len(grid)
        return float(np.log(weight @ np.exp(log_p)))

    def draws(self, rng: np.random.Generator, size: int) -> Array:
        """(size, L, n) independent draws of f given y, of h for constraints, by rejection from the prior."""
        root, kept, count = np.linalg.cholesky(self.cov), [], 0
        while count < size:
            v = np.einsum("lij,rlj->rli", root, rng.standard_normal((4 * size, self.n_latents, len(X))))
            kept.append(v[rng.random(len(v)) < self._probability(v)])
            count += len(kept[-1])
        return np.concatenate(kept)[:size]

    def _probability(self, v: Array) -> Array:
        """p(y | v) (r,)."""
        rows = np.arange(len(X))
        if self.likelihood == "logit":
            return np.asarray(expit((2.0 * self.y - 1.0) * v[:, 0]).prod(axis=1))
        if self.likelihood == "probit":
            return np.all((v[:, 0] > 0.0) == (self.y == 1), axis=1).astype(np.float64)
        if self.likelihood == "softmax":
            return np.asarray(np.exp(log_softmax(v, axis=1)[:, self.y, rows].sum(axis=1)))
        right = v.argmax(axis=1) == self.y
        return np.asarray(((1.0 - self.epsilon) * right + self.epsilon / self.n_classes).prod(axis=1))


def margin_covariance(cov: Array, y: Labels) -> Array:
    """Covariance of h_y - h_c, data first, the classes c ≠ y in order; binary: of ± h."""
    L, n = cov.shape[:2]
    if L == 1:
        sign = 2.0 * y - 1.0
        return np.asarray(sign[:, None] * cov[0] * sign)
    A = np.array(
        [
            [(k == y[i]) * (j == i) - (k == c) * (j == i) for k in range(L) for j in range(n)]
            for i in range(n)
            for c in range(L)
            if c != y[i]
        ],
        dtype=np.float64,
    )
    joint = np.zeros((L * n, L * n))
    for k in range(L):
        joint[k * n : (k + 1) * n, k * n : (k + 1) * n] = cov[k]
    return np.asarray(A @ joint @ A.T)


def orthant(cov: Array) -> float:
    """P(all > 0): scipy's rule by Genz, to 1e-6."""
    zero, rng = np.zeros(len(cov)), np.random.default_rng(0)
    if len(cov) == 1:
        return 0.5
    result = multivariate_normal.cdf(zero, zero, cov, maxpts=400_000, abseps=1e-6, releps=1e-6, rng=rng)
    return float(result)
