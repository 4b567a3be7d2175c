"""Laplace's approximation for the logistic link: Newton's method on all rows (Rasmussen and Williams 2006, 3.4)."""

import numpy as np
from scipy.special import expit

from triad import Solution


def kernel(A, B, p):
    r = (A[:, None] - B[None]) / p.lengthscales[0]
    return p.variance[0] * np.exp(-0.5 * (r**2).sum(axis=-1))


def average(mean, var):
    """The mean of the logistic function under normal densities, by a trapezoidal rule."""
    x = np.linspace(-9.0, 9.0, 801)
    weight = np.exp(-0.5 * x**2)
    return expit(mean[:, None] + np.sqrt(var)[:, None] * x) @ weight / weight.sum()


def answer(method, p):
    if p.kernel != "se" or p.Z is not None:
        raise NotImplementedError("squared exponential kernel, all rows")
    n = p.n
    K = kernel(p.X, p.X, p) + (p.noise[0] + p.jitter[0]) * np.eye(n)
    y = p.y_sign
    f = np.zeros(n)
    for _ in range(200):
        pi = expit(f)
        W = pi * (1.0 - pi)
        gradient = 0.5 * (y + 1.0) - pi
        new = K @ np.linalg.solve(np.eye(n) + W[:, None] * K, W * f + gradient)
        step = np.abs(new - f).max()
        f = new
        if step < 1e-11:
            break
    pi = expit(f)
    W = pi * (1.0 - pi)
    gradient = 0.5 * (y + 1.0) - pi
    root = np.sqrt(W)
    B = np.eye(n) + root[:, None] * K * root
    inner = root[:, None] * np.linalg.solve(B, np.diag(root))
    cov = K - K @ inner @ K
    log_likelihood = -np.logaddexp(0.0, -y * f).sum()
    log_z = log_likelihood - 0.5 * f @ gradient - 0.5 * np.linalg.slogdet(B)[1]
    cross = kernel(p.X_test, p.X, p)
    mean = cross @ gradient
    var = p.variance[0] + p.noise[0] - np.einsum("ti,ij,tj->t", cross, inner, cross)
    prob = average(mean, var)
    return Solution(
        p,
        "laplace",
        method,
        log_evidence=log_z,
        latent_mean=f[:, None],
        latent_cov=np.diagonal(cov)[:, None, None],
        test_latent_mean=mean[:, None],
        test_latent_cov=var[:, None, None],
        probabilities=np.stack([1.0 - prob, prob], axis=1),
    )


answer.likelihoods = ("logit",)
