"""Sparse variational approximation for the probit link: natural-gradient steps to the best q(u) (Hensman 2015)."""

import numpy as np
from scipy.special import log_ndtr, ndtr

from triad import Solution

NODES = np.linspace(-9.0, 9.0, 801)  # a trapezoidal rule: steps of a quarter where the variance is 150
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()


def kernel(A, B, p):
    r = (A[:, None] - B[None]) / p.lengthscales[0]
    return p.variance[0] * np.exp(-0.5 * (r**2).sum(axis=-1))


def expectations(mean, var, y):
    """E log p, its derivative by the mean, and minus the second one."""
    f = mean[:, None] + np.sqrt(var)[:, None] * NODES
    z = y[:, None] * f
    ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
    return log_ndtr(z) @ WEIGHTS, y * (ratio @ WEIGHTS), (ratio * (ratio + z)) @ WEIGHTS


def answer(method, p):
    if p.kernel != "se" or p.Z is None:
        raise NotImplementedError("squared exponential kernel, inducing points")
    Z, y, m = p.Z[0], p.y_sign, p.m
    K = kernel(Z, Z, p) + p.jitter[0] * np.eye(m)
    cross = kernel(Z, p.X, p)
    A = np.linalg.solve(K, cross)
    prior = p.variance[0] + p.noise[0]
    conditional = prior - (cross * A).sum(axis=0)
    precision, shift = np.linalg.inv(K), np.zeros(m)
    for _ in range(3000):
        S = np.linalg.inv(precision)
        mu = S @ shift
        mean = A.T @ mu
        var = conditional + (A * (S @ A)).sum(axis=0)
        value, first, second = expectations(mean, var, y)
        new_precision = np.linalg.inv(K) + (A * second) @ A.T
        new_shift = A @ (first + second * mean)
        step = max(np.abs(new_shift - shift).max(), np.abs(new_precision - precision).max())
        precision = precision + 0.5 * (new_precision - precision)
        shift = shift + 0.5 * (new_shift - shift)
        if step < 1e-10 * np.abs(precision).max():
            break
    S = np.linalg.inv(precision)
    mu = S @ shift
    trace = np.trace(np.linalg.solve(K, S))
    square = mu @ np.linalg.solve(K, mu)
    log_det = np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
    kl = 0.5 * (trace + square - m + log_det)
    cross_test = kernel(Z, p.X_test, p)
    A_test = np.linalg.solve(K, cross_test)
    test_mean = A_test.T @ mu
    test_var = prior - (cross_test * A_test).sum(axis=0) + (A_test * (S @ A_test)).sum(axis=0)
    prob = ndtr(test_mean / np.sqrt(1.0 + test_var))
    return Solution(
        p,
        "svgp",
        method,
        log_evidence=value.sum() - kl,
        log_evidence_kind="lower bound",
        evidence_prior_model="full",
        latent_mean=mean[:, None],
        latent_cov=var[:, None, None],
        test_latent_mean=test_mean[:, None],
        test_latent_cov=test_var[:, None, None],
        probabilities=np.stack([1.0 - prob, prob], axis=1),
        inducing_mean=mu[None],
        inducing_cov=S[None],
    )


answer.likelihoods = ("probit",)
answer.points = "inducing points"
