"""Small problems of several classes with inducing points, and what they are in dense algebra."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.stats import norm

D = 2
_NODES, _WEIGHTS = leggauss(120)
_SHARED = ("variance", "lengthscales", "noise", "Z")


def problem(
    seed=0, *, n, n_classes=3, m=3, shared=False, variance=(1.0, 2.0), lengthscales=(0.8, 1.4), noise=(0.1, 0.2),
    **changed,
):  # fmt: skip
    """Random labels, and a prior of each class with parameters between those bounds, or one for all (shared)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    y = rng.integers(0, n_classes, n)
    values = {
        "variance": rng.uniform(*variance, n_classes),
        "lengthscales": rng.uniform(*lengthscales, (n_classes, D)),
        "noise": rng.uniform(*noise, n_classes),
        "Z": rng.standard_normal((n_classes, m, D)),
    }
    if shared:
        values = {name: np.repeat(value[:1], n_classes, axis=0) for name, value in values.items()}
    return {"X": X, "y": y, "n_classes": n_classes, **values, "jitter": 1e-3, "shared": shared} | changed


def with_every_class(given):
    """The problem, its first labels one of each class, jitter an array."""
    n_classes, y = given["n_classes"], given["y"].copy()
    y[:n_classes] = np.arange(n_classes)[: y.size]
    return given | {"y": y, "jitter": np.full(n_classes, given["jitter"])}


def ordered(C, n, m, seed, blur):
    """Labels that follow the first input but for noise of standard deviation blur."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    y = np.digitize(X[:, 0] + blur * rng.normal(size=n), np.linspace(-1.0, 1.0, C + 1)[1:-1])
    return {
        "X": X, "y": y.astype(np.int64), "n_classes": C, "variance": rng.uniform(1.0, 3.0, C),
        "lengthscales": rng.uniform(0.7, 1.5, (C, D)), "noise": rng.uniform(0.1, 0.5, C), "jitter": np.full(C, 1e-6),
        "Z": rng.normal(size=(C, m, D)),
    }  # fmt: skip


def kernels(p, X=None):
    """K_ZZ (C, m, m), jitter included, and k(X, Z) (C, n, m)."""
    X = p["X"] if X is None else X
    jitter = np.broadcast_to(p["jitter"], p["n_classes"])

    def kernel(a, b, k):
        return p["variance"][k] * np.exp(-0.5 * (((a[:, None] - b[None]) / p["lengthscales"][k]) ** 2).sum(axis=2))

    classes = range(p["n_classes"])
    K = np.array([kernel(p["Z"][k], p["Z"][k], k) + jitter[k] * np.eye(p["Z"].shape[1]) for k in classes])
    return K, np.array([kernel(X, p["Z"][k], k) for k in classes])


def dense(p, X=None):
    """K, upsilon (C, n, m), s (n, C) by explicit inverses."""
    K, cross = kernels(p, X)
    upsilon = cross @ np.linalg.inv(K)
    return K, upsilon, ((p["variance"] + p["noise"])[:, None] - (cross * upsilon).sum(axis=2)).T


def log_power(mean, var, y, alpha, epsilon):
    """log E[p(y|f)^alpha]/alpha of one datum, the label's latent value integrated by Gauss-Legendre nodes."""
    sd = np.sqrt(var)
    t = mean[y] + 9.0 * sd[y] * _NODES
    others = [k for k in range(mean.size) if k != y]
    inside = np.prod([norm.cdf((t - mean[k]) / sd[k]) for k in others], axis=0)
    P = 9.0 * sd[y] * np.sum(_WEIGHTS * norm.pdf(t, mean[y], sd[y]) * inside)
    low, high = np.log(epsilon / mean.size) if epsilon else -np.inf, np.log(1.0 - epsilon + epsilon / mean.size)
    if alpha == 0.0:
        return low + (high - low) * P
    return np.log(np.exp(alpha * low) * (1.0 - P) + np.exp(alpha * high) * P) / alpha


def log_normaliser(precision, shift):
    """Of Gaussians with these natural parameters, less its constant, summed over the classes: (A.25)."""
    solved = np.linalg.solve(precision, shift[..., None])[..., 0]
    return 0.5 * float(np.sum(shift * solved) - np.linalg.slogdet(precision)[1].sum())


def assert_gradients_are_differences(fit, gradients, given, shared):
    """Gradients of log Z at the optimum of q against central differences of its converged value, one entry a field.

    fit : callable    of the fields of `given`
    """
    if shared:
        given = given | {name: np.repeat(given[name][:1], 3, axis=0) for name in _SHARED}
    actual, h = gradients(fit(**given, shared=shared)), 1e-4
    for name, at in (("variance", (1,)), ("lengthscales", (2, 0)), ("noise", (0,)), ("Z", (1, 2, 1))):
        values = []
        for sign in (1.0, -1.0):
            moved = given | {name: given[name].copy()}
            moved[name][(slice(None), *at[1:]) if shared else at] += sign * h
            values.append(fit(**moved, shared=shared).log_evidence)
        # h^2 of truncation, and the distance of q from its optimum, below 1e-9, enters squared
        np.testing.assert_allclose((values[0] - values[1]) / (2 * h), getattr(actual, name)[at], rtol=1e-5, atol=1e-7)
