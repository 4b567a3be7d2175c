"""Runs that end before they are done: seconds, Ctrl-C, searches that keep the best place, lines of progress."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from fast.core import ending as endings
from fast.core.ending import ENOUGH, EndedError, Watch, ended, ending, reached
from fast.solve.lbfgs import Place, Round, maximise
from fast.solve.steps import Stepping, run_steps


def test_outside_nobody_ends_and_inside_the_seconds_count():
    assert ended() == ""
    with ending(1e-9):
        assert ended() == "max_time of 1e-09 s spent"
        with ending(None):  # a fit inside a fit ends with it
            assert ended() == "max_time of 1e-09 s spent"
    with ending(1e6):
        with ending(1e-9):
            assert ended()
        assert ended() == ""
    assert ended() == ""


def test_a_watch_ends_what_stays_as_it_is_and_nothing_around_it():
    values = [0.0, 5.0, 5.0, 5.0, 5.0, 5.1, 4.9, 5.05, 5.2, 5.0, 5.15, 5.1]
    with ending(None, worth=0.5), ending(None) as inner:
        watch, n_seen = Watch(), 0
        for value in values:
            assert inner.why() == ""
            watch.after(value)
            n_seen += 1
            if ended():
                break
        assert ended() == inner.stopped == ENOUGH
        # repeated values do not count: 5, 5.1, 4.9, 5.05, 5.2 and 5 are the first six within half a nat
        assert n_seen == 10
    with ending(None, worth=0.5):
        with ending(None):
            stopped = Watch(1)
            stopped.after(1.0)
            stopped.after(1.1)
            assert ended() == ENOUGH
        assert ended() == ""


@pytest.mark.parametrize("worth", [0.0, 0.01])
def test_a_watch_ends_nothing_that_moves_or_has_no_worth(worth):
    with ending(None, worth=worth):
        watch = Watch(2)
        for value in (1.0, 1.02, 1.04, np.nan, 1.05, 1.06, 1.08):
            watch.after(value)
        assert ended() == ""
    Watch(1).after(1.0)  # outside of every run


def test_the_first_interrupt_asks_and_the_second_is_raised_and_the_handler_is_the_old_one_again():
    before = signal.getsignal(signal.SIGINT)
    with ending(None) as end:
        signal.raise_signal(signal.SIGINT)
        assert end.interrupted
        assert ended() == "interrupted"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_somebody_else_stays():
    calls = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    try:
        with ending(None) as end:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        assert (calls, end.interrupted) == ([1], False)
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_may_fit_without_touching_signals():
    failures = []

    def work():
        try:
            with ending(1e-9):
                assert ended()
        except ValueError as error:  # signals belong to the main thread
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures


def test_progress_comes_at_times_that_grow_apart(monkeypatch):
    monkeypatch.setattr(endings, "_FIRST", 0.0)
    now = [0.0]
    monkeypatch.setattr(endings.time, "perf_counter", lambda: now[0])
    lines = []
    with ending(None, lines.append) as end:
        end._next = 1.0
        for now[0] in np.arange(0.0, 10.0, 0.25):
            reached("step", -3.25)
    assert lines[0] == "step, objective -3.25, 1.0 s"
    assert len(lines) == 6  # after 1, 1.5, 2.25, 3.5, 5.25 and 8 s
    reached("nobody listens")


class Counting(Stepping):
    """A run of steps; each takes no time."""

    def step(self, batch):
        self.iteration += 1
        return -1.0 / self.iteration


def test_steps_end_between_two_of_them():
    with ending(None) as end:

        def after(value):
            end.interrupted = run.iteration == 3

        run = Counting()
        result = run_steps(run, 10, after=after)
    assert run.iteration == 3
    assert not result.diverged
    assert result.reason == "interrupted, 3 of 10 steps made"


@pytest.mark.parametrize("last", [1, 2, 5])
def test_a_search_returns_the_best_place_before_the_evaluation_that_was_cut_short(last):
    values = []

    def evaluate(vector, best):
        value = -float(rosen(vector))
        if len(values) == last:
            end.interrupted = True
            value = 1e9  # of no fixed point
        values.append(value)
        return Place(value, -rosen_der(vector), len(values))

    with ending(None) as end:
        result = maximise(evaluate, np.zeros(2), np.full(2, 100.0), (Round(1.0, 50),), n_iterations=50, tolerance=1e-9)
    assert len(values) == last + 1
    assert result.best.place.value == max(values[:last])
    assert result.reason == "interrupted"


def test_a_search_that_has_no_time_still_evaluates_its_start():
    with ending(1e-9):
        result = maximise(
            lambda vector, best: Place(-1.0, np.ones(2)), np.zeros(2), np.ones(2), (Round(1.0, 5),),
            n_iterations=5, tolerance=1e-9,
        )  # fmt: skip
    assert result.best.place.value == -1.0
    assert result.reason.startswith("max_time")
    assert issubclass(EndedError, Exception)
