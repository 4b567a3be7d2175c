"""Sites and energies on data in parts: what is refused, where runs end, predictions leaf by leaf.

That sweeps are those of the array path is asked by `triad verify --check 'run/*/parts'`, of each method.
"""

from dataclasses import replace

import numpy as np
import pytest

from fast.blockwise import multiclass
from fast.blockwise.rows import rows_of
from fast.core.values import Data, Prior
from fast.methods import bb_alpha, ep, gfitc, pep, vi_robust


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((90, 2))
    y = np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]) + 0.3 * rng.standard_normal((90, 3)), axis=1)
    prior = Prior(np.array([1.5, 2.0, 4.5]), np.ones((3, 2)), np.full(3, 0.02), np.full(3, 1e-8), X[::15].copy())
    return X, y.astype(np.int64), prior


def test_the_fixed_point_of_gfitc_is_that_of_mixed_sweeps(case):
    X, y, prior = case
    # few data and wide noise: plain sweeps come within the tolerance in some dozens, not in thousands
    X, y, prior = X[:24], y[:24], replace(prior, variance=np.full(3, 0.3), noise=np.full(3, 0.5))
    options = gfitc.GFITCOptions(damping=1.0, tolerance=1e-10)
    parts = multiclass.fit("gfitc", rows_of(X, y, leaf=10), 3, prior, options)
    whole = gfitc.fit(Data(X, y, 3), prior, options)
    assert parts.converged
    assert parts.trained.iterations > 10
    # changes of 1e-10 where sweeps contract: log Z is flat in the sites there
    assert abs(parts.log_evidence - whole.log_evidence) <= 1e-9
    np.testing.assert_allclose(parts.inducing_mean, whole.inducing_mean, rtol=0, atol=1e-8)


def test_whole_factors_have_their_own_number_of_sites(case):
    X, y, prior = case
    options = ep.EPOptions(factors="datum", max_iterations=2, tolerance=1e-300)
    parts = multiclass.fit("ep", rows_of(X, y, leaf=40), 3, prior, options)
    whole = ep.fit(Data(X, y, 3), prior, options)
    assert abs(parts.log_evidence - whole.log_evidence) <= 1e-12 * abs(whole.log_evidence)


def test_steps_of_pep_are_halved_until_q_is_a_distribution(case, monkeypatch):
    """A step of which q has no covariance is shortened, and leaves take the shortened one."""
    from fast.core.errors import NotPositiveDefiniteError
    from fast.sparse_classes.projections import ClassDistribution

    X, y, prior = case
    options = pep.PEPOptions(alpha=0.5, epsilon=0.01, max_iterations=3, tolerance=1e-300)
    rows, made, of, refusals = rows_of(X, y, leaf=40), [], ClassDistribution.of, set()

    def refused(precision, shift):
        made.append(None)
        if len(made) in refusals:
            raise NotPositiveDefiniteError("made up")
        return of(precision, shift)

    before = multiclass.fit("pep", rows, 3, prior, options)
    monkeypatch.setattr(ClassDistribution, "of", refused)
    refusals.add(3)  # after q of the start and that of the leaves
    halved = multiclass.fit("pep", rows, 3, prior, options)
    made.clear()
    refusals ^= {2, 3}  # the array path factorises nothing for its data
    whole = pep.fit(Data(X, y, 3), prior, options)
    assert halved.trained.n_improper == whole.trained.n_improper == 1
    assert abs(halved.log_evidence - whole.log_evidence) <= 1e-12 * abs(whole.log_evidence)
    assert abs(halved.log_evidence - before.log_evidence) > 1e-6


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("ep", ep.EPOptions(learn=("variance",)), r"learn: found \('variance',\), expected \(\): on data in parts"),
        ("ep", ep.EPOptions(schedule="sequential"), "schedule: found 'sequential', expected 'parallel'"),
        ("vi-robust", vi_robust.RobustOptions(batch_size=10), "batch_size: found 10, expected None"),
        ("bb-alpha", bb_alpha.BBAlphaOptions(expectation="monte-carlo"), "expectation: found 'monte-carlo'"),
        ("svgpc", None, "method: found 'svgpc', expected one of 'ep'"),
    ],
)
def test_what_sweeps_over_parts_cannot_do_is_refused_by_name(case, method, options, message):
    X, y, prior = case
    with pytest.raises(ValueError, match=message):
        multiclass.fit(method, rows_of(X, y), 3, prior, options)


def test_options_of_another_method_are_refused(case):
    X, y, prior = case
    with pytest.raises(TypeError, match="options: found GFITCOptions, expected EPOptions"):
        multiclass.fit("ep", rows_of(X, y), 3, prior, gfitc.GFITCOptions())


def test_predictions_know_of_wrong_labels_where_the_method_does(case):
    X, y, prior = case
    options = vi_robust.RobustOptions(epsilon=0.3, max_iterations=3)
    parts = multiclass.fit("vi-robust", rows_of(X, y, leaf=40), 3, prior, options)
    pieces = list(multiclass.predictions(parts, rows_of(X, leaf=50)))
    whole = vi_robust.predict(vi_robust.fit(Data(X, y, 3), prior, options), X)
    assert [first for first, _ in pieces] == [0, 50]
    joined = np.concatenate([part.probabilities for _, part in pieces])
    np.testing.assert_allclose(joined, whole.probabilities, rtol=0, atol=1e-12)
    assert joined.min() >= 0.1 * (1.0 - 1e-12)  # epsilon / C
