"""The fuzz: it finds what is planted, and a slice of it finds nothing."""

import itertools
import re

import numpy as np
import pytest

from fuzz import run as fuzz
from fuzz.door import Door
from fuzz.doors import doors
from fuzz.judge import outcome


def raising(error):
    """A call that ends so."""

    def call():
        raise error

    return call


def endless():
    """No end."""
    while True:
        pass


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (raising(AttributeError("no such thing")), "AttributeError"),
        (raising(RecursionError("too deep")), "RecursionError"),
        (raising(ValueError("bad")), "form"),
        (raising(np.linalg.LinAlgError("Matrix is not positive definite")), "LinAlgError"),
        (lambda: {"latent_mean": np.array([np.nan])}, "nan"),
        (lambda: {"latent_var": np.array([-1.0])}, "variance"),
        (lambda: {"probabilities": np.array([[0.5, 0.4]])}, "probabilities"),
        (endless, "hang"),
    ],
)
def test_a_bad_end_is_found(call, kind):
    assert outcome(call, 0.2).kind == kind


@pytest.mark.parametrize(
    "call",
    [
        raising(ValueError("rate: found nan, expected a number in (0, 1]")),
        raising(TypeError("y: found str, expected integers")),
        lambda: {"latent_mean": np.zeros(2), "probabilities": np.array([[0.5, 0.5]])},
        lambda: None,
    ],
)
def test_a_good_end_is_none(call):
    assert outcome(call, 5.0) is None


def test_a_case_is_the_same_every_time_and_shrinks_to_what_matters(monkeypatch):
    def call(given):
        if given["b"] is True:
            raise AttributeError("planted")

    door = Door("planted", 1.0, lambda rng: {"a": 1, "b": 0}, call, {"a": "any", "b": "any"})
    monkeypatch.setattr(fuzz, "doors", lambda: (door,))
    texts = [fuzz.look(5, number)[2] for number in range(300)]
    results = [text for text in texts if text]
    assert results
    assert all(re.search(r"^planted: b = (True|np\.True_)\n", text) for text in results)
    assert texts == [fuzz.look(5, number)[2] for number in range(300)]


def test_the_doors_have_names_of_their_own():
    names = [door.name for door in doors()]
    assert len(set(names)) == len(names) > 120


def test_a_slice_finds_nothing():
    reports = []
    assert fuzz.run(20261122, range(300), write=reports.append) == 0, "".join(reports)


@pytest.mark.parametrize("name", [door.name for door in doors() if door.name.endswith("by values")])
def test_a_value_of_another_class_is_refused_by_name(name):
    door = next(door for door in doors() if door.name == name)
    given = door.base(np.random.default_rng(0))
    for argument, value in itertools.product(given, [3.0, None, "ab", [1], {"X": 1}, np.ones(3), object()]):
        with pytest.raises(ValueError, match=rf"^{argument}: found .*, expected a \w+\..*\.[A-Z]\w+$"):
            door.call({**given, argument: value})


@pytest.mark.parametrize("witness", ["fast", "gibbs"])
def test_options_of_another_method_are_refused(witness):
    first, second = [d for d in doors() if d.name.startswith(f"{witness}.") and d.name.endswith("by values")][:2]
    given, other = (door.base(np.random.default_rng(0)) for door in (first, second))
    with pytest.raises(ValueError, match=r"^options: found "):
        first.call({**given, "options": other["options"]})
