"""The probability that one Gaussian latent value is the largest, against closed forms, mpmath and identities."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import norm

from fast.core.results import ScalarMoments
from fast.likelihood.largest import argmax_moments, class_probabilities, losing_probability
from fast.likelihood.power import powered_labels, robust_power, robust_probabilities
from fast.likelihood.probit import hazard

BOTH = [(4.0, 0.5), (1e8, 1e-8), (1e-8, 1e8), (1e3, 0.0), (0.0, 1e-3)]


def by_mpmath(mean: np.ndarray, var: np.ndarray, y: int, size: float) -> mpmath.mpf:
    """log of the integral by 30 digits, cut at every mean and at multiples of every standard deviation about it.

    size: its logarithm, roughly; mpmath stops at an absolute error.
    """
    with mpmath.workdps(30):
        m, s = [mpmath.mpf(float(x)) for x in mean], [mpmath.sqrt(mpmath.mpf(float(x))) for x in var]
        cuts = sorted(m[k] + c * s[k] for k in range(len(m)) for c in (-40, -16, -8, -4, -2, 0, 2, 4, 8, 16, 40, 400))

        def integrand(t: mpmath.mpf) -> mpmath.mpf:
            value = mpmath.npdf(t, m[y], s[y])
            for k in range(len(m)):
                value *= mpmath.ncdf((t - m[k]) / s[k]) if k != y else 1
            return value

        unit = mpmath.exp(mpmath.mpf(size))
        return mpmath.log(mpmath.quad(lambda t: integrand(t) / unit, cuts, maxdegree=6)) + mpmath.mpf(size)


@pytest.mark.verifies("villacampa2017", "3", route="closed form of two classes")
@pytest.mark.parametrize(("own", "other"), BOTH)
@pytest.mark.parametrize("z", [-60.0, -37.0, -8.0, -1.0, 0.0, 1.5, 5.0])
def test_two_classes_meet_the_closed_form_for_any_ratio_of_variances(own: float, other: float, z: float) -> None:
    sd = np.sqrt(own + other)
    result = argmax_moments(np.array([[0.7, 0.7 + z * sd]]), np.array([[other, own]]), np.array([1]))
    r, excess = hazard(np.array([z]))
    # the stated error: 1e-12 of P, or of log P its rounding
    assert abs(result.log_mass[0] - log_ndtr(z)) <= 1e-12 + 2e-15 * abs(log_ndtr(z))
    # derivatives to the stated 1e-11
    np.testing.assert_allclose(result.derivative[0] * sd, [-r[0], r[0]], rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(result.curvature[0] * sd**2, -(r * excess)[0], rtol=1e-11, atol=1e-15)
    derivative_z = -r[0] * z
    np.testing.assert_allclose(result.by_variance[0] * sd**2, 0.5 * derivative_z, rtol=1e-9, atol=1e-12)


@pytest.mark.verifies("villacampa2017", "3", route="mpmath quadrature")
def test_three_classes_meet_thirty_digits_in_nasty_places() -> None:
    cases = [
        ([0.0, 5.0, 4.9], [1e4, 1e-4, 1.0], 0),
        ([0.0, 30.0, -20.0], [1.0, 0.2, 1e-6], 0),
        ([1.0, 1.0001, 0.9999], [1e-8, 1e-7, 1e2], 1),
    ]
    for mean, var, y in cases:
        actual = argmax_moments(np.array([mean]), np.array([var]), np.array([y])).log_mass[0]
        exact = by_mpmath(np.array(mean), np.array(var), y, round(actual))
        # 1e-12 is the stated relative error of P
        assert abs(float(actual - exact)) <= 1e-12, (mean, var, y)


@pytest.mark.verifies("villacampa2017", "68", "11", route="probabilities of all classes sum to one")
def test_class_probabilities_sum_to_one_whatever_the_variances(rng: np.random.Generator) -> None:
    for C, low, high in ((2, -8, 8), (3, -8, 8), (5, 0, 0), (41, -2, 2)):
        var = 10.0 ** rng.uniform(low, high, size=(30, C))
        mean = rng.normal(size=(30, C)) * np.where(rng.random((30, 1)) < 0.5, 1.0, np.sqrt(var))
        raw = class_probabilities(mean, var)
        # C integrals, each right to 1e-12 of itself
        np.testing.assert_allclose(raw.sum(axis=1), 1.0, rtol=0.0, atol=1e-12)


def test_derivatives_of_the_sum_of_probabilities_vanish(rng: np.random.Generator) -> None:
    n, C = 40, 5
    var, mean = 10.0 ** rng.uniform(-3, 3, size=(n, C)), rng.normal(size=(n, C))
    results = [argmax_moments(mean, var, np.full(n, k)) for k in range(C)]
    P = np.exp([one.log_mass for one in results])[:, :, None]
    for part in ([one.derivative for one in results], [one.by_variance for one in results]):
        terms = P * np.array(part)
        # relative to the largest term of a row: cancellation of numbers right to 1e-11
        size = np.abs(terms).max(axis=(0, 2))[:, None]
        np.testing.assert_allclose(terms.sum(axis=0) / size, 0.0, rtol=0.0, atol=1e-11)


@pytest.mark.verifies("villacampa2017", "3", route="finite differences of log P")
def test_derivatives_are_those_of_log_P(rng: np.random.Generator) -> None:
    n, C = 12, 4
    mean, var, y = rng.normal(size=(n, C)), rng.uniform(0.3, 3.0, size=(n, C)), rng.integers(0, C, n)
    result = argmax_moments(mean, var, y)
    h = 1e-4
    for j in range(C):
        step = h * np.eye(C)[j]
        up, down = (argmax_moments(mean + sign * step, var, y).log_mass for sign in (1.0, -1.0))
        # truncation h^2 and rounding eps/h, eps/h^2
        np.testing.assert_allclose((up - down) / (2 * h), result.derivative[:, j], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            (up + down - 2 * result.log_mass) / h**2, result.curvature[:, j], rtol=1e-5, atol=1e-6
        )
        up, down = (argmax_moments(mean, var + sign * step, y).log_mass for sign in (1.0, -1.0))
        np.testing.assert_allclose((up - down) / (2 * h), result.by_variance[:, j], rtol=1e-6, atol=1e-8)


def test_point_masses_are_limits_and_decided_ones_are_said() -> None:
    mean = np.array([[0.0, 0.4, -1.0]] * 5)
    var = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    result = argmax_moments(mean, var, np.zeros(5, dtype=np.int64))
    assert np.isfinite(result.derivative).all()
    assert np.isfinite(result.curvature).all()
    tiny = argmax_moments(mean[:2], np.where(var == 0.0, 1e-14, var)[:2], np.zeros(2, dtype=np.int64))
    # a variance of 1e-14 moves log P by about that
    np.testing.assert_allclose(result.log_mass[:2], tiny.log_mass, rtol=0.0, atol=1e-12)
    assert result.log_mass[2] == -np.inf
    assert result.log_mass[3] == pytest.approx(log_ndtr(-0.4), rel=1e-12)  # class 2 is beaten, class 1 is not decided
    assert result.log_mass[4] == -np.inf
    tie = class_probabilities(np.zeros((1, 3)), np.zeros((1, 3)))
    np.testing.assert_allclose(tie, 1.0 / 3.0, rtol=1e-12, atol=0.0)


# means, variances, label: values that are known beside others, ahead and behind, and alone
KNOWN = [
    ([0.3, -0.2, 0.5], [0.0, 0.7, 1.3], 0),
    ([0.3, -0.2, 0.5], [0.0, 0.7, 1.3], 1),
    ([0.3, -0.2, 0.5], [0.7, 0.0, 1.3], 2),
    ([1.3, -0.2, 0.5, -4.0], [0.0, 0.4, 0.0, 2.0], 1),
    ([-6.0, -0.2, 0.5], [0.8, 0.0, 0.3], 0),
    ([0.5, -0.2, 0.1], [2e-3, 0.0, 9.0], 0),
]


def log_win(mean: np.ndarray, var: np.ndarray, y: int) -> float:
    """log P(f_y is the largest) by adaptive quadrature; a known value of another class cuts the integral."""
    others = [k for k in range(mean.size) if k != y]
    low = max((mean[k] for k in others if var[k] == 0.0), default=-np.inf)
    soft = [k for k in others if var[k] > 0.0]

    def below(t: float) -> float:
        return float(np.exp(log_ndtr((t - mean[soft]) / np.sqrt(var[soft])).sum()))

    if var[y] == 0.0:
        return np.log(below(mean[y])) if mean[y] > low else -np.inf
    sd = np.sqrt(var[y])
    edges = np.unique(np.clip(mean[y] + sd * np.arange(-13.0, 13.5), low, np.inf))
    parts = [
        quad(lambda t: below(t) * np.exp(-0.5 * ((t - mean[y]) / sd) ** 2), a, b, epsabs=0.0, epsrel=1e-12)[0]
        for a, b in pairwise(edges)
    ]
    return np.log(sum(parts) / (sd * np.sqrt(2.0 * np.pi)))


@pytest.mark.verifies("villacampa2017", "3", route="adaptive quadrature above the values that are known")
@pytest.mark.parametrize(("means", "variances", "label"), KNOWN)
def test_known_values_cut_the_integral_and_its_derivatives(
    means: list[float], variances: list[float], label: int
) -> None:
    mean, var = np.array(means), np.array(variances)
    result = argmax_moments(mean[None], var[None], np.array([label]))
    here = log_win(mean, var, label)
    # 1e-12 is the stated relative error of P, that of the quadrature as much
    assert result.log_mass[0] == pytest.approx(here, rel=0, abs=5e-12)
    h = 1e-3 * np.sqrt(max(var[label], var[var > 0.0].min()))
    for k, step in enumerate(h * np.eye(mean.size)):
        up, down = (log_win(mean + sign * step, var, label) for sign in (1.0, -1.0))
        # h^2 / 6 of a third derivative that is below 100 in units of the deviation, 1e-12 / h and 1e-12 / h^2
        assert result.derivative[0, k] * h == pytest.approx(0.5 * (up - down), rel=1e-4, abs=1e-10)
        assert result.curvature[0, k] * h**2 == pytest.approx(up - 2.0 * here + down, rel=1e-3, abs=1e-10)


@pytest.mark.verifies("villacampa2017", "3", route="panels cut at the deviations of every class")
def test_widths_of_any_ratio_meet_panels_cut_at_every_class(rng: np.random.Generator) -> None:
    n, C = 300, 4
    var, y = np.exp(rng.uniform(-12.0, 6.0, (n, C))), rng.integers(0, C, n)
    mean = rng.normal(size=(n, C)) * np.exp(rng.uniform(-2.0, 3.0, (n, 1)))
    rows = np.arange(n)
    behind = (mean - mean[rows, y][:, None]) / np.sqrt(var + var[rows, y][:, None])
    near = (behind < 5.0).all(axis=1)  # the label may win within thirteen of its deviations
    assert near.sum() > 100
    x, w = np.polynomial.legendre.leggauss(32)
    result = argmax_moments(mean[near], var[near], y[near], moments=False).log_mass
    for value, m, s, k in zip(result, mean[near], np.sqrt(var[near]), y[near], strict=True):
        others = np.arange(C) != k
        low, high = m[k] - 13.0 * s[k], m[k] + 13.0 * s[k]
        bends = (m[others, None] + s[others, None] * np.arange(-9.0, 10.0)).ravel()
        edges = np.unique(np.clip(np.concatenate([m[k] + s[k] * np.arange(-13.0, 14.0), bends]), low, high))
        half = 0.5 * np.diff(edges)
        f = (edges[:-1] + half)[:, None] + half[:, None] * x
        terms = log_ndtr((f[..., None] - m[others]) / s[others]).sum(axis=-1) + norm.logpdf(f, m[k], s[k])
        exact = logsumexp(terms, b=half[:, None] * w)
        # the stated error of P; of its logarithm as much again where that is large
        assert abs(value - exact) <= 1e-11 * max(1.0, -exact)


def test_a_row_does_not_depend_on_its_neighbours(rng: np.random.Generator) -> None:
    n, C = 50, 4
    mean, var, y = rng.normal(size=(n, C)), 10.0 ** rng.uniform(-6, 6, size=(n, C)), rng.integers(0, C, n)
    together = argmax_moments(mean, var, y)
    for i in (0, 17, 49):
        alone = argmax_moments(mean[i : i + 1], var[i : i + 1], y[i : i + 1])
        # the same operations on the same numbers; BLAS may order a sum differently
        np.testing.assert_allclose(alone.log_mass[0], together.log_mass[i], rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(alone.derivative[0], together.derivative[i], rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("part", ["mean", "var"])
def test_a_row_with_nan_is_nan_and_leaves_the_others_alone(rng: np.random.Generator, part: str) -> None:
    given = {"mean": rng.normal(size=(6, 3)), "var": 10.0 ** rng.uniform(-6, 6, size=(6, 3))}
    y, others = rng.integers(0, 3, 6), np.array([0, 1, 2, 4, 5])
    whole = argmax_moments(given["mean"], given["var"], y)
    given[part][3, 1] = np.nan
    spoiled = argmax_moments(given["mean"], given["var"], y)
    for before, after in zip(whole, spoiled, strict=True):
        assert np.isnan(after[3]).all()
        np.testing.assert_array_equal(after[others], before[others])
    assert np.isnan(argmax_moments(given["mean"][3:4], given["var"][3:4], y[3:4]).log_mass).all()


@pytest.mark.verifies("villacampa2017", "13", route="two-point expectation in forty digits")
@pytest.mark.parametrize("alpha", [0.0, 1e-8, 1e-3, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [5e-324, 1e-310, 1e-12, 1e-3, 0.5])
def test_powers_are_two_point_expectations_down_to_tiny_alpha(alpha: float, epsilon: float) -> None:
    mean, var = np.array([[0.0, 0.5, 1.0], [9.0, 0.0, 0.0], [0.0, 40.0, 0.0]]), np.full((3, 3), 0.8)
    result = argmax_moments(mean, var, np.zeros(3, dtype=np.int64))
    power = robust_power(result, alpha, epsilon, 3)
    for i in range(3):
        with mpmath.workdps(40):
            P, eps = mpmath.exp(mpmath.mpf(float(result.log_mass[i]))), mpmath.mpf(epsilon)
            low, high, power_of = eps / 3, 1 - eps + eps / 3, mpmath.mpf(alpha)
            if alpha == 0.0:
                exact, phi = P * mpmath.log(high) + (1 - P) * mpmath.log(low), P * mpmath.log(high / low)
            else:
                norm = P * high**power_of + (1 - P) * low**power_of
                exact, phi = mpmath.log(norm) / power_of, P * (high**power_of - low**power_of) / norm / power_of
        # the stated 1e-12, or the rounding of P near 1 times log a
        np.testing.assert_allclose(power.value[i], float(exact), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(power.derivative[i], float(phi) * result.derivative[i], rtol=1e-12, atol=1e-300)
        log_norm = alpha * power.value[i]
        assert power.log_norm[i] == pytest.approx(log_norm, rel=1e-12, abs=1e-15)


@pytest.mark.verifies("villacampa2017", "13", route="finite differences")
def test_derivatives_of_powers_are_derivatives(rng: np.random.Generator) -> None:
    n, C, h = 8, 3, 1e-4
    mean, var, y = rng.normal(size=(n, C)), rng.uniform(0.3, 2.0, size=(n, C)), rng.integers(0, C, n)
    for alpha, epsilon in ((0.0, 0.01), (0.4, 0.0), (0.7, 0.1)):
        power = robust_power(argmax_moments(mean, var, y), alpha, epsilon, C)
        for j in range(C):
            step = h * np.eye(C)[j]
            up, down = (robust_power(argmax_moments(mean + s * step, var, y), alpha, epsilon, C).value for s in (1, -1))
            # truncation h^2, rounding eps/h and eps/h^2
            np.testing.assert_allclose((up - down) / (2 * h), power.derivative[:, j], rtol=1e-6, atol=1e-7)
            bend = (up + down - 2 * power.value) / h**2
            np.testing.assert_allclose(bend, power.curvature[:, j], rtol=1e-5, atol=1e-5)
            up, down = (robust_power(argmax_moments(mean, var + s * step, y), alpha, epsilon, C).value for s in (1, -1))
            np.testing.assert_allclose((up - down) / (2 * h), power.by_variance[:, j], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("margin", [3.0, 6.0, 9.0, 20.0])
def test_what_is_left_of_a_sure_label_keeps_its_digits(margin: float) -> None:
    mean, var, y = np.array([[0.0, margin], [1.0, margin]]), np.array([[0.5, 0.7], [0.2, 0.1]]), np.array([1, 1])
    gap = (mean[:, 1] - mean[:, 0]) / np.sqrt(var.sum(axis=1))
    rest = losing_probability(mean, var, y)
    # the stated 1e-12, and 1e-16 of the exponent
    np.testing.assert_allclose(rest, ndtr(-gap), rtol=1e-12 + 1e-15 * margin**2, atol=0.0)
    for alpha in (1e-10, 1e-5):
        power = robust_power(argmax_moments(mean, var, y), alpha, 0.0, 2, rest)
        np.testing.assert_allclose(power.value, log_ndtr(gap) / alpha, rtol=1e-11, atol=0.0)
        np.testing.assert_array_equal(powered_labels(y, ScalarMoments(mean, var), alpha, 0.0).value, power.value)


def test_the_other_classes_are_what_the_label_leaves(rng: np.random.Generator) -> None:
    n, C = 40, 5
    mean, var, y = rng.normal(size=(n, C)), rng.uniform(0.1, 2.0, (n, C)), rng.integers(0, C, n)
    P = np.exp(argmax_moments(mean, var, y, moments=False).log_mass)
    # each of five integrals to 1e-12
    np.testing.assert_allclose(losing_probability(mean, var, y) + P, 1.0, rtol=1e-11, atol=0.0)


def test_powers_refuse_what_has_no_value() -> None:
    result = argmax_moments(np.zeros((1, 2)), np.ones((1, 2)), np.array([0]))
    with pytest.raises(ValueError, match="epsilon: found 0"):
        robust_power(result, 0.0, 0.0, 2)
    with pytest.raises(ValueError, match="alpha"):
        robust_power(result, 1.5, 0.1, 2)
    with pytest.raises(ValueError, match="epsilon"):
        robust_power(result, 0.5, -0.1, 2)


@pytest.mark.verifies("villacampa2017", "13", route="definition")
def test_robust_probabilities_mix_with_the_uniform_distribution() -> None:
    raw = np.array([[0.2, 0.8, 0.0]])
    # exact arithmetic up to rounding
    np.testing.assert_allclose(robust_probabilities(raw, 0.3), [[0.24, 0.66, 0.1]], rtol=1e-14, atol=0.0)
