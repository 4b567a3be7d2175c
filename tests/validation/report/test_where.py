"""A function that failures execute and passes do not comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validation.checks import core
from validation.checks.core import NO_PROBLEM, Compared, check
from validation.report import where


@pytest.fixture
def results(monkeypatch, fake_result):
    """Two failures that execute the mean of ω, and two passes that execute other functions."""
    monkeypatch.setattr(core, "_registry", {})
    monkeypatch.setattr(core, "modules", lambda: ())
    from reference.wenzel2019 import augmentation

    def mean(context, problem):
        augmentation.pg_mean(1.0, 0.5)
        augmentation.pg_log_tilt(0.5, 1.0, 0.5)
        return Compared(1.0, 1e-8, "it is evaluated", "reference", "fast")

    def tilt(context, problem):
        augmentation.pg_log_tilt(0.5, 1.0, 0.5)
        return Compared(0.0, 1e-8, "it is evaluated", "reference", "fast")

    found = []
    for name, function, verdict in (("a", mean, "FAIL"), ("b", mean, "FAIL"), ("c", tilt, "PASS"),
                                    ("d", tilt, "PASS")):  # fmt: skip
        id = f"identity/x-gpc/{name}"
        check(id, paper="wenzel2019", question="It is so.", problems=(NO_PROBLEM,))(function)
        found.append(replace(fake_result(id, NO_PROBLEM, 1.0, 1e-8, verdict), method="x-gpc"))
    return found


def test_what_failures_alone_execute_comes_first(results):
    suspects, red, green = where.suspects(results)
    assert (red, green) == (2, 2)
    first = suspects[0]
    assert (first.function, first.file) == ("pg_mean", "reference/wenzel2019/augmentation.py")
    assert (first.red, first.green, first.score) == (2, 0, 1.0)
    (shared,) = [one for one in suspects if one.function == "pg_log_tilt"]
    assert (shared.red, shared.green) == (2, 2)


def test_lines_name_file_line_and_function(results):
    head, line, *_ = where.lines(*where.suspects(results))
    assert head == "where: functions that 2 failures and few of 2 passes execute"
    assert line.startswith("  reference/wenzel2019/augmentation.py:")
    assert line.endswith(" pg_mean: 2 of 2 failures, 0 of 2 passes")


def test_a_run_without_failures_has_no_suspects(results):
    assert where.suspects(results[2:])[0] == []
    assert list(where.lines([], 0, 2)) == []
