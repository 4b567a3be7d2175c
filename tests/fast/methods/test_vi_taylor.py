"""vi-taylor: the mode of the projected posterior, its Hessian, derivatives, extremes."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fast.core.options import Storage
from fast.core.values import Data, Prior
from fast.methods import vi_jj, vi_taylor
from fast.methods.vi_taylor import Expanded, expansion_point
from fast.one_latent.links import link_of
from fast.one_latent.quadratic_search import prepare
from fast.one_latent.quadratic_sweep import evaluate, gradients_at
from values_given import binary, model_values


def log_likelihood(link, y, f):
    from scipy.special import log_ndtr

    return log_ndtr(y * f) if link == "probit" else -np.logaddexp(0.0, -y * f)


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.verifies("izmailov2016", "vi-taylor", "u4.2-xi", route="SciPy's maximiser of the projected posterior")
def test_the_fixed_point_is_the_mode_of_the_projected_posterior_and_sigma_its_inverse_hessian(
    make_problem, dense_sparse, link
):
    p = make_problem(m=4, jitter=1e-3)
    dense = dense_sparse(p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z)
    y = np.where(p.y == 1, 1.0, -1.0)

    def minus_log_posterior(u):
        return -log_likelihood(link, y, dense.kappa @ u).sum() + 0.5 * u @ dense.inverse @ u

    end = minimize(minus_log_posterior, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    posterior = vi_taylor.fit(*model_values(p), vi_taylor.TaylorOptions(likelihood=link))
    assert posterior.converged
    # BFGS on differences: the mode to about 1e-6
    np.testing.assert_allclose(posterior.inducing_mean, end.x, rtol=0, atol=2e-5)
    np.testing.assert_allclose(posterior.xi, dense.kappa @ posterior.inducing_mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(expansion_point(posterior.latent_mean), posterior.xi, rtol=0, atol=1e-9)
    h = 1e-4
    f = dense.kappa @ posterior.inducing_mean
    value = [log_likelihood(link, y, f + k * h) for k in (-2, -1, 0, 1, 2)]
    second = (-value[0] + 16 * value[1] - 30 * value[2] + 16 * value[3] - value[4]) / (12 * h * h)
    hessian = dense.kappa.T @ np.diag(-second) @ dense.kappa + dense.inverse
    # second differences: 1e-16 / h^2 of rounding
    np.testing.assert_allclose(posterior.inducing_cov, np.linalg.inv(hessian), rtol=1e-5, atol=1e-7)
    # the gradient of the posterior vanishes there
    first = (value[0] - 8 * value[1] + 8 * value[3] - value[4]) / (12 * h)
    np.testing.assert_allclose(dense.kappa.T @ first, dense.inverse @ posterior.inducing_mean, rtol=0, atol=1e-8)
    # the approximate bound from its definition at xi = m
    Sigma, mu = posterior.inducing_cov, posterior.inducing_mean
    var = np.diag(dense.K_tilde + dense.kappa @ Sigma @ dense.kappa.T)
    kl = 0.5 * (
        np.trace(dense.inverse @ Sigma)
        + mu @ dense.inverse @ mu
        - 4
        + np.linalg.slogdet(dense.K_ZZ)[1]
        - np.linalg.slogdet(Sigma)[1]
    )
    np.testing.assert_allclose(posterior.elbo, value[2].sum() + 0.5 * second @ var - kl, rtol=1e-6)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_the_full_gp_is_laplaces_approximation(make_problem, dense_kernel, link):
    p = make_problem(full=True)
    posterior = vi_taylor.fit(*model_values(p), vi_taylor.TaylorOptions(likelihood=link))
    K = dense_kernel(p.X, p.X, p.variance, p.lengthscales) + (p.noise + p.jitter) * np.eye(14)
    g = link_of(link).log_likelihood(np.where(p.y == 1, 1.0, -1.0), posterior.latent_mean)
    # K g' = f at the mode
    np.testing.assert_allclose(K @ g.derivative, posterior.latent_mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        posterior.inducing_cov, np.linalg.inv(np.linalg.inv(K) + np.diag(-g.curvature)), rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("full", [False, True])
def test_derivatives_are_those_of_the_objective_at_held_xi(make_problem, link, full):
    p = vars(make_problem(n=12, m=4, full=full, jitter=1e-3))
    posterior = vi_taylor.fit(*binary(vi_taylor.TaylorOptions, **p, likelihood=link))
    got = vi_taylor.gradients(posterior)
    local_quadratic, h = Expanded(link_of(link).log_likelihood), 1e-4

    def value(**changed):
        return evaluate(prepare(*binary(Storage, **{**p, **changed})), local_quadratic, posterior.xi).elbo

    for name in ("variance", "noise"):
        derivative = (value(**{name: p[name] + h}) - value(**{name: p[name] - h})) / (2 * h)
        np.testing.assert_allclose(getattr(got, name), derivative, rtol=1e-5, atol=1e-7)  # h^2 f'''
    at = evaluate(prepare(*binary(Storage, **p)), local_quadratic, posterior.xi)
    again = gradients_at(prepare(*binary(Storage, **p)), local_quadratic, posterior.xi, at.factor, at.weights)
    np.testing.assert_allclose(again.lengthscales, got.lengthscales, rtol=1e-10)


def test_the_approximate_bound_is_not_stationary_in_xi_at_the_mean(make_problem):
    p = vars(make_problem())
    posterior = vi_taylor.fit(*binary(vi_taylor.TaylorOptions, **p))
    y = np.where(p["y"] == 1, 1.0, -1.0)
    m, v, h = posterior.latent_mean, posterior.latent_var, 1e-5

    def terms(xi):
        q = Expanded(link_of("logit").log_likelihood).at(y, xi)
        return q.constant + q.shift * m - 0.5 * q.precision * (m * m + v)

    derivative = (terms(m + h) - terms(m - h)) / (2 * h)
    s = 1 / (1 + np.exp(-m))
    third = -s * (1 - s) * (1 - 2 * s)  # g'''
    np.testing.assert_allclose(derivative, 0.5 * third * v, rtol=1e-5, atol=1e-9)
    assert np.abs(derivative).max() > 1e-3


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_newton_arrives_from_anywhere_and_saturated_data_stay_finite(link):
    X = np.linspace(-1, 1, 12)[:, None]
    y = (X[:, 0] > 0).astype(int)
    for variance in (1.0, 1e4, 1e10):
        for Z in (X[::2], None):
            posterior = vi_taylor.fit(
                Data(X, y), Prior(variance, np.ones(1), 0.0, 1e-3, Z), vi_taylor.TaylorOptions(likelihood=link)
            )
            assert np.isfinite(posterior.elbo)
            assert np.isfinite(posterior.latent_var).all()
            assert (posterior.latent_var >= 0).all()
    y[3] = 1  # a wrong label
    posterior = vi_taylor.fit(
        Data(X, y), Prior(1e6, np.ones(1), 0.0, 1e-3, X[::2]), vi_taylor.TaylorOptions(likelihood=link)
    )
    assert posterior.converged


def test_learning_comes_near_the_bounds_own_parameters(make_problem):
    p = vars(make_problem(n=60, m=6, noise=0.1))
    posterior = vi_taylor.fit(*binary(vi_taylor.TaylorOptions, **p, learn=("variance", "lengthscales"), tolerance=1e-5))
    assert posterior.converged
    assert posterior.elbo > vi_taylor.fit(*binary(vi_taylor.TaylorOptions, **p)).elbo
    other = vi_jj.fit_full(*binary(vi_jj.JJFullOptions, **p, learn=("variance", "lengthscales"), tolerance=1e-9))
    # two approximations of one evidence
    assert abs(posterior.elbo - other.elbo) < 0.1 * abs(other.elbo)
    # stationary at held xi, to what stops the alternation
    got = vi_taylor.gradients(posterior)
    assert abs(got.variance * posterior.prior.hyper.variance) < 0.2
    with pytest.raises(ValueError, match="learn: found 'Z'"):
        vi_taylor.fit(*binary(vi_taylor.TaylorOptions, **p, learn=("Z",)))
    with pytest.raises(ValueError, match="likelihood: found 'softmax'"):
        vi_taylor.fit(*binary(vi_taylor.TaylorOptions, **p, likelihood="softmax"))


def test_predictions_do_not_depend_on_blocks(make_problem, rng):
    test = rng.normal(size=(30, 2))
    for link in ("logit", "probit"):
        posterior = vi_taylor.fit(*model_values(make_problem()), vi_taylor.TaylorOptions(likelihood=link))
        left, right = vi_taylor.predict(posterior, test), vi_taylor.predict(posterior, test, block_size=7)
        np.testing.assert_allclose(left.probabilities, right.probabilities, rtol=0, atol=1e-12)
