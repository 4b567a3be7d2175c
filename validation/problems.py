"""The problems that `triad verify` puts to the witnesses, by name: small ones known exactly, and real data.

Every problem is made from embedded data and a fixed seed, so that its name means the same numbers everywhere.
Sizes are chosen so that the truth can be had in seconds: n <= 3 by quadrature, the rest by certified chains.

`names` lists them. `judged` lists more, which `triad judge` alone poses: small ones with a feature that no small one
with a truth has (jitter, a Matérn kernel, more rows than a batch, probabilities near 0).

A problem of several classes comes with four likelihoods, told by the end of its name: multinomial probit (no end),
`-softmax`, `-threshold` (no labelling errors) and `-errors` (threshold, a tenth of the labels drawn at random). All
four have the same data, prior and noise, so they are four models: the multinomial probit adds unit noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation import datasets
from validation.door.problem import BINARY_LIKELIHOODS, Problem
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
    if name not in _RECIPES | _JUDGED:
        close = get_close_matches(name, _RECIPES | _JUDGED, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise KeyError(f"problem: found {shown(name)}, expected one of {', '.join(_RECIPES)}{hint}")
    return _made(name)


def names() -> tuple[str, ...]:
    """Names of all problems, in the order in which reports show them."""
    return tuple(_RECIPES)


def judged() -> tuple[str, ...]:
    """Names of the problems that `triad judge` alone poses: no truth of theirs is known."""
    return tuple(_JUDGED)


def purpose(name: str) -> str:
    """One line: what the problem is there to show."""
    get(name)
    return (_RECIPES | _JUDGED)[name].purpose


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
    return (_RECIPES | _JUDGED)[name].make().replace(name=name)


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


# -- posed by the judge alone ------------------------------------------------------------------------------------------


def _feature(n: int, likelihood: str, *, seed: int, n_classes: int = 2, m: int | None = None, **fields: Any) -> Problem:
    """Labels of latent functions drawn from the prior, anew until each class has two; lengthscales differ.

    fields    of the problem; `log_variance` in place of the variance, `wide` times the lengthscales, `t` test points
    """
    rng = np.random.default_rng(seed)
    L, t = 1 if likelihood in BINARY_LIKELIHOODS else n_classes, fields.pop("t", 6)
    X, X_test = rng.uniform(-2.0, 2.0, (n, 2)), rng.uniform(-2.0, 2.0, (t, 2))
    by_class = np.linspace(1.0, 1.5, L)  # each class has parameters of its own
    lengthscales = fields.pop("wide", 1.0) * by_class[:, None] * np.array([0.9, 1.6])
    scaled = X / lengthscales[0]
    K = np.exp(-0.5 * ((scaled[:, None] - scaled[None]) ** 2).sum(-1)) + 1e-8 * np.eye(n)
    root, y = np.linalg.cholesky(K), np.zeros(n, dtype=int)
    while np.bincount(y, minlength=n_classes).min() < 2:
        f = root @ rng.standard_normal((n, L)) + np.sqrt(fields.get("noise", 0.0)) * rng.standard_normal((n, L))
        y = np.argmax(f, axis=1) if L > 1 else (f[:, 0] > 0.0).astype(int)
    if m is not None:
        points = inducing_points(X, m, seed)
        fields |= {"Z": points + 0.1 * rng.standard_normal((L, m, 2)), "prior_model": "fitc"}
    return Problem(
        name="feature",
        X=X,
        y=y,
        n_classes=n_classes,
        likelihood=likelihood,
        variance=np.round(np.exp(fields.pop("log_variance", 1.0)) * by_class, 6),  # one number on every machine
        lengthscales=lengthscales,
        X_test=X_test,
        **fields,
    )


_SOFT = {"noise": 0.3, "jitter": 1e-3}
_STEEP = {"log_variance": 6.0, "wide": 1.2, "t": 20}
_ROUGH = {"kernel": "matern", "noise": 0.1}

# end of the name -> number of rows, seed, fields of `_feature`, purpose
_FEATURES: dict[str, tuple[int, int, dict[str, Any], str]] = {
    "plain": (20, 3, _STEEP, "no noise, no jitter, log variance 6: probabilities near 0"),
    "jitter": (14, 9, {"noise": 0.3, "jitter": 1e-2}, "noise and jitter"),
    "matern": (12, 2, _ROUGH | {"smoothness": 2.5, "jitter": 1e-2}, "Matérn kernel of order 5/2, noise and jitter"),
    "rows": (130, 4, {"noise": 0.1, "t": 130}, "more rows, at test points too, than a batch has"),
    "sparse": (14, 5, _SOFT | {"m": 5}, "5 inducing points, noise and jitter"),
    "sparse-plain": (20, 6, _STEEP | {"m": 6}, "6 inducing points, no noise, no jitter, probabilities near 0"),
    "sparse-matern": (12, 7, _ROUGH | {"smoothness": 1.5, "m": 5}, "5 inducing points, Matérn kernel of order 3/2"),
    "sparse-rows": (130, 8, {"noise": 1.0, "t": 130, "m": 6}, "6 inducing points, more rows than a batch has"),
}


def _judged() -> dict[str, Recipe]:
    """Every feature with every likelihood that methods take with such points, and numbers of classes beside three."""

    def recipe(likelihood: str, epsilon: float, n_classes: int, end: str) -> Recipe:
        n, seed, fields, purpose = _FEATURES[end]
        given = fields | {"n_classes": n_classes, "epsilon": epsilon}
        return Recipe(lambda: _feature(n, likelihood, seed=seed + n_classes, **given), f"{purpose}; {likelihood}", 1.0)

    results = {}
    for end in _FEATURES:
        for likelihood in BINARY_LIKELIHOODS:
            of_link = "" if likelihood == "logit" else f"-{likelihood}"
            results[f"judge-{end}{of_link}"] = recipe(likelihood, 0.0, 2, end)
    for likelihood_end, (likelihood, epsilon, _) in _LIKELIHOODS.items():
        for end in _FEATURES:
            sparse = end.startswith("sparse")
            if likelihood == ("multinomial-probit" if sparse else "threshold"):  # no method of theirs takes such points
                continue
            results[f"judge-3-{end}{likelihood_end}"] = recipe(likelihood, epsilon, 3, end)
            if end in ("jitter", "sparse"):
                for n_classes in (2, 5):
                    results[f"judge-{n_classes}-{end}{likelihood_end}"] = recipe(likelihood, epsilon, n_classes, end)
    return results


_JUDGED = _judged()
