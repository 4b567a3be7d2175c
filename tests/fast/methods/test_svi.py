"""svi: expectations, the bound and its derivatives, AdaDelta, the batch maximum."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from fast.core.inputs import hyper
from fast.core.values import Data, Prior
from fast.likelihood.logit import expected_log_logit
from fast.methods import svi, vi_jj
from fast.one_latent.explicit_q import batch_bound, covariance_from_factor
from fast.one_latent.links import link_of
from fast.one_latent.stochastic import Kernel
from fast.solve.ada_delta import AdaDeltaState, ada_delta_step
from in_every_run import others_slow
from values_given import binary, model_values


@pytest.mark.parametrize("mean", others_slow([-300.0, -4.0, 0.0, 0.7, 30.0], lambda mean: mean in (-300.0, 0.7, 30.0)))
@pytest.mark.parametrize("var", [1e-35, 1e-4, 0.3, 40.0, 1e4])
@pytest.mark.verifies("izmailov2016", "u3.2-quadrature", route="mpmath")
def test_expectations_are_right_to_twelve_digits(mean, var):
    got = expected_log_logit(np.array([1.0, -1.0]), np.array([mean, -mean]), np.array([var, var]))
    with mpmath.workdps(30):
        s, m = mpmath.sqrt(mpmath.mpf(var)), mpmath.mpf(mean)
        ends = sorted(
            {m + s * k for k in (-30, -15, -8, -4, -2, 0, 2, 4, 8, 15, 30)} | {mpmath.mpf(k) for k in (-9, 0, 9)}
        )
        ends = [e for e in ends if abs(e - m) <= 30 * s]
        # in units of e^-m where m > 0, so that the absolute accuracy of the rule is a relative one
        unit = mpmath.exp(-max(m, 0)) if mean > 0 and var < 1 else mpmath.mpf(1)
        integrands = (
            lambda z: -mpmath.log1p(mpmath.exp(-z)) / unit,
            lambda z: 1 / (1 + mpmath.exp(z)) / unit,
        )
        expected = []
        for g in integrands:
            density = lambda z, g=g: g(z) * mpmath.exp(-(((z - m) / s) ** 2) / 2) / s / mpmath.sqrt(2 * mpmath.pi)  # noqa: E731
            expected.append(float(mpmath.quad(density, ends) * unit))
    limit = 1e-12 * (1 + abs(mean) / 100)
    for value, derivative in ((got.value[0], got.derivative[0]), (got.value[1], -got.derivative[1])):
        np.testing.assert_allclose(value, expected[0], rtol=limit, atol=0)
        np.testing.assert_allclose(derivative, expected[1], rtol=limit, atol=1e-280)


@pytest.mark.verifies("izmailov2016", "u3.2-quadrature", route="differences in mean and variance")
def test_derivative_and_curvature_are_derivatives_of_the_value():
    m, v, y = np.array([-2.0, 0.3, 5.0]), np.array([0.5, 30.0, 4.0]), np.array([1.0, -1.0, 1.0])
    got, h = expected_log_logit(y, m, v), 1e-3

    def value(dm, dv=0.0):
        return expected_log_logit(y, m + dm, v + dv).value

    # fourth order: h^4 and 1e-15 / h^2
    first = (8 * (value(h) - value(-h)) - value(2 * h) + value(-2 * h)) / (12 * h)
    np.testing.assert_allclose(got.derivative, first, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(got.curvature, (value(0, h) - value(0, -h)) / h, rtol=1e-6)  # Price's theorem, h^2


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("smoothness", [None, 1.5])
@pytest.mark.verifies("izmailov2016", "11", "u3.2-svi-gradient", "u5.1-cholesky", route="dense algebra; differences")
def test_the_bound_and_its_derivatives(make_problem, dense_sparse, link, smoothness, rng):
    p = make_problem(n=9, m=3, jitter=1e-2)
    p.y = np.where(p.y == 1, 1.0, -1.0)
    mu, C = rng.normal(size=3), np.tril(rng.normal(size=(3, 3))) + 1.5 * np.eye(3)

    def value(mean=mu, chol=C, learning=False, **changed):
        h = {"variance": p.variance, "lengthscales": p.lengthscales, "noise": p.noise} | changed
        checked = hyper(h["variance"], h["lengthscales"], h["noise"], p.jitter, 2, smoothness)
        return batch_bound(Kernel(checked, p.Z), link_of(link).expected, p.X, p.y, 3.0, mean, chol, learning=learning)

    got = value(learning=True)
    if smoothness is None:
        dense = dense_sparse(p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z)
        Sigma = covariance_from_factor(C)
        np.testing.assert_allclose(Sigma, C @ C.T, rtol=1e-15)
        var = np.diag(dense.K_tilde + dense.kappa @ Sigma @ dense.kappa.T)
        kl = 0.5 * (
            np.trace(dense.inverse @ Sigma) + mu @ dense.inverse @ mu - 3
            + np.linalg.slogdet(dense.K_ZZ)[1] - np.linalg.slogdet(Sigma)[1]
        )  # fmt: skip
        # Gauss-Hermite of 200 nodes: good to 1e-9 at these variances
        x, w = np.polynomial.hermite_e.hermegauss(200)
        f = p.y[:, None] * (dense.kappa @ mu)[:, None] + np.sqrt(var)[:, None] * x
        from scipy.special import log_ndtr

        g = -np.logaddexp(0, -f) if link == "logit" else log_ndtr(f)
        np.testing.assert_allclose(got.value, 3 * (g @ w).sum() / np.sqrt(2 * np.pi) - kl, rtol=1e-8)
    h = 1e-5

    def derivative(f):
        return (f(h).value - f(-h).value) / (2 * h)

    def agree(left, right):  # h^2 f''' and 1e-14 / h
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-7)

    for i in range(3):
        agree(got.inducing_mean[i], derivative(lambda t, i=i: value(mean=mu + t * np.eye(3)[i])))
        for j in range(i + 1):
            unit = np.zeros((3, 3))
            unit[i, j] = 1.0
            agree(got.chol_cov[i, j], derivative(lambda t, u=unit: value(chol=C + t * u)))
    assert (np.triu(got.chol_cov, 1) == 0).all()
    agree(got.prior.variance, derivative(lambda t: value(variance=p.variance + t)))
    agree(got.prior.noise, derivative(lambda t: value(noise=p.noise + t)))
    for j in range(2):
        agree(
            got.prior.lengthscales[j], derivative(lambda t, j=j: value(lengthscales=p.lengthscales + t * np.eye(2)[j]))
        )


@pytest.mark.verifies("izmailov2016", "u5.1-adadelta", route="Zeiler's algorithm, one number at a time")
def test_ada_delta_takes_zeilers_steps(rng):
    gradients = rng.normal(size=(20, 3)) * np.array([1e-4, 1.0, 1e4])
    state = AdaDeltaState.start(3)
    E_g, E_s = [0.0] * 3, [0.0] * 3
    for g in gradients:
        step, state = ada_delta_step(g, state, 0.7)
        for k in range(3):
            E_g[k] = 0.95 * E_g[k] + 0.05 * g[k] ** 2
            bare = (E_s[k] + 1e-6) ** 0.5 / (E_g[k] + 1e-6) ** 0.5 * g[k]
            E_s[k] = 0.95 * E_s[k] + 0.05 * bare**2
            np.testing.assert_allclose(step[k], 0.7 * bare, rtol=1e-13)


@pytest.mark.verifies("izmailov2016", "u3.2-svi", route="the recursion written out")
def test_listed_batches_are_followed_step_by_step(make_problem, rng):
    p = make_problem(n=20, m=3)
    batches = [rng.integers(0, 20, 6) for _ in range(4)]
    run = svi.fit_stochastic(*model_values(p), svi.SVISteps(batches=batches, learn=("variance",)))
    y = np.where(p.y == 1, 1.0, -1.0)
    vector, E_g, E_s = np.concatenate([np.zeros(3), np.eye(3)[np.tril_indices(3)], [np.log(p.variance)]]), 0.0, 0.0
    for batch in batches:
        C = np.zeros((3, 3))
        C[np.tril_indices(3)] = vector[3:9]
        kernel = Kernel(hyper(np.exp(vector[9]), p.lengthscales, p.noise, p.jitter, 2), p.Z)
        result = batch_bound(kernel, expected_log_logit, p.X[batch], y[batch], 20 / 6, vector[:3], C, learning=True)
        by_log = result.prior.variance * np.exp(vector[9])
        g = np.concatenate([result.inducing_mean, result.chol_cov[np.tril_indices(3)], [by_log]])
        E_g = 0.95 * E_g + 0.05 * g**2
        bare = np.sqrt(E_s + 1e-6) / np.sqrt(E_g + 1e-6) * g
        E_s = 0.95 * E_s + 0.05 * bare**2
        vector = vector + bare
    # the same numbers in another order
    np.testing.assert_allclose(run.inducing_mean, vector[:3], rtol=1e-11)
    np.testing.assert_allclose(run.chol_cov[np.tril_indices(3)], vector[3:9], rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(run.hyper.variance, np.exp(vector[9]), rtol=1e-12)
    assert run.iterations == 4


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.verifies("izmailov2016", "u5.1-lbfgs-elbo", route="SciPy on the bound over mu and C")
def test_the_batch_maximum_is_the_maximum_over_q(make_problem, link):
    p = make_problem(m=3)
    posterior, _ = svi.fit(*model_values(p), svi.SVIOptions(likelihood=link))
    y = np.where(p.y == 1, 1.0, -1.0)
    kernel = Kernel(hyper(p.variance, p.lengthscales, p.noise, p.jitter, 2), p.Z)
    lower = np.tril_indices(3)

    def objective(vector):
        C = np.zeros((3, 3))
        C[lower] = vector[3:]
        at = batch_bound(kernel, link_of(link).expected, p.X, y, 1.0, vector[:3], C, learning=False)
        return -at.value, -np.concatenate([at.inducing_mean, at.chol_cov[lower]])

    start = np.concatenate([np.zeros(3), np.eye(3)[lower]])
    end = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    # at a maximum: values to second order, arguments to the gradient over the curvature
    np.testing.assert_allclose(posterior.elbo, -end.fun, rtol=1e-10)
    np.testing.assert_allclose(posterior.inducing_mean, end.x[:3], rtol=1e-5, atol=1e-7)
    C = np.zeros((3, 3))
    C[lower] = end.x[3:]
    np.testing.assert_allclose(posterior.inducing_cov, C @ C.T, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("full", [False, True])
def test_the_bound_of_jaakkola_and_jordan_lies_below(make_problem, full):
    for log_variance in (-3.0, 0.5, 4.0):
        p = vars(make_problem(variance=np.exp(log_variance), full=full))
        assert vi_jj.fit(*binary(vi_jj.JJOptions, **p)).elbo <= svi.fit(*binary(svi.SVIOptions, **p))[0].elbo + 1e-12


@pytest.mark.parametrize("full", [False, True])
def test_learning_ends_at_a_stationary_point(make_problem, full):
    p = vars(make_problem(n=40, m=4, noise=0.1, full=full))
    posterior, learned = svi.fit(*binary(svi.SVIOptions, **p, learn=("variance",), tolerance=1e-9))
    derivative = svi.gradients(posterior).variance * learned.variance
    assert abs(derivative) < 1e-3  # L-BFGS-B on 15 parameters
    assert posterior.elbo > svi.fit(*binary(svi.SVIOptions, **p))[0].elbo - 1e-9


def test_steps_come_near_the_maximum_and_predictions_follow(make_problem, rng):
    p = vars(make_problem(n=60, m=4, jitter=1e-3))
    run = svi.fit_stochastic(*binary(svi.SVISteps, **p, batch_size=60, n_steps=1500))
    best, _ = svi.fit(*binary(svi.SVIOptions, **p))
    total = svi.bound(run, p["X"], p["y"])
    assert total < best.elbo + 1e-9
    assert total > best.elbo - 0.5  # AdaDelta's steps do not vanish
    np.testing.assert_allclose(total, svi.bound(run, p["X"], p["y"], block_size=7), rtol=1e-12)
    test = rng.normal(size=(20, 2))
    near, far = svi.predict_run(run, test), svi.predict(best, test)
    assert np.abs(near.probabilities - far.probabilities).max() < 0.1
    np.testing.assert_allclose(svi.predict_run(run, test, block_size=3).latent_var, near.latent_var, rtol=1e-12)


def test_saturated_and_refused(make_problem):
    p = vars(make_problem())
    with pytest.raises(ValueError, match="Z: found None"):
        svi.fit_stochastic(*binary(svi.SVISteps, **{**p, "Z": None}))
    with pytest.raises(ValueError, match="likelihood: found 'softmax'"):
        svi.fit(*binary(svi.SVIOptions, **p, likelihood="softmax"))
    with pytest.raises(ValueError, match="learn: found 'Z'"):
        svi.fit(*binary(svi.SVIOptions, **p, learn=("Z",)))
    X = np.linspace(-1, 1, 12)[:, None]
    posterior, _ = svi.fit(
        Data(X, (X[:, 0] > 0).astype(int)), Prior(1e8, np.ones(1), 0.0, 1.0, X[::2]), svi.SVIOptions(tolerance=1e-6)
    )
    assert np.isfinite(posterior.elbo)
    far = expected_log_logit(np.ones(2), np.array([-800.0, 800.0]), np.array([1e-3, 1e-3]))
    np.testing.assert_allclose(far.value, [-800.0, 0.0], rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(far.derivative, [1.0, 0.0], rtol=1e-12, atol=1e-300)
