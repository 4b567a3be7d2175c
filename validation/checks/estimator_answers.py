"""What a classifier of `fast.estimators` should answer: its method, called without it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fast.core.ending import ending
from validation.checks.estimator_requests import Request, request
from validation.checks.estimator_settings import Entry, difference

Array = NDArray[Any]
# A search goes on while three iterations together gain this many nats a row: docs/classifiers.md, "Defaults"
GAIN, SPAN = 2e-4, 3
NO_GAIN = "further iterations would not change predictions"
_INNER, _END = 1e-4, 1e-8  # full GPs: the method's iteration at each step of a search, and at the best parameters


class Answer(NamedTuple):
    """Everything that a classifier says of itself after training."""

    probabilities: Array
    latent_mean: Array
    latent_var: Array
    log_evidence: Any
    variance: Any
    lengthscales: Array
    noise: Any
    Z: Any
    iterations: int
    converged: bool
    reason: str


def worst(left: NamedTuple, right: NamedTuple) -> tuple[float, str]:
    """The largest difference over all fields, and the name of that field."""
    results = [(difference(a, b), name) for name, a, b in zip(left._fields, left, right, strict=True)]
    return max(results)


def of_classifier(model: Any, X_new: Any) -> Answer:
    """What it says."""
    mean, var = model.latent_mean_and_variance(X_new)
    return Answer(
        model.predict_proba(X_new), mean, var, model.log_evidence_, model.variance_, model.lengthscales_, model.noise_,
        model.inducing_points_, model.n_iter_, model.converged_, model.stop_reason_,
    )  # fmt: skip


# -- the method's own answer -----------------------------------------------------------------------------------------


def direct(entry: Entry, given: Mapping[str, Any], X: Any, codes: Array, X_new: Any) -> Answer:
    """The method itself, with the settings that a classifier would give it."""
    asked = request(entry, given, X, codes)
    with ending(None, worth=GAIN * len(X)):
        if entry.family == "full":
            return _of_full(entry, asked, X_new)
        result = asked.run()
    module = importlib.import_module(asked.module)
    if entry.family == "classes":
        return _of_classes(entry, asked, result, module.predict(result, X_new))
    given_Z = asked.settings["inducing_points"]
    if asked.function == "fit_stochastic":
        steps = asked.settings["max_iter"]
        ended = steps, True, f"{steps} steps made"
        return _answer(module.predict_run(result, X_new), result.hyper, given_Z, module.bound(result, X, codes), *ended)
    if entry.family == "quadratic":
        reason = result.learning.reason if asked.learn else _fixed_point(result.converged)
        ended = result.iterations, result.converged, reason
        return _answer(module.predict(result, X_new), result.prior.hyper, given_Z, result.elbo, *ended)
    if "seed" in asked.options:
        ended = result.iterations, result.converged, result.reason
        if entry.method == "epgpc":
            predicted = _method(entry).predict(result.posterior, X_new)
            return _answer(predicted, result.hyper, result.Z, result.posterior.log_evidence, *ended)
        return _answer(module.predict(result, X_new), result.hyper, result.Z, module.bound(result, X, codes), *ended)
    if asked.learn:
        result, learned = result
        ended = len(learned.trace), learned.converged, learned.reason
    else:
        result = result[0] if entry.family == "adadelta" else result
        ended = result.iterations, result.converged, _fixed_point(result.converged)
    evidence = result.log_evidence if entry.method == "epgpc" else result.elbo
    Z = None if given_Z is None else result.prior.Z
    return _answer(module.predict(result, X_new), result.prior.hyper, Z, evidence, *ended)


def _method(entry: Entry) -> Any:
    return importlib.import_module(f"fast.methods.{entry.modules[0]}")


def followed(entry: Entry, given: Mapping[str, Any], X: Any, codes: Array, X_new: Any) -> list[tuple[Any, ...]]:
    """What a classifier should be after each step of which its method tells; empty if it tells of none.

    Steps, False, "in training", jitter spent, log evidence if the method says it, variance, inducing points and
    probabilities.
    """
    asked = request(entry, given, X, codes)
    results: list[tuple[Any, ...]] = []
    nothing = float("nan")

    def look(progress: Any) -> None:
        count, evidence = progress.iteration, nothing
        if entry.family == "adadelta":
            run = progress.run
            hyper, Z, predicted = run.hyper, asked.settings["inducing_points"], module.predict_run(run, X_new)
            results.append((count, True, "in training", 0.0, evidence, hyper.variance, Z, predicted.probabilities))
            return
        if entry.family == "classes":
            points, evidence = progress.run.points, progress.log_evidence
            hyper, Z, predicted = points.hyper, points.Z, module.predict(SimpleNamespace(run=progress.run), X_new)
        elif entry.method == "epgpc":
            hyper, Z, predicted = progress.run.hyper, progress.run.Z, progress.run.predict(X_new)
        else:
            state = progress.state
            hyper, Z = state.kernel.hyper, state.kernel.Z
            predicted = module.predict(SimpleNamespace(state=state, hyper=hyper, Z=Z), X_new)
        results.append((count, False, "in training", 0.0, evidence, hyper.variance, Z, predicted.probabilities))

    module = importlib.import_module(asked.module)
    if entry.family == "classes" or "seed" in asked.options:
        with ending(None, worth=GAIN * len(X)):
            asked.run(callback=look)
    return results


def _answer(predicted: Any, hyper: Any, Z: Any, log_evidence: Any, *ended: Any) -> Answer:
    return Answer(
        predicted.probabilities, predicted.latent_mean, predicted.latent_var, log_evidence, hyper.variance,
        hyper.lengthscales, hyper.noise, Z, max(1, ended[0]), *ended[1:],
    )  # fmt: skip


def _fixed_point(converged: bool) -> str:
    return "fixed point reached" if converged else "iteration limit reached"


def _of_classes(entry: Entry, asked: Request, value: Any, predicted: Any) -> Answer:
    end, points = value.trained, value.run.points
    evidence = float("nan") if value.log_evidence is None else value.log_evidence
    reason = end.reason
    if getattr(value, "optimum", "").startswith("none"):
        reason = value.optimum
    elif "learn_tolerance" in asked.options:
        if end.converged:
            reason = "gradient of the evidence below 0.01" if end.residual <= 1e-2 else NO_GAIN
        elif end.residual <= 1e-2:
            reason = "the iteration on q did not converge at the best parameters, though the evidence is flat there"
        else:
            limit = end.iterations >= asked.options["n_steps"]
            reason = "iteration limit reached" if limit else "no step raises the evidence"
            reason += f" with a gradient of {end.residual:.2g}"
    return _answer(predicted, points.hyper, points.Z, evidence, end.iterations, end.converged, reason)


def _of_full(entry: Entry, asked: Request, X_new: Any) -> Answer:
    module = _method(entry)
    own, evidence = type(module.DEFAULTS), _evidence(entry)
    if asked.learn:
        optimum = search_of_full(entry, asked)
        posterior = module.converge(optimum.posterior.prior, own(tolerance=_END), start=_warm(entry)(optimum.posterior))
        reason = optimum.reason
        if not posterior.converged:
            reason = f"the method did not converge at the best parameters: residual {posterior.residual:.2g}"
        ended = len(optimum.trace), optimum.converged and posterior.converged, reason
    else:
        posterior = module.converge(_prior_of_full(asked), own(**asked.options))
        ended = posterior.iterations, posterior.converged, _fixed_point(posterior.converged)
    one = posterior.prior.hyper
    hyper = SimpleNamespace(variance=one.variance[0], lengthscales=one.lengthscales[0], noise=one.noise[0])
    value = getattr(posterior, evidence)
    predict = getattr(module, "predict_mean_corrected", module.predict)  # of laplace, which is skewed at its mode
    return _answer(predict(posterior, X_new), hyper, None, float("nan") if value is None else value, *ended)


def search_of_full(entry: Entry, asked: Request) -> Any:
    """The search over parameters that a classifier with a full GP should make."""
    from fast.full_classes.learning import ClassSearch, search

    module, evidence = _method(entry), _evidence(entry)
    own = type(module.DEFAULTS)
    return search(
        _prior_of_full(asked), lambda at, begin: module.converge(at, own(tolerance=_INNER), start=begin),
        lambda at: (getattr(at, evidence), module.gradients(at)), ClassSearch(**asked.options), warm_start=_warm(entry),
    )  # fmt: skip


def _prior_of_full(asked: Request) -> Any:
    from fast.core.values import Data as Given
    from fast.core.values import Prior
    from fast.full_classes.prior import prepare

    return prepare(Given(*asked.arguments[:3]), replace(Prior(*asked.arguments[3:]), shared=True))


def _evidence(entry: Entry) -> str:
    return "elbo" if entry.method == "vb-probit" else "log_evidence"


def _warm(entry: Entry) -> Callable[[Any], Any]:
    """Where an iteration starts, of the posterior before it."""
    from fast.methods import nested_iep

    ways: dict[str, Callable[[Any], Any]] = {
        "nested-ep": lambda at: (at.alpha_tilde, at.beta_tilde),
        "nested-iep": nested_iep.warm,
        "laplace": lambda at: at.mode.derivative,
        "vb-probit": lambda at: at.posterior.weights,
    }
    return ways[entry.method]
