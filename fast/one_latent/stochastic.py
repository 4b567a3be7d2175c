"""The loop of stochastic natural gradients for one latent function, whatever its likelihood. wenzel2019, section 4.3.

A step draws a batch, takes the natural gradient of the bound at the current q(u), chooses a rate and moves (w, P), see
`solve.natural`. If parameters of the prior are learned, a step of Adam follows, at the new q(u), mu and Sigma held.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.hyperprior import Hyperprior
from fast.core.inputs import Hyper
from fast.core.linalg import cholesky, factorise, solve_rows, solve_vector, squared_norms
from fast.core.types import FloatArray
from fast.kernel.kernels import PreparedKernel
from fast.ledger import equation
from fast.one_latent.batch_gradients import Projected, batch_gradients
from fast.one_latent.bound import kl_whitened
from fast.solve.adam import AdamState, Packing, adam_arrays, adam_restored, adam_step
from fast.solve.minibatch import Batch, Source
from fast.solve.natural import (
    Moments,
    RateMemory,
    adaptive_rate,
    decaying_rate,
    factor_precision,
    moments,
    move_kernel,
    natural_gradient,
    natural_step,
    unwhiten,
)
from fast.solve.steps import Ended, Saving, Stepping, run_steps
from fast.solve.stopping import Falling, converged_holdout, converged_parameters, parameter_change

Rate = float | str | tuple[float, float, float]
_REMEDY = "raise jitter or remove duplicate rows of Z"


class Sites(NamedTuple):
    """What a likelihood contributes at given marginals of q(f_i)."""

    derivative: FloatArray  # (b,), dE_i/dm_i
    precision: FloatArray  # (b,), -2 dE_i/dv_i, >= 0


class Likelihood(Protocol):
    """Expected log density E_i of a datum under N(m_i, v_i), or a bound on it at its best local parameters."""

    def sites(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> Sites:
        """Derivatives of E_i: (b,)."""

    def expected(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """E_i with every constant: (b,)."""


class Progress(NamedTuple):
    """What a callback sees after every step."""

    iteration: int
    n_steps: int
    rate: float
    elbo: float  # batch estimate at the new q(u); NaN where none was asked for
    change: float  # of the global parameters; NaN where it was not measured
    hyper: Hyper
    state: State  # q(u) and the kernel after the step; a later step leaves what it holds alone


@dataclass(frozen=True)
class Settings:
    """What a run does besides drawing batches."""

    n_steps: int
    rate: Rate = "adaptive"
    learn: tuple[str, ...] = ()
    learning_rate: float = 0.01
    window: int = 5
    stop: float | None = 1e-4
    check_every: int = 50  # the change of mu and Sigma is measured in the last window + 1 of so many steps
    trace: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 1000
    callback: Callable[[Progress], None] | None = None  # called after every step
    score_every: int = 100  # steps between two hold-out scores
    mark: str = ""  # fingerprint of data and settings
    hyperprior: Hyperprior | None = None  # of what is learned


class Kernel:
    """The prior at Z for one setting of its parameters."""

    def __init__(self, hyper: Hyper, Z: FloatArray, factor: Callable[..., FloatArray] = cholesky) -> None:
        self.hyper, self.Z = hyper, Z
        self.of = PreparedKernel(Z, hyper.variance, hyper.lengthscales, hyper.smoothness)
        self.K_ZZ = self.of.cross(Z)
        matrix = self.K_ZZ.copy()
        matrix.flat[:: len(matrix) + 1] += hyper.jitter
        self.chol_K = factor(matrix.T, "K_ZZ", _REMEDY)


class View(NamedTuple):
    """A batch seen through the inducing points."""

    batch: Batch
    K_XZ: FloatArray | None  # kept for gradients
    rows: FloatArray  # (b, m), a_i
    cond_var: FloatArray  # (b,)
    scale: float  # n / b


class Marginals(NamedTuple):
    """q(f_i) over a batch."""

    mean: FloatArray  # (b,)
    var: FloatArray  # (b,)


@dataclass
class State:
    """q(u) and the kernel it stands on."""

    kernel: Kernel
    shift: FloatArray  # w
    precision: FloatArray  # P
    factor: FloatArray  # R

    @classmethod
    def prior(cls, kernel: Kernel) -> State:
        """q(u) = p(u)."""
        m = kernel.Z.shape[0]
        return cls(kernel, np.zeros(m), np.eye(m), np.eye(m, order="F"))

    @property
    def weights(self) -> FloatArray:
        """p, the mean of v."""
        whitened = solve_vector(self.factor, self.shift)
        return solve_vector(self.factor, whitened, transposed=True)

    @property
    def moments(self) -> Moments:
        """mu, Sigma."""
        return moments(self.kernel.chol_K, self.factor, self.weights)

    def marginals(self, view: View) -> Marginals:
        """Mean and variance of f_i. Time b m^2."""
        whitened = solve_rows(self.factor, view.rows.copy())
        return Marginals(whitened @ solve_vector(self.factor, self.shift), view.cond_var + squared_norms(whitened))


class Outcome(NamedTuple):
    """Where a run ended."""

    inducing_mean: FloatArray  # mu, (m,)
    inducing_cov: FloatArray  # Sigma, (m, m)
    rates: FloatArray  # (steps,)
    elbo_estimates: FloatArray  # (steps,), or (0,) if none were asked for
    holdout_scores: FloatArray  # one an evaluation
    state: State
    converged: bool
    reason: str  # why it stopped
    diverged: bool


class DivergedError(ValueError):
    """The run goes nowhere; the text says how."""


@dataclass
class Run(Stepping):
    """A run in progress: everything a checkpoint holds, and the steps."""

    state: State
    source: Source
    likelihood: Likelihood
    settings: Settings
    memory: RateMemory
    packing: Packing
    adam: AdamState
    falling: Falling
    init_batches: Sequence[Batch] | None = None
    score: Callable[[State], float] | None = None
    iteration: int = 0
    rates: list[float] = field(default_factory=list)
    elbos: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    changes: deque[float] = field(default_factory=deque)
    previous: Moments | None = None
    measured: float = float("nan")  # change of the global parameters in the last step
    fell: bool = False  # the bound has been falling without end
    growing = ("rates", "elbos", "scores", "changes")

    def view(self, batch: Batch) -> View:
        """Project a batch: K_SZ by a product and exp, A by one triangular solve."""
        kernel = self.state.kernel
        K_XZ = kernel.of.cross_by_product(batch.X)
        rows = solve_rows(kernel.chol_K, K_XZ.copy() if self.packing.size else K_XZ)
        cond_var = np.maximum(kernel.hyper.variance - squared_norms(rows), 0.0) + kernel.hyper.noise
        return View(batch, K_XZ if self.packing.size else None, rows, cond_var, self.source.n / batch.y.shape[0])

    def gradient(self, view: View) -> Any:
        """Natural gradient at the current q(u), whitened."""
        mean, var = self.state.marginals(view)
        derivative, precision = self.likelihood.sites(view.batch.y, mean, var)
        shift = derivative + precision * mean
        return natural_gradient(view.rows, shift, precision, view.scale, self.state.shift, self.state.precision)

    def look(self, batch: Batch) -> None:
        """Let the memory of the adaptive rate see a gradient at the start."""
        self.memory.look(unwhiten(self.gradient(self.view(batch)), self.state.kernel.chol_K))

    def start(self) -> None:
        """Looks at the first batches where the rate is adaptive, and the moments that the first change is from."""
        if self.settings.rate == "adaptive":
            first = _first(self.source, self.settings.n_steps) if self.init_batches is None else self.init_batches
            for batch in first:
                self.look(batch)
        self.change()

    def draw(self) -> Batch:
        """The next batch of the source."""
        return self.source.draw()

    def step(self, batch: Batch, rate: float | None = None) -> float:
        """One step, at this rate or that of the settings; the estimate of the bound at the new q(u), NaN if not needed.

        Raises DivergedError.
        """
        state, settings = self.state, self.settings
        view = self.view(batch)
        gradient = self.gradient(view)
        if rate is not None:
            pass
        elif settings.rate == "adaptive":
            rate = adaptive_rate(self.memory, unwhiten(gradient, state.kernel.chol_K))
        elif isinstance(settings.rate, tuple):
            rate = decaying_rate(self.iteration + 1, settings.rate)
        else:
            rate = float(settings.rate)
        shift, precision = natural_step(state.shift, state.precision, gradient, rate)
        if not np.isfinite(shift @ shift):
            raise DivergedError("q(u) is not finite any more")
        moved = State(state.kernel, shift, precision, factor_precision(precision))
        estimate = float("nan")
        if settings.trace or self.packing.size:
            estimate = self._estimate(view, moved)
        self.state = moved
        self.rates.append(rate)
        self.iteration += 1
        return estimate

    def _estimate(self, view: View, state: State) -> float:
        """Batch estimate of the bound; with learning, the kernel moves along its gradient afterwards."""
        mean, var = state.marginals(view)
        weights = state.weights
        local = float(self.likelihood.expected(view.batch.y, mean, var).sum())
        estimate = view.scale * local - kl_whitened(state.factor, weights)
        if not np.isfinite(estimate):
            raise DivergedError("the estimate of the bound is not finite")
        if self.packing.size:
            self._move_kernel(view, state, Marginals(mean, var), weights)
        return estimate

    def _move_kernel(self, view: View, state: State, marginals: Marginals, weights: FloatArray) -> None:
        kernel = state.kernel
        derivative, precision = self.likelihood.sites(view.batch.y, *marginals)
        assert view.K_XZ is not None
        projected = Projected(kernel.of, view.batch.X, view.K_XZ, kernel.K_ZZ, kernel.chol_K, view.rows)
        gradients = batch_gradients(projected, view.scale * derivative, view.scale * precision, state.factor, weights)
        gradient = self.packing.gradient(gradients, kernel.hyper) + self.packing.prior(kernel.hyper)[1]
        if not np.isfinite(gradient).all():
            raise DivergedError("the gradient with respect to the prior is not finite")
        move, self.adam = adam_step(gradient, self.adam, self.settings.learning_rate)
        vector = self.packing.vector(kernel.hyper, kernel.Z) + move
        hyper, Z = self.packing.parameters(vector, kernel.hyper, kernel.Z)
        assert Z is not None
        moved = Kernel(hyper, Z, factorise)
        state.shift, state.precision = move_kernel(state.shift, state.precision, kernel.chol_K, moved.chol_K)
        state.factor = factor_precision(state.precision)
        state.kernel = moved

    def change(self) -> float:
        """Change of the global parameters in the step just made, where it is due; NaN elsewhere."""
        settings = self.settings
        if settings.stop is None or -self.iteration % settings.check_every > settings.window:
            self.previous = None
            return float("nan")
        after = self.state.moments
        before, self.previous = self.previous, after
        if before is None:
            self.changes.clear()
            return float("nan")
        change = parameter_change(before, after)
        self.changes.append(change)
        while len(self.changes) > settings.window:
            self.changes.popleft()
        return change

    def measure(self, value: float) -> None:
        """Keep the estimate of a step, and measure the change and the hold-out score where they are due."""
        if self.settings.trace:
            self.elbos.append(value)
        self.measured = self.change()
        self.fell = bool(self.packing.size) and self.falling.add(value)
        if self._scored:
            assert self.score is not None
            self.scores.append(self.score(self.state))

    @property
    def _scored(self) -> bool:
        """Whether the step just made is one with a hold-out score."""
        return self.score is not None and self.iteration % self.settings.score_every == 0

    def after(self, value: float) -> Ended | None:
        """The callback, and the end where a rule asks for one."""
        settings, now = self.settings, self.state
        if settings.callback is not None:
            hyper, n_steps = now.kernel.hyper, settings.n_steps
            settings.callback(
                Progress(self.iteration, n_steps, self.rates[-1], value, self.measured, hyper, replace(now))
            )
        if self.fell:
            return Ended(True, f"step {self.iteration}: the estimate of the bound has been falling without end")
        stop, window = settings.stop, settings.window
        if stop is not None and np.isfinite(self.measured) and converged_parameters(self.changes, window, stop):
            return Ended(False, f"mean change of mu and Sigma over {window} steps below {stop:g}", converged=True)
        if self._scored and converged_holdout(self.scores):
            return Ended(False, "mean hold-out score stands still", converged=True)
        return None

    def arrays(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        kernel, previous = self.state.kernel, self.previous
        arrays: dict[str, Any] = {
            "variance": np.array(kernel.hyper.variance),
            "lengthscales": kernel.hyper.lengthscales,
            "noise": np.array(kernel.hyper.noise),
            "Z": kernel.Z,
            "shift": self.state.shift,
            "precision": self.state.precision,
            "source": self.source.state(),
            "rates": np.array(self.rates),
            "elbos": np.array(self.elbos),
            "scores": np.array(self.scores),
            "changes": np.array(self.changes, dtype=np.float64),
            "falling": self.falling.state(),
            **self.memory.state(),
            **adam_arrays(self.adam),
        }
        if previous is not None:
            arrays |= {"previous_mean": previous.inducing_mean, "previous_cov": previous.inducing_cov}
        return arrays

    def optional(self) -> dict[str, Any]:
        """The moments before a change that is due in the next step."""
        m = self.state.shift.size
        return {"previous_mean": np.empty(m), "previous_cov": np.empty((m, m))}

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Continue where `arrays` was taken."""
        hyper = self.state.kernel.hyper._replace(
            variance=float(arrays["variance"]), lengthscales=arrays["lengthscales"], noise=float(arrays["noise"])
        )
        precision = arrays["precision"]
        kernel = Kernel(hyper, arrays["Z"], factorise if self.packing.size else cholesky)
        self.state = State(kernel, arrays["shift"], precision, factor_precision(precision))
        self.source.restore(arrays["source"])
        self.rates, self.elbos = arrays["rates"].tolist(), arrays["elbos"].tolist()
        self.scores, self.changes = arrays["scores"].tolist(), deque(arrays["changes"].tolist())
        self.falling.restore(arrays["falling"])
        self.memory, self.adam = RateMemory.restore(arrays), adam_restored(arrays)
        self.iteration = len(self.rates)
        self.previous = None  # of the steps that were taken before, if any
        if "previous_mean" in arrays:
            self.previous = Moments(arrays["previous_mean"], arrays["previous_cov"])


@equation("wenzel2019", "u4.3-svi", "u4.3-hyper")
def stochastic_ascent(
    source: Source,
    likelihood: Likelihood,
    hyper: Hyper,
    Z: FloatArray,
    settings: Settings,
    *,
    init_batches: Sequence[Batch] | None = None,
    score: Callable[[State], float] | None = None,
) -> Outcome:
    """Alternate local and global updates on batches, and steps of Adam on the prior: wenzel2019, section 4.3.

    Time per step O(b m (m + d) + m^3), memory O(m^2 + batch), whatever n is. A step that leaves the finite numbers, or
    a bound that falls without end, ends the run with the last state that was good, diverged and a reason.

    Parameters
    ----------
    source                   batches
    likelihood               derivatives and value of the expected log density
    hyper, Z                 prior to start from, with q(u) = p(u)
    settings                 see `Settings`
    init_batches             batches that start the averages of the adaptive rate; None: the first ten of the source
    score : callable         hold-out score of a state; the run stops when its mean stands still

    Raises
    ------
    ValueError                  bad data, by name, when it is read
    NotPositiveDefiniteError    K_ZZ of the start is singular
    """
    m = Z.shape[0]
    packing = Packing(settings.learn, hyper, Z, settings.hyperprior)
    run = Run(
        State.prior(Kernel(hyper, Z)),
        source,
        likelihood,
        settings,
        RateMemory.empty(m),
        packing,
        AdamState.start(packing.size),
        Falling(source.n),
        init_batches,
        score,
    )
    saving = None
    if settings.checkpoint is not None:
        saving = Saving(settings.checkpoint, settings.checkpoint_every, settings.mark)
    end = run_steps(run, settings.n_steps, saving, run.after)
    mean, cov = run.state.moments
    return Outcome(
        mean,
        cov,
        np.array(run.rates),
        np.array(run.elbos),
        np.array(run.scores),
        run.state,
        end.converged,
        end.reason,
        end.diverged,
    )


def _first(source: Source, n_steps: int) -> list[Batch]:
    """The first batches of a source, which then stands where it stood."""
    start = source.state()
    batches = [source.draw() for _ in range(min(10, n_steps))]
    source.restore(start)
    return batches


def checked_rate(rate: Any) -> Rate:
    r"""One of "adaptive", a number in (0, 1], or ("decay", rho_0, tau, kappa) as (rho_0, tau, kappa).

    A decaying rate has rho_0 > 0, tau >= 0, kappa >= 0 and starts at 1 or below.

    Parameters
    ----------
    rate    what a user gave

    Raises
    ------
    ValueError
    """
    if isinstance(rate, str):
        if rate != "adaptive":
            raise ValueError(
                f"rate: found {shown(rate)}, expected 'adaptive', a number or ('decay', rho_0, tau, kappa)"
            )
        return rate
    if isinstance(rate, (tuple, list)):
        if len(rate) != 4 or rate[0] != "decay":
            raise ValueError(f"rate: found {shown(rate)}, expected ('decay', rho_0, tau, kappa)")
        decay = (
            inputs.scalar("rate", rate[1], positive=True),
            inputs.scalar("rate", rate[2], positive=False),
            inputs.scalar("rate", rate[3], positive=False),
        )
        if decaying_rate(1, decay) > 1.0:
            raise ValueError(f"rate: found {decaying_rate(1, decay):.3g} in the first step, expected at most 1")
        return decay
    number = inputs.scalar("rate", rate, positive=True)
    if number > 1.0:
        raise ValueError(f"rate: found {shown(number)}, expected a number in (0, 1]")
    return number
