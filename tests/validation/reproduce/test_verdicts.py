"""The z column and the verdicts of experiments: definitions, at the edges, and what has no number."""

from __future__ import annotations

import numpy as np
import pytest

from validation.claims.inventory import DIFFERS, REPRODUCED, UNDECIDABLE
from validation.claims.verdict import holds, verdict, z_of


def test_z_counts_both_spreads_and_what_rounding_leaves_open():
    assert z_of(0.5, 0.03, 0.4, 0.04, 0.0) == pytest.approx(2.0, rel=1e-12)
    draws = np.random.default_rng(0).uniform(-0.005, 0.005, size=400_000)  # a number printed to two digits
    # the variance of a uniform distribution is known to 1.6e-3 from so many draws
    assert z_of(0.01, 0.0, 0.0, 0.0, 0.01) == pytest.approx(0.01 / draws.std(), rel=5e-3)
    assert z_of(0.3, 0.1, 0.4, 0.1, 0.01) < 0.0


@pytest.mark.parametrize("count", [3, 214])
def test_counts_agree_or_differ_by_one_and_more(count):
    assert verdict(z_of(count, 0.0, count, 0.0, 1.0)) == REPRODUCED
    assert verdict(z_of(count + 1, 0.0, count, 0.0, 1.0)) == DIFFERS  # z is the root of twelve
    assert verdict(z_of(count - 1, 0.0, count, 0.0, 1.0)) == DIFFERS


def test_what_has_no_number_is_not_decidable():
    assert verdict(None) == verdict(float("nan")) == holds(None) == UNDECIDABLE
    assert (holds(np.True_), holds(False)) == (REPRODUCED, DIFFERS)
    assert (verdict(3.0), verdict(-3.0), verdict(3.0001)) == (REPRODUCED, REPRODUCED, DIFFERS)
