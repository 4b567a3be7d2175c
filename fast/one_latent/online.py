"""Natural-gradient steps on batches that somebody else brings: data that can be neither indexed nor read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyperprior import Hyperprior
from fast.core.linalg import solve_rows
from fast.core.types import FloatArray, IntArray
from fast.core.values import Prior, checked_hyper
from fast.kernel.kernels import gram
from fast.one_latent.stochastic import Kernel, Likelihood, Run, Settings, State, checked_rate
from fast.solve.adam import AdamState, Packing
from fast.solve.minibatch import Batch
from fast.solve.natural import RateMemory, factor_precision
from fast.solve.stopping import Falling

_LOOKS = 10  # batches that the averages of the adaptive rate begin with, as in a fit
_PASSES = 10  # that a fit counts for, as many as one on mini-batches makes
_EXPLAINED = 1e-3  # of the prior variance: what is left of a row that needs no inducing point of its own


class _Brought:
    """A source that holds the one batch it was given; n grows as its user says."""

    def __init__(self, d: int) -> None:
        self.n, self.d = 1, d

    def draw(self) -> Batch:
        """Batches are brought, not drawn."""
        raise AssertionError

    def state(self) -> IntArray:
        """There is nothing to continue."""
        raise AssertionError

    def restore(self, state: IntArray) -> None:
        """There is nothing to continue."""
        raise AssertionError


class OnlinePosterior:
    """q(u) after the batches so far; the interface of `fast.methods.x_gpc_svi.SVIPosterior`."""

    def __init__(self, state: State, iterations: int) -> None:
        self.state, self.iterations = state, iterations
        self.converged = False

    @property
    def hyper(self) -> inputs.Hyper:
        """Parameters of the prior, as learned."""
        return self.state.kernel.hyper

    @property
    def Z(self) -> FloatArray:
        """Inducing points, as learned: (m, d)."""
        return self.state.kernel.Z


@dataclass(frozen=True, eq=False)
class OnlineOptions:
    """Rates, and what moves beside q(u)."""

    rate: Any = "share"  # "share", or as in `fast.methods.x_gpc_svi.fit`, see `Online`
    learn: Iterable[str] = ()  # as in `fast.methods.x_gpc_svi.fit`
    learning_rate: float = 0.01  # of Adam; where q knows rows to begin with, a pass moves no more than one step of it
    trace: bool = True  # keep the estimate of the bound of each step in `estimate`
    hyperprior: Hyperprior | None = None  # density of what is learned


class Known(NamedTuple):
    """A whitened q(v) = N(weights, (factor factor')^-1) to start from, and the rows that it stands for."""

    factor: FloatArray  # (m, m) R
    weights: FloatArray  # (m,) p
    rows: int


class Online:
    """A run of `one_latent.stochastic` without a source. Time per step O(b m (m + d) + m^3), memory O(m^2 + batch).

    q(u) = prior times sites of data, in sum those of n rows. A batch gives the sites of b of them, so a step at the
    rate b / n replaces what one batch in n / b had given. Rate "share" is b / min(N, 2 n), N the rows that q has seen:
    while N < n it is a running average in which all rows count alike; later a row counts for two passes, so that early
    sites, taken at a poor q, are forgotten, and sampling adds little: weights exp(-s / 2) of passes s have a variance
    of 2 % within a pass, where exp(-s) has 8 %. With parameters learned from nothing min(N, n): q follows them sooner.
    A fit counts as ten passes: its sites agree with its q, which a running average of fewer would disturb.
    Where n grows, sites so far are raised to the power n / n_old first: new rows then add to the old ones.

    The rate "adaptive" takes ten steps at the rate "share" and averages their gradients, as a fit does those of ten
    batches, before its rule holds: from one gradient its rate is 1 for ever. Where q knows rows to begin with, Adam's
    steps are b / (b + known) of learning_rate: a pass moves no more.

    likelihood    derivatives and value of the expected log density
    prior         to start from, with inducing points
    options       rates, and what moves beside q(u)
    known         the q to start from; None: q = p
    """

    def __init__(
        self,
        likelihood: Likelihood,
        prior: Prior,
        options: OnlineOptions | None = None,
        known: Known | None = None,
    ) -> None:
        given = OnlineOptions() if options is None else options
        Z = inputs.finite_rows("Z", inputs.inputs("Z", prior.Z)).copy()
        packing = Packing(given.learn, checked_hyper(prior, Z.shape[1]), Z, given.hyperprior)
        hyper = packing.hyper
        self._by_share = isinstance(given.rate, str) and given.rate == "share"
        settings = Settings(
            1, 1.0 if self._by_share else checked_rate(given.rate), packing.names,
            inputs.scalar("learning_rate", given.learning_rate, positive=True), stop=None, trace=bool(given.trace),
        )  # fmt: skip
        self._source = _Brought(Z.shape[1])
        state = State.prior(Kernel(hyper, Z))
        self._start = self._known = self._n = 0
        if known is not None:
            state.precision, state.factor = known.factor @ known.factor.T, np.array(known.factor, order="F")
            state.shift = state.precision @ known.weights
            self._start = self._n = inputs.count("known", known.rows)
            self._known = _PASSES * self._start
        self._run = Run(
            state, self._source, likelihood, settings, RateMemory.empty(Z.shape[0]), packing,
            AdamState.start(packing.size), Falling(1),
        )  # fmt: skip
        self._looked = 0  # gradients that the averages of the adaptive rate begin with
        self._learning_rate = settings.learning_rate
        self.estimate = float("nan")  # of the bound, on the last batch

    def step(self, X: FloatArray, y: FloatArray, n: int) -> None:
        """One step on rows X (b, d) with encoded labels y (b,), which stand for n rows.

        Raises ValueError, by name; all is then as it was before.
        """
        batch = Batch(inputs.inputs("X", X, self._source.d), y)
        run, size = self._run, batch.y.shape[0]
        with self.whole(), np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            try:
                self._stand_for(n)
                self._known += size
                passes = _PASSES + 1 if self._start else 1 if run.packing.size else 2
                share = size / min(self._known, passes * max(n, size))
                if run.packing.size and self._start:
                    learning_rate = self._learning_rate * size / (size + self._start)
                    run.settings = replace(run.settings, learning_rate=learning_rate)
                self.estimate = run.step(batch, self._rate(batch, share))
            except (NotPositiveDefiniteError, ValueError) as error:
                raise ValueError(f"learning_rate: step diverged ({error}), expected a smaller value") from error

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Growing and stepping inside happen both, or not at all where one of them raises."""
        run = self._run
        # averages of the adaptive rate move in place, all else is put in the place of what was there
        memory = run.memory if self._by_share else run.memory.copy()
        before = replace(run.state), run.adam, self._known, self._n, self._source.n, self._looked
        columns = self._source.d, run.packing
        try:
            yield
        except (ValueError, NotPositiveDefiniteError):
            run.state, run.adam, self._known, self._n, self._source.n, self._looked = before
            run.memory = memory
            self._source.d, run.packing = columns
            raise

    def _rate(self, batch: Batch, share: float) -> float | None:
        """The rate of a step; None: that of the settings."""
        run = self._run
        if self._by_share:
            return share
        if run.settings.rate != "adaptive" or self._looked == _LOOKS:
            return None
        if self._looked == 0 and self._start:  # q is at its optimum: gradients so far were zero on average
            run.look(batch)
            run.memory.first[:], run.memory.second[:] = 0.0, 0.0
            run.memory.length = max(1.0, self._start / batch.y.shape[0])
        run.look(batch)
        self._looked += 1
        return share

    def _stand_for(self, n: int) -> None:
        """Sites so far to the power that n rows ask for."""
        self._source.n = n
        state = self._run.state
        if self._n and n != self._n:
            power = n / self._n
            precision = state.precision * power
            precision.flat[:: len(precision) + 1] += 1.0 - power
            self._run.state = State(state.kernel, state.shift * power, precision, factor_precision(precision))
        self._n = n

    def candidates(self, X: FloatArray, count: int) -> FloatArray:
        """Rows of X (b, d), at most so many, that Z does not yet explain to 1/1000 of their prior variance: (p, d).

        The row with the largest variance given Z and those before it comes next. Time b^2 (m + p).
        """
        kernel = self._run.state.kernel
        hyper = kernel.hyper
        rows = solve_rows(kernel.chol_K, kernel.of.cross(X))
        left = gram(X, hyper.variance, hyper.lengthscales, 0.0, 0.0, hyper.smoothness) - rows @ rows.T
        chosen: list[int] = []
        while len(chosen) < count:
            best = int(np.argmax(left.diagonal()))
            if left[best, best] <= _EXPLAINED * hyper.variance:
                break
            chosen.append(best)
            column = left[best] / np.sqrt(left[best, best])
            left -= np.outer(column, column)
        return X[chosen]

    def grow(self, Z: FloatArray) -> None:
        """More inducing points (p, d), at which q(u_new | u) = p(u_new | u): P and w gain I and 0, whitened.

        Time (m + p)^3. Raises ValueError where inducing points are learned.
        """
        run, p = self._run, Z.shape[0]
        if "Z" in run.packing.names:
            raise ValueError("learn: found 'Z', expected inducing points that are held where more of them come")
        if p == 0:
            return
        state = run.state
        m = state.shift.size
        kernel = Kernel(state.kernel.hyper, np.concatenate([state.kernel.Z, Z]))
        precision, factor = np.eye(m + p), np.eye(m + p, order="F")
        precision[:m, :m], factor[:m, :m] = state.precision, state.factor
        run.state = State(kernel, np.concatenate([state.shift, np.zeros(p)]), precision, factor)
        run.memory, self._looked = RateMemory.empty(m + p), 0

    def in_columns(
        self, lengthscales: FloatArray, Z: FloatArray, learn: Iterable[str], hyperprior: Hyperprior | None
    ) -> None:
        """The same q in other columns of the inputs, in which K_ZZ is what it was.

        Parameters
        ----------
        lengthscales (k,), Z (m, k)    of them
        learn                          what moves from here on; Adam restarts where its vector has another size
        hyperprior                     density of what is learned
        """
        run, state = self._run, self._run.state
        hyper = state.kernel.hyper._replace(lengthscales=lengthscales)
        packing = Packing(learn, hyper, Z, hyperprior)
        if packing.size != run.packing.size:
            run.adam = AdamState.start(packing.size)
        run.packing, self._source.d = packing, Z.shape[1]
        run.state = State(Kernel(hyper, Z), state.shift, state.precision, state.factor)

    @property
    def posterior(self) -> OnlinePosterior:
        """q(u) now."""
        return OnlinePosterior(self._run.state, self._run.iteration)
