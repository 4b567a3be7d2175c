"""Limits in seconds grow with the time that this machine takes, and never shrink."""

import itertools

import pytest

from validation.screen import pace as module


@pytest.fixture(autouse=True)
def measured_anew():
    module.pace.cache_clear()
    yield
    module.pace.cache_clear()


@pytest.mark.parametrize(("times", "expected"), [(3.0, 3.0), (1.0, 1.0), (0.25, 1.0)])
def test_the_pace_is_the_time_over_the_nominal_one_but_at_least_one(monkeypatch, times, expected):
    monkeypatch.setattr(module, "measured", lambda: times * module.NOMINAL)
    assert module.pace() == pytest.approx(expected, rel=1e-12)


def test_a_run_that_was_disturbed_does_not_count(monkeypatch):
    # five runs of 4, 9, 2, 7 and 3 s of a core: started and ended at these times
    clock = itertools.accumulate(x for each in (4.0, 9.0, 2.0, 7.0, 3.0) for x in (1.0, each))
    monkeypatch.setattr(module, "_work", lambda: 0.0)
    monkeypatch.setattr(module.time, "process_time", lambda: next(clock))
    assert module.measured() == 2.0


def test_it_is_measured_once():
    assert module.pace() is module.pace()
