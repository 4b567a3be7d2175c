"""Appendices A.2 to A.5: products and quotients of Gaussians, moments by quadrature on the line, derivatives."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from reference.common._gaussians import moments_of, natural_parameters
from reference.common.errors import NotPositiveDefiniteError
from reference.villacampa2020.cavity import power_cavity, power_cavity_covariance, power_cavity_mean
from reference.villacampa2020.errata_appendix import (
    approximate_factor_as_printed,
    cavity_latent_variance_as_printed,
    factor_linear_as_printed,
    pep_update_as_printed,
    power_cavity_mean_as_printed,
    update_c2_as_printed,
)
from reference.villacampa2020.pep import (
    ep_refine_factors,
    natural_factor,
    parallel_pep_sweep,
    pep_include,
    pep_project,
    pep_refine_factors,
    pep_remove,
    pep_update,
)
from reference.villacampa2020.posterior import (
    Coefficients,
    Gaussians,
    Natural,
    Site,
    approximate_factor,
    factor_linear,
    factor_precision,
    inducing_prior,
    posterior_approximation,
    posterior_moments,
)
from reference.villacampa2020.power_likelihood import log_expected_power
from reference.villacampa2020.refinement import (
    cavity_latent_mean,
    cavity_latent_variance,
    damped_update,
    dlogz_dcov,
    dlogz_dmean,
    factor_linear_from_derivatives,
    factor_linear_from_moments,
    factor_precision_from_derivatives,
    factor_precision_from_moments,
    tilted_covariance,
    tilted_mean,
    update_c1,
    update_c2,
)
from validation.ledger.numbers import assert_recorded, told_apart

TIGHT = {"rtol": 1e-9, "atol": 1e-10}  # inverses of 2 x 2 matrices with conditions below 1e3
I = 1  # the datum; its label is 1  # noqa: E741


def sites_of(s):
    """Natural parameters of every factor."""
    return [
        Natural(
            np.stack([s.c1[i, k] * np.outer(s.upsilon[k, i], s.upsilon[k, i]) for k in range(s.C)]),
            np.stack([s.c2[i, k] * s.upsilon[k, i] for k in range(s.C)]),
        )
        for i in range(s.n)
    ]


def cavity_of(s, i):
    """Moments of every class without the power α of factor i, by products of Gaussians alone."""
    mean, cov = [], []
    for k in range(s.C):
        u = s.upsilon[k, i]
        P = np.linalg.inv(s.cov[k]) - s.alpha * s.c1[i, k] * np.outer(u, u)
        cov.append(np.linalg.inv(P))
        mean.append(cov[-1] @ (np.linalg.solve(s.cov[k], s.mean[k]) - s.alpha * s.c2[i, k] * u))
    return Gaussians(np.array(mean), np.array(cov))


def included(s, cavity, i):
    """p̂ of one datum by step two."""
    data = s.y[i : i + 1], s.k_xx[:, i : i + 1], s.upsilon[:, i : i + 1], s.K_ZZ
    return pep_include([cavity], *data, s.epsilon, s.alpha)[0]


def tilted_by_quadrature(s, i):
    """log Z_i, and tilted means and covariances of every class, by quadrature over υᵀf̄ of one class at a time."""
    cavity = cavity_of(s, i)
    a = np.array([s.upsilon[k, i] @ cavity.mean[k] for k in range(s.C)])
    v = np.array([s.upsilon[k, i] @ cavity.cov[k] @ s.upsilon[k, i] for k in range(s.C)])
    y, C = int(s.y[i]), s.C
    high, low = (1 - s.epsilon + s.epsilon / C) ** s.alpha, (s.epsilon / C) ** s.alpha
    total = s.cond_var[:, i] + v

    others = [k for k in range(C) if k != y]
    steps = np.linspace(-10.0, 10.0, 801)  # the trapezoidal rule on a smooth integrand that vanishes at both ends

    def largest(mean, var):
        t = mean[y] + np.sqrt(var[y]) * steps
        below = np.prod(norm.cdf((t[:, None] - mean[others]) / np.sqrt(var[others])), axis=1)
        return np.sum(norm.pdf(steps) * below) * (steps[1] - steps[0])

    means, covs = [], []
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    for k in range(C):
        w = a[k] + np.sqrt(v[k]) * nodes
        var = total.copy()
        var[k] = s.cond_var[k, i]
        values = []
        for one in w:
            mean = a.copy()
            mean[k] = one
            values.append(low + (high - low) * largest(mean, var))
        p = weights * np.array(values)
        z = np.sum(p) / np.sqrt(2 * np.pi)
        p /= np.sum(p)
        first = p @ w
        second = p @ (w - first) ** 2
        gain = cavity.cov[k] @ s.upsilon[k, i] / v[k]  # given its projection the rest keeps its cavity distribution
        means.append(cavity.mean[k] + gain * (first - a[k]))
        covs.append(cavity.cov[k] + np.outer(gain, gain) * (second - v[k]))
    return np.log(z), Gaussians(np.array(means), np.array(covs))


def gradients_of(s, i):
    """Derivatives of log Z_i by means and variances of the latent values under the cavity."""
    cavity = cavity_of(s, i)
    a = np.array([s.upsilon[k, i] @ cavity.mean[k] for k in range(s.C)])
    b = np.array([s.cond_var[k, i] + s.upsilon[k, i] @ cavity.cov[k] @ s.upsilon[k, i] for k in range(s.C)])
    return log_expected_power(a, b, int(s.y[i]), s.epsilon, s.alpha)


@pytest.mark.verifies("villacampa2020", "A.2", "A.3", "A.18", "A.21", route="quadratic and linear form on a vector")
def test_a_factor_acts_along_upsilon_alone(model):
    u, f = model.upsilon[2, I], model.inducing_values[2]
    assert f @ factor_precision(0.4, u) @ f == pytest.approx(0.4 * (u @ f) ** 2, rel=1e-12, abs=0)
    across = np.array([u[1], -u[0]])
    np.testing.assert_allclose(factor_precision(0.4, u) @ across, 0.0, atol=1e-15)
    np.testing.assert_allclose(factor_precision(0.4, u) @ u, 0.4 * (u @ u) * u, rtol=1e-12)
    np.testing.assert_allclose(factor_linear(-0.7, u) / u, -0.7, rtol=1e-12)


@pytest.mark.verifies("villacampa2020", "A.1", route="log of the exponent, class by class", printed=True)
@pytest.mark.verifies("villacampa2020", "A.4", "A.5", route="scipy's Gaussian densities")
def test_densities_are_products_of_factors_and_prior(model):
    s = model
    exponents = [
        sum(-0.5 * s.c1[i, k] * (s.upsilon[k, i] @ s.inducing_values[k]) ** 2
            + s.c2[i, k] * (s.upsilon[k, i] @ s.inducing_values[k]) for k in range(s.C))
        for i in range(s.n)
    ]  # fmt: skip
    scales = 0.1 * np.arange(s.n) - 0.3
    sites = [Site(scales[i], *site) for i, site in enumerate(sites_of(s))]
    for i in range(s.n):
        wanted = np.exp(scales[i] + exponents[i])
        assert approximate_factor(sites[i], s.inducing_values) == pytest.approx(wanted, rel=1e-12, abs=0)
    prior = sum(multivariate_normal.logpdf(s.inducing_values[k], np.zeros(s.m), s.K_ZZ[k]) for k in range(s.C))
    assert inducing_prior(s.inducing_values, s.K_ZZ) == pytest.approx(prior, rel=1e-10, abs=0)
    # normalised by its own integral, the product is the Gaussian of its moments
    log_q = sum(multivariate_normal.logpdf(s.inducing_values[k], s.mean[k], s.cov[k]) for k in range(s.C))
    log_z = np.sum(scales) + sum(
        0.5 * np.linalg.slogdet(s.cov[k])[1] - 0.5 * np.linalg.slogdet(s.K_ZZ[k])[1]
        + 0.5 * s.mean[k] @ np.linalg.solve(s.cov[k], s.mean[k]) for k in range(s.C)
    )  # fmt: skip
    got = posterior_approximation(s.inducing_values, sites, s.K_ZZ, log_z)
    assert got == pytest.approx(log_q, rel=1e-10, abs=1e-10)
    # with Z̃_i = s̃_i^α of (8) as the scale, (A.1) as printed gives another normaliser unless α = 1
    log_norm = s.alpha * scales[0]
    printed = approximate_factor_as_printed(log_norm, *sites_of(s)[0], s.inducing_values)
    assert printed == pytest.approx(np.exp(log_norm + exponents[0]), rel=1e-12, abs=0)
    corrected = approximate_factor(sites[0], s.inducing_values)
    assert abs(printed / corrected - 1.0) > 0.05
    told_apart("villacampa2020", "A.1", printed, corrected)


@pytest.mark.verifies("villacampa2020", "A.6", route="sum of natural parameters")
def test_posterior_moments_are_those_of_the_product(model):
    s = model
    got = posterior_moments(s.c1, s.c2, s.upsilon, s.K_ZZ)
    np.testing.assert_allclose(got.mean, s.mean, **TIGHT)
    np.testing.assert_allclose(got.cov, s.cov, **TIGHT)
    back = moments_of(natural_parameters(got))
    np.testing.assert_allclose(back.mean, s.mean, **TIGHT)
    with pytest.raises(NotPositiveDefiniteError, match="posterior precision of class 0"):
        posterior_moments(-100.0 + 0.0 * s.c1, s.c2, s.upsilon, s.K_ZZ)


@pytest.mark.verifies("villacampa2020", "A.7", "u12-pep-cavity", route="cavity times powered factor is q")
@pytest.mark.verifies("villacampa2020", "u15-pep-remove", route="cavity times powered factor is q")
def test_cavity_times_powered_factor_is_the_posterior(model):
    s = model
    q, site = Gaussians(s.mean, s.cov), sites_of(s)[I]
    by_moments = pep_remove(q, s.c1[I], s.c2[I], s.upsilon[:, I], s.alpha)
    for left in (power_cavity(natural_parameters(q), site, s.alpha), natural_parameters(by_moments)):
        whole = Natural(left.precision + s.alpha * site.precision, left.shift + s.alpha * site.shift)
        for k in range(s.C):
            np.testing.assert_allclose(whole.precision[k], np.linalg.inv(s.cov[k]), **TIGHT)
            np.testing.assert_allclose(np.linalg.solve(whole.precision[k], whole.shift[k]), s.mean[k], **TIGHT)
    with pytest.raises(NotPositiveDefiniteError, match="cavity precision"):
        power_cavity(natural_parameters(q), Natural(1e3 * site.precision, site.shift), s.alpha)
    with pytest.raises(ValueError, match="c1"):
        pep_remove(q, 1e3 * s.c1[I], s.c2[I], s.upsilon[:, I], s.alpha)


@pytest.mark.verifies("villacampa2020", "A.8", route="inverse of the difference of precisions")
@pytest.mark.verifies("villacampa2020", "A.9", route="difference of natural parameters", printed=True)
def test_rank_one_cavities(model):
    s = model
    wanted = cavity_of(s, I)
    for k in range(s.C):
        at = s.mean[k], s.cov[k], s.c1[I, k], s.c2[I, k], s.upsilon[k, I]
        cov = power_cavity_covariance(at[1], at[2], at[4], s.alpha)
        np.testing.assert_allclose(cov, wanted.cov[k], **TIGHT)
        mean = power_cavity_mean(*at, s.alpha)
        np.testing.assert_allclose(mean, wanted.mean[k], **TIGHT)
        printed = power_cavity_mean_as_printed(at[0], at[1], cov, at[3], at[4])
        missing = (1.0 - s.alpha) * s.c2[I, k] * wanted.cov[k] @ s.upsilon[k, I]
        np.testing.assert_allclose(printed, wanted.mean[k] - missing, **TIGHT)
        assert np.max(np.abs(missing)) > 1e-3
        told_apart("villacampa2020", "A.9", printed, mean)
        if k == 0:
            assert_recorded("villacampa2020", "A.9", wanted.mean[k][0], printed[0])
        too_much = 1.001 / (s.alpha * at[4] @ at[1] @ at[4])
        with pytest.raises(ValueError, match="c1"):
            power_cavity_covariance(at[1], too_much, at[4], s.alpha)
        with pytest.raises(ValueError, match="c1"):
            power_cavity_mean(at[0], at[1], too_much, at[3], at[4], s.alpha)


@pytest.mark.verifies("villacampa2020", "A.10", route="law of total expectation")
@pytest.mark.verifies("villacampa2020", "A.11", route="law of total variance by eigen-coordinates", printed=True)
def test_a_latent_value_under_the_cavity(model):
    s = model
    for k in range(s.C):
        size, basis = np.linalg.eigh(s.cov[k])
        weights = np.linalg.solve(s.K_ZZ[k], s.K_XZ[k, I])
        given = s.k_xx[k, I] - s.K_XZ[k, I] @ weights
        spread = sum(size[j] * (weights @ basis[:, j]) ** 2 for j in range(s.m))
        mean = sum(weights[j] * s.mean[k, j] for j in range(s.m))
        assert cavity_latent_mean(s.upsilon[k, I], s.mean[k]) == pytest.approx(mean, rel=1e-9, abs=0)
        arguments = float(s.k_xx[k, I]), s.upsilon[k, I], s.K_ZZ[k], s.cov[k]
        assert cavity_latent_variance(*arguments) == pytest.approx(given + spread, rel=1e-9, abs=0)
        printed = cavity_latent_variance_as_printed(*arguments)
        inverse = s.k_xx[k, I] - weights @ np.linalg.solve(s.K_ZZ[k], weights) + spread
        assert printed == pytest.approx(inverse, rel=1e-9, abs=0)
        assert abs(printed - given - spread) > 1e-2
        if k == 0:
            assert_recorded("villacampa2020", "A.11", given + spread, printed)


@pytest.mark.verifies("villacampa2020", "A.12", "A.13", route="finite differences in every entry of the cavity")
def test_chain_rules_of_the_log_normaliser(model):
    s, k, h = model, 2, 1e-5
    cavity, z = cavity_of(s, I), gradients_of(s, I)
    u = s.upsilon[k, I]
    a = np.array([s.upsilon[c, I] @ cavity.mean[c] for c in range(s.C)])
    b = np.array([s.cond_var[c, I] + s.upsilon[c, I] @ cavity.cov[c] @ s.upsilon[c, I] for c in range(s.C)])

    def log_z(mean, cov):
        at_a, at_b = a.copy(), b.copy()
        at_a[k], at_b[k] = u @ mean, s.cond_var[k, I] + u @ cov @ u
        return log_expected_power(at_a, at_b, int(s.y[I]), s.epsilon, s.alpha).log_expectation

    close = {"rtol": 1e-6, "atol": 1e-9}  # central differences with h = 1e-5
    by_mean = [(log_z(cavity.mean[k] + e, cavity.cov[k]) - log_z(cavity.mean[k] - e, cavity.cov[k])) / (2 * h)
               for e in h * np.eye(s.m)]  # fmt: skip
    np.testing.assert_allclose(dlogz_dmean(float(z.d_mean[k]), u), by_mean, **close)
    by_cov = np.zeros((s.m, s.m))
    for p in range(s.m):
        for q in range(s.m):
            step = np.zeros((s.m, s.m))
            step[p, q] = h
            up, down = log_z(cavity.mean[k], cavity.cov[k] + step), log_z(cavity.mean[k], cavity.cov[k] - step)
            by_cov[p, q] = (up - down) / (2 * h)
    np.testing.assert_allclose(dlogz_dcov(float(z.d_var[k]), u), by_cov, **close)


@pytest.mark.verifies("villacampa2020", "A.14", "A.15", route="moments by Gauss-Hermite over each projection")
@pytest.mark.verifies("villacampa2020", "u17-pep-project", route="moments by Gauss-Hermite over each projection")
def test_tilted_moments(model):
    s = model
    _, wanted = tilted_by_quadrature(s, I)
    cavity, z = cavity_of(s, I), gradients_of(s, I)
    close = {"rtol": 1e-8, "atol": 1e-9}  # forty nodes on a smooth function
    for k in range(s.C):
        at = float(z.d_mean[k]), float(z.d_var[k])
        np.testing.assert_allclose(
            tilted_mean(*(c[k] for c in cavity), at[0], s.upsilon[k, I]), wanted.mean[k], **close
        )
        np.testing.assert_allclose(tilted_covariance(cavity.cov[k], *at, s.upsilon[k, I]), wanted.cov[k], **close)
    got = pep_project(included(s, cavity, I))
    np.testing.assert_allclose(got.mean, wanted.mean, **close)
    np.testing.assert_allclose(got.cov, wanted.cov, **close)


@pytest.mark.verifies("villacampa2020", "A.16", "A.17", route="division of Gaussians with quadrature's moments")
@pytest.mark.verifies(
    "villacampa2020", "A.19", "A.20", route="division of Gaussians with quadrature's moments", printed=True
)
def test_the_refined_factor_is_tilted_over_cavity(model):
    s = model
    _, tilted = tilted_by_quadrature(s, I)
    cavity, z = cavity_of(s, I), gradients_of(s, I)
    close = {"rtol": 1e-6, "atol": 1e-7}  # moments to 1e-9, differences of inverses
    for k in range(s.C):
        u = s.upsilon[k, I]
        precision = np.linalg.inv(tilted.cov[k]) - np.linalg.inv(cavity.cov[k])
        shift = np.linalg.solve(tilted.cov[k], tilted.mean[k]) - np.linalg.solve(cavity.cov[k], cavity.mean[k])
        c1 = update_c1(float(z.d_mean[k]), float(z.d_var[k]), u, cavity.cov[k], s.alpha)
        np.testing.assert_allclose(s.alpha * c1 * np.outer(u, u), precision, **close)
        c2 = update_c2(float(z.d_mean[k]), c1, u, cavity.mean[k], cavity.cov[k], s.alpha)
        np.testing.assert_allclose(s.alpha * c2 * u, shift, **close)
        # last lines against the division, and first lines against them
        by_derivatives = factor_precision_from_derivatives(float(z.d_mean[k]), float(z.d_var[k]), u, cavity.cov[k])
        np.testing.assert_allclose(by_derivatives, precision, **close)
        np.testing.assert_allclose(factor_precision_from_moments(tilted.cov[k], cavity.cov[k]), by_derivatives, **close)
        at = float(z.d_mean[k]), c1, u, cavity.mean[k], cavity.cov[k]
        by_derivatives = factor_linear_from_derivatives(*at, s.alpha)
        np.testing.assert_allclose(by_derivatives, shift, **close)
        got = factor_linear_from_moments(tilted.mean[k], tilted.cov[k], cavity.mean[k], cavity.cov[k])
        np.testing.assert_allclose(got, by_derivatives, **close)
        # C¹ of (A.17) where α C¹ belongs: in the last line of (A.19), and in (A.20)
        extra = (1.0 - s.alpha) * c1 * (u @ cavity.mean[k] + z.d_mean[k] * (u @ cavity.cov[k] @ u))
        assert abs(extra) > 1e-4  # a thousand times what the quadrature leaves
        printed = factor_linear_as_printed(*at)
        np.testing.assert_allclose(printed - shift, extra * u, **close)
        told_apart("villacampa2020", "A.19", printed, by_derivatives)
        assert update_c2_as_printed(*at, s.alpha) - c2 == pytest.approx(extra / s.alpha, rel=1e-6, abs=0)
        if k == 0:
            assert_recorded("villacampa2020", "A.19", shift[0], printed[0])
            assert_recorded("villacampa2020", "A.20", shift @ u / (u @ u) / s.alpha, update_c2_as_printed(*at, s.alpha))
        # below (A.19): the precision is added to the cavity's; added to that of q it is another distribution
        added = np.linalg.inv(s.cov[k]) + precision
        assert np.max(np.abs(added - np.linalg.inv(tilted.cov[k]))) > 1e-3


@pytest.mark.verifies("villacampa2020", "u16-pep-include", route="nested quadrature of the powered likelihood")
def test_the_tilted_density_holds_the_power_of_the_likelihood(model):
    s, C = model, 3
    cavity, y = cavity_of(s, I), int(s.y[I])
    tilted = included(s, cavity, I)
    got = tilted.log_density(s.inducing_values)
    mean = np.array([s.upsilon[k, I] @ s.inducing_values[k] for k in range(C)])
    sd = np.sqrt(s.cond_var[:, I])
    high, low = (1 - s.epsilon + s.epsilon / C) ** s.alpha, (s.epsilon / C) ** s.alpha
    others = [k for k in range(C) if k != y]
    power = quad(lambda t: norm.pdf(t, mean[y], sd[y])
                 * (low + (high - low) * np.prod(norm.cdf((t - mean[others]) / sd[others]))),
                 mean[y] - 10 * sd[y], mean[y] + 10 * sd[y], epsrel=1e-11, limit=200)[0]  # fmt: skip
    prior = sum(multivariate_normal.logpdf(s.inducing_values[k], cavity.mean[k], cavity.cov[k]) for k in range(C))
    assert got == pytest.approx(np.log(power) + prior, rel=1e-9, abs=0)
    log_z, _ = tilted_by_quadrature(s, I)
    assert tilted.log_norm == pytest.approx(log_z, rel=1e-9, abs=0)
    # cavity, υ and derivatives are what step three needs of it
    np.testing.assert_array_equal(tilted.cavity.mean, cavity.mean)
    np.testing.assert_array_equal(tilted.cavity.cov, cavity.cov)
    np.testing.assert_array_equal(tilted.upsilon, s.upsilon[:, I])
    h = 1e-5
    ends = [
        included(s, Gaussians(cavity.mean + t * s.upsilon[:, I], cavity.cov), I).log_norm for t in (h, -h)
    ]  # all classes at once: Σ g υᵀυ
    lengths = np.sum(s.upsilon[:, I] ** 2, axis=1)
    assert tilted.d_mean @ lengths == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-9)
    ends = [included(s, Gaussians(cavity.mean, cavity.cov + t * np.eye(s.m)), I).log_norm for t in (h, -h)]
    assert tilted.d_var @ lengths == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-9)


@pytest.mark.verifies("villacampa2020", "u13-pep-factor-recovery", route="log densities at points, to the power")
@pytest.mark.verifies("villacampa2020", "u18-pep-update", route="log densities at points, to the power", printed=True)
def test_recovered_factors_are_powers_of_density_ratios(model, rng):
    s = model
    log_z, new = tilted_by_quadrature(s, I)
    cavity = cavity_of(s, I)

    def log_ratio(u):
        return sum(
            multivariate_normal.logpdf(u[k], new.mean[k], new.cov[k])
            - multivariate_normal.logpdf(u[k], cavity.mean[k], cavity.cov[k]) for k in range(s.C)
        )  # fmt: skip

    result, printed = pep_update(included(s, cavity, I), new, s.alpha), pep_update_as_printed(new, cavity, s.alpha)
    site = result.site
    np.testing.assert_allclose(site.precision, natural_factor(result.c1, result.c2, s.upsilon[:, I])[0], **TIGHT)
    np.testing.assert_allclose(result.c2[:, None] * s.upsilon[:, I], site.shift, **TIGHT)
    assert abs(log_z) > 0.1
    for draw in range(4):
        u = rng.normal(size=(s.C, s.m))
        wanted = (log_z + log_ratio(u)) / s.alpha
        assert np.log(approximate_factor(site, u)) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        # the displayed step has no Z_i: (1/α) log Z_i is missing at every point
        without = np.log(approximate_factor(printed, u))
        assert without == pytest.approx(wanted - log_z / s.alpha, rel=1e-9, abs=1e-9)
        told_apart("villacampa2020", "u18-pep-update", without, np.log(approximate_factor(site, u)))
        if draw == 0:
            assert_recorded("villacampa2020", "u18-pep-update", wanted, without)


@pytest.mark.verifies("villacampa2020", "u5-ep-refinement", route="the four steps by moments and division")
def test_one_cycle_refines_every_factor_from_one_posterior(model):
    s = model
    at, q = Coefficients(s.c1, s.c2), Gaussians(s.mean, s.cov)
    for alpha in (1.0, s.alpha):
        s.alpha = alpha
        arguments = at, q, s.y, s.matrices, s.epsilon
        got = ep_refine_factors(*arguments) if alpha == 1.0 else pep_refine_factors(*arguments, alpha)
        for i in range(s.n):
            cavity = cavity_of(s, i)
            _, new = tilted_by_quadrature(s, i)
            site = pep_update_as_printed(new, cavity, alpha)  # a plain quotient of densities
            for k in range(s.C):
                u = s.upsilon[k, i]
                # moments to 1e-9, differences of inverses
                close = {"rtol": 1e-6, "atol": 1e-7}
                np.testing.assert_allclose(got.coefficients.c1[i, k] * np.outer(u, u), site.precision[k], **close)
                np.testing.assert_allclose(got.coefficients.c2[i, k] * u, site.shift[k], **close)
            assert got.log_norm[i] == pytest.approx(gradients_of(s, i).log_expectation / alpha, rel=1e-10, abs=0)
        assert got.n_improper == 0
    s.c1[2, 1] = 1.5 / (s.upsilon[1, 2] @ s.cov[1] @ s.upsilon[1, 2])
    got = ep_refine_factors(at, q, s.y, s.matrices, s.epsilon)
    assert got.n_improper == 1  # all classes of the datum stay
    np.testing.assert_array_equal(got.coefficients.c1[2], s.c1[2])


@pytest.mark.verifies("villacampa2020", "u28-damping", route="a point on the segment, and both ends")
@pytest.mark.verifies("villacampa2020", "u29-parallel-updates", route="refinement, mixture and product by hand")
def test_a_damped_parallel_sweep(model):
    s = model
    np.testing.assert_allclose(damped_update(s.c1 + 1.0, s.c1, 0.3), s.c1 + 0.3, rtol=1e-14)
    np.testing.assert_array_equal(damped_update(s.c2, s.c1, 0.0), s.c1)
    np.testing.assert_array_equal(damped_update(s.c2, s.c1, 1.0), s.c2)
    with pytest.raises(ValueError, match="damping"):
        damped_update(s.c1, s.c2, 1.5)
    at = Coefficients(s.c1, s.c2)
    new, q, n_improper = parallel_pep_sweep(at, s.y, s.matrices, s.epsilon, s.alpha, 0.3)
    assert n_improper == 0
    whole = pep_refine_factors(at, Gaussians(s.mean, s.cov), s.y, s.matrices, s.epsilon, s.alpha).coefficients
    for got, refined, before in zip(new, whole, at, strict=True):
        np.testing.assert_allclose(got, 0.3 * refined + 0.7 * before, rtol=1e-9, atol=1e-12)
    for k in range(s.C):
        precision = np.linalg.inv(s.K_ZZ[k]) + (s.upsilon[k].T * new.c1[:, k]) @ s.upsilon[k]
        np.testing.assert_allclose(q.cov[k], np.linalg.inv(precision), **TIGHT)
        np.testing.assert_allclose(q.mean[k], np.linalg.solve(precision, s.upsilon[k].T @ new.c2[:, k]), **TIGHT)
    # a mini-batch: its factors alone move
    batch = np.array([1, 3])
    some, _, _ = parallel_pep_sweep(at, s.y, s.matrices, s.epsilon, s.alpha, 0.3, batch)
    for got, moved, before in zip(some, new, at, strict=True):
        np.testing.assert_allclose(got[batch], moved[batch], rtol=1e-12)
        np.testing.assert_array_equal(got[[0, 2, 4]], before[[0, 2, 4]])
