"""The Matérn kernel against mpmath, its gradients against differences, and every user of a kernel with it."""

import mpmath
import numpy as np
import pytest

from fast.core.inputs import hyper
from fast.core.options import Storage
from fast.kernel.kernels import entries_vjp, gram, matern, se_ard
from fast.kernel.matern import correlation, matern_derivative, matern_value
from fast.methods import x_gpc
from fast.one_latent.quadratic_search import prepare as prepare_blocks
from values_given import binary

ORDERS = [0.3, 0.5, 1.0, 1.5, 2.2, 2.5, 7.3, 12.5, 99.7, 161.3]


def formula(x, order):
    order = mpmath.mpf(order)
    return 2 ** (1 - order) / mpmath.gamma(order) * x**order * mpmath.besselk(order, x)


def exact(x, order):
    with mpmath.workdps(40):
        return formula(mpmath.mpf(x), order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.verifies("izmailov2016", "u2.3-matern", route="mpmath")
def test_values_are_those_of_the_bessel_function(order):
    x = np.array([1e-12, 1e-5, 0.01, 0.3, 1.0, 5.0, 40.0, 300.0])
    expected = np.array([float(exact(point, order)) for point in x])
    # logarithms of the size of order log(order) and x: 300 eps and more
    np.testing.assert_allclose(correlation(x, order), expected, rtol=4e-13, atol=1e-300)
    squared = x**2 / (2 * order)
    np.testing.assert_allclose(matern_value(squared, 2.3, order), 2.3 * expected, rtol=4e-13, atol=1e-300)


@pytest.mark.parametrize("order", ORDERS)
def test_equal_inputs_have_the_variance_exactly_and_far_ones_nothing(order):
    X = np.array([[0.0, 1.0], [0.0, 1.0], [1e8, 0.0]])
    K = matern(X, X, 1.7, np.array([1.0, 2.0]), order)
    np.testing.assert_array_equal(K.diagonal(), 1.7)
    assert K[0, 1] == 1.7
    assert K[0, 2] == 0.0


def test_a_smooth_kernel_is_nearly_the_squared_exponential(rng):
    X, lengths = rng.normal(size=(5, 2)), np.array([0.8, 1.5])
    # the first term of the difference is r^4 / (4 nu), r^2 at most 20 where k exceeds 1e-4
    np.testing.assert_allclose(matern(X, X, 2.0, lengths, 400.0), se_ard(X, X, 2.0, lengths), rtol=0, atol=2e-3)


@pytest.mark.parametrize("order", ORDERS)
def test_the_derivative_is_the_derivative_in_squared_distance(order):
    for squared in (0.02, 0.7, 9.0):
        with mpmath.workdps(40):
            result = mpmath.diff(lambda s: formula(mpmath.sqrt(2 * mpmath.mpf(order) * s), order), squared)
        # as the values
        np.testing.assert_allclose(
            matern_derivative(np.array([[squared]]), 1.3, order), [[-2 * 1.3 * float(result)]], rtol=1e-12, atol=0
        )


@pytest.mark.parametrize("order", [0.3, 0.5, 1.5, 1.8, 2.5])
def test_pulled_back_gradients_are_derivatives(rng, order):
    X1, X2 = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    cotangent, lengths = rng.normal(size=(4, 3)), np.array([0.7, 1.4])

    def value(variance=1.3, ell=lengths, z=X2):
        return float((cotangent * matern(X1, z, variance, ell, order)).sum())

    got = entries_vjp(cotangent.copy(), X1, X2, hyper(1.3, lengths, 0.0, 0.0, 2, order))
    h = 1e-5  # error h^2 |f'''| and eps / h: about 1e-9
    np.testing.assert_allclose(got.variance, (value(1.3 + h) - value(1.3 - h)) / (2 * h), rtol=1e-7, atol=1e-8)
    for j in range(2):
        u = h * np.eye(2)[j]
        derivative = (value(ell=lengths + u) - value(ell=lengths - u)) / (2 * h)
        np.testing.assert_allclose(got.lengthscales[j], derivative, rtol=1e-7, atol=1e-8)
        for i in range(3):
            w = np.zeros((3, 2))
            w[i, j] = h
            np.testing.assert_allclose(
                got.X2[i, j], (value(z=X2 + w) - value(z=X2 - w)) / (2 * h), rtol=1e-6, atol=1e-8
            )


def test_gradients_at_coincident_inputs_are_finite(rng):
    X = rng.normal(size=(3, 2))
    for order in (0.3, 0.5, 1.0, 1.5):
        got = entries_vjp(np.ones((3, 3)), X, X, hyper(1.0, np.ones(2), 0.0, 0.0, 2, order))
        assert all(np.isfinite(part).all() for part in (np.asarray(got.variance), got.lengthscales, got.X2))


def test_a_gram_matrix_is_symmetric_and_carries_noise_and_jitter(rng):
    X = rng.normal(size=(6, 3))
    K = gram(X, 1.5, np.ones(3), 0.25, 0.125, 0.8)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(K.diagonal(), 1.875)


def test_smoothness_is_checked_and_priors_carry_it(make_problem):
    p = vars(make_problem())
    for wrong in (0.0, -1.0, np.nan, 1e4, 1e-3):
        with pytest.raises(ValueError, match="smoothness: found"):
            x_gpc.prepare(*binary(x_gpc.XGPCOptions, **p, smoothness=wrong))
    prior = x_gpc.prepare(*binary(x_gpc.XGPCOptions, **p, smoothness=1.5))
    lazy = prepare_blocks(*binary(Storage, **p, smoothness=1.5))
    np.testing.assert_array_equal(prior.rows(0, 14), lazy.rows(0, 14))
    np.testing.assert_array_equal(prior.cond_var, lazy.cond_var)


@pytest.mark.parametrize("order", [420.3, 460.3, 499.7])
def test_the_series_serves_wherever_the_bessel_function_overflows(order):
    squared = np.array([1.0, 4.0, 7.0, 9.0, 11.0, 12.0, 12.4])  # at the largest smoothness, 500, it does up to 12.4
    x = np.sqrt(2.0 * order * squared)
    # terms up to 80 where the sum is 2e-3: 40 000 eps
    np.testing.assert_allclose(
        matern_value(squared, 1.0, order), [float(exact(r, order)) for r in x], rtol=1e-11, atol=0
    )
    derivative = [float(exact(r, order - 1.0)) * order / (order - 1.0) for r in x]
    np.testing.assert_allclose(matern_derivative(squared, 1.0, order), derivative, rtol=1e-11, atol=0)


@pytest.mark.parametrize("order", ORDERS)
def test_a_distance_that_is_no_number_has_no_covariance(order):
    squared = np.array([0.0, np.nan, 1.0])
    for result in (matern_value(squared, 1.0, order), matern_derivative(squared, 1.0, order)):
        np.testing.assert_array_equal(np.isnan(result), [False, True, False])
