"""Recorded distances: 5 % show, wherever the method is, and a truth of other draws leaves what its errors say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validation import solve
from validation.checks.against_truth import moments
from validation.checks.core import Compared, Context, Skipped, registered
from validation.door.solution import Solution
from validation.judge import distances
from validation.judge.compare import compare, unjudged
from validation.truth import store

COVARIANCES = ("latent_cov", "test_latent_cov", "inducing_cov")
# quadrature and stored draws, one latent and three, near the truth and far from it
CASES = (("x-gpc", "three-points"), ("x-gpc", "toy"), ("nested-ep", "toy-3"), ("laplace", "toy-3-softmax"))


def both(method: str, name: str) -> tuple[Solution, Solution]:
    """The answer of `fast` and the truth."""
    return solve("fast", method, distances.question(name)), distances.truth_of(name, solve)


def verdicts(candidate: Solution, truth: Solution) -> dict[str, str]:
    """Verdict by quantity."""
    return {row.quantity: row.verdict for row in compare(candidate, truth)}


@pytest.mark.parametrize(("method", "name"), CASES)
def test_the_method_itself_passes_and_variances_five_percent_off_do_not(method: str, name: str) -> None:
    answer, truth = both(method, name)
    rows = compare(answer, truth)
    assert {row.verdict for row in rows} == {"PASS"}
    # truths have no gradients, and of a full GP no covariances between data
    lacking = [q for q in distances.QUANTITIES if getattr(truth, q) is None and getattr(answer, q) is not None]
    assert [q for q in unjudged(rows, answer, truth) if not q.startswith("gradients/")] == lacking
    for quantity in COVARIANCES:
        cov = getattr(answer, quantity)
        if cov is None or getattr(truth, quantity) is None:
            continue
        for factor in (1.05, 0.95):
            told = verdicts(replace(answer, implementation="mine", **{quantity: factor * cov}), truth)
            assert [q for q, verdict in told.items() if verdict == "FAIL"] == [quantity]


@pytest.mark.parametrize(("method", "name"), CASES)
def test_means_and_log_z_off_by_five_percent_fail_too(method: str, name: str) -> None:
    answer, truth = both(method, name)
    assert answer.latent_mean is not None
    assert answer.log_evidence is not None
    # 5 % of the largest entry, away from the truth where a distance of the largest entry is to grow
    assert truth.latent_mean is not None
    far = np.unravel_index(np.abs(answer.latent_mean - truth.latent_mean).argmax(), answer.latent_mean.shape)
    mean = answer.latent_mean.copy()
    mean[far] += 0.05 * np.abs(mean).max() * np.sign(mean[far] - truth.latent_mean[far])
    assert verdicts(replace(answer, latent_mean=mean), truth)["latent_mean"] == "FAIL"
    off = replace(answer, log_evidence=answer.log_evidence + 0.05 * min(answer.log_evidence, -1.0))
    assert verdicts(off, truth)["log_evidence"] == "FAIL"


def test_a_truth_of_other_draws_widens_the_band_by_its_errors() -> None:
    answer, truth = both("x-gpc", "toy")
    (row,) = (row for row in compare(answer, truth) if row.quantity == "latent_cov")
    assert truth.latent_cov is not None
    assert truth.latent_cov_se is not None
    other = replace(truth, latent_cov=truth.latent_cov + truth.latent_cov_se)  # other draws, one error off
    (moved,) = (row for row in compare(answer, other) if row.quantity == "latent_cov")
    assert moved.verdict == row.verdict == "PASS"
    assert moved.observed > row.observed
    # draws too few to tell 5 %: nothing is judged, however near
    wide = replace(other, latent_cov_se=20.0 * truth.latent_cov_se)
    (blind,) = (row for row in compare(answer, wide) if row.quantity == "latent_cov")
    assert blind.verdict == "SKIP"
    assert "would hide variances 5 % off" in blind.why


def test_a_known_method_on_another_problem_has_no_verdict_on_its_covariances_unless_they_are_absurd() -> None:
    answer, truth = both("x-gpc", "three-points")
    problem = answer.problem.replace(variance=1.01 * answer.problem.variance)
    moved, other = solve("fast", "x-gpc", problem), solve("quadrature", "exact", problem)
    rows = {row.quantity: row for row in compare(moved, other)}
    assert rows["latent_cov"].verdict == rows["test_latent_cov"].verdict == "SKIP"
    assert "compare with `triad solve fast x-gpc`" in rows["latent_cov"].why
    assert {"latent_cov", "test_latent_cov"} <= set(unjudged(list(rows.values()), moved, other))
    assert moved.latent_cov is not None
    assert verdicts(replace(moved, latent_cov=10.0 * moved.latent_cov), other)["latent_cov"] == "FAIL"
    # another power is another method
    assert distances.known(replace(answer, settings={}), truth) is not None
    assert distances.known(replace(answer, settings={"n_steps": 3}), truth) is None
    assert distances.known(replace(answer, converged=False), truth) is None


def test_settings_of_another_fixed_point_have_no_recorded_distance() -> None:
    entry = next(e for e in distances.entries() if (e.method, e.problem) == ("pep", "toy-2-sparse-threshold"))
    assert entry.settings["alpha"] in (0.5, 1.0)
    answer, truth = (
        solve("fast", "pep", distances.question(entry.problem), alpha=0.7),
        store.load(entry.problem).solution,
    )
    assert distances.known(answer, truth) is None


def test_the_default_band_is_nine_tenths_of_what_is_recorded() -> None:
    results = [e.distances[q][0] for e in distances.entries() for q in COVARIANCES if q in e.distances]
    # to the tenth
    assert round(float(np.quantile(results, 0.9)), 1) == distances.COVARIANCE_BAND


def test_every_deterministic_method_with_a_truth_of_its_model_is_recorded_and_checked() -> None:
    left_out = {m for m in moments.PAPER if m not in distances.methods()}
    # steps, and a regression on labels
    assert left_out == {"x-gpc-svi", "label-regression"}
    checks = registered()
    for method in distances.methods():
        assert checks[f"discrepancy/{method}/moments"].problems


@pytest.mark.parametrize("quantity", ["latent_cov", "test_latent_cov"])
def test_the_check_turns_red_where_both_witnesses_err_alike(quantity: str) -> None:
    context = Context()
    check = registered()["discrepancy/x-gpc/moments"]
    problem = context.problem("toy")
    fine = list(check.function(context, problem))
    assert all(isinstance(o, Compared) and o.observed <= o.limit for o in fine)
    for key, answer in context._answers.items():
        assert isinstance(answer, Solution)
        context._answers[key] = replace(answer, **{quantity: 1.05 * getattr(answer, quantity)})
    red = [o for o in check.function(context, problem) if not isinstance(o, Skipped) and o.observed > o.limit]  # type: ignore[union-attr]
    assert [o.why.partition(":")[0] for o in red] == [quantity]  # type: ignore[union-attr]
