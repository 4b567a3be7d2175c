"""laplace and laplace-tkp: the Gaussian at the mode of a softmax model, and class probabilities as ratios of evidences.

riihimaki2013, section 4.1; Williams and Barber (1998), Tierney and Kadane (1986).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.declare import takes_values
from fast.core.hyper import ClassGradients
from fast.core.options import Blocks, Iteration, Watched
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.full_classes.couplings import Coupled, evidence_gradients, marginal_covariances
from fast.full_classes.predict import latent_distribution, normalised, predict_distribution
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.full_classes.softmax_laplace import Mode, find_mode, laplace_log_evidence, mode_weights
from fast.ledger import equation
from fast.methods.nested_ep import ClassPredicting
from fast.solve.outer_loop import OuterProgress


@dataclass(frozen=True, kw_only=True, eq=False)
class LaplaceOptions(Iteration, Watched):
    """Options of `fit`."""

    max_iterations: int = 100


DEFAULTS = LaplaceOptions()


@dataclass(frozen=True, eq=False)
class LaplacePosterior:
    """The Gaussian at the mode."""

    prior: MulticlassPrior
    mode: Mode
    posterior: Coupled  # weights are grad log p(y|f) at the mode
    latent_mean: FloatArray  # (n, C) the mode
    latent_cov: FloatArray  # (n, C, C)
    pi: FloatArray  # (n, C)
    log_evidence: float  # with every constant
    residual: float
    converged: bool
    iterations: int
    tolerance: float
    max_iterations: int


@one_thread
def converge(
    prior: MulticlassPrior, options: LaplaceOptions = DEFAULTS, *, start: FloatArray | None = None
) -> LaplacePosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior             from `prepare`
    options           of `fit`
    start : (n, C)    weights b, f = K b, to start from; default zero
    """
    tolerance, max_iterations, callback = options.tolerance, options.max_iterations, options.callback
    mode = find_mode(prior, tolerance=tolerance, max_iterations=max_iterations, start=start)
    at = mode.posterior._replace(weights=np.ascontiguousarray(mode.derivative.T), mean=mode.latent)
    result = LaplacePosterior(
        prior,
        mode,
        at,
        mode.latent,
        marginal_covariances(mode.posterior),
        mode.pi,
        laplace_log_evidence(mode),
        mode.residual,
        mode.converged,
        mode.iterations,
        tolerance,
        max_iterations,
    )
    if callback is not None:
        callback(OuterProgress(mode.iterations, result.log_evidence, mode.residual, 0))
    return result


@takes_values
def fit(data: Data, prior: Prior, options: LaplaceOptions = DEFAULTS) -> LaplacePosterior:
    """Laplace's approximation of the softmax model, hyper-parameters held. Time (4/3) C n^3 a Newton step.

    Parameters
    ----------
    data : Data      at least two classes
    prior : Prior    full; one number or one vector stands for all classes
    options          tolerance on max |f - K grad log p(y|f)| / max(1, max |f|); the callback is given an OuterProgress
                     at the end

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    a matrix of the prior is not positive semi-definite
    """
    return converge(prepare(data, prior), options)


def _by_K(posterior: LaplacePosterior) -> Iterator[FloatArray]:
    moved = mode_weights(posterior.mode, posterior.latent_cov)
    for k, gradient in enumerate(evidence_gradients(posterior.prior, posterior.posterior)):
        through_mode = np.multiply.outer(0.5 * moved[k], posterior.posterior.weights[k])
        gradient += through_mode
        gradient += through_mode.T
        yield gradient


@one_thread
def gradients(posterior: LaplacePosterior) -> ClassGradients:
    """Total gradient of log Z, through the mode too. Time O(C n^3 + n^2 d).

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.prior.vjp(_by_K(posterior))


@ClassPredicting.checks
def predict(
    posterior: LaplacePosterior, X_test: Any, *, prediction_nodes: int | None = None, block_size: int = 1024
) -> ClassPrediction:
    """Latent distribution and E[softmax(f*)] over C - 1 differences, by 4096 points of Sobol's sequence.

    Parameters
    ----------
    posterior                   from `fit`
    X_test : (t, d)             t may be 0
    prediction_nodes : int      nodes in each dimension of a product rule instead
    block_size : int            test points at a time
    """
    return predict_distribution(
        posterior.prior, posterior.posterior, X_test, prediction="softmax", prediction_nodes=prediction_nodes,
        block_size=block_size,
    )  # fmt: skip


@one_thread
def mean_corrected(posterior: LaplacePosterior) -> Coupled:
    """The Gaussian around the mean of p(f|y) to first order, where Laplace's is around the mode.

    The likelihood of a label that is nearly sure is skewed: most of p(f|y) lies beyond its mode, and the Gaussian at
    the mode gives the wrong side of it too much. The first term of E[f] beyond the mode is Sigma s with
    s = d(-log|I + K W|/2)/df, third derivatives of log p(y|f) times marginal covariances (Tierney, Kass and Kadane
    1989; Rue, Martino and Chopin 2009, section 3.2.3). As Sigma s = K (I + W K)^-1 s, weights move and no covariance.
    Time C n^2.

    Parameters
    ----------
    posterior    from `fit`
    """
    at = posterior.posterior
    weights = at.weights + mode_weights(posterior.mode, posterior.latent_cov)
    mean = np.column_stack([posterior.prior.K(k) @ b for k, b in enumerate(weights)])
    return at._replace(weights=weights, mean=mean)


@Blocks.checks
def predict_mean_corrected(posterior: LaplacePosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """`predict` with the Gaussian of `mean_corrected`: the latent distribution's mean, and E[softmax(f*)] under it.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_distribution(
        posterior.prior, mean_corrected(posterior), X_test, prediction="softmax", block_size=block_size
    )


class _Extended:
    """The data with one more point, its label to be set: what `find_mode` reads of a prior."""

    def __init__(self, prior: MulticlassPrior, cross: list[FloatArray]) -> None:
        n = prior.n
        self.n, self.n_classes, self.kind = n + 1, prior.n_classes, prior.kind
        self.y = np.append(prior.y, 0)
        self.matrices = []
        for k in prior.first:
            K = np.empty((n + 1, n + 1))
            K[:n, :n] = prior.K(int(k))
            K[n, :n] = K[:n, n] = cross[int(k)]
            K[n, n] = prior.test_var()[int(k)]
            self.matrices.append(K)

    def K(self, index: int) -> FloatArray:
        """Covariance of a class at data and point.

        Parameters
        ----------
        index : int    of the class
        """
        return self.matrices[self.kind[index]]


class TKPPrediction(NamedTuple):
    """Predictions at t points."""

    prediction: ClassPrediction
    scores: FloatArray  # (t, C) ratios of evidences, not normalised
    converged: bool  # every mode was found


@equation("riihimaki2013", "23", "u4.1.1-la-tkp")
@one_thread
def evidence_ratios(posterior: LaplacePosterior, cross: list[FloatArray]) -> tuple[FloatArray, bool]:
    """Z_LA of the data with one more point, for each label there, over Z_LA: (C,): riihimaki2013 (23), 4.1.1.

    Each mode by its own Newton run, from the mode without the point. Time O(C^2 n^3).

    Parameters
    ----------
    posterior                   from `fit`
    cross : list of (n,)        cross-covariances of the point, one a class
    """
    extended: Any = _Extended(posterior.prior, cross)
    start = np.vstack([posterior.mode.derivative, np.zeros(extended.n_classes)])
    ratios, all_converged = np.empty(extended.n_classes), True
    for k in range(extended.n_classes):
        extended.y[-1] = k
        mode = find_mode(extended, tolerance=posterior.tolerance, max_iterations=posterior.max_iterations, start=start)
        ratios[k] = np.exp(laplace_log_evidence(mode) - posterior.log_evidence)
        all_converged = all_converged and mode.converged
    return ratios, all_converged


@one_thread
def predict_tkp(posterior: LaplacePosterior, X_test: Any) -> TKPPrediction:
    """Class probabilities as ratios of Laplace evidences, normalised; the ratios themselves beside them.

    Parameters
    ----------
    posterior          from `fit`
    X_test : (t, d)    t may be 0
    """
    prior = posterior.prior
    X_test = inputs.inputs("X_test", X_test, prior.X.shape[1], allow_empty=True)
    t, C = X_test.shape[0], prior.n_classes
    scores, converged = np.empty((t, C)), True
    for i in range(t):
        cross = [row[0] for row in prior.cross(X_test[i : i + 1])]
        scores[i], good = evidence_ratios(posterior, cross)
        converged = converged and good
    if t == 0:
        empty = ClassPrediction(np.empty((0, C)), np.empty((0, C, C)), scores, np.empty(0))
        return TKPPrediction(empty, scores, converged)
    distribution = latent_distribution(prior, posterior.posterior, X_test)
    return TKPPrediction(normalised(distribution, scores), scores, converged)
