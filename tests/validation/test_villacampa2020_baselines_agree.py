"""`reference` and `fast` on the baselines of villacampa2020's appendix C: random problems, learned priors, refusals.

The limit is the judge's own for an identity, max(1e-8, 100 eps cond), on problems whose K_ZZ has a condition of at most
1e5; gradients are differences of terms of the size of 1 % of log Z and more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from validation import Problem, Solution, solve
from validation.compare import identity_limit, prior_condition, relative_difference

FIELDS = ("log_evidence", "inducing_mean", "inducing_cov", "latent_mean", "latent_cov", "test_latent_mean",
          "test_latent_cov", "probabilities", "probability_mass")  # fmt: skip
LEARNED = ("variance", "lengthscales", "noise", "Z")
LIKELIHOODS = {"label-regression": "threshold", "laplace-sparse": "softmax"}
LOCAL = {"label-regression": {"site_precision", "site_shift"}, "laplace-sparse": {"pi"}}


def conditioned(method: str, seed: int) -> Problem:
    """The first problem of a seeded stream with a condition of at most 1e5: 2 to 4 classes, shared for odd seeds."""
    rng, C, shared = np.random.default_rng([2020, seed]), 2 + seed % 3, bool(seed % 2)
    while True:
        n, d, m = int(rng.integers(5, 12)), int(rng.integers(1, 3)), int(rng.integers(2, 4))
        X, count = rng.normal(size=(n, d)), 1 if shared else C
        p = Problem(
            name="random",
            X=X,
            y=rng.permutation(np.arange(n) % C),
            n_classes=C,
            likelihood=LIKELIHOODS[method],
            variance=np.tile(np.exp(rng.uniform(-2.0, 2.0, count)), C // count),
            lengthscales=np.tile(np.sqrt(d) * np.exp(0.5 * rng.normal(size=(count, d))), (C // count, 1)),
            noise=np.tile(rng.uniform(0.05, 0.5, count), C // count),
            jitter=rng.choice([1e-6, 1e-3]),
            Z=np.tile(rng.normal(size=(count, m, d)), (C // count, 1, 1)),
            shared=shared,
            prior_model="fitc",
            epsilon=0.05 if method == "label-regression" else 0.0,
            X_test=np.concatenate([X[:1], rng.normal(size=(3, d))]),
        )
        if prior_condition(p) <= 1e5:
            return p


def both(method: str, p: Problem, **options: Any) -> tuple[Solution, Solution]:
    """The answers of the two witnesses."""
    return solve("reference", method, p, **options), solve("fast", method, p, **options)


def above_limit(left: Solution, right: Solution) -> dict[str, float]:
    """What differs by more than its limit, in limits."""
    limit = identity_limit(left.problem)[0]
    apart = {name: relative_difference(getattr(left, name), getattr(right, name)) for name in FIELDS}
    apart |= {name: relative_difference(left.local[name], right.local[name]) for name in LOCAL[left.method]}
    apart |= {
        f"learned {name}": relative_difference(getattr(left.problem, name), getattr(right.problem, name))
        for name in LEARNED
    }
    assert (left.gradients is None) == (right.gradients is None) == (left.method == "laplace-sparse")
    assert left.log_evidence is not None
    if left.gradients is not None and right.gradients is not None:
        floor = 0.01 * abs(left.log_evidence)
        apart |= {name: relative_difference(left.gradients[name], right.gradients[name], floor) for name in LEARNED}
    return {name: value / limit for name, value in apart.items() if not value <= limit}


@pytest.mark.parametrize("method", LIKELIHOODS)
@pytest.mark.parametrize("seed", range(6))
def test_everything_that_is_reported_agrees(method: str, seed: int) -> None:
    p = conditioned(method, seed)
    left, right = both(method, p)
    assert left.converged
    assert right.converged
    assert left.local.keys() == right.local.keys() == LOCAL[method]
    assert not above_limit(left, right), identity_limit(p)[1]
    for name in ("log_evidence_kind", "evidence_target", "evidence_prior_model"):
        assert getattr(left, name) == getattr(right, name)
    # another noise is another answer: agreement is not that of constants
    other = solve("fast", method, p.replace(noise=p.noise * 1.01))
    assert above_limit(left, other)["log_evidence"] > 100.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_learned_regressions_agree_after_steps_and_where_searches_end(seed: int) -> None:
    p = conditioned("label-regression", seed)
    left, right = both("label-regression", p, learn=LEARNED, optimizer="adaptive", rate=0.02, n_steps=5, trace=True)
    assert not above_limit(left, right)
    assert len(left.trace) == len(right.trace) == 5
    assert relative_difference(left.trace, right.trace) <= identity_limit(p)[0]
    assert np.any(left.problem.variance != p.variance)
    left, right = both("label-regression", p, learn=("noise",), learn_tolerance=1e-5)
    assert left.converged
    assert right.converged
    assert left.log_evidence is not None
    assert right.log_evidence is not None
    # projected gradients of 1e-5 at optima whose curvature in the logarithm is about 0.1 or more
    assert abs(left.log_evidence - right.log_evidence) <= 1e-8


@pytest.mark.parametrize("method", LIKELIHOODS)
def test_both_refuse_the_same_questions(method: str) -> None:
    p = conditioned(method, 3)
    questions: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("likelihood", {"likelihood": "multinomial-probit", "epsilon": 0.0}, {}),
        ("kernel", {"kernel": "matern", "smoothness": 1.5}, {}),
        ("Z", {"Z": None, "prior_model": "full"}, {}),
        ("hyperprior", {"hyperprior": {"variance": ("log-normal", 1.0, 1.0)}}, {}),
    ]
    if method == "label-regression":
        at_data = {"Z": np.tile(p.X, (p.n_classes, 1, 1)), "noise": 0.0, "jitter": 0.0, "lengthscales": 0.3}
        questions += [
            ("noise", at_data, {}),
            ("learn", {}, {"learn": ("jitter",)}),
            ("optimizer", {}, {"learn": ("Z",), "optimizer": "adam"}),
            ("rate", {}, {"learn": ("Z",), "optimizer": "adaptive", "rate": 0.0}),
        ]
    else:
        questions += [
            ("tolerance", {}, {"tolerance": 0.0}),
            ("max_iterations", {}, {"max_iterations": 0}),
            ("prediction_nodes", {}, {"prediction_nodes": 1}),
        ]
    for name, changes, options in questions:
        for witness in ("reference", "fast"):
            with pytest.raises(ValueError, match=rf"^{name}: found"):
                solve(witness, method, p.replace(**changes), **options)
