"""Appendix A: each step by quadrature or dense algebra, the whole against fine rules, the bias of its normaliser."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from reference.common.options import options_of
from reference.riihimaki2013._phi import log_phi, mills
from reference.riihimaki2013.fit import Prior, fit_ep
from reference.riihimaki2013.inner_ep import (
    incremental_inner_update,
    inner_cavity,
    inner_ep,
    inner_log_normaliser,
    inner_parallel_update,
    inner_posterior,
    inner_rank_one_update,
    inner_site_change,
    inner_tilted_moments,
)
from reference.riihimaki2013.quadrature_ep import tilted_multinomial_probit
from reference.riihimaki2013.sites import augmented_tilted

Y = 1
TIGHT = {"rtol": 1e-10, "atol": 1e-11}  # matrices of 4 x 4 with conditions below 1e3


@pytest.fixture
def w(model):
    return augmented_tilted(model.cavity_mean, model.cavity_cov, Y)


def dense(w, alpha, beta):
    precision = np.linalg.inv(w.Sigma_w) + w.B_tilde @ np.diag(alpha) @ w.B_tilde.T
    return np.linalg.solve(precision, np.linalg.solve(w.Sigma_w, w.mu_w) + w.B_tilde @ beta), np.linalg.inv(precision)


@pytest.mark.verifies("riihimaki2013", "8", route="sum of natural parameters, inverted")
def test_product_of_cavity_and_scalar_sites(model, w):
    mean, cov = dense(w, model.alpha[0], model.beta[0])
    got = inner_posterior(*w, model.alpha[0], model.beta[0])
    np.testing.assert_allclose(got.mean, mean, **TIGHT)
    np.testing.assert_allclose(got.cov, cov, **TIGHT)
    np.testing.assert_allclose(inner_posterior(*w, np.zeros(2), np.zeros(2)).cov, w.Sigma_w, rtol=1e-14, atol=1e-15)


@pytest.mark.verifies("riihimaki2013", "A-step1", route="density of the quotient at two points")
def test_scalar_cavity():
    m, v, a, b = 0.7, 1.4, 0.3, -0.4
    left = inner_cavity(m, v, a, b)

    def quotient(g):
        return norm.logpdf(g, m, np.sqrt(v)) + 0.5 * a * g**2 - b * g - norm.logpdf(g, left.mean, np.sqrt(left.var))

    # the logarithm of the quotient is that of the cavity up to a constant
    np.testing.assert_allclose(np.diff([quotient(g) for g in (-1.0, 0.2, 1.5, 3.0)]), 0.0, rtol=0, atol=1e-12)
    assert not inner_cavity(m, v, 0.8, b).var > 0.0
    assert inner_cavity(1.0, 2.0, 0.5, 0.1).var == np.inf


@pytest.mark.parametrize(("m", "v"), [(0.3, 0.8), (-2.5, 4.0), (3.0, 0.1)])
@pytest.mark.verifies("riihimaki2013", "A-step2", route="Gauss-Legendre quadrature of N(g)Φ(g)")
def test_scalar_tilted_moments(m, v):
    sd = np.sqrt(v)
    x, w = np.polynomial.legendre.leggauss(400)
    t = 12.0 * x
    share = 12.0 * w * norm.pdf(t) * ndtr(m + sd * t)
    mass, first, second = (np.sum(share * t**p) for p in (0, 1, 2))
    got = inner_tilted_moments(m, v)
    # quadrature to 1e-12; the variance is a difference
    assert got.log_norm == pytest.approx(np.log(mass), rel=1e-9, abs=1e-11)
    assert got.mean == pytest.approx(m + sd * first / mass, rel=1e-9, abs=0)
    assert got.var == pytest.approx(v * (second / mass - (first / mass) ** 2), rel=1e-8, abs=0)


@pytest.mark.verifies("riihimaki2013", "A-step3", route="cavity times the changed site has the tilted moments")
def test_scalar_site_change():
    m, v, a, b = 0.7, 1.4, 0.3, -0.4
    left = inner_cavity(m, v, a, b)
    hat = inner_tilted_moments(left.mean, left.var)
    d_alpha, d_beta = inner_site_change(hat.mean, hat.var, m, v, 1.0)
    var = 1.0 / (1.0 / left.var + a + d_alpha)
    assert var == pytest.approx(hat.var, rel=1e-12, abs=0)
    assert var * (left.mean / left.var + b + d_beta) == pytest.approx(hat.mean, rel=1e-12, abs=0)
    halved = inner_site_change(hat.mean, hat.var, m, v, 0.5)
    assert halved == pytest.approx((0.5 * d_alpha, 0.5 * d_beta), rel=1e-14, abs=0)


@pytest.mark.verifies("riihimaki2013", "A-step4", "A-parallel", route="sum of natural parameters, inverted")
def test_refreshes(model, w):
    alpha, beta = model.alpha[0], model.beta[0]
    mean, cov = dense(w, alpha, beta)
    changed = alpha + np.array([0.0, 0.25]), beta + np.array([0.0, -0.6])
    got = inner_rank_one_update(mean, cov, w.B_tilde[:, 1], 0.25, -0.6)
    for value in (got, inner_parallel_update(*w, *changed)):
        np.testing.assert_allclose(value.mean, dense(w, *changed)[0], **TIGHT)
        np.testing.assert_allclose(value.cov, dense(w, *changed)[1], **TIGHT)


@pytest.mark.parametrize("c", [2, 3, 5])
@pytest.mark.verifies(
    "riihimaki2013", "A-logz", route="Gaussian integral of scaled sites, each scale from its definition"
)
def test_log_normaliser(rng, c):
    root = rng.normal(size=(c, c))
    w = augmented_tilted(rng.normal(size=c), root @ root.T + 0.4 * np.eye(c), 0)
    alpha, beta = rng.uniform(0.05, 0.4, size=c - 1), rng.normal(size=c - 1)
    mean, cov = dense(w, alpha, beta)
    g_cov, g_mean = w.B_tilde.T @ w.Sigma_w @ w.B_tilde, w.B_tilde.T @ w.mu_w
    # log ∫ N(g) exp(-½g'Ag + b'g) dg in the coordinates of g
    inner = np.eye(c - 1) + g_cov @ np.diag(alpha)
    shift = np.linalg.solve(g_cov, g_mean) + beta
    precision = np.linalg.inv(g_cov) + np.diag(alpha)
    wanted = 0.5 * shift @ np.linalg.solve(precision, shift) - 0.5 * g_mean @ np.linalg.solve(g_cov, g_mean)
    wanted -= 0.5 * np.log(np.linalg.det(inner))
    for j, b in enumerate(w.B_tilde.T):  # each scale: mass of cavity times Φ over mass of cavity times site
        m, v = b @ mean, b @ cov @ b
        v_left = 1.0 / (1.0 / v - alpha[j])
        m_left = v_left * (m / v - beta[j])
        x, share = np.polynomial.legendre.leggauss(400)
        g = m + 20.0 * np.sqrt(v) * x  # cavity times site is proportional to the marginal
        site = (
            20.0
            * np.sqrt(v)
            * np.sum(share * norm.pdf(g, m_left, np.sqrt(v_left)) * np.exp(-0.5 * alpha[j] * g**2 + beta[j] * g))
        )
        wanted += log_ndtr(m_left / np.sqrt(1.0 + v_left)) - np.log(site)
    assert inner_log_normaliser(w, alpha, beta) == pytest.approx(wanted, rel=1e-8, abs=1e-10)  # the quadrature's 1e-12


def test_two_classes_are_exact(rng):
    root = rng.normal(size=(2, 2))
    mean, cov = rng.normal(size=2), root @ root.T + 0.3 * np.eye(2)
    result = inner_ep(mean, cov, 0, np.zeros(1), np.zeros(1))
    truth = tilted_multinomial_probit(mean, cov, 0)
    assert result.converged
    np.testing.assert_allclose(result.mean[:2], truth.mean, rtol=1e-7, atol=0)  # sites to 1e-12 of their own scale
    np.testing.assert_allclose(result.cov[:2, :2], truth.cov, rtol=1e-7, atol=0)
    log_norm = inner_log_normaliser(augmented_tilted(mean, cov, 0), result.alpha, result.beta)
    assert log_norm == pytest.approx(np.log(truth.norm), rel=1e-7, abs=0)


def test_three_classes_are_close_and_the_normaliser_is_a_little_low(model):
    biases = []
    for y in range(3):
        result = inner_ep(model.cavity_mean, model.cavity_cov, y, np.zeros(2), np.zeros(2))
        truth = tilted_multinomial_probit(model.cavity_mean, model.cavity_cov, y)
        sd = np.sqrt(np.diag(model.cavity_cov))
        # EP matches means and variances well: 0.024 of the cavity's deviations at most here
        assert np.max(np.abs(result.mean[:3] - truth.mean) / sd) < 0.03
        assert np.max(np.abs(result.cov[:3, :3] - truth.cov) / np.outer(sd, sd)) < 0.03
        w = augmented_tilted(model.cavity_mean, model.cavity_cov, y)
        biases.append(inner_log_normaliser(w, result.alpha, result.beta) - np.log(truth.norm))
    # section 5.1: "a small bias in the normalization term"
    assert np.all(np.abs(biases) < 0.03)
    assert np.max(np.abs(biases)) > 1e-5


def test_the_schedules_share_their_fixed_point(model):
    start = np.zeros(2), np.zeros(2)
    one = inner_ep(model.cavity_mean, model.cavity_cov, Y, *start)
    two = inner_ep(model.cavity_mean, model.cavity_cov, Y, *start, inner_schedule="parallel", inner_damping=0.7)
    assert one.converged
    assert two.converged
    np.testing.assert_allclose(one.alpha, two.alpha, rtol=1e-10, atol=1e-11)  # both to 1e-12 of their own scale
    np.testing.assert_allclose(one.beta, two.beta, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("damping", "reached"), [(1e-8, False), (3e-4, False), (0.05, True), (1.0, True)])
def test_a_damping_that_no_thousand_sweeps_make_up_for_gives_up_and_says_so(model, damping, reached):
    result = inner_ep(model.cavity_mean, model.cavity_cov, Y, np.zeros(2), np.zeros(2), inner_damping=damping)
    assert result.converged == reached
    if not reached:
        first = inner_ep(
            model.cavity_mean, model.cavity_cov, Y, np.zeros(2), np.zeros(2), inner="incremental", inner_damping=damping
        )
        np.testing.assert_array_equal(result.alpha, first.alpha)
        np.testing.assert_array_equal(result.mean, first.mean)


def test_an_inner_damping_of_nearly_nothing_ends_without_a_claim():
    X, y = np.array([[-1.0], [0.2]]), np.array([0, 2])
    prior = Prior(np.ones(3), np.ones((3, 1)), np.full(3, 0.1), np.zeros(3))
    assert not fit_ep(X, y, 3, prior, options=options_of("nested-iep")(inner_damping=1e-8)).converged


@pytest.mark.verifies("riihimaki2013", "u3.2.3-incremental", route="steps 1 to 4 once for each class, in natural form")
def test_one_sweep_from_the_previous_values(model, w):
    alpha, beta = model.alpha[0].copy(), model.beta[0].copy()
    got = incremental_inner_update(model.cavity_mean, model.cavity_cov, Y, alpha, beta)
    for j, b in enumerate(w.B_tilde.T):
        mean, cov = dense(w, alpha, beta)
        left = 1.0 / (1.0 / (b @ cov @ b) - alpha[j])
        m = left * (b @ mean / (b @ cov @ b) - beta[j])
        z = m / np.sqrt(1.0 + left)
        ratio = norm.pdf(z) / ndtr(z)
        var = left - left**2 * ratio * (z + ratio) / (1.0 + left)
        alpha[j] = 1.0 / var - 1.0 / left
        beta[j] = (m + left * ratio / np.sqrt(1.0 + left)) / var - m / left
    np.testing.assert_allclose(got[0], alpha, **TIGHT)
    np.testing.assert_allclose(got[1], beta, **TIGHT)


def test_scalar_functions_in_the_tails():
    for z in (-60.0, -5.1, -4.9, 0.0, 3.0, 20.0):
        assert log_phi(z) == pytest.approx(float(log_ndtr(z)), rel=1e-13, abs=1e-300)
    # r(z + r) → 1 - 1/z² + ... for z → -∞
    ratio, gap = mills(-1e4)
    assert ratio * gap == pytest.approx(1.0 - 1e-8, rel=1e-14, abs=0)
