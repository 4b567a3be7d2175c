"""What a classifier of `fast.estimators` should ask of its method, by its documented settings, and what it asks.

Seeds follow the one sentence on `random_state`: the classifier draws one number for training, and training one for the
order of the rows.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from fast.core.declare import Options
from validation.by_name import by_name, names_of
from validation.checks.estimator_priors import asked_hyperprior
from validation.checks.estimator_settings import ENTRIES, Data, Entry, difference

Array = NDArray[Any]
LARGEST_SEED = 2**31 - 1
LARGEST_BATCH = 2000  # rows up to which training="auto" is in batch
# learn="auto" in batch: parameters are those of EP, of the probit its ratio of variance and noise
BY_EP = ("sep", "vi-robust", "pep", "apep", "arpep", "rpapep", "vb-probit", "nested-iep")
AT_Q = ("vi-robust", "apep", "arpep", "rpapep")  # these start at its q as well
EP_NOISE = 0.1  # at which EP starts for a probit, whose own is 1
EP_ROWS = 2000  # rows that EP learns them from, at most


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


def request(
    entry: Entry, given: Mapping[str, Any], X: Any, codes: Array, by_ep: tuple[Array, Array, Array] | None = None
) -> Request:
    """What a classifier with these settings should ask of its method.

    given    lengthscales as numbers, and inducing points where the method has them
    by_ep    variance (C,), lengthscales (C, d) and noise (C,) that EP learned, where the classifier asks it
    """
    settings = {**entry.defaults, **given}
    lengthscales = np.broadcast_to(np.asarray(settings["lengthscales"], dtype=float), (X.shape[1],)).copy()
    held = asks_ep(entry, settings, X.shape[0])
    if held != (by_ep is not None):
        raise ValueError(f"by_ep: found {by_ep}, expected parameters where EP is asked for them, and only there")
    learn = () if held else _learned(entry, settings, X)
    noise = 1e-3 if settings["noise"] == 0.0 and "noise" in learn else settings["noise"]
    result: tuple[Any, Any, Any] | None = by_ep
    if by_ep is not None and entry.family == "full":
        result = by_ep[0][0] / by_ep[2][0], by_ep[1][0], noise
    start = (*(result or (settings["variance"], lengthscales, noise)), settings["jitter"])
    module, function, options = _REQUESTS[entry.family](entry, settings, learn, X.shape[0])
    if "learn" in options:
        hyperprior = asked_hyperprior(entry, settings["prior"], lengthscales, X)
        options |= _of_search(hyperprior) if entry.family == "full" else {"hyperprior": hyperprior}
    module = module if "." in module else f"fast.methods.{module}"
    if entry.family == "full":
        return Request(module, function, (X, codes, entry.n_classes, *start), options, learn, settings)
    classes = (entry.n_classes,) if entry.family == "classes" else ()
    arguments = (X, codes, *classes, *start, settings["inducing_points"])
    return Request(module, function, arguments, options, learn, settings)


def asks_ep(entry: Entry, settings: Mapping[str, Any], n: int) -> bool:
    """Whether a classifier holds parameters that EP learns for it: those of its model, in batch, if none are named."""
    if entry.method not in BY_EP or not (isinstance(settings["learn"], str) and settings["learn"] == "auto"):
        return False
    return settings["hyperparameters"] == "map" if entry.family == "full" else not _stochastic(settings, n)


def learned_by_ep(entry: Entry, given: Mapping[str, Any], X: Any) -> tuple[Array, Array, Array] | None:
    """Parameters to stand for those that EP learns, of each class its own unless shared; None: it is not asked."""
    settings, d = {**entry.defaults, **given}, X.shape[1]
    if not asks_ep(entry, settings, len(X)):
        return None
    rows = np.zeros(entry.n_classes) if settings.get("shared", True) else np.arange(entry.n_classes)
    return 2.0 + rows, 0.3 + rows[:, None] + 0.1 * np.arange(d), 0.01 + 0.02 * rows


def _learned(entry: Entry, settings: Mapping[str, Any], X: Any) -> tuple[str, ...]:
    learn = settings["learn"]
    if settings.get("hyperparameters") == "fixed":
        return ()
    if not (isinstance(learn, str) and learn == "auto"):
        return tuple(learn)
    n, d = X.shape
    rows = entry.n_classes if entry.family == "classes" and not settings["shared"] else 1
    # under the weak prior one factor of all comes first; on mini-batches there is no second stage
    many = entry.steps and _stochastic(settings, n) and n >= 20 * d * rows
    lengths = "scale" if settings["prior"] == "weak" and d > 1 and not many else "lengthscales"
    return ("variance", "noise", lengths) if entry.family == "classes" else ("variance", lengths)


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
    options = {"smoothness": settings["smoothness"], "learn": learn}
    if not _stochastic(settings, n):  # to the maximum of the bound
        return entry.modules[0], "fit_learning" if learn else "fit", options | {"max_iterations": settings["max_iter"]}
    options |= {"batch_size": settings["batch_size"], "rate": settings["rate"], "n_steps": settings["max_iter"]}
    return entry.modules[0], "fit_stochastic", options | {"seed": order_seed(settings["random_state"])}


def _classes(entry: Entry, settings: Any, learn: Any, n: int) -> tuple[str, str, dict[str, Any]]:
    given = settings["max_iter"]
    names = ("factors", "damping", "count", "epsilon", "alpha", "shared")
    options = {name: settings[name] for name in names if name in settings} | {"learn": learn, **entry.fixed}
    at_ep = asks_ep(entry, settings, n)
    if isinstance(options.get("epsilon"), str):  # of two runs at what EP found the first
        options["epsilon"] = 0.1 if at_ep else 0.01
    if entry.steps and _stochastic(settings, n):
        options |= {
            "batch_size": settings["batch_size"], "n_steps": _n_steps(settings, n), "optimizer": "adam",
            "rate": settings["learning_rate"], "seed": order_seed(settings["random_state"]),
        }  # fmt: skip
    elif not learn:
        # parameters that EP found are not exact either: q is brought to 1e-4 there
        most = _sweeps_at_ep(entry, n, len(settings["inducing_points"])) if at_ep else 10_000
        options |= {"tolerance": 1e-4 if at_ep else 1e-8, "max_iterations": given or most}
    elif entry.method == "sep":
        options |= {"n_steps": given or 250, "optimizer": "adam", "rate": settings["learning_rate"]}
    else:
        # q at every step of a search: to 1e-2 in at most 25 iterations
        options |= {"n_steps": given or 30, "max_iterations": 25, "tolerance": 1e-2, "learn_tolerance": 1e-2}
        if entry.method != "gfitc":
            options["optimizer"] = "lbfgs"
    return entry.modules[0], "fit", options


def _sweeps_at_ep(entry: Entry, n: int, m: int) -> int:
    """At most ten thousand, of some methods fewer where a sweep of C n m^2 multiplications takes long."""
    sure = {"pep": 50, "rpapep": 50, "sep": 100}.get(entry.method, 10_000)
    return max(sure, min(10_000, int(sure * 1e8 / (entry.n_classes * n * m * m))))


def _full(entry: Entry, settings: Any, learn: Any, n: int) -> tuple[str, str, dict[str, Any]]:
    if not learn:
        return entry.modules[0], "converge", {"tolerance": 1e-8, "max_iterations": settings["max_iter"]}
    options = {"learn": learn, "max_iterations": settings["max_iter"], "learning_tolerance": 1e-3}
    return "fast.estimators.multiclass", "search", options


def _of_search(hyperprior: Any) -> dict[str, Any]:
    """The same as options of `fast.full_classes.learning.search`."""
    if hyperprior is None:
        return {"hyperprior": None}
    return {"hyperprior": hyperprior.densities, "map_density": hyperprior.map_density}


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
    settings, by_ep = {**entry.defaults, **given}, learned_by_ep(entry, given, problem.X)
    wanted = request(entry, given, problem.X, problem.codes, by_ep)
    owner = entry.cls if entry.family == "quadratic" else importlib.import_module(wanted.module)
    function = "_fit" if entry.family == "quadratic" else wanted.function
    with _ep_answers(by_ep) as (questions, q):
        arguments, options = asked_of(entry.cls(**given), problem.X, problem.labels, owner, function)
    at_q = by_ep is not None and entry.method in AT_Q and len(problem.X) <= EP_ROWS
    if options.pop("q", None) is not (q if at_q else None):
        return float("inf")
    if len(questions) != (by_ep is not None):
        return float("inf")
    if entry.family == "full":
        of_ep = {"variance": EP_NOISE * settings["variance"], "noise": EP_NOISE, "shared": True}
        settings = {**settings, **of_ep, "inducing_points": None}
    asked_ep = max((_questions_differ(one, settings, problem) for one in questions), default=0.0)
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
    options = {name: value for name, value in options.items() if name not in ("callback", "warm_start", "start")}
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
    return max(asked_ep, *(_apart(left, right) for left, right in pairs))


class _Question(NamedTuple):
    """What EP is asked: its settings, inputs (r, d) and codes (r,)."""

    settings: dict[str, Any]
    X: Array
    codes: Array


@contextmanager
def _ep_answers(parameters: tuple[Array, Array, Array] | None) -> Iterator[tuple[list[_Question], object]]:
    """EP's classifier answers at once; what it was asked, and what stands for its q."""
    from fast.estimators import EPClassifier

    questions: list[_Question] = []
    q = object()
    if parameters is None:
        yield questions, q
        return

    def fit(self: Any, X: Any, y: Any) -> Any:
        questions.append(_Question(self.get_params(deep=False), np.asarray(X), np.asarray(y)))
        self.variance_, self.lengthscales_, self.noise_ = parameters
        self.posterior_ = SimpleNamespace(run=SimpleNamespace(q=q))
        return self

    with patch.object(EPClassifier, "fit", fit):
        yield questions, q


def _questions_differ(question: _Question, settings: Mapping[str, Any], problem: Data) -> float:
    """Largest difference of what EP is asked and what it should be: its own defaults, and start and prior of who asks.

    Up to 2000 rows it has all of them and the same inducing points, else a sample and its own.
    """
    ep = next(entry for entry in ENTRIES if entry.method == "ep")
    names = ("variance", "noise", "jitter", "shared", "prior", "verbose")
    wanted = {**ep.defaults, **{name: settings[name] for name in names}, "training": "batch"}
    wanted["lengthscales"] = np.broadcast_to(settings["lengthscales"], problem.X.shape[1:])
    wanted["random_state"] = np.random.RandomState(settings["random_state"]).randint(LARGEST_SEED)  # the first drawn
    n, rows = len(problem.X), len(question.X)
    if n <= EP_ROWS:
        wanted["inducing_points"] = settings["inducing_points"]
    if set(question.settings) != set(wanted) or rows != min(n, EP_ROWS) or len(question.codes) != rows:
        return float("inf")
    place = {row.tobytes(): i for i, row in enumerate(problem.X)}
    chosen = np.array([place.get(row.tobytes(), -1) for row in question.X])
    ascending = chosen[0] >= 0 and bool((np.diff(chosen) > 0).all())  # which says that none is there twice
    if not ascending or not np.array_equal(question.codes, problem.codes[chosen]):
        return float("inf")
    shares = np.bincount(problem.codes) * rows / n
    # one row of each class is sure, the others in their share: a row more or less, and one of rounding
    if (np.abs(np.bincount(question.codes, minlength=shares.size) - shares) >= 2.0).any():
        return float("inf")
    return max(_apart(question.settings[name], wanted[name]) for name in wanted)


def _apart(left: Any, right: Any) -> float:
    if hasattr(left, "densities") and hasattr(right, "densities"):
        readings = (left.prior_on, left.map_density) == (right.prior_on, right.map_density)
        return _apart(left.densities, right.densities) if readings else np.inf
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return max((_apart(left[key], right[key]) for key in left), default=0.0) if set(left) == set(right) else np.inf
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return max((_apart(a, b) for a, b in zip(left, right, strict=True)), default=0.0)
    return difference(left, right)
