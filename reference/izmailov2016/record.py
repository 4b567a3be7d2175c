"""What the loops of the paper record: rounds of an algorithm and their bound, sweeps to a fixed point."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._iteration import Arrival, change
from reference.common.errors import factorise
from reference.izmailov2016._prior import Matrices
from reference.izmailov2016.model import REMEDY_Z, Prior

Array = NDArray[np.float64]


class Variational(NamedTuple):
    """q(u) = N(μ, Σ) and the local parameters."""

    inducing_mean: Array  # (m,)
    inducing_cov: Array  # (m, m)
    xi: Array  # (n,)


def largest_move(new: Variational, old: Variational, K: Matrices) -> float:
    """Relative change of μ and Σ: where labels cancel, the digits of μ that are left are those of rounding.

    μ is measured against the larger of its largest entry and 1 % of what it would be if all labels pulled one way.

    Parameters
    ----------
    new, old : Variational
    K : Matrices              of the prior
    """
    kappa = K.K_XZ @ factorise(K.K_ZZ, "K_ZZ", REMEDY_Z).inverse
    uncancelled = 0.5 * float(np.max(np.sum(np.abs(new.inducing_cov @ kappa.T), axis=1)))
    mean = change(new.inducing_mean, old.inducing_mean, 0.01 * uncancelled)
    return max(mean, change(new.inducing_cov, old.inducing_cov))


class Alternation(NamedTuple):
    """Where an algorithm ended."""

    hyper: Prior
    q: Variational
    trace: Array  # bound after each iteration
    residual: float  # relative change of the bound in the last iteration
    converged: bool
    iterations: int
    moves: tuple[float, ...] = ()  # relative changes of μ and Σ from iteration to iteration


class AlternationState(NamedTuple):
    """What a callback receives after each iteration."""

    iteration: int
    elbo: float
    residual: float
    hyper: Prior
    inducing_mean: Array
    inducing_cov: Array


class VIState(NamedTuple):
    """What a callback receives after every iteration towards a fixed point."""

    iteration: int
    elbo: float
    residual: float
    inducing_mean: Array
    inducing_cov: Array


class Rounds:
    """Rounds of algorithm 1: they end when the relative change of the bound is below tolerance, or at the limit."""

    def __init__(
        self, tolerance: float, max_iterations: int, callback: Callable[[AlternationState], None] | None
    ) -> None:
        """None made."""
        self.tolerance, self.max_iterations, self.callback = tolerance, max_iterations, callback
        self.trace: list[float] = []
        self.moves: list[float] = []
        self.residual = np.inf

    @property
    def ended(self) -> bool:
        """Whether no further round is to be made."""
        return self.residual < self.tolerance or len(self.trace) >= self.max_iterations

    def made(self, bound: float, move: float, hyper: Prior, q: Variational) -> None:
        """One more round: the bound after it, `largest_move` of its first stage, θ and q(u)."""
        self.trace.append(bound)
        self.moves.append(move)
        if len(self.trace) > 1:
            before, now = self.trace[-2:]
            self.residual = abs(now - before) / max(abs(now), abs(before), 1.0)
        if self.callback is not None:
            self.callback(AlternationState(len(self.trace), bound, self.residual, hyper, *q[:2]))

    def result(self, hyper: Prior, q: Variational) -> Alternation:
        """μ and Σ are those of the last first stage, as in the algorithm: of the θ before the last step."""
        converged = self.residual < self.tolerance
        return Alternation(hyper, q, np.array(self.trace), self.residual, converged, len(self.trace), tuple(self.moves))


class Sweeps:
    """Sweeps to a fixed point, at least one: they end when the estimated distance of μ and Σ is below tolerance.

    The distance is that of `Arrival`, by `largest_move` as if a step had been whole; max_iterations sweeps end them
    too, and 200 without a smaller move. The moves of an algorithm that came before are part of the estimate: its last
    rounds may have left nothing but rounding.
    """

    def __init__(
        self,
        tolerance: float,
        max_iterations: int,
        callback: Callable[[VIState], None] | None = None,
        moves: Sequence[float] = (),
        before: int = 0,
    ) -> None:
        """None made; before: iterations of the algorithm, which a callback counts too."""
        self.arrival, self.max_iterations, self.callback, self.before = (
            Arrival(tolerance), max_iterations, callback, before,
        )  # fmt: skip
        self.trace: list[float] = []
        for moved in moves:
            self.arrival.see(moved)

    @property
    def converged(self) -> bool:
        """Whether the distance is below the tolerance."""
        return self.arrival.converged

    @property
    def reason(self) -> str:
        """Why they have not converged, empty if they have."""
        return "" if self.converged else self.arrival.reason(len(self.trace))

    @property
    def ended(self) -> bool:
        """Whether no further sweep is to be made."""
        arrived = bool(self.trace) and self.arrival.converged
        return arrived or self.arrival.stalled or len(self.trace) >= self.max_iterations

    def made(self, new: Variational, old: Variational, K: Matrices, bound: float, rate: float = 1.0) -> None:
        """One more sweep: q(u) after and before it, the bound after it, the rate of its step."""
        self.arrival.see(largest_move(new, old, K) / rate)
        self.trace.append(bound)
        if self.callback is not None:
            count = self.before + len(self.trace)
            self.callback(VIState(count, bound, self.arrival.residual, *new[:2]))
