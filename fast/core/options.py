"""The options of all methods, typed: what each may be, what it is where nobody says, and what it means.

One record a name (`OPTIONS`); for each method the options that a user may set, with their defaults (`METHODS`), and for
the classifiers the parameters of their constructors (`ESTIMATORS`). Doors check what they are given against them before
any work, whether the option is used or not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fast.core.checks import Option

P = ParamSpec("P")
R = TypeVar("R")
_PRIOR = ("variance", "lengthscales", "noise")
_HYPERPRIORS = ("half-student-t", "half-student-t-absolute")
_POSITIVE, _COUNT = "(0, inf)", "[1, inf)"
# changes are differences of successive points: a share s leaves them eps / s of relative rounding, which must stay
# below the s that an estimate of the contraction, a rate of 1 - s, resolves: s is at least the root of eps
_SHARE = "[1e-8, 1]"

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("tolerance", "number", "change at which an iteration has arrived", "(0, 1)"),
        Option("max_iterations", "integer", "iterations after which a loop gives up and its answer says so", _COUNT),
        Option("damping", "number", "share of a site's change that is made", _SHARE),
        Option("inner_damping", "number", "damping of the inner EP", _SHARE),
        # (E(alpha) - E(0)) / alpha: without labelling errors energies fall without bound as alpha -> 0, and below 1e-8
        # what is left of them is rounding and overflow
        Option("alpha", "number", "power of the divergence; 0 is variational inference, 1 is EP", "0 or [1e-8, 1]"),
        Option("nat_rate", "number", "rate of the natural-gradient steps", _SHARE),
        Option("rate", "number", "first rate of the steps on the prior", _POSITIVE),
        Option("learning_rate", "number", "rate of Adam's steps on the prior", _POSITIVE),
        Option(
            "learn_tolerance", "number", "projected gradient at which a search over the prior has arrived", _POSITIVE
        ),
        Option("learning_tolerance", "number", "the same, of the searches of one latent function", _POSITIVE),
        Option("learning_iterations", "integer", "iterations of a search over the prior", _COUNT),
        Option("n_upd", "integer", "updates of the local parameters in a round", "[1, 10000]"),
        Option("n_fun", "integer", "evaluations of the bound in a round", _COUNT),
        Option("restarts", "integer", "further searches over the prior, from drawn starts", "[0, inf)"),
        Option("batches", "batches", "rows of each mini-batch"),
        Option("init_batches", "batches", "mini-batches that start the adaptive rate, without stepping"),
        Option("batch_size", "integer", "rows of a drawn mini-batch", _COUNT),
        Option("n_steps", "integer", "steps, of mini-batches or of a search over the prior", "[1, 2147483647]"),
        Option("window", "integer", "steps over which a stopping rule averages", _COUNT),
        Option("stop", "number", "average change below which steps end; None: never", "[0, inf)", optional=True),
        Option("check_every", "integer", "steps between two measurements of the change", _COUNT),
        Option("rebuild_every", "integer", "steps between two sums of q from all sites", _COUNT),
        Option("seed", "integer", "of all that is drawn", "[0, inf)"),
        Option("learn", "names", "what of the prior is learned", choices=(*_PRIOR, "Z")),
        Option("optimizer", "choice", "of a search over the prior", choices=("adam", "lbfgs")),
        Option(
            "scheme",
            "choice",
            "how sweeps and steps on the prior alternate",
            choices=("outer", "inner-approximate", "inner-exact"),
        ),
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
        Option("sits_on", "choice", "what the hyperprior is a density of", choices=("field", "root")),
        Option(
            "map_density", "choice", "whether the maximum is of the density of x or of log x", choices=("value", "log")
        ),
        Option("tied_factor", "choice", "what the tied factor may be", choices=("any", "gaussian")),
        Option(
            "expectation", "choice", "how the energies' expectations are taken", choices=("quadrature", "monte-carlo")
        ),
        Option("n_draws", "integer", "draws of the Monte Carlo expectations", "[2, 2147483647]"),
        Option("energy", "choice", "the energy that is minimised", choices=("apep", "arpep", "rpapep")),
        Option("likelihood", "choice", "of the labels", choices=("logit", "probit")),
        Option(
            "moments", "choice", "which moments of the latent values the answer has", choices=("none", "diag", "full")
        ),
        Option("gradients", "flag", "whether the answer has gradients of log Z"),
        Option("trace", "flag", "whether log Z is kept after each sweep or step"),
        Option("accelerate", "flag", "whether Anderson mixing may shorten the way to the same fixed point"),
        Option("parallel", "flag", "whether the sites of a batch are refreshed side by side"),
        Option("shared", "flag", "one prior and one Z for all classes"),
        Option("evaluate", "flag", "whether log Z of all data is worked out at the end"),
        Option("curvature", "flag", "whether second derivatives are wanted"),
        Option("block_size", "integer", "rows handled at a time", _COUNT),
        Option("pool_size", "integer", "rows that are shuffled together", _COUNT),
        Option("memory_budget", "number", "bytes that may be kept between sweeps", "[0, inf)"),
        Option("holdout_every", "integer", "steps between two scores of the held-out rows", _COUNT),
        Option("n", "integer", "rows of an epoch", _COUNT),
        Option("site_file", "path", "file in which the sites live"),
        Option("checkpoint", "path", "file from which and into which a run continues"),
        Option("checkpoint_every", "integer", "steps between two checkpoints", _COUNT),
        Option("callback", "callable", "called with the state after every sweep or step"),
        # arrays and functions, looked at by the door that takes them
        Option("holdout", "data", "held-out inputs and labels"),
        Option("initial_c", "data", "local parameters to start from"),
        Option("initial_xi", "data", "local parameters to start from"),
        Option("smoothness", "data", "order of the Matern kernel"),
        Option("start", "data", "where an iteration starts"),
        Option("expected", "data", "expected log density and its slopes"),
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
_CLASSES = {"learn": replace(OPTIONS["learn"], choices=_PRIOR), "optimizer": _optimizers("lbfgs")}
_POWERS = {
    "optimizer": _optimizers("lbfgs", "adaptive", "adam"),
    "scheme": replace(OPTIONS["scheme"], choices=("outer", "inner")),
    "gradient_rule": replace(OPTIONS["gradient_rule"], choices=("28", "exact")),
}

# fmt: off
METHODS: dict[str, dict[str, Option]] = {
    "epgpc": _row(
        {}, damping=1.0, tolerance=1e-10, max_iterations=10000, gradients=True, block_size=4096,
        accelerate=True, parallel=True, batches=None, batch_size=None, n_steps=None, learn=(), optimizer=None,
        learning_rate=0.01, rebuild_every=1, seed=0, window=5, stop=None, trace=False, callback=None,
    ),
    "svi": _row(
        {"rate": _STEP}, tolerance=1e-10, max_iterations=10000, batches=None, batch_size=None, n_steps=None,
        rate=1.0, learn=(), seed=0, moments="diag", gradients=True, block_size=4096, callback=None,
    ),
    "vi-jj": _row(
        {}, n_upd=3, n_fun=5, tolerance=1e-10, max_iterations=10000, learn=(), moments="diag", gradients=True,
        accelerate=True, block_size=4096, callback=None,
    ),
    "vi-jj-full": _row(
        {}, tolerance=1e-10, max_iterations=10000, learn=(), moments="diag", gradients=True, block_size=4096,
        callback=None,
    ),
    "vi-jj-hybrid": _row(
        {}, n_upd=3, n_fun=5, tolerance=1e-10, max_iterations=10000, learn=(), moments="diag", gradients=True,
        block_size=4096, callback=None,
    ),
    "vi-taylor": _row(
        {}, n_upd=3, n_fun=5, tolerance=1e-10, max_iterations=10000, learn=(), moments="diag", gradients=True,
        block_size=4096, callback=None,
    ),
    "nested-ep": _row(
        _CLASSES, schedule="parallel", damping=0.8, tolerance=1e-10, max_iterations=None, inner="converged",
        inner_schedule="sequential", inner_damping=1.0, prediction="inner-ep", prediction_nodes=None,
        learn=(), optimizer="lbfgs", learn_tolerance=1e-05, sits_on="field", map_density="value",
        gradients=True, accelerate=True, trace=False, block_size=1024, callback=None,
    ),
    "nested-iep": _row(
        _CLASSES, schedule="parallel", damping=0.8, tolerance=1e-10, max_iterations=None, inner="converged",
        inner_schedule="sequential", inner_damping=1.0, prediction="inner-ep", prediction_nodes=None,
        learn=(), optimizer="lbfgs", learn_tolerance=1e-05, sits_on="field", map_density="value",
        gradients=True, accelerate=True, trace=False, block_size=1024, callback=None,
    ),
    "qep": _row(
        _CLASSES, schedule="parallel", damping=0.8, tolerance=1e-10, max_iterations=1000, nodes=10,
        lambda_="diagonal", prediction="quadrature", prediction_nodes=None, learn=(), gradients=True,
        accelerate=True, trace=False, block_size=1024, callback=None,
    ),
    "qiep": _row(
        _CLASSES, schedule="parallel", damping=0.8, tolerance=1e-10, max_iterations=1000, nodes=10,
        prediction="quadrature", prediction_nodes=None, learn=(), gradients=True, accelerate=True,
        trace=False, block_size=1024, callback=None,
    ),
    "laplace": _row(
        _CLASSES, tolerance=1e-10, max_iterations=None, prediction_nodes=None, learn=(), optimizer="lbfgs",
        learn_tolerance=1e-05, sits_on="field", map_density="value", gradients=True, block_size=1024,
        callback=None,
    ),
    "laplace-tkp": _row(
        _CLASSES, tolerance=1e-10, max_iterations=None, learn=(), optimizer="lbfgs", learn_tolerance=1e-05,
        sits_on="field", map_density="value", gradients=True, callback=None,
    ),
    "vb-probit": _row(
        _CLASSES | {"optimizer": _optimizers("lbfgs", "em")}, tolerance=1e-10, max_iterations=None,
        accelerate=True, learn=(), optimizer="lbfgs", learn_tolerance=1e-05, sits_on="field",
        map_density="value", gradients=True, trace=False, block_size=1024, callback=None,
    ),
    "svgpc": _row(
        _SCHEDULED, tolerance=1e-10, max_iterations=10000, gradients=True, block_size=4096, accelerate=True,
        batches=None, batch_size=None, n_steps=None, init_batches=None, rate=0.1, learn=(), optimizer=None,
        learning_rate=0.01, seed=0, window=5, stop="default", trace=False, callback=None,
    ),
    "ep": _row(
        {"optimizer": _optimizers("lbfgs", "adaptive", "adam")}, factors="pairwise", schedule="parallel",
        damping=0.5, tolerance=1e-10, max_iterations=1000, batches=None, batch_size=None, n_steps=None,
        learn=(), scheme=None, optimizer=None, rate=None, learn_tolerance=1e-05, gradient_rule="10",
        gradients=True, seed=0, trace=False, block_size=4096, callback=None,
    ),
    "sep": _row(
        {"optimizer": _optimizers("adaptive", "adam")}, count="all", damping=0.5, tolerance=1e-10,
        max_iterations=1000, batches=None, batch_size=None, n_steps=None, learn=(), scheme=None,
        optimizer=None, rate=None, gradient_rule="10", gradients=True, seed=0, trace=False, block_size=4096,
        callback=None,
    ),
    "pep": _row(
        _POWERS, alpha=0.5, damping=0.5, tolerance=1e-10, max_iterations=1000, batches=None, batch_size=None,
        n_steps=None, learn=(), scheme=None, optimizer=None, rate=None, learn_tolerance=1e-05,
        gradient_rule="28", gradients=True, seed=0, trace=False, callback=None,
    ),
    "apep": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, alpha=0.5, tolerance=1e-10, max_iterations=10000,
        batches=None, batch_size=None, n_steps=None, learn=(), optimizer=None, rate=0.001,
        learn_tolerance=1e-05, tied_factor="any", gradients=True, seed=0, trace=False, callback=None,
    ),
    "arpep": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, alpha=0.5, tolerance=1e-10, max_iterations=10000,
        batches=None, batch_size=None, n_steps=None, learn=(), optimizer=None, rate=0.001,
        learn_tolerance=1e-05, tied_factor="any", gradients=True, seed=0, trace=False, callback=None,
    ),
    "rpapep": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, alpha=0.5, tolerance=1e-10, max_iterations=10000,
        batches=None, batch_size=None, n_steps=None, learn=(), optimizer=None, rate=0.001,
        learn_tolerance=1e-05, tied_factor="any", gradients=True, seed=0, trace=False, callback=None,
    ),
    "bb-alpha": _row(
        {}, alpha=0.5, expectation="quadrature", n_draws=1000, seed=0, tolerance=1e-10, max_iterations=10000,
        learn=(), learn_tolerance=1e-05, n_steps=None, gradients=True, trace=False, callback=None,
    ),
    "label-regression": _row(
        {"optimizer": _optimizers("lbfgs", "adaptive")}, learn=(), optimizer=None, rate=None, n_steps=None,
        learn_tolerance=1e-05, gradients=True, trace=False, callback=None,
    ),
    "laplace-sparse": _row(
        {}, tolerance=1e-10, max_iterations=100, prediction_nodes=None, callback=None,
    ),
    "gfitc": _row(
        {}, damping=0.5, tolerance=1e-10, max_iterations=1000, learn=(), learn_tolerance=1e-05, n_steps=None,
        gradients=True, trace=False, block_size=4096, callback=None,
    ),
    "vi-robust": _row(
        {"optimizer": _optimizers("lbfgs", "adam")}, tolerance=1e-10, max_iterations=10000, batches=None,
        batch_size=None, n_steps=None, nat_rate=0.1, learn=(), optimizer=None, rate=0.001,
        learn_tolerance=1e-05, gradients=True, seed=0, trace=False, block_size=4096, callback=None,
    ),
    "x-gpc": _row(
        {}, tolerance=1e-10, max_iterations=10000, gradients=True, block_size=4096, accelerate=True, learn=(),
        optimizer=None, learning_iterations=200, callback=None,
    ),
    "x-gpc-svi": _row(
        _SCHEDULED, batches=None, batch_size=100, n_steps=None, init_batches=None, rate="adaptive", learn=(),
        learning_rate=0.01, seed=0, window=5, stop="default", trace=False, callback=None,
    ),
}
# fmt: on

ESTIMATORS: dict[str, Option] = {
    option.name: option
    for option in (
        *(OPTIONS[name] for name in ("alpha", "batch_size", "count", "damping", "factors", "learning_rate")),
        *(OPTIONS[name] for name in ("n_fun", "n_upd", "shared")),
        replace(_STEP, name="rate"),
        Option("epsilon", "number", "probability of a labelling error", "[0, 1)"),
        Option("hyperparameters", "choice", "whether the prior is learned", choices=("map", "fixed")),
        Option(
            "hyperprior",
            "laws",
            "density of the prior's parameters; None: flat",
            choices=_HYPERPRIORS,
            optional=True,
        ),
        Option("inducing_points", "data", "(m, d) or (C, m, d); None: chosen among the rows"),
        Option("jitter", "number", "on the diagonal of K_ZZ", "[0, inf)"),
        replace(OPTIONS["learn"], kind="names"),
        Option("lengthscales", "data", "'median', a number or one of each input"),
        Option("max_iter", "integer", "steps or iterations of the training", _COUNT),
        Option("n_inducing", "integer", "number of inducing points; None: full GP", _COUNT, ("auto",), optional=True),
        Option("noise", "number", "added to the variance of every latent value", "[0, inf)"),
        Option("random_state", "data", "seed or generator"),
        Option("smoothness", "number", "order of a Matern kernel; None: squared exponential", _POSITIVE, optional=True),
        Option("tol", "number", "change at which training has arrived", _POSITIVE),
        Option("training", "choice", "on all data or on mini-batches", choices=("auto", "batch", "minibatch")),
        Option("variance", "number", "prior variance of a latent function", _POSITIVE),
        Option("verbose", "integer", "whether training reports on standard output", "[0, inf)"),
    )
}


def check_parameters(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse parameters of a classifier that no training could use, before any work.

    given: name to value; defaults: those of its constructor.
    """
    for name, value in given.items():
        option = replace(ESTIMATORS[name], default=defaults[name])
        if name == "verbose" and isinstance(value, (bool, np.bool_)):
            continue
        if name == "learn" and isinstance(value, str) and value == "auto" and option.default == "auto":
            continue
        option.check(value)


def checked_options(method: str, **renamed: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A door that checks its options before any work.

    Options are those parameters that the method's row or `OPTIONS` has; renamed: record of a parameter by another name.
    """
    row = {**OPTIONS, **METHODS[method]}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        options = {}
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                options[name] = replace(row[renamed.get(name, name)], name=name, default=parameter.default)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in kwargs.items():
                if name in options:
                    kwargs[name] = options[name].check(value)
            return function(*args, **kwargs)

        checked.options = options  # type: ignore[attr-defined]
        return checked

    return decorate
