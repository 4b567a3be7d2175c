"""Appendices C, D and E: division of Gaussians, numerical derivatives, and tilted moments on the line and in mpmath."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

from reference.common.errors import NotPositiveDefiniteError
from reference.villacampa2017.cavity import (
    Cavity,
    cavity,
    cavity_distribution,
    cavity_latent_mean,
    cavity_latent_variance,
)
from reference.villacampa2017.errata import cavity_latent_mean_as_printed, update_c2_other_as_printed
from reference.villacampa2017.factors import (
    damped_update,
    dlogz_dcov,
    dlogz_dmean_label,
    dlogz_dmean_other,
    ep_refine_factors,
    factor_linear_from_moments,
    factor_precision_from_moments,
    pairwise_log_normaliser,
    parallel_ep_sweep,
    posterior_of,
    probit_ratio,
    recover_factor,
    tilted_covariance,
    tilted_mean,
    update_c1,
    update_c2_label,
    update_c2_other,
)
from reference.villacampa2017.posterior import Coefficients, Gaussians
from validation.ledger.numbers import assert_recorded, told_apart

TIGHT = {"rtol": 1e-9, "atol": 1e-10}  # inverses of 3 x 3 matrices, conditions below 1e3
DATUM, Y, K = 1, 1, 2  # the datum, its label, and the class it is compared with


@pytest.fixture
def pair(model):
    """One factor with its two cavities: (mean, cov, υ, s) of the label's class and of the other."""
    s = model
    own = s.mean, s.cov, s.upsilon[Y, DATUM], s.cond_var[Y, DATUM]
    return own, (s.mean_other, s.cov_other, s.upsilon[K, DATUM], s.cond_var[K, DATUM])


def log_z(own, other):
    """log Z from its closed form, as a function of all moments."""
    (m, V, u, s), (n, W, w, r) = own, other
    return log_ndtr((u @ m - w @ n) / np.sqrt(s + u @ V @ u + r + w @ W @ w))


def quantities(pair):
    """α̂, β, b_y + b_k of the pair."""
    (m, V, u, s), (n, W, w, r) = pair
    b = s + u @ V @ u + r + w @ W @ w
    alpha = (u @ m - w @ n) / np.sqrt(b)
    return alpha, norm.pdf(alpha) / norm.cdf(alpha), b


def tilted_on_the_line(pair, which):
    """Mean and covariance of the class `which` under cavity times factor, by quadrature over its projection."""
    mean, cov, u, _ = pair[which]
    other = pair[1 - which]
    a, v = u @ mean, u @ cov @ u
    gap_mean, sign = other[2] @ other[0], 1.0 if which == 0 else -1.0
    rest = pair[0][3] + pair[1][3] + other[2] @ other[1] @ other[2]

    def weight(w):
        return norm.pdf(w, a, np.sqrt(v)) * norm.cdf(sign * (w - gap_mean) / np.sqrt(rest))

    reach = (a - 10 * np.sqrt(v), a + 10 * np.sqrt(v))
    z, first, second = (
        quad(lambda w, p=p: w**p * weight(w), *reach, epsabs=1e-13, epsrel=1e-12, points=[a, gap_mean])[0]
        for p in range(3)
    )
    w_mean, w_var = first / z, second / z - (first / z) ** 2
    gain = cov @ u / v  # given the projection the rest keeps its cavity distribution
    return z, mean + gain * (w_mean - a), cov + np.outer(gain, gain) * (w_var - v)


@pytest.mark.verifies("villacampa2017", "28", route="cavity times factor is the posterior")
@pytest.mark.verifies("villacampa2017", "29", route="cavity times factor is the posterior")
@pytest.mark.verifies("villacampa2017", "30", route="cavity times factor is the posterior")
@pytest.mark.verifies("villacampa2017", "31", route="cavity times factor is the posterior")
@pytest.mark.verifies("villacampa2017", "32", route="cavity times factor is the posterior")
def test_cavity_times_factor_is_the_posterior(model):
    s = model
    for c in (0, 2):
        u = s.upsilon[c, DATUM]
        c1, c2 = 0.4 / (u @ s.cov @ u), -0.7
        forms = (
            cavity(s.mean, s.cov, u, c1, c2),
            cavity_distribution(s.mean, s.cov, c1 * np.outer(u, u), c2 * u),
        )
        for got in forms:
            precision = np.linalg.inv(got.cov) + c1 * np.outer(u, u)
            np.testing.assert_allclose(np.linalg.inv(precision), s.cov, **TIGHT)
            shift = np.linalg.solve(got.cov, got.mean) + c2 * u
            np.testing.assert_allclose(np.linalg.solve(precision, shift), s.mean, **TIGHT)
        with pytest.raises(ValueError, match="c1"):
            cavity(s.mean, s.cov, u, 1.1 / (u @ s.cov @ u), c2)
        with pytest.raises(NotPositiveDefiniteError, match="cavity precision"):
            cavity_distribution(s.mean, s.cov, 3.0 / (u @ s.cov @ u) * np.outer(u, u), c2 * u)
        np.testing.assert_array_equal(cavity(s.mean, s.cov, u, 0.0, 0.0).cov, s.cov)


@pytest.mark.verifies("villacampa2017", "35", route="law of total expectation in the joint Gaussian")
@pytest.mark.verifies("villacampa2017", "36", route="law of total expectation in the joint Gaussian", printed=True)
@pytest.mark.verifies("villacampa2017", "37", route="law of total variance by eigen-coordinates")
@pytest.mark.verifies("villacampa2017", "38", route="law of total variance by eigen-coordinates")
def test_a_latent_value_under_the_cavity(model):
    s = model
    for c in (Y, K):
        # f = E[f|u] + e, u = m + Σ_j √λ_j x_j e_j with independent x_j
        size, basis = np.linalg.eigh(s.cov)
        coefficients = np.linalg.solve(s.K_ZZ[c], s.K_XZ[c, DATUM])
        mean = sum(coefficients[j] * s.mean[j] for j in range(s.m))
        spread = sum(size[j] * (coefficients @ basis[:, j]) ** 2 for j in range(s.m))
        given = s.k_xx[c, DATUM] - s.K_XZ[c, DATUM] @ coefficients
        np.testing.assert_allclose(cavity_latent_mean(s.upsilon[c, DATUM], s.mean), mean, **TIGHT)
        got = cavity_latent_variance(s.k_xx[c, DATUM], s.K_XZ[c, DATUM], s.K_ZZ[c], s.cov)
        np.testing.assert_allclose(got, given + spread, **TIGHT)
    # (36) as printed has the cross-covariances of the label's class
    printed = cavity_latent_mean_as_printed(s.K_XZ[Y, DATUM], s.K_ZZ[K], s.mean)
    np.testing.assert_allclose(printed, s.K_XZ[Y, DATUM] @ np.linalg.solve(s.K_ZZ[K], s.mean), **TIGHT)
    assert abs(printed - mean) > 1e-2
    told_apart("villacampa2017", "36", printed, cavity_latent_mean(s.upsilon[K, DATUM], s.mean))
    assert_recorded("villacampa2017", "36", mean, printed)


@pytest.mark.verifies("villacampa2017", "34", route="quadrature over the projections")
def test_the_normaliser_in_closed_form(pair):
    (m, V, u, s), (n, W, w, r) = pair
    b = s + u @ V @ u, r + w @ W @ w
    for which in (0, 1):
        z = tilted_on_the_line(pair, which)[0]
        assert pairwise_log_normaliser(u @ m, w @ n, *b) == pytest.approx(np.log(z), rel=1e-9, abs=0)


@pytest.mark.verifies("villacampa2017", "u23-beta-alpha-hat", route="mpmath, far into the tail")
@pytest.mark.parametrize("gap", [-60.0, -3.0, 0.2, 8.0])
def test_the_ratio_of_density_and_distribution_function(gap):
    got = probit_ratio(gap, 0.5, 0.6, 0.3)
    with mpmath.workdps(40):
        alpha = (mpmath.mpf(gap) - 0.5) / mpmath.sqrt(mpmath.mpf(0.6) + mpmath.mpf(0.3))
        beta = mpmath.npdf(alpha) / (mpmath.erfc(-alpha / mpmath.sqrt(2)) / 2)
    # float64 keeps α̂ to 1e-16, which a tail as far as e^-32 magnifies by α̂² = 64
    np.testing.assert_allclose(got, [float(alpha), float(beta)], rtol=1e-13, atol=0)


@pytest.mark.verifies("villacampa2017", "39", route="central differences of log Z")
@pytest.mark.verifies("villacampa2017", "40", route="central differences of log Z")
@pytest.mark.verifies("villacampa2017", "41", route="central differences of log Z")
@pytest.mark.verifies("villacampa2017", "42", route="central differences of log Z")
def test_derivatives_of_the_log_normaliser(pair):
    alpha, beta, b = quantities(pair)
    step = 1e-5  # central differences err by step² and by 1e-16/step
    for which, derivative in ((0, dlogz_dmean_label), (1, dlogz_dmean_other)):
        mean, cov, u, s = pair[which]

        def at(mean, cov, which=which, u=u, s=s):
            moved = list(pair)
            moved[which] = (mean, cov, u, s)
            return log_z(*moved)

        got, got_cov = derivative(beta, b, u), dlogz_dcov(alpha, beta, b, u)
        for j in range(len(mean)):
            e = step * np.eye(len(mean))[j]
            assert got[j] == pytest.approx((at(mean + e, cov) - at(mean - e, cov)) / (2 * step), rel=1e-6, abs=1e-9)
            for t in range(len(mean)):
                E = np.zeros_like(cov)
                E[j, t] = step
                wanted = (at(mean, cov + E) - at(mean, cov - E)) / (2 * step)
                assert got_cov[j, t] == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@pytest.mark.verifies("villacampa2017", "43", route="quadrature over the projection")
@pytest.mark.verifies("villacampa2017", "44", route="quadrature over the projection")
@pytest.mark.verifies("villacampa2017", "45", route="quadrature over the projection")
@pytest.mark.verifies("villacampa2017", "46", route="quadrature over the projection")
def test_moments_of_the_tilted_distribution(pair):
    alpha, beta, b = quantities(pair)
    for which, derivative in ((0, dlogz_dmean_label), (1, dlogz_dmean_other)):
        mean, cov, u, _ = pair[which]
        g, G = derivative(beta, b, u), dlogz_dcov(alpha, beta, b, u)
        _, wanted_mean, wanted_cov = tilted_on_the_line(pair, which)
        np.testing.assert_allclose(tilted_mean(mean, cov, g), wanted_mean, **TIGHT)
        np.testing.assert_allclose(tilted_covariance(cov, g, G), wanted_cov, **TIGHT)


@pytest.mark.verifies("villacampa2017", "47", route="cavity times recovered factor has the tilted moments")
@pytest.mark.verifies("villacampa2017", "51", route="cavity times recovered factor has the tilted moments")
@pytest.mark.verifies(
    "villacampa2017", "u9-factor-recovery", route="cavity times recovered factor has the tilted moments"
)
def test_cavity_times_recovered_factor_has_the_tilted_moments(pair):
    for which in (0, 1):
        mean, cov, u, _ = pair[which]
        _, hat_mean, hat_cov = tilted_on_the_line(pair, which)
        parts = [
            (factor_precision_from_moments(hat_cov, cov), factor_linear_from_moments(hat_mean, hat_cov, mean, cov)),
            recover_factor(Cavity(hat_mean, hat_cov), Cavity(mean, cov)),
        ]
        for precision, shift in parts:
            total = np.linalg.inv(cov) + precision
            np.testing.assert_allclose(np.linalg.inv(total), hat_cov, **TIGHT)
            np.testing.assert_allclose(np.linalg.solve(total, np.linalg.solve(cov, mean) + shift), hat_mean, **TIGHT)
            # rank one, along υ
            np.testing.assert_allclose(precision, np.outer(u, u) * precision[0, 0] / u[0] ** 2, rtol=1e-6, atol=1e-8)


@pytest.mark.verifies("villacampa2017", "48", route="tilted moments by quadrature")
@pytest.mark.verifies("villacampa2017", "49", route="tilted moments by quadrature")
@pytest.mark.verifies("villacampa2017", "52", route="tilted moments by quadrature")
@pytest.mark.verifies("villacampa2017", "53", route="tilted moments by quadrature", printed=True)
def test_coefficients_of_the_refined_factor(pair):
    alpha, beta, b = quantities(pair)
    for which in (0, 1):
        mean, cov, u, _ = pair[which]
        _, hat_mean, hat_cov = tilted_on_the_line(pair, which)
        a, v, hat_a, hat_v = u @ mean, u @ cov @ u, u @ hat_mean, u @ hat_cov @ u
        c1, c2 = 1.0 / hat_v - 1.0 / v, hat_a / hat_v - a / v  # both distributions seen along υ
        assert update_c1(alpha, beta, b, u, cov) == pytest.approx(c1, rel=1e-8, abs=0)
        args = beta, b, c1, u, mean, cov
        assert (update_c2_other if which else update_c2_label)(*args) == pytest.approx(c2, rel=1e-8, abs=0)
        if which:  # (53) as printed moves class k towards the label
            printed = update_c2_other_as_printed(*args)
            derivative = beta / np.sqrt(b)
            assert printed == pytest.approx(c2 + 2 * derivative * (1.0 + c1 * v), rel=1e-8, abs=0)
            assert abs(printed - c2) > 0.1
            assert_recorded("villacampa2017", "53", c2, printed)


def test_the_precision_coefficient_keeps_its_digits_in_the_tail():
    for alpha in (-4.9, -5.1, -40.0, -1e5):
        with mpmath.workdps(60):
            z = mpmath.mpf(alpha)
            beta = mpmath.npdf(z) / (mpmath.erfc(-z / mpmath.sqrt(2)) / 2)
            wanted = 1 / (mpmath.mpf(1.7) / (beta**2 + beta * z) - mpmath.mpf(0.5))
        got = update_c1(alpha, float(beta), 1.7, np.ones(1), np.array([[0.5]]))
        assert got == pytest.approx(float(wanted), rel=1e-11, abs=0)  # β + α̂ loses two digits at -5
    assert update_c1(60.0, 0.0, 1.7, np.ones(1), np.array([[0.5]])) == 0.0


@pytest.mark.verifies("villacampa2017", "u8-ep-refinement", route="each factor by division and quadrature")
def test_refinement_of_all_factors(model):
    s = model
    old = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    q = posterior_of(old, s.y, s.upsilon, s.K_ZZ)
    got = ep_refine_factors(old, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    assert got.n_improper == 0
    for i in range(s.n):
        y = s.y[i]
        for k in range(s.C):
            if k == y:
                assert [part[i, k] for part in got.coefficients] == [0.0] * 4
                continue
            distributions = []
            for j, c1, c2 in ((y, s.c1_label[i, k], s.c2_label[i, k]), (k, s.c1_other[i, k], s.c2_other[i, k])):
                u = s.upsilon[j, i]
                cov = np.linalg.inv(np.linalg.inv(q.cov[j]) - c1 * np.outer(u, u))
                distributions.append((cov @ (np.linalg.solve(q.cov[j], q.mean[j]) - c2 * u), cov, u, s.cond_var[j, i]))
            for which, places in ((0, (0, 1)), (1, (2, 3))):
                mean, cov, u, _ = distributions[which]
                z, hat_mean, hat_cov = tilted_on_the_line(distributions, which)
                a, v, hat_a, hat_v = u @ mean, u @ cov @ u, u @ hat_mean, u @ hat_cov @ u
                # a difference of nearly equal precisions where the projection is short
                accuracy = 1e-9 * (1.0 + 1.0 / v)
                assert got.coefficients[places[0]][i, k] == pytest.approx(1 / hat_v - 1 / v, rel=1e-7, abs=accuracy)
                assert got.coefficients[places[1]][i, k] == pytest.approx(hat_a / hat_v - a / v, rel=1e-7, abs=accuracy)
            assert got.log_norm[i, k] == pytest.approx(np.log(z), rel=1e-8, abs=0)


def test_improper_cavities_are_skipped_and_counted(model):
    s = model
    zero = Coefficients(*(np.zeros((s.n, s.C)) for _ in range(4)))
    q = posterior_of(zero, s.y, s.upsilon, s.K_ZZ)
    wide = zero._replace(c1_label=np.where(s.c1_label > 0, 1e6, 0.0))  # not in q: removing it leaves nothing
    got = ep_refine_factors(wide, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    assert got.n_improper == s.n * (s.C - 1)
    for new, old in zip(got.coefficients, wide, strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.verifies("villacampa2017", "u12-damping", route="position between the ends")
def test_a_damped_update_lies_between_old_and_new(rng):
    new, old = rng.normal(size=(2, 4, 3))
    np.testing.assert_array_equal(damped_update(new, old, 0.0), old)
    np.testing.assert_array_equal(damped_update(new, old, 1.0), new)
    got = damped_update(new, old, 0.3)
    np.testing.assert_allclose((got - old) / (new - old), 0.3, rtol=1e-10, atol=0)  # the difference may cancel
    with pytest.raises(ValueError, match="damping"):
        damped_update(new, old, 1.5)


@pytest.mark.verifies("villacampa2017", "u11-parallel-updates", route="refined factors and dense posterior")
def test_a_sweep_refines_all_factors_from_one_posterior(model):
    s = model
    old = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    prior = s.y, s.k_xx, s.K_XZ, s.K_ZZ
    before_it = posterior_of(old, s.y, s.upsilon, s.K_ZZ)
    refined = ep_refine_factors(old, before_it, *prior)
    new, q, whole = parallel_ep_sweep(old, before_it, *prior, 0.4)
    assert whole.mismatch == refined.mismatch
    for after, target, before in zip(new, refined.coefficients, old, strict=True):
        np.testing.assert_allclose(after - before, 0.4 * (target - before), rtol=1e-9, atol=1e-13)
    for k in range(s.C):
        precision, shift = np.linalg.inv(s.K_ZZ[k]), np.zeros(s.m)
        for i in range(s.n):
            u = s.upsilon[k, i]
            c1, c2 = (
                (new.c1_label[i].sum(), new.c2_label[i].sum())
                if s.y[i] == k
                else (new.c1_other[i, k], new.c2_other[i, k])
            )
            precision, shift = precision + c1 * np.outer(u, u), shift + c2 * u
        np.testing.assert_allclose(q.cov[k], np.linalg.inv(precision), **TIGHT)
        np.testing.assert_allclose(q.mean[k], np.linalg.solve(precision, shift), **TIGHT)


def test_damping_leaves_the_fixed_point_where_it_is(model):
    s = model
    ends = []
    for damping in (0.9, 0.4):
        at, q = Coefficients(*(np.zeros((s.n, s.C)) for _ in range(4))), Gaussians(np.zeros((s.C, s.m)), s.K_ZZ)
        for _ in range(int(35 / damping)):
            at, q, _ = parallel_ep_sweep(at, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ, damping)
        ends.append(q)
    np.testing.assert_allclose(ends[0].mean, ends[1].mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(ends[0].cov, ends[1].cov, rtol=0, atol=1e-7)
