"""epgpc: moment matching by quadrature, the truth for few data, finite differences of the converged log Z."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import multivariate_normal, norm

from reference.common.priors import Hyper
from reference.wenzel2019.epgpc import (
    ep_cavity,
    ep_latent_moments,
    ep_log_evidence,
    ep_posterior,
    ep_sites,
    ep_tilted,
    epgpc_gradients,
)
from reference.wenzel2019.fit_epgpc import fit_epgpc, fit_epgpc_batches
from reference.wenzel2019.fit_svgpc import fit_svgpc

LENGTHSCALES = np.array([0.9, 1.6])
PRIOR = (2.0, LENGTHSCALES, 0.2, 1e-3)


def data(rng, n=16):
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)


def k(A, B, variance, lengthscales):
    return variance * np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / lengthscales) ** 2, axis=2))


def log_fitc(X, y, variance, lengthscales, noise, jitter, Z):
    """log p(y) of the FITC probit: an orthant probability of f + e."""
    K_ZZ = k(Z, Z, variance, lengthscales) + jitter * np.eye(len(Z))
    K = k(X, Z, variance, lengthscales) @ np.linalg.solve(K_ZZ, k(Z, X, variance, lengthscales))
    np.fill_diagonal(K, variance + noise)
    K = y[:, None] * (K + np.eye(len(X))) * y
    return float(np.log(multivariate_normal.cdf(np.zeros(len(X)), np.zeros(len(X)), K, abseps=1e-12, releps=1e-12)))


def test_cavity_and_site_multiply_to_the_posterior(model):
    s = model
    a, b = np.array([0.3, 0.1, 0.5, 0.2, 0.4, 0.6]), np.array([0.5, -0.2, 0.1, 0.0, -0.4, 0.3])
    whole = ep_posterior(a, b, s.kappa, s.K_ZZ).q
    got = ep_cavity(*whole, a, b, s.kappa)
    for i in range(s.n):
        rest = np.arange(s.n) != i
        without = ep_posterior(a[rest], b[rest], s.kappa[rest], s.K_ZZ).q
        # conditions below 1e4
        assert got.mean[i] == pytest.approx(s.kappa[i] @ without.inducing_mean, rel=1e-9, abs=1e-11)
        assert got.var[i] == pytest.approx(s.kappa[i] @ without.inducing_cov @ s.kappa[i], rel=1e-9, abs=0)
    too_much = a + 1.1 / np.sum((s.kappa @ whole.inducing_cov) * s.kappa, axis=1)
    assert not np.any(ep_cavity(*whole, too_much, b, s.kappa).proper)


@pytest.mark.parametrize(
    ("mean", "var", "y", "extra"), [(0.4, 1.3, 1.0, 0.0), (2.0, 0.6, -1.0, 0.5), (-3.0, 40.0, 1.0, 2.0)]
)
def test_a_site_matches_the_moments_of_the_tilted_distribution(gaussian_expectation, mean, var, y, extra):
    likelihood = lambda w: ndtr(y * w / np.sqrt(1.0 + extra))  # noqa: E731
    mass, first, second = (
        gaussian_expectation(lambda w, p=p: (w - mean) ** p * likelihood(w), mean, var) for p in (0, 1, 2)
    )
    tilted = ep_tilted(*(np.array([v]) for v in (mean, var, y, extra)))
    site = ep_sites(np.array([mean]), np.array([var]), tilted.derivative, tilted.curvature)
    matched = 1.0 / (1.0 / var + site.precision[0])
    # the quadrature asks for 1e-12; the variance is a difference
    assert tilted.log_norm[0] == pytest.approx(np.log(mass), rel=1e-9, abs=0)
    assert matched == pytest.approx(second / mass - (first / mass) ** 2, rel=1e-9, abs=0)
    assert matched * (mean / var + site.shift[0]) == pytest.approx(mean + first / mass, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("mean", "var", "y", "extra"), [(0.4, 1.3, 1.0, 0.0), (2.0, 0.6, -1.0, 0.5), (-3.0, 40.0, 1.0, 2.0)]
)
def test_latent_moments_are_those_of_the_density_that_the_label_has_seen(gaussian_expectation, mean, var, y, extra):
    # f = w + e ~ N(mean, var + extra) under cavity and prior
    mass, first, second = (
        gaussian_expectation(lambda f, p=p: (f - mean) ** p * ndtr(y * f), mean, var + extra) for p in (0, 1, 2)
    )
    cavity = np.array([mean]), np.array([var])
    tilted = ep_tilted(*cavity, np.array([y]), np.array([extra]))
    got = ep_latent_moments(*cavity, tilted.derivative, tilted.curvature, np.array([extra]))
    # the quadrature asks for 1e-12; the variance is a difference
    assert got.mean[0] == pytest.approx(mean + first / mass, rel=1e-9, abs=0)
    assert got.var[0] == pytest.approx(second / mass - (first / mass) ** 2, rel=1e-9, abs=0)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("variance", [0.5, 90.0])
def test_one_datum_is_exact(rng, sparse, variance):
    X, y = data(rng, n=1)
    Z = X + np.array([[0.3, 0.1]]) if sparse else None
    fit = fit_epgpc(X, y, variance, LENGTHSCALES, 0.2, 0.0, Z)
    assert fit.converged
    assert fit.log_evidence == pytest.approx(np.log(0.5), rel=1e-10, abs=0)  # by symmetry
    # E[f|y] = y v r(0)/√(1 + v), Var[f|y] = v - v² r(0)²/(1 + v), r(0)² = 2/π
    v = variance + 0.2
    assert fit.latent_mean[0] == pytest.approx(y[0] * v * np.sqrt(2 / np.pi / (1 + v)), rel=1e-9, abs=0)
    assert fit.latent_var[0] == pytest.approx(v - v**2 * 2 / np.pi / (1 + v), rel=1e-9, abs=0)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("variance", "limit"), [(0.5, 2e-4), (4.0, 6e-3), (60.0, 0.03)])
def test_log_z_of_two_data_is_near_the_truth(rng, sparse, variance, limit):
    X, y = np.array([[0.0, 0.0], [0.5, -0.3]]), np.array([1.0, -1.0])
    Z = np.array([[0.2, 0.0], [1.5, 1.0]]) if sparse else None
    prior = (variance, LENGTHSCALES, 0.1, 1e-8)
    truth = log_fitc(X, y, *prior, Z if sparse else X) if sparse else log_fitc(X, y, *prior[:3], 0.0, X + 0.0)
    got = fit_epgpc(X, y, *prior, Z)
    # EP's own error for two data: it grows with the variance; the truth is good to 1e-9
    assert abs(got.log_evidence - truth) < limit
    assert fit_svgpc(X, y, *prior, Z).elbo < got.log_evidence + 1e-9


@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_are_those_of_the_converged_log_z(rng, sparse):
    X, y = data(rng, n=9)
    hyper = Hyper(*PRIOR, X[:3] + 0.2 if sparse else None)
    fit = fit_epgpc(X, y, *hyper)
    assert fit.converged
    got = epgpc_gradients(X, y, hyper, fit.site_precision, fit.site_shift, np.arange(9))
    h = 1e-4
    for field, derivative in got.items():
        base = np.asarray(getattr(hyper, field))
        for place in np.ndindex(base.shape):
            move = np.zeros(base.shape)
            move[place] = h
            up, down = (fit_epgpc(X, y, *hyper._replace(**{field: base + s * move})).log_evidence for s in (1, -1))
            # step² times third derivatives of size 10
            np.testing.assert_allclose(np.asarray(derivative)[place], (up - down) / (2 * h), rtol=0, atol=1e-6)


def test_mini_batch_gradients_average_to_the_gradient(rng):
    X, y = data(rng, n=6)
    hyper = Hyper(*PRIOR, X[:3] + 0.2)
    sites = fit_epgpc(X, y, *hyper)[4:6]
    whole = epgpc_gradients(X, y, hyper, *sites, np.arange(6))
    parts = [epgpc_gradients(X, y, hyper, *sites, np.array([i]))["lengthscales"] for i in range(6)]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole["lengthscales"], rtol=0, atol=1e-9)  # conditions below 1e4


def test_mini_batch_estimates_of_log_z_average_to_log_z(model, rng):
    s = model
    sites = rng.uniform(0.1, 0.6, s.n), rng.normal(size=s.n)
    given = (*sites, s.y, s.K_ZZ, s.kappa, s.cond_var)
    whole = ep_log_evidence(*given)
    parts = [ep_log_evidence(*given, np.array(batch)) for batch in ([0, 4], [5, 1], [2, 3])]
    assert np.mean(parts) == pytest.approx(whole, rel=1e-12, abs=0)  # sums of the same terms
    assert np.ptp(parts) > 0.1


@pytest.mark.parametrize("parallel", [True, False])
def test_mini_batches_reach_the_fixed_point_of_the_parallel_sweeps(rng, parallel):
    X, y = data(rng)
    exact = fit_epgpc(X, y, *PRIOR, X[:4], damping=0.8)
    batches = [np.arange(16)[i::4] for _ in range(40) for i in range(4)]
    got = fit_epgpc_batches(X, y, *PRIOR, X[:4], batches=batches, parallel=parallel, trace=True)
    # forty rounds of a linear contraction
    np.testing.assert_allclose(got.site_precision, exact.site_precision, rtol=0, atol=1e-8)
    assert got.log_evidence == pytest.approx(exact.log_evidence, rel=1e-9, abs=0)
    # at the fixed point the estimates of four batches that make up the data have the mean log Z
    assert np.mean(got.trace[-4:]) == pytest.approx(exact.log_evidence, rel=1e-8, abs=0)
    assert got.n_improper == 0


def test_a_list_is_refreshed_in_its_order(rng):
    X, y = data(rng, n=5)
    a = fit_epgpc_batches(X, y, *PRIOR, X[:3], batches=[[0, 1]], parallel=False)
    b = fit_epgpc_batches(X, y, *PRIOR, X[:3], batches=[[0], [1]], parallel=False)
    c = fit_epgpc_batches(X, y, *PRIOR, X[:3], batches=[[1, 0]], parallel=False)
    np.testing.assert_array_equal(a.site_precision, b.site_precision)
    assert np.max(np.abs(a.site_precision - c.site_precision)) > 1e-6


def test_side_by_side_a_list_has_no_order_and_a_datum_counts_once(rng):
    X, y = data(rng, n=5)
    options = {"learn": ("variance", "Z"), "trace": True}
    a, b, c = (fit_epgpc_batches(X, y, *PRIOR, X[:3], batches=[batch, [2]], **options)
               for batch in ([0, 1], [1, 0], [1, 0, 1]))  # fmt: skip
    for other in (b, c):
        # the same sums in another order
        np.testing.assert_allclose(other.site_precision, a.site_precision, rtol=1e-13, atol=0)
        np.testing.assert_allclose(other.trace, a.trace, rtol=1e-13, atol=0)
        assert other.hyper.variance == pytest.approx(a.hyper.variance, rel=1e-12, abs=0)


def test_the_full_process_is_the_limit_of_inducing_points_at_the_data(rng):
    X, y = data(rng, n=8)
    X = 2.0 * X
    full = fit_epgpc(X, y, 2.0, LENGTHSCALES, 0.0, 0.0)
    sparse = fit_epgpc(X, y, 2.0, LENGTHSCALES, 0.0, 0.0, Z=X)
    assert sparse.log_evidence == pytest.approx(full.log_evidence, rel=1e-8, abs=0)  # a condition below 1e4
    np.testing.assert_allclose(sparse.latent_mean, full.latent_mean, rtol=0, atol=1e-8)


def test_sites_of_zero_leave_the_prior_and_its_log_z(model):
    s = model
    none = np.zeros(s.n)
    q = ep_posterior(none, none, s.kappa, s.K_ZZ).q
    np.testing.assert_allclose(q.inducing_cov, s.K_ZZ, rtol=0, atol=1e-10)  # the inverse of an inverse
    got = ep_log_evidence(none, none, s.y, s.K_ZZ, s.kappa, s.cond_var)
    # each Ẑ_i is ½ under the prior
    assert got == pytest.approx(s.n * log_ndtr(0.0), rel=1e-10, abs=0)


def test_learning_ends_where_log_z_is_highest(rng):
    X, y = data(rng, n=40)
    y[:3] *= -1.0  # labels that disagree keep the variance finite
    got = fit_epgpc(X, y, *PRIOR, X[:3], learn="variance")
    at = got.hyper
    near = [fit_epgpc(X, y, *at._replace(variance=at.variance * np.exp(h))).log_evidence for h in (-1e-2, 0.0, 1e-2)]
    assert got.converged
    assert near[1] > max(near[0], near[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"damping": 1.5}, r"damping: found 1.5, expected a number in \[1e-8, 1\]"),
        ({"damping": 0.0}, r"damping: found 0.0, expected a number in \[1e-8, 1\]"),
        ({"learn": "Z"}, r"learn: found 'Z' in a full GP"),
        ({"tolerance": 0.0}, r"tolerance: found 0"),
    ],
)
def test_bad_settings_are_named(rng, change, message):
    X, y = data(rng)
    with pytest.raises(ValueError, match=message):
        fit_epgpc(X, y, *PRIOR, **change)


def test_a_full_gp_of_many_rows_reaches_its_fixed_point(rng):
    X = rng.uniform(-2.0, 2.0, (60, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0.0, 1.0, -1.0)
    # K_XX has a condition of 1e9: an inverse of its inverse would leave seven digits
    fit = fit_epgpc(X, y, 3.0, np.array([2.0, 2.5]), 0.0, 1e-7)
    assert fit.converged
    assert fit.iterations < 30
    K = 3.0 * np.exp(-0.5 * np.sum(((X[:, None] - X[None]) / np.array([2.0, 2.5])) ** 2, axis=2)) + 1e-7 * np.eye(60)
    # one more sweep by other algebra, scalar after scalar: (K + a⁻¹)⁻¹ is well conditioned
    whole = K - K @ np.linalg.solve(K + np.diag(1.0 / fit.site_precision), K)
    mean, var = whole @ fit.site_shift, np.diag(whole)
    left = 1.0 / (1.0 / var - fit.site_precision)
    m = left * (mean / var - fit.site_shift)
    z = y * m / np.sqrt(1.0 + left)
    ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
    curvature = ratio * (z + ratio) / (1.0 + left)
    precision = curvature / (1.0 - left * curvature)
    np.testing.assert_allclose(precision, fit.site_precision, rtol=0, atol=1e-9 * np.max(precision))
