"""Appendix C: regression on labels, a baseline.

The targets of class k are t_ik = +1 for the label's class and -1 elsewhere, t_ik ~ N(f^k(x_i), noise): the noise of a
latent value is that of its target, so that t_ik ~ N(υ_iᵀf̄_k, s_i^k). With Gaussian factors expectation propagation is
exact inference: each factor is its own approximation, C¹ = 1/s and C² = t/s, and q is the posterior.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import (
    Prior,
    checked_input,
    class_gradients,
    fields_to_learn,
    search,
)
from reference.common._learning import FIELDS, Derivative
from reference.common._steps import Learned
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.villacampa2020.gradients import adaptive_learning_rate
from reference.villacampa2020.hyper import Matrices, prior_matrices
from reference.villacampa2020.posterior import Coefficients, Gaussians, posterior_moments
from reference.villacampa2020.sparse import fitc_covariance, latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_NOISE = "raise noise"


class RegressionStep(NamedTuple):
    """What a callback is told before each step of the adaptive rule."""

    iteration: int
    residual: float  # zero: inference is exact
    n_improper: int  # zero


class RegressionFit(NamedTuple):
    """The posterior of the inducing values, and what is read off it."""

    posterior: Gaussians
    sites: Coefficients  # each (n, C)
    prior: Prior  # as learned
    log_evidence: float  # of the targets, every constant included
    gradients: dict[str, Array] | None  # fields with shapes as in the prior
    latent_mean: Array  # at the data, (n, C)
    latent_var: Array  # (n, C) noise included
    trace: Array  # log evidence before each step, or after each iteration of "lbfgs"; empty unless asked for
    residual: float  # of the search; else zero
    converged: bool
    iterations: int


def label_targets(y: Labels, n_classes: int) -> Array:
    """Targets (n, C): +1 for the class of the label and -1 elsewhere, appendix C of villacampa2020.

    Parameters
    ----------
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           C
    """
    return np.where(np.arange(n_classes) == y[:, None], 1.0, -1.0)


def regression_coefficients(y: Labels, cond_var: Array) -> Coefficients:
    """C¹ = 1/s and C² = t/s of the factors N(t_ik | υ_iᵀf̄_k, s_i^k), each (n, C): appendix C of villacampa2020.

    Parameters
    ----------
    y : (n,)                  labels, 0..C-1
    cond_var : (C, n)         s_i^k, noise included

    Raises
    ------
    ValueError                if one of them is zero: a target without noise
    """
    if not np.all(cond_var > 0.0):
        k, i = np.argwhere(~(cond_var > 0.0))[0]
        raise ValueError(f"noise: found a target variance of {cond_var[k, i]:.6g} (datum {i}, class {k}), expected > 0")
    return Coefficients(1.0 / cond_var.T, label_targets(y, len(cond_var)) / cond_var.T)


def regression_log_evidence(y: Labels, K: Matrices) -> float:
    """Σ_k log N(t_k | 0, Q_k + diag(s^k)), Q = K_XZ K_ZZ⁻¹ K_ZX: appendix C of villacampa2020.

    Parameters
    ----------
    y : (n,)                  labels, 0..C-1
    K : Matrices              of the prior

    Raises
    ------
    NotPositiveDefiniteError  if one of the covariances is singular
    """
    total = 0.0
    for t, covariance in zip(label_targets(y, len(K.K_ZZ)).T, fitc_covariance(*_parts(K)), strict=True):
        factor = factorise(covariance, "Q + diag(s)", _NOISE)
        total -= 0.5 * float(t @ factor.inverse @ t + factor.log_det + len(t) * np.log(2.0 * np.pi))
    return total


def regression_gradients(
    y: Labels, X: Array, prior: Prior, K: Matrices, learn: Sequence[str] = FIELDS
) -> dict[str, Array]:
    """The derivative of the log evidence in every hyper-parameter; fields with shapes as in the prior.

    With A = Q + diag(s), b = A⁻¹t and G = ½(bbᵀ - A⁻¹) it is Σ_ij G_ij dA_ij. Off the diagonal A is K_XZ K_ZZ⁻¹ K_ZX,
    whose derivative is dK_XZ υᵀ + υ dK_XZᵀ - υ dK_ZZ υᵀ, and on it κ, the prior variance with its noise.

    Parameters
    ----------
    y : (n,)                  labels, 0..C-1, of villacampa2020
    X : (n, d)                inputs
    prior : Prior             hyper-parameters
    K : Matrices              of this prior
    learn : names             the fields

    Raises
    ------
    NotPositiveDefiniteError  if one of the covariances is singular
    """

    def derivative_of(t: Array, covariance: Array, upsilon: Array) -> Derivative:
        inverse = factorise(covariance, "Q + diag(s)", _NOISE).inverse
        b = inverse @ t
        G = 0.5 * (np.outer(b, b) - inverse)
        off = G - np.diag(np.diag(G))
        by_XZ, by_ZZ = 2.0 * off @ upsilon, -upsilon.T @ off @ upsilon

        def derivative(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
            return float(np.sum(by_ZZ * dK_ZZ) + np.sum(by_XZ * dK_XZ) + np.diag(G) @ dk)

        return derivative

    each = zip(label_targets(y, len(K.K_ZZ)).T, fitc_covariance(*_parts(K)), K.upsilon, strict=True)
    return class_gradients([derivative_of(*of_class) for of_class in each], X, prior, learn)


def _parts(K: Matrices) -> tuple[Array, Array, Array]:
    return K.upsilon, K.cond_var, K.K_ZZ


@equation("villacampa2020", "u46-label-regression")
@takes("label-regression")
def label_regression_baseline(
    X: Array, y: Labels, prior: Prior, *, shared: bool = False, options: Options
) -> RegressionFit:
    """Regression on labels with inducing inputs, and hyper-parameters by ascent: appendix C of villacampa2020.

    The appendix takes the adaptive rule of A.7; "lbfgs" goes on to a stationary point.

    Parameters
    ----------
    X : (n, d)                    inputs
    y : (n,)                      labels, 0..C-1
    prior : Prior                 hyper-parameters and inducing inputs, where to start from
    shared : bool                 one vector of hyper-parameters for all classes
    options : Options             of "label-regression", or each by name; n_steps None: 200 iterations at most for
                                  "lbfgs", 250 steps for "adaptive"

    Raises
    ------
    ValueError                    for bad input, or targets without noise
    NotPositiveDefiniteError      if one of the covariances is singular
    """
    X, y, prior = checked_input(X, y, prior)
    learn = fields_to_learn(options.learn, prior)
    if options.n_steps is not None and not learn:
        raise ValueError(f"n_steps: found {options.n_steps}, expected None without learn")
    chosen = replace(options, learn=learn)  # type: ignore[type-var]
    if not chosen.learn:
        return _fit(X, y, prior, np.zeros(0), (0.0, True, 0), chosen.gradients)  # no iteration: inference is exact
    if chosen.optimizer == "adaptive":
        return _by_adaptive_steps(X, y, prior, shared, chosen)

    def evidence(there: Prior) -> tuple[float, dict[str, Array]]:
        K = prior_matrices(X, there)
        regression_coefficients(y, K.cond_var)  # refuses targets without noise
        return regression_log_evidence(y, K), regression_gradients(y, X, there, K, chosen.learn)

    steps = 200 if chosen.n_steps is None else chosen.n_steps
    optimum = search(evidence, prior, chosen.learn, shared, steps, chosen.learn_tolerance)
    trace = optimum.trace if chosen.trace else np.zeros(0)
    end = optimum.residual, optimum.converged, optimum.iterations
    return _fit(X, y, optimum.prior, trace, end, chosen.gradients)


def _by_adaptive_steps(X: Array, y: Labels, prior: Prior, shared: bool, options: Options) -> RegressionFit:
    """Steps of A.7: each coordinate has a rate, two per cent up while its gradient keeps its sign, halved otherwise."""
    steps = 250 if options.n_steps is None else options.n_steps
    trace: list[float] = []
    learned = Learned(options.learn, shared)
    rule = learned.rule(prior, options.rate, adaptive_learning_rate)
    for step in range(steps):
        K = prior_matrices(X, prior)
        regression_coefficients(y, K.cond_var)
        if options.trace:
            trace.append(regression_log_evidence(y, K))
        if options.callback is not None:
            options.callback(RegressionStep(step + 1, 0.0, 0))
        gradients = regression_gradients(y, X, prior, K, options.learn)
        prior, rule = learned.uphill(prior, gradients, rule)
    return _fit(X, y, prior, np.array(trace), (0.0, False, steps), options.gradients)


def _fit(
    X: Array, y: Labels, prior: Prior, trace: Array, end: tuple[float, bool, int], gradients: bool
) -> RegressionFit:
    K = prior_matrices(X, prior)
    coefficients = regression_coefficients(y, K.cond_var)
    posterior = posterior_moments(*coefficients, K.upsilon, K.K_ZZ)
    derivatives = regression_gradients(y, X, prior, K) if gradients else None
    mean, var = latent_marginal(posterior, K.upsilon, K.cond_var)
    evidence = regression_log_evidence(y, K)
    return RegressionFit(posterior, coefficients, prior, evidence, derivatives, mean, var, trace, *end)
