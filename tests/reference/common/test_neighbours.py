"""What rounding leaves open: linear answers whose condition is known, pushed Gaussians, and answers that fail."""

from typing import NamedTuple

import numpy as np
import pytest

from reference.common._neighbours import LARGEST, LEAST, Answer, claimed, condition, pushed, rounding_doubt


class Two(NamedTuple):
    """Hyper-parameters that a neighbour moves."""

    variance: float
    lengthscales: np.ndarray


PRIOR = Two(2.0, np.array([1.0, 3.0]))


def amplified(by, share=1.0, floor=0.0):
    """An answer that multiplies last digits of the variance."""
    return lambda prior: {"steady": Answer(1.0), "made up": Answer(1.0 + by * (prior.variance - 2.0), floor, share)}


def diagonal(cond):
    return [np.diag([1.0, 1.0 / cond])]


def test_the_condition_is_that_of_the_worst_matrix_and_infinite_if_one_is_singular():
    assert condition([np.eye(2), *diagonal(100.0)]) == pytest.approx(100.0, rel=1e-12, abs=0)  # a quotient
    assert condition([np.zeros((2, 2))]) == np.inf


def test_what_is_claimed_grows_with_the_condition_between_two_ends():
    assert claimed(diagonal(10.0)) == LEAST
    # 100 eps cond; eigenvalues of a diagonal matrix are exact to a few units in the last place
    assert claimed(diagonal(1e10)) == pytest.approx(100 * 2.0**-52 * 1e10, rel=1e-9, abs=0)
    assert claimed([np.zeros((2, 2))]) == LARGEST


def test_an_answer_that_multiplies_last_digits_beyond_the_claim_is_doubted_by_name():
    # 16 units in the last place of a variance of 2 are 7.1e-15
    assert rounding_doubt(amplified(1e5), PRIOR, diagonal(1e4)) == ""
    result = rounding_doubt(amplified(1e7), PRIOR, diagonal(1e4))
    assert result.startswith(
        "last digits of variance and lengthscales change made up by 7.1e-08, expected at most 5.0e-09"
    )
    assert "raise jitter or noise" in result


def test_gradients_may_be_ten_times_as_far_off_and_small_numbers_are_measured_by_their_floor():
    assert rounding_doubt(amplified(3e6), PRIOR, diagonal(1e4)) != ""
    assert rounding_doubt(amplified(3e6, share=10.0), PRIOR, diagonal(1e4)) == ""
    assert rounding_doubt(amplified(3e6, floor=1e3), PRIOR, diagonal(1e4)) == ""


def test_nothing_is_asked_of_a_well_conditioned_matrix_unless_an_ascent_starts_beside_the_optimum():
    assert rounding_doubt(amplified(1e7), PRIOR, diagonal(10.0)) == ""
    assert rounding_doubt(amplified(1e7), PRIOR, diagonal(10.0), beside=True).startswith(
        "a start beside the optimum and"
    )


def test_a_coarse_tolerance_allows_a_hundred_times_as_much():
    assert rounding_doubt(amplified(1e7), PRIOR, diagonal(1e4), tolerance=1e-8) == ""


def test_an_answer_that_a_neighbour_does_not_have_is_doubted():
    def answers(prior):
        if prior.variance != 2.0:
            raise ValueError("residual: found 1, expected 0")
        return {"made up": Answer(1.0)}

    assert "residual: found 1" in rounding_doubt(answers, PRIOR, diagonal(1e4))


def test_an_answer_that_is_no_number_is_doubted():
    def answers(prior):
        return {"made up": Answer(1.0 if prior.variance == 2.0 else np.nan)}

    assert "made up" in rounding_doubt(answers, PRIOR, diagonal(1e4))


def test_a_pushed_gaussian_is_moved_by_its_own_scale_in_mean_and_covariance():
    cov = np.array([[[4.0, 1.0], [1.0, 1e-6 + 0.25]], [[1e8, 0.0], [0.0, 1e-8]]])
    mean = np.array([[0.0, 5.0], [1.0, -1.0]])
    means, covs = pushed(mean, cov)
    for m, V, m_new, V_new in zip(mean, cov, means, covs, strict=True):
        root = np.linalg.cholesky(V)
        shift = np.linalg.solve(root, m_new - m)
        np.testing.assert_allclose(np.abs(shift), 1e-5, rtol=1e-4, atol=0)  # 5 eps over a deviation of 1e-3, over 1e-5
        turned = np.linalg.solve(root, np.linalg.solve(root, V_new - V).T)
        assert 1e-6 < np.max(np.abs(turned)) < 2e-5
        assert np.all(np.linalg.eigvalsh(V_new) > 0.0)
