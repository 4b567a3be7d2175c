"""laplace-binary: Laplace's approximation of a full GP with two classes, logit or probit.

Rasmussen and Williams (2006), sections 3.4 and 5.5.1; Williams and Barber (1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fast.core import inputs
from fast.core.declare import option, takes_values
from fast.core.inputs import Hyper
from fast.core.options import Blocks, Iteration, Link, Search, Watched
from fast.core.results import Gradients
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior, checked_binary, moved
from fast.one_latent.laplace import LaplacePosterior, gaussian_at, total_gradients
from fast.one_latent.learning import Learned, WarmSearch, starting
from fast.one_latent.links import link_of
from fast.one_latent.mode import find_mode
from fast.one_latent.predict import Prediction, ProbitPrediction, full_latent
from fast.one_latent.prior import FullPrior


@dataclass(frozen=True, kw_only=True, eq=False)
class LaplaceBinaryOptions(Iteration, Watched, Blocks, Link):
    """Options of `fit`."""

    max_iterations: int = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class LaplaceBinaryLearning(Iteration, Watched, Blocks, Search, Link):
    """Options of `fit_learning`."""

    max_iterations: int = 100
    learn: Sequence[str] = option(
        "names", "what of the prior is learned", choices=("variance", "lengthscales", "noise"), default=()
    )


DEFAULTS = LaplaceBinaryOptions()


@one_thread
def prepare(data: Data, prior: Prior, block_size: int = 4096) -> FullPrior:
    """K_XX of checked data.

    data : Data (labels 0, 1); prior : Prior (of one latent function, full); block_size : int (rows handled at a time)
    """
    X, y_sign, hyper, Z = checked_binary(data, prior)
    if Z is not None:
        raise ValueError(f"Z: found inducing points {Z.shape}, expected None: laplace-binary takes full GPs")
    return FullPrior(X, y_sign, hyper, block_size)


@one_thread
def converge(
    prior: FullPrior, options: LaplaceBinaryOptions = DEFAULTS, *, start: FloatArray | None = None
) -> LaplacePosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior            from `prepare`
    options          of `fit`
    start : (n,)     weights a, f = K a, to start from; default zero
    """
    mode = find_mode(
        prior, link_of(options.likelihood).log_likelihood, tolerance=options.tolerance,
        max_iterations=options.max_iterations, start=start, callback=options.callback,
    )  # fmt: skip
    return gaussian_at(prior, options.likelihood, mode)


@takes_values
def fit(data: Data, prior: Prior, options: LaplaceBinaryOptions = DEFAULTS) -> LaplacePosterior:
    """Laplace's approximation, hyper-parameters held. Time n^3/3 a Newton step and 5 n^3/3 at the end.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function, full
    options          tolerance on the Newton step that is left, max |df| / max(1, max |f|); the callback is given a
                     NewtonProgress after every step

    Raises ValueError for bad input, by name; NotPositiveDefiniteError where rounding leaves a matrix without a factor.
    """
    return converge(prepare(data, prior, options.block_size), options)


@one_thread
def gradients(posterior: LaplacePosterior) -> Gradients:
    """Total gradient of log Z: variance float, lengthscales (d,), noise float, Z None.

    Parameters
    ----------
    posterior    from `fit`
    """
    return total_gradients(posterior)


@Blocks.checks
def predict(posterior: LaplacePosterior, X_test: Any, *, block_size: int = 4096) -> Prediction | ProbitPrediction:
    """Latent moments and class probabilities, the link averaged over them. Time O(t n (n + d)).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    prior, sites = posterior.prior, posterior.sites
    X_test = inputs.inputs("X_test", X_test, prior.X.shape[1], allow_empty=True)
    weights = posterior.mode.terms.derivative
    moments = full_latent(X_test, prior.X, prior.hyper, posterior.site_precision, sites.factor, weights, block_size)
    return link_of(posterior.likelihood).prediction(*moments)


@takes_values
def fit_learning(data: Data, prior: Prior, options: LaplaceBinaryLearning) -> tuple[LaplacePosterior, Learned]:
    """Maximise log Z over parameters of the prior by L-BFGS-B; the posterior there, and how the search went.

    Each mode is sought from the one before.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function, full, where the search starts
    options          of `fit`, and of the search: its tolerance is on the gradient in logarithms; no callback is called
    """
    data, packing = starting(data, prior, options.learn)
    own = LaplaceBinaryOptions.of(vars(options) | {"callback": None})

    def run(hyper: Hyper, Z: FloatArray | None, start: FloatArray | None) -> LaplacePosterior:
        return converge(prepare(data, moved(prior, hyper, Z), own.block_size), own, start=start)

    search = WarmSearch(run, lambda at: (at.log_evidence, gradients(at)), lambda at: at.mode.weights)
    return search.maximum(packing, options)
