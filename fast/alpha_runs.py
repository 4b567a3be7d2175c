"""The energies of villacampa2020 over q: guarded natural-gradient ascent, value, gradients, missing optima.

A step adds rho times the gradient in the expectation parameters (`fast.alpha_energies`) to the natural parameters of q,
rho halved until q is a distribution and the energy does not fall; at alpha = 0 and rho = 1 it is the step of
variational inference. Some energies grow without bound (rpapep at alpha = 1 where no datum looks): a run whose q leaves
every bound stops and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dtrtri
from scipy.sparse.linalg import LinearOperator, gmres

from fast._types import FloatArray, IntArray
from fast.alpha_climb import climb
from fast.alpha_energies import Energy, Laws, NaturalChange
from fast.class_data import ClassData
from fast.class_ep import Swept
from fast.class_inference import predict
from fast.class_projections import (
    ClassLaw,
    ClassView,
    InducingClasses,
    PointGradients,
    PullBack,
    ScalarMoments,
    add_projected,
)
from fast.errors import NotPositiveDefiniteError
from fast.ledger import equation
from fast.linalg import solve_vector
from fast.mixing import Mixing
from fast.multiclass_predict import ClassPrediction
from fast.multiclass_prior import ClassHyper
from fast.natural import move_kernel
from fast.robust_power import PowerMoments, robust_power, robust_probabilities
from fast.winner import winner

_SLACK = 1e-12  # fall of the energy, over 1 + |energy|, that counts as rounding
_HALVINGS = 60
_SHORTEST = 1e-6
_MEMORY = 12  # past steps that the mixing looks at
_SEARCH_AT = (40, 80, 160, 320, 640, 1280)  # steps at which a run that is still far is handed to `climb`
_NEAR = 1e-5
# Newton's method ends a run where rounding hides the energy: below this residual, with so many directions at most, by
# differences of this length, and with a fall of the energy, over 1 + |energy|, that rounding explains.
_NEWTON_BELOW, _KRYLOV, _DIFFERENCE, _NEWTON_FALL = 1e-4, 60, 1e-4, 1e-9
#: Eigenvalue of K^-1 V, and length of the whitened mean, beyond which q is said to have no optimum.
UNBOUNDED = 1e6


class Terms(NamedTuple):
    """What the data add to an energy under one law, and the sums that its derivatives need."""

    value: float  # scale sum F_i
    curvature: FloatArray  # (C, m, m) scale sum dF_i/dv_i a_i a_i'
    slope: FloatArray  # (C, m) scale sum dF_i/dm_i a_i


class Point(NamedTuple):
    """q and everything a step needs of it."""

    laws: Laws
    terms: Terms
    value: float
    change: NaturalChange


def _flat(precision: FloatArray, shift: FloatArray) -> FloatArray:
    return np.concatenate([precision.ravel(), shift.ravel()])


class _Frame:
    """Differences (dP, dw) in the units of one q, P = R R': R^-1 dP R^-T and R^-1 (dw - dP m), all in one vector."""

    def __init__(self, law: ClassLaw) -> None:
        self.law, self.shape = law, law.precision.shape
        self.R = np.array(law.factor)
        self.inverse = np.array([dtrtri(part, lower=1)[0] for part in self.R])

    def into(self, difference: FloatArray) -> FloatArray:
        """From a flat difference. Time C m^3."""
        precision, shift = self._parts(difference)
        free = shift - (precision @ self.law.weights[:, :, None])[:, :, 0]
        turned = self.inverse @ precision @ self.inverse.transpose(0, 2, 1)
        return _flat(turned, self.inverse @ free[:, :, None])

    def back(self, x: FloatArray) -> FloatArray:
        """To a flat difference. Time C m^3."""
        A, free = self._parts(x)
        precision = self.R @ (0.5 * (A + A.transpose(0, 2, 1))) @ self.R.transpose(0, 2, 1)
        shift = (self.R @ free[:, :, None] + precision @ self.law.weights[:, :, None])[:, :, 0]
        return _flat(precision, shift)

    def _parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        C, m, _ = self.shape
        return x[: C * m * m].reshape(self.shape), x[C * m * m :].reshape(C, m)


def data_moments(law: ClassLaw, view: ClassView) -> ScalarMoments:
    """Mean and variance of the latent values of some data: upsilon'm, s + upsilon'V upsilon. Time C b m^2.

    Parameters
    ----------
    law     under which the data are seen
    view    data
    """
    mean, var = law.project(view)
    return ScalarMoments(mean, view.cond_var + var)


@equation("villacampa2020", "u27-power-expectation")
def powered_labels(y: IntArray, moments: ScalarMoments, alpha: float, epsilon: float) -> PowerMoments:
    """F_i = log E[p(y_i | f_i)^alpha]/alpha and its derivatives: villacampa2020, section 3.1. Time O(b C nodes).

    Parameters
    ----------
    y : (b,)           labels
    moments            of the latent values, (b, C)
    alpha : float      in [0, 1]
    epsilon : float    in [0, 1)
    """
    return robust_power(winner(*moments, y), alpha, epsilon, moments.mean.shape[1])


def predict_robust(
    points: InducingClasses, law: ClassLaw, X_test: Any, epsilon: float, *, block_size: int = 1024
) -> ClassPrediction:
    """Latent moments and class probabilities (1 - eps) P_k + eps/C at test points: villacampa2020 (A.31) to (A.34).

    Parameters
    ----------
    points               inducing points
    law                  q(v)
    X_test : (t, d)      t may be 0
    epsilon : float      probability of a random label
    block_size : int     test points at a time
    """
    found = predict(points, law, X_test, block_size=block_size)
    raw = robust_probabilities(found.probabilities * found.probability_mass[:, None], epsilon)
    mass = raw.sum(axis=1)
    return found._replace(probabilities=raw / mass[:, None], probability_mass=mass)


class EnergyRun:
    """q of an energy and the priors that it stands on; q starts at the prior. Behind `fast.class_training.Run`."""

    def __init__(self, data: ClassData, points: InducingClasses, energy: Energy, epsilon: float) -> None:
        self.data, self.points, self.energy, self.epsilon = data, points, energy, epsilon
        self.rho, self.steps, self.stalled = 1.0, 0, False
        self.unbounded: str | None = None
        self._set(ClassLaw.prior(points.n_classes, points.m))

    def _set(self, law: ClassLaw) -> None:
        self.law = law
        self._here: Point | None = None
        self._mixing = Mixing(_MEMORY)

    def chunks(self, batch: IntArray | None, *, with_cross: bool = False) -> Iterator[tuple[ClassView, IntArray]]:
        """Projections and labels of a batch, or of all data block by block.

        Parameters
        ----------
        batch : (b,)         indices; None: all data
        with_cross : bool    keep k(X, Z)
        """
        if batch is None:
            for block in self.data.blocks(self.points, with_cross=with_cross):
                yield block.view, block.y
        else:
            yield self.data.take(self.points, batch, with_cross=with_cross), self.data.labels(batch)

    def terms(self, laws: Laws) -> Terms:
        """Sums over all data under c. One pass, time 2 C n m^2 and the quadratures.

        Parameters
        ----------
        laws    of q
        """
        C, m = laws.q.shift.shape
        value, curvature, slope = 0.0, np.zeros((C, m, m)), np.zeros((C, m))
        for view, y in self.chunks(None):
            found = powered_labels(y, data_moments(laws.data, view), self.energy.alpha, self.epsilon)
            value += float(found.value.sum())
            add_projected(curvature, slope, view, found.by_variance, found.slope)
        return Terms(value, curvature, slope)

    def _point(self, law: ClassLaw) -> Point:
        laws = self.energy.laws(law)
        terms = self.terms(laws)
        value = self.energy.own_value(laws) + terms.value
        return Point(laws, terms, value, self.energy.direction(laws, terms.curvature, terms.slope))

    @property
    def here(self) -> Point:
        """The energy and its direction at q, computed once."""
        if self._here is None:
            self._here = self._point(self.law)
        return self._here

    def refresh(self, batch: IntArray | None, damping: float) -> Swept:
        """One guarded step; the residual is that of q before it. Time O(C n m^2 + C m^3) for every size tried.

        Parameters
        ----------
        batch : None       all data
        damping : float    not used: the step has a size of its own
        """
        here = self.here
        if self.stalled:
            return Swept(here.change.residual, 0)
        self._look()
        if self.unbounded is not None:
            return Swept(np.inf, 0)
        self.steps += 1
        if self.steps in _SEARCH_AT and here.change.residual > _NEAR:
            self._mixing.clear()
            law = climb(self.law, self._point, UNBOUNDED)
            if law is not None and self._accept(law):
                return Swept(here.change.residual, 0)
        if not self._accept(self._mixed()):
            self._mixing.clear()
            if here.change.residual < _NEWTON_BELOW and self._accept_root(self._newton()):
                return Swept(here.change.residual, 0)
            rho = self.rho
            for _ in range(_HALVINGS):
                if self._accept(self._moved(rho * here.change.flat)):
                    self.rho = min(1.0, 2.0 * rho)
                    break
                rho *= 0.5
            # steps this short gain nothing that rounding would not hide
            self.stalled = rho < _SHORTEST
        return Swept(here.change.residual, 0)

    def _accept(self, law: ClassLaw | None) -> bool:
        """Move to a law if the energy does not fall there; once rounding hides it, if the direction does not grow."""
        if law is None:
            return False
        here, there = self.here, self._point(law)
        gain, slack = there.value - here.value, _SLACK * (1.0 + abs(here.value))
        if gain > slack or (gain >= -slack and there.change.residual <= here.change.residual):
            moved = _flat(law.precision - self.law.precision, law.shift - self.law.shift)
            self._mixing.learn(moved, there.change.flat - here.change.flat)
            self.law, self._here = law, there
            return True
        return False

    def _accept_root(self, law: ClassLaw | None) -> bool:
        """Move to a law whose direction is at most half as long; the energy decides no more at this distance."""
        if law is None:
            return False
        here, there = self.here, self._point(law)
        near = there.value >= here.value - _NEWTON_FALL * (1.0 + abs(here.value))
        if near and there.change.residual <= 0.5 * here.change.residual:
            self.law, self._here = law, there
            return True
        return False

    def _newton(self) -> ClassLaw | None:
        """Newton's step for a vanishing direction, by GMRES on differences of directions, in the units of q itself."""
        frame = _Frame(self.law)
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

    def _moved(self, difference: FloatArray) -> ClassLaw | None:
        """q after a flat difference of its natural parameters; None if that is no distribution."""
        size = self.law.precision.size
        try:
            return ClassLaw.of(
                self.law.precision + difference[:size].reshape(self.law.precision.shape),
                self.law.shift + difference[size:].reshape(self.law.shift.shape),
            )
        except NotPositiveDefiniteError:
            return None

    def _mixed(self) -> ClassLaw | None:
        """Anderson's mixture: where past steps say that the direction vanishes; lengths as q itself measures them."""
        step = self._mixing.step(self.here.change.flat, _Frame(self.law).into, self.rho)
        return None if step is None else self._moved(step)

    def _look(self) -> None:
        """Whether q has left every bound."""
        for k in range(self.law.shift.shape[0]):
            if np.linalg.norm(self.law.weights[k]) > UNBOUNDED:
                self.unbounded = f"none: the mean of class {k} grows without bound"
            # an eigenvalue above the bound shows in the trace; it is looked for only then
            elif np.trace(S := self.law.spread(k)) > UNBOUNDED and np.linalg.eigvalsh(S)[-1] > UNBOUNDED:
                self.unbounded = f"none: the variance of class {k} grows without bound"

    def tied(self) -> tuple[FloatArray, FloatArray]:
        """V^-1 - K^-1 (C, m, m) and V^-1 m (C, m): natural parameters of the product of all factors."""
        precision, shift = np.empty_like(self.law.precision), np.empty_like(self.law.shift)
        for k in range(shift.shape[0]):
            L = self.points.chol_K[self.points.kind[k]]
            whitened = self.law.precision[k] - np.eye(L.shape[0])
            half = dtrsm(1.0, L, whitened, side=0, lower=1, trans_a=1)
            precision[k] = dtrsm(1.0, L, half, side=1, lower=1)
            shift[k] = solve_vector(L, self.law.shift[k], transposed=True)
        return precision, shift

    def rebuild(self) -> None:
        """q is its own state: what was computed at other priors is forgotten."""
        self._here, self.unbounded, self.steps, self.stalled = None, None, 0, False
        self._mixing.clear()

    def log_evidence(self) -> float | None:
        """The energy of all data; None if it has no finite maximum."""
        return None if self.unbounded is not None else self.here.value

    def gradient(self, batch: IntArray | None = None, gradient_rule: str = "10") -> PointGradients:
        """Gradient of the energy of all data, mean and covariance of u held. Time O(C n m (m + d) + C m^3).

        Parameters
        ----------
        batch : None           all data
        gradient_rule : str    there is one
        """
        laws, terms = self.here.laws, self.here.terms
        return energy_gradient(self, laws, terms, None, 1.0)

    def move(self, hyper: ClassHyper, Z: FloatArray) -> None:
        """Other priors, mean and covariance of u held. Time 3 C m^3.

        Parameters
        ----------
        hyper            parameters of the classes
        Z : (C, m, d)
        """
        old, law = self.points, self.law
        points = InducingClasses(hyper, Z, old.shared, in_a_step=True)
        precision, shift = np.empty_like(law.precision), np.empty_like(law.shift)
        for k in range(points.n_classes):
            kind = points.kind[k]
            shift[k], precision[k] = move_kernel(law.shift[k], law.precision[k], old.chol_K[kind], points.chol_K[kind])
        self.points = points
        self._set(ClassLaw.of(precision, shift))

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues."""
        return {"precision": self.law.precision, "shift": self.law.shift, "rho": np.array(self.rho)}

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
        self.rho = float(arrays["rho"])
        self.unbounded = None
        self._set(ClassLaw.of(np.array(arrays["precision"]), np.array(arrays["shift"])))


def energy_gradient(run: EnergyRun, laws: Laws, terms: Terms, batch: IntArray | None, scale: float) -> PointGradients:
    """Gradient of an energy in the priors, mean and covariance of u held. Time O(C b m (m + d) + C m^3).

    Parameters
    ----------
    run              data, points, energy
    laws             of q
    terms            of the same batch, scaled
    batch : (b,)     indices; None: all data
    scale : float    n / b
    """
    points, law = run.points, laws.data
    spread = [law.spread(k) for k in range(points.n_classes)]
    pull = PullBack(points)
    for view, y in run.chunks(batch, with_cross=True):
        found = powered_labels(y, data_moments(law, view), run.energy.alpha, run.epsilon)
        pull_labels(pull, points, law, spread, view, scale * found.slope, scale * found.by_variance)
    return pull.finish(lambda k: kernel_cotangent(run.energy, k, laws, terms))


def pull_labels(
    pull: PullBack,
    points: InducingClasses,
    law: ClassLaw,
    spread: list[FloatArray],
    view: ClassView,
    slope: FloatArray,
    by_var: FloatArray,
) -> None:
    """Take in dF_i = g m'd upsilon + F_v (ds + 2 upsilon'V d upsilon) of some data. Time O(C b m^2 + b m d).

    Parameters
    ----------
    pull                     gradient under way
    points                   inducing points
    law, spread              under which the data are seen, and its covariances (m, m)
    view                     data, with k(X, Z)
    slope, by_var : (b, C)   g, F_v, scaled
    """

    def by_upsilon(k: int) -> FloatArray:
        W: FloatArray = view.rows[points.kind[k]] @ spread[k]
        W *= 2.0 * by_var[:, k, None]
        W += np.multiply.outer(slope[:, k], law.weights[k])
        return W

    pull.add(view, by_upsilon, by_var)


def kernel_cotangent(energy: Energy, k: int, laws: Laws, terms: Terms) -> FloatArray:
    """L'(dE/dK) L = (M - I)/2 of class k: (m, m).

    Parameters
    ----------
    energy    of q
    k : int   class
    laws      of q
    terms     sums over the data, scaled
    """
    found = 0.5 * energy.kernel_moment(k, laws, terms.curvature[k], terms.slope[k])
    found.flat[:: found.shape[0] + 1] -= 0.5
    return found
