"""Gradients of the bound against central differences of the bound, converged anew at each step."""

import numpy as np
import pytest

from fast.methods import x_gpc
from values_given import binary, model_values


def derivative(value, x, h):
    """Central difference with one Richardson step: error h^4 |f^(5)| / 30 and rounding 1.5 eps |f| / h."""
    return (8 * (value(x + h) - value(x - h)) - (value(x + 2 * h) - value(x - 2 * h))) / (12 * h)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("log_variance", [0.5, 4.0, 7.0])
@pytest.mark.parametrize("d", [1, 3])
def test_gradients_are_the_derivatives_of_the_converged_bound(make_problem, full, log_variance, d):
    p = make_problem(n=12, m=4, d=d, variance=np.exp(log_variance), jitter=1e-3, full=full)
    posterior = x_gpc.fit(*model_values(p), x_gpc.XGPCOptions(tolerance=1e-11))
    got = x_gpc.gradients(posterior)

    def bound(**changed):
        # the bound is stationary in c: an error of 1e-9 in c leaves 1e-16
        return x_gpc.fit(
            *binary(x_gpc.XGPCOptions, **{**vars(p), **changed}, tolerance=1e-9, initial_c=posterior.c)
        ).elbo

    # |f| of 10 gives 3e-15 / 1e-3 = 3e-12 of rounding, h^4 |f^(5)| / 30 of truncation about 1e-12 times a constant
    # below 1e4: a gradient of size s is seen to 1e-7 max(1, s)
    def agree(left, right):
        np.testing.assert_allclose(left, right, rtol=1e-7, atol=1e-7)

    agree(got.variance * p.variance, derivative(lambda t: bound(variance=p.variance * np.exp(t)), 0.0, 1e-3))
    agree(got.noise, derivative(lambda t: bound(noise=t), p.noise, 1e-3))
    for j in range(d):
        unit = np.eye(d)[j]
        agree(got.lengthscales[j], derivative(lambda t, u=unit: bound(lengthscales=p.lengthscales + t * u), 0.0, 1e-3))
    if full:
        assert got.Z is None
        return
    for i in range(4):
        for j in range(d):
            unit = np.zeros((4, d))
            unit[i, j] = 1.0
            agree(got.Z[i, j], derivative(lambda t, u=unit: bound(Z=p.Z + t * u), 0.0, 1e-3))


def test_gradients_do_not_depend_on_blocks_or_on_the_cache():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 3))
    y = (X.sum(axis=1) + rng.normal(size=300) > 0).astype(int)
    arguments = (X, y, 2.0, np.array([1.0, 1.5, 2.0]), 0.1, 1e-6, X[:20])
    whole = x_gpc.gradients(x_gpc.fit(*binary(x_gpc.XGPCOptions, *arguments)))
    parts = x_gpc.gradients(x_gpc.fit(*binary(x_gpc.XGPCOptions, *arguments, block_size=64, memory_budget=0)))
    # the two fixed points agree to about 1e-10, gradients to that times their sensitivity
    for left, right in zip(whole, parts, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-8 * np.abs(left).max())


def test_the_noise_derivative_of_a_full_gp_counts_once_a_point(make_problem):
    p = make_problem(n=1, full=True, noise=0.0, jitter=0.0)
    got = x_gpc.gradients(x_gpc.fit(*model_values(p)))
    # one point: the bound depends on variance + noise only
    np.testing.assert_allclose(got.noise, got.variance, rtol=1e-12, atol=0)
    # a single point has no lengthscale
    np.testing.assert_array_equal(got.lengthscales, 0.0)
