"""Predictions against the printed formula with explicit inverses, and their independence of the block size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit

from fast.core.values import Data, Prior
from fast.methods import x_gpc
from fast.one_latent import predict as predict_module
from values_given import model_values


@pytest.mark.verifies("wenzel2019", "13", route="the printed formula, dense with inverses")
@pytest.mark.parametrize("full", [False, True])
def test_latent_moments_are_the_printed_ones(rng, make_problem, dense_kernel, full):
    p = make_problem(full=full)
    X_test = rng.normal(size=(6, 2))
    posterior = x_gpc.fit(*model_values(p))
    Z = p.X if full else p.Z
    diagonal = p.jitter + (p.noise if full else 0.0)
    inverse = np.linalg.inv(dense_kernel(Z, Z, p.variance, p.lengthscales) + diagonal * np.eye(len(Z)))
    k = dense_kernel(X_test, Z, p.variance, p.lengthscales)
    mu, Sigma = posterior.inducing_mean, posterior.inducing_cov
    mean = k @ inverse @ mu
    var = p.variance + p.noise + np.diag(k @ inverse @ (Sigma @ inverse - np.eye(len(Z))) @ k.T)
    got = x_gpc.predict(posterior, X_test)
    # condition of K below 1e4, squared in the variance
    np.testing.assert_allclose(got.latent_mean, mean, rtol=0, atol=1e-9 * np.abs(mean).max())
    np.testing.assert_allclose(got.latent_var, var, rtol=0, atol=1e-9 * var.max())


def test_probabilities_are_the_integral_of_the_logistic_over_the_latent_moments(make_problem):
    p = make_problem(variance=np.exp(4.0))
    got = x_gpc.predict(x_gpc.fit(*model_values(p)), p.X)
    for mean, var, probability in zip(got.latent_mean, got.latent_var, got.probabilities, strict=True):
        s = np.sqrt(var)
        expected, _ = quad(
            lambda t, mean=mean, s=s: expit(mean + s * t) * np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi),
            -9.0,
            9.0,
            points=[-mean / s],
            epsabs=1e-13,
            limit=400,
        )
        # quad asked for 1e-13, the tails beyond 9 hold 2e-19
        np.testing.assert_allclose(probability, [1 - expected, expected], rtol=0, atol=1e-11)
    assert got.quadrature_error < 1e-11
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=2 * got.quadrature_error)


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 200), st.booleans(), st.sampled_from([1e-10, 1e-6]), st.floats(0.0, 8.0))
def test_every_block_size_gives_the_same_predictions(block_size, full, jitter, log_variance):
    rng = np.random.default_rng(5)
    X, X_test = rng.normal(size=(70, 2)), rng.normal(size=(150, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    Z = None if full else X[:30]
    variance = np.exp(log_variance)
    posterior = x_gpc.fit(
        Data(X, y),
        Prior(variance, np.array([1.0, 1.5]), 0.0, jitter * variance, Z),
        x_gpc.XGPCOptions(tolerance=1e-6, max_iterations=50),
    )
    whole, parts = x_gpc.predict(posterior, X_test), x_gpc.predict(posterior, X_test, block_size=block_size)
    # promised: 1e-12, relative to the largest entry
    for left, right in zip(whole[:4], parts[:4], strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-12 * np.abs(left).max())


@pytest.mark.parametrize("full", [False, True])
def test_an_empty_test_set_gives_empty_arrays(make_problem, full):
    p = make_problem(full=full)
    got = x_gpc.predict(x_gpc.fit(*model_values(p)), np.empty((0, 2)))
    assert [part.shape for part in got[:4]] == [(0,), (0,), (0, 2), (0,)]
    assert got.quadrature_error > 0.0


@pytest.mark.parametrize(
    ("X_test", "text"),
    [
        (np.zeros((2, 3)), "X_test: found 3 columns, expected 2"),
        (np.zeros(2), "X_test: found 1 axes"),
        (np.array([[0.0, np.nan]]), "X_test: found a value that is not finite in row 0"),
        (np.array([["a", "b"]]), "X_test: found dtype"),
    ],
)
def test_bad_test_inputs_are_named(make_problem, X_test, text):
    posterior = x_gpc.fit(*model_values(make_problem()))
    with pytest.raises(ValueError, match=text):
        x_gpc.predict(posterior, X_test)


def test_a_mass_beyond_the_stated_error_is_refused(make_problem, monkeypatch):
    posterior = x_gpc.fit(*model_values(make_problem()))

    def broken(mean, var):
        return np.full((mean.size, 2), np.log(0.5001))

    monkeypatch.setattr(predict_module, "log_class_probabilities", broken)
    with pytest.raises(ValueError, match="probability_mass: found"):
        x_gpc.predict(posterior, np.zeros((1, 2)))
