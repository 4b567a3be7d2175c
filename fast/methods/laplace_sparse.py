"""laplace-sparse: Laplace's approximation of a softmax model with inducing points. villacampa2020, appendix C.

The prior of the latent values is FITC's, f_k ~ N(0, Q_k + diag(s_k)). The mode comes from Newton's method of
`fast.full_classes.softmax_laplace`, each step of it by `fast.sparse_classes.softmax_inducing`. Hyper-parameters are
taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.blocks import block_edges
from fast.core.declare import takes_values
from fast.core.options import Blocks, Iteration, Nodes, Watched
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.full_classes.couplings import LatentDistribution
from fast.full_classes.predict import normalised, softmax_probabilities
from fast.full_classes.softmax_laplace import find_mode, laplace_log_evidence
from fast.likelihood.product_rule import product_rule
from fast.solve.outer_loop import OuterProgress
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.inference import inducing_classes
from fast.sparse_classes.softmax_inducing import (
    InducingLatents,
    condition_inducing,
    covariance_of,
    latent_covariances,
    projected_covariances,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseLaplaceOptions(Iteration, Watched, Blocks):
    """Options of `fit`."""

    max_iterations: int = 100


DEFAULTS = SparseLaplaceOptions()


@dataclass(frozen=True, eq=False)
class SparseLaplacePosterior:
    """The Gaussian at the mode."""

    prior: InducingLatents
    latent_mean: FloatArray  # (n, C) the mode
    latent_cov: FloatArray  # (n, C, C)
    pi: FloatArray  # (n, C)
    weights: FloatArray  # (C, m): mean of the whitened inducing values, A grad log p(y|f)
    covariance: FloatArray  # (C, m, C, m): their covariance
    log_evidence: float  # with every constant
    residual: float
    converged: bool
    iterations: int

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        points = self.prior.points
        return np.array([points.chol_K[kind] @ self.weights[k] for k, kind in enumerate(points.kind)])

    @property
    def inducing_cov(self) -> FloatArray:
        """Of each class by itself: (C, m, m)."""
        points = self.prior.points
        L = [points.chol_K[kind] for kind in points.kind]
        return np.array([L[k] @ self.covariance[k, :, k] @ L[k].T for k in range(points.n_classes)])


@takes_values
def fit(data: Data, prior: Prior, options: SparseLaplaceOptions = DEFAULTS) -> SparseLaplacePosterior:
    """Laplace's approximation, hyper-parameters held. Time n C^2 m^2 + (C m)^3 / 3 a Newton step, memory n C (m + C).

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks
    prior      of C classes, with inducing points
    options    tolerance on max |f - K grad log p(y|f)| / max(1, max |f|), max_iterations Newton steps; the callback is
               called with an OuterProgress at the end

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    rows = ClassData(data.X, data.y, data.n_classes, block_size=options.block_size, memory_budget=0)
    latents: Any = InducingLatents(rows, inducing_classes(rows, prior))
    mode = find_mode(
        latents,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        conditioning=condition_inducing,
    )
    at: Any = mode.posterior
    covariance = covariance_of(at)
    result = SparseLaplacePosterior(
        latents,
        mode.latent,
        latent_covariances(latents, at, covariance),
        mode.pi,
        np.array([latents.of(k).T @ mode.derivative[:, k] for k in range(latents.n_classes)]),
        covariance,
        laplace_log_evidence(mode),
        mode.residual,
        mode.converged,
        mode.iterations,
    )
    if options.callback is not None:
        options.callback(OuterProgress(mode.iterations, result.log_evidence, mode.residual, 0))
    return result


@one_thread
def latent_distribution(posterior: SparseLaplacePosterior, X_test: FloatArray) -> LatentDistribution:
    """Mean upsilon'E[u] and covariance diag(kappa) - B M B' at inputs, B = Q(X_test, X), M = (K + W^-1)^-1.

    A M A' = I - cov(v), so that nothing of the data is met again. Time t C (m (m + d) + C m^2).

    Parameters
    ----------
    posterior          from `fit`
    X_test : (t, d)
    """
    points = posterior.prior.points
    view = points.view(X_test, whole_tiles=True)
    rows = [view.rows[kind] for kind in points.kind]
    mean = np.column_stack([rows[k] @ posterior.weights[k] for k in range(points.n_classes)])
    cov = projected_covariances(rows, posterior.covariance)
    index = np.arange(points.n_classes)
    cov[:, index, index] += view.cond_var
    return LatentDistribution(mean, cov)


@Nodes.joined(Blocks).checks
def predict(
    posterior: SparseLaplacePosterior, X_test: Any, *, prediction_nodes: int | None = None, block_size: int = 1024
) -> ClassPrediction:
    """Latent distribution and E[softmax(f*)] over C - 1 differences, by 4096 points of Sobol's sequence.

    Parameters
    ----------
    posterior                   from `fit`
    X_test : (t, d)             t may be 0
    prediction_nodes : int      nodes in each dimension of a product rule instead
    block_size : int            test points at a time
    """
    points = posterior.prior.points
    X_test = inputs.inputs("X_test", X_test, points.d, allow_empty=True)
    t, C = X_test.shape[0], points.n_classes
    if prediction_nodes is not None:
        product_rule(C - 1, prediction_nodes, "prediction_nodes")
    out = ClassPrediction(np.empty((t, C)), np.empty((t, C, C)), np.empty((t, C)), np.empty(t))
    for start, stop in block_edges(t, inputs.count("block_size", block_size)):
        q = latent_distribution(posterior, inputs.finite_rows("X_test", X_test[start:stop], start))
        result = normalised(q, softmax_probabilities(*q, prediction_nodes), start)
        for target, source in zip(out, result, strict=True):
            target[start:stop] = source
    return out
