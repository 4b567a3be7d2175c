"""vi-robust: variational inference with the robust likelihood (13) and inducing points. villacampa2017, section 3.

Batch: natural-gradient steps that never lower the bound (15), hyper-parameters by L-BFGS-B. Mini-batches: steps of
bounded length, then an Adam step on the priors with q(u) held (`fast.sparse_classes.robust_variational`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import option, takes_values
from fast.core.options import (
    SHARE,
    Blocks,
    Checkpointed,
    Evaluated,
    Iteration,
    Mislabelled,
    Steps,
    Storage,
    Traced,
    Training,
    Watched,
)
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.likelihood.largest import argmax_moments
from fast.sparse_classes.alpha_runs import data_moments
from fast.sparse_classes.inference import ClassPosterior, predict_robust, start
from fast.sparse_classes.projections import ClassDistribution, PointGradients
from fast.sparse_classes.robust_variational import RobustRun
from fast.sparse_classes.training import train


@dataclass(frozen=True, kw_only=True, eq=False)
class RobustOptions(Iteration, Steps, Training, Traced, Checkpointed, Watched, Mislabelled, Evaluated, Storage):
    """Options of `fit`."""

    epsilon: float = option("number", "probability of a labelling error", "(0, 1)", default=1e-3)
    nat_rate: float = option("number", "rate of the natural-gradient steps", SHARE, default=0.1)
    rate: float = 0.001


DEFAULTS = RobustOptions()


class Latents(NamedTuple):
    """Latent values at the data, and the probability that the label's is the largest."""

    mean: FloatArray  # (n, C)
    var: FloatArray  # (n, C)
    label_probability: FloatArray  # (n,)


class RobustPosterior(ClassPosterior[RobustRun]):
    """q where the run stopped; log_evidence is the bound over all data."""


@takes_values
def fit(
    data: Data, prior: Prior, options: RobustOptions = DEFAULTS, *, q: ClassDistribution | None = None
) -> RobustPosterior:
    """Maximise the bound (15) over q, and over the priors if asked.

    Time a batch step O(C n (m^2 + nodes)) for every size tried; a mini-batch of b data O(C b (m^2 + m d + nodes) +
    C m^3), whatever n is. Memory O(C m^2 + block).

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks
    prior      of C classes, with inducing points
    options    tolerance on the standardised change of q in a full step, max_iterations natural-gradient steps; nat_rate
               is their size on mini-batches, less where q would move by more than half of its own scale; optimizer
               "lbfgs" for all data, "adam" for mini-batches
    q          where it starts, as `posterior.run.q` of ep or of vi-robust at the same inducing points; None: the prior.
               A checkpoint that is there goes before it

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    in_batches = options.batches is not None or options.batch_size is not None
    in_steps = in_batches or (options.n_steps is not None and options.optimizer != "lbfgs")
    optimizer = options.optimizer or ("adam" if in_steps else "lbfgs")
    scheme = "outer" if optimizer == "lbfgs" else "inner-approximate"
    rows, points, settings = start("vi-robust", data, prior, options, scheme=scheme, optimizer=optimizer)
    guarded = not settings.stochastic and not (settings.learn and optimizer == "adam")
    run = RobustRun(rows, points, options.epsilon, guarded=guarded, nat_rate=options.nat_rate)
    if q is not None:
        run.begin_at(q)
    trained = train(run, settings, options.callback)
    return RobustPosterior(run, run.log_evidence() if options.evaluate else None, trained)


@one_thread
def gradients(posterior: RobustPosterior) -> PointGradients:
    """Gradient of the bound over all data, q(u) held.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient()


@one_thread
def latents(posterior: RobustPosterior) -> Latents:
    """Moments (16), (17) at the data and the probability of each label, no error in it. One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    n, C = run.data.n, run.data.n_classes
    result = Latents(np.empty((n, C)), np.empty((n, C)), np.empty(n))
    for block in run.data.blocks(run.points):
        moments = data_moments(run.q, block.view)
        result.mean[block.part], result.var[block.part] = moments
        result.label_probability[block.part] = np.exp(argmax_moments(*moments, block.y, moments=False).log_mass)
    return result


@Blocks.checks
def predict(posterior: RobustPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points, the random labels of (13) included.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    run = posterior.run
    return predict_robust(run.points, run.q, X_test, run.epsilon, block_size=block_size)
