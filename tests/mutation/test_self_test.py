"""The table of planted mistakes fits the sources, and the self-test says which check has not seen one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import self_test
from self_test import Answer, Edit, Pair, Planted
from validation.checks import core
from validation.door.catalogue import METHODS

TABLE = self_test.table()
# the same mistake in two witnesses: their agreement proves nothing
SHARED = [each for each in TABLE if {"reference", "fast"} <= {edit.file.split("/")[0] for edit in each.edits}]


@pytest.mark.parametrize("planted", TABLE, ids=lambda planted: planted.id)
def test_each_edit_fits_its_file_once_and_leaves_a_program(planted):
    for module, text in planted.texts().items():
        tree = ast.parse(text)
        source = (self_test.ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert ast.dump(tree) != ast.dump(ast.parse(source))


def test_an_edit_that_fits_twice_or_never_is_refused():
    for old in ("import", "no such line"):
        with pytest.raises(ValueError, match=r"old: found .* times in fast/methods/x_gpc.py, expected once"):
            Planted("some", "", (Edit("fast/methods/x_gpc.py", old, ""),), ()).texts()


def test_the_checks_that_must_fail_are_registered_on_their_problems():
    checks = core.registered()
    for planted in TABLE:
        assert planted.seen_by, planted.id
        for pair in planted.seen_by:
            assert pair.check in checks, planted.id
            assert pair.problem in checks[pair.check].problems + checks[pair.check].full, (planted.id, pair)


def test_ids_are_unique():
    assert [name for name, count in Counter(each.id for each in TABLE).items() if count > 1] == []


def test_a_shared_mistake_is_not_left_to_a_comparison_of_the_witnesses():
    assert [each.id for each in SHARED if "identity" in each.kinds or each.crash] == []


def test_every_method_of_both_witnesses_has_three_shared_mistakes():
    counts = Counter(method for each in SHARED for method in {pair.check.split("/")[1] for pair in each.seen_by})
    assert {entry.method: counts[entry.method] for entry in METHODS if counts[entry.method] < 3} == {}


def test_each_check_that_passes_in_spite_of_a_mistake_is_told():
    one, two = Pair("identity/x-gpc/mean", "toy"), Pair("bound/x-gpc/equality", "toy")
    planted = Planted("some", "", (), (one, two))
    red, green = Answer(*one, "FAIL", 2.0, "because"), Answer(*two, "PASS", 0.4, "because")
    assert self_test.missed(planted, [red, green]) == ["bound/x-gpc/equality on toy: PASS at 0.4 of the limit, because"]
    assert self_test.missed(planted, [red, green._replace(verdict="FAIL")]) == []
    assert len(self_test.missed(planted, [red])) == 1


def test_an_error_counts_only_where_the_table_says_so():
    pair = Pair("identity/x-gpc/mean", "toy")
    error = [Answer(*pair, "ERROR", float("nan"), "ValueError: noise")]
    assert self_test.missed(Planted("some", "", (), (pair,)), error)
    assert self_test.missed(Planted("some", "", (), (pair,), crash=True), error) == []


@pytest.mark.slow
def test_every_planted_mistake_is_seen():
    program = Path(self_test.__file__)
    run = subprocess.run([sys.executable, str(program), "--jobs", "1"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr
    assert f"{len(TABLE)} of {len(TABLE)} planted mistakes" in run.stdout
