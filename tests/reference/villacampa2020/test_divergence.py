"""Section 3: divergences of Gaussians in closed form, and of a mixture by differences."""

import numpy as np
import pytest
from scipy.special import logsumexp

from reference.villacampa2020.divergence import (
    alpha_divergence,
    alpha_divergence_gradient,
    alpha_divergence_limits,
    gaussian_log_density,
    geometric_tilted,
    hellinger_identity,
    vb_as_reversed_divergence,
)
from reference.villacampa2020.errata import vb_as_reversed_divergence_as_printed
from validation.ledger.numbers import assert_recorded, told_apart

P, Q = (0.4, 0.7), (-0.3, 1.6)  # mean, variance
REACH = (-16.0, 16.0)


def overlap(p, q, alpha):
    """∫ p^α q^{1-α} of two Gaussians, and the Gaussian that it normalises."""
    precision = alpha / p[1] + (1.0 - alpha) / q[1]
    shift = alpha * p[0] / p[1] + (1.0 - alpha) * q[0] / q[1]
    exponent = shift**2 / precision - alpha * p[0] ** 2 / p[1] - (1.0 - alpha) * q[0] ** 2 / q[1]
    scale = p[1] ** -alpha * q[1] ** (alpha - 1.0) / precision
    return float(np.sqrt(scale) * np.exp(0.5 * exponent)), (shift / precision, 1.0 / precision)


def kl(p, q):
    return 0.5 * (p[1] / q[1] + (p[0] - q[0]) ** 2 / q[1] - 1.0 - np.log(p[1] / q[1]))


def closed(p, q, alpha):
    return (1.0 - overlap(p, q, alpha)[0]) / (alpha * (1.0 - alpha))


@pytest.mark.verifies("villacampa2020", "6", route="closed form for two Gaussians")
@pytest.mark.parametrize("alpha", [-0.5, 0.2, 0.5, 0.9])
def test_the_divergence_of_two_gaussians(alpha):
    got = alpha_divergence(gaussian_log_density(*P), gaussian_log_density(*Q), alpha, *REACH)
    # quadrature to 1e-11 of a difference of numbers ten times larger
    assert got == pytest.approx(closed(P, Q, alpha), rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("p", "q", "alpha"),
    [
        ((0.3, 1e-6), (0.0, 1.0), 0.5),  # a narrow peak beside a broad one
        ((0.0, 1.0), (0.3, 1e-6), 0.5),
        ((0.3, 1e-6), (0.0, 1.0), 0.999),
        ((0.0, 0.007), (0.05, 0.016), -0.5),  # r^α overflows where q underflows
        ((0.05, 0.016), (0.0, 0.007), 1.5),
        ((0.0, 1e-4), (0.0, 1.0), 1e-6),
    ],
)
def test_the_divergence_of_gaussians_of_very_different_widths(p, q, alpha):
    densities = gaussian_log_density(*p), gaussian_log_density(*q)
    got = alpha_divergence(*densities, alpha, *REACH)
    # quadrature to 1e-11; the closed form loses 1e-16/α, and as much where 1 - α is small
    assert got == pytest.approx(closed(p, q, alpha), rel=1e-9 if 0.01 < abs(alpha) < 0.99 else 1e-8, abs=0)
    np.testing.assert_allclose(alpha_divergence_limits(*densities, *REACH), [kl(q, p), kl(p, q)], rtol=1e-9)
    if alpha == 0.5:
        assert hellinger_identity(*densities, *REACH) == pytest.approx(got, rel=1e-9, abs=0)


@pytest.mark.parametrize("divergence", [
    lambda p, q, *reach: alpha_divergence(p, q, 0.5, *reach), hellinger_identity, alpha_divergence_limits])  # fmt: skip
def test_densities_whose_mass_is_not_seen_are_refused(divergence):
    broad, narrow = gaussian_log_density(0.0, 1.0), gaussian_log_density(0.3, 1e-8)
    with pytest.raises(ValueError, match=r"log_p: found mass 0 on \[-16, 16\], expected 1"):
        divergence(narrow, broad, *REACH)
    with pytest.raises(ValueError, match=r"log_q: found mass 0\.99865\d* on \[-16, 3\]"):
        divergence(gaussian_log_density(-7.0, 1.0), broad, -16.0, 3.0)
    with pytest.raises(ValueError, match="log_p: found mass 2 "):
        divergence(lambda x: broad(x) + np.log(2.0), broad, *REACH)


def test_a_divergence_that_is_not_finite_is_refused():
    narrow, broad = gaussian_log_density(0.0, 0.5), gaussian_log_density(0.0, 2.0)
    with pytest.raises(ValueError, match=r"alpha: found p\^alpha q\^\(1-alpha\) = .* expected nothing left"):
        alpha_divergence(narrow, broad, -0.5, *REACH)  # p^-½ q^{3/2}: precision -1 + 0.75
    with pytest.raises(ValueError, match="lower, upper: found mass 0 "):
        geometric_tilted(gaussian_log_density(0.3, 1e-8), gaussian_log_density(0.3, 1e-8), 0.5, *REACH)
    with pytest.raises(ValueError, match="log_function: found mass 0 "):
        vb_as_reversed_divergence(*Q, lambda x: -1e6 - x, 0.3, 1.4)


@pytest.mark.verifies(
    "villacampa2020", "u11-divergence-limits", "6", route="closed forms and the derivative of the divergence"
)
def test_the_limits_at_zero_and_one_are_the_two_kullback_leibler_divergences():
    p, q = gaussian_log_density(*P), gaussian_log_density(*Q)
    limits = alpha_divergence_limits(p, q, *REACH)
    np.testing.assert_allclose(limits, [kl(Q, P), kl(P, Q)], rtol=1e-9, atol=0)  # quadrature to 1e-11
    # the difference from the limit is linear in α: at 1e-6 it is below 1e-5 of it
    near = [alpha_divergence(p, q, alpha, *REACH) for alpha in (1e-6, 1.0 - 1e-6)]
    np.testing.assert_allclose(near, limits, rtol=1e-5, atol=0)


@pytest.mark.verifies("villacampa2020", "u10-hellinger", "6", route="Bhattacharyya's coefficient; exchange of p and q")
def test_at_one_half_the_divergence_is_symmetric_and_a_distance_of_roots():
    p, q = gaussian_log_density(*P), gaussian_log_density(*Q)
    wanted = 4.0 * (1.0 - overlap(P, Q, 0.5)[0])
    for pair in ((p, q), (q, p)):
        assert hellinger_identity(*pair, *REACH) == pytest.approx(wanted, rel=1e-9, abs=0)  # quadrature to 1e-11
        assert alpha_divergence(*pair, 0.5, *REACH) == pytest.approx(wanted, rel=1e-9, abs=0)
    assert alpha_divergence(p, q, 0.3, *REACH) != pytest.approx(alpha_divergence(q, p, 0.3, *REACH), rel=1e-3)
    assert alpha_divergence(p, q, 0.3, *REACH) == pytest.approx(alpha_divergence(q, p, 0.7, *REACH), rel=1e-8)


@pytest.mark.verifies("villacampa2020", "u14-tilted-density", route="closed form for two Gaussians")
@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_the_geometric_mixture_of_gaussians_is_gaussian(alpha):
    got = geometric_tilted(gaussian_log_density(*P), gaussian_log_density(*Q), alpha, *REACH)
    normaliser, distribution = overlap(P, Q, alpha)
    assert got.normaliser == pytest.approx(normaliser, rel=1e-10, abs=0)  # quadrature to 1e-11
    at = [-2.0, 0.1, 1.7]
    wanted = [gaussian_log_density(*distribution)(x) for x in at]
    np.testing.assert_allclose([got.log_density(x) for x in at], wanted, rtol=1e-9, atol=1e-10)


def mixture(x):
    return float(logsumexp([gaussian_log_density(-1.0, 0.4)(x), gaussian_log_density(1.5, 0.9)(x)], b=[0.3, 0.7]))


@pytest.mark.verifies("villacampa2020", "7", route="central differences of the divergence in natural parameters")
@pytest.mark.parametrize("alpha", [0.25, 0.8])
def test_the_gradient_is_a_difference_of_moments(alpha):
    theta = np.array([Q[0] / Q[1], -0.5 / Q[1]])

    def divergence(at):
        var = -0.5 / at[1]
        return alpha_divergence(mixture, gaussian_log_density(at[0] * var, var), alpha, *REACH)

    h = 1e-4
    wanted = [(divergence(theta + h * e) - divergence(theta - h * e)) / (2.0 * h) for e in np.eye(2)]
    got = alpha_divergence_gradient(mixture, *Q, alpha, *REACH)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=0)  # third derivatives times h² = 1e-8, divided by 0.01


FACTOR = (0.8, 1.1)  # C¹, C²


@pytest.mark.verifies("villacampa2020", "u9-vb-local", route="closed form for a Gaussian factor", printed=True)
def test_the_reversed_divergence_of_a_gaussian_factor_and_the_printed_one_that_is_always_zero():
    c1, c2 = FACTOR
    cavity = (0.3, 1.4)
    tilted_var = 1.0 / (1.0 / cavity[1] + c1)
    tilted = (tilted_var * (cavity[0] / cavity[1] + c2), tilted_var)

    def log_factor(x):
        return -0.5 * c1 * x * x + c2 * x

    got = vb_as_reversed_divergence(*Q, log_factor, *cavity)
    assert got == pytest.approx(kl(Q, tilted), rel=1e-9, abs=0)  # quadrature to 1e-11
    # the approximate factor is what makes the cavity q: nothing is left to minimise
    own = 1.0 / Q[1] - 1.0 / cavity[1], Q[0] / Q[1] - cavity[0] / cavity[1]
    assert vb_as_reversed_divergence_as_printed(*Q, *own, *cavity) == pytest.approx(0.0, abs=1e-14)
    own = 1.0 / P[1] - 1.0 / cavity[1], P[0] / P[1] - cavity[0] / cavity[1]
    printed = vb_as_reversed_divergence_as_printed(*P, *own, *cavity)
    assert printed == pytest.approx(0.0, abs=1e-14)
    told_apart("villacampa2020", "u9-vb-local", printed, vb_as_reversed_divergence(*P, log_factor, *cavity))
    assert_recorded("villacampa2020", "u9-vb-local", kl(P, tilted), round(printed, 12))
    assert vb_as_reversed_divergence_as_printed(*Q, c1, c2, *cavity) == pytest.approx(kl(Q, tilted), rel=1e-12)


def test_the_variational_solution_is_stationary_in_every_local_divergence():
    # prior N(0, 1), factors exp of minus x⁴/4 and of 2 sin x: the mean and variance that maximise the bound
    factors = [lambda x: -0.25 * x**4, lambda x: 2.0 * np.sin(x)]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / np.sum(weights)

    def moments(factor, mean, var):
        """Derivatives of E[factor] by mean and variance, by Stein's identities."""
        x = np.sqrt(var) * nodes
        values = factor(mean + x) * weights
        return np.sum(values * x) / var, 0.5 * np.sum(values * (x * x - var)) / var**2

    mean, var = 0.5, 0.5
    for _ in range(200):
        derivatives = [moments(f, mean, var) for f in factors]
        precision = 1.0 - 2.0 * sum(s[1] for s in derivatives)
        mean, var = mean + sum(s[0] for s in derivatives) / precision - mean / precision, 1.0 / precision
    for factor in factors:
        by_mean, by_var = moments(factor, mean, var)
        c1, c2 = -2.0 * by_var, by_mean - 2.0 * by_var * mean
        cavity_var = 1.0 / (1.0 / var - c1)
        cavity = cavity_var * (mean / var - c2), cavity_var
        h = 1e-4
        here = vb_as_reversed_divergence(mean, var, factor, *cavity)
        for dm, dv in ((h, 0.0), (0.0, h)):
            up = vb_as_reversed_divergence(mean + dm, var + dv, factor, *cavity)
            down = vb_as_reversed_divergence(mean - dm, var - dv, factor, *cavity)
            assert up > here < down
            assert (up - down) / (2.0 * h) == pytest.approx(0.0, abs=1e-5)  # third derivatives times h²
