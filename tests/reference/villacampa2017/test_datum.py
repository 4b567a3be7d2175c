"""One factor a datum: Gaussian integrals by another rule, derivatives by differences, and where both EPs agree."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from reference.common.priors import Prior
from reference.villacampa2017.datum import datum_tilted, tilted_of_data
from reference.villacampa2017.fit import fit_ep

NEAR = {"rtol": 0, "atol": 1e-8}  # both runs end within 1e-10 of the fixed point, in standardised coordinates


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def largest(mean, var, y):
    """P(f_y > f_k) by adaptive quadrature, over the label's value."""

    def density(t):
        value = np.exp(-0.5 * (t - mean[y]) ** 2 / var[y]) / np.sqrt(2 * np.pi * var[y])
        for k in range(len(mean)):
            if k != y:
                value *= ndtr((t - mean[k]) / np.sqrt(var[k]))
        return value

    reach = 12 * np.sqrt(var[y])
    return quad(density, mean[y] - reach, mean[y] + reach, epsabs=1e-14, epsrel=1e-13, points=mean[:3])[0]


def test_the_probability_and_its_derivatives():
    mean, var = np.array([0.3, -0.8, 0.5, 0.1]), np.array([1.2, 0.4, 0.7, 2.0])
    for y in (0, 2):
        got = datum_tilted(mean, var, y)
        assert got.log_norm == pytest.approx(np.log(largest(mean, var, y)), rel=0, abs=1e-12)
        for k in range(4):
            step = 1e-3 * np.eye(4)[k]
            up, here, down = (np.log(largest(mean + c * step, var, y)) for c in (1, 0, -1))
            # central differences err by step² times a third or fourth derivative of size one
            assert got.derivative[k] == pytest.approx((up - down) / 2e-3, rel=0, abs=1e-6)
            assert got.curvature[k] == pytest.approx(-(up - 2 * here + down) / 1e-6, rel=0, abs=1e-6)
    two = datum_tilted(mean[:2], var[:2], 0)  # one Φ
    z = 1.1 / np.sqrt(1.6)
    assert two.log_norm == pytest.approx(norm.logcdf(z), rel=0, abs=1e-13)
    assert two.derivative == pytest.approx(
        [norm.pdf(z) / norm.cdf(z) / np.sqrt(1.6) * c for c in (1, -1)], rel=1e-12, abs=0
    )


@pytest.mark.parametrize(
    ("mean", "var"),
    [
        ([0.3, -0.5, 0.2], [1.0, 0.0, 0.0]), ([0.3, -0.5, 0.2, 0.1], [1.0, 0.0, 0.0, 2.0]),
        ([0.3, -0.5, 0.2], [1.0, 1.0, 0.0]), ([-3.0, -0.5, 0.2, 0.4], [0.5, 0.0, 0.0, 0.7]), ([0.3, -0.7], [2.0, 0.0]),
    ],
)  # fmt: skip
def test_classes_without_variance_are_constraints(mean, var):
    constraint = max(m for m, v in zip(mean, var, strict=True) if v == 0.0)
    smooth = [k for k in range(1, len(mean)) if var[k] > 0.0]
    got = datum_tilted(np.array(mean), np.array(var), 0)
    with mpmath.workdps(32):

        def log_norm(moved):
            at, low = moved, moved[mean.index(constraint)]
            sd = mpmath.sqrt(var[0])

            def density(t):
                value = mpmath.npdf(t, at[0], sd)
                for k in smooth:
                    value *= mpmath.ncdf((t - at[k]) / mpmath.sqrt(var[k]))
                return value

            return mpmath.log(mpmath.quad(density, [low, *(low + j * sd for j in (1, 2, 4, 8)), low + 16 * sd]))

        at = [mpmath.mpf(m) for m in mean]
        h, here = mpmath.mpf(10) ** -7, log_norm(at)
        # 32 working digits and steps of 1e-7, truncated at 1e-14: what is left is the rounding of the function itself
        assert got.log_norm == pytest.approx(float(here), rel=0, abs=1e-13)
        for k in [0, mean.index(constraint), *smooth]:
            up, down = (log_norm([m + sign * h * (j == k) for j, m in enumerate(at)]) for sign in (1, -1))
            assert got.derivative[k] == pytest.approx(float((up - down) / (2 * h)), rel=1e-12, abs=0)
            assert got.curvature[k] == pytest.approx(-float((up - 2 * here + down) / h**2), rel=1e-11, abs=0)
    lower = [k for k in range(1, len(mean)) if var[k] == 0.0 and mean[k] < constraint]
    assert not np.any(got.derivative[lower])
    assert not np.any(got.curvature[lower])


def test_far_tails_keep_their_digits():
    mean, var = np.array([-30.0, 10.0, 12.0]), np.array([0.5, 1.0, 2.0])
    got = datum_tilted(mean, var, 0)
    with mpmath.workdps(40):

        def density(t):
            return mpmath.npdf(t, -30, mpmath.sqrt(0.5)) * mpmath.ncdf(t, 10, 1) * mpmath.ncdf(t, 12, mpmath.sqrt(2))

        wanted = mpmath.log(mpmath.quad(density, mpmath.linspace(-20, 0, 41)))
    assert got.log_norm == pytest.approx(float(wanted), rel=1e-13, abs=0)
    assert np.all(np.isfinite(got.derivative))
    assert np.all((got.curvature * var >= 0.0) & (got.curvature * var <= 1.0))
    assert abs(datum_tilted(-mean, var, 0).log_norm) <= 4.0 * np.finfo(float).eps  # certain, to rounding
    point = datum_tilted(np.array([0.2, 0.0]), np.array([0.0, 1.0]), 0)
    assert point.log_norm == pytest.approx(norm.logcdf(0.2), rel=0, abs=1e-12)


def test_both_rules_of_the_derivatives_agree(rng):
    mean, var, y = 2.0 * rng.normal(size=(40, 3)), np.exp(rng.normal(size=(40, 3))), rng.integers(3, size=40)
    got = tilted_of_data(mean, var, y)
    assert np.min(got.log_norm) < -10.0 < np.max(got.log_norm)
    for i in range(40):
        wanted = datum_tilted(mean[i], var[i], int(y[i]))
        assert got.log_norm[i] == pytest.approx(wanted.log_norm, rel=1e-13, abs=1e-14)  # either rule's
        np.testing.assert_allclose(got.derivative[i], wanted.derivative, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(got.curvature[i] * var[i], wanted.curvature * var[i], rtol=0, atol=1e-12)


def test_two_classes_make_both_kinds_of_factor_the_same(model, prior):
    s = model
    two = Prior(*(part[:2] for part in prior))
    y = np.minimum(s.y, 1)
    pair, datum = (fit_ep(s.X, y, two, factors=factors) for factors in ("pairwise", "datum"))
    np.testing.assert_allclose(datum.posterior.mean, pair.posterior.mean, **NEAR)
    np.testing.assert_allclose(datum.posterior.cov, pair.posterior.cov, **NEAR)
    assert datum.log_evidence == pytest.approx(pair.log_evidence, rel=0, abs=1e-8)
    for name, derivative in pair.gradients.items():
        np.testing.assert_allclose(datum.gradients[name], derivative, rtol=0, atol=1e-7)
    other = np.array([1, 0])[y], pair.sites  # c1, c2 of the label's class stand in the column of the other one
    at = np.arange(s.n), other[0]
    np.testing.assert_allclose(datum.sites.site_precision[np.arange(s.n), y], pair.sites.c1_label[at], **NEAR)
    np.testing.assert_allclose(datum.sites.site_shift[at], pair.sites.c2_other[at], **NEAR)


def test_one_datum_has_the_probability_as_evidence_and_tilted_latents(model, prior):
    s = model
    fit = fit_ep(s.X[:1], s.y[:1], prior, factors="datum")
    var = s.variance + s.noise
    assert fit.log_evidence == pytest.approx(np.log(largest(np.zeros(3), var, 0)), rel=0, abs=1e-10)
    # E[f_0 | 0 is the largest], and of f_1, by two-dimensional truth: the density of f_0 given the label
    z = largest(np.zeros(3), var, 0)
    sd = np.sqrt(var)

    def weighted(t):
        return t * norm.pdf(t, 0, sd[0]) * norm.cdf(t / sd[1]) * norm.cdf(t / sd[2]) / z

    def below(t):  # mean of f_1 below t, times the rest
        return -sd[1] * norm.pdf(t / sd[1]) * norm.pdf(t, 0, sd[0]) * norm.cdf(t / sd[2]) / z

    for k, f in ((0, weighted), (1, below)):
        wanted = quad(f, -15, 15, epsabs=1e-13, epsrel=1e-12)[0]
        assert fit.latent_mean[0, k] == pytest.approx(wanted, rel=0, abs=1e-9)


@pytest.mark.parametrize("factors", ["pairwise", "datum"])
def test_the_order_of_updates_leaves_the_fixed_point(model, prior, factors):
    s = model
    fit = fit_ep(s.X, s.y, prior, factors=factors)
    turn = fit_ep(s.X, s.y, prior, factors=factors, schedule="sequential", damping=0.9)
    assert fit.converged
    assert turn.converged
    assert turn.iterations < fit.iterations
    np.testing.assert_allclose(turn.posterior.mean, fit.posterior.mean, **NEAR)
    np.testing.assert_allclose(turn.posterior.cov, fit.posterior.cov, **NEAR)
    assert turn.log_evidence == pytest.approx(fit.log_evidence, rel=0, abs=1e-8)
    # one sweep of one datum is parallel in "datum"; with two of them the second sees the first
    one = fit_ep(s.X, s.y, prior, factors=factors, schedule="sequential", batches=[[0, 3]])
    both = fit_ep(s.X, s.y, prior, factors=factors, batches=[[0], [3]])
    apart = np.max(np.abs(one.posterior.mean - both.posterior.mean))
    assert apart < 1e-12 if factors == "datum" else apart > 1e-6


def test_a_batch_refreshes_its_own_data_alone(model, prior):
    s = model
    for factors in ("pairwise", "datum"):
        fit = fit_ep(s.X, s.y, prior, factors=factors, batches=[[1, 4, 1]])
        touched = np.any(fit.sites[0] != 0.0, axis=1)
        np.testing.assert_array_equal(touched, [False, True, False, False, True])
        assert not fit.converged
        assert fit.iterations == 1


def test_a_far_datum_keeps_variances_apart_that_differ_by_sixteen_decades():
    mean, var = np.array([-1e-3, 0.0, 0.0]), np.array([1e-8, 1e-8, 1e8])
    got = datum_tilted(mean, var, 0)
    # two comparisons that are correlated by less than 1e-8
    wanted = log_ndtr(-1e-3 / np.sqrt(2e-8)) + log_ndtr(-1e-3 / np.sqrt(1e8 + 1e-8))
    assert got.log_norm == pytest.approx(wanted, rel=1e-7, abs=0)


@pytest.mark.parametrize("var", [[1.0, 0.7, 0.5], [1.0, 0.0, 0.5], [0.0, 2.0, 0.5], [0.0, 0.0, 1.5]])
@pytest.mark.parametrize("unit", [1e-6, 1e3])
def test_the_probability_of_a_label_does_not_depend_on_the_unit_of_the_latent_values(var, unit):
    mean, var = np.array([0.3, -0.2, 0.1]), np.array(var)
    for label in range(1 if np.sum(var == 0.0) == 2 else 3):  # a known value below another never wins
        here, there = datum_tilted(mean, var, label), datum_tilted(unit * mean, unit**2 * var, label)
        # a class without variance is a Gaussian of 1e-10 of the widest deviation
        assert there.log_norm == pytest.approx(here.log_norm, rel=0, abs=1e-8)
