"""Holm's procedure against its definition in plain Python, and its family-wise level by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.checks.multiple import FAMILY_LEVEL, critical_values, holm


@pytest.fixture(autouse=True)
def _made_up(problems: object) -> None:
    """Problems and a register of this module's own."""


Z = st.lists(st.floats(-8.0, 8.0), min_size=1, max_size=12)
LEVELS = st.sampled_from([0.2, 0.05, 1e-4])


def by_definition(z: list[float], level: float) -> list[bool]:
    """Step down through the p values: reject while p < level/(number not yet rejected), then stop for good."""
    p = [math.erfc(abs(value) / math.sqrt(2.0)) for value in z]
    rejected = [False] * len(z)
    for step, i in enumerate(sorted(range(len(z)), key=lambda i: p[i])):
        if not p[i] < level / (len(z) - step):
            break
        rejected[i] = True
    return rejected


@settings(deadline=None, max_examples=300)
@given(z=Z, level=LEVELS)
def test_holm_rejects_what_its_definition_rejects(z, level):
    assert holm(z, level).rejected.tolist() == by_definition(z, level)


@settings(deadline=None, max_examples=200)
@given(z=Z, level=LEVELS)
def test_one_critical_value_separates_rejected_from_not_rejected(z, level):
    result = holm(z, level)
    for value, rejected in zip(np.abs(z), result.rejected, strict=True):
        assert rejected == (value > result.critical)


@settings(deadline=None, max_examples=200)
@given(z=Z, level=LEVELS, data=st.data())
def test_a_larger_statistic_never_saves_another(z, level, data):
    before = holm(z, level).rejected
    grown = data.draw(st.integers(0, len(z) - 1))
    larger = [2.0 * value + 0.1 if i == grown else value for i, value in enumerate(z)]
    larger[grown] = math.copysign(max(abs(larger[grown]), abs(z[grown])), z[grown])
    after = holm(larger, level).rejected
    assert all(after[i] for i in range(len(z)) if before[i])


@settings(deadline=None, max_examples=200)
@given(z=Z, level=LEVELS, data=st.data())
def test_what_fails_in_a_whole_run_fails_alone(z, level, data):
    whole = holm(z, level).rejected
    kept = data.draw(st.sets(st.integers(0, len(z) - 1), min_size=1))
    part = holm([z[i] for i in sorted(kept)], level).rejected
    for i, rejected in zip(sorted(kept), part, strict=True):
        assert rejected or not whole[i]


def test_nan_is_rejected_and_infinity_too():
    assert holm([0.0, math.nan, -math.inf]).rejected.tolist() == [False, True, True]


def test_without_statistics_nothing_is_rejected():
    result = holm([])
    assert result.rejected.size == 0
    assert result.critical == math.inf


def test_shape_does_not_matter():
    z = np.array([[6.0, 0.1], [0.2, 0.3]])
    assert holm(z).rejected.tolist() == [True, False, False, False]


def test_critical_values_fall_from_bonferroni_to_a_single_test():
    values = critical_values(1000, FAMILY_LEVEL)
    assert (np.diff(values) < 0.0).all()
    # two-sided 1e-7 and 1e-4, as printed in tables to four digits
    np.testing.assert_allclose(values[[0, -1]], [5.3267, 3.8906], rtol=0, atol=1e-4)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, math.nan])
def test_a_level_that_is_no_probability_is_refused(level):
    with pytest.raises(ValueError, match="level: found"):
        holm([1.0], level)


def test_the_family_wise_level_is_what_was_asked():
    rng = np.random.default_rng(7)
    level, count, families = 0.05, 10, 20_000
    red = sum(holm(row, level).rejected.any() for row in rng.standard_normal((families, count)))
    # independent statistics: a family is red iff its smallest p is below level/count
    p = 1.0 - (1.0 - level / count) ** count
    z = (red - families * p) / math.sqrt(families * p * (1.0 - p))
    # two-sided at 1e-4, one statistic; 20 000 families resolve a level that is off by 12 % (0.006 of 0.05)
    assert abs(z) < 3.89


def test_the_family_wise_level_holds_under_dependence():
    rng = np.random.default_rng(8)
    level, families = 0.05, 10_000
    shared = rng.standard_normal((families, 1))
    z = math.sqrt(0.9) * shared + math.sqrt(0.1) * rng.standard_normal((families, 10))
    red = sum(holm(row, level).rejected.any() for row in z)
    # the procedure promises at most the level: one-sided at 1e-4
    assert (red - families * level) / math.sqrt(families * level * (1.0 - level)) < 3.72


def test_a_difference_among_many_statistics_is_seen():
    z = np.zeros(5000)
    z[17] = 6.2
    assert holm(z).rejected.nonzero()[0].tolist() == [17]
