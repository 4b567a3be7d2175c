"""Hamiltonian steps of the kernel parameters given the latent values of the softmax: riihimaki2013, section 4.2.1.

The conditional p(log θ | f) ∝ p(log θ) Π_c N(f_c; 0, K(θ)) is written out from scipy.stats, without gradients.
"""

import numpy as np
import pytest
from scipy.stats import lognorm, multivariate_normal
from scipy.stats import t as student

from gibbs_samplers import make_model

X = np.random.default_rng(5).uniform(-2.0, 2.0, (6, 2))
Y = np.array([0, 1, 2, 0, 1, 2])
JITTER = 1e-3
HYPERPRIOR = {"variance": ("half-student-t", 4.0, 4.0), "lengthscales": ("log-normal", 0.7, 1.0)}


def covariance(w):
    """w = (log variance, two log lengthscales)."""
    gap = (X[:, None] - X[None]) / np.exp(w[1:])
    return np.exp(w[0]) * np.exp(-0.5 * np.square(gap).sum(axis=2)) + JITTER * np.eye(6)


def log_density(w, f):
    x = np.exp(w)
    prior = np.log(2.0) + student.logpdf(x[0], 4.0, scale=4.0) + lognorm.logpdf(x[1:], 0.7, scale=1.0).sum()
    return prior + w.sum() + multivariate_normal(np.zeros(6), covariance(w)).logpdf(f).sum()  # w: the Jacobians


def derivative(w, f):
    # central differences of a function of size 30 with a step of 1e-5: right to about 1e-9
    return np.array([(log_density(w + e, f) - log_density(w - e, f)) / 2e-5 for e in 1e-5 * np.eye(3)])


def model(n_steps):
    result, _ = make_model(
        "softmax", X, Y, 3, 2.0, [1.0, 1.0], 0.0, JITTER, hyperprior=HYPERPRIOR, learn=("variance", "lengthscales"),
        shared=True, n_steps=n_steps,
    )  # fmt: skip
    return result


@pytest.mark.verifies(
    "riihimaki2013", "u4.2.1-hmc", route="leapfrog steps written out, densities of SciPy, central differences"
)
def test_the_path_is_that_of_leapfrog_steps_on_the_conditional_given_the_latent_values(rng):
    f = rng.multivariate_normal(np.zeros(6), covariance(np.zeros(3)), size=3)
    start = rng.normal(0.0, 0.3, (4, 3))
    hyper = np.concatenate([np.exp(start), np.zeros((4, 1))], axis=1)[:, None]
    values = np.broadcast_to(f, (4, 1, 3, 6))
    seed = 11
    got, acceptance, refused = model(3).sufficient_move(
        np.random.default_rng(seed), hyper, values, 0.0, np.full((4, 1), 0.15)
    )
    same = np.random.default_rng(seed)
    momenta = same.standard_normal((4, 1, 3))[:, 0]
    sizes = 0.15 * (0.5 + same.random((4, 1))[:, 0])
    thresholds = np.log1p(-same.random((4, 1))[:, 0])
    for k in range(4):
        w, p, size = start[k].copy(), momenta[k], sizes[k]
        energy = log_density(w, f) - 0.5 * p @ p
        for _ in range(3):
            p = p + 0.5 * size * derivative(w, f)
            w = w + size * p
            p = p + 0.5 * size * derivative(w, f)
        drop = min(0.0, log_density(w, f) - 0.5 * p @ p - energy)
        end = w if thresholds[k] < drop else start[k]
        # gradients by differences are right to 1e-9 and enter a path of length one half
        np.testing.assert_allclose(np.log(got[k, 0, :3]), end, rtol=0.0, atol=1e-7)
        np.testing.assert_allclose(acceptance[k, 0], np.exp(drop), rtol=0.0, atol=1e-7)
    assert not refused.any()
    np.testing.assert_array_equal(got[..., 3], 0.0)


@pytest.mark.verifies(
    "riihimaki2013",
    "u4.2.1-hmc",
    route="draws of the joint distribution of θ and f, Monte Carlo z-test",
    resolves=0.05,
)
def test_exact_draws_of_the_parameters_given_the_latent_values_stay_exact(rng, assert_z):
    # θ from its prior and f from N(0, K(θ)) make θ an exact draw given f, for every f: no chain is needed to start
    chains, repeats = 1500, 2
    w = np.empty((chains, 3))
    w[:, 0] = np.log(4.0 * np.abs(rng.standard_t(4.0, chains)))
    w[:, 1:] = 0.7 * rng.standard_normal((chains, 2))
    f = np.stack([np.linalg.cholesky(covariance(one)) @ rng.standard_normal((6, 3)) for one in w])
    hyper = np.concatenate([np.exp(w), np.zeros((chains, 1))], axis=1)[:, None]
    values = np.swapaxes(f, 1, 2)[:, None]
    acceptance = np.ones(1)
    for _ in range(repeats):
        hyper, acceptance, refused = model(5).sufficient_move(rng, hyper, values, 0.0, np.full((chains, 1), 0.25))
        assert not refused.any()
    after = np.log(hyper[:, 0, :3])
    # with f, each pair (θ, f) is a draw of the joint distribution before and after: paired differences have mean zero
    white = np.stack([np.square(np.linalg.solve(np.linalg.cholesky(covariance(one)), f[k])).mean() for k, one in
                      enumerate(after)])  # fmt: skip
    before = np.stack([np.square(np.linalg.solve(np.linalg.cholesky(covariance(one)), f[k])).mean() for k, one in
                       enumerate(w)])  # fmt: skip
    gaps = np.column_stack([after - w, np.square(after) - np.square(w), white - before])
    assert_z(gaps.mean(axis=0) / (gaps.std(axis=0, ddof=1) / np.sqrt(chains)))
    assert acceptance.mean() > 0.6  # the gradient leads along the density
    assert np.mean(np.abs(after - w)) > 0.2  # and the draws move
