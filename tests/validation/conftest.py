"""Small problems and solutions for the tests of the judge."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from validation import Problem, Solution


@pytest.fixture
def make_problem() -> Callable[..., Problem]:
    """Five points in two inputs with a test set; keywords replace fields."""

    def make(**changes: Any) -> Problem:
        fields: dict[str, Any] = {
            "name": "small",
            "X": np.array([[0.0, 1.0], [0.5, -1.0], [1.0, 0.3], [-0.8, 0.2], [2.0, 1.1]]),
            "y": np.array([0, 1, 1, 0, 1]),
            "n_classes": 2,
            "likelihood": "logit",
            "variance": 1.5,
            "lengthscales": [1.0, 1.4],
            "noise": 0.1,
            "X_test": np.array([[0.1, 0.2], [3.0, -2.0], [0.0, 1.0]]),
        }
        return Problem(**(fields | changes))

    return make


@pytest.fixture
def make_solution(make_problem: Callable[..., Problem]) -> Callable[..., Solution]:
    """An answer with every array filled in by a seeded generator; keywords replace fields, None leaves one out."""

    def make(problem: Problem | None = None, seed: int = 0, **changes: Any) -> Solution:
        problem = make_problem() if problem is None else problem
        rng = np.random.default_rng(seed)
        n, t, L, C = problem.n, problem.t, problem.n_latents, problem.n_classes
        m = problem.n if problem.m is None else problem.m
        p = rng.uniform(0.1, 1.0, (t, C))

        def covariances(*shape: int) -> np.ndarray:
            root = rng.standard_normal((*shape, shape[-1]))
            return root @ np.swapaxes(root, -1, -2)

        fields: dict[str, Any] = {
            "problem": problem,
            "implementation": "somebody",
            "method": "some-method",
            "log_evidence": -3.25,
            "latent_mean": rng.standard_normal((n, L)),
            "latent_cov": covariances(n, L),
            "test_latent_mean": rng.standard_normal((t, L)),
            "test_latent_cov": covariances(t, L),
            "probabilities": p / p.sum(axis=1, keepdims=True),
            "probability_mass": np.ones(t),
            "inducing_mean": rng.standard_normal((L, m)),
            "inducing_cov": covariances(L, m),
        }
        return Solution(**(fields | changes))

    return make
