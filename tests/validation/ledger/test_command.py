"""`triad audit` as one types it: outputs, exit codes, files."""

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from validation.command import ledger as command
from validation.ledger import audit as ledger_audit

FUNCTIONS = '@equation("toy", "1")\ndef f(x):\n    "Twice x [bold]."\n    return 2.0 * x\n'
GOOD = '\n@pytest.mark.verifies("toy", "1", route="value")\ndef test_f():\n    assert f(1.0) == 2.0\n'
IDLE = '\n@pytest.mark.verifies("toy", "1", route="value")\ndef test_idle():\n    f(1.0)\n'


@pytest.fixture
def invoke(build, monkeypatch):
    """Run the command on a toy repository; `faults` chooses what is wrong with it."""
    app = typer.Typer()
    app.command("audit")(command.maintain)

    def run(*args, functions=FUNCTIONS, tests=GOOD, **options):
        sources = build({"m": functions}, {"toy/test_m": "from toy.m import *\n" + tests}, **options)
        monkeypatch.setattr(ledger_audit, "default_sources", lambda: sources)
        return CliRunner().invoke(app, [str(arg) for arg in args])

    return run


SLIP = """
[[slip]]
id = "slip-1"
section = "2"
printed = "a"
meant = "b"
"""
REASON = """
because = "a is no letter"
number = "count: 2; printed: 3"
decides = "print/ep/d"
"""


def test_the_reason_of_a_slip_is_shown_counted_and_missed(invoke):
    shown = invoke("toy:slip-1", slips=SLIP + REASON)
    for words in ("because     a is no letter", "number      count: 2; printed: 3", "decided by  print/ep/d"):
        assert words in shown.stdout
    assert "denies      claim toy:fig1" in invoke("toy:slip-1", slips=SLIP + REASON + 'denies = ["fig1"]\n').stdout
    assert re.search(r"toy .* 1/1 *$", invoke("toy", slips=SLIP + REASON).stdout, re.MULTILINE)
    without = invoke("toy", slips=SLIP).stdout
    assert re.search(r"toy .* 0/1 *$", without, re.MULTILINE)
    assert "no reason (because, number, decides)" in without


def test_coverage_is_shown_and_the_exit_code_is_0(invoke):
    result = invoke(ids="1")
    assert result.exit_code == 0, result.stderr
    assert "verified" in result.stdout
    assert "1 / 1" in result.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ids": "1 2", "complete": True}, "toy:2: open (no function, no test)"),
        ({"ids": "1", "functions": FUNCTIONS + "def g(:"}, "failed to parse"),
        ({"ids": "1", "tests": GOOD.replace('"1"', '"7"')}, "id: found '7' in toy"),
        ({"ids": "1", "tests": GOOD.replace('"value"', '""')}, "route: found ''"),
    ],
)
def test_what_fails_the_audit_is_named_and_the_exit_code_is_1(invoke, options, words):
    result = invoke(**options)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["tay"], "expected 'toy'"),
        (["toy:u1-maen"], "expected 'u1-mean'"),
        (["--json", "--markdown"], "found both"),
        (["--slow"], "expected it with --perturb"),
        (["--json", "--perturb", "--check", "x"], "differ from run to run"),
    ],
)
def test_bad_arguments_are_told_and_the_exit_code_is_2(invoke, args, words):
    result = invoke(*args, ids="1 u1-mean")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_one_equation_is_shown_with_source_tests_and_routes(invoke):
    result = invoke("toy:1", ids="1")
    assert result.exit_code == 0, result.stderr
    for words in ("Display 1", "m.f", "return 2.0 * x", "[bold]", "test_f", "route: value"):
        assert words in result.stdout


def test_a_paper_is_shown_entry_by_entry(invoke):
    result = invoke("toy", ids="1 2")
    assert result.exit_code == 0
    assert "Display 2" in " ".join(result.stdout.split())


def test_stdout_holds_json_and_nothing_else(invoke):
    result = invoke("toy:1", "--json", "--perturb", ids="1", tests=IDLE)
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["papers"][0]["entries"][0]["functions"][0]["signature"] == "f(x)"
    assert data["perturbation"]["trials"][0]["status"] == "survived"
    assert len(data["failures"]) == 2


def test_a_survivor_fails_the_perturbation_and_a_good_test_passes_it(invoke):
    good = invoke("--perturb", ids="1")
    assert good.exit_code == 0, good.stderr
    assert "1 noticed (1 by AssertionError)" in " ".join(good.stdout.split())
    idle = invoke("--perturb", ids="1", tests=GOOD + IDLE)
    assert idle.exit_code == 1
    assert "Survivors" in idle.stdout


def test_a_test_that_fails_unperturbed_fails_the_perturbation(invoke):
    result = invoke("--perturb", ids="1", tests=GOOD + GOOD.replace("test_f", "test_g").replace("2.0", "3.0"))
    assert result.exit_code == 1
    assert "fails unperturbed (AssertionError)" in " ".join(result.stderr.split())


def test_the_page_is_written_whole_and_checked_to_the_letter(invoke, tmp_path):
    file = tmp_path / "ledger.md"
    absent = invoke("--check", file, ids="1")
    assert absent.exit_code == 1
    assert "found no readable file" in " ".join(absent.stderr.split())
    written = invoke("--output", file, ids="1")
    assert (written.exit_code, written.stdout) == (0, "")
    assert [path.name for path in tmp_path.glob(".ledger*")] == []


def test_a_page_that_differs_is_told_line_by_line(build, monkeypatch, tmp_path):
    sources = build({"m": FUNCTIONS}, {"toy/test_m": "from toy.m import *\n" + GOOD}, ids="1")
    monkeypatch.setattr(ledger_audit, "default_sources", lambda: sources)
    app = typer.Typer()
    app.command("audit")(command.maintain)
    file = tmp_path / "ledger.md"
    runner = CliRunner()
    printed = runner.invoke(app, ["--markdown"])
    assert runner.invoke(app, ["--output", str(file)]).exit_code == 0
    assert printed.stdout == file.read_text(encoding="utf-8")
    assert runner.invoke(app, ["--check", str(file)]).exit_code == 0
    file.write_text(printed.stdout.replace("verified |", "open |"), encoding="utf-8")
    changed = runner.invoke(app, ["--markdown", "--check", str(file)])
    assert (changed.exit_code, changed.stdout) == (1, "")
    assert "differs from the page" in " ".join(changed.stderr.split())


def test_a_page_that_cannot_be_written_is_a_bad_argument(invoke, tmp_path):
    result = invoke("--output", tmp_path / "no" / "such" / "folder.md", ids="1")
    assert result.exit_code == 2
    assert "expected a writable file" in " ".join(result.stderr.replace("│", " ").split())
    assert command_error(invoke("--output", tmp_path, ids="1")) == 2


def command_error(result):
    """The exit code of a command that computed nothing."""
    assert result.stdout == ""
    return result.exit_code


def test_a_page_that_cannot_be_written_is_told_before_any_test_is_read(build, monkeypatch, tmp_path):
    def reading(*arguments):
        raise AssertionError("the ledger was built")

    monkeypatch.setattr(ledger_audit, "build", reading)
    app = typer.Typer()
    app.command("audit")(command.maintain)
    result = CliRunner().invoke(app, ["--output", str(tmp_path / "no" / "folder.md")])
    assert result.exit_code == 2, result.output


def test_without_a_repository_coverage_asks_for_a_clone_and_one_equation_is_shown(build, monkeypatch):
    given = build({"m": FUNCTIONS}, {}, ids="1")
    alone = ledger_audit.Sources(given.inventory, given.packages, None, "tests: found none, expected a clone")
    monkeypatch.setattr(ledger_audit, "default_sources", lambda: alone)
    app = typer.Typer()
    app.command("audit")(command.maintain)
    runner = CliRunner()
    for args in ([], ["toy"], ["--perturb"], ["--markdown"]):
        result = runner.invoke(app, args)
        assert result.exit_code == 1
        assert "expected a clone" in " ".join(result.stderr.split())
    shown = runner.invoke(app, ["toy:1"])
    assert shown.exit_code == 0
    assert "return 2.0 * x" in shown.stdout
    assert "unknown without tests" in shown.stdout


def test_run_reruns_the_tests_of_one_equation_and_prints_them(invoke):
    result = invoke("toy:1", "--run", ids="1")
    assert result.exit_code == 0, result.stderr
    assert "PASS" in result.stdout
    assert "test_f" in result.stdout


def test_run_exits_1_where_a_test_fails(invoke):
    result = invoke("toy:1", "--run", ids="1", tests=GOOD.replace("2.0", "3.0"))
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    assert "toy:1: test" in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--run"], "expected one equation"),
        (["toy", "--run"], "expected one equation"),
        (["toy:1", "--run", "--json"], "expected it alone"),
    ],
)
def test_what_runs_is_told_how_it_is_asked(invoke, args, words):
    result = invoke(*args, ids="1")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_nothing_is_folded_in_a_pipe(invoke):
    long = "x + " * 60 + "x"
    result = invoke("toy:1", ids="1", functions=FUNCTIONS.replace("2.0 * x", long))
    assert long in result.stdout
    assert max(map(len, result.stdout.splitlines())) < 400  # nor filled up with blanks
