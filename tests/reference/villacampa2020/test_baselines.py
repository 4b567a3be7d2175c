"""The baselines of appendix C: conditioning of a joint Gaussian, EP, a mode by another way, differences, refusals."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import block_diag
from scipy.optimize import approx_fprime, minimize
from scipy.stats import multivariate_normal, norm

from reference.common.priors import Prior
from reference.villacampa2020.hyper import prior_matrices
from reference.villacampa2020.label_regression import (
    label_regression_baseline,
    regression_log_evidence,
)
from reference.villacampa2020.laplace_sparse import (
    fitc_prior_covariance,
    laplace_baseline,
    laplace_mode,
    predict_laplace,
    softmax_curvature_root,
    softmax_log_gradient,
    softmax_log_likelihood,
)
from reference.villacampa2020.posterior import posterior_moments


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def joint(s, k, X_new):
    """Covariance of (f̄, targets, f at X_new) of class k from FITC's definition: all given f̄ are independent."""
    X = np.vstack([s.X, X_new])
    A = np.linalg.solve(s.K_ZZ[k], s.kernel(s.Z[k], X, k)).T
    low = A @ s.K_ZZ[k] @ A.T
    low[np.diag_indices(len(X))] = s.variance[k] + s.noise[k]
    cross = A @ s.K_ZZ[k]
    return np.block([[s.K_ZZ[k], cross.T], [cross, low]])


def given(cov, observed, wanted, value):
    """Moments of a block of a joint Gaussian of mean zero given another."""
    gain = np.linalg.solve(cov[np.ix_(observed, observed)], cov[np.ix_(observed, wanted)]).T
    return gain @ value, cov[np.ix_(wanted, wanted)] - gain @ cov[np.ix_(observed, wanted)]


@pytest.mark.verifies("villacampa2020", "u46-label-regression", route="conditioning of the joint Gaussian")
def test_regression_on_labels_is_conditioning(model, prior):
    s = model
    fit = label_regression_baseline(s.X, s.y, prior)
    assert fit.converged
    assert fit.residual < 1e-8
    assert fit.iterations == 0
    observed, inducing, total = np.arange(s.m, s.m + s.n), np.arange(s.m), 0.0
    for k in range(s.C):
        t = np.where(s.y == k, 1.0, -1.0)
        cov = joint(s, k, np.zeros((0, s.d)))
        mean, covariance = given(cov, observed, inducing, t)
        # matrices of 7 x 7 with conditions below 1e4
        np.testing.assert_allclose(fit.posterior.mean[k], mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(fit.posterior.cov[k], covariance, rtol=1e-8, atol=1e-11)
        A = s.upsilon[k]
        np.testing.assert_allclose(fit.latent_mean[:, k], A @ mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(fit.latent_var[:, k], s.cond_var[k] + np.diag(A @ covariance @ A.T), rtol=1e-9)
        total += multivariate_normal.logpdf(t, np.zeros(s.n), cov[np.ix_(observed, observed)])
    assert fit.log_evidence == pytest.approx(total, rel=1e-11, abs=0)


def tilted_moments(centre, var, target, target_var):
    """Mean and variance of N(w|centre, var) N(target|w, target_var), by quadrature."""

    def tilted(w, power):
        return w**power * norm.pdf(w, centre, np.sqrt(var)) * norm.pdf(target, w, np.sqrt(target_var))

    ends = centre - 12.0 * np.sqrt(var), centre + 12.0 * np.sqrt(var)
    moments = [quad(tilted, *ends, args=(power,), epsabs=1e-14, epsrel=1e-12)[0] for power in range(3)]
    mean = moments[1] / moments[0]
    return mean, moments[2] / moments[0] - mean**2


@pytest.mark.verifies("villacampa2020", "u46-label-regression", route="one EP update of each factor, by quadrature")
def test_expectation_propagation_on_targets_is_exact_regression(model, prior):
    """From factors of no special kind: cavity, tilted moments by quadrature, division."""
    s, fit = model, label_regression_baseline(model.X, model.y, prior)
    q = posterior_moments(s.c1, s.c2, s.upsilon, s.K_ZZ)
    for i, k in ((0, 0), (3, 2)):
        target = 1.0 if s.y[i] == k else -1.0
        p, v = s.upsilon[k, i] @ q.mean[k], s.upsilon[k, i] @ q.cov[k] @ s.upsilon[k, i]
        left = 1.0 / (1.0 / v - s.c1[i, k])
        centre = left * (p / v - s.c2[i, k])
        mean, var = tilted_moments(centre, left, target, s.cond_var[k, i])
        # the quadrature's 1e-12, multiplied by what the division cancels
        assert fit.sites.c1[i, k] == pytest.approx(1.0 / var - 1.0 / left, rel=1e-8, abs=0)
        assert fit.sites.c2[i, k] == pytest.approx(mean / var - centre / left, rel=1e-8, abs=1e-9)


@pytest.mark.verifies("villacampa2020", "u46-label-regression", route="finite differences")
def test_derivatives_of_the_regression_evidence(model, prior):
    s, h = model, 1e-5
    gradients = label_regression_baseline(s.X, s.y, prior).gradients
    for name in ("variance", "lengthscales", "noise", "Z"):
        wanted = np.zeros_like(getattr(prior, name))
        for place in np.ndindex(wanted.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = np.array(getattr(prior, name))
                moved[place] += sign * h
                ends.append(regression_log_evidence(s.y, prior_matrices(s.X, prior._replace(**{name: moved}))))
            wanted[place] = (ends[0] - ends[1]) / (2 * h)
        # h² times third derivatives, and 1e-14/h of rounding
        np.testing.assert_allclose(gradients[name], wanted, rtol=1e-6, atol=1e-7)


def test_hyper_parameters_of_the_regression_climb(model, prior):
    s, learn = model, ("variance", "lengthscales", "noise")
    start = label_regression_baseline(s.X, s.y, prior).log_evidence
    slow = label_regression_baseline(s.X, s.y, prior, learn=learn, optimizer="adaptive", n_steps=3, trace=True)
    assert slow.trace[0] == start
    assert len(slow.trace) == 3
    assert slow.iterations == 3
    assert not slow.converged
    # the first two steps by hand: rate 0.01 times the derivative by the logarithm, then 0.0102 where the sign is kept
    there = prior
    for rate in (0.01, 0.0102):
        derivatives = label_regression_baseline(s.X, s.y, there).gradients
        moved = {f: getattr(there, f) * np.exp(rate * derivatives[f] * getattr(there, f)) for f in learn}
        there = there._replace(**moved)
    assert slow.trace[2] == pytest.approx(label_regression_baseline(s.X, s.y, there).log_evidence, rel=1e-12, abs=0)
    assert np.all(np.diff(slow.trace) > 0.0)
    heard = []
    label_regression_baseline(s.X, s.y, prior, learn="noise", optimizer="adaptive", n_steps=2, callback=heard.append)
    assert [one.iteration for one in heard] == [1, 2]
    best = label_regression_baseline(s.X, s.y, prior, learn="noise", trace=True)
    assert best.converged
    assert best.log_evidence > start
    assert best.trace[-1] == pytest.approx(best.log_evidence, rel=1e-9)
    np.testing.assert_allclose(best.gradients["noise"] * best.prior.noise, 0.0, atol=1e-4)  # or at a bound


def test_shared_hyper_parameters_stay_shared(model):
    s = model
    alike = Prior(np.full(3, 2.0), np.full((3, 2), 0.9), np.full(3, 0.1), np.full(3, 1e-2), np.tile(s.Z[:1], (3, 1, 1)))
    fit = label_regression_baseline(s.X, s.y, alike, shared=True, learn=("noise", "Z"), optimizer="adaptive", n_steps=2)
    for part in fit.prior:
        np.testing.assert_array_equal(part, np.broadcast_to(part[:1], part.shape))
    assert not np.array_equal(fit.prior.Z, alike.Z)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("optimizer", {"learn": ("noise",), "optimizer": "adam"}),
        ("rate", {"rate": 0.0}),
        ("n_steps", {"n_steps": 3}),
        ("n_steps", {"learn": ("noise",), "n_steps": 0}),
        ("learn_tolerance", {"learn_tolerance": -1.0}),
        ("learn", {"learn": ("jitter",)}),
        ("callback", {"callback": 3}),
    ],
)
def test_regression_refuses_by_name(model, prior, name, options):
    with pytest.raises(ValueError, match=rf"^{name}: found"):
        label_regression_baseline(model.X, model.y, prior, **options)


def test_a_target_without_noise_is_refused(model):
    s = model
    silent = Prior(s.variance, s.lengthscales, np.zeros(3), np.zeros(3), np.stack([s.X[:2]] * 3))
    with pytest.raises(ValueError, match=r"^noise: found"):
        label_regression_baseline(s.X, s.y, silent)


def dense(s):
    """FITC's covariance of all latent values, class-major, from its definition."""
    return block_diag(*(joint(s, k, np.zeros((0, s.d)))[s.m :, s.m :] for k in range(s.C)))


def softmax_energy(f, K_inverse, y, C):
    table = f.reshape(C, len(y)).T
    shifted = table - np.max(table, axis=1, keepdims=True)
    log_pi = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    return 0.5 * f @ K_inverse @ f - np.sum(log_pi[np.arange(len(y)), y])


def energy_gradient(f, K_inverse, y, C):
    table = f.reshape(C, len(y)).T
    pi = np.exp(table - np.max(table, axis=1, keepdims=True))
    pi = pi / np.sum(pi, axis=1, keepdims=True)
    return K_inverse @ f + (pi - np.eye(C)[y]).T.ravel()


def energy_curvature(f, K_inverse, y, C, h=1e-5):
    """Central differences of the derivative."""
    columns = [
        (energy_gradient(f + h * e, K_inverse, y, C) - energy_gradient(f - h * e, K_inverse, y, C)) / (2 * h)
        for e in np.eye(len(f))
    ]
    return 0.5 * (np.array(columns) + np.array(columns).T)


@pytest.mark.verifies("villacampa2020", "u47-laplace", route="minimisation with K inverted, and differences")
def test_laplace_finds_the_mode_and_its_curvature(model, prior):
    s, fit = model, laplace_baseline(model.X, model.y, prior)
    K = dense(s)
    inverse = np.linalg.inv(K)
    optimum = minimize(
        softmax_energy,
        np.ones(s.C * s.n),
        (inverse, s.y, s.C),
        jac=energy_gradient,
        method="BFGS",
        options={"gtol": 1e-9},
    )
    assert fit.mode.converged
    # BFGS stops at a gradient of 1e-9 (or where the values are rounding), K has norms of order one
    np.testing.assert_allclose(fit.mode.latent_values, optimum.x.reshape(s.C, s.n).T, rtol=1e-5, atol=1e-6)
    f = fit.mode.latent_values.T.ravel()
    np.testing.assert_allclose(energy_gradient(f, inverse, s.y, s.C), 0.0, atol=1e-9)  # K⁻¹ f with conditions of 1e3
    np.testing.assert_allclose(fit.mode.derivative.T.ravel(), inverse @ f, rtol=1e-7, atol=1e-9)
    curvature = energy_curvature(f, inverse, s.y, s.C)
    cov = np.linalg.inv(curvature)
    blocks = cov.reshape(s.C, s.n, s.C, s.n)
    for i in range(s.n):  # differences of 1e-5: 1e-9 or so
        np.testing.assert_allclose(fit.latent_cov[i], blocks[:, i, :, i], rtol=1e-6, atol=1e-8)
    value = -softmax_energy(f, inverse, s.y, s.C)
    value += 0.5 * np.linalg.slogdet(cov)[1] - 0.5 * np.linalg.slogdet(K)[1]
    assert fit.log_evidence == pytest.approx(value, rel=1e-8, abs=0)
    np.testing.assert_allclose(np.sum(fit.pi, axis=1), 1.0, rtol=1e-14)


@pytest.mark.verifies("villacampa2020", "u47-laplace", route="the joint Gaussian of latent and inducing values")
def test_laplace_carries_latents_over_to_other_values_by_conditioning(model, prior):
    """E and Cov of f̄, f_* are those of the prior given f, with f ~ q put in: gain, and what is left plus its spread."""
    s, fit = model, laplace_baseline(model.X, model.y, prior)
    X_test = np.vstack([s.X[:1] + 0.2, s.X[1:2]])  # an input of the data too: another draw of its noise
    inverse = np.linalg.inv(dense(s))
    f = fit.mode.latent_values.T.ravel()
    cov = np.linalg.inv(energy_curvature(f, inverse, s.y, s.C))
    got = predict_laplace(fit, s.X, X_test, prior)
    gains, left = [], []
    size = s.m + len(X_test)
    for k in range(s.C):
        J = joint(s, k, X_test)
        observed, wanted = np.arange(s.m, s.m + s.n), np.r_[0 : s.m, s.m + s.n : len(J)]
        mean, rest = given(J, observed, wanted, np.eye(s.n))
        gains.append(mean)
        left.append(rest)
    gain = block_diag(*gains)
    mean = (gain @ f).reshape(s.C, size)
    whole = (block_diag(*left) + gain @ cov @ gain.T).reshape(s.C, size, s.C, size)
    np.testing.assert_allclose(fit.inducing.mean, mean[:, : s.m], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(got.latent_mean, mean[:, s.m :].T, rtol=1e-8, atol=1e-9)
    for k in range(s.C):  # the curvature's differences
        np.testing.assert_allclose(fit.inducing.cov[k], whole[k, : s.m, k, : s.m], rtol=1e-6, atol=1e-8)
    for j in range(len(X_test)):
        np.testing.assert_allclose(got.latent_cov[j], whole[:, s.m + j, :, s.m + j], rtol=1e-6, atol=1e-8)


def test_laplace_probabilities_are_means_of_the_softmax(model, prior, rng):
    s, fit = model, laplace_baseline(model.X, model.y, prior)
    got = predict_laplace(fit, s.X, s.X[:1] + 0.1, prior)
    f = rng.multivariate_normal(got.latent_mean[0], got.latent_cov[0], 200_000)
    pi = np.exp(f - np.max(f, axis=1, keepdims=True))
    pi = pi / np.sum(pi, axis=1, keepdims=True)
    z = (np.mean(pi, axis=0) - got.probability[0]) / (np.std(pi, axis=0) / np.sqrt(len(pi)))
    assert np.max(np.abs(z)) < norm.isf(0.5e-4 / 3)  # two-sided, 1e-4 over three statistics
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=1e-14)  # one rule for all classes
    coarse = predict_laplace(fit, s.X, s.X[:1] + 0.1, prior, 3)
    assert np.max(np.abs(coarse.probability - got.probability)) > 1e-8
    nobody = predict_laplace(fit, s.X, np.zeros((0, s.d)), prior)
    assert nobody.probability.shape == (0, 3)
    assert nobody.latent_cov.shape == (0, 3, 3)


def test_softmax_derivative_and_curvature(rng):
    f, y = 2.0 * rng.normal(size=(4, 3)), np.array([0, 2, 1, 1])

    def derivative(x):
        return softmax_log_gradient(x.reshape(4, 3), y).ravel()

    numeric = approx_fprime(f.ravel(), lambda x: softmax_log_likelihood(x.reshape(4, 3), y), 1e-6)
    np.testing.assert_allclose(derivative(f.ravel()), numeric, atol=1e-5)  # forward differences
    W = -np.array([(derivative(f.ravel() + 1e-5 * e) - derivative(f.ravel() - 1e-5 * e)) / 2e-5 for e in np.eye(12)])
    order = np.arange(12).reshape(4, 3).T.ravel()  # class-major
    S = softmax_curvature_root(f)
    np.testing.assert_allclose(S @ S.T, W[np.ix_(order, order)], atol=1e-9)


def test_laplace_says_when_it_gives_up_and_stands_large_variances(model, prior):
    s = model
    early = laplace_baseline(s.X, s.y, prior, max_iterations=1)
    assert not early.mode.converged
    assert early.mode.iterations == 1
    wide = prior._replace(variance=np.full(3, 1e6), jitter=np.full(3, 1e-2))
    fit = laplace_baseline(s.X, s.y, wide)
    assert fit.mode.converged
    assert np.isfinite(fit.log_evidence)
    K = fitc_prior_covariance(prior_matrices(s.X, prior))
    np.testing.assert_allclose(K, dense(s), rtol=1e-9, atol=1e-11)
    assert laplace_mode(K, s.y, 3).residual <= 1e-10
    for name, bad in (("tolerance", {"tolerance": 0.0}), ("max_iterations", {"max_iterations": 0})):
        with pytest.raises(ValueError, match=f"^{name}: found"):
            laplace_baseline(s.X, s.y, prior, **bad)
