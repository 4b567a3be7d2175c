"""Appendix B: products of Gaussians, summed term by term or in one long vector."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from reference.common.errors import NotPositiveDefiniteError
from reference.villacampa2017.factors import posterior_of
from reference.villacampa2017.posterior import (
    Coefficients,
    Natural,
    Site,
    aggregate_linear_coefficients,
    aggregate_precision_coefficients,
    approximate_factor,
    factor_linear,
    factor_precision,
    factor_precisions,
    natural_parameter_sum,
    posterior_approximation,
    posterior_moments,
)

TIGHT = {"rtol": 1e-10, "atol": 1e-11}  # matrices of 3 x 3 with conditions below 1e3


def site_of(s, i, k, log_scale=0.0):
    y = s.y[i]
    u, w = s.upsilon[y, i], s.upsilon[k, i]
    precisions = s.c1_label[i, k] * np.outer(u, u), s.c1_other[i, k] * np.outer(w, w)
    return Site(log_scale, precisions[0], s.c2_label[i, k] * u, precisions[1], s.c2_other[i, k] * w)


def all_sites(s):
    return [
        (int(s.y[i]), k, site_of(s, i, k, 0.1 * i - 0.05 * k)) for i in range(s.n) for k in range(s.C) if k != s.y[i]
    ]


@pytest.mark.verifies("villacampa2017", "20", route="quadratic form at points")
@pytest.mark.verifies("villacampa2017", "21", route="quadratic form at points")
@pytest.mark.verifies("villacampa2017", "50", route="quadratic form at points")
@pytest.mark.verifies("villacampa2017", "22", route="linear form at points")
@pytest.mark.verifies("villacampa2017", "23", route="linear form at points")
@pytest.mark.verifies("villacampa2017", "54", route="linear form at points")
@pytest.mark.verifies("villacampa2017", "55", route="linear form at points")
def test_a_factor_depends_on_the_projections_alone(model):
    s = model
    for c1, c2, upsilon in ((0.7, 0.3, s.upsilon[0, 1]), (0.2, -1.4, s.upsilon[2, 1])):
        for e in (*np.eye(s.m), s.mean):
            assert e @ factor_precision(c1, upsilon) @ e == pytest.approx(c1 * (upsilon @ e) ** 2, rel=1e-12, abs=1e-15)
            assert e @ factor_linear(c2, upsilon) == pytest.approx(c2 * (upsilon @ e), rel=1e-12, abs=1e-15)
    pair = factor_precisions(0.7, 0.2, s.upsilon[0, 1], s.upsilon[2, 1])
    for part, c1, upsilon in zip(pair, (0.7, 0.2), (s.upsilon[0, 1], s.upsilon[2, 1]), strict=True):
        assert s.mean @ part @ s.mean == pytest.approx(c1 * (upsilon @ s.mean) ** 2, rel=1e-12, abs=0)


@pytest.mark.verifies("villacampa2017", "8", route="scalar exponents of the two projections")
@pytest.mark.verifies("villacampa2017", "18", route="scalar exponents of the two projections")
def test_the_value_of_an_approximate_factor(model):
    s = model
    site = site_of(s, 1, 2, log_scale=0.3)
    w, v = s.upsilon[1, 1] @ s.inducing_values[1], s.upsilon[2, 1] @ s.inducing_values[2]
    exponent = 0.3 - 0.5 * s.c1_label[1, 2] * w**2 + s.c2_label[1, 2] * w
    exponent += -0.5 * s.c1_other[1, 2] * v**2 + s.c2_other[1, 2] * v
    got = approximate_factor(site, s.inducing_values[1], s.inducing_values[2])
    assert got == pytest.approx(np.exp(exponent), rel=1e-12, abs=0)


@pytest.mark.verifies("villacampa2017", "24", route="normal density of the moments, up to one constant")
def test_log_q_is_the_density_of_its_moments(model, rng):
    s = model
    coefficients = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    q = posterior_of(coefficients, s.y, s.upsilon, s.K_ZZ)
    sites = all_sites(s)

    def difference(values, log_evidence):
        density = sum(multivariate_normal.logpdf(u, m, V) for u, m, V in zip(values, q.mean, q.cov, strict=True))
        return posterior_approximation(values, sites, s.K_ZZ, log_evidence) - density

    log_evidence = difference(s.inducing_values, 0.0)  # then the density is normalised, here and everywhere else
    for _ in range(3):
        # sums of about 30 terms of size one to ten
        assert difference(2.0 * rng.normal(size=(s.C, s.m)), log_evidence) == pytest.approx(0.0, abs=1e-10)


@pytest.mark.verifies("villacampa2017", "24", route="scalar exponents of the projections, far from zero")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_log_q_is_finite_where_a_factor_is_zero_or_infinite_in_float64(sign):
    """Exponents near ±5000: exp ends at -745 and 710."""
    site = Site(0.4, sign * np.array([[2.0]]), np.array([1.0]), sign * np.array([[0.5]]), np.array([-1.0]))
    K = np.array([[[1.3]], [[0.8]]])
    u, w = 70.0, 20.0
    wanted = 0.4 - 0.5 * sign * 2.0 * u**2 + u - 0.5 * sign * 0.5 * w**2 - w
    assert abs(wanted) > 4900.0
    wanted += norm.logpdf(u, 0.0, np.sqrt(1.3)) + norm.logpdf(w, 0.0, np.sqrt(0.8)) - 0.7
    got = posterior_approximation(np.array([[u], [w]]), [(0, 1, site)], K, 0.7)
    assert got == pytest.approx(wanted, rel=1e-13, abs=0)


@pytest.mark.verifies("villacampa2017", "24", route="integral over one inducing value")
def test_q_integrates_to_one_with_the_right_constant():
    """One inducing value a class, two classes, one datum: the integral is a product of two on the line."""
    site = Site(0.4, np.array([[0.7]]), np.array([0.5]), np.array([[0.3]]), np.array([-0.2]))
    K = np.array([[[1.3]], [[0.8]]])
    parts = [
        quad(
            lambda u, p=p, b=b, v=v: np.exp(-0.5 * p * u**2 + b * u - 0.5 * u**2 / v) / np.sqrt(2 * np.pi * v), -12, 12
        )[0]
        for p, b, v in ((0.7, 0.5, 1.3), (0.3, -0.2, 0.8))
    ]
    log_evidence = 0.4 + np.log(parts[0] * parts[1])
    inner = quad(
        lambda u: quad(
            lambda w: np.exp(posterior_approximation(np.array([[u], [w]]), [(0, 1, site)], K, log_evidence)), -8, 8
        )[0],
        -8,
        8,
        epsabs=1e-6,
    )[0]
    assert inner == pytest.approx(1.0, abs=1e-6)  # the quadrature's own demand


@pytest.mark.verifies("villacampa2017", "26", route="sum of all factors that touch a class")
@pytest.mark.verifies("villacampa2017", "27", route="sum of all factors that touch a class")
def test_coefficients_add_up_over_the_factors_of_a_datum(model):
    s = model
    delta = aggregate_precision_coefficients(s.c1_label, s.c1_other, s.y)
    mu = aggregate_linear_coefficients(s.c2_label, s.c2_other, s.y)
    rows = np.arange(s.n)
    for got, label, other in ((delta, s.c1_label, s.c1_other), (mu, s.c2_label, s.c2_other)):
        wanted = other.copy()  # zero in the labels' columns
        wanted[rows, s.y] = np.sum(label, axis=1)
        np.testing.assert_allclose(got, wanted.T, rtol=1e-14, atol=0)
    spoiled = s.c1_label.copy(), s.c1_other.copy()
    for part in spoiled:
        part[rows, s.y] = 99.0
    np.testing.assert_array_equal(aggregate_precision_coefficients(*spoiled, s.y), delta)


@pytest.mark.verifies("villacampa2017", "25", route="conditioning on pseudo-observations (dual form)")
def test_moments_of_q_are_those_of_regression_on_pseudo_observations(model):
    s = model
    delta = aggregate_precision_coefficients(s.c1_label, s.c1_other, s.y)
    mu = aggregate_linear_coefficients(s.c2_label, s.c2_other, s.y)
    got = posterior_moments(delta, mu, s.upsilon, s.K_ZZ)
    for k in range(s.C):
        # observations mu/delta of w = υᵀu with noise 1/delta
        cross = s.K_ZZ[k] @ s.upsilon[k].T
        total = s.upsilon[k] @ cross + np.diag(1.0 / delta[k])
        np.testing.assert_allclose(got.mean[k], cross @ np.linalg.solve(total, mu[k] / delta[k]), **TIGHT)
        np.testing.assert_allclose(got.cov[k], s.K_ZZ[k] - cross @ np.linalg.solve(total, cross.T), **TIGHT)
    with pytest.raises(NotPositiveDefiniteError, match="posterior precision of class 0"):
        posterior_moments(-100.0 * delta, mu, s.upsilon, s.K_ZZ)


@pytest.mark.verifies("villacampa2017", "u24-natural-sum", route="moments of q by the aggregated coefficients")
def test_natural_parameters_add_up_to_those_of_q(model):
    s = model
    coefficients = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    q = posterior_of(coefficients, s.y, s.upsilon, s.K_ZZ)
    for c in range(s.C):
        touching = [Natural(site.precision_label, site.shift_label) for y, _, site in all_sites(s) if y == c]
        touching += [Natural(site.precision_other, site.shift_other) for _, k, site in all_sites(s) if k == c]
        prior = Natural(np.linalg.inv(s.K_ZZ[c]), np.zeros(s.m))
        got = natural_parameter_sum(prior, touching)
        np.testing.assert_allclose(np.linalg.inv(got.precision), q.cov[c], **TIGHT)
        np.testing.assert_allclose(np.linalg.solve(got.precision, got.shift), q.mean[c], **TIGHT)
        np.testing.assert_array_equal(prior.shift, 0.0)
