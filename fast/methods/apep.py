"""apep, arpep, rpapep: energies of alpha-divergence minimisation over a free Gaussian q. villacampa2020, 3.2 to 3.4.

All data: guarded natural-gradient ascent to the optimum (`fast.sparse_classes.alpha_runs`), priors by L-BFGS-B around
it. Steps: Adam on q and the priors together, on mini-batches or on all data (`fast.sparse_classes.alpha_joint`). alpha
= 0 is variational inference for all three; an energy without a finite optimum is said to have none.
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
from fast.methods.pep import checked_powers
from fast.sparse_classes.alpha_energies import ENERGIES, Energy
from fast.sparse_classes.alpha_joint import JointSteps
from fast.sparse_classes.alpha_runs import EnergyRun
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.inference import inducing_classes, marked, predict_robust
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.training import Progress, Trained, settings_of, train


@dataclass(frozen=True, eq=False)
class EnergyPosterior:
    """q where the run stopped."""

    run: EnergyRun
    log_evidence: float | None  # the energy of all data; None: it has no finite maximum, or not asked for
    trained: Trained
    optimum: str  # "finite", "not reached", or why there is none

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.run.points.inducing_moments(self.run.law)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.run.points.inducing_moments(self.run.law)[1]


@checked_options("apep")
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
    energy: str = "apep",
    alpha: float = 0.5,
    shared: bool = False,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
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
) -> EnergyPosterior:
    """Maximise an energy over q, and over the priors if asked. q starts at the prior.

    Time a step on all data C n (2 m^2 + nodes) + O(C m^3) for every size tried; on a mini-batch of b data
    O(C b (m^2 + m d + nodes) + C m^3), whatever n is. Memory O(C m^2 + block).

    Parameters
    ----------
    X : (n, d)                       real, finite; may be a numpy.memmap, read in blocks
    y : (n,)                         ints 0..C-1
    n_classes : int                  C >= 2
    variance, noise, jitter : (C,)   > 0, >= 0, >= 0; a number stands for all classes
    lengthscales : (C, d)            > 0; (d,) stands for all classes
    Z : (C, m, d)                    inducing points; (m, d) stands for all classes
    epsilon : float                  probability of a random label, in [0, 1); > 0 if alpha is 0
    energy : str                     "apep", "arpep" or "rpapep"
    alpha : float                    power, 0 or in [1e-8, 1]
    shared : bool                    one parameter vector and one Z
    tolerance : float                standardised length of the natural gradient
    max_iterations : int             natural-gradient steps
    batches, batch_size, n_steps, seed    see `fast.sparse_classes.training.settings_of`
    learn                            names out of variance, lengthscales, noise, Z
    optimizer : str                  "lbfgs" for all data, "adam" for steps
    rate : float                     of Adam
    learn_tolerance : float          on the projected gradient of L-BFGS-B
    trace : bool                     the energy of all data after each step (Adam: before it)
    block_size : int                 data handled at a time
    memory_budget : int              bytes: projections are kept between steps if they fit
    checkpoint, checkpoint_every     of Adam's steps
    evaluate : bool                  the energy of all data at the end, one more pass
    callback : callable              called with a Progress after every step or evaluation

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    one_of("energy", energy, ENERGIES)
    alpha, epsilon = checked_powers(alpha, epsilon)
    evaluate, callback = inputs.flag("evaluate", evaluate), inputs.calls_back("callback", callback)
    learn = inputs.names("learn", learn)
    in_steps = batches is not None or batch_size is not None
    if optimizer is not None:
        one_of("optimizer", optimizer, ("lbfgs", "adam"))
        if optimizer == "lbfgs" and in_steps:
            raise ValueError("optimizer: found 'lbfgs' with batches or steps, expected 'adam'")
    joint = in_steps or optimizer == "adam"
    if n_steps is not None and not (joint or learn):
        raise ValueError(
            f"n_steps: found {n_steps} without batches, learn or optimizer='adam', expected None; see max_iterations"
        )
    data = ClassData(X, y, n_classes, block_size=block_size, memory_budget=memory_budget)
    if energy == "apep" and data.n == 1 and alpha == 1.0:
        raise ValueError("alpha: found 1 with a single datum, expected less: the energy of apep does not depend on q")
    settings = settings_of(
        data.n,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=learn,
        scheme="inner-approximate" if joint else "outer",
        optimizer="adam" if joint else "lbfgs",
        rate=rate,
        learn_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        q_steps=joint,
    )
    points = inducing_classes(data, variance, lengthscales, noise, jitter, Z, shared)
    own = {"method": "apep", "energy": energy, "alpha": alpha, "epsilon": epsilon}
    settings = marked(settings, data, points, own)
    run = EnergyRun(data, points, Energy(energy, alpha, data.n), epsilon)
    if joint:
        trained = JointSteps(run, settings).all(callback)
        if evaluate:
            trained = trained._replace(residual=run.here.change.residual)
    else:
        trained = train(run, settings, callback)
    optimum = run.unbounded or ("finite" if trained.converged else "not reached")
    return EnergyPosterior(run, run.log_evidence() if evaluate else None, trained, optimum)


def gradients(posterior: EnergyPosterior) -> PointGradients:
    """Gradient of the energy of all data in the priors, mean and covariance of u held.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient()


def log_norms(posterior: EnergyPosterior) -> FloatArray:
    """F_i = log E[p(y_i | f_i)^alpha]/alpha of every datum: (n,). One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    return np.concatenate([found.value for _, found in run.seen(run.energy.laws(run.law).data)])


@checked_options("apep")
def predict(posterior: EnergyPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2020 (A.31) to (A.34).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    run = posterior.run
    return predict_robust(run.points, run.law, X_test, run.epsilon, block_size=block_size)
