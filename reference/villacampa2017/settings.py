"""What a run is asked for: options that EP and SEP share, their defaults, and mini-batches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._classes import Prior, fields_to_learn
from reference.common._options import shown

Batch = NDArray[np.intp]

SCHEMES = ("outer", "inner-approximate", "inner-exact")
RULES = ("10", "exact")


class Seen(NamedTuple):
    """What a callback is told after every sweep or step."""

    iteration: int
    residual: float
    n_improper: int  # so far


class Options(NamedTuple):
    """Settings that EP and SEP share; None chooses the default, see `check_options`."""

    tolerance: float = 1e-10
    max_iterations: int = 1000
    batches: Sequence[Any] | None = None
    batch_size: int | None = None
    n_steps: int | None = None
    learn: Sequence[str] = ()
    scheme: str | None = None
    optimizer: str | None = None
    rate: float | None = None
    learn_tolerance: float = 1e-5
    gradient_rule: str = "10"
    gradients: bool = True
    seed: int = 0
    trace: bool = False
    callback: Callable[[Seen], None] | None = None
    form: str | None = None


def check_choice(value: Any, names: Sequence[str], name: str) -> None:
    """Refuse a value that is none of names, calling it by its name."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name}: found {shown(value)}, expected one of {', '.join(names)}")


def check_options(options: Options, prior: Prior, tied: bool) -> Options:
    """Options with the defaults that depend on others filled in, for a prior; tied: for SEP.

    The optimiser is "lbfgs" for EP over all data with neither a number of steps nor an inner scheme, "adam" otherwise;
    the scheme is "outer" for "lbfgs", "inner-approximate" otherwise; the rate is 0.01 for "adaptive", 0.001 for "adam".

    Parameters
    ----------
    options : Options         as given
    prior : Prior             start
    tied : bool               SEP, which "lbfgs" cannot train

    Raises
    ------
    ValueError                naming the option
    """
    _check.scalar(options.tolerance, "tolerance", zero_allowed=False)
    _check.count(options.max_iterations, "max_iterations")
    _check.scalar(options.learn_tolerance, "learn_tolerance", zero_allowed=False)
    check_choice(options.gradient_rule, RULES, "gradient_rule")
    if options.n_steps is not None:
        _check.count(options.n_steps, "n_steps")
    if options.callback is not None and not callable(options.callback):
        raise ValueError(f"callback: found {shown(options.callback)}, expected a callable or None")
    learn = fields_to_learn(options.learn, prior)
    parts = options.batches is not None or options.batch_size is not None
    optimizer, scheme, rate = options.optimizer, options.scheme, options.rate
    if optimizer is None:
        inner = scheme is not None and scheme != "outer"
        optimizer = "adam" if tied or parts or inner or options.n_steps is not None else "lbfgs"
    check_choice(optimizer, ("lbfgs", "adaptive", "adam"), "optimizer")
    if optimizer == "lbfgs" and (tied or parts):
        raise ValueError(f"optimizer: found 'lbfgs' {'for SEP' if tied else 'with batches'}, expected adaptive or adam")
    if scheme is None:
        scheme = "outer" if optimizer == "lbfgs" else "inner-approximate"
    check_choice(scheme, SCHEMES, "scheme")
    if optimizer == "lbfgs" and scheme != "outer":
        raise ValueError(
            f"scheme: found {shown(scheme)}, expected 'outer' for lbfgs, which needs EP at its fixed point"
        )
    if parts and scheme == "outer":
        raise ValueError("scheme: found 'outer' with batches, expected inner-approximate or inner-exact")
    if rate is None:
        rate = 0.01 if optimizer == "adaptive" else 0.001
    if options.n_steps is not None and not (learn or parts):
        raise ValueError(f"n_steps: found {options.n_steps}, expected None without learn, batches or batch_size")
    rate = _check.scalar(rate, "rate", zero_allowed=False)
    return options._replace(learn=learn, optimizer=optimizer, scheme=scheme, rate=rate)
