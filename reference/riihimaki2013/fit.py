"""The four variants of EP by name, their gradients and predictions; the loops stand in `nested_ep` and `qep`."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.kernels import derivative_lengthscales, derivative_variance
from reference.common.options import Options, takes
from reference.riihimaki2013 import _check
from reference.riihimaki2013.evidence import ep_gradient
from reference.riihimaki2013.model import kernel_se_ard, prior_covariance
from reference.riihimaki2013.nested_ep import nested_ep, nested_iep
from reference.riihimaki2013.outer import EPFit
from reference.riihimaki2013.prediction import (
    class_probability_from_g,
    independent_class_probabilities,
    predict_class_probabilities,
    predict_latent_covariance,
    predict_latent_mean,
)
from reference.riihimaki2013.qep import qep, qiep

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

METHODS = {"nested-ep": nested_ep, "nested-iep": nested_iep, "qep": qep, "qiep": qiep}


class Prior(NamedTuple):
    """Hyper-parameters of every class."""

    variance: Array  # (c,)
    lengthscales: Array  # (c, d)
    noise: Array  # (c,)
    jitter: Array  # (c,)


class Prediction(NamedTuple):
    """Latent values and class probabilities at test points."""

    latent_mean: Array  # (t, c)
    latent_cov: Array  # (t, c, c)
    probability: Array  # (t, c), rows sum to one
    probability_mass: Array  # (t,), before that


@takes("nested-ep")
def fit_ep(X: Array, y: Labels, n_classes: int, prior: Prior, *, options: Options) -> EPFit:
    """EP with the multinomial probit likelihood from zero sites, by the method whose options are given.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           c
    prior : Prior             hyper-parameters of every class
    options : Options         of nested-ep, nested-iep, qep or qiep, or those of nested-ep by name. max_iterations None:
                              1000. callback: called with a State after each outer iteration

    Raises
    ------
    ValueError                naming the argument
    NotPositiveDefiniteError  if the prior is not usable
    """
    X, y, prior = _check.data(X, y, n_classes, prior)
    _check.choice(options.method, tuple(METHODS), "method")
    return METHODS[options.method](y, prior_covariance(X, *prior), options)


class Gradients(NamedTuple):
    """Derivatives of a log evidence."""

    variance: Array  # (c,)
    lengthscales: Array  # (c, d)
    noise: Array  # (c,)


def covariance_derivatives(X: Array, prior: Prior) -> Iterator[Array]:
    """∂K/∂θ (cn, cn), class by class: variance, each lengthscale, noise.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters of every class
    """
    n, c = len(X), len(prior.variance)
    for k in range(c):
        kernel = X, X, float(prior.variance[k]), prior.lengthscales[k]
        for block in (derivative_variance(*kernel), *derivative_lengthscales(*kernel), np.eye(n)):
            dK = np.zeros((c * n, c * n))
            dK[k * n : (k + 1) * n, k * n : (k + 1) * n] = block
            yield dK


def as_gradients(flat: Array, n_classes: int) -> Gradients:
    """Entries in the order of `covariance_derivatives`, sorted by parameter; flat (p,), n_classes c."""
    rows = flat.reshape(n_classes, -1)
    return Gradients(rows[:, 0], rows[:, 1:-1], rows[:, -1])


def ep_gradients(fit: EPFit, X: Array, prior: Prior) -> Gradients:
    """Gradient of log Z_EP at a fixed point; jitter is held.

    Appendix B drops the derivatives by the sites: they vanish where each site has the moments of its tilted
    distribution. A diagonal Λ gives up the covariances, so that qep with c > 2 and diagonal Λ has no gradient here. The
    others that use quadrature have it up to the error of their rule in these moments, which grows with the variance:
    qep with full Λ and 8 data of three classes was off by 2e-7 with 50 nodes and 0.7 % with 10 at log variance 1, and
    by 40 % with 10 nodes at log variance 4.

    Parameters
    ----------
    fit : EPFit               converged
    X : (n, d)                inputs
    prior : Prior             hyper-parameters of every class

    Raises
    ------
    ValueError                for qep with diagonal Λ and more than two classes
    """
    if not fit.stationary:
        raise ValueError(
            f"fit: found {fit.method} with diagonal Λ, expected sites that keep the tilted covariances: log Z moves "
            "with these sites, and appendix B's expression is not its gradient; fit with diagonal=False"
        )
    K = prior_covariance(X, *prior)
    flat = ep_gradient(fit.site_location.T.ravel(), fit.M, K, covariance_derivatives(X, prior))
    return as_gradients(flat, len(prior.variance))


def cross_covariance(X_test: Array, X: Array, prior: Prior) -> Array:
    """K_* of each test point (t, c, cn); X_test (t, d), X (n, d), prior of every class."""
    n, c = len(X), len(prior.variance)
    K_star = np.zeros((len(X_test), c, c * n))
    for k in range(c):
        K_star[:, k, k * n : (k + 1) * n] = kernel_se_ard(X_test, X, float(prior.variance[k]), prior.lengthscales[k])
    return K_star


@takes("nested-ep")
def predict_ep(fit: EPFit, X: Array, X_test: Array, prior: Prior, *, options: Options) -> Prediction:
    """Latent values and class probabilities at test points.

    Parameters
    ----------
    fit : EPFit               of `fit_ep`
    X : (n, d)                inputs
    X_test : (t, d)           test inputs
    prior : Prior             hyper-parameters of every class
    options : Options         as of `fit_ep`. prediction "inner-ep": normalisers of the inner algorithm; "quadrature":
                              (25) as an orthant probability by Sobol' points, or on the line where the classes are
                              independent; prediction_nodes: of a product rule in each dimension instead
    """
    c = len(prior.variance)
    K = prior_covariance(X, *prior)
    location = fit.site_location.T.ravel()
    independent = fit.method in ("nested-iep", "qiep")
    mean, cov, raw = np.empty((len(X_test), c)), np.empty((len(X_test), c, c)), np.empty((len(X_test), c))
    for s, K_star in enumerate(cross_covariance(X_test, X, prior)):
        mean[s] = predict_latent_mean(K_star, location, fit.M, K)
        cov[s] = predict_latent_covariance(np.diag(prior.variance + prior.noise), K_star, fit.M)
        if options.prediction == "inner-ep":
            raw[s] = predict_class_probabilities(mean[s], cov[s])
        elif independent:
            raw[s] = independent_class_probabilities(mean[s], np.diag(cov[s]))
        else:
            raw[s] = [class_probability_from_g(mean[s], cov[s], k, options.prediction_nodes) for k in range(c)]
    mass = np.sum(raw, axis=1)
    return Prediction(mean, cov, raw / mass[:, None], mass)
