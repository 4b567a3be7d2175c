"""Adaptive quadrature against a Gaussian: known integrals, extremes and refusals."""

from math import exp, sqrt

import numpy as np
import pytest
from scipy.stats import norm

from reference.common.quadrature import (
    gaussian_expectation,
    gaussian_integral,
    log_sigmoid_scalar,
    sigmoid_minus,
)

CASES = [(m, v) for m in (-1e3, -3.0, 0.0, 0.7, 1e3) for v in (1e-12, 1e-3, 1.0, 55.0, 1e4, 1e8)]


@pytest.mark.parametrize(("mean", "var"), CASES)
def test_the_density_itself_integrates_to_one(mean, var):
    got = gaussian_integral(lambda f: 0.0, lambda f: 0.0, mean, var)
    assert abs(got.value - 1.0) <= max(got.error, 1e-14)  # 1e-14: a dozen panels, each rounded once
    assert got.error < 1e-11


@pytest.mark.parametrize(("mean", "var"), CASES)
def test_sigmoid_of_plus_and_minus_sum_to_one(mean, var):
    plus = gaussian_integral(log_sigmoid_scalar, sigmoid_minus, mean, var)
    minus = gaussian_integral(log_sigmoid_scalar, sigmoid_minus, -mean, var)
    # each is accurate to its stated error, at most 1e-11
    assert abs(plus.value + minus.value - 1.0) <= max(plus.error + minus.error, 1e-14)


def test_an_integral_far_below_one_is_accurate_relative_to_itself():
    # ∫ e^f N(f|m, v) df = e^{m + v/2}; for f < -200 the sigmoid is e^f to all digits
    got = gaussian_integral(log_sigmoid_scalar, sigmoid_minus, -300.0, 4.0)
    assert got.value == pytest.approx(exp(-298.0), rel=1e-11, abs=0)


@pytest.mark.parametrize(("mean", "var"), [(0.3, 2.0), (-40.0, 9.0), (0.0, 1e6), (5.0, 0.0)])
def test_expectations_of_square_and_absolute_value_are_the_known_ones(mean, var):
    square = gaussian_expectation(lambda f: f * f, mean, var)
    size = gaussian_expectation(abs, mean, var)
    sd = sqrt(var)
    folded = abs(mean) if sd == 0.0 else 2 * sd * norm.pdf(mean / sd) + mean * (1 - 2 * norm.cdf(-mean / sd))
    # the quadrature refuses above 1e-11
    np.testing.assert_allclose([square.value, size.value], [mean**2 + var, folded], rtol=1e-11, atol=0)


def test_a_rule_that_does_not_settle_is_an_error():
    with pytest.raises(ArithmeticError, match="expected at most 1e-11"):
        gaussian_expectation(lambda f: float(np.sin(1e7 * f)), 0.0, 1.0)


@pytest.mark.parametrize("var", [-1e-9, float("inf"), float("nan")])
def test_a_variance_that_is_none_is_named(var):
    with pytest.raises(ValueError, match=r"latent_var: found .*, expected a finite value >= 0"):
        gaussian_expectation(abs, 0.0, var)
    with pytest.raises(ValueError, match=r"latent_var: found .*, expected a finite value >= 0"):
        gaussian_integral(log_sigmoid_scalar, sigmoid_minus, 0.0, var)
