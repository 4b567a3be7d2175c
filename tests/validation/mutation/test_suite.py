"""Mutants against the tests of the checkout: who executes what, and who sees a change."""

import json

import pytest
from typer.testing import CliRunner

from validation.cli import app
from validation.jobs.run import Processes
from validation.mutation import statements, suite
from validation.mutation.trial import Outcome

CHEAP = "tests/gibbs/chains/test_diagnostics.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def tests(folder):
    return suite.measure(folder, jobs=1, selected=[CHEAP])


def test_the_healthy_run_says_which_tests_execute_a_line(tests):
    assert tests.seconds
    assert all(name.startswith(CHEAP) and seconds >= 0.0 for name, seconds in tests.seconds.items())
    touched = tests.touched("gibbs.chains.diagnostics", tests.tests["gibbs.chains.diagnostics"])
    assert touched
    assert set(touched) <= set(tests.seconds)
    assert [tests.seconds[name] for name in touched] == sorted(tests.seconds[name] for name in touched)
    assert tests.touched("fast.sparse_classes.sep", range(1000)) == []


def test_a_healthy_run_is_not_made_twice(tests, folder):
    told = []
    assert suite.measure(folder, jobs=1, selected=[CHEAP], tell=told.append) == tests
    assert told == []


def test_a_mistake_that_tests_see_is_red_and_files_stay_as_they_are(tests, folder):
    entries = statements.statements("gibbs.chains.diagnostics")
    wrong = next(statements.make(entry, entry.changes[0]) for entry in entries if entry.function == "standard_error")
    before = statements.source_of("gibbs.chains.diagnostics")
    (result,) = suite.run([wrong], tests, Processes(1))
    assert result.state in ("red", "crash")
    assert result.by.startswith(CHEAP)
    assert statements.source_of("gibbs.chains.diagnostics") == before
    assert sorted(path.name for path in folder.iterdir()) == ["suite.json"]


def test_what_no_test_executes_is_said(tests, folder):
    entry = statements.statements("fast.sparse_classes.sep")[5]
    (result,) = suite.run([statements.make(entry, entry.changes[0])], tests, Processes(1))
    assert (result.state, result.asked) == ("never executed", 0)


def test_a_suite_that_is_red_without_a_mutant_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match=r"tests: found exit code \d without any mutant, expected 0"):
        suite.measure(tmp_path, jobs=1, selected=["tests/there_is_no_such_file.py"])


def test_lines_of_fixtures_belong_to_every_test_of_their_module(tmp_path):
    lines = {"setup a.py::one": {"fast.m": [1]}, "call a.py::one": {"fast.m": [2]}, "call b.py::x": {"fast.m": [2]}}
    seconds = {"a.py::one": 2.0, "a.py::two": 1.0, "b.py::x": 3.0}
    (tmp_path / "lines-1.json").write_text(json.dumps({"seconds": seconds, "lines": lines}))
    suite._merge(tmp_path)
    result = suite.measure(tmp_path, jobs=1)
    assert result.touched("fast.m", [1]) == ["a.py::two", "a.py::one"]
    assert result.touched("fast.m", [2]) == ["a.py::one", "b.py::x"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", "nobody"], "--against: found 'nobody', expected one of verify, tests, both"),
        (["--against", "tests", "--full"], "--against: found 'tests' with --method or --full, expected verify"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(options, message):
    outcome = CliRunner().invoke(app, ["mutate", *options])
    assert outcome.exit_code == 2
    assert message in " ".join(outcome.output.split())


def test_both_asks_the_tests_about_what_the_judge_has_not_seen(monkeypatch, tmp_path):
    from validation.mutation import baseline, command, trial

    asked = []
    states = iter(["red", "survived", "never executed", "survived"])

    def judged(mutants, baseline, engine):
        return (Outcome(mutant.name, next(states), "", "", 1, 0.0) for mutant in mutants)

    def tested(mutants, suite, engine):
        asked.extend(mutant.name for mutant in mutants)
        answers = iter(["red", "survived", "never executed"])
        return (Outcome(mutant.name, next(answers), "", "", 1, 0.0) for mutant in mutants)

    monkeypatch.setattr(baseline, "measure", lambda *_, **__: None)
    monkeypatch.setattr(baseline, "fingerprint", lambda _: "code")
    monkeypatch.setattr(suite, "measure", lambda *_, **__: None)
    monkeypatch.setattr(suite, "fingerprint", lambda: "tests")
    monkeypatch.setattr(trial, "run", judged)
    monkeypatch.setattr(suite, "run", tested)
    for name in ("code", "tests"):
        (tmp_path / name).mkdir()
    options = ["mutate", "--n", "4", "--against", "both", "--json", "--output", str(tmp_path)]
    outcome = CliRunner().invoke(app, options)
    assert len(asked) == 3
    stored = json.loads(outcome.stdout)
    assert [row["state"] for row in stored["mutants"]] == ["red", "red", "survived", "survived"]
    assert stored["settings"]["against"] == "both"
    assert command.AGAINST == ("verify", "tests", "both")
