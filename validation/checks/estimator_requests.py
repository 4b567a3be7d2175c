"""What a classifier of `fast.estimators` should ask of its method, by its documented settings, and what it asks.

Seeds follow the one sentence on `random_state`: the classifier draws one number for training, and training one for the
order of the rows.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from fast.core.declare import Options
from validation.by_name import by_name, names_of
from validation.checks.estimator_settings import Data, Entry, difference

Array = NDArray[Any]
LARGEST_SEED = 2**31 - 1
LARGEST_BATCH = 2000  # rows up to which training="auto" is in batch
# riihimaki2013, section 5.5: half-Student-t with 4 degrees of freedom, "variance equal to one hundred"
DF, SCALE = 4.0, 10.0


class Request(NamedTuple):
    """The call of a method: the module that has the function, the function's name, and its arguments."""

    module: str
    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    learn: tuple[str, ...]
    settings: dict[str, Any]

    def run(self, **more: Any) -> Any:
        """Make the call."""
        return self.door(*self.arguments, **self.options, **more)

    @property
    def door(self) -> Any:
        """The function, by the names of its arguments."""
        binary = len(self.arguments) == len(("X", "y", "variance", "lengthscales", "noise", "jitter", "Z"))
        return by_name(getattr(importlib.import_module(self.module), self.function), binary=binary)


def order_seed(random_state: int) -> int:
    """Seed of the order of the rows, where nothing else is drawn before."""
    training = np.random.RandomState(random_state).randint(LARGEST_SEED)
    return int(np.random.RandomState(training).randint(LARGEST_SEED))


def request(entry: Entry, given: Mapping[str, Any], X: Any, codes: Array) -> Request:
    """What a classifier with these settings should ask of its method.

    given    lengthscales as numbers, and inducing points where the method has them
    """
    settings = {**entry.defaults, **given}
    lengthscales = np.broadcast_to(np.asarray(settings["lengthscales"], dtype=float), (X.shape[1],)).copy()
    learn = _learned(entry, settings, X)
    noise = 1e-3 if settings["noise"] == 0.0 and "noise" in learn else settings["noise"]
    start = (settings["variance"], lengthscales, noise, settings["jitter"])
    module, function, options = _REQUESTS[entry.family](entry, settings, learn, X.shape[0])
    module = module if "." in module else f"fast.methods.{module}"
    if entry.family == "full":
        return Request(module, function, (X, codes, entry.n_classes, *start), options, learn, settings)
    classes = (entry.n_classes,) if entry.family == "classes" else ()
    arguments = (X, codes, *classes, *start, settings["inducing_points"])
    return Request(module, function, arguments, options, learn, settings)


def _learned(entry: Entry, settings: Mapping[str, Any], X: Any) -> tuple[str, ...]:
    learn = settings["learn"]
    if settings.get("hyperparameters") == "fixed":
        return ()
    if isinstance(learn, str) and learn == "auto":  # lengthscales if each has 20 rows to it
        each = X.shape[1] * (1 if settings["shared"] else entry.n_classes)
        return ("variance", "noise", "lengthscales") if X.shape[0] >= 20 * each else ("variance", "noise")
    return tuple(learn)


def _stochastic(settings: Mapping[str, Any], n: int) -> bool:
    return settings["training"] == "minibatch" or (settings["training"] == "auto" and n > LARGEST_BATCH)


def _n_steps(settings: Mapping[str, Any], n: int) -> int:
    """Ten epochs, and no fewer than a thousand steps."""
    given = settings["max_iter"]
    return int(max(1000, 10 * n // settings["batch_size"]) if given is None else given)


def _two(entry: Entry, settings: Any, learn: Any, n: int) -> tuple[str, str, dict[str, Any]]:
    batch, stochastic = entry.modules
    if not _stochastic(settings, n):
        if not learn:
            return batch, "fit", {"max_iterations": 10_000}
        steps = 100 if settings["max_iter"] is None else settings["max_iter"]
        return batch, "fit_learning", {"learn": learn, "learning_iterations": steps}
    options = {
        "batch_size": settings["batch_size"], "n_steps": _n_steps(settings, n), "learn": learn,
        "learning_rate": settings["learning_rate"], "seed": order_seed(settings["random_state"]), **entry.fixed,
    }  # fmt: skip
    if entry.method == "epgpc":  # all sites are summed anew twice an epoch
        options["rebuild_every"] = max(1, n // (2 * settings["batch_size"]))
    return stochastic, "fit", options


def _quadratic(entry: Entry, settings: Any, learn: Any, n: int) -> tuple[str, str, dict[str, Any]]:
    options = {"tolerance": settings["tol"], "max_iterations": settings["max_iter"], "learn": learn}
    options |= {name: settings[name] for name in ("smoothness", "n_upd", "n_fun") if name in settings}
    return entry.modules[0], entry.modules[1], options


def _adadelta(entry: Entry, settings: Any, learn: Any, n: int) -> tuple[str, str, dict[str, Any]]:
    options = {name: settings[name] for name in ("smoothness", "batch_size", "rate")}
    options |= {"n_steps": settings["max_iter"], "seed": order_seed(settings["random_state"]), "learn": learn}
    return entry.modules[0], "fit_stochastic", options


def _classes(entry: Entry, settings: Any, learn: Any, n: int) -> tuple[str, str, dict[str, Any]]:
    given = settings["max_iter"]
    names = ("factors", "damping", "count", "epsilon", "alpha", "shared")
    options = {name: settings[name] for name in names if name in settings} | {"learn": learn, **entry.fixed}
    if entry.steps and _stochastic(settings, n):
        options |= {
            "batch_size": settings["batch_size"], "n_steps": _n_steps(settings, n), "optimizer": "adam",
            "rate": settings["learning_rate"], "seed": order_seed(settings["random_state"]),
        }  # fmt: skip
    elif not learn:
        options |= {"tolerance": 1e-8, "max_iterations": given or 10_000}
    elif entry.method == "sep":
        options |= {"n_steps": given or 250, "optimizer": "adam", "rate": settings["learning_rate"]}
    else:
        # q at every step of a search: to 1e-2 in at most 25 iterations; rpapep: 5 iterations, 10 steps on q in each
        short = entry.method == "rpapep"
        options |= {
            "n_steps": given or (5 if short else 30), "max_iterations": 10 if short else 25, "tolerance": 1e-2,
            "learn_tolerance": 1e-2,
        }  # fmt: skip
        if entry.method != "gfitc":
            options["optimizer"] = "lbfgs"
    return entry.modules[0], "fit", options


def _full(entry: Entry, settings: Any, learn: Any, n: int) -> tuple[str, str, dict[str, Any]]:
    if not learn:
        return entry.modules[0], "converge", {"tolerance": 1e-8, "max_iterations": settings["max_iter"]}
    lengthscales = np.broadcast_to(np.asarray(settings["lengthscales"], dtype=float), (2,))
    options = {
        "learn": learn, "hyperprior": _hyperprior(settings["hyperprior"], lengthscales),
        "max_iterations": settings["max_iter"], "learning_tolerance": 1e-3,
    }  # fmt: skip
    return "fast.estimators.multiclass", "search", options


def _hyperprior(given: Any, lengthscales: Array) -> Any:
    """Half-Student-t of section 5.5 on every field, lengthscales in units of their start or of the inputs."""
    if given is None or not isinstance(given, str):
        return given
    units: Any = {"half-student-t": lengthscales, "half-student-t-absolute": 1.0}[given]
    law = ("half-student-t", DF, SCALE)
    return {"variance": law, "noise": law, "lengthscales": ("half-student-t", DF, SCALE * units)}


_REQUESTS: dict[str, Callable[..., tuple[str, str, dict[str, Any]]]] = {
    "two": _two, "quadratic": _quadratic, "adadelta": _adadelta, "classes": _classes, "full": _full,
}  # fmt: skip


# -- what a classifier asks ------------------------------------------------------------------------------------------


class _AskedError(Exception):
    """Carries the arguments of a call out of the classifier that made it."""

    def __init__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        super().__init__("asked")
        self.arguments, self.options = arguments, options


def asked_of(model: Any, X: Any, y: Any, owner: Any, function: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with which `fit` calls a function of its method, which is not run; `owner` is where it looks it up.

    Raises LookupError if it calls it not at all.
    """

    def stub(*arguments: Any, **options: Any) -> Any:
        raise _AskedError(arguments, options)

    with patch.object(owner, function, staticmethod(stub) if isinstance(owner, type) else stub):
        try:
            model.fit(X, y)
        except _AskedError as asked:
            arguments, options = names_of(asked.arguments, binary=not model._multi_class)
            return arguments, options | asked.options
    raise LookupError(f"{function}: found no call of it, expected {type(model).__name__}.fit to make one")


def requests_differ(entry: Entry, given: Mapping[str, Any], problem: Data) -> float:
    """Largest difference of what a classifier asks and what it should ask, infinite if a name is missing."""
    wanted = request(entry, given, problem.X, problem.codes)
    owner = entry.cls if entry.family == "quadratic" else importlib.import_module(wanted.module)
    function = "_fit" if entry.family == "quadratic" else wanted.function
    arguments, options = asked_of(entry.cls(**given), problem.X, problem.labels, owner, function)
    if entry.family == "full":
        prior = arguments[0]
        asked = next(one for one in arguments if isinstance(one, Options))
        defaults = {name: option.default for name, option in asked.declared().items()}
        options, full = vars(asked), {**defaults, **wanted.options}
        full.pop("callback", None)
        wanted = wanted._replace(options=full)
        hyper = prior.hyper
        arguments = (
            prior.X, prior.y, prior.n_classes, hyper.variance[0], hyper.lengthscales[0], hyper.noise[0],
            hyper.jitter[0],
        )  # fmt: skip
    options = {name: value for name, value in options.items() if name not in ("callback", "warm_start")}
    if entry.family != "full":  # what neither names is the default of the method
        parameters = inspect.signature(wanted.door).parameters.items()
        defaults = {name: one.default for name, one in parameters if one.kind is one.KEYWORD_ONLY}
        defaults.pop("callback", None)
        epsilon = {name: wanted.options[name] for name in ("epsilon",) if name in wanted.options}
        options, full = {**defaults, **options}, {**defaults, **epsilon, **wanted.options}
        wanted = wanted._replace(options=full)
    if set(options) != set(wanted.options) or len(arguments) != len(wanted.arguments):
        return float("inf")
    pairs = [*zip(arguments, wanted.arguments, strict=True), *((options[k], wanted.options[k]) for k in options)]
    return max(_apart(left, right) for left, right in pairs)


def _apart(left: Any, right: Any) -> float:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return max((_apart(left[key], right[key]) for key in left), default=0.0) if set(left) == set(right) else np.inf
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return max((_apart(a, b) for a, b in zip(left, right, strict=True)), default=0.0)
    return difference(left, right)
