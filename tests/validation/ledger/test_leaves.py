"""What the perturbation makes of each kind of output."""

import dataclasses
import enum
import functools
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from validation.ledger.leaves import Perturber

# Every expected value below is a sum of two doubles: it holds to the last digit or two.
TIGHT = {"rtol": 1e-14, "atol": 0}


def source() -> None:
    """Stands for a marked function."""


@pytest.fixture
def change():
    return Perturber(source, 1e-3).change


class Pair(NamedTuple):
    mean: np.ndarray
    flag: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: np.ndarray
    name: str

    def __post_init__(self):
        if self.value[0] != 2.0:
            raise ValueError("only the true value passes")


class Colour(enum.IntEnum):
    RED = 1


class Own:
    def __init__(self):
        self.value = 2.0


def test_floats_move_by_a_thousandth_of_the_largest_entry_with_alternating_sign(change):
    np.testing.assert_allclose(change(np.array([1.0, -4.0, 2.0])), [1.004, -4.004, 2.004], **TIGHT)


def test_a_matrix_alternates_along_both_axes_and_stays_symmetric(change):
    got = change(np.full((4, 4), 2.0)) - 2.0
    np.testing.assert_array_equal(got, got.T)
    np.testing.assert_array_equal(np.sign(got), [[1, -1, 1, -1], [-1, 1, -1, 1]] * 2)


def test_a_leaf_of_zeros_moves_by_the_scale_itself(change):
    np.testing.assert_allclose(change(np.zeros(2)), [1e-3, -1e-3], **TIGHT)
    assert change(0.0) == 1e-3


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2.0, 2.002), (-2.0, -1.998), (np.float64(2.0), 2.002), (-np.inf, -np.inf)],
)
def test_a_scalar_grows_and_keeps_its_type(change, value, expected):
    got = change(value)
    assert type(got) is type(value)
    assert got == pytest.approx(expected, rel=1e-14)


def test_a_read_only_array_without_axes_is_copied(change):
    value = np.array(2.0)
    value.setflags(write=False)
    got = change(value)
    assert isinstance(got, np.ndarray)
    assert got.shape == ()
    assert got == pytest.approx(2.002, rel=1e-14)
    assert value == 2.0


def test_nothing_is_written_to_what_was_returned(change):
    value = {"a": [np.ones(3), (np.array([True]), 1.0)], "b": np.array([1 + 1j])}
    change(value)
    np.testing.assert_array_equal(value["a"][0], np.ones(3))
    assert value["a"][1][0][0]
    assert value["b"][0] == 1 + 1j


def test_single_precision_stays_single(change):
    assert change(np.ones(2, dtype=np.float32)).dtype == np.float32


def test_infinities_and_nan_stay_while_the_rest_moves(change):
    got = change(np.array([np.inf, 1.0, np.nan]))
    assert np.isinf(got[0])
    assert got[1] == pytest.approx(0.999, rel=1e-14)
    assert np.isnan(got[2])


def test_both_parts_of_a_complex_number_move(change):
    got = change(3.0 + 4.0j)
    assert got == pytest.approx(3.005 + 4.005j, rel=1e-14)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, False),
        (np.False_, True),
        (np.array([True, False]), [False, True]),
        (np.array([0, 1, 1]), [1, 0, 0]),
        (np.array([-1, 1]), [1, -1]),
        (np.array([0, 1, 2]), [1, 2, 3]),
        (7, 8),
        (np.uint8(3), 4),
    ],
)
def test_flags_and_integers_flip(change, value, expected):
    got = change(value)
    np.testing.assert_array_equal(got, expected)
    assert np.asarray(got).dtype == np.asarray(value).dtype


@pytest.mark.parametrize("value", [None, "text", b"bytes", Colour.RED, float, np.empty(0), np.random.default_rng(1)])
def test_what_holds_no_number_passes(change, value):
    assert change(value) is value


def test_named_tuples_and_frozen_dataclasses_keep_their_type(change):
    pair = change(Pair(np.array([2.0]), True))
    assert type(pair) is Pair
    assert pair.mean[0] == pytest.approx(2.002, rel=1e-14)
    assert pair.flag is False
    frozen = change(Frozen(np.array([2.0]), "n"))
    assert type(frozen) is Frozen
    assert (frozen.value[0], frozen.name) == (pytest.approx(2.002, rel=1e-14), "n")


def test_mappings_and_objects_of_the_functions_own_package_are_entered(change):
    assert change(MappingProxyType({"a": True}))["a"] is False
    given = Own()
    assert change(given).value == pytest.approx(2.002, rel=1e-14)
    assert given.value == 2.0


def test_tables_change_in_their_numbers_only(change):
    frame = pd.DataFrame({"method": ["a", "b"], "value": [1.0, 2.0]})
    got = change(frame)
    assert list(got["method"]) == ["a", "b"]
    np.testing.assert_allclose(got["value"], [1.002, 1.998], **TIGHT)
    assert list(frame["value"]) == [1.0, 2.0]


@pytest.mark.parametrize("function", [lambda x: 2.0 * x, functools.partial(np.multiply, 2.0), abs])
def test_a_returned_function_has_its_outputs_changed(change, function):
    assert change(function)(1.0) == pytest.approx(1.001 * function(1.0), rel=1e-14)


def test_a_returned_iterator_has_its_elements_changed(change):
    assert list(change(iter([True, 2.0]))) == [False, pytest.approx(2.002, rel=1e-14)]


def test_only_the_chosen_function_is_touched():
    perturber = Perturber(source, 0.5)
    assert perturber(abs, 1.0) == 1.0
    assert perturber.calls == 0
    assert perturber(source, 1.0) == 1.5
    assert (perturber.calls, perturber.leaves) == (1, 1)
