import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from validation import Problem, Solution, problems, solve
from validation.command import cli

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = [
    "verify", "audit", "judge", "compare", "solve", "bench", "claims list", "claims run", "truth list", "truth show",
    "truth make", "list methods", "list problems", "list data",
]  # fmt: skip
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@pytest.fixture
def triad(monkeypatch, capfd):
    """Runs the command inside this process as its entry point would; gives exit code, stdout, stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["triad", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return caught.value.code or 0, out, err

    return run


def assert_refused(actual, match):
    """Exit 2, nothing on stdout, one line on stderr."""
    code, out, err = actual
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert re.match(f"error: {match}", err), err


def subprocess_triad(*arguments, cwd=ROOT):
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "validation", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False, cwd=cwd,
        env=os.environ | THREADS | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


# -- help and version ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(cli.app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: triad {command}")
    assert CliRunner().invoke(cli.app, [*command.split(), "-h"]).output == result.output
    # an option takes PATH, N, X, TEXT or a word of its own in capitals, and no name of a type
    assert re.findall(r"^ +-.*<.*", result.output, re.MULTILINE) == []
    # no option without a word of what it does
    for line in result.output.splitlines():
        if re.match(r"\s+--[a-z]", line):
            assert len(line.split("  ")) > 1


def test_there_are_nine_commands_and_each_with_parts_lists_them(triad):
    commands = typer.main.get_command(cli.app).commands
    assert sorted(commands) == ["audit", "bench", "claims", "compare", "judge", "list", "solve", "truth", "verify"]
    for name, parts in {"claims": "list run", "truth": "list show make", "list": "methods problems data"}.items():
        code, out, err = triad(name)
        assert (code, err) == (0, "")
        assert set(parts.split()) == set(re.findall(r"^  (\w+) ", out.partition("Commands:")[2], re.MULTILINE))


def test_alone_it_prints_where_to_start(triad):
    code, out, err = triad()
    assert (code, err) == (0, "")
    named = re.findall(r"^  triad (\w+)", out, re.MULTILINE)
    assert len(named) >= 6
    assert set(named) <= set(typer.main.get_command(cli.app).commands)
    assert max(map(len, out.splitlines())) <= 80
    for told in ("triad --help", "triad COMMAND --help", "triad --install-completion"):
        assert told in out


def test_the_version_names_what_numbers_depend_on(triad):
    code, out, _ = triad("--version")
    assert code == 0
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"gpc-triad {version}" in out
    assert f"numpy {np.__version__}" in out
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["slove"],
        ["solve"],
        ["solve", "reference"],
        ["compare", "a"],
        ["--vresion"],
        ["verify", "--jobs", "0"],
        ["verify", "--check", "nope"],
        ["list", "data", "nosuch"],
        ["truth", "shwo"],
        ["bench", "--only", "nope"],
        ["claims", "list", "nope"],
        ["list", "methods", "nope"],
        ["audit", "nope"],
    ],
)
def test_a_wrong_command_line_is_one_line(triad, arguments):
    assert_refused(triad(*arguments), r"\S.*")


def test_a_wrong_option_or_command_names_the_help(triad):
    assert_refused(triad("verify", "--nope"), r"No such option.* \(triad verify --help\)$")
    assert_refused(triad("truth", "shwo"), r"No such command.* \(triad truth --help\)$")


def test_the_module_is_the_command():
    done = subprocess_triad("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("python ")
    assert done.stderr == ""


def test_what_takes_long_to_load_is_loaded_by_the_commands_that_need_it():
    # most of what `triad --version` took before: a second for scikit-learn, half of one for Matplotlib
    slow = "{'matplotlib', 'sklearn', 'jax', 'torch'}"
    program = f"import sys, validation.command.cli; print(sorted({slow} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


# -- problems, methods ---------------------------------------------------------------------------------------


def test_problems_are_listed(triad):
    code, out, _ = triad("list", "problems")
    assert code == 0
    for name in problems.names():
        assert name in out


def test_a_problem_is_described(triad):
    code, out, _ = triad("list", "problems", "wine")
    assert code == 0
    p = problems.get("wine")
    for text in (f"n = {p.n}, d = {p.d}, C = 2", "logit", f"m = {p.m}", p.prior_model, "condition"):
        assert text in out


def test_a_problem_is_written_and_read_back(triad, tmp_path):
    path = tmp_path / "new" / "p.npz"
    code, out, _ = triad("list", "problems", "two-points", "--output", path)
    assert code == 0
    assert str(path) in out
    assert Problem.load(path).differences(problems.get("two-points"), ignore=()) == []
    assert triad("list", "problems", path)[0] == 0


def test_a_near_miss_of_a_problem_is_told(triad):
    assert_refused(
        triad("list", "problems", "two-pints"),
        r"problem: found 'two-pints', expected one of .*did you mean 'two-points'",
    )


def test_output_without_a_problem_is_refused(triad, tmp_path):
    code, _, err = triad("list", "problems", "--output", tmp_path / "p.npz")
    assert code == 2
    assert "--output: found it without a problem" in err


def test_a_file_or_folder_does_not_hide_a_problem_of_its_name(triad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two-points").mkdir()
    (tmp_path / "three-points").write_text("no problem", encoding="utf-8")
    assert triad("list", "problems", "two-points")[0] == 0
    assert triad("list", "problems", "three-points")[0] == 0


def test_methods_are_listed(triad):
    code, out, _ = triad("list", "methods")
    assert code == 0
    for text in ("reference", "fast", "gibbs", "quadrature", "x-gpc", "gibbs-logit", "exact"):
        assert text in out
    page = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    shown = page.partition("$ triad list methods\n")[2].partition("```")[0]
    assert [line.split() for line in out.splitlines()] == [line.split() for line in shown.splitlines()]


# -- solve ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "fast"])
def test_a_witness_answers_and_its_answer_is_kept(triad, tmp_path, name):
    path = tmp_path / "s.npz"
    code, out, err = triad("solve", name, "x-gpc", "two-points", "--output", path, "-o", "tolerance=1e-9")
    assert (code, err) == (0, "")
    assert f"{name} x-gpc on two-points" in out
    assert "lower bound of log p(y), full prior" in out
    result = Solution.load(path)
    assert result.settings["tolerance"] == 1e-9
    np.testing.assert_array_equal(
        result.log_evidence, solve(name, "x-gpc", problems.get("two-points"), tolerance=1e-9).log_evidence
    )


def test_an_answer_that_has_not_converged_is_kept_and_says_so(triad, tmp_path):
    path = tmp_path / "s.npz"
    code, out, _ = triad("solve", "reference", "x-gpc", "toy", "--output", path, "-o", "max_iterations=2")
    assert code == 1
    assert "not converged: " in out
    assert "no reason stated" not in out
    assert not Solution.load(path).converged


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["refrence", "x-gpc", "toy"], r"implementation: found 'refrence', .*did you mean 'reference'"),
        (["fast", "x-gcp", "toy"], r"method: found 'x-gcp', .*did you mean 'x-gpc'"),
        (["fast", "x-gpc", "tyo"], r"problem: found 'tyo', .*did you mean 'toy"),
        (["fast", "x-gpc", "nowhere.npz"], r"nowhere\.npz: found no file"),
        (["fast", "x-gpc", "toy", "-o", "tolerence=1"], r"option: found 'tolerence', .*did you mean 'tolerance'"),
        (["fast", "x-gpc", "toy", "-o", "tolerance=nan"], r"tolerance: found 'nan', expected a number in \(0, 1\)"),
        (["fast", "x-gpc", "toy", "-o", "tolerance=NaN"], r"tolerance: found nan, expected a number in \(0, 1\)"),
        (["fast", "x-gpc", "toy", "-o", "tolerance=small"], r"tolerance: found 'small', expected a number in \(0, 1\)"),
        (["fast", "x-gpc", "toy", "-o", "max_iterations=2.5"], r"max_iterations: found 2\.5, expected an integer >= 1"),
        (["fast", "x-gpc", "toy", "-o", "gradients=no"], r"gradients: found 'no', expected True or False"),
        (["gibbs", "gibbs-logit", "toy", "-o", "seed=-1"], r"seed: found -1, expected an integer >= 0"),
        (["fast", "qep", "toy-3", "-o", "learn=variance"], r"learn: found \('variance',\), expected \(\)"),
        (
            ["fast", "x-gpc", "toy", "-o", "callback=print"],
            r"callback: found 'print', expected something to call, or None",
        ),
        (["quadrature", "exact", "toy"], r"X: found n = 24, expected n <= 3"),
        (["nowhere_at_all:f", "m", "toy"], r"implementation: found no module 'nowhere_at_all'"),
        (["json:nothing", "m", "toy"], r"implementation: found no 'nothing' in json"),
        (["math:pi", "m", "toy"], r"implementation: found 'math:pi' to be a float"),
        (["json:loads", "m", "toy"], r"json:loads m: TypeError: loads\(\) takes 1 .*\(raised by the call itself\)"),
    ],
)
def test_what_cannot_be_solved_is_one_line_and_exit_2(triad, arguments, match):
    assert_refused(triad("solve", *arguments), match)


@pytest.mark.parametrize(
    ("pair", "match"),
    [
        ("tolerance", r"--option: found 'tolerance', expected name=value"),
        ("=1", r"--option: found '=1', expected name=value"),
        ("a b=1", r"--option: found 'a b=1'"),
        ("problem=toy", r"--option: found 'problem' as an option"),
    ],
)
def test_options_are_names_with_values(triad, pair, match):
    code, _, err = triad("solve", "fast", "x-gpc", "toy", "-o", pair)
    assert code == 2
    assert re.search(match, err)


def test_an_option_given_twice_is_refused(triad):
    code, _, err = triad("solve", "fast", "x-gpc", "toy", "-o", "tolerance=1e-8", "-o", "tolerance=1e-9")
    assert code == 2
    assert "--option: found 'tolerance' twice" in err


@pytest.mark.parametrize("name", ["reference", "fast"])
def test_duplicate_inducing_points_without_jitter_are_one_line_and_exit_2(triad, tmp_path, make_problem, name):
    make_problem(Z=np.ones((3, 2)), jitter=0.0).save(tmp_path / "p.npz")
    outcome = triad("solve", name, "x-gpc", tmp_path / "p.npz", "--output", tmp_path / "s.npz")
    assert_refused(outcome, r"K_ZZ.*\(3, 3\).*eigenvalue.*jitter")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.npz"]


def test_a_folder_that_cannot_be_written_is_told_before_the_work(triad, tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    outcome = triad("solve", "nobody", "m", "toy", "--output", tmp_path / "file" / "s.npz")
    assert_refused(outcome, r".*file: found .*, expected a folder that can be written")
    assert_refused(triad("solve", "fast", "x-gpc", "toy", "--output", tmp_path), r".*found a folder, expected the name")
    outcome = triad("list", "problems", "two-points", "--output", tmp_path / "file" / "p.npz")
    assert_refused(outcome, r".*file: found .*, expected a folder that can be written")


def test_files_that_are_no_problems_are_one_line_and_exit_2(triad, tmp_path, make_problem, make_solution):
    whole = tmp_path / "whole.npz"
    make_problem().save(whole)
    for name, content in {
        "cut.npz": whole.read_bytes()[:-40],
        "text.npz": b"hello\n",
        "empty.npz": b"",
        "pickle.npz": b"\x80\x04N.",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert_refused(triad("solve", "fast", "x-gpc", tmp_path / name), rf".*{name}: found ")
    make_solution().save(tmp_path / "solution.npz")
    assert_refused(triad("list", "problems", tmp_path / "solution.npz"), r".*found schema 'gpc-triad/solution/1'")
    assert_refused(triad("compare", whole, whole), r".*found schema 'gpc-triad/problem/1'")


def test_names_from_files_are_no_markup(triad, tmp_path, make_problem, make_solution):
    problem = make_problem(name="[/bold] :smile: [red]")
    problem.save(tmp_path / "p.npz")
    solution = make_solution(problem, implementation="[/x]", method=":x:")
    solution.save(tmp_path / "s.npz")
    code, out, _ = triad("list", "problems", tmp_path / "p.npz")
    assert code == 0
    assert "[/bold] :smile: [red]" in out
    code, out, _ = triad("compare", tmp_path / "s.npz", tmp_path / "s.npz")
    assert code == 0
    assert "[/x] :x: against [/x] :x: on [/bold] :smile: [red]" in out


# -- compare -------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, make_solution):
    """Solutions saved by name: two equal ones, one that differs, one of another problem, truths."""
    plain = make_solution()
    chain: dict[str, Any] = {"log_evidence_kind": "sampled", "log_evidence_se": 0.0, "r_hat": 1.0, "ess": 1e4}
    chain["settings"] = {"n_chains": 4}
    kinds = {
        "a": plain,
        "b": plain,
        "far": dataclasses.replace(plain, latent_mean=plain.latent_mean + 1.0),
        "other": make_solution(plain.problem.replace(noise=0.2)),
        "truth": dataclasses.replace(plain, log_evidence_kind="exact"),
        "target": dataclasses.replace(plain, evidence_target="pairwise model"),
        "bare": Solution(plain.problem, "bare", "m"),
        "sure": dataclasses.replace(plain, **chain),
        "surely-not": dataclasses.replace(plain, log_evidence=-4.0, **chain),
        "unmixed": dataclasses.replace(plain, **(chain | {"r_hat": 1.55, "ess": 8.0})),
        "regression": dataclasses.replace(plain, log_evidence_kind="exact", evidence_target="regression"),
        "no-cov": dataclasses.replace(plain, latent_cov=None),
    }
    for name, solution in kinds.items():
        solution.save(tmp_path / name)
    return tmp_path


def test_solutions_that_agree_exit_0(triad, files):
    code, out, err = triad("compare", files / "a", files / "b")
    assert (code, err) == (0, "")
    assert "AGREE: 8 passed, 0 failed, 0 not judged" in out.splitlines()
    assert out.count("PASS") == 8


def test_solutions_that_disagree_exit_1_and_say_where_and_why(triad, files):
    code, out, _ = triad("compare", files / "a", files / "far")
    assert code == 1
    assert "DISAGREE: 7 passed, 1 failed, 0 not judged" in out
    assert re.search(r"FAIL +latent_mean +identity", out)
    assert "latent_mean: one fixed point in float64" in out


def test_solutions_of_different_problems_exit_2(triad, files):
    assert_refused(
        triad("compare", files / "a", files / "other"), r"right: found a solution of another problem .*'noise'"
    )


@pytest.mark.parametrize("right", ["a", "bare"])
def test_nothing_to_judge_is_no_agreement(triad, files, right):
    code, out, err = triad("compare", files / "bare", files / right)
    assert code == 2
    told = "0 passed, 0 failed" + (", 0 not judged" if right == "bare" else ", 8 not judged (log_evidence, latent_mean")
    assert f"UNDECIDED: {told}" in out
    assert err == "error: right: found no quantity that can be judged on both sides, expected at least one\n"


def test_what_was_not_judged_is_counted_and_named(triad, files):
    code, out, _ = triad("compare", files / "a", files / "no-cov")
    assert code == 0
    assert "AGREE IN PART: 7 passed, 0 failed, 1 not judged (latent_cov)" in out.splitlines()


@pytest.mark.parametrize(("right", "premise", "told"), [
    ("unmixed", "gate", "R-hat 1.5500 (at most 1.005), ESS 8 (at least 10000)"),
    ("regression", "target", "numbers of two models are shown"),
])  # fmt: skip
def test_what_is_no_truth_issues_no_verdict(triad, files, right, premise, told):
    for sides in ((files / "far", files / right), (files / right, files / "far")):
        code, out, _ = triad("compare", *sides)
        assert code == 2
        assert re.search(rf"SKIP +{premise} ", out)
        assert told in " ".join(out.split())
        assert "UNDECIDED: 0 passed, 0 failed, 8 not judged (log_evidence, latent_mean, latent_cov" in out


def test_bands_limits_and_reasons(triad, files):
    code, out, _ = triad("compare", files / "far", files / "truth", "--band", "latent_mean=9", "--why")
    assert code == 0
    assert "latent_mean: relative difference: band given by the caller" in out
    assert triad("compare", files / "far", files / "truth", "--band", "latent_mean=1e-3")[0] == 1
    assert triad("compare", files / "a", files / "far", "--limit", "2.5")[0] == 0


def test_what_the_sides_say_of_themselves_is_told_and_an_unconverged_one_disagrees(triad, files, make_solution):
    cut = make_solution(implementation="cut", converged=False, residual=2e-3, settings={"tolerance": 1e-10})
    cut.save(files / "cut")
    code, out, _ = triad("compare", files / "a", files / "cut")
    assert code == 1
    assert re.search(r"FAIL +converged +identity +0\.002 +1e-10", out)
    assert "converged: cut some-method not converged at a residual of 0.002" in out
    assert "DISAGREE: 8 passed, 1 failed" in out
    make_solution(method="other", settings={"alpha": 1.0}).save(files / "one")
    make_solution(settings={"alpha": 0.5}).save(files / "half")
    code, out, _ = triad("compare", files / "one", files / "half")
    assert code == 0
    assert re.search(r"INFO +method ", out)
    assert "method: 'other' and 'some-method', compared as if theory made them equal" in out
    assert "settings: the sides were asked with alpha 1.0 and 0.5" in out


def test_a_band_for_what_is_no_approximation_exits_2(triad, files):
    outcome = triad("compare", files / "a", files / "b", "--band", "latent_mean=0.1")
    assert_refused(outcome, r"bands: found latent_mean, expected none: neither side is sampled or exact")
    assert_refused(triad("compare", files / "a", files / "truth", "--limit", "0.1"), r"limit: found 0\.1 for a compar")


@pytest.mark.parametrize(
    ("option", "match"),
    [
        (["--band", "latent_mean=big"], r"--band latent_mean: found 'big', expected a number"),
        (["--band", "latent_mean=true"], r"--band latent_mean: found True"),
        (["--band", "latent_mean=-1"], r"bands\['latent_mean'\]: found -1"),
        (["--band", "latent_mean=NaN"], r"bands\['latent_mean'\]: found nan"),
        (["--band", "mood=1"], r"bands: found 'mood', expected one of log_evidence"),
        (["--limit", "0"], r"limit: found 0\.0, expected a number > 0"),
        (["--limit", "nan"], r"limit: found nan"),
    ],
)
def test_bands_and_limits_that_mean_nothing_exit_2(triad, files, option, match):
    assert_refused(triad("compare", files / "a", files / "truth", *option), match)


def strict(text):
    """JSON as RFC 8259 has it: no NaN, no Infinity."""

    def refuse(token):
        raise ValueError(token)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("arguments", "code", "holds"),
    [
        (["list", "problems"], 0, lambda rows: {"two-points", "toy"} <= {row["name"] for row in rows}),
        (["list", "problems", "two-points"], 0, lambda values: len(values["X"]) == 2 and values["Z"] is None),
        (["list", "methods"], 0, lambda values: {entry["method"] for entry in values["methods"]} >= {"ep", "x-gpc"}),
        (["list", "methods", "ep"], 0, lambda rows: "damping" in {row["name"] for row in rows}),
        (["list", "data"], 0, lambda rows: "iris" in {row["name"] for row in rows}),
        (["list", "data", "iris"], 0, lambda values: (values["n"], values["d"]) == (150, 4)),
        (["claims", "run", "wenzel2019"], 0, lambda rows: {row["paper"] for row in rows} == {"wenzel2019"}),
        (["truth", "show", "toy"], 0, lambda values: values["row"]["name"] == "toy"),
        (["bench", "--only", "league"], 0, lambda rows: len(rows) > 10),
        (["bench", "--stored"], 0, lambda benches: "peers" in benches),
        (["solve", "fast", "x-gpc", "two-points"], 0, lambda values: values["log_evidence"] < 0.0),
        (["solve", "fast", "x-gpc", "toy", "-o", "max_iterations=1"], 1, lambda values: values["converged"] is False),
    ],
)
def test_commands_give_json_and_nothing_else(triad, arguments, code, holds):
    got, out, _ = triad(*arguments, "--json")
    assert got == code
    assert holds(json.loads(out))


@pytest.mark.parametrize(
    ("left", "right", "code"),
    [
        ("a", "b", 0),
        ("a", "far", 1),
        ("a", "truth", 0),
        ("a", "target", 2),  # numbers of two models are shown, not judged
        ("sure", "surely-not", 1),
        ("bare", "a", 2),
    ],
)
def test_json_is_json_whatever_the_verdict(triad, files, left, right, code):
    got, out, _ = triad("compare", files / left, files / right, "--json")
    assert got == code
    rows = strict(out)
    for row in rows:
        assert set(row) == {"quantity", "kind", "observed", "limit", "verdict", "why", "worst"}
        assert row["verdict"] in ("PASS", "FAIL", "INFO", "SKIP")
    if right in ("target", "surely-not"):
        assert rows[0]["observed"] is None


def test_the_example_of_the_documentation_gets_a_verdict_against_the_truth(triad, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    example = "docs.examples.sklearn_laplace:answer"
    assert triad("solve", example, "laplace-binary", "iris", "--output", tmp_path / "iris.npz")[0] == 0
    assert triad("solve", example, "laplace-binary", "two-points", "--output", tmp_path / "laplace.npz")[0] == 0
    assert triad("solve", "quadrature", "exact", "two-points", "--output", tmp_path / "truth.npz")[0] == 0
    code, out, _ = triad("compare", tmp_path / "laplace.npz", tmp_path / "truth.npz")
    assert code == 0
    assert "scikit-learn laplace-binary against quadrature exact on two-points" in out
    # as far from the truth as the method is known to be, in units of what is allowed
    assert re.search(r"PASS +log_evidence +discrepancy +\S+e-0\d +1", out)
    code, out, _ = triad("compare", tmp_path / "truth.npz", tmp_path / "laplace.npz", "--band", "log_evidence=0.01")
    assert code == 1
    assert "DISAGREE" in out


def test_the_documented_command_works_in_a_process_of_its_own(tmp_path):
    output = tmp_path / "laplace.npz"
    example = "docs.examples.sklearn_laplace:answer"
    done = subprocess_triad("solve", example, "laplace-binary", "iris", "--output", output)
    assert (done.returncode, done.stderr) == (0, "")
    assert Solution.load(output).problem.name == "iris"


def test_a_third_party_beside_the_user_works_in_a_process_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from validation import Solution\n"
        "def answer(method, problem, **options):\n"
        "    return Solution(problem, 'mine', method, log_evidence=-1.5)\n",
        encoding="utf-8",
    )
    done = subprocess_triad("solve", "mine:answer", "m", "two-points", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "-1.5 (estimate of log p(y), full prior)" in done.stdout
    (tmp_path / "mine.py").write_text("def answer(method, problem, **options):\n    return 3\n", encoding="utf-8")
    done = subprocess_triad("solve", "mine:answer", "m", "two-points", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: mine:answer: found int returned, expected a validation.Solution\n"


def test_a_mistake_of_a_third_party_is_told_with_its_place_and_on_request_with_its_traceback(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def inner():\n    return {}['alpha_tilde']\n\ndef answer(method, problem, **options):\n    return inner()\n",
        encoding="utf-8",
    )
    done = subprocess_triad("solve", "mine:answer", "m", "two-points", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: mine:answer m: KeyError: 'alpha_tilde' ({tmp_path / 'mine.py'}:2)\n"
    done = subprocess_triad("solve", "mine:answer", "m", "two-points", "--verbose", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert "in answer" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: mine:answer m: KeyError")


# -- interrupts and errors -----------------------------------------------------------------------------------


def test_an_interrupt_exits_130_and_leaves_no_half_written_file(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\ndef answer(method, problem, **options):\n    print('working', flush=True)\n    time.sleep(60)\n",
        encoding="utf-8",
    )
    (tmp_path / "s.npz").write_bytes(b"old")
    process = subprocess.Popen(
        [sys.executable, "-m", "validation", "solve", "slow:answer", "m", "two-points", "--output", "s.npz"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env=os.environ | THREADS | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stderr is not None  # where what a program prints goes
        assert process.stderr.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert (tmp_path / "s.npz").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_an_interrupt_anywhere_exits_130(triad, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "solve", interrupted)
    assert triad("solve", "fast", "x-gpc", "toy")[0] == 130


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError("problem: found 'x', expected y"), "error: problem: found 'x', expected y\n"),
        (ValueError("a: found b,\n  expected c"), "error: a: found b, expected c\n"),
        (OSError(28, "No space left on device"), "error: No space left on device\n"),
        (FileNotFoundError(2, "No such file or directory", "x"), "error: [Errno 2] No such file or directory: 'x'\n"),
        (MemoryError(), "error: MemoryError\n"),
        (np.linalg.LinAlgError("K_ZZ: found y, expected z"), "error: K_ZZ: found y, expected z\n"),
    ],
)
def test_every_error_of_the_input_is_one_line(triad, monkeypatch, error, line):
    def failing(*arguments, **options):
        raise error

    monkeypatch.setattr(cli, "solve", failing)
    assert triad("solve", "fast", "x-gpc", "toy") == (2, "", line)


def test_a_mistake_of_the_program_is_no_error_of_the_input(monkeypatch):
    def broken(*arguments, **options):
        raise AssertionError

    monkeypatch.setattr(cli, "solve", broken)
    monkeypatch.setattr(sys, "argv", ["triad", "solve", "fast", "x-gpc", "toy"])
    with pytest.raises(AssertionError):
        cli.main()


# -- completion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("triad ver", "verify"),
        ("triad verify --comp", "--compare"),
        ("triad solve ref", "reference"),
        ("triad solve fast nested-e", "nested-ep"),
        ("triad solve fast x-gpc toy-4-sparse-steep-e", "toy-4-sparse-steep-errors"),
        ("triad verify --paper wen", "wenzel2019"),
        ("triad list data new_", "new_thyroid"),
    ],
)
def test_a_shell_completes_commands_options_and_names(triad, monkeypatch, typed, offered):
    monkeypatch.setenv("_TRIAD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    code, out, _ = triad()
    assert (code, out.split()) == (0, [offered])


def test_completion_is_installed_in_the_home_folder(triad, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    code, out, _ = triad("--install-completion", "bash")
    assert code == 0
    assert str(tmp_path) in out.replace("\n", "")
    written = [path.read_text("utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_TRIAD_COMPLETE=complete_bash" in text for text in written)
