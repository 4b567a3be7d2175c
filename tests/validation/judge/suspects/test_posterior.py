"""Mistakes of the posterior, the bound and the loop, planted into answers of `fast`: the right suspect is named."""

from dataclasses import replace

import numpy as np
import pytest

from validation import Problem, solve
from validation.judge.judging import LIMIT, judge
from validation.judge.posing import posed
from validation.judge.suspects.search import suspects

RNG = np.random.default_rng(5)
X = RNG.uniform(-2.0, 2.0, (23, 2))
SPARSE = Problem(
    name="sparse", X=X, y=(X[:, 0] > 0.3 * X[:, 1]).astype(int), n_classes=2, likelihood="probit", variance=20.0,
    lengthscales=[0.9, 1.7], noise=0.3, jitter=1e-3, Z=X[:5] + 0.1, prior_model="fitc", X_test=X[::3] - 0.2,
)  # fmt: skip


def kernel(A, B):
    r = (A[:, None] - B[None]) / SPARSE.lengthscales[0]
    return SPARSE.variance[0] * np.exp(-0.5 * (r**2).sum(axis=-1))


@pytest.fixture(scope="module")
def right():
    return solve("fast", "svgpc", SPARSE)


def first(wrong, right):
    found = suspects(replace(wrong, implementation="mine"), right, limit=1e-6)
    return found.ranked[0].name if found.ranked else ""


def divergence(solution):
    """KL(q(u), p(u)) by eigenvalues of the two covariances' pencil."""
    Z, m = SPARSE.Z[0], SPARSE.m
    K = kernel(Z, Z) + SPARSE.jitter[0] * np.eye(m)
    ratio = np.linalg.eigvals(np.linalg.inv(K) @ solution.inducing_cov[0]).real
    mean = solution.inducing_mean[0]
    return 0.5 * ((ratio - 1.0 - np.log(ratio)).sum() + mean @ np.linalg.inv(K) @ mean)


def test_a_divergence_left_out_or_with_the_wrong_sign_is_named(right):
    kl = divergence(right)
    left_out = replace(right, log_evidence=right.log_evidence + kl)
    assert first(left_out, right) == "constant KL(posterior, prior)"
    wrong_sign = replace(right, log_evidence=right.log_evidence + 2.0 * kl)
    assert first(wrong_sign, right) == "constant 2 KL(posterior, prior): its sign is wrong"


def test_a_conditional_variance_that_is_left_out_is_named(right):
    K_inv = np.linalg.inv(kernel(SPARSE.Z[0], SPARSE.Z[0]) + SPARSE.jitter[0] * np.eye(SPARSE.m))
    cross = kernel(SPARSE.X_test, SPARSE.Z[0])
    conditional = SPARSE.variance[0] + SPARSE.noise[0] - np.einsum("ti,ij,tj->t", cross, K_inv, cross)
    without = right.test_latent_cov - conditional[:, None, None]
    assert first(replace(right, test_latent_cov=without), right) == "conditional variance left out"
    assert first(replace(right, test_latent_cov=conditional[:, None, None]), right) == "conditional variance alone"


def test_clipped_probabilities_are_named(right):
    p = right.probabilities
    assert p.min() < 0.01
    assert first(replace(right, probabilities=np.clip(p, 0.01, 0.99)), right) == "clipped"


def test_an_iteration_that_stops_early_and_lost_rows_are_named(right):
    early = solve("fast", "svgpc", SPARSE, max_iterations=3)
    assert first(replace(early, converged=True, settings={}), right) == "stopped early"
    part = SPARSE.replace(X=X[:20], y=SPARSE.y[:20])  # of batches of ten
    short, at_data = (solve("fast", "svgpc", part.replace(X_test=points)) for points in (SPARSE.X_test, X))
    names = ("log_evidence", "test_latent_mean", "test_latent_cov", "probabilities", "inducing_mean", "inducing_cov")
    lost = replace(right, **{name: getattr(short, name) for name in names})
    lost = replace(lost, latent_mean=at_data.test_latent_mean, latent_cov=at_data.test_latent_cov)
    assert first(replace(lost, gradients=None), right) == "last rows lost"


def test_wrong_gradients_and_noise_between_calls_are_named():
    def signed(method, problem):
        solution = solve("fast", method, problem)
        wrong = {name: -value for name, value in solution.gradients.items()}
        return replace(solution, implementation="mine", gradients=wrong)

    verdict = judge(signed, "x-gpc", problems="judge-sparse", power=False)
    assert verdict.suspicions[0].name == "gradient"
    assert "of yours has the wrong sign" in verdict.suspicions[0].text
    rng = np.random.default_rng(1)

    def noisy(method, problem):
        solution = solve("fast", method, problem)
        moved = solution.latent_mean * (1.0 + 0.01 * rng.standard_normal(solution.latent_mean.shape))
        return replace(solution, implementation="mine", latent_mean=moved)

    verdict = judge(noisy, "x-gpc", problems="judge-sparse", power=False)
    assert verdict.suspicions[0].name == "Monte Carlo noise"


def test_nobody_is_named_on_two_data_or_just_beyond_a_limit():
    def scaled(factor):
        def answer(method, problem):
            solution = solve("fast", method, problem)
            return replace(solution, implementation="mine", latent_mean=factor * solution.latent_mean)

        return answer

    verdict = judge(scaled(1.01), "x-gpc", problems="two-points", power=False)
    assert verdict.failed
    assert not any(suspicion.name.startswith("constant") for suspicion in verdict.suspicions)
    verdict = judge(scaled(1.0 + 2.0 * LIMIT), "x-gpc", problems="toy", power=False)
    assert (len(verdict.failed) > 0, verdict.suspicions) == (True, ())
    assert "first wrong in the order of computation: latent_mean (toy)" in str(verdict)
    assert posed("toy").n > 2
