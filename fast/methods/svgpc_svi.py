"""svgpc on mini-batches: stochastic natural gradients with the probit link. A baseline of wenzel2019.

The loop, rates, Adam and stopping are those of `fast.one_latent.stochastic`; the likelihood enters by two derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fast.core import inputs
from fast.core.declare import takes_values
from fast.core.inputs import Hyper
from fast.core.options import Blocks
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.likelihood.probit import LinkMoments, expected_log_probit
from fast.methods.x_gpc_svi import SVIPosterior, ended
from fast.one_latent.beginning import NaturalSteps, batches_of, beginning
from fast.one_latent.bound import kl_whitened
from fast.one_latent.predict import LatentMoments, ProbitPrediction, probit_prediction, sparse_latent
from fast.one_latent.stochastic import Sites, State, stochastic_ascent


@dataclass(frozen=True, kw_only=True, eq=False)
class SVGPCSteps(NaturalSteps):
    """Options of `fit`."""

    rate: float | str | tuple[Any, ...] = 0.1


DEFAULTS = SVGPCSteps()


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
        return Sites(link.derivative, -link.curvature)

    def expected(self, y: FloatArray, latent_mean: FloatArray, latent_var: FloatArray) -> FloatArray:
        """E[log Phi(y f)]: (b,)."""
        return self._link(y, latent_mean, latent_var).value


@takes_values
def fit(data: Data, prior: Prior, options: SVGPCSteps = DEFAULTS) -> SVIPosterior:
    """Stochastic natural-gradient ascent on the probit bound from q(u) = p(u). Time per step O(b m (m + d) + m^3).

    Parameters
    ----------
    data : Data      X an array or numpy.memmap; or, with y None, blocks (X_block, y_block) that can be read again
    prior : Prior    of one latent function with inducing points, where the run starts; m may exceed n
    options          by default 10 000 steps, or all of `batches`; stop is a threshold on the change of mu and Sigma a
                     step, by default 1e-4, and never where batches are given

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular

    Returns
    -------
    SVIPosterior   diverged is True, with a reason, if the run left the finite numbers or its bound fell without end
    """
    if prior.Z is None:
        raise ValueError("Z: found None, expected inducing points (m, d); the full GP is fitted in batch")
    source = batches_of(data, options)
    hyper, Z, settings, starts = beginning(data, prior, options, source)
    return ended(stochastic_ascent(source, Probit(), hyper, Z, settings, init_batches=starts))


@one_thread
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


@Blocks.checks
def predict(posterior: SVIPosterior, X_test: Any, *, block_size: int = 4096) -> ProbitPrediction:
    """Latent moments and P(y = 1) = Phi(m / sqrt(1 + v)) at test points. Time O(t m (m + d)).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0; may be a numpy.memmap
    block_size : int     test points at a time
    """
    X_test = inputs.inputs("X_test", X_test, posterior.hyper.lengthscales.size, allow_empty=True)
    return probit_prediction(*latent(posterior.hyper, posterior.state, X_test, block_size))


@Blocks.checks
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
    total = 0.0
    for start in range(0, X.shape[0], block_size):
        part = slice(start, start + block_size)
        result = latent(posterior.hyper, posterior.state, X[part], block_size)
        total += float(expected_log_probit(y_sign[part], result.mean, result.var).value.sum())
    return total - kl_whitened(posterior.state.factor, posterior.state.weights)
