"""Values go to the disk and come back with every bit, and only as types that the reader names."""

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from validation import problems
from validation.door.problem import Problem
from validation.door.storage import FileFormatError
from validation.jobs import plain


class Named(NamedTuple):
    number: float
    more: object


@dataclass(frozen=True)
class Held:
    names: tuple
    array: object = None


def there_and_back(value, *types):
    tree, arrays = plain.encode(value)
    return plain.decode(json.loads(json.dumps(tree)), arrays, types)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1 + 0.2,
        float("inf"),
        "text",
        (1, (2.5, "a")),
        [1, None],
        {"a": 1, 2: (3,)},
        frozenset({"a", "b"}),
    ],
)
def test_plain_values_come_back_as_they_were(value):
    assert there_and_back(value) == value
    assert type(there_and_back(value)) is type(value)


def test_arrays_keep_their_bits_and_types():
    for array in (np.random.default_rng(0).standard_normal((3, 2)), np.arange(3), np.array("text"), np.zeros(0)):
        back = there_and_back(array)
        assert back.dtype == array.dtype
        assert back.tobytes() == array.tobytes()


def test_named_types_come_back_if_the_reader_names_them():
    value = Named(np.float64(2.0), Held(("a",), None))
    assert there_and_back(value, Named, Held) == value
    with pytest.raises(FileFormatError, match=r"found the type .*Held, expected one of"):
        there_and_back(value, Named)


def test_a_problem_comes_back_whole():
    problem = problems.get("two-points")
    assert not problem.differences(there_and_back(problem, Problem))


def test_what_is_not_plain_is_refused():
    with pytest.raises(TypeError, match="value: found builtins:function"):
        plain.encode((1, there_and_back))


def test_a_tree_that_encode_does_not_make_is_refused():
    with pytest.raises(FileFormatError, match="cannot be read"):
        plain.decode({"array": "a7"}, {}, ())


def test_a_fingerprint_sees_every_byte():
    array = np.zeros(1000)
    before = plain.fingerprint("a", array)
    array[500] = 1e-300
    assert plain.fingerprint("a", array) != before
    assert plain.fingerprint({"b", "a"}) == plain.fingerprint({"a", "b"})
    assert plain.fingerprint(1) != plain.fingerprint(1.0) != plain.fingerprint("1.0")
