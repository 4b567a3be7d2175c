"""`reference` and `fast` on laplace-binary: at fixed points of random problems, after two steps, and on refusals."""

import numpy as np
import pytest

from validation import Problem, solve
from validation.compare import gradient_difference, identity_limit, relative_difference

METHOD = "laplace-binary"
ARRAYS = ("latent_mean", "latent_cov", "inducing_mean", "inducing_cov", "test_latent_mean", "test_latent_cov",
          "probabilities", "probability_mass")  # fmt: skip


def draw(seed, likelihood):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(3, 20)), int(rng.integers(1, 4))
    return Problem(
        name="random",
        X=rng.normal(size=(n, d)),
        y=rng.integers(0, 2, n),
        n_classes=2,
        likelihood=likelihood,
        variance=np.exp(rng.uniform(-4.0, 6.0)),
        lengthscales=[np.exp(0.5 * rng.normal(size=d))],
        noise=rng.choice([0.0, 0.05, 0.7]),
        jitter=1e-3,
        X_test=rng.normal(size=(4, d)),
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_both_have_one_mode_one_gaussian_and_one_gradient(likelihood, seed):
    problem = draw(seed, likelihood)
    left, right = (solve(witness, METHOD, problem) for witness in ("reference", "fast"))
    limit, why = identity_limit(problem)
    assert left.converged
    assert right.converged
    assert relative_difference(left.log_evidence, right.log_evidence) < limit, why
    for name in ARRAYS:
        assert relative_difference(getattr(left, name), getattr(right, name)) < limit, (name, why)
    for name in ("variance", "lengthscales", "noise"):
        assert gradient_difference(left, right, name) < 10.0 * limit, (name, why)


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_both_are_at_one_place_after_two_steps_and_say_that_they_are_on_the_way(likelihood):
    problem = draw(3, likelihood).replace(variance=200.0)
    left, right = (solve(witness, METHOD, problem, max_iterations=2) for witness in ("reference", "fast"))
    assert not left.converged
    assert not right.converged
    # two steps of Newton's method, each a solve of condition 1e4
    np.testing.assert_allclose(left.latent_mean, right.latent_mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(left.trace, right.trace, rtol=1e-10, atol=0)


@pytest.mark.parametrize("witness", ["reference", "fast"])
def test_what_no_row_of_the_catalogue_lists_is_refused(witness):
    problem = draw(0, "logit")
    with pytest.raises(ValueError, match=r"^kernel: found 'matern', expected 'se'"):
        solve(witness, METHOD, problem.replace(kernel="matern", smoothness=1.5))
    with pytest.raises(ValueError, match=r"^Z: found inducing inputs, expected None"):
        solve(witness, METHOD, problem.replace(Z=problem.X[None, :2], prior_model="fitc"))
    with pytest.raises(ValueError, match=r"^learn: .*'Z'"):
        solve(witness, METHOD, problem, learn=("Z",))
