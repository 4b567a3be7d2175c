"""What a classifier of `fast.estimators` should answer: its method, called without it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from validation.checks.estimator_requests import Request, request
from validation.checks.estimator_settings import Entry, difference

Array = NDArray[Any]


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
    found = [(difference(a, b), name) for name, a, b in zip(left._fields, left, right, strict=True)]
    return max(found)


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
    if entry.family == "full":
        return _of_full(entry, asked, X_new)
    found = asked.run()
    module = importlib.import_module(asked.module)
    if entry.family == "classes":
        return _of_classes(entry, asked, found, module.predict(found, X_new))
    given_Z = asked.settings["inducing_points"]
    if entry.family == "adadelta":
        steps = asked.settings["max_iter"]
        ended = steps, True, f"{steps} steps made"
        return _answer(module.predict_run(found, X_new), found.hyper, given_Z, module.bound(found, X, codes), *ended)
    if entry.family == "quadratic":
        reason = found.learning.reason if asked.learn else _fixed_point(found.converged)
        ended = found.iterations, found.converged, reason
        return _answer(module.predict(found, X_new), found.prior.hyper, given_Z, found.elbo, *ended)
    if "seed" in asked.options:
        ended = found.iterations, found.converged, found.reason
        if entry.method == "epgpc":
            predicted = _method(entry).predict(found.posterior, X_new)
            return _answer(predicted, found.hyper, found.Z, found.posterior.log_evidence, *ended)
        return _answer(module.predict(found, X_new), found.hyper, found.Z, module.bound(found, X, codes), *ended)
    if asked.learn:
        found, learned = found
        ended = len(learned.trace), learned.converged, learned.reason
    else:
        ended = found.iterations, found.converged, _fixed_point(found.converged)
    evidence = found.log_evidence if entry.method == "epgpc" else found.elbo
    Z = None if given_Z is None else found.prior.Z
    return _answer(module.predict(found, X_new), found.prior.hyper, Z, evidence, *ended)


def _method(entry: Entry) -> Any:
    return importlib.import_module(f"fast.methods.{entry.modules[0]}")


def followed(entry: Entry, given: Mapping[str, Any], X: Any, codes: Array, X_new: Any) -> list[tuple[Any, ...]]:
    """What a classifier should be after each step of which its method tells; empty if it tells of none.

    Steps, False, "in training", jitter spent, log evidence if the method says it, variance, inducing points and
    probabilities.
    """
    asked = request(entry, given, X, codes)
    found: list[tuple[Any, ...]] = []
    nothing = float("nan")

    def look(progress: Any) -> None:
        count, evidence = progress.iteration, nothing
        if entry.family == "adadelta":
            run = progress.run
            hyper, Z, predicted = run.hyper, asked.settings["inducing_points"], module.predict_run(run, X_new)
            found.append((count, True, "in training", 0.0, evidence, hyper.variance, Z, predicted.probabilities))
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
        found.append((count, False, "in training", 0.0, evidence, hyper.variance, Z, predicted.probabilities))

    module = importlib.import_module(asked.module)
    if entry.family in ("classes", "adadelta") or "seed" in asked.options:
        asked.run(callback=look)
    return found


def _answer(predicted: Any, hyper: Any, Z: Any, log_evidence: Any, *ended: Any) -> Answer:
    return Answer(
        predicted.probabilities, predicted.latent_mean, predicted.latent_var, log_evidence, hyper.variance,
        hyper.lengthscales, hyper.noise, Z, max(1, ended[0]), *ended[1:],
    )  # fmt: skip


def _fixed_point(converged: bool) -> str:
    return "fixed point reached" if converged else "iteration limit reached"


def _of_classes(entry: Entry, asked: Request, found: Any, predicted: Any) -> Answer:
    end, points = found.trained, found.run.points
    evidence = float("nan") if found.log_evidence is None else found.log_evidence
    reason = end.reason
    if getattr(found, "optimum", "").startswith("none"):
        reason = found.optimum
    elif "learn_tolerance" in asked.options:
        if end.converged:
            reason = "slope of the evidence below 0.01"
        elif end.residual <= 1e-2:
            reason = (
                "the iteration on q did not converge at the best parameters, though the slope of the evidence is small"
            )
        else:
            limit = end.iterations >= asked.options["n_steps"]
            reason = "iteration limit reached" if limit else "no step raises the evidence"
            reason += f" with a slope of {end.residual:.2g}"
    return _answer(predicted, points.hyper, points.Z, evidence, end.iterations, end.converged, reason)


def _of_full(entry: Entry, asked: Request, X_new: Any) -> Answer:
    from fast.core.values import Data as Given
    from fast.core.values import Prior
    from fast.full_classes.learning import ClassSearch, search
    from fast.full_classes.prior import prepare
    from fast.methods import nested_iep

    module = _method(entry)
    given = replace(Prior(*asked.arguments[3:]), shared=True)
    prior, own = prepare(Given(*asked.arguments[:3]), given), type(module.DEFAULTS)
    evidence = "elbo" if entry.method == "vb-probit" else "log_evidence"
    if asked.learn:
        warm: Callable[[Any], Any] = {
            "nested-ep": lambda at: (at.alpha_tilde, at.beta_tilde),
            "nested-iep": nested_iep.warm,
            "laplace": lambda at: at.mode.slope,
            "vb-probit": lambda at: at.posterior.weights,
        }[entry.method]
        found = search(
            prior, lambda at, begin: module.converge(at, own(tolerance=1e-8), start=begin),
            lambda at: (getattr(at, evidence), module.gradients(at)), ClassSearch(**asked.options), warm_start=warm,
        )  # fmt: skip
        posterior, ended = found.posterior, (len(found.trace), found.converged, found.reason)
    else:
        posterior = module.converge(prior, own(**asked.options))
        ended = posterior.iterations, posterior.converged, _fixed_point(posterior.converged)
    one = posterior.prior.hyper
    hyper = SimpleNamespace(variance=one.variance[0], lengthscales=one.lengthscales[0], noise=one.noise[0])
    value = getattr(posterior, evidence)
    return _answer(module.predict(posterior, X_new), hyper, None, float("nan") if value is None else value, *ended)
