"""The bound: against dense algebra, at equality, below the evidence."""

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import expit, log_expit

from fast.core.values import Data, Prior
from fast.likelihood.polya_gamma import pg_mean
from fast.methods import x_gpc
from fast.one_latent.bound import collapsed_bound, elbo_terms, expected_log_likelihood, kl_whitened
from values_given import model_values


@pytest.mark.verifies("wenzel2019", "A.2-expectation", route="scipy.integrate.quad over f")
@pytest.mark.parametrize("y_sign", [-1.0, 1.0])
def test_the_expected_log_likelihood_is_its_integral(y_sign):
    mean, var, theta = 0.8, 2.5, 0.17
    expected, _ = quad(
        lambda f: (
            (-np.log(2) + y_sign * f / 2 - theta * f**2 / 2)
            * np.exp(-0.5 * (f - mean) ** 2 / var)
            / np.sqrt(2 * np.pi * var)
        ),
        -20.0,
        20.0,
        epsabs=1e-13,
    )
    got = expected_log_likelihood(*(np.array([v]) for v in (y_sign, mean, var, theta)))
    # quad asked for 1e-13
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.verifies("wenzel2019", "A.2-kl-gauss", route="dense formula with inverses and determinants")
def test_the_whitened_divergence_is_the_divergence_of_the_inducing_values(rng):
    m = 5
    W = rng.normal(size=(m, m))
    K = W @ W.T + np.eye(m)
    L = np.linalg.cholesky(K)
    factor = np.asfortranarray(np.tril(rng.normal(size=(m, m)), -1) + np.diag(1.0 + rng.random(m)))
    weights = rng.normal(size=m)
    mu, Sigma = L @ weights, L @ np.linalg.inv(factor @ factor.T) @ L.T
    expected = 0.5 * (
        np.trace(np.linalg.inv(K) @ Sigma)
        + mu @ np.linalg.inv(K) @ mu
        - m
        + np.log(np.linalg.det(K))
        - np.log(np.linalg.det(Sigma))
    )
    # condition numbers below 1e3
    np.testing.assert_allclose(kl_whitened(factor, weights), expected, rtol=1e-11, atol=0)


@pytest.mark.verifies("wenzel2019", "10", "A.2-total", route="dense algebra, any q")
def test_the_bound_is_the_dense_bound_for_a_q_that_is_not_optimal(rng, make_problem, dense_sparse, dense_bound):
    p = make_problem()
    dense = dense_sparse(**vars(p))
    m, n = len(p.Z), len(p.y)
    W = rng.normal(size=(m, m))
    mu, Sigma, c = rng.normal(size=m), W @ W.T + np.eye(m), 0.1 + 3.0 * rng.random(n)
    mean = dense.kappa @ mu
    var = dense.K_tilde.diagonal() + np.einsum("nm,mp,np->n", dense.kappa, Sigma, dense.kappa)
    y_sign = 2.0 * p.y - 1.0
    expected = dense_bound(y_sign, mean, var, c, mu, Sigma, dense.K_ZZ)
    L = np.linalg.cholesky(dense.K_ZZ)
    S = np.linalg.inv(L) @ Sigma @ np.linalg.inv(L).T
    factor = np.asfortranarray(np.linalg.cholesky(np.linalg.inv(S)))
    kl = kl_whitened(factor, np.linalg.solve(L, mu))
    # condition of K_ZZ below 1e4: 1e-12 relative, with room
    np.testing.assert_allclose(elbo_terms(y_sign, mean, var, c, kl), expected, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "10", "A.2-total", route="equality: a point mass at c = |f| gives log p(y | f)")
def test_the_bound_touches_the_log_likelihood_at_c_equal_to_f():
    f = np.array([-3.0, -0.2, 0.5, 2.0, 40.0])
    y_sign = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    got = elbo_terms(y_sign, f, np.zeros(5), np.abs(f), 0.0)
    # a handful of roundings of numbers up to 20
    np.testing.assert_allclose(got, log_expit(y_sign * f).sum(), rtol=0, atol=1e-13)


@pytest.mark.verifies("wenzel2019", "10", route="dense algebra at the optimal q(u)")
@pytest.mark.parametrize("full", [False, True])
def test_the_collapsed_bound_is_the_dense_bound_at_the_optimal_q(
    rng, make_problem, dense_sparse, dense_kernel, dense_bound, full
):
    p = make_problem(full=full)
    n = len(p.y)
    c = 0.2 + 3.0 * rng.random(n)
    theta = np.tanh(c / 2) / (2 * c)
    if full:
        K = dense_kernel(p.X, p.X, p.variance, p.lengthscales) + (p.noise + p.jitter) * np.eye(n)
        kappa, K_tilde = np.eye(n), np.zeros((n, n))
    else:
        dense = dense_sparse(**vars(p))
        K, kappa, K_tilde = dense.K_ZZ, dense.kappa, dense.K_tilde
    y_sign = 2.0 * p.y - 1.0
    Sigma = np.linalg.inv(np.linalg.inv(K) + kappa.T @ (theta[:, None] * kappa))
    mu = 0.5 * Sigma @ kappa.T @ y_sign
    mean = kappa @ mu
    var = K_tilde.diagonal() + np.einsum("nm,mp,np->n", kappa, Sigma, kappa)
    expected = dense_bound(y_sign, mean, var, c, mu, Sigma, K)
    got = x_gpc.sweep(x_gpc.prepare(*model_values(p)), c).evaluation
    # condition of K below 1e4
    np.testing.assert_allclose(got.elbo, expected, rtol=1e-10, atol=0)
    np.testing.assert_allclose(got.latent_mean, mean, rtol=0, atol=1e-9 * np.abs(mean).max())
    np.testing.assert_allclose(got.latent_var, var, rtol=0, atol=1e-9 * var.max())


@pytest.mark.verifies("wenzel2019", "10", route="equality as the prior variance goes to 0")
@pytest.mark.parametrize("full", [False, True])
def test_the_bound_meets_the_evidence_when_the_prior_is_a_point(make_problem, full):
    p = make_problem(variance=1e-14, noise=0.0, jitter=1e-20, full=full)
    # log p(y) = -n log 2 up to n variance / 8
    np.testing.assert_allclose(x_gpc.fit(*model_values(p)).elbo, -len(p.y) * np.log(2), rtol=0, atol=1e-12)


def test_the_bound_is_below_the_evidence_of_two_points():
    X, y = np.array([[0.0], [0.8]]), np.array([1, 0])
    for variance in (0.5, 5.0, 80.0):
        k = variance * np.exp(-0.32)
        precision = np.linalg.inv([[variance, k], [k, variance]])
        norm = np.sqrt(np.linalg.det(precision)) / (2 * np.pi)
        evidence, error = dblquad(
            lambda f, g, Q=precision: expit(f) * expit(-g) * np.exp(-0.5 * np.array([f, g]) @ Q @ np.array([f, g])),
            *(-8 * np.sqrt(variance), 8 * np.sqrt(variance)) * 2,
            epsrel=1e-7,
            epsabs=1e-9,
        )
        log_evidence = np.log(norm * evidence)
        full = x_gpc.fit(Data(X, y), Prior(variance, np.ones(1), 0.0, 0.0)).elbo
        sparse = x_gpc.fit(Data(X, y), Prior(variance, np.ones(1), 0.0, 0.0, Z=np.array([[0.3]]))).elbo
        slack = 2 * error / evidence
        assert full <= log_evidence + slack
        # one inducing point for two data: a smaller family
        assert sparse <= full


def test_the_collapsed_bound_survives_local_parameters_of_a_million():
    c = np.array([1e-9, 1e6])
    got = collapsed_bound(c, pg_mean(c), np.zeros(2), 0.0, 0.0)
    # c tanh(c/2)/4 - log cosh(c/2) = -c/4 + log 2 at large c, 0 at small
    np.testing.assert_allclose(got, -2.5e5 - np.log(2.0), rtol=1e-14, atol=0)
