"""The search by L-BFGS-B: a quadratic whose maximum is known, places that refuse, rounds and their end."""

import numpy as np
import pytest

from fast.solve.lbfgs import Place, Round, maximise

CENTRE = np.array([3.0, -0.4, 0.2])
WEIGHTS = np.array([1.0, 10.0, 100.0])


def quadratic(vector, best):
    away = vector - CENTRE
    return Place(-0.5 * float(WEIGHTS @ away**2), -WEIGHTS * away, "here")


def searched(evaluate=quadratic, box=(2.0, 2.0, np.inf), rounds=((1.0, 100),), n_iterations=100, tolerance=1e-9):
    rounds = [Round(*one) for one in rounds]
    return maximise(evaluate, np.zeros(3), np.array(box), rounds, n_iterations=n_iterations, tolerance=tolerance)


def test_the_maximum_of_a_quadratic_in_a_box_is_its_centre_clipped():
    end = searched()
    # curvatures of 100 at most: a projected gradient of 1e-9 leaves less than that
    np.testing.assert_allclose(end.best.vector, np.clip(CENTRE, -2.0, 2.0), rtol=0, atol=1e-8)
    assert end.best.vector[0] == 2.0
    # the best of places whose values rounding of 1e-16 orders: there 50 x^2 = 1e-16, a gradient of 1.4e-7
    assert end.residual <= 2e-7
    assert end.best.place.payload == "here"
    assert (np.diff(end.trace) >= 0.0).all()
    assert end.trace[-1] == end.best.place.value


def test_the_residual_is_the_projected_gradient_at_the_best_place():
    end = searched(n_iterations=1)
    assert end.trace.size == 1
    gradient = quadratic(end.best.vector, None).gradient
    box = np.array([2.0, 2.0, np.inf])
    # the definition: how far a unit step along the gradient leads inside the box
    expected = np.abs(np.clip(end.best.vector + gradient, -box, box) - end.best.vector).max()
    np.testing.assert_allclose(end.residual, expected, rtol=1e-15, atol=0)
    assert end.residual > 1e-3


def test_a_first_round_stays_within_its_share_of_the_box_and_the_next_goes_on_from_its_best():
    visited = []

    def looked(vector, best):
        visited.append((vector.copy(), best))
        return quadratic(vector, best)

    first = searched(looked, rounds=((0.1, 50),))
    assert max(abs(vector[0]) for vector, _ in visited) <= 0.2
    assert first.best.vector[0] == 0.2
    visited.clear()
    searched(looked, rounds=((0.1, 50), (1.0, 50)))
    starts = [vector for vector, best in visited if best is not None and np.array_equal(vector, best.vector)]
    np.testing.assert_array_equal(starts[0][0], 0.2)  # where the second round begins
    assert visited[0][1] is None


def test_places_that_refuse_are_worse_than_all_and_the_start_itself_raises():
    refused = []

    def half_space(vector, best):
        if vector[0] > 1.0:
            refused.append(vector)
            raise ValueError("there is nothing here")
        return quadratic(vector, best)

    end = searched(half_space)
    assert refused
    assert 0.9 < end.best.vector[0] <= 1.0  # as near to the edge as a line search comes

    def nothing(vector, best):
        raise ValueError("there is nothing here")

    with pytest.raises(ValueError, match="there is nothing here"):
        searched(nothing)


def test_no_round_goes_beyond_the_iterations_of_all():
    end = searched(rounds=((1.0, 2), (1.0, 100)), n_iterations=3)
    assert end.trace.size <= 3
