"""Natural-gradient steps on batches that somebody else brings: data that can be neither indexed nor read again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fast import _inputs
from fast._types import FloatArray, IntArray
from fast.errors import NotPositiveDefiniteError
from fast.minibatch import Batch
from fast.natural import RateMemory
from fast.optim import AdamState, Packing
from fast.stochastic import DivergedError, Kernel, Likelihood, Run, Settings, State, checked_rate
from fast.stopping import Falling


class _Brought:
    """A source that holds the one batch it was given; n grows as its user says."""

    def __init__(self, d: int) -> None:
        self.n, self.d = 1, d

    def draw(self) -> Batch:
        """Batches are brought, not drawn."""
        raise AssertionError

    def state(self) -> IntArray:
        """Nothing to continue."""
        return np.zeros(0, dtype=np.int64)

    def restore(self, state: IntArray) -> None:
        """Nothing to continue."""


class OnlinePosterior:
    """q(u) after the batches so far; the interface of `fast.methods.x_gpc_svi.SVIPosterior`."""

    def __init__(self, state: State, iterations: int) -> None:
        self.state, self.iterations = state, iterations
        self.converged = False

    @property
    def hyper(self) -> _inputs.Hyper:
        """Parameters of the prior, as learned."""
        return self.state.kernel.hyper

    @property
    def Z(self) -> FloatArray:
        """Inducing points, as learned: (m, d)."""
        return self.state.kernel.Z


class Online:
    """A run of `fast.stochastic` without a source. Time per step O(b m (m + d) + m^3), memory O(m^2 + batch).

    likelihood                          derivatives and value of the expected log density
    variance, lengthscales, noise       of the prior to start from; jitter on K_ZZ; Z (m, d)
    rate, learn, learning_rate          as in `fast.methods.x_gpc_svi.fit`
    trace                               keep the estimate of the bound of each step in `estimate`
    factor (m, m), weights (m,)         R and p of a whitened q(v) = N(p, (R R')^-1) to start from; None: q = p
    """

    def __init__(
        self,
        likelihood: Likelihood,
        variance: float,
        lengthscales: Any,
        noise: float,
        jitter: float,
        Z: Any,
        *,
        rate: Any = "adaptive",
        learn: Iterable[str] = (),
        learning_rate: float = 0.01,
        trace: bool = True,
        factor: FloatArray | None = None,
        weights: FloatArray | None = None,
    ) -> None:
        Z = _inputs.finite_rows("Z", _inputs.inputs("Z", Z)).copy()
        hyper = _inputs.hyper(variance, lengthscales, noise, jitter, Z.shape[1])
        packing = Packing(learn, hyper, Z)
        settings = Settings(
            1, checked_rate(rate), packing.names, _inputs.scalar("learning_rate", learning_rate, positive=True),
            stop=None, trace=bool(trace),
        )  # fmt: skip
        self._source = _Brought(Z.shape[1])
        state = State.prior(Kernel(hyper, Z))
        if factor is not None and weights is not None:
            state.precision, state.factor = factor @ factor.T, np.array(factor, order="F")
            state.shift = state.precision @ weights
        self._run = Run(
            state, self._source, likelihood, settings, RateMemory.empty(Z.shape[0]), packing,
            AdamState.start(packing.size), Falling(1),
        )  # fmt: skip
        self.estimate = float("nan")  # of the bound, on the last batch

    def step(self, X: FloatArray, y: FloatArray, n: int) -> None:
        """One step on rows X (b, d) with encoded labels y (b,), which stand for n rows."""
        self._source.n = n
        batch = Batch(_inputs.finite_rows("X", X), y)
        if self._run.iteration == 0 and self._run.settings.rate == "adaptive":
            self._run.look(batch)
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
                self.estimate = self._run.step(batch)
        except (DivergedError, NotPositiveDefiniteError) as error:
            raise ValueError(f"learning_rate: step diverged ({error}), expected a smaller value") from error

    @property
    def posterior(self) -> OnlinePosterior:
        """q(u) now."""
        return OnlinePosterior(self._run.state, self._run.iteration)
