"""Adam on an energy of villacampa2020: q and the priors move together, on mini-batches. Section 3.2 to 3.5.

Coordinates of q(u_k) = N(m_k, V_k): the mean, and the lower Cholesky factor of V_k with the logarithms of its diagonal.
The gradient in them follows from the natural direction of `fast.alpha_energies`: with (dP, dw) its whitened parts, L
the factor of K and R that of V,

    dE/dm = L^-T (dw - dP m~),    dE/dR = -lower(L^-T dP L^-1 R),    m~ = L^-1 m.

A step costs O(C b m (m + d) + C m^3) whatever n is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dtrtri

from fast import checkpoint as checkpoints
from fast._types import FloatArray, IntArray
from fast.alpha_runs import EnergyRun, Terms, data_moments, kernel_cotangent, powered_labels, pull_labels
from fast.class_projections import ClassLaw, InducingClasses, PointGradients, PullBack, add_projected
from fast.class_training import ClassPacking, Progress, Settings, Trained, drawn
from fast.errors import NotPositiveDefiniteError
from fast.linalg import solve_vector
from fast.multiclass_prior import ClassHyper
from fast.optim import AdamState, adam_arrays, adam_restored, adam_step


class Coordinates(NamedTuple):
    """q(u) as numbers that may move freely."""

    mean: FloatArray  # (C, m)
    factor: FloatArray  # (C, m, m): strictly lower entries of R, logarithms of its diagonal, 0 above


class JointGradient(NamedTuple):
    """Gradient of the energy of a batch in q and in the priors."""

    by_mean: FloatArray  # (C, m)
    by_factor: FloatArray  # (C, m, m), lower
    by_prior: PointGradients | None


def start_at_prior(points: InducingClasses) -> Coordinates:
    """m = 0, R = chol(K).

    Parameters
    ----------
    points    inducing points
    """
    factor = np.array([points.chol_K[points.kind[k]] for k in range(points.n_classes)])
    return Coordinates(np.zeros(factor.shape[:2]), _logarithmic(factor))


def _logarithmic(factor: FloatArray) -> FloatArray:
    index = np.arange(factor.shape[1])
    factor[:, index, index] = np.log(factor[:, index, index])
    return factor


def cholesky_of(coordinates: Coordinates) -> FloatArray:
    """R of each class: (C, m, m).

    Parameters
    ----------
    coordinates    of q
    """
    factor = coordinates.factor.copy()
    index = np.arange(factor.shape[1])
    factor[:, index, index] = np.exp(factor[:, index, index])
    return factor


def whitened(points: InducingClasses, coordinates: Coordinates) -> tuple[ClassLaw, FloatArray]:
    """q(v), and B = L^-1 R of each class with S = B B'. Time 2 C m^3.

    Parameters
    ----------
    points         inducing points
    coordinates    of q
    """
    B = cholesky_of(coordinates)
    precision, shift = np.empty_like(B), np.empty_like(coordinates.mean)
    for k in range(points.n_classes):
        L = points.chol_K[points.kind[k]]
        B[k] = dtrsm(1.0, L, B[k], side=0, lower=1)
        if not np.isfinite(B[k]).all() or (B[k].diagonal() <= 0.0).any():
            raise ValueError(f"covariance of q, class {k}: found no finite positive factor; lower rate")
        inverse, _ = dtrtri(B[k], lower=1)
        precision[k] = inverse.T @ inverse
        shift[k] = precision[k] @ solve_vector(L, coordinates.mean[k])
    return ClassLaw.of(precision, shift), B


def joint_gradient(run: EnergyRun, B: FloatArray, batch: IntArray | None, *, priors: bool) -> JointGradient:
    """Gradient of the energy, its sum over data times n / b, in the coordinates of q and in the priors.

    Parameters
    ----------
    run                q and the priors
    B : (C, m, m)      L^-1 R
    batch : (b,)       indices; None: all data
    priors : bool      whether they move
    """
    points, energy = run.points, run.energy
    laws = energy.laws(run.law)
    C, m = run.law.shift.shape
    scale = 1.0 if batch is None else run.data.n / batch.size
    value, curvature, slope = 0.0, np.zeros((C, m, m)), np.zeros((C, m))
    spread = [laws.data.spread(k) for k in range(C)] if priors else []
    pull = PullBack(points)
    for view, y in run.chunks(batch, with_cross=priors):
        found = powered_labels(y, data_moments(laws.data, view), energy.alpha, run.epsilon)
        by_mean, by_var = scale * found.slope, scale * found.by_variance
        value += scale * float(found.value.sum())
        add_projected(curvature, slope, view, by_var, by_mean)
        if priors:
            pull_labels(pull, points, laws.data, spread, view, by_mean, by_var)
    terms = Terms(value, curvature, slope)
    change = energy.direction(laws, curvature, slope)
    gradient_mean, gradient_factor = np.empty((C, m)), np.empty((C, m, m))
    index = np.arange(m)
    R = np.array([points.chol_K[points.kind[k]] @ B[k] for k in range(C)]).diagonal(axis1=1, axis2=2)
    for k in range(C):
        L = points.chol_K[points.kind[k]]
        dP = change.precision[k]
        free = change.shift[k] - dP @ run.law.weights[k]
        gradient_mean[k] = solve_vector(L, free, transposed=True)
        gradient_factor[k] = np.tril(-dtrsm(1.0, L, dP @ B[k], side=0, lower=1, trans_a=1))
        gradient_factor[k, index, index] *= R[k]
    by_prior = pull.finish(lambda k: kernel_cotangent(energy, k, laws, terms)) if priors else None
    return JointGradient(gradient_mean, gradient_factor, by_prior)


class JointSteps:
    """Steps of Adam, resumable."""

    def __init__(self, run: EnergyRun, settings: Settings) -> None:
        self.run, self.settings = run, settings
        points = run.points
        self.packing = ClassPacking(settings.learn, points.hyper, points.Z, points.shared)
        self.coordinates = start_at_prior(points)
        C, m = self.coordinates.mean.shape
        self.lower = np.tril_indices(m)
        self.sizes = (C * m, C * self.lower[0].size)
        self.adam = AdamState.start(sum(self.sizes) + self.packing.size)
        self.rng = np.random.default_rng(settings.seed)
        self.trace: list[float] = []
        self.iteration = 0
        self._place()

    def _place(self) -> None:
        law, self.B = whitened(self.run.points, self.coordinates)
        self.run.law = law
        self.run.rebuild()

    def _batch(self) -> IntArray | None:
        settings = self.settings
        if settings.batches is not None:
            return settings.batches[self.iteration]
        if settings.batch_size is not None:
            return drawn(self.run.data.n, settings.batch_size, self.rng)
        return None

    def step(self) -> float:
        """Gradient at one point, one move of everything; the energy of all data before it if asked for."""
        run, settings, packing = self.run, self.settings, self.packing
        value = np.nan
        if settings.trace:
            value = run.here.value
        found = joint_gradient(run, self.B, self._batch(), priors=packing.size > 0)
        parts = [found.by_mean.ravel(), found.by_factor[:, *self.lower].ravel()]
        hyper, Z = run.points.hyper, run.points.Z
        if found.by_prior is not None:
            parts.append(packing.slope(found.by_prior, hyper))
        slope = np.concatenate(parts)
        if not np.isfinite(slope).all():
            raise ValueError("gradient: found a value that is not finite, expected finite numbers; lower rate")
        move, adam = adam_step(slope, self.adam, settings.rate)
        first, second = np.cumsum(self.sizes)
        mean = self.coordinates.mean + move[:first].reshape(self.coordinates.mean.shape)
        factor = self.coordinates.factor.copy()
        factor[:, *self.lower] += move[first:second].reshape(factor.shape[0], -1)
        before = run.points, self.coordinates
        try:
            if packing.size:
                hyper, Z = packing.parameters(packing.vector(hyper, Z) + move[second:], hyper, Z)
                run.points = InducingClasses(hyper, Z, run.points.shared, in_a_step=True)
            self.coordinates = Coordinates(mean, factor)
            self._place()
        except (ValueError, NotPositiveDefiniteError):
            run.points, self.coordinates = before
            self._place()
            raise
        self.adam = adam
        self.iteration += 1
        if settings.trace:
            self.trace.append(value)
        return value

    def all(self, callback: Callable[[Progress], None] | None) -> Trained:
        """Every step; one that leaves the finite numbers ends the run at the state before it.

        Parameters
        ----------
        callback : callable    called with a Progress after every step
        """
        settings, run = self.settings, self.run
        self._resume()
        diverged, reason = False, f"{settings.n_steps} steps made"
        while self.iteration < settings.n_steps:
            try:
                with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
                    value = self.step()
            except (ValueError, NotPositiveDefiniteError) as error:
                diverged, reason = True, f"step {self.iteration + 1}: {error}"
                break
            if settings.checkpoint is not None and self.iteration % settings.checkpoint_every == 0:
                self._save()
            if callback is not None:
                callback(Progress(self.iteration, value, np.nan, 0, run.points.hyper, run))
        return Trained(np.array(self.trace), np.nan, False, self.iteration, 0, diverged, reason)

    def _save(self) -> None:
        points = self.run.points
        arrays: Mapping[str, Any] = {
            **{f"hyper_{name}": value for name, value in points.hyper._asdict().items()},
            "Z": points.Z,
            "mean": self.coordinates.mean,
            "factor": self.coordinates.factor,
            "rng": np.array(json.dumps(self.rng.bit_generator.state)),
            "trace": np.array(self.trace),
            "iteration": np.array(self.iteration),
            **adam_arrays(self.adam),
        }
        assert self.settings.checkpoint is not None
        checkpoints.save(self.settings.checkpoint, self.settings.mark, arrays)

    def _resume(self) -> None:
        if self.settings.checkpoint is None:
            return
        arrays = checkpoints.load(self.settings.checkpoint, self.settings.mark)
        if arrays is None:
            return
        hyper = ClassHyper(*(arrays[f"hyper_{name}"] for name in ClassHyper._fields))
        if self.packing.size:
            self.run.points = InducingClasses(hyper, arrays["Z"], self.run.points.shared, in_a_step=True)
        self.coordinates = Coordinates(arrays["mean"], arrays["factor"])
        self.rng.bit_generator.state = json.loads(str(arrays["rng"]))
        self.trace, self.iteration = arrays["trace"].tolist(), int(arrays["iteration"])
        self.adam = adam_restored(arrays)
        self._place()
