"""The kernel against its definition, its vector-Jacobian product against finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fast.kernel.kernels import gram, se_ard, se_ard_vjp


@pytest.mark.verifies("wenzel2019", "u5-kernel", route="definition, entry by entry")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_kernel_is_its_definition(rng, dense_kernel, scale):
    X1, X2 = scale * rng.normal(size=(5, 3)), scale * rng.normal(size=(4, 3))
    lengthscales = scale * np.array([0.5, 1.0, 2.0])
    # exponents below 40 in size: 40 eps, with room
    np.testing.assert_allclose(
        se_ard(X1, X2, 2.3, lengthscales), dense_kernel(X1, X2, 2.3, lengthscales), rtol=1e-13, atol=0
    )


@pytest.mark.verifies("wenzel2019", "u5-kernel", route="definition, entry by entry")
def test_noise_and_jitter_go_to_the_diagonal_only(rng, dense_kernel):
    X = rng.normal(size=(6, 2))
    lengthscales = np.array([0.7, 1.1])
    K = gram(X, 2.3, lengthscales, 0.25, 0.125)
    # exponents below 40 in size
    np.testing.assert_allclose(K, dense_kernel(X, X, 2.3, lengthscales) + 0.375 * np.eye(6), rtol=1e-13, atol=0)
    np.testing.assert_array_equal(K, K.T)


def test_equal_rows_give_exactly_the_variance_far_from_the_origin():
    X = np.full((2, 3), 1e8)
    np.testing.assert_array_equal(se_ard(X, X, 2.3, np.full(3, 1e-6)), 2.3)


@pytest.mark.verifies("wenzel2019", "u5-kernel", route="exact differences of inputs far from the origin")
@pytest.mark.parametrize("lengthscale", [0.7e-3, 0.7, 700.0])
def test_where_the_inputs_lie_does_not_matter(rng, dense_kernel, lengthscale):
    # multiples of 2^-30 below 2^21 in size: adding and taking away 1e6 rounds nothing
    X1, X2 = (np.round(lengthscale * rng.normal(size=(n, 2)) * 2.0**30) / 2.0**30 for n in (5, 4))
    lengthscales = lengthscale * np.array([1.0, 1.3])
    moved = 1e6 + X1, 1e6 + X2
    # exponents below 20 in size: 20 eps, with room; x / lengthscale first would leave 1e6 eps / lengthscale, 1e-7
    expected = dense_kernel(X1, X2, 2.3, lengthscales)
    np.testing.assert_allclose(se_ard(*moved, 2.3, lengthscales), expected, rtol=1e-13, atol=0)
    here, there = (se_ard_vjp(expected, *pair, 2.3, lengthscales) for pair in ((X1, X2), moved))
    np.testing.assert_array_equal(there.lengthscales, here.lengthscales)
    np.testing.assert_array_equal(there.X2, here.X2)


def test_a_lengthscale_that_overflows_the_inputs_is_named():
    with pytest.raises(ValueError, match="lengthscales: found 1e-300"):
        se_ard(np.full((1, 1), 1e10), np.zeros((1, 1)), 1.0, np.array([1e-300]))


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 3),
    st.floats(-2.0, 2.0),
    st.floats(-2.0, 6.0),
    st.integers(0, 2**32 - 1),
)
def test_the_vjp_agrees_with_central_differences(a, b, d, log_length, log_variance, seed):
    rng = np.random.default_rng(seed)
    X1, X2 = rng.normal(size=(a, d)), rng.normal(size=(b, d))
    cotangent = rng.normal(size=(a, b))
    variance, lengthscales = np.exp(log_variance), np.exp(log_length) * (1.0 + np.arange(d))

    def value(v=variance, ell=lengthscales, z=X2):
        return float((cotangent * se_ard(X1, z, v, ell)).sum())

    got = se_ard_vjp(cotangent * se_ard(X1, X2, variance, lengthscales), X1, X2, variance, lengthscales)
    h = 6e-6  # eps^(1/3)
    # truncation h^2 |f'''|, with |f'''| <= 50 |cotangent|_1 variance / lengthscale^3, and rounding eps |f| / h
    limit = 1e-8 * variance * np.abs(cotangent).sum() * max(1.0, np.exp(-3.0 * log_length))
    by_variance = (value(v=variance * (1 + h)) - value(v=variance * (1 - h))) / (2 * h * variance)
    np.testing.assert_allclose(got.variance, by_variance, rtol=0, atol=limit / min(1.0, variance))
    for j in range(d):
        step = h * np.eye(d)[j]
        derivative = (value(ell=lengthscales + step) - value(ell=lengthscales - step)) / (2 * h)
        np.testing.assert_allclose(got.lengthscales[j], derivative, rtol=0, atol=limit)
        for i in range(b):
            shift = np.zeros((b, d))
            shift[i, j] = h
            derivative = (value(z=X2 + shift) - value(z=X2 - shift)) / (2 * h)
            np.testing.assert_allclose(got.X2[i, j], derivative, rtol=0, atol=limit)


def test_the_vjp_is_finite_where_the_kernel_underflows():
    X1, X2 = np.array([[0.0]]), np.array([[1e200]])
    lengthscales = np.array([1e-100])
    k = se_ard(X1, X2, 1.0, lengthscales)
    assert k == 0.0
    got = se_ard_vjp(k, X1, X2, 1.0, lengthscales)
    assert got.variance == 0.0
    assert got.lengthscales == 0.0
    assert got.X2 == 0.0
