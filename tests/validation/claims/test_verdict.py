"""Verdicts: z with both sides' spread and the rounding of what is printed; inequalities by repetitions."""

import dataclasses
import math

import numpy as np
import pytest

from validation.claims.inventory import Claim
from validation.claims.verdict import decided, printed_error, smaller


def cell(**more):
    """An open cell with a printed number."""
    return Claim("toy", "cell", "Table 1", "cell", "Error", "open", **more)


def test_a_standard_deviation_is_divided_by_the_root_of_the_repetitions():
    claim = cell(printed=0.3, printed_error=0.2, spread="standard deviation", repeats=16)
    assert printed_error(claim) == pytest.approx(0.05, rel=1e-12)
    alike = dataclasses.replace(claim, spread="standard error")
    assert printed_error(alike) == pytest.approx(0.2, rel=1e-12)
    assert printed_error(cell(printed=0.3, unit=0.1)) == 0.0


def test_an_error_bar_printed_as_zero_is_known_to_its_last_digit_only():
    claim = cell(printed=0.3, printed_error=0.0, spread="standard error", unit=0.01)
    rng = np.random.default_rng(4)
    hidden = rng.uniform(-0.005, 0.005, size=400_000)
    # the mean square of what rounding hides, known to 1.4e-3 from so many draws
    assert printed_error(claim) == pytest.approx(math.sqrt(np.mean(hidden**2)), rel=5e-3)


def test_z_counts_both_spreads_and_the_rounding_of_number_and_error():
    claim = cell(printed=0.40, printed_error=0.03, spread="standard error", unit=0.01)
    result = decided(claim, 0.5, 0.04, "triad reproduce toy table1")
    variance = 0.04**2 + 0.03**2 + 2.0 * 0.01**2 / 12.0
    assert result.z == pytest.approx(0.1 / math.sqrt(variance), rel=1e-12)
    assert (result.state, result.ours, result.ours_error) == ("reproduced", 0.5, 0.04)
    assert result.command == "triad reproduce toy table1"


@pytest.mark.parametrize(("ours", "state"), [(0.40 + 2.99 * 0.05, "reproduced"), (0.40 - 3.01 * 0.05, "differs")])
def test_the_state_changes_at_three(ours, state):
    claim = cell(printed=0.40, printed_error=0.03, spread="standard error")
    assert decided(claim, ours, 0.04, "triad", reason="fewer steps").state == state


def test_a_count_is_the_printed_one_or_differs():
    claim = cell(printed=214.0, unit=1.0)
    assert decided(claim, 214.0, 0.0, "triad").z == 0.0
    assert decided(claim, 215.0, 0.0, "triad", reason="one row more").state == "differs"
    exact = cell(printed=0.0)
    assert decided(exact, 0.0, 0.0, "triad").state == "reproduced"
    assert decided(exact, -1e-9, 0.0, "triad", reason="rounding").z == -math.inf


def test_a_verdict_needs_an_open_claim_a_number_and_a_reason():
    claim = cell(printed=0.40, printed_error=0.03, spread="standard error")
    with pytest.raises(ValueError, match=r"reason: found none for toy:cell with z = 3\.33"):
        decided(claim, 0.5, 0.0, "triad")
    with pytest.raises(ValueError, match="ours: found nan"):
        decided(claim, math.nan, 0.0, "triad")
    with pytest.raises(ValueError, match=r"ours: found 0\.4 ± -0\.1"):
        decided(claim, 0.4, -0.1, "triad")
    with pytest.raises(ValueError, match="state 'reproduced', expected an open one"):
        decided(decided(claim, 0.41, 0.0, "triad"), 0.41, 0.0, "triad")
    with pytest.raises(ValueError, match="toy:cell without a printed number"):
        decided(cell(), 0.4, 0.1, "triad")


def test_pairs_decide_an_inequality_its_opposite_or_nothing():
    pairs = np.array([0.11, 0.13, 0.12, 0.14]), np.array([0.21, 0.22, 0.24, 0.22])
    result = smaller(*pairs)
    assert result.holds is True
    assert result.bound < 0.0
    assert smaller(*reversed(pairs)).holds is False
    assert smaller([0.1, 0.3], [0.2, 0.21]).holds is None
    assert smaller(*reversed(pairs), margin=0.2).holds is True
    assert "at 95%" in result.words


def test_the_stated_confidence_is_that_of_pairs_without_a_difference():
    rng = np.random.default_rng(7)
    draws = rng.standard_normal((4_000, 2, 5))
    wrong = np.mean([smaller(a, b).holds is True for a, b in draws])
    # a share of 0.05 has a standard error of 3.4e-3 from so many: five of them; of a two-sided test it would be 0.025
    assert wrong == pytest.approx(0.05, abs=1.7e-2)


@pytest.mark.parametrize(
    ("left", "right", "match"),
    [([1.0], [2.0], "two or more pairs"), ([1.0, 2.0], [1.0], "two or more"), ([1.0, math.nan], [1, 2], "not finite")],
)
def test_what_are_no_pairs_is_refused(left, right, match):
    with pytest.raises(ValueError, match=match):
        smaller(left, right)
