"""What runs of stochastic natural gradients begin with: their options, batches, prior and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fast.core import inputs
from fast.core.declare import option
from fast.core.inputs import Hyper
from fast.core.options import SHARE, AdamRate, Learning, Steps, Stopping, Traced, Watched
from fast.core.types import FloatArray
from fast.core.values import Data, Prior, checked_hyper
from fast.one_latent.stochastic import Settings, checked_rate
from fast.solve.adam import Packing
from fast.solve.minibatch import Batch, Listed, Shuffled, index_lists


@dataclass(frozen=True, kw_only=True, eq=False)
class NaturalSteps(Watched, Traced, Steps, Stopping, Learning, AdamRate):
    """Options of natural-gradient steps on batches; what is learned takes one step of Adam after each."""

    init_batches: Sequence[Any] | None = option(
        "batches", "mini-batches that start the adaptive rate, without stepping", default=None
    )
    rate: float | str | tuple[Any, ...] = option(
        "rate", "rate of the natural-gradient steps", SHARE, choices=("adaptive",), default="adaptive"
    )
    stop: Any = option(
        "number",
        "average change below which steps end; None: never",
        "[0, inf)",
        choices=("default",),
        optional=True,
        default="default",
    )


class Beginning(NamedTuple):
    """What `stochastic_ascent` takes, from what a user gave."""

    hyper: Hyper
    Z: FloatArray
    settings: Settings
    init_batches: list[Batch] | None


def beginning(
    data: Data, prior: Prior, options: NaturalSteps, source: Listed | Shuffled, check_every: int | None = None
) -> Beginning:
    """Prior, settings and first batches of a run on batches.

    Parameters
    ----------
    data : Data              arrays, or blocks
    prior : Prior            of one latent function with inducing points
    options                  of the steps
    source                   batches
    check_every : int        steps; None: 50 for batches that are drawn, 1 for those that are listed

    Raises
    ------
    ValueError               bad input, by name
    """
    listed = options.batches is not None
    if options.init_batches is not None and data.y is None:
        raise ValueError("init_batches: found index arrays, expected None with data in blocks")
    hyper = checked_hyper(prior, source.d)
    Z = inputs.finite_rows("Z", inputs.inputs("Z", prior.Z, source.d)).copy()
    starts = None
    if options.init_batches is not None:
        first = Listed(data.X, data.y, index_lists("init_batches", options.init_batches, source.n))
        starts = [first.at(batch) for batch in first.batches]
    stop = (None if listed else 1e-4) if options.stop == "default" else options.stop or None
    settings = Settings(
        steps_of(options, source),
        checked_rate(options.rate),
        Packing(options.learn, hyper, Z).names,
        options.learning_rate,
        options.window,
        stop,
        check_every or (1 if listed else 50),
        options.trace,
        callback=options.callback,
        hyperprior=options.hyperprior,
    )
    return Beginning(hyper, Z, settings, starts)


def batches_of(data: Data, options: Steps, **pool: Any) -> Listed | Shuffled:
    """Batches as listed, or drawn without a permutation of length n.

    Parameters
    ----------
    data : Data          arrays, or blocks where y is None
    options : Steps      batches, or their size and the seed
    pool                 block_size, pool_size and n of `fast.solve.minibatch.Shuffled`

    Raises
    ------
    ValueError           an empty batch, by number
    """
    if options.batches is None:
        return Shuffled(data.X, data.y, options.rows, options.seed, **pool)
    if data.y is None:
        raise ValueError("batches: found index arrays, expected None with data in blocks")
    return Listed(data.X, data.y, options.batches)


def steps_of(options: Steps, source: Listed | Shuffled) -> int:
    """The number of steps: by default all listed batches, else 10 000.

    Parameters
    ----------
    options : Steps    n_steps
    source             batches
    """
    limit = len(source) if isinstance(source, Listed) else None
    if options.n_steps is None:
        return 10_000 if limit is None else limit
    if limit is not None and options.n_steps > limit:
        raise ValueError(f"n_steps: found {options.n_steps}, expected at most {limit}, the number of batches")
    return options.n_steps
