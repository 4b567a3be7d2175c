"""Section 5.1: settings of the experiments."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common.ledger import equation
from reference.izmailov2016.kernels import kernel_squared_exponential

Array = NDArray[np.float64]


class Schedule(NamedTuple):
    """Settings of algorithm 1."""

    n_upd: int
    n_fun: int


class Prepared(NamedTuple):
    """Training and test parts, features scaled."""

    X: Array
    y_sign: Array
    X_test: Array
    y_test: Array


@equation("izmailov2016", "u5.1-learning-rate")
def select_learning_rate(
    function: Callable[[float], Array], threshold: float, spacing: float = 0.1, count: int = 10
) -> float:
    """Learning rate from a grid by speed of convergence: izmailov2016, section 5.1 (in words).

    Rates spacing, 2 spacing, ..., count spacing are run; among those that stay finite, the one that first reaches the
    best value seen by any of them, less the threshold, is taken. Of equally fast ones the smallest.

    Parameters
    ----------
    function : callable       rate to the bound after each step (steps,); NaN or infinity where the run diverged
    threshold : float         how near to the best value counts as converged
    spacing : float         step of the grid, 0.1 in the paper
    count : int               number of rates

    Returns
    -------
    rate

    Raises
    ------
    ValueError                if every run diverged

    Notes
    -----
    The paper gives neither the ends of the grid nor what "converged" means.
    """
    rates = [spacing * (k + 1) for k in range(count)]
    runs = [np.asarray(function(rate), dtype=float) for rate in rates]
    sound = [(rate, run) for rate, run in zip(rates, runs, strict=True) if np.all(np.isfinite(run))]
    if not sound:
        raise ValueError(f"spacing: found {spacing:.6g}, with which all {count} runs diverge, expected a smaller one")
    goal = max(float(np.max(run)) for _, run in sound) - threshold
    # argmax of a run that never arrives is 0: such runs are left out
    speeds = [(int(np.argmax(run >= goal)), rate) for rate, run in sound if np.any(run >= goal)]
    return min(speeds)[1]


@equation("izmailov2016", "u5.1-batch-size")
def batch_size_rule(name: str, n: int) -> int:
    """Batch size of the stochastic baseline: izmailov2016, section 5.1.

    50 for german and svmguide, about n/100 for others.

    Parameters
    ----------
    name : str                data set
    n : int                   size of the training set

    Returns
    -------
    At least 1, at most n
    """
    return min(n, 50 if name.lower() in ("german", "svmguide", "svmguide1") else max(1, round(n / 100)))


@equation("izmailov2016", "u5.1-kmeans")
def kmeans_inducing_points(rng: np.random.Generator, X: Array, n_inducing: int, max_iterations: int = 300) -> Array:
    """Inducing inputs as centres of clusters: izmailov2016, sections 3.1 and 5.1.

    Lloyd's algorithm from n_inducing distinct rows of X chosen at random: each row belongs to its nearest centre,
    each centre moves to the mean of its rows, until no row changes its centre. A centre that lost all its rows takes
    the row farthest from its own centre.

    Parameters
    ----------
    rng : Generator           one permutation of the distinct rows is consumed
    X : (n, d)                inputs
    n_inducing : int          m, at most the number of distinct rows of X
    max_iterations : int      sweeps at most

    Returns
    -------
    Z (m, d)

    Raises
    ------
    ValueError                if n_inducing is above the number of distinct rows, where two centres would be equal
    """
    X = _check.points(X, "X")
    n_inducing = _check.count(n_inducing, "n_inducing")
    max_iterations = _check.count(max_iterations, "max_iterations")
    distinct = np.unique(X, axis=0)
    if n_inducing > len(distinct):
        raise ValueError(
            f"n_inducing: found {n_inducing}, expected at most {len(distinct)}, the number of distinct rows of X"
        )
    Z = distinct[rng.permutation(len(distinct))[:n_inducing]]
    owner = None
    for _ in range(max_iterations):
        # from differences: equal rows are at distance zero exactly
        squares = np.sum((X[:, None, :] - Z[None, :, :]) ** 2, axis=2)
        nearest = np.argmin(squares, axis=1)
        if owner is not None and np.array_equal(nearest, owner):
            break
        owner = nearest
        gap = squares[np.arange(len(X)), owner]
        centres = Z.copy()
        for p in range(n_inducing):
            if np.any(owner == p):
                centres[p] = np.mean(X[owner == p], axis=0)
            else:
                centres[p] = X[np.argmax(gap)]
                gap[np.argmax(gap)] = -1.0
        Z = centres
    return Z


@equation("izmailov2016", "u5.1-kernel-noise")
def kernel_se_with_noise(X1: Array, X2: Array | None, amplitude: float, length: float, noise: float) -> Array:
    """Squared exponential covariance with a Gaussian noise term: izmailov2016, section 5.1 (in words).

        K_ab = σ² exp(-‖x_a - x_b‖²/l²) + noise · 1[a and b are one point]

    Parameters
    ----------
    X1 : (a, d)               points
    X2 : (b, d) or None       other points; None stands for X1 itself, and only then is there noise to add
    amplitude : float         σ
    length : float            l, as printed: √2 lengthscale
    noise : float             variance of the noise, >= 0

    Returns
    -------
    (a, b), or (a, a) if X2 is None
    """
    if X2 is None:
        return kernel_squared_exponential(X1, X1, amplitude, length) + noise * np.eye(len(X1))
    return kernel_squared_exponential(X1, X2, amplitude, length)


@equation("izmailov2016", "u5.1-nupd-nfun")
def default_schedule() -> Schedule:
    """Settings of algorithm 1 in all experiments: izmailov2016, section 5.1.

    n_upd = 3 recomputations of ξ, μ, Σ and at most n_fun = 5 evaluations of the bound and its gradient in each
    iteration.
    """
    return Schedule(3, 5)


@equation("izmailov2016", "u5.1-standardise")
def prepare_dataset(
    X: Array, y_sign: Array, seed: int = 0, X_test: Array | None = None, y_test: Array | None = None
) -> Prepared:
    """Features of mean 0 and variance 1; 20 % for testing where no test set exists: izmailov2016, section 5.1.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels
    seed : int                of the split
    X_test : (t, d) or None   test inputs; None: a fifth of the rows, chosen at random
    y_test : (t,) or None     their labels

    Returns
    -------
    Prepared                  X, y_sign, X_test, y_test

    Raises
    ------
    ValueError                for fewer than two rows without a test set, or test inputs without labels

    Notes
    -----
    Means and variances are those of the training part, so that nothing is learned from the test part; the paper does
    not say. A feature that is constant there is only centred.
    """
    X = _check.points(X, "X")
    if (X_test is None) != (y_test is None):
        raise ValueError("y_test: found a test set without inputs or without labels, expected both or none")
    if X_test is None or y_test is None:
        if len(X) < 2:
            raise ValueError(f"X: found {len(X)} rows, expected at least two to split")
        order = np.random.default_rng(seed).permutation(len(X))
        kept = len(X) - max(1, round(0.2 * len(X)))
        X_test, y_test = X[order[kept:]], y_sign[order[kept:]]
        X, y_sign = X[order[:kept]], y_sign[order[:kept]]
    mean, sd = np.mean(X, axis=0), np.std(X, axis=0)
    scale = np.where(sd > 0.0, sd, 1.0)
    return Prepared((X - mean) / scale, y_sign, (X_test - mean) / scale, y_test)
