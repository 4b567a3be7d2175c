"""Coordinates of what is learned: there and back, a common factor of lengthscales, names that do not go together."""

import numpy as np
import pytest

from fast.core.learned import coordinates, field_at, field_of, learned_names, log_derivative

LENGTHS = np.array([[0.5, 2.0, 7.0], [1.0, 1.0, 9.0]])


@pytest.mark.parametrize("name", ["variance", "noise", "lengthscales", "scale"])
def test_coordinates_lead_back_to_the_field(name):
    value = LENGTHS if field_of(name) == "lengthscales" else np.array([0.3, 4.0])
    there = coordinates(name, value)
    assert there.shape == ((2,) if name != "lengthscales" else (2, 3))
    np.testing.assert_allclose(field_at(name, there, value), value, rtol=1e-15, atol=0)  # a logarithm and back


def test_a_scale_moves_all_lengthscales_by_one_factor():
    moved = field_at("scale", coordinates("scale", LENGTHS) + np.array([0.0, 1.5]), LENGTHS)
    np.testing.assert_allclose(moved / LENGTHS, [[1.0] * 3, [np.exp(1.5)] * 3], rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ["lengthscales", "scale"])
def test_the_chain_rule_is_that_of_the_coordinates(name):
    weights = np.array([[1.0, -2.0, 0.5], [0.3, 0.1, 2.0]])
    got = log_derivative(name, weights, LENGTHS)  # gradient of sum of weights times lengthscales
    here = coordinates(name, LENGTHS)
    for place in np.ndindex(here.shape):
        move = np.zeros(here.shape)
        move[place] = 1e-6
        high, low = ((weights * field_at(name, here + sign * move, LENGTHS)).sum() for sign in (1.0, -1.0))
        np.testing.assert_allclose(got[place], (high - low) / 2e-6, rtol=1e-8, atol=1e-8)  # central differences


def test_names_come_in_the_order_of_a_vector():
    assert learned_names(("Z", "noise", "scale", "variance"), 0.1) == ("variance", "scale", "noise", "Z")
    assert learned_names("variance", 0.0) == ("variance",)


@pytest.mark.parametrize(
    ("learn", "with_Z", "text"),
    [
        (("scale", "lengthscales"), True, "learn: found 'scale' beside 'lengthscales', expected one of the two"),
        (("Z",), False, r"learn: found \('Z',\), expected different names of variance, scale, lengthscales, noise$"),
        (("noise", "noise"), True, r"learn: found \('noise', 'noise'\)"),
        (("noise",), True, "noise: found 0.0, expected > 0 when it is learned"),
    ],
)
def test_names_that_cannot_be_learned_are_refused(learn, with_Z, text):
    with pytest.raises(ValueError, match=text):
        learned_names(learn, np.array([0.1, 0.0]), with_Z=with_Z)
