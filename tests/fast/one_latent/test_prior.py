"""Whitened conditioning and the optimal q(u), against dense algebra with inverses."""

import numpy as np
import pytest

from fast.core.linalg import cholesky, solve_rows
from fast.methods import x_gpc
from fast.one_latent.prior import update_global, whiten
from values_given import binary, model_values


@pytest.mark.verifies("wenzel2019", "6", route="dense conditioning of the joint Gaussian")
def test_whitened_rows_condition_the_latent_values_on_the_inducing_values(rng, make_problem, dense_sparse):
    p = make_problem()
    dense = dense_sparse(**vars(p))
    L = cholesky(dense.K_ZZ, "K_ZZ", "")
    got = whiten(p.X, p.Z, L, p.variance, p.lengthscales, p.noise)
    u = rng.normal(size=len(p.Z))
    v = solve_rows(L, u[None].copy())[0]
    # condition of K_ZZ below 1e4
    np.testing.assert_allclose(got.rows @ v, dense.kappa @ u, rtol=0, atol=1e-10 * np.abs(dense.kappa @ u).max())
    np.testing.assert_allclose(got.cond_var, dense.K_tilde.diagonal(), rtol=0, atol=1e-10 * p.variance)


@pytest.mark.verifies("wenzel2019", "18", "A.4-mu", route="dense algebra with inverses")
def test_the_global_update_gives_the_printed_natural_parameter_and_mean(rng, make_problem, dense_sparse):
    p = make_problem()
    dense = dense_sparse(**vars(p))
    theta = 0.25 * rng.random(len(p.y))
    y_sign = 2.0 * p.y - 1.0
    L = cholesky(dense.K_ZZ, "K_ZZ", "")
    A = np.linalg.solve(L, dense.K_XZ.T)
    factor, shift = update_global(np.eye(len(p.Z)) + (A * theta) @ A.T, 0.5 * A @ y_sign)
    inverse_L = np.linalg.inv(L)
    eta_2 = -0.5 * (dense.inverse + dense.kappa.T @ (theta[:, None] * dense.kappa))
    mu = -0.25 * np.linalg.inv(eta_2) @ dense.kappa.T @ y_sign
    # condition of K_ZZ below 1e4, squared in kappa' Theta kappa
    got = -0.5 * inverse_L.T @ factor @ factor.T @ inverse_L
    np.testing.assert_allclose(got, eta_2, rtol=0, atol=1e-9 * np.abs(eta_2).max())
    np.testing.assert_allclose(L @ np.linalg.solve(factor.T, shift), mu, rtol=0, atol=1e-9 * np.abs(mu).max())


@pytest.mark.parametrize("full", [False, True])
def test_moments_of_the_inducing_values_are_the_printed_ones(make_problem, dense_sparse, dense_kernel, full):
    p = make_problem(full=full)
    n = len(p.y)
    posterior = x_gpc.fit(*model_values(p))
    theta = np.tanh(posterior.c / 2) / (2 * posterior.c)
    if full:
        K, kappa = dense_kernel(p.X, p.X, p.variance, p.lengthscales) + (p.noise + p.jitter) * np.eye(n), np.eye(n)
    else:
        dense = dense_sparse(**vars(p))
        K, kappa = dense.K_ZZ, dense.kappa
    Sigma = np.linalg.inv(np.linalg.inv(K) + kappa.T @ (theta[:, None] * kappa))
    mu = 0.5 * Sigma @ kappa.T @ (2.0 * p.y - 1.0)
    # condition of K below 1e4
    np.testing.assert_allclose(posterior.inducing_cov, Sigma, rtol=0, atol=1e-10 * Sigma.max())
    np.testing.assert_allclose(posterior.inducing_mean, mu, rtol=0, atol=1e-10 * np.abs(mu).max())
    if full:
        np.testing.assert_allclose(posterior.inducing_cov.diagonal(), posterior.latent_var, rtol=1e-12, atol=0)


def test_a_full_gp_needs_no_invertible_covariance(make_problem):
    p = make_problem(full=True, noise=0.0, jitter=0.0)
    p.X = np.repeat(p.X[:5], 3, axis=0)[:14]  # rank 5
    posterior = x_gpc.fit(*model_values(p))
    assert posterior.converged
    # equal rows have equal latent values
    np.testing.assert_allclose(posterior.latent_mean[0], posterior.latent_mean[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_inducing_points_at_the_data_give_the_full_gp(make_problem, noise):
    p = make_problem(noise=0.0, jitter=0.0, full=True)
    full = x_gpc.fit(*model_values(p))
    sparse = x_gpc.fit(*binary(x_gpc.XGPCOptions, **{**vars(p), "Z": p.X, "noise": noise}))
    if noise == 0.0:
        # condition of K_XX about 1e4
        np.testing.assert_allclose(sparse.elbo, full.elbo, rtol=1e-10, atol=0)
        np.testing.assert_allclose(sparse.c, full.c, rtol=1e-8, atol=0)
    else:  # K_tilde = noise then: another model, and a looser bound on it
        assert sparse.elbo < x_gpc.fit(*binary(x_gpc.XGPCOptions, **{**vars(p), "noise": noise})).elbo
