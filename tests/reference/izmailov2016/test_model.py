"""Gaussian processes and classification with them, (1) to (6)."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.stats import multivariate_normal

from reference.izmailov2016.model import (
    gram_matrix,
    latent_predictive,
    log_evidence,
    log_joint_gpc,
    logistic_class_probability,
    mean_vector,
    predictive_probability,
    sample_gp_prior,
)


@pytest.mark.verifies("izmailov2016", "1", route="a kernel whose Gram matrix is a product")
def test_the_gram_matrix_holds_the_kernel_of_each_ordered_pair(rng):
    X = rng.normal(size=(5, 3))
    A = rng.normal(size=(3, 3))  # not symmetric: the order of the arguments shows
    np.testing.assert_allclose(gram_matrix(lambda a, b: a @ A @ b, X), X @ A @ X.T, rtol=0, atol=1e-13)


@pytest.mark.verifies("izmailov2016", "u2.1-mean", route="a linear mean function")
def test_the_mean_vector_holds_the_mean_of_each_point(rng):
    X = rng.normal(size=(5, 3))
    np.testing.assert_allclose(mean_vector(lambda a: a @ np.arange(3.0), X), X @ np.arange(3.0), rtol=0, atol=1e-14)


@pytest.mark.verifies("izmailov2016", "u2.1-marginal", route="the standard normals that the draws whiten to")
def test_draws_are_linear_in_standard_normals(model):
    got = sample_gp_prior(np.random.default_rng(5), model.f, model.K_XX, 7)
    white = np.linalg.solve(np.linalg.cholesky(model.K_XX), (got - model.f).T).T
    # a condition below 1e3
    np.testing.assert_allclose(white, np.random.default_rng(5).standard_normal((7, model.n)), rtol=0, atol=1e-12)


def test_draws_have_the_mean_and_covariance_of_the_process(rng, model):
    draws = sample_gp_prior(rng, model.f, model.K_XX, 20_000) - model.f
    scale = np.sqrt(np.diag(model.K_XX))
    z_mean = draws.mean(axis=0) / scale * np.sqrt(20_000)
    products = draws[:, :, None] * draws[:, None, :]
    z_cov = (products.mean(axis=0) - model.K_XX) / products.std(axis=0) * np.sqrt(20_000)
    # 27 statistics, two-sided at 1e-4 in all: 4.6 standard errors each
    assert max(np.max(np.abs(z_mean)), np.max(np.abs(z_cov))) < 4.6


@pytest.mark.verifies("izmailov2016", "2", route="mpmath")
def test_the_class_probability_is_the_logistic_function_of_any_size():
    f = np.array([-740.0, -30.0, -1e-9, 0.0, 2.5, 40.0, 1e4])
    wanted = [float(1 / (1 + mpmath.exp(-mpmath.mpf(x)))) for x in f]
    # the exponent is rounded to 740 eps; the smallest is subnormal, 4 digits
    np.testing.assert_allclose(logistic_class_probability(f)[1:], wanted[1:], rtol=1e-14, atol=0)
    np.testing.assert_allclose(logistic_class_probability(f[:1]), wanted[:1], rtol=1e-2, atol=0)


@pytest.mark.verifies("izmailov2016", "3", route="scipy's normal density times logistic factors")
def test_the_joint_density_is_prior_times_sigmoids(model):
    wanted = multivariate_normal.logpdf(model.f, np.zeros(model.n), model.K_XX)
    wanted += np.sum(np.log(1 / (1 + np.exp(-model.y * model.f))))
    assert log_joint_gpc(model.f, model.y, model.K_XX) == pytest.approx(wanted, rel=1e-12, abs=0)


@pytest.mark.verifies(
    "izmailov2016", "4", route="regression, where posterior and prediction are conditionals of one normal"
)
def test_prediction_through_the_posterior_is_prediction_from_the_data(rng, model):
    K, target = model.K_XX, rng.normal(size=model.n)
    K_TX, k_tt = 0.5 * model.K_XZ.T, np.full(model.m, 1.8)
    observed = np.linalg.inv(K + np.diag(rng.uniform(0.1, 2.0, size=model.n)))
    got = latent_predictive(K @ observed @ target, K - K @ observed @ K, K, K_TX, k_tt)
    # condition of K below 1e3
    np.testing.assert_allclose(got.latent_mean, K_TX @ observed @ target, rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.latent_var, k_tt - np.sum(K_TX @ observed * K_TX, axis=1), rtol=0, atol=1e-12)


@pytest.mark.verifies("izmailov2016", "5", route="adaptive quadrature in the latent value")
def test_the_predictive_probability_averages_the_sigmoid(expectation):
    mean, var = np.array([0.3, -2.0, 4.0]), np.array([0.5, 4.0, 1e-3])
    wanted = [expectation(lambda f: 1 / (1 + np.exp(-f)), a, b) for a, b in zip(mean, var, strict=True)]
    got = predictive_probability(mean, var)
    # both quadratures ask for 1e-12
    np.testing.assert_allclose(got.probability, wanted, rtol=1e-11, atol=0)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=1e-12)
    assert np.all(got.error < 1e-11)
    assert np.all(got.error != 0.0)


def test_a_saturated_or_degenerate_prediction_is_exact():
    got = predictive_probability(np.array([900.0, -900.0, 0.7]), np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(got.probability, [1.0, 0.0, 1 / (1 + math.exp(-0.7))], rtol=1e-12, atol=1e-300)


@pytest.mark.verifies("izmailov2016", "6", route="probabilities of all labellings, and scipy's double quadrature")
def test_evidences_of_all_labellings_sum_to_one(model):
    K = model.K_XX[:3, :3]
    total = sum(np.exp(log_evidence(np.array(y), K)) for y in itertools.product([-1.0, 1.0], repeat=3))
    assert total == pytest.approx(1.0, rel=1e-12, abs=0)
    K = K[:2, :2]
    density = multivariate_normal([0, 0], K).pdf
    both = dblquad(lambda a, b: density([a, b]) / (1 + np.exp(-a)) / (1 + np.exp(b)), -12, 12, -12, 12, epsabs=1e-8)
    assert log_evidence(np.array([1.0, -1.0]), K) == pytest.approx(np.log(both[0]), rel=1e-6, abs=0)


@pytest.mark.verifies("izmailov2016", "6", route="a sum over evenly spaced nodes of one latent value")
@pytest.mark.parametrize("deviation", [0.5, 3.0, 8.0, 40.0])
def test_the_evidence_of_one_label_and_of_a_repeated_one_is_an_integral_over_one_value(deviation):
    z = np.linspace(-11.0, 11.0, 20_001)
    weight = np.exp(-0.5 * z * z) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    likelihood = 1.0 / (1.0 + np.exp(-deviation * z))
    # a sum of 20 001 terms, spacing 0.001: rounding is what is left
    one = log_evidence(np.ones(1), np.array([[deviation**2]]))
    assert one == pytest.approx(np.log(weight @ likelihood), rel=0, abs=1e-12)
    # two inputs so near that their latent values are one; 1e-10 of the variance moves log Z by as much at most
    K = deviation**2 * (np.ones((2, 2)) + 1e-10 * np.eye(2))
    both = log_evidence(np.ones(2), K)
    assert both == pytest.approx(np.log(weight @ likelihood**2), rel=0, abs=1e-11 + 0.25e-10 * deviation**2)


def test_evidence_of_many_labels_is_refused(model):
    with pytest.raises(ValueError, match=r"y_sign: found 6 labels, whose grid has .* points, expected at most 3e\+07"):
        log_evidence(model.y, model.K_XX)
