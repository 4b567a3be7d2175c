"""Loops: coordinate ascent, predictions and gradients of the bound from inputs and labels. No equation lives here."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._iteration import Arrival, change
from reference.common.options import Options, takes
from reference.wenzel2019 import _prior
from reference.wenzel2019.augmentation import pg_mean
from reference.wenzel2019.bound import evidence_bound_chain, xgpc_bound
from reference.wenzel2019.prediction import predict_probability
from reference.wenzel2019.updates import (
    Gaussian,
    from_natural,
    gradient_mu,
    gradient_sigma,
    local_curvature,
    local_gradient,
    natural_gradient,
    to_natural,
    update_eta1,
    update_eta2,
    update_local,
    update_mu,
)

Array = NDArray[np.float64]


class Derivatives(NamedTuple):
    """Derivatives of the bound, all zero at its maximum but for the curvature, which is negative there."""

    c: Array  # (n,)            A.3
    curvature: Array  # (n,)    A.3, second derivative in c
    mu: Array  # (m,)           (16)
    Sigma: Array  # (m, m)      (15)
    eta_1: Array  # (m,)        A.3, natural gradient
    eta_2: Array  # (m, m)


class XGPCFit(NamedTuple):
    """Where coordinate ascent ended."""

    inducing_mean: Array  # (m,)    μ; the latent values at the data if Z is None
    inducing_cov: Array  # (m, m)   Σ
    c: Array  # (n,)
    theta: Array  # (n,)
    latent_mean: Array  # (n,)      of q(f_i) at the data
    latent_var: Array  # (n,)       noise included
    elbo: float  # a lower bound on log p(y), every constant included
    trace: Array  # (iterations,)   the bound after each sweep
    residual: float  # estimated relative distance to the fixed point, see fit_xgpc
    converged: bool
    iterations: int
    derivatives: Derivatives  # of the bound, where the ascent ended
    reason: str = ""  # why it has not converged


class XGPCState(NamedTuple):
    """What a callback is told after every sweep."""

    iteration: int
    elbo: float
    residual: float
    inducing_mean: Array
    inducing_cov: Array
    c: Array


class XGPCPrediction(NamedTuple):
    """Predictions at the test points."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,)       noise included
    probability: Array  # (t,)      p(y = +1)
    probability_mass: Array  # (t,) integral of the Gaussian density by the same quadrature


class XGPCGradients(NamedTuple):
    """Derivatives of the bound at fixed μ, Σ, c."""

    variance: float
    lengthscales: Array  # (d,)
    noise: float
    Z: Array | None  # (m, d)


@takes("x-gpc")
def fit_xgpc(
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
    *,
    options: Options,
) -> XGPCFit:
    """Coordinate ascent of the bound (10) of wenzel2019 in c, (11), and in μ and Σ, A.4 and (18).

    Starts at q(u) = p(u). One sweep sets c, then μ and Σ, to the maximum given the rest, so the bound never falls.
    `trace` is (10) after each sweep, `elbo` the bound at the end as section 4.2 defines it, and `derivatives` are the
    derivatives of appendix A.3 there.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1; one class alone is allowed
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, added to the prior variance of each latent value at data and test points
    jitter : float            >= 0, added to the diagonal of K_ZZ (of K_XX if Z is None); nothing else ever is
    Z : (m, d) or None        inducing inputs; None is the full GP: u = f, K_mm = k + (noise + jitter) I, κ = I, K̃ = 0
    options : Options         of "x-gpc", or each by name; those of learning are not looked at; callback: called with an
                              XGPCState after every sweep

    Returns
    -------
    XGPCFit                   inducing_mean (m,), inducing_cov (m, m), c, theta, latent_mean, latent_var (n,), elbo,
                              trace (iterations,), residual, converged, iterations, derivatives

    Raises
    ------
    ValueError                for NaN, infinity, wrong shapes, labels other than -1 and +1, non-positive scales
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular, or so close to it that K̃ comes out negative

    Notes
    -----
    The ascent converges linearly: with contraction factor ρ < 1, a last change of size r leaves a distance of about
    r ρ/(1 - ρ). r is the largest relative change of μ, Σ and c in one sweep; ρ is the largest ratio of successive r
    within the last five sweeps, held once r is below 1e-9 or no longer falls, where rounding would blur it.
    `residual` is r max(1, ρ/(1 - ρ)), and the loop stops when it is below tolerance. It also stops, with `converged`
    False, when 200 sweeps bring no smaller r: Σ comes from the inverse of an inverse, so rounding moves the iterates
    by about the condition of K_ZZ (K_XX) times 1e-18, which passes 1e-10 at conditions of some 1e8. What `residual`
    does not see is the rounding in K_mm⁻¹ itself, formed once: the fixed point is that of a matrix which is off by
    about eps times its condition.
    μ is measured against the larger of its largest entry and 1 % of what it would be if all labels pulled one way:
    where labels cancel, the digits of μ that are left are those of rounding.
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    return ascend(given, options.tolerance, options.max_iterations, options.callback)


def ascend(
    given: _prior.Inputs,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[XGPCState], None] | None = None,
) -> XGPCFit:
    """The sweeps of `fit_xgpc`.

    Parameters
    ----------
    given : Inputs            checked
    tolerance : float         see `fit_xgpc`
    max_iterations : int      see `fit_xgpc`
    callback : callable       see `fit_xgpc`
    """
    y = given.y_sign
    K = _prior.matrices(given.X, given.hyper)
    K_mm, K_inv, kappa, K_tilde = K

    mu, Sigma, c = np.zeros(len(K_mm)), K_mm, np.zeros(len(y))
    eta_1 = update_eta1(kappa, y)
    trace: list[float] = []
    arrival = Arrival(tolerance)
    # fmt: off
    while not arrival.converged and len(trace) < max_iterations and not arrival.stalled:
        before = mu, Sigma, c
        c = update_local(mu, Sigma, kappa, K_tilde)                                 # (11)
        theta = pg_mean(1.0, c)                                                     # θ_i, below (10)
        mu = update_mu(theta, kappa, y, K_inv)                                      # A.4
        Sigma = from_natural(eta_1, update_eta2(theta, kappa, K_inv)).inducing_cov  # (18)
        trace.append(xgpc_bound(mu, Sigma, c, y, K_mm, kappa, K_tilde))             # (10)
        arrival.see(_moved((mu, Sigma, c), before, kappa))
        if callback is not None:
            callback(XGPCState(len(trace), trace[-1], arrival.residual, mu, Sigma, c))

    theta = pg_mean(1.0, c)
    L = evidence_bound_chain(mu, Sigma, c, y, K_mm, kappa, K_tilde)                 # 4.2, of (8)
    derivatives = Derivatives(
        local_gradient(c, mu, Sigma, kappa, K_tilde),                               # A.3
        local_curvature(c, mu, Sigma, kappa, K_tilde),                              # A.3
        gradient_mu(mu, theta, kappa, y, K_inv),                                    # (16)
        gradient_sigma(Sigma, theta, kappa, K_inv),                                 # (15)
        *natural_gradient(*to_natural(mu, Sigma), theta, kappa, y, K_inv),          # A.3, end
    )
    # fmt: on
    return XGPCFit(
        mu,
        Sigma,
        c,
        theta,
        *_prior.latent_moments(K, mu, Sigma),
        L,
        np.array(trace),
        arrival.residual,
        arrival.converged,
        len(trace),
        derivatives,
        "" if arrival.converged else arrival.reason(len(trace)),
    )


def _moved(new: tuple[Array, Array, Array], old: tuple[Array, Array, Array], kappa: Array) -> float:
    """Largest relative change of μ, Σ and c; see the notes of `fit_xgpc` on μ."""
    uncancelled = 0.5 * float(np.max(np.sum(np.abs(new[1] @ kappa.T), axis=1)))
    floors = 0.01 * uncancelled, 0.0, 0.0
    return max(change(after, before, floor) for after, before, floor in zip(new, old, floors, strict=True))


def predict_xgpc(
    fit: XGPCFit,
    X: Array,
    X_test: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
) -> XGPCPrediction:
    """Latent moments (13) and class probabilities (14) of wenzel2019 at test points.

    Parameters
    ----------
    fit : XGPCFit             what fit_xgpc returned for the same X, parameters and Z
    X : (n, d)                training inputs
    X_test : (t, d)           test inputs; t = 0 gives empty arrays
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, part of the latent variance of a test point
    jitter : float            >= 0, part of K_ZZ (K_XX) only
    Z : (m, d) or None        inducing inputs; None is the full GP

    Returns
    -------
    XGPCPrediction            latent_mean, latent_var, probability (of +1), probability_mass, each (t,)

    Raises
    ------
    ValueError                for NaN, infinity, wrong shapes, non-positive scales, a fit of another size
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular, or so close to it that a predictive variance is negative
    """
    X = _check.points(X, "X")
    given = _prior.checked(X, np.ones(len(X)), variance, lengthscales, noise, jitter, Z)
    latent = _prior.predict(fit.inducing_mean, fit.inducing_cov, given.X, X_test, given.hyper)
    labels = predict_probability(latent.latent_mean, latent.latent_var)
    return XGPCPrediction(latent.latent_mean, latent.latent_var, labels.probability, labels.probability_mass)


def bound_gradients(
    fit: XGPCFit,
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
) -> XGPCGradients:
    """Derivatives of the bound (10) of wenzel2019 in the kernel's parameters and in Z, at fixed μ, Σ, c.

    Where (μ, Σ, c) maximise the bound they are the derivatives of the maximised bound. The data terms depend on the
    kernel through κ_i μ, κ_i Σ κ_iᵀ and K̃_ii, with derivatives y_i/2 - θ_i κ_i μ, -θ_i/2 and -θ_i/2; `_prior.gradients`
    carries these through the kernel, one parameter at a time.

    The two traces nearly cancel where q(u) is close to p(u). The fit's Σ satisfies (18), by which
    K_mm⁻¹ - K_mm⁻¹ΣK_mm⁻¹ = κᵀΘκ Σ K_mm⁻¹, and their difference is taken in that form.

    Parameters
    ----------
    fit : XGPCFit             what fit_xgpc returned for the same arguments
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0
    jitter : float            >= 0, held fixed
    Z : (m, d) or None        inducing inputs; None is the full GP

    Returns
    -------
    XGPCGradients             variance, lengthscales (d,), noise, Z (m, d) or None

    Raises
    ------
    ValueError                for NaN, infinity, wrong shapes, non-positive scales, a fit of another size
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    K = _prior.matrices(given.X, given.hyper)
    mu, Sigma, theta = fit.inducing_mean, fit.inducing_cov, fit.theta
    if mu.shape != (len(K.K_ZZ),):
        raise ValueError(f"fit: found inducing_mean of shape {mu.shape}, expected ({len(K.K_ZZ)},)")
    if theta.shape != given.y_sign.shape:
        raise ValueError(f"fit: found theta of shape {theta.shape}, expected {given.y_sign.shape}")
    weights = _prior.Weights(0.5 * given.y_sign - theta * (K.upsilon @ mu), -0.5 * theta, -0.5 * theta)
    prior_part = _prior.prior_part_of_sites(K, Sigma, theta, weights.mean)
    gradients = _prior.gradients(given.X, given.hyper, K, Gaussian(mu, Sigma), weights, prior_part)
    return XGPCGradients(gradients["variance"], gradients["lengthscales"], gradients["noise"], gradients.get("Z"))
