"""x-gpc-svi: stochastic natural gradients for binary logit GP classification with inducing points. wenzel2019, 4.3."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from fast.core import inputs
from fast.core.checkpoint import fingerprint, lists_digest
from fast.core.inputs import Hyper
from fast.core.options import checked_options
from fast.core.types import FloatArray
from fast.likelihood.polya_gamma import log_cosh, pg_mean, update_local
from fast.one_latent.bound import elbo_terms, kl_whitened
from fast.one_latent.predict import LatentMoments, Prediction, logit_prediction, sparse_latent
from fast.one_latent.stochastic import Outcome, Progress, Settings, Sites, State, checked_rate, run_steps
from fast.solve.adam import Packing
from fast.solve.minibatch import Listed, Shuffled, index_lists
from fast.solve.natural import Moments, Natural, unwhiten

_LOG2 = float(np.log(2.0))


class PolyaGamma:
    """The logit likelihood with its local parameters at their best, c_i^2 = v_i + m_i^2: wenzel2019 (11)."""

    def sites(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> Sites:
        """y/2 - theta m and theta: (b,) each."""
        theta = pg_mean(update_local(latent_mean, latent_var))
        return Sites(0.5 * y - theta * latent_mean, theta)

    def expected(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """-log 2 + y m/2 - log cosh(c/2): what is left of (10) at the best c. (b,)."""
        return 0.5 * y * latent_mean - _LOG2 - log_cosh(0.5 * update_local(latent_mean, latent_var))


@dataclass(frozen=True, eq=False)
class SVIPosterior:
    """q(u) where the run ended."""

    state: State
    rates: FloatArray  # one a step
    trace: FloatArray  # batch estimates of the bound at the new q(u), one a step; empty if not asked for
    holdout_scores: FloatArray  # mean negative log-likelihood on the hold-out data
    converged: bool
    diverged: bool
    reason: str

    @property
    def iterations(self) -> int:
        """Steps made."""
        return self.rates.size

    @property
    def hyper(self) -> Hyper:
        """Parameters of the prior, as learned."""
        return self.state.kernel.hyper

    @property
    def Z(self) -> FloatArray:
        """Inducing points, as learned: (m, d)."""
        return self.state.kernel.Z

    @property
    def moments(self) -> Moments:
        """mu (m,) and Sigma (m, m), computed when asked for in O(m^3)."""
        return self.state.moments

    @property
    def inducing_mean(self) -> FloatArray:
        """mu: (m,)."""
        return self.moments.inducing_mean

    @property
    def inducing_cov(self) -> FloatArray:
        """Sigma: (m, m)."""
        return self.moments.inducing_cov

    @property
    def natural(self) -> Natural:
        """eta_1 (m,) and eta_2 (m, m)."""
        return unwhiten(Natural(self.state.shift, -0.5 * self.state.precision), self.state.kernel.chol_K)


@checked_options("x-gpc-svi")
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
    rate: Any = "adaptive",
    learn: Iterable[str] = (),
    learning_rate: float = 0.01,
    seed: int = 0,
    window: int = 5,
    stop: float | None = None,
    check_every: int | None = None,
    trace: bool = False,
    holdout: tuple[Any, Any] | None = None,
    holdout_every: int = 100,
    block_size: int = 256,
    pool_size: int = 8192,
    n: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    callback: Callable[[Progress], None] | None = None,
) -> SVIPosterior:
    """Stochastic natural-gradient ascent on the bound (10) of wenzel2019, section 4.3, from q(u) = p(u).

    Time per step O(b m (m + d) + m^3), memory O(m^2 + batch + pool), whatever n is.

    Parameters
    ----------
    X : (n, d)               array or numpy.memmap; or, with y None, blocks (X_block, y_block) that can be read again
    y : (n,)                 ints 0, 1; or None
    variance : float         > 0, like lengthscales, noise and Z where the run starts
    lengthscales : (d,)      > 0
    noise : float            >= 0
    jitter : float           >= 0
    Z : (m, d)               m may exceed n
    batch_size : int         data a step at most: batches of an epoch are of equal size, give or take one
    n_steps : int            default: all of `batches`, else 10 000
    batches : sequence       index arrays, for a run to be followed step by step; arrays only
    init_batches : sequence  index arrays that start the adaptive rate; default: the first ten batches
    rate                     "adaptive", a number in [1e-8, 1], or ("decay", rho_0, tau, kappa): rho_0 (t + tau)^-kappa
    learn                    names out of variance, lengthscales, noise, Z: one step of Adam after each step of q(u)
    learning_rate : float    of Adam
    seed : int               order of the data
    window : int             steps whose mean change is compared with `stop`
    stop : float             threshold on the change of mu and Sigma a step; None: 1e-4, or never if `batches` is given
                             or `holdout` decides; 0 never
    check_every : int        the change is measured in the last steps of so many; default 50, with `batches` 1
    trace : bool             keep the batch estimate of the bound of each step
    holdout                  (X, y) whose negative log-likelihood stops the run when it stands still
    holdout_every : int      steps between two scores
    block_size : int         consecutive rows read at a time
    pool_size : int          rows shuffled together
    n : int                  number of rows, if X is blocks and counting would take a pass
    checkpoint : path        .npz file; a run that finds it continues, with identical results. All data are read once
                             for their digest: a change of any byte, or of a setting, is refused by name
    checkpoint_every : int   steps between two checkpoints
    callback : callable      called with a Progress after every step

    Raises
    ------
    ValueError                  bad input, by name; data are checked as they are read
    NotPositiveDefiniteError    K_ZZ is singular

    Returns
    -------
    SVIPosterior   diverged is True, with a reason, if the run left the finite numbers or its bound fell without end;
                   the state is the last good one then
    """
    if Z is None:
        raise ValueError("Z: found None, expected inducing points (m, d); x-gpc takes the full GP")
    blocks = {"block_size": block_size, "pool_size": pool_size}
    source: Listed | Shuffled
    if batches is None:
        if init_batches is not None and y is None:
            raise ValueError("init_batches: found index arrays, expected None with data in blocks")
        source = Shuffled(X, y, batch_size, seed, n=n, block_size=block_size, pool_size=pool_size)
        n_steps = 10_000 if n_steps is None else inputs.count("n_steps", n_steps)
    else:
        if y is None:
            raise ValueError("batches: found index arrays, expected None with data in blocks")
        source = Listed(X, y, batches)
        n_steps = len(source) if n_steps is None else inputs.count("n_steps", n_steps)
        if n_steps > len(source):
            raise ValueError(f"n_steps: found {n_steps}, expected at most {len(source)}, the number of batches")
    hyper = inputs.hyper(variance, lengthscales, noise, jitter, source.d)
    Z = inputs.finite_rows("Z", inputs.inputs("Z", Z, source.d)).copy()
    learn = Packing(learn, hyper, Z).names
    settings = Settings(
        n_steps,
        checked_rate(rate),
        learn,
        inputs.scalar("learning_rate", learning_rate, positive=True),
        inputs.count("window", window),
        _threshold(stop, default=batches is None and holdout is None),
        inputs.count("check_every", check_every) if check_every is not None else 50 if batches is None else 1,
        bool(trace),
        checkpoint,
        inputs.count("checkpoint_every", checkpoint_every),
    )
    if holdout is not None and not (isinstance(holdout, (tuple, list)) and len(holdout) == 2):
        raise ValueError(f"holdout: found {inputs.shown(holdout)}, expected None or a pair (X, y)")
    score = None if holdout is None else _holdout_score(holdout, source.d)
    holdout_every = inputs.count("holdout_every", holdout_every)
    starts = None
    if init_batches is not None:
        listed = Listed(X, y, index_lists("init_batches", init_batches, source.n))
        starts = [listed.at(batch) for batch in listed.batches]
    if checkpoint is not None:
        run = {"seed": int(seed), "batch_size": source.batch_size, **blocks} if isinstance(source, Shuffled) else {}
        arrays = {"Z": Z, **source.digests()}
        if starts is not None:
            arrays["init_batches"] = lists_digest(listed.batches)
        if holdout is not None:
            run["holdout_every"] = holdout_every
            arrays |= {"holdout X": np.asarray(holdout[0]), "holdout y": np.asarray(holdout[1])}
        settings = _marked(settings, hyper, run, arrays)
    found: Outcome = run_steps(
        source,
        PolyaGamma(),
        hyper,
        Z,
        settings,
        init_batches=starts,
        callback=callback,
        score=score,
        score_every=holdout_every,
    )
    return SVIPosterior(
        found.state,
        found.rates,
        found.elbo_estimates,
        found.holdout_scores,
        found.converged,
        found.diverged,
        found.reason,
    )


def _threshold(stop: float | None, default: bool) -> float | None:
    if stop is None:
        return 1e-4 if default else None
    return inputs.scalar("stop", stop, positive=False) or None


def _marked(settings: Settings, hyper: Hyper, run: dict[str, Any], arrays: dict[str, Any]) -> Settings:
    """Settings with the fingerprint of the run: the length of it and where it is saved do not count.

    Only the first ten steps know how long the run is to be: they look at so many batches at the start.
    """
    ignored = ("n_steps", "checkpoint", "checkpoint_every", "mark")
    plain = {key: value for key, value in asdict(settings).items() if key not in ignored}
    prior = {name: value for name, value in hyper._asdict().items() if name != "lengthscales"}
    plain |= {**prior, **run, "n_steps (up to 10)": min(settings.n_steps, 10)}
    return replace(settings, mark=fingerprint(plain, {**arrays, "lengthscales": hyper.lengthscales}))


def _holdout_score(holdout: tuple[Any, Any], d: int) -> Callable[[State], float]:
    X = inputs.inputs("holdout", holdout[0], d)
    y_sign = inputs.labels(holdout[1], X.shape[0])

    def score(state: State) -> float:
        latent = _latent(state, X, 4096)
        chosen = logit_prediction(latent.mean, latent.var).probabilities[
            np.arange(X.shape[0]), (y_sign > 0).astype(int)
        ]
        # a probability that underflows still has a finite score
        return float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean())

    return score


class Trained(Protocol):
    """What predictions need of a posterior."""

    @property
    def state(self) -> State:
        """q(u) and the kernel."""

    @property
    def hyper(self) -> Hyper:
        """Parameters of the prior."""


def _latent(state: State, X: Any, block_size: int) -> LatentMoments:
    kernel = state.kernel
    return sparse_latent(X, kernel.Z, kernel.hyper, kernel.chol_K, state.factor, state.weights, block_size)


@checked_options("x-gpc-svi")
def predict(posterior: Trained, X_test: Any, *, block_size: int = 4096) -> Prediction:
    """Latent moments (13) and class probabilities (14) of wenzel2019 at test points. Time O(t m (m + d)).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0; may be a numpy.memmap
    block_size : int     test points at a time

    Raises
    ------
    ValueError           bad input; or class probabilities that miss 1 by more than the stated quadrature error
    """
    X_test = inputs.inputs("X_test", X_test, posterior.hyper.lengthscales.size, allow_empty=True)
    latent = _latent(posterior.state, X_test, inputs.count("block_size", block_size))
    return logit_prediction(latent.mean, latent.var)


@checked_options("x-gpc-svi")
def predict_blocks(posterior: SVIPosterior, blocks: Iterable[Any], *, block_size: int = 4096) -> Iterator[Prediction]:
    """Predictions block by block, each as soon as it is asked for: memory is that of one block.

    Parameters
    ----------
    posterior            from `fit`
    blocks               iterable of X_test (t, d)
    block_size : int     test points at a time inside a block
    """
    for X_test in blocks:
        yield predict(posterior, X_test, block_size=block_size)


@checked_options("x-gpc-svi")
def bound(posterior: SVIPosterior, X: Any, y: Any, *, block_size: int = 4096) -> float:
    """L of wenzel2019 (10) on all data at the best local parameters: a lower bound on log p(y). Time O(n m (m + d)).

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
        latent = _latent(posterior.state, X[part], block_size)
        total += elbo_terms(y_sign[part], latent.mean, latent.var, update_local(latent.mean, latent.var), 0.0)
    return total - kl_whitened(posterior.state.factor, posterior.state.weights)
