"""Experiments of wenzel2019: pairs for Fig. 1, the printed table, classes made binary."""

from __future__ import annotations

import numpy as np
import pytest

from validation import datasets
from validation.reproduce.published import published
from validation.reproduce.wenzel2019.fig1 import compare_with_gibbs
from validation.reproduce.wenzel2019.table1 import METHODS, binary, smaller


@pytest.mark.verifies("wenzel2019", "u5.1-compare", route="definition: means, roots of variances and probabilities")
def test_pairs_are_means_standard_deviations_and_probabilities_with_their_errors(make_problem, make_solution):
    problem = make_problem()
    ours = make_solution(problem, seed=1)
    rng = np.random.default_rng(2)
    truth = make_solution(problem, seed=2)
    mean_se = rng.uniform(0.1, 0.2, truth.latent_mean.shape)
    cov_se = rng.uniform(0.1, 0.2, truth.latent_cov.shape)
    p_se = rng.uniform(0.1, 0.2, truth.probabilities.shape)
    from dataclasses import replace

    truth = replace(truth, latent_mean_se=mean_se, latent_cov_se=cov_se, probabilities_se=p_se)
    result = compare_with_gibbs(ours, truth)
    n = problem.n
    # the same few operations on the same numbers
    close = {"rtol": 1e-12, "atol": 0.0}
    np.testing.assert_allclose(result["mean"].approximation, [ours.latent_mean[i, 0] for i in range(n)], **close)
    np.testing.assert_allclose(result["mean"].truth, [truth.latent_mean[i, 0] for i in range(n)], **close)
    np.testing.assert_allclose(result["mean"].truth_se, [mean_se[i, 0] for i in range(n)], **close)
    np.testing.assert_allclose(result["sd"].approximation ** 2, [ours.latent_cov[i, 0, 0] for i in range(n)], **close)
    np.testing.assert_allclose(result["sd"].truth ** 2, [truth.latent_cov[i, 0, 0] for i in range(n)], **close)
    # an error of the variance v is one of 2 sd in its root, to first order
    np.testing.assert_allclose(
        result["sd"].truth_se * 2.0 * result["sd"].truth, [cov_se[i, 0, 0] for i in range(n)], **close
    )
    np.testing.assert_allclose(result["probability"].approximation, ours.probabilities[:, 1], **close)
    np.testing.assert_allclose(result["probability"].truth, truth.probabilities[:, 1], **close)
    np.testing.assert_allclose(result["probability"].truth_se, p_se[:, 1], **close)


def test_solutions_of_different_problems_are_not_paired(make_problem, make_solution):
    with pytest.raises(ValueError, match=r"truth: found a solution of another problem, which differs in .*noise"):
        compare_with_gibbs(make_solution(make_problem()), make_solution(make_problem(noise=0.2)))


def test_a_truth_without_errors_is_no_truth(make_solution):
    with pytest.raises(ValueError, match="without standard errors"):
        compare_with_gibbs(make_solution(), make_solution())


def test_the_printed_table_has_every_method_and_known_sets():
    rows = published("wenzel2019", "table1")["row"]
    assert len(rows) == 13
    for row in rows:
        for method in METHODS:
            assert set(row[method]) == {"error", "nll", "seconds"}
        if "data" in row:
            assert row["data"] in datasets.known_names()
    diabetes = next(row for row in rows if row["name"] == "Diabetes")
    assert diabetes["x-gpc-svi"]["nll"] == [0.47, 0.11]
    assert diabetes["epgpc"]["seconds"] == [8, 0.45]


def test_more_than_two_classes_become_the_largest_against_the_rest():
    data, how = binary(datasets.load("wine"))
    assert data.classes == ("rest", "class_1")
    assert data.y.sum() == 71
    assert "against the rest" in how
    assert binary(datasets.load("breast_cancer"))[1] == ""


def test_a_smaller_set_has_distinct_rows():
    data = datasets.load("wine")
    cut = smaller(data, 50, 0)
    assert cut.n == 50
    assert np.unique(cut.X, axis=0).shape[0] == 50
    assert smaller(data, 500, 0) is data


def test_several_classes_become_two_in_the_reading_that_is_asked_for():
    digits = datasets.load("digits")
    odd, how = binary(digits, "odd")
    assert odd.classes == ("even", "odd")
    np.testing.assert_array_equal(odd.y, digits.y % 2)
    assert "odd numbers of classes against even ones" in how
    with pytest.raises(
        ValueError, match=r"^two_classes: found 'odd' for wine with classes class_0, .*expected numbers"
    ):
        binary(datasets.load("wine"), "odd")
