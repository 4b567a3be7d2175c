"""Settings of the experiments, section 5.1."""

import numpy as np
import pytest

from reference.izmailov2016.experiments import (
    batch_size_rule,
    default_schedule,
    kernel_se_with_noise,
    kmeans_inducing_points,
    prepare_dataset,
    select_learning_rate,
)


@pytest.mark.verifies(
    "izmailov2016", "u5.1-learning-rate", route="runs of gradient ascent on a parabola, where the best rate is known"
)
def test_the_fastest_rate_that_does_not_diverge_is_chosen():
    def run(rate):
        """x ← x - 2 rate x from 1: best at ½, never still at 1, diverging beyond."""
        x = (1.0 - 2.0 * rate) ** np.arange(1, 30)
        return np.where(rate < 1.0, -(x**2), np.nan)

    assert select_learning_rate(run, 1e-6) == pytest.approx(0.5, rel=1e-12, abs=0)
    assert select_learning_rate(run, 1e-6, count=3) == pytest.approx(0.3, rel=1e-12, abs=0)
    with pytest.raises(ValueError, match=r"spacing: found 2, with which all 10 runs diverge"):
        select_learning_rate(run, 1e-6, spacing=2.0)


@pytest.mark.verifies("izmailov2016", "u5.1-batch-size", route="the printed sizes")
@pytest.mark.parametrize(
    ("name", "n", "size"), [("german", 800, 50), ("svmguide", 3089, 50), ("cod-rna", 59535, 595), ("x", 30, 1)]
)
def test_small_sets_take_batches_of_fifty_and_others_a_hundredth(name, n, size):
    assert batch_size_rule(name, n) == size


@pytest.mark.verifies("izmailov2016", "u5.1-kmeans", route="conditions of optimality of the clustering")
def test_centres_are_means_of_the_rows_nearest_to_them(rng):
    X = rng.normal(size=(60, 2))
    Z = kmeans_inducing_points(rng, X, 5)
    nearest = np.argmin(np.sum((X[:, None] - Z[None]) ** 2, axis=2), axis=1)
    # sums of 60 numbers of size 1
    np.testing.assert_allclose(Z, [X[nearest == p].mean(axis=0) for p in range(5)], rtol=0, atol=1e-13)


def test_a_centre_that_loses_all_its_rows_moves_to_the_row_farthest_from_its_own():
    X = np.array([[2.0, 1], [2, 1], [5, 6], [2, 0], [7, 2], [7, 3], [4, 0], [5, 4]])
    lost = 0
    for seed in range(60):  # of random starts a few lose a centre in their first step
        one, two = (kmeans_inducing_points(np.random.default_rng(seed), X, 3, steps) for steps in (1, 2))
        squares = ((X[:, None] - one) ** 2).sum(axis=2)
        nearest = squares.argmin(axis=1)
        empty = [p for p in range(3) if not np.any(nearest == p)]
        lost += len(empty)
        if np.array_equal(one, two):
            continue  # at its end
        far = X[squares.min(axis=1).argmax()]
        wanted = [far if p in empty else X[nearest == p].mean(axis=0) for p in range(3)]
        np.testing.assert_allclose(two, wanted, rtol=0, atol=1e-13)  # sums of eight small integers
    assert lost > 0


def test_as_many_centres_as_distinct_rows_are_the_rows(rng):
    distinct = np.array([[0.0, 0.0], [1.0, 3.0], [1e-6, 0.0]])
    X = distinct[rng.integers(3, size=20)]
    X[:3] = distinct
    Z = kmeans_inducing_points(rng, X, 3)
    # means of equal numbers
    np.testing.assert_allclose(Z[np.lexsort(Z.T)], distinct[np.lexsort(distinct.T)], rtol=1e-14, atol=0)
    with pytest.raises(ValueError, match=r"n_inducing: found 4, expected at most 3, the number of distinct rows"):
        kmeans_inducing_points(rng, X, 4)


@pytest.mark.verifies("izmailov2016", "u5.1-kernel-noise", route="entry by entry")
def test_noise_is_on_the_diagonal_of_one_set_of_points_only():
    X = np.array([[0.0], [0.5], [0.5]])
    e = 4.0 * np.exp(-0.25 / 9.0)
    np.testing.assert_allclose(
        kernel_se_with_noise(X, None, 2.0, 3.0, 0.3), [[4.3, e, e], [e, 4.3, 4.0], [e, 4.0, 4.3]], rtol=1e-14, atol=0
    )
    np.testing.assert_allclose(kernel_se_with_noise(X, X[1:2], 2.0, 3.0, 0.3), [[e], [4.0], [4.0]], rtol=1e-14, atol=0)


@pytest.mark.verifies("izmailov2016", "u5.1-nupd-nfun", route="the printed numbers")
def test_the_schedule_is_three_and_five():
    assert default_schedule() == (3, 5)


@pytest.mark.verifies("izmailov2016", "u5.1-standardise", route="moments of the parts, and undoing the scaling")
def test_features_are_scaled_by_the_training_part_and_a_fifth_is_kept_aside(rng):
    X = rng.normal(size=(50, 3)) * [1.0, 20.0, 0.0] + [5.0, 0.0, 7.0]
    y = rng.choice([-1.0, 1.0], size=50)
    got = prepare_dataset(X, y, seed=4)
    assert got.X.shape == (40, 3)
    assert got.X_test.shape == (10, 3)
    np.testing.assert_allclose(got.X.mean(axis=0), 0.0, rtol=0, atol=1e-13)
    np.testing.assert_allclose(got.X.std(axis=0), [1.0, 1.0, 0.0], rtol=0, atol=1e-13)
    # each row is a row of X, with its label, by an affine map that the training part fixes
    both, labels = np.vstack([got.X, got.X_test])[:, :2], np.concatenate([got.y_sign, got.y_test])
    order = np.argsort(both[:, 0])
    source = np.argsort(X[:, 0])
    fitted = np.polyfit(both[order, 0], X[source, 0], 1)
    np.testing.assert_allclose(np.polyval(fitted, both[order, 0]), X[source, 0], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(labels[order], y[source])
    kept = prepare_dataset(X, y, X_test=X[:5], y_test=y[:5])
    np.testing.assert_allclose(kept.X_test, kept.X[:5], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(kept.y_test, y[:5])
    with pytest.raises(ValueError, match=r"y_test: found a test set without"):
        prepare_dataset(X, y, X_test=X[:5])
