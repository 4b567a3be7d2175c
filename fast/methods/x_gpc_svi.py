"""x-gpc-svi: stochastic natural gradients for binary logit GP classification with inducing points. wenzel2019, 4.3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fast.core import inputs
from fast.core.checkpoint import fingerprint, lists_digest
from fast.core.declare import option, takes_values
from fast.core.inputs import Hyper
from fast.core.options import Blocks, Checkpointed
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.likelihood.polya_gamma import log_cosh, pg_mean, update_local
from fast.one_latent.beginning import NaturalSteps, batches_of, beginning
from fast.one_latent.bound import elbo_terms, kl_whitened
from fast.one_latent.predict import LatentMoments, Prediction, logit_prediction, sparse_latent
from fast.one_latent.stochastic import Outcome, Settings, Sites, State, stochastic_ascent
from fast.solve.minibatch import Shuffled
from fast.solve.natural import Moments, Natural, unwhiten

_LOG2 = float(np.log(2.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class XGPCSteps(NaturalSteps, Checkpointed, Blocks):
    """Options of `fit`."""

    batch_size: int | None = 100
    block_size: int = 256
    checkpoint_every: int = 1000
    check_every: int | None = option(
        "integer", "steps between two measurements of the change", "[1, inf)", default=None
    )
    holdout: tuple[Any, Any] | None = option("data", "held-out inputs and labels", default=None)
    holdout_every: int = option("integer", "steps between two scores of the held-out rows", "[1, inf)", default=100)
    pool_size: int = option("integer", "rows that are shuffled together", "[1, inf)", default=8192)
    n: int | None = option("data", "rows of an epoch, where X is blocks", default=None)


DEFAULTS = XGPCSteps()


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


@takes_values
def fit(data: Data, prior: Prior, options: XGPCSteps = DEFAULTS) -> SVIPosterior:
    """Stochastic natural-gradient ascent on the bound (10) of wenzel2019, section 4.3, from q(u) = p(u).

    Time per step O(b m (m + d) + m^3), memory O(m^2 + batch + pool), whatever n is.

    Parameters
    ----------
    data : Data      X an array or numpy.memmap; or, with y None, blocks (X_block, y_block) that can be read again
    prior : Prior    of one latent function with inducing points, where the run starts; m may exceed n
    options          by default 10 000 steps, or all of `batches`; batches of an epoch are of equal size, give or take
                     one; the adaptive rate starts with init_batches, or the first ten batches; stop is a threshold on
                     the change of mu and Sigma a step, by default 1e-4, and never where batches are given or a hold-out
                     decides; a run that finds its checkpoint continues, with identical results, and all data are read
                     once for their digest: a change of any byte, or of a setting, is refused by name

    Raises
    ------
    ValueError                  bad input, by name; data are checked as they are read
    NotPositiveDefiniteError    K_ZZ is singular

    Returns
    -------
    SVIPosterior   diverged is True, with a reason, if the run left the finite numbers or its bound fell without end;
                   the state is the last good one then
    """
    if prior.Z is None:
        raise ValueError("Z: found None, expected inducing points (m, d); x-gpc takes the full GP")
    blocks = {"block_size": options.block_size, "pool_size": options.pool_size}
    source = batches_of(data, options, n=options.n, **blocks)
    hyper, Z, settings, starts = beginning(data, prior, options, source, options.check_every)
    settings = replace(
        settings,
        checkpoint=options.checkpoint,
        checkpoint_every=options.checkpoint_every,
        score_every=options.holdout_every,
    )
    holdout, score = options.holdout, None
    if holdout is not None:
        if not (isinstance(holdout, (tuple, list)) and len(holdout) == 2):
            raise ValueError(f"holdout: found {inputs.shown(holdout)}, expected None or a pair (X, y)")
        score = _holdout_score(holdout, source.d)
        if options.stop == "default":
            settings = replace(settings, stop=None)
    if options.checkpoint is not None:
        run: dict[str, Any] = {}
        if isinstance(source, Shuffled):
            run = {"seed": options.seed, "batch_size": source.batch_size, **blocks}
        arrays: dict[str, Any] = {"Z": Z, **source.digests()}
        if options.init_batches is not None:
            arrays["init_batches"] = lists_digest([np.asarray(batch) for batch in options.init_batches])
        if holdout is not None:
            run["holdout_every"] = options.holdout_every
            arrays |= {"holdout X": np.asarray(holdout[0]), "holdout y": np.asarray(holdout[1])}
        settings = _marked(settings, hyper, run, arrays)
    return ended(stochastic_ascent(source, PolyaGamma(), hyper, Z, settings, init_batches=starts, score=score))


def ended(outcome: Outcome) -> SVIPosterior:
    """The posterior of a run of steps.

    Parameters
    ----------
    outcome    from `stochastic_ascent`
    """
    return SVIPosterior(
        outcome.state,
        outcome.rates,
        outcome.elbo_estimates,
        outcome.holdout_scores,
        outcome.converged,
        outcome.diverged,
        outcome.reason,
    )


def _marked(settings: Settings, hyper: Hyper, run: dict[str, Any], arrays: dict[str, Any]) -> Settings:
    """Settings with the fingerprint of the run: the length of it and where it is saved do not count.

    Only the first ten steps know how long the run is to be: they look at so many batches at the start.
    """
    ignored = ("n_steps", "checkpoint", "checkpoint_every", "callback", "score_every", "mark")
    plain = {key: value for key, value in vars(settings).items() if key not in ignored}
    if settings.hyperprior is None:  # runs without one keep the mark that they had before there were any
        del plain["hyperprior"]
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


@Blocks.checks
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
    latent = _latent(posterior.state, X_test, block_size)
    return logit_prediction(latent.mean, latent.var)


@Blocks.checks
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


@Blocks.checks
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
    total = 0.0
    for start in range(0, X.shape[0], block_size):
        part = slice(start, start + block_size)
        latent = _latent(posterior.state, X[part], block_size)
        total += elbo_terms(y_sign[part], latent.mean, latent.var, update_local(latent.mean, latent.var), 0.0)
    return total - kl_whitened(posterior.state.factor, posterior.state.weights)
