"""Who watches a solve is told how far it is and what is left, and the answer has the digits that it has unwatched."""

import dataclasses
import math
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from validation import problems, solve
from validation.screen import watching
from validation.screen.watching import Watch


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def watched(states, seconds, **how):
    """A watch after those states, each of so many seconds."""
    clock = Clock()
    watch = Watch(clock=clock, **how)
    for state in states:
        clock.now += seconds
        watch(SimpleNamespace(**state))
    return watch, clock


def test_sweeps_take_as_long_as_those_before_and_what_follows_is_named():
    states = [{"sweep": k, "n_sweeps": 100, "n_kept": 0} for k in range(1, 21)]
    watch, clock = watched(states, 0.5, then="log Z")
    assert watch.words() == "sweep 20 of 100; about 40 s left, then log Z"
    clock.now += 10.0  # the next one is late: what it took has gone by
    assert watch.words() == "sweep 20 of 100; about 30 s left, then log Z"
    watch, _ = watched([{"sweep": 100, "n_sweeps": 100}], 30.0, then="log Z")
    assert watch.words() == "100 sweeps done, now log Z"


def test_an_iteration_is_over_when_its_change_has_fallen_as_it_fell_lately():
    # a factor of ten in two seconds: from 1e-5 to 1e-10 there are ten more
    states = [{"iteration": k, "residual": 10.0 ** (-k / 4)} for k in range(1, 21)]
    watch, _ = watched(states, 0.5, tolerance=1e-10, most=10_000)
    assert watch.words() == "iteration 20, change 1e-05 of 1e-10; about 10 s left, then predictions"
    # no more iterations are allowed than that
    watch, _ = watched(states, 2.0, tolerance=1e-10, most=25)
    assert watch.words().endswith("about 10 s left, then predictions")


@pytest.mark.parametrize("change", [math.nan, math.inf, 1e-3])
def test_what_does_not_fall_is_not_forecast(change):
    states = [{"iteration": k, "residual": change} for k in range(1, 40)]
    watch, _ = watched(states, 0.5, tolerance=1e-10)
    assert "left" not in watch.words()
    assert watch.words().startswith("iteration 39")


def test_nothing_is_forecast_before_three_seconds_or_eight_iterations():
    fast = [{"iteration": k, "residual": 0.9**k} for k in range(1, 20)]
    assert "left" not in watched(fast, 0.1, tolerance=1e-10)[0].words()
    assert "left" not in watched(fast[:5], 2.0, tolerance=1e-10)[0].words()
    assert watched([], 1.0)[0].words() == ""


def test_draws_and_steps_are_counted_against_those_asked_for():
    draws = [{"n_proposals": 4096 * k, "n_draws": 100 * k, "acceptance": 0.02} for k in range(1, 11)]
    assert watched(draws, 1.0, draws=4000)[0].words() == "draw 1000 of 4000; about 30 s left, then predictions"
    steps = [{"iteration": k, "n_steps": 30} for k in range(1, 11)]
    assert watched(steps, 1.0)[0].words() == "step 10 of 30; about 20 s left, then predictions"


def test_a_state_that_counts_nothing_is_one_more_and_a_new_loop_begins_anew():
    clock = Clock()
    watch = Watch(clock=clock)
    watch(-12.5)
    watch(-12.4)
    assert watch.words() == "iteration 2"
    watch(SimpleNamespace(sweep=50, n_sweeps=100))
    clock.now += 10.0
    watch(SimpleNamespace(sweep=1, n_sweeps=11))  # another chain
    assert watch.words() == "sweep 1 of 11; about 2 min left, then predictions"


def same(a, b):
    if dataclasses.is_dataclass(a):
        fields = (field.name for field in dataclasses.fields(a) if field.name not in ("problem", "seconds", "versions"))
        return all(same(getattr(a, name), getattr(b, name)) for name in fields)
    if isinstance(a, Mapping):  # samplers state their seconds among what they were asked
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a if "second" not in key)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


@pytest.mark.parametrize(
    ("witness", "method", "problem", "options"),
    [
        ("fast", "x-gpc", "toy", {}),
        ("fast", "x-gpc-svi", "toy-sparse", {"n_steps": 5, "batch_size": 4}),
        ("fast", "pep", "toy-2-sparse-threshold", {}),
        ("fast", "nested-ep", "two-points-3", {}),
        ("fast", "vi-jj", "toy-sparse", {}),
        ("reference", "x-gpc", "two-points", {}),
        ("reference", "vi-robust", "two-points-3-sparse-errors", {}),
        ("gibbs", "gibbs-logit", "two-points", {"n_draws": 100, "evidence": "none"}),
        ("gibbs", "exact-probit", "two-points-3", {"n_draws": 200}),
    ],
)
def test_a_solve_that_is_watched_has_the_same_bytes(witness, method, problem, options):
    posed = problems.get(problem)
    watch = watching.of_options(watching.known(witness, method), options)
    alone = solve(witness, method, posed, **options)
    assert same(alone, solve(witness, method, posed, **options, callback=watch))
    assert watch.words() != ""


def test_who_cannot_be_watched_for_nothing_is_not():
    assert watching.of_options(watching.known("quadrature", "exact"), {}) is None
    assert watching.of_options(watching.known("gibbs", "ensemble-logit"), {}) is None
    # q would be made for the eyes of the watch
    assert watching.of_options(watching.known("fast", "apep"), {"optimizer": "adam"}) is None
    # somebody else looks on already
    assert watching.of_options(watching.known("fast", "x-gpc"), {"callback": print}) is None
    assert watching.known("fast", "no-such-method") == {}


def test_jobs_are_counted_and_another_list_begins_anew():
    class Works:
        def spread(self, work, jobs, listen, shared=None):
            yield from (SimpleNamespace(job=job) for job in jobs)

    jobs = [SimpleNamespace(name=f"group-{k}", cost=0.0) for k in range(4)]
    counting = watching.Counting(Works())
    assert counting.words() == ""
    going = counting.spread(None, jobs, None)
    next(going)
    next(going)
    assert counting.words() == "2 of 4 parts done"
    assert list(counting.spread(None, jobs[:1], None))
    assert counting.words() == "1 of 1 parts done"
