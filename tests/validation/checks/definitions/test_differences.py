"""`validation.checks.definitions.differences`: differences move what a problem allows to move."""

import numpy as np
import pytest

from validation.checks.definitions.differences import parameter_differences
from validation.door.problem import Problem
from validation.judge.compare import gradient_unit

WEIGHTS = np.array([1.0, -2.0, 0.5])


def problem(*, shared: bool) -> Problem:
    variance = np.full(3, 1.5) if shared else np.array([0.7, 1.5, 2.0])
    return Problem(
        name="three", X=np.arange(8.0).reshape(4, 2), y=[0, 1, 2, 1], n_classes=3, likelihood="threshold",
        variance=variance, lengthscales=[0.8, 1.3], noise=0.2, Z=np.array([[0.0, 1.0], [2.0, 0.5]]), shared=shared,
        prior_model="fitc", epsilon=0.1,
    )  # fmt: skip


def value(at: Problem) -> float:
    """A quadratic of every parameter, whose central differences have rounding alone."""
    assert at.Z is not None
    per_latent = at.variance**2 + (at.lengthscales**2 @ [3.0, 1.0]) + at.noise**2 + (at.Z**2).sum(axis=(1, 2))
    return float(WEIGHTS @ per_latent)


def derivative_of_one_latent(at: Problem, name: str) -> np.ndarray:
    assert at.Z is not None
    return {
        "variance": 2.0 * WEIGHTS * at.variance,
        "noise": 2.0 * WEIGHTS * at.noise,
        "lengthscales": 2.0 * WEIGHTS[:, None] * at.lengthscales * [3.0, 1.0],
        "Z": 2.0 * WEIGHTS[:, None, None] * at.Z,
    }[name]


@pytest.mark.parametrize("name", ["variance", "lengthscales", "noise", "Z"])
@pytest.mark.parametrize("shared", [False, True])
def test_the_differences_of_a_shared_vector_are_the_sum_over_its_latents(name, shared):
    at = problem(shared=shared)
    derivatives = derivative_of_one_latent(at, name)
    if shared:
        derivatives = np.broadcast_to(derivatives.sum(axis=0), derivatives.shape)
    # values of size 10 over steps of 1e-3: rounding stays under 1e-11
    result = parameter_differences(value, at, name, 1e-3)
    np.testing.assert_allclose(result, derivatives * gradient_unit(at, name), rtol=0, atol=1e-10)
