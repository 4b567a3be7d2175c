"""Section 4.3: expectations over regions, the bound from its definition, its maximum, and the update of θ."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from bivariate import bivariate_normal_cdf
from reference.common._probit_line import probit_line
from reference.riihimaki2013.fit import Prior
from reference.riihimaki2013.model import log_marginal_likelihood, prior_covariance
from reference.riihimaki2013.type2 import vb_alternate, vb_update_hyperparameters
from reference.riihimaki2013.variational import (
    fit_vb,
    predict_vb,
    region_moments,
    vb_bound,
    vb_expected_auxiliary,
    vb_gradients,
    vb_posterior,
)


def region_probability(m, y):
    """Orthant probability of v_y - v_k by quadrature over one difference."""
    return bivariate_normal_cdf(m[y] - np.delete(m, y), np.eye(2) + 1.0)


@pytest.mark.verifies("riihimaki2013", "u4.3-vb-expectation", route="Gauss-Legendre over u of the paper's two factors")
def test_expected_auxiliary(model, rng):
    means = 2.0 * rng.normal(size=(5, 3))
    got = vb_expected_auxiliary(means, model.y)
    x, w = np.polynomial.legendre.leggauss(400)
    u = 12.0 * x
    for i in range(5):
        y = model.y[i]
        others = np.delete(np.arange(3), y)
        t = u[:, None] + means[i, y] - means[i, others]
        share = 12.0 * w * norm.pdf(u)
        mass = np.sum(share * np.prod(ndtr(t), axis=1))
        shifts = []
        for place, j in enumerate(others):
            shift = np.sum(share * norm.pdf(t[:, place]) * ndtr(t[:, 1 - place])) / mass
            assert got[i, j] == pytest.approx(means[i, j] - shift, rel=1e-9, abs=1e-10)  # 400 nodes
            shifts.append(shift)
        assert got[i, y] == pytest.approx(means[i, y] + np.sum(shifts), rel=1e-9, abs=1e-10)


def test_moments_of_the_region_by_differences(model, rng):
    m = rng.normal(size=3)
    region = region_moments(m[None], np.array([1]))
    e = np.eye(3)
    log_z = lambda at: region_moments(at[None], np.array([1])).log_norm[0]  # noqa: E731
    assert region.log_norm[0] == pytest.approx(np.log(region_probability(m, 1)), rel=1e-8, abs=0)
    derivative = [(log_z(m + 1e-5 * d) - log_z(m - 1e-5 * d)) / 2e-5 for d in e]
    np.testing.assert_allclose(region.mean[0] - m, derivative, rtol=0, atol=1e-9)  # step 1e-5
    mean = lambda at: region_moments(at[None], np.array([1])).mean[0]  # noqa: E731
    jacobian = [(mean(m + 1e-5 * d) - mean(m - 1e-5 * d)) / 2e-5 for d in e]
    np.testing.assert_allclose(region.cov[0], jacobian, rtol=0, atol=1e-9)


@pytest.mark.verifies("riihimaki2013", "u4.3-vb-bound", route="E_q[log p(f)] + entropy + auxiliary part, by definition")
def test_bound_from_its_definition(model, rng):
    s = model
    means = rng.normal(size=(5, 3))
    m = means.T.ravel()
    S = np.linalg.inv(np.linalg.inv(s.K) + np.eye(15))
    log_prior = multivariate_normal.logpdf(m, np.zeros(15), s.K) - 0.5 * np.trace(np.linalg.solve(s.K, S))
    entropy = 0.5 * np.linalg.slogdet(2.0 * np.pi * np.e * S)[1]
    # E_q[log p(v|f)] + entropy of q(v): log of the region's mass, less half the variances of f
    auxiliary = sum(np.log(region_probability(means[i], s.y[i])) for i in range(5)) - 0.5 * np.trace(S)
    assert vb_bound(means, np.linalg.solve(s.K, m), s.K, s.y) == pytest.approx(
        log_prior + entropy + auxiliary, rel=1e-8, abs=0
    )


def test_bound_is_below_the_evidence():
    for variance in (0.2, 1.0):
        K = variance * np.eye(3)
        y = np.array([2])
        factors = vb_posterior(K, y)
        assert vb_bound(factors.mean, factors.weights, K, y) < log_marginal_likelihood(y, K, "multinomial-probit")


@pytest.mark.verifies("riihimaki2013", "u4.3-vb-family", route="derivative of the bound by differences; (K⁻¹ + I)⁻¹")
def test_factors_at_the_maximum(model):
    s = model
    root = np.linalg.cholesky(s.K)

    def loss(x):
        means = (root @ x).reshape(3, 5).T
        return 0.5 * x @ x - sum(np.log(region_probability(means[i], s.y[i])) for i in range(5))

    got = vb_posterior(s.K, s.y)
    assert got.converged
    # the loss is convex, with a curvature of at least one in every direction: a derivative bounds the distance
    at = np.linalg.solve(root, got.mean.T.ravel())
    derivative = [(loss(at + 1e-4 * d) - loss(at - 1e-4 * d)) / 2e-4 for d in np.eye(15)]
    assert np.linalg.norm(derivative) < 1e-6  # rounding of the quadrature over the step
    np.testing.assert_allclose(got.cov, np.linalg.inv(np.linalg.inv(s.K) + np.eye(15)), rtol=1e-8, atol=1e-10)


def test_a_tolerance_below_rounding_ends_honestly_and_soon(model):
    end = vb_posterior(model.K, model.y, tolerance=5e-324)
    assert (
        end.iterations < 500
    )  # sweeps contract by .87: two hundred to rounding, then as many without a smaller change
    assert end.residual < 1e-13
    assert end.converged == (end.residual == 0.0)


@pytest.mark.parametrize("c", [2, 3, 10])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_moments_of_the_region_by_adaptive_panels(rng, c, scale):
    means, y = scale * rng.normal(size=(6, c)), rng.integers(c, size=6)
    got = region_moments(means, y)
    for i in range(6):
        others = np.delete(np.arange(c), y[i])
        line = probit_line(float(means[i, y[i]]), 1.0, means[i, others], np.ones(c - 1))
        assert got.log_norm[i] == pytest.approx(line.log_norm, rel=1e-13, abs=1e-13)
        own = line.weights @ line.s
        # sums of numbers of the size of the means
        assert got.mean[i, y[i]] == pytest.approx(own, rel=1e-13, abs=1e-13 * max(1.0, scale))
        assert got.cov[i, y[i], y[i]] == pytest.approx(line.weights @ (line.s - own) ** 2, rel=1e-11, abs=0)


def test_gradient_of_the_bound(model):
    s = model
    got = vb_gradients(fit_vb(s.X, s.y, 3, s.prior), s.X, s.prior)
    for field, where in (("variance", (2,)), ("lengthscales", (1, 1)), ("noise", (0,))):
        ends = []
        for sign in (1.0, -1.0):
            value = getattr(s.prior, field).copy()
            value[where] += 1e-5 * sign
            ends.append(fit_vb(s.X, s.y, 3, s.prior._replace(**{field: value})).log_evidence)
        # central differences with step 1e-5
        assert getattr(got, field)[where] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.verifies("riihimaki2013", "u4.3-vb-hyper", route="grid search of E_q[log p(f|θ)]")
def test_update_of_the_magnitude(model):
    s = model
    prior = Prior(np.full(3, 1.2), np.ones((3, 2)), np.full(3, 0.1), np.zeros(3))
    factors = fit_vb(s.X, s.y, 3, prior).factors
    got = vb_update_hyperparameters(factors, s.X, prior, ("variance",), True)
    second = factors.cov + np.outer(factors.mean.T.ravel(), factors.mean.T.ravel())

    def objective(variance):
        K = prior_covariance(s.X, *prior._replace(variance=np.full(3, variance)))
        return -0.5 * np.linalg.slogdet(K)[1] - 0.5 * np.trace(np.linalg.solve(K, second))

    grid = np.exp(np.linspace(-4.0, 2.0, 1501))
    best = grid[np.argmax([objective(v) for v in grid])]
    assert got.variance[0] == pytest.approx(best, rel=0.004, abs=0)  # the grid's spacing
    assert objective(got.variance[0]) >= objective(best) - 1e-9
    np.testing.assert_array_equal(got.variance, got.variance[0])
    for factor in (1.001, 0.999):
        assert objective(factor * got.variance[0]) < objective(got.variance[0])
    lower, upper = objective(1.0005 * got.variance[0]), objective(got.variance[0] / 1.0005)
    assert lower == pytest.approx(upper, rel=0, abs=1e-7)  # the maximum lies between to 1e-5 in the logarithm


def test_alternation_raises_the_bound(model):
    s = model
    prior = Prior(np.full(3, 1.2), np.ones((3, 2)), np.full(3, 0.1), np.zeros(3))
    result = vb_alternate(s.X, s.y, 3, prior, learn=("variance",), shared=True, max_iterations=4)
    assert np.all(np.diff(result.trace) > -1e-9)


def test_predictions_have_mass_one(model, rng):
    s = model
    got = predict_vb(fit_vb(s.X, s.y, 3, s.prior), s.X, rng.normal(size=(3, 2)), s.prior)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=1e-11)  # the line's accuracy
