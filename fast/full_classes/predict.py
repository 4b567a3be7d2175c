"""Class probabilities from Gaussian latent values at test points. riihimaki2013, section 5.2, appendix B.

Multinomial probit: class k is right where all g_j = f_k - f_j + u > 0 after unit noise, so its probability is the
normaliser of a tilted distribution: inner EP from zero sites, an orthant by points of Sobol's sequence, or, for
independent classes, one integral. Product rules over g serve where their nodes are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr

from fast.core import inputs
from fast.core.linalg import cholesky_of_all, correlation_roots
from fast.core.results import ClassPrediction, Differences
from fast.core.types import FloatArray
from fast.full_classes.couplings import Coupled, LatentDistribution, predictive_cov, predictive_mean
from fast.full_classes.dense_couplings import Dense, dense_covariance
from fast.full_classes.inner_ep import distribution_with, log_normaliser, run
from fast.full_classes.nested_sites import differences, other_classes
from fast.full_classes.prior import MulticlassPrior
from fast.ledger import equation
from fast.likelihood.product_rule import product_rule
from fast.likelihood.region import region_moments
from fast.likelihood.sobol_rule import log_orthant, softmax_of_differences

_CELLS = 2**21
_CACHED = 2**17  # numbers of the covariances of a run of inner EP: a megabyte


def _of_class(mean: FloatArray, cov: FloatArray, k: int) -> Differences:
    """Distribution of B_k'f*."""
    y = np.full(mean.shape[0], k, dtype=np.int64)
    return differences(y, other_classes(y, mean.shape[1]), mean, cov)


@equation("riihimaki2013", "B-predict-prob")
def inner_ep_probabilities(mean: FloatArray, cov: FloatArray) -> FloatArray:
    """exp(log Z_q) of inner EP for each class as the label: (t, C), not normalised: riihimaki2013, appendix B.

    Time O(t C^4) a sweep. Points with each label are rows of one run, as many as a processor's cache holds.

    Parameters
    ----------
    mean, cov    of f*: (t, C), (t, C, C)
    """
    t, C = mean.shape
    raw = np.empty(C * t)
    step = max(1, _CACHED // (C - 1) ** 2)
    for start in range(0, C * t, step):
        label, point = np.divmod(np.arange(start, min(start + step, C * t)), t)
        cavity = distribution_with(differences(label, other_classes(label, C), mean[point], cov[point]))
        zero = np.zeros(cavity.mean.shape)
        result = run(zero, zero, cavity)
        distribution = Differences(result.mean, result.cov)
        raw[start : start + step] = np.exp(log_normaliser(cavity, distribution, result.alpha_tilde, result.beta_tilde))
    return raw.reshape(C, t).T


def _root(cov: FloatArray, what: str) -> FloatArray:
    return cholesky_of_all(cov, f"prediction: covariance of {what}", "raise noise or move the test point off the data")


def _by_rule(
    distribution: Differences,
    nodes: FloatArray,
    weights: FloatArray,
    what: str,
    integrand: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    _root(distribution.cov, what)  # refuses a singular covariance by name
    root, _ = correlation_roots(distribution.cov, what)
    total = np.empty(distribution.mean.shape[0])
    size = max(1, _CELLS // nodes.size)
    for start in range(0, total.size, size):
        part = slice(start, start + size)
        points = distribution.mean[part, None, :] + nodes @ root[part].transpose(0, 2, 1)
        total[part] = integrand(points) @ weights
    return total


@equation("riihimaki2013", "25")
def quadrature_probabilities(mean: FloatArray, cov: FloatArray, prediction_nodes: int | None = None) -> FloatArray:
    """Integral of q(g) prod_j Phi(g_j) for each class: (t, C), not normalised: riihimaki2013 (25).

    An orthant of the differences with their unit noises, by `fast.likelihood.sobol_rule`: 1024 points in C - 2
    dimensions, errors up to 2e-5 for three classes, 4e-4 for four, 3e-3 for twelve. Two classes are exact. Time O(1024
    t C^3); with nodes the product rule, O(t C^2 nodes^(C-1)).

    Parameters
    ----------
    mean, cov                 of f*: (t, C), (t, C, C)
    prediction_nodes : int    in each dimension, of a Gauss-Hermite product rule; None: no such rule
    """
    if prediction_nodes is None:
        return np.exp(log_probit_probabilities(mean, cov))
    t, C = mean.shape
    nodes, weights = product_rule(C - 1, prediction_nodes, "prediction_nodes")
    raw = np.empty((t, C))
    for k in range(C):
        distribution = distribution_with(_of_class(mean, cov, k))
        raw[:, k] = _by_rule(distribution, nodes, weights, "g", lambda g: np.exp(log_ndtr(g).sum(axis=2)))
    return raw


def log_probit_probabilities(mean: FloatArray, cov: FloatArray) -> FloatArray:
    """Logarithms of the class probabilities of the multinomial probit: (t, C), finite however small they are.

    Parameters
    ----------
    mean, cov    of f*: (t, C), (t, C, C)
    """
    t, C = mean.shape
    values = np.empty((t, C))
    for k in range(C):
        distribution = distribution_with(_of_class(mean, cov, k))
        # Phi(g_j) is the probability that g_j exceeds a standard normal of its own
        values[:, k] = log_orthant(Differences(distribution.mean, distribution.cov + np.eye(C - 1)))
    return values


def softmax_probabilities(mean: FloatArray, cov: FloatArray, prediction_nodes: int | None = None) -> FloatArray:
    """E[softmax(f*)]: (t, C), by `fast.likelihood.sobol_rule` over the differences to the last class.

    4096 points in C - 1 dimensions, errors up to 3e-4 for three and 7e-4 for four classes at log variance 4, 7e-3 for
    twelve at 8; rows sum to one up to rounding. Time O(4096 t C^2); with nodes the
    product rule, O(t C^2 nodes^(C-1)).

    Parameters
    ----------
    mean, cov                 of f*: (t, C), (t, C, C)
    prediction_nodes : int    in each dimension, of a Gauss-Hermite product rule; None: no such rule

    Raises
    ------
    ValueError    a covariance of differences is singular
    """
    t, C = mean.shape
    if prediction_nodes is None:
        distribution = _of_class(mean, cov, C - 1)
        return softmax_of_differences(-distribution.mean, _root(distribution.cov, "differences"))
    nodes, weights = product_rule(C - 1, prediction_nodes, "prediction_nodes")
    raw = np.empty((t, C))
    for k in range(C):
        raw[:, k] = _by_rule(_of_class(mean, cov, k), nodes, weights, "differences", _logistic_of_differences)
    return raw


def _logistic_of_differences(d: FloatArray) -> FloatArray:
    # 1 / (1 + sum exp(-d)) = expit(-log sum exp(-d))
    top = np.maximum((-d).max(axis=2), -700.0)
    return expit(-(top + np.log(np.exp(-d - top[:, :, None]).sum(axis=2) + 1e-300)))


def independent_probabilities(mean: FloatArray, var: FloatArray) -> FloatArray:
    """E_s[prod_j Phi((s - m_j)/sqrt(1 + v_j))], s ~ N(m_k, 1 + v_k), for each class: (t, C). Relative error 1e-13.

    Parameters
    ----------
    mean, var : (t, C)    of independent latent values
    """
    t, C = mean.shape
    scale = np.sqrt(1.0 + var)
    raw = np.empty((t, C))
    for k in range(C):
        others = np.delete(np.arange(C), k)
        a = (mean[:, k, None] - mean[:, others]) / scale[:, others]
        b = scale[:, k, None] / scale[:, others]
        raw[:, k] = np.exp(region_moments(a, b).log_mass)
    return raw


def latent_distribution(prior: MulticlassPrior, posterior: Coupled | Dense, X_test: FloatArray) -> LatentDistribution:
    """Mean and covariance of f at test points, all at once. Time 3 C t n^2.

    Parameters
    ----------
    prior             the data
    posterior         of the latent values at the data
    X_test : (t, d)
    """
    cross = prior.cross(X_test)
    mean = predictive_mean(posterior.weights, cross)
    if isinstance(posterior, Dense):
        return LatentDistribution(mean, dense_covariance(posterior, cross, prior.test_var()))
    return LatentDistribution(mean, predictive_cov(posterior, cross, prior.test_var()))


def normalised(distribution: LatentDistribution, raw: FloatArray, first: int = 0) -> ClassPrediction:
    """Probabilities that sum to one, and what they summed to before.

    Parameters
    ----------
    distribution  of f at the test points
    raw : (t, C)     class probabilities as integrated
    first : int      index of the first of these test points, for the error

    Raises
    ------
    FloatingPointError    a sum is zero or no number: there is nothing that could be normalised
    """
    mass = raw.sum(axis=1)
    bad = np.flatnonzero(~(np.isfinite(mass) & (mass > 0.0)))
    if bad.size:
        raise FloatingPointError(
            f"probabilities: found the sum {mass[bad[0]]} over the classes at test point {first + bad[0]}, expected a "
            "positive number"
        )
    return ClassPrediction(*distribution, raw / mass[:, None], mass)


def predict_distribution(
    prior: MulticlassPrior,
    posterior: Coupled | Dense,
    X_test: Any,
    *,
    prediction: str = "inner-ep",
    prediction_nodes: int | None = None,
    block_size: int = 1024,
) -> ClassPrediction:
    """Latent distribution and class probabilities, a block of test points at a time.

    Parameters
    ----------
    prior                       the data
    posterior                   of the latent values at the data
    X_test : (t, d)             t may be 0
    prediction : str            "inner-ep", "quadrature", or "softmax"
    prediction_nodes : int      nodes in each dimension of a product rule; None: points of Sobol's sequence
    block_size : int            test points at a time
    """
    inputs.one_of("prediction", prediction, ("inner-ep", "quadrature", "softmax"))
    X_test = inputs.inputs("X_test", X_test, prior.X.shape[1], allow_empty=True)
    block_size = inputs.count("block_size", block_size)
    C = prior.n_classes
    if prediction_nodes is not None:
        product_rule(C - 1, prediction_nodes, "prediction_nodes")
    t = X_test.shape[0]
    out = ClassPrediction(np.empty((t, C)), np.empty((t, C, C)), np.empty((t, C)), np.empty(t))
    for start in range(0, t, block_size):
        stop = min(start + block_size, t)
        distribution = latent_distribution(prior, posterior, inputs.finite_rows("X_test", X_test[start:stop], start))
        if prediction == "inner-ep":
            raw = inner_ep_probabilities(*distribution)
        elif prediction == "softmax":
            raw = softmax_probabilities(*distribution, prediction_nodes)
        elif posterior.coupling_chol is None:
            raw = independent_probabilities(distribution.mean, np.einsum("tcc->tc", distribution.cov))
        else:
            raw = quadrature_probabilities(*distribution, prediction_nodes)
        for target, source in zip(out, normalised(distribution, raw, start), strict=True):
            target[start:stop] = source
    return out
