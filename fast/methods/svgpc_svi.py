"""svgpc on mini-batches: stochastic natural gradients with the probit link. A baseline of wenzel2019.

The loop, rates, Adam and stopping are those of `fast.one_latent.stochastic`; the likelihood enters by two derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fast.core import inputs
from fast.core.inputs import Hyper
from fast.core.options import checked_options
from fast.core.types import FloatArray
from fast.likelihood.probit import LinkMoments, expected_log_probit
from fast.methods.svgpc import ProbitPrediction, probit_prediction
from fast.methods.x_gpc_svi import SVIPosterior
from fast.one_latent.bound import kl_whitened
from fast.one_latent.predict import LatentMoments, sparse_latent
from fast.one_latent.stochastic import Progress, Settings, Sites, State, checked_rate, run_steps
from fast.solve.adam import Packing
from fast.solve.minibatch import Batch, Listed, Shuffled, index_lists


class Probit:
    """log Phi(y f) under q(f). The last answer is kept: bound and derivatives are asked for at one and the same q."""

    def __init__(self) -> None:
        self._asked: tuple[FloatArray, FloatArray] | None = None
        self._answer: LinkMoments | None = None

    def _link(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> LinkMoments:
        asked = self._asked
        if self._answer is None or asked is None or asked[0] is not latent_mean or asked[1] is not latent_var:
            self._asked = (latent_mean, latent_var)
            self._answer = expected_log_probit(y, latent_mean, latent_var)
        return self._answer

    def sites(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> Sites:
        """E[g'] and -E[g'']: (b,) each."""
        link = self._link(y, latent_mean, latent_var)
        return Sites(link.slope, -link.curvature)

    def expected(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """E[log Phi(y f)]: (b,)."""
        return self._link(y, latent_mean, latent_var).value


def batch_source(
    X: Any, y: Any, batch_size: int, batches: Sequence[Any] | None, n_steps: int | None, seed: int
) -> tuple[Listed | Shuffled, int]:
    """Batches as listed, or drawn without a permutation of length n; and the number of steps.

    Parameters
    ----------
    X : (n, d)            array or numpy.memmap; or, with y None, blocks (X_block, y_block)
    y : (n,)              ints 0, 1; or None
    batch_size : int      data a step at most
    batches : sequence    index arrays, or None
    n_steps : int         default: all of `batches`, else 10 000
    seed : int            order of the data

    Raises
    ------
    ValueError    an empty batch, by number, or more steps than batches
    """
    if batches is None:
        return Shuffled(X, y, batch_size, seed), 10_000 if n_steps is None else inputs.count("n_steps", n_steps)
    if y is None:
        raise ValueError("batches: found index arrays, expected None with data in blocks")
    source = Listed(X, y, batches)
    steps = len(source) if n_steps is None else inputs.count("n_steps", n_steps)
    if steps > len(source):
        raise ValueError(f"n_steps: found {steps}, expected at most {len(source)}, the number of batches")
    return source, steps


@checked_options("svgpc")
def fit(
    X: Any,
    y: Any,
    variance: float,
    lengthscales: Any,
    noise: float,
    jitter: float,
    Z: Any,
    *,
    batch_size: int = 100,
    n_steps: int | None = None,
    batches: Sequence[Any] | None = None,
    init_batches: Sequence[Any] | None = None,
    rate: Any = 0.1,
    learn: Iterable[str] = (),
    learning_rate: float = 0.01,
    seed: int = 0,
    window: int = 5,
    stop: float | None = None,
    trace: bool = False,
    callback: Callable[[Progress], None] | None = None,
) -> SVIPosterior:
    """Stochastic natural-gradient ascent on the probit bound from q(u) = p(u). Time per step O(b m (m + d) + m^3).

    Parameters
    ----------
    X : (n, d)               array or numpy.memmap; or, with y None, blocks (X_block, y_block) that can be read again
    y : (n,)                 ints 0, 1; or None
    variance : float         > 0, like lengthscales, noise and Z where the run starts
    lengthscales : (d,)      > 0
    noise : float            >= 0
    jitter : float           >= 0
    Z : (m, d)               m may exceed n
    batch_size : int         data a step at most
    n_steps : int            default: all of `batches`, else 10 000
    batches : sequence       index arrays, for a run to be followed step by step
    init_batches : sequence  index arrays that start the adaptive rate; default: the first ten batches
    rate                     a number in [1e-8, 1], "adaptive", or ("decay", rho_0, tau, kappa)
    learn                    names out of variance, lengthscales, noise, Z: one step of Adam after each step of q(u)
    learning_rate : float    of Adam
    seed : int               order of the data
    window : int             steps whose mean change is compared with `stop`
    stop : float             threshold on the change of mu and Sigma a step; None: 1e-4, never with `batches`; 0 never
    trace : bool             keep the batch estimate of the bound of each step
    callback : callable      called with a Progress after every step

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular

    Returns
    -------
    SVIPosterior   diverged is True, with a reason, if the run left the finite numbers or its bound fell without end
    """
    if Z is None:
        raise ValueError("Z: found None, expected inducing points (m, d); the full GP is fitted in batch")
    source, steps = batch_source(X, y, batch_size, batches, n_steps, seed)
    hyper = inputs.hyper(variance, lengthscales, noise, jitter, source.d)
    Z = inputs.finite_rows("Z", inputs.inputs("Z", Z, source.d)).copy()
    starts: list[Batch] | None = None
    if init_batches is not None:
        if y is None:
            raise ValueError("init_batches: found index arrays, expected None with data in blocks")
        listed = Listed(X, y, index_lists("init_batches", init_batches, source.n))
        starts = [listed.at(batch) for batch in listed.batches]
    threshold = 1e-4 if batches is None else None
    if stop is not None:
        threshold = inputs.scalar("stop", stop, positive=False) or None
    settings = Settings(
        steps,
        checked_rate(rate),
        Packing(learn, hyper, Z).names,
        inputs.scalar("learning_rate", learning_rate, positive=True),
        inputs.count("window", window),
        threshold,
        check_every=50 if batches is None else 1,
        trace=bool(trace),
    )
    found = run_steps(source, Probit(), hyper, Z, settings, init_batches=starts, callback=callback)
    return SVIPosterior(
        found.state,
        found.rates,
        found.elbo_estimates,
        found.holdout_scores,
        found.converged,
        found.diverged,
        found.reason,
    )


def latent(hyper: Hyper, state: State, X: Any, block_size: int) -> LatentMoments:
    """Moments of f at inputs under a stochastic q(u). Time O(t m (m + d)).

    Parameters
    ----------
    hyper                parameters of the prior
    state                q(u) and the kernel it stands on
    X : (t, d)
    block_size : int     points at a time
    """
    kernel = state.kernel
    return sparse_latent(X, kernel.Z, hyper, kernel.chol_K, state.factor, state.weights, block_size)


@checked_options("svgpc")
def predict(posterior: SVIPosterior, X_test: Any, *, block_size: int = 4096) -> ProbitPrediction:
    """Latent moments and P(y = 1) = Phi(m / sqrt(1 + v)) at test points. Time O(t m (m + d)).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0; may be a numpy.memmap
    block_size : int     test points at a time
    """
    X_test = inputs.inputs("X_test", X_test, posterior.hyper.lengthscales.size, allow_empty=True)
    block_size = inputs.count("block_size", block_size)
    return probit_prediction(*latent(posterior.hyper, posterior.state, X_test, block_size))


@checked_options("svgpc")
def bound(posterior: SVIPosterior, X: Any, y: Any, *, block_size: int = 4096) -> float:
    """The bound on all data, every constant in it: a lower bound on log p(y). Time O(n m (m + d)), memory of a block.

    Parameters
    ----------
    posterior            from `fit`
    X : (n, d)           may be a numpy.memmap
    y : (n,)             ints 0, 1
    block_size : int     data at a time
    """
    X = inputs.inputs("X", X, posterior.hyper.lengthscales.size)
    y_sign = inputs.labels(y, X.shape[0])
    block_size = inputs.count("block_size", block_size)
    total = 0.0
    for start in range(0, X.shape[0], block_size):
        part = slice(start, start + block_size)
        found = latent(posterior.hyper, posterior.state, X[part], block_size)
        total += float(expected_log_probit(y_sign[part], found.mean, found.var).value.sum())
    return total - kl_whitened(posterior.state.factor, posterior.state.weights)
