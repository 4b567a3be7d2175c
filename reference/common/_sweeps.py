"""Damped sweeps to a fixed point: how far off it still is, where a line through them leads, and when to give up."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.algebra import least_squares, singular_values, spectrum
from reference.common.errors import NotPositiveDefiniteError

Array = NDArray[np.float64]

_PLAIN = 50  # sweeps before the first extrapolation
_CYCLE = 12  # sweeps between two
_WINDOW = 8  # residuals from which a contraction is read off
_REMEMBERED = 6  # cycles whose contraction counts
_ROUNDED = 1e-12  # below, rounding blurs ratios of residuals
_RESOLVED = 1e-11  # relative to x: below, rounding is more than 1e-5 of a move
_PATIENCE = 300  # sweeps within which the residual must halve


class Step(NamedTuple):
    """Factors after one sweep over some data."""

    sites: Any
    residual: float  # largest undamped change of a factor in its own standardised coordinate
    n_improper: int  # cavities that were no distribution, and halvings of the step
    posterior: Any = None  # q after it, where it was made


class Run(NamedTuple):
    """Where sweeps over all data ended."""

    sites: Any
    posterior: Any
    residual: float  # of the last sweep
    converged: bool
    n_improper: int
    iterations: int


class Sweeps:
    r"""Watches x ← x + δ (g(x) - x) and shortens it by reduced-rank extrapolation.

    Residuals |g(x) - x| that fall by a factor ρ a sweep leave δ ρ/(1 - ρ) times the last one undone: with ρ = .99 that
    is fifty times as much. The residual of `distance` is the larger of both, and infinite while nothing falls. ρ is the
    slowest of the factors seen lately: that of the residuals and, before each extrapolation, the largest of those that
    the moves themselves contain (their Ritz values), since a direction that extrapolation has all but removed decides
    no residual any more and still what is left.

    Every twelve sweeps, after fifty, the combination Σ γ_j x_j, Σ γ_j = 1, with the least |Σ γ_j (x_{j+1} - x_j)|
    is proposed. It removes the slow directions that twelve sweeps show. A proposal is kept if the sweep from it has a
    smaller residual than the last one; plain sweeps alone decide when it ends.
    """

    def __init__(self, damping: float, tolerance: float) -> None:
        """δ, and the distance at which it has arrived."""
        self.damping, self.tolerance = damping, tolerance
        self.distance = self.change = self._best = np.inf  # change: the residual of the last sweep; its least so far
        self.converged = False
        self._count = self._since = 0  # sweeps, and those since the residual last halved
        self._points: list[Array] = []
        self._residuals: list[float] = []
        self._rates: list[float] = []
        self._last: tuple[float, int]
        self._saved: tuple[Any, float, int] | None = None

    @property
    def stalled(self) -> bool:
        """Whether the least residual has not halved within 300 sweeps: nothing says that it ever will."""
        return self._since >= _PATIENCE

    def see(self, sites: Any, residual: float, n_improper: int) -> Any | None:
        """Take in one more sweep: the sites after it, the residual before it, cavities that were no distribution.

        Returns
        -------
        sites or None    where to go on instead: where the last extrapolation started from, if that led astray
        """
        self._count += 1
        saved, self._saved = self._saved, None
        if saved is not None and not (residual < saved[1] and n_improper <= saved[2]):
            return saved[0]
        self._last = residual, n_improper
        self.change = residual
        self._points.append(np.concatenate([part.ravel() for part in _leaves(sites)]))
        self._residuals.append(residual)
        if residual <= 0.5 * self._best:
            self._best, self._since = residual, 0
        else:
            self._since += 1
        del self._points[: -_CYCLE - 1], self._residuals[: -_CYCLE - 1]
        self.distance = self._distance()
        self.converged = self.distance <= self.tolerance and n_improper == 0
        return None

    def propose(self, sites: Any) -> Any | None:
        """The extrapolated sites, shaped like those of the last sweep; None if it is not time for them."""
        if self.converged or self._count < _PLAIN or len(self._points) <= _CYCLE:
            return None
        points = np.array(self._points)
        moves = np.diff(points, axis=0)
        # every kind of number by its own size, or the largest would be all that is seen
        moves_seen = moves / _sizes(sites, points[-1])
        falling = [rate for rate in (self._rate(), _slowest(moves_seen)) if rate < 1.0]
        # moves near rounding hold the digits of no ratio near 1: what larger ones told before is kept
        if falling and (not self._rates or float(np.max(np.abs(moves_seen))) > _RESOLVED):
            self._rates = [*self._rates, max(falling)][-_REMEMBERED:]
        turns = np.diff(moves_seen, axis=0)
        weights = least_squares(turns.T, -moves_seen[-1], 1e-10, "differences of moves")
        value = points[-1] + weights @ moves[1:]
        self._saved = sites, *self._last
        self._points, self._residuals = [], []
        return _shaped(sites, iter(np.split(value, np.cumsum([part.size for part in _leaves(sites)])[:-1])))

    def refuse(self) -> Any:
        """No distribution belongs to the extrapolated sites: where to go on instead."""
        assert self._saved is not None
        sites, self._saved = self._saved[0], None
        return sites

    def _rate(self) -> float:
        """Mean factor of the last residuals; 1 before there are three, or where they do not fall."""
        if len(self._residuals) < 3:
            return 1.0
        observed = [each for each in self._residuals if each > _ROUNDED][-_WINDOW:]
        if len(observed) < 3:  # there at once, or from the start
            return 0.5
        return min(1.0, float((observed[-1] / observed[0]) ** (1.0 / (len(observed) - 1))))

    def _distance(self) -> float:
        residual = self._residuals[-1]
        if residual == 0.0:
            return 0.0
        rates = [*self._rates]
        own = self._rate()
        if own < 1.0 or not rates:
            rates.append(own)
        rho = max(rates)
        return residual * max(1.0, self.damping * rho / (1.0 - rho)) if rho < 1.0 else np.inf


def to_fixed_point(
    sweep: Callable[[Any, Any], Step],
    posterior: Callable[[Any], Any],
    sites: Any,
    sweeps: Sweeps,
    max_iterations: int,
    monitor: Callable[[Step], None] | None = None,
) -> Run:
    """Sweeps until no factor wants to move, or 300 of them do not halve the residual.

    Parameters
    ----------
    sweep : callable          sites and q to a Step over all data
    posterior : callable      sites to q; NotPositiveDefiniteError where there is none
    sites : nested arrays     where to start
    sweeps : Sweeps           new: damping and tolerance
    max_iterations : int      sweeps after which it gives up
    monitor : callable        told the outcome of every sweep
    """
    q = posterior(sites)
    n_improper = iterations = 0
    while not sweeps.converged and not sweeps.stalled and iterations < max_iterations:
        step = sweep(sites, q)
        sites = step.sites
        q = posterior(sites) if step.posterior is None else step.posterior
        n_improper += step.n_improper
        iterations += 1
        if monitor is not None:
            monitor(step)
        back = sweeps.see(sites, step.residual, step.n_improper)
        leap = sweeps.propose(sites) if back is None else back
        if leap is not None:
            try:
                sites, q = leap, posterior(leap)
            except NotPositiveDefiniteError:
                sites = sweeps.refuse()
    return Run(sites, q, sweeps.change, sweeps.converged, n_improper, iterations)


def _slowest(moves: Array) -> float:
    """The largest factor below 1 of moves m_{j+1} = A m_j: eigenvalues of A on the span of all but the last.

    Directions smaller than the square root of rounding beside the largest hold the digits of no ratio.
    """
    left, sizes, right = singular_values(moves[:-1].T, "moves")
    kept = sizes > max(1e-8 * sizes[0], 1e-14)
    if not kept.any():
        return 0.0
    factors = spectrum(left[:, kept].T @ moves[1:].T @ right[kept].T / sizes[kept], "moves' map")
    result = np.abs(factors[np.abs(factors) < 1.0])
    return float(result.max()) if result.size else 0.0


def _leaves(sites: Any) -> Iterator[Array]:
    """All arrays of nested tuples and lists."""
    if isinstance(sites, np.ndarray):
        yield sites
        return
    for part in sites:
        yield from _leaves(part)


def _sizes(sites: Any, point: Array) -> Array:
    """For each number the largest of its array, 1 where that is zero."""
    values, at = np.empty_like(point), 0
    for part in _leaves(sites):
        values[at : at + part.size] = float(np.max(np.abs(part))) or 1.0
        at += part.size
    return values


def _shaped(sites: Any, parts: Iterator[Array]) -> Any:
    """The same nesting with other numbers."""
    if isinstance(sites, np.ndarray):
        return next(parts).reshape(sites.shape)
    results = [_shaped(part, parts) for part in sites]
    return type(sites)(*results) if hasattr(sites, "_fields") else type(sites)(results)
