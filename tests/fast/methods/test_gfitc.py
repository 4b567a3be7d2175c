"""gfitc: EP on the exact factors under the FITC prior, against dense algebra, ep, and finite differences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr

from fast.core.errors import NotPositiveDefiniteError
from fast.core.values import Prior
from fast.kernel.kernels import se_ard
from fast.methods import ep, gfitc
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.fitc_latents import LatentRun
from fast.sparse_classes.inference import inducing_classes
from sparse_models import assert_gradients_are_differences, ordered
from values_given import fitted


def problem(C: int, n: int = 24, m: int = 5, seed: int = 3) -> dict[str, Any]:
    return ordered(C, n, m, seed, blur=0.4)


def fitc_prior(given: dict[str, Any], k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dense prior covariance of the latent values of a class at the data, upsilon and K_ZZ."""
    X, Z, v, lengths = given["X"], given["Z"][k], given["variance"][k], given["lengthscales"][k]
    K = se_ard(Z, Z, v, lengths) + given["jitter"][k] * np.eye(len(Z))
    cross = se_ard(X, Z, v, lengths)
    upsilon = np.linalg.solve(K, cross.T).T
    Q = cross @ upsilon.T
    return Q + np.diag(v + given["noise"][k] - np.diag(Q)), upsilon, K


@pytest.mark.verifies("villacampa2017", "u20-gfitc", route="dense algebra in the latent values")
@pytest.mark.parametrize("sweeps", [4, 400])
def test_marginals_and_log_Z_are_those_of_the_dense_posterior(sweeps: int) -> None:
    given = problem(3)
    posterior = fitted(gfitc, **given, max_iterations=sweeps)
    c1_y, c2_y, c1_k, c2_k = posterior.run.sites
    y, n, C = given["y"], len(given["y"]), 3
    own = y[:, None] == np.arange(C)
    delta = np.where(own, c1_y.sum(axis=1, keepdims=True), c1_k)
    shift = np.where(own, c2_y.sum(axis=1, keepdims=True), c2_k)
    mean, var, log_Z = np.empty((n, C)), np.empty((n, C)), 0.0
    for k in range(C):
        prior, upsilon, K = fitc_prior(given, k)
        cov = np.linalg.inv(np.linalg.inv(prior) + np.diag(delta[:, k]))
        mean[:, k], var[:, k] = cov @ shift[:, k], np.diag(cov)
        log_Z += 0.5 * shift[:, k] @ mean[:, k]
        log_Z -= 0.5 * np.linalg.slogdet(np.eye(n) + prior * delta[:, k])[1]
        # the inducing values by conditioning the joint Gaussian of u and f on the sites
        joint = upsilon @ K
        gain = np.linalg.solve(prior, joint).T
        np.testing.assert_allclose(posterior.inducing_mean[k], gain @ mean[:, k], rtol=1e-6, atol=1e-8)
        u_cov = K - gain @ joint + gain @ cov @ gain.T
        np.testing.assert_allclose(posterior.inducing_cov[k], u_cov, rtol=1e-6, atol=1e-8)
    for i in range(n):
        for k in np.flatnonzero(~own[i]):
            norms, pairs = 0.0, []
            for j, c1, c2 in ((y[i], c1_y[i, k], c2_y[i, k]), (k, c1_k[i, k], c2_k[i, k])):
                v = 1.0 / (1.0 / var[i, j] - c1)
                e = v * (mean[i, j] / var[i, j] - c2)
                norms += 0.5 * (2 * c2 * e + c2**2 * v - c1 * e**2) / (1 + c1 * v) - 0.5 * np.log(1 + c1 * v)
                pairs.append((e, v))
            log_Z += log_ndtr((pairs[0][0] - pairs[1][0]) / np.sqrt(pairs[0][1] + pairs[1][1])) - norms
    at_data = gfitc.latents(posterior)
    # dense inverses of matrices of condition 1e4 at most lose some digits
    np.testing.assert_allclose(at_data.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(at_data.var, var, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(posterior.log_evidence, log_Z, rtol=1e-9, atol=0.0)


def test_with_two_classes_it_is_ep() -> None:
    given = problem(2)
    one, other = fitted(gfitc, **given), fitted(ep, **given)
    # both stop at a residual of 1e-10 and contract by 0.95 a sweep at worst
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-9, atol=0.0)
    np.testing.assert_allclose(one.inducing_mean, other.inducing_mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(one.inducing_cov, other.inducing_cov, rtol=1e-7, atol=1e-8)
    X_test = given["X"][:5] + 0.3
    left, right = gfitc.predict(one, X_test), ep.predict(other, X_test)
    np.testing.assert_allclose(left.probabilities, right.probabilities, rtol=1e-8, atol=0.0)
    np.testing.assert_allclose(left.probability_mass, 1.0, rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_differences_of_the_converged_log_Z(shared: bool) -> None:
    assert_gradients_are_differences(partial(fitted, gfitc), gfitc.gradients, problem(3, n=12, m=3), shared)


def test_mixing_and_damping_leave_the_fixed_point_where_it_is() -> None:
    given = problem(3)
    mixed = fitted(gfitc, **given)
    assert mixed.trained.converged
    data = ClassData(given["X"], given["y"], 3)
    points = inducing_classes(
        data, Prior(*(given[name] for name in ("variance", "lengthscales", "noise", "jitter", "Z")))
    )  # fmt: skip
    plain = LatentRun(data, points, damping=0.7)
    for _ in range(400):
        residual = plain.refresh().residual
    # 400 sweeps contract to rounding
    assert residual < 1e-9
    np.testing.assert_allclose(plain.log_evidence(), mixed.log_evidence, rtol=1e-10, atol=0.0)
    # residual 1e-10 over one less the contraction of 0.95
    np.testing.assert_allclose(plain.sites, mixed.run.sites, rtol=1e-6, atol=1e-7)


def test_learning_raises_log_Z_to_where_it_is_flat() -> None:
    given = problem(3, n=30, m=3)
    start = fitted(gfitc, **given)
    posterior = fitted(gfitc, **given, learn=("variance", "lengthscales"), n_steps=6)
    assert posterior.log_evidence > start.log_evidence + 0.1
    assert (np.diff(posterior.trained.trace) >= 0.0).all()


def test_blocks_memory_maps_and_orders_of_data_change_nothing(tmp_path: Any) -> None:
    given = problem(3)
    whole = fitted(gfitc, **given)
    mapped = np.memmap(tmp_path / "X", np.float64, "w+", shape=given["X"].shape)
    mapped[:] = given["X"]
    order = np.random.default_rng(0).permutation(len(given["y"]))
    for changed in (
        fitted(gfitc, **(given | {"X": mapped}), block_size=7, memory_budget=0),
        fitted(gfitc, **(given | {"X": given["X"][order], "y": given["y"][order]})),
    ):
        # sums in another order; runs end at a residual of 1e-10
        np.testing.assert_allclose(changed.log_evidence, whole.log_evidence, rtol=1e-10, atol=0.0)
        np.testing.assert_allclose(changed.inducing_mean, whole.inducing_mean, rtol=1e-6, atol=1e-8)


def test_hard_problems_stay_finite_or_are_refused_by_name() -> None:
    given = problem(4)
    hard = fitted(gfitc, **(given | {"variance": np.full(4, 1e6), "noise": np.full(4, 1e-6)}), max_iterations=30)
    assert np.isfinite(hard.run.sites).all()
    absent = fitted(gfitc, **(given | {"y": np.where(given["y"] == 3, 0, given["y"])}))
    assert absent.trained.converged
    double = given["Z"].copy()
    double[:, 1] = double[:, 0]
    with pytest.raises(NotPositiveDefiniteError, match="K_ZZ of class 0"):
        fitted(gfitc, **(given | {"Z": double, "jitter": np.zeros(4)}))
    with pytest.raises(ValueError, match="damping"):
        fitted(gfitc, **given, damping=1.5)
    with pytest.raises(ValueError, match="noise"):
        fitted(gfitc, **(given | {"noise": np.zeros(4)}), learn=("noise",))
