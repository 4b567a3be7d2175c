"""The options of all methods, typed: what each may be, what it is where nobody says, and what it means.

One record a name (`OPTIONS`), and for each method those that a user may set, with their defaults (`METHODS`). The entry
points of this package check what they are given against them before any work, whether the option is used or not.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass, replace
from functools import cache, wraps
from typing import Any, TypeVar

from reference.common._options import Option, shown

R = TypeVar("R")
_PRIOR = ("variance", "lengthscales", "noise")
_SCHEMES = ("outer", "inner-approximate", "inner-exact")
_POSITIVE, _COUNT = "(0, inf)", "[1, inf)"
_RATE = "(0, 1e10]"  # of steps in logarithms: what lies beyond leaves the numbers that a computer has
# changes are differences of successive points: a share s leaves them eps / s of relative rounding, which must stay
# below the s that an estimate of the contraction, a rate of 1 - s, resolves: s is at least the root of eps
_SHARE = "[1e-8, 1]"

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("tolerance", "number", "estimated distance at which an iteration has arrived", "(0, 1)"),
        Option("max_iterations", "integer", "iterations after which a loop gives up and its answer says so", _COUNT),
        Option("damping", "number", "share of a site's change that is made", _SHARE),
        Option("inner_damping", "number", "damping of the inner EP", _SHARE),
        # (E(alpha) - E(0)) / alpha: without labelling errors energies fall without bound as alpha -> 0, and below 1e-8
        # what is left of them is rounding and overflow
        Option("alpha", "number", "power of the divergence; 0 is variational inference, 1 is EP", "0 or [1e-8, 1]"),
        Option("nat_rate", "number", "rate of the natural-gradient steps", _SHARE),
        Option("rate", "number", "first rate of the steps on the hyper-parameters", _RATE),
        Option("learning_rate", "number", "rate of Adam's steps on the hyper-parameters", _RATE),
        Option("learn_tolerance", "number", "gradient at which a search over hyper-parameters has arrived", _POSITIVE),
        Option("learning_iterations", "integer", "iterations of a search over hyper-parameters", _COUNT),
        Option("n_upd", "integer", "updates of the local parameters in a round", "[1, 10000]"),
        Option("n_fun", "integer", "evaluations of the bound in a round", _COUNT),
        Option("batches", "batches", "rows of each mini-batch"),
        Option("init_batches", "batches", "mini-batches that start the adaptive rate, without stepping"),
        Option("batch_size", "integer", "rows of a drawn mini-batch", _COUNT),
        Option("n_steps", "integer", "steps, of mini-batches or of a search", "[1, 2147483647]"),
        Option("window", "integer", "steps over which the stopping rule averages", _COUNT),
        Option("stop", "number", "average change below which steps end; None: never", _POSITIVE, optional=True),
        Option("seed", "integer", "of all that is drawn", "[0, inf)"),
        Option("learn", "names", "hyper-parameters that are learned", choices=(*_PRIOR, "Z")),
        Option("optimizer", "choice", "of a search over hyper-parameters", choices=("adam", "lbfgs")),
        Option("scheme", "choice", "how sweeps and steps on hyper-parameters alternate", choices=_SCHEMES),
        Option("gradient_rule", "choice", "equation of the gradient", choices=("10", "exact")),
        Option("factors", "choice", "one site a pair of classes, or one a datum", choices=("pairwise", "datum")),
        Option("count", "choice", "how many factors share the tied site", choices=("all", "per-class")),
        Option("schedule", "choice", "q refreshed after all sites, or after each", choices=("parallel", "sequential")),
        Option("inner", "choice", "inner EP to convergence, or one step a visit", choices=("converged", "incremental")),
        Option("inner_schedule", "choice", "schedule of the inner EP", choices=("sequential", "parallel")),
        Option("lambda_", "choice", "site precisions of qep", choices=("diagonal", "full")),
        Option("prediction", "choice", "rule of the class probabilities", choices=("inner-ep", "quadrature")),
        Option("prediction_nodes", "integer", "nodes of that rule a direction", "[2, 200]"),
        Option("nodes", "integer", "nodes of the tilted moments a direction", "[2, 200]"),
        Option("prior_on", "choice", "what the hyperprior is a density of", choices=("field", "root")),
        Option("map_density", "choice", "whether the density of x or of log x is maximised", choices=("value", "log")),
        Option("tied_factor", "choice", "what the tied factor may be", choices=("any", "gaussian")),
        Option(
            "expectation", "choice", "how expectations of energies are taken", choices=("quadrature", "monte-carlo")
        ),
        Option("n_draws", "integer", "draws of the Monte Carlo expectations", "[2, 2147483647]"),
        Option("moments", "choice", "moments of latent values in the answer", choices=("none", "diag", "full")),
        Option("gradients", "flag", "whether the answer has gradients of log Z"),
        Option("trace", "flag", "whether log Z is kept after each sweep or step"),
        Option("parallel", "flag", "whether the sites of a batch are refreshed side by side"),
        Option("shared", "flag", "one prior and one Z for all classes"),
        Option("callback", "callable", "called with the state after every sweep or step"),
    )
}


def _optimizers(*choices: str) -> Option:
    return replace(OPTIONS["optimizer"], choices=choices)


def _row(records: Mapping[str, Option], **defaults: Any) -> dict[str, Option]:
    """Options of a method with their defaults; records: those that mean something else there."""
    return {name: replace(records.get(name, OPTIONS[name]), default=default) for name, default in defaults.items()}


_STEP = replace(OPTIONS["rate"], meaning="rate of AdaDelta's steps")
_SCHEDULED = {
    "rate": Option("rate", "rate", "rate of the natural-gradient steps", _SHARE, ("adaptive",)),
    "stop": replace(OPTIONS["stop"], choices=("default",)),
}
_WHOLE = {"rate": replace(_SCHEDULED["rate"], meaning="rate of the steps; None: 0.5 on all data, 0.1 on mini-batches")}
_CLASSES = {"learn": replace(OPTIONS["learn"], choices=_PRIOR), "optimizer": _optimizers("lbfgs")}
_POWERS = {
    "optimizer": _optimizers("lbfgs", "adaptive", "adam"),
    "scheme": replace(OPTIONS["scheme"], choices=("outer", "inner")),
    "gradient_rule": replace(OPTIONS["gradient_rule"], choices=("28", "exact")),
}

# fmt: off
METHODS: dict[str, dict[str, Option]] = {
    "epgpc": _row(
        {}, tolerance=1e-10, max_iterations=10000, damping=1.0, batches=None, batch_size=None, n_steps=None,
        parallel=True, learn=(), optimizer=None, learning_rate=0.01, seed=0, trace=False, gradients=True,
        callback=None,
    ),
    "svi": _row(
        {"rate": _STEP}, tolerance=1e-10, max_iterations=10000, batches=None, batch_size=None, n_steps=None,
        rate=1.0, learn=(), seed=0, trace=False, moments="diag", gradients=True, callback=None,
    ),
    "vi-jj": _row(
        {}, tolerance=1e-10, max_iterations=10000, n_upd=3, n_fun=5, learn=(), moments="diag", gradients=True,
        callback=None,
    ),
    "vi-jj-full": _row(
        {}, tolerance=1e-10, max_iterations=10000, n_upd=3, n_fun=5, learn=(), moments="diag", gradients=True,
        callback=None,
    ),
    "vi-jj-hybrid": _row(
        {}, tolerance=1e-10, max_iterations=10000, n_upd=3, n_fun=5, learn=(), moments="diag", gradients=True,
        callback=None,
    ),
    "vi-taylor": _row(
        {}, tolerance=1e-10, max_iterations=10000, n_upd=3, n_fun=5, learn=(), moments="diag", gradients=True,
        callback=None,
    ),
    "nested-ep": _row(
        _CLASSES, schedule="parallel", inner="converged", inner_schedule="sequential", inner_damping=1.0,
        damping=0.8, tolerance=1e-10, max_iterations=None, prediction="inner-ep", prediction_nodes=None,
        learn=(), learn_tolerance=1e-05, optimizer="lbfgs", prior_on="field", map_density="value", trace=False,
        gradients=True, callback=None,
    ),
    "nested-iep": _row(
        _CLASSES, schedule="parallel", inner="converged", inner_schedule="sequential", inner_damping=1.0,
        damping=0.8, tolerance=1e-10, max_iterations=None, prediction="inner-ep", prediction_nodes=None,
        learn=(), learn_tolerance=1e-05, optimizer="lbfgs", prior_on="field", map_density="value", trace=False,
        gradients=True, callback=None,
    ),
    "qep": _row(
        _CLASSES, schedule="parallel", damping=0.8, nodes=10, lambda_="diagonal", tolerance=1e-10,
        max_iterations=1000, prediction="quadrature", prediction_nodes=None, learn=(), trace=False,
        gradients=True, callback=None,
    ),
    "qiep": _row(
        _CLASSES, schedule="parallel", damping=0.8, nodes=10, tolerance=1e-10, max_iterations=1000,
        prediction="quadrature", prediction_nodes=None, learn=(), trace=False, gradients=True, callback=None,
    ),
    "laplace": _row(
        _CLASSES, tolerance=1e-10, max_iterations=None, prediction_nodes=None, learn=(),
        learn_tolerance=1e-05, optimizer="lbfgs", prior_on="field", map_density="value", gradients=True,
        callback=None,
    ),
    "laplace-binary": _row(
        {"learn": replace(OPTIONS["learn"], choices=_PRIOR)}, tolerance=1e-10, max_iterations=100, gradients=True,
        learn=(), learning_iterations=200, callback=None,
    ),
    "laplace-tkp": _row(
        _CLASSES, tolerance=1e-10, max_iterations=None, prediction_nodes=None, learn=(),
        learn_tolerance=1e-05, optimizer="lbfgs", prior_on="field", map_density="value", gradients=True,
        callback=None,
    ),
    "vb-probit": _row(
        _CLASSES | {"optimizer": _optimizers("lbfgs", "em")}, tolerance=1e-10, max_iterations=None,
        learn=(), learn_tolerance=1e-05, optimizer="lbfgs", prior_on="field",
        map_density="value", gradients=True, callback=None,
    ),
    "svgpc": _row(
        _SCHEDULED | _WHOLE, tolerance=1e-10, max_iterations=10000, batches=None, batch_size=None, n_steps=None,
        init_batches=None, rate=None, learn=(), optimizer=None, learning_rate=0.01, seed=0, window=5,
        stop="default", trace=False, gradients=True, callback=None,
    ),
    "ep": _row(
        {"optimizer": _optimizers("lbfgs", "adaptive", "adam")}, factors="pairwise",
        schedule="parallel", damping=0.5, tolerance=1e-10, max_iterations=1000, batches=None,
        batch_size=None, n_steps=None, learn=(), scheme=None, optimizer=None, rate=None,
        learn_tolerance=1e-05, gradient_rule="10", gradients=True, seed=0, trace=False, callback=None,
    ),
    "sep": _row(
        {"optimizer": _optimizers("adaptive", "adam")}, count="all", damping=0.5, tolerance=1e-10,
        max_iterations=1000, batches=None, batch_size=None, n_steps=None, learn=(), scheme=None,
        optimizer=None, rate=None, learn_tolerance=1e-05, gradient_rule="10", gradients=True, seed=0,
        trace=False, callback=None,
    ),
    "label-regression": _row(
        {"optimizer": _optimizers("lbfgs", "adaptive")}, learn=(), optimizer="lbfgs", rate=0.01, n_steps=None,
        learn_tolerance=1e-05, gradients=True, trace=False, callback=None,
    ),
    "laplace-sparse": _row(
        {}, tolerance=1e-10, max_iterations=100, prediction_nodes=None, callback=None,
    ),
    "apep": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, alpha=0.5, tied_factor="any", tolerance=1e-10,
        max_iterations=10000, learn=(), optimizer=None, rate=0.001, n_steps=None, batches=None,
        batch_size=None, learn_tolerance=1e-05, seed=0, gradients=True, trace=False,
        callback=None,
    ),
    "arpep": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, alpha=0.5, tolerance=1e-10, max_iterations=10000,
        learn=(), optimizer=None, rate=0.001, n_steps=None, batches=None, batch_size=None,
        learn_tolerance=1e-05, seed=0, gradients=True, trace=False,
        callback=None,
    ),
    "rpapep": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, alpha=0.5, tolerance=1e-10, max_iterations=10000,
        learn=(), optimizer=None, rate=0.001, n_steps=None, batches=None, batch_size=None,
        learn_tolerance=1e-05, seed=0, gradients=True, trace=False,
        callback=None,
    ),
    "bb-alpha": _row(
        {}, alpha=0.5, expectation="quadrature", n_draws=1000, seed=0, tolerance=1e-10, max_iterations=10000,
        learn=(), n_steps=None, learn_tolerance=1e-05, gradients=True, trace=False, callback=None,
    ),
    "pep": _row(
        _POWERS, alpha=0.5, damping=0.5, tolerance=1e-10, max_iterations=2000, batches=None, batch_size=None,
        n_steps=None, learn=(), scheme=None, optimizer=None, rate=None, learn_tolerance=1e-05,
        gradient_rule="28", gradients=True, seed=0, trace=False, callback=None,
    ),
    "gfitc": _row(
        {}, damping=0.5, tolerance=1e-10, max_iterations=1000, learn=(), learn_tolerance=1e-05, n_steps=None,
        trace=False, gradients=True, callback=None,
    ),
    "vi-robust": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, tolerance=1e-10, max_iterations=10000,
        batches=None, batch_size=None, n_steps=None, nat_rate=0.1, learn=(), optimizer=None, rate=0.001,
        learn_tolerance=1e-05, seed=0, trace=False, gradients=True, callback=None,
    ),
    "x-gpc": _row(
        {}, tolerance=1e-10, max_iterations=10000, gradients=True, learn=(), optimizer=None,
        learning_iterations=200, callback=None,
    ),
    "x-gpc-svi": _row(
        _SCHEDULED, batches=None, batch_size=100, n_steps=None, init_batches=None, rate="adaptive", learn=(),
        learning_rate=0.01, seed=0, window=5, stop="default", trace=False, gradients=True, callback=None,
    ),
}
# fmt: on


class Options:
    """What a run of a method is asked: a frozen value of `options_of`, one field an option, each checked."""

    method: str = ""

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(self.declared())
        raise AttributeError(f"option: found {shown(name)}, expected one of {known} ({self.method})")

    def __post_init__(self) -> None:
        for name, option in self.declared().items():
            object.__setattr__(self, name, option.check(getattr(self, name)))

    @classmethod
    def declared(cls) -> dict[str, Option]:
        """The options of the method, in the order in which `solve` lists them."""
        return METHODS[cls.method]

    @property
    def in_parts(self) -> bool:
        """Whether steps take mini-batches."""
        return self.batches is not None or self.batch_size is not None


@cache
def options_of(method: str) -> Any:
    """The class of the options of a method, a frozen dataclass with the defaults of its row of METHODS."""
    fields = [(name, Any, field(default=option.default)) for name, option in METHODS[method].items()]
    name = method.title().replace("-", "") + "Options"
    return make_dataclass(name, fields, bases=(Options,), namespace={"method": method}, frozen=True, kw_only=True)


def takes(method: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """An entry point of which the options of a method, one value, may be given by name; the class checks them.

    Parameters
    ----------
    method : str    whose options, unless a value of another method's is given
    """
    row = METHODS[method]

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        parameters, values = inspect.signature(function).parameters, _values(function)

        @wraps(function)
        def called(*args: Any, options: Options | None = None, **given: Any) -> R:
            if options is not None and not isinstance(options, Options):
                raise ValueError(f"options: found {shown(options)}, expected options_of({method!r})(...) or None")
            _refuse_others(values, dict(zip(parameters, args, strict=False)) | given)
            named = {name: given.pop(name) for name in list(given) if name in row}
            if named and options is not None:
                raise ValueError(f"options: found a value and {', '.join(named)}, expected one of the two")
            return function(*args, options=options_of(method)(**named) if options is None else options, **given)

        called.takes = method  # type: ignore[attr-defined]
        return called

    return decorate


def _values(function: Callable[..., Any]) -> dict[str, type]:
    """Parameter to class, of those that are a named tuple such as the prior."""
    annotations = inspect.signature(function, eval_str=True).parameters.items()
    return {name: p.annotation for name, p in annotations if hasattr(p.annotation, "_fields") and name != "options"}


def _refuse_others(values: Mapping[str, type], given: Mapping[str, Any]) -> None:
    """A ValueError for what is not of the class that its annotation names."""
    for name, kind in values.items():
        if name in given and not isinstance(given[name], kind):
            raise ValueError(f"{name}: found {shown(given[name])}, expected a {kind.__module__}.{kind.__name__}")
