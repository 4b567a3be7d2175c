"""Failures are grouped by cause, in the order of computation, and a comparison fits a screen."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from validation.checks.core import Result
from validation.checks.runner import Run
from validation.report import causes, moved, table


def failure(quantity, *, method="sep", problem="toy-3", observed=0.5, kind="identity", left="reference", why="a term",
            verdict="FAIL"):  # fmt: skip
    return Result(
        check=f"{kind}/{method}/{quantity}", kind=kind, paper="villacampa2017", method=method, quantity=quantity,
        left=left, right="fast", problem=problem, observed=observed, limit=1e-8, ratio=observed / 1e-8,
        verdict=verdict, seconds=0.1, why=why,
    )  # fmt: skip


@pytest.fixture
def many():
    """What one wrong step gives: 171 results of a run that does not converge, and 19 telling numbers."""
    unconverged = [
        failure(f"q{k}", problem=f"toy-{k % 2}", observed=math.inf, left="fast sep",
                why="an iteration that did not converge has no fixed point")
        for k in range(171)
    ]  # fmt: skip
    quantities = ("probabilities", "log_evidence", "gradient_Z", "inducing_mean", "latent_mean")
    telling = [failure(name, problem=f"p{k}") for k in range(3) for name in quantities]
    return [*unconverged, *telling, *(failure("bound", kind="bound", method="ep") for _ in range(4))]


def test_results_of_one_cause_are_one_group_and_telling_numbers_come_first(many):
    words = [(cause.words, len(cause.results), cause.problems) for cause in causes.causes(many)]
    assert words == [
        ("sep: identity fails, reference and fast", 15, 3),
        ("ep: bound fails, reference and fast", 4, 1),
        ("fast sep does not converge", 171, 2),
    ]


def test_the_first_of_a_cause_is_what_is_computed_first(many):
    first, *_ = causes.causes(many)
    assert [result.quantity for result in first.results[::3]] == [
        "inducing_mean", "latent_mean", "log_evidence", "gradient_Z", "probabilities",
    ]  # fmt: skip


def test_errors_are_grouped_by_what_is_raised():
    raised = [failure(name, observed=math.nan, verdict="ERROR", why=f"LinAlgError: {name}") for name in ("a", "b")]
    (cause,) = causes.causes([*raised])
    assert (cause.words, len(cause.results)) == ("sep raises LinAlgError", 2)


def test_lines_are_bounded_and_count_what_they_leave_out():
    apart = [failure("latent_mean", method=f"m{k}") for k in range(50)]
    lines = list(causes.lines(causes.causes(apart), 40))
    assert len(lines) <= 40
    assert lines[-1] == "31 more causes, 31 results (report.html)"
    assert "triad verify --check identity/m0/latent_mean --problem toy-3" in lines[1]


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_takes_at_most_40_lines_and_begins_with_the_causes(many, width):
    before = table.verdicts(replace(result, observed=0.0, ratio=0.0, verdict="PASS") for result in many)
    moves = moved.moves(before, table.verdicts(many))
    file = io.StringIO()
    table.print_moves(Console(file=file, width=width), moves, "old.csv", many, ["where: in f"])
    lines = file.getvalue().splitlines()
    assert len(lines) <= 40
    assert lines[0] == "against old.csv: 190 turned red"
    assert lines[1] == "sep: identity fails, reference and fast on 3 problems: 15 results"
    assert "where: in f" in lines


def test_many_failures_of_a_run_are_shown_by_cause(many, monkeypatch):
    file = io.StringIO()
    monkeypatch.setenv("COLUMNS", "80")
    table.print_run(Console(file=file, width=80), Run(tuple(many), (), 1.0, {}), quiet=True)
    text = file.getvalue()
    assert len(text.splitlines()) <= 45  # 40, and the summary
    assert "fast sep does not converge on 2 problems: 171 results" in text
