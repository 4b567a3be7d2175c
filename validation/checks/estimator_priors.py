"""The densities that classifiers may put on what they learn, by docs/classifiers.md, and where one learns under them.

The weak one, of logarithms: variance around 10 link variances, factor e^1.5; noise around a tenth of it, factor e^1.5;
lengthscales are the median distance of two rows times a common factor, e^1, times one of each, e^.5. In the threshold
model the link's variance is the noise: median 1/10, and both factors are e^(1.5/sqrt 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.estimator_settings import ENTRIES, Entry, data
from validation.problem import Problem

Array = NDArray[Any]
# riihimaki2013, section 5.5: half-Student-t with 4 degrees of freedom, "variance equal to one hundred"
DF, SCALE = 4.0, 10.0
SIGNAL, DEVIATION, COMMON, EACH = 10.0, 1.5, 1.0, 0.5
_LOOKED_AT = 1000  # rows that distances are taken of


def link_of(entry: Entry) -> str:
    """What decides between labels beside the latent functions."""
    if entry.family == "classes":
        return "threshold"
    if entry.method == "laplace":
        return "softmax"
    return "probit" if entry.family == "full" or entry.method in ("svgpc", "epgpc") else "logit"


def link_variance(link: str) -> float:
    """Of the logistic, normal and Gumbel's distribution; in the threshold model the noise stands for it: its median."""
    return {"logit": np.pi**2 / 3.0, "probit": 1.0, "softmax": np.pi**2 / 6.0, "threshold": 0.1}[link]


def median_lengthscales(X: Array) -> Array:
    """s_j times the median over pairs of unequal rows of |z - z'|, z_j = x_j / s_j; s_j = 1 where nothing varies."""
    # moved and scaled by powers of two, which is exact, so that the sum of squares stays in range
    size = np.exp2(np.round(np.log2(np.maximum(np.abs(X).max(axis=0), 1e-300))))
    spread = np.sqrt(((X / size - (X / size).mean(axis=0)) ** 2).mean(axis=0)) * size
    spread[np.ptp(X, axis=0) == 0.0] = 1.0
    squares = sum((z[:, None] - z) ** 2 for z in (X / spread).T)
    distances = np.sqrt(squares[squares > 0.0])  # each pair twice, which moves no median
    return spread * (np.median(distances) if distances.size else np.sqrt(2.0 * X.shape[1]))


def looked_at(n: int, seed: int) -> Array:
    """Rows that median distances are taken of: all, or one of each of a thousand strides."""
    if n <= _LOOKED_AT:
        return np.arange(n)
    edges = (np.arange(_LOOKED_AT + 1) * n) // _LOOKED_AT
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def asked_hyperprior(entry: Entry, given: Any, lengthscales: Array, X: Array) -> Any:
    """Distributions and readings that a classifier should ask its method for; lengthscales (d,), where it starts."""
    if given is None:
        return None
    distributions: Mapping[str, Any]
    if given == "weak":
        typical = median_lengthscales(X[looked_at(len(X), 0)])  # a start given says nothing of what is typical
        distributions, reading = _weak(link_of(entry), typical), "log"
    elif isinstance(given, str):
        units: Any = {"half-student-t": lengthscales, "half-student-t-absolute": 1.0}[given]
        distribution = ("half-student-t", DF, SCALE)
        distributions, reading = (
            {"variance": distribution, "noise": distribution, "lengthscales": (*distribution[:2], SCALE * units)},
            "value",
        )
    else:
        distributions, reading = given, "value"
    from fast.core.hyperprior import Hyperprior  # a container of distributions: what it is made of is the judge's

    return Hyperprior(distributions, map_density=reading).checked(X.shape[1])


def _weak(link: str, typical: Array) -> Mapping[str, Any]:
    of_link, alone = link_variance(link), link == "threshold"
    deviation = DEVIATION / np.sqrt(2.0) if alone else DEVIATION
    return {
        "variance": ("log-normal", deviation, SIGNAL * of_link),
        "noise": ("log-normal", deviation, of_link if alone else 0.1 * of_link),
        "lengthscales": ("tied-log-normal", (COMMON, EACH), typical),
    }


def log_density(link: str, learned: Iterable[str], hyper: Any, typical: Array) -> float:
    """Log density of logarithms under the weak prior, by SciPy's normal distributions; hyper: of one function."""
    of_link, alone, total = link_variance(link), link == "threshold", 0.0
    deviation = DEVIATION / np.sqrt(2.0) if alone else DEVIATION
    for field in learned:
        if field == "variance":
            total += float(norm.logpdf(np.log(hyper["variance"]), np.log(SIGNAL * of_link), deviation))
        elif field == "noise":
            median = of_link if alone else 0.1 * of_link
            total += float(norm.logpdf(np.log(hyper["noise"]), np.log(median), deviation))
        else:
            logs = np.log(hyper["lengthscales"] / typical)
            covariance = EACH**2 * np.eye(logs.size) + COMMON**2
            total += float(multivariate_normal.logpdf(logs, np.zeros(logs.size), covariance))
    return total


# -- the end of learning -----------------------------------------------------------------------------------------------

_AT = {  # tolerance on the derivative in a logarithm at which each search ends, and what else of it is known
    "x-gpc": (1e-3, "1e-5, or where the objective gains 1e-13 of itself: derivatives of 1e-4 at curvatures near 1"),
    "epgpc": (1e-3, "1e-5, or where the objective gains 1e-13 of itself: derivatives of 1e-4 at curvatures near 1"),
    "vi-jj-full": (1e-2, "a step that gains 1e-7 of the objective, some 20 nats: derivatives of 2e-3"),
    "laplace": (1e-2, "1e-3 where the search ends, 120 latent values to 1e-4 of theirs there: 1e-2 if all errors add"),
    "nested-ep": (1e-2, "1e-3 where the search ends, 120 sites to 1e-4 of theirs there: 1e-2 if all errors add"),
    "gfitc": (0.1, "1e-2 where the search ends, 80 factors to 1e-2 of theirs there, whose errors add as their root"),
}
_LIKELIHOOD = {"laplace": "softmax", "nested-ep": "multinomial-probit", "gfitc": "threshold"}


def optimum(entry: Entry, context: Context) -> Iterable[Outcome]:
    """Derivatives of the other witness's evidence and of the judge's density where the classifier ended."""
    problem = data(entry.n_classes, n=40)
    limit, why = _AT[entry.method]
    link, typical = link_of(entry), median_lengthscales(problem.X)
    names = ("variance", "lengthscales", "noise") if entry.family == "classes" else ("variance", "lengthscales")
    for learn in (names, tuple("scale" if name == "lengthscales" else name for name in names)):
        given: dict[str, Any] = {"learn": learn, "random_state": 0, "max_iter": 200}
        if entry.family != "full":
            given["inducing_points"] = problem.X[::5]
        if entry.family == "classes":
            given["shared"] = True
        with patch("fast.estimators._base.ROW_WORTH", 0.0):  # to where the search ends, not where rows would not tell
            model = entry.cls(**given).fit(problem.X, problem.labels)
        one = next(iter(model.hyper_.values()))
        at = {field: np.asarray(getattr(one, field)) for field in names}
        apart = abs(float(model.log_hyperprior_) - log_density(link, names, at, typical))
        yield Compared(apart, 1e-9, "log density of what was learned", "fast", "scipy.stats", "nat")
        binary = entry.n_classes == 2
        posed = Problem(
            name=f"{entry.name} where it ended", X=problem.X, y=problem.codes, n_classes=entry.n_classes,
            likelihood=link if binary else _LIKELIHOOD[entry.method], variance=one.variance,
            lengthscales=one.lengthscales, noise=one.noise, jitter=1e-6, shared=not binary,
            Z=None if entry.family == "full" else problem.X[::5],
            prior_model="fitc" if entry.method in ("epgpc", "gfitc") else "full",
        )  # fmt: skip
        method = "vi-jj" if entry.method == "vi-jj-full" else entry.method
        gradients = context.solve("reference", method, posed).gradients
        assert gradients is not None
        derivatives = []
        for name in learn:
            field = "lengthscales" if name == "scale" else name
            by_evidence = np.ravel(np.asarray(gradients[field])[0] * at[field])
            by_density = _differences(link, names, at, typical, field)
            both = by_evidence + by_density
            derivatives.append(np.abs(both.sum() if name == "scale" else both).max())
        yield Compared(
            float(max(derivatives)), limit, f"{why}; {', '.join(learn)} learned, variance {one.variance:.3g}",
            "fast", "reference", "largest entry of the gradient in a logarithm, nat",
        )  # fmt: skip


def _differences(link: str, names: Iterable[str], at: Mapping[str, Array], typical: Array, field: str) -> Array:
    """Central differences of the density in the logarithms of a field; step 1e-5 of a quadratic: rounding alone."""
    size = at[field].size

    def total(move: Array) -> float:
        return log_density(link, names, {**at, field: at[field] * np.exp(move).reshape(at[field].shape)}, typical)

    moves = 1e-5 * np.eye(size)
    return np.array([(total(move) - total(-move)) / 2e-5 for move in moves])


def _register(entry: Entry) -> None:
    @check(
        f"identity/{entry.method}/classifier_optimum",
        paper=entry.paper,
        question="Has the other witness zero gradient of evidence and documented prior where a classifier ends?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return list(optimum(entry, context))


for _entry in ENTRIES:
    if _entry.method in _AT:
        _register(_entry)
