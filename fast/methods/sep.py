"""sep: stochastic expectation propagation, all factors of a class tied. villacampa2017, section 2.3.

Memory O(C m^2) and the batch; a step costs O(C b m^2 + C m^3) with all gradients, whatever n is
(`fast.sparse_classes.sep`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core.declare import option, takes_values
from fast.core.options import (
    Alternating,
    Ascent,
    Blocks,
    Checkpointed,
    Damped,
    Evaluated,
    GradientRule,
    Iteration,
    Steps,
    Storage,
    Tied,
    Traced,
    Watched,
)
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.sparse_classes.inference import ClassPosterior, Latents, predictive_moments, start
from fast.sparse_classes.inference import predict as predict_classes
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.sep import TiedRun
from fast.sparse_classes.training import train


@dataclass(frozen=True, kw_only=True, eq=False)
class SEPOptions(
    Tied, Iteration, Steps, Ascent, Alternating, Traced, Checkpointed, Watched, Damped, Evaluated, Storage
):
    """Options of `fit`: no search, as log Z_q has no gradient here that is its derivative."""

    damping: float = 0.5
    max_iterations: int = 1000
    optimizer: str | None = option("choice", "of the steps on the prior", choices=("adaptive", "adam"), default=None)


DEFAULTS = SEPOptions()


class SEPPosterior(ClassPosterior[TiedRun]):
    """Tied factors and q where the run stopped; log_evidence is log Z_q."""

    @property
    def tied(self) -> tuple[FloatArray, FloatArray]:
        """T (C, m, m) and t (C, m)."""
        return self.run.tied()


@takes_values
def fit(data: Data, prior: Prior, options: SEPOptions = DEFAULTS) -> SEPPosterior:
    """SEP to its fixed point, on mini-batches, or with learned priors. Tied factors start at zero.

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks and in batches
    prior      of C classes, with inducing points; shared: kernels are computed once, gradients summed
    options    tolerance on the largest standardised change of a tied factor in an undamped sweep; count is the n of the
               n-th root: "all" factors, or those that touch the class ("per-class"); see
               `fast.sparse_classes.training` for the schedules

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    rows, points, settings = start("sep", data, prior, options, lbfgs=False)
    run = TiedRun(rows, points, options.count, damping=options.damping, gradient_rule=settings.gradient_rule)
    trained = train(run, settings, options.callback)
    return SEPPosterior(run, run.log_evidence() if options.evaluate else None, trained)


@GradientRule.checks
def gradients(posterior: SEPPosterior, *, gradient_rule: str = "10") -> PointGradients:
    """Over all data, by (10) as the paper says, which is no derivative of this log Z_q, or exactly, T and t held.

    Parameters
    ----------
    posterior              from `fit`
    gradient_rule : str    "10" or "exact"
    """
    return posterior.run.gradient(None, gradient_rule)


@one_thread
def latents(posterior: SEPPosterior) -> Latents:
    """Latent values at the data and log Z of every factor. One pass, time 2 C n m^2.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    n, C = run.data.n, run.data.n_classes
    mean, var, norm = (np.empty((n, C)) for _ in range(3))
    for block in run.data.blocks(run.points):
        mean[block.part], var[block.part] = predictive_moments(run.q, block.view)
        norm[block.part] = run.tilt(block.view, block.y)[0].log_norm
    return Latents(mean, var, norm)


@Blocks.checks
def predict(posterior: SEPPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2017 (66) to (68).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_classes(posterior.run.points, posterior.run.q, X_test, block_size=block_size)
