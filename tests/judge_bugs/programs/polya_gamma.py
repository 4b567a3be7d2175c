"""Polya-Gamma augmentation of the logistic link, coordinate ascent on all rows (Wenzel and others 2019)."""

import numpy as np
from scipy.special import expit

from triad import Solution


def kernel(A, B, p):
    r = (A[:, None] - B[None]) / p.lengthscales[0]
    return p.variance[0] * np.exp(-0.5 * (r**2).sum(axis=-1))


def average(mean, var):
    x = np.linspace(-9.0, 9.0, 801)
    weight = np.exp(-0.5 * x**2)
    return expit(mean[:, None] + np.sqrt(var)[:, None] * x) @ weight / weight.sum()


def answer(method, p):
    if p.kernel != "se" or p.Z is not None:
        raise NotImplementedError("squared exponential kernel, all rows")
    n, y = p.n, p.y_sign
    K = kernel(p.X, p.X, p) + (p.noise[0] + p.jitter[0]) * np.eye(n)
    c = np.ones(n)
    for _ in range(5000):
        theta = np.tanh(0.5 * c) / (2.0 * c)
        B = np.eye(n) + np.sqrt(theta)[:, None] * K * np.sqrt(theta)
        half = np.linalg.solve(np.linalg.cholesky(B), np.sqrt(theta)[:, None] * K)
        cov = K - half.T @ half
        mean = cov @ (0.5 * y)
        new = np.sqrt(mean**2 + np.diagonal(cov))
        step = np.abs(new - c).max()
        c = new
        if step < 1e-11:
            break
    theta = np.tanh(0.5 * c) / (2.0 * c)
    bound = (-np.logaddexp(0.0, -c) - 0.5 * c + 0.5 * theta * c**2).sum()
    bound += 0.5 * (0.5 * y) @ mean - 0.5 * np.linalg.slogdet(B)[1]
    cross = kernel(p.X_test, p.X, p)
    weights = np.linalg.solve(K, cross.T)
    test_mean = weights.T @ mean
    prior = p.variance[0] + p.noise[0]
    test_var = prior - (cross.T * weights).sum(axis=0) + (weights * (cov @ weights)).sum(axis=0)
    prob = average(test_mean, test_var)
    return Solution(
        p,
        "polya-gamma",
        method,
        log_evidence=bound,
        log_evidence_kind="lower bound",
        latent_mean=mean[:, None],
        latent_cov=np.diagonal(cov)[:, None, None],
        test_latent_mean=test_mean[:, None],
        test_latent_cov=test_var[:, None, None],
        probabilities=np.stack([1.0 - prob, prob], axis=1),
    )


answer.likelihoods = ("logit",)
answer.points = "all rows"
