"""The league: measuring programs, the record, its tables and the command."""

import json
import math
import sys

import numpy as np
import pytest

from validation.command import cli, maintain
from validation.door.solve import solve
from validation.judge.posing import posed
from validation.peers import Program, league


@pytest.fixture
def made(monkeypatch):
    """Makes a program of fields taken from `fast`, changed; it is then the only one."""

    def make(change=lambda fields: fields, method="laplace-binary"):
        def run(problem):
            ours = solve("fast", "laplace-binary", problem)
            return change(
                {"log_evidence": ours.log_evidence, "latent_mean": ours.latent_mean, "latent_cov": ours.latent_cov}
            )

        program = Program("made", "numpy", "numpy", (method,), ("logit",), "all rows", run)
        monkeypatch.setattr(league, "programs", lambda: (program,))
        return program

    return make


def test_a_program_that_is_right_agrees_and_has_the_distance_of_its_method(made):
    row = league.measured(made(), "toy")
    assert (row.verdict, row.why) == ("agrees", "")
    assert row.apart < 1e-12
    assert row.version == np.__version__
    assert 0.05 < row.bias < 0.3  # Laplace's own
    assert -0.2 < row.log_z_error < -0.05


def test_a_program_that_is_wrong_differs_and_is_told_why(made):
    row = league.measured(made(lambda fields: fields | {"latent_cov": np.sqrt(fields["latent_cov"])}), "toy")
    assert row.verdict == "differs"
    assert row.quantity == "latent_cov"
    assert row.apart > 0.01
    assert "standard deviation" in row.why


def test_what_is_refused_and_what_fails_are_told_apart(made):
    def refuse(fields):
        raise NotImplementedError("no such noise")

    def fail(fields):
        raise ZeroDivisionError("by nothing")

    assert league.measured(made(refuse), "toy")[-3:-1] == ("refuses", "refused: no such noise")
    row = league.measured(made(fail), "toy")
    assert row.verdict == "fails"
    assert "ZeroDivisionError: by nothing" in row.why
    assert math.isnan(row.bias)
    assert league.failures([row]) == [("made", "toy", row.why)]


def test_a_method_of_its_own_is_held_against_the_truth_alone(made):
    row = league.measured(made(method="mine"), "toy")
    assert math.isnan(row.apart)
    assert row.verdict in ("agrees", "differs")


def test_the_record_survives_a_round_trip_and_replaces_one_library(made, tmp_path):
    path = tmp_path / "league.csv"
    row = league.measured(made(), "two-points")
    league.write([row._replace(problem="toy", n=24, bias=math.nan), row], path)
    first, second = league.recorded(path)
    assert first.problem == "two-points"
    assert first.apart == pytest.approx(row.apart, rel=1e-3, abs=1e-15)
    assert math.isnan(second.bias)
    league.write([row], path)
    assert len(league.recorded(path)) == 1


def test_tables_have_medians_and_the_largest_first(made):
    row = league.measured(made(), "toy")
    rows = [row._replace(bias=b, apart=a, quantity="latent_mean") for b, a in ((1.0, 0.1), (2.0, 0.3), (9.0, 0.2))]
    (record,) = league.summary([*rows, row._replace(verdict="refuses", bias=100.0)])
    assert record[league.HEADER.index("problems")] == "3"
    assert record[league.HEADER.index("bias")] == "2"
    assert record[-1] == "0.3 (latent_mean, toy)"
    assert [one.apart for one in league.largest(rows, 2)] == [0.3, 0.2]
    text = league.markdown(league.HEADER, [record])
    assert text.splitlines()[1].count("---") == len(league.HEADER)
    json.dumps(league.as_json([row._replace(bias=math.nan)]), allow_nan=False)


def test_what_is_recorded_is_of_programs_and_problems_that_are_there():
    rows = league.recorded()
    names = {program.name: program for program in league.programs()}
    assert len({row.program for row in rows}) >= 14
    for row in rows:
        assert (row.library, row.method) == (names[row.program].library, *names[row.program].methods)
        assert row.verdict in league.VERDICTS
        assert posed(row.problem).n == row.n
        assert row.why or row.verdict not in ("fails", "refuses")


def test_scikit_learn_is_measured_in_a_process_of_its_own(tmp_path):
    rows = league.measure(["scikit-learn"], path=tmp_path / "league.csv")
    assert {row.program for row in rows} == {"sklearn-laplace", "sklearn-one-vs-rest"}
    stored = {(row.program, row.problem): row for row in league.recorded()}
    for row in rows:  # the recorded distances are those of today, but for another version of the library
        other = stored[row.program, row.problem]
        if row.verdict != "refuses" and row.version == other.version:
            assert row.excess_nll == pytest.approx(other.excess_nll, rel=0.05, abs=1e-6)


def test_libraries_and_problems_that_are_unknown_are_named(made):
    with pytest.raises(ValueError, match="library: found 'nobody'"):
        league.libraries(["nobody"])
    program = made()
    assert league.questions(program, ["toy"]) == ("toy",)
    with pytest.raises(ValueError, match="problem: found toy-probit"):
        league.questions(program, ["toy-probit"])


@pytest.fixture
def triad(monkeypatch, capfd):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["maintain", "league", *arguments])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as caught:
            cli.main(maintain.app)
        out, err = capfd.readouterr()
        return caught.value.code or 0, out, err

    return run


def test_the_command_shows_the_record(triad):
    code, out, _ = triad()
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100
    assert "gpytorch-variational" in out
    code, out, _ = triad("--library", "GPy", "--json")
    assert {row["program"] for row in json.loads(out)} == {"gpy-ep", "gpy-laplace"}
    code, out, _ = triad("--furthest", "--markdown")
    assert len(out.splitlines()) == 12


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--measure",), "--output"),
        (("--output", "a.csv"), "--measure"),
        (("--json", "--markdown"), "--json"),
        (("--library", "nobody"), "library: found 'nobody'"),
    ],
)
def test_the_command_refuses(triad, arguments, word):
    code, _, err = triad(*arguments)
    assert code == 2
    assert word in err
