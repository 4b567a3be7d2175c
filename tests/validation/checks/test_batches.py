"""The judge's own definitions of epochs, stopping rules and digests."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from validation.checks import batches


def test_a_bound_that_falls_to_the_limit_ends_in_a_step_that_can_be_counted():
    # mean k is -k; the sixth fall in a row is in mean 5, which counts the first; 5 nat are under 0.35 n up to n = 14
    estimates = -np.repeat(np.arange(20.0), 20)
    assert batches.falls(estimates, 14) == 6 * 20
    assert batches.falls(estimates, 15) == 7 * 20
    assert batches.falls(np.zeros(400), 2) == 0
    assert batches.falls(estimates[:119], 2) == 0


def test_one_rise_starts_the_count_again():
    means = np.array([0.0, -1, -2, -3, -4, -3.5, -5, -6, -7, -8, -9, -10])
    assert batches.falls(np.repeat(means, 20), 2) == 12 * 20


def test_a_digest_covers_rows_type_and_shape():
    rows = np.arange(6.0).reshape(3, 2)
    expected = hashlib.sha256(rows.tobytes() + b"3 <f8 (2,)").hexdigest()
    assert batches.own_digest(rows) == expected
    assert batches.own_digest(rows.reshape(2, 3)) != expected
    assert batches.own_digest(rows.astype(int)) != expected


def test_a_source_that_repeats_a_row_is_seen(monkeypatch):
    from fast.solve.minibatch import Batch, Shuffled

    assert batches.epochs(23, 5, 4, 9) == []
    draw = Shuffled.draw

    def repeating(self):
        result = draw(self)
        return Batch(result.X[::-1], result.y)

    monkeypatch.setattr(Shuffled, "draw", repeating)
    assert "inputs without their labels" in batches.epochs(23, 5, 4, 9)


@pytest.mark.parametrize("function", [batches.shuffling, batches.stopping, batches.files])
def test_nothing_is_wrong_today(function):
    assert all(outcome.observed <= outcome.limit for outcome in function())
