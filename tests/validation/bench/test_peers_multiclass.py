"""The comparison with GPflow on several classes: refusal, the clock, the target, and how its lines judge.

GPflow itself is not run here: curves stand for it.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re

import numpy as np
import pytest

from validation.bench import peers_multiclass
from validation.bench.peers_multiclass import Curve, Stopwatch, load, score, smoothed, time_to
from validation.command.bench import BENCHES, BY_NAME


@pytest.fixture
def without_data(monkeypatch):
    monkeypatch.delenv("TRIAD_DATA", raising=False)


def curve(nll, first=10.0, step=1.0):
    """Scores after every step; the first step takes `first` seconds and the others `step`."""
    seconds = [first + step * k for k in range(len(nll))]
    return Curve(list(range(1, len(nll) + 1)), seconds, list(nll), [0.1] * len(nll), first)


def rows(ours, theirs):
    """Lines of one comparison by the end of their text."""
    data = load(m=5)
    result = list(peers_multiclass._rows([data], lambda _: ours, lambda _: theirs))
    return {row.quantity.split(": ", 1)[1]: row for row in result}


def test_without_gpflow_the_bench_refuses_at_once_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LookupError, match=r"^gpflow: found no such package, expected .*pip install"):
        peers_multiclass.peers()


def test_the_peers_are_measured_only_when_asked_for_and_sep_always():
    assert {"peers", "peers/multiclass", "peers/classes-step", "peers/robust", "gibbs/nuts", "truth/evidence",
            "scale"} == set(BY_NAME)  # fmt: skip
    assert {"sep/step", "sep/length", "sep/memory"} <= set(BENCHES) - set(BY_NAME)


def test_the_clock_counts_training_but_no_scoring_and_the_first_step_not_against_the_limit():
    now = [0.0]

    def slow_score(probabilities):
        now[0] += 100.0
        return 0.5, 0.25

    watch = Stopwatch(slow_score, limit=2.5, clock=lambda: now[0])
    going = []
    for seconds in (10.0, 1.0, 1.0, 1.0):
        now[0] += seconds
        going.append(watch.after(lambda: np.empty((0, 2))))
    assert going == [True, True, True, False]
    assert watch.curve.steps == [1, 2, 3, 4]
    assert watch.curve.seconds == [10.0, 11.0, 12.0, 13.0]
    assert watch.curve.first == 10.0
    assert (watch.curve.nll, watch.curve.error) == ([0.5] * 4, [0.25] * 4)


def test_time_to_a_target_is_that_of_the_third_score_of_the_first_mean_below_it():
    # means of three: 0.8, 0.6, 0.5; the lone 0.3 reaches 0.55 on no account
    run = curve([1.1, 0.3, 1.0, 0.5, 0.0])
    np.testing.assert_allclose(smoothed(run.nll), [0.8, 0.6, 0.5], rtol=1e-15)  # rounding of three sums
    assert time_to(run, 0.55, cold=True) == 14.0
    assert time_to(run, 0.55, cold=False) == 5.0  # the first step counts as one of the others
    assert time_to(run, 0.7, cold=True) == 13.0
    assert np.isnan([time_to(run, 0.1, cold=True), time_to(run, 0.1, cold=False)]).all()


def test_a_run_too_short_to_judge_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^seconds: found 2 scores of a run, expected at least 3"):
        smoothed([0.5, 0.4])


def test_a_first_step_that_is_quick_is_counted_as_it_is():
    assert time_to(curve([1.0] * 4, first=0.5), 1.0, cold=False) == time_to(curve([1.0] * 4, first=0.5), 1.0, cold=True)


def test_the_score_is_that_of_the_true_class():
    nll, error = score(np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]), np.array([0, 2]))
    np.testing.assert_allclose(nll, 1.5 * np.log(2.0), rtol=1e-15)  # (log 2 + log 4) / 2, rounding
    assert error == 0.5


def test_the_target_is_the_lowest_mean_of_gpflow_and_the_ratio_is_of_warm_times(without_data):
    result = rows(curve([0.9, 0.3, 0.3, 0.3], first=1.0), curve([0.9, 0.9, 0.6, 0.6, 0.6, 0.9]))
    target = next(row for key, row in result.items() if key.startswith("target") or "target" in row.quantity)
    np.testing.assert_allclose(target.value, 0.6, rtol=1e-15)  # rounding of three sums
    assert re.search(r"gpflow .*tensorflow ", target.quantity)
    assert result["sep, seconds to it"].value == 3.0  # mean 0.5 at the third step
    assert result["GPflow, seconds to it"].value == 5.0
    assert result["GPflow, seconds to it, cold"].value == 14.0
    ratio = result["seconds of GPflow over those of sep"]
    np.testing.assert_allclose(ratio.value, 5.0 / 3.0, rtol=1e-15)  # one division
    assert ratio.met is True
    assert result["sep, final held-out score"].met is True


def test_a_sep_that_is_worse_or_never_there_is_told_as_not_met(without_data):
    result = rows(curve([0.9, 0.8, 0.8, 0.8]), curve([0.9, 0.6, 0.6, 0.6]))
    assert np.isnan(result["sep, seconds to it"].value)
    assert result["seconds of GPflow over those of sep"].met is False
    assert result["sep, final held-out score"].met is False


def test_waveforms_stand_in_where_no_folder_of_data_is_named(without_data):
    data = load(m=7)
    assert (data.name, data.n_classes, data.X.shape, data.Z.shape) == ("waveform", 3, (6000, 21), (7, 21))
    assert all((row == data.X).all(axis=1).any() for row in data.Z)
    # standardised by the rows to learn from: rounding of means over 6000 numbers
    np.testing.assert_allclose(data.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.X.std(axis=0), 1.0, rtol=1e-12)


def test_sep_learns_until_the_clock_ends_it_and_scores_better_than_guessing(without_data, monkeypatch):
    ticks = itertools.count()  # the clock moves by one whenever it is looked at
    stopped = functools.partial(Stopwatch, clock=lambda: float(next(ticks)))
    monkeypatch.setattr(peers_multiclass, "Stopwatch", stopped)
    whole = load(m=10, batch_size=50)
    data = whole._replace(X=whole.X[:300], y=whole.y[:300], X_test=whole.X_test[:200], y_test=whole.y_test[:200])
    result = peers_multiclass._ours(data, 15.0, {"damping": 0.2})
    assert result.seconds[-1] - result.first >= 15.0 > result.seconds[-2] - result.first
    assert result.steps[:3] == [1, 2, 3]
    assert min(result.nll) < 0.9 * np.log(3.0)  # log 3 is guessing; about 0.4 is reached
