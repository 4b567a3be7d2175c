"""svgpc: sparse variational GP classification with the probit link, natural gradients. A baseline of wenzel2019.

The bound of Hensman et al. 2015, L = sum_i E[log Phi(y_i f_i)] - KL(q(u) || p(u)), by the natural gradients of
Salimbeni et al. 2018. With m_i, v_i the moments of q(f_i) and g = log Phi(y .), Bonnet and Price give dL/dm_i = E[g'],
dL/dv_i = E[g'']/2, and a natural-gradient step of rate rho moves Gaussian sites (see `fast.one_latent.sites`)

    tau_i <- (1 - rho) tau_i - rho E[g''_i],     nu_i <- (1 - rho) nu_i + rho (E[g'_i] - E[g''_i] m_i).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.declare import takes_values
from fast.core.inputs import Hyper
from fast.core.options import Accelerated, Blocks, Iteration, Search, Storage, Watched
from fast.core.results import Gradients
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior, moved
from fast.likelihood.probit import LinkMoments, expected_log_probit
from fast.methods.x_gpc import Prepared, prepare
from fast.one_latent.learning import Learned, WarmSearch, starting
from fast.one_latent.predict import ProbitPrediction, full_latent, probit_prediction, sparse_latent
from fast.one_latent.prior import FullPrior
from fast.one_latent.site_gradients import full_site_gradients, sparse_site_gradients
from fast.one_latent.sites import SitePosterior, condition, kl_from_sites
from fast.one_latent.whitened import SitedPosterior
from fast.solve.site_iteration import SiteSteps, Visit, iterate_sites


@dataclass(frozen=True, kw_only=True, eq=False)
class SVGPCOptions(Iteration, Watched, Accelerated, Storage):
    """Options of `fit`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorSearch(Storage, Search):
    """Options of `learn_prior`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SVGPCLearning(SVGPCOptions, PriorSearch):
    """Options of `fit_learning`."""


DEFAULTS = SVGPCOptions()


@dataclass(frozen=True, eq=False)
class SVGPCPosterior(SitedPosterior):
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
    def latent_mean(self) -> FloatArray:
        """Mean of q(f_i): (n,)."""
        return self.sites.proj_mean


@one_thread
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
    return -link.curvature, link.derivative - link.curvature * latent_mean


def cond_var_of(prior: Prepared) -> FloatArray | float:
    """Variance of f_i that the inducing values leave open: (n,), 0 for a full GP.

    Parameters
    ----------
    prior    from `prepare`
    """
    return 0.0 if isinstance(prior, FullPrior) else prior.cond_var


@one_thread
def converge(
    prior: Prepared,
    options: SVGPCOptions = DEFAULTS,
    *,
    start: tuple[FloatArray, FloatArray] | None = None,
    expected: Callable[[FloatArray, FloatArray, FloatArray], LinkMoments] | None = None,
) -> SVGPCPosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior                    from `prepare`
    options                  of `fit`
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
    end = iterate_sites(
        visit,
        (np.zeros(n), np.zeros(n)) if start is None else start,
        SiteSteps(options.tolerance, options.max_iterations, monotone=True, accelerate=options.accelerate),
        options.callback,
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


@takes_values
def fit(data: Data, prior: Prior, options: SVGPCOptions = DEFAULTS) -> SVGPCPosterior:
    """Natural gradients of all data to the maximum of the bound, hyper-parameters held; the bound never falls.

    Starts at q = p. Time a step 2 n m^2 + m^3/3 plus one quadrature a datum; full 5 n^3/3.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function
    options          tolerance on the scaled distance of the sites from the fixed point (`fast.solve.site_iteration`);
                     without acceleration plain steps of rate 1, halved where the bound would fall; the callback is
                     given a Progress after every step

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    return converge(prepare(data, prior, options), options)


@Blocks.checks
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
    if isinstance(prior, FullPrior):
        mean, var = full_latent(X_test, prior.X, prior.hyper, site_precision, sites.factor, sites.weights, block_size)
    else:
        mean, var = sparse_latent(X_test, prior.Z, prior.hyper, prior.chol_K, sites.factor, sites.weights, block_size)
    return probit_prediction(mean, var)


@Blocks.checks
def predict(posterior: SVGPCPosterior, X_test: Any, *, block_size: int = 4096) -> ProbitPrediction:
    """Predictions of a batch fit.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_sites(posterior.prior, posterior.sites, posterior.site_precision, X_test, block_size=block_size)


@one_thread
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
    return sparse_site_gradients(prior, sites.factor, sites.weights, posterior.link.derivative, precision, precision)


@one_thread
def learn_prior(
    converge: Callable[..., Any],
    value_and_gradients: Callable[[Any], tuple[float, Gradients]],
    data: Data,
    prior: Prior,
    options: PriorSearch,
) -> tuple[Any, Learned]:
    """L-BFGS-B on an objective of sites, each evaluation converged from the sites of the one before.

    Parameters
    ----------
    converge : callable                (prepared prior, start=sites) -> posterior
    value_and_gradients : callable     posterior -> what is maximised, and its gradient
    data : Data                        labels 0, 1
    prior : Prior                      where the search starts
    options                            of the search, whose tolerance is on the gradient in logarithms (Z as it is), and
                                       of storage

    Returns
    -------
    posterior at the best parameters, and how the search went
    """
    data, packing = starting(data, prior, options.learn, options.hyperprior)

    def run(hyper: Hyper, Z: FloatArray | None, start: Any) -> Any:
        return converge(prepare(data, moved(prior, hyper, Z), options), start=start)

    search = WarmSearch(run, value_and_gradients, lambda at: (at.site_precision, at.site_shift))
    return search.maximum(packing, options)


@takes_values
def fit_learning(data: Data, prior: Prior, options: SVGPCLearning) -> tuple[SVGPCPosterior, Learned]:
    """Maximise the bound over q(u) and over parameters of the prior, by L-BFGS-B.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function, where the search starts
    options          of `fit` and of the search (`learn_prior`); the callback is not called
    """
    run = partial(converge, options=replace(options, callback=None))
    return learn_prior(run, lambda posterior: (posterior.elbo, gradients(posterior)), data, prior, options)
