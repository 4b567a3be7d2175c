"""Verdicts: half widths with both sides' spread and rounding, what they tell apart, states, inequalities."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from validation.claims.inventory import Claim
from validation.claims.verdict import (
    COVERAGE,
    Evidence,
    Row,
    as_printed,
    decided,
    half_width,
    holds,
    pooled,
    printed_error,
    smaller,
    stated,
)


def cell(**more):
    """An open cell with a printed number."""
    return Claim("toy", "cell", "Table 1", "cell", "Error", "open", **more)


PRINTED = {"printed": 0.40, "printed_error": 0.03, "spread": "standard error", "unit": 0.01}


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


def test_the_half_width_is_students_quantile_by_the_integral_of_its_density():
    freedom = 6.0

    def density(x):
        scale = math.exp(special.gammaln(0.5 * (freedom + 1)) - special.gammaln(0.5 * freedom))
        return scale / math.sqrt(freedom * math.pi) * (1.0 + x * x / freedom) ** (-0.5 * (freedom + 1))

    quantile = optimize.brentq(
        lambda t: 2.0 * integrate.quad(density, 0.0, t, epsabs=1e-13)[0] - COVERAGE, 1.0, 20.0, xtol=1e-10
    )
    # nothing else has a spread: seven repetitions of ours, six degrees of freedom
    assert half_width(cell(printed=0.4), 0.02, 7) == pytest.approx(0.02 * quantile, rel=1e-8)
    assert quantile > 4.5  # three would be that of very many repetitions


def test_a_half_width_covers_as_often_as_it_says():
    """Means of five Gaussian draws, and how far each is from the truth in units of its own standard error."""
    draws = np.random.default_rng(5).standard_normal((200_000, 5))
    errors = draws.std(axis=1, ddof=1) / math.sqrt(5)
    reach = half_width(cell(printed=0.0), 1.0, 5)  # of an error of one; nothing else has a spread
    outside = int((np.abs(draws.mean(axis=1)) > reach * errors).sum())
    # 540 are expected with a deviation of 23, four of which are allowed; three standard errors would leave out 8000
    assert outside == pytest.approx(540, abs=93)


def test_two_spreads_alike_have_the_degrees_of_freedom_of_both():
    claim = cell(printed=0.0, printed_error=0.02, spread="standard error", repeats=9)
    total = math.sqrt(2.0) * 0.02
    assert half_width(claim, 0.02, 9) == pytest.approx(total * stats.t.ppf(0.5 + 0.5 * COVERAGE, 16), rel=1e-12)
    # where ours is known and the paper's is not, the paper's repetitions count
    assert half_width(claim, 0.0, 50) == pytest.approx(0.02 * stats.t.ppf(0.5 + 0.5 * COVERAGE, 8), rel=1e-12)


def test_one_repetition_has_no_half_width_and_two_equal_ones_decide_nothing():
    claim = cell(**PRINTED)
    assert half_width(claim, 0.0, 1) == math.inf
    equal = decided(claim, Evidence(0.9, 0.0, 2), [0.1], "triad")
    assert (equal.state, equal.reason) == ("open", "2 repetitions, fewer than the 5 below which nothing is decided")
    single = decided(claim, Evidence(0.4, 0.0, 1), [0.1], "triad")
    assert (single.state, single.half_width, single.passing) == ("open", None, 1)


@pytest.mark.parametrize(
    ("ours", "others", "state", "passing"),
    [
        (0.41, [0.8, 0.9], "reproduced", 0),
        (0.41, [0.8, 0.45], "consistent", 1),
        (0.41, [0.40, 0.40], "consistent", 2),  # printed alike: no run can tell them apart
        (0.41, [], "consistent", 0),  # nothing to tell it from
        (0.9, [0.8, 0.91], "differs", 2),
    ],
)
def test_a_number_is_reproduced_where_no_other_of_its_row_would_agree(ours, others, state, passing):
    claim = decided(cell(**PRINTED), Evidence(ours, 0.03, 20), others, "triad claims run toy table1", result="a.csv")
    assert (claim.state, claim.passing, claim.others) == (state, passing, len(others))
    assert 0.12 < claim.half_width < 0.16  # three times the root of two times .03, and a little for twenty
    assert (claim.ours, claim.ours_error, claim.repetitions) == (ours, 0.03, 20)
    assert (claim.command, claim.result) == ("triad claims run toy table1", "a.csv")


def test_a_run_that_departs_from_the_protocol_decides_nothing_whatever_it_gives():
    for ours in (0.40, 0.9):
        smaller_one = decided(cell(**PRINTED), Evidence(ours, 0.01, 20, smaller="30 of 250 steps"), [0.8], "triad")
        assert (smaller_one.state, smaller_one.reason) == ("reduced", "30 of 250 steps")
        other = decided(cell(**PRINTED), Evidence(ours, 0.01, 20, "rate = 0.1", "30 steps"), [0.8], "triad")
        assert (other.state, other.reason, other.departure) == ("open", "rate = 0.1", "rate = 0.1; 30 steps")


def test_a_count_is_the_printed_one_or_not():
    assert [as_printed(n, 214) for n in (214, 215, None, math.nan)] == ["holds", "fails", "uncertain", "uncertain"]
    assert (holds(True), holds(False), holds(None)) == ("holds", "fails", "uncertain")


def test_a_verdict_needs_an_open_claim_and_finite_numbers():
    claim = cell(**PRINTED)
    with pytest.raises(ValueError, match="ours: found nan"):
        decided(claim, Evidence(math.nan, 0.0, 5), [], "triad")
    with pytest.raises(ValueError, match=r"ours: found 0\.4 ± -0\.1"):
        decided(claim, Evidence(0.4, -0.1, 5), [], "triad")
    with pytest.raises(ValueError, match="state 'consistent', expected an open one"):
        decided(decided(claim, Evidence(0.41, 0.01, 5), [], "triad"), Evidence(0.41, 0.0, 5), [], "triad")
    with pytest.raises(ValueError, match="toy:cell without a printed number"):
        decided(cell(), Evidence(0.4, 0.1, 5), [], "triad")


@pytest.mark.parametrize(
    ("rows", "more", "state"),
    [
        ([(True, 9), (True, 5)], {}, "reproduced"),
        ([(True, 9), (True, 4)], {}, "open"),  # too few repetitions
        ([(True, 9), (True, 0)], {}, "open"),  # no interval
        ([(True, 9), (None, 9)], {}, "open"),
        ([(True, 9), (False, 9)], {}, "differs"),
        ([(None, 0), (False, 9)], {}, "differs"),  # one certain failure is enough
        ([(True, 9), (False, 0)], {}, "open"),
        ([(True, 0)], {"exact": True}, "reproduced"),
        ([(False, 0)], {"exact": True}, "differs"),
        ([(True, 9)], {"smaller": "400 rows"}, "reduced"),
        ([(False, 9)], {"smaller": "400 rows"}, "reduced"),
        ([(True, 9)], {"reading": "another rate", "smaller": "400 rows"}, "open"),
    ],
)
def test_a_sentence_needs_intervals_of_the_protocol_over_five_repetitions(rows, more, state):
    assert stated([Row(*row) for row in rows], **more) == state


def test_a_sentence_without_comparisons_is_refused():
    with pytest.raises(ValueError, match="rows: found none"):
        stated([])


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


def test_cells_together_are_counted_on_either_side_of_print():
    first, second = pooled([("a", 0.1, 0.2)] * 7 + [("a", 0.3, 0.2)] + [("b", 0.2, 0.2)] * 3)
    # of eight fair coins, one or none heads or tails: 2 (1 + 8) / 256
    assert (first.name, first.below, first.above) == ("a", 7, 1)
    assert first.p == pytest.approx(18.0 / 256.0, rel=1e-12)
    assert (second.below, second.above, second.p) == (0, 0, 1.0)
