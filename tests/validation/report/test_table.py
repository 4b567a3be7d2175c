"""Lines for a terminal: nothing needed is cut off, and the CSV has the columns of the design."""

from __future__ import annotations

import dataclasses
import io
import math
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from validation.report import table

DESIGN = ["check", "kind", "paper", "method", "quantity", "left", "right", "problem"]
DESIGN += ["observed", "limit", "ratio", "verdict", "seconds", "why"]


def printed(run, *, width: int, terminal: bool, **options) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    table.print_run(console, run, **options)
    return file.getvalue().splitlines()


@pytest.fixture
def run(fake_run, fake_result):
    result = fake_run({}, red=True)
    long = fake_result("discrepancy/nested-ep/test_latent_cov", "breast-cancer-full", 0.07, 0.1, "PASS")
    return result._replace(results=(*result.results, long))


def test_the_csv_has_the_columns_of_the_design_in_their_order(run):
    frame = pd.read_csv(io.StringIO(table.csv_text(run.results)))
    assert list(frame.columns) == DESIGN
    assert frame["verdict"].tolist() == ["SKIP", "FAIL", "FAIL", "ERROR", "PASS"]
    assert frame["observed"].isna().tolist() == [True, False, True, True, False]
    assert frame["ratio"][1] == math.inf


def test_an_empty_run_has_the_columns_too():
    assert table.csv_text([]).split() == [",".join(DESIGN)]


@pytest.mark.parametrize(("width", "terminal"), [(200, True), (80, True), (60, True), (80, False)])
def test_the_id_of_a_check_is_never_cut(run, width, terminal):
    lines = printed(run, width=width, terminal=terminal)
    for result in run.results:
        assert any(result.check in line.split() for line in lines)


@pytest.mark.parametrize(("width", "terminal", "columns"), [(80, True, 80), (100, True, 100), (80, False, 100)])
@pytest.mark.parametrize("why", [False, True])
def test_lines_fit_the_terminal_and_a_hundred_columns_of_a_file(run, width, terminal, columns, why):
    # reasons are folded; what is to be copied (a command) stays on its line, however long
    lines = printed(run, width=width, terminal=terminal, why=why)
    assert max(len(line) for line in lines if "reproduce:" not in line) <= columns


def test_a_file_gets_one_line_for_a_check(run):
    lines = printed(run, width=80, terminal=False)
    (line,) = [line for line in lines if line.startswith("PASS  discrepancy/nested-ep/test_latent_cov")]
    assert line.split() == [
        *("PASS", "discrepancy/nested-ep/test_latent_cov", "breast-cancer-full", "0.07", "0.1", "0.700", "0.4", "s"),
    ]


def test_a_wide_terminal_has_every_column(run):
    lines = printed(run, width=200, terminal=True)
    (line,) = [line for line in lines if line.startswith("PASS  discrepancy/nested-ep/test_latent_cov")]
    assert line.split() == [
        *("PASS", "discrepancy/nested-ep/test_latent_cov", "breast-cancer-full", "reference", "vs", "fast"),
        *("relative", "difference", "0.07", "0.1", "0.700", "0.4", "s"),
    ]


def test_quiet_leaves_failures_and_the_summary(run):
    lines = printed(run, width=100, terminal=True, quiet=True)
    assert not [line for line in lines if line.startswith(("PASS", "SKIP"))]
    assert len([line for line in lines if line.startswith(("FAIL", "ERROR"))]) == 3
    assert "passed: discrepancy 1" in lines
    assert "2 failed (identity 1, bound 1), 1 error, 1 skipped in 48 s" in lines


def test_failures_give_reason_question_and_command(run):
    text = "\n".join(printed(run, width=200, terminal=True))
    assert "     reproduce: triad verify --check bound/x-gpc/log_evidence --problem toy" in text
    assert text.count("     why: same fixed point") == 2
    assert "Traceback" not in text
    assert "Traceback" in "\n".join(printed(run, width=200, terminal=True, verbose=True))


def test_reasons_come_with_every_line_on_request(run):
    assert "\n".join(printed(run, width=200, terminal=True, why=True)).count("why: same fixed point") == 5


def test_markup_in_a_reason_is_text(run, nasty):
    assert nasty in "\n".join(printed(run, width=200, terminal=False))
    odd = run._replace(results=(replace(run.results[1], why="[bold]theta[0][/]"),))
    assert "why: [bold]theta[0][/]" in "\n".join(printed(odd, width=200, terminal=False))


def test_a_check_that_passes_on_many_problems_has_one_line_with_the_worst(fake_run, fake_result):
    ratios = {"toy": 0.2, "iris": 0.7, "wine": 0.1}
    results = [fake_result("identity/x-gpc/elbo", name, r * 1e-8, 1e-8, "PASS") for name, r in ratios.items()]
    results += [fake_result("bound/x-gpc/elbo", name, -r, 0.0, "PASS") for name, r in ratios.items()]
    results += [fake_result("identity/x-gpc/mean", name, r, 1e-8, "FAIL") for name, r in ratios.items()]
    run = fake_run({})._replace(results=tuple(results))
    result = [(line.worst.check, line.worst.problem, line.verdicts, line.problems) for line in table.lines(results)]
    assert result == [
        ("identity/x-gpc/elbo", "iris", 3, 3),
        ("bound/x-gpc/elbo", "wine", 3, 3),
        *(("identity/x-gpc/mean", name, 1, 1) for name in ratios),
    ]
    passed = [line for line in printed(run, width=200, terminal=True) if line.startswith("PASS")]
    assert "iris and 2 more" in passed[0]
    assert len([line for line in printed(run, width=200, terminal=True, verbose=True) if line.startswith("PASS")]) == 6


def test_skips_of_one_check_share_a_line_and_say_that_reasons_differ(fake_run, fake_result):
    results = [
        fake_result("exactness/gibbs-logit/log_evidence", name, math.nan, math.nan, "SKIP", why=f"no {name}")
        for name in ("toy", "iris")
    ]
    text = "\n".join(printed(fake_run({})._replace(results=tuple(results)), width=200, terminal=True))
    assert text.count("SKIP") == 1
    assert "why: no toy (and 1 more; --verbose shows each)" in text


def test_the_summary_counts_and_names_the_largest_ratio(run):
    assert table.summary(run) == (
        "passed: discrepancy 1; 2 failed (identity 1, bound 1), 1 error, 1 skipped in 48 s; "
        "largest ratio 0.700 (discrepancy/nested-ep/test_latent_cov on breast-cancer-full); "
        "not judged: 1 quantity (exactness/gibbs-logit/log_evidence on toy)"
    )
    assert table.summary(run._replace(results=(), interrupted=True)) == (
        "interrupted: passed: none; 0 failed, 0 skipped in 48 s; not judged: nothing"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, ""),
        (-1.0, ""),
        (0.0, "0"),
        (3e-9, "<0.001"),
        (0.4104, "0.410"),
        (41.3, "41.3"),
        (math.inf, "inf"),
    ],
)
def test_ratios_are_told_to_three_digits(value, text):
    assert table.ratio(value) == text


def test_colours_are_for_terminals_only(run):
    file = io.StringIO()
    table.print_run(Console(file=file), run)
    assert "\x1b" not in file.getvalue()


def test_a_failure_names_the_cards_of_the_equations_that_its_check_executes(run, capsys):
    red = next(result for result in run.results if result.verdict == "FAIL")
    told = run._replace(results=(dataclasses.replace(red, check="print/pep/factors"),))
    table.print_run(Console(width=100, force_terminal=False), told)
    assert "equations: atlas/villacampa2020.html#" in capsys.readouterr().out
