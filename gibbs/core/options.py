"""The options of all samplers, typed: what each may be, what it is where nobody says, and what it means.

One record a name (`OPTIONS`), and for each method those that a user may set, with their defaults (`METHODS`). The doors
of this package check what they are given against them before any work, whether the option is used or not. A run is
handed its options as one value, of a frozen dataclass that is made from the same rows (`held_options`,
`LearntOptions`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cache, wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from gibbs.core.checks import Option, shown

P = ParamSpec("P")
R = TypeVar("R")
_PRIOR = ("variance", "lengthscales", "noise")
_LENGTH = "[1, 2147483647]"  # of an axis of an array
_COUNT, _POSITIVE = "[1, inf)", "(0, inf)"

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("seed", "integer", "of all that is drawn", "[0, inf)"),
        Option("n_chains", "integer", "chains side by side", _LENGTH),
        Option("n_walkers", "integer", "walkers of the ensemble", "[4, 2147483647]"),
        Option("n_draws", "integer", "draws of each chain", _LENGTH),
        Option("n_warmup", "integer", "sweeps thrown away; 'auto': until chains agree", "[0, 2147483647]", ("auto",)),
        Option("thin", "integer", "sweeps for each draw", _LENGTH),
        Option("target_ess", "number", "effective draws at which a run may end", _POSITIVE),
        Option("max_draws", "integer", "draws at which a run ends without its target", _COUNT),
        Option("max_warmup", "integer", "sweeps at which an automatic warm-up ends", _COUNT),
        Option("max_proposals", "integer", "proposals after which exact draws are given up", _COUNT),
        Option("max_events", "integer", "reflections of a bouncing path", _COUNT),
        Option("moves", "names", "exact moves after each sweep"),
        Option(
            "learn", "names", "parameters of the prior that are sampled", choices=("variance", "lengthscales", "noise")
        ),
        Option("sits_on", "choice", "what the hyperprior is a density of", choices=("field", "root")),
        Option("n_steps", "integer", "steps of a move", _COUNT),
        Option("evidence", "choice", "routes to log Z", choices=("none", "chains", "all")),
        Option("target_error", "number", "standard error of log Z that is trusted", _POSITIVE),
        Option("n_particles", "integer", "particles of an island", "[2, 2147483647]"),
        Option("n_islands", "integer", "islands of particles", "[4, 2147483647]"),
        Option("max_rounds", "integer", "times that the particles may be doubled", _COUNT),
        Option("likelihood", "choice", "of the labels", choices=("probit", "multinomial-probit")),
        Option("shared", "flag", "one prior for all classes"),
        Option("per_chain", "flag", "whether moments are kept for each chain"),
        Option("callback", "callable", "called with the state after every sweep"),
        Option("checkpoint", "path", "file from which and into which a run continues"),
        Option("checkpoint_every", "integer", "sweeps between two checkpoints", _COUNT),
        Option("max_kept_bytes", "integer", "bytes of draws that are kept", _COUNT),
        # arrays and mappings, looked at by the door that takes them
        Option("hyperprior", "data", "density of the prior's parameters"),
        Option("smoothness", "data", "order of the Matern kernel"),
        Option("log_height", "data", "logarithm of a slice"),
    )
}


def _row(records: Mapping[str, Option], **defaults: Any) -> dict[str, Option]:
    """Options of a method with their defaults; records: those that mean something else there."""
    return {name: replace(records.get(name, OPTIONS[name]), default=default) for name, default in defaults.items()}


def _moves(*choices: str) -> dict[str, Option]:
    return {"moves": replace(OPTIONS["moves"], choices=choices)}


_WHOLE = {"n_warmup": replace(OPTIONS["n_warmup"], choices=(), meaning="sweeps thrown away first")}

# fmt: off
METHODS: dict[str, dict[str, Option]] = {
    "exact-probit": _row(
        {}, seed=0, n_draws=4000, target_error=0.01, max_proposals=20000000, callback=None,
    ),
    "gibbs-logit": _row(
        _moves("scale", "ellipse"), learn=(), seed=0, n_chains=16, n_draws=5000, n_warmup=500, thin=1,
        n_steps=5, sits_on="field", callback=None, checkpoint=None, checkpoint_every=1000,
        max_kept_bytes=500000000, target_ess=None, max_draws=None, max_warmup=25600, moves=("scale",),
        evidence="all", target_error=0.03,
    ),
    "ensemble-logit": _row(
        _WHOLE, seed=0, n_walkers=32, n_draws=6000, n_warmup=500,
    ),
    "gibbs-probit": _row(
        _moves("bounce"), learn=(), seed=0, n_chains=32, n_draws=1000, n_warmup=50, thin=1, n_steps=5,
        sits_on="field", callback=None, checkpoint=None, checkpoint_every=1000, max_kept_bytes=500000000,
        target_ess=None, max_draws=None, max_warmup=25600, moves=("bounce",), evidence="none",
        target_error=0.05,
    ),
    "gibbs-threshold": _row(
        _moves("components", "bounce"), learn=(), seed=0, n_chains=32, n_draws=1000, n_warmup=50, thin=1,
        n_steps=5, sits_on="field", callback=None, checkpoint=None, checkpoint_every=1000,
        max_kept_bytes=500000000, target_ess=None, max_draws=None, max_warmup=25600, moves=("bounce",),
        evidence="none", target_error=0.05,
    ),
    "gibbs-pairwise": _row(
        _WHOLE, seed=0, n_chains=16, n_draws=1000, n_warmup=50, thin=1, evidence="all", target_error=0.05,
        callback=None,
    ),
    "mh-softmax": _row(
        _moves("scaled", "ellipse", "flow"), learn=(), seed=0, n_chains=32, n_draws=1000, n_warmup=400,
        thin=1, n_steps=5, sits_on="field", callback=None, checkpoint=None, checkpoint_every=1000,
        max_kept_bytes=2000000000, moves=("flow",), evidence="chains", target_error=0.04,
    ),
}
# fmt: on

# where parameters of the prior are sampled: other lengths, and no route to log Z
LEARNT = _row(
    {}, learn=inspect.Parameter.empty, seed=0, n_chains=8, n_draws=1000, n_warmup=200, thin=1, n_steps=5,
    sits_on="field", callback=None, checkpoint=None, checkpoint_every=1000, max_kept_bytes=2000000000,
)  # fmt: skip
_OF_LEARNING = ("learn", "n_steps", "sits_on")
_ONLY_LEARNT = {"mh-softmax": ("checkpoint", "checkpoint_every", "max_kept_bytes")}  # a row has both kinds of runs


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """Options of one run as a value; every field is checked against its record where the value is made."""

    row: ClassVar[Mapping[str, Option]] = {}

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, self.row[field.name].check(getattr(self, field.name)))


def _dataclass(name: str, row: Mapping[str, Option]) -> type[Options]:
    """The frozen dataclass with a field for each record, the required ones without a default."""
    required = [(key, Any) for key, option in row.items() if option.default is inspect.Parameter.empty]
    others = [(key, Any, option.default) for key, option in row.items() if (key, Any) not in required]
    made = make_dataclass(
        name, [*required, *others], bases=(Options,), namespace={"row": row}, frozen=True, kw_only=True, eq=False
    )
    made.__module__ = __name__
    return made


LearntOptions = _dataclass("LearntOptions", LEARNT)


@cache
def held_options(method: str) -> type[Options]:
    """The options of a method where its prior is held, a class.

    method : str    a name of METHODS
    """
    others = (*_OF_LEARNING, *_ONLY_LEARNT.get(method, ()))
    row = {name: option for name, option in METHODS[method].items() if name not in others}
    return _dataclass("".join(part.title() for part in method.split("-")) + "Options", row)


def checked_options(method: str, **renamed: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A door that checks its options, and the generator it draws from, before any work.

    method: whose row counts before `OPTIONS`; renamed: record of a parameter by another name.
    """
    row = {**OPTIONS, **METHODS[method]}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        options = {
            name: replace(row[renamed.get(name, name)], name=name, default=parameter.default)
            for name, parameter in parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        draws = next(iter(parameters), None) == "rng"

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            source = args[0] if args else kwargs.get("rng")
            if draws and not isinstance(source, np.random.Generator):
                raise ValueError(f"rng: found {shown(source)}, expected a numpy.random.Generator")
            for name, value in kwargs.items():
                if name in options:
                    kwargs[name] = options[name].check(value)
            return function(*args, **kwargs)

        checked.options = options  # type: ignore[attr-defined]
        return checked

    return decorate
