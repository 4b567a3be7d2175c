"""svgpc: quadrature, finite differences in expectation parameters, the truth for few data."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal

from reference.common.priors import Hyper
from reference.common.probit import probit_probability
from reference.wenzel2019.fit_svgpc import fit_svgpc, fit_svgpc_svi, predict_probit
from reference.wenzel2019.svgpc import (
    svgpc_bound,
    svgpc_gradients,
    svgpc_gradients_at_maximum,
    svgpc_natural_gradient,
)
from reference.wenzel2019.updates import Gaussian

LENGTHSCALES = np.array([0.9, 1.6])
PRIOR = (2.0, LENGTHSCALES, 0.2, 1e-3)


def data(rng, n=16):
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)


def covariance(X, variance, lengthscales, noise, jitter):
    K = variance * np.exp(-0.5 * np.sum(((X[:, None] - X[None]) / lengthscales) ** 2, axis=2))
    return K + (noise + jitter) * np.eye(len(X))


def log_truth(X, y, *prior):
    """log p(y): the probability that y_i (f_i + e_i) > 0 with unit normal e_i."""
    K = y[:, None] * (covariance(X, *prior) + np.eye(len(X))) * y
    return float(np.log(multivariate_normal.cdf(np.zeros(len(X)), np.zeros(len(X)), K, abseps=1e-12, releps=1e-12)))


def test_the_bound_is_its_definition(model, gaussian_expectation):
    s = model
    batch = np.array([5, 2, 2])
    var = s.cond_var + np.sum(s.kappa @ s.Sigma * s.kappa, axis=1)
    mean = s.kappa @ s.mu
    terms = [gaussian_expectation(lambda f, i=i: log_ndtr(s.y[i] * f), mean[i], var[i]) for i in batch]
    inverse = np.linalg.inv(s.K_ZZ)
    gap = np.linalg.slogdet(s.K_ZZ)[1] - np.linalg.slogdet(s.Sigma)[1]
    kl = 0.5 * (np.trace(inverse @ s.Sigma) + s.mu @ inverse @ s.mu + gap - s.m)
    got = svgpc_bound(s.mu, s.Sigma, batch, s.y, s.K_ZZ, s.kappa, s.cond_var)
    # the quadrature asks for 1e-12
    assert got == pytest.approx(2.0 * sum(terms) - kl, rel=1e-10, abs=0)


def test_the_natural_gradient_is_the_gradient_in_expectation_parameters(model):
    s = model
    batch = np.array([0, 3, 4, 5])

    def value(first, second):
        return svgpc_bound(first, second - np.outer(first, first), batch, s.y, s.K_ZZ, s.kappa, s.cond_var)

    second, h = s.Sigma + np.outer(s.mu, s.mu), 6e-6
    precision = np.linalg.inv(s.Sigma)
    got = svgpc_natural_gradient(precision @ s.mu, -0.5 * precision, batch, s.y, s.kappa, s.cond_var, s.K_ZZ_inv)
    by_first = [(value(s.mu + h * e, second) - value(s.mu - h * e, second)) / (2 * h) for e in np.eye(s.m)]
    by_second = np.empty((s.m, s.m))
    for i in range(s.m):
        for j in range(i + 1):
            D = np.zeros((s.m, s.m))
            D[i, j] = D[j, i] = h
            derivative = (value(s.mu, second + D) - value(s.mu, second - D)) / (2 * h)
            by_second[i, j] = by_second[j, i] = derivative if i == j else derivative / 2
    # step² times third derivatives, rounding of 1e-12 over the step
    np.testing.assert_allclose(got.eta_1, by_first, rtol=0, atol=1e-6 * np.max(np.abs(by_first)))
    np.testing.assert_allclose(got.eta_2, by_second, rtol=0, atol=1e-6 * np.max(np.abs(by_second)))


@pytest.mark.parametrize("sparse", [True, False])
def test_kernel_gradients_are_those_of_the_bound_converged_anew(rng, sparse):
    X, y = data(rng, n=9)
    hyper = Hyper(*PRIOR, X[:3] + 0.2 if sparse else None)
    fit = fit_svgpc(X, y, *hyper)
    assert fit.converged
    got = svgpc_gradients(X, y, hyper, fit.inducing_mean, fit.inducing_cov, np.arange(9))
    h = 1e-4
    for field, derivative in got.items():
        base = np.asarray(getattr(hyper, field))
        for place in list(np.ndindex(base.shape))[:4]:
            move = np.zeros(base.shape)
            move[place] = h
            up, down = (fit_svgpc(X, y, *hyper._replace(**{field: base + s * move})).elbo for s in (1, -1))
            # step² times third derivatives of size 10
            np.testing.assert_allclose(np.asarray(derivative)[place], (up - down) / (2 * h), rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("variance", [0.01, 2.0, 90.0])
def test_the_bound_is_below_the_truth_and_meets_it_for_a_narrow_prior(rng, n, variance):
    X, y = data(rng, n)
    prior = (variance, LENGTHSCALES, 1e-3 * variance, 0.0)
    gap = log_truth(X, y, *prior) - fit_svgpc(X, y, *prior).elbo
    # the truth's integration is good to 1e-5 at worst for three data, 1e-10 below
    assert gap > -1e-5
    # a likelihood that is flat over the prior leaves a gap of the order of variance²
    assert gap < (n * 1e-3 if variance < 1 else n * 0.5)


def test_no_other_gaussian_has_a_higher_bound(rng):
    X, y = data(rng, n=4)
    fit = fit_svgpc(X, y, *PRIOR)
    K = covariance(X, *PRIOR)
    lower = np.tril_indices(4)

    def loss(free):
        root = np.zeros((4, 4))
        root[lower] = free[4:]
        return -svgpc_bound(free[:4], root @ root.T, np.arange(4), y, K, np.eye(4), np.zeros(4))

    optimum = minimize(
        loss, np.concatenate([np.zeros(4), np.linalg.cholesky(K)[lower]]), method="BFGS", options={"gtol": 1e-6}
    )
    # a maximum is found to rounding divided by the finite-difference step of the optimiser
    assert -optimum.fun == pytest.approx(fit.elbo, rel=0, abs=1e-7)
    assert np.all(np.diff(fit.trace) > -1e-9)


@pytest.mark.parametrize(("variance", "rate"), [(1.0, None), (50.0, None), (500.0, 0.1)])
def test_the_ascent_settles_where_steps_of_rate_one_would_circle_around_the_maximum(rng, variance, rate):
    # at large variances a whole step overshoots by more than it corrects
    X, y = data(rng, n=12)
    hyper = Hyper(variance, LENGTHSCALES, 0.2, 1e-3, None)
    fit = fit_svgpc(X, y, *hyper, rate=rate)
    assert fit.converged
    K = covariance(X, *hyper[:4])
    eta = np.linalg.solve(fit.inducing_cov, fit.inducing_mean), -0.5 * np.linalg.inv(fit.inducing_cov)
    inverse = np.linalg.inv(K)
    gradients = svgpc_natural_gradient(*eta, np.arange(12), y, np.eye(12), np.zeros(12), inverse)
    # a change of 1e-10, and the rounding of inverses of a condition of 1e4
    assert np.max(np.abs(gradients.eta_1)) < 1e-8 * np.max(np.abs(eta[0]))
    assert np.max(np.abs(gradients.eta_2)) < 1e-8 * np.max(np.abs(eta[1]))


def test_inducing_points_at_the_data_are_the_full_process(rng):
    X, y = data(rng, n=10)
    X = 2.0 * X
    prior = (2.0, LENGTHSCALES, 0.0, 0.0)
    full, sparse = fit_svgpc(X, y, *prior), fit_svgpc(X, y, *prior, Z=X)
    assert sparse.elbo == pytest.approx(full.elbo, rel=1e-9, abs=0)  # a condition below 1e4, both within 1e-10
    np.testing.assert_allclose(sparse.latent_var, full.latent_var, rtol=1e-8, atol=0)
    a, b = (
        predict_probit(Gaussian(f.inducing_mean, f.inducing_cov), X, X[:3] + 0.1, *prior, Z=Z)
        for f, Z in ((full, None), (sparse, X))
    )
    np.testing.assert_allclose(a.probability, b.probability, rtol=0, atol=1e-9)
    np.testing.assert_allclose(a.probability_mass, 1.0, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(
        a.probability, probit_probability(a.latent_mean, a.latent_var) / a.probability_mass[:, None]
    )


def test_all_data_at_one_rate_reach_the_same_fixed_point(rng):
    X, y = data(rng)
    exact = fit_svgpc(X, y, *PRIOR, X[:4])
    got = fit_svgpc_svi(X, y, *PRIOR, X[:4], batches=[np.arange(16)] * 60, rate=0.5, trace=True)
    # distances shrink by more than ½ a step
    np.testing.assert_allclose(got.inducing_mean, exact.inducing_mean, rtol=0, atol=1e-8)
    assert got.trace[-1] == pytest.approx(exact.elbo, rel=1e-10, abs=0)


def test_learning_ends_where_the_bound_is_flat(rng):
    X, y = data(rng, n=40)
    y[:3] *= -1.0  # labels that disagree keep the variance finite
    got = fit_svgpc(X, y, *PRIOR, X[:3], learn=("variance",))
    at = got.hyper
    derivatives = [fit_svgpc(X, y, *at._replace(variance=at.variance * np.exp(h))).elbo for h in (-1e-2, 0.0, 1e-2)]
    assert got.converged
    assert derivatives[1] > max(derivatives[0], derivatives[2])


def test_derivatives_at_the_maximum_are_those_at_any_q_where_nothing_cancels():
    rng = np.random.default_rng(5)
    X, y_sign = rng.standard_normal((9, 2)), np.where(rng.uniform(size=9) < 0.5, -1.0, 1.0)
    hyper = Hyper(1.7, np.array([0.8, 1.3]), 0.3, 1e-2, rng.standard_normal((3, 2)))
    fit = fit_svgpc(X, y_sign, *hyper, tolerance=1e-13)
    q = fit.inducing_mean, fit.inducing_cov
    plain = svgpc_gradients(X, y_sign, hyper, *q, np.arange(9))
    stable = svgpc_gradients_at_maximum(X, y_sign, hyper, *q)
    for name, value in plain.items():
        # both are exact where q is the maximum, which is known to 1e-13; entries of K^-1 are below 1e2
        np.testing.assert_allclose(stable[name], value, rtol=0, atol=1e-9 * np.abs(value).max(), err_msg=name)
