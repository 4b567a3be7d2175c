"""What chains over kernel parameters must know, from its definition: hyperpriors, covariances, likelihoods, moments.

Dense matrices, one parameter vector (variance, lengthscales, noise) at a time, densities of scipy.stats: nothing is
shared with `gibbs`. Parameters are learnt in their logarithms w = log x, so a density of x carries the Jacobian x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, log_expit, log_ndtr, log_softmax

Array = NDArray[np.float64]
Distribution = tuple[str, float, float]  # family, df, scale, as a problem's hyperprior has it

FIELDS = ("variance", "lengthscales", "noise")
BINARY = ("logit", "probit")
SMOOTH = ("logit", "softmax")  # chains over f; the others are over h, whose order decides


class Given(NamedTuple):
    """A prior's fixed part: inputs, jitter, and inducing inputs of the prior model FITC."""

    X: Array  # (n, d)
    X_test: Array  # (t, d)
    Z: Array | None  # (m, d)
    jitter: float


class Blocks(NamedTuple):
    """Covariances of one latent function at one parameter vector."""

    data: Array  # (n, n)
    test: Array  # (t, n)
    test_var: Array  # (t,)
    cross: Array | None  # (m, n)
    inducing: Array | None  # (m, m)


def log_density(w: Array, distribution: Distribution, *, root: bool = False) -> Array:
    """log p(w) of w = log x; root: the distribution is that of the square root of x.

    A half-Student-t has twice the density of a t of that scale, a log-normal is `scipy.stats.lognorm`; x = exp(w)
    brings the Jacobian dx/dw.
    """
    family, df, scale = distribution
    power = 0.5 if root else 1.0
    x = np.exp(power * np.asarray(w))
    if family == "half-student-t":
        log_p = np.log(2.0) + stats.t.logpdf(x, df, scale=scale)
    else:
        log_p = stats.lognorm.logpdf(x, df, scale=scale)
    return np.asarray(log_p + np.log(power * x))


def draw(rng: np.random.Generator, distribution: Distribution, size: int) -> Array:
    """Draws of x from its distribution, by the quantile function."""
    family, df, scale = distribution
    u = rng.random(size)
    if family == "half-student-t":
        return np.asarray(stats.t.ppf(0.5 + 0.5 * u, df, scale=scale))
    return np.asarray(stats.lognorm.ppf(u, df, scale=scale))


def log_moments(distribution: Distribution) -> tuple[float, float]:
    """Mean and variance of log x, by a trapezoidal rule on `log_density`, whose tails fall exponentially."""
    w = np.log(distribution[2]) + np.linspace(-60.0, 60.0, 24001)
    p = np.exp(log_density(w, distribution)) * (w[1] - w[0])
    mean = float(p @ w)
    return mean, float(p @ (w - mean) ** 2)


def kernel(theta: Array, A: Array, B: Array) -> Array:
    """Squared exponential, (a, b), without noise."""
    square = (((A[:, None] - B[None]) / theta[1:-1]) ** 2).sum(axis=-1)
    return np.asarray(theta[0] * np.exp(-0.5 * square))


def blocks(theta: Array, given: Given) -> Blocks:
    """Noise on the variance of every f at data and test points; jitter on K_XX, with inducing inputs on K_ZZ alone."""
    n, variance, noise = len(given.X), theta[0], theta[-1]
    test_var = np.full(len(given.X_test), variance + noise)
    if given.Z is None:
        K = kernel(theta, given.X, given.X) + (noise + given.jitter) * np.eye(n)
        return Blocks(K, kernel(theta, given.X_test, given.X), test_var, None, None)
    inducing = kernel(theta, given.Z, given.Z) + given.jitter * np.eye(len(given.Z))
    cross = kernel(theta, given.Z, given.X)
    gain = np.linalg.solve(inducing, cross)
    K = cross.T @ gain
    K[np.arange(n), np.arange(n)] = variance + noise
    return Blocks(K, kernel(theta, given.X_test, given.Z) @ gain, test_var, cross, inducing)


def log_gaussian(v: Array, cov: Array) -> float:
    """log N(v; 0, cov)."""
    return float(stats.multivariate_normal.logpdf(v, np.zeros(len(v)), cov))


def log_likelihood(likelihood: str, f: Array, y: NDArray[np.int64], epsilon: float) -> float:
    """log p(y | f) of the logit and the softmax; for constraints log p(y | h), the label's value largest up to errors.

    f (L, n), L = 1 for a binary likelihood; y (n,).
    """
    rows = np.arange(y.size)
    if likelihood == "logit":
        return float(log_expit(np.where(y == 1, 1.0, -1.0) * f[0]).sum())
    if likelihood == "probit":
        return 0.0 if np.all((f[0] > 0.0) == (y == 1)) else -np.inf
    if likelihood == "softmax":
        return float(log_softmax(f, axis=0)[y, rows].sum())
    with np.errstate(divide="ignore"):
        return float(np.log((1.0 - epsilon) * (f.argmax(axis=0) == y) + epsilon / len(f)).sum())


def derivative(function: Callable[[Array], float], at: Array, step: float = 2e-3) -> Array:
    """Gradient of a function of one vector, by central differences of fourth order.

    The step leaves about step^4 of a fifth derivative, 1e-11 of the function's size, and as much rounding, eps/step.
    """
    values = np.empty_like(at)
    for k in range(at.size):
        e = np.zeros_like(at)
        e.flat[k] = step
        near, far = function(at + e) - function(at - e), function(at + 2.0 * e) - function(at - 2.0 * e)
        values.flat[k] = (8.0 * near - far) / (12.0 * step)
    return values


class Moments(NamedTuple):
    """Means and variances given v = f + Gaussian noise."""

    latent_mean: Array
    latent_var: Array
    test_mean: Array
    test_var: Array
    inducing_mean: Array | None
    inducing_cov: Array | None


def conditional(value: Blocks, v: Array, extra: Array) -> Moments:
    """Moments of f, f* and u given v ~ N(f, diag(extra)), by dense solves; `found` has the prior covariances."""
    S = value.data + np.diag(extra)

    def given(cross: Array) -> tuple[Array, Array]:
        gain = np.linalg.solve(S, cross.T).T
        return gain @ v, gain @ cross.T

    mean, explained = given(value.data)
    test_mean, test_explained = given(value.test)
    u_mean = u_cov = None
    if value.cross is not None and value.inducing is not None:
        u_mean, u_explained = given(value.cross)
        u_cov = value.inducing - u_explained
    return Moments(
        mean, np.diag(value.data - explained), test_mean, value.test_var - np.diag(test_explained), u_mean, u_cov
    )


_NODES = np.linspace(-9.0, 9.0, 721)
_WEIGHTS = np.exp(-0.5 * _NODES**2) * (_NODES[1] - _NODES[0]) / np.sqrt(2.0 * np.pi)


def class_probabilities(likelihood: str, mean: Array, var: Array, unit: float, epsilon: float) -> Array:
    """p(c) for independent Gaussian latents mean, var (L,), by one long rule; unit: variance of h given f."""
    at = mean[:, None] + np.sqrt(var + unit)[:, None] * _NODES
    if likelihood == "logit":
        p = float(expit(at[0]) @ _WEIGHTS)
        return np.array([1.0 - p, p])
    if likelihood == "probit":
        p = float(stats.norm.cdf(mean[0] / np.sqrt(var[0] + unit)))
        return np.array([1.0 - p, p])
    values = np.empty(len(mean))
    for c in range(len(mean)):
        others = [j for j in range(len(mean)) if j != c]
        inside = sum(log_ndtr((at[c] - mean[j]) / np.sqrt(var[j] + unit)) for j in others)
        values[c] = np.exp(inside) @ _WEIGHTS
    return np.asarray((1.0 - epsilon) * values + epsilon / len(mean))


def unit_noise(likelihood: str) -> float:
    """Variance of h given f: one for the probits."""
    return 1.0 if likelihood in ("probit", "multinomial-probit") else 0.0


def difference(actual: object, expected: object) -> float:
    """Largest difference over the largest entry (at least one), NaN counted as infinite."""
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if a.shape != b.shape:
        return np.inf
    if not a.size:
        return 0.0
    worst = float(np.abs(a - b).max() / max(1.0, float(np.abs(b).max())))
    return worst if np.isfinite(worst) else np.inf


def positions(learn: Iterable[str], d: int) -> list[int]:
    """Columns of (variance, lengthscales, noise) that are learnt."""
    where = {"variance": [0], "lengthscales": list(range(1, 1 + d)), "noise": [1 + d]}
    return [column for name in FIELDS if name in tuple(learn) for column in where[name]]


def distributions_of(
    hyperprior: Mapping[str, Distribution], learn: Sequence[str], d: int
) -> list[tuple[str, Distribution]]:
    """Field and distribution of each of `positions`."""
    sizes = {"variance": 1, "lengthscales": d, "noise": 1}
    return [(name, hyperprior[name]) for name in FIELDS if name in learn for _ in range(sizes[name])]
