"""The options of all methods, declared once by concern: type, range, default and meaning of each.

A concern is a frozen value (`Iteration`, `Steps`, `Storage`, ...). The options of a method are a class that inherits
the concerns it needs and adds its own fields, and a method is `fit(data, prior, options)`. A value is checked where it
is made, by name, whether an option will be used or not; numbers are plain ones then, names a tuple, batches arrays. The
table behind `solve` and `triad solve -o`, the page docs/options.md and the parameters of the classifiers are made from
these declarations. A subclass changes a default by `max_iterations: int = 1000` and keeps the rest of the declaration;
with `option(...)` it declares the field again. Bases stand in the order of this page, so that classes can be joined.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fast.core.checks import Option
from fast.core.declare import Options, option
from fast.core.hyperprior import Hyperprior
from fast.core.learned import LEARNABLE

P = ParamSpec("P")
R = TypeVar("R")
_PRIOR = LEARNABLE[:-1]
_HYPERPRIORS = ("weak", "half-student-t", "half-student-t-absolute")
_POSITIVE, _COUNT = "(0, inf)", "[1, inf)"
RATE = "(0, 1e10]"  # a step of more moves what it steps on out of the range of a float
# changes are differences of successive points: a share s leaves them eps / s of relative rounding, which must stay
# below the s that an estimate of the contraction, a rate of 1 - s, resolves: s is at least the root of eps
SHARE = "[1e-8, 1]"


@dataclass(frozen=True, kw_only=True, eq=False)
class Iteration(Options):
    """When an iteration to a fixed point ends."""

    tolerance: float = option("number", "change at which an iteration has arrived", "(0, 1)", default=1e-10)
    max_iterations: int = option(
        "integer", "iterations after which a loop gives up and its answer says so", _COUNT, default=10_000
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(Options):
    """Who looks on."""

    callback: Callable[[Any], Any] | None = option(
        "callable", "called with the state after every sweep or step", default=None
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Traced(Options):
    """What is kept of the way."""

    trace: bool = option("flag", "whether log Z is kept after each sweep or step", default=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class Damped(Options):
    """How far a step goes."""

    damping: float = option("number", "share of a site's change that is made", SHARE, default=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Accelerated(Options):
    """How the steps are chained."""

    accelerate: bool = option(
        "flag", "whether Anderson mixing may shorten the way to the same fixed point", default=True
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks(Options):
    """How much is in memory at a time."""

    block_size: int = option("integer", "rows handled at a time", _COUNT, default=4096)


@dataclass(frozen=True, kw_only=True, eq=False)
class Storage(Blocks):
    """What is kept in memory."""

    memory_budget: float | None = option(
        "number", "bytes that may be kept between sweeps; None: an eighth of free memory", "[0, inf)", default=None
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpointed(Options):
    """Where a run continues from and into."""

    checkpoint: str | PathLike[str] | None = option(
        "path", "file from which and into which a run continues", default=None
    )
    checkpoint_every: int = option("integer", "steps between two checkpoints", _COUNT, default=100)


@dataclass(frozen=True, kw_only=True, eq=False)
class Length(Options):
    """How many steps."""

    n_steps: int | None = option(
        "integer", "steps, of mini-batches or of a search over the prior", "[1, 2147483647]", default=None
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps(Length):
    """Mini-batches: given, or drawn by size, number and seed."""

    batches: Sequence[Any] | None = option("batches", "rows of each mini-batch", default=None)
    batch_size: int | None = option("integer", "rows of a drawn mini-batch", _COUNT, default=None)
    seed: int = option("integer", "of all that is drawn", "[0, inf)", default=0)

    @property
    def stochastic(self) -> bool:
        """Whether mini-batches are asked for."""
        return self.batches is not None or self.batch_size is not None or self.n_steps is not None

    @property
    def rows(self) -> int:
        """Rows of a drawn mini-batch: 100 where nobody says."""
        return 100 if self.batch_size is None else self.batch_size


@dataclass(frozen=True, kw_only=True, eq=False)
class Stopping(Options):
    """When steps end by themselves."""

    window: int = option("integer", "steps over which a stopping rule averages", _COUNT, default=5)
    stop: Any = option(
        "number", "average change below which steps end; None: never", "[0, inf)", optional=True, default=None
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Learning(Options):
    """What is learned besides q."""

    learn: Sequence[str] = option("names", "what of the prior is learned", choices=LEARNABLE, default=())
    hyperprior: Hyperprior | None = option("data", "density of what is learned; None: flat", default=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassLearning(Options):
    """The same of full GPs, which have no inducing points."""

    learn: Sequence[str] = option("names", "what of the prior is learned", choices=_PRIOR, default=())


@dataclass(frozen=True, kw_only=True, eq=False)
class Search(Learning):
    """Searches by L-BFGS-B over the prior of one latent function."""

    learning_iterations: int = option("integer", "iterations of a search over the prior", _COUNT, default=200)
    learning_tolerance: float = option(
        "number", "projected gradient at which a search over the prior has arrived", _POSITIVE, default=1e-5
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Restarts(Options):
    """Further searches from elsewhere."""

    restarts: int = option("integer", "further searches over the prior, from drawn starts", "[0, inf)", default=0)
    seed: int = option("integer", "of all that is drawn", "[0, inf)", default=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimizer(Options):
    """Who searches over the prior; None: what suits the data that a step takes."""

    optimizer: str | None = option("choice", "of a search over the prior", choices=("adam", "lbfgs"), default=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class AdamRate(Options):
    """Steps of Adam on the prior of one latent function."""

    learning_rate: float = option("number", "rate of Adam's steps on the prior", RATE, default=0.01)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ascent(Learning, Optimizer):
    """Steps over the priors of several classes with inducing points."""

    rate: float | None = option("number", "first rate of the steps on the prior", RATE, default=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchEnd(Options):
    """When a search over the priors of several classes ends."""

    learn_tolerance: float = option(
        "number", "projected gradient at which a search over the prior has arrived", _POSITIVE, default=1e-5
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Training(Ascent, SearchEnd):
    """Searches and steps over the priors of several classes with inducing points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Alternating(Options):
    """How sweeps and steps on the prior take turns."""

    scheme: str | None = option(
        "choice",
        "how sweeps and steps on the prior alternate",
        choices=("outer", "inner-approximate", "inner-exact"),
        default=None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Maximum(Options):
    """What the maximum over the prior's parameters is a maximum of."""

    prior_on: str = option("choice", "what the hyperprior is a density of", choices=("field", "root"), default="field")
    map_density: str = option(
        "choice", "whether the maximum is of the density of x or of log x", choices=("value", "log"), default="value"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheduling(Options):
    """Which sites are refreshed before q is."""

    schedule: str = option(
        "choice", "q refreshed after all sites, or after each", choices=("parallel", "sequential"), default="parallel"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated(Options):
    """What a run of steps ends with."""

    evaluate: bool = option("flag", "whether log Z of all data is worked out at the end", default=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Powered(Options):
    """Which divergence."""

    # (E(alpha) - E(0)) / alpha: without labelling errors energies fall without bound as alpha -> 0, and below 1e-8
    # what is left of them is rounding and overflow
    alpha: float = option(
        "number", "power of the divergence; 0 is variational inference, 1 is EP", "0 or [1e-8, 1]", default=0.5
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Mislabelled(Options):
    """The likelihood of labels that may be wrong."""

    epsilon: float = option("number", "probability of a labelling error", "[0, 1)", default=0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Link(Options):
    """The likelihood of two classes."""

    likelihood: str = option("choice", "of the labels", choices=("logit", "probit"), default="logit")


@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients(Options):
    """What an answer has besides q: of `solve`."""

    gradients: bool = option("flag", "whether the answer has gradients of log Z", default=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientRule(Options):
    """Which equation the gradient is of."""

    gradient_rule: str = option("choice", "equation of the gradient", choices=("10", "exact"), default="10")


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments(Options):
    """What an answer has of the latent values: of `solve`."""

    moments: str = option(
        "choice",
        "which moments of the latent values the answer has",
        choices=("none", "diag", "full"),
        default="diag",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes(Options):
    """Quadrature of the class probabilities."""

    prediction_nodes: int | None = option("integer", "nodes of that rule a direction", "[2, 200]", default=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicting(Nodes):
    """How the class probabilities are worked out."""

    prediction: str = option(
        "choice", "rule of the class probabilities", choices=("inner-ep", "quadrature"), default="inner-ep"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Sited(Options):
    """Where the sites live; None: in memory."""

    site_file: str | PathLike[str] | None = option("path", "file in which the sites live", default=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Factored(Options):
    """What a factor of the threshold likelihood is."""

    factors: str = option(
        "choice", "one site a pair of classes, or one a datum", choices=("pairwise", "datum"), default="pairwise"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Tied(Options):
    """What a tied factor stands for."""

    count: str = option("choice", "how many factors share the tied site", choices=("all", "per-class"), default="all")


CONCERNS: tuple[type[Options], ...] = (
    Iteration, Watched, Traced, Damped, Accelerated, Storage, Checkpointed, Steps, Stopping, Search, Restarts, AdamRate,
    Training, Alternating, Maximum, Scheduling, Evaluated, Powered, Mislabelled, Link, Gradients, GradientRule, Moments,
    Predicting, Sited, Factored, Tied,
)  # fmt: skip

# what only one method has and has not declared in its own class yet
_SINGLE = (
    Option("n_upd", "integer", "updates of the local parameters in a round", "[1, 10000]"),
    Option("n_fun", "integer", "evaluations of the bound in a round", _COUNT),
    Option("shared", "flag", "one prior and one Z for all classes"),
    # arrays and functions, looked at by the door that takes them
)

_REQUIRED: Any = inspect.Parameter.empty
OPTIONS: dict[str, Option] = {
    **{name: replace(record, default=_REQUIRED) for one in CONCERNS for name, record in one.declared().items()},
    **{record.name: record for record in _SINGLE},
}


_STEP = replace(OPTIONS["rate"], meaning="rate of AdaDelta's steps")

ESTIMATORS: dict[str, Option] = {
    option.name: option
    for option in (
        *(OPTIONS[name] for name in ("alpha", "batch_size", "count", "damping", "epsilon", "factors", "learning_rate")),
        *(OPTIONS[name] for name in ("n_fun", "n_upd", "shared")),
        replace(_STEP, name="rate"),
        Option("hyperparameters", "choice", "whether the prior is learned", choices=("map", "fixed")),
        Option("inducing_points", "data", "(m, d) or (C, m, d); None: chosen among the rows"),
        Option("jitter", "number", "on the diagonal of K_ZZ", "[0, inf)"),
        replace(OPTIONS["learn"], kind="names"),
        Option("lengthscales", "data", "'median', a number or one of each input"),
        Option("max_iter", "integer", "steps or iterations of the training", _COUNT),
        Option("max_time", "number", "seconds of training after which it ends with what it has", _POSITIVE),
        Option("n_inducing", "integer", "number of inducing points; None: full GP", _COUNT, ("auto",), optional=True),
        Option("noise", "number", "added to the variance of every latent value", "[0, inf)"),
        Option("prior", "densities", "density of what is learned; None: flat", choices=_HYPERPRIORS, optional=True),
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
        if option.kind == "number" and isinstance(option.default, str):  # a word that stands in the number's place
            option = replace(option, choices=(option.default,))
        if name == "verbose" and isinstance(value, (bool, np.bool_)):
            continue
        if name == "learn" and isinstance(value, str) and value == "auto" and option.default == "auto":
            continue
        option.check(value)
