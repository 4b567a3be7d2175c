"""svgpc: sparse variational GP classification with the probit link, natural gradients. A baseline of wenzel2019.

The bound of Hensman et al. 2015, L = sum_i E[log Phi(y_i f_i)] - KL(q(u) || p(u)), by the natural gradients of
Salimbeni et al. 2018. With m_i, v_i the moments of q(f_i) and g = log Phi(y .), Bonnet and Price give dL/dm_i = E[g'],
dL/dv_i = E[g'']/2, and a natural-gradient step of rate rho moves Gaussian sites (see `fast.one_latent.sites`)

    tau_i <- (1 - rho) tau_i - rho E[g''_i],     nu_i <- (1 - rho) nu_i + rho (E[g'_i] - E[g''_i] m_i).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.inputs import Hyper
from fast.core.linalg import solve_rows
from fast.core.options import Storage, checked_options
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.likelihood.probit import LinkMoments, class_probabilities, expected_log_probit
from fast.methods.x_gpc import Prepared, prepare
from fast.one_latent.learning import Learned, maximise
from fast.one_latent.predict import full_latent, sparse_latent
from fast.one_latent.prior import FullPrior
from fast.one_latent.site_gradients import full_site_gradients, sparse_site_gradients
from fast.one_latent.sites import SitePosterior, condition, kl_from_sites
from fast.solve.adam import Packing
from fast.solve.site_iteration import Progress, Visit, settle


@dataclass(frozen=True, eq=False)
class SVGPCPosterior:
    """q(u) at the fixed point."""

    prior: Prepared
    sites: SitePosterior
    link: LinkMoments  # E[log Phi] and its derivatives under q(f_i)
    site_precision: FloatArray  # (n,)
    site_shift: FloatArray  # (n,)
    latent_var: FloatArray  # (n,) variance of q(f_i), noise included
    elbo: float  # lower bound on log p(y), every constant in it
    trace: FloatArray  # bound after each step
    residual: float  # estimated scaled distance of the sites from the fixed point
    converged: bool

    @property
    def iterations(self) -> int:
        """Steps made."""
        return self.trace.size

    @property
    def latent_mean(self) -> FloatArray:
        """Mean of q(f_i): (n,)."""
        return self.sites.proj_mean

    @property
    def inducing_mean(self) -> FloatArray:
        """mu: (m,); the latent means for a full GP."""
        return site_inducing_mean(self.prior, self.sites)

    @property
    def inducing_cov(self) -> FloatArray:
        """Sigma: (m, m), computed when asked for in O(m^3); of all latent values for a full GP."""
        return site_inducing_cov(self.prior, self.sites, self.site_precision)


@dataclass(frozen=True, eq=False)
class ProbitPrediction:
    """Predictions at t test points."""

    latent_mean: FloatArray  # (t,)
    latent_var: FloatArray  # (t,), noise included
    probabilities: FloatArray  # (t, 2), rows sum to 1
    probability_mass: FloatArray  # (t,), their sum before normalising


def site_inducing_mean(prior: Prepared, posterior: SitePosterior) -> FloatArray:
    """Mean of u under q: (m,).

    Parameters
    ----------
    prior        from `prepare`
    posterior    q given the sites
    """
    return posterior.proj_mean.copy() if isinstance(prior, FullPrior) else prior.chol_K @ posterior.weights


def site_inducing_cov(prior: Prepared, posterior: SitePosterior, site_precision: FloatArray) -> FloatArray:
    """Covariance of u under q: (m, m).

    Parameters
    ----------
    prior                    from `prepare`
    posterior                q given the sites
    site_precision : (n,)    tau
    """
    if isinstance(prior, FullPrior):
        explained = solve_rows(posterior.factor, prior.K * np.sqrt(site_precision))  # row i: R^-1 S k_i
        return prior.K - explained @ explained.T
    spread = solve_rows(posterior.factor, np.array(prior.chol_K, order="C"))  # row i: R^-1 (row i of L)
    return spread @ spread.T


def bound(link: LinkMoments, posterior: SitePosterior, site_precision: FloatArray) -> float:
    """sum_i E[log Phi(y_i f_i)] - KL(q(u) || p(u)) for q given by sites.

    Parameters
    ----------
    link                     expectations under q(f_i)
    posterior                q given the sites
    site_precision : (n,)    tau
    """
    return float(link.value.sum()) - kl_from_sites(posterior, site_precision)


def natural_target(link: LinkMoments, latent_mean: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sites after a natural-gradient step of rate 1: tau = -E[g''], nu = E[g'] + tau m.

    Parameters
    ----------
    link                  expectations under q(f_i)
    latent_mean : (n,)    m
    """
    return -link.curvature, link.slope - link.curvature * latent_mean


def cond_var_of(prior: Prepared) -> FloatArray | float:
    """Variance of f_i that the inducing values leave open: (n,), 0 for a full GP.

    Parameters
    ----------
    prior    from `prepare`
    """
    return 0.0 if isinstance(prior, FullPrior) else prior.cond_var


@checked_options("svgpc")
def converge(
    prior: Prepared,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    accelerate: bool = True,
    callback: Callable[[Progress], None] | None = None,
    start: tuple[FloatArray, FloatArray] | None = None,
    expected: Callable[[FloatArray, FloatArray, FloatArray], LinkMoments] | None = None,
) -> SVGPCPosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior                    from `prepare`
    tolerance, max_iterations, accelerate, callback    see `fit`
    start : pair of (n,)     sites to start from; default: none, q = p
    expected : callable      (y_sign, m, v) -> LinkMoments of a log-concave likelihood; default: the probit
    """
    cond_var = cond_var_of(prior)

    def visit(site_precision: FloatArray, site_shift: FloatArray) -> Visit:
        sites = condition(prior, site_precision, site_shift)
        latent_var = sites.proj_var + cond_var
        link = (expected or expected_log_probit)(prior.y_sign, sites.proj_mean, latent_var)
        return Visit(
            site_precision,
            site_shift,
            *natural_target(link, sites.proj_mean),
            latent_var,
            bound(link, sites, site_precision),
            0,
            (sites, link),
        )

    n = prior.y_sign.size
    end = settle(
        visit,
        (np.zeros(n), np.zeros(n)) if start is None else start,
        tolerance=tolerance,
        max_iterations=max_iterations,
        monotone=True,
        accelerate=accelerate,
        callback=callback,
    )
    last = end.visit
    sites, link = last.payload
    return SVGPCPosterior(
        prior,
        sites,
        link,
        last.site_precision,
        last.site_shift,
        last.latent_var,
        last.objective,
        end.trace,
        end.residual,
        end.converged,
    )


@checked_options("svgpc")
def fit(
    X: Any,
    y: Any,
    variance: float,
    lengthscales: Any,
    noise: float,
    jitter: float,
    Z: Any = None,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    block_size: int = 4096,
    callback: Callable[[Progress], None] | None = None,
    accelerate: bool = True,
    memory_budget: int = 2**30,
) -> SVGPCPosterior:
    """Natural gradients of all data to the maximum of the bound, hyper-parameters held; the bound never falls.

    Starts at q = p. Time a step 2 n m^2 + m^3/3 plus one quadrature a datum; full 5 n^3/3.

    Parameters
    ----------
    X : (n, d)               real, finite; may be a numpy.memmap, read in blocks
    y : (n,)                 ints 0, 1
    variance, noise, jitter  of the prior: > 0, >= 0, >= 0
    lengthscales : (d,)      > 0
    Z : (m, d) or None       None: full GP
    tolerance : float        scaled distance of the sites from the fixed point (see `fast.solve.site_iteration`)
    max_iterations : int     steps after which to give up; `converged` is False then
    block_size : int         data points handled at a time, at most
    callback : callable      called with a Progress after every step
    accelerate : bool        guarded Anderson mixing, or plain steps of rate 1, halved where the bound would fall
    memory_budget : int      bytes: A is kept if n m numbers fit, else computed again in every pass

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    tolerance = inputs.scalar("tolerance", tolerance, positive=True)
    max_iterations = inputs.count("max_iterations", max_iterations)
    prior = prepare(
        Data(X, y),
        Prior(variance, lengthscales, noise, jitter, Z),
        Storage(block_size=block_size, memory_budget=memory_budget),
    )
    return converge(
        prior, tolerance=tolerance, max_iterations=max_iterations, accelerate=bool(accelerate), callback=callback
    )


@checked_options("svgpc")
def predict_sites(
    prior: Prepared,
    sites: SitePosterior,
    site_precision: FloatArray,
    X_test: Any,
    *,
    block_size: int = 4096,
) -> ProbitPrediction:
    """Latent moments and P(y = 1) = Phi(m / sqrt(1 + v)) at test points, for any q given by sites.

    Time O(t m (m + d)), with n for m if full.

    Parameters
    ----------
    prior                    from `prepare`
    sites                    q given the sites
    site_precision : (n,)    tau
    X_test : (t, d)          t may be 0
    block_size : int         test points at a time
    """
    X_test = inputs.inputs("X_test", X_test, prior.hyper.lengthscales.size, allow_empty=True)
    block_size = inputs.count("block_size", block_size)
    if isinstance(prior, FullPrior):
        mean, var = full_latent(X_test, prior.X, prior.hyper, site_precision, sites.factor, sites.weights, block_size)
    else:
        mean, var = sparse_latent(X_test, prior.Z, prior.hyper, prior.chol_K, sites.factor, sites.weights, block_size)
    return probit_prediction(mean, var)


def probit_prediction(latent_mean: FloatArray, latent_var: FloatArray) -> ProbitPrediction:
    """Class probabilities at latent moments. Time O(t).

    Parameters
    ----------
    latent_mean, latent_var : (t,)
    """
    probabilities = class_probabilities(latent_mean, latent_var)
    mass = probabilities.sum(axis=1)
    return ProbitPrediction(latent_mean, latent_var, probabilities / mass[:, None], mass)


@checked_options("svgpc")
def predict(posterior: SVGPCPosterior, X_test: Any, *, block_size: int = 4096) -> ProbitPrediction:
    """Predictions of a batch fit.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_sites(posterior.prior, posterior.sites, posterior.site_precision, X_test, block_size=block_size)


def gradients(posterior: SVGPCPosterior) -> Gradients:
    """Gradient of the bound at its maximum over q(u): variance float, lengthscales (d,), noise float, Z (m, d) or None.

    Parameters
    ----------
    posterior    from `fit`
    """
    prior, sites = posterior.prior, posterior.sites
    if isinstance(prior, FullPrior):
        return full_site_gradients(prior, sites.factor, sites.weights, posterior.site_precision)
    precision = -posterior.link.curvature
    return sparse_site_gradients(prior, sites.factor, sites.weights, posterior.link.slope, precision, precision)


def learn_prior(
    converge: Callable[..., Any],
    value_and_gradients: Callable[[Any], tuple[float, Gradients]],
    X: Any,
    y: Any,
    variance: float,
    lengthscales: Any,
    noise: float,
    jitter: float,
    Z: Any,
    *,
    learn: Iterable[str],
    learning_iterations: int,
    learning_tolerance: float,
    block_size: int,
    memory_budget: int,
    smoothness: float | None = None,
) -> tuple[Any, Learned]:
    """L-BFGS-B on an objective of sites, each evaluation converged from the sites of the one before.

    Parameters
    ----------
    converge : callable                    (prior, start=sites) -> posterior
    value_and_gradients : callable         posterior -> what is maximised, and its gradient
    X, y, variance, lengthscales, noise, jitter, Z, block_size, memory_budget    see `fit`
    learn                                  names out of variance, lengthscales, noise, Z
    learning_iterations : int              of L-BFGS-B
    learning_tolerance : float             on the gradient in logarithms (Z as it is)
    smoothness : float                     of a Matérn kernel; None: squared exponential

    Returns
    -------
    posterior at the best parameters, and how the search went
    """
    X = inputs.inputs("X", X)
    hyper = inputs.hyper(variance, lengthscales, noise, jitter, X.shape[1], smoothness)
    Z = None if Z is None else inputs.finite_rows("Z", inputs.inputs("Z", Z, X.shape[1])).copy()
    packing = Packing(learn, hyper, Z)
    if packing.size == 0:
        raise ValueError("learn: found no name, expected some of variance, lengthscales, noise, Z")
    start: tuple[FloatArray, FloatArray] | None = None

    def posterior_at(hyper: Hyper, Z: FloatArray | None) -> Any:
        prior = prepare(
            Data(X, y),
            Prior(*hyper[:4], Z, smoothness=hyper.smoothness),
            Storage(block_size=block_size, memory_budget=memory_budget),
        )
        return converge(prior, start=start)

    def evaluate(hyper: Hyper, Z: FloatArray | None) -> tuple[float, Gradients]:
        nonlocal start
        posterior = posterior_at(hyper, Z)
        start = (posterior.site_precision, posterior.site_shift)
        return value_and_gradients(posterior)

    found = maximise(
        evaluate,
        packing,
        max_iterations=inputs.count("learning_iterations", learning_iterations),
        tolerance=inputs.scalar("learning_tolerance", learning_tolerance, positive=True),
    )
    return posterior_at(found.hyper, found.Z), found


@checked_options("svgpc")
def fit_learning(
    X: Any,
    y: Any,
    variance: float,
    lengthscales: Any,
    noise: float,
    jitter: float,
    Z: Any = None,
    *,
    learn: Iterable[str],
    learning_iterations: int = 200,
    learning_tolerance: float = 1e-5,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    block_size: int = 4096,
    memory_budget: int = 2**30,
) -> tuple[SVGPCPosterior, Learned]:
    """Maximise the bound over q(u) and over parameters of the prior, by L-BFGS-B.

    Parameters
    ----------
    X, y, variance, lengthscales, noise, jitter, Z, tolerance, max_iterations, block_size, memory_budget    see `fit`
    learn                         names out of variance, lengthscales, noise, Z
    learning_iterations : int     of L-BFGS-B
    learning_tolerance : float    on the gradient in logarithms (Z as it is)
    """
    return learn_prior(
        partial(converge, tolerance=tolerance, max_iterations=max_iterations),
        lambda posterior: (posterior.elbo, gradients(posterior)),
        X,
        y,
        variance,
        lengthscales,
        noise,
        jitter,
        Z,
        learn=learn,
        learning_iterations=learning_iterations,
        learning_tolerance=learning_tolerance,
        block_size=block_size,
        memory_budget=memory_budget,
    )
