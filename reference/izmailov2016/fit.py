"""Loops: fixed points of the five methods, hyper-parameters, predictions and gradients. No equation lives here."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._batches import planned_batches
from reference.common._iteration import Arrival, change
from reference.common._neighbours import Answer, gradient_answers, moment_answers, rounding_doubt
from reference.common._options import shown
from reference.common.errors import NotPositiveDefiniteError, cholesky, factorise
from reference.common.options import Options, takes
from reference.common.probit import probit_probability
from reference.izmailov2016 import _prior
from reference.izmailov2016._prior import Inputs, Matrices, Prior
from reference.izmailov2016.algorithm1 import (
    Alternation,
    Variational,
    largest_move,
    taylor_stage_one,
    vi_jj,
    vi_jj_full,
    vi_jj_hybrid,
    vi_jj_init,
    vi_jj_stage_one,
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
from reference.izmailov2016.jaakkola_jordan import jj_bound, jj_collapsed_bound, jj_collapsed_gradient
from reference.izmailov2016.model import REMEDY_Z, latent_predictive, predictive_probability
from reference.izmailov2016.sparse import marginal_moments, predict_latent
from reference.izmailov2016.svi import StepState, svi_adadelta, svi_lbfgs
from reference.izmailov2016.taylor import taylor_bound, taylor_collapsed_bound, taylor_collapsed_gradient

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
    reason: str = ""  # why it is not converged, where the distance is not what keeps it from that
    derivatives: ElboGradient | None = None  # svi: derivatives of (11) at the end
    quadrature_gap: float | None = None  # svi, logit: what 20 Gauss-Hermite nodes add to the data term of (11)


class VIState(NamedTuple):
    """What a callback is told after every iteration towards a fixed point."""

    iteration: int
    elbo: float
    residual: float
    inducing_mean: Array
    inducing_cov: Array


class VIPrediction(NamedTuple):
    """Predictions at the test points."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,)         noise included
    probability: Array  # (t, 2)      of -1 and +1
    probability_mass: Array  # (t,)   before normalising


class _Ascent(NamedTuple):
    q: Variational
    trace: Array
    residual: float
    converged: bool
    iterations: int


def _fixed_point(
    K: Matrices,
    start: Variational,
    update: Callable[[Variational], tuple[Variational, float]],
    value: Callable[[Variational], float],
    tolerance: float,
    max_iterations: int,
    callback: Callable[[VIState], None] | None,
    moves: Sequence[float] = (),
) -> _Ascent:
    """Updates, at least one, until the estimated distance of μ and Σ to the fixed point is below tolerance.

    An update gives the new q and the rate of its step: the distance is measured as if that had been whole, see
    `largest_move`. The moves of an algorithm that came before are part of the estimate: Newton's may have left nothing
    but rounding.
    """
    q, arrival = start, Arrival(tolerance)
    for moved in moves:
        arrival.see(moved)
    trace: list[float] = []
    while not (trace and arrival.converged) and len(trace) < max_iterations and not arrival.stalled:
        new, rate = update(q)
        arrival.see(largest_move(new, q, K) / rate)
        q = new
        trace.append(value(q))
        if callback is not None:
            callback(VIState(len(trace), trace[-1], arrival.residual, q.inducing_mean, q.inducing_cov))
    return _Ascent(q, np.array(trace), arrival.residual, arrival.converged, len(trace))


def _svi_update(
    K: Matrices, y_sign: Array, likelihood: str
) -> tuple[Callable[[Variational], tuple[Variational, float]], Callable[[Variational], float]]:
    """A natural-gradient step on (11), halved where the bound would fall; and the bound.

    In (Σ⁻¹μ, Σ⁻¹) a whole step goes to (κᵀ(p - 2 s m), K_mm⁻¹ - 2 κᵀdiag(s)κ), with p, s of `elbo_gradient`: the
    maximum of (11) is its fixed point. As s < 0, Σ stays positive definite.
    """
    K_inverse = factorise(K.K_ZZ, "K_ZZ", REMEDY_Z).inverse
    kappa = K.K_XZ @ K_inverse
    rate = ceiling = 1.0
    last = np.inf

    def value(q: Variational) -> float:
        return elbo(q.inducing_mean, q.inducing_cov, y_sign, *K, likelihood)

    def update(q: Variational) -> tuple[Variational, float]:
        nonlocal rate, ceiling, last
        moments = marginal_moments(q.inducing_mean, q.inducing_cov, *K)
        data = expectations(*moments, y_sign, likelihood)
        precision = K_inverse - 2.0 * (kappa.T * data.by_var) @ kappa
        shift = kappa.T @ (data.by_mean - 2.0 * data.by_var * moments.latent_mean)
        old = factorise(q.inducing_cov, "inducing_cov", REMEDY_Z).inverse
        now = value(q)
        while True:
            mixed = (1.0 - rate) * old + rate * precision
            Sigma = factorise(0.5 * (mixed + mixed.T), "precision of q(u)", REMEDY_Z).inverse
            mu = Sigma @ ((1.0 - rate) * old @ q.inducing_mean + rate * shift)
            new = Variational(mu, Sigma, q.xi)
            # near the fixed point the bound changes by rounding only
            if value(new) >= now - 1e-11 * (1.0 + abs(now)) or rate < 1e-6:
                break
            rate *= 0.5
        # there a whole step may overshoot by more than the distance, unseen by the bound: such rates are given up
        moved = change(new.inducing_cov, q.inducing_cov) / rate
        if moved > last and abs(value(new) - now) < 1e-6 * (1.0 + abs(now)):
            ceiling = max(0.5 * ceiling, 0.01)
        last = moved
        used, rate = rate, min(ceiling, 2.0 * rate)
        return new, used

    return update, value


def _settle(
    method: str,
    given: Inputs,
    likelihood: str,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[VIState], None] | None,
    start: Variational | None = None,
    moves: Sequence[float] = (),
) -> VIFit:
    """The fixed point of a method at given hyper-parameters; start, moves: where and how its own algorithm ended."""
    X, y_sign, hyper = given
    K = _prior.matrices(X, hyper)
    if start is None:
        # q(u) = p(u) for (11), algorithm 1's start for the others
        mu, Sigma = vi_jj_init(len(K.K_ZZ))
        start = Variational(mu, K.K_ZZ if method == "svi" else Sigma, np.zeros(len(X)))

    def value(q: Variational) -> float:
        if method == "vi-taylor":
            return taylor_collapsed_bound(q.xi, y_sign, *K, likelihood)
        return jj_collapsed_bound(q.xi, y_sign, *K)

    def update(q: Variational) -> tuple[Variational, float]:
        if method == "vi-taylor":
            return taylor_stage_one(q.inducing_mean, q.inducing_cov, y_sign, *K, 1, likelihood), 1.0
        return vi_jj_stage_one(q.inducing_mean, q.inducing_cov, y_sign, *K, 1), 1.0

    pair = _svi_update(K, y_sign, likelihood) if method == "svi" else (update, value)
    result = _fixed_point(K, start, *pair, tolerance, max_iterations, callback, moves)
    mu, Sigma, xi = result.q
    if method == "svi":
        bound = elbo(mu, Sigma, y_sign, *K, likelihood)
    elif method == "vi-taylor":
        bound = taylor_bound(mu, Sigma, xi, y_sign, *K, likelihood)
    else:
        bound = jj_bound(mu, Sigma, xi, y_sign, *K)
    fit = VIFit(
        mu,
        Sigma,
        None if method == "svi" else xi,
        *marginal_moments(mu, Sigma, *K),
        bound,
        result.trace,
        result.residual,
        result.converged,
        result.iterations,
        hyper,
    )
    if method != "svi":
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


def _certain(method: str, given: Inputs, likelihood: str, tolerance: float, fit: VIFit, X_test: Array | None) -> VIFit:
    """The fit, no longer called converged where rounding leaves its answer open."""
    if not fit.converged:
        return fit
    X, y_sign, hyper = given
    start = Variational(fit.inducing_mean, fit.inducing_cov, np.zeros(len(X)) if fit.xi is None else fit.xi)
    sd = float(np.sqrt(hyper.variance + hyper.noise))

    def answers(there: Prior) -> dict[str, Answer]:
        value = fit
        if there is not hyper:
            there_too = Inputs(X, y_sign, there)
            value = _settle(
                method, there_too, likelihood, tolerance, max_iterations=_PATIENCE, callback=None, start=start
            )
        derivatives = gradients(method, value, X, y_sign, likelihood)
        answer = {"elbo": Answer(value.elbo, 1.0)} | moment_answers(
            sd,
            inducing_mean=value.inducing_mean,
            inducing_cov=value.inducing_cov,
            latent_mean=value.latent_mean,
            latent_cov=value.latent_var,
        )
        if X_test is not None and len(X_test):
            latent = predict(value, X, X_test, likelihood)
            answer |= moment_answers(sd, test_latent_mean=latent.latent_mean, test_latent_cov=latent.latent_var)
        return answer | gradient_answers(derivatives, hyper, fit.elbo)

    reason = rounding_doubt(answers, hyper, [_prior.matrices(X, hyper).K_ZZ], tolerance=tolerance)
    return fit._replace(converged=not reason, reason=reason)


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
    X_test: Array | None = None,
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
    X_test : (t, d)           points whose predictions belong to the answer: where rounding leaves more than 1e-8 of it
                              open, or 100 eps times the condition number, `converged` is False and `reason` says so
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
    if X_test is not None:
        X_test = _check.points(X_test, "X_test", given.X.shape[1], allow_empty=True)
    names = _prior.check_learn(options.learn, given.hyper)
    tolerance, max_iterations, callback = options.tolerance, options.max_iterations, options.callback
    stopping = tolerance, max_iterations

    def algorithm() -> Alternation:
        if name == "vi-jj-full":
            return vi_jj_full(*given, names, *stopping, callback if names else None)
        if name == "vi-jj-hybrid":
            return vi_jj_hybrid(*given, names, options.n_upd, options.n_fun, *stopping, callback)
        if name == "vi-taylor":
            return vi_taylor(*given, names, options.n_upd, options.n_fun, *stopping, callback, likelihood)
        return vi_jj(*given, names, options.n_upd, options.n_fun, *stopping, callback)

    if not names and name == "svi":
        fit = _settle(name, given, likelihood, *stopping, callback)
        return _certain(name, given, likelihood, tolerance, fit, X_test)
    if not names:
        result = algorithm()
        rounds = 0 if name == "vi-jj-full" else result.iterations  # steps of a search are no rounds
        later, left = _later(callback, rounds), max(max_iterations - rounds, 0)
        fit = _settle(name, given, likelihood, tolerance, left, later, result.q, result.moves)
        fit = _certain(name, given, likelihood, tolerance, fit, X_test)
        trace = np.append(result.trace[:rounds], fit.trace)
        return fit._replace(trace=trace, iterations=rounds + fit.iterations)
    if name == "svi":
        search = svi_lbfgs(*given, names, likelihood, *stopping)
        learned, trace, iterations = search.parameters.hyper, search.trace, search.iterations
        arrived = search.iterations < max_iterations
    else:
        result = algorithm()
        learned, trace, iterations, arrived = result.hyper, result.trace, result.iterations, result.converged
    given = given._replace(hyper=learned)
    fit = _settle(name, given, likelihood, tolerance, max_iterations=_PATIENCE, callback=None)
    fit = _certain(name, given, likelihood, tolerance, fit, X_test)
    return fit._replace(trace=trace, iterations=iterations, converged=bool(fit.converged and arrived))


def _later(callback: Callable[[VIState], None] | None, iterations: int) -> Callable[[VIState], None] | None:
    """The callback with iterations counted from those before."""
    if callback is None:
        return None
    return lambda state: callback(state._replace(iteration=iterations + state.iteration))


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
