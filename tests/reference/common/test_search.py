"""Searches of `reference` on a quadratic of three coordinates, whose top in a box is known."""

import numpy as np
import pytest

from reference.common._search import Limits, maximise
from reference.common.errors import NotPositiveDefiniteError

CURVATURE, HEIGHT = np.array([0.5, 1.2, 2.0]), -3.0
START = np.log([1.3, 0.7, 0.2])


def hill(top, refused=np.inf, seen=None):
    """A quadratic with its maximum at top; places whose first coordinate is beyond `refused` have no value."""

    def value(where):
        if where[0] > refused:
            raise NotPositiveDefiniteError("K_ZZ", 3, -1.0, "nothing")
        result = HEIGHT - 0.5 * float(CURVATURE @ (where - top) ** 2)
        if seen is not None:
            seen.append(result)
        return result, -CURVATURE * (where - top)

    return value


@pytest.mark.parametrize("top", [(1.0, -1.0, 0.5), (9.0, -6.0, 1.0), (30.0, 0.0, -20.0)])
def test_a_search_ends_at_the_top_of_a_quadratic_in_its_box(top):
    reach, seen = np.log(1e4), []
    end = maximise(hill(np.array(top), seen=seen), START, Limits(), reach)
    # a quadratic is flat to rounding of 3 within 1e-7 of its top
    np.testing.assert_allclose(end.where, np.clip(top, START - reach, START + reach), rtol=0.0, atol=1e-5)
    assert end.value == max(seen)
    assert (np.diff(end.trace) >= 0.0).all()
    assert end.residual < 1e-5


def test_places_without_a_value_are_turned_back_from_and_the_start_itself_raises():
    end = maximise(hill(np.array([1.0, -1.0, 0.5]), refused=0.6), START, Limits(), np.log(1e4))
    assert 0.4 < end.where[0] <= 0.6
    assert end.residual > 0.1
    with pytest.raises(NotPositiveDefiniteError):
        maximise(hill(np.zeros(3), refused=-5.0), START, Limits())


@pytest.mark.parametrize("limit", [1, 2, 6])
def test_a_search_that_is_cut_returns_the_best_place_that_it_has_seen(limit):
    seen, top = [], np.array([9.0, -6.0, 1.0])
    end = maximise(hill(top, seen=seen), START, Limits(evaluations=limit), np.log(1e4))
    assert end.evaluations == limit
    assert end.value == max(seen)
    np.testing.assert_allclose(end.value, HEIGHT - 0.5 * CURVATURE @ (end.where - top) ** 2, rtol=1e-12)
