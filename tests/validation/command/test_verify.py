"""`triad verify` from the outside: exit codes, files, and what is said where."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from validation import problems
from validation.checks import core, runner
from validation.checks.core import Compared, Skipped, Tested, check
from validation.command import verify as verify_command
from validation.command.later import STYLE
from validation.door.problem import Problem

COLUMNS = ["check", "kind", "paper", "method", "quantity", "left", "right", "problem"]
COLUMNS += ["observed", "limit", "ratio", "verdict", "seconds", "why"]


def make_problem(name: str) -> Problem:
    X = np.linspace(-1.0, 1.0, 4)[:, None]
    return Problem(name=name, X=X, y=np.array([0, 1, 0, 1]), n_classes=2, likelihood="logit", variance=1.0,
                   lengthscales=1.0, X_test=X)  # fmt: skip


def register(id: str, answer: Any, problems: tuple[str, ...] = ("easy",)) -> None:
    def asked(context: Any, problem: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    check(id, paper="wenzel2019", question="It is so.", problems=problems)(asked)


@pytest.fixture(autouse=True)
def _without_the_ledger(monkeypatch):
    """Reading every test of the repository takes 15 s and is no part of these runs."""
    monkeypatch.setattr(verify_command, "coverage", lambda: None)


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Run `triad verify` in an empty folder, in this process, with no checks but those that the test registers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(core, "_registry", {})
    monkeypatch.setattr(core, "modules", lambda: ())
    monkeypatch.setattr(problems, "get", make_problem)
    monkeypatch.setattr(problems, "names", lambda: ("easy", "hard"))
    monkeypatch.setattr(problems, "cost", lambda name: 1.0)
    verify, record = typer.Typer(**STYLE), typer.Typer(**STYLE)
    verify.command()(verify_command.verify)
    record.command()(verify_command.record)

    def run(*arguments: str, app: typer.Typer = verify) -> Any:
        return CliRunner().invoke(app, [*arguments, "--jobs", "1"], catch_exceptions=False)

    run.record = lambda *arguments: run(*arguments, app=record)

    return run


@pytest.fixture
def green(invoke):
    register("identity/x-gpc/elbo", Compared(3e-11, 1e-8, "1e-8 is where a missing term shows", "reference", "fast"))
    register("exactness/gibbs-logit/mean", Tested(np.array([0.3, -1.2]), "exact moments", "gibbs", "quadrature", "2 %"))
    register("bound/x-gpc/elbo", Skipped("log Z: found s.e. 0.08, expected <= 0.05"), ("easy", "hard"))
    return invoke


# -- verdicts ------------------------------------------------------------------------------------------------


def test_a_green_run_exits_0_and_writes_both_files(green, tmp_path):
    correct = green()
    assert correct.exit_code == 0
    assert "passed: identity 1, exactness 1\n0 failed, 2 skipped in" in correct.stdout
    frame = pd.read_csv(tmp_path / "results" / "checks.csv")
    assert list(frame.columns) == COLUMNS
    assert frame["verdict"].tolist() == ["PASS", "PASS", "SKIP", "SKIP"]
    assert frame["check"][0] == "identity/x-gpc/elbo"
    # 3e-11 / 1e-8, up to rounding
    np.testing.assert_allclose(frame["ratio"][0], 0.003, rtol=1e-12, atol=0)
    report = (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert "No disagreement: 2 of 4 verdicts passed, 2 skipped" in report
    assert sorted(os.listdir(tmp_path / "results")) == ["checks.csv", "report.html"]


def test_a_failure_exits_1_and_says_how_to_see_it_again(green):
    register("identity/x-gpc/mean", Compared(1e-3, 1e-8, "a missing term shows at 1e-8", "reference", "fast"))
    correct = green()
    assert correct.exit_code == 1
    assert re.search(r"FAIL\s+identity/x-gpc/mean\s+easy\s+reference vs fast", correct.stdout)
    assert "why: a missing term shows at 1e-8" in correct.stdout
    assert "reproduce: triad verify --check identity/x-gpc/mean --problem easy" in correct.stdout


def test_the_command_that_reproduces_a_failure_fails_too(green):
    register("exactness/gibbs-logit/var", Tested(np.array([9.0]), "exact moments", "gibbs", "quadrature", "2 %"))
    (command,) = re.findall(r"reproduce: triad verify (.*)", green().stdout)
    assert green(*command.split()).exit_code == 1


def test_an_error_in_a_check_exits_1_and_shows_its_traceback_on_request(green):
    register("limit/x-gpc/z", ValueError("Z: found 3 rows, expected 4"))
    correct = green()
    assert correct.exit_code == 1
    assert "why: ValueError: Z: found 3 rows, expected 4" in correct.stdout
    assert "Traceback" not in correct.output
    assert "Traceback" in green("--verbose").stdout


def test_what_moved_since_an_earlier_run_is_shown(green, tmp_path):
    green("--output", "old")
    core._registry.pop("identity/x-gpc/elbo")
    register("identity/x-gpc/elbo", Compared(3e-7, 1e-8, "1e-8 is where a missing term shows", "reference", "fast"))
    correct = green("--compare", "old/checks.csv")
    assert correct.exit_code == 1
    assert "against old/checks.csv: 1 turned red" in correct.stdout
    told = " ".join(correct.stdout.split())
    assert told.startswith("against old/checks.csv: 1 turned red")  # the comparison comes first
    assert "first elbo, 3e-07 of 1e-08: triad verify --check identity/x-gpc/elbo --problem easy" in told
    assert "What moved against checks.csv" in (tmp_path / "results" / "report.html").read_text(encoding="utf-8")


def test_checks_that_were_not_asked_again_are_not_gone(green):
    green("--output", "old")
    assert "nothing moved" in green("--compare", "old/checks.csv", "--check", "identity/*").stdout
    core._registry.pop("exactness/gibbs-logit/mean")
    assert "1 gone" in green("--compare", "old/checks.csv", "--check", "identity/*").stdout


def test_a_run_as_json_is_nothing_but_json(green):
    green("--output", "old")
    content = json.loads(green("--json", "--compare", "old/checks.csv").stdout)
    assert [row["verdict"] for row in content["verdicts"]] == ["PASS", "PASS", "SKIP", "SKIP"]
    assert content["moved"] == []


def test_junit_is_written_beside(green, tmp_path):
    assert "runs/verify.xml" in green("--junit", "runs/verify.xml").stdout
    root = ElementTree.parse(tmp_path / "runs" / "verify.xml").getroot()
    assert len(list(root.iter("testcase"))) == 4


def evaluating(context, problem):
    """A check of kind print: it evaluates (4) itself, which calls (3)."""
    from reference.wenzel2019 import augmentation

    augmentation.logit_pg_mixture([0.5])
    return Compared(0.0, 0.0, "it is evaluated", "reference", "nobody")


def test_who_executes_each_equation_is_written_beside_a_green_run_alone(green, tmp_path):
    check("print/x-gpc/mixture", paper="wenzel2019", question="It is so.", problems=("easy",))(evaluating)
    assert green.record("executed.json").exit_code == 0
    entries = json.loads((tmp_path / "executed.json").read_text(encoding="utf-8"))["entries"]
    by = {"checks": ["print/x-gpc/mixture"]}
    assert {key: row for key, row in entries.items() if row} == {
        "wenzel2019:3": by, "wenzel2019:4": {**by, "calls": {"3": []}},
    }  # fmt: skip
    register("identity/x-gpc/mean", Compared(1e-3, 1e-8, "a missing term shows at 1e-8", "reference", "fast"))
    assert green.record("red.json").exit_code == 1
    assert not (tmp_path / "red.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compare", "nowhere.csv"], "--compare: nowhere.csv: No such file or directory"),
        (["--compare", "empty.csv"], "--compare: empty.csv: found no column check"),
        (["--json", "--why"], "--json: found it with --verbose or --why"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(green, tmp_path, arguments, message):
    (tmp_path / "empty.csv").write_text("")
    correct = green(*arguments)
    assert correct.exit_code == 2
    assert message in " ".join(correct.stderr.split())
    assert not (tmp_path / "results").exists()


def test_reasons_are_printed_on_request(green):
    assert "1e-8 is where" not in green().stdout
    assert "why: 1e-8 is where a missing term shows" in green("--why").stdout


def test_progress_goes_to_stderr_in_plain_lines(green):
    correct = green()
    assert re.search(r"^ *\d+\.\d s  easy: 3 done$", correct.stderr, flags=re.MULTILINE)
    assert "done" not in correct.stdout
    assert "\x1b" not in correct.output


def test_coverage_of_the_ledger_reaches_the_report(green, tmp_path, monkeypatch):
    entry = {"paper": "izmailov2016", "verified": 3, "corrected": 1, "not_executable": 0, "open": 7}
    monkeypatch.setattr(verify_command, "coverage", lambda: [entry])
    assert "not collected" not in green().stdout
    assert "izmailov2016" in (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert "not collected" not in green("--paper", "wenzel2019").stdout


@pytest.mark.parametrize("narrow", [["--check", "identity/*"], ["--problem", "easy"], ["--method", "x-gpc"]])
def test_a_narrow_run_leaves_the_ledger_alone_and_says_so(green, monkeypatch, narrow):
    def collecting():
        raise AssertionError("coverage was collected")

    monkeypatch.setattr(verify_command, "coverage", collecting)
    assert "ledger coverage not collected" in green(*narrow).stdout


# -- bad requests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--check", "identity/x-gpc/ebo"], "check: found 'identity/x-gpc/ebo'"),
        (["--check", "identity/x-gpc/ebo"], "did you mean 'identity/x-gpc/elbo'"),
        (["--paper", "wenzel2018"], "did you mean 'wenzel2019'"),
        (["--method", "x-gpcs"], "did you mean 'x-gpc'"),
        (["--problem", "eas"], "did you mean 'easy'"),
        (["--check", "identity/*", "--problem", "hard"], "found no check for check identity/*, problem hard"),
    ],
)
def test_a_selection_that_makes_no_sense_exits_2_and_computes_nothing(green, tmp_path, arguments, message):
    correct = green(*arguments)
    assert correct.exit_code == 2
    assert message in correct.stderr
    assert correct.stdout == ""
    assert not (tmp_path / "results").exists()


def test_no_checks_at_all_exit_2(invoke):
    outcome = invoke()
    assert outcome.exit_code == 2
    assert "found no check for all, expected at least one" in outcome.stderr


def test_a_folder_that_cannot_be_written_is_told_before_any_work(invoke, tmp_path):
    (tmp_path / "file").write_text("in the way")
    register("identity/x-gpc/elbo", AssertionError("was asked"))
    outcome = invoke("--output", "file/results")
    assert outcome.exit_code == 2
    assert "file/results: found" in outcome.stderr
    assert "expected a folder that can be written" in outcome.stderr
    assert "was asked" not in outcome.output


def test_a_folder_where_a_file_should_be_is_told_too(green, tmp_path):
    (tmp_path / "results" / "report.html").mkdir(parents=True)
    correct = green()
    assert correct.exit_code == 2
    assert "report.html: found a folder" in correct.stderr


# -- interrupts ----------------------------------------------------------------------------------------------


def test_an_interrupt_reports_what_is_done_and_exits_130(green, tmp_path):
    register("invariance/x-gpc/permutation", KeyboardInterrupt())
    correct = green()
    assert correct.exit_code == 130
    assert "interrupted: passed: identity 1, exactness 1\n0 failed, 1 skipped" in correct.stdout
    assert "not asked: 2 questions of 2 checks" in correct.stdout
    assert runner.NOT_RUN not in correct.stdout  # the table has what was asked and nothing else
    frame = pd.read_csv(tmp_path / "results" / "checks.csv")
    assert frame["verdict"].tolist() == ["PASS", "PASS", "SKIP", "SKIP", "SKIP"]
    assert frame["why"].iloc[-1] == runner.NOT_RUN
    assert "Interrupted: " in (tmp_path / "results" / "report.html").read_text(encoding="utf-8")


def test_an_interrupt_while_the_report_is_written_leaves_the_old_one(green, tmp_path, monkeypatch):
    assert green().exit_code == 0
    before = (tmp_path / "results" / "report.html").read_bytes()

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(verify_command, "coverage", interrupted)
    assert green().exit_code == 130
    assert (tmp_path / "results" / "report.html").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "results")) == ["checks.csv", "report.html"]


def test_an_interrupted_run_does_not_read_the_ledger(green, monkeypatch):
    read = []
    monkeypatch.setattr(verify_command, "coverage", lambda: read.append(True))
    register("invariance/x-gpc/permutation", KeyboardInterrupt())
    assert green().exit_code == 130
    assert read == []


PROGRAM = """
import time
from validation import problems
from validation.checks import core
problems.get, problems.names, problems.cost = (lambda name: name), (lambda: ("easy", "hard")), (lambda name: 1.0)
core.modules = lambda: ()

def slow(context, problem):
    open("asked", "w").close()
    time.sleep(300)

def quick(context, problem):
    return core.Compared(0.0, 1.0, "because", "left", "right")

core.check("identity/x-gpc/quick", paper="p", question="So.", problems=("easy",))(quick)
core.check("identity/x-gpc/slow", paper="p", question="So.", problems=("easy", "hard"))(slow)

if __name__ == "__main__":
    import typer
    from validation.command.verify import verify
    app = typer.Typer()
    app.command()(verify)
    app()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_a_run_over_processes_at_once(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, "program.py", "--jobs", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        deadline = time.monotonic() + 60.0
        while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30.0)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert "interrupted: " in stdout
    assert sorted(os.listdir(tmp_path / "results")) == ["checks.csv", "report.html"]
