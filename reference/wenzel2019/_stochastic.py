"""The loop over mini-batches that x-gpc and svgpc share: rates, learning, stopping, and what is refused."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._batches import check_batch, planned_batches
from reference.common._learning import LARGEST, check_learn, coordinates, log_derivatives, moved
from reference.common._options import shown
from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import Options
from reference.common.priors import Hyper
from reference.wenzel2019 import _prior
from reference.wenzel2019.experiments import AdamState, adam_step, converged_parameters, parameter_change
from reference.wenzel2019.rates import RateMemory, adaptive_learning_rate, decaying_rate, start_adaptive_rate
from reference.wenzel2019.updates import Gaussian, Natural, from_natural, natural_gradient_step

Array = NDArray[np.float64]
Batch = NDArray[np.intp]

_LARGEST_LATENT = 1e6  # standard deviations of the prior: a mean of a latent value beyond them is a diverged ascent


class Method(NamedTuple):
    """What a method brings: all take labels, rows κ and K̃_ii of all data."""

    natural_gradient: Callable[..., Natural]  # (eta_1, eta_2, batch, y_sign, upsilon, cond_var, K_ZZ_inv)
    bound: Callable[..., float]  # (mu, Sigma, batch, y_sign, K_ZZ, upsilon, cond_var)
    kernel_gradients: Callable[..., dict[str, Any]]  # (X, y_sign, hyper, mu, Sigma, batch, learn)


class SVIFit(NamedTuple):
    """Where a stochastic ascent ended."""

    inducing_mean: Array  # (m,)
    inducing_cov: Array  # (m, m)
    latent_mean: Array  # (n,)      of q(f_i) at the data
    latent_var: Array  # (n,)       noise included
    elbo: float  # bound on log p(y) from all data, at the end
    trace: Array  # (steps,)        the mini-batch's estimate of the bound after each step; empty unless asked for
    rates: Array  # (steps,)
    residual: float  # average change of the global parameters in the last window
    converged: bool  # whether the stopping rule was met; False where none was asked for
    iterations: int
    hyper: Hyper  # as learned


class SVIState(NamedTuple):
    """What a callback is told after every step."""

    iteration: int
    elbo: float | None  # the mini-batch's estimate, where it is traced
    rate: float
    change: float
    inducing_mean: Array
    inducing_cov: Array
    hyper: Hyper


class Plan(NamedTuple):
    """What a run asks for, beyond its options."""

    batches: Sequence[Batch]
    init_batches: Sequence[Batch]  # that start the adaptive rate
    learn: tuple[str, ...]
    stop: float | None


def plan_batches(n: int, options: Options) -> tuple[Sequence[Batch], Sequence[Batch]]:
    """The mini-batches of each step, and those that start the adaptive rate: the first ten unless given."""
    size = 100 if options.batch_size is None else options.batch_size
    plan = planned_batches(n, options.batches, size, options.n_steps, options.seed, steps=1000)
    if getattr(options, "init_batches", None) is not None:
        return plan, [check_batch(batch, n, f"init_batches[{t}]") for t, batch in enumerate(options.init_batches)]
    return plan, plan[:10]


def planned(given: _prior.Inputs, options: Options) -> Plan:
    """The stopping rule is on by default only where the batches are drawn here; a decaying rate starts at 1 at most."""
    stop = options.stop
    if stop == "default":
        stop = 1e-4 if options.batches is None else None
    if isinstance(options.rate, tuple) and decaying_rate(1, *options.rate[1:]) > 1.0:
        raise ValueError(f"rate: found {shown(options.rate)}, which starts above 1, expected rates in (0, 1]")
    return Plan(*plan_batches(len(given.X), options), check_learn(options.learn, given.hyper), stop)


class Adam:
    """Adam on the learned coordinates of the hyper-parameters."""

    def __init__(self, hyper: Hyper, learn: tuple[str, ...], learning_rate: float) -> None:
        """Zero averages."""
        size = len(coordinates(hyper, learn))
        self.learn, self.learning_rate = learn, learning_rate
        self.state = AdamState(np.zeros(size), np.zeros(size), 0)

    def ascend(self, X: Array, hyper: Hyper, gradients: dict[str, Any]) -> tuple[Hyper, _prior.Matrices]:
        """Hyper-parameters and matrices after one step, or a ValueError if the step left the models."""
        derivative = log_derivatives(hyper, self.learn, gradients)
        if not np.all(np.isfinite(derivative)):
            raise ValueError(f"learning_rate: found {self.learning_rate:.6g} and gradients that are not finite")
        step, self.state = adam_step(derivative, self.state, self.learning_rate)
        new = moved(hyper, self.learn, coordinates(hyper, self.learn) + step)
        try:
            return new, _prior.matrices(X, new)
        except NotPositiveDefiniteError as error:
            raise ValueError(
                f"learning_rate: found {self.learning_rate:.6g}, which after {self.state.count} steps led to "
                f"variance {new.variance:.3g}, lengthscales up to {np.max(new.lengthscales):.3g} and a singular prior "
                f"({error}); expected a smaller one, or a larger jitter"
            ) from error


def run(method: Method, given: _prior.Inputs, options: Options) -> SVIFit:
    """Local, global and, where asked for, hyper-parameter steps in turn, one round a mini-batch."""
    plan = planned(given, options)
    X, y_sign, hyper = given
    K = _prior.matrices(X, hyper)
    eta = Natural(np.zeros(len(K.K_ZZ)), -0.5 * K.K_ZZ_inv)
    q = Gaussian(np.zeros(len(K.K_ZZ)), K.K_ZZ)

    def noisy_gradient(batch: Batch) -> Natural:
        return method.natural_gradient(*eta, batch, y_sign, K.upsilon, K.cond_var, K.K_ZZ_inv)

    memory: RateMemory | None = None
    given_rate = 0.1 if options.rate is None else options.rate
    if given_rate == "adaptive":
        memory = start_adaptive_rate(np.array([_one_vector(noisy_gradient(batch)) for batch in plan.init_batches]))
    adam = Adam(hyper, plan.learn, options.learning_rate)
    trace: list[float] = []
    rates: list[float] = []
    changes: list[float] = []
    check = converged_parameters([], options.window)
    for batch in plan.batches:
        gradient = noisy_gradient(batch)
        if memory is not None:
            rate, memory = adaptive_learning_rate(_one_vector(gradient), memory)
        elif isinstance(given_rate, tuple):
            rate = decaying_rate(len(rates) + 1, *given_rate[1:])
        else:
            rate = given_rate
        eta = natural_gradient_step(*eta, *gradient, rate)
        new = from_natural(*eta)
        _refuse_divergence(new, K, hyper, rate, len(rates) + 1)
        changes.append(parameter_change(new, q))
        rates.append(rate)
        q = new
        if options.trace:
            trace.append(method.bound(*q, batch, y_sign, K.K_ZZ, K.upsilon, K.cond_var))
        if plan.learn:
            gradients = method.kernel_gradients(X, y_sign, hyper, *q, batch, plan.learn)
            hyper, K = adam.ascend(X, hyper, gradients)
        check = converged_parameters(changes, options.window, plan.stop or 0.0)
        if options.callback is not None:
            observed = trace[-1] if trace else None
            options.callback(SVIState(len(rates), observed, rate, check.change, *q, hyper))
        if check.converged:
            break
    elbo = method.bound(*q, np.arange(len(X)), y_sign, K.K_ZZ, K.upsilon, K.cond_var)
    moments = _prior.latent_moments(K, *q)
    history = np.array(trace), np.array(rates)
    return SVIFit(*q, *moments, elbo, *history, check.change, check.converged, len(rates), hyper)


def _one_vector(gradient: Natural) -> Array:
    """All entries of both parts, the matrix with both of its halves."""
    return np.concatenate([gradient.eta_1, gradient.eta_2.ravel()])


def _refuse_divergence(q: Gaussian, K: _prior.Matrices, hyper: Hyper, rate: float, iteration: int) -> None:
    """An error if q(u) is lost: not finite, or means beyond a million prior standard deviations."""
    # not (a <= b) is true for NaN as well
    limit = min(_LARGEST_LATENT * np.sqrt(hyper.variance + hyper.noise + hyper.jitter), LARGEST)
    worst = float(np.max(np.abs(q.inducing_mean)))
    if not (worst <= limit and np.all(np.isfinite(q.inducing_cov))):
        raise ValueError(
            f"rate: found {rate:.6g}, with which step {iteration} drives the inducing mean to {worst:.3g}, "
            f"expected at most {limit:.3g}; take a smaller one"
        )
