"""What a run keeps: the judge's own store, watch and comparison of runs; and that files without a part are seen."""

import numpy as np
import pytest

from validation.checks.chain_states import RUNS, _interruptions, apart, kept_numbers, leaves, watched


def test_kept_numbers_are_of_the_least_power_of_two():
    assert kept_numbers(8, 8) == (1, [1, 2, 3, 4, 5, 6, 7, 8])
    assert kept_numbers(8, 9) == (2, [2, 4, 6, 8])
    assert kept_numbers(4, 20) == (8, [8, 16])  # five would not fit


def test_a_watch_sees_chains_apart_and_drift():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 400, 1))
    assert watched({"x": x}, 400) == (100, True)
    assert watched({"x": x + np.array([0.0, 0.0, 0.0, 9.0])[:, None, None]}, 200) == (200, False)
    assert watched({"x": np.ones((4, 400, 1))}, 200) == (100, True)
    drift = x + np.linspace(0.0, 40.0, 400)[None, :, None]
    assert watched({"x": drift}, 150) == (100, False)


def test_leaves_leave_out_clocks_and_see_a_bit():
    from typing import NamedTuple

    class Answer(NamedTuple):
        x: np.ndarray
        inner: dict
        seconds: float

    a = Answer(np.array([1.0, np.nan]), {"k": 2.0}, 1.0)
    assert len(leaves(a)) == 2
    assert apart(a, a._replace(seconds=2.0)) == 0.0
    assert apart(a, a._replace(x=np.array([np.nextafter(1.0, 2.0), np.nan]))) == 1.0


def test_a_resume_that_repeats_its_stream_is_seen(monkeypatch):
    monkeypatch.setattr("gibbs.chains.chain.restore", lambda rngs, held: None)
    result = list(_interruptions(RUNS[1]))
    assert any(outcome.observed > outcome.limit for outcome in result)


@pytest.mark.parametrize("entry", [RUNS[5], RUNS[9]], ids=lambda entry: entry.sampler.method)
def test_interrupted_runs_are_equal(entry):
    assert all(outcome.observed <= outcome.limit for outcome in _interruptions(entry))
