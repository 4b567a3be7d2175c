"""The grid of hard cases: what each verdict means, and that the cells reach where they are meant to reach."""

import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest

from validation import solve as solve_function
from validation.checks.witnesses import hard_cases, hard_problems
from validation.checks.witnesses.hard_cases import judged
from validation.checks.witnesses.hard_problems import FAMILIES, SCENARIOS, cells


def _cell(method="vi-jj", name="harmless"):
    return next(cells(method, names=(name,)))


def _answering(monkeypatch, fast):
    """`fast` answers by the given function of its own answer; `reference` as ever."""

    def answer(witness, method, problem, **options):
        result = solve_function(witness, method, problem, **options)
        return fast(result) if witness == "fast" else result

    monkeypatch.setattr(hard_cases, "solve", answer)


def _raising(error):
    def answer(_found):
        raise error

    return answer


def test_equal_claims_are_equal():
    verdict = judged(_cell())
    assert verdict.verdict == "equal"
    assert 0.0 <= verdict.ratio <= 1.0


def test_two_claims_that_differ_by_more_than_the_limit_are_red(monkeypatch):
    _answering(monkeypatch, lambda actual: replace(actual, latent_mean=actual.latent_mean * (1.0 + 1e-7)))
    actual = judged(_cell())
    assert actual.verdict == "red"
    assert "latent_mean" in actual.why


def test_two_claims_that_differ_by_what_last_digits_move_are_honest():
    """Laplace's inducing means on a matrix with the condition 9e11: 16 eps of the variance move what is claimed."""
    cell = next(cells("laplace-sparse", 1, ("longest",)))
    assert solve_function("reference", cell.method, cell.problem).converged
    verdict = judged(cell)
    assert (verdict.verdict, "last digits of variance and lengthscales move" in verdict.why) == ("honest", True)


def test_no_claim_with_a_reason_is_honest_and_without_one_is_red(monkeypatch):
    _answering(monkeypatch, lambda actual: replace(actual, converged=False, settings={"reason": "because"}))
    assert judged(_cell()).verdict == "honest"
    _answering(monkeypatch, lambda actual: replace(actual, converged=False, settings={}))
    assert judged(_cell()).verdict == "red"


def test_a_doubt_is_red_where_float64_decides_and_nowhere_else(monkeypatch):
    _answering(monkeypatch, lambda actual: replace(actual, converged=False, settings={"reason": "because"}))
    (outcome,) = hard_cases._outcomes([_cell("svi", "shallow")])
    assert outcome.observed == np.inf
    (outcome,) = hard_cases._outcomes([_cell("svi", "harmless")])
    assert outcome.observed == 0.0


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ValueError("noise: found -1, expected >= 0"), "error"),
        (ValueError("something went wrong"), "red"),
        (np.linalg.LinAlgError("noise: found singular, expected regular"), "red"),
        (ZeroDivisionError("x: found 0, expected 1"), "red"),
    ],
    ids=["named", "unnamed", "raw LinAlgError", "arithmetic"],
)
def test_an_error_is_an_answer_if_a_witness_made_it_and_named_what_was_found(monkeypatch, error, verdict):
    _answering(monkeypatch, _raising(error))
    assert judged(_cell()).verdict == verdict


def test_a_warning_is_red(monkeypatch):
    def warned(actual):
        warnings.warn("overflow encountered in exp", RuntimeWarning, stacklevel=1)
        return actual

    _answering(monkeypatch, warned)
    actual = judged(_cell())
    assert actual.verdict == "red"
    assert "RuntimeWarning" in actual.why


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that interrupts: seconds are only measured")
def test_a_cell_without_end_is_stopped_and_red(monkeypatch):
    def endless(actual):
        while True:
            pass

    monkeypatch.setattr(hard_cases, "LONGEST", 0.1)
    monkeypatch.setattr(hard_cases, "pace", lambda: 2.0)
    _answering(monkeypatch, endless)
    actual = judged(_cell())
    assert actual.verdict == "red"
    assert 0.2 <= actual.seconds < 5.0  # a machine of half the speed has twice as long


def test_every_method_of_both_witnesses_has_cells():
    from validation.door.solve import methods

    assert set(FAMILIES) == set(methods()["reference"]) == set(methods()["fast"])


def test_the_grid_reaches_the_extremes_and_a_seed_gives_the_same_cells_again():
    problems = [cell.problem for seed in range(20) for cell in cells("ep", seed)]
    log_variance = np.log([p.variance[0] for p in problems])
    scales = np.log10([p.lengthscales.min() for p in problems])
    assert log_variance.min() < -6.0
    assert log_variance.max() > 6.0
    assert scales.min() < -2.5
    assert scales.max() > 2.5
    assert max(np.abs(p.X).max() for p in problems) > 9e5
    assert max(p.n_classes for p in problems) == 30
    again = [cell.problem for cell in cells("ep", 3)]
    assert not any(a.differences(b) for a, b in zip(again, problems[3 * len(SCENARIOS) :], strict=False))


def test_an_unknown_method_or_cell_is_refused():
    with pytest.raises(ValueError, match="method: found 'x', expected one of"):
        next(cells("x"))
    with pytest.raises(ValueError, match="cell: found 'x', expected one of"):
        next(cells("ep", names=("x",)))


def test_the_command_names_each_cell_and_exits_1_on_a_red_one(monkeypatch):
    lines = []
    assert hard_cases.main(["--method", "vi-jj", "--cell", "harmless"], lines.append) == 0
    assert lines[0].startswith("equal  vi-jj harmless")
    _answering(monkeypatch, lambda actual: replace(actual, latent_mean=actual.latent_mean + 1.0))
    lines.clear()
    assert hard_cases.main(["--method", "vi-jj", "--cell", "harmless", "--seed", "5"], lines.append) == 1
    assert lines[-1] == "0 equal, 0 honest, 0 error, 1 red\n"
    assert hard_problems.SEED != 5


@pytest.mark.parametrize(
    ("method", "seed", "name"),
    [
        ("svi", 5, "any-pairs"),  # latent covariances differed by 2.7e-6, cond(K) 3e7
        ("vi-taylor", 3, "steep-many"),  # gradients in Z by 8e-7, cond(K) 2e6
        ("vi-jj", 3, "repeated"),  # means at test points by 1.6e-8, cond(K) 4e3
        ("bb-alpha", 1, "long"),  # tied precisions by 1.0e-8, a difference of two inverses
        ("apep", 3, "long"),  # by 1.4e-8
        ("laplace-sparse", 1, "longest"),  # inducing means by two thirds, cond(K) 9e11
        # two maxima of one energy, log Z apart by 4e-3: each witness ends at one of them
        pytest.param("rpapep", 1, "any", marks=pytest.mark.slow),
        ("pep", 4, "long"),  # gradients in Z by .007, cond(K) 4e8
        ("ep", 4, "long"),  # gradients in Z by .02, cond(K) 4e8
        # the ascent went on in rounding for more than 30 s
        pytest.param("vi-robust", 1, "any-pairs", marks=pytest.mark.slow),
    ],
)
def test_what_rounding_or_a_ridge_leaves_open_is_not_claimed(method, seed, name):
    verdict = judged(next(cells(method, seed, (name,))))
    assert verdict.verdict in ("equal", "honest"), verdict.why


@pytest.mark.parametrize(
    "method", ["svi", "vi-taylor", "vi-jj", "apep", "arpep", "rpapep", "bb-alpha", "vi-robust", "ep"]
)
def test_a_harmless_problem_stays_converged(method):
    cell = next(cells(method, 1, ("harmless",)))
    assert solve_function("reference", method, cell.problem).converged
