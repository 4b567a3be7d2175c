"""The problems that `triad verify` puts to the witnesses, by name: small ones known exactly, and real data.

Every problem is made from embedded data and a fixed seed, so that its name means the same numbers everywhere.
Sizes are chosen so that the truth can be had in seconds: n <= 3 by quadrature, the rest by certified chains.

A problem of several classes comes with four likelihoods, told by the end of its name: multinomial probit (no end),
`-softmax`, `-threshold` (no labelling errors) and `-errors` (threshold, a tenth of the labels drawn at random). All
four have the same data, prior and noise, so they are four models: the multinomial probit adds unit noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation import datasets
from validation.door.problem import Problem
from validation.door.quoting import shown


class Recipe(NamedTuple):
    """How a problem is made, what it is there for, and about how many seconds its checks take."""

    make: Callable[[], Problem]
    purpose: str
    cost: float


def get(name: str) -> Problem:
    """The problem of that name.

    Raises
    ------
    KeyError    with the near misses, if there is none
    """
    if name not in _RECIPES:
        close = get_close_matches(name, _RECIPES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise KeyError(f"problem: found {shown(name)}, expected one of {', '.join(_RECIPES)}{hint}")
    return _made(name)


def names() -> tuple[str, ...]:
    """Names of all problems, in the order in which reports show them."""
    return tuple(_RECIPES)


def purpose(name: str) -> str:
    """One line: what the problem is there to show."""
    get(name)
    return _RECIPES[name].purpose


def cost(name: str) -> float:
    """About how many seconds the checks of a problem take; the runner starts with the longest."""
    return _RECIPES[name].cost if name in _RECIPES else 0.0


def inducing_points(X: NDArray[np.float64], m: int, seed: int) -> NDArray[np.float64]:
    """(m, d) rows of X chosen by k-means++ seeding."""
    distinct = np.unique(X, axis=0)
    if not 1 <= m <= len(distinct):
        raise ValueError(f"m: found {m}, expected 1 to {len(distinct)}, the number of distinct rows of X")
    # here: scikit-learn takes a second to load, and most commands need none of it
    from sklearn.cluster import kmeans_plusplus

    points, _ = kmeans_plusplus(distinct, m, random_state=seed)
    return points


@cache
def _made(name: str) -> Problem:
    return _RECIPES[name].make().replace(name=name)


def _few(n: int, variance: float, noise: float, *, Z: list[float] | None = None) -> Problem:
    """n <= 3 points on a line, both labels: everything about the posterior is a quadrature away."""
    X = np.array([-0.7, 0.4, 1.5])[:n, None]
    return Problem(
        name="few",
        X=X,
        y=np.array([1, 0, 1])[:n],
        n_classes=2,
        likelihood="logit",
        variance=variance,
        lengthscales=0.9,
        noise=noise,
        Z=None if Z is None else np.array(Z)[:, None],
        prior_model="full" if Z is None else "fitc",
        X_test=np.array([[-2.0], [-0.2], [0.9], [4.0]]),
    )


def _toy(
    n: int, d: int, log_variance: float, noise: float, seed: int, m: int | None = None, spread: float = 1.0
) -> Problem:
    """Labels drawn from the model itself."""
    rng = np.random.default_rng(seed)
    X = spread * rng.uniform(-2.0, 2.0, (n, d))
    X_test = spread * rng.uniform(-2.5, 2.5, (12, d))
    variance, lengthscales = np.exp(log_variance), np.linspace(0.8, 1.6, d)
    scaled = X / lengthscales
    K = variance * np.exp(-0.5 * ((scaled[:, None] - scaled[None]) ** 2).sum(-1)) + (noise + 1e-8) * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal(n)
    y = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-f))).astype(int)
    return Problem(
        name="toy",
        X=X,
        y=y,
        n_classes=2,
        likelihood="logit",
        variance=variance,
        lengthscales=lengthscales[None],
        noise=noise,
        Z=None if m is None else inducing_points(X, m, seed),
        prior_model="full" if m is None else "fitc",
        X_test=X_test,
    )


def _real(
    dataset: str,
    pair: tuple[str, str],
    n_train: int,
    n_test: int,
    log_variance: float,
    lengthscale: float,
    noise: float,
    m: int | None = None,
) -> Problem:
    """A binary problem cut from real data: standardised by the training part, seeded split."""
    cut = datasets.load(dataset).binary(*pair)
    rng = np.random.default_rng(20190127)
    order = rng.permutation(len(cut.y))
    train, test = order[:n_train], order[n_train : n_train + n_test]
    X, X_test = datasets.standardise(cut.X[train], cut.X[test])
    # some features of digits never change; without them the rest keeps its meaning and d says how many count
    varying = X.std(axis=0) > 0.0
    X, X_test = X[:, varying], X_test[:, varying]
    return Problem(
        name=dataset,
        X=X,
        y=cut.y[train],
        n_classes=2,
        likelihood="logit",
        variance=np.exp(log_variance),
        lengthscales=lengthscale * np.sqrt(X.shape[1]),
        noise=noise,
        Z=None if m is None else inducing_points(X, m, seed=1),
        prior_model="full" if m is None else "fitc",
        X_test=X_test,
        y_test=cut.y[test],
    )


def _few_classes(log_variance: float, noise: float) -> Problem:
    """Two points of two classes out of three, each latent with parameters of its own: quadrature knows all."""
    return Problem(
        name="few",
        X=np.array([[-0.6], [0.5]]),
        y=np.array([2, 0]),
        n_classes=3,
        likelihood="multinomial-probit",
        variance=np.exp(log_variance) * np.array([1.0, 0.6, 1.5]),
        lengthscales=np.array([[0.9], [1.3], [0.7]]),
        noise=noise * np.array([1.0, 1.0, 2.0]),
        X_test=np.array([[-1.8], [0.1], [2.5]]),
    )


def _few_sparse() -> Problem:
    """The same two points given two inducing values a class, at places of the class's own."""
    Z = np.array([[[-0.9], [0.3]], [[-0.4], [1.1]], [[-0.2], [0.7]]])
    return _few_classes(1.5, 0.2).replace(Z=Z, jitter=1e-4, prior_model="fitc")


def _toy_classes(
    n: int, n_classes: int, d: int, log_variance: float, noise: float, seed: int, m: int | None = None
) -> Problem:
    """Labels drawn from the multinomial probit itself: the largest of C latent values with unit noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d))
    X_test = rng.uniform(-2.5, 2.5, (8, d))
    variance, lengthscales = np.exp(log_variance), np.linspace(0.9, 1.4, d)
    scaled = X / lengthscales
    K = variance * np.exp(-0.5 * ((scaled[:, None] - scaled[None]) ** 2).sum(-1)) + (noise + 1e-8) * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal((n, n_classes))
    return Problem(
        name="toy",
        X=X,
        y=np.argmax(f + rng.standard_normal(f.shape), axis=1),
        n_classes=n_classes,
        likelihood="multinomial-probit",
        variance=variance,
        lengthscales=lengthscales,
        noise=noise,
        Z=None if m is None else inducing_points(X, m, seed),
        shared=True,
        prior_model="full" if m is None else "fitc",
        X_test=X_test,
    )


def _real_classes(
    dataset: str, n_train: int, n_test: int, log_variance: float, lengthscale: float, noise: float
) -> Problem:
    """A problem of all classes of real data: standardised by the training part, seeded split."""
    data = datasets.load(dataset)
    order = np.random.default_rng(20190127).permutation(len(data.y))
    train, test = order[:n_train], order[n_train : n_train + n_test]
    X, X_test = datasets.standardise(data.X[train], data.X[test])
    return Problem(
        name=dataset,
        X=X,
        y=data.y[train],
        n_classes=len(np.unique(data.y)),
        likelihood="multinomial-probit",
        variance=np.exp(log_variance),
        lengthscales=lengthscale * np.sqrt(X.shape[1]),
        noise=noise,
        shared=True,
        X_test=X_test,
        y_test=data.y[test],
    )


# labelling errors of the problems whose names end in -errors: one label in ten is drawn at random
ERRORS = 0.1

_LIKELIHOODS = {
    "": ("multinomial-probit", 0.0, "multinomial probit"),
    "-softmax": ("softmax", 0.0, "softmax"),
    "-threshold": ("threshold", 0.0, "threshold"),
    "-errors": ("threshold", ERRORS, f"threshold with labelling errors {ERRORS:g}"),
}


_THRESHOLD = ("-threshold", "-errors")


def _classes(
    name: str, make: Callable[[], Problem], purpose: str, cost: float, ends: tuple[str, ...] = tuple(_LIKELIHOODS)
) -> dict[str, Recipe]:
    """The problem of this name with each likelihood of several classes, or those whose ends are given."""

    def variant(likelihood: str, epsilon: float) -> Callable[[], Problem]:
        return lambda: make().replace(likelihood=likelihood, epsilon=epsilon)

    return {
        name + end: Recipe(variant(likelihood, epsilon), f"{purpose}; {words}", cost)
        for end, (likelihood, epsilon, words) in _LIKELIHOODS.items()
        if end in ends
    }


_RECIPES: dict[str, Recipe] = {
    "two-points": Recipe(lambda: _few(2, 2.0, 0.0), "two data, full GP: quadrature knows all", 5.0),
    "three-points": Recipe(lambda: _few(3, np.exp(4.0), 0.3), "three data at log variance 4, with noise", 12.0),
    "three-points-fitc": Recipe(
        lambda: _few(3, np.exp(2.0), 0.2, Z=[-1.0, 1.2]), "three data given two inducing values: the FITC prior", 5.0
    ),
    "toy": Recipe(lambda: _toy(24, 1, 1.0, 0.1, seed=4), "drawn from the model, log variance 1", 10.0),
    "toy-probit": Recipe(
        lambda: _toy(24, 1, 1.0, 0.1, seed=4).replace(likelihood="probit"), "toy with the probit link", 2.0
    ),
    "toy-steep": Recipe(lambda: _toy(24, 2, 4.0, 0.05, seed=5), "drawn from the model, log variance 4", 3.0),
    "toy-sparse": Recipe(
        lambda: _toy(60, 2, 2.5, 0.05, seed=6, m=8), "drawn from the model, log variance 2.5, 8 inducing points", 3.0
    ),
    "toy-spread": Recipe(
        lambda: _toy(16, 3, 2.0, 0.0, seed=7, spread=3.0), "points far apart, no noise: K_XX is well conditioned", 2.0
    ),
    "iris": Recipe(
        lambda: _real("iris", ("versicolor", "virginica"), 60, 40, 1.0, 1.0, 0.01),
        "iris, versicolor against virginica: overlapping classes, full GP",
        4.0,
    ),
    "wine": Recipe(
        lambda: _real("wine", ("class_0", "class_1"), 90, 40, 2.0, 2.0, 0.05, m=15),
        "wine, class 0 against 1: 13 features, 15 inducing points",
        4.0,
    ),
    "digits": Recipe(
        lambda: _real("digits", ("3", "8"), 120, 150, 4.0, 2.0, 0.1, m=24),
        "digits, 3 against 8: 52 features, log variance 4",
        6.0,
    ),
    "breast-cancer": Recipe(
        lambda: _real("breast_cancer", ("malignant", "benign"), 300, 169, 2.0, 2.0, 0.05, m=24),
        "breast cancer: 30 features, 300 patients, 24 inducing points",
        8.0,
    ),
    "iris-steep": Recipe(
        lambda: _real("iris", ("versicolor", "virginica"), 70, 30, 5.0, 0.5, 0.2),
        "iris at log variance 5: where chains mix slowly",
        60.0,
    ),
    "breast-cancer-full": Recipe(
        lambda: _real("breast_cancer", ("malignant", "benign"), 120, 169, 2.0, 1.0, 0.05),
        "breast cancer without inducing points, 120 patients",
        90.0,
    ),
    **_classes("two-points-3", lambda: _few_classes(0.5, 0.1), "two data, three classes: quadrature knows all", 3.0),
    **_classes(
        "two-points-3-steep", lambda: _few_classes(4.0, 0.3), "two data, three classes, log variance 4 and above", 3.0
    ),
    **_classes("toy-3", lambda: _toy_classes(30, 3, 2, 1.0, 0.1, seed=8), "three classes drawn from the model", 5.0),
    **_classes("toy-4-steep", lambda: _toy_classes(30, 4, 2, 4.0, 0.2, seed=13), "four classes at log variance 4", 8.0),
    **_classes(
        "toy-3-sparse",
        lambda: _toy_classes(36, 3, 2, 2.0, 0.1, seed=10, m=6),
        "three classes given 6 inducing points: the FITC prior",
        6.0,
    ),
    **_classes(
        "two-points-3-sparse",
        _few_sparse,
        "two data, three classes, two inducing values each: quadrature knows all",
        20.0,
        _THRESHOLD,
    ),
    **_classes(
        "toy-2-sparse",
        lambda: _toy_classes(20, 2, 1, 1.0, 0.3, seed=15, m=4),
        "two classes given 4 inducing points: FITC where pairs of classes are all there is",
        8.0,
        _THRESHOLD,
    ),
    **_classes(
        "toy-4-sparse-steep",
        lambda: _toy_classes(24, 4, 2, 4.0, 0.2, seed=14, m=6),
        "four classes at log variance 4 given 6 inducing points",
        6.0,
        _THRESHOLD,
    ),
    **_classes("iris-3", lambda: _real_classes("iris", 60, 40, 2.0, 1.0, 0.05), "iris, all three species", 8.0),
}
