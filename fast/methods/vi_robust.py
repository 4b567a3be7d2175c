"""vi-robust: variational inference with the robust likelihood (13) and inducing points. villacampa2017, section 3.

Batch: natural-gradient steps that never lower the bound (15), hyper-parameters by L-BFGS-B. Mini-batches: steps of
bounded length, then an Adam step on the priors with q(u) held (`fast.sparse_classes.robust_variational`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.inputs import one_of
from fast.core.options import checked_options
from fast.core.results import ClassPrediction
from fast.core.types import FloatArray
from fast.likelihood.largest import winner
from fast.sparse_classes.alpha_runs import data_moments
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.inference import inducing_classes, marked, predict_robust
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.robust_variational import RobustRun
from fast.sparse_classes.training import Progress, Trained, settings_of, train


class Latents(NamedTuple):
    """Latent values at the data, and the probability that the label's is the largest."""

    mean: FloatArray  # (n, C)
    var: FloatArray  # (n, C)
    label_probability: FloatArray  # (n,)


@dataclass(frozen=True, eq=False)
class RobustPosterior:
    """q where the run stopped."""

    run: RobustRun
    log_evidence: float | None  # the bound over all data; None: not asked for
    trained: Trained

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.run.points.inducing_moments(self.run.law)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.run.points.inducing_moments(self.run.law)[1]


@checked_options("vi-robust")
def fit(
    X: Any,
    y: Any,
    n_classes: int,
    variance: Any,
    lengthscales: Any,
    noise: Any,
    jitter: Any,
    Z: Any,
    epsilon: float,
    *,
    shared: bool = False,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    nat_rate: float = 0.1,
    learn: Iterable[str] = (),
    optimizer: str | None = None,
    rate: float = 0.001,
    learn_tolerance: float = 1e-5,
    seed: int = 0,
    trace: bool = False,
    block_size: int = 4096,
    memory_budget: int = 2**26,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    evaluate: bool = True,
    callback: Callable[[Progress], None] | None = None,
) -> RobustPosterior:
    """Maximise the bound (15) over q, and over the priors if asked. q starts at the prior.

    Time a batch step O(C n (m^2 + nodes)) for every size tried; a mini-batch of b data O(C b (m^2 + m d + nodes) +
    C m^3), whatever n is. Memory O(C m^2 + block).

    Parameters
    ----------
    X : (n, d)                       real, finite; may be a numpy.memmap, read in blocks
    y : (n,)                         ints 0..C-1
    n_classes : int                  C >= 2
    variance, noise, jitter : (C,)   > 0, >= 0, >= 0; a number stands for all classes
    lengthscales : (C, d)            > 0; (d,) stands for all classes
    Z : (C, m, d)                    inducing points; (m, d) stands for all classes
    epsilon : float                  probability of a random label, in (0, 1)
    shared : bool                    one parameter vector and one Z
    tolerance : float                standardised change of q in a full step
    max_iterations : int             natural-gradient steps
    batches, batch_size, n_steps, seed    see `fast.sparse_classes.training.settings_of`
    nat_rate : float                 size of natural-gradient steps on mini-batches, in [1e-8, 1]; less where q would
                                     move by more than half of its own scale
    learn                            names out of variance, lengthscales, noise, Z
    optimizer : str                  "lbfgs" for all data, "adam" for mini-batches
    rate : float                     of Adam
    learn_tolerance : float          on the projected gradient of L-BFGS-B
    trace : bool                     the bound over all data after each step
    block_size : int                 data handled at a time
    memory_budget : int              bytes: projections are kept between steps if they fit
    checkpoint, checkpoint_every     of mini-batch steps
    evaluate : bool                  the bound over all data at the end, one more pass
    callback : callable              called with a Progress after every step or evaluation

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    epsilon = inputs.scalar("epsilon", epsilon, positive=True)
    if epsilon >= 1.0:
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected a number in (0, 1)")
    nat_rate = inputs.scalar("nat_rate", nat_rate, positive=True)
    if nat_rate > 1.0:
        raise ValueError(f"nat_rate: found {shown(nat_rate)}, expected a number in [1e-8, 1]")
    learn = inputs.names("learn", learn)
    evaluate = inputs.flag("evaluate", evaluate)
    in_steps = batches is not None or batch_size is not None or (n_steps is not None and optimizer != "lbfgs")
    if optimizer is None:
        optimizer = "adam" if in_steps else "lbfgs"
    one_of("optimizer", optimizer, ("lbfgs", "adam"))
    data = ClassData(X, y, n_classes, block_size=block_size, memory_budget=memory_budget)
    settings = settings_of(
        data.n,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=learn,
        scheme="outer" if optimizer == "lbfgs" else "inner-approximate",
        optimizer=optimizer,
        rate=rate,
        learn_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    points = inducing_classes(data, variance, lengthscales, noise, jitter, Z, shared)
    own = {"method": "vi-robust", "epsilon": epsilon, "nat_rate": nat_rate}
    settings = marked(settings, data, points, own)
    guarded = not settings.stochastic and not (settings.learn and optimizer == "adam")
    run = RobustRun(data, points, epsilon, guarded=guarded, nat_rate=nat_rate)
    trained = train(run, settings, callback)
    return RobustPosterior(run, run.log_evidence() if evaluate else None, trained)


def gradients(posterior: RobustPosterior) -> PointGradients:
    """Gradient of the bound over all data, q(u) held.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient()


def latents(posterior: RobustPosterior) -> Latents:
    """Moments (16), (17) at the data and the probability of each label, no error in it. One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    n, C = run.data.n, run.data.n_classes
    found = Latents(np.empty((n, C)), np.empty((n, C)), np.empty(n))
    for block in run.data.blocks(run.points):
        moments = data_moments(run.law, block.view)
        found.mean[block.part], found.var[block.part] = moments
        found.label_probability[block.part] = np.exp(winner(*moments, block.y, moments=False).log_mass)
    return found


@checked_options("vi-robust")
def predict(posterior: RobustPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points, the random labels of (13) included.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    run = posterior.run
    return predict_robust(run.points, run.law, X_test, run.epsilon, block_size=block_size)
