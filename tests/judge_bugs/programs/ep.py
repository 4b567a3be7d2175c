"""Expectation propagation for the probit link on all rows (Rasmussen and Williams 2006, 3.6), site by site."""

import numpy as np
from scipy.special import log_ndtr, ndtr

from triad import Solution


def kernel(A, B, p):
    r = (A[:, None] - B[None]) / p.lengthscales[0]
    return p.variance[0] * np.exp(-0.5 * (r**2).sum(axis=-1))


def answer(method, p):
    if p.kernel != "se" or p.Z is not None:
        raise NotImplementedError("squared exponential kernel, all rows")
    n, y = p.n, p.y_sign
    K = kernel(p.X, p.X, p) + (p.noise[0] + p.jitter[0]) * np.eye(n)
    tau, nu = np.zeros(n), np.zeros(n)
    mean, cov = np.zeros(n), K.copy()
    for _ in range(300):
        old = np.concatenate([tau, nu])
        for i in range(n):
            tau_minus = 1.0 / cov[i, i] - tau[i]
            nu_minus = mean[i] / cov[i, i] - nu[i]
            m, v = nu_minus / tau_minus, 1.0 / tau_minus
            z = y[i] * m / np.sqrt(1.0 + v)
            ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
            m_hat = m + y[i] * v * ratio / np.sqrt(1.0 + v)
            v_hat = v - v**2 * ratio * (z + ratio) / (1.0 + v)
            change = 1.0 / v_hat - tau_minus - tau[i]
            tau[i] += change
            nu[i] = m_hat / v_hat - nu_minus
            column = cov[:, i].copy()
            cov -= change / (1.0 + change * column[i]) * np.outer(column, column)
            mean = cov @ nu
        root = np.sqrt(tau)
        B = np.eye(n) + root[:, None] * K * root
        cov = K - K @ (root[:, None] * np.linalg.solve(B, root[:, None] * K))
        mean = cov @ nu
        if np.abs(np.concatenate([tau, nu]) - old).max() < 1e-11:
            break
    tau_minus = 1.0 / np.diagonal(cov) - tau
    nu_minus = mean / np.diagonal(cov) - nu
    m, v = nu_minus / tau_minus, 1.0 / tau_minus
    log_z = log_ndtr(y * m / np.sqrt(1.0 + v)).sum()
    log_z += 0.5 * np.log1p(tau * v).sum() - 0.5 * np.linalg.slogdet(B)[1]
    log_z += 0.5 * nu @ mean
    log_z += 0.5 * ((tau * m**2 - 2.0 * nu * m - nu**2 * v) / (1.0 + tau * v)).sum()
    cross = kernel(p.X_test, p.X, p)
    inner = root[:, None] * np.linalg.solve(B, np.diag(root))
    test_mean = cross @ (nu - inner @ (K @ nu))
    test_var = p.variance[0] + p.noise[0] - np.einsum("ti,ij,tj->t", cross, inner, cross)
    prob = ndtr(test_mean / np.sqrt(1.0 + test_var))
    return Solution(
        p,
        "ep",
        method,
        log_evidence=log_z,
        latent_mean=mean[:, None],
        latent_cov=np.diagonal(cov)[:, None, None],
        test_latent_mean=test_mean[:, None],
        test_latent_cov=test_var[:, None, None],
        probabilities=np.stack([1.0 - prob, prob], axis=1),
    )


answer.likelihoods = ("probit",)
answer.points = "all rows"
