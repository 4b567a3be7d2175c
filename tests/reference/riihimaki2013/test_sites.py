"""Sections 3.1 and 3.2: Gaussian algebra written out, tilted moments by finer rules, structure of the sites."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.common.errors import NotPositiveDefiniteError
from reference.riihimaki2013.quadrature_ep import tilted_multinomial_probit
from reference.riihimaki2013.sites import (
    augmented_tilted,
    cavity,
    damp_inner_sites,
    difference_matrix,
    difference_transform,
    iep_site_update,
    marginal_from_inner_sites,
    match_moments,
    outer_site,
    site_location,
    site_precision,
    site_precision_a_form,
    site_precision_lowrank,
    tilted_covariance,
    tilted_covariance_augmented,
    tilted_density,
    tilted_mean,
    tilted_mean_augmented,
    tilted_normaliser,
)

Y = 1
TIGHT = {"rtol": 1e-10, "atol": 1e-11}  # matrices of 3 x 3 with conditions below 1e3


def site_by_brute_force(alpha, beta, y, c):
    """Integrate u out of Π_j exp(-½α(u + f_y - f_j)² + β(u + f_y - f_j)) N(u|0, 1): precision and location in f."""
    precision, shift = np.zeros((c + 1, c + 1)), np.zeros(c + 1)
    precision[c, c] = 1.0
    for place, j in enumerate(np.delete(np.arange(c), y)):
        b = np.zeros(c + 1)
        b[y], b[j], b[c] = 1.0, -1.0, 1.0
        precision += alpha[place] * np.outer(b, b)
        shift += beta[place] * b
    f, u = np.arange(c), c
    cross = precision[f, u] / precision[u, u]
    return precision[np.ix_(f, f)] - np.outer(cross, precision[u, f]), shift[f] - cross * shift[u]


@pytest.mark.verifies("riihimaki2013", "u3.1-cavity", route="product of cavity and site is the marginal")
def test_cavity_times_site_is_the_marginal(model):
    s = model
    site = outer_site(s.alpha[0], s.beta[0], Y)
    got = cavity(s.cavity_mean, s.cavity_cov, 0.1 * site.precision, 0.1 * site.location)
    precision = np.linalg.inv(got.cov) + 0.1 * site.precision
    np.testing.assert_allclose(np.linalg.inv(precision), s.cavity_cov, **TIGHT)
    shift = np.linalg.solve(got.cov, got.mean) + 0.1 * site.location
    np.testing.assert_allclose(np.linalg.solve(precision, shift), s.cavity_mean, **TIGHT)
    with pytest.raises(NotPositiveDefiniteError, match="cavity precision"):
        cavity(s.cavity_mean, s.cavity_cov, 100.0 * site.precision, site.location)


@pytest.mark.verifies("riihimaki2013", "5", route="scipy's normal density, orthant probability of the label")
def test_tilted_density(model):
    s = model
    f = np.array([0.3, -0.2, 1.1])
    gap = f[Y] - np.delete(f, Y)
    label = bivariate_normal_cdf(gap, np.eye(2) + 1.0)
    wanted = multivariate_normal.logpdf(f, s.cavity_mean, s.cavity_cov) + np.log(label)
    # the bivariate normal's accuracy
    assert tilted_density(f, s.cavity_mean, s.cavity_cov, Y) == pytest.approx(wanted, rel=1e-8, abs=0)


@pytest.mark.verifies("riihimaki2013", "5", route="closed form where the likelihood is below 1e-308")
def test_tilted_density_far_out(model):
    f, cov = np.array([60.0, 0.0, -900.0]), np.diag([900.0, 1600.0, 2500.0])  # class 2 is too far down to matter
    wanted = multivariate_normal.logpdf(f, np.ones(3), cov) + norm.logcdf(-60.0 / np.sqrt(2.0))
    assert tilted_density(f, np.ones(3), cov, Y) == pytest.approx(wanted, rel=1e-11, abs=0)


@pytest.mark.verifies("riihimaki2013", "u3.1-outer-update", route="site times cavity has the tilted moments")
def test_matched_site_times_cavity_has_the_tilted_moments(model):
    s = model
    hat_cov, hat_mean = 0.5 * s.cavity_cov + 0.1 * np.eye(3), np.array([0.4, 0.2, -0.6])
    site = match_moments(hat_mean, hat_cov, s.cavity_mean, s.cavity_cov)
    precision = np.linalg.inv(s.cavity_cov) + site.precision
    np.testing.assert_allclose(np.linalg.inv(precision), hat_cov, **TIGHT)
    shift = np.linalg.solve(s.cavity_cov, s.cavity_mean) + site.location
    np.testing.assert_allclose(np.linalg.solve(precision, shift), hat_mean, **TIGHT)


@pytest.mark.verifies("riihimaki2013", "6", route="moments of f_y and u on the line, c = 2 in closed form")
def test_tilted_moments_of_two_classes():
    mean, cov = np.array([0.4, -0.7]), np.array([[1.3, 0.4], [0.4, 0.9]])
    got = tilted_multinomial_probit(mean, cov, 1)
    b = np.array([-1.0, 1.0])  # f_1 - f_0; the label's probability is Φ((f_1 - f_0)/√2)
    m, v = b @ mean, b @ cov @ b
    root = np.sqrt(2.0 + v)
    z = m / root
    ratio = norm.pdf(z) / ndtr(z)
    gain = cov @ b
    assert got.norm == pytest.approx(ndtr(z), rel=1e-13, abs=0)  # the same closed form, another way
    np.testing.assert_allclose(got.mean, mean + gain * ratio / root, rtol=1e-12, atol=0)
    wanted = cov - np.outer(gain, gain) * ratio * (z + ratio) / (2.0 + v)
    np.testing.assert_allclose(got.cov, wanted, rtol=1e-12, atol=0)
    fine = tilted_multinomial_probit(mean, cov, 1, 60)
    # 60 nodes against a bend about as wide as the Gaussian
    assert fine.norm == pytest.approx(ndtr(z), rel=1e-9, abs=0)
    np.testing.assert_allclose(fine.mean, got.mean, rtol=1e-8, atol=0)
    np.testing.assert_allclose(fine.cov, got.cov, rtol=1e-8, atol=0)


@pytest.mark.verifies("riihimaki2013", "7", route="one entry at a time, and covariance of the differences")
def test_augmented_distribution_and_differences(model, rng):
    s = model
    w = augmented_tilted(s.cavity_mean, s.cavity_cov, Y)
    np.testing.assert_array_equal(w.mu_w, [*s.cavity_mean, 0.0])
    np.testing.assert_array_equal(w.Sigma_w[:3, :3], s.cavity_cov)
    np.testing.assert_array_equal(w.Sigma_w[3], [0.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(w.B_tilde.T, [[-1.0, 1.0, 0.0, 1.0], [0.0, 1.0, -1.0, 1.0]])


@pytest.mark.verifies("riihimaki2013", "u3.2.1-g", route="B̃'w, and by hand")
def test_differences_are_the_linear_map(model, rng):
    w = augmented_tilted(model.cavity_mean, model.cavity_cov, Y)
    at = np.array([0.5, 2.0, -1.0, 0.25])
    np.testing.assert_allclose(difference_transform(at, Y), w.B_tilde.T @ at, rtol=1e-14, atol=0)
    np.testing.assert_array_equal(difference_transform(at, Y), [1.75, 3.25])


@pytest.mark.verifies("riihimaki2013", "u3.2.1-zhat", route="orthant probability by quadrature over one difference")
def test_normaliser_of_the_augmented_distribution(model):
    s = model
    w = augmented_tilted(s.cavity_mean, s.cavity_cov, Y)
    m, S = w.B_tilde.T @ w.mu_w, w.B_tilde.T @ w.Sigma_w @ w.B_tilde
    wanted = bivariate_normal_cdf(m, S + np.eye(2))
    got = tilted_normaliser(w.mu_w, w.Sigma_w, w.B_tilde)
    assert got == pytest.approx(wanted, rel=1e-4, abs=0)  # 30 nodes against bends half as wide as the Gaussian


@pytest.mark.verifies("riihimaki2013", "9", route="conditioning w on its scalar sites one after another")
def test_covariance_of_the_augmented_form(model):
    s = model
    w = augmented_tilted(s.cavity_mean, s.cavity_cov, Y)
    cov = w.Sigma_w.copy()
    for b, a in zip(w.B_tilde.T, s.alpha[0], strict=True):  # a noisy observation of b'w with variance 1/a
        cov -= np.outer(cov @ b, cov @ b) / (1.0 / a + b @ cov @ b)
    np.testing.assert_allclose(tilted_covariance_augmented(w.Sigma_w, w.B_tilde, s.alpha[0]), cov[:3, :3], **TIGHT)


@pytest.mark.parametrize("c", [2, 3, 5])
@pytest.mark.verifies("riihimaki2013", "u3.2.2-B", route="differences of latent values, entry by entry")
def test_the_map_to_differences(rng, c):
    f = rng.normal(size=c)
    for y in range(c):
        B = difference_matrix(c, y)
        assert B.shape == (c, c - 1)
        np.testing.assert_allclose(B.T @ f, [f[y] - f[j] for j in range(c) if j != y], rtol=1e-14, atol=1e-15)
        zero = augmented_tilted(np.zeros(c), np.eye(c), y)
        np.testing.assert_array_equal(B, zero.B_tilde[:c])  # H'B̃: the rows of f


@pytest.mark.verifies("riihimaki2013", "10", route="(9), and the second line of the display")
def test_two_forms_of_the_tilted_covariance(model):
    s = model
    w, B, a = augmented_tilted(s.cavity_mean, s.cavity_cov, Y), difference_matrix(3, Y), s.alpha[0]
    got = tilted_covariance(s.cavity_cov, B, a)
    np.testing.assert_allclose(got, tilted_covariance_augmented(w.Sigma_w, w.B_tilde, a), **TIGHT)
    precision = np.linalg.inv(s.cavity_cov) + B @ np.linalg.inv(np.diag(1 / a) + np.ones((2, 2))) @ B.T
    np.testing.assert_allclose(got, np.linalg.inv(precision), **TIGHT)


@pytest.mark.parametrize("c", [2, 3, 5])
@pytest.mark.verifies("riihimaki2013", "11", "12", "u3.2.2-A-form", route="u integrated out of the product of sites")
def test_site_precision_in_three_forms(rng, c):
    alpha, beta = rng.uniform(0.1, 0.9, size=c - 1), rng.normal(size=c - 1)
    for y in range(c):
        wanted = site_by_brute_force(alpha, beta, y, c)[0]
        np.testing.assert_allclose(site_precision_lowrank(difference_matrix(c, y), alpha), wanted, **TIGHT)
        form = site_precision_a_form(alpha, y)
        np.testing.assert_allclose(form.precision, wanted, **TIGHT)
        np.testing.assert_array_equal(form.A, np.eye(c) - np.outer(np.eye(c)[y], np.ones(c)))
        np.testing.assert_array_equal(form.pi, [*alpha[:y], 1.0, *alpha[y:]])
        result = site_precision(alpha, y)
        np.testing.assert_allclose(result.precision, wanted, **TIGHT)
        np.testing.assert_array_equal(result.pi, [*alpha[:y], 1.0, *alpha[y:]])
        np.testing.assert_allclose(result.precision @ np.ones(c), 0.0, rtol=0, atol=1e-14)  # null vector
        assert np.linalg.eigvalsh(result.precision)[0] > -1e-14  # positive semidefinite up to rounding


@pytest.mark.verifies("riihimaki2013", "13", route="conditioning w on its scalar sites one after another")
def test_mean_of_the_augmented_form(model):
    s = model
    w = augmented_tilted(s.cavity_mean, s.cavity_cov, Y)
    mean, cov = w.mu_w.copy(), w.Sigma_w.copy()
    for b, a, shift in zip(w.B_tilde.T, s.alpha[0], s.beta[0], strict=True):
        gain = cov @ b / (1.0 / a + b @ cov @ b)
        mean, cov = mean + gain * (shift / a - b @ mean), cov - np.outer(gain, b @ cov)
    got = tilted_mean_augmented(w.mu_w, w.Sigma_w, w.B_tilde, s.alpha[0], s.beta[0])
    np.testing.assert_allclose(got, mean[:3], **TIGHT)


@pytest.mark.verifies("riihimaki2013", "14", route="(13)")
def test_two_forms_of_the_tilted_mean(model):
    s = model
    w, B = augmented_tilted(s.cavity_mean, s.cavity_cov, Y), difference_matrix(3, Y)
    got = tilted_mean(s.cavity_mean, s.cavity_cov, B, s.alpha[0], s.beta[0])
    wanted = tilted_mean_augmented(w.mu_w, w.Sigma_w, w.B_tilde, s.alpha[0], s.beta[0])
    np.testing.assert_allclose(got, wanted, **TIGHT)


@pytest.mark.parametrize("c", [2, 3, 5])
@pytest.mark.verifies("riihimaki2013", "15", route="u integrated out of the product of sites")
def test_site_location(rng, c):
    alpha, beta = rng.uniform(0.1, 0.9, size=c - 1), rng.normal(size=c - 1)
    for y in range(c):
        result = site_location(alpha, beta, y)
        np.testing.assert_allclose(result.location, site_by_brute_force(alpha, beta, y, c)[1], **TIGHT)
        assert result.a == pytest.approx(np.sum(beta) / (1.0 + np.sum(alpha)), rel=1e-14, abs=0)
        assert np.sum(result.location) == pytest.approx(0.0, rel=0, abs=1e-14)  # orthogonal to 1
        B = difference_matrix(c, y)
        np.testing.assert_allclose(result.location, B @ (beta - alpha * result.a), **TIGHT)  # the first form of (15)


@pytest.mark.verifies("riihimaki2013", "u3.2.2-iep", route="product of independent normals has the matched moments")
def test_independent_site_matches_means_and_variances(model):
    s = model
    without = np.diag([1.2, 0.8, 2.0])
    hat_cov, hat_mean = 0.3 * s.cavity_cov, np.array([0.4, 0.2, -0.6])
    site = iep_site_update(hat_mean, hat_cov, s.cavity_mean, without)
    for k in range(3):
        precision = 1.0 / without[k, k] + site.precision[k]
        assert 1.0 / precision == pytest.approx(hat_cov[k, k], rel=1e-12, abs=0)
        mean = (s.cavity_mean[k] / without[k, k] + site.location[k]) / precision
        assert mean == pytest.approx(hat_mean[k], rel=1e-12, abs=0)


@pytest.mark.verifies("riihimaki2013", "17", route="cavity times the outer site of (12) and (15)")
def test_marginal_from_inner_sites(model):
    s = model
    got = marginal_from_inner_sites(s.cavity_mean, s.cavity_cov, s.alpha[0], s.beta[0], Y)
    Pi, nu = site_by_brute_force(s.alpha[0], s.beta[0], Y, 3)
    precision = np.linalg.inv(s.cavity_cov) + Pi
    np.testing.assert_allclose(got.cov, np.linalg.inv(precision), **TIGHT)
    shift = np.linalg.solve(s.cavity_cov, s.cavity_mean) + nu
    np.testing.assert_allclose(got.mean, np.linalg.solve(precision, shift), **TIGHT)


@pytest.mark.verifies("riihimaki2013", "u3.2.3-damping", route="convex combination by hand")
def test_damping_is_a_convex_combination():
    a, b = damp_inner_sites(
        np.array([1.0, 2.0]), np.array([0.0, -1.0]), np.array([3.0, 0.0]), np.array([1.0, 1.0]), 0.25
    )
    np.testing.assert_allclose(a, [1.5, 1.5], rtol=1e-15, atol=0)
    np.testing.assert_allclose(b, [0.25, -0.5], rtol=1e-15, atol=0)


def test_the_log_normaliser_of_one_factor_is_what_quadrature_says():
    actual = quad(lambda g: norm.pdf(g, 0.3, 1.1) * ndtr(g), -12, 12, epsabs=0, epsrel=1e-12)[0]
    assert actual == pytest.approx(ndtr(0.3 / np.sqrt(1.0 + 1.21)), rel=1e-10, abs=0)
