"""Laplace's approximation for the softmax in dense algebra, a program of its own that `judge` is asked about.

All C n latent values at once, rows class by class; full processes, and FITC where the problem has inducing points.
Class probabilities by conditioning: given the differences of the other classes to one of them, that of class k is a
logistic function, whose smoothed value depends on one number and is read off a table (a spline of a trapezoidal rule).
What is left are C - 2 dimensions, again by a trapezoidal rule: errors below 1e-9 up to sd 10.
"""

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import block_diag
from scipy.special import expit, log_softmax, softmax

from validation import Solution

LIKELIHOODS, KERNELS = ("softmax",), ("se",)


def kernel(p, c, A, B):
    scaled = (A[:, None] - B[None]) / p.lengthscales[c]
    return p.variance[c] * np.exp(-0.5 * (scaled**2).sum(axis=-1))


def prior(p, c):
    """K at the data, between test points and data, and (Z, data), (Z, Z)."""
    K, K_test = kernel(p, c, p.X, p.X), kernel(p, c, p.X_test, p.X)
    if p.Z is None:
        return K + (p.noise[c] + p.jitter[c]) * np.eye(p.n), K_test, None, None
    K_u, K_uu = kernel(p, c, p.Z[c], p.X), kernel(p, c, p.Z[c], p.Z[c]) + p.jitter[c] * np.eye(len(p.Z[c]))
    weights = np.linalg.solve(K_uu, K_u)
    Q = K_u.T @ weights
    Q[np.diag_indices(p.n)] = p.variance[c] + p.noise[c]
    return Q, kernel(p, c, p.X_test, p.Z[c]) @ weights, K_u, K_uu


def probabilities(mean, cov):
    """E[softmax(f)], f ~ N(mean, cov): (t, C)."""
    t, C = mean.shape
    result = np.empty((t, C))
    for i in range(t):
        for k in range(C):
            result[i, k] = one_class(mean[i], cov[i], k)
    return result


def one_class(m, S, k):
    C = len(m)
    base = (k + 1) % C
    rest = [c for c in range(C) if c not in (k, base)]
    A = np.zeros((C - 1, C))  # differences to the base: the rest, then k
    A[np.arange(C - 1), [*rest, k]], A[:, base] = 1.0, -1.0
    mu, L = A @ m, np.linalg.cholesky(A @ S @ A.T)
    sd = L[-1, -1]
    h = min(0.3, 0.85 / np.abs(L).sum(axis=0).max())
    axis = h * np.arange(-int(7.0 / h), int(7.0 / h) + 1)
    z = (
        np.stack([g.ravel() for g in np.meshgrid(*[axis] * (C - 2), indexing="ij")], axis=1)
        if rest
        else np.zeros((1, 0))
    )
    d = mu[:-1] + z @ L[:-1, :-1].T
    x = mu[-1] + z @ L[-1, :-1] - np.logaddexp.reduce(np.column_stack([np.zeros(len(d)), d]), axis=1)
    fine = min(0.2, 0.8 / sd)
    nodes = fine * np.arange(-int(7.0 / fine), int(7.0 / fine) + 1)
    density = np.exp(-0.5 * nodes**2)
    grid = np.linspace(x.min() - 0.1, x.max() + 0.1, int(np.ceil((np.ptp(x) + 0.2) / 0.02)) + 2)
    table = CubicSpline(grid, expit(grid[:, None] + sd * nodes) @ (density / density.sum()))
    weight = np.exp(-0.5 * (z**2).sum(axis=1))
    return float(table(x) @ weight / weight.sum())


class SoftmaxLaplace:
    """The program.

    `test_cov(cov, conditional)` and `integral(mean, cov)` change its prediction, where conditional is the covariance of
    f given the latent values at the data; the fields of `without` are left out.
    """

    likelihoods, kernels = LIKELIHOODS, KERNELS

    def __init__(self, test_cov=None, integral=probabilities, without=()):
        self.test_cov, self.integral, self.without = test_cov, integral, without

    def __call__(self, method, p):
        n, C = p.n, p.n_classes
        parts = [prior(p, c) for c in range(C)]
        K, Y = block_diag(*[part[0] for part in parts]), np.eye(C)[p.y]
        f, step = np.zeros(n * C), np.inf
        while step > 1e-12:
            pi = softmax(f.reshape(C, n), axis=0)
            stacked = np.tile(np.eye(n), (C, 1)) * pi.reshape(-1, 1)
            W = np.diag(pi.reshape(-1)) - stacked @ stacked.T
            gradient = Y.T.reshape(-1) - pi.reshape(-1)
            moved = K @ np.linalg.solve(np.eye(n * C) + W @ K, W @ f + gradient) - f
            step, size = np.abs(moved).max() / (1.0 + np.abs(f).max()), 1.0
            while step > 1e-6 and objective(f + size * moved, K, p.y, C) < objective(f, K, p.y, C):
                size *= 0.5
            f = f + size * moved
        inner = np.linalg.solve(np.eye(n * C) + W @ K, W)
        cov = K - K @ inner @ K
        log_z = objective(f, K, p.y, C) - 0.5 * np.linalg.slogdet(np.eye(n * C) + W @ K)[1]
        K_test = np.zeros((p.t, C, n * C))
        for c in range(C):
            K_test[:, c, c * n : (c + 1) * n] = parts[c][1]
        mean = K_test @ gradient
        open_var = np.diag(p.variance + p.noise)
        test_cov = open_var - K_test @ inner @ K_test.transpose(0, 2, 1)
        if self.test_cov is not None:
            conditional = open_var - K_test @ np.linalg.solve(K, K_test.transpose(0, 2, 1))
            test_cov = self.test_cov(test_cov, conditional)
        at = np.arange(n)
        by_class = cov.reshape(C, n, C, n)
        given = {
            "log_evidence": log_z,
            "latent_mean": f.reshape(C, n).T,
            "latent_cov": by_class[:, at, :, at],
            "test_latent_mean": mean,
            "test_latent_cov": test_cov,
            "probabilities": self.integral(mean, test_cov),
        }
        if p.Z is not None:
            of = [slice(c * n, (c + 1) * n) for c in range(C)]
            given["inducing_mean"] = np.stack([parts[c][2] @ gradient[of[c]] for c in range(C)])
            given["inducing_cov"] = np.stack(
                [parts[c][3] - parts[c][2] @ inner[of[c], of[c]] @ parts[c][2].T for c in range(C)]
            )
        return Solution(p, "mine", method, **{k: v for k, v in given.items() if k not in self.without})


def objective(f, K, y, C):
    """log p(y|f) + log N(f|0, K) without the determinant."""
    return log_softmax(f.reshape(C, -1), axis=0)[y, np.arange(len(y))].sum() - 0.5 * f @ np.linalg.solve(K, f)
