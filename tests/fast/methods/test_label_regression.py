"""Regression on labels with the FITC prior against dense Gaussians, finite differences and extreme problems."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from fast.methods import label_regression
from sparse_models import kernels
from values_given import fitted

C, M, D, N = 3, 3, 2, 9


def problem(seed=0, n=N, n_classes=C, shared=False, **changed):
    rng = np.random.default_rng(seed)
    values = {
        "variance": rng.uniform(1.0, 2.0, n_classes),
        "lengthscales": rng.uniform(0.8, 1.4, (n_classes, D)),
        "noise": rng.uniform(0.1, 0.2, n_classes),
        "Z": rng.standard_normal((n_classes, M, D)),
    }
    if shared:
        values = {name: np.repeat(value[:1], n_classes, axis=0) for name, value in values.items()}
    given = {"X": rng.standard_normal((n, D)), "y": rng.integers(0, n_classes, n), "n_classes": n_classes}
    return given | values | {"jitter": 1e-3, "epsilon": 0.05, "shared": shared} | changed


def dense(p, X=None):
    """K, upsilon (C, n, m), s (C, n) by explicit inverses."""
    K, cross = kernels(p, X)
    upsilon = cross @ np.linalg.inv(K)
    return K, upsilon, (p["variance"] + p["noise"])[:, None] - (cross * upsilon).sum(axis=2)


def dense_evidence(p):
    """log density of the targets under Q + diag(s)."""
    K, upsilon, s = dense(p)
    value = 0.0
    for k in range(p["n_classes"]):
        cov = upsilon[k] @ K[k] @ upsilon[k].T + np.diag(s[k])
        value += multivariate_normal.logpdf(np.where(p["y"] == k, 1.0, -1.0), cov=cov)
    return value


@pytest.mark.verifies("villacampa2020", "u46-label-regression", route="dense Gaussian")
@pytest.mark.parametrize("shared", [False, True])
def test_evidence_and_q_are_those_of_the_dense_regression(shared):
    p = problem(shared=shared)
    posterior = fitted(label_regression, **p)
    # condition of K 1e3
    np.testing.assert_allclose(posterior.log_evidence, dense_evidence(p), rtol=1e-11, atol=0.0)
    K, upsilon, s = dense(p)
    mean, cov = posterior.run.points.inducing_moments(posterior.run.q)
    for k in range(C):
        # u and the targets are jointly Gaussian
        cross = K[k] @ upsilon[k].T
        gain = cross @ np.linalg.inv(upsilon[k] @ cross + np.diag(s[k]))
        np.testing.assert_allclose(mean[k], gain @ np.where(p["y"] == k, 1.0, -1.0), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(cov[k], K[k] - gain @ cross.T, rtol=1e-9, atol=1e-10)
    precision, shift = posterior.run.sites()
    np.testing.assert_allclose(precision, 1.0 / s.T, rtol=1e-11, atol=0.0)
    np.testing.assert_allclose(shift / precision, np.where(p["y"][:, None] == np.arange(C), 1.0, -1.0), rtol=1e-14)
    assert posterior.trained.converged
    assert posterior.trained.iterations == 0


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_differences_of_the_dense_evidence(shared):
    p = problem(1, shared=shared)
    gradients, h = label_regression.gradients(fitted(label_regression, **p)), 1e-5
    for name in ("variance", "lengthscales", "noise", "Z"):
        derivative = getattr(gradients, name)
        for place in np.ndindex(derivative.shape):
            if shared and place[0]:
                continue
            values = []
            for sign in (1, -1):
                moved = p[name].copy()
                moved[(slice(None), *place[1:]) if shared else place] += sign * h
                values.append(dense_evidence(p | {name: moved}))
            # h^2 = 1e-10 times third derivatives up to 1e4, rounding 1e-13 / h
            np.testing.assert_allclose(derivative[place], (values[0] - values[1]) / (2 * h), rtol=1e-5, atol=1e-5)


def test_predictions_are_the_robust_ones_of_two_classes():
    p = problem(2, n_classes=2)
    posterior = fitted(label_regression, **p)
    t = np.random.default_rng(5).standard_normal((4, D))
    prediction = label_regression.predict(posterior, t)
    _, upsilon, s = dense(p, t)
    mean, cov = posterior.run.points.inducing_moments(posterior.run.q)
    m = np.einsum("knm,km->nk", upsilon, mean)
    v = s.T + np.einsum("knm,kmp,knp->nk", upsilon, cov, upsilon)
    np.testing.assert_allclose(prediction.latent_mean, m, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.einsum("tcc->tc", prediction.latent_cov), v, rtol=1e-10, atol=0.0)
    wanted = 0.95 * norm.cdf((m[:, 0] - m[:, 1]) / np.sqrt(v.sum(axis=1))) + 0.025
    # moments to 1e-10
    np.testing.assert_allclose(prediction.probabilities[:, 0], wanted, rtol=1e-9, atol=0.0)


def test_learning_raises_the_evidence_by_both_schedules():
    p = problem(3, n=30)
    start = fitted(label_regression, **p)
    searched = fitted(label_regression, **p, learn="variance")
    assert searched.trained.converged
    derivative = label_regression.gradients(searched).variance * searched.run.points.hyper.variance
    assert np.abs(derivative).max() <= 1e-5  # the tolerance in logarithms
    stepped = fitted(label_regression, **p, learn="variance", optimizer="adaptive", n_steps=20, trace=True)
    assert start.log_evidence < stepped.log_evidence < searched.log_evidence
    assert stepped.trained.trace[0] == start.log_evidence
    assert stepped.trained.iterations == 20
    # the first step uses one rate for all coordinates
    one = fitted(label_regression, **p, learn=("Z",), optimizer="adaptive", n_steps=1)
    np.testing.assert_allclose(one.run.points.Z, p["Z"] + 0.01 * label_regression.gradients(start).Z, rtol=1e-10)


def test_blocks_and_memory_maps_change_nothing(tmp_path):
    p = problem(4, n=150)
    mapped = np.memmap(tmp_path / "X", np.float64, "w+", shape=p["X"].shape)
    mapped[:] = p["X"]
    whole = fitted(label_regression, **p)
    cut = fitted(label_regression, **(p | {"X": mapped}), block_size=64, memory_budget=0)
    # the stated invariance
    np.testing.assert_allclose(whole.log_evidence, cut.log_evidence, rtol=1e-12, atol=0.0)
    for name, derivative in label_regression.gradients(whole)._asdict().items():
        np.testing.assert_allclose(getattr(label_regression.gradients(cut), name), derivative, rtol=1e-11, atol=1e-10)


def test_extreme_problems_give_finite_numbers_and_impossible_ones_are_refused():
    for changed in (
        {"variance": np.full(C, 1e8)},
        {"variance": np.full(C, 1e-8), "jitter": 1e-11},
        {"noise": np.full(C, 1e-8)},
        {"epsilon": 0.5},
    ):
        posterior = fitted(label_regression, **(problem(5) | changed))
        assert np.isfinite(posterior.log_evidence)
        assert all(np.isfinite(part).all() for part in label_regression.gradients(posterior))
    p = problem(6)
    with pytest.raises(ValueError, match="noise: found conditional variance"):
        fitted(label_regression, **(p | {"Z": np.tile(p["X"][:M], (C, 1, 1)), "noise": 0.0, "jitter": 0.0}))
    for changed, name in (
        ({"epsilon": 1.0}, "epsilon"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"n_steps": 3}, "n_steps"),
        ({"Z": None}, "Z"),
    ):
        with pytest.raises(ValueError, match=name):
            fitted(label_regression, **(p | changed))


def test_labels_that_cancel_leave_means_of_zero_and_no_division_by_them():
    results = [label_regression._relative_change(np.array(a), np.zeros(2)) for a in ([0.0, 0.0], [0.0, 1e-300])]
    assert results == [0.0, np.inf]
    posterior = fitted(
        label_regression, np.ones((2, 1)), np.array([0, 1]), n_classes=2, Z=np.ones((2, 1, 1)), jitter=1e-6,
        variance=np.full(2, 2.0), lengthscales=np.ones((2, 1)), noise=np.zeros(2), epsilon=0.0,
    )  # fmt: skip
    assert np.isfinite(posterior.log_evidence)
