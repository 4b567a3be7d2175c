"""A mutant is planted, held against what executes it, and counted; files stay as they are."""

import json
import subprocess
import sys

import pytest

from validation.checks import runner
from validation.jobs.run import Processes
from validation.mutation import baseline, report, statements, trial
from validation.mutation.operators import Change
from validation.mutation.seed import plant
from validation.mutation.trial import Outcome


def mutant(module, function, before, after):
    """The one change of a function that turns one piece of text into another."""
    for entry in statements.statements(module):
        for change in entry.changes if entry.function == function else ():
            result = statements.make(entry, change)
            if (before in result.before) and (result.before.replace(before, after, 1) == result.after):
                return result
    raise AssertionError((module, function, before))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    selection = runner.select(
        check=["identity/x-gpc/latent_mean", "identity/x-gpc/log_evidence"], problem=["two-points"]
    )
    return baseline.measure(selection, tmp_path_factory.mktemp("healthy"), Processes(1))


def outcome(actual, healthy):
    (result,) = trial.run([actual], healthy, Processes(1))
    return result


def test_the_healthy_run_says_who_executes_what(healthy):
    problem = healthy.problems["two-points"]
    assert {pair.check for pair in problem.answers} == {"identity/x-gpc/latent_mean", "identity/x-gpc/log_evidence"}
    # both checks ask the same two questions, and what those execute belongs to both
    assert all(len(problem.asked[pair]) == 2 for pair in problem.answers)
    assert {key[0] for key in problem.solved} == {"reference", "fast"}
    touched = healthy.touched("fast.likelihood.polya_gamma", healthy.executed("fast.likelihood.polya_gamma"))
    assert len(touched["two-points"][0]) == 2
    assert healthy.touched("gibbs.models.logit", range(1000)) == {}


def test_what_an_import_runs_is_held_against_all_who_run_the_module(healthy, tmp_path):
    pair = healthy.selection.pairs[0]
    problem = baseline.Problem("two-points")
    problem.answers = {pair: healthy.problems["two-points"].answers[pair]}
    problem.asked, problem.own = {pair: ()}, {pair: {"fast.a": frozenset({9})}}
    problem.imported = {"fast.a": frozenset({5}), "fast.b": frozenset({5})}
    baseline.save(problem, tmp_path / "two-points")
    kept = baseline.Baseline(healthy.selection, {"two-points": baseline.load(tmp_path / "two-points")}, tmp_path)
    assert kept.touched("fast.a", [5]) == kept.touched("fast.a", [9]) == {"two-points": ((pair,), frozenset())}
    assert kept.touched("fast.a", [6]) == {}
    # nobody runs the other module
    assert kept.touched("fast.b", [5]) == {}
    assert (kept.executed("fast.a"), kept.executed("fast.b")) == ({5, 9}, frozenset())


def test_a_healthy_run_is_not_made_twice(healthy):
    told = []
    again = baseline.measure(healthy.selection, healthy.folder, Processes(1), tell=told.append)
    assert told == []
    assert again.answers() == healthy.answers()
    assert again.problems["two-points"].solved == healthy.problems["two-points"].solved


def test_a_mistake_in_an_update_is_red(healthy):
    result = outcome(
        mutant("fast.likelihood.polya_gamma", "update_local", "np.sqrt(latent_var)", "np.square(latent_var)"), healthy
    )
    assert (result.state, result.asked) == ("red", 1)
    assert result.by.startswith("identity/x-gpc/")


def test_what_raises_is_a_crash(healthy):
    entry = next(
        entry for entry in statements.statements("fast.likelihood.polya_gamma") if entry.function == "update_local"
    )
    change = Change(entry.changes[0].start, entry.changes[0].start, "undefined_", "a name that is not there")
    result = outcome(statements.make(entry, change), healthy)
    assert result.state == "crash"
    assert "undefined_" in result.note


def test_what_no_check_executes_is_said(healthy):
    entry = statements.statements("fast.sparse_classes.sep")[5]
    result = outcome(statements.make(entry, entry.changes[0]), healthy)
    assert (result.state, result.asked) == ("never executed", 0)


def test_a_module_is_replaced_only_where_it_was_planted():
    code = (
        "from validation.mutation.seed import plant\n"
        "planted = plant('fast.likelihood.polya_gamma', 'def update_local(a, b):\\n    return 7\\n')\n"
        "assert not planted.loaded\n"
        "import importlib\n"
        "assert importlib.import_module('fast.likelihood.polya_gamma').update_local(1, 2) == 7\n"
        "assert planted.loaded\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_module_that_is_there_already_cannot_be_replaced():
    with pytest.raises(RuntimeError, match=r"module: found 'validation\.mutation\.seed' imported already"):
        plant("validation.mutation.seed", "")


# -- counting --------------------------------------------------------------------------------------------------


def sample(states):
    entries = [entry for entry in statements.statements("fast.one_latent.sites") if entry.function][: len(states)]
    mutants = [statements.make(entry, entry.changes[0]) for entry in entries]
    return mutants, {
        value.name: Outcome(value.name, state, "", "", 1, 0.1) for value, state in zip(mutants, states, strict=True)
    }


def test_rates_count_what_is_judged():
    mutants, outcomes = sample(["red", "red", "crash", "survived", "never executed"])
    actual = report.table(mutants, outcomes)["all"]
    assert (actual.drawn, actual.judged, actual.caught) == (5, 4, 0.75)
    missing = report.verdict({"all": actual}).missing
    assert missing[0] == "all: found 75.0% caught, expected at least 98%"
    assert missing[1] == "all: found 1 of 5 never executed, expected at most 1%"


def test_a_reviewed_equivalent_is_no_survivor_and_must_be_rare():
    mutants, outcomes = sample(["red", "survived"])
    entry = {"module": mutants[1].module, "function": mutants[1].function, "before": mutants[1].before,
             "after": "   " + mutants[1].after + "\n", "reason": "for this test"}  # fmt: skip
    actual = report.table(mutants, outcomes, [entry])["all"]
    assert (actual.survived, actual.equivalent, actual.caught) == (0, 1, 1.0)
    assert report.verdict({"all": actual}).missing == ("all: found 1 of 2 called equivalent, expected at most 3%",)
    assert not report.is_equivalent(mutants[0], [entry])


def test_nothing_missing_meets_the_reach():
    mutants, outcomes = sample(["red"] * 4)
    groups = report.table(mutants, outcomes)
    assert report.verdict(groups).met
    assert json.loads(report.as_json(mutants, outcomes, groups, {}))["rates"]["all"]["caught"] == 1.0


def test_the_shipped_list_of_equivalents_is_well_formed():
    for entry in report.known_equivalents():
        assert entry["module"].partition(".")[0] in statements.PACKAGES


def test_every_shipped_equivalent_is_a_mutant_that_can_be_drawn():
    """An entry for code or operators that have changed since excuses nothing, and would hide that it was never read."""
    known = report.known_equivalents()
    begins = {(entry["module"], entry["function"], entry["before"].strip().splitlines()[0].strip()) for entry in known}
    texts = {module: statements.source_of(module).splitlines() for module, _, _ in begins}
    drawn = [
        statements.make(place, change)
        for package in statements.PACKAGES
        for place in statements.population(package)
        if place.module in texts
        and (place.module, place.function, texts[place.module][place.first - 1].strip()) in begins
        for change in place.changes
    ]
    assert [entry for entry in known if not any(report.is_equivalent(mutant, [entry]) for mutant in drawn)] == []


def test_a_mutant_that_turns_red_is_red_whatever_the_list_of_equivalents_has():
    mutants, outcomes = sample(["red", "crash", "never executed"])
    known = [
        {
            "module": value.module,
            "function": value.function,
            "before": value.before,
            "after": value.after,
            "reason": "-",
        }
        for value in mutants
    ]
    rates = report.table(mutants, outcomes, known)["all"]
    assert (rates.red, rates.crash, rates.never, rates.equivalent) == (1, 1, 1, 0)


def test_a_changed_default_is_held_against_the_record_of_defaults(tmp_path):
    selection = runner.select(check=["discrepancy/x-gpc/defaults_of_gibbs"])
    known = baseline.measure(selection, tmp_path, Processes(1))
    result = outcome(mutant("gibbs.chains.diagnostics", "convergence", "thin: int = 1", "thin: int = 2"), known)
    assert (result.state, result.by) == ("red", "discrepancy/x-gpc/defaults_of_gibbs on -")
    inside = next(entry for entry in statements.statements("gibbs.chains.diagnostics") if entry.first > 50)
    assert trial.readers(statements.make(inside, inside.changes[0])) == frozenset()


def test_who_watches_witnesses_work_is_asked_without_memory(tmp_path):
    selection = runner.select(check=["identity/epgpc/neighbours", "identity/epgpc/improper_sites"])
    known = baseline.measure(selection, tmp_path, Processes(1))
    # it takes down what a witness is asked: from memory it is asked nothing, which would be red without any mistake
    assert {pair.check for pair in known.problems["-"].listens} == {"identity/epgpc/neighbours"}
    assert baseline.load(tmp_path / "-").listens == known.problems["-"].listens
