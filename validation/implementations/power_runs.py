"""Runs of `fast` pep, apep, arpep and rpapep whose q and priors take turns, and that go on with more data.

`solve` answers one question from its start. An experiment that trains q first and then q and priors, with adaptive
rates for every method, and goes on with rows that come later holds a run and moves it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fast.core import values
from fast.methods.pep import checked_powers
from fast.sparse_classes import training
from fast.sparse_classes.alpha_energies import Energy
from fast.sparse_classes.alpha_runs import EnergyRun
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.ep import empty_sites
from fast.sparse_classes.inference import inducing_classes, predict_robust
from fast.sparse_classes.power_factors import PowerDatum, PowerRun
from fast.sparse_classes.projections import InducingClasses

Array = NDArray[np.float64]


def begin(method: str, alpha: float, X: Any, y: Any, prior: Any, *, epsilon: float, damping: float) -> Any:
    """A run that has not seen the data: sites at zero, q at the prior.

    Parameters
    ----------
    method : str       pep, apep, arpep or rpapep
    alpha : float      in [0, 1]
    X, y               training rows
    prior              variance, lengthscales, noise, jitter and Z of every class
    epsilon : float    probability of a random label
    damping : float    of power EP
    """
    alpha, epsilon = checked_powers(alpha, epsilon)
    data = _rows(X, y, len(prior.Z))
    return _run(method, alpha, data, inducing_classes(data, values.Prior(*prior)), epsilon, damping)


def grown(run: Any, method: str, alpha: float, X: Any, y: Any, damping: float) -> Any:
    """The run on more data, which come after those that it knows: priors, inducing points and q as they are.

    Power EP keeps its sites, new ones are zero; the other methods keep q itself.
    """
    new = _run(method, alpha, _rows(X, y, run.points.n_classes), run.points, epsilon_of(run), damping)
    state = {name: np.array(part) for name, part in run.state().items()}
    if method == "pep":
        state["sites"] = np.concatenate([state["sites"], new.state()["sites"][:, run.data.n :]], axis=1)
    new.restore(state, run.points.hyper, run.points.Z, True)
    new.rebuild()
    return new


def _rows(X: Any, y: Any, n_classes: int) -> ClassData:
    return ClassData(X, y, n_classes, block_size=4096, memory_budget=2**26)


def _run(method: str, alpha: float, data: ClassData, points: InducingClasses, epsilon: float, damping: float) -> Any:
    if method == "pep":
        factors = PowerDatum(alpha, epsilon)
        return PowerRun(data, points, factors, empty_sites(factors, data.n, data.n_classes), damping=damping)
    return EnergyRun(data, points, Energy(method, alpha, data.n), epsilon)


def epsilon_of(run: Any) -> float:
    """Probability of a random label of a run of any of the four methods."""
    return float(run.power.epsilon if isinstance(run, PowerRun) else run.epsilon)


def probabilities(run: Any, X: Any) -> Array:
    """(t, C) at X (t, d)."""
    return np.asarray(predict_robust(run.points, run.q, X, epsilon_of(run)).probabilities)


def settle(run: Any, callback: Callable[[Any], None] | None = None, **options: Any) -> Any:
    """Sweeps or natural-gradient steps on q, priors held; how it ended.

    options    max_iterations, tolerance
    """
    settings = training.settings_of(run.data.n, training.ClassTraining(**options))
    return training.converge(run, settings, callback)


def learn(run: Any, callback: Callable[[Any], None] | None = None, **options: Any) -> Any:
    """q and priors; how it ended.

    options    those of training by steps or by L-BFGS-B: learn, optimizer, scheme, n_steps, rate, tolerance and others
    """
    settings = training.settings_of(run.data.n, training.ClassTraining(**options))
    return training.train(run, settings, callback)
