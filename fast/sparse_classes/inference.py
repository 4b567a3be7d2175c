"""What ep and sep have in common around their runs: checked arguments, latent values, predictions.

villacampa2017, supplement H: latent values at new inputs are independent Gaussians (65) with moments (66), (67), and
the class probabilities are integrals in one dimension (68), see `fast.likelihood.largest`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from fast.core import checkpoint as checkpoints
from fast.core import inputs
from fast.core.blocks import block_edges
from fast.core.declare import Options
from fast.core.hyper import class_hyper
from fast.core.options import Storage
from fast.core.results import ClassPrediction, ScalarMoments
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.ledger import equation
from fast.likelihood.largest import class_probabilities
from fast.likelihood.power import robust_probabilities
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.projections import ClassDistribution, ClassView, InducingClasses
from fast.sparse_classes.training import ClassTraining, Settings, Trained, settings_of


def class_data(data: Data, options: Storage) -> ClassData:
    """The data as a method of inducing classes reads them.

    Parameters
    ----------
    data       inputs and labels
    options    rows handled at a time, bytes that are kept
    """
    budget = options.memory_budget
    return ClassData(data.X, data.y, data.n_classes, block_size=options.block_size, memory_budget=budget)


class Start(NamedTuple):
    """Data, priors and settings of a run, checked."""

    data: ClassData
    points: InducingClasses
    settings: Settings


def start(method: str, data: Data, prior: Prior, options: Storage, **rules: Any) -> Start:
    """Everything that a method of inducing classes begins with.

    Parameters
    ----------
    method : str    its id, part of the fingerprint in a checkpoint
    data            inputs and labels
    prior           of C classes, with inducing points
    options         of the method
    rules           see `fast.sparse_classes.training.settings_of`

    Raises
    ------
    ValueError                  by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    rows = class_data(data, options)
    settings = settings_of(rows.n, options, **rules)
    points = inducing_classes(rows, prior)
    return Start(rows, points, marked(settings, rows, points, method, options))


def inducing_classes(data: ClassData, prior: Prior) -> InducingClasses:
    """Priors and inducing points of all classes, checked by name.

    Parameters
    ----------
    data     their number of classes and inputs count
    prior    parameters of each class, or one that stands for all; Z (C, m, d), or (m, d) for all classes

    Raises
    ------
    ValueError                  by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    C = data.n_classes
    hyper = class_hyper(prior.variance, prior.lengthscales, prior.noise, prior.jitter, C, data.d)
    if prior.Z is None:
        raise ValueError("Z: found None, expected inducing points (C, m, d)")
    shared = inputs.flag("shared", prior.shared)
    Z = inputs.real_numbers("Z", prior.Z)
    if Z.ndim == 2:
        Z = np.broadcast_to(Z, (C, *Z.shape))
    if Z.ndim != 3 or Z.shape[0] != C or Z.shape[1] == 0 or Z.shape[2] != data.d:
        raise ValueError(f"Z: found shape {np.shape(prior.Z)}, expected ({C}, m, {data.d})")
    Z = inputs.finite_rows("Z", Z).copy()
    if shared and any(np.unique(part, axis=0).shape[0] > 1 for part in (*hyper, Z.reshape(C, -1))):
        raise ValueError("shared: found parameters that differ between the classes, expected one vector for all")
    return InducingClasses(hyper, Z, shared)


# the length of a run, where and how often it is saved, what looks on and memory_budget change no number of it
_LEFT_OUT = {"checkpoint", "checkpoint_every", "n_steps", "batches", "mark"}
_NO_NUMBER = {"callback", "evaluate", "memory_budget", "site_file"}


def marked(settings: Settings, data: ClassData, points: InducingClasses, method: str, options: Options) -> Settings:
    """Settings with the fingerprint of the run, if it has a checkpoint: one read of all data, block by block.

    Parameters
    ----------
    settings        of the run
    data            every row counts
    points          where it starts
    method : str    its id
    options         of the method
    """
    if settings.checkpoint is None:
        return settings
    plain = {name: value for name, value in settings._asdict().items() if name not in _LEFT_OUT}
    if settings.hyperprior is None:  # runs without one keep the mark that they had before there were any
        del plain["hyperprior"]
    plain |= {"n": data.n, "n_classes": data.n_classes, "block_size": data.block_size, "shared": points.shared}
    training = ClassTraining.declared()
    own = {name: value for name, value in vars(options).items() if name not in training and name not in _NO_NUMBER}
    arrays: dict[str, Any] = {**data.digests(), "Z": points.Z, **points.hyper._asdict()}
    if settings.batches is not None:
        arrays["batches"] = checkpoints.lists_digest(settings.batches)
    return settings._replace(mark=checkpoints.fingerprint({**plain, **own, "method": method}, arrays))


class ClassRun(Protocol):
    """Where q stands."""

    points: InducingClasses
    q: ClassDistribution


RunT = TypeVar("RunT", bound=ClassRun)


@dataclass(frozen=True, eq=False)
class ClassPosterior(Generic[RunT]):
    """Where a run of inducing classes stopped."""

    run: RunT
    log_evidence: float | None  # of all data; None: a cavity is improper, there is no finite optimum, or not asked for
    trained: Trained

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.run.points.inducing_moments(self.run.q)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.run.points.inducing_moments(self.run.q)[1]


class Latents(NamedTuple):
    """Latent values at the data, and log Z of the factors."""

    mean: FloatArray  # (n, C)
    var: FloatArray  # (n, C)
    log_tilted_norm: FloatArray  # (n, C), or (n,) for factors="datum"


@equation("villacampa2017", "65", "66", "67")
def predictive_moments(q: ClassDistribution, view: ClassView) -> ScalarMoments:
    """upsilon'm and s + upsilon'V upsilon at each input and class: villacampa2017 (65) to (67). Time C b m^2.

    Parameters
    ----------
    q       q(v)
    view    inputs
    """
    mean, var = q.project(view)
    return ScalarMoments(mean, view.cond_var + var)


def predict(points: InducingClasses, q: ClassDistribution, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points. Time O(t C (m^2 + m d + C nodes)).

    Parameters
    ----------
    points               inducing points
    q                    q(v)
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    X_test = inputs.inputs("X_test", X_test, points.d, allow_empty=True)
    t, C = X_test.shape[0], points.n_classes
    mean, var, raw = np.empty((t, C)), np.empty((t, C)), np.empty((t, C))
    for start, stop in block_edges(t, inputs.count("block_size", block_size)):
        block = inputs.finite_rows("X_test", X_test[start:stop], start)
        part = slice(start, stop)
        mean[part], var[part] = predictive_moments(q, points.view(block, whole_tiles=True))
        raw[part] = class_probabilities(mean[part], var[part])
    return prediction_of(mean, var, raw)


def prediction_of(mean: FloatArray, var: FloatArray, raw: FloatArray) -> ClassPrediction:
    """Probabilities divided by their sum, which is kept.

    Parameters
    ----------
    mean, var : (t, C)    of the latent values, independent
    raw : (t, C)          class probabilities before normalising
    """
    mass = raw.sum(axis=1)
    return ClassPrediction(mean, diagonal_covariances(var), raw / mass[:, None], mass)


def diagonal_covariances(var: FloatArray) -> FloatArray:
    """(n, C, C) with variances (n, C) on the diagonal.

    Parameters
    ----------
    var : (n, C)
    """
    C = var.shape[1]
    cov = np.zeros((var.shape[0], C, C))
    cov[:, np.arange(C), np.arange(C)] = var
    return cov


@equation("villacampa2020", "A.31", "A.32", "A.33", "A.34")
def predict_robust(
    points: InducingClasses, q: ClassDistribution, X_test: Any, epsilon: float, *, block_size: int = 1024
) -> ClassPrediction:
    """Latent moments and class probabilities (1 - eps) P_k + eps/C at test points: villacampa2020 (A.31) to (A.34).

    Parameters
    ----------
    points               inducing points
    q                    q(v)
    X_test : (t, d)      t may be 0
    epsilon : float      probability of a random label
    block_size : int     test points at a time
    """
    prediction = predict(points, q, X_test, block_size=block_size)
    raw = robust_probabilities(prediction.probabilities * prediction.probability_mass[:, None], epsilon)
    mass = raw.sum(axis=1)
    return prediction._replace(probabilities=raw / mass[:, None], probability_mass=mass)
