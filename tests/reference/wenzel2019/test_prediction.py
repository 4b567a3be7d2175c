"""Predictive mean, variance and probability of wenzel2019: (13), (14)."""

import math

import mpmath
import numpy as np
import pytest

from reference.wenzel2019.prediction import predict_latent, predict_probability


@pytest.mark.verifies("wenzel2019", "13", route="conditioning the joint prior, then the law of total variance")
def test_latent_predictions_follow_from_the_joint_prior_of_test_and_inducing_values(model):
    joint = np.block([[model.K_XX, model.K_XZ], [model.K_XZ.T, model.K_ZZ]])
    precision = np.linalg.inv(joint)
    conditional = np.linalg.inv(precision[: model.n, : model.n])  # cov(f*|u)
    derivative = -conditional @ precision[: model.n, model.n :]  # E[f*|u] = derivative u
    got = predict_latent(model.mu, model.Sigma, model.K_XZ, np.diag(model.K_XX), model.K_ZZ)
    # condition of the joint covariance below 1e4
    np.testing.assert_allclose(got.latent_mean, derivative @ model.mu, rtol=0, atol=1e-10)
    wanted = np.diag(conditional + derivative @ model.Sigma @ derivative.T)
    np.testing.assert_allclose(got.latent_var, wanted, rtol=0, atol=1e-10)


def test_with_the_prior_as_q_the_prediction_is_the_prior(model):
    got = predict_latent(np.zeros(3), model.K_ZZ, model.K_XZ, np.diag(model.K_XX), model.K_ZZ)
    # Σ K⁻¹ - I cancels up to rounding times a condition below 1e3
    np.testing.assert_allclose(got.latent_var, np.diag(model.K_XX), rtol=1e-11, atol=0)
    np.testing.assert_allclose(got.latent_mean, 0.0, rtol=0, atol=0)


CASES = [(0.0, 1.0), (-2.0, 0.3), (3.0, 40.0), (-30.0, 100.0), (1.0, 1e-12), (1000.0, 1e8), (-1000.0, 1e6), (-1.0, 1e4)]


def probability_in_mpmath(mean, var):
    """∫ σ(f) N(f|mean, var) df with 30 digits, split at the kink and around mean and kink."""
    with mpmath.workdps(30):
        sd = mpmath.sqrt(mpmath.mpf(var))
        kink = -mpmath.mpf(mean) / sd
        near = [kink + mpmath.mpf(k) / sd for k in (-80, -30, -10, -3, 0, 3, 10, 30, 80)]
        cuts = sorted({*[mpmath.mpf(k) for k in range(-14, 15, 2)], *[k for k in near if -14 < k < 14]})
        return mpmath.quad(
            lambda t: mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi) / (1 + mpmath.exp(-mean - sd * t)), cuts
        )


@pytest.mark.verifies("wenzel2019", "14", route="quadrature in mpmath with 30 digits")
def test_probabilities_and_their_mass_are_those_of_high_precision_quadrature():
    mean, var = np.array(CASES).T
    got = predict_probability(mean, var)
    wanted = np.array([float(probability_in_mpmath(m, v)) for m, v in CASES])
    # the function states an error of at most 1e-11 relative
    np.testing.assert_allclose(got.probability, wanted, rtol=1e-11, atol=0)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=1e-11, atol=0)
    assert np.all(np.abs(got.probability_mass - 1.0) <= np.maximum(got.error, 1e-14))  # 1e-14: rounding of the sum
    assert np.all(got.error <= 1e-11)


@pytest.mark.verifies("wenzel2019", "14", route="symmetry and the point mass, exact")
def test_a_zero_mean_gives_one_half_and_a_zero_variance_the_link_itself():
    got = predict_probability(np.array([0.0, 0.0, 0.8, -900.0]), np.array([3.0, 1e8, 0.0, 0.0]))
    wanted = [0.5, 0.5, 1 / (1 + math.exp(-0.8)), 0.0]
    # the first two are quadratures to 1e-11, the last underflows
    np.testing.assert_allclose(got.probability, wanted, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=1e-11, atol=0)


def test_no_probability_is_above_one():
    mean, var = np.meshgrid(np.linspace(20.0, 900.0, 45), [1e-6, 0.3, 1.0, 40.0, 3e3])
    got = predict_probability(mean.ravel(), var.ravel())
    assert np.all(got.probability <= 1.0)


def test_no_test_points_give_empty_arrays():
    got = predict_probability(np.zeros(0), np.zeros(0))
    assert got.probability.shape == got.probability_mass.shape == got.error.shape == (0,)


@pytest.mark.parametrize(
    ("mean", "var", "message"),
    [(np.nan, 1.0, "latent_mean: found"), (0.0, -1e-9, "latent_var: found"), (0.0, np.inf, "latent_var: found")],
)
def test_impossible_moments_are_refused(mean, var, message):
    with pytest.raises(ValueError, match=message):
        predict_probability(np.array([mean]), np.array([var]))
