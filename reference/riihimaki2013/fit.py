"""Loops: the four variants of EP to their fixed points, their evidence, gradients and predictions."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._forms import chosen_form
from reference.common._iteration import Arrival
from reference.common.errors import NotPositiveDefiniteError
from reference.common.kernels import derivative_lengthscales, derivative_variance
from reference.common.options import checked_options
from reference.riihimaki2013 import _check
from reference.riihimaki2013.evidence import ep_gradient, ep_log_marginal
from reference.riihimaki2013.model import kernel_se_ard, prior_covariance
from reference.riihimaki2013.nested_ep import DiagonalSites, InnerOptions, Kind, NestedEP, NestedIEP
from reference.riihimaki2013.posterior import (
    Posterior,
    class_blocks,
    ep_log_determinant,
    ep_posterior,
    independent_m_matrix,
    m_matrix,
    marginals,
    outer_schedule,
    posterior_m_matrix,
    training_marginals,
)
from reference.riihimaki2013.prediction import (
    class_probability_from_g,
    independent_class_probabilities,
    predict_class_probabilities,
    predict_latent_covariance,
    predict_latent_mean,
)
from reference.riihimaki2013.qep import QuadratureEP, QuadratureIEP
from reference.riihimaki2013.sites import Moments, Site

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

METHODS = ("nested-ep", "nested-iep", "qep", "qiep")


class Prior(NamedTuple):
    """Hyper-parameters of every class."""

    variance: Array  # (c,)
    lengthscales: Array  # (c, d)
    noise: Array  # (c,)
    jitter: Array  # (c,)


class State(NamedTuple):
    """What a callback sees after an outer iteration."""

    iteration: int
    residual: float
    n_improper: int


class EPFit(NamedTuple):
    """What EP ended with."""

    method: str
    site_precision: Array  # (n, c, c)
    site_location: Array  # (n, c)
    posterior: Posterior
    latent_mean: Array  # (n, c)
    latent_cov: Array  # (n, c, c)
    log_evidence: float | None  # None if a cavity is no distribution
    log_tilted_norm: Array  # (n,), empty with log_evidence None
    local: dict[str, Array]
    trace: Array
    residual: float  # estimated distance of a site from its end
    converged: bool
    n_improper: int
    iterations: int
    stationary: bool  # sites keep all moments that they may: log Z does not move with them, `ep_gradients` holds
    form: str  # "printed": the algebra of appendix B; "projected": with a square root of T
    sites: DiagonalSites | None  # of which appendix B was run
    moment_gap: float | None  # nested-ep: how far a site is from matching the moments of its inner approximation


class Prediction(NamedTuple):
    """Latent values and class probabilities at test points."""

    latent_mean: Array  # (t, c)
    latent_cov: Array  # (t, c, c)
    probability: Array  # (t, c), rows sum to one
    probability_mass: Array  # (t,), before that


@checked_options("nested-ep")
def fit_ep(
    method: str,
    X: Array,
    y: Labels,
    n_classes: int,
    prior: Prior,
    schedule: str = "parallel",
    inner: str = "converged",
    inner_schedule: str = "sequential",
    inner_damping: float = 1.0,
    damping: float = 0.8,
    nodes: int = 10,
    diagonal: bool = True,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    trace: bool = False,
    callback: Callable[[State], Any] | None = None,
    form: str | None = None,
) -> EPFit:
    """EP with the multinomial probit likelihood from zero sites until no site is farther than tolerance from its end.

    The size of a step is that of the undamped one, in the coordinates in which the marginal that the site sees is
    standard normal; successive sizes and their ratio ρ give the distance left, `reference.common._iteration`: with ρ
    near one many more steps of that size follow. A site whose cavity is no distribution, or whose quadrature makes no
    site, is left and counted. 200 iterations without a smaller step end the run: sites go round in circles.

    Parameters
    ----------
    method : str              "nested-ep", "nested-iep", "qep" or "qiep"
    X : (n, d)                inputs
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           c
    prior : Prior             hyper-parameters of every class
    schedule : str            "parallel" or "sequential" outer updates
    inner : str               "converged", or "incremental": one inner sweep per visit
    inner_schedule : str      "sequential" or "parallel" within the inner algorithm
    inner_damping : float     damping of the inner steps
    damping : float           of the outer step, 1 = undamped
    nodes : int               of the quadratures of qep and qiep, per dimension
    diagonal : bool           qep: Λ cut to its diagonal
    tolerance : float         distance from the fixed point, as estimated, at which the run ends
    max_iterations : int      outer iterations after which it gives up and says so
    trace : bool              keep log Z after each iteration
    callback : callable       called with a State after each outer iteration
    form : str or None        "printed", the algebra of appendix B, in which posteriors take O((c+1)n³), or O(cn³) for
                              independent classes; "projected", (4) by a square root of T, in which nothing cancels;
                              None: by `chosen_form`, digits being lost with the largest column sum of K. Of a full Λ
                              the appendix has no algebra, and qep with one is always projected

    Raises
    ------
    ValueError                naming the argument
    NotPositiveDefiniteError  if the prior is not usable
    """
    X, y, prior = _check.data(X, y, n_classes, prior)
    _check.choice(method, METHODS, "method")
    _check.choice(schedule, ("parallel", "sequential"), "schedule")
    _check.choice(inner, ("converged", "incremental"), "inner")
    _check.choice(inner_schedule, ("parallel", "sequential"), "inner_schedule")
    _check.fraction(damping, "damping")
    _check.fraction(inner_damping, "inner_damping")
    _check.tolerance(tolerance)
    _check.count(max_iterations, "max_iterations")
    kind = _kind(method, y, n_classes, damping, InnerOptions(inner, inner_schedule, inner_damping), nodes, diagonal)
    K = prior_covariance(X, *prior)
    n = len(y)
    nested = kind if isinstance(kind, NestedEP) else None
    if kind.diagonal() is None:
        if form == "printed":
            raise ValueError("form: found 'printed' with full Λ, expected 'projected' or None for qep")
        form = "projected"
    # K - KMK of appendix B loses digits with the square of the norm of K: 1e-13 of the variances at 700, 2e-11 at 1e4
    form = chosen_form(form, lost=float(np.max(np.sum(np.abs(K), axis=0))))

    def refresh(K: Array, precision: Array, location: Array) -> Posterior:
        sites = kind.diagonal() if form == "printed" else None
        return ep_posterior(K, precision, location) if sites is None else posterior_by_blocks(sites, K, location)

    precision, location = np.zeros((n, n_classes, n_classes)), np.zeros((n, n_classes))
    posterior = Posterior(np.zeros(len(K)), K, 0.0)
    arrival, converged, n_improper, iterations = Arrival(tolerance), False, 0, 0
    history: list[float] = []
    while iterations < max_iterations and not converged and not arrival.stalled:
        changes: list[float] = []

        def visit(i: int, mean: Array, cov: Array, changes: list[float] = changes) -> Site | None:
            step = kind.visit(i, mean, cov)
            if step is None:
                return None
            changes.append(step.change)
            return step.site

        precision, location, posterior = outer_schedule(K, precision, location, visit, schedule, refresh)
        iterations += 1
        skipped = n - len(changes)
        n_improper += skipped
        if changes:
            arrival.see(max(changes))
        converged = arrival.converged and skipped == 0
        if trace:
            value = evidence_of(kind, posterior, location)[0]
            if value is not None:
                history.append(value)
        if callback is not None:
            callback(State(iterations, arrival.residual, n_improper))
    log_evidence, norms = evidence_of(kind, posterior, location)
    sites, latent = None, marginals(posterior.mean, posterior.cov, n)
    if form == "printed" and (sites := kind.diagonal()) is not None:
        latent = training_marginals(K, location.T.ravel(), m_of_sites(sites, K), n)
    return EPFit(
        method,
        precision,
        location,
        posterior,
        latent.mean,
        latent.cov,
        log_evidence,
        norms,
        kind.local(),
        np.array(history),
        arrival.residual,
        converged,
        n_improper,
        iterations,
        method != "qep" or not diagonal or n_classes == 2,
        form,
        sites,
        None if nested is None else _moment_gap(nested, latent),
    )


def m_of_sites(sites: DiagonalSites, K: Array) -> Array:
    """M = T(I + KT)⁻¹ (cn, cn) by appendix B of riihimaki2013; sites, and K (cn, cn) class-major."""
    pi, coupled = sites
    return posterior_m_matrix(pi, K) if coupled else independent_m_matrix(class_blocks(pi, K).B)


def posterior_by_blocks(sites: DiagonalSites, K: Array, site_location: Array) -> Posterior:
    """The posterior of the sites (12), or of diagonal ones, by the algebra of appendix B of riihimaki2013.

    Parameters
    ----------
    sites : DiagonalSites     what their precisions are made of
    K : (cn, cn)              prior covariance, class-major
    site_location : (n, c)    ν_i

    Raises
    ------
    NotPositiveDefiniteError  if the sites leave no distribution
    """
    nu = site_location.T.ravel()
    # fmt: off
    M = m_of_sites(sites, K)                                                                  # B
    log_det = (ep_log_determinant(sites.pi, K) if sites.coupled                               # B
               else class_blocks(sites.pi, K).log_det_a)                                      # of T = D: log|A|
    return Posterior(
        predict_latent_mean(K, nu, M, K),                                                     # (26), K for K_*
        predict_latent_covariance(K, K, M),                                                   # (27), K for K_** and K_*
        log_det,
    )
    # fmt: on


def _moment_gap(kind: NestedEP, latent: Moments) -> float | None:
    """The largest of all data, None if a cavity is no distribution."""
    gaps = []
    for i, (mean, cov) in enumerate(zip(latent.mean, latent.cov, strict=True)):
        left = kind.cavity(i, mean, cov)
        if left is None:
            return None
        gaps.append(kind.moment_gap(i, left))
    return max(gaps)


def _m_of(fit: EPFit, K: Array) -> Array:
    """M = T(I + KT)⁻¹ of a fit, in its form."""
    return m_matrix(K, fit.site_precision) if fit.sites is None else m_of_sites(fit.sites, K)


def _kind(
    method: str, y: Labels, n_classes: int, damping: float, options: InnerOptions, nodes: int, diagonal: bool
) -> Kind:
    if method == "nested-ep":
        return NestedEP(y, n_classes, damping, options)
    if method == "nested-iep":
        return NestedIEP(y, n_classes, damping, options)
    if method == "qep":
        return QuadratureEP(y, n_classes, damping, nodes, diagonal)
    return QuadratureIEP(y, n_classes, damping, nodes)


def evidence_of(kind: Kind, posterior: Posterior, location: Array) -> tuple[float | None, Array]:
    """log Z of (28) and the n log Z_q̂ in it; None and nothing if a cavity is no distribution.

    Parameters
    ----------
    kind : Kind               holds the sites
    posterior : Posterior     that they make
    location : (n, c)         ν_i
    """
    n, c = location.shape
    latent = marginals(posterior.mean, posterior.cov, n)
    cov = latent.cov * np.eye(c) if kind.independent else latent.cov
    cavities: list[Moments] = []
    norms = np.zeros(n)
    try:
        for i in range(n):
            left = kind.cavity(i, latent.mean[i], cov[i])
            if left is None:
                return None, np.zeros(0)
            cavities.append(left)
            norms[i] = kind.log_norm(i, left.mean, left.cov)
        value = ep_log_marginal(
            location.T.ravel(),
            posterior.mean,
            posterior.log_det,
            norms,
            np.stack([left.mean for left in cavities]),
            np.stack([left.cov for left in cavities]),
            latent.mean,
            cov,
        )
    except NotPositiveDefiniteError:
        return None, np.zeros(0)
    return value, norms


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
    M = _m_of(fit, K)
    flat = ep_gradient(fit.site_location.T.ravel(), M, K, covariance_derivatives(X, prior))
    return as_gradients(flat, len(prior.variance))


def cross_covariance(X_test: Array, X: Array, prior: Prior) -> Array:
    """K_* of each test point (t, c, cn); X_test (t, d), X (n, d), prior of every class."""
    n, c = len(X), len(prior.variance)
    K_star = np.zeros((len(X_test), c, c * n))
    for k in range(c):
        K_star[:, k, k * n : (k + 1) * n] = kernel_se_ard(X_test, X, float(prior.variance[k]), prior.lengthscales[k])
    return K_star


@checked_options("nested-ep", nodes="prediction_nodes")
def predict_ep(
    fit: EPFit, X: Array, X_test: Array, prior: Prior, prediction: str = "inner-ep", nodes: int | None = None
) -> Prediction:
    """Latent values and class probabilities at test points.

    Parameters
    ----------
    fit : EPFit               of `fit_ep`
    X : (n, d)                inputs
    X_test : (t, d)           test inputs
    prior : Prior             hyper-parameters of every class
    prediction : str          "inner-ep": normalisers of the inner algorithm; "quadrature": (25) as an orthant
                              probability by Sobol' points, or on the line where the classes are independent
    nodes : int or None       "quadrature": of a product rule in each dimension in place of Sobol' points

    Raises
    ------
    ValueError                naming the argument
    """
    _check.choice(prediction, ("inner-ep", "quadrature"), "prediction")
    c = len(prior.variance)
    K = prior_covariance(X, *prior)
    M = _m_of(fit, K)
    location = fit.site_location.T.ravel()
    independent = fit.method in ("nested-iep", "qiep")
    mean, cov, raw = np.empty((len(X_test), c)), np.empty((len(X_test), c, c)), np.empty((len(X_test), c))
    for s, K_star in enumerate(cross_covariance(X_test, X, prior)):
        mean[s] = predict_latent_mean(K_star, location, M, K)
        cov[s] = predict_latent_covariance(np.diag(prior.variance + prior.noise), K_star, M)
        if prediction == "inner-ep":
            raw[s] = predict_class_probabilities(mean[s], cov[s])
        elif independent:
            raw[s] = independent_class_probabilities(mean[s], np.diag(cov[s]))
        else:
            raw[s] = [class_probability_from_g(mean[s], cov[s], k, nodes) for k in range(c)]
    mass = np.sum(raw, axis=1)
    return Prediction(mean, cov, raw / mass[:, None], mass)
