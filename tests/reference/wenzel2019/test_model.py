"""The model of wenzel2019: (1), (2) and the kernel of the experiments."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from reference.common.errors import NotPositiveDefiniteError
from reference.wenzel2019.model import kernel_se_ard_noise, log_joint, log_likelihood_logit


@pytest.mark.verifies("wenzel2019", "1", route="definition in mpmath")
@pytest.mark.parametrize("f", [[0.3, -2.0, 0.0], [1000.0, -800.0, 37.0], [-1e-9, 5.0, -1e3]])
def test_the_log_likelihood_is_the_log_of_the_product_of_sigmoids(f):
    y = np.array([1.0, 1.0, -1.0])
    with mpmath.workdps(500):  # 1 + e^-1000 needs its last digits
        product = mpmath.fprod(1 / (1 + mpmath.exp(-mpmath.mpf(s * g))) for s, g in zip(y, f, strict=True))
        wanted = float(mpmath.log(product))
    # three terms, each rounded once or twice
    np.testing.assert_allclose(log_likelihood_logit(np.array(f), y), wanted, rtol=1e-14, atol=0)


@pytest.mark.verifies("wenzel2019", "2", route="definition with scipy's Gaussian density")
def test_the_log_joint_is_log_likelihood_plus_log_prior(model):
    wanted = multivariate_normal.logpdf(model.f, np.zeros(model.n), model.K_XX)
    wanted -= np.sum(np.log1p(np.exp(-model.y * model.f)))
    # condition of K_XX below 100: rounding leaves 1e-13
    np.testing.assert_allclose(log_joint(model.f, model.y, model.K_XX), wanted, rtol=1e-11, atol=0)


@pytest.mark.verifies("wenzel2019", "2", route="normalisation by adaptive quadrature")
def test_the_joint_density_of_one_datum_sums_to_one_over_labels_and_values():
    K = np.array([[2.3]])
    total = sum(
        quad(lambda f, s=s: math.exp(log_joint(np.array([f]), np.array([s]), K)), -20, 20, epsabs=1e-12)[0]
        for s in (-1.0, 1.0)
    )
    # ± 20 is 13 standard deviations; the quadrature asks for 1e-12
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-10)


@pytest.mark.verifies("wenzel2019", "u5-kernel", route="definition entry by entry")
def test_the_kernel_has_noise_only_where_a_point_meets_itself():
    X = np.array([[0.0, 1.0], [2.0, -1.0], [0.0, 1.0]])  # rows 0 and 2 are equal, and have independent noise
    lengthscales = np.array([0.7, 3.0])
    clean = np.empty((3, 3))
    for a in range(3):
        for b in range(3):
            square = sum(((X[a, j] - X[b, j]) / lengthscales[j]) ** 2 for j in range(2))
            clean[a, b] = 1.9 * math.exp(-square / 2)
    # one exponential: a few roundings
    np.testing.assert_allclose(
        kernel_se_ard_noise(X, None, 1.9, lengthscales, 0.4), clean + 0.4 * np.eye(3), rtol=1e-14, atol=0
    )
    np.testing.assert_allclose(kernel_se_ard_noise(X, X, 1.9, lengthscales, 0.4), clean, rtol=1e-14, atol=0)


def test_a_singular_prior_covariance_is_an_error_that_names_it():
    with pytest.raises(NotPositiveDefiniteError, match=r"K_XX \(2, 2\): found smallest eigenvalue"):
        log_joint(np.zeros(2), np.ones(2), np.ones((2, 2)))
