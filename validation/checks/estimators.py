"""Each classifier of `fast.estimators` against its method: what it asks of the method, and what it makes of the answer.

One computation is compared with itself, so that digits agree; what may differ is what a classifier adds: settings that
are not handed on, labels, columns, the order of draws, what callbacks see, what is printed.
"""

from __future__ import annotations

import copy
import importlib
import io
import re
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from fast.core import values as of_fast
from fast.core.ending import ending
from fast.estimators import _hyper, multiclass
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check
from validation.checks.estimator_answers import (
    GAIN,
    NO_GAIN,
    SPAN,
    direct,
    followed,
    of_classifier,
    search_of_full,
    worst,
)
from validation.checks.estimator_requests import (
    AT_Q,
    BY_EP,
    EP_ROWS,
    LARGEST_BATCH,
    learned_by_ep,
    request,
    requests_differ,
)
from validation.checks.estimator_settings import ENTRIES, Data, Entry, data, difference
from validation.problem import Problem

Array = NDArray[Any]
_SAME = "one function with the same arguments: rounding of a sum in another place in memory is below 1e-12"
_LIMIT = 1e-12
GUIDED = 2e-3
_TINY = float(np.finfo(np.float64).tiny)  # stands for a probability that underflows
# none of them a default
CHANGED: Mapping[str, Any] = {
    "variance": 2.0, "lengthscales": (0.7, 2.5), "noise": 0.2, "jitter": 1e-4, "learn": ("lengthscales", "noise"),
    "batch_size": 8, "learning_rate": 0.03, "smoothness": 1.5, "n_upd": 2, "n_fun": 4, "tol": 1e-3, "rate": 0.5,
    "shared": True, "factors": "datum", "damping": 0.4, "count": "per-class", "epsilon": 0.05, "alpha": 0.8,
    "prior": "half-student-t-absolute", "max_iter": 3, "random_state": 7,
}  # fmt: skip


def changed(entry: Entry, problem: Data, **more: Any) -> dict[str, Any]:
    """Settings of a classifier of which none is its default, but for `training` and `hyperparameters`."""
    given = {name: value for name, value in CHANGED.items() if name in entry.defaults}
    if "inducing_points" in entry.defaults:
        given["inducing_points"] = problem.X[::5]
    if entry.family == "classes":  # of each class its own
        given["inducing_points"] = np.stack([problem.X[k::5] for k in range(entry.n_classes)])
        given["shared"] = False  # kernels may be one's own only with points of one's own
    return given | more


def _compared(observed: float, why: str, limit: float = _LIMIT, unit: str = "relative difference") -> Compared:
    return Compared(observed, limit, why, "fast", "fast", unit)


def _same(model: Any, entry: Entry, given: Mapping[str, Any], problem: Data, what: str) -> Compared:
    wanted = direct(entry, given, problem.X, problem.codes, problem.X_new)
    observed, field = worst(of_classifier(model, problem.X_new), wanted)
    return _compared(observed, f"{_SAME}; {what}, {field} of all fields the farthest")


# -- parameters held -------------------------------------------------------------------------------------------------


def held(entry: Entry) -> Iterable[Outcome]:
    """Parameters held, all other settings changed: the method's numbers, and labels, scores and odds made of them."""
    problem = data(entry.n_classes)
    given = changed(entry, problem, learn=(), max_iter=12)
    model = entry.cls(**given).fit(problem.X, problem.labels)
    yield _same(model, entry, given, problem, "parameters held")
    probabilities = model.predict_proba(problem.X_new)
    yield _compared(_labelled(model, probabilities, problem), "labels, columns, odds and score by their definitions")
    cuts = np.split(problem.X_new, [1, 4])
    pieces = np.concatenate([model.predict_proba(part) for part in cuts])
    yield _compared(difference(pieces, probabilities), "a test point does not feel which others stand beside it")
    yield _compared(_renamed(entry, given, model, problem), "a label is a name: columns follow it, numbers stay", 1e-9)
    if entry.family in ("two", "quadratic"):
        whole = given | {"inducing_points": None, "n_inducing": None}
        model = entry.cls(**whole).fit(problem.X, problem.labels)
        yield _same(model, entry, whole, problem, "a full GP")


def _renamed(entry: Entry, given: Mapping[str, Any], model: Any, problem: Data) -> float:
    """The same rows with numbers for labels, neither consecutive nor in the order of the alphabet.

    Latent means, because the integral over several classes is one of a rule that takes them in order.
    """
    names = np.array([40, 7, 55])[: entry.n_classes]
    order = np.argsort(np.argsort(names))  # column of each text label among the numbers
    if entry.family == "classes":
        given = dict(given) | {"inducing_points": given["inducing_points"][np.argsort(order)]}
    again = entry.cls(**given).fit(problem.X, names[problem.codes])
    if again.classes_.tolist() != sorted(names.tolist()):
        return float("inf")
    if entry.n_classes == 2:
        return difference(again.predict_proba(problem.X_new)[:, order], model.predict_proba(problem.X_new))
    means = (one.latent_mean_and_variance(problem.X_new)[0] for one in (again, model))
    return difference(next(means)[:, order], next(means))


def _labelled(model: Any, probabilities: Array, problem: Data) -> float:
    """How far labels, decision function and score are from what the probabilities say."""
    alphabet, logs = list(problem.alphabet), np.log(np.maximum(probabilities, _TINY))
    odds = logs[:, 1] - logs[:, 0] if len(alphabet) == 2 else logs
    labels = [alphabet[int(np.argmax(row))] for row in probabilities]
    right = float(np.mean([a == b for a, b in zip(labels, problem.new_labels, strict=True)]))
    return max(
        difference(model.decision_function(problem.X_new), odds),
        difference(model.score(problem.X_new, problem.new_labels), right),
        0.0 if model.predict(problem.X_new).tolist() == labels else np.inf,
        0.0 if model.classes_.tolist() == alphabet else np.inf,
        difference(model.jitter_spent_, 0.0),
        difference(model.log_hyperprior_, 0.0),  # nothing is learned
    )


# -- parameters learned, mini-batches, callbacks ---------------------------------------------------------------------


def learned(entry: Entry) -> Iterable[Outcome]:
    """Learning on all rows from the same start, the noise from zero."""
    problem = data(entry.n_classes)
    slow = entry.family == "classes" or entry.method.startswith(
        "nested"
    )  # one iteration of these costs as much as three
    given = changed(entry, problem, max_iter=1 if slow else 3, noise=0.2 if entry.family == "classes" else 0.0)
    if entry.family == "classes":
        given |= {"shared": True, "inducing_points": problem.X[::5]}
    model = entry.cls(**given).fit(problem.X, problem.labels)
    yield _same(model, entry, given, problem, "parameters learned on all rows")
    if not entry.method.startswith("nested") and (entry.family != "classes" or entry.method in ("gfitc", "sep")):
        yield from _watched(entry, given, problem)  # the others call back in the same lines


def guided(entry: Entry) -> Iterable[Outcome]:
    """Where EP, or a part of the rows, decides on the parameters: the method's own optimum at them, from its own start.

    Half the labels of one class are wrong, so that the probability of a random label is one that is learned.
    """
    problem = data(entry.n_classes)
    codes = np.where((problem.codes == 0) & (np.arange(problem.codes.size) % 2 == 0), 1, problem.codes)
    labels = np.array(problem.alphabet)[codes]
    given: dict[str, Any] = {"random_state": 5, "lengthscales": 1.5}
    given |= {"inducing_points": problem.X[::4]} if entry.family == "classes" else {}
    with patch.object(multiclass, "_PART", 15), patch.object(multiclass, "sample", wraps=multiclass.sample) as parts:
        model = entry.cls(**given).fit(problem.X, labels)
    if entry.family == "full":
        why = "a part of the rows comes first, but for vb-probit, which takes few sweeps from anywhere"
        yield _compared(float((parts.call_count > 0) == (entry.method == "vb-probit")), why, 0.0, "parts")
        held = {"hyperparameters": "fixed", "variance": model.variance_, "lengthscales": model.lengthscales_}
        wanted = entry.cls(**held).fit(problem.X, labels).predict_proba(problem.X_new)
    else:
        asked = request(entry, given | {"learn": (), "max_iter": 5000}, problem.X, codes)
        arguments = (*asked.arguments[:3], model.variance_, model.lengthscales_, model.noise_, *asked.arguments[6:])
        epsilon = {"epsilon": model.epsilon_} if hasattr(model, "epsilon_") else {}
        module, options = importlib.import_module(asked.module), asked.options | epsilon
        result = asked._replace(arguments=arguments, options=options).run()
        wanted = module.predict(result, problem.X_new).probabilities
        if entry.method in AT_Q:
            own = {name: value for name, value in options.items() if name != "shared"} | {"max_iterations": 1}
            parameters = dict(zip(("variance", "lengthscales", "noise", "jitter", "Z"), arguments[3:], strict=True))
            prior = of_fast.Prior(**parameters, shared=options["shared"])
            again = module.fit(of_fast.Data(*arguments[:3]), prior, entry.cls._asked(**own), q=result.run.q)
            moved = float(np.abs(module.predict(again, problem.X_new).probabilities - wanted).max())
            yield _compared(moved, "one step from an optimum that is given as start leaves it", 1e-6, "probability")
    yield _compared(
        float(np.abs(model.predict_proba(problem.X_new) - wanted).max()),
        "q is brought to 1e-4 of its scale at such parameters, or until steps gain less than 2e-4 nats a row together; "
        "twenty times as far a probability may be from the optimum's",
        GUIDED,
        "probability",
    )
    yield _compared(float(not model.converged_), f"it says that it is there: {model.stop_reason_}", 0.0, "departures")


def steps(entry: Entry) -> Iterable[Outcome]:
    """Mini-batches in the order that the seed gives, with learning."""
    problem = data(entry.n_classes)
    learn = ("variance", "Z") if entry.family == "two" else ("variance",)
    count = 101 if entry.method == "x-gpc" else 11
    given = changed(entry, problem, training="minibatch", learn=learn, max_iter=count)
    out = io.StringIO()
    with redirect_stdout(out):
        # lines along the way from 2 on
        model = entry.cls(**given, verbose=3 if entry.method in ("svgpc", "apep") else 2).fit(problem.X, problem.labels)
    yield _same(model, entry, given, problem, "mini-batches")
    message = {"x-gpc": ["step 100 of 101"], "svgpc": [], "epgpc": [], "svi": []}.get(entry.method, ["step 10"])
    yield _compared(
        _printed(out.getvalue(), model, message), "lines along the way, then how training ended", 0.0, "lines"
    )
    # beyond the tenth, at which a line would stand
    yield from _watched(entry, given | {"max_iter": 11}, problem)


def ends(entry: Entry) -> Iterable[Outcome]:
    """What is said of searches that ended in every way, by stubs in the place of the method."""
    problem, wrong = data(entry.n_classes), []
    given = changed(entry, problem) | ({"inducing_points": problem.X[::5]} if entry.family == "classes" else {})
    if entry.family == "full":
        wrong += [_lost(entry, given, problem), _unfinished(entry, given, problem), _gainless(entry, given, problem)]
        wrong += _of_a_part(entry, problem)
    else:
        slack = "the iteration on q did not converge at the best parameters, though the evidence is flat there"
        ways = [
            (True, 1e-3, 2, "gradient of the evidence below 0.01"),
            (True, 1e-2, 3, "gradient of the evidence below 0.01"), (True, 0.011, 2, NO_GAIN),
            (False, 1e-2, 2, slack), (False, 1e-3, 3, slack),
            (False, 0.011, 3, "iteration limit reached with a gradient of 0.011"),
            (False, 0.5, 4, "iteration limit reached with a gradient of 0.5"),
            (False, 0.5, 2, "no step raises the evidence with a gradient of 0.5"),
        ]  # fmt: skip
        asked = request(entry, given, problem.X, problem.codes)
        module = importlib.import_module(asked.module)
        real = asked.run()
        for converged, residual, iterations, reason in ways:
            end = real.trained._replace(converged=converged, residual=residual, iterations=iterations, diverged=False)
            fake = SimpleNamespace(trained=end, run=real.run, log_evidence=None)
            with patch.object(module, "fit", lambda *_, fake=fake, **__: fake):
                model = entry.cls(**given).fit(problem.X, problem.labels)
            message = model.stop_reason_, model.n_iter_, model.converged_
            wrong.append(message != (reason, iterations, converged) or not np.isnan(model.log_evidence_))
        flat = real.trained._replace(converged=False, residual=1e-3, iterations=2)
        cut = SimpleNamespace(trained=flat, run=real.run, log_evidence=None)
        with ending(1e-9), patch.object(module, "fit", lambda *_, **__: cut):
            model = entry.cls(**given).fit(problem.X, problem.labels)
        wrong.append(model.stop_reason_ != "max_time of 1e-09 s spent with a gradient of 0.001")
        endless = SimpleNamespace(trained=real.trained, run=real.run, log_evidence=-3.0, optimum="none: it grows")
        with patch.object(module, "fit", lambda *_, **__: endless):
            model = entry.cls(**given).fit(problem.X, problem.labels)
        wrong.append(model.stop_reason_ != "none: it grows" or model.log_evidence_ != -3.0)
        fake = SimpleNamespace(trained=real.trained._replace(diverged=True), run=real.run, log_evidence=None)
        with patch.object(module, "fit", lambda *_, **__: fake):
            try:
                entry.cls(**given).fit(problem.X, problem.labels)
                wrong.append(True)
            except ValueError as error:
                wrong.append("learning_rate" not in str(error))
    yield _compared(float(sum(wrong)), "a search says what ended it", 0.0, "departures")


# max_iter is of the search for parameters, or one iteration of it is enough
_NEVER_CUT = ("x-gpc", "svgpc", "epgpc", "vi-jj-full")


def cut_short(entry: Entry) -> Iterable[Outcome]:
    """What is said of a run whose time is spent at once, and of one that may iterate once."""
    problem, given = data(entry.n_classes), changed(entry, data(entry.n_classes), max_time=1e-9)
    spent = r"max_time of 1e-09 s spent"
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("held", {"learn": ()}, spent),
        ("learned", {}, rf"{spent}( with a gradient of [\d.e+-]+|, 0 of 3 steps made)?"),
    ]
    if entry.steps:
        # svi owes the bound at its start
        steps = rf"{spent}, {'1 steps made' if entry.method == 'svi' else '0 of 3 steps made'}"
        asked += [("in batches", {"training": "minibatch"}, steps)]
    if entry.method not in _NEVER_CUT:
        asked += [("once", {"learn": (), "max_iter": 1, "max_time": None}, "iteration limit reached|1 sweeps made")]
    rows: list[tuple[str, object, object]] = []
    for name, more, reason in asked:
        model = entry.cls(**given | more).fit(problem.X, problem.labels)
        said = reason if re.fullmatch(reason, model.stop_reason_) else model.stop_reason_
        if name == "once":  # vi-jj-hybrid looks once more at where its round ended
            most = 2 if entry.method == "vi-jj-hybrid" else 1
            rows.append(("once: iterations", model.n_iter_, most))
        rows.append((f"{name}: converged, and why it ended", (model.converged_, said), (False, reason)))
    yield as_documented(rows, "fast", "ends")


def _lost(entry: Entry, given: Mapping[str, Any], problem: Data) -> bool:
    """Whether an iteration that does not converge at the best parameters goes unsaid, though the search ended well."""
    module = importlib.import_module(f"fast.methods.{entry.modules[0]}")
    search, converge = importlib.import_module("fast.full_classes.learning").search, module.converge
    ended = []

    def well(*arguments: Any, **options: Any) -> Any:
        ended.append(search(*arguments, **options)._replace(converged=True))
        return ended[-1]

    def lost(*arguments: Any, **options: Any) -> Any:
        posterior = copy.copy(converge(*arguments, **options))
        if ended:
            vars(posterior).update(converged=False, residual=0.5)
        return posterior

    classifiers = importlib.import_module("fast.estimators.multiclass")
    with patch.object(classifiers, "search", well), patch.object(module, "converge", lost):
        model = entry.cls(**given).fit(problem.X, problem.labels)
    reason = "the method did not converge at the best parameters: residual 0.5"
    return bool(model.stop_reason_ != reason or model.converged_)


def _of_a_part(entry: Entry, problem: Data) -> list[bool]:
    """Whether other than both is told of a part that decides on parameters and of all rows: steps, ends, reasons."""
    wrong = []
    for part, whole in ((True, True), (True, False), (False, True), (False, False)):
        ends = {"_in_stages": (3, part, "of a part"), "_at": (7, whole, "of all")}

        def ended(name: str, owner: Any, ends: Any = ends) -> Any:
            real, (n_iter, converged, reason) = getattr(owner, name), ends[name]
            return lambda *arguments: real(*arguments)._replace(n_iter=n_iter, converged=converged, reason=reason)

        first, all_rows = (
            ended(name, owner)
            for name, owner in (("_in_stages", _hyper.HyperLearning), ("_at", multiclass._MulticlassClassifier))
        )
        with (
            patch.object(multiclass, "_PART", 15),
            patch.object(_hyper.HyperLearning, "_in_stages", first),
            patch.object(multiclass._MulticlassClassifier, "_at", all_rows),
        ):
            model = entry.cls(random_state=5, lengthscales=1.5, max_iter=2).fit(problem.X, problem.labels)
        told = model.n_iter_, model.converged_, model.stop_reason_
        wrong.append(told != (10, part and whole, "of a part" if whole else "of all"))
    return wrong


def _unfinished(entry: Entry, given: Mapping[str, Any], problem: Data) -> bool:
    """Whether a search that was cut short counts as converged, though the iteration at its best parameters did."""
    search = importlib.import_module("fast.full_classes.learning").search

    def short(*arguments: Any, **options: Any) -> Any:
        return search(*arguments, **options)._replace(converged=False, reason="cut short")

    with patch.object(importlib.import_module("fast.estimators.multiclass"), "search", short):
        model = entry.cls(**given).fit(problem.X, problem.labels)
    return bool(model.stop_reason_ != "cut short" or model.converged_ or not model.posterior_.converged)


def _gainless(entry: Entry, given: Mapping[str, Any], problem: Data) -> bool:
    """Whether a search ends elsewhere than where, in a search that never asks, iterations begin to gain too little."""
    given = {**given, "max_iter": 100}
    trace = search_of_full(entry, request(entry, given, problem.X, problem.codes)).trace
    gains = trace[SPAN:] - trace[:-SPAN]
    first = SPAN + 1 + int(np.argmax(gains < GAIN * len(problem.X)))
    model = entry.cls(**given).fit(problem.X, problem.labels)
    alike = (model.n_iter_, model.converged_, model.stop_reason_) == (first, True, NO_GAIN)
    return not (alike and SPAN + 1 < first < trace.size)


def _printed(text: str, model: Any, stated: list[str]) -> float:
    """Lines that are not as documented; the seconds must be those of a run that took less than a minute."""
    name = type(model).__name__
    *along, last = text.splitlines()
    form = rf"{name}: {model.n_iter_} steps in (\d+\.\d\d) s: {re.escape(model.stop_reason_)}"
    matched = re.fullmatch(form, last)
    wrong = 0 if matched and float(matched[1]) < 60.0 else 1
    return float(wrong + (along != [f"{name}: {line}" for line in stated]))


def _watched(entry: Entry, given: Mapping[str, Any], problem: Data) -> Iterable[Outcome]:
    """A callback sees the classifier after each step that the method calls back after, or at the end."""
    visited: list[tuple[Any, ...]] = []

    def look(model: Any) -> None:
        visited.append((model.n_iter_, model.converged_, model.stop_reason_, *_state(model, problem)))

    out = io.StringIO()
    with redirect_stdout(out):
        model = entry.cls(**given, verbose=1).fit(problem.X, problem.labels, callback=look)
    end = (model.n_iter_, model.converged_, model.stop_reason_, *_state(model, problem))
    wanted = followed(entry, given, problem.X, problem.codes, problem.X_new) or [end]
    if len(visited) == len(wanted):
        observed = max(
            difference(a, b)
            for one, other in zip(visited, wanted, strict=True)
            for a, b in zip(one, other, strict=True)
        )
    else:
        observed = float("inf")
    yield _compared(observed, "a callback sees the classifier as it is after each step of the method")
    yield _compared(_printed(out.getvalue(), model, []), "verbose=1: one line, at the end", 0.0, "lines")


def _state(model: Any, problem: Data) -> tuple[Any, ...]:
    return (
        model.jitter_spent_,
        model.log_evidence_,
        model.variance_,
        model.inducing_points_,
        model.predict_proba(problem.X_new),
    )


# -- what is asked ---------------------------------------------------------------------------------------------------


def asked(entry: Entry) -> Iterable[Outcome]:
    """What the method is asked for, in every way of training, with defaults and with all else."""
    problem = data(entry.n_classes)
    given = changed(entry, problem) | ({"shared": True} if entry.family == "classes" else {})
    bare: dict[str, Any] = {"lengthscales": 1.3, "random_state": 7}
    bare |= {"inducing_points": problem.X[::5]} if "inducing_points" in entry.defaults else {}
    settings = [bare, bare | {"learn": ()}, bare | {"learn": ("noise",), "noise": 0.0}, given, given | {"learn": ()}]
    if entry.steps:
        settings += [one | {"training": "minibatch"} for one in (bare, given)]
        steps = {"max_iter": None} if entry.defaults["max_iter"] is None else {}
        settings += [given | {"training": "minibatch", "batch_size": size} | steps for size in (7, 40)]
        settings += [given | {"training": "batch"}]
    if entry.family == "classes":
        settings += [bare | {"shared": True}]
    if entry.family == "full":
        settings += [given | {"hyperparameters": "fixed"}]
    distribution = ("half-student-t", 3.0, 2.0)
    settings += [given | {"prior": prior} for prior in (None, "weak", "half-student-t", {"variance": distribution})]
    settings += [bare | {"prior": None}, bare | {"lengthscales": (0.7, 2.5)}]
    observed = max(requests_differ(entry, one, problem) for one in settings)
    with patch.object(multiclass, "_PART", LARGEST_BATCH):  # who begins with a part asks first for that
        for n, more in _borders(entry):
            rows = data(entry.n_classes, n)
            observed = max(observed, requests_differ(entry, bare | more, rows))
    yield _compared(
        observed,
        "what is asked of the method is what was set, or else the documented default; typical "
        "lengthscales are a median of sums of squares in another order",
    )
    ways = [given, given | {"learn": ()}] + ([given | {"training": "minibatch"}] if entry.steps else [])
    drawn = entry.steps or entry.family == "adadelta"  # else nothing is drawn once points and lengthscales are given
    names = [name for name in given if drawn or name != "random_state"]
    idle = [name for name in names if all(_idle(entry, way, name, problem) for way in ways)]
    yield _compared(float(len(idle)), f"each setting changes what is asked; without effect: {idle}", 0.0, "settings")


def _borders(entry: Entry) -> list[tuple[int, dict[str, Any]]]:
    """Numbers of rows on either side of a rule that counts them."""
    results: list[tuple[int, dict[str, Any]]] = []
    if entry.steps:
        results += [(LARGEST_BATCH, {}), (LARGEST_BATCH + 1, {}), (LARGEST_BATCH + 1, {"batch_size": 7})]
        results += [(LARGEST_BATCH + 1, {"batch_size": 1500})]
    if entry.family == "classes":  # 20 rows for each of 2 lengthscales, of one or of three classes
        ways = [(120, {}), (119, {}), (40, {"shared": True}), (39, {"shared": True})]
        results += [(n, {"training": "minibatch"} | more) for n, more in ways] if entry.steps else ways
    if entry.method in BY_EP:
        batch = {"training": "batch"} if entry.steps else {}
        results += [(EP_ROWS, {}), (EP_ROWS + 1, batch)]
        results += [(EP_ROWS + 1, batch | {"shared": True, "noise": 0.0})] if entry.family == "classes" else []
    if entry.family in ("two", "adadelta"):
        results += [(n, {"training": "minibatch"} if entry.steps else {}) for n in (39, 40)]
    return results


def _idle(entry: Entry, way: Mapping[str, Any], name: str, problem: Data) -> bool:
    """Whether a setting, put back to its default, leaves what is asked as it was."""
    default = {**entry.defaults, "lengthscales": 1.3, "random_state": 8, "inducing_points": problem.X[::3]}[name]
    ways = ({**way, name: value} for value in (way[name], default))
    one, other = (
        request(entry, each, problem.X, problem.codes, learned_by_ep(entry, each, problem.X)) for each in ways
    )
    pairs = [*zip(one.arguments, other.arguments, strict=True)]
    pairs += [(value, other.options.get(key)) for key, value in one.options.items() if key != "hyperprior"]
    distributions = repr(one.options.get("hyperprior")) == repr(other.options.get("hyperprior"))
    return distributions and one.function == other.function and all(repr(a) == repr(b) for a, b in pairs)


# -- registration ----------------------------------------------------------------------------------------------------

_QUESTIONS = (
    ("classifier", held, "Does the classifier answer as its method does, by its own labels, with parameters held?"),
    ("classifier_learned", learned, "Does the classifier learn what its method learns from the same start?"),
    ("classifier_guided", guided, "Does the classifier end at the optimum for parameters that EP or a part finds?"),
    ("classifier_steps", steps, "Does the classifier on mini-batches answer as its method on the same batches?"),
    ("classifier_ends", ends, "Does the classifier say how a search ended, and refuse one that diverged?"),
    ("classifier_cut_short", cut_short, "Does the classifier say that its time or its iterations were over?"),
    ("classifier_settings", asked, "Does the classifier ask its method for what was set, and for what is documented?"),
)


def _register(entry: Entry) -> None:
    for quantity, ask, question in _QUESTIONS:
        if (ask is steps and not entry.steps) or (ask is ends and entry.method not in ("gfitc", "laplace")):
            continue
        if ask is guided and entry.method not in (*BY_EP, "laplace", "nested-ep"):
            continue  # what ends are called is written once for each of the two families

        @check(f"identity/{entry.method}/{quantity}", paper=entry.paper, question=question, problems=(NO_PROBLEM,))
        def _(context: Context, problem: Problem, ask: Any = ask) -> Iterable[Outcome]:
            return list(ask(entry))


for _entry in ENTRIES:
    _register(_entry)
