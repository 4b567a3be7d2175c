"""vi-robust: the bound, its fixed point and gradients, against dense algebra, quadrature and finite differences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from fast.core.values import Prior
from fast.kernel.kernels import se_ard
from fast.likelihood.power import powered_labels
from fast.methods import apep, vi_robust
from fast.sparse_classes.alpha_energies import divergence, natural_target
from fast.sparse_classes.alpha_runs import data_moments
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.inference import inducing_classes
from fast.sparse_classes.projections import ClassDistribution, add_projected
from fast.sparse_classes.robust_variational import RobustRun
from sparse_models import assert_gradients_are_differences, ordered
from values_given import classes, fitted


def problem(C: int, n: int = 15, m: int = 4, epsilon: float = 0.02, seed: int = 5) -> dict[str, Any]:
    return ordered(C, n, m, seed, blur=0.3) | {"epsilon": epsilon}


def target(
    distribution: ClassDistribution, view: Any, y: Any, epsilon: float, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """P* and w* of every class at q."""
    result = powered_labels(y, data_moments(distribution, view), 0.0, epsilon)
    Q, t = np.zeros_like(distribution.precision), np.zeros_like(distribution.shift)
    add_projected(Q, t, view, scale * result.by_variance, scale * result.derivative)
    parts = [natural_target(Q[k], t[k], distribution.weights[k]) for k in range(len(t))]
    return np.array([part[0] for part in parts]), np.array([part[1] for part in parts])


def dense(given: dict[str, Any], m: np.ndarray, S: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """(15), (16), (17) with inverses and adaptive quadrature."""
    X, y, C, eps = given["X"], given["y"], given["n_classes"], given["epsilon"]
    mean, var, kl = np.empty((len(X), C)), np.empty((len(X), C)), 0.0
    for k in range(C):
        Z, v, lengths = given["Z"][k], given["variance"][k], given["lengthscales"][k]
        K = se_ard(Z, Z, v, lengths) + given["jitter"][k] * np.eye(len(Z))
        inverse, cross = np.linalg.inv(K), se_ard(X, Z, v, lengths)
        U = cross @ inverse
        mean[:, k] = U @ m[k]
        var[:, k] = v + given["noise"][k] - (U * cross).sum(axis=1) + ((U @ S[k]) * U).sum(axis=1)
        kl += 0.5 * (np.trace(inverse @ S[k]) + m[k] @ inverse @ m[k] - len(Z))
        kl += 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(S[k])[1])
    total = 0.0
    for i, label in enumerate(y):
        others = [k for k in range(C) if k != label]

        def integrand(u: float, i: int = i, label: int = label, others: list[int] = others) -> float:
            t = mean[i, label] + np.sqrt(var[i, label]) * u
            won = ndtr((t - mean[i, others]) / np.sqrt(var[i, others])).prod()
            return float(won * np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi))

        P = quad(integrand, -9.0, 9.0, epsabs=1e-13, epsrel=1e-12)[0]
        total += np.log(eps / C) + (np.log(1.0 - eps + eps / C) - np.log(eps / C)) * P
    return total - kl, mean, var


@pytest.mark.verifies("villacampa2017", "15", "16", "17", "u22-vi-latent-marginal", route="dense algebra, quadrature")
def test_bound_and_marginals_are_the_definitions() -> None:
    given = problem(3)
    posterior = fitted(vi_robust, **given, max_iterations=3)
    bound, mean, var = dense(given, posterior.inducing_mean, posterior.inducing_cov)
    at_data = vi_robust.latents(posterior)
    # inverses of K_ZZ of condition 1e3; quadrature to 1e-12
    np.testing.assert_allclose(at_data.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(at_data.var, var, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(posterior.log_evidence, bound, rtol=1e-9, atol=0.0)


@pytest.mark.verifies("villacampa2017", "15", route="exact evidence of two data")
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0 - 1e-9])
def test_bound_stays_below_the_evidence_and_meets_it_where_labels_say_nothing(epsilon: float) -> None:
    X = np.array([[0.0], [0.5]])
    posterior = fitted(vi_robust, X, np.array([1, 1]), 2, 1.5, np.ones(1), 0.2, 0.0, X, epsilon)
    # with noise on Z = X the model of the bound is the full one: h = f_1 - f_0 has correlation rho at the two inputs
    rho = 1.5 * np.exp(-0.125) / 1.7
    low, gap = 0.5 * epsilon, 1.0 - epsilon
    exact = np.log(low**2 + low * gap + gap**2 * (0.25 + np.arcsin(rho) / (2.0 * np.pi)))
    assert posterior.log_evidence <= exact + 1e-12  # rounding
    if epsilon > 0.9:
        # the likelihood varies by 1e-9 relative, so the bound is that close
        np.testing.assert_allclose(posterior.log_evidence, exact, rtol=0.0, atol=1e-8)


@pytest.mark.verifies("villacampa2017", "u21-vi-baseline", route="rank-one definition of the target")
def test_target_is_the_natural_gradient_at_the_present_q(rng: np.random.Generator) -> None:
    given = problem(3)
    data = ClassData(given["X"], given["y"], 3)
    points = inducing_classes(
        data, Prior(*(given[name] for name in ("variance", "lengthscales", "noise", "jitter", "Z")))
    )  # fmt: skip
    root = rng.normal(size=(3, 4, 4))
    distribution = ClassDistribution.of(np.eye(4) + root @ root.transpose(0, 2, 1), rng.normal(size=(3, 4)))
    block = next(data.blocks(points))
    marginals = data_moments(distribution, block.view)
    precision, shift = target(distribution, block.view, block.y, 0.02)
    precision = precision - np.eye(4)  # what the data have in it
    h = 1e-5
    for k in range(3):
        rows = block.view.rows[k]
        for direction in np.eye(4):
            # L along the mean p: A g - ..., whose part at the target is w* - P* p
            up, down = (
                powered_labels(
                    block.y,
                    marginals._replace(mean=marginals.mean + s * h * np.outer(rows @ direction, np.eye(3)[k])),
                    0.0,
                    0.02,
                ).value.sum()
                for s in (1.0, -1.0)
            )
            # truncation h^2, rounding eps/h
            pulled = direction @ (shift[k] - precision[k] @ distribution.weights[k])
            np.testing.assert_allclose((up - down) / (2 * h), pulled, rtol=1e-6, atol=1e-8)
            moved = (rows @ direction) ** 2
            up, down = (
                powered_labels(
                    block.y, marginals._replace(var=marginals.var + s * h * np.outer(moved, np.eye(3)[k])), 0.0, 0.02
                ).value.sum()
                for s in (1.0, -1.0)
            )
            curved = -0.5 * direction @ precision[k] @ direction
            np.testing.assert_allclose((up - down) / (2 * h), curved, rtol=1e-6, atol=1e-8)


def test_steps_never_lower_the_bound_and_end_where_it_is_flat() -> None:
    given = problem(3)
    posterior = fitted(vi_robust, **given, trace=True)
    assert posterior.trained.converged
    trace = posterior.trained.trace
    # the rule lets rounding pass: 1e-12 of the bound
    assert np.diff(trace).min() >= -1e-12 * (1.0 + abs(trace[-1]))
    m, S = posterior.inducing_mean, posterior.inducing_cov
    best = dense(given, m, S)[0]
    rng = np.random.default_rng(1)
    for h in (1e-3, 1e-2):
        for _ in range(2):
            move = rng.normal(size=m.shape)
            shrink = np.exp(h * rng.normal())
            assert dense(given, m + h * move, S)[0] < best
            assert dense(given, m, S * shrink)[0] < best


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_are_differences_of_the_converged_bound(shared: bool) -> None:
    assert_gradients_are_differences(partial(fitted, vi_robust), vi_robust.gradients, problem(3, n=12, m=3), shared)


@pytest.mark.parametrize(("nat_rate", "bounded"), [(0.01, False), (0.25, True)])
def test_a_mini_batch_step_is_a_convex_step_of_bounded_length(nat_rate: float, bounded: bool) -> None:
    given = problem(3)
    batch = np.array([1, 4, 4, 9])
    posterior = fitted(vi_robust, **given, batches=[batch], nat_rate=nat_rate)
    data = ClassData(given["X"], given["y"], 3)
    points = inducing_classes(
        data, Prior(*(given[name] for name in ("variance", "lengthscales", "noise", "jitter", "Z")))
    )  # fmt: skip
    view, y = points.view(given["X"][[1, 4, 9]]), given["y"][[1, 4, 9]]
    aim = target(ClassDistribution.prior(3, 4), view, y, 0.02, scale=5.0)
    # an index listed twice counts once: 15/3 data stand behind each; at P = I and w = 0 the metric is Euclidean
    residual = max(max(np.linalg.norm(P - np.eye(4)), np.linalg.norm(w)) for P, w in zip(*aim, strict=True))
    rate = min(nat_rate, 0.5 / residual)
    assert (rate < nat_rate) == bounded
    np.testing.assert_allclose(posterior.trained.residual, residual, rtol=1e-12, atol=0.0)
    wanted = (1.0 - rate) * np.eye(4) + rate * aim[0]
    np.testing.assert_allclose(posterior.run.q.precision, wanted, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(posterior.run.q.shift, rate * aim[1], rtol=1e-12, atol=1e-13)
    assert not posterior.trained.converged


@pytest.mark.parametrize("nat_rate", [0.1, 1.0])
@pytest.mark.parametrize("copies", [1, 2500])
def test_no_size_of_data_loses_a_class(copies: int, nat_rate: float) -> None:
    given = problem(4, n=400, m=12, epsilon=1e-3)
    given["y"] = np.digitize(given["X"][:, 0], [-0.7, 0.0, 0.7]).astype(np.int64)
    X, y = given["X"], given["y"]
    rng = np.random.default_rng(0)
    batches = [rng.choice(400, 40, replace=False) for _ in range(200)]
    # as many data as are said, of which the batches see the first 400
    given["X"], given["y"] = np.tile(X, (copies, 1)), np.tile(y, copies)
    posterior = fitted(vi_robust, **given, batches=batches, nat_rate=nat_rate, evaluate=False)
    chosen = vi_robust.predict(posterior, X).probabilities.argmax(axis=1)
    # no noise in the labels: a class that is given up has none right
    assert min(np.mean(chosen[y == k] == k) for k in range(4)) > 0.8


def test_mini_batches_come_near_the_fixed_point_and_learn() -> None:
    given = problem(3, n=40)
    target = fitted(vi_robust, **given)
    steps = fitted(vi_robust, **given, batch_size=20, n_steps=40)
    # noise of half the data at a step of 0.1: within two nats of the maximum, far above the prior's bound
    assert target.log_evidence - 2.0 < steps.log_evidence <= target.log_evidence + 1e-9
    learned = fitted(vi_robust, **given, batch_size=20, n_steps=40, learn=("variance", "Z"), rate=0.05)
    assert learned.log_evidence > steps.log_evidence


def test_a_killed_run_continues_identically(tmp_path: Any) -> None:
    given = problem(3, n=40) | {"batch_size": 10, "learn": ("variance",), "seed": 2, "checkpoint_every": 5}
    whole = fitted(vi_robust, **given, n_steps=14)
    file = tmp_path / "run.npz"

    def kill(progress: Any) -> None:
        if progress.iteration == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(vi_robust, **given, n_steps=14, checkpoint=file, callback=kill)
    again = fitted(vi_robust, **given, n_steps=14, checkpoint=file)
    assert np.array_equal(whole.run.q.precision, again.run.q.precision)
    assert whole.log_evidence == again.log_evidence


def test_blocks_and_memory_maps_change_nothing(tmp_path: Any) -> None:
    given = problem(3, n=70)
    whole = fitted(vi_robust, **given)
    mapped = np.memmap(tmp_path / "X", np.float64, "w+", shape=given["X"].shape)
    mapped[:] = given["X"]
    cut = fitted(vi_robust, **(given | {"X": mapped}), block_size=64, memory_budget=0)
    # sums in another order; runs end at a residual of 1e-10
    np.testing.assert_allclose(cut.log_evidence, whole.log_evidence, rtol=1e-11, atol=0.0)
    np.testing.assert_allclose(cut.inducing_mean, whole.inducing_mean, rtol=1e-7, atol=1e-8)
    one, other = (vi_robust.predict(whole, given["X"], block_size=size) for size in (64, 1024))
    # the same numbers whatever the blocks
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-12, atol=0.0)
    np.testing.assert_allclose(one.probability_mass, 1.0, rtol=0.0, atol=1e-11)
    assert one.probabilities.min() >= 0.02 / 3 - 1e-12


def test_a_step_keeps_half_of_each_precision_where_the_target_is_no_distribution() -> None:
    # data on the wrong side: their expected logarithms are convex there, and a full step overshoots
    data = ClassData(np.zeros((5, 1)), np.zeros(5, dtype=np.int64), 2)
    points = inducing_classes(data, Prior(1.0, np.ones(1), 0.0, 1e-9, np.zeros((1, 1))))
    run = RobustRun(data, points, 1e-3, guarded=False, nat_rate=1.0)
    start = ClassDistribution.of(np.full((2, 1, 1), 1.2), np.array([[-1.2], [1.2]]))
    view = points.view(data.X)
    aim = target(start, view, data.y, 1e-3)[0]
    assert (aim < -1.2).all()
    run._set(start)
    residual = run.refresh().residual
    rate = 0.5 / residual
    assert rate < 1.0
    np.testing.assert_allclose(run.q.precision, 1.2 + rate * (aim - 1.2), rtol=1e-12, atol=0.0)
    assert (run.q.precision >= 0.5 * 1.2).all()
    assert np.isfinite(divergence(run.q))


def test_what_cannot_be_is_refused_by_name() -> None:
    given = problem(3)
    for changed, name in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"nat_rate": 0.0}, "nat_rate"),
        ({"optimizer": "lbfgs", "learn": ("variance",), "batch_size": 5}, "optimizer"),
        ({"batches": [[99]]}, "batches"),
        ({"Z": None}, "Z"),
    ):
        with pytest.raises(ValueError, match=name):
            fitted(vi_robust, **(given | changed))


@pytest.mark.parametrize("module", [vi_robust, apep], ids=["vi-robust", "apep"])
def test_a_run_begins_at_a_q_that_is_given_and_refuses_one_of_another_shape(module: Any) -> None:
    given = problem(3)
    arguments = classes(type(module.DEFAULTS), **given, tolerance=1e-8)
    posterior = module.fit(*arguments)
    again = module.fit(*arguments, q=posterior.run.q)
    assert posterior.trained.iterations > 2
    assert again.trained.iterations <= 2
    # both within 1e-8 of the optimum, in units of q
    np.testing.assert_allclose(again.inducing_mean, posterior.inducing_mean, atol=1e-6)
    fewer = module.fit(*classes(type(module.DEFAULTS), **(given | {"Z": given["Z"][:, :3]})))
    with pytest.raises(
        ValueError, match=r"^q: found shapes \(3, 3, 3\) and \(3, 3\), expected \(3, 4, 4\) and \(3, 4\)$"
    ):
        module.fit(*arguments, q=fewer.run.q)
