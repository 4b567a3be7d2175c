"""Variational inference with the robust likelihood for several classes: natural-gradient steps, bound, gradients.

villacampa2017, section 3. q(u_k) = N(m_k, S_k), whitened as in `fast.class_projections`: precision P, shift w, mean p.
With E_i = E[log p(y_i | f_i)] at alpha = 0 of `fast.robust_power`, g and t its derivatives in m^_i and s^_i,

    L = scale sum_i E_i - sum_k KL_k,   KL = (tr P^-1 + p'p - m + log|P|)/2,
    target:  P* = I + A diag(-2 scale t) A',   w* = A scale (g - 2 t m^),   a step is (P, w) + rho (target - (P, w)).

t may be positive where a label is far from right: P* need not be positive definite, and the step is halved until
P is. A guarded step also halves until the bound does not fall; once rounding hides the bound, until G = target - (P, w)
does not grow in Fisher's metric, where small steps always shrink it. Near the maximum proposals of `fast.mixing` come
first, under the same guard. m and S are numbers when the priors move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

from fast._types import FloatArray, IntArray
from fast.class_data import ClassData
from fast.class_ep import Swept, prior_cotangent
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
from fast.linalg import solve_rows, solve_vector, squared_norms
from fast.mixing import Mixing
from fast.multiclass_prior import ClassHyper
from fast.natural import move_kernel
from fast.robust_power import PowerMoments, robust_power
from fast.winner import winner

_SLACK = 1e-12  # fall of the bound, over 1 + |L|, that counts as rounding
_HALVINGS = 40
_PATIENCE = 30  # steps that rounding hides and that do not shorten G by a tenth, after which nothing is left to do
_NEAR = 0.3  # length of G below which the iteration is nearly linear, and worth mixing


class Target(NamedTuple):
    """Where a full step leads, and what q is worth before it."""

    precision: FloatArray  # (C, m, m) P*
    shift: FloatArray  # (C, m) w*
    data_term: float  # scale sum E_i
    residual: float
    length: float  # of G in Fisher's metric


@equation("villacampa2017", "16", "17", "u22-vi-latent-marginal")
def variational_marginals(law: ClassLaw, view: ClassView) -> ScalarMoments:
    """m^ = upsilon'm and s^ = s + upsilon'S upsilon of every latent value: villacampa2017 (16), (17). Time C b m^2.

    Parameters
    ----------
    law     q(v)
    view    data
    """
    mean, var = law.project(view)
    return ScalarMoments(mean, view.cond_var + var)


@equation("villacampa2017", "15")
def expected_log_robust(y: IntArray, marginals: ScalarMoments, epsilon: float) -> PowerMoments:
    """E[log p(y | f)] of every datum and its derivatives in m^ and s^: villacampa2017 (13), (15). Time O(b C nodes).

    Parameters
    ----------
    y : (b,)           labels
    marginals          m^, s^
    epsilon : float    > 0
    """
    return robust_power(winner(*marginals, y), 0.0, epsilon, marginals.mean.shape[1])


@equation("villacampa2017", "15")
def divergence(law: ClassLaw) -> float:
    """sum_k KL(q(u_k) || p(u_k)), whitened: villacampa2017 (15). Time C m^3 / 3.

    Parameters
    ----------
    law    q(v)
    """
    trace = sum(float(np.vdot(half, half)) for half in (dtrtri(R, lower=1)[0] for R in law.factor))
    return 0.5 * (trace + float(squared_norms(law.weights).sum()) - law.weights.size + float(law.log_det.sum()))


@equation("villacampa2017", "u21-vi-baseline")
def natural_target(
    precision: FloatArray, shift: FloatArray, view: ClassView, marginals: ScalarMoments, found: PowerMoments
) -> tuple[FloatArray, FloatArray]:
    """Add A diag(-2 t) A' to P* and A (g - 2 t m^) to w*, in place; both are returned. Time C b m^2.

    Parameters
    ----------
    precision : (C, m, m)    starts at I
    shift : (C, m)           starts at 0
    view                     data
    marginals                m^, s^
    found                    derivatives of E, any scale of the data in them
    """
    delta = -2.0 * found.by_variance
    # E sees the projection's mean as m^ and its variance as s^ - s
    add_projected(precision, shift, view, delta, found.slope + delta * marginals.mean)
    return precision, shift


class RobustRun:
    """q, its step size, and the priors that it stands on; q starts at the prior.

    guarded    steps on all data that never lower the bound; else the step is `damping`, halved for positive
               definiteness alone
    """

    def __init__(self, data: ClassData, points: InducingClasses, epsilon: float, *, guarded: bool) -> None:
        self.data, self.points, self.epsilon, self.guarded = data, points, epsilon, guarded
        self.rho = 1.0
        self._mixing = Mixing()
        self._set(ClassLaw.prior(points.n_classes, points.m))

    def _set(self, law: ClassLaw) -> None:
        self.law = law
        self._here: Target | None = None
        self._shortest, self._since = np.inf, 0
        self._mixing.clear()

    def _chunks(self, batch: IntArray | None, *, with_cross: bool = False) -> Iterator[tuple[ClassView, IntArray]]:
        if batch is None:
            for block in self.data.blocks(self.points, with_cross=with_cross):
                yield block.view, block.y
        else:
            yield self.data.take(self.points, batch, with_cross=with_cross), self.data.labels(batch)

    def _target(self, law: ClassLaw, batch: IntArray | None) -> Target:
        C, m = law.shift.shape
        scale = 1.0 if batch is None else self.data.n / batch.size
        added, shift, value = np.zeros((C, m, m)), np.zeros((C, m)), 0.0
        for view, y in self._chunks(batch):
            marginals = variational_marginals(law, view)
            found = expected_log_robust(y, marginals, self.epsilon)
            value += float(found.value.sum())
            natural_target(added, shift, view, marginals, found)
        added *= scale
        shift *= scale
        diagonal = np.arange(m)
        added[:, diagonal, diagonal] += 1.0
        largest, length = change_of(law, added - law.precision, shift - law.shift)
        return Target(added, shift, scale * value, largest, length)

    def refresh(self, batch: IntArray | None, damping: float) -> Swept:
        """One step. Time 2 C b m^2 + C m^3 for every size that is tried.

        Parameters
        ----------
        batch : (b,)       indices, none twice; None: all data
        damping : float    rho where the step is not guarded
        """
        here = self._here
        if here is None:
            here = self._here = self._target(self.law, batch)
        if batch is None and self.guarded:
            if self._since < _PATIENCE:
                self._guarded_step(here)
        else:
            law = self.law
            for _ in range(_HALVINGS):
                moved = stepped(law, here, damping)
                if moved is not None:
                    self._set(moved)
                    break
                damping *= 0.5
            self._here = None
        return Swept(here.residual, 0)

    def _accepts(self, here: Target, law: ClassLaw, there: Target) -> bool:
        bound = here.data_term - divergence(self.law)
        slack = _SLACK * (1.0 + abs(bound))
        gain = there.data_term - divergence(law) - bound
        if gain > slack:
            self._since = 0
            return True
        return gain >= -slack and there.length <= here.length

    def _take(self, here: Target, law: ClassLaw, there: Target) -> None:
        """Move, and remember the step."""
        before, gap = _vector(self.law.precision, self.law.shift), _vector(here.precision, here.shift)
        after, next_gap = _vector(law.precision, law.shift), _vector(there.precision, there.shift)
        moved = after - before
        self._mixing.learn(moved, next_gap - gap - moved)
        self.law, self._here = law, there
        self._since += 1
        if there.length < 0.9 * self._shortest:
            self._shortest, self._since = there.length, 0

    def _guarded_step(self, here: Target) -> None:
        law, shape = self.law, self.law.precision.shape
        if here.length < _NEAR:
            at = _vector(law.precision, law.shift)
            mixed = self._mixing.step(_vector(here.precision, here.shift) - at, lambda part: _turned(law, part))
            if mixed is not None:
                proposal = _law_of(*_split(at + mixed, shape))
                if proposal is not None:
                    there = self._target(proposal, None)
                    if self._accepts(here, proposal, there):
                        self._take(here, proposal, there)
                        return
                self._mixing.clear()
        rho = self.rho
        for _ in range(_HALVINGS):
            moved = stepped(law, here, rho)
            if moved is not None:
                there = self._target(moved, None)
                if self._accepts(here, moved, there):
                    self._take(here, moved, there)
                    self.rho = min(1.0, 2.0 * rho)
                    return
            rho *= 0.5
        self._since = _PATIENCE

    def rebuild(self) -> None:
        """q is its own state: what was computed at other priors is forgotten."""
        self._set(self.law)

    def log_evidence(self) -> float | None:
        """The bound (15) over all data. One pass."""
        if self._here is None or not self.guarded:
            value = 0.0
            for view, y in self._chunks(None):
                value += float(expected_log_robust(y, variational_marginals(self.law, view), self.epsilon).value.sum())
        else:
            value = self._here.data_term
        return value - divergence(self.law)

    def gradient(self, batch: IntArray | None = None, gradient_rule: str = "10") -> PointGradients:
        """Gradient of the bound, m and S held. Time O(C b m (m + d) + C m^3) and the quadratures.

        Parameters
        ----------
        batch : (b,)           indices; None: all data
        gradient_rule : str    there is one
        """
        points, law = self.points, self.law
        scale = 1.0 if batch is None else self.data.n / batch.size
        spread = [law.spread(k) for k in range(points.n_classes)]
        pull = PullBack(points)
        for view, y in self._chunks(batch, with_cross=True):
            found = expected_log_robust(y, variational_marginals(law, view), self.epsilon)
            slope, by_var = scale * found.slope, scale * found.by_variance

            def by_upsilon(
                k: int, view: ClassView = view, slope: FloatArray = slope, by_var: FloatArray = by_var
            ) -> FloatArray:
                W: FloatArray = view.rows[points.kind[k]] @ spread[k]
                W *= 2.0 * by_var[:, k, None]
                W += np.multiply.outer(slope[:, k], law.weights[k])
                return W

            pull.add(view, by_upsilon, by_var)
        return pull.finish(lambda k: prior_cotangent(spread[k], law.weights[k]))

    def move(self, hyper: ClassHyper, Z: FloatArray) -> None:
        """Other priors, m and S held. Time 3 C m^3.

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
            found = move_kernel(law.shift[k], law.precision[k], old.chol_K[kind], points.chol_K[kind])
            shift[k], precision[k] = found
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
        self._set(ClassLaw.of(np.array(arrays["precision"]), np.array(arrays["shift"])))


def _law_of(precision: FloatArray, shift: FloatArray) -> ClassLaw | None:
    try:
        return ClassLaw.of(precision, shift)
    except NotPositiveDefiniteError:
        return None


def stepped(law: ClassLaw, target: Target, rho: float) -> ClassLaw | None:
    """q after a step of size rho in its natural parameters; None if its precision is not positive definite.

    Parameters
    ----------
    law            q(v)
    target         of a full step
    rho : float    in (0, 1]
    """
    keep = 1.0 - rho
    return _law_of(keep * law.precision + rho * target.precision, keep * law.shift + rho * target.shift)


def _vector(precision: FloatArray, shift: FloatArray) -> FloatArray:
    return np.concatenate([precision.ravel(), shift.ravel()])


def _split(vector: FloatArray, shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    size = int(np.prod(shape))
    return vector[:size].reshape(shape), vector[size:].reshape(shape[:2])


def _halves(law: ClassLaw, precision: FloatArray, shift: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """R^-1 dP R^-T and R^-1 (dw - dP p) of every class."""
    found = []
    for k, R in enumerate(law.factor):
        half = solve_vector(R, shift[k] - precision[k] @ law.weights[k])
        found.append((solve_rows(R, np.ascontiguousarray(solve_rows(R, precision[k].copy()).T)), half))
    return found


def _turned(law: ClassLaw, vector: FloatArray) -> FloatArray:
    """Coordinates in which Fisher's metric is the Euclidean one."""
    parts = _halves(law, *_split(vector, law.precision.shape))
    return np.concatenate([np.concatenate([np.sqrt(0.5) * turned.ravel(), half]) for turned, half in parts])


def change_of(law: ClassLaw, precision: FloatArray, shift: FloatArray) -> tuple[float, float]:
    """max over classes of sqrt tr(V dT V dT) and sqrt(r'V r), r = dt - dT m, and Fisher's length, all classes together.

    Time C m^3.

    Parameters
    ----------
    law                      q(v)
    precision : (C, m, m)    dT, a change of P
    shift : (C, m)           dt, of w
    """
    parts = [(float(np.vdot(A, A)), float(b @ b)) for A, b in _halves(law, precision, shift)]
    return float(np.sqrt(max(map(max, parts)))), float(np.sqrt(sum(0.5 * a + b for a, b in parts)))
