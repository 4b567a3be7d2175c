"""Loops: the four variants of EP to their fixed points, their evidence, gradients and predictions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._forms import chosen_form
from reference.common._iteration import Arrival
from reference.common.errors import NotPositiveDefiniteError
from reference.common.kernels import derivative_lengthscales, derivative_variance
from reference.common.options import Options, takes
from reference.riihimaki2013 import _check
from reference.riihimaki2013.evidence import ep_gradient, ep_log_marginal
from reference.riihimaki2013.model import kernel_se_ard, prior_covariance
from reference.riihimaki2013.nested_ep import DiagonalSites, Kind, NestedEP, NestedIEP
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

KINDS: dict[str, type[Any]] = {
    "nested-ep": NestedEP,
    "nested-iep": NestedIEP,
    "qep": QuadratureEP,
    "qiep": QuadratureIEP,
}


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
                              1000. callback: called with a State after each outer iteration. form "printed": the
                              algebra of appendix B, in which posteriors take O((c+1)n³), or O(cn³) for independent
                              classes; "projected": (4) by a square root of T, in which nothing cancels; None: by
                              `chosen_form`, digits being lost with the largest column sum of K. Of a full Λ the
                              appendix has no algebra, and qep with one is always projected

    Raises
    ------
    ValueError                naming the argument
    NotPositiveDefiniteError  if the prior is not usable
    """
    X, y, prior = _check.data(X, y, n_classes, prior)
    _check.choice(options.method, tuple(KINDS), "method")
    kind: Kind = KINDS[options.method](y, n_classes, options)
    K = prior_covariance(X, *prior)
    form = _form(options, kind, K)
    run = outer_iterations(kind, K, form, options)
    log_evidence, norms = evidence_of(kind, run.posterior, run.site_location)
    sites, latent = None, marginals(run.posterior.mean, run.posterior.cov, len(y))
    if form == "printed" and (sites := kind.diagonal()) is not None:
        latent = training_marginals(K, run.site_location.T.ravel(), m_of_sites(sites, K), len(y))
    return EPFit(
        options.method,
        run.site_precision,
        run.site_location,
        run.posterior,
        latent.mean,
        latent.cov,
        log_evidence,
        norms,
        kind.local(),
        np.array(run.trace),
        run.arrival.residual,
        run.converged,
        run.n_improper,
        run.iterations,
        options.method != "qep" or options.lambda_ == "full" or n_classes == 2,
        form,
        sites,
        _moment_gap(kind, latent) if isinstance(kind, NestedEP) else None,
    )


def _form(options: Options, kind: Kind, K: Array) -> str:
    """The form that is run, see `fit_ep`."""
    if kind.diagonal() is None:
        if options.form == "printed":
            raise ValueError("form: found 'printed' with full Λ, expected 'projected' or None for qep")
        return "projected"
    # K - KMK of appendix B loses digits with the square of the norm of K: 1e-13 of the variances at 700, 2e-11 at 1e4
    return chosen_form(options.form, lost=float(np.max(np.sum(np.abs(K), axis=0))))


@dataclass
class Run:
    """EP on its way: sites, the posterior that they make, and what the iterations were like."""

    site_precision: Array  # (n, c, c)
    site_location: Array  # (n, c)
    arrival: Arrival
    trace: list[float]
    posterior: Posterior = field(init=False)  # after the first iteration
    converged: bool = False
    n_improper: int = 0
    iterations: int = 0


def outer_iterations(kind: Kind, K: Array, form: str, options: Options) -> Run:
    """The algorithm of section 3: iterations from zero sites until none is farther than tolerance from its end.

    The size of a step is that of the undamped one, in the coordinates in which the marginal that the site sees is
    standard normal; successive sizes and their ratio ρ give the distance left, `reference.common._iteration`: with ρ
    near one many more steps of that size follow. A site whose cavity is no distribution, or whose quadrature makes no
    site, is left and counted. 200 iterations without a smaller step end the run: sites go round in circles.

    Parameters
    ----------
    kind : Kind               how a site is visited; holds the parameters of the sites
    K : (cn, cn)              prior covariance, class-major
    form : str                "printed" or "projected", of the posterior
    options : Options         of `fit_ep`
    """
    n = len(kind.y)
    c = len(K) // n
    limit = 1000 if options.max_iterations is None else options.max_iterations

    def posterior_of(K: Array, precision: Array, location: Array) -> Posterior:
        sites = kind.diagonal() if form == "printed" else None
        # fmt: off
        return (ep_posterior(K, precision, location) if sites is None                              # (4)
                else posterior_by_blocks(sites, K, location))                                      # appendix B
        # fmt: on

    # fmt: off
    run = Run(np.zeros((n, c, c)), np.zeros((n, c)), Arrival(options.tolerance), [])               # t̃_i = 1
    while run.iterations < limit and not run.converged and not run.arrival.stalled:
        visits = Visits(kind)                                                                      # 3.2 or 3.3
        run.site_precision, run.site_location, run.posterior = outer_schedule(                     # 3.1
            K, run.site_precision, run.site_location, visits, options.schedule, posterior_of)
        _count(run, visits.changes, n)
        if options.trace and (value := evidence_of(kind, run.posterior, run.site_location)[0]) is not None:   # (28)
            run.trace.append(value)
        if options.callback is not None:
            options.callback(State(run.iterations, run.arrival.residual, run.n_improper))
    return run
    # fmt: on


class Visits:
    """The visits of one outer iteration, as `outer_schedule` makes them; `changes` has the size of each full step."""

    def __init__(self, kind: Kind) -> None:
        """None made; kind holds the sites."""
        self.kind = kind
        self.changes: list[float] = []

    def __call__(self, i: int, mean: Array, cov: Array) -> Site | None:
        """One damped step of site i from its marginal mean (c,), cov (c, c); None where it is left."""
        step = self.kind.visit(i, mean, cov)
        if step is None:
            return None
        self.changes.append(step.change)
        return step.site


def _count(run: Run, changes: list[float], n: int) -> None:
    """Note the sizes of the steps of one iteration over n sites: those without a step are improper."""
    run.iterations += 1
    run.n_improper += n - len(changes)
    if changes:
        run.arrival.see(max(changes))
    run.converged = run.arrival.converged and len(changes) == n


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
        without = kind.cavity(i, mean, cov)
        if without is None:
            return None
        gaps.append(kind.moment_gap(i, without))
    return max(gaps)


def _m_of(fit: EPFit, K: Array) -> Array:
    """M = T(I + KT)⁻¹ of a fit, in its form."""
    return m_matrix(K, fit.site_precision) if fit.sites is None else m_of_sites(fit.sites, K)


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
    norms = np.empty(n)
    try:
        for i in range(n):
            without = kind.cavity(i, latent.mean[i], cov[i])
            if without is None:
                return None, np.zeros(0)
            cavities.append(without)
            norms[i] = kind.log_norm(i, without.mean, without.cov)
        value = ep_log_marginal(
            location.T.ravel(),
            posterior.mean,
            posterior.log_det,
            norms,
            np.stack([each.mean for each in cavities]),
            np.stack([each.cov for each in cavities]),
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
    M = _m_of(fit, K)
    location = fit.site_location.T.ravel()
    independent = fit.method in ("nested-iep", "qiep")
    mean, cov, raw = np.empty((len(X_test), c)), np.empty((len(X_test), c, c)), np.empty((len(X_test), c))
    for s, K_star in enumerate(cross_covariance(X_test, X, prior)):
        mean[s] = predict_latent_mean(K_star, location, M, K)
        cov[s] = predict_latent_covariance(np.diag(prior.variance + prior.noise), K_star, M)
        if options.prediction == "inner-ep":
            raw[s] = predict_class_probabilities(mean[s], cov[s])
        elif independent:
            raw[s] = independent_class_probabilities(mean[s], np.diag(cov[s]))
        else:
            raw[s] = [class_probability_from_g(mean[s], cov[s], k, options.prediction_nodes) for k in range(c)]
    mass = np.sum(raw, axis=1)
    return Prediction(mean, cov, raw / mass[:, None], mass)
