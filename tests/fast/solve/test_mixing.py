"""`fast.solve.mixing.Mixing.rate`: the slowest contraction of a linear map, from the steps taken."""

import numpy as np
import pytest

from fast.solve.mixing import Mixing


def after(factors, steps):
    """Memory of plain steps x <- A x, A diagonal."""
    memory, A, x = Mixing(), np.diag(factors), np.ones(len(factors))
    for _ in range(steps):
        new = A @ x
        memory.learn(new - x, (A @ new - new) - (A @ x - x))
        x = new
    return memory


@pytest.mark.parametrize("slow", [0.5, 0.99, 0.9999])
def test_the_rate_is_the_eigenvalue_of_the_slowest_direction(slow):
    # two directions and two steps decide it; differences of steps cancel to 1 - slow
    assert after([slow, 0.1], 2).rate(lambda x: x) == pytest.approx(slow, rel=1e-9, abs=0)


def test_before_two_steps_nothing_is_known_of_a_rate():
    assert after([0.9], 1).rate(lambda x: x) == 0.0
