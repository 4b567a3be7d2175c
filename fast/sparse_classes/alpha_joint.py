r"""Adam on an energy of villacampa2020: q and the priors move together, on mini-batches. Section 3.2 to 3.5.

Coordinates of q(u_k) = N(m_k, V_k): the mean, and the lower Cholesky factor of V_k with the logarithms of its diagonal.
Whitened, with L the factor of K, q(v) = N(m, B B'). A step needs no precision of q and no inverse of B: with a the
share of q that the data do not see (`fast.sparse_classes.alpha_energies`), c = a (apep, arpep) or alpha (rpapep), and

    R R' = (1 - a) I + c B'B,   H = B R^-T,   X = H R^-1,   x^ = x - c H H'x,

the distribution N(m^, H H') is that of the data (apep) or of the prior's factor (rpapep, whose data are seen under
N(m, B B'/(1 - a))). With t = sum dF_i/dm_i a_i and Q = sum dF_i/dv_i a_i a_i' the energy has the derivatives

    apep      dE/dm = (t - m)^,    dE/dB = 2 (Q H)^ R^-1 - X - a [(t^ - m^) m' + m^ t'] X + B^-T,
    rpapep    dE/dm = t - m^,      dE/dB = 2 Q B/(1 - a) - X + c m^ m'X + B^-T,

arpep is apep at a = 0. Only the lower triangle of dE/dB counts, in which B^-T is a diagonal. A step costs
O(C b m (m + d) + C m^3) whatever n is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm

from fast.core.errors import NotPositiveDefiniteError
from fast.core.linalg import factorise, invert_lower, reciprocal_condition, solve_vector, squared_norms
from fast.core.results import ScalarMoments
from fast.core.types import FloatArray, IntArray
from fast.likelihood.power import powered_labels
from fast.solve.adam import AdamState, adam_arrays, adam_restored, adam_step
from fast.solve.steps import Stepping, run_steps
from fast.sparse_classes.alpha_energies import Energy
from fast.sparse_classes.alpha_runs import EnergyRun
from fast.sparse_classes.projections import (
    ClassDistribution,
    ClassView,
    InducingClasses,
    PointGradients,
    VectorJacobianProduct,
    add_projected,
)
from fast.sparse_classes.training import (
    Batches,
    ClassPacking,
    Progress,
    Settings,
    Trained,
    hyper_restored,
    prior_arrays,
    saving,
)


class Coordinates(NamedTuple):
    """q(u) as numbers that may move freely."""

    mean: FloatArray  # (C, m)
    factor: FloatArray  # (C, m, m): strictly lower entries of R, logarithms of its diagonal, 0 above


class White(NamedTuple):
    """q(v) = N(mean, factor factor')."""

    mean: FloatArray  # (C, m)
    factor: FloatArray  # (C, m, m): B


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
    index = np.arange(factor.shape[1])
    factor[:, index, index] = np.log(factor[:, index, index])
    return Coordinates(np.zeros(factor.shape[:2]), factor)


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


def whitened(points: InducingClasses, coordinates: Coordinates) -> White:
    """L^-1 m and L^-1 R of each class. Time C m^3.

    Parameters
    ----------
    points         inducing points
    coordinates    of q
    """
    B, mean = cholesky_of(coordinates), np.empty_like(coordinates.mean)
    for k in range(points.n_classes):
        L = points.chol_K[points.kind[k]]
        # rows of the transpose are columns: a solve without a copy
        B[k] = dtrsm(1.0, L, B[k].T, side=1, lower=1, trans_a=1).T
        mean[k] = solve_vector(L, coordinates.mean[k])
        if not np.isfinite(B[k]).all() or (B[k].diagonal() <= 0.0).any():
            raise ValueError(f"covariance of q, class {k}: found no finite positive factor; lower rate")
    return White(mean, B)


def distribution_of(white: White) -> ClassDistribution:
    """q(v) by its natural parameters. Time C m^3.

    Parameters
    ----------
    white    mean and factor
    """
    precision, shift = np.empty_like(white.factor), np.empty_like(white.mean)
    for k, B in enumerate(white.factor):
        inverse = invert_lower(B)
        precision[k] = inverse.T @ inverse
        shift[k] = precision[k] @ white.mean[k]
    return ClassDistribution.of(precision, shift)


def _surely_positive(white: White) -> bool:
    """Whether q and its cavities surely have factors of their precisions P = B^-T B^-1. Time C m^2.

    cond_1 P <= m cond_2(B)^2 <= m^3 cond_1(B)^2, and the factorisation takes up to 1/eps; a tenth is the estimate's. A
    cavity mixes P with the prior's precision, the unit matrix, and is conditioned no worse.
    """
    m = white.factor.shape[1]
    limit = 10.0 * float(np.finfo(np.float64).eps) * m**3
    return all(reciprocal_condition(B) ** 2 > limit for B in white.factor)


class _Seen:
    """One class under the distributions that an energy makes of q; names as in the text of the module."""

    def __init__(self, energy: Energy, m: FloatArray, B: FloatArray) -> None:
        self.m, self.B, self.a = m, B, energy.removed
        self.prior_seen = energy.kind == "rpapep"
        self.c = energy.alpha if self.prior_seen else self.a
        remaining = 1.0 - self.a
        self.R: FloatArray | None = None
        if self.c == 0.0:
            self.H = self.X = B
        else:
            inner = self.c * (B.T @ B)
            inner.flat[:: m.size + 1] += remaining
            self.R = factorise(inner, "covariance of q, whitened", "lower rate")
            self.H = dtrsm(1.0, self.R, B.T, side=0, lower=1).T
            self.X = dtrsm(1.0, self.R, self.H.T, side=0, lower=1, trans_a=1).T
        self.m_hat = self.hat(m)
        # the distribution of the data
        self.mean = m if self.prior_seen else self.m_hat
        self.root = B * (1.0 / np.sqrt(remaining)) if self.prior_seen else self.H

    def hat(self, x: FloatArray) -> FloatArray:
        """x - c H H'x, which is (1 - a) times x seen through ((1 - a) I + c B B')^-1."""
        return x - self.c * (self.H @ (self.H.T @ x)) if self.c else x

    def derivatives(
        self, Q: FloatArray, t: FloatArray, priors: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """dE/dm, dE/dB (its lower triangle counts), and the second moment M of L'(dE/dK) L = (M - I)/2. Time 9 m^3."""
        H, X, m_hat = self.H, self.X, self.m_hat
        moment: FloatArray | None = None
        if self.prior_seen:
            by_B = (2.0 / (1.0 - self.a)) * (Q @ self.B)
            by_B += np.multiply.outer(self.c * m_hat, self.m @ X)
            by_mean = t - m_hat
            if priors:
                moment = H @ H.T
        else:
            through = Q @ H
            by_mean = self.hat(t) - m_hat
            if self.c == 0.0:
                by_B = 2.0 * through
                if priors:
                    moment = H @ H.T
            else:
                assert self.R is not None
                pulled = H @ (H.T @ through)
                through -= self.c * pulled
                through *= 2.0
                by_B = dtrsm(1.0, self.R, through.T, side=0, lower=1, trans_a=1, overwrite_b=1).T
                by_B -= np.multiply.outer(self.a * by_mean, self.m @ X)
                by_B -= np.multiply.outer(self.a * m_hat, t @ X)
                if priors:
                    pulled *= 2.0 * self.a
                    pulled += H
                    moment = pulled @ H.T
                    crossed = np.multiply.outer(self.a * (H @ (H.T @ t)), m_hat)
                    moment += crossed
                    moment += crossed.T
        by_B -= X
        by_B.flat[:: t.size + 1] += 1.0 / self.B.diagonal()
        if moment is not None:
            moment += np.multiply.outer(m_hat, m_hat)
        return by_mean, by_B, moment


def _moments(observed: list[_Seen], view: ClassView) -> tuple[ScalarMoments, list[FloatArray]]:
    """Mean and variance of the latent values where the data are seen, and root'a_i of each class. Time C b m^2."""
    mean, var = np.empty(view.cond_var.shape), view.cond_var.copy()
    halves = []
    for k, part in enumerate(observed):
        rows = view.rows[k if len(view.rows) > 1 else 0]
        half_solved = rows @ part.root
        mean[:, k] = rows @ part.mean
        var[:, k] += squared_norms(half_solved)
        halves.append(half_solved)
    return ScalarMoments(mean, var), halves


def joint_gradient(run: EnergyRun, white: White, batch: IntArray | None, *, priors: bool) -> JointGradient:
    """Gradient of the energy, its sum over data times n / b, in the coordinates of q and in the priors.

    Time C (6 b m^2 + 14 m^3), the kernels and the quadratures.

    Parameters
    ----------
    run                data, energy and priors; its distribution is not looked at
    white              q(v)
    batch : (b,)       indices; None: all data
    priors : bool      whether they move
    """
    points, energy = run.points, run.energy
    C, m = white.mean.shape
    observed = [_Seen(energy, white.mean[k], white.factor[k]) for k in range(C)]
    scale = 1.0 if batch is None else run.data.n / batch.size
    Q, t = np.zeros((C, m, m)), np.zeros((C, m))
    vjp = VectorJacobianProduct(points)
    for _, view, y in run.data.chunks(points, batch, with_cross=priors):
        moments, halves = _moments(observed, view)
        result = powered_labels(y, moments, energy.alpha, run.epsilon)
        by_mean, by_var = scale * result.derivative, scale * result.by_variance
        add_projected(Q, t, view, by_var, by_mean)
        if priors:

            def by_upsilon(
                k: int, halves: list[FloatArray] = halves, derivative: FloatArray = by_mean, by_var: FloatArray = by_var
            ) -> FloatArray:
                halves[k] *= 2.0 * by_var[:, k, None]
                W: FloatArray = halves[k] @ observed[k].root.T
                W += np.multiply.outer(derivative[:, k], observed[k].mean)
                return W

            vjp.add(view, by_upsilon, by_var)
    gradient_mean, gradient_factor = np.empty((C, m)), np.empty((C, m, m))
    index = np.arange(m)
    by_K: list[FloatArray] = []
    for k in range(C):
        L = points.chol_K[points.kind[k]]
        by_v, by_B, moment = observed[k].derivatives(Q[k], t[k], priors)
        gradient_mean[k] = solve_vector(L, by_v, transposed=True)
        gradient_factor[k] = dtrsm(1.0, L, by_B.T, side=1, lower=1).T
        gradient_factor[k, index, index] *= L.diagonal() * white.factor[k].diagonal()  # of R
        if moment is not None:
            moment *= 0.5
            moment.flat[:: m + 1] -= 0.5
            by_K.append(moment)
    by_prior = vjp.finish(by_K.__getitem__) if priors else None
    return JointGradient(gradient_mean, gradient_factor, by_prior)


class JointSteps(Stepping):
    """Steps of Adam, resumable. All coordinates are one vector: means, factors, then what is learned of the priors."""

    def __init__(self, run: EnergyRun, settings: Settings) -> None:
        self.run, self.settings = run, settings
        points = run.points
        self.packing = ClassPacking(settings.learn, points.hyper, points.Z, points.shared, settings.hyperprior)
        start = start_at_prior(points)
        self.shape = start.factor.shape
        C, m = self.shape[:2]
        rows, columns = np.tril_indices(m)
        self.lower = rows * m + columns  # of a flattened factor
        self.edges = (C * m, C * (m + self.lower.size))
        factors = start.factor.reshape(C, -1)[:, self.lower]
        self.vector = np.concatenate(
            [start.mean.ravel(), factors.ravel(), self.packing.vector(points.hyper, points.Z)]
        )  # fmt: skip
        self.adam = AdamState.start(self.vector.size)
        self.batches = Batches(settings, run.data.n)
        self.trace: list[float] = []
        self.iteration = 0
        self.white = whitened(points, self.coordinates)

    @property
    def coordinates(self) -> Coordinates:
        """q as it stands in the vector."""
        C, m = self.shape[:2]
        first, second = self.edges
        factor = np.zeros((C, m * m))
        factor[:, self.lower] = self.vector[first:second].reshape(C, -1)
        return Coordinates(self.vector[:first].reshape(C, m), factor.reshape(self.shape))

    def publish(self) -> None:
        """The run gets q, which a step by itself does not need there. Time C m^3."""
        self.run.q = distribution_of(self.white)
        self.run.rebuild()

    def _derivative(self, batch: IntArray | None) -> FloatArray:
        gradients = joint_gradient(self.run, self.white, batch, priors=self.packing.size > 0)
        derivative = np.empty_like(self.vector)
        first, second = self.edges
        derivative[:first] = gradients.by_mean.ravel()
        np.take(
            gradients.by_factor.reshape(self.shape[0], -1), self.lower, axis=1,
            out=derivative[first:second].reshape(self.shape[0], -1), mode="clip",
        )  # fmt: skip
        if gradients.by_prior is not None:
            hyper = self.run.points.hyper
            derivative[second:] = self.packing.gradient(gradients.by_prior, hyper) + self.packing.prior(hyper)[1]
        if not np.isfinite(derivative).all():
            raise ValueError("gradient: found a value that is not finite, expected finite numbers; lower rate")
        return derivative

    def draw(self) -> IntArray | None:
        """Indices of the next batch; None: all data."""
        return self.batches(self.iteration)

    def step(self, batch: IntArray | None) -> float:
        """Gradient at one point, one move of everything; the energy of all data before it if asked for.

        Parameters
        ----------
        batch : (b,)    indices; None: all data
        """
        run = self.run
        value = np.nan
        if self.settings.trace:
            self.publish()
            value = run.here.value
        # in place: after a step that fails there is no other
        move, self.adam = adam_step(self._derivative(batch), self.adam, self.settings.rate, overwrite=True)
        before = run.points, self.vector, self.white
        try:
            move += self.vector
            self.vector = move
            if self.packing.size:
                hyper, Z = run.points.hyper, run.points.Z
                hyper, Z = self.packing.parameters(self.vector[self.edges[1] :], hyper, Z)
                run.points = InducingClasses(hyper, Z, run.points.shared, in_a_step=True)
            self.white = whitened(run.points, self.coordinates)
            if not _surely_positive(self.white):
                # raises: where a run ends, all of them must have factors
                run.energy.distributions(distribution_of(self.white))
        except (ValueError, NotPositiveDefiniteError):
            run.points, self.vector, self.white = before
            raise
        self.iteration += 1
        if self.settings.trace:
            self.trace.append(value)
        return value

    def all(self, callback: Callable[[Progress], None] | None) -> Trained:
        """Every step; one that leaves the finite numbers ends the run at the state before it.

        Parameters
        ----------
        callback : callable    called with a Progress after every step
        """

        def after(value: float) -> None:
            if callback is not None:
                self.publish()
                callback(Progress(self.iteration, value, np.nan, 0, self.run.points.hyper, self.run))

        end = run_steps(self, self.settings.n_steps, saving(self.settings), after)
        self.publish()
        return Trained(np.array(self.trace), np.nan, False, self.iteration, 0, end.diverged, end.reason)

    def arrays(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            **prior_arrays(self.run.points),
            **self.batches.arrays(),
            "vector": self.vector,
            "trace": np.array(self.trace),
            "iteration": np.array(self.iteration),
            **adam_arrays(self.adam),
        }

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Continue where `arrays` was taken.

        Parameters
        ----------
        arrays    of a checkpoint
        """
        if self.packing.size:
            shared = self.run.points.shared
            self.run.points = InducingClasses(hyper_restored(arrays), arrays["Z"], shared, in_a_step=True)
        self.vector = arrays["vector"]
        self.batches.restore(arrays)
        self.trace, self.iteration = arrays["trace"].tolist(), int(arrays["iteration"])
        self.adam = adam_restored(arrays)
        self.white = whitened(self.run.points, self.coordinates)
