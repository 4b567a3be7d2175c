"""Loops: coordinate ascent, predictions and gradients of the bound from inputs and labels. No equation lives here."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.common.kernels import (
    derivative_inputs,
    derivative_lengthscales,
    derivative_variance,
)
from reference.wenzel2019.augmentation import pg_mean
from reference.wenzel2019.bound import xgpc_bound
from reference.wenzel2019.model import kernel_se_ard_noise
from reference.wenzel2019.prediction import predict_latent, predict_probability
from reference.wenzel2019.updates import from_natural, update_eta1, update_eta2, update_local

Array = NDArray[np.float64]

_REMEDY_X = "raise noise or jitter, or remove duplicate rows of X"
_REMEDY_Z = "raise jitter or remove duplicate rows of Z"


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


class _Matrices(NamedTuple):
    """What (10) and (11) need of the kernel."""

    K_ZZ: Array  # (m, m)
    K_ZZ_inv: Array  # (m, m)
    upsilon: Array  # (n, m)
    cond_var: Array  # (n,)


class _Inputs(NamedTuple):
    X: Array
    y_sign: Array
    variance: float
    lengthscales: Array
    noise: float
    jitter: float
    Z: Array | None


def _inputs(X: Any, y_sign: Any, variance: Any, lengthscales: Any, noise: Any, jitter: Any, Z: Any) -> _Inputs:
    X = _check.points(X, "X")
    d = X.shape[1]
    return _Inputs(
        X,
        _check.labels(y_sign, len(X)),
        _check.scalar(variance, "variance", zero_allowed=False),
        _check.positive_vector(lengthscales, "lengthscales", d),
        _check.scalar(noise, "noise", zero_allowed=True),
        _check.scalar(jitter, "jitter", zero_allowed=True),
        None if Z is None else _check.points(Z, "Z", d),
    )


def _matrices(
    X: Array, variance: float, lengthscales: Array, noise: float, jitter: float, Z: Array | None
) -> _Matrices:
    """K_mm, its inverse, κ and the diagonal of K̃.

    Full (Z is None): u = f, so K_mm = K_nn = k + (noise + jitter) I, κ = I, K̃ = 0.
    """
    if Z is None:
        K_XX = kernel_se_ard_noise(X, None, variance, lengthscales, noise + jitter)
        return _Matrices(K_XX, factorise(K_XX, "K_XX", _REMEDY_X).inverse, np.eye(len(X)), np.zeros(len(X)))
    K_ZZ = kernel_se_ard_noise(Z, None, variance, lengthscales, jitter)
    K_XZ = kernel_se_ard_noise(X, Z, variance, lengthscales, 0.0)
    K_ZZ_inv = factorise(K_ZZ, "K_ZZ", _REMEDY_Z).inverse
    upsilon = K_XZ @ K_ZZ_inv
    cond_var = variance + noise - np.sum(upsilon * K_XZ, axis=1)
    # K̃_ii >= 0, but for rounding of its two terms: a condition of K_ZZ that eats all but three digits is refused
    if np.min(cond_var) < -1e-3 * (variance + noise):
        raise NotPositiveDefiniteError(
            f"K_ZZ {K_ZZ.shape}: found K_tilde_ii = {np.min(cond_var):.3g} by rounding, expected >= 0; {_REMEDY_Z}"
        )
    return _Matrices(K_ZZ, K_ZZ_inv, upsilon, cond_var)


def _change(new: Array, old: Array, floor: float = 0.0) -> float:
    """Largest change of an entry, relative to the largest entry of the array or to the floor."""
    scale = max(float(np.max(np.abs(new))), floor)
    return float(np.max(np.abs(new - old))) / scale if scale > 0.0 else 0.0


def fit_xgpc(
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    callback: Callable[[XGPCState], None] | None = None,
) -> XGPCFit:
    """Coordinate ascent of the bound (10) of wenzel2019 in c, (11), and in Σ and μ, (18) and A.4.

    Starts at q(u) = p(u). One sweep sets c, then Σ and μ, to the maximum given the rest, so the bound never falls.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1; one class alone is allowed
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, added to the prior variance of each latent value at data and test points
    jitter : float            >= 0, added to the diagonal of K_ZZ (of K_XX if Z is None); nothing else ever is
    Z : (m, d) or None        inducing inputs; None is the full GP: u = f, K_mm = k + (noise + jitter) I, κ = I, K̃ = 0
    tolerance : float         wanted relative distance to the fixed point
    max_iterations : int      sweeps after which the loop gives up; `converged` is then False
    callback : callable       called with an XGPCState after every sweep

    Returns
    -------
    XGPCFit                   inducing_mean (m,), inducing_cov (m, m), c, theta, latent_mean, latent_var (n,), elbo,
                              trace (iterations,), residual, converged, iterations

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
    given = _inputs(X, y_sign, variance, lengthscales, noise, jitter, Z)
    tolerance = _check.scalar(tolerance, "tolerance", zero_allowed=False)
    max_iterations = _check.count(max_iterations, "max_iterations")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback: found {callback!r}, expected a callable or None")
    K = _matrices(given.X, given.variance, given.lengthscales, given.noise, given.jitter, given.Z)

    mu, Sigma, c = np.zeros(len(K.K_ZZ)), K.K_ZZ, np.zeros(len(given.X))
    eta_1 = update_eta1(K.upsilon, given.y_sign)
    trace: list[float] = []
    changes: list[float] = []
    rho, residual, converged = np.inf, np.inf, False
    while not converged and len(trace) < max_iterations and not _stalled(changes):
        c_new = update_local(mu, Sigma, K.upsilon, K.cond_var)
        eta_2 = update_eta2(pg_mean(1.0, c_new), K.upsilon, K.K_ZZ_inv)
        mu_new, Sigma_new = from_natural(eta_1, eta_2)
        uncancelled = 0.5 * float(np.max(np.sum(np.abs(Sigma_new @ K.upsilon.T), axis=1)))
        moved = _change(mu_new, mu, 0.01 * uncancelled), _change(Sigma_new, Sigma), _change(c_new, c)
        mu, Sigma, c = mu_new, Sigma_new, c_new
        trace.append(xgpc_bound(mu, Sigma, c, given.y_sign, K.K_ZZ, K.upsilon, K.cond_var))
        changes.append(max(moved))
        rho = _contraction(changes, rho)
        residual = _distance(changes[-1], rho)
        converged = residual < tolerance
        if callback is not None:
            callback(XGPCState(len(trace), trace[-1], residual, mu, Sigma, c))

    projected = K.upsilon @ mu
    spread = np.sum((K.upsilon @ Sigma) * K.upsilon, axis=1)
    return XGPCFit(
        mu,
        Sigma,
        c,
        pg_mean(1.0, c),
        projected,
        K.cond_var + spread,
        trace[-1],
        np.array(trace),
        residual,
        bool(converged),
        len(trace),
    )


def _distance(change: float, rho: float) -> float:
    """What is left to the fixed point after a last step of this size, for steps that shrink by rho."""
    if change == 0.0:
        return 0.0
    return change * max(1.0, rho / (1.0 - rho)) if rho < 1.0 else np.inf


def _stalled(changes: list[float]) -> bool:
    """Whether 200 sweeps brought no smaller change: only rounding moves the iterates."""
    return len(changes) > 200 and min(changes[-200:]) >= min(changes[:-200])


def _contraction(changes: list[float], earlier: float) -> float:
    """Largest ratio of successive changes in the last five sweeps; the earlier value once rounding takes over."""
    if len(changes) < 3:
        return np.inf
    recent = changes[-6:]
    largest = max(after / before for before, after in pairwise(recent))
    return earlier if earlier < 1.0 and (changes[-1] < 1e-9 or largest >= 1.0) else largest


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
    given = _inputs(X, np.ones(len(X)), variance, lengthscales, noise, jitter, Z)
    tests = _check.points(X_test, "X_test", X.shape[1], allow_empty=True)
    support = given.X if given.Z is None else given.Z
    _check_size(fit, len(support))
    on_diagonal = given.noise + given.jitter if given.Z is None else given.jitter
    K_ZZ = kernel_se_ard_noise(support, None, given.variance, given.lengthscales, on_diagonal)
    K_TZ = kernel_se_ard_noise(tests, support, given.variance, given.lengthscales, 0.0)
    k_tt = np.full(len(tests), given.variance + given.noise)
    latent = predict_latent(fit.inducing_mean, fit.inducing_cov, K_TZ, k_tt, K_ZZ)
    if np.any(latent.latent_var < 0.0):
        name, remedy = ("K_XX", _REMEDY_X) if given.Z is None else ("K_ZZ", _REMEDY_Z)
        raise NotPositiveDefiniteError(
            f"{name} {K_ZZ.shape}: found latent variance {np.min(latent.latent_var):.3g} at row "
            f"{np.argmin(latent.latent_var)} of X_test by rounding, expected >= 0; {remedy}"
        )
    labels = predict_probability(latent.latent_mean, latent.latent_var)
    return XGPCPrediction(latent.latent_mean, latent.latent_var, labels.probability, labels.probability_mass)


def _check_size(fit: XGPCFit, m: int) -> None:
    if fit.inducing_mean.shape != (m,):
        raise ValueError(f"fit: found inducing_mean of shape {fit.inducing_mean.shape}, expected ({m},)")


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

    Where (μ, Σ, c) maximise the bound they are the derivatives of the maximised bound. One parameter at a time, from
    dK_mm, dK_nm and the diagonal dk of dK_nn:

        dκ = (dK_nm - κ dK_mm) K_mm⁻¹
        dK̃_ii = dk_i - 2 dK_im κ_iᵀ + κ_i dK_mm κ_iᵀ
        dL = ½ Σ_i { y_i dκ_i μ - θ_i (dK̃_ii + 2 dκ_i Σ κ_iᵀ + 2 (κ_i μ)(dκ_i μ)) }
             - ½ { tr(K_mm⁻¹dK_mm) - tr(K_mm⁻¹dK_mm K_mm⁻¹Σ) - μᵀK_mm⁻¹dK_mm K_mm⁻¹μ }

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
    given = _inputs(X, y_sign, variance, lengthscales, noise, jitter, Z)
    K = _matrices(given.X, given.variance, given.lengthscales, given.noise, given.jitter, given.Z)
    _check_size(fit, len(K.K_ZZ))
    if fit.theta.shape != given.y_sign.shape:
        raise ValueError(f"fit: found theta of shape {fit.theta.shape}, expected {given.y_sign.shape}")
    n, d = given.X.shape
    m = len(K.K_ZZ)
    mu, Sigma, theta = fit.inducing_mean, fit.inducing_cov, fit.theta
    kernel = (given.variance, given.lengthscales)
    alpha = K.K_ZZ_inv @ mu  # K_mm⁻¹μ
    less = (K.upsilon.T * theta) @ K.upsilon @ Sigma @ K.K_ZZ_inv  # K_mm⁻¹ - K_mm⁻¹ΣK_mm⁻¹

    def slope(dK_mm: Array, dK_nm: Array, dk: Array) -> float:
        """dL for one parameter; in the full model κ = I and K̃ = 0 whatever the kernel."""
        dKL = 0.5 * (np.sum(less * dK_mm) - alpha @ dK_mm @ alpha)
        if given.Z is None:
            return float(-dKL)
        dkappa = (dK_nm - K.upsilon @ dK_mm) @ K.K_ZZ_inv
        dK_tilde = dk - 2.0 * np.sum(dK_nm * K.upsilon, axis=1) + np.sum((K.upsilon @ dK_mm) * K.upsilon, axis=1)
        dspread = 2.0 * np.sum((dkappa @ Sigma) * K.upsilon, axis=1)
        dsquare = 2.0 * (K.upsilon @ mu) * (dkappa @ mu)
        return float(0.5 * np.sum(given.y_sign * (dkappa @ mu) - theta * (dK_tilde + dspread + dsquare)) - dKL)

    if given.Z is None:
        nothing = np.zeros((n, n)), np.zeros(n)
        return XGPCGradients(
            slope(derivative_variance(given.X, given.X, *kernel), *nothing),
            np.array([slope(dK, *nothing) for dK in derivative_lengthscales(given.X, given.X, *kernel)]),
            slope(np.eye(n), *nothing),
            None,
        )
    Z = given.Z
    d_variance = slope(derivative_variance(Z, Z, *kernel), derivative_variance(given.X, Z, *kernel), np.ones(n))
    d_lengthscales = np.array(
        [
            slope(dK_mm, dK_nm, np.zeros(n))
            for dK_mm, dK_nm in zip(
                derivative_lengthscales(Z, Z, *kernel), derivative_lengthscales(given.X, Z, *kernel), strict=True
            )
        ]
    )
    d_noise = slope(np.zeros((m, m)), np.zeros((n, m)), np.ones(n))
    by_input_mm, by_input_nm = derivative_inputs(Z, Z, *kernel), derivative_inputs(given.X, Z, *kernel)
    d_Z = np.empty((m, d))
    for j in range(d):
        for p in range(m):  # z_pj moves column p of K_nm, and row and column p of K_mm
            dK_nm, dK_mm = np.zeros((n, m)), np.zeros((m, m))
            dK_nm[:, p] = by_input_nm[j][:, p]
            dK_mm[:, p] = by_input_mm[j][:, p]
            dK_mm[p, :] += by_input_mm[j][:, p]
            d_Z[p, j] = slope(dK_mm, dK_nm, np.zeros(n))
    return XGPCGradients(d_variance, d_lengthscales, d_noise, d_Z)
