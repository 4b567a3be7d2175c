"""Problems drawn at random whose prior covariances have a condition of at most 1e5: beyond, no digits are fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from validation import Problem
from validation.judge.compare import prior_condition

Rng = np.random.Generator
_NOISES = (1e-3, 0.1, 0.5)


def conditioned(draw: Callable[[Rng], Problem], *seeds: int) -> Problem:
    """The first problem of a seeded stream with a condition of at most 1e5."""
    rng = np.random.default_rng(seeds)
    while True:
        p = draw(rng)
        if prior_condition(p) <= 1e5:
            return p


def binary(rng: Rng, likelihood: str = "logit", kernel: str = "se", smoothness: float | None = None,
           sparse: bool = False, **given: Any) -> Problem:  # fmt: skip
    """Sizes, scales, noise and jitter at random; Z absent (not if sparse), among the data, elsewhere, or more."""
    n, d = int(np.exp(rng.uniform(np.log(3.0), np.log(30.0)))), int(rng.integers(1, 9))
    scale = np.exp(rng.uniform(-2.0, 2.0))
    X = scale * rng.normal(size=(n, d))
    if rng.random() < 0.25:
        X = X[rng.integers(0, n, n)]
    y = (X @ rng.normal(size=d) + scale * np.sqrt(d) * rng.normal(size=n) > 0).astype(int)
    y[0], y[-1] = 0, 1
    m = int(rng.choice([0, rng.integers(1, n + 1), min(n, 6), n + 3][sparse:]))
    among = m <= n and rng.random() < 0.5
    Z = X[rng.permutation(n)[:m]] if among else scale * rng.normal(size=(m, d))
    return Problem(
        name="random",
        X=X,
        y=y,
        n_classes=2,
        likelihood=likelihood,
        kernel=kernel,
        smoothness=smoothness,
        variance=np.exp(rng.uniform(-6.0, 8.0)),
        lengthscales=scale * np.sqrt(d) * np.exp(0.5 * rng.normal(size=d)),
        noise=float(rng.choice([0.0, 1e-3, 0.1, 10.0])),
        jitter=float(rng.choice([0.0, 1e-6, 1e-3])),
        Z=Z if m else None,
        X_test=np.concatenate([X[:2], X[rng.integers(0, n, 3)] + scale * rng.normal(size=(3, d))]),
    ).replace(**given)


def full_binary(rng: Rng, likelihood: str) -> Problem:
    """A full GP with jitter."""
    return binary(rng, likelihood, Z=None, jitter=1e-3)


def classes(
    rng: Rng, n_classes: int, shared: bool, noises: tuple[float, ...] = _NOISES, most: int = 4, **given: Any
) -> Problem:
    """A few data and at most so many inducing points of several classes; parameters shared or one vector a class."""
    n, d, m = int(rng.integers(5, 9)), int(rng.integers(1, 3)), int(rng.integers(2, most + 1))
    X, count = rng.normal(size=(n, d)), 1 if shared else n_classes
    times = n_classes // count
    return Problem(
        name="random",
        X=X,
        y=rng.permutation(np.arange(n) % n_classes),
        n_classes=n_classes,
        likelihood="threshold",
        variance=np.tile(np.exp(rng.uniform(-2.0, 2.0, count)), times),
        lengthscales=np.tile(np.sqrt(d) * np.exp(0.5 * rng.normal(size=(count, d))), (times, 1)),
        noise=np.full(n_classes, rng.choice(noises)),
        jitter=np.full(n_classes, rng.choice([1e-6, 1e-3])),
        Z=np.tile(rng.normal(size=(count, m, d)), (times, 1, 1)),
        shared=shared,
        prior_model="fitc",
        X_test=np.concatenate([X[:1], rng.normal(size=(3, d))]),
    ).replace(**given)


def full_classes(rng: Rng, likelihood: str) -> Problem:
    """Full GPs of two to four classes, parameters shared or one vector a class."""
    C = int(rng.integers(2, 5))
    p = classes(rng, C, bool(rng.random() < 0.5), (0.0, 1e-3, 0.1), variance=np.full(C, np.exp(rng.uniform(-2.0, 4.0))))
    return p.replace(likelihood=likelihood, Z=None, prior_model="full")
