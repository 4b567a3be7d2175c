"""Section 3.3 and the rules of section 5.1: identities of moments, and product rules against finer ones."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from reference.riihimaki2013._truncated import truncated_gaussian
from reference.riihimaki2013.errata import lambda_from_moments_as_printed
from reference.riihimaki2013.quadrature_ep import (
    cavity_covariance_g,
    diagonal_lambda,
    lambda_from_moments,
    qiep_tilted_moments,
    site_location_quadrature,
    site_precision_full_lambda,
    tilted_covariance_g,
    tilted_mean_g,
    tilted_moments_full_quadrature,
    tilted_moments_quadrature,
    tilted_multinomial_probit,
    xi_from_moments,
)
from reference.riihimaki2013.sites import augmented_tilted, difference_matrix
from validation.ledger.numbers import assert_recorded, told_apart

Y = 1
TIGHT = {"rtol": 1e-9, "atol": 1e-10}  # several inverses of 4 x 4 matrices with conditions below 1e3


@pytest.fixture
def s(model):
    model.w = augmented_tilted(model.cavity_mean, model.cavity_cov, Y)
    model.B = difference_matrix(3, Y)
    model.Lambda = np.array([[0.4, 0.1], [0.1, 0.3]])
    model.xi = np.array([0.5, -0.3])
    model.cov_g = model.w.B_tilde.T @ model.w.Sigma_w @ model.w.B_tilde
    model.mean_g = model.w.B_tilde.T @ model.w.mu_w
    # g ~ N(μ_g, Σ_g) times exp(-½g'Λg + ξ'g)
    model.hat_cov = np.linalg.inv(np.linalg.inv(model.cov_g) + model.Lambda)
    model.hat_mean = model.hat_cov @ (np.linalg.solve(model.cov_g, model.mean_g) + model.xi)
    return model


@pytest.mark.verifies("riihimaki2013", "u3.3-cavity-g", route="covariance of g = B̃'w")
def test_cavity_covariance_of_the_differences(s):
    np.testing.assert_allclose(cavity_covariance_g(s.cavity_cov, s.B), s.cov_g, **TIGHT)
    for a in range(2):  # and entry by entry: g_j = f_y - f_j + u
        for b in range(2):
            j, k = np.delete(np.arange(3), Y)[[a, b]]
            S = s.cavity_cov
            assert cavity_covariance_g(S, s.B)[a, b] == pytest.approx(
                S[Y, Y] - S[Y, k] - S[j, Y] + S[j, k] + 1.0, rel=1e-12, abs=0
            )


@pytest.mark.verifies("riihimaki2013", "18", "20", route="the Gaussian of g multiplied by its own quadratic factor")
def test_moments_of_g_through_w(s):
    np.testing.assert_allclose(tilted_covariance_g(s.w.Sigma_w, s.w.B_tilde, s.Lambda), s.hat_cov, **TIGHT)
    np.testing.assert_allclose(tilted_mean_g(s.w.mu_w, s.w.Sigma_w, s.w.B_tilde, s.Lambda, s.xi), s.hat_mean, **TIGHT)


@pytest.mark.verifies("riihimaki2013", "19", "21", route="parameters with which the moments were made")
def test_parameters_recovered_from_moments(s):
    np.testing.assert_allclose(lambda_from_moments(s.hat_cov, s.cavity_cov, s.B), s.Lambda, **TIGHT)
    got = xi_from_moments(s.hat_mean, s.hat_cov, s.cavity_mean, s.cavity_cov, s.B, False)
    np.testing.assert_allclose(got, s.xi, **TIGHT)
    cut = np.diag(np.diag(s.Lambda))
    wanted = (cut + np.linalg.inv(s.cov_g)) @ s.hat_mean - np.linalg.solve(s.cov_g, s.mean_g)
    got = xi_from_moments(s.hat_mean, s.hat_cov, s.cavity_mean, s.cavity_cov, s.B, True)
    np.testing.assert_allclose(got, wanted, **TIGHT)
    # with the mean kept: cavity times the cut site has the tilted mean of g
    kept = np.linalg.solve(np.linalg.inv(s.cov_g) + cut, np.linalg.solve(s.cov_g, s.mean_g) + got)
    np.testing.assert_allclose(kept, s.hat_mean, **TIGHT)


@pytest.mark.verifies(
    "riihimaki2013", "19", route="(18) with two classes: shapes, and the parameter recovered", printed=True
)
def test_the_printed_lambda_subtracts_the_wrong_covariance():
    w = augmented_tilted(np.array([0.2, -0.4]), np.array([[1.3, 0.2], [0.2, 0.8]]), 0)
    Lambda = np.array([[0.37]])
    hat = tilted_covariance_g(w.Sigma_w, w.B_tilde, Lambda)
    printed = lambda_from_moments_as_printed(hat, w.Sigma_w)
    assert printed.shape == (3, 3)  # Λ has one entry
    np.testing.assert_allclose(printed, 1.0 / hat[0, 0] - np.linalg.inv(w.Sigma_w), rtol=1e-12, atol=0)
    assert np.min(np.abs(printed - Lambda)) > 0.1  # no entry of it is Λ
    got = lambda_from_moments(hat, w.Sigma_w[:2, :2], difference_matrix(2, 0))
    np.testing.assert_allclose(got, Lambda, **TIGHT)
    told_apart("riihimaki2013", "19", printed[0, 0], got[0, 0])
    assert_recorded("riihimaki2013", "19", Lambda[0, 0], printed[0, 0], printed.size)
    with pytest.raises(ValueError, match="broadcast"):
        lambda_from_moments_as_printed(np.eye(2), np.eye(4))


@pytest.mark.verifies(
    "riihimaki2013", "u3.3-site-precision", "u3.3-site-location", route="u integrated out of exp(-½g'Λg + ξ'g)"
)
def test_site_of_a_full_lambda(s):
    Bt = s.w.B_tilde
    precision = Bt @ s.Lambda @ Bt.T
    precision[3, 3] += 1.0
    shift = Bt @ s.xi
    wanted = precision[:3, :3] - np.outer(precision[:3, 3], precision[3, :3]) / precision[3, 3]
    np.testing.assert_allclose(site_precision_full_lambda(s.Lambda, s.B), wanted, **TIGHT)
    direct = s.B @ np.linalg.inv(np.linalg.inv(s.Lambda) + np.ones((2, 2))) @ s.B.T
    np.testing.assert_allclose(wanted, direct, **TIGHT)
    wanted = shift[:3] - precision[:3, 3] * shift[3] / precision[3, 3]
    np.testing.assert_allclose(site_location_quadrature(s.xi, s.Lambda, s.B), wanted, **TIGHT)


@pytest.mark.verifies("riihimaki2013", "u3.3-diagonal", route="entries")
def test_diagonal_of_lambda(s):
    np.testing.assert_array_equal(diagonal_lambda(s.Lambda), [0.4, 0.3])


@pytest.mark.verifies("riihimaki2013", "u3.3-quadrature", "6", route="Gauss-Legendre on a square")
def test_product_rule_against_gauss_legendre(s):
    L = np.linalg.cholesky(s.cov_g)
    x, w = np.polynomial.legendre.leggauss(200)
    t, r = 9.0 * x[:, None], 9.0 * x[None, :]
    share = 81.0 * np.outer(w, w) * norm.pdf(t) * norm.pdf(r)
    g = [s.mean_g[0] + L[0, 0] * t + 0.0 * r, s.mean_g[1] + L[1, 0] * t + L[1, 1] * r]

    def moment(power):
        return np.sum(share * ndtr(g[0]) * ndtr(g[1]) * power(g))

    norm_ = moment(lambda g: 1.0)
    first = moment(lambda g: g[1]) / norm_
    cross = moment(lambda g: g[0] * g[1]) / norm_
    got = tilted_moments_quadrature(s.mean_g, s.cov_g, 100)
    # 100 nodes against bends a third as wide as the Gaussian
    assert got.norm == pytest.approx(norm_, rel=1e-5, abs=0)
    assert got.mean[1] == pytest.approx(first, rel=1e-5, abs=0)
    assert got.cov[0, 1] + got.mean[0] * got.mean[1] == pytest.approx(cross, rel=1e-5, abs=0)
    np.testing.assert_allclose(got.cov, got.cov.T, rtol=1e-14, atol=0)
    whole = tilted_multinomial_probit(s.cavity_mean, s.cavity_cov, Y, nodes=100)
    assert whole.norm == pytest.approx(norm_, rel=1e-5, abs=0)
    # the differences of the latent moments, with u's part, are those of g
    gain = s.w.Sigma_w @ s.w.B_tilde @ np.linalg.inv(s.cov_g)
    np.testing.assert_allclose(whole.mean, s.cavity_mean + (gain @ (got.mean - s.mean_g))[:3], rtol=1e-9, atol=1e-12)


def pair_by_quadrature(mean, cov):
    """log P, mean and covariance of two Gaussian variables above zero: quad over the first alone."""
    gain = cov[0, 1] / cov[0, 0]
    sd = np.sqrt(cov[1, 1] - gain * cov[0, 1])

    def second(g):  # mass, first and second moment of the other, times the density of g
        m = mean[1] + gain * (g - mean[0])
        P, tail = ndtr(m / sd), sd * norm.pdf(m / sd)
        return norm.pdf(g, mean[0], np.sqrt(cov[0, 0])) * np.array([P, m * P + tail, (m**2 + sd**2) * P + m * tail])

    top = max(mean[0], 0.0) + 12.0 * np.sqrt(cov[0, 0])
    bends = [p for p in mean[0] - mean[1] / gain + sd / abs(gain) * np.array([-5.0, 0.0, 5.0]) if 0.0 < p < top]
    edges = [0.0, *sorted([*bends, *(q * np.sqrt(cov[0, 0]) for q in (0.1, 0.5, 2.0))]), top]

    def integral(function):
        return sum(quad(function, low, high, epsabs=0, epsrel=1e-12)[0] for low, high in pairwise(edges))

    P = integral(lambda g: second(g)[0])
    first = integral(lambda g: g * second(g)[0]) / P
    other = integral(lambda g: second(g)[1]) / P
    cross = integral(lambda g: (g - first) * second(g)[1]) / P
    own = integral(lambda g: (g - first) ** 2 * second(g)[0]) / P
    rest = integral(lambda g: second(g)[2]) / P - other**2
    return np.log(P), np.array([first, other]), np.array([[own, cross], [cross, rest]])


@pytest.mark.verifies("riihimaki2013", "6", route="adaptive quadrature over one difference, the other in closed form")
@pytest.mark.parametrize("log_variance", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("margin", [0.5, -4.0])
def test_three_classes_are_exact_at_any_variance(s, log_variance, margin):
    cov = np.exp(log_variance) * s.cavity_cov / np.mean(np.diag(s.cavity_cov))
    mean = margin * np.sqrt(np.exp(log_variance)) * np.array([-0.3, 0.6, -0.4])
    distribution = augmented_tilted(mean, cov, Y)
    mean_h, cov_h = (
        distribution.B_tilde.T @ distribution.mu_w,
        distribution.B_tilde.T @ distribution.Sigma_w @ distribution.B_tilde + np.eye(2),
    )
    log_p, first, second = pair_by_quadrature(mean_h, cov_h)
    gain = (distribution.Sigma_w @ distribution.B_tilde)[:3] @ np.linalg.inv(cov_h)
    got = tilted_multinomial_probit(mean, cov, Y)
    # the quadrature's 1e-12, and what the covariances cancel
    assert np.log(got.norm) == pytest.approx(log_p, rel=0, abs=1e-10)
    sd = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(got.mean / sd, (mean + gain @ (first - mean_h)) / sd, rtol=0, atol=1e-9)
    wanted = cov - gain @ (cov_h - second) @ gain.T
    np.testing.assert_allclose(got.cov / np.outer(sd, sd), wanted / np.outer(sd, sd), rtol=0, atol=1e-9)
    if log_variance >= 4.0 and margin > 0.0:  # what a product rule makes of it
        assert abs(tilted_multinomial_probit(mean, cov, Y, 60).norm / got.norm - 1.0) > 1e-4


@pytest.mark.verifies("riihimaki2013", "6", route="one- and two-dimensional rules of independent classes")
def test_four_classes_by_points(s):
    mean, var = np.array([0.3, 0.6, -0.4, 0.1]), np.array([0.5, 0.8, 0.3, 0.6])
    got = tilted_multinomial_probit(mean, np.diag(var), Y)
    exact = qiep_tilted_moments(mean, var, Y, nodes=60)
    # the stated errors, doubled
    assert np.log(got.norm) == pytest.approx(np.log(exact.norm), rel=0, abs=1e-5)
    np.testing.assert_allclose(got.mean, exact.mean, rtol=0, atol=2e-4)
    np.testing.assert_allclose(np.diag(got.cov), exact.cov, rtol=2e-3, atol=0)
    assert np.linalg.eigvalsh(got.cov)[0] > 0.0


def test_points_that_miss_an_unlikely_label_are_refused():
    mean = np.array([-40.0, *np.linspace(-6.0, 6.0, 11)])
    with pytest.raises(ValueError, match="cavity_cov: found log normalisers that differ"):
        tilted_multinomial_probit(mean, 4.0 * np.eye(12), 0)


def test_the_scalar_and_the_uncorrelated_pair_are_closed_forms():
    one = truncated_gaussian(np.array([-1.2]), np.array([[2.5]]))
    two = truncated_gaussian(np.array([-1.2, 0.7]), np.diag([2.5, 0.4]))
    z = np.array([-1.2, 0.7]) / np.sqrt([2.5, 0.4])
    ratio = norm.pdf(z) / ndtr(z)
    assert one.log_norm == pytest.approx(norm.logcdf(z[0]), rel=1e-14, abs=0)
    assert two.log_norm == pytest.approx(np.sum(norm.logcdf(z)), rel=1e-13, abs=0)
    wanted = np.array([-1.2, 0.7]) + np.sqrt([2.5, 0.4]) * ratio
    np.testing.assert_allclose([one.mean[0], *two.mean], [wanted[0], *wanted], rtol=1e-13, atol=0)
    var = np.array([2.5, 0.4]) * (1.0 - ratio * (z + ratio))
    np.testing.assert_allclose(two.cov, np.diag(var), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.cov, [[var[0]]], rtol=1e-12, atol=0)


@pytest.mark.verifies("riihimaki2013", "u5.1-qf", "6", route="rule over w against the finer rule over g")
def test_full_rule(s):
    cov = 0.2 * s.cavity_cov
    got = tilted_moments_full_quadrature(s.cavity_mean, cov, Y, nodes=20)
    fine = tilted_multinomial_probit(s.cavity_mean, cov, Y)
    # 20 nodes against bends as wide as the Gaussian
    assert got.norm == pytest.approx(fine.norm, rel=1e-6, abs=0)
    np.testing.assert_allclose(got.mean, fine.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.cov, fine.cov, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="nodes: found 40 in 4 dimensions"):
        tilted_moments_full_quadrature(s.cavity_mean, cov, Y, nodes=40)


@pytest.mark.verifies("riihimaki2013", "u5.1-qiep", route="finer rule over g with a diagonal cavity")
def test_rules_for_independent_classes(s):
    var = np.array([0.5, 0.8, 0.3])
    got = qiep_tilted_moments(s.cavity_mean, var, Y, nodes=60)
    fine = tilted_multinomial_probit(s.cavity_mean, np.diag(var), Y, nodes=100)
    # both rules resolve bends as wide as the Gaussian
    assert got.norm == pytest.approx(fine.norm, rel=1e-8, abs=0)
    np.testing.assert_allclose(got.mean, fine.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got.cov, np.diag(fine.cov), rtol=1e-7, atol=0)
