"""Bugs of the classifiers: what they hand on to their methods, and what they make of the answers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from validation.seeded_bugs._seeded import seeded

_BASE = "fast.estimators._base:GPClassifier"


def _without(original: Any, name: str) -> Any:
    def options(self: Any) -> Any:
        return {key: value for key, value in original(self).items() if key != name}

    return options


def _per_row(original: Any) -> Any:
    def keep(self: Any, fitted: Any) -> None:
        original(self, fitted._replace(log_evidence=fitted.log_evidence / 30.0))

    return keep


def _one_unit(original: Any) -> Any:
    def lengthscales(X: Any, rng: Any) -> Any:
        correct = original(X, rng)
        correct[:] = correct.mean()
        return correct

    return lengthscales


def _unscaled(original: Any) -> Any:
    def inducing(self: Any, X: Any, lengthscales: Any, rng: Any) -> Any:
        return original(self, X, 0.0 * lengthscales + 1.0, rng)

    return inducing


def _first_seed(original: Any) -> Any:
    def rng(self: Any) -> Any:
        import numpy as np

        return np.random.RandomState(0)

    return rng


def _rows_alone(original: Any) -> Any:
    def stand_for(self: Any, n: int) -> None:
        self._source.n = self._n = n

    return stand_for


def _factor_stays(original: Any) -> Any:
    def stand_for(self: Any, observed: Any) -> None:
        from fast.sparse_classes.sep import TiedFactors

        self.run = TiedFactors(observed, self.run.points, self.run.count, self.run.q)
        self.started = True

    return stand_for


def _absolute(original: Any) -> Any:
    def density(self: Any, X: Any, lengthscales: Any) -> Any:
        return original(self, X, 0.0 * lengthscales + 1.0)

    return density


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
        "identity/x-gpc/classifier",
    ),
    seeded(
        "ep",
        "classifier-columns-by-code",
        "columns of three classes move on by one",
        f"{_BASE}.predict_proba",
        lambda original: lambda self, X: original(self, X)[:, [1, 2, 0]],
        "identity/ep/classifier",
    ),
    seeded(
        "svgpc",
        "classifier-odds-of-the-first",
        "decision_function is the log odds of the first label",
        f"{_BASE}.decision_function",
        lambda original: lambda self, X: -original(self, X),
        "identity/svgpc/classifier",
    ),
    seeded(
        "vi-jj",
        "classifier-odds-in-bits",
        "decision_function counts in bits",
        f"{_BASE}.decision_function",
        lambda original: lambda self, X: original(self, X) / 0.6931471805599453,
        "identity/vi-jj/classifier",
    ),
    seeded(
        "ep",
        "classifier-damping-not-handed-on",
        "the classifier keeps damping to itself",
        "fast.estimators.villacampa2017:EPClassifier._options",
        lambda original: _without(original, "damping"),
        "identity/ep/classifier*",
    ),
    seeded(
        "vi-taylor",
        "classifier-smoothness-not-handed-on",
        "the classifier has a squared exponential kernel whatever the smoothness",
        "fast.estimators.izmailov:_StagedClassifier._prior",
        lambda original: lambda self, start: replace(original(self, start), smoothness=None),
        "identity/vi-taylor/classifier",
    ),
    seeded(
        "x-gpc-svi",
        "total-samples-ignored",
        "partial_fit counts the rows it has seen, whatever total_samples says",
        f"{_BASE}._checked_total",
        lambda original: lambda self, total_samples, n_rows: None,
        "identity/x-gpc-svi/brought_batches",
    ),
    seeded(
        "sep",
        "total-samples-ignored",
        "partial_fit counts the rows it has seen, whatever total_samples says",
        f"{_BASE}._checked_total",
        lambda original: lambda self, total_samples, n_rows: None,
        "identity/sep/brought_batches",
    ),
    seeded(
        "x-gpc",
        "default-lengthscale-of-no-input",
        "every input has the mean of the default lengthscales",
        ("fast.kernel.defaults:default_lengthscales", "fast.estimators._base:default_lengthscales"),
        _one_unit,
        ("identity/x-gpc/median_lengthscales", "identity/x-gpc/classifier_starts"),
    ),
    seeded(
        "gfitc",
        "classifier-evidence-of-a-row",
        "log_evidence_ is the log evidence of a row",
        f"{_BASE}._keep",
        _per_row,
        "identity/gfitc/classifier",
    ),
    seeded(
        "epgpc",
        "inducing-points-in-units-of-inputs",
        "inducing points are spread in the units of the inputs, not of the lengthscales",
        f"{_BASE}._inducing",
        _unscaled,
        "identity/epgpc/classifier_starts",
    ),
    seeded(
        "apep",
        "random-state-ignored",
        "random_state does not reach the order of the rows",
        f"{_BASE}._rng",
        _first_seed,
        ("identity/apep/classifier_steps", "identity/apep/classifier_settings"),
    ),
    seeded(
        "svgpc",
        "brought-sites-stay",
        "sites that stood for fewer rows keep their size as the rows grow",
        "fast.one_latent.online:Online._stand_for",
        _rows_alone,
        ("identity/svgpc/brought_batches", "identity/svgpc/brought_after_fit"),
    ),
    seeded(
        "sep",
        "tied-factor-stays",
        "the tied factor of fewer rows keeps its size as the rows grow",
        "fast.sparse_classes.stream:TiedStream._stand_for",
        _factor_stays,
        ("identity/sep/brought_batches", "identity/sep/brought_after_fit"),
    ),
    seeded(
        "x-gpc-svi",
        "refused-batch-leaves-points",
        "inducing points of a batch that is refused stay",
        "fast.one_latent.online:Online.whole",
        lambda original: lambda self: nullcontext(),
        "identity/x-gpc-svi/brought_*",
    ),
    seeded(
        "laplace",
        "hyperprior-in-units-of-inputs",
        "the hyperprior sees lengthscales in the units of the inputs",
        "fast.estimators._hyper:HyperLearning._density_of",
        _absolute,
        "identity/laplace/classifier_settings",
    ),
    *(
        seeded(
            method,
            "untied-lengthscales",
            "lengthscales are pulled to their medians one by one, as if they had no common factor",
            "fast.core.hyperprior:log_hyperprior",
            _untied,
            f"identity/{method}/classifier_optimum",
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
            (f"identity/{method}/classifier_optimum", f"identity/{method}/classifier_settings"),
        )
        for method in ("epgpc", "laplace")
    ),
)
