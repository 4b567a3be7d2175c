"""Pairwise factors against quadrature over one projection, and sums over factors against loops."""

import numpy as np
import pytest
from scipy.stats import norm

from fast.core.results import ScalarMoments
from fast.sparse_classes.pairwise_factors import PairSites, Pairwise, pair_sites, pair_tilt, pair_totals
from fast.sparse_classes.training import AdaptiveState, adaptive_step

Y = np.array([1, 0])
E_Y, V_Y = np.array([[0.4, 0.4, 0.2], [-1.5, -0.3, 0.9]]), np.array([[0.7, 0.2, 1.2], [0.5, 0.3, 2.0]])
E_K, V_K = np.array([[-0.2, 0.0, 1.4], [0.1, 0.8, 0.7]]), np.array([[1.1, 0.4, 0.6], [0.2, 0.9, 0.1]])
S = np.array([[0.3, 0.8, 0.2], [0.5, 0.4, 0.1]])


def _pairs():
    return [(i, k) for i in range(2) for k in range(3) if k != Y[i]]


def _moments(i, k, side):
    """log Z, mean and variance of one projection tilted, the other one integrated out in closed form."""
    e_y, v_y, e_k, v_k = E_Y[i, k], V_Y[i, k], E_K[i, k], V_K[i, k]
    noise = S[i, Y[i]] + S[i, k]
    if side == "label":
        e, v = e_y, v_y
        factor = lambda w: norm.cdf((w - e_k) / np.sqrt(noise + v_k))  # noqa: E731
    else:
        e, v = e_k, v_k
        factor = lambda w: norm.cdf((e_y - w) / np.sqrt(noise + v_y))  # noqa: E731
    x = np.linspace(-11.0, 11.0, 2201)  # equal steps over an analytic integrand: rounding is what is left
    w = e + np.sqrt(v) * x
    weights = 0.01 * norm.pdf(x) * factor(w)
    sums = [weights.sum(), weights @ w, weights @ w**2]
    mean = sums[1] / sums[0]
    return np.log(sums[0]), mean, sums[2] / sums[0] - mean**2


@pytest.mark.verifies("villacampa2017", "34", route="quadrature over one projection")
@pytest.mark.verifies("villacampa2017", "39", route="tilted means by quadrature")
@pytest.mark.verifies("villacampa2017", "40", route="tilted means by quadrature")
@pytest.mark.verifies("villacampa2017", "41", route="tilted variances by quadrature, heat equation")
@pytest.mark.verifies("villacampa2017", "42", route="tilted variances by quadrature, heat equation")
@pytest.mark.verifies("villacampa2017", "u23-beta-alpha-hat", route="tilted moments by quadrature")
def test_log_normaliser_and_derivatives_are_those_of_the_tilted_distribution():
    tilt = pair_tilt(Y, E_Y, V_Y, E_K, V_K, S)
    for i, k in _pairs():
        log_norm, mean_y, var_y = _moments(i, k, "label")
        _, mean_k, var_k = _moments(i, k, "other")
        # rounding of the sums; variances lose a digit or two
        np.testing.assert_allclose(tilt.log_norm[i, k], log_norm, rtol=1e-10)
        np.testing.assert_allclose(mean_y, E_Y[i, k] + V_Y[i, k] * tilt.derivative[i, k], rtol=1e-9)
        np.testing.assert_allclose(mean_k, E_K[i, k] - V_K[i, k] * tilt.derivative[i, k], rtol=1e-9)
        np.testing.assert_allclose(var_y, V_Y[i, k] - V_Y[i, k] ** 2 * tilt.curvature[i, k], rtol=1e-9)
        np.testing.assert_allclose(var_k, V_K[i, k] - V_K[i, k] ** 2 * tilt.curvature[i, k], rtol=1e-9)
        # half of derivative^2 - curvature, the heat equation
        halved = 0.5 * (tilt.derivative[i, k] ** 2 - tilt.curvature[i, k])
        np.testing.assert_allclose(tilt.by_var[i, k], halved, rtol=1e-9)
    for part in tilt:
        assert part[0, 1] == 0.0
        assert part[1, 0] == 0.0


@pytest.mark.verifies("villacampa2017", "48", route="ratio of Gaussians with quadrature moments")
@pytest.mark.verifies("villacampa2017", "49", route="ratio of Gaussians with quadrature moments")
@pytest.mark.verifies("villacampa2017", "52", route="ratio of Gaussians with quadrature moments")
@pytest.mark.verifies("villacampa2017", "53", route="ratio of Gaussians with quadrature moments")
def test_sites_are_tilted_gaussians_divided_by_cavities():
    result = pair_sites(pair_tilt(Y, E_Y, V_Y, E_K, V_K, S), E_Y, V_Y, E_K, V_K)
    for i, k in _pairs():
        for side, e, v, c1, c2 in (
            ("label", E_Y, V_Y, result.c1_label, result.c2_label),
            ("other", E_K, V_K, result.c1_other, result.c2_other),
        ):
            _, mean, var = _moments(i, k, side)
            # 1/var - 1/v cancels up to five digits
            np.testing.assert_allclose(c1[i, k], 1.0 / var - 1.0 / v[i, k], rtol=1e-7)
            np.testing.assert_allclose(c2[i, k], mean / var - e[i, k] / v[i, k], rtol=1e-7, atol=1e-9)
    for part in result:
        assert part[0, 1] == 0.0
        assert part[1, 0] == 0.0


@pytest.mark.verifies("villacampa2017", "26", route="definition")
@pytest.mark.verifies("villacampa2017", "27", route="definition")
def test_totals_are_the_sums_over_the_factors_that_touch_a_class():
    rng = np.random.default_rng(0)
    y = np.array([2, 0, 1, 1])
    sites = PairSites(*(np.where(y[:, None] != np.arange(3), rng.uniform(0.5, 2.0, (4, 3)), 0.0) for _ in range(4)))
    result = pair_totals(y, sites)
    for i in range(4):
        for j in range(3):
            if j == y[i]:
                expected = sum(sites.c1_label[i]), sum(sites.c2_label[i])
            else:
                expected = sites.c1_other[i, j], sites.c2_other[i, j]
            np.testing.assert_allclose((result.delta[i, j], result.mu_tilde[i, j]), expected, rtol=1e-14)  # three terms


def test_an_improper_cavity_is_skipped_counted_and_leaves_no_value():
    factors = Pairwise()
    y, cond_var = np.array([0, 1]), np.full((2, 2), 0.1)
    moments = ScalarMoments(np.zeros((2, 2)), np.ones((2, 2)))
    sites = [np.zeros((2, 2)) for _ in range(4)]
    sites[0][0, 1] = 2.0  # D = 1 - 2
    result = factors.visit(y, moments, cond_var, tuple(sites))
    assert result.n_improper == 1
    assert np.isnan(result.value)
    assert [part[0, 1] for part in result.target] == [2.0, 0.0, 0.0, 0.0]
    assert result.target[0][1, 0] > 0.0  # the other factor moved
    assert all(np.isfinite(part).all() for part in result.target)


@pytest.mark.parametrize("gap", [-1e6, -40.0, 0.0, 40.0, 1e6])
@pytest.mark.parametrize("var", [0.0, 1e-12, 1.0, 1e8])
def test_proposals_are_finite_and_never_negative_precisions_far_out(gap, var):
    factors = Pairwise()
    moments = ScalarMoments(np.array([[gap, 0.0]]), np.full((1, 2), var))
    result = factors.visit(np.array([0]), moments, np.full((1, 2), 1e-3), tuple(np.zeros((4, 1, 2))))
    assert result.n_improper == 0
    assert np.isfinite(result.value)
    assert np.isfinite(result.gap)
    assert (result.target[0] >= 0.0).all()
    assert (result.target[2] >= 0.0).all()


@pytest.mark.verifies("villacampa2017", "u28-adaptive-learning-rate", route="definition, step by step")
def test_rates_grow_by_two_per_cent_and_are_halved_when_a_sign_flips():
    state = AdaptiveState(np.full(3, 0.1), np.full(3, np.nan))
    first = np.array([2.0, -1.0, 3.0])
    step, state = adaptive_step(first, state)
    np.testing.assert_allclose(step, 0.1 * first, rtol=1e-15)
    step, state = adaptive_step(np.array([4.0, 1.0, 0.0]), state)
    np.testing.assert_allclose(step, [0.102 * 4.0, 0.05, 0.0], rtol=1e-15)  # zero is its own sign
    np.testing.assert_allclose(state.rates, [0.102, 0.05, 0.05], rtol=1e-15)
    np.testing.assert_array_equal(state.previous, [4.0, 1.0, 0.0])
