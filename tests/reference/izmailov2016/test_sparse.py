"""Inducing inputs, (7) to (10), by dense Gaussians and quadrature."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from reference.common.errors import NotPositiveDefiniteError
from reference.izmailov2016.bound import elbo
from reference.izmailov2016.model import log_evidence
from reference.izmailov2016.sparse import (
    conditional_f_given_u,
    elbo_generic,
    joint_prior_covariance,
    log_joint_augmented,
    log_prior_inducing,
    marginal_moments,
    marginal_q_f,
    predict_latent,
    variational_family,
)


def joint_of_q(s):
    """Mean and covariance of q(f, u)."""
    cond = s.K_XX - s.kappa @ s.K_XZ.T
    cross = s.kappa @ s.Sigma
    return np.concatenate([s.mean, s.mu]), np.block([[cond + cross @ s.kappa.T, cross], [cross.T, s.Sigma]])


@pytest.mark.verifies("izmailov2016", "7", route="scipy's joint normal density times logistic factors")
def test_the_augmented_density_is_the_joint_prior_times_sigmoids(model):
    s = model
    wanted = multivariate_normal.logpdf(np.concatenate([s.f, s.u]), np.zeros(9), s.joint)
    wanted -= np.sum(np.log1p(np.exp(-s.y * s.f)))
    # condition below 1e4
    assert log_joint_augmented(s.f, s.u, s.y, s.K_ZZ, s.K_XZ, s.K_XX) == pytest.approx(wanted, rel=1e-11, abs=0)


@pytest.mark.verifies("izmailov2016", "u3.1-joint-prior", route="kernel of the stacked points")
def test_the_joint_covariance_is_the_kernel_of_the_stacked_points(model):
    s = model
    both = np.concatenate([s.X, s.Z])
    wanted = 1.6 * np.exp(-0.5 * np.sum(((both[:, None] - both[None]) / s.hyper.lengthscales) ** 2, axis=2))
    wanted += np.diag([0.2] * s.n + [0.05] * s.m)
    np.testing.assert_allclose(joint_prior_covariance(s.K_ZZ, s.K_XZ, s.K_XX), wanted, rtol=0, atol=1e-14)


@pytest.mark.verifies("izmailov2016", "u3.1-prior-u", route="scipy's normal density")
def test_the_prior_of_u_is_normal(model):
    wanted = multivariate_normal.logpdf(model.u, np.zeros(model.m), model.K_ZZ)
    assert log_prior_inducing(model.u, model.K_ZZ) == pytest.approx(wanted, rel=1e-12, abs=0)


@pytest.mark.verifies("izmailov2016", "8", route="blocks of the joint precision matrix")
def test_the_conditional_follows_from_the_joint_precision(model):
    s = model
    precision = np.linalg.inv(s.joint)
    cov = np.linalg.inv(precision[: s.n, : s.n])
    got = conditional_f_given_u(s.u, s.K_ZZ, s.K_XZ, s.K_XX)
    # condition below 1e4
    np.testing.assert_allclose(got.cov, cov, rtol=0, atol=1e-11)
    np.testing.assert_allclose(got.mean, -cov @ precision[: s.n, s.n :] @ s.u, rtol=0, atol=1e-11)


def test_duplicate_inducing_points_without_jitter_are_an_error(model):
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(2, 2\).*raise jitter or remove duplicate rows of Z"):
        conditional_f_given_u(np.zeros(2), np.ones((2, 2)), model.K_XZ[:, :2], model.K_XX)


@pytest.mark.verifies("izmailov2016", "u3.1-elbo-generic", route="the exact posterior on a grid meets the evidence")
def test_the_generic_bound_is_the_evidence_for_the_posterior_and_less_for_others(make_model):
    s = make_model(1, 1)
    line = np.linspace(-9.0, 9.0, 71)
    points = [(f, u) for f in line for u in line]
    step = (line[1] - line[0]) ** 2
    log_joint = np.array(
        [log_joint_augmented(np.array([f]), np.array([u]), s.y, s.K_ZZ, s.K_XZ, s.K_XX) for f, u in points]
    )
    mass = np.exp(log_joint) * step
    truth = log_evidence(s.y, s.K_XX)
    got = elbo_generic(log_joint, log_joint - np.log(mass.sum()), mass / mass.sum())
    # the trapezoidal rule of an analytic function on ± 7 standard deviations
    assert got == pytest.approx(truth, rel=1e-9, abs=0)
    mean, cov = joint_of_q(s)
    log_q = multivariate_normal.logpdf(points, mean, cov)
    below = elbo_generic(log_joint, log_q, np.exp(log_q) * step)
    assert below == pytest.approx(elbo(s.mu, s.Sigma, s.y, *s.K), rel=1e-9, abs=0)
    assert below < truth


@pytest.mark.verifies("izmailov2016", "9", route="joint normal with the moments of q(u, f)")
def test_the_variational_family_is_one_joint_normal(model):
    s = model
    wanted = multivariate_normal.logpdf(np.concatenate([s.f, s.u]), *joint_of_q(s))
    got = variational_family(s.f, s.u, s.mu, s.Sigma, s.K_ZZ, s.K_XZ, s.K_XX)
    # condition below 1e4
    assert got == pytest.approx(wanted, rel=1e-10, abs=0)


@pytest.mark.verifies("izmailov2016", "u3.1-qf", "10", route="Gauss-Hermite sum over u of conditional moments")
def test_the_marginals_are_mixtures_over_u(model):
    s = model
    x, w = np.polynomial.hermite_e.hermegauss(3)  # exact for polynomials of degree 5
    grid = np.stack(np.meshgrid(x, x, x), axis=-1).reshape(-1, 3)
    weights = np.prod(np.stack(np.meshgrid(w, w, w), axis=-1).reshape(-1, 3), axis=1) / np.sqrt(2 * np.pi) ** 3
    means = (s.mu + grid @ s.L.T) @ s.kappa.T
    mean = weights @ means
    cov = s.K_XX - s.kappa @ s.K_XZ.T + (means - mean).T @ (weights[:, None] * (means - mean))
    got, moments = marginal_q_f(s.mu, s.Sigma, s.K_ZZ, s.K_XZ, s.K_XX), marginal_moments(s.mu, s.Sigma, *s.K)
    # sums of 27 terms, condition below 1e3
    np.testing.assert_allclose(got.mean, mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(got.cov, cov, rtol=0, atol=1e-11)
    np.testing.assert_allclose(moments.latent_mean, mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(moments.latent_var, np.diag(cov), rtol=0, atol=1e-11)


@pytest.mark.verifies("izmailov2016", "u3.1-predict", route="rows of the joint q over training and test points")
def test_a_test_point_is_predicted_as_a_training_point_would_be(model):
    s = model
    got = predict_latent(s.mu, s.Sigma, s.K_ZZ, s.K_XZ[:4], s.k_xx[:4])
    mean, cov = joint_of_q(s)
    # condition below 1e3
    np.testing.assert_allclose(got.latent_mean, mean[:4], rtol=0, atol=1e-11)
    np.testing.assert_allclose(got.latent_var, np.diag(cov)[:4], rtol=0, atol=1e-11)
