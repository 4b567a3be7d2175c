"""Appendix B and section 5.2: latent values at a test point, and class probabilities from them."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from reference.common._probit_line import probit_line
from reference.common._product import log_orthant_probability, product_rule
from reference.common.ledger import equation
from reference.riihimaki2013.inner_ep import inner_ep, inner_log_normaliser
from reference.riihimaki2013.quadrature_ep import cavity_covariance_g
from reference.riihimaki2013.sites import augmented_tilted, difference_matrix

Array = NDArray[np.float64]


@equation("riihimaki2013", "26")
def predict_latent_mean(K_star: Array, location: Array, M: Array, K: Array) -> Array:
    """E[f_*] = K_*ν - K_*MKν: (26) of riihimaki2013.

    Parameters
    ----------
    K_star : (c, cn)          covariance of f_* and f
    location : (cn,)          ν, class-major
    M : (cn, cn)              T(I + KT)⁻¹
    K : (cn, cn)              prior covariance
    """
    return K_star @ location - K_star @ M @ (K @ location)


@equation("riihimaki2013", "27")
def predict_latent_covariance(K_star_star: Array, K_star: Array, M: Array) -> Array:
    """Cov[f_*] = K_** - K_*MK_*': (27) of riihimaki2013.

    Parameters
    ----------
    K_star_star : (c, c)      prior covariance of f_*
    K_star : (c, cn)          covariance of f_* and f
    M : (cn, cn)              T(I + KT)⁻¹
    """
    return K_star_star - K_star @ M @ K_star.T


@equation("riihimaki2013", "25")
def class_probability_from_g(mean: Array, cov: Array, label: int, nodes: int | None = None) -> float:
    """p(y_* = label) = ∫ N(g|B'm, B'SB + 11') Π_kΦ(g_k) dg: the integral of (25) of riihimaki2013.

    Each Φ(g_k) is the probability that g_k plus a unit noise of its own is positive: the integral is the orthant
    probability of N(B'm, B'SB + 11' + I), taken with 1024 points of `orthant_rule`: no error for two classes, up to
    1e-5, 2e-4 and 2e-3 for three, four and twelve. Below 1e-307 it is rounded to zero, its logarithm never.

    Parameters
    ----------
    mean : (c,)               m, mean of f_*
    cov : (c, c)              S, its covariance
    label : int               class
    nodes : int or None       of a product rule over g, per dimension; None: the orthant probability

    Raises
    ------
    ValueError                for more than 1e6 points
    """
    B = difference_matrix(len(mean), label)
    if nodes is None:
        return float(np.exp(log_orthant_probability(B.T @ mean, cavity_covariance_g(cov, B) + np.eye(len(mean) - 1))))
    g, weights = product_rule(B.T @ mean, cavity_covariance_g(cov, B), nodes)
    return float(weights @ np.prod(ndtr(g), axis=1))


@equation("riihimaki2013", "B-predict-prob")
def predict_class_probabilities(mean: Array, cov: Array) -> Array:
    """p(y_* = k) (c,) as normalisers of the inner algorithm on N(m, S), one for each class: appendix B.

    They are approximations of one another's complement: their sum is one only nearly, and they come as they are.

    Parameters
    ----------
    mean : (c,)               m, mean of f_*
    cov : (c, c)              S, its covariance
    """
    c = len(mean)
    raw = np.empty(c)
    for k in range(c):
        start = np.zeros(c - 1)
        result = inner_ep(mean, cov, k, start, start)
        raw[k] = np.exp(inner_log_normaliser(augmented_tilted(mean, cov, k), result.alpha, result.beta))
    return raw


def independent_class_probabilities(mean: Array, var: Array) -> Array:
    """p(y_* = k) (c,) for independent f_*: E_s Π_jΦ((s - m_j)/√(1 + v_j)), s ~ N(m_k, 1 + v_k), by adaptive panels.

    Parameters
    ----------
    mean : (c,)               m
    var : (c,)                v
    """
    raw = np.empty(len(mean))
    for k in range(len(mean)):
        m, v = np.delete(mean, k), np.delete(var, k)
        raw[k] = np.exp(probit_line(float(mean[k]), 1.0 + float(var[k]), m, np.sqrt(1.0 + v)).log_norm)
    return raw
