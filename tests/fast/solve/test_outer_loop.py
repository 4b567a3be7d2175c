"""The outer loop: when it ends, for maps whose distance from their fixed point is known."""

import numpy as np
import pytest

from fast.solve.outer_loop import OuterOptions, Proposal, iterate


def _run(rates, *, accelerate, tolerance=1e-9, damping=0.8, start=1.0, max_iterations=5000):
    """A linear map of given rates on the second half of the sites; its fixed point is zero, all variances are one."""
    rates = np.asarray(rates)
    zero = np.zeros_like(rates)

    def propose(_state, pair):
        return Proposal((zero, rates * pair[1]), zero, np.ones_like(rates), 0)

    return iterate(
        lambda pair: pair,
        propose,
        (zero.copy(), np.full_like(rates, start)),
        OuterOptions(tolerance=tolerance, max_iterations=max_iterations, damping=damping, accelerate=accelerate),
        objective=lambda _state: 0.0,
    )


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, -0.6])
def test_what_is_called_converged_lies_within_the_tolerance_of_the_fixed_point(rate, accelerate):
    end = _run([rate, 0.1, 0.3 * rate], accelerate=accelerate)
    assert end.converged
    # the last change alone would leave 1/(1 - rate) times the tolerance
    assert np.abs(end.sites[1]).max() <= 1e-9


def test_sites_that_go_round_in_circles_end_long_before_the_limit_of_iterations():
    end = _run([-1.5], accelerate=False, damping=0.8)  # a damped step turns the sign and changes no length
    assert not end.converged
    assert end.iterations < 300
