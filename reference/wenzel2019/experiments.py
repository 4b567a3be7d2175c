"""Section 5: what the experiments use beside the model: Adam, k-means++, measures of prediction, stopping rules."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common.ledger import equation
from reference.wenzel2019.updates import Gaussian

Array = NDArray[np.float64]


class AdamState(NamedTuple):
    """Running averages of Adam."""

    first: Array  # (p,)  of the gradient
    second: Array  # (p,)  of its squares
    steps: int  # taken so far


class AdamStep(NamedTuple):
    """The step to add, and the averages after it."""

    step: Array  # (p,)
    state: AdamState


class Metrics(NamedTuple):
    """Measures of prediction."""

    error: float
    nll: float


class WindowCheck(NamedTuple):
    """A windowed change and whether it is below its threshold."""

    change: float
    converged: bool


@equation("wenzel2019", "u5-adam")
def adam_step(gradient: Array, state: AdamState, learning_rate: float) -> AdamStep:
    """One step of ascent by Adam: wenzel2019, section 5 (by reference), Kingma and Ba (2014), algorithm 1.

        m ← 0.9 m + 0.1 g,   v ← 0.999 v + 0.001 g²,   t ← t + 1
        step = learning_rate · m̂ / (√v̂ + 10⁻⁸),   m̂ = m/(1 - 0.9ᵗ),   v̂ = v/(1 - 0.999ᵗ)

    Parameters
    ----------
    gradient : (p,)           g, of what is maximised
    state : AdamState         first, second (p,) and steps; zeros at the start
    learning_rate : float     largest step of a coordinate, roughly

    Returns
    -------
    AdamStep                  step (p,), to be added; state

    Notes
    -----
    The paper does not say in which coordinates, nor with which settings; here logarithms of variance, lengthscales and
    noise (which keep them positive), Z as it is, and the defaults of Kingma and Ba but for the learning rate.
    """
    first = 0.9 * state.first + 0.1 * gradient
    second = 0.999 * state.second + 0.001 * gradient**2
    count = state.steps + 1
    unbiased = first / (1.0 - 0.9**count), second / (1.0 - 0.999**count)
    return AdamStep(learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8), AdamState(first, second, count))


@equation("wenzel2019", "u5-kmeanspp")
def kmeanspp_inducing_points(rng: np.random.Generator, X: Array, n_inducing: int, max_iterations: int = 0) -> Array:
    """Inducing inputs by k-means++: wenzel2019, section 5 (by reference), Arthur and Vassilvitskii (2007).

    The first centre is a row of X drawn uniformly, each further one a row drawn with probability proportional to its
    squared distance from the nearest centre so far. max_iterations sweeps of Lloyd's algorithm may follow: each centre
    moves to the mean of the rows that are nearest to it.

    Parameters
    ----------
    rng : Generator           n_inducing draws are consumed: one integer, then one choice for each further centre
    X : (n, d)                inputs
    n_inducing : int          m, at most the number of distinct rows of X
    max_iterations : int      sweeps of Lloyd's algorithm after seeding; fewer if no row changes its centre

    Returns
    -------
    Z (m, d)

    Raises
    ------
    ValueError                if n_inducing is above the number of distinct rows, where two centres would be equal

    Notes
    -----
    "Initialized via k-means++" may mean the seeding alone, which is the default, or the clustering that starts from it.
    """
    X = _check.points(X, "X")
    n_inducing = _check.count(n_inducing, "n_inducing")
    if max_iterations != 0:
        max_iterations = _check.count(max_iterations, "max_iterations")
    Z = X[rng.integers(len(X))][None]
    for _ in range(n_inducing - 1):
        nearest = np.min(_squared_distances(X, Z), axis=1)
        total = np.sum(nearest)
        if total == 0.0:
            raise ValueError(
                f"n_inducing: found {n_inducing}, expected at most {len(Z)}, the number of distinct rows of X"
            )
        Z = np.vstack([Z, X[rng.choice(len(X), p=nearest / total)]])
    owner = None
    for _ in range(max_iterations):
        closest = np.argmin(_squared_distances(X, Z), axis=1)
        if owner is not None and np.array_equal(closest, owner):
            break
        owner = closest
        # a centre that lost all its rows stays where it is
        Z = np.array([np.mean(X[owner == p], axis=0) if np.any(owner == p) else Z[p] for p in range(n_inducing)])
    return Z


def _squared_distances(X: Array, Z: Array) -> Array:
    """(n, m), from differences: equal rows are at distance zero exactly."""
    return np.sum((X[:, None, :] - Z[None, :, :]) ** 2, axis=2)


@equation("wenzel2019", "u5.2-metrics")
def prediction_metrics(probability: Array, y_sign: Array) -> Metrics:
    """Test error and negative test log-likelihood: wenzel2019, section 5.2 (in words).

        error = (1/t) Σ_i 1[y_i ≠ ŷ_i],  ŷ_i = +1 where p_i > ½, else -1
        nll   = -(1/t) Σ_i log p(y_i),   p(+1) = p_i, p(-1) = 1 - p_i

    Parameters
    ----------
    probability : (t,)        p_i = p(y_i = +1) of (14), in [0, 1]
    y_sign : (t,)             labels, -1 or +1

    Returns
    -------
    Metrics                   error in [0, 1]; nll in nats a test point, infinite where a label had probability 0

    Raises
    ------
    ValueError                for no test point, other labels, probabilities outside [0, 1]

    Notes
    -----
    Sum or mean is not said; the sizes in table 1 are those of a mean. p_i = ½ counts as a prediction of -1.
    """
    probability = _check.array(probability, "probability", 1)
    if not (len(probability) > 0 and np.all((probability >= 0.0) & (probability <= 1.0))):
        raise ValueError(f"probability: found {probability}, expected at least one number, all in [0, 1]")
    y_sign = _check.labels(y_sign, len(probability))
    of_label = np.where(y_sign > 0.0, probability, 1.0 - probability)
    predicted = np.where(probability > 0.5, 1.0, -1.0)
    with np.errstate(divide="ignore"):  # log 0 = -inf is meant
        nll = -float(np.mean(np.log(of_label)))
    return Metrics(float(np.mean(predicted != y_sign)), nll)


@equation("wenzel2019", "u5.2-stop-params")
def parameter_change(new: Gaussian, old: Gaussian) -> float:
    """How far one step moved the global parameters; see `converged_parameters`.

        max over μ and Σ of  max|new - old| / max(1, max|new|)

    Parameters
    ----------
    new : Gaussian            inducing_mean (m,), inducing_cov (m, m) after the step
    old : Gaussian            before it
    """
    return max(
        float(np.max(np.abs(after - before))) / max(1.0, float(np.max(np.abs(after))))
        for after, before in zip(new, old, strict=True)
    )


@equation("wenzel2019", "u5.2-stop-params")
def converged_parameters(changes: Sequence[float], window: int = 5, threshold: float = 1e-4) -> WindowCheck:
    """Stopping by the global parameters: wenzel2019, section 5.2 (in words).

    The mean of the last `window` changes of the global parameters, one a step, is below the threshold.

    Parameters
    ----------
    changes : (r,)            change of each step so far, `parameter_change`
    window : int              length of the sliding window
    threshold : float         10⁻⁴ in the paper

    Returns
    -------
    WindowCheck               change (infinite for fewer steps than the window), converged

    Notes
    -----
    The paper does not say which parameters (here μ and Σ), what is averaged (here the change, not the parameters), in
    which norm (here the largest entry, relative to the array's largest if that is above 1), nor how long the window is
    (here 5, as for the hold-out rule).
    """
    if len(changes) < window:
        return WindowCheck(np.inf, False)
    average = float(np.mean(changes[-window:]))
    return WindowCheck(average, average < threshold)


@equation("wenzel2019", "u5.2-stop-holdout")
def converged_holdout(scores: Sequence[float], window: int = 5, threshold: float = 1e-3) -> WindowCheck:
    """Stopping by prediction on a hold-out set: wenzel2019, section 5.2 (in words).

    The mean of the last `window` scores differs from the mean of the `window` scores before by less than the threshold.

    Parameters
    ----------
    scores : (r,)             hold-out scores in order, such as the negative log-likelihood
    window : int              5 in the paper
    threshold : float         10⁻³ in the paper

    Returns
    -------
    WindowCheck               change (infinite for fewer than 2 window scores), converged

    Notes
    -----
    "A sliding window average of size 5 and threshold 10⁻³" does not say what is compared. Here two windows that do not
    overlap; comparing windows one score apart would divide the change by five.
    """
    if len(scores) < 2 * window:
        return WindowCheck(np.inf, False)
    change = abs(float(np.mean(scores[-window:])) - float(np.mean(scores[-2 * window : -window])))
    return WindowCheck(change, change < threshold)
