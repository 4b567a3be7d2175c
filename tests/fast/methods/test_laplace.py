"""Laplace's approximation of the softmax model and LA-TKP, against dense algebra, finite differences and optimisers."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import logsumexp

from fast.core.declare import Options
from fast.core.values import Data, Prior
from fast.full_classes import prior as multiclass_prior
from fast.full_classes import softmax_laplace
from fast.full_classes.predict import softmax_probabilities
from fast.methods import laplace, laplace_sparse, nested_ep
from values_given import classes

PAPER = "riihimaki2013"


def toy(n=8, C=3, *, seed=2, noise=0.05):
    """Arguments of `fit`, one parameter vector a class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.append(np.arange(C), rng.integers(0, C, n - C))
    lengths = 0.8 + 0.2 * np.arange(C)[:, None] * np.ones(2)
    return X, y, C, np.linspace(1.0, 4.0, C), lengths, np.full(C, noise), np.full(C, 1e-6)


def log_likelihood(f, y):
    """sum_i f_iy - log sum_k exp f_ik for f (n, C)."""
    return float((f[np.arange(len(y)), y] - logsumexp(f, axis=1)).sum())


def dense_W(pi):
    """W, class-major."""
    n, C = pi.shape
    W = np.zeros((n * C, n * C))
    for i in range(n):
        index = np.arange(C) * n + i
        W[np.ix_(index, index)] = np.diag(pi[i]) - np.outer(pi[i], pi[i])
    return W


@pytest.mark.verifies(PAPER, "1", "u4.1-W", route="central differences of log-sum-exp")
def test_softmax_terms_are_value_gradient_and_hessian(rng):
    f, y = 2.0 * rng.normal(size=(4, 3)), np.array([0, 2, 1, 1])
    result = softmax_laplace.softmax_terms(f, y)
    np.testing.assert_allclose(result.value, log_likelihood(f, y), rtol=1e-13)  # sums of four
    for i in range(4):
        for k in range(3):
            step = np.zeros((4, 3))
            step[i, k] = 1e-5
            up, down = softmax_laplace.softmax_terms(f + step, y), softmax_laplace.softmax_terms(f - step, y)
            # central differences of step 1e-5: 1e-10, rounding 1e-11
            derivative = (log_likelihood(f + step, y) - log_likelihood(f - step, y)) / 2e-5
            np.testing.assert_allclose(result.derivative[i, k], derivative, rtol=1e-8, atol=1e-9)
            hessian = -(up.derivative - down.derivative)[i] / 2e-5
            W_row = result.pi[i, k] * (np.eye(3)[k] - result.pi[i])
            np.testing.assert_allclose(W_row, hessian, rtol=1e-8, atol=1e-9)


@pytest.mark.verifies(PAPER, "u4.1-newton", route="dense (K^-1 + W)^-1 (W f + grad)")
def test_a_newton_step_is_the_dense_one(rng):
    prior = multiclass_prior.prepare(*classes(Options, *toy())[:2])
    f = rng.normal(size=(8, 3))
    terms = softmax_laplace.softmax_terms(f, prior.y)
    result = softmax_laplace.newton_step(prior, f, terms)
    K, W = block_diag(*[prior.K(k) for k in range(3)]), dense_W(terms.pi)
    direct = np.linalg.solve(np.linalg.inv(K) + W, W @ f.T.ravel() + terms.derivative.T.ravel())
    np.testing.assert_allclose(result.mean.T.ravel(), direct, rtol=1e-10, atol=1e-11)  # condition below 1e3


@pytest.mark.verifies(PAPER, "u4.1-laplace", "u4.1-logz", route="stationarity, dense Hessian, determinant")
def test_mode_covariance_and_evidence_are_those_of_dense_algebra():
    posterior = laplace.fit(*classes(laplace.LaplaceOptions, *toy()))
    prior = posterior.prior
    assert posterior.converged
    K = block_diag(*[prior.K(k) for k in range(3)])
    mode = softmax_laplace.find_mode(prior, tolerance=1e-12, max_iterations=50)
    f = mode.latent
    pi = np.exp(f - logsumexp(f, axis=1)[:, None])
    gradient = np.eye(3)[prior.y] - pi - np.linalg.solve(K, f.T.ravel()).reshape(3, 8).T
    np.testing.assert_allclose(gradient, 0.0, rtol=0, atol=1e-9)  # mode to 1e-12, condition of K 1e2
    W = dense_W(pi)
    direct = log_likelihood(f, prior.y) - 0.5 * f.T.ravel() @ np.linalg.solve(K, f.T.ravel())
    direct -= 0.5 * np.linalg.slogdet(np.eye(24) + K @ W)[1]
    values = [softmax_laplace.laplace_log_evidence(mode), posterior.log_evidence]
    np.testing.assert_allclose(values, direct, rtol=1e-11)
    S = np.linalg.inv(np.linalg.inv(K) + W)
    for i in range(8):
        index = np.arange(3) * 8 + i
        np.testing.assert_allclose(posterior.latent_cov[i], S[np.ix_(index, index)], rtol=1e-9, atol=1e-11)


def test_gradients_are_total_through_the_mode_too():
    X, y, C, variance, lengths, noise, jitter = toy()
    gradients = laplace.gradients(
        laplace.fit(Data(X, y, C), Prior(variance, lengths, noise, jitter), laplace.LaplaceOptions(tolerance=1e-13))
    )
    for k in range(C):
        e = 1e-4 * np.eye(C)[k]
        values = [
            laplace.fit(
                Data(X, y, C), Prior(variance + s * e, lengths, noise, jitter), laplace.LaplaceOptions(tolerance=1e-13)
            ).log_evidence
            for s in (1, -1)
        ]
        # central differences of step 1e-4: error 1e-8
        np.testing.assert_allclose(gradients.variance[k], (values[0] - values[1]) / 2e-4, rtol=1e-5, atol=1e-7)
        values = [
            laplace.fit(
                Data(X, y, C), Prior(variance, lengths, noise + s * e, jitter), laplace.LaplaceOptions(tolerance=1e-13)
            ).log_evidence
            for s in (1, -1)
        ]
        np.testing.assert_allclose(gradients.noise[k], (values[0] - values[1]) / 2e-4, rtol=1e-5, atol=1e-6)
        for j in range(2):
            step = np.zeros_like(lengths)
            step[k, j] = 1e-4
            values = [
                laplace.fit(
                    Data(X, y, C),
                    Prior(variance, lengths + s * step, noise, jitter),
                    laplace.LaplaceOptions(tolerance=1e-13),
                ).log_evidence
                for s in (1, -1)
            ]
            derivative = (values[0] - values[1]) / 2e-4
            np.testing.assert_allclose(gradients.lengthscales[k, j], derivative, rtol=1e-5, atol=1e-6)


@pytest.mark.verifies(PAPER, "23", "u4.1.1-la-tkp", route="fits of the extended data set, point appended as a datum")
def test_tkp_scores_are_ratios_of_evidences_of_extended_data():
    X, y, C, variance, lengths, noise, _ = toy()
    # jitter 0: the extended covariance is then that of n + 1 data
    args = (variance, lengths, noise, np.zeros(C))
    posterior = laplace.fit(Data(X, y, C), Prior(*args))
    point = np.array([0.3, -0.4])
    scores, good = laplace.evidence_ratios(posterior, [row[0] for row in posterior.prior.cross(point[None])])
    assert good
    for k in range(C):
        extended = laplace.fit(Data(np.vstack([X, point]), np.append(y, k), C), Prior(*args))
        # both modes to 1e-10
        np.testing.assert_allclose(scores[k], np.exp(extended.log_evidence - posterior.log_evidence), rtol=1e-9)
    prediction = laplace.predict_tkp(posterior, point[None])
    np.testing.assert_allclose(prediction.scores[0], scores, rtol=1e-12)
    np.testing.assert_allclose(prediction.prediction.probability_mass[0], scores.sum(), rtol=1e-12)
    assert abs(scores.sum() - 1.0) < 0.1
    assert laplace.predict_tkp(posterior, np.empty((0, 2))).scores.shape == (0, 3)


def test_softmax_probabilities_are_those_of_many_draws_and_sum_to_one(rng):
    mean, root = np.array([0.4, -0.8, 0.2]), rng.normal(size=(3, 3))
    cov = root @ root.T + 0.2 * np.eye(3)
    actual = softmax_probabilities(mean[None], cov[None])[0]
    np.testing.assert_allclose(actual.sum(), 1.0, rtol=0, atol=1e-13)  # a mean of 4096 numbers that are one
    draws = mean + rng.normal(size=(200_000, 3)) @ root.T + np.sqrt(0.2) * rng.normal(size=(200_000, 3))
    p = np.exp(draws - logsumexp(draws, axis=1)[:, None])
    z = (p.mean(axis=0) - actual) / (p.std(axis=0) / np.sqrt(len(p)))
    # two-sided level 1e-6 for three means; errors of the rule, below 1e-4, are a tenth of a standard error
    assert np.abs(z).max() < 4.9
    by_nodes = softmax_probabilities(mean[None], cov[None], 60)[0]
    # at variances below 6 the product rule of 60 nodes is good to 1e-5; 4096 points to 1e-4
    np.testing.assert_allclose(actual, by_nodes, rtol=0, atol=2e-4)


def test_probabilities_do_not_depend_on_the_block(rng):
    posterior = laplace.fit(*classes(laplace.LaplaceOptions, *toy()))
    X_test = rng.normal(size=(11, 2))
    for one, other in zip(
        laplace.predict(posterior, X_test), laplace.predict(posterior, X_test, block_size=3), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", ["log variance 8", "duplicates", "c = 20"])
def test_hard_cases_are_finite(case):
    X, y, C, *_ = toy(n=24)
    variance, jitter = 2.0, 0.0
    if case == "log variance 8":
        variance = np.exp(8.0)
    elif case == "duplicates":
        X, y = np.vstack([X, X]), np.append(y, (y + 1) % C)
    else:
        C, y = 20, np.append(np.arange(20), [0, 1, 2, 3])
    posterior = laplace.fit(Data(X, y, C), Prior(variance, [1.5, 1.5], 0.0, jitter, shared=True))
    assert np.isfinite(posterior.latent_mean).all()
    assert np.isfinite(posterior.log_evidence)
    assert posterior.converged == (posterior.residual <= 1e-10)
    assert posterior.residual < 1e-6


def test_a_direction_without_variance_is_refused_by_name():
    with pytest.raises(
        ValueError, match=r"^prediction: covariance of differences\[0\] \(2, 2\): found smallest eigenvalue 0 "
    ):
        softmax_probabilities(np.zeros((1, 3)), np.zeros((1, 3, 3)))


def _exact_mean(variance, y, nodes=60):
    """E[f|y], (C,), of one datum whose latent values are independent, by a Gauss-Hermite rule."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    f = np.stack(np.meshgrid(*[x] * 3, indexing="ij"), axis=-1).reshape(-1, 3) * np.sqrt(variance)
    weights = np.prod(np.stack(np.meshgrid(*[w] * 3, indexing="ij"), axis=-1).reshape(-1, 3), axis=1)
    weights *= np.exp(f[:, y] - logsumexp(f, axis=1))
    return weights @ f / weights.sum()


def _of_one_datum(variance):
    given = Prior(variance, np.ones((3, 1)), np.zeros(3), np.zeros(3))
    return laplace.fit(Data(np.zeros((1, 1)), np.array([0]), 3), given, laplace.LaplaceOptions(tolerance=1e-13))


def test_the_corrected_mean_errs_by_one_power_of_the_prior_variance_more_than_the_mode():
    errors = []
    for scale in (0.2, 0.1, 0.05):
        variance = scale * np.array([1.0, 2.0, 3.0])
        posterior = _of_one_datum(variance)
        exact = _exact_mean(variance, 0)
        corrected = laplace.mean_corrected(posterior).mean[0]
        errors.append([np.abs(posterior.latent_mean[0] - exact).max(), np.abs(corrected - exact).max()])
    orders = np.log2(np.divide(errors[:-1], errors[1:]))[-1]
    # Sigma s is of second order in the variances; what follows has their third power, and still .05 of the fourth
    assert 1.7 < orders[0] < 2.3
    assert orders[1] > 2.7


def test_the_corrected_mean_is_nearer_the_exact_one_where_a_label_is_nearly_sure():
    variance = np.full(3, 4.0)
    posterior = _of_one_datum(variance)
    corrected, exact = laplace.mean_corrected(posterior).mean[0], _exact_mean(variance, 0)
    # .14 beside .31
    assert np.abs(corrected - exact).max() < 0.5 * np.abs(posterior.latent_mean[0] - exact).max()
    prediction = laplace.predict_mean_corrected(posterior, np.zeros((1, 1)))
    # at the datum, without noise and jitter
    np.testing.assert_allclose(prediction.latent_mean[0], corrected, rtol=1e-12)
    at_mode = laplace.predict(posterior, np.zeros((1, 1)))
    np.testing.assert_allclose(prediction.latent_cov, at_mode.latent_cov, rtol=1e-12)
    assert prediction.probabilities[0, 0] > at_mode.probabilities[0, 0]


def test_the_corrected_mean_is_a_newton_step_on_the_determinant_by_dense_algebra():
    X, y, C, variance, lengthscales, noise, jitter = toy()
    posterior = laplace.fit(Data(X, y, C), Prior(variance, lengthscales, noise, jitter))
    n, mode = len(y), posterior.latent_mean
    K = block_diag(*(posterior.prior.K(k) for k in range(C)))

    def curvature(f):
        return np.eye(C * n) + K @ dense_W(np.exp(f - logsumexp(f, axis=1)[:, None]))

    derivative, step = np.zeros((C, n)), 1e-5
    for k, i in np.ndindex(C, n):
        moved = step * (np.arange(n) == i)[:, None] * (np.arange(C) == k)
        ends = [np.linalg.slogdet(curvature(mode + sign * moved))[1] for sign in (1.0, -1.0)]
        derivative[k, i] = -0.25 * (ends[0] - ends[1]) / step
    mean = mode.T.ravel() + np.linalg.solve(curvature(mode), K @ derivative.ravel())
    # central differences at 1e-5 leave 1e-10 of a third derivative, and as much rounding
    np.testing.assert_allclose(laplace.mean_corrected(posterior).mean.T.ravel(), mean, rtol=0.0, atol=1e-8)
    # predictions at the data: without noise and jitter
    there = laplace.predict_mean_corrected(posterior, X).latent_mean.T.ravel()
    plain = K - np.diag(np.repeat(noise + jitter, n))
    np.testing.assert_allclose(there, plain @ np.linalg.solve(K, mean), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("method", [laplace, laplace_sparse, nested_ep])
def test_a_rule_of_more_than_a_million_points_is_refused_by_name_before_any_is_visited(method):
    asked = {"prediction": "quadrature"} if method is nested_ep else {}
    for C, nodes, taken in ((3, 101, True), (4, 100, True), (4, 101, False)):  # 100 nodes in three dimensions
        X, y, _, variance, lengthscales, noise, jitter = toy(C=C)
        Z = X[:3] if method is laplace_sparse else None
        posterior = method.fit(Data(X, y, C), Prior(variance, lengthscales, noise, jitter, Z))
        if taken:
            assert method.predict(posterior, X[:0], prediction_nodes=nodes, **asked).probabilities.shape == (0, C)
            continue
        with pytest.raises(ValueError, match=r"^prediction_nodes: found 101 in 3 dimensions"):
            method.predict(posterior, X[:0], prediction_nodes=nodes, **asked)


def test_no_test_points_have_empty_tkp_predictions():
    X, y, C, variance, lengthscales, noise, jitter = toy()
    posterior = laplace.fit(Data(X, y, C), Prior(variance, lengthscales, noise, jitter))
    none = laplace.predict_tkp(posterior, np.zeros((0, 2)))
    assert none.converged
    assert none.scores.shape == none.prediction.probabilities.shape == none.prediction.latent_mean.shape == (0, C)
    assert none.prediction.latent_cov.shape == (0, C, C)
