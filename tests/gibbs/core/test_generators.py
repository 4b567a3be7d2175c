"""Streams per chain: what a chain sees does not hang on how many there are."""

import json

import numpy as np
import pytest

from gibbs.core.generators import Replay, restore, snapshot, spawn_generators, spawn_streams, subset
from gibbs.draws.polya_gamma import sample_polya_gamma


def test_a_row_comes_from_the_stream_of_its_chain_alone():
    few, many = (spawn_streams(3, ("a", "b"), r) for r in (2, 7))
    for kind in ("random", "standard_normal", "standard_exponential"):
        one, all_ = getattr(few["a"], kind)((2, 3, 4)), getattr(many["a"], kind)((7, 3, 4))
        np.testing.assert_array_equal(one, all_[:2])
        flat = getattr(many["a"], kind)(14)
        np.testing.assert_array_equal(getattr(few["a"], kind)(4), flat[:4])
    assert few["a"].random((2,))[0] != few["b"].random((2,))[0]
    # later purposes leave earlier ones alone
    assert spawn_streams(3, ("a",), 1)["a"].random(1)[0] == spawn_streams(3, ("a", "c"), 4)["a"].random(4)[0]


def test_polya_gamma_draws_of_a_chain_are_those_of_a_larger_run():
    tilt = 4.0 * np.random.default_rng(1).standard_normal((16, 60))
    few, many = spawn_streams(1, ("a",), 4)["a"], spawn_streams(1, ("a",), 16)["a"]
    for _ in range(20):  # about a hundred rejections of each kind
        np.testing.assert_array_equal(sample_polya_gamma(few, tilt[:4]), sample_polya_gamma(many, tilt)[:4])


def test_polya_gamma_draws_from_streams_have_the_mean_of_their_distribution(assert_z):
    c, rng = np.array([0.0, 1.0, 4.0, 20.0]), spawn_streams(2, ("a",), 8)["a"]
    draws = sample_polya_gamma(rng, np.tile(c, (8, 5000, 1)).reshape(8, -1)).reshape(-1, 4)
    half_c = np.maximum(0.5 * c, 1e-9)
    assert_z((draws.mean(axis=0) - 0.25 * np.tanh(half_c) / half_c) / (draws.std(axis=0) / np.sqrt(len(draws))))


def test_entries_that_draw_again_use_their_own_chain():
    few, many = spawn_streams(5, ("a",), 2)["a"], spawn_streams(5, ("a",), 3)["a"]
    one = subset(few, np.array([0, 4, 5]), 6).random(3)
    two = subset(many, np.array([0, 4, 5, 8]), 9).random(4)
    np.testing.assert_array_equal(one, two[:3])
    again = subset(subset(few, np.array([0, 4, 5]), 6), np.array([1]), 3).random(1)
    np.testing.assert_array_equal(
        again, subset(subset(many, np.array([0, 4, 5, 8]), 9), np.array([1, 3]), 4).random(2)[:1]
    )
    # a chain without entries has drawn nothing
    np.testing.assert_array_equal(few.random((2, 1)), many.random((3, 1))[:2])


def test_what_cannot_be_given_chain_by_chain_is_refused():
    rng = spawn_streams(5, ("a",), 2)["a"]
    with pytest.raises(ValueError, match=r"size: found \(3,\), expected the leading axis 2"):
        rng.random(3)
    with pytest.raises(TypeError, match=r"rng: found a call of gamma, expected one of"):
        rng.gamma(1.0)
    with pytest.raises(ValueError, match=r"n_chains: found 0"):
        spawn_streams(5, ("a",), 0)


def test_states_go_through_json_and_back():
    rngs = {**spawn_streams(1, ("a",), 3), **spawn_generators(2, ("b",))}
    states = json.loads(json.dumps(snapshot(rngs)))
    first = rngs["a"].standard_normal((3, 5)), rngs["b"].random(4)
    restore(rngs, states)
    np.testing.assert_array_equal(rngs["a"].standard_normal((3, 5)), first[0])
    np.testing.assert_array_equal(rngs["b"].random(4), first[1])


def test_numbers_drawn_ahead_come_out_in_order():
    replay = Replay(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(replay.standard_exponential(2), [0.0, 1.0])
    np.testing.assert_array_equal(replay.random((2, 2)), [[2.0, 3.0], [4.0, 5.0]])


def test_more_chains_than_anyone_starts_are_refused():
    with pytest.raises(ValueError, match=r"n_chains: found .*, expected at most 1000000"):
        spawn_streams(0, ("a",), 10**9)
