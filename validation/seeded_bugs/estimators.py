"""Bugs of the classifiers: what they hand on to their methods, and what they make of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from validation.seeded_bugs._seeded import Seeds

seeded = Seeds(problems="*")

_BASE = "fast.estimators._base:GPClassifier"


def _without(original: Any, name: str) -> Any:
    def options(self: Any) -> Any:
        return {key: value for key, value in original(self).items() if key != name}

    return options


def _per_row(original: Any) -> Any:
    def keep(self: Any, fitted: Any) -> None:
        original(self, fitted._replace(log_evidence=fitted.log_evidence / 30.0))

    return keep


def _first_seed(original: Any) -> Any:
    def rng(self: Any) -> Any:
        import numpy as np

        return np.random.RandomState(0)

    return rng


def _untied(original: Any) -> Any:
    def log_hyperprior(
        name: str, value: Any, distribution: Any, *, prior_on: str = "field", map_density: str = "value"
    ) -> Any:
        import numpy as np

        correct = original(name, value, distribution, prior_on=prior_on, map_density=map_density)
        if distribution[0] != "tied-log-normal":
            return correct
        return correct._replace(derivative=-np.log(np.asarray(value) / distribution[2]) / distribution[1][1] ** 2)

    return log_hyperprior


def _of_values(original: Any) -> Any:
    def weak(lengthscales: Any, link: str) -> Any:
        from dataclasses import replace

        return replace(original(lengthscales, link), map_density="value")

    return weak


FAULTS = (
    seeded(
        "x-gpc",
        "classifier-columns-reversed",
        "columns of predict_proba are in the reverse of the order of classes_",
        f"{_BASE}.predict_proba",
        lambda original: lambda self, X: original(self, X)[:, ::-1],
        "classifier/x-gpc/*",
    ),
    seeded(
        "ep",
        "classifier-columns-by-code",
        "columns of three classes move on by one",
        f"{_BASE}.predict_proba",
        lambda original: lambda self, X: original(self, X)[:, [1, 2, 0]],
        "classifier/ep/*",
    ),
    seeded(
        "svgpc",
        "classifier-odds-of-the-first",
        "decision_function is the log odds of the first label",
        f"{_BASE}.decision_function",
        lambda original: lambda self, X: -original(self, X),
        "classifier/svgpc/*",
    ),
    seeded(
        "vi-jj",
        "classifier-odds-in-bits",
        "decision_function counts in bits",
        f"{_BASE}.decision_function",
        lambda original: lambda self, X: original(self, X) / 0.6931471805599453,
        "classifier/vi-jj/*",
    ),
    seeded(
        "ep",
        "classifier-damping-not-handed-on",
        "the classifier keeps damping to itself",
        "fast.estimators.villacampa2017:EPClassifier._options",
        lambda original: _without(original, "damping"),
        "classifier/ep/*",
    ),
    seeded(
        "vi-taylor",
        "classifier-smoothness-not-handed-on",
        "the classifier has a squared exponential kernel whatever the smoothness",
        "fast.estimators.izmailov:_StagedClassifier._prior",
        lambda original: lambda self, start: replace(original(self, start), smoothness=None),
        "classifier/vi-taylor/*",
    ),
    seeded(
        "x-gpc",
        "total-samples-ignored",
        "partial_fit counts the rows it has seen, whatever total_samples says",
        f"{_BASE}._checked_total",
        lambda original: lambda self, total_samples, n_rows: None,
        "classifier/x-gpc/*",
    ),
    seeded(
        "sep",
        "total-samples-ignored",
        "partial_fit counts the rows it has seen, whatever total_samples says",
        f"{_BASE}._checked_total",
        lambda original: lambda self, total_samples, n_rows: None,
        "classifier/sep/*",
    ),
    seeded(
        "gfitc",
        "classifier-evidence-of-a-row",
        "log_evidence_ is the log evidence of a row",
        f"{_BASE}._keep",
        _per_row,
        "classifier/gfitc/*",
    ),
    seeded(
        "apep",
        "random-state-ignored",
        "random_state does not reach the order of the rows",
        f"{_BASE}._rng",
        _first_seed,
        "classifier/apep/*",
    ),
    *(
        seeded(
            method,
            "untied-lengthscales",
            "lengthscales are pulled to their medians one by one, as if they had no common factor",
            "fast.core.hyperprior:log_hyperprior",
            _untied,
            f"classifier/{method}/*",
        )
        for method in ("x-gpc", "gfitc")
    ),
    *(
        seeded(
            method,
            "prior-of-values",
            "the weak prior is a density of values and not of their logarithms",
            "fast.estimators._hyper:weak",
            _of_values,
            f"classifier/{method}/*",
        )
        for method in ("epgpc", "laplace")
    ),
)
