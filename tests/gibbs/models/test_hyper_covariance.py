"""Covariances of many parameter vectors at a time, and the hand-derived gradient of log N(v; 0, S)."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gibbs.core.kernels import squared_exponential
from gibbs.core.linalg import factor
from gibbs.models.hyper_covariance import covariance, cross_covariance, log_normal_density, make_design, one_block

R, B, D, N, M, T = 3, 2, 2, 5, 3, 2


@pytest.fixture
def setting(rng):
    X, X_test, Z = rng.standard_normal((N, D)), rng.standard_normal((T, D)), rng.standard_normal((B, M, D))
    hyper = np.exp(0.5 * rng.standard_normal((R, B, 2 + D)))
    return X, X_test, Z, np.array([0.01, 0.03]), hyper


def dense(X, X_test, Z, jitter, hyper):
    """Prior covariance of (f, f*, u) of one block, from its definition."""
    variance, scales, noise = hyper[0], hyper[1:-1], hyper[-1]
    both = np.concatenate([X, X_test])
    n = len(X)
    if Z is None:
        K = squared_exponential(both, both, variance, scales) + noise * np.eye(len(both))
        K[:n, :n] += jitter * np.eye(n)
        return K
    K_ZZ = squared_exponential(Z, Z, variance, scales) + jitter * np.eye(len(Z))
    U = squared_exponential(both, Z, variance, scales) @ np.linalg.inv(K_ZZ)
    Q = U @ K_ZZ @ U.T
    return np.block([[Q + np.diag(variance + noise - np.diag(Q)), U @ K_ZZ], [K_ZZ @ U.T, K_ZZ]])


@pytest.mark.parametrize("fitc", [False, True])
def test_covariances_are_those_of_the_definition(setting, fitc):
    X, X_test, Z, jitter, hyper = setting
    design = make_design(X, X_test, Z if fitc else None, jitter)
    S, cross = covariance(design, hyper), cross_covariance(design, hyper)
    for r in range(R):
        for b in range(B):
            K = dense(X, X_test, Z[b] if fitc else None, jitter[b], hyper[r, b])
            # condition of K_ZZ below 1e4 times eps: 1e-12; both routes round on their own
            close = {"rtol": 0.0, "atol": 1e-10}
            np.testing.assert_allclose(S[r, b], K[:N, :N], **close)
            np.testing.assert_allclose(cross.K_TX[r, b], K[N : N + T, :N], **close)
            np.testing.assert_allclose(cross.k_tt[r, b], np.diag(K)[N : N + T], **close)
            if fitc:
                np.testing.assert_allclose(cross.K_ZX[r, b], K[N + T :, :N], **close)
                np.testing.assert_allclose(cross.K_ZZ[r, b], K[N + T :, N + T :], **close)
        one = one_block(design, 1)
        np.testing.assert_allclose(covariance(one, hyper[:, 1:])[r, 0], S[r, 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("fitc", [False, True])
def test_the_density_is_that_of_scipy(setting, rng, fitc, c):
    X, X_test, Z, jitter, hyper = setting
    values, extra = rng.standard_normal((R, B, c, N)), rng.uniform(0.1, 2.0, (R, B, N))
    got = log_normal_density(make_design(X, X_test, Z if fitc else None, jitter), hyper, values, extra)
    for r in range(R):
        for b in range(B):
            S = dense(X, X_test, Z[b] if fitc else None, jitter[b], hyper[r, b])[:N, :N] + np.diag(extra[r, b])
            expected = multivariate_normal.logpdf(values[r, b], np.zeros(N), S).sum()
            np.testing.assert_allclose(got.value[r, b], expected, rtol=1e-10)  # condition of S below 100


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("fitc", [False, True])
def test_every_entry_of_the_gradient_is_that_of_finite_differences(setting, rng, fitc, c, noisy):
    X, X_test, Z, jitter, hyper = setting
    values = rng.standard_normal((R, B, c, N))
    extra = rng.uniform(0.1, 2.0, (R, B, N)) if noisy else 0.0
    design = make_design(X, X_test, Z if fitc else None, jitter)
    got = log_normal_density(design, hyper, values, extra).gradient
    step = 1e-5
    for j in range(2 + D):
        up, down = hyper.copy(), hyper.copy()
        up[..., j] *= np.exp(step)
        down[..., j] *= np.exp(-step)
        ends = [log_normal_density(design, h, values, extra).value for h in (up, down)]
        # truncation step² and rounding 1e-14/step: below 1e-7 of gradients of size 10
        np.testing.assert_allclose(got[..., j], (ends[0] - ends[1]) / (2.0 * step), rtol=1e-5, atol=1e-6)


def test_a_matrix_without_a_factor_is_flagged_and_the_others_are_not():
    good, bad = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
    chol, result = factor(np.stack([good, bad, np.full((2, 2), np.nan)]))
    assert result.tolist() == [True, False, False]
    np.testing.assert_allclose(chol[0] @ chol[0].T, good, rtol=1e-14)  # two by two
    duplicates = np.zeros((3, 1))
    design = make_design(duplicates, duplicates[:0], None, np.zeros(1))
    density = log_normal_density(design, np.array([[[1.0, 1.0, 0.0]], [[1.0, 1.0, 0.5]]]), np.ones((2, 1, 1, 3)))
    assert np.isneginf(density.value[0, 0])
    assert np.isfinite(density.value[1, 0])
    np.testing.assert_array_equal(density.gradient[0, 0], 0.0)
