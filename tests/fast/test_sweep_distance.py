"""`fast.sparse_classes.training.SweepDistance`: what is left of a damped sweep whose changes fall linearly."""

import numpy as np
import pytest

from fast.sparse_classes.training import SweepDistance


def swept(damping, eigenvalue, rate, sweeps):
    """Distance stated and true after sweeps of g(x) = eigenvalue x."""
    watch, x, stated = SweepDistance(damping, rate), 1.0, np.inf
    for _ in range(sweeps):
        change = abs(eigenvalue * x - x)
        x += damping * (eigenvalue * x - x)
        stated = watch(change)
    return stated, abs(x), change


@pytest.mark.parametrize("damping", [0.5, 1.0])
@pytest.mark.parametrize("eigenvalue", [0.3, 0.9, 0.99, 0.999])
def test_the_distance_is_that_of_a_linear_map(damping, eigenvalue):
    stated, true, change = swept(damping, eigenvalue, 0.0, 20)
    # one direction alone: exact but for rounding of ratios over 1 - eigenvalue
    assert stated == pytest.approx(max(true, change), rel=1e-6)


def test_a_rate_that_mixing_has_seen_counts_from_the_first_sweep():
    stated, true, change = swept(0.5, 0.99, 0.99, 1)
    assert stated == pytest.approx(true, rel=1e-6)
    assert stated > 90.0 * change


def test_changes_that_do_not_fall_are_no_distance():
    watch = SweepDistance(0.5, 0.0)
    assert [watch(1e-3) for _ in range(5)][-1] == np.inf
