"""`reference` and `fast` at the fixed point of problems drawn at random, odd ones among them.

The limit is the judge's own for an identity, max(1e-8, 100 eps cond); problems are kept to cond <= 1e5, where it means
something. What is exactly zero in theory comes out as rounding on both sides: means are measured against at least 1 %
of the largest latent variance (what they would be if the labels did not cancel), gradients against at least 1 % of the
bound over the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from validation import Problem, Solution, solve
from validation.compare import identity_limit, prior_condition, relative_difference

Array = NDArray[np.float64]
ARRAYS = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities", "inducing_mean",
          "inducing_cov")  # fmt: skip


def draw(rng: np.random.Generator, n: int | None = None, d: int | None = None, m: int | None = None) -> Problem:
    """A problem with sizes, scales, noise and jitter at random; m = 0 is the full GP."""
    n = int(np.exp(rng.uniform(np.log(2), np.log(45)))) if n is None else n
    d = int(rng.integers(1, 21)) if d is None else d
    m = int(rng.choice(np.array([0, rng.integers(1, n + 1), rng.integers(1, min(n, 8) + 1)]))) if m is None else m
    scale = np.exp(rng.uniform(-3.0, 3.0))
    X = scale * rng.normal(size=(n, d))
    y = (X @ rng.normal(size=d) + 0.5 * scale * np.sqrt(d) * rng.normal(size=n) > 0).astype(int)
    y[0], y[-1] = 0, 1
    lengthscales = scale * np.sqrt(d) * np.exp(rng.normal(size=d))
    if rng.random() < 0.2:
        lengthscales = np.exp(rng.uniform(np.log(1e-3), np.log(1e3), d))
    Z = X[rng.permutation(n)[:m]] if rng.random() < 0.5 else X[rng.integers(0, n, m)] + scale * rng.normal(size=(m, d))
    return Problem(
        name="random",
        X=X,
        y=y,
        n_classes=2,
        likelihood="logit",
        variance=np.exp(rng.uniform(-8.0, 8.0)),
        lengthscales=lengthscales,
        noise=float(rng.choice([0.0, 1e-3, 0.1, 10.0])),
        jitter=float(rng.choice([0.0, 1e-6, 1e-3])),
        Z=Z if m else None,
        X_test=np.concatenate([X[:2], X[rng.integers(0, n, 3)] + scale * rng.normal(size=(3, d))]),
    )


def duplicate_rows(p: Problem, rng: np.random.Generator) -> Problem:
    return p.replace(X=p.X[rng.integers(0, p.n, p.n)])


def constant_column(p: Problem, rng: np.random.Generator) -> Problem:
    X = p.X.copy()
    X[:, 0] = 0.3
    return p.replace(X=X)


def far_from_the_origin(p: Problem, rng: np.random.Generator) -> Problem:
    assert p.X_test is not None
    return p.replace(X=p.X + 1e6, X_test=p.X_test + 1e6, Z=None if p.Z is None else p.Z + 1e6)


def one_against_all(p: Problem, rng: np.random.Generator) -> Problem:
    return p.replace(y=(np.arange(p.n) == 0).astype(int))


def inducing_points_outside(p: Problem, rng: np.random.Generator) -> Problem:
    spread = np.ptp(p.X, axis=0)
    return p.replace(Z=p.X.max(axis=0) + spread * (0.2 + rng.random((4, p.d))))


def inducing_points_twice(p: Problem, rng: np.random.Generator) -> Problem:
    return p.replace(Z=p.X[[0, 1, 0, 1]], jitter=1e-3)


def inducing_points_at_the_data(p: Problem, rng: np.random.Generator) -> Problem:
    return p.replace(Z=p.X)


def one_inducing_point(p: Problem, rng: np.random.Generator) -> Problem:
    return p.replace(Z=p.X[:1])


def far_test_points(p: Problem, rng: np.random.Generator) -> Problem:
    return p.replace(X_test=p.X[:2] + 1e5)


def no_test_points(p: Problem, rng: np.random.Generator) -> Problem:
    return p.replace(X_test=np.empty((0, p.d)))


CHANGES: list[Callable[[Problem, np.random.Generator], Problem]] = [
    duplicate_rows, constant_column, far_from_the_origin, one_against_all, inducing_points_outside,
    inducing_points_twice, inducing_points_at_the_data, one_inducing_point, far_test_points, no_test_points,
]  # fmt: skip


def differences(left: Solution, right: Solution) -> Iterator[tuple[str, float]]:
    """Each quantity with its largest difference, on the scale of its largest entry or of the floor named above."""
    assert left.log_evidence is not None
    assert right.log_evidence is not None
    assert left.latent_cov is not None
    yield "log_evidence", relative_difference(left.log_evidence, right.log_evidence)
    for name in ARRAYS:
        a, b = getattr(left, name), getattr(right, name)
        assert a.shape == b.shape
        assert np.isfinite(a).all()
        assert np.isfinite(b).all()
        floor = 0.01 * float(left.latent_cov.max()) if name.endswith("mean") else 0.0
        yield name, _apart(a, b, floor)
    yield "c", relative_difference(left.local["c"], right.local["c"])
    p = left.problem
    parameters = {
        "variance": p.variance, "noise": p.variance + p.noise, "lengthscales": p.lengthscales,
        "Z": p.lengthscales[:, None, :],
    }  # fmt: skip
    assert left.gradients is not None
    assert right.gradients is not None
    assert set(left.gradients) == set(right.gradients)
    for name, a in left.gradients.items():
        yield f"gradient {name}", _apart(a * parameters[name], right.gradients[name] * parameters[name],
                                         0.01 * abs(left.log_evidence))  # fmt: skip


def _apart(a: Array, b: Array, floor: float) -> float:
    if a.size == 0:
        return 0.0
    scale = max(float(np.abs(a).max()), float(np.abs(b).max()), floor)
    return float(np.abs(a - b).max()) / scale if scale > 0.0 else 0.0


def assert_agreement(p: Problem, **options: object) -> None:
    left, right = solve("reference", "x-gpc", p), solve("fast", "x-gpc", p, **options)
    assert left.converged
    assert right.converged
    limit, why = identity_limit(p)
    apart = {name: value for name, value in differences(left, right) if not value <= limit}
    assert not apart, f"{apart} above {limit:.1e}: {why}"


def conditioned(seed: int, change: Callable[[Problem, np.random.Generator], Problem] | None) -> Problem:
    """The first problem of a seeded stream whose prior covariance has a condition of at most 1e5."""
    rng = np.random.default_rng([20190127, seed])
    while True:
        p = draw(rng)
        p = p if change is None else change(p, rng)
        if prior_condition(p) <= 1e5:
            return p


@pytest.mark.parametrize("seed", range(40))
def test_the_witnesses_agree_on_random_problems(seed: int) -> None:
    assert_agreement(conditioned(seed, None))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_witnesses_agree_on_odd_problems(change: Callable[..., Problem], seed: int) -> None:
    assert_agreement(conditioned(100 + seed, change))


@pytest.mark.parametrize("seed", range(4))
def test_the_witnesses_agree_whatever_the_blocks_and_without_mixing(seed: int) -> None:
    p = conditioned(200 + seed, None)
    assert_agreement(p, block_size=7)
    assert_agreement(p, accelerate=False)


@pytest.mark.parametrize("m", [0, 1, 40, 150])
def test_the_witnesses_agree_on_a_problem_of_many_tiles(m: int) -> None:
    rng = np.random.default_rng(3)
    p = draw(rng, n=150, d=3, m=m)
    assert_agreement(p.replace(variance=20.0, lengthscales=0.4 * np.ptp(p.X, axis=0), jitter=0.05, noise=0.1))
