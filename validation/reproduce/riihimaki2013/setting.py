"""What the experiments of riihimaki2013 share: data cut as in the paper, problems at log σ² and log l, methods."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation import datasets
from validation.datasets.dataset import Dataset
from validation.datasets.splits import standardise, train_test_split
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import solve

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

THREE_DIGITS = "usps-357"
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "nested-ep": "EP",
        "nested-iep": "IEP",
        "qep": "QEP",
        "qiep": "QIEP",
        "vb-probit": "VB",
        "laplace": "LA",
        "laplace-tkp": "LA-TKP",
        "gibbs-probit": "MCMC",
        "mh-softmax": "MCMC (softmax)",
    }
)
_SOFTMAX = ("laplace", "laplace-tkp", "mh-softmax")
_SAMPLERS = ("gibbs-probit", "mh-softmax")
JITTER = 1e-6  # full GPs of up to a thousand near neighbours: keeps Cholesky factors of K apart from rounding


class Parts(NamedTuple):
    """Train and test rows as a method gets them."""

    name: str
    n_classes: int
    X: Array
    y: Labels
    X_test: Array
    y_test: Labels
    notes: tuple[str, ...]  # where this is not the paper's cut


def find(name: str) -> tuple[Dataset, str]:
    """The data set of that name and what is to be said of it; "usps-357" is USPS 3 vs. 5 vs. 7."""
    if name == THREE_DIGITS:
        data = datasets.load("usps").only("3", "5", "7")
    else:
        data = datasets.load(arguments.string(name, "dataset")).without_constant_features()
    if data.n_classes < 2:
        raise ValueError(f"dataset: found {data.n_classes} class in {name}, expected several")
    if name in (THREE_DIGITS, "usps"):
        return data, f"{name}: the paper's parts (Rasmussen and Williams 2006) have no copy at hand: a seeded split"
    return data, ""


def parts(name: str, *, n: int, n_test: int, seed: int, scaled: bool | None = None) -> Parts:
    """One train and one test part of a data set, at most n and n_test rows of them.

    USPS 3 vs. 5 vs. 7 is split into 1157 and 1175 rows, others into halves; `segment` has its official parts. scaled:
    standardise by the training rows; None: all but USPS, whose grey levels in [-1, 1] are what gives log Z near the
    -166 of Fig. 7 (the paper says that it standardises in section 5.5).
    """
    data, note = find(name)
    notes = [note] if note else []
    if name == THREE_DIGITS:
        split = train_test_split(data, seed, test_size=1175)
    elif data.n_train:
        split = train_test_split(data, seed)
    else:
        split = train_test_split(data, seed, test_size=0.5)
    train = split.train[: arguments.integer(n, "n", at_least=4)]
    test = split.test[: arguments.integer(n_test, "n_test", at_least=1)]
    for chosen, of, what in ((train, split.train, "training"), (test, split.test, "test")):
        if chosen.size < of.size:
            notes.append(f"{chosen.size} of {of.size} {what} rows, fewer than the paper's")
    X, X_test = data.X[train], data.X[test]
    if not name.startswith("usps") if scaled is None else scaled:
        X, X_test = standardise(X, X_test)
    return Parts(name, data.n_classes, X, data.y[train], X_test, data.y[test], tuple(notes))


def pose(
    cut: Parts, log_variance: float, log_lengthscale: float, *, training: bool = False, jitter: float = JITTER
) -> Problem:
    """The multinomial probit problem at log σ² and log l; with `training`, the test inputs begin with the data's."""
    X_test = np.vstack([cut.X, cut.X_test]) if training else cut.X_test
    y_test = np.concatenate([cut.y, cut.y_test]) if training else cut.y_test
    return Problem(
        name=f"{cut.name}-{cut.y.size}",
        X=cut.X,
        y=cut.y,
        n_classes=cut.n_classes,
        likelihood="multinomial-probit",
        variance=float(np.exp(log_variance)),
        lengthscales=float(np.exp(log_lengthscale)),
        jitter=jitter,
        X_test=X_test,
        y_test=y_test,
    )


def answer(method: str, problem: Problem, **options: Any) -> Solution:
    """The method's solution of the problem, of its softmax twin where that is the method's likelihood.

    Approximations are those of `fast`, at 1e-8 unless options say otherwise; samplers those of `gibbs`.
    """
    arguments.choice(method, tuple(NAMES), "method")
    if (method in _SOFTMAX) != (problem.likelihood == "softmax"):
        problem = problem.replace(likelihood="softmax" if method in _SOFTMAX else "multinomial-probit")
    if method in _SAMPLERS:
        return solve("gibbs", method, problem, **({"evidence": "none"} if "learn" not in options else {}), **options)
    return solve("fast", method, problem, **({"tolerance": 1e-8, "gradients": False} | options))


def of_labels(solution: Solution, labels: Labels) -> Array:
    """(t,) predictive probabilities of these labels."""
    if solution.probabilities is None:
        raise ValueError(f"{solution.label}: found no class probabilities, expected a problem with X_test")
    return np.asarray(solution.probabilities[np.arange(labels.size), labels])


def mean_log_density(probabilities: Array, labels: Labels) -> float:
    """Mean log predictive density of labels (t,) under probabilities (t, C); -inf where one is zero."""
    with np.errstate(divide="ignore"):
        return float(np.log(probabilities[np.arange(labels.size), labels]).mean())


def chains_note(solution: Solution) -> tuple[str, ...]:
    """What is to be said of a sampler's run."""
    if solution.settings.get("gate", True):
        return ()
    return (f"{solution.label}: gate not met, ESS {solution.ess:.0f}, R-hat {solution.r_hat:.4f}",)
