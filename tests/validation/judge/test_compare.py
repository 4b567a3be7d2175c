import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm

from validation import problems, solve
from validation.door.premises import gate
from validation.door.statistics import QUANTITIES, same_evidence, z_statistics
from validation.judge.compare import (
    DEFAULT_BANDS,
    compare,
    identity_limit,
    is_truth,
    prior_condition,
    relative_difference,
    unjudged,
)


def by_name(rows):
    """Rows by quantity, without those on standard errors; two of one name would be a mistake."""
    assert len({row.quantity for row in rows}) == len(rows)
    return {row.quantity: row for row in rows if not row.quantity.endswith("_se")}


def changed(solution, **changes):
    """A copy with some fields replaced."""
    return dataclasses.replace(solution, **changes)


def truth_of(solution, se=None, **changes):
    """The same numbers as an exact truth, or with `se` as a sampled one."""
    if se is None:
        return changed(solution, log_evidence_kind="exact", **changes)
    errors = {
        f"{q}_se": np.full(np.shape(getattr(solution, q)), se)
        for q in QUANTITIES[1:]
        if getattr(solution, q) is not None
    }
    gate_met = {"ess": 20_000.0, "r_hat": 1.001, "settings": {"n_chains": 16}}
    return changed(solution, log_evidence_kind="sampled", **({"log_evidence_se": se} | gate_met | errors | changes))


# -- distances ---------------------------------------------------------------------------------------------


def test_the_largest_entry_scales_the_difference():
    # 1e-3 off at an entry of 1e-6 is 1e-3 of the largest entry and not a thousand times the entry
    # products and quotients of a few numbers: rounding stays within some eps
    np.testing.assert_allclose(relative_difference([1.0, 1e-3 + 1e-6], [1.0, 1e-6]), 1e-3, rtol=1e-12, atol=0)


def test_a_floor_makes_differences_of_small_arrays_absolute_and_leaves_large_ones():
    assert relative_difference([1e-30], [0.0]) == 1.0
    assert relative_difference([0.25], [0.0], floor=1.0) == 0.25
    assert relative_difference([8.0], [6.0], floor=1.0) == 0.25
    assert relative_difference([0.0], [0.0], floor=1.0) == 0.0


@pytest.mark.parametrize(("left", "right"), [([np.nan, 1.0], [1.0, 1.0]), ([1.0], [np.nan])])
@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_nan_is_a_difference_that_no_limit_admits(left, right, floor):
    assert not relative_difference(left, right, floor) <= 1e300


def test_differences_are_relative_to_the_largest_entry_of_both():
    assert relative_difference([1.0, -4.0], [1.0, -3.0]) == 0.25
    assert relative_difference([0.0, 1e-12], [1e-12, 0.0]) == 1.0
    assert relative_difference(0.0, 0.0) == 0.0
    assert relative_difference(np.zeros((0, 2)), np.zeros((0, 2))) == 0.0
    assert np.isnan(relative_difference([np.nan, 1.0], [0.0, 1.0]))
    with pytest.raises(ValueError, match=r"right: found shape \(2,\), expected \(1,\)"):
        relative_difference([1.0], [1.0, 2.0])


# two that differ do so by 1e-116 or more, and a 1e100 of the largest is no less than float64 holds
FLOATS = hnp.arrays(float, 4, elements=st.floats(-1e100, 1e100).map(lambda x: 0.0 if abs(x) < 1e-100 else x))


@settings(deadline=None, max_examples=60)
@given(FLOATS, FLOATS)
def test_differences_are_symmetric_and_between_none_and_two(left, right):
    got = relative_difference(left, right)
    assert got == relative_difference(right, left)
    # numbers of opposite sign are at most twice the larger one apart, up to rounding
    assert 0.0 <= got <= 2.0 * (1.0 + 1e-15)
    assert (got == 0.0) == np.array_equal(left, right)


def test_the_condition_of_a_prior_is_that_of_the_matrix_that_is_factorised(make_problem):
    # K = [[v + s, v r], [v r, v + s]] has eigenvalues v (1 ± r) + s
    X, v, r = [[0.0, 0.0], [1.0, 0.0]], 1.5, np.exp(-0.5)
    two = make_problem(X=X, y=[0, 1], noise=0.1, jitter=0.2)
    np.testing.assert_allclose(prior_condition(two), (v * (1 + r) + 0.3) / (v * (1 - r) + 0.3), rtol=1e-13)
    # inducing points carry the jitter and not the noise
    sparse = make_problem(Z=X, noise=0.1, jitter=0.2)
    np.testing.assert_allclose(prior_condition(sparse), (v * (1 + r) + 0.2) / (v * (1 - r) + 0.2), rtol=1e-13)


@pytest.mark.parametrize(
    ("order", "correlation"),
    [
        (0.5, lambda r: np.exp(-r)),
        (1.5, lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)),
        (2.5, lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)),
    ],
)
def test_the_condition_of_a_matern_prior_is_that_of_its_own_kernel(make_problem, order, correlation):
    problem = make_problem(X=[[0.0, 0.0], [0.7, 0.0]], y=[0, 1], noise=0.0, kernel="matern", smoothness=order)
    r = correlation(0.7)
    # the closed forms for half-integer orders; Bessel functions are good to 1e-12
    np.testing.assert_allclose(prior_condition(problem), (1 + r) / (1 - r), rtol=1e-10)


def test_the_worst_latent_decides_the_condition(make_problem):
    problem = make_problem(likelihood="softmax", n_classes=3, noise=[0.0, 1.0, 10.0])
    alone = [prior_condition(make_problem(noise=s)) for s in (0.0, 1.0, 10.0)]
    assert prior_condition(problem) == max(alone)


def test_the_identity_limit_grows_with_the_condition(make_problem):
    easy, hard = make_problem(noise=1.0), make_problem(X=np.linspace(0.0, 0.2, 10).reshape(5, 2), noise=1e-12)
    assert identity_limit(easy)[0] == 1e-8
    assert identity_limit(hard)[0] == 100.0 * np.finfo(float).eps * prior_condition(hard) > 1e-8
    assert "condition number" in identity_limit(hard)[1]


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["noise", "X", "y", "X_test"])
def test_solutions_of_different_problems_are_not_compared(make_problem, make_solution, field):
    value = {"noise": 0.2, "X": np.ones((5, 2)), "y": [1, 0, 0, 1, 0], "X_test": np.zeros((3, 2))}[field]
    with pytest.raises(
        ValueError, match=rf"right: found a solution of another problem \(it differs in \['{field}'\]\)"
    ):
        compare(make_solution(), make_solution(make_problem(**{field: value})))


def test_values_that_both_sides_learned_are_compared_and_forbid_nothing(make_problem, make_solution):
    left = make_solution(problem=make_problem(variance=1.5), settings={"learn": ["variance", "lengthscales"]})
    near = make_solution(problem=make_problem(variance=1.5 * (1 + 1e-12)), settings={"learn": "variance"})
    far = make_solution(problem=make_problem(variance=1.6), settings={"learn": ["variance"]})
    told = {row.quantity: row.verdict for row in compare(left, near)}
    assert told["learned/variance"] == "PASS"
    assert "learned/lengthscales" not in told  # one side alone learned them
    assert {row.quantity: row.verdict for row in compare(left, far)}["learned/variance"] == "FAIL"
    with pytest.raises(ValueError, match="another problem"):
        compare(left, make_solution(problem=make_problem(variance=1.6)))


def test_the_name_and_the_prior_model_of_a_problem_do_not_forbid_a_comparison(make_problem, make_solution):
    left = make_solution(make_problem(Z=np.eye(2), prior_model="fitc"))
    right = make_solution(make_problem(Z=np.eye(2), name="renamed"))
    rows = by_name(compare(left, right))
    assert rows["latent_mean"].verdict == "PASS"
    assert rows["log_evidence"].verdict == "SKIP"
    assert "different priors: 'fitc' and 'full'" in rows["log_evidence"].why


@pytest.mark.parametrize(
    ("bands", "limit", "match"),
    [
        ({"evidence": 0.1}, None, r"bands: found 'evidence', expected one of log_evidence"),
        ({"latent_mean": -0.1}, None, r"bands\['latent_mean'\]: found -0\.1, expected a number >= 0"),
        ({"latent_mean": np.nan}, None, r"bands\['latent_mean'\]: found nan"),
        (None, 0.0, r"limit: found 0\.0, expected a number > 0"),
        (None, -1.0, r"limit: found -1\.0"),
        (None, np.nan, r"limit: found nan"),
    ],
)
def test_bands_and_limits_that_mean_nothing_are_refused(make_solution, bands, limit, match):
    with pytest.raises(ValueError, match=match):
        compare(make_solution(), make_solution(), bands, limit)


def test_a_band_or_a_limit_that_nothing_is_held_against_is_refused(make_solution):
    plain, exact, chain = make_solution(), truth_of(make_solution()), truth_of(make_solution(), se=0.1)
    with pytest.raises(ValueError, match=r"bands: found latent_mean, expected none: neither side is sampled or exact"):
        compare(plain, plain, {"latent_mean": 0.1})
    for truth in (exact, chain):  # two truths have standard errors, or a limit of their own
        with pytest.raises(ValueError, match=r"bands: found latent_mean, expected quantities whose.*: none"):
            compare(chain, truth, {"latent_mean": 0.1})
    with pytest.raises(ValueError, match=r"bands: found latent_cov, expected quantities .*: .*latent_mean"):
        compare(changed(plain, latent_cov=None), exact, {"latent_cov": 0.1})
    with pytest.raises(ValueError, match=r"limit: found 0\.1 for a comparison with a truth .*, expected bands"):
        compare(plain, exact, limit=0.1)


# -- how the solutions came about --------------------------------------------------------------------------


def test_two_runs_cut_at_the_same_iteration_do_not_agree_however_equal_they_are():
    problem = problems.get("toy-3-sparse-threshold")
    left, right = (solve(name, "ep", problem, max_iterations=3) for name in ("reference", "fast"))
    rows = compare(left, right)
    assert rows[0].quantity == "converged"
    assert (rows[0].verdict, rows[0].observed) == ("FAIL", max(left.residual, right.residual))
    assert "reference ep not converged after 3 iterations at a residual of 0.7" in rows[0].why
    assert "fast ep not converged after 3 iterations" in rows[0].why
    assert {row.verdict for row in rows[1:]} == {"PASS"}


@pytest.mark.parametrize("cut", ["left", "right"])
def test_the_side_that_did_not_converge_is_named_with_its_residual_and_tolerance(make_solution, cut):
    whole = make_solution(implementation="whole")
    short = make_solution(
        implementation="short", converged=False, residual=3e-4, iterations=7, settings={"tolerance": 1e-9}
    )
    rows = compare(short, whole) if cut == "left" else compare(whole, short)
    assert rows[0][:5] == ("converged", "identity", 3e-4, 1e-9, "FAIL")
    assert "short some-method not converged after 7 iterations at a residual of 0.0003" in rows[0].why
    assert "whole" not in rows[0].why


def test_a_residual_below_the_tolerance_is_no_reason_and_the_stated_one_is_given(make_solution):
    short = make_solution(converged=False, residual=1e-12, settings={"tolerance": 1e-9, "reason": "diverged"})
    row = compare(short, make_solution())[0]
    assert row.verdict == "FAIL"
    assert np.isnan(row.limit)
    assert "(diverged)" in row.why


@pytest.mark.parametrize("asked", [{"n_steps": 5}, {"batches": [[0, 1]]}, {"batch_size": 2}])
def test_a_run_of_so_many_steps_claims_no_fixed_point(make_solution, asked):
    run = make_solution(converged=False, settings=asked)
    assert "converged" not in by_name(compare(run, run))
    unset = make_solution(converged=False, settings=dict.fromkeys(asked))
    assert by_name(compare(unset, unset))["converged"].verdict == "FAIL"


def test_an_approximation_is_judged_at_its_fixed_point_and_a_chain_that_stands_still_meets_no_gate(make_solution):
    truth = truth_of(make_solution(), se=0.1)
    rows = by_name(compare(make_solution(converged=False), truth))
    assert (rows["converged"].kind, rows["converged"].verdict) == ("discrepancy", "FAIL")
    rows = by_name(compare(make_solution(), changed(truth, converged=False)))
    assert "converged" not in rows
    assert {row.verdict for row in rows.values()} == {"SKIP"}
    assert "gate not met" in rows["gate"].why


def test_two_methods_and_two_settings_are_named(make_solution):
    left = make_solution(method="ep", settings={"alpha": 0.5, "count": "all", "damping": 0.5, "mine": 1, "reason": "a"})
    right = make_solution(method="sep", settings={"alpha": 1.0, "count": "all", "damping": 0.8, "reason": "b"})
    rows = by_name(compare(left, right))
    assert rows["method"].verdict == rows["settings"].verdict == "INFO"
    assert "'ep' and 'sep'" in rows["method"].why
    assert rows["settings"].why == "the sides were asked with alpha 0.5 and 1.0"
    assert not {"method", "settings"} & {row.quantity for row in compare(left, left)}
    # to a truth every approximation is another method
    assert not {"method", "settings"} & {row.quantity for row in compare(left, truth_of(right))}


def test_the_way_matters_to_a_run_of_steps_and_the_order_of_what_is_learned_to_nobody(make_solution):
    def run(**asked):
        return make_solution(settings=asked)

    def told(left, right):
        return {row.quantity: row.why for row in compare(left, right)}.get("settings", "")

    assert told(run(damping=0.5), run(damping=0.8)) == ""
    assert "damping 0.5 and 0.8" in told(run(damping=0.5, n_steps=3), run(damping=0.8, n_steps=3))
    assert "n_steps 3 and 4" in told(run(n_steps=3), run(n_steps=4))
    assert told(run(learn=["noise", "variance"]), run(learn=["variance", "noise"])) == ""
    assert told(run(learn="noise"), run(learn=["noise"])) == ""
    assert "learn ['noise'] and []" in told(run(learn="noise"), run(learn=[]))


# -- identity ----------------------------------------------------------------------------------------------


def test_two_equal_answers_agree_in_everything(make_solution):
    rows = compare(make_solution(), make_solution())
    assert [row.quantity for row in rows] == list(QUANTITIES)
    assert {(row.kind, row.verdict, row.observed) for row in rows} == {("identity", "PASS", 0.0)}


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_difference_just_above_the_limit_fails_and_just_below_passes(make_solution, quantity):
    left = make_solution()
    value = np.asarray(getattr(left, quantity))
    for excess, verdict in [(0.9, "PASS"), (1.2, "FAIL")]:
        moved = value.copy()
        at = np.unravel_index(np.abs(value).argmax(), value.shape)
        moved[at] *= 1.0 + excess * 1e-5
        if quantity == "probabilities":
            moved /= moved.sum(axis=1, keepdims=True)
        right = changed(left, **{quantity: moved if moved.ndim else float(moved)})
        limit = 1e-5 if quantity != "probabilities" else relative_difference(value, moved) / excess
        row = by_name(compare(left, right, limit=limit))[quantity]
        assert row.verdict == verdict
        np.testing.assert_allclose(row.observed, excess * limit, rtol=1e-4)
        assert row.limit == limit
        assert "given by the caller" in row.why


def test_gradients_and_local_arrays_are_compared_where_both_sides_have_them(make_solution):
    left = make_solution(gradients={"variance": [1.0], "noise": [2.0]}, local={"c": np.ones(5), "mine": np.ones(2)})
    right = make_solution(gradients={"variance": [1.5]}, local={"c": np.ones(5), "yours": np.ones(2)})
    rows = by_name(compare(left, right))
    assert rows["gradients/variance"].verdict == "FAIL"
    np.testing.assert_allclose(rows["gradients/variance"].observed, 1.0 / 3.0, rtol=1e-15)
    assert rows["local/c"].verdict == "PASS"
    assert not {"gradients/noise", "local/mine", "local/yours"} & set(rows)


def test_gradients_have_the_limit_and_the_unit_that_verify_gives_them(make_problem, make_solution):
    problem = make_problem(variance=1.5, noise=0.5)
    left = make_solution(problem, gradients={"variance": [2.0], "noise": [2.0]}, log_evidence=-1.0)
    for excess, verdict in [(0.9, "PASS"), (1.1, "FAIL")]:
        right = changed(left, gradients={name: [2.0 * (1.0 - excess * 1e-7)] for name in ("variance", "noise")})
        rows = by_name(compare(left, right))
        for name in ("gradients/variance", "gradients/noise"):
            assert (rows[name].limit, rows[name].verdict) == (1e-7, verdict)
            assert "terms of the size of 1 % of log Z" in rows[name].why
    assert by_name(compare(left, right, limit=1e-3))["gradients/noise"].limit == 1e-3


def test_what_rounding_leaves_of_a_gradient_at_an_optimum_is_no_difference(make_solution):
    left = make_solution(gradients={"variance": [3e-13]}, log_evidence=-50.0)
    right = changed(left, gradients={"variance": [-2e-13]})
    row = by_name(compare(left, right))["gradients/variance"]
    assert row.verdict == "PASS"
    # 5e-13 times the variance 1.5, over 1 % of 50
    np.testing.assert_allclose(row.observed, 1.5e-12, rtol=1e-12, atol=0)


def test_local_arrays_of_different_shapes_are_not_passed_over_in_silence(make_solution):
    rows = by_name(compare(make_solution(local={"c": np.ones(5)}), make_solution(local={"c": np.ones(4)})))
    assert rows["local/c"].verdict == "SKIP"
    assert rows["local/c"].why == "different shapes: (5,) and (4,)"


def test_a_nan_in_a_local_array_never_passes(make_solution):
    bad = make_solution(local={"c": np.array([np.nan, 1.0])})
    assert by_name(compare(bad, bad))["local/c"].verdict == "FAIL"


def test_empty_arrays_are_no_agreement(make_problem, make_solution):
    problem = make_problem(X_test=np.empty((0, 2)))
    assert "probabilities" not in by_name(compare(make_solution(problem), make_solution(problem)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"evidence_target": "pairwise model"}, "different targets: 'pairwise model' and 'log p(y)'"),
        ({"evidence_prior_model": "fitc"}, "different priors: 'fitc' and 'full'"),
    ],
)
def test_evidences_of_different_things_are_not_compared(make_solution, changes, why):
    for right in (make_solution(), truth_of(make_solution()), truth_of(make_solution(), se=0.1)):
        rows = by_name(compare(make_solution(**changes), right))
        assert rows["log_evidence"].verdict == "SKIP"
        assert rows["log_evidence"].why == why
        assert np.isnan(rows["log_evidence"].observed)
        # another target is another model, whose latent values are others
        verdict = "SKIP" if "evidence_target" in changes else "PASS"
        assert {rows[name].verdict for name in QUANTITIES[1:]} == {verdict}
        assert ("target" in rows) == (verdict == "SKIP")


def test_evidences_are_comparable_unless_one_is_missing_or_means_something_else(make_solution):
    assert same_evidence(make_solution(), make_solution()) is None
    assert same_evidence(make_solution(), make_solution(log_evidence=None)) == "one side has no log evidence"


def test_a_prior_that_no_number_survives_decides_nothing(make_problem, make_solution):
    problem = make_problem(X=np.tile([[1.0, 2.0]], (5, 1)), noise=0.0)
    assert identity_limit(problem)[0] > 1.0
    rows = compare(make_solution(problem), make_solution(problem, seed=1))
    assert {row.verdict for row in rows} == {"SKIP"}
    assert "no agreement can be told from rounding" in rows[0].why
    # a caller who gives a limit has decided
    assert "FAIL" in {row.verdict for row in compare(make_solution(problem), make_solution(problem, seed=1), limit=0.1)}


def test_reference_and_fast_agree_on_real_data():
    problem = problems.get("iris")
    rows = compare(solve("reference", "x-gpc", problem), solve("fast", "x-gpc", problem))
    assert {row.verdict for row in rows} == {"PASS"}
    assert {"gradients/noise", "local/c"} <= {row.quantity for row in rows}


# -- exactness ---------------------------------------------------------------------------------------------


def test_z_statistics_are_differences_over_joint_errors(make_solution):
    left = truth_of(make_solution(), se=3.0, log_evidence=-2.0)
    right = truth_of(make_solution(), se=4.0, log_evidence=-4.5)
    z, se = z_statistics(left, right, "log_evidence")
    np.testing.assert_array_equal(se, [5.0])
    np.testing.assert_allclose(z, [0.5], rtol=1e-15)
    # an exact side adds no error
    z, se = z_statistics(left, truth_of(make_solution(), log_evidence=-4.5), "log_evidence")
    np.testing.assert_array_equal(se, [3.0])
    assert z_statistics(make_solution(), truth_of(make_solution()), "latent_mean") is None
    assert z_statistics(changed(left, latent_mean=None), right, "latent_mean") is None


def test_entries_without_error_must_agree_exactly(make_solution):
    left = truth_of(make_solution(), se=0.0)
    moved = left.latent_mean.copy()
    moved[2, 0] += 1e-3
    right = changed(left, latent_mean=moved)
    z, _ = z_statistics(left, right, "latent_mean")
    np.testing.assert_array_equal(z[:, 0], [0.0, 0.0, np.inf, 0.0, 0.0])
    rows = by_name(compare(left, right))
    assert rows["latent_mean"].verdict == "FAIL"
    assert rows["latent_cov"].verdict == "PASS"


def test_an_error_below_rounding_tells_no_difference_of_rounding(make_solution):
    # a test point that no datum reaches: draws of its variance differ in the last digit, their mean by some of them
    left = truth_of(make_solution(), se=0.1)
    errors = left.latent_mean_se.copy()
    errors[2, 0] = 1e-16
    left = changed(left, latent_mean_se=errors)
    largest = np.abs(left.latent_mean).max()
    for gap, verdict in ((1e-13, "PASS"), (1e-10, "FAIL")):
        moved = left.latent_mean.copy()
        moved[2, 0] += gap * largest
        rows = by_name(compare(left, changed(left, latent_mean=moved)))
        assert rows["latent_mean"].verdict == verdict


@pytest.mark.parametrize(("z", "verdict"), [(4.2, "PASS"), (4.3, "FAIL"), (-4.2, "PASS"), (-4.3, "FAIL")])
def test_the_level_is_shared_between_the_entries_of_an_array(make_solution, z, verdict):
    # five means at level 1e-4: Φ(-4.2649) = 0.5e-4/5
    threshold = norm.isf(0.5e-4 / 5)
    np.testing.assert_allclose(threshold, 4.2649, rtol=0, atol=1e-4)
    truth = truth_of(make_solution(), se=0.1)
    mean = truth.latent_mean.copy()
    mean[3, 0] += z * 0.1 * np.sqrt(2.0)
    row = by_name(compare(changed(truth, latent_mean=mean), truth))["latent_mean"]
    assert (row.kind, row.verdict) == ("exactness", verdict)
    np.testing.assert_allclose(row.observed, abs(z), rtol=1e-10)
    np.testing.assert_allclose(row.limit, threshold, rtol=1e-12)


def test_two_exact_values_must_agree_far_more_closely_than_an_approximation(make_solution):
    left = truth_of(make_solution())
    right = changed(left, latent_mean=left.latent_mean * (1.0 + 1e-4), log_evidence=-3.25 * (1.0 + 1e-7))
    rows = by_name(compare(left, right))
    assert {row.kind for row in rows.values()} == {"exactness"}
    assert rows["latent_mean"].verdict == "FAIL"
    assert rows["log_evidence"].verdict == "PASS"
    assert rows["probabilities"].verdict == "PASS"


def test_a_chain_and_an_exact_truth_that_agree_pass_and_a_shifted_one_fails(make_solution):
    exact, rng = truth_of(make_solution()), np.random.default_rng(5)
    chain = truth_of(make_solution(), se=0.001)
    noisy = changed(chain, latent_mean=chain.latent_mean + 0.001 * rng.standard_normal((5, 1)))
    assert {row.verdict for row in by_name(compare(noisy, exact)).values()} == {"PASS"}
    shifted = changed(noisy, latent_mean=noisy.latent_mean + 0.1)
    assert by_name(compare(shifted, exact))["latent_mean"].verdict == "FAIL"


# -- discrepancy and bound -----------------------------------------------------------------------------------


def test_who_is_a_truth_is_told_by_the_solution(make_solution):
    assert not is_truth(make_solution())
    assert not is_truth(make_solution(log_evidence_kind="lower bound"))
    assert is_truth(truth_of(make_solution()))
    assert is_truth(truth_of(make_solution(), se=0.1))
    chain = make_solution(latent_mean_se=np.ones((5, 1)), ess=1e4, r_hat=1.005, settings={"n_chains": 4})
    assert is_truth(chain)
    assert is_truth(changed(chain, log_evidence=None))
    assert not is_truth(changed(chain, evidence_target="pairwise model"))
    assert is_truth(changed(chain, evidence_target="pairwise model"), "pairwise model")
    # exact about labels as if they were measurements: of no model of classes
    regression = truth_of(make_solution(), evidence_target="regression")
    assert not is_truth(regression)
    assert not is_truth(regression, "regression")


@pytest.mark.parametrize("se", [None, 0.01])
def test_an_approximation_is_judged_by_bands_and_what_has_none_is_shown(make_solution, se):
    rows = by_name(compare(make_solution(), truth_of(make_solution(), se=se)))
    assert {row.kind for row in rows.values()} == {"discrepancy"}
    assert {row.verdict for row in rows.values()} == {"PASS"}
    assert set(rows) == set(QUANTITIES) == set(DEFAULT_BANDS)
    for name, (band, why) in DEFAULT_BANDS.items():
        assert rows[name].limit == band
        assert why in rows[name].why


def test_bands_of_the_caller_replace_the_default_ones_and_add_to_them(make_solution):
    candidate = make_solution()
    truth = truth_of(candidate, latent_mean=candidate.latent_mean * 1.1, latent_cov=candidate.latent_cov * 1.25)
    assert by_name(compare(candidate, truth))["latent_mean"].verdict == "PASS"
    rows = by_name(compare(candidate, truth, {"latent_mean": 0.05, "latent_cov": 0.2, "inducing_cov": 0.0}))
    # 1 - 1/1.1 = 0.0909, 1 - 1/1.25 = 0.2 up to rounding
    assert rows["latent_mean"].verdict == "FAIL"
    np.testing.assert_allclose(rows["latent_mean"].observed, 1.0 - 1.0 / 1.1, rtol=1e-12)
    np.testing.assert_allclose(rows["latent_cov"].observed, 0.2, rtol=1e-12)
    assert rows["inducing_cov"].verdict == "PASS"
    assert "band given by the caller" in rows["latent_mean"].why


def test_probabilities_differ_by_their_largest_difference_and_not_relatively(make_solution):
    p = np.array([[0.02, 0.98], [0.5, 0.5], [0.9, 0.1]])
    q = np.array([[0.04, 0.96], [0.5, 0.5], [0.9, 0.1]])
    row = by_name(compare(make_solution(probabilities=p), truth_of(make_solution(probabilities=q))))["probabilities"]
    np.testing.assert_allclose(row.observed, 0.02, rtol=1e-12)


def test_the_evidence_is_judged_in_nats_over_the_size_of_log_z(make_solution):
    candidate, truth = make_solution(log_evidence=-9.0), truth_of(make_solution(), log_evidence=-10.0)
    row = by_name(compare(candidate, truth))["log_evidence"]
    np.testing.assert_allclose(row.observed, 0.1, rtol=1e-14)
    assert row.verdict == "FAIL"
    assert "+1.0000 nat" in row.why
    # below one nat the difference itself counts
    row = by_name(compare(changed(candidate, log_evidence=-0.12), changed(truth, log_evidence=-0.1)))["log_evidence"]
    np.testing.assert_allclose(row.observed, 0.02, rtol=1e-12)


@pytest.mark.parametrize(
    ("excess", "se", "verdict"),
    [(-0.5, None, "PASS"), (0.0, None, "PASS"), (1e-6, None, "FAIL"), (0.039, 0.01, "PASS"), (0.041, 0.01, "FAIL")],
)
def test_a_lower_bound_lies_below_log_z_up_to_four_standard_errors(make_solution, excess, se, verdict):
    truth = truth_of(make_solution(), se=se)
    bound = make_solution(log_evidence=truth.log_evidence + excess, log_evidence_kind="lower bound")
    row = by_name(compare(bound, truth))["bound - log Z"]
    assert (row.kind, row.verdict) == ("bound", verdict)
    np.testing.assert_allclose(row.observed, excess, rtol=0, atol=1e-14)
    assert "bound - log Z" not in by_name(compare(make_solution(), truth))


def test_the_bound_of_the_witnesses_lies_below_the_quadrature():
    for name in ("two-points", "three-points", "three-points-fitc"):
        problem = problems.get(name)
        truth = solve("quadrature", "exact", problem)
        for witness in ("reference", "fast"):
            row = by_name(compare(solve(witness, "x-gpc", problem), truth))["bound - log Z"]
            assert row.verdict == "PASS"
            assert row.observed < 0.0


# -- gates, targets, errors, and what was not judged -----------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"r_hat": 1.0051}, "R-hat 1.0051 (at most 1.005)"),
        ({"r_hat": 4.05}, "R-hat 4.0500"),
        ({"r_hat": None}, "R-hat not stated"),
        ({"r_hat": np.float64(1.55), "ess": 8.0}, "ESS 8 (at least 10000)"),
        ({"ess": 9999.0}, "ESS 9999"),
        ({"ess": None}, "ESS not stated"),
        ({"settings": {"n_chains": 3}}, "chains 3 (at least 4)"),
        ({"settings": {}}, "chains not stated"),
        # 199.99 autocorrelation times of each of 200 chains, and one draw fewer than 100 of each
        ({"settings": {"n_chains": 201}}, "ESS 20000 (at least 20100)"),
        ({"converged": False, "settings": {"n_chains": 16, "reason": "it was cut"}}, "it was cut"),
    ],
)
def test_chains_that_have_not_met_judge_nothing_and_are_not_judged(make_solution, change, told):
    exact = truth_of(make_solution())
    chain = changed(truth_of(make_solution(seed=1), se=0.01), **change)
    assert not is_truth(chain)
    assert not gate(chain).met
    for other in (make_solution(), exact, truth_of(make_solution(), se=0.01)):
        for rows in (compare(other, chain), compare(chain, other)):
            assert {row.verdict for row in rows} == {"SKIP"}
            assert rows[0].quantity == "gate"
            assert told in rows[0].why
            shown = by_name(rows)["latent_mean"]
            assert shown.observed > 0.1
            assert "somebody some-method states a standard error of 0.01" in shown.why
            assert unjudged(rows, other, chain) == list(QUANTITIES)


def test_independent_draws_need_no_gate_and_enough_of_them(make_solution):
    draws = truth_of(make_solution(), se=0.01, method="exact-probit", r_hat=None, ess=1000.0, settings={})
    assert is_truth(draws)
    assert is_truth(changed(draws, method="mine", settings={"independent_draws": True}))
    assert not is_truth(changed(draws, method="mine"))
    assert not is_truth(changed(draws, ess=999.0))
    assert not is_truth(changed(draws, ess=None))


def test_an_exact_value_that_did_not_converge_is_no_truth(make_solution):
    rows = compare(make_solution(), truth_of(make_solution(), converged=False))
    assert {row.verdict for row in rows} == {"SKIP"}
    assert "no exact value yet" in rows[0].why


def test_steps_of_a_sampler_are_no_steps_of_an_iteration(make_solution):
    # the settings of chains that learn have n_steps, of their trajectories
    chain = truth_of(make_solution(), se=0.01, converged=False, settings={"n_chains": 16, "n_steps": 5})
    assert compare(make_solution(), chain)[0].quantity == "gate"


def test_a_regression_on_labels_judges_no_probability_of_labels(make_solution):
    regression = truth_of(make_solution(seed=1), evidence_target="regression")
    for other in (make_solution(), truth_of(make_solution()), truth_of(make_solution(), se=0.1)):
        for rows in (compare(other, regression), compare(regression, other)):
            assert {row.verdict for row in rows} == {"SKIP"}
            assert rows[0].quantity == "target"
            assert unjudged(rows, other, regression) == list(QUANTITIES)
    # beside itself it is one more fixed point
    assert {(row.kind, row.verdict) for row in compare(regression, regression)} == {("identity", "PASS")}


def test_the_truth_of_a_model_judges_what_answers_for_that_model(make_solution):
    pairs = truth_of(make_solution(), se=0.01, evidence_target="pairwise model")
    rows = by_name(compare(make_solution(evidence_target="pairwise model"), pairs))
    assert {row.verdict for row in rows.values()} == {"PASS"}
    assert {row.verdict for row in compare(make_solution(), pairs)} == {"SKIP"}
    # whoever gives a band has decided to compare two models
    told = by_name(compare(make_solution(), pairs, {"probabilities": 0.1}))
    assert told["probabilities"].verdict == "PASS"
    assert told["latent_mean"].verdict == "SKIP"


@pytest.mark.parametrize("name", ["latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov"])
def test_standard_errors_that_hide_everything_are_seen(make_solution, name):
    identity = np.eye(1)
    plain = make_solution(latent_cov=np.tile(identity, (5, 1, 1)), test_latent_cov=np.tile(identity, (3, 1, 1)))
    ess = 20_000.0
    fine = {
        f"{q}_se": np.full(getattr(plain, q).shape, (np.sqrt(2.0) if q.endswith("cov") else 1.0) / np.sqrt(ess))
        for q in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov")
    }
    chain = changed(truth_of(plain, se=0.001), **fine)
    rows = {row.quantity: row for row in compare(chain, truth_of(plain))}
    assert {row.verdict for row in rows.values()} == {"PASS"}
    np.testing.assert_allclose(rows[f"{name}_se"].observed, 1.0, rtol=1e-12)
    wide = changed(chain, **{f"{name}_se": 2.1 * fine[f"{name}_se"]})
    told = {row.quantity: row.verdict for row in compare(wide, truth_of(plain))}
    assert [quantity for quantity, verdict in told.items() if verdict == "FAIL"] == [f"{name}_se"]


def test_what_one_side_alone_has_was_not_judged(make_solution):
    left = make_solution(gradients={"noise": [1.0]}, local={"mine": np.ones(2), "text": np.array("a")})
    right = make_solution(latent_cov=None, test_latent_cov=None)
    rows = compare(left, right)
    assert unjudged(rows, left, right) == ["latent_cov", "test_latent_cov", "gradients/noise", "local/mine"]
    assert unjudged(compare(right, right), right, right) == []
    # sites and draws have no counterpart in a truth; its gradients would be
    truth = truth_of(make_solution(), local={"log_joint": np.ones(3)})
    assert unjudged(compare(left, truth), left, truth) == ["gradients/noise"]
    # how loose a bound is says nothing of its code, but that it is below log Z does
    bound = changed(left, log_evidence_kind="lower bound", gradients=None)
    assert unjudged(compare(bound, truth), bound, truth) == []


# -- both ways ---------------------------------------------------------------------------------------------

KINDS = ["estimate", "bound", "exact", "sampled"]


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 100))
@pytest.mark.parametrize(("left", "right"), list(itertools.combinations_with_replacement(KINDS, 2)))
def test_the_verdict_does_not_depend_on_who_is_named_first(make_solution, left, right, seed):
    def of(kind, seed):
        plain = make_solution(seed=seed, log_evidence=-3.0 - 0.1 * seed)
        if kind in ("exact", "sampled"):
            return truth_of(plain, se=None if kind == "exact" else 0.5)
        return changed(plain, log_evidence_kind="estimate" if kind == "estimate" else "lower bound")

    a, b = of(left, seed), of(right, seed + 1)
    forth, back = compare(a, b), compare(b, a)
    assert len(forth) == len(back)
    for one, other in zip(forth, back, strict=True):
        assert (one.quantity, one.kind, one.verdict) == (other.quantity, other.kind, other.verdict)
        np.testing.assert_equal((one.observed, one.limit), (other.observed, other.limit))


def test_a_side_that_lacks_a_quantity_is_not_judged_by_it(make_solution):
    bare = make_solution(**dict.fromkeys(QUANTITIES))
    assert compare(bare, make_solution()) == []
    only = make_solution(**(dict.fromkeys(QUANTITIES) | {"latent_mean": np.ones((5, 1))}))
    assert [row.quantity for row in compare(only, make_solution())] == ["latent_mean"]
