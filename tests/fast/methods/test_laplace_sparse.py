"""Laplace with inducing points against dense algebra of the FITC covariance, and against the full method."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from fast.methods import laplace, laplace_sparse
from fast.sparse_classes.softmax_inducing import InducingLatents, condition_inducing, effective_sites
from sparse_models import kernels as dense
from values_given import classes, fitted

C, M, D, N = 3, 3, 2, 8


def problem(seed=0, n=N, shared=False, **changed):
    rng = np.random.default_rng(seed)
    values = {
        "variance": rng.uniform(1.0, 2.0, C),
        "lengthscales": rng.uniform(0.8, 1.4, (C, D)),
        "noise": rng.uniform(0.1, 0.2, C),
        "Z": rng.standard_normal((C, M, D)),
    }
    if shared:
        values = {name: np.repeat(value[:1], C, axis=0) for name, value in values.items()}
    given = {"X": rng.standard_normal((n, D)), "y": rng.integers(0, C, n), "n_classes": C, **values}
    return given | {"jitter": 1e-3, "shared": shared} | changed


def fitc(p):
    """The joint covariance (C n, C n), class after class."""
    K, cross = dense(p)
    n = p["X"].shape[0]
    joint = np.zeros((C * n, C * n))
    for k in range(C):
        Q = cross[k] @ np.linalg.solve(K[k], cross[k].T)
        part = slice(k * n, (k + 1) * n)
        joint[part, part] = Q + np.diag(p["variance"][k] + p["noise"][k] - Q.diagonal())
    return joint


def curvature(pi):
    """W as a matrix (C n, C n)."""
    n = pi.shape[0]
    W = np.zeros((C, n, C, n))
    for i in range(n):
        W[:, i, :, i] = np.diag(pi[i]) - np.outer(pi[i], pi[i])
    return W.reshape(C * n, C * n)


@pytest.mark.verifies("villacampa2020", "u47-laplace", route="dense algebra")
@pytest.mark.parametrize("shared", [False, True])
def test_one_step_is_the_dense_conditioning(shared):
    p = problem(shared=shared)
    prior = fitted(laplace_sparse, **p).prior
    rng = np.random.default_rng(1)
    pi, h = softmax(rng.standard_normal((N, C)), axis=1), rng.standard_normal((N, C))
    h -= h.mean(axis=1, keepdims=True)
    result = condition_inducing(prior, pi, h)
    K, W = fitc(p), curvature(pi)
    cov = np.linalg.inv(np.linalg.inv(K) + W)
    mean = cov @ h.T.ravel()
    # condition of the covariance below 1e4
    np.testing.assert_allclose(result.mean.T.ravel(), mean, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(result.weights.ravel(), np.linalg.solve(K, mean), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(result.log_det, np.linalg.slogdet(np.eye(C * N) + K @ W)[1], rtol=1e-12, atol=0.0)
    # the covariance of all whitened inducing values at once
    big, L = np.zeros((C * M, C * N)), [np.linalg.cholesky(part) for part in dense(p)[0]]
    for k in range(C):
        big[k * M : (k + 1) * M, k * N : (k + 1) * N] = np.linalg.solve(L[k], dense(p)[1][k].T)
    inner = W - W @ cov @ W  # (K + W^-1)^-1
    spread = np.eye(C * M) - big @ inner @ big.T
    np.testing.assert_allclose(result.factor @ result.factor.T, np.linalg.inv(spread), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(result.v.ravel(), big @ np.linalg.solve(K, mean), rtol=1e-10, atol=1e-11)
    # and the sites of the projections
    moved = W @ np.linalg.inv(np.eye(C * N) + np.diag(prior.cond_var.T.ravel()) @ W)
    z = rng.standard_normal((N, C))
    np.testing.assert_allclose(result.sites.times(z).T.ravel(), moved @ z.T.ravel(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shared", [False, True])
def test_mode_covariances_evidence_and_predictions_are_the_dense_ones(shared):
    p = problem(2, shared=shared)
    posterior = fitted(laplace_sparse, **p)
    assert posterior.converged
    K, f = fitc(p), posterior.latent_mean
    pi = softmax(f, axis=1)
    derivative = (p["y"][:, None] == np.arange(C)) - pi
    # the tolerance of the mode
    np.testing.assert_allclose(f.T.ravel(), K @ derivative.T.ravel(), rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(posterior.pi, pi, rtol=1e-12, atol=0.0)
    W = curvature(pi)
    cov = np.linalg.inv(np.linalg.inv(K) + W)
    likelihood = log_softmax(f, axis=1)[np.arange(N), p["y"]].sum()
    evidence = likelihood - 0.5 * f.T.ravel() @ np.linalg.solve(K, f.T.ravel())
    evidence -= 0.5 * np.linalg.slogdet(np.eye(C * N) + K @ W)[1]
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-11, atol=0.0)
    by_class = cov.reshape(C, N, C, N)
    for i in range(N):
        np.testing.assert_allclose(posterior.latent_cov[i], by_class[:, i, :, i], rtol=1e-9, atol=1e-11)
    K_ZZ, K_XZ = dense(p)
    inner = (W - W @ cov @ W).reshape(C, N, C, N)
    for k in range(C):
        np.testing.assert_allclose(posterior.inducing_mean[k], K_XZ[k].T @ derivative[:, k], rtol=1e-9, atol=1e-10)
        wanted = K_ZZ[k] - K_XZ[k].T @ inner[k, :, k] @ K_XZ[k]
        np.testing.assert_allclose(posterior.inducing_cov[k], wanted, rtol=1e-9, atol=1e-10)
    t = np.random.default_rng(3).standard_normal((4, D))
    prediction = laplace_sparse.predict(posterior, t)
    B = [dense(p, t)[1][k] @ np.linalg.solve(K_ZZ[k], K_XZ[k].T) for k in range(C)]
    for k in range(C):
        np.testing.assert_allclose(prediction.latent_mean[:, k], B[k] @ derivative[:, k], rtol=1e-9, atol=1e-10)
        for j in range(C):
            wanted = -np.einsum("tn,nm,tm->t", B[k], inner[k, :, j], B[j])
            wanted = wanted + (p["variance"][k] + p["noise"][k] if k == j else 0.0)
            np.testing.assert_allclose(prediction.latent_cov[:, k, j], wanted, rtol=1e-9, atol=1e-10)
    # E[softmax] by a fine grid of one's own: nodes in whitened differences
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = np.outer(weights, weights).ravel() / (2.0 * np.pi)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    contrast = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    for i in range(4):
        root = np.linalg.cholesky(contrast @ prediction.latent_cov[i] @ contrast.T)
        d = contrast @ prediction.latent_mean[i] + grid @ root.T
        wanted = weights @ softmax(np.column_stack([d, np.zeros(len(d))]), axis=1)
        # 4096 points of Sobol's sequence are good to 1e-4 at these variances
        np.testing.assert_allclose(prediction.probabilities[i], wanted, rtol=0.0, atol=1e-4)
        by_nodes = laplace_sparse.predict(posterior, t[i : i + 1], prediction_nodes=60).probabilities[0]
        np.testing.assert_allclose(by_nodes, wanted, rtol=0.0, atol=1e-6)  # two rules of different roots


def test_with_inducing_points_at_the_data_it_is_the_full_method():
    p = problem(4, shared=True)
    X = p["X"]
    given = p | {"Z": np.tile(X, (C, 1, 1)), "jitter": 1e-9}
    posterior = fitted(laplace_sparse, **given)
    full = laplace.fit(
        *classes(
            laplace.LaplaceOptions,
            *(p[name] for name in ("X", "y", "n_classes", "variance", "lengthscales", "noise")),
            0.0,
        )
    )
    # jitter 1e-9 in K_ZZ
    np.testing.assert_allclose(posterior.log_evidence, full.log_evidence, rtol=1e-8, atol=0.0)
    np.testing.assert_allclose(posterior.latent_mean, full.latent_mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(posterior.latent_cov, full.latent_cov, rtol=1e-6, atol=1e-7)
    t = X + 0.1
    one, other = laplace_sparse.predict(posterior, t), laplace.predict(full, t)
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-6, atol=1e-7)


def test_effective_sites_keep_their_digits_where_the_noise_vanishes_or_dominates():
    pi = np.array([[0.2, 0.5, 0.3], [1.0 - 1e-12, 5e-13, 5e-13]])
    none = effective_sites(pi, np.zeros((2, C)))
    np.testing.assert_array_equal(none.g, pi)
    assert abs(none.log_det) < 1e-15  # the logarithm of a sum of pi
    much = effective_sites(pi, np.full((2, C), 1e8))
    # (W^-1 + S)^-1 -> S^-1 - S^-1 1 1'S^-1 / 1'S^-1 1 where W is of full rank but for 1
    wanted = 1e-8 * (np.eye(C) - 1.0 / C)
    np.testing.assert_allclose(much.times(np.eye(C)[:1])[0], wanted[0], rtol=1e-6, atol=0.0)  # 1/(s pi)


def test_blocks_and_memory_maps_change_nothing(tmp_path):
    p = problem(5, n=150)
    mapped = np.memmap(tmp_path / "X", np.float64, "w+", shape=p["X"].shape)
    mapped[:] = p["X"]
    whole, cut = (
        fitted(laplace_sparse, **p),
        fitted(laplace_sparse, **(p | {"X": mapped}), block_size=64),
    )
    # the stated invariance
    np.testing.assert_allclose(whole.log_evidence, cut.log_evidence, rtol=1e-12, atol=0.0)
    one, other = (laplace_sparse.predict(whole, p["X"], block_size=size) for size in (64, 1024))
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-12, atol=0.0)


def test_extreme_problems_converge_or_say_so_and_bad_ones_are_refused():
    for changed in (
        {"variance": np.full(C, 1e8)},
        {"variance": np.full(C, 1e-8), "noise": np.zeros(C), "jitter": 1e-11},
        {"noise": np.full(C, 1e4)},
        {"y": np.zeros(N, dtype=int)},
    ):
        posterior = fitted(laplace_sparse, **(problem(6) | changed))
        assert np.isfinite(posterior.log_evidence)
        assert np.isfinite(posterior.latent_cov).all()
        assert posterior.converged == (posterior.residual <= 1e-10)
    stopped = fitted(laplace_sparse, **problem(6), max_iterations=1)
    assert not stopped.converged
    for changed, name in (({"Z": None}, "Z"), ({"tolerance": 0.0}, "tolerance"), ({"max_iterations": 0}, "max_iter")):
        with pytest.raises(ValueError, match=name):
            fitted(laplace_sparse, **(problem() | changed))
    assert isinstance(stopped.prior, InducingLatents)
