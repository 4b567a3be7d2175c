"""sep on data in parts: the numbers of the array path."""

from dataclasses import replace

import numpy as np
import pytest

from fast.blockwise import sep as blockwise
from fast.blockwise.rows import rows_of
from fast.blockwise.sep import SEPSweeps
from fast.core.values import Data, Prior
from fast.methods import sep


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((300, 2))
    y = np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]) + 0.3 * rng.standard_normal((300, 3)), axis=1)
    prior = Prior(np.array([1.5, 2.0, 4.5]), np.ones((3, 2)), np.full(3, 0.02), np.full(3, 1e-8), X[::20].copy())
    return X, y.astype(np.int64), prior


def array_path(case, **options):
    X, y, prior = case
    return sep.fit(Data(X, y, 3), prior, sep.SEPOptions(**options))


@pytest.mark.parametrize("count", ["all", "per-class"])
@pytest.mark.parametrize("leaf", [37, 1000])
def test_sweeps_are_those_of_the_array_path(case, count, leaf):
    X, y, prior = case
    wanted = array_path(case, count=count, max_iterations=5, tolerance=1e-300)
    posterior = blockwise.fit(rows_of(X, y, leaf=leaf), 3, prior, SEPSweeps(count, tolerance=1e-300, max_iterations=5))
    # sums of 300 terms in another order, in five sweeps: 300 eps, times the condition of P, below 1e3
    assert abs(posterior.log_evidence - wanted.log_evidence) <= 1e-12 * abs(wanted.log_evidence)
    for name in ("inducing_mean", "inducing_cov"):
        left, right = getattr(posterior, name), getattr(wanted, name)
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-12 * np.abs(right).max())


def test_the_fixed_point_is_that_of_the_array_path(case):
    X, y, prior = case
    # wide noise and few data: tied factors contract in some 40 sweeps, not in thousands
    X, y, prior = X[:60], y[:60], replace(prior, Z=X[:3].copy(), variance=np.full(3, 0.3), noise=np.full(3, 0.5))
    posterior = blockwise.fit(rows_of(X, y, leaf=11), 3, prior, SEPSweeps(damping=1.0, tolerance=1e-9))
    wanted = array_path((X, y, prior), damping=1.0, tolerance=1e-12)
    assert posterior.converged
    # standardised distance 1e-9 of a tied factor: means within 1e-9 standard deviations of one class, all below 1
    np.testing.assert_allclose(posterior.inducing_mean, wanted.inducing_mean, rtol=0, atol=1e-8)
    assert abs(posterior.log_evidence - wanted.log_evidence) <= 1e-7


def test_sweeps_that_run_out_say_so(case):
    X, y, prior = case
    posterior = blockwise.fit(rows_of(X, y), 3, prior, SEPSweeps(max_iterations=3))
    assert (posterior.converged, posterior.iterations) == (False, 3)
    assert posterior.residual > 1e-3


def test_predictions_come_leaf_by_leaf(case):
    X, y, prior = case
    # of any q: the fixed point of all these rows takes thousands of sweeps
    posterior = blockwise.fit(rows_of(X, y), 3, prior, SEPSweeps(max_iterations=5))
    whole = next(blockwise.predictions(posterior, rows_of(X)))[1]
    pieces = list(blockwise.predictions(posterior, rows_of(X, leaf=70)))
    assert [first for first, _ in pieces] == [0, 70, 140, 210, 280]
    np.testing.assert_allclose(
        np.concatenate([part.probabilities for _, part in pieces]), whole.probabilities, rtol=0, atol=1e-12
    )


def test_a_bad_label_is_named_by_its_row(case):
    X, y, prior = case
    y = y.copy()
    y[222] = 3
    with pytest.raises(ValueError, match=r"y: found 3 in row 222, expected integers 0 to 2"):
        blockwise.fit(rows_of(X, y, leaf=50), 3, prior)
    with pytest.raises(ValueError, match=r"damping: found 0\.0, expected a number from 1e-8 to 1"):
        blockwise.fit(rows_of(X, y), 3, prior, SEPSweeps(damping=0.0))
