"""Loops: fixed points of the five methods, hyper-parameters, predictions and gradients. No equation lives here."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._batches import planned_batches
from reference.common._iteration import change
from reference.common._options import shown
from reference.common.errors import NotPositiveDefiniteError, cholesky
from reference.common.options import Options, takes
from reference.common.probit import probit_probability
from reference.izmailov2016 import _prior
from reference.izmailov2016._prior import Inputs, Matrices
from reference.izmailov2016.algorithm1 import (
    jj_fixed_point,
    taylor_fixed_point,
    vi_jj,
    vi_jj_full,
    vi_jj_hybrid,
    vi_jj_init,
    vi_taylor,
)
from reference.izmailov2016.bound import (
    LIKELIHOODS,
    ElboGradient,
    elbo,
    elbo_gradient,
    elbo_gradients_at_maximum,
    expectations,
    gauss_hermite_expectation,
)
from reference.izmailov2016.jaakkola_jordan import jj_bound, jj_collapsed_gradient
from reference.izmailov2016.model import REMEDY_Z, Prior, latent_predictive, predictive_probability
from reference.izmailov2016.record import Sweeps, Variational
from reference.izmailov2016.sparse import marginal_moments, predict_latent
from reference.izmailov2016.svi import StepState, svi_adadelta, svi_fixed_point, svi_lbfgs
from reference.izmailov2016.taylor import taylor_bound, taylor_collapsed_gradient

Array = NDArray[np.float64]

_PATIENCE = 10_000  # iterations to a fixed point whose parameters are found, or beside it
METHODS = ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")


class VIFit(NamedTuple):
    """Where a method ended."""

    inducing_mean: Array  # (m,)    μ; the latent values at the data if Z is None
    inducing_cov: Array  # (m, m)   Σ
    xi: Array | None  # (n,)        none for svi
    latent_mean: Array  # (n,)
    latent_var: Array  # (n,)       noise included
    elbo: float  # every constant included; for vi-taylor an approximation of a bound
    trace: Array  # (iterations,)
    residual: float  # estimated relative distance to the fixed point
    converged: bool
    iterations: int
    hyper: Prior  # as learned
    reason: str = ""  # why it has not converged
    derivatives: ElboGradient | None = None  # svi: derivatives of (11) at the end
    quadrature_gap: float | None = None  # svi, logit: what 20 Gauss-Hermite nodes add to the data term of (11)


class VIPrediction(NamedTuple):
    """Predictions at the test points."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,)         noise included
    probability: Array  # (t, 2)      of -1 and +1
    probability_mass: Array  # (t,)   before normalising


def _ended(name: str, q: Variational, given: Inputs, K: Matrices, likelihood: str, sweeps: Sweeps) -> VIFit:
    """The answer of a method whose sweeps have ended at q: its bound, and what it alone has."""
    mu, Sigma, xi = q
    y_sign = given.y_sign
    # fmt: off
    if name == "svi":
        bound = elbo(mu, Sigma, y_sign, *K, likelihood)                                       # (11)
    elif name == "vi-taylor":
        bound = taylor_bound(mu, Sigma, xi, y_sign, *K, likelihood)                           # 4.2
    else:
        bound = jj_bound(mu, Sigma, xi, y_sign, *K)                                           # J
    # fmt: on
    fit = VIFit(
        mu,
        Sigma,
        None if name == "svi" else xi,
        *marginal_moments(mu, Sigma, *K),
        bound,
        np.array(sweeps.trace),
        sweeps.arrival.residual,
        sweeps.converged,
        len(sweeps.trace),
        given.hyper,
        sweeps.reason,
    )  # fmt: skip
    if name != "svi":
        return fit
    return fit._replace(
        derivatives=elbo_gradient(mu, cholesky(Sigma, "inducing_cov", REMEDY_Z), y_sign, *K, 1.0, likelihood),
        quadrature_gap=_quadrature_gap(fit, y_sign) if likelihood == "logit" else None,
    )


def _quadrature_gap(fit: VIFit, y_sign: Array) -> float:
    """Data term of (11) by 20 nodes, section 3.2, minus what it is."""
    var = np.maximum(fit.latent_var, 0.0)
    there = gauss_hermite_expectation(fit.latent_mean, var, y_sign, 20)
    return float(np.sum(there - expectations(fit.latent_mean, var, y_sign).value))


def _check_common(method: str, likelihood: Any) -> None:
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"name: found {shown(method)}, expected one of {', '.join(METHODS)}")
    allowed = LIKELIHOODS if method in ("svi", "vi-taylor") else ("logit",)
    if not isinstance(likelihood, str) or likelihood not in allowed:
        raise ValueError(
            f"likelihood: found {shown(likelihood)}, expected {' or '.join(map(repr, allowed))} for {method}"
        )


@takes("vi-jj")
def fit_vi(
    name: str,
    X: Array,
    y_sign: Array,
    hyper: Prior,
    likelihood: str = "logit",
    *,
    options: Options,
) -> VIFit:
    """A method of izmailov2016 on all data: its fixed point, after learning hyper-parameters if asked to.

    vi-jj, vi-jj-full, vi-jj-hybrid and vi-taylor run their own algorithm until the bound stands still. Without learn
    its second stage has no θ to move, and q(u) and ξ are then polished where it ended; with learn they are brought to
    the fixed point at the θ that it found. The first three iterate (15), (13), (12) there, by which all of them
    maximise (14); vi-taylor iterates ξ = m, (18), (17). svi maximises (11) over μ and Σ by natural gradients; with
    learn, L-BFGS-B over μ, L and θ comes first. `elbo` is the method's bound of μ, Σ and ξ: (11), J, or the
    approximate one of section 4.2.

    Parameters
    ----------
    name : str                "svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid" or "vi-taylor"
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1; one class alone is allowed
    hyper : Prior             variance > 0, lengthscales (d,) > 0, noise >= 0 (on each latent value at data and test
                              points), jitter >= 0 (on K_ZZ; on K_XX if Z is None), Z (m, d) or None for the full GP,
                              kernel, smoothness
    likelihood : str          "logit"; "probit" for svi and vi-taylor
    options : Options         of the method, or those of "vi-jj" by name. tolerance: wanted relative distance to the
                              fixed point; with learn also the relative change of the bound at which learning ends.
                              callback: called with an AlternationState or, while polishing, a VIState

    Returns
    -------
    VIFit                     with learn, trace and iterations are those of learning

    Raises
    ------
    ValueError                for bad input, by name
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    _check_common(name, likelihood)
    given = _prior.checked(X, y_sign, hyper)
    names = _prior.check_learn(options.learn, given.hyper)
    if name == "svi":
        return _svi(given, names, likelihood, options)
    tolerance, limit, callback = options.tolerance, options.max_iterations, options.callback
    made = 0  # rounds of the algorithm; steps of a search are none
    # fmt: off
    if name == "vi-jj-full":
        result = vi_jj_full(*given, names, tolerance, limit, callback if names else None)         # 4.1
    elif name == "vi-jj-hybrid":
        result = vi_jj_hybrid(*given, names, options.n_upd, options.n_fun, tolerance, limit, callback)   # 4.1
    elif name == "vi-taylor":
        result = vi_taylor(*given, names, options.n_upd, options.n_fun, tolerance, limit, callback, likelihood)   # 4.2
    else:
        result = vi_jj(*given, names, options.n_upd, options.n_fun, tolerance, limit, callback)   # algorithm 1
    given = given._replace(hyper=result.hyper)
    K = _prior.matrices(given.X, given.hyper)
    if names:                                                                                     # at the θ found
        q = Variational(*vi_jj_init(len(K.K_ZZ)), np.zeros(len(given.X)))
        sweeps = Sweeps(tolerance, _PATIENCE)
    else:                                                                                         # where it ended
        q, made = result.q, 0 if name == "vi-jj-full" else result.iterations
        sweeps = Sweeps(tolerance, max(limit - made, 0), callback, result.moves, made)
    if name == "vi-taylor":
        q = taylor_fixed_point(q, given.y_sign, K, sweeps, likelihood)                            # (18), (17)
    else:
        q = jj_fixed_point(q, given.y_sign, K, sweeps)                                            # (15), (13), (12)
    # fmt: on
    fit = _ended(name, q, given, K, likelihood, sweeps)
    if names:
        return _learned(fit, result.trace, result.iterations, result.converged)
    return fit._replace(trace=np.append(result.trace[:made], fit.trace), iterations=made + fit.iterations)


def _svi(given: Inputs, names: tuple[str, ...], likelihood: str, options: Options) -> VIFit:
    """svi: the maximum of (11) at given θ, or at the θ that L-BFGS-B finds."""
    if names:
        search = svi_lbfgs(*given, names, likelihood, options.tolerance, options.max_iterations)  # 5.1
        given = given._replace(hyper=search.parameters.hyper)
        sweeps = Sweeps(options.tolerance, _PATIENCE)
    else:
        sweeps = Sweeps(options.tolerance, options.max_iterations, options.callback)
    K = _prior.matrices(given.X, given.hyper)
    q = svi_fixed_point(given.y_sign, K, likelihood, sweeps)  # 3.2, (11)
    fit = _ended("svi", q, given, K, likelihood, sweeps)
    if not names:
        return fit
    return _learned(fit, search.trace, search.iterations, search.iterations < options.max_iterations)


def _learned(fit: VIFit, trace: Array, iterations: int, arrived: bool) -> VIFit:
    """The fit at learned θ, with what the learning went through."""
    reason = fit.reason if arrived else f"learning did not end within {iterations} iterations: raise max_iterations"
    return fit._replace(trace=trace, iterations=iterations, converged=fit.converged and arrived, reason=reason)


@takes("svi")
def fit_svi_batches(X: Array, y_sign: Array, hyper: Prior, likelihood: str = "logit", *, options: Options) -> VIFit:
    """svi by AdaDelta on mini-batches, from μ = 0, L = I; see `svi.svi_adadelta`.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    hyper : Prior             as in `fit_vi`
    likelihood : str          "logit" or "probit"
    options : Options         of "svi", or each by name; without batches batch_size (100) indices are drawn without
                              replacement in each of n_steps (1000) steps. trace: the mini-batch's estimate of the
                              bound after each step. callback: called with a StepState after each step

    Returns
    -------
    VIFit                     elbo from all data at the end; residual is the relative change in the last step;
                              converged is False, for there is no stopping rule

    Raises
    ------
    ValueError                for bad input, an empty or foreign mini-batch, divergence
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    """
    _check_common("svi", likelihood)
    given = _prior.checked(X, y_sign, hyper)
    names = _prior.check_learn(options.learn, given.hyper)
    size = 100 if options.batch_size is None else options.batch_size
    plan = planned_batches(len(given.X), options.batches, size, options.n_steps, options.seed, steps=1000)
    last: list[Any] = []

    def watch(state: StepState) -> None:
        last[:-1] = []
        last.append(state.parameters)
        if options.callback is not None:
            options.callback(state)

    run = svi_adadelta(*given, plan, options.rate, names, likelihood, options.trace, watch)
    mu, L, learned = run.parameters
    Sigma = L @ L.T
    K = _prior.matrices(given.X, learned)
    residual = np.inf
    if len(last) > 1:
        before = last[-2]
        residual = max(change(mu, before.inducing_mean), change(Sigma, before.inducing_chol @ before.inducing_chol.T))
    moments = marginal_moments(mu, Sigma, *K)
    value = elbo(mu, Sigma, given.y_sign, *K, likelihood)
    return VIFit(mu, Sigma, None, *moments, value, run.trace, residual, False, len(plan), learned)


def predict(fit: VIFit, X: Array, X_test: Array, likelihood: str = "logit") -> VIPrediction:
    """Latent distribution and class probabilities at test points, for any method of the paper.

    Parameters
    ----------
    fit : VIFit               with its hyper
    X : (n, d)                training inputs
    X_test : (t, d)           test inputs; t = 0 gives empty arrays
    likelihood : str          "logit" or "probit"

    Returns
    -------
    VIPrediction              latent_mean, latent_var (t,), probability (t, 2), probability_mass (t,)

    Raises
    ------
    ValueError                for bad input, a fit of another size
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular, or so close to it that a predictive variance is negative
    """
    X = _check.points(X, "X")
    tests = _check.points(X_test, "X_test", X.shape[1], allow_empty=True)
    hyper = fit.hyper
    K_ZZ = _prior.matrices(X, hyper).K_ZZ
    if fit.inducing_mean.shape != (len(K_ZZ),):
        raise ValueError(f"fit: found inducing_mean of shape {fit.inducing_mean.shape}, expected ({len(K_ZZ)},)")
    K_TZ = _prior.cross(tests, X, hyper)
    k_tt = np.full(len(tests), hyper.variance + hyper.noise)
    if hyper.Z is None:  # u = f
        latent = latent_predictive(fit.inducing_mean, fit.inducing_cov, K_ZZ, K_TZ, k_tt)  # (4)
    else:
        latent = predict_latent(fit.inducing_mean, fit.inducing_cov, K_ZZ, K_TZ, k_tt)  # end of 3.1
    if np.any(latent.latent_var < 0.0):
        matrix, advice = _prior.remedy(hyper)
        raise NotPositiveDefiniteError(
            f"{matrix} {K_ZZ.shape}: found latent variance {np.min(latent.latent_var):.3g} at row "
            f"{np.argmin(latent.latent_var)} of X_test by rounding, expected >= 0; {advice}"
        )
    if likelihood == "probit":
        columns = probit_probability(*latent)
        mass = np.sum(columns, axis=1)
        return VIPrediction(*latent, columns / mass[:, None], mass)
    prediction = predictive_probability(*latent)
    columns = np.stack([1.0 - prediction.probability, prediction.probability], axis=1)
    return VIPrediction(*latent, columns, prediction.probability_mass)


def gradients(
    name: str, fit: VIFit, X: Array, y_sign: Array, likelihood: str = "logit", learn: Sequence[str] = _prior.FIELDS
) -> dict[str, Any]:
    """Derivatives in the parameters of the prior of what a method maximises, at its fixed point.

    For svi those of (11) at fixed μ, Σ, for vi-jj* those of (14) at fixed ξ: as all of these are at their maximum,
    the total ones. For vi-taylor those of (19) at fixed ξ, which its second stage climbs; ξ maximises nothing.

    Parameters
    ----------
    name : str                the method
    fit : VIFit               what it gave
    X : (n, d)                inputs
    y_sign : (n,)             labels
    likelihood : str          "logit" or "probit"
    learn : names             the fields wanted, of "variance", "lengthscales", "noise", "Z"

    Returns
    -------
    {"variance": float, "lengthscales": (d,), "noise": float, "Z": (m, d) unless the GP is full}

    Raises
    ------
    ValueError                for bad input, a fit of another size
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    _check_common(name, likelihood)
    given = _prior.checked(X, y_sign, fit.hyper)
    X, y_sign, hyper = given
    K = _prior.matrices(X, hyper)
    if fit.inducing_mean.shape != (len(K.K_ZZ),) or fit.latent_mean.shape != y_sign.shape:
        raise ValueError(
            f"fit: found inducing_mean of shape {fit.inducing_mean.shape} and latent_mean of shape "
            f"{fit.latent_mean.shape}, expected ({len(K.K_ZZ)},) and {y_sign.shape}"
        )
    if name == "svi":
        derivatives = elbo_gradients_at_maximum(fit.inducing_mean, fit.inducing_cov, y_sign, *K, likelihood)
    elif fit.xi is None:
        raise ValueError(f"fit: found no xi, expected a fit of {name}")
    elif name == "vi-taylor":
        derivatives = taylor_collapsed_gradient(fit.xi, y_sign, *K, likelihood)
    else:
        derivatives = jj_collapsed_gradient(fit.xi, y_sign, *K).derivatives
    return _prior.through_kernel(derivatives, X, hyper, learn)
