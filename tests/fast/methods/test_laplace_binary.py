"""laplace-binary of `fast`: log Z of scikit-learn and of the softmax method, derivatives, hard problems, searches."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from fast.core.values import Data, Prior
from fast.methods import laplace, laplace_binary
from fast.methods.laplace_binary import LaplaceBinaryLearning, LaplaceBinaryOptions

LINKS = ("logit", "probit")
PRIOR = Prior(2.3, np.array([0.8, 1.3]), 0.2, 1e-3)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(40, 2))
    return Data(X, (X[:, 0] + 0.6 * rng.normal(size=40) > 0.0).astype(int))


def test_log_z_and_its_total_gradient_are_those_of_scikit_learn(data):
    prior = replace(PRIOR, noise=0.3, jitter=0.0)
    kernel = ConstantKernel(2.3) * RBF([0.8, 1.3]) + WhiteKernel(0.3)
    model = GaussianProcessClassifier(kernel, optimizer=None, max_iter_predict=200).fit(data.X, data.y)
    value, derivatives = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    posterior = laplace_binary.fit(data, prior)
    # it stops where a Newton step gains less than 1e-10 nat: log Z itself is flat there, f is off by 1e-6 at most, and
    # with it log|B| and the gradient
    assert posterior.log_evidence == pytest.approx(value, abs=1e-8)
    ours = laplace_binary.gradients(posterior)
    logs = [2.3 * ours.variance, *(ours.lengthscales * [0.8, 1.3]), 0.3 * ours.noise]
    np.testing.assert_allclose(logs, derivatives, rtol=0, atol=1e-6)


def test_latent_means_at_the_data_are_those_of_scikit_learn(data):
    prior = replace(PRIOR, noise=0.3, jitter=0.0)
    kernel = ConstantKernel(2.3) * RBF([0.8, 1.3]) + WhiteKernel(0.3)
    model = GaussianProcessClassifier(kernel, optimizer=None, max_iter_predict=200).fit(data.X, data.y)
    inner = model.base_estimator_
    posterior = laplace_binary.fit(data, prior)
    K = model.kernel_(data.X)
    np.testing.assert_allclose(K @ (inner.y_train_ - inner.pi_), posterior.latent_mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize("link", LINKS)
def test_gradients_are_differences_with_the_mode_found_anew(data, link):
    options = LaplaceBinaryOptions(likelihood=link, tolerance=1e-13)
    got = laplace_binary.gradients(laplace_binary.fit(data, PRIOR, options))

    def value(**changed):
        return laplace_binary.fit(data, replace(PRIOR, **changed), options).log_evidence

    # steps of 1e-4 leave 1e-8 times third derivatives of order one
    for name in ("variance", "noise"):
        at = getattr(PRIOR, name)
        right = (value(**{name: at + 1e-4}) - value(**{name: at - 1e-4})) / 2e-4
        assert getattr(got, name) == pytest.approx(right, abs=1e-7), name
    for j, away in enumerate(1e-4 * np.eye(2)):
        ends = [value(lengthscales=PRIOR.lengthscales + sign * away) for sign in (1.0, -1.0)]
        assert got.lengthscales[j] == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-7)


def test_matern_kernels_have_gradients_too(data):
    prior = replace(PRIOR, smoothness=1.5)
    got = laplace_binary.gradients(laplace_binary.fit(data, prior))
    ends = [laplace_binary.fit(data, replace(prior, variance=2.3 + h)).log_evidence for h in (1e-4, -1e-4)]
    assert got.variance == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-7)


def test_softmax_of_two_classes_with_half_of_the_prior_each_is_the_same(data):
    twice = Prior([1.15, 1.15], np.tile(PRIOR.lengthscales, (2, 1)), [0.1, 0.1], [5e-4, 5e-4], shared=True)
    left, right = laplace_binary.fit(data, PRIOR), laplace.fit(data, twice)
    # both modes to 1e-10, at which log|B| is linear
    assert left.log_evidence == pytest.approx(right.log_evidence, abs=1e-9)
    h = right.latent_mean[:, 1] - right.latent_mean[:, 0]
    np.testing.assert_allclose(left.latent_mean, h, rtol=0, atol=1e-9)
    cov = right.latent_cov
    var = cov[:, 0, 0] + cov[:, 1, 1] - 2.0 * cov[:, 0, 1]
    np.testing.assert_allclose(left.latent_var, var, rtol=1e-9, atol=0)


@pytest.mark.parametrize("link", LINKS)
def test_the_whole_covariance_has_the_variances_on_its_diagonal(data, link):
    posterior = laplace_binary.fit(data, PRIOR, LaplaceBinaryOptions(likelihood=link))
    cov = posterior.inducing_cov
    np.testing.assert_allclose(np.diagonal(cov), posterior.latent_var, rtol=1e-10, atol=0)
    np.testing.assert_allclose(cov, cov.T, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(posterior.inducing_mean, posterior.latent_mean)


@pytest.mark.parametrize("link", LINKS)
def test_hard_problems_converge_without_jitter(link):
    X = np.repeat(np.array([[0.0], [1e-6], [1.0], [1e3]]), 3, axis=0)
    y = np.tile([0, 1, 1], 4)
    for variance in (1e-6, 1.0, 1e4):
        posterior = laplace_binary.fit(
            Data(X, y), Prior(variance, np.ones(1), 0.0, 0.0), LaplaceBinaryOptions(likelihood=link)
        )
        assert posterior.converged
        assert np.diff(posterior.trace).min() >= -1e-9
        assert np.isfinite(laplace_binary.gradients(posterior).variance)


@pytest.mark.parametrize("link", LINKS)
def test_a_search_starts_each_mode_where_the_last_one_ended_and_arrives(data, link):
    options = LaplaceBinaryLearning(likelihood=link, learn=("variance", "lengthscales", "noise"))
    posterior, search = laplace_binary.fit_learning(data, PRIOR, options)
    assert search.converged
    held = laplace_binary.fit(data, PRIOR, LaplaceBinaryOptions(likelihood=link))
    assert posterior.log_evidence > held.log_evidence
    # the same from f = 0: modes are unique
    alone = laplace_binary.fit(data, replace(PRIOR, variance=search.hyper.variance, noise=search.hyper.noise,
                                             lengthscales=search.hyper.lengthscales),
                               LaplaceBinaryOptions(likelihood=link))  # fmt: skip
    assert alone.log_evidence == pytest.approx(posterior.log_evidence, abs=1e-9)


def test_predictions_do_not_depend_on_blocks_and_take_no_points(data):
    posterior = laplace_binary.fit(data, PRIOR)
    left, right = (laplace_binary.predict(posterior, data.X[:9], block_size=size) for size in (4096, 4))
    for a, b in zip(left[:3], right[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=0)
    assert laplace_binary.predict(posterior, np.empty((0, 2))).probabilities.shape == (0, 2)


def test_the_callback_is_told_of_every_step(data):
    told = []
    posterior = laplace_binary.fit(data, PRIOR, LaplaceBinaryOptions(callback=told.append))
    assert [state.iteration for state in told] == list(range(1, posterior.iterations + 1))
    assert [state.log_joint for state in told] == posterior.trace[1:].tolist()
    assert told[-1].residual == posterior.residual <= 1e-10


def test_what_it_cannot_take_is_refused_by_name(data):
    with pytest.raises(ValueError, match=r"^Z: found inducing points \(3, 2\), expected None"):
        laplace_binary.fit(data, replace(PRIOR, Z=data.X[:3]))
    with pytest.raises(ValueError, match=r"^likelihood: found 'softmax'"):
        LaplaceBinaryOptions(likelihood="softmax")
    with pytest.raises(ValueError, match=r"^learn: found no name, expected some of variance, lengthscales, noise"):
        laplace_binary.fit_learning(data, PRIOR, LaplaceBinaryLearning())
    with pytest.raises(ValueError, match=r"^learn: found .*'Z'"):
        LaplaceBinaryLearning(learn=("Z",))
