"""The sparse prior (6) and the sparse augmented joint density (7), by conditioning dense joint Gaussians."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from reference.common.errors import NotPositiveDefiniteError
from reference.wenzel2019.sparse import log_joint_sparse, sparse_prior


def joint_covariance(model):
    return np.block([[model.K_XX, model.K_XZ], [model.K_XZ.T, model.K_ZZ]])


@pytest.mark.verifies("wenzel2019", "6", route="blocks of the joint precision matrix")
def test_the_conditional_of_latent_values_follows_from_the_joint_precision(model):
    precision = np.linalg.inv(joint_covariance(model))
    wanted_cov = np.linalg.inv(precision[: model.n, : model.n])
    wanted_mean = -wanted_cov @ precision[: model.n, model.n :] @ model.u
    got = sparse_prior(model.u, model.K_ZZ, model.K_XZ, model.K_XX)
    # condition of the joint covariance below 1e4: rounding leaves 1e-12
    np.testing.assert_allclose(got.mean, wanted_mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(got.cov, wanted_cov, rtol=0, atol=1e-10)
    wanted = multivariate_normal.logpdf(model.u, np.zeros(model.m), model.K_ZZ)
    np.testing.assert_allclose(got.log_inducing, wanted, rtol=1e-11, atol=0)


@pytest.mark.verifies("wenzel2019", "7", route="density of the joint Gaussian of (f, u)")
def test_the_sparse_joint_density_is_the_joint_gaussian_times_the_factors(model):
    both = np.concatenate([model.f, model.u])
    wanted = multivariate_normal.logpdf(both, np.zeros(len(both)), joint_covariance(model))
    factors = 0.5 * np.exp(0.5 * model.y * model.f - 0.5 * model.omega * model.f**2)
    got = log_joint_sparse(model.f, model.u, model.omega, model.y, model.K_ZZ, model.K_XZ, model.K_XX)
    # condition of the joint covariance below 1e4
    np.testing.assert_allclose(got, wanted + np.sum(np.log(factors)), rtol=1e-10, atol=0)


def test_a_latent_value_fixed_by_the_inducing_values_has_no_density(model):
    with pytest.raises(NotPositiveDefiniteError, match=r"K_tilde \(3, 3\)"):
        log_joint_sparse(
            model.u, model.u, np.ones(3), np.ones(3), model.K_ZZ, model.K_ZZ, model.K_ZZ - 1e-3 * np.eye(3)
        )


def test_duplicate_inducing_points_without_jitter_are_an_error(model):
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(2, 2\).*raise jitter or remove duplicate rows of Z"):
        sparse_prior(np.zeros(2), np.ones((2, 2)), model.K_XZ[:, :2], model.K_XX)
