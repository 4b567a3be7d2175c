"""The table of the library: what it spans, and that it makes the same problems everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from validation.datasets.errors import DatasetNotFoundError
from validation.datasets.folder import data_folder
from validation.door import storage
from validation.door.problem import LIKELIHOODS
from validation.truth import library
from validation.truth.library import Posterior, posteriors

ALL = tuple(posteriors().values())
EVERYWHERE = [p.name for p in ALL if not p.withheld]
WITHHELD = [p.name for p in ALL if p.withheld]


def test_the_library_spans_what_it_promises():
    assert len(ALL) >= 100
    assert len({p.dataset for p in ALL}) >= 20
    assert {p.likelihood for p in ALL} == set(LIKELIHOODS)
    for likelihood in LIKELIHOODS:
        own = [p for p in ALL if p.likelihood == likelihood]
        assert {p.prior_model for p in own} == {"full", "fitc"}
        assert min(p.log_variance for p in own) <= 1.0
        assert max(p.log_variance for p in own) >= 4.0
    assert (min(p.n for p in ALL), max(p.n for p in ALL)) == (3, 2000)
    assert (min(p.n_classes for p in ALL), max(p.n_classes for p in ALL)) == (2, 10)
    assert {p.log_variance for p in ALL} >= {0.0, 8.0}
    assert {p.epsilon for p in ALL} == {0.0, 0.05}
    assert {p.per_input for p in ALL} == {False, True}
    assert any(p.learn for p in ALL)


def test_every_posterior_has_a_recorded_fingerprint_and_no_other_has():
    assert set(library.fingerprints()) == {p.name for p in ALL}
    assert len(set(library.fingerprints().values())) == len(ALL)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_table_makes_the_recorded_problem(name):
    check_problem(library.get(name))


@pytest.mark.skipif(data_folder() is None, reason="needs $TRIAD_DATA")
@pytest.mark.parametrize("name", WITHHELD)
def test_the_table_makes_the_recorded_problem_of_data_at_hand(name):
    check_problem(library.get(name))


def check_problem(p: Posterior) -> None:
    problem = library.question(p.name)  # refuses another fingerprint
    assert (problem.name, problem.n, problem.t, problem.n_classes) == (p.name, p.n, p.t, p.n_classes)
    assert (problem.likelihood, problem.prior_model, problem.epsilon) == (p.likelihood, p.prior_model, p.epsilon)
    assert (problem.m or 0) == p.m
    assert np.unique(problem.y).size == p.n_classes
    assert len(np.unique(np.vstack([problem.X, problem.X_test]), axis=0)) == p.n + p.t
    np.testing.assert_allclose(np.log(problem.variance), p.log_variance, rtol=0, atol=1e-12)
    assert (np.ptp(problem.lengthscales, axis=1) > 0.0).any() == p.per_input
    assert sorted(problem.hyperprior or {}) == sorted(p.learn)


def test_without_its_folder_a_problem_is_refused_and_nothing_is_downloaded(monkeypatch):
    monkeypatch.delenv("TRIAD_DATA", raising=False)
    library.question.cache_clear()
    library._distinct.cache_clear()
    with pytest.raises(DatasetNotFoundError, match="TRIAD_DATA"):
        library.question(WITHHELD[0])


def test_other_data_under_a_name_are_refused(monkeypatch):
    name = EVERYWHERE[0]
    monkeypatch.setattr(library, "fingerprints", lambda: {name: "0" * 64})
    library.question.cache_clear()
    with pytest.raises(storage.FileFormatError, match="another problem"):
        library.question(name)
    library.question.cache_clear()


def test_a_fingerprint_hears_every_field_and_no_rounding():
    problem = library.question("gp-3-40-softmax-v2-m8")
    mark = library.fingerprint(problem)
    # another machine's sums; -0.0 for 0.0
    assert library.fingerprint(problem.replace(X=problem.X * (1.0 + 1e-13))) == mark
    assert library.fingerprint(problem.replace(name="another")) == mark
    y = problem.y.copy()
    y[:2] = (y[:2] + 1) % 3
    changes = [
        {"X": problem.X + 1e-5},
        {"y": y},
        {"Z": problem.Z + 1e-5},
        {"X_test": problem.X_test[:-1], "y_test": problem.y_test[:-1]},
        {"y_test": None},
        {"variance": problem.variance * (1.0 + 1e-8)},
        {"lengthscales": problem.lengthscales * (1.0 + 1e-8)},
        {"noise": problem.noise + 1e-8},
        {"jitter": problem.jitter * (1.0 + 1e-8)},
        {"likelihood": "threshold"},
        {"likelihood": "threshold", "epsilon": 0.05},
        {"prior_model": "full"},
        {"shared": False},
        {"kernel": "matern", "smoothness": 1.5},
        {"hyperprior": {"variance": ("half-student-t", 4.0, 1.0)}},
    ]
    marks = [library.fingerprint(problem.replace(**change)) for change in changes]
    assert len({mark, *marks}) == len(changes) + 1


def test_the_route_is_the_surest_within_reach():
    assert library.route_of("logit", 3, 2, 0.0, False) == "quadrature"
    assert library.route_of("logit", 4, 2, 0.0, False) == "gibbs-logit"
    assert library.route_of("probit", 160, 2, 0.0, False) == "exact-probit"
    assert library.route_of("probit", 161, 2, 0.0, False) == "gibbs-probit"
    assert library.route_of("threshold", 20, 3, 0.0, False) == "exact-probit"
    assert library.route_of("threshold", 20, 3, 0.05, False) == "gibbs-threshold"
    assert library.route_of("probit", 20, 2, 0.0, True) == "gibbs-probit"


def test_what_costs_more_is_thought_to_cost_more():
    cheap, dear = library.get("gp-2-30-logit-v0"), library.get("gp-2-2000-logit-v2-m24")
    assert cheap.seconds < 600.0 < dear.seconds


def test_an_unknown_name_is_told_with_the_near_miss():
    with pytest.raises(KeyError, match=r"did you mean 'gp-2-30-logit-v0'"):
        library.get("gp-2-30-logit-v00")
