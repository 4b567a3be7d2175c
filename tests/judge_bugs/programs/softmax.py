"""Laplace's approximation for the softmax: Newton's method on the latent values of all classes at once."""

import numpy as np
from scipy.linalg import block_diag

from triad import Solution


def kernel(A, B, p, k):
    r = (A[:, None] - B[None]) / p.lengthscales[k]
    return p.variance[k] * np.exp(-0.5 * (r**2).sum(axis=-1))


def softmax(f):
    e = np.exp(f - f.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def curvature(pi):
    """(nC, nC), class by class: diag(pi) - pi pi' of each datum."""
    n, C = pi.shape
    W = np.zeros((n * C, n * C))
    for i in range(n):
        at = i + n * np.arange(C)
        W[np.ix_(at, at)] = np.diag(pi[i]) - np.outer(pi[i], pi[i])
    return W


def answer(method, p):
    if p.kernel != "se" or p.Z is not None:
        raise NotImplementedError("squared exponential kernel, all rows")
    n, C = p.n, p.n_classes
    K = block_diag(*[kernel(p.X, p.X, p, k) + (p.noise[k] + p.jitter[k]) * np.eye(n) for k in range(C)])
    onehot = np.eye(C)[p.y]
    f = np.zeros(n * C)
    for _ in range(200):
        pi = softmax(f.reshape(C, n).T)
        W = curvature(pi)
        gradient = (onehot - pi).T.ravel()
        new = np.linalg.solve(np.eye(n * C) + K @ W, K @ (W @ f + gradient))
        step = np.abs(new - f).max()
        f = new
        if step < 1e-11:
            break
    pi = softmax(f.reshape(C, n).T)
    W = curvature(pi)
    gradient = (onehot - pi).T.ravel()
    B = np.eye(n * C) + K @ W
    cov = np.linalg.solve(B, K)
    inner = W @ np.linalg.inv(B)
    log_z = np.log(pi[np.arange(n), p.y]).sum() - 0.5 * f @ gradient - 0.5 * np.linalg.slogdet(B)[1]
    test_mean = np.zeros((p.t, C))
    test_cov = np.zeros((p.t, C, C))
    for k in range(C):
        test_mean[:, k] = kernel(p.X_test, p.X, p, k) @ gradient[k * n : (k + 1) * n]
        for j in range(C):
            block = inner[k * n : (k + 1) * n, j * n : (j + 1) * n]
            left, right = kernel(p.X_test, p.X, p, k), kernel(p.X_test, p.X, p, j)
            test_cov[:, k, j] = -np.einsum("ti,ij,tj->t", left, block, right)
        test_cov[:, k, k] += p.variance[k] + p.noise[k]
    return Solution(
        p,
        "softmax",
        method,
        log_evidence=log_z,
        latent_mean=f.reshape(C, n).T,
        latent_cov=np.einsum("cidi->icd", cov.reshape(C, n, C, n)),
        test_latent_mean=test_mean,
        test_latent_cov=test_cov,
    )
