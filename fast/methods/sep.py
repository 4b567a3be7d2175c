"""sep: stochastic expectation propagation, all factors of a class tied. villacampa2017, section 2.3.

Memory O(C m^2) and the batch; a step costs O(C b m^2 + C m^3) with all gradients, whatever n is
(`fast.sparse_classes.sep`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.inputs import one_of
from fast.core.options import checked_options
from fast.core.results import ClassPrediction
from fast.core.types import FloatArray
from fast.methods.ep import Latents
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.inference import inducing_classes, marked, predictive_moments
from fast.sparse_classes.inference import predict as predict_classes
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.sep import COUNTS, TiedRun
from fast.sparse_classes.training import Progress, Trained, settings_of, train


@dataclass(frozen=True, eq=False)
class SEPPosterior:
    """Tied factors and q where the run stopped."""

    run: TiedRun
    log_evidence: float | None  # log Z_q of all data
    trained: Trained

    @property
    def tied(self) -> tuple[FloatArray, FloatArray]:
        """T (C, m, m) and t (C, m)."""
        return self.run.tied()

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.run.points.inducing_moments(self.run.law)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.run.points.inducing_moments(self.run.law)[1]


@checked_options("sep")
def fit(
    X: Any,
    y: Any,
    n_classes: int,
    variance: Any,
    lengthscales: Any,
    noise: Any,
    jitter: Any,
    Z: Any,
    *,
    shared: bool = False,
    count: str = "all",
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Iterable[str] = (),
    scheme: str | None = None,
    optimizer: str | None = None,
    rate: float | None = None,
    seed: int = 0,
    trace: bool = False,
    block_size: int = 4096,
    memory_budget: int = 2**26,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    evaluate: bool = True,
    callback: Callable[[Progress], None] | None = None,
) -> SEPPosterior:
    """SEP to its fixed point, on mini-batches, or with learned priors. Tied factors start at zero.

    Parameters
    ----------
    X : (n, d)                       real, finite; may be a numpy.memmap, read in blocks and in batches
    y : (n,)                         ints 0..C-1
    n_classes : int                  C >= 2
    variance, noise, jitter : (C,)   > 0, >= 0, >= 0; a number stands for all classes
    lengthscales : (C, d)            > 0; (d,) stands for all classes
    Z : (C, m, d)                    inducing points; (m, d) stands for all classes
    shared : bool                    one parameter vector and one Z: kernels are computed once, gradients summed
    count : str                      the n of the n-th root: "all" factors, or those that touch the class ("per-class")
    damping : float                  in [1e-8, 1]
    tolerance : float                largest standardised change of a tied factor in an undamped sweep
    max_iterations : int             sweeps
    batches, batch_size, n_steps, seed    see `fast.sparse_classes.training.settings_of`
    learn, scheme, optimizer, rate   see `fast.sparse_classes.training`; "lbfgs" has no gradient to follow here
    trace : bool                     log Z_q of all data after each sweep or step
    block_size : int                 data of a pass handled at a time
    memory_budget : int              bytes: projections are kept between sweeps if they fit
    checkpoint, checkpoint_every     of steps
    evaluate : bool                  log Z_q of all data at the end, one pass
    callback : callable              called with a Progress after every sweep or step

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    one_of("count", count, COUNTS)
    evaluate = inputs.flag("evaluate", evaluate)
    data = ClassData(X, y, n_classes, block_size=block_size, memory_budget=memory_budget)
    settings = settings_of(
        data.n,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=learn,
        scheme=scheme,
        optimizer=optimizer,
        rate=rate,
        seed=seed,
        trace=trace,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        lbfgs=False,
    )
    points = inducing_classes(data, variance, lengthscales, noise, jitter, Z, shared)
    settings = marked(settings, data, points, {"method": "sep", "count": count, "damping": damping})
    run = TiedRun(data, points, count, damping=damping, gradient_rule=settings.gradient_rule)
    trained = train(run, settings, callback)
    return SEPPosterior(run, run.log_evidence() if evaluate else None, trained)


@checked_options("sep")
def gradients(posterior: SEPPosterior, *, gradient_rule: str = "10") -> PointGradients:
    """Over all data, by (10) as the paper says, which is no derivative of this log Z_q, or exactly, T and t held.

    Parameters
    ----------
    posterior              from `fit`
    gradient_rule : str    "10" or "exact"
    """
    one_of("gradient_rule", gradient_rule, ("10", "exact"))
    return posterior.run.gradient(None, gradient_rule)


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
        mean[block.part], var[block.part] = predictive_moments(run.law, block.view)
        norm[block.part] = run.tilt(block.view, block.y)[0].log_norm
    return Latents(mean, var, norm)


@checked_options("sep")
def predict(posterior: SEPPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2017 (66) to (68).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_classes(posterior.run.points, posterior.run.law, X_test, block_size=block_size)
