"""Verdicts of two runs are held against each other: nothing that got worse is missed or hidden."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from validation.report import moved, table

CHECK = "identity/x-gpc/elbo"
HEAD = "check,problem,left,right,quantity,observed,limit,ratio,verdict"


@pytest.fixture
def verdicts(fake_result):
    def build(*rows):
        return table.verdicts([fake_result(CHECK, *row) for row in rows])

    return build


def kinds(before, after) -> list[str]:
    return [move.kind for move in moved.moves(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ((1e-12, 1e-8, "PASS"), (3e-8, 1e-8, "FAIL"), "turned red"),
        ((3e-8, 1e-8, "FAIL"), (1e-12, 1e-8, "PASS"), "turned green"),
        ((3e-8, 1e-8, "FAIL"), (math.nan, math.nan, "ERROR"), "still red"),
        ((1e-12, 1e-8, "PASS"), (math.nan, math.nan, "SKIP"), "no longer judged"),
        ((math.nan, math.nan, "SKIP"), (1e-12, 1e-8, "PASS"), "now judged"),
        ((1e-12, 1e-8, "PASS"), (1e-12, 1e-7, "PASS"), "limit raised"),
        ((1e-12, 1e-8, "PASS"), (1e-12, 1e-9, "PASS"), "limit lowered"),
        ((1e-10, 1e-8, "PASS"), (3e-10, 1e-8, "PASS"), "ratio grew"),
        ((3e-10, 1e-8, "PASS"), (1e-10, 1e-8, "PASS"), "ratio fell"),
        ((1e-14, 1e-8, "PASS"), (2e-14, 1e-8, "PASS"), "number changed"),
        ((-2.0, 0.0, "PASS"), (-1.0, 0.0, "PASS"), "number changed"),  # a bound has no ratio
    ],
)
def test_each_kind_of_move(verdicts, before, after, kind):
    assert kinds(verdicts(("toy", *before)), verdicts(("toy", *after))) == [kind]


def test_equal_runs_do_not_move(verdicts):
    rows = [("toy", 1e-12, 1e-8, "PASS"), ("iris", math.nan, math.nan, "SKIP"), ("wine", -2.0, 0.0, "PASS")]
    assert kinds(verdicts(*rows), verdicts(*rows)) == []
    assert moved.summary([]) == "nothing moved"


def test_what_is_new_and_what_is_gone(verdicts):
    old, new = verdicts(("toy", 0.0, 1e-8, "PASS")), verdicts(("iris", 0.0, 1e-8, "PASS"), ("wine", 1.0, 1e-8, "FAIL"))
    assert kinds(old, new) == ["turned red", "gone", "new"]


def test_verdicts_of_one_check_on_one_problem_keep_their_places(verdicts):
    old = verdicts(*(("toy", k * 1e-9, 1e-8, "PASS") for k in (1, 2, 3)))
    new = verdicts(*(("toy", k * 1e-9, 1e-8, "PASS") for k in (1, 9, 3)))
    (move,) = moved.moves(old, new)
    assert (move.before.observed, move.after.observed) == (2 * 1e-9, 9 * 1e-9)


def test_the_largest_come_first_and_what_matters_before_what_does_not(verdicts):
    old = verdicts(*((name, 1e-10, 1e-8, "PASS") for name in ("a", "b", "c", "d")))
    new = verdicts(("a", 5e-10, 1e-8, "PASS"), ("b", 9e-9, 1e-8, "PASS"), ("c", 2e-8, 1e-8, "FAIL"),
                   ("d", 1.1e-10, 1e-8, "PASS"))  # fmt: skip
    assert [move.problem for move in moved.moves(old, new)] == ["c", "b", "a", "d"]


def test_a_written_table_is_read_again_to_the_last_bit(fake_run, tmp_path):
    run = fake_run({}, red=True)
    path = tmp_path / "checks.csv"
    path.write_text(table.csv_text(run.results))
    assert moved.moves(moved.load(path), table.verdicts(run.results)) == [
        move for move in moved.moves(moved.load(path), table.verdicts(run.results)) if move.kind == "still red"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "found no column check, problem"),
        ("check,problem,left,right,quantity,observed,limit,ratio,verdict\nx,y,l,r,q,1,2,3,MAYBE\n", "line 2: verdict"),
        (
            "check,problem,left,right,quantity,observed,limit,ratio,verdict\nx,y,l,r,q,one,2,3,PASS\n",
            "line 2: observed",
        ),
    ],
)
def test_a_file_that_is_no_table_of_checks_is_refused(tmp_path, text, message):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        moved.load(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="bytes that are no text"):
        moved.load(path)


def test_the_terminal_shows_before_and_after(verdicts):
    old, new = verdicts(("toy", 1e-12, 1e-8, "PASS")), verdicts(("toy", 3e-8, 1e-8, "FAIL"))
    file = io.StringIO()
    table.print_moves(Console(file=file, width=80), moved.moves(old, new), "old.csv")
    lines = file.getvalue().splitlines()
    assert lines == [
        "against old.csv: 1 turned red",
        "turned red:",
        "  identity/x-gpc/elbo on toy: PASS 1e-12 (<0.001 of 1e-08) -> FAIL 3e-08 (3.000 of 1e-08)",
    ]
