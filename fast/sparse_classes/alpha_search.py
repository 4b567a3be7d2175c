r"""A search for the optimum of an energy of villacampa2020 where natural-gradient steps are slow.

Some optima lie far from the prior, with variances up to 1e6 times its own in directions that the data hardly see, and
the energy is nearly flat there. Coordinates are relative to a distribution N(m, B B'): N(m + B x, B T T' B'), T lower
triangular with its diagonal in logarithms, so that a variance that grows by orders of magnitude is a short way,
whatever its size. L-BFGS goes first. Where the coordinates are few, Newton's method in a trust region follows, its
Hessian from differences of gradients: flat directions are no longer to it than others, and negative curvature is left
downhill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fast.core.ending import EndedError, ended
from fast.core.errors import NotPositiveDefiniteError
from fast.core.linalg import cholesky_of_all, invert_lower, spectrum
from fast.core.types import FloatArray
from fast.sparse_classes.projections import ClassDistribution

_ITERATIONS, _RESTARTS = 200, 3  # of L-BFGS
_DENSE = 600  # coordinates up to which a Hessian is formed
_NEWTON_STEPS, _HESSIANS, _DIFFERENCE = 40, 12, 1e-5
_ENOUGH = 1e-9  # length of the gradient at which the search ends


class _Chart:
    """Coordinates about a distribution; 0 is the distribution itself."""

    def __init__(self, q: ClassDistribution, point: Callable[[ClassDistribution], Any]) -> None:
        self.point = point
        C, m = self.shape = q.shift.shape
        self.lower, self.index = np.tril_indices(m), np.arange(m)
        self.mean = q.weights
        self.B = cholesky_of_all(np.array([q.covariance(k) for k in range(C)]), "covariance of q(v)", "lower variance")
        self.size = C * (m + self.lower[0].size)

    def q(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, ClassDistribution]:
        """Means, T, B T and the distribution."""
        C, m = self.shape
        T = np.zeros((C, m, m))
        T[:, *self.lower] = x[C * m :].reshape(C, -1)
        T[:, self.index, self.index] = np.exp(T[:, self.index, self.index])
        mean, R = self.mean + (self.B @ x[: C * m].reshape(C, m, 1))[:, :, 0], self.B @ T
        inverse = np.array([invert_lower(part) for part in R])
        precision = inverse.transpose(0, 2, 1) @ inverse
        return mean, T, R, ClassDistribution.of(precision, (precision @ mean[:, :, None])[:, :, 0])

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Minus the energy and its gradient; inf where there is no distribution. EndedError in a run that ends."""
        if ended():
            raise EndedError
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                mean, T, R, q = self.q(x)
                value, change = self.point(q)[2:]
        except (ValueError, NotPositiveDefiniteError):
            return np.inf, np.zeros(x.size)
        turned = self.B.transpose(0, 2, 1)
        by_mean = turned @ (change.shift[:, :, None] - change.precision @ mean[:, :, None])
        by_T = -turned @ (change.precision @ R)
        by_T[:, self.index, self.index] *= T[:, self.index, self.index]
        return -value, -np.concatenate([by_mean.ravel(), by_T[:, *self.lower].ravel()])

    def far(self, x: FloatArray, bound: float) -> bool:
        """Whether the variances of a class sum to more than bound."""
        return bool((self.q(x)[2] ** 2).sum(axis=(1, 2)).max() > bound)

    def hessian(self, x: FloatArray) -> FloatArray:
        """Central differences of gradients: 2 size evaluations."""
        H = np.empty((self.size, self.size))
        for j in range(self.size):
            step = np.zeros(self.size)
            step[j] = _DIFFERENCE
            H[j] = (self(x + step)[1] - self(x - step)[1]) / (2.0 * _DIFFERENCE)
        return 0.5 * (H + H.T)


def _within(values: FloatArray, derivative: FloatArray, radius: float) -> FloatArray:
    """Minimiser of a quadratic of these eigenvalues in a ball: -derivative/(values + shift) by bisection."""
    low = max(0.0, -float(values[0])) + 1e-14 * float(np.abs(values).max())
    if low == 0.0 or np.linalg.norm(derivative / (values + low)) <= radius:
        return -derivative / (values + low)
    high = low + float(np.linalg.norm(derivative)) / radius
    for _ in range(60):
        middle = 0.5 * (low + high) if low == 0.0 else float(np.sqrt(low * high))
        low, high = (middle, high) if np.linalg.norm(derivative / (values + middle)) > radius else (low, middle)
    return -derivative / (values + high)


def _newton(chart: _Chart, x: FloatArray, bound: float) -> FloatArray:
    """Newton's method in a trust region; a Hessian serves as long as it shortens the gradient tenfold."""
    value, derivative = chart(x)
    radius, fresh = 1.0, False
    values, basis = np.ones(x.size), np.eye(x.size)
    stale, formed = True, 0
    for _ in range(_NEWTON_STEPS):
        if np.linalg.norm(derivative) <= _ENOUGH or radius < 1e-8:
            break
        if stale and formed == _HESSIANS:
            break
        if stale:
            formed += 1
            values, basis = spectrum(chart.hessian(x), "Hessian of the energy")
            stale, fresh = False, True
        turned = basis.T @ derivative
        step = _within(values, turned, radius)
        promised = -float(turned @ step + 0.5 * values @ step**2)
        new_value, new_derivative = chart(x + basis @ step)
        # where rounding hides the value the gradient decides
        hidden = promised <= 1e-12 * (1.0 + abs(value))
        shorter = float(np.linalg.norm(new_derivative)) / float(np.linalg.norm(derivative))
        good = shorter < 1.0 and np.isfinite(new_value) if hidden else value - new_value > 0.1 * promised
        if not good:
            radius = 0.25 * min(radius, float(np.linalg.norm(step)))
            stale = not fresh
            continue
        if not hidden and value - new_value > 0.7 * promised:
            radius = min(2.0 * radius, 4.0)
        x, value, derivative = x + basis @ step, new_value, new_derivative
        stale, fresh = shorter > 0.1, False
        if chart.far(x, bound):
            break
    return x


def optimise(q: ClassDistribution, point: Callable[[ClassDistribution], Any], bound: float) -> ClassDistribution | None:
    """A distribution of a larger energy, at best its optimum; None if the search led to none, or had to end.

    Time of some hundred evaluations, and twice the coordinates for every Hessian.

    Parameters
    ----------
    q                   where to start
    point : callable    q -> distributions, terms, energy and its direction
    bound : float       sum of the variances of a class beyond which the search ends
    """
    from scipy.optimize import minimize  # here: only some runs need what takes long to load

    options = {"maxiter": _ITERATIONS, "gtol": _ENOUGH, "ftol": 1e-13, "maxcor": 30}
    try:
        for _ in range(_RESTARTS):
            chart = _Chart(q, point)
            end = minimize(chart, np.zeros(chart.size), jac=True, method="L-BFGS-B", options=options)
            q = chart.q(end.x)[-1]
            if chart.far(end.x, bound):
                return q
            if end.success:
                break
        chart = _Chart(q, point)
        if chart.size <= _DENSE:
            q = chart.q(_newton(chart, np.zeros(chart.size), bound))[-1]
    except (ValueError, NotPositiveDefiniteError, EndedError):
        return None
    return q
