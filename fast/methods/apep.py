"""apep, arpep, rpapep: energies of alpha-divergence minimisation over a free Gaussian q. villacampa2020, 3.2 to 3.4.

All data: guarded natural-gradient ascent to the optimum (`fast.sparse_classes.alpha_runs`), priors by L-BFGS-B around
it. Steps: Adam on q and the priors together, on mini-batches or on all data (`fast.sparse_classes.alpha_joint`). alpha
= 0 is variational inference for all three; an energy without a finite optimum is said to have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core.declare import option, takes_values
from fast.core.options import (
    Blocks,
    Checkpointed,
    Evaluated,
    Iteration,
    Mislabelled,
    Powered,
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
from fast.methods.pep import checked_powers
from fast.sparse_classes.alpha_energies import ENERGIES, Energy
from fast.sparse_classes.alpha_joint import JointSteps
from fast.sparse_classes.alpha_runs import EnergyRun
from fast.sparse_classes.inference import ClassPosterior, predict_robust, start
from fast.sparse_classes.projections import ClassDistribution, PointGradients
from fast.sparse_classes.training import train


@dataclass(frozen=True, kw_only=True, eq=False)
class OneEnergyOptions(
    Iteration, Powered, Mislabelled, Steps, Training, Traced, Checkpointed, Watched, Evaluated, Storage
):
    """Options of `fit` for one of the energies."""

    optimizer: str | None = option("choice", "of a search over the prior", choices=("lbfgs", "adam"), default=None)
    rate: float = 0.001


@dataclass(frozen=True, kw_only=True, eq=False)
class EnergyOptions(OneEnergyOptions):
    """Options of `fit`."""

    energy: str = option("choice", "the energy that is minimised", choices=ENERGIES, default="apep")


DEFAULTS = EnergyOptions()


@dataclass(frozen=True, eq=False)
class EnergyPosterior(ClassPosterior[EnergyRun]):
    """q where the run stopped; log_evidence is the energy of all data."""

    optimum: str  # "finite", "not reached", or why there is none


@takes_values
def fit(
    data: Data, prior: Prior, options: EnergyOptions = DEFAULTS, *, q: ClassDistribution | None = None
) -> EnergyPosterior:
    """Maximise an energy over q, and over the priors if asked.

    Time a step on all data C n (2 m^2 + nodes) + O(C m^3) for every size tried; on a mini-batch of b data
    O(C b (m^2 + m d + nodes) + C m^3), whatever n is. Memory O(C m^2 + block).

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks
    prior      of C classes, with inducing points
    options    epsilon > 0 if alpha is 0; tolerance on the standardised length of the natural gradient, max_iterations
               of its steps; optimizer "lbfgs" for all data, "adam" for steps on q and priors together; trace is the
               energy of all data after each step (Adam: before it)
    q          where it starts, as `posterior.run.q` of ep or of an energy at the same inducing points; None: the prior.
               A checkpoint that is there goes before it

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    alpha, epsilon = checked_powers(options.alpha, options.epsilon)
    in_batches = options.batches is not None or options.batch_size is not None
    if options.optimizer == "lbfgs" and in_batches:
        raise ValueError("optimizer: found 'lbfgs' with batches or steps, expected 'adam'")
    joint = in_batches or options.optimizer == "adam"
    if options.n_steps is not None and not (joint or options.learn):
        raise ValueError(
            f"n_steps: found {options.n_steps} without batches, learn or optimizer='adam', expected None; "
            "see max_iterations"
        )
    schedule = (
        {"scheme": "inner-approximate", "optimizer": "adam"} if joint else {"scheme": "outer", "optimizer": "lbfgs"}
    )
    rows, points, settings = start("apep", data, prior, options, q_steps=joint, **schedule)
    if options.energy == "apep" and rows.n == 1 and alpha == 1.0:
        raise ValueError("alpha: found 1 with a single datum, expected less: the energy of apep does not depend on q")
    run = EnergyRun(rows, points, Energy(options.energy, alpha, rows.n), epsilon)
    if q is not None:
        run.begin_at(q)
    if joint:
        trained = JointSteps(run, settings).all(options.callback)
        if options.evaluate:
            trained = trained._replace(residual=run.here.change.residual)
    else:
        trained = train(run, settings, options.callback)
    optimum = run.unbounded or ("finite" if trained.converged else "not reached")
    return EnergyPosterior(run, run.log_evidence() if options.evaluate else None, trained, optimum)


@one_thread
def gradients(posterior: EnergyPosterior) -> PointGradients:
    """Gradient of the energy of all data in the priors, mean and covariance of u held.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient()


@one_thread
def log_norms(posterior: EnergyPosterior) -> FloatArray:
    """F_i = log E[p(y_i | f_i)^alpha]/alpha of every datum: (n,). One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    return np.concatenate([value.value for _, value in run.powers(run.energy.distributions(run.q).data)])


@Blocks.checks
def predict(posterior: EnergyPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2020 (A.31) to (A.34).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    run = posterior.run
    return predict_robust(run.points, run.q, X_test, run.epsilon, block_size=block_size)
