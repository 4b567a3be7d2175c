"""The energies of villacampa2020 over q: guarded natural-gradient ascent, value, gradients, missing optima.

A step adds rho times the gradient in the expectation parameters (`fast.sparse_classes.alpha_energies`) to the natural
parameters of q, rho halved until q is a distribution and the energy does not fall; at alpha = 0 and rho = 1 it is the
step of variational inference. Some energies grow without bound (rpapep at alpha = 1 where no datum looks): a run whose
q leaves every bound stops and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm

from fast.core.ending import ended, predicts
from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyper import ClassHyper
from fast.core.linalg import eigenvalues, invert_lower, solve_vector
from fast.core.results import ScalarMoments
from fast.core.types import FloatArray, IntArray
from fast.ledger import equation
from fast.likelihood.largest import argmax_moments
from fast.likelihood.power import PowerMoments, powered_labels
from fast.solve.mixing import Mixing
from fast.solve.natural import move_kernel
from fast.sparse_classes.alpha_energies import Distributions, Energy, NaturalChange
from fast.sparse_classes.alpha_search import optimise
from fast.sparse_classes.data import Chunk, ClassData
from fast.sparse_classes.ep import Swept
from fast.sparse_classes.projections import (
    ClassDistribution,
    ClassView,
    InducingClasses,
    PointGradients,
    VectorJacobianProduct,
    add_projected,
)

_SLACK = 1e-12  # fall of the energy, over 1 + |energy|, that counts as rounding
_HALVINGS = 60
_SHORTEST = 1e-6
_MEMORY = 12  # past steps that the mixing looks at
_SEARCH_AT = (40, 80, 160, 320, 640, 1280)  # steps at which a run that is still far is handed to `optimise`
_NEAR = 1e-5
# From this steepness on an energy that steps do not reach is come to by way of less steep ones, of which each is left
# after so many steps, before a search, or with a direction this short.
_GENTLE, _RUNG, _RUNG_NEAR = 10.0, 39, 1e-2
# Newton's method ends a run where rounding hides the energy: below this residual, with so many directions at most, by
# differences of this length, and with a fall of the energy, over 1 + |energy|, that rounding explains.
_NEWTON_BELOW, _KRYLOV, _DIFFERENCE, _NEWTON_FALL = 1e-4, 60, 1e-4, 1e-9
#: Eigenvalue of K^-1 V, and length of the whitened mean, beyond which q is said to have no optimum.
UNBOUNDED = 1e6


class Terms(NamedTuple):
    """What the data add to an energy under one distribution, and the sums that its derivatives need."""

    value: float  # scale sum F_i
    curvature: FloatArray  # (C, m, m) scale sum dF_i/dv_i a_i a_i'
    derivative: FloatArray  # (C, m) scale sum dF_i/dm_i a_i


class Point(NamedTuple):
    """q and everything a step needs of it."""

    distributions: Distributions
    terms: Terms
    value: float
    change: NaturalChange


def _flat(precision: FloatArray, shift: FloatArray) -> FloatArray:
    return np.concatenate([precision.ravel(), shift.ravel()])


def _distribution_of(precision: FloatArray, shift: FloatArray) -> ClassDistribution | None:
    try:
        return ClassDistribution.of(precision, shift)
    except NotPositiveDefiniteError:
        return None


class _Frame:
    """Differences (dP, dw) in the units of one q, P = R R': R^-1 dP R^-T and R^-1 (dw - dP m), all in one vector."""

    def __init__(self, q: ClassDistribution) -> None:
        self.q, self.shape = q, q.precision.shape
        self.R = np.array(q.factor)
        self.inverse = np.array([invert_lower(part) for part in self.R])

    def into(self, difference: FloatArray) -> FloatArray:
        """From a flat difference. Time C m^3."""
        precision, shift = self._parts(difference)
        free = shift - (precision @ self.q.weights[:, :, None])[:, :, 0]
        turned = self.inverse @ precision @ self.inverse.transpose(0, 2, 1)
        return _flat(turned, self.inverse @ free[:, :, None])

    def back(self, x: FloatArray) -> FloatArray:
        """To a flat difference. Time C m^3."""
        A, free = self._parts(x)
        precision = self.R @ (0.5 * (A + A.transpose(0, 2, 1))) @ self.R.transpose(0, 2, 1)
        shift = (self.R @ free[:, :, None] + precision @ self.q.weights[:, :, None])[:, :, 0]
        return _flat(precision, shift)

    def _parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        C, m, _ = self.shape
        return x[: C * m * m].reshape(self.shape), x[C * m * m :].reshape(C, m)


@equation("villacampa2017", "16", "17", "u22-vi-latent-marginal")
def data_moments(q: ClassDistribution, view: ClassView) -> ScalarMoments:
    """Mean upsilon'm and variance s + upsilon'V upsilon of every latent value: villacampa2017 (16), (17). Time C b m^2.

    Parameters
    ----------
    q       under which the data are seen
    view    data
    """
    mean, var = q.project(view)
    return ScalarMoments(mean, view.cond_var + var)


def data_terms(chunks: Iterable[Chunk], q: ClassDistribution, alpha: float, epsilon: float) -> Terms:
    """F of some data and the sums that its derivatives need. Time 2 C b m^2 and the quadratures.

    Parameters
    ----------
    chunks             rows, projections and labels
    q                  under which the data are seen
    alpha : float      power
    epsilon : float    probability of a random label
    """
    value, curvature, derivative = 0.0, np.zeros_like(q.precision), np.zeros_like(q.shift)
    for _, view, y in chunks:
        result = powered_labels(y, data_moments(q, view), alpha, epsilon)
        value += float(result.value.sum())
        add_projected(curvature, derivative, view, result.by_variance, result.derivative)
    return Terms(value, curvature, derivative)


def left_out(run: EnergyRun) -> FloatArray:
    """log p(y_i | the other labels) of every datum, (n,), by the cavities of q: its site taken out. One pass.

    Where no direction is left, q is the prior times sites of precision -2 dF_i/dv_i and shift dF_i/dm_i - 2 dF_i/dv_i
    m_i on each latent value. -inf where the cavity is improper.

    Parameters
    ----------
    run    of an energy, at its optimum
    """
    q, parts = run.energy.distributions(run.q).data, []
    for _, view, y in run.data.chunks(run.points):
        mean, var = q.project(view)
        powers = powered_labels(y, ScalarMoments(mean, view.cond_var + var), run.energy.alpha, run.epsilon)
        precision = -2.0 * powers.by_variance
        shrink = 1.0 - precision * var
        proper = np.asarray(shrink.min(axis=1) > 0.0)
        shrink = np.where(proper[:, None], shrink, 1.0)
        cavity = mean - var * powers.derivative / shrink, view.cond_var + var / shrink
        right = np.exp(argmax_moments(*cavity, y, moments=False).log_mass)
        guess = run.epsilon / run.data.n_classes
        parts.append(np.where(proper, np.log((1.0 - run.epsilon) * right + guess), -np.inf))
    return np.concatenate(parts)


class EnergyRun:
    """q of an energy and the priors that it stands on; q starts at the prior. Behind `training.Run`."""

    def __init__(self, data: ClassData, points: InducingClasses, energy: Energy, epsilon: float) -> None:
        self.data, self.points, self.energy, self.epsilon = data, points, energy, epsilon
        self.rho = 1.0
        self.unbounded: str | None = None  # why the energy has no finite maximum, as the last step saw it
        self._set(ClassDistribution.prior(points.n_classes, points.m))

    def begin_at(self, q: ClassDistribution) -> None:
        """Start elsewhere than at the prior: where another method of the same model has ended.

        Parameters
        ----------
        q    whitened by K_ZZ of each class, as of `EPPosterior.run`

        Raises
        ------
        ValueError    q has other shapes than the inducing points ask for
        """
        C, m = self.points.n_classes, self.points.m
        shapes = np.shape(q.precision), np.shape(q.shift)
        if shapes != ((C, m, m), (C, m)):
            raise ValueError(f"q: found shapes {shapes[0]} and {shapes[1]}, expected ({C}, {m}, {m}) and ({C}, {m})")
        self._set(q)

    def _set(self, q: ClassDistribution, *, alone: bool = False) -> None:
        """q from elsewhere, or under other priors: what was seen on the way to another optimum is forgotten.

        alone: no less steep energies are to help.
        """
        self.q = q
        self._here: Point | None = None
        self._mixing = Mixing(_MEMORY)
        self.steps, self.stalled = 0, False
        self._start = None if alone else q  # of a chain of energies

    def powers(
        self, q: ClassDistribution, batch: IntArray | None = None, *, with_cross: bool = False
    ) -> Iterator[tuple[ClassView, PowerMoments]]:
        """F of a batch, or of all data, under a distribution. One pass, time C n m^2 and the quadratures.

        Parameters
        ----------
        q                    under which the data are seen
        batch : (b,)         indices; None: all data
        with_cross : bool    keep k(X, Z)
        """
        for _, view, y in self.data.chunks(self.points, batch, with_cross=with_cross):
            yield view, powered_labels(y, data_moments(q, view), self.energy.alpha, self.epsilon)

    def scale(self, batch: IntArray | None) -> float:
        """How often each datum of a batch counts: n / b.

        Parameters
        ----------
        batch : (b,)    indices; None: all data
        """
        return 1.0 if batch is None else self.data.n / batch.size

    def terms(self, distributions: Distributions, batch: IntArray | None = None) -> Terms:
        """Sums over a batch, or over all data, under c. One pass, time 2 C n m^2 and the quadratures.

        Parameters
        ----------
        distributions   of q
        batch : (b,)    indices; None: all data
        """
        chunks = self.data.chunks(self.points, batch)
        value, curvature, derivative = data_terms(chunks, distributions.data, self.energy.alpha, self.epsilon)
        scale = self.scale(batch)
        if scale != 1.0:
            curvature *= scale
            derivative *= scale
        return Terms(scale * value, curvature, derivative)

    def data_value(self, distributions: Distributions) -> float:
        """sum of F_i over all data. One pass.

        Parameters
        ----------
        distributions    of q
        """
        return sum(float(powers.value.sum()) for _, powers in self.powers(distributions.data))

    def _point(self, q: ClassDistribution) -> Point:
        distributions = self.energy.distributions(q)
        terms = self.terms(distributions)
        value = self.energy.own_value(distributions) + terms.value
        return Point(
            distributions, terms, value, self.energy.direction(distributions, terms.curvature, terms.derivative)
        )

    @property
    def here(self) -> Point:
        """The energy and its direction at q, computed once."""
        if self._here is None:
            self._here = self._point(self.q)
        return self._here

    def refresh(self) -> Swept:
        """One guarded step on all data; the residual is that of q before it. Time O(C n m^2 + C m^3) a size tried."""
        here = self.here
        if self.stalled:
            return Swept(here.change.residual, 0)
        self._look()
        if self.unbounded is not None:
            return Swept(np.inf, 0, self.unbounded)
        self.steps += 1
        far = here.change.residual > _NEAR
        # what a search finds beyond so many steps are optima far from the prior along directions that data hardly see
        if far and self.steps in _SEARCH_AT and not predicts():
            self._mixing.clear()
            if self._come_by_way() or self._accept(optimise(self.q, self._point, UNBOUNDED)):
                return Swept(here.change.residual, 0)
        if not self._accept(self._mixed()):
            self._mixing.clear()
            if here.change.residual < _NEWTON_BELOW and self._accept_root(self._newton()):
                return Swept(here.change.residual, 0)
            rho = self.rho
            for _ in range(_HALVINGS):
                if self._accept(self._stepped(here.change, rho)):
                    self.rho = min(1.0, 2.0 * rho)
                    break
                rho *= 0.5
            # steps this short gain nothing that rounding would not hide, unless the energy is too steep for longer ones
            self.stalled = rho < _SHORTEST and not (far and self._come_by_way())
        return Swept(here.change.residual, 0)

    def _come_by_way(self) -> bool:
        """Move to the end of a chain of energies, each ten times as steep as the last; False if that is no gain.

        A label costs up to min(1/alpha, log(C/epsilon)) times log P: with epsilon = 0 and a small alpha steps from afar
        have to be so short that rounding hides what they gain, while the optima of two energies ten times apart lie a
        few steps from each other. Once a start; time of some 20 steps for each energy.
        """
        q, steep = self._start, _GENTLE
        self._start = None
        with np.errstate(divide="ignore"):
            steepest = min(np.divide(1.0, self.energy.alpha), np.log(np.divide(self.points.n_classes, self.epsilon)))
        if q is None or steep >= steepest:
            return False
        while steep < steepest:
            easier = self.with_energy(replace(self.energy, alpha=1.0 / steep))
            easier._set(q, alone=True)
            for _ in range(_RUNG):
                if easier.refresh().residual <= _RUNG_NEAR or easier.stalled or easier.unbounded or ended():
                    break
            q, steep = easier.q, 10.0 * steep
        if not self._accept(q):
            return False
        self.rho = 1.0
        self._mixing.clear()
        return True

    def with_energy(self, energy: Energy) -> EnergyRun:
        """A run of another energy on the same data, from the prior.

        Parameters
        ----------
        energy    of it
        """
        return EnergyRun(self.data, self.points, energy, self.epsilon)

    def _accept(self, q: ClassDistribution | None) -> bool:
        """Move to q if the energy does not fall there; once rounding hides it, if the direction does not grow."""
        if q is None:
            return False
        here, there = self.here, self._point(q)
        gain, slack = there.value - here.value, _SLACK * (1.0 + abs(here.value))
        if gain > slack or (gain >= -slack and there.change.residual <= here.change.residual):
            moved = _flat(q.precision - self.q.precision, q.shift - self.q.shift)
            self._mixing.learn(moved, there.change.flat - here.change.flat)
            self.q, self._here = q, there
            return True
        return False

    def _accept_root(self, q: ClassDistribution | None) -> bool:
        """Move to q if its direction is at most half as long; the energy decides no more at this distance."""
        if q is None:
            return False
        here, there = self.here, self._point(q)
        near = there.value >= here.value - _NEWTON_FALL * (1.0 + abs(here.value))
        if near and there.change.residual <= 0.5 * here.change.residual:
            self.q, self._here = q, there
            return True
        return False

    def _newton(self) -> ClassDistribution | None:
        """Newton's step for a vanishing direction, by GMRES on differences of directions, in the units of q itself."""
        from scipy.sparse.linalg import LinearOperator, gmres  # here: only some runs need what takes long to load

        frame = _Frame(self.q)
        wanted = frame.into(self.here.change.flat)

        def along(v: FloatArray) -> FloatArray:
            h = _DIFFERENCE / max(float(np.linalg.norm(v)), np.finfo(float).tiny)
            ahead, behind = (self._moved(frame.back(sign * h * v)) for sign in (1.0, -1.0))
            if ahead is None or behind is None:
                return -v
            return frame.into(self._point(ahead).change.flat - self._point(behind).change.flat) / (2.0 * h)

        operator = LinearOperator((wanted.size, wanted.size), matvec=along, dtype=np.float64)
        step, _ = gmres(operator, -wanted, rtol=1e-4, restart=_KRYLOV, maxiter=1)
        return self._moved(frame.back(step))

    def _moved(self, difference: FloatArray) -> ClassDistribution | None:
        """q after a flat difference of its natural parameters; None if that is no distribution."""
        q = self.q
        size = q.precision.size
        parts = difference[:size].reshape(q.precision.shape), difference[size:].reshape(q.shift.shape)
        return _distribution_of(q.precision + parts[0], q.shift + parts[1])

    def _stepped(self, change: NaturalChange, rho: float) -> ClassDistribution | None:
        """q after a step of size rho; None if that is no distribution."""
        return _distribution_of(self.q.precision + rho * change.precision, self.q.shift + rho * change.shift)

    def _mixed(self) -> ClassDistribution | None:
        """Anderson's mixture: where past steps say that the direction vanishes; lengths as q itself measures them."""
        step = self._mixing.step(self.here.change.flat, _Frame(self.q).into, self.rho)
        return None if step is None else self._moved(step)

    def distance(self) -> float:
        """Estimated distance of q from the optimum, in its own units: its direction over 1 - the slowest contraction.

        From the steps that are remembered; where a search has ended the run there are none, and it is the direction.
        """
        rate = min(self._mixing.rate(_Frame(self.q).into), 1.0 - 1e-9)
        return self.here.change.residual / (1.0 - rate)

    def _look(self) -> None:
        """Whether q has left every bound."""
        self.unbounded = None
        for k in range(self.q.shift.shape[0]):
            if np.linalg.norm(self.q.weights[k]) > UNBOUNDED:
                self.unbounded = f"none: the mean of class {k} grows without bound"
            # an eigenvalue above the bound shows in the trace; it is looked for only then
            elif (
                np.trace(S := self.q.covariance(k)) > UNBOUNDED and eigenvalues(S, "covariance of q(v)")[-1] > UNBOUNDED
            ):
                self.unbounded = f"none: the variance of class {k} grows without bound"

    def tied(self) -> tuple[FloatArray, FloatArray]:
        """V^-1 - K^-1 (C, m, m) and V^-1 m (C, m): natural parameters of the product of all factors."""
        precision, shift = np.empty_like(self.q.precision), np.empty_like(self.q.shift)
        for k in range(shift.shape[0]):
            L = self.points.chol_K[self.points.kind[k]]
            whitened = self.q.precision[k] - np.eye(len(L))
            half_solved = dtrsm(1.0, L, whitened, side=0, lower=1, trans_a=1)
            precision[k] = dtrsm(1.0, L, half_solved, side=1, lower=1)
            shift[k] = solve_vector(L, self.q.shift[k], transposed=True)
        return precision, shift

    def rebuild(self) -> None:
        """q is its own state: what was computed at other priors is forgotten."""
        self.unbounded = None
        self._set(self.q)

    def ascended(self) -> float:
        """The energy of all data at the present q, which the next step needs anyway."""
        return self.here.value

    def log_evidence(self) -> float | None:
        """The energy of all data; None if it has no finite maximum."""
        if self.unbounded is not None:
            return None
        if self._here is not None:
            return self._here.value
        distributions = self.energy.distributions(self.q)
        return self.energy.own_value(distributions) + self.data_value(distributions)

    def gradient(self, batch: IntArray | None = None) -> PointGradients:
        """Gradient of the energy in the priors, mean and covariance of u held. Time O(C b m (m + d) + C m^3).

        Parameters
        ----------
        batch : (b,)    indices; None: all data
        """
        energy, points = self.energy, self.points
        distributions = energy.distributions(self.q) if self._here is None else self._here.distributions
        q, scale = distributions.data, self.scale(batch)
        C, m = q.shift.shape
        covariance = [q.covariance(k) for k in range(C)]
        vjp = VectorJacobianProduct(points)
        Q, t = np.zeros((C, m, m)), np.zeros((C, m))
        for view, value in self.powers(q, batch, with_cross=True):
            derivative, by_var = scale * value.derivative, scale * value.by_variance
            vjp.add_distribution(view, q, derivative, 2.0 * by_var, by_var)
            if energy.prior_moves_data:
                add_projected(Q, t, view, by_var, derivative)

        at = energy.kernel_distribution(distributions)

        def by_K(k: int) -> FloatArray:
            S = covariance[k] if at is q else at.covariance(k)
            cotangent = energy.kernel_moment(S, at.weights[k], Q[k], t[k])
            cotangent *= 0.5
            cotangent.flat[:: m + 1] -= 0.5
            return cotangent

        return vjp.finish(by_K)

    def move(self, hyper: ClassHyper, Z: FloatArray) -> None:
        """Other priors, mean and covariance of u held. Time 3 C m^3.

        Parameters
        ----------
        hyper            parameters of the classes
        Z : (C, m, d)
        """
        old, q = self.points, self.q
        points = InducingClasses(hyper, Z, old.shared, in_a_step=True)
        precision, shift = np.empty_like(q.precision), np.empty_like(q.shift)
        for k in range(points.n_classes):
            kind = points.kind[k]
            shift[k], precision[k] = move_kernel(q.shift[k], q.precision[k], old.chol_K[kind], points.chol_K[kind])
        moved = ClassDistribution.of(precision, shift)
        self.points = points
        self._set(moved)

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues."""
        return {"precision": self.q.precision, "shift": self.q.shift, "rho": np.array(self.rho)}

    def restore(self, arrays: Mapping[str, Any], hyper: ClassHyper, Z: FloatArray, moved: bool) -> None:
        """Continue where `state` was taken, the whitened q with it.

        Parameters
        ----------
        arrays           from `state`
        hyper            parameters of the classes then
        Z : (C, m, d)    inducing points then
        moved : bool     whether the priors are learned
        """
        self.points = InducingClasses(hyper, Z, self.points.shared, in_a_step=moved)
        self.rho, self.unbounded = float(arrays["rho"]), None
        self._set(ClassDistribution.of(np.array(arrays["precision"]), np.array(arrays["shift"])))
