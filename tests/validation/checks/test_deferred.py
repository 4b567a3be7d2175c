"""What a run of everything leaves to --full: asked elsewhere in it, and to be had by name."""

from fnmatch import fnmatchcase

import pytest

from validation.checks import core, selection

ROWS = selection.deferrals()


def pairs_of(row):
    return [
        (check.id, row.problem)
        for check in core.registered().values()
        if row.problem in check.problems and any(fnmatchcase(check.id, pattern) for pattern in row.checks)
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.checks[0]} on {row.problem}")
def test_what_is_deferred_is_asked_elsewhere_in_the_same_run(row):
    pairs = pairs_of(row)
    asked = {pair[:2] for pair in selection.select().pairs}
    assert pairs
    assert not asked & set(pairs)
    for check, problem in pairs:
        instead = [(check, name) for name in row.instead] if problem != core.NO_PROBLEM else [
            (name, core.NO_PROBLEM) for name in row.instead
        ]  # fmt: skip
        assert asked & set(instead), check


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.checks[0]} on {row.problem}")
def test_a_full_run_asks_it_and_so_does_who_names_it(row):
    pairs = set(pairs_of(row))
    assert pairs <= {pair[:2] for pair in selection.select(full=True).pairs}
    named = {pair[:2] for pair in selection.select(check=row.checks).pairs}
    assert pairs <= named
    if row.problem != core.NO_PROBLEM:
        assert pairs <= {pair[:2] for pair in selection.select(problem=[row.problem]).pairs}
