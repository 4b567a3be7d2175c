"""Section 5, baseline epgpc: expectation propagation with inducing points and a probit link.

Hernández-Lobato and Hernández-Lobato (2016), two classes. The paper only names the method; what is written here follows
from the model of FITC, u ~ N(0, K_mm), w_i = κ_i u, f_i | u ~ N(w_i, K̃_ii) independently, p(y_i|f_i) = Φ(y_i f_i), and
from one site for each datum, t_i(u) = s_i exp(-½ a_i w_i² + b_i w_i).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common._learning import FIELDS
from reference.common.errors import cholesky, factorise
from reference.common.priors import Hyper
from reference.common.probit import mills_derivative
from reference.wenzel2019 import _prior
from reference.wenzel2019.updates import Gaussian

Array = NDArray[np.float64]


class Sites(NamedTuple):
    """The sites' natural parameters in w_i."""

    precision: Array  # (n,)  a
    shift: Array  # (n,)      b


class Cavity(NamedTuple):
    """Moments of w_i without site i."""

    mean: Array
    var: Array
    proper: NDArray[np.bool_]  # where what remains is a distribution; mean and var are those of q elsewhere


class Tilted(NamedTuple):
    """Normaliser of cavity times likelihood, and its logarithm's derivatives."""

    log_norm: Array  # log Ẑ_i
    derivative: Array  # ∂ log Ẑ_i / ∂ cavity mean
    curvature: Array  # -∂² log Ẑ_i / ∂ (cavity mean)², >= 0


class LatentMoments(NamedTuple):
    """Of f_i."""

    mean: Array
    var: Array


class Posterior(NamedTuple):
    """q(u), and what the sites make of the prior's volume."""

    q: Gaussian
    log_det: float  # log|K_mm| - log|V|


def ep_posterior(site_precision: Array, site_shift: Array, upsilon: Array, K_ZZ: Array) -> Posterior:
    """q(u) ∝ N(u|0, K_mm) Π_i t_i(u).

        V = (K_mm⁻¹ + κᵀ diag(a) κ)⁻¹ = L A⁻¹Lᵀ,   A = I + Lᵀκᵀ diag(a) κL,   K_mm = LLᵀ,   mean = V κᵀb

    No inverse of K_mm: of a full GP of 60 rows with a condition of 1e10 an inverse of the inverse leaves six digits of
    V, and sweeps that never stand still. |A| = |K_mm|/|V|.

    Parameters
    ----------
    site_precision : (n,)     a
    site_shift : (n,)         b
    upsilon : (n, m)          rows κ_i
    K_ZZ : (m, m)             K_mm

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular, or sites and prior leave no distribution
    """
    L = cholesky(K_ZZ, "K_ZZ", _prior.REMEDY_Z)
    kappa_L = upsilon @ L
    A = np.eye(len(L)) + (kappa_L.T * site_precision) @ kappa_L
    inner = factorise(0.5 * (A + A.T), "posterior precision in units of the prior", "lower damping")
    cov = L @ inner.inverse @ L.T
    cov = 0.5 * (cov + cov.T)
    return Posterior(Gaussian(cov @ (upsilon.T @ site_shift), cov), inner.log_det)


def ep_cavity(
    inducing_mean: Array, inducing_cov: Array, site_precision: Array, site_shift: Array, upsilon: Array
) -> Cavity:
    """Moments of w_i = κ_i u under q(u)/t_i(u), for some data.

        q = κVκᵀ, p = κ·mean;   variance q/(1 - a q),   mean (p - b q)/(1 - a q)

    Parameters
    ----------
    inducing_mean : (m,)      of q(u)
    inducing_cov : (m, m)     V
    site_precision : (b,)     a of these data
    site_shift : (b,)         b of these data
    upsilon : (b, m)          their rows κ_i

    Returns
    -------
    Cavity                    mean, var, proper: False where 1 - a q <= 0
    """
    p, q = upsilon @ inducing_mean, np.sum((upsilon @ inducing_cov) * upsilon, axis=1)
    remaining = 1.0 - site_precision * q
    proper = remaining > 0.0
    safe = np.where(proper, remaining, 1.0)
    return Cavity(np.where(proper, (p - site_shift * q) / safe, p), q / safe, proper)


def ep_tilted(cavity_mean: Array, cavity_var: Array, y_sign: Array, cond_var: Array) -> Tilted:
    """Normaliser of the cavity times Φ(y_i f_i) with f_i ~ N(w_i, K̃_ii), and its derivatives.

        log Ẑ = log Φ(z),   z = y mean/D,   D² = 1 + K̃ + var
        derivative = y r(z)/D,   curvature = r(z) (z + r(z))/D²,   r = φ/Φ

    Parameters
    ----------
    cavity_mean : (b,)        of w_i
    cavity_var : (b,)         of w_i
    y_sign : (b,)             labels, -1 or +1
    cond_var : (b,)           K̃_ii
    """
    D = np.sqrt(1.0 + cond_var + cavity_var)
    z = y_sign * cavity_mean / D
    first, second = mills_derivative(z)
    return Tilted(log_ndtr(z), y_sign * first / D, -second / D**2)


def ep_sites(cavity_mean: Array, cavity_var: Array, derivative: Array, curvature: Array) -> Sites:
    """Sites whose product with the cavity has the tilted mean and variance of w_i.

    The tilted mean is mean + var·derivative and the tilted variance var - var²·curvature, so

        a = curvature/(1 - var·curvature),   b = (derivative + mean·curvature)/(1 - var·curvature)

    Parameters
    ----------
    cavity_mean : (b,)        of w_i
    cavity_var : (b,)         of w_i
    derivative : (b,)              of `ep_tilted`
    curvature : (b,)          of `ep_tilted`
    """
    shrink = 1.0 - cavity_var * curvature  # > 0: the tilted variance is that of a log-concave density
    return Sites(curvature / shrink, (derivative + cavity_mean * curvature) / shrink)


def ep_latent_moments(
    cavity_mean: Array, cavity_var: Array, derivative: Array, curvature: Array, cond_var: Array
) -> LatentMoments:
    """Moments of f_i under EP's posterior approximation: its own label has seen f_i = w_i + e_i, not w_i alone.

    Cavity and prior give (w_i, e_i) independent, with variances var and K̃_ii, and the label a factor Φ(y_i(w_i + e_i))
    whose log-integral over them has the derivative g and curvature h in the mean of either. Moments of a Gaussian times
    a function of the sum, with g and h for both:

        E[w_i] = mean + var g,   E[e_i] = K̃ g,
        Var[w_i] = var - var² h,   Var[e_i] = K̃ - K̃² h,   Cov[w_i, e_i] = -var K̃ h

    Parameters
    ----------
    cavity_mean : (b,)        of w_i
    cavity_var : (b,)         of w_i
    derivative : (b,)              g of `ep_tilted`
    curvature : (b,)          h of `ep_tilted`
    cond_var : (b,)           K̃_ii

    Returns
    -------
    LatentMoments             mean, var: (b,) each, noise included
    """
    mean_w, mean_e = cavity_mean + cavity_var * derivative, cond_var * derivative
    var_w, var_e = cavity_var - cavity_var**2 * curvature, cond_var - cond_var**2 * curvature
    return LatentMoments(mean_w + mean_e, var_w + var_e - 2.0 * cavity_var * cond_var * curvature)


def ep_log_evidence(
    site_precision: Array,
    site_shift: Array,
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
    batch: NDArray[np.intp] | None = None,
) -> float:
    """EP's estimate of log p(y) under FITC, with every constant.

        log Z = Σ_i log s_i + log ∫ N(u|0, K_mm) Π_i exp(-½ a_i w_i² + b_i w_i) du
        log s_i = log Ẑ_i - log ∫ N(w|cavity) exp(-½ a w² + b w) dw

    the integrals being ½ bᵀκVκᵀb - ½ log|K_mm| + ½ log|V| and, with mean p and variance v of the cavity,
    ½ (2bp + b²v - ap²)/(1 + av) - ½ log(1 + av). A mini-batch S gives the estimate that has (n/s) Σ_{i in S} log s_i in
    the place of Σ_i log s_i.

    Parameters
    ----------
    site_precision : (n,)     a
    site_shift : (n,)         b
    y_sign : (n,)             labels, -1 or +1
    K_ZZ : (m, m)             K_mm
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃
    batch : (b,) or None      S, indices into the data; None is all of them

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular, or sites and prior leave no distribution
    ValueError                if a cavity is improper: its site has no scale
    """
    q, log_det = ep_posterior(site_precision, site_shift, upsilon, K_ZZ)
    rows = np.arange(len(y_sign)) if batch is None else batch
    cavity = ep_cavity(*q, site_precision[rows], site_shift[rows], upsilon[rows])
    if not np.all(cavity.proper):
        raise ValueError(f"site_precision: found {np.sum(~cavity.proper)} improper cavities, expected none")
    a, b, p, v = site_precision[rows], site_shift[rows], cavity.mean, cavity.var
    growth = 1.0 + a * v
    site_integral = 0.5 * (2.0 * b * p + b**2 * v - a * p**2) / growth - 0.5 * np.log(growth)
    log_scale = ep_tilted(p, v, y_sign[rows], cond_var[rows]).log_norm - site_integral
    shift = upsilon.T @ site_shift
    return float(len(y_sign) / len(rows) * np.sum(log_scale) + 0.5 * (shift @ q.inducing_mean - log_det))


def epgpc_gradients(
    X: Array,
    y_sign: Array,
    hyper: Hyper,
    site_precision: Array,
    site_shift: Array,
    batch: NDArray[np.intp],
    learn: Sequence[str] = FIELDS,
) -> dict[str, Any]:
    """Derivatives of EP's log Z in the hyper-parameters with a, b and the cavities held, from a mini-batch.

    At EP's fixed point log Z is stationary in the sites and cavities, so what is left is explicit: the prior of u, κ
    inside w_i = κ_i u, and K̃_ii inside Ẑ_i. With p_i, q(u) = N(mean, V) and Ẑ_i's derivative g and curvature h

        dlog Z = (n/s) Σ_{i in S} { (b_i - a_i p_i) dκ_i mean - a_i dκ_i V κ_iᵀ + ½ (g_i² - h_i) dK̃_ii }
                 - dKL(N(mean, V) || N(0, K_mm))

    which for S all data is the derivative of the converged log Z.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    hyper : Hyper             variance, lengthscales (d,), noise, jitter, Z
    site_precision : (n,)     a, at the fixed point
    site_shift : (n,)         b
    batch : (b,)              S, indices into the data
    learn : names             the fields whose derivatives are wanted

    Returns
    -------
    {"variance": float, "lengthscales": (d,), "noise": float, "Z": (m, d) unless the GP is full}

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular, or sites and prior leave no distribution
    """
    K = _prior.matrices(X, hyper)
    mean, V = ep_posterior(site_precision, site_shift, K.upsilon, K.K_ZZ).q
    a, b, kappa = site_precision[batch], site_shift[batch], K.upsilon[batch]
    cavity = ep_cavity(mean, V, a, b, kappa)
    tilted = ep_tilted(cavity.mean, cavity.var, y_sign[batch], K.cond_var[batch])
    by_cond = np.where(cavity.proper, 0.5 * (tilted.derivative**2 - tilted.curvature), 0.0)
    scale = len(y_sign) / len(batch)
    weights = _prior.Weights(scale * (b - a * (kappa @ mean)), -0.5 * scale * a, scale * by_cond)
    # of all sites, whatever the batch
    prior_part = _prior.prior_part_of_sites(K, V, site_precision, site_shift - site_precision * (K.upsilon @ mean))
    return _prior.gradients(X, hyper, K, Gaussian(mean, V), weights, prior_part, batch, learn)
