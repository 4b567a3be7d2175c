"""Which of several Gaussians is the largest, where their widths differ by many decades."""

import numpy as np
import pytest
from scipy.special import log_ndtr

from reference.common import _largest
from reference.common._largest import largest, log_largest, log_not_largest
from reference.common._probit_line import probit_line

# Newton's step beside the narrow Φ is short although the mode is ten deviations away
FAR = (
    ([-3467.86449102, 56581.56917383, -43619.06629024, -9479.34705966], [1e-7, 2.506e5, 3.552e7, 2.535e5], 2),
    ([-9380.25149125, -2126.58997565, 5873.1929195, 3741.57465998], [2.57e4, 6.884e5, 388.3, 2.19e-8], 1),
    ([-35946.17698616, 43941.49243924, 8091.78907252, 26596.27335983], [3.887e7, 8.272e4, 2.98e-8, 1.026e6], 0),
    # where two such steps leave the derivative positive: a bracket that closed there would give -922 and infinity
    ([-29.08, 50.99, 2.123], [3.138, 0.9408, 1.196e-8], 0),
    ([368.4, -580.0, 567.4, -658.4], [2.91e-7, 1.633, 15.4, 1693.0], 3),
)


def comparisons(mean, var, label):
    """log P(f_y > f_k) for every other class."""
    others = [k for k in range(len(mean)) if k != label]
    return log_ndtr((mean[label] - mean[others]) / np.sqrt(var[label] + var[others]))


@pytest.mark.parametrize(("mean", "var", "label"), FAR)
def test_the_mode_is_found_behind_a_narrow_step(mean, var, label):
    mean, var = np.array(mean), np.array(var)
    each = comparisons(mean, var, label)
    others = [k for k in range(len(mean)) if k != label]
    line = probit_line(mean[label], var[label], mean[others], np.sqrt(var[others])).log_norm
    got = log_largest(mean[None], var[None], np.array([label]))[0]
    for value in (got, line):
        # Slepian: the comparisons are positively correlated; all of them are no likelier than one
        assert np.sum(each) <= value <= np.min(each) + 1e-12  # rounding of numbers near 100
    # two rules of different panels, relative errors of the integral of 1e-13 or so
    assert line == pytest.approx(got, rel=1e-11, abs=0)


@pytest.mark.parametrize("C", [3, 5])
def test_probability_and_complement_sum_to_one_at_any_widths(C):
    rng = np.random.default_rng(5)
    n = 600
    var = 10.0 ** rng.uniform(-8, 8, (n, C))
    scale = np.sqrt(np.take_along_axis(var, rng.integers(C, size=(n, 1)), axis=1))
    mean, y = 6.0 * scale * rng.normal(size=(n, C)), rng.integers(C, size=n)
    result, rest = largest(mean, var, y), log_not_largest(mean, var, y)
    # integrals of their own: the second is a sum of C - 1 with other signs
    np.testing.assert_allclose(np.exp(result.log_p) + np.exp(rest), 1.0, rtol=0.0, atol=1e-13)
    for part in result[1:]:
        assert np.all(np.isfinite(part))


@pytest.mark.parametrize("C", [4, 9, 30])
@pytest.mark.parametrize("decades", [0.3, 1.0, 4.0])
def test_ties_at_the_nodes_of_the_probability_are_those_of_integrals_of_their_own(monkeypatch, C, decades):
    rng = np.random.default_rng(C)
    n = 12
    var = 10.0 ** (decades * rng.normal(size=(n, C)))
    mean, y = rng.choice([0.1, 1.0, 10.0], (n, 1)) * rng.normal(size=(n, C)), rng.integers(C, size=n)
    together = largest(mean, var, y)
    monkeypatch.setattr(_largest, "_TOGETHER", C + 1)
    apart = largest(mean, var, y)
    # two integrals with relative errors of 1e-13; a share is a quotient, whose logarithms have as many digits less as
    # log P has before the point
    digits = 1e-12 * (1.0 + 1e-3 * np.abs(apart.log_p[:, None]))
    np.testing.assert_allclose(together.log_p, apart.log_p, rtol=1e-13, atol=1e-13)
    assert np.all(np.abs(together.first - apart.first) <= digits * np.abs(apart.first))
    size = np.maximum(np.abs(apart.second), np.abs(apart.first) / np.sqrt(var))
    assert np.all(np.abs(together.second - apart.second) <= digits * size)


@pytest.mark.parametrize("n", [0, 3])
def test_one_class_alone_is_the_largest(n):
    mean, var, y = np.arange(n, dtype=float)[:, None], np.ones((n, 1)), np.zeros(n, dtype=int)
    np.testing.assert_array_equal(log_largest(mean, var, y), np.zeros(n))
    np.testing.assert_array_equal(log_not_largest(mean, var, y), np.full(n, -np.inf))
    log_p, *derivatives = largest(mean, var, y)
    np.testing.assert_array_equal(log_p, np.zeros(n))
    for part in derivatives:
        np.testing.assert_array_equal(part, np.zeros((n, 1)))


def test_a_mode_out_of_reach_of_float64_is_an_error_that_says_so():
    with pytest.raises(ValueError, match=r"mean: found an integrand with its mode .* lower variance"):
        probit_line(0.0, 1.0, np.array([1e19, 3.0]), np.ones(2))
