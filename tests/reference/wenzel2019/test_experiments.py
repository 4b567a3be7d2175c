"""Section 5 of wenzel2019: Adam, k-means++, measures of prediction and stopping rules, and the adaptive rate of 4.3."""

import math
from fractions import Fraction

import numpy as np
import pytest

from reference.wenzel2019.experiments import (
    AdamState,
    adam_step,
    converged_holdout,
    converged_parameters,
    kmeanspp_inducing_points,
    parameter_change,
    prediction_metrics,
)
from reference.wenzel2019.rates import adaptive_learning_rate, decaying_rate, start_adaptive_rate
from reference.wenzel2019.updates import Gaussian


@pytest.mark.verifies("wenzel2019", "u4.3-adaptive-rate", route="exact rational arithmetic from the definition")
def test_the_adaptive_rate_is_the_squared_mean_over_the_mean_square(rng):
    noisy = rng.integers(-5, 6, size=(7, 3))
    start, steps = noisy[:3], noisy[3:]
    mean = [Fraction(int(sum(column)), 3) for column in start.T]
    squared, tau = Fraction(int(np.sum(start**2)), 3), Fraction(3)
    memory = start_adaptive_rate(start.astype(float))
    # a handful of roundings of numbers of size 1
    np.testing.assert_allclose(memory.gradient_mean, [float(x) for x in mean], rtol=1e-14, atol=1e-15)
    assert memory.squared_norm == pytest.approx(float(squared), rel=1e-14, abs=0)
    assert memory.memory == 3.0
    for g in steps:
        mean = [(1 - 1 / tau) * a + Fraction(int(b)) / tau for a, b in zip(mean, g, strict=True)]
        squared = (1 - 1 / tau) * squared + Fraction(int(g @ g)) / tau
        rho = sum(a * a for a in mean) / squared
        tau = (1 - rho) * tau + 1
        rate, memory = adaptive_learning_rate(g.astype(float), memory)
        # four steps of some ten roundings
        assert rate == pytest.approx(float(rho), rel=1e-12, abs=0)
        np.testing.assert_allclose(memory.gradient_mean, [float(x) for x in mean], rtol=0, atol=1e-13)
        assert memory.squared_norm == pytest.approx(float(squared), rel=1e-13, abs=0)
        assert memory.memory == pytest.approx(float(tau), rel=1e-13, abs=0)


def test_equal_gradients_give_rate_one_and_opposite_ones_give_less():
    g = np.array([0.3, -0.7, 1e-3])
    assert adaptive_learning_rate(g, start_adaptive_rate(np.array([g, g]))).rate == pytest.approx(1.0, rel=1e-14, abs=0)
    assert adaptive_learning_rate(g, start_adaptive_rate(np.array([-g, g]))).rate == pytest.approx(
        0.25, rel=1e-14, abs=0
    )
    assert adaptive_learning_rate(0 * g, start_adaptive_rate(np.zeros((2, 3)))).rate == 1.0


def test_the_decaying_rate_is_its_power():
    assert decaying_rate(3, 0.5, 1.0, 0.5) == 0.25
    assert decaying_rate(9, 0.5, 1.0, 0.0) == 0.5


@pytest.mark.verifies("wenzel2019", "u5-adam", route="closed form of the exponential averages")
def test_adam_divides_the_weighted_mean_by_the_root_mean_square(rng):
    gradients = rng.normal(size=(6, 2))
    state = AdamState(np.zeros(2), np.zeros(2), 0)
    for t in range(1, 7):
        step, state = adam_step(gradients[t - 1], state, 0.05)
        ages = np.arange(t)[::-1, None]
        first = np.sum(0.9**ages * gradients[:t], axis=0) / np.sum(0.9**ages)
        second = np.sum(0.999**ages * gradients[:t] ** 2, axis=0) / np.sum(0.999**ages)
        # 1 - 0.999^t cancels three digits
        np.testing.assert_allclose(step, 0.05 * first / (np.sqrt(second) + 1e-8), rtol=1e-11, atol=0)
        np.testing.assert_allclose(state.first, first * (1 - 0.9**t), rtol=1e-12, atol=0)
        np.testing.assert_allclose(state.second, second * (1 - 0.999**t), rtol=1e-11, atol=0)
        assert state.steps == t


@pytest.mark.verifies("wenzel2019", "u5-kmeanspp", route="as many centres as distinct points")
def test_seeding_never_takes_a_point_twice(rng):
    distinct = np.array([[0.0, 0.0], [1.0, 3.0], [1e-6, 0.0], [100.0, -5.0]])
    X = distinct[rng.integers(4, size=40)]
    X[:4] = distinct
    for seed in range(5):
        Z = kmeanspp_inducing_points(np.random.default_rng(seed), X, 4)
        np.testing.assert_array_equal(Z[np.lexsort(Z.T)], distinct[np.lexsort(distinct.T)])
    with pytest.raises(ValueError, match=r"n_inducing: found 5, expected at most 4, the number of distinct rows"):
        kmeanspp_inducing_points(rng, X, 5)


@pytest.mark.verifies(
    "wenzel2019", "u5-kmeanspp", route="Monte Carlo: distribution of the second centre", resolves=0.05
)
def test_the_second_centre_is_drawn_by_squared_distance(rng):
    X = np.array([[0.0], [1.0], [3.0]])
    draws = 4000
    counts = np.zeros((3, 3))
    for _ in range(draws):
        a, b = kmeanspp_inducing_points(rng, X, 2)[:, 0]
        counts[list(X[:, 0]).index(a), list(X[:, 0]).index(b)] += 1
    distribution = np.array([[0, 1, 9], [1, 0, 4], [9, 4, 0]]) / np.array([[10], [5], [13]]) / 3
    off = distribution > 0
    z = (counts[off] - draws * distribution[off]) / np.sqrt(draws * distribution[off] * (1 - distribution[off]))
    # six frequencies, two-sided at 1e-4 in all: 4.3 standard errors each
    assert np.max(np.abs(z)) < 4.3
    assert np.all(counts[~off] == 0)


def test_sweeps_of_lloyd_end_at_means_of_clusters(rng):
    X = np.concatenate([rng.normal(size=(20, 2)), 50.0 + rng.normal(size=(30, 2))])
    Z = kmeanspp_inducing_points(rng, X, 2, max_iterations=50)
    # sums of 30 numbers of size 50
    np.testing.assert_allclose(Z[np.argsort(Z[:, 0])], [X[:20].mean(axis=0), X[20:].mean(axis=0)], rtol=0, atol=1e-12)


@pytest.mark.verifies("wenzel2019", "u5.2-metrics", route="counting and products by hand")
def test_error_counts_and_nll_is_the_log_of_a_geometric_mean():
    p = np.array([0.9, 0.2, 0.6, 0.5])
    got = prediction_metrics(p, np.array([1.0, -1.0, -1.0, -1.0]))
    assert got.error == 0.25
    # one product, one root, one logarithm
    assert got.nll == pytest.approx(-math.log((0.9 * 0.8 * 0.4 * 0.5) ** 0.25), rel=1e-14, abs=0)
    assert prediction_metrics(np.array([0.0]), np.array([1.0])) == (1.0, math.inf)


@pytest.mark.parametrize("p", [[], [1.5], [-0.1, 0.2], [np.nan]])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match=r"probability: found"):
        prediction_metrics(np.array(p), np.ones(len(p)))


@pytest.mark.verifies("wenzel2019", "u5.2-stop-params", route="changes with known averages")
def test_the_parameter_rule_averages_the_last_window_of_changes():
    a = Gaussian(np.array([4.0, -8.0]), np.array([[0.5, 0.1], [0.1, 0.2]]))
    b = Gaussian(np.array([4.0, -7.0]), np.array([[0.5, 0.1], [0.1, -0.1]]))
    assert parameter_change(a, b) == pytest.approx(0.3, rel=1e-14, abs=0)  # 0.3/1 in Σ against 1/8 in μ
    c = Gaussian(np.array([4.0, -4.0]), a.inducing_cov)
    assert parameter_change(a, c) == 0.5
    changes = [9.0, 1e-4, 2e-4, 0.0, 0.0, 1e-4]
    assert converged_parameters(changes[:4]) == (math.inf, False)
    got = converged_parameters(changes)
    assert got.change == pytest.approx(0.8e-4, rel=1e-12, abs=0)
    assert got.converged is True
    assert converged_parameters(changes, threshold=0.7e-4).converged is False
    assert converged_parameters(changes, window=6).converged is False


@pytest.mark.verifies("wenzel2019", "u5.2-stop-holdout", route="scores with known averages")
def test_the_hold_out_rule_compares_two_windows_of_five():
    scores = [7.0, 0.3, 0.1, 0.2, 0.4, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2045]
    assert converged_holdout(scores[:9]) == (math.inf, False)
    got = converged_holdout(scores)
    assert got.change == pytest.approx(0.0009, rel=1e-10, abs=0)  # 0.2009 - 0.2, which cancels three digits
    assert got.converged is True
    assert converged_holdout(scores, threshold=8e-4).converged is False
    assert converged_holdout(scores[:10]).converged is False
