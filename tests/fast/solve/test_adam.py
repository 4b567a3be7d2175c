"""Adam in blocks: the textbook's numbers to the last bit, with and without memory of its own."""

import numpy as np
import pytest

from fast.solve import adam
from fast.solve.adam import AdamState, adam_step


def textbook(gradients, rate):
    """Kingma and Ba (2014), algorithm 1, on whole arrays."""
    first = second = np.zeros(gradients[0].size)
    steps = []
    for t, gradient in enumerate(gradients, start=1):
        first = 0.9 * first + (1.0 - 0.9) * gradient
        second = 0.999 * second + (1.0 - 0.999) * gradient**2
        steps.append(first * (rate / (1.0 - 0.9**t)) / (np.sqrt(second / (1.0 - 0.999**t)) + 1e-8))
    return steps, first, second


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("size", [1, 7, 16, 50])
def test_blocks_and_their_edges_do_not_show(rng, monkeypatch, size, overwrite):
    monkeypatch.setattr(adam, "_BLOCK", 16)
    gradients = [rng.normal(size=size) * 10.0 ** rng.integers(-6, 6, size) for _ in range(4)]
    steps, first, second = textbook(gradients, 0.03)
    state = AdamState.start(size)
    for gradient, expected in zip(gradients, steps, strict=True):
        step, state = adam_step(gradient.copy(), state, 0.03, overwrite=overwrite)
        np.testing.assert_array_equal(step, expected)
    np.testing.assert_array_equal(state.first, first)
    np.testing.assert_array_equal(state.second, second)
    assert state.iteration == 4


def test_what_is_given_is_left_alone_unless_it_may_be_overwritten(rng):
    gradient, state = rng.normal(size=5), AdamState(rng.normal(size=5), rng.uniform(1.0, 2.0, 5), 3)
    given = [gradient.copy(), state.first.copy(), state.second.copy()]
    kept = adam_step(gradient, state, 0.1)
    for before, now in zip(given, (gradient, state.first, state.second), strict=True):
        np.testing.assert_array_equal(before, now)
    moved = adam_step(gradient, state, 0.1, overwrite=True)
    np.testing.assert_array_equal(moved.step, kept.step)
    assert moved.step is gradient
    assert moved.state.first is state.first
    np.testing.assert_array_equal(state.second, kept.state.second)
